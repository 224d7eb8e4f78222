"""Linear algebra, under SciPy's names: `jax.scipy.linalg` as programs, and what it lacks.

Where values are at hand, a matrix that is singular or not definite raises `LinAlgError`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as _of_jax
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, MissingAttributeError, ShapeError
from ftrans.interop import Namespace, from_jax
from ftrans.ir import type_of
from ftrans.numpy import linalg
from ftrans.numpy.borrowed import double
from ftrans.numpy.factorizations import is_lost, matrices, of_triangle
from ftrans.numpy.linalg import LinAlgError
from ftrans.numpy.promotion import as_array
from ftrans.scipy import sylvester
from ftrans.traceback import boundary

_found = Namespace("jax.scipy.linalg")
__dir__ = _found.__dir__
__all__ = [
    "LinAlgError", "cho_factor", "cholesky", "eigh", "inv", "lu", "solve", "solve_banded", "sqrtm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if hasattr(linalg, name) and not hasattr(_of_jax, name) and name[0] != "_":
        raise MissingAttributeError(
            f"ftrans.scipy.linalg has no attribute {name!r}.\n"
            f"  Write ftrans.numpy.linalg.{name}(...)."
        )
    return getattr(_found, name)


def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """Returns the triangular factors of positive definite matrices, f64[..., n, n].

    Args:
        a: the matrices; only one triangle is read, as `ftrans.numpy.linalg.cholesky` reads it.
        lower: whether the lower factor is returned.
        overwrite_a: has no effect.
        check_finite: has no effect.

    Raises:
        LinAlgError: where one is not positive definite.

    Example:
        >>> import numpy as np
        >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]), lower=True).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    return linalg.cholesky(a, upper=not lower)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """Returns what `cho_solve` takes: the factor of `cholesky`, and whether it is the lower one."""
    return cholesky(a, lower), lower


@boundary
def eigh(
    a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, **options: Any
) -> Any:
    """Returns eigenvalues, and eigenvectors, of Hermitian matrices, f64[..., n, n].

    Args:
        a: the matrices; only one triangle is read, as `ftrans.numpy.linalg.eigh` reads it.
        b: None: generalized problems JAX does not have.
        lower: whether that is the lower one.
        eigvals_only: whether the eigenvalues alone are returned.
        options: those of `jax.scipy.linalg.eigh`.
    """
    if b is not None or options:
        _found.eigh(a, b, **options)  # says what it does not have
    triangle = "L" if lower else "U"
    return linalg.eigvalsh(a, triangle) if eigvals_only else tuple(linalg.eigh(a, triangle))


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Returns the inverses of matrices; raises `LinAlgError` where one is singular."""
    return linalg.inv(a)


@boundary
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Any:
    """Solves `a @ x = b`.

    Args:
        a: a matrix, f64[n, n].
        b: the right sides, f64[n] or f64[n, k].
        lower: which triangle is read, for matrices that are said to be symmetric or Hermitian.
        overwrite_a: has no effect.
        overwrite_b: has no effect.
        check_finite: has no effect.
        assume_a: what is known of the matrix: "gen", "sym", "her", or "pos".

    Raises:
        LinAlgError: where it is singular, or not positive definite but said to be.
    """
    if assume_a not in ("gen", "general", "sym", "symmetric", "her", "hermitian", "pos"):
        raise ArgumentError(
            f"solve: assume_a={assume_a!r} is none of gen, sym, her, pos.\n"
            f"  For triangular matrices there is solve_triangular, for banded ones solve_banded."
        )
    if assume_a == "pos":
        return _found.cho_solve(cho_factor(a, lower), b)
    if assume_a in ("her", "hermitian"):
        a = of_triangle("solve", a, lower)
    elif assume_a in ("sym", "symmetric"):
        a = of_triangle("solve", a, lower, as_array)
    return linalg.solve(a, b)


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, ...]:
    """Returns permutations, lower and upper factors of matrices, f64[..., n, m].

    Args:
        a: the matrices.
        permute_l: whether the permutations are multiplied into the lower factors.
        overwrite_a: has no effect.
        check_finite: has no effect.
    """
    return _of_batches(_of_jax.lu, type_of(as_array(a)).ndim, permute_l)(a)


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """Returns the principal square roots of matrices, f64[..., n, n], which are complex.

    Args:
        A: the matrices.
        blocksize: has no effect.
    """
    A = double(A)
    t = type_of(A)
    return A if 0 in t.shape else _of_batches(sylvester.sqrtm, t.ndim)(A)


def polar(
    a: Any,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Any, Any]:
    """Returns unitary and semidefinite factors of matrices, f64[..., m, n].

    Their derivatives are those of matrices of full rank.

    Args:
        a: the matrices.
        side: "right" for `a = u @ p`, "left" for `a = p @ u`.
        method: "qdwh", which is "svd" where the semidefinite factor is the larger one, or "svd".
        eps: when the former has converged.
        max_iterations: how many steps it takes at most.

    Example:
        >>> import numpy as np
        >>> [x.round(9).tolist() for x in polar(np.array([[0.0, -2.0], [2.0, 0.0]]))]
        [[[0.0, -1.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 2.0]]]
    """
    a = matrices("polar", a)
    if side not in ("left", "right") or method not in ("qdwh", "svd"):
        raise ArgumentError(
            f"polar: side is 'left' or 'right', and method is 'qdwh' or 'svd'.\n"
            f"  side: {side!r}, method: {method!r}"
        )
    *_, m, n = type_of(a).shape
    if (m < n) if side == "right" else (m >= n):
        method = "svd"  # JAX refuses the other
    options = (side, method, eps, max_iterations)
    return _of_batches(sylvester.polar, type_of(a).ndim, *options)(a)


def _solver(function: Any) -> Any:
    """Makes a solver raise where its result is not finite, though what it was given is."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if is_lost(out):
            given = [x for x in tree.tree_leaves((args, kwargs)) if type(x) is not str]
            if all(np.isfinite(x).all() for x in given):
                types = ", ".join(str(type_of(as_array(x))) for x in given)
                raise LinAlgError(f"{function.__name__}: a matrix is singular.\n  given: {types}")
        return out

    return boundary(called)


