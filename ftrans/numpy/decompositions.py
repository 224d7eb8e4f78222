"""Determinants and decompositions of matrices, differentiable where they are smooth.

JAX computes them. Where its derivative is not there, or not finite though it exists, it is that of
another formula of the same value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftrans import primitives as p
from ftrans.interop import from_jax
from ftrans.ir import type_of
from ftrans.numpy import reduction
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.creation import ones, zeros
from ftrans.numpy.elementwise import add, conj, multiply
from ftrans.numpy.indexing import getitem
from ftrans.numpy.linear import matmul
from ftrans.numpy.logic import greater, where
from ftrans.numpy.promotion import inexact
from ftrans.numpy.shaping import atleast_2d, concatenate, expand_dims, matrix_transpose

__all__ = ["det", "eig", "eigh", "eigvals", "eigvalsh", "matrix_rank", "qr", "svd"]

_det, _qr, _svd, _solve = map(
    from_jax, (jnp.linalg.det, jnp.linalg.qr, jnp.linalg.svd, jnp.linalg.solve)
)


def det(a: Any) -> Any:
    """Returns the determinants of square matrices, f64[..., n, n].

    They are polynomials, and so differentiated where matrices are singular too: the derivative is
    the adjugate. From n = 4 on that holds up to the third derivative.

    Example:
        >>> from ftrans import func
        >>> func.grad(det)(np.diag([2.0, 3.0, 5.0, 0.0])).diagonal()
        array([ 0.,  0.,  0., 30.])
    """
    a = inexact(a)
    *batch, _, n = type_of(a).shape or (0, 0)
    if n == 0:
        return ones(tuple(batch), dtype=type_of(a).dtype)
    if n == 1:
        return getitem(a, (..., 0, 0))
    return _det(a) if n < 4 else p.graft_p(_det(a), _bordered_det(a, n))


def _bordered_det(a: Any, n: int) -> Any:
    """Returns the determinants by way of matrices that are regular where A is not.

    Let U and V be the singular vectors of the three smallest singular values, and c the next one.
    Then M = [[A, cU], [cV*, 0]] is regular, be these zero or not, and det A = det M det B, where B
    is the last block, 3 by 3, of the inverse of M. U, V and c are constants: the identity holds
    for all of them. With c = 0 all derivatives up to the third are zero.

    Reference:
        Jacobi's identity for complementary minors of the inverse, Horn and Johnson, 0.8.4.
    """
    t = type_of(a)
    u, s, vh = _svd(p.stop_gradient_p(a), full_matrices=False)
    c = getitem(s, (..., slice(n - 4, n - 3), None))
    limit = multiply(getitem(s, (..., slice(0, 1), None)), n * np.finfo(t.dtype).eps)
    is_lost = p.le_p(c, limit)
    a = where(is_lost, np.eye(n, dtype=t.dtype), a)
    c = where(is_lost, 1.0, c)
    right = concatenate([a, multiply(c, getitem(vh, (..., slice(n - 3, n), slice(None))))], -2)
    above = multiply(c, getitem(u, (..., slice(n - 3, n))))
    column = concatenate(
        [above, broadcast_to(np.zeros((3, 3), t.dtype), (*t.shape[:-2], 3, 3))], -2
    )
    m = concatenate([right, column], -1)
    ends = broadcast_to(np.eye(n + 3, 3, -n, dtype=t.dtype), (*t.shape[:-2], n + 3, 3))
    block = getitem(_solve(m, ends), (..., slice(n, n + 3), slice(None)))
    return where(getitem(is_lost, (..., 0, 0)), 0.0, multiply(_det(m), _det(block)))


def qr(a: Any, mode: str = "reduced") -> Any:
    """Returns Q with orthonormal columns and R, an upper triangle, of which Q R is the matrix.

    Derivatives exist where the first columns are independent; not of the columns that a "complete"
    Q has beyond those of a tall matrix, which are not determined.

    Args:
        a: f64[..., m, n].
        mode: "reduced" for Q of min(m, n) columns, "complete" for m, "r" for R alone.
    """
    a = inexact(a)
    *_, rows, columns = type_of(a).shape
    if rows >= columns or mode not in ("reduced", "complete", "r"):
        return _qr(a, mode=mode)
    q, r = found = _qr(getitem(a, (..., slice(rows))))
    rest = matmul(conj(matrix_transpose(q)), getitem(a, (..., slice(rows, None))))
    r = concatenate([r, rest], -1)
    return r if mode == "r" else type(found)(q, r)


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Returns U, the singular values in order, and V*, of which U diag(s) V* is the matrix.

    Derivatives of singular vectors exist where singular values differ, and mean something where
    what is made of them does not depend on their phases.

    Args:
        a: f64[..., m, n].
        full_matrices: whether U and V are square.
        compute_uv: whether U and V are returned as well.
        hermitian: whether the matrices are Hermitian.
    """
    a = inexact(a)
    *_, rows, columns = type_of(a).shape
    if not compute_uv or not full_matrices or rows == columns or 0 in (rows, columns):
        return _svd(_unmoved(a), full_matrices, compute_uv, hermitian)
    u, s, vh = found = _svd(a, full_matrices=False)
    if rows > columns:
        return type(found)(_completed(u), s, vh)
    return type(found)(u, s, matrix_transpose(_completed(matrix_transpose(vh))))


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Returns how many singular values of matrices, f64[..., m, n], count as more than zero.

    Args:
        A: the matrices; fewer than two axes make a row.
        tol: up to where they do not.
        hermitian: whether the matrices are Hermitian.
        rtol: the same, relative to the largest of them; max(m, n) times the machine epsilon.
    """
    A = atleast_2d(inexact(A))
    t = type_of(A)
    if 0 in t.shape[-2:]:
        return zeros(t.shape[:-2], dtype=np.int64)
    s = _svd(A, compute_uv=False, hermitian=hermitian)
    if tol is None:
        relative = max(t.shape[-2:]) * np.finfo(t.dtype).eps if rtol is None else rtol
        tol = multiply(expand_dims(relative, -1), reduction.max(s, axis=-1, keepdims=True))
    else:
        tol = expand_dims(tol, -1)
    return reduction.sum(greater(s, tol), axis=-1)


def _completed(u: Any) -> Any:
    """Returns orthonormal columns with others, that make them a basis.

    Where U moves, the columns W beyond it move the least: as (1 - U U*) C (1 - X)^(-1/2), where C
    is W as a constant and X = C* U U* C, which is zero of second order.
    """
    k = type_of(u).shape[-1]
    basis = _qr(p.stop_gradient_p(u), mode="complete")[0]
    c = p.stop_gradient_p(getitem(basis, (..., slice(k, None))))
    common = matmul(conj(matrix_transpose(u)), c)
    x = matmul(conj(matrix_transpose(common)), common)
    moved = add(c, multiply(-1, matmul(u, common)))
    root = add(multiply(0.5, x), multiply(0.375, matmul(x, x)))
    return concatenate([u, add(moved, matmul(moved, root))], -1)


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """What `eig` returns."""

    eigenvalues: Any
    eigenvectors: Any


def _eig_of(a: Any) -> Any:
    return jax.lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True)


def _hermitian_eig(lower: bool, vectors: bool) -> Any:
    """Returns a function of one triangle, with JAX's rule for tangents that are Hermitian."""

    @jax.custom_jvp
    def eig_of(a: Any) -> Any:
        v, w = jax.lax.linalg.eigh(a, lower=lower, symmetrize_input=False)
        return (w, v) if vectors else w

    @eig_of.defjvp
    def push(primals: Any, tangents: Any) -> Any:
        w, v = found = eig_of(*primals) if vectors else both(*primals)
        turned = v.conj().mT @ tangents[0] @ v
        dw = jnp.diagonal(turned, axis1=-2, axis2=-1).real
        if not vectors:
            return w, dw
        one = jnp.eye(w.shape[-1], dtype=w.dtype)
        inverse = 1 / (w[..., None, :] - w[..., :, None] + one) - one
        return found, (dw, v @ (turned * inverse.astype(v.dtype)))

    both = eig_of if vectors else _hermitian_eig(lower, True)
    return eig_of


