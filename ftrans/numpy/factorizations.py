"""Factors of matrices and what is solved by them, for `ftrans.numpy.linalg`.

Derivatives of singular vectors and eigenvectors exist where the values that they belong to differ,
and are those of vectors whose phase stays as it is: ask for what does not depend on the phase.
"""

from __future__ import annotations

import functools
import inspect
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans import errors
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import is_tracing, type_of
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.borrowed import Function, double
from ftrans.numpy.bounds import at_hand
from ftrans.numpy.elementwise import add, conj, multiply
from ftrans.numpy.logic import where
from ftrans.numpy.promotion import is_array, promoted
from ftrans.numpy.shaping import matrix_transpose
from ftrans.primitives.matrices import on_diagonal
from ftrans.runtime.jaxlink import is_traced_by_jax, on_cpu, to_jax, unseen, x64

__all__ = ["LinAlgError", "cholesky", "eigh", "eigvalsh", "inv", "qr", "solve", "svd", "svdvals"]


class LinAlgError(errors.LinAlgError, np.linalg.LinAlgError):
    """Is the error of both libraries."""


def _checked(function: Function) -> Function:
    """Makes what raises for a matrix that LAPACK cannot factor, where its values are at hand."""

    @functools.wraps(function)
    def called(a: Any, *args: Any, **kwargs: Any) -> Any:
        out = function(a, *args, **kwargs)
        if is_lost(out):
            _raise_for(function.__name__, np.asarray(a), not kwargs.get("upper", False))
        return out

    called.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{_RAISES}"
    return called


def _is_known(*arrays: Any) -> bool:
    """Tells whether nobody traces, and so nobody differentiates."""
    return not is_tracing() and not any(map(is_traced_by_jax, arrays))


def is_lost(out: Any) -> bool:
    """Tells whether a result is at hand and not finite."""
    if not is_array(out) or not at_hand(out) or is_tracing():
        return False
    on_host = on_cpu([out])  # where NumPy reads it as it lies
    return not (np.isfinite(np.asarray(out)) if on_host else jnp.isfinite(out)).all()


_RAISES = """
    Raises:
        LinAlgError: outside of traced functions, where it does not exist; inside, it is not finite.
    """


def _raise_for(name: str, matrices: np.ndarray, lower: bool) -> None:
    from scipy.linalg.lapack import get_lapack_funcs  # which takes its time

    positive = name == "cholesky"
    routine: Any = get_lapack_funcs("potrf" if positive else "getrf", (matrices,))
    for place in np.ndindex(matrices.shape[:-2]):
        matrix = matrices[place]
        info = routine(matrix, **({"lower": lower} if positive else {}))[-1]
        if info <= 0 or not np.isfinite(matrix).all():
            continue
        where = f"{type_of(matrices)}{f', matrix {list(place)}' if place else ''}"
        if positive:
            raise LinAlgError(
                f"{name}: a matrix is not positive definite.\n"
                f"  a: {where}: its leading minor of order {info} is not positive\n"
                f"  Where only rounding is to blame, add to its diagonal: a + 1e-10 * eye(n)."
            )
        raise LinAlgError(
            f"{name}: a matrix is singular.\n  a: {where}: pivot {info} is 0\n"
            f"  Write ftrans.numpy.linalg.lstsq or pinv for the solution of least norm."
        )


EighResult = namedtuple("EighResult", ["eigenvalues", "eigenvectors"])
QRResult = namedtuple("QRResult", ["Q", "R"])
SVDResult = namedtuple("SVDResult", ["U", "S", "Vh"])


def matrices(name: str, x: Any, square: bool = False) -> Any:
    """Returns an argument as matrices of floating point."""
    x = double(x)
    t = type_of(x)
    if t.ndim < 2 or (square and t.shape[-1] != t.shape[-2]):
        wanted = "square matrices, f64[..., n, n]" if square else "matrices, f64[..., m, n]"
        raise ShapeError(f"{name}: takes {wanted}.\n  given: {t}")
    return x


def of_triangle(name: str, x: Any, lower: bool | None = None, turn: Function = conj) -> Any:
    """Returns matrices of which one triangle is read; a gradient goes to both, in halves.

    Args:
        name: how errors call the function.
        x: the matrices.
        lower: the triangle that is mirrored; None where the factorization reads only one itself.
        turn: what an element is on the other side.
    """
    x = matrices(name, x, square=True)
    if lower is None and _is_known(x):
        return x
    mirror = matrix_transpose(turn(x))
    half = multiply(0.5, add(x, mirror))
    if lower is not None:
        read = np.tri(type_of(x).shape[-1], k=-1, dtype=bool)
        read, other = (read, read.T) if lower else (read.T, read)
        x = where(read, x, where(other, mirror, half))
    return p.graft_p(x, half)