for _name in ("cho_solve", "lu_solve", "solve_triangular"):
    globals()[_name] = _solver(getattr(_found, _name))
solve_sylvester = _solver(from_jax(sylvester.solve_sylvester))


@functools.lru_cache(16)
def _of_batches(base: Any, ndim: int, *args: Any) -> Any:
    """Makes a function of JAX's of one matrix one of matrices of so many axes."""
    function: Any = lambda a: base(a, *args)  # noqa: E731
    for _ in range(ndim - 2):
        function = jax.vmap(function)
    return from_jax(functools.wraps(base)(function))


@_solver
def solve_banded(
    l_and_u: tuple[int, int],
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """Solves `a @ x = b` for a banded matrix.

    A tridiagonal one takes work that grows as n; of others all of the matrix is made.

    Args:
        l_and_u: how many diagonals lie below and above the main one.
        ab: the diagonals, f64[l + u + 1, n], with `ab[u + i - j, j]` being `a[i, j]`.
        b: the right sides, f64[n] or f64[n, k].
        overwrite_ab: has no effect.
        overwrite_b: has no effect.
        check_finite: has no effect.

    Example:
        >>> import numpy as np
        >>> solve_banded((1, 1), np.array([[0.0, 1], [1, 2], [1, 0]]), np.ones(2)).tolist()
        [1.0, 0.0]
    """
    below, above = l_and_u
    bands, right = double(ab), double(b)
    rows, n = type_of(bands).shape
    if rows != below + above + 1 or type_of(right).shape[0] != n:
        raise ShapeError(
            f"solve_banded: the diagonals and right sides do not fit.\n"
            f"  l_and_u: {l_and_u}, ab: {type_of(bands)}, b: {type_of(right)}\n"
            f"  ab has l + u + 1 rows of n elements, and b has n."
        )
    return _banded(below, above)(bands, right)


@functools.lru_cache(64)
def _banded(below: int, above: int) -> Any:
    def solved(bands: Any, right: Any) -> Any:
        n = bands.shape[1]
        if below == above == 1 and n > 2:
            right = right.astype(jnp.result_type(bands, right))
            columns = right[:, None] if right.ndim == 1 else right
            upper, middle, lower = bands.astype(columns.dtype)
            lower = jnp.roll(lower, 1).at[0].set(0)
            upper = jnp.roll(upper, -1).at[-1].set(0)
            found = jax.lax.linalg.tridiagonal_solve(lower, middle, upper, columns)
            return found.reshape(right.shape)
        whole = jnp.zeros((n, n), bands.dtype)
        for row in range(below + above + 1):
            shift = above - row
            if abs(shift) < n:
                start, stop = max(shift, 0), n + min(shift, 0)
                whole = whole + jnp.diag(bands[row, start:stop], shift)
        return jnp.linalg.solve(whole, right)

    return from_jax(solved)