_EIGH = {
    (lower, vectors): from_jax(_hermitian_eig(lower, vectors))
    for lower in (True, False)
    for vectors in (True, False)
}


def _grafted(a: Any) -> Any:
    """Returns matrices of which one triangle is read; a gradient goes to both, in halves."""
    a = inexact(a)
    return p.graft_p(a, multiply(0.5, add(a, matrix_transpose(conj(a)))))


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Returns eigenvalues, in order, and eigenvectors of Hermitian matrices, f64[..., n, n].

    Derivatives of eigenvectors exist where eigenvalues differ, and so do second ones of
    eigenvalues. The gradient is Hermitian, as PyTorch's is.

    Args:
        a: the matrices.
        UPLO: which triangle is read, "L" or "U".
    """
    return EighResult(*_EIGH[UPLO.upper() == "L", True](_grafted(a)))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Returns the eigenvalues, in order, of Hermitian matrices, f64[..., n, n].

    Args:
        a: the matrices.
        UPLO: which triangle is read, "L" or "U".
    """
    return _EIGH[UPLO.upper() == "L", False](_grafted(a))


@jax.custom_jvp
def _eigvals_of(a: Any) -> Any:
    return jnp.linalg.eigvals(a)


@_eigvals_of.defjvp
def _push_eigvals(primals: Any, tangents: Any) -> Any:
    values, vectors = _eig_of(*primals)
    turned = jnp.linalg.solve(vectors, tangents[0].astype(vectors.dtype) @ vectors)
    return values, jnp.diagonal(turned, axis1=-2, axis2=-1)


_eig, _eigvals = map(from_jax, (_eig_of, _eigvals_of))


def _unmoved(a: Any) -> Any:
    """Returns matrices, without a derivative where there is nothing in them."""
    return p.stop_gradient_p(a) if 0 in type_of(a).shape else a


def eig(a: Any) -> Any:
    """Returns the eigenvalues and the eigenvectors, of norm 1, of square matrices, f64[..., n, n].

    Derivatives exist where eigenvalues differ. Those of eigenvectors mean something where what is
    made of them does not depend on their phases.
    """
    return EigResult(*_eig(_unmoved(inexact(a))))


def eigvals(a: Any) -> Any:
    """Returns the eigenvalues, which are complex, of square matrices, f64[..., n, n].

    Derivatives exist where eigenvalues differ.
    """
    return _eigvals(_unmoved(inexact(a)))
