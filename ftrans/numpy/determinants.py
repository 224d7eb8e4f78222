"""Determinants, and eigenvalues of general matrices, for `ftrans.numpy.linalg`.

JAX computes them. Where its derivative is not there, or not finite though it exists, it is that of
another formula of the same value.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans import primitives as p
from ftrans.interop import from_jax
from ftrans.ir import type_of
from ftrans.ir.dtype import is_half
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.creation import ones
from ftrans.numpy.elementwise import multiply
from ftrans.numpy.factorizations import matrices, solve, svd
from ftrans.numpy.indexing import getitem
from ftrans.numpy.logic import where
from ftrans.numpy.promotion import cast
from ftrans.numpy.shaping import concatenate

__all__ = ["det", "eig", "eigvals"]


def _det_of(a: Any) -> Any:
    """Is `jnp.linalg.det`; of small matrices the polynomial itself, which has all derivatives."""
    n = a.shape[-1]
    if n > 3:
        return jnp.linalg.det(a)
    first, second = a[..., 0, :], a[..., 1, :]
    if n == 2:
        return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    return (first * jnp.cross(second, a[..., 2, :])).sum(-1)


_det = from_jax(_det_of)


def det(a: Any) -> Any:
    """Returns the determinants of square matrices, f64[..., n, n].

    They are polynomials, and so differentiated where matrices are singular too: the derivative is
    the adjugate. From n = 4 on that holds up to the third derivative.

    Example:
        >>> from ftrans import func
        >>> func.grad(det)(np.diag([2.0, 3.0, 5.0, 0.0])).diagonal()
        array([ 0.,  0.,  0., 30.])
    """
    a = matrices("det", a, square=True)
    *batch, _, n = type_of(a).shape
    if n == 0:
        return ones(tuple(batch), dtype=type_of(a).dtype)
    if n == 1:
        return getitem(a, (..., 0, 0))
    if is_half(type_of(a).dtype):
        return cast(det(cast(a, "float32")), type_of(a).dtype)
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
    u, s, vh = svd(p.stop_gradient_p(a), full_matrices=False)
    c = getitem(s, (..., slice(n - 4, n - 3), None))
    limit = multiply(getitem(s, (..., slice(0, 1), None)), n * float(jnp.finfo(t.dtype).eps))
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
    block = getitem(solve(m, ends), (..., slice(n, n + 3), slice(None)))
    return where(getitem(is_lost, (..., 0, 0)), 0.0, multiply(_det(m), _det(block)))


EigResult = namedtuple("EigResult", ["eigenvalues", "eigenvectors"])


def _eig_of(a: Any) -> Any:
    return jax.lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True)


@jax.custom_jvp
def _eigvals_of(a: Any) -> Any:
    return jnp.linalg.eigvals(a)


@_eigvals_of.defjvp
def _push_eigvals(primals: Any, tangents: Any) -> Any:
    values, vectors = _eig_of(*primals)
    turned = jnp.linalg.solve(vectors, tangents[0].astype(vectors.dtype) @ vectors)
    return values, jnp.diagonal(turned, axis1=-2, axis2=-1)


_eig, _eigvals = map(from_jax, (_eig_of, _eigvals_of))


def _general(name: str, a: Any) -> Any:
    """Returns matrices in a precision that LAPACK has; empty ones have no derivative."""
    a = matrices(name, a, square=True)
    if is_half(type_of(a).dtype):
        a = cast(a, "float32")
    return p.stop_gradient_p(a) if 0 in type_of(a).shape else a


def eig(a: Any) -> Any:
    """Returns the eigenvalues and the eigenvectors, of norm 1, of square matrices, f64[..., n, n].

    Derivatives exist where eigenvalues differ. Those of eigenvectors mean something where what is
    made of them does not depend on their phases.
    """
    return EigResult(*_eig(_general("eig", a)))


def eigvals(a: Any) -> Any:
    """Returns the eigenvalues, which are complex, of square matrices, f64[..., n, n].

    Derivatives exist where eigenvalues differ.
    """
    return _eigvals(_general("eigvals", a))