@_checked
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Returns the Cholesky factors of Hermitian matrices, f64[..., n, n].

    The gradient is that of Hermitian matrices: it is Hermitian itself.

    Args:
        a: positive definite matrices.
        upper: whether the upper triangle is read, and the factor is an upper one.

    Example:
        >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        array([[2., 0.],
               [1., 2.]])
    """
    a = of_triangle("cholesky", a)
    if not upper:
        return p.cholesky_p(a)
    return matrix_transpose(conj(p.cholesky_p(matrix_transpose(conj(a)))))


def _reads_lower(name: str, UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise ArgumentError(
            f"{name}: UPLO is 'L' or 'U', the triangle that is read.\n  UPLO: {UPLO!r}"
        )
    return UPLO.upper() == "L"


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """Returns eigenvalues, in order, and eigenvectors of Hermitian matrices, f64[..., n, n].

    The gradient is that of Hermitian matrices: it is Hermitian itself.

    Args:
        a: the matrices.
        UPLO: which triangle is read, "L" or "U".

    Example:
        >>> eigh(np.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
        array([1., 3.])
    """
    lower = _reads_lower("eigh", UPLO)
    return EighResult(*p.eigh_p(of_triangle("eigh", a), lower=lower))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Returns the eigenvalues, in order, of Hermitian matrices, f64[..., n, n].

    Args:
        a: the matrices.
        UPLO: which triangle is read, "L" or "U".
    """
    lower = _reads_lower("eigvalsh", UPLO)
    return p.eigh_p(of_triangle("eigvalsh", a), lower=lower)[0]


def qr(a: Any, mode: str = "reduced") -> Any:
    """Returns orthonormal and upper triangular factors of matrices, f64[..., m, n].

    Args:
        a: the matrices.
        mode: "reduced" for q of f64[..., m, k] and r of f64[..., k, n] with k = min(m, n);
            "complete" for square ones, which have no derivative where m > n; "r" for r alone.
    """
    a = matrices("qr", a)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(
            f'qr: mode is "reduced", "complete" or "r".\n  mode: {mode!r}\n'
            f"  Call scipy.linalg.qr for the form that LAPACK has them in."
        )
    found = p.qr_p(a, full=mode == "complete")
    return found[1] if mode == "r" else QRResult(*found)


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Returns the singular value decomposition of matrices, f64[..., m, n].

    Args:
        a: the matrices.
        full_matrices: whether the bases are complete. The columns of a basis that belong to no
            singular value have derivatives as the space that they span does.
        compute_uv: whether vectors are returned, and not the values alone.
        hermitian: whether the matrices are Hermitian, of which the lower triangle is read; their
            gradient is Hermitian too.
    """
    a = of_triangle("svd", a, lower=True) if hermitian else matrices("svd", a)
    if not compute_uv:
        return svdvals(a)
    return SVDResult(*p.svd_p(a, full=full_matrices, vectors=True))


def svdvals(x: Any, /) -> Any:
    """Returns the singular values, from the largest, of matrices, f64[..., m, n]."""
    return p.svd_p(matrices("svdvals", x), full=False, vectors=False)[0]


@_checked
def solve(a: Any, b: Any) -> Any:
    """Solves a x = b; the matrices are factored once for all derivatives.

    Args:
        a: square matrices, f64[..., n, n].
        b: one vector, f64[n], or matrices, f64[..., n, m].

    Example:
        >>> solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]))
        array([1., 2.])
    """
    if (found := _solved(a, b)) is not None:
        return found
    a, b = promoted(double(a), double(b))
    a = matrices("solve", a, square=True)
    s, t = type_of(a), type_of(b)
    is_vector = t.ndim == 1
    if t.ndim == 0 or t.shape[-1 if is_vector else -2] != s.shape[-1]:
        raise ShapeError(f"solve: b is f64[n] or f64[..., n, m].\n  a: {s}\n  b: {t}")
    if is_vector:
        b = p.reshape_p(b, shape=(*t.shape, 1))
        t = type_of(b)
    try:
        lead = np.broadcast_shapes(s.shape[:-2], t.shape[:-2])
    except ValueError:
        message = f"solve: the axes in front do not broadcast.\n  a: {s}\n  b: {t}"
        raise ShapeError(message) from None
    if (found := _solved(a, b)) is not None:
        return p.reshape_p(found, shape=found.shape[:-1]) if is_vector else found
    packed, pivots, _ = p.lu_p(p.stop_gradient_p(a))
    operands = [broadcast_to(x, (*lead, *type_of(x).shape[-2:])) for x in (a, packed)]
    pivots = broadcast_to(pivots, (*lead, s.shape[-1]))
    b = broadcast_to(b, (*lead, *t.shape[-2:]))
    x = p.lu_solve_p(*operands, pivots, b, transpose=False)
    return p.reshape_p(x, shape=(*lead, s.shape[-1])) if is_vector else x


def _solved(a: Any, b: Any) -> Any:
    """Solves by NumPy, or where the arrays lie; None for other operands, and where it fails."""
    if not is_array(a) or not is_array(b) or not _is_known(a, b):
        return None
    if a.dtype != b.dtype or a.dtype.char not in "fdFD" or min(a.ndim, b.ndim) < 2:
        return None
    try:
        if not isinstance(a, jax.Array) and not isinstance(b, jax.Array):
            return np.linalg.solve(a, b)
        with x64():
            if on_cpu([a, b]):  # NumPy's LAPACK is the faster one
                return to_jax(np.linalg.solve(np.asarray(a), np.asarray(b)))
            return jnp.linalg.solve(unseen(a), unseen(b))
    except (np.linalg.LinAlgError, ValueError, TypeError):
        return None  # the errors of shapes and of singular matrices are ours


@_checked
def inv(a: Any) -> Any:
    """Returns the inverses of square matrices, f64[..., n, n].

    Args:
        a: the matrices.
    """
    a = matrices("inv", a, square=True)
    # what is singular is told of here, not by `solve`
    return inspect.unwrap(solve)(a, p.convert_p(on_diagonal(a), dtype=type_of(a).dtype))
