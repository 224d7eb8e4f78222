"""Norms and powers; the namespace `ftrans.numpy.linalg`, with factorizations and what is JAX's.

A norm has the gradient of least norm where it has a kink: that of the 2-norm at 0 is 0. A matrix
that is singular, or not positive definite, is an error where values are at hand, outside of traced
functions; inside, whatever runs them, what has no value is NaN or infinite, as in JAX.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, SupportsIndex

import jax.numpy as jnp
import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, AxisError, DTypeError, ShapeError
from ftrans.interop import from_jax
from ftrans.ir import type_of
from ftrans.ir.dtype import is_half
from ftrans.numpy import rearrangement, reduction
from ftrans.numpy.advice import attributes_of
from ftrans.numpy.axes import broadcast_to, canonical_axes, kept, reduced_axes
from ftrans.numpy.borrowed import borrow, double
from ftrans.numpy.bounds import concrete
from ftrans.numpy.determinants import det, eig, eigvals
from ftrans.numpy.elementwise import absolute, multiply
from ftrans.numpy.factorizations import (
    LinAlgError,
    cholesky,
    eigh,
    eigvalsh,
    inv,
    matrices,
    of_triangle,
    qr,
    solve,
    svd,
    svdvals,
)
from ftrans.numpy.linear import matmul, outer, tensordot, vecdot
from ftrans.numpy.logic import greater, where
from ftrans.numpy.promotion import as_array, cast, default_dtype, inexact
from ftrans.numpy.shaping import matrix_transpose
from ftrans.numpy.statistics import root, squares
from ftrans.numpy.views import copied

_BORROWED = """
    cross lstsq multi_dot slogdet tensorinv tensorsolve
"""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    *_BORROWED.split(),
    "LinAlgError", "cholesky", "cond", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "norm",
    "outer", "pinv", "qr", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


globals().update(borrow(jnp.linalg, _BORROWED, _BORROWED))
__getattr__ = attributes_of("numpy.linalg")


def cond(x: Any, p: Any = None) -> Any:
    """Returns the condition numbers of matrices, f64[..., n, n].

    Args:
        x: the matrices.
        p: the norm, as for `norm`; None, 2 and -2 are of singular values, of n by m matrices too.
    """
    return _cond(p)(double(x))


@functools.lru_cache(16)
def _cond(norm: Any) -> Any:
    def cond(x: Any) -> Any:
        found = jnp.linalg.cond(x, norm)
        return jnp.where(jnp.isnan(found) & ~jnp.isnan(x).any((-2, -1)), jnp.inf, found)

    return from_jax(functools.wraps(jnp.linalg.cond)(cond))


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Returns the pseudo-inverses of matrices, f64[..., n, m].

    Args:
        a: the matrices.
        rcond: another name for `rtol`.
        hermitian: whether they are Hermitian, of which the lower triangle is read.
        rtol: how large singular values are at least, relative to the largest, to count, known
            while tracing; None for 10 max(n, m) times the precision, as in JAX.
    """
    if rtol is None:
        rtol = rcond
    elif rcond is not None:
        raise ArgumentError("pinv: rcond and rtol are two names of one tolerance.")
    if rtol is not None:
        rtol = np.asarray(concrete(rtol, "pinv() with rtol"), "float64")
        rtol = rtol.shape, rtol.tobytes()
    a = of_triangle("pinv", a, lower=True) if hermitian else matrices("pinv", a)
    return _pinv(rtol, hermitian)(a)


@functools.lru_cache(256)
def _pinv(rtol: Any, hermitian: bool) -> Any:
    """Makes `pinv` for a tolerance, which JAX differentiates only where it is a constant."""
    known = None if rtol is None else np.frombuffer(rtol[1]).reshape(rtol[0])
    return from_jax(lambda a: jnp.linalg.pinv(a, rtol=known, hermitian=hermitian))


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Returns how many singular values of matrices, f64[..., n, m], are not negligible.

    Args:
        A: the matrices; of a vector it is 1 unless all its elements are 0.
        tol: how large singular values are at least to count.
        hermitian: whether the matrices are Hermitian.
        rtol: the same, relative to the largest; max(n, m) times the precision where both are None.
    """
    if tol is not None and rtol is not None:
        raise ArgumentError("matrix_rank: takes tol or rtol, not both.")
    x = double(A)
    t = type_of(x)
    count = functools.partial(reduction.sum, axis=-1, dtype=default_dtype(int))
    if t.ndim < 2:
        return count(p.reshape_p(reduction.any(x), shape=(1,)))
    values = absolute(eigvalsh(x)) if hermitian else svdvals(x)
    if tol is None:
        if rtol is None:
            rtol = max(t.shape[-2:]) * float(jnp.finfo(t.dtype).eps)
        tol = multiply(reduction.max(values, axis=-1, initial=0), rtol)
    tol = as_array(tol)
    return count(greater(values, p.reshape_p(tol, shape=(*type_of(tol).shape, 1))))


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Returns the diagonals of matrices, f32[..., n, m], which `ftrans.numpy` takes elsewhere.

    Args:
        x: an array of rank two or more.
        offset: how far above the main diagonal.
    """
    return rearrangement.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Returns the sums of the diagonals of matrices, f32[..., n, m].

    Args:
        x: an array of rank two or more.
        offset: how far above the main diagonal.
        dtype: the dtype to sum in.
    """
    return rearrangement.trace(x, offset, -2, -1, dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Returns the norms of vectors.

    Args:
        x: an array; integers are converted to the default dtype.
        axis: where the vectors lie; several axes, or None for all, are one vector.
        keepdims: whether these axes stay, with size 1.
        ord: the order p of `(sum |x|^p)^(1/p)`; inf and -inf for the largest and the smallest
            `|x|`, 0 for the number of elements that are not 0.

    Example:
        >>> vector_norm(np.array([3.0, 4.0]))
        array(5.)
    """
    x = inexact(x)
    axes = reduced_axes("vector_norm", axis, type_of(x).ndim)
    return kept(_vector_norm(x, axes, ord), type_of(x).shape, axes, keepdims)


def _vector_norm(x: Any, axes: tuple[int, ...], order: Any) -> Any:
    dtype = type_of(x).dtype
    if is_half(dtype):  # as PyTorch has it: squares overflow, and vanish
        return p.convert_p(_vector_norm(cast(x, "float32"), axes, order), dtype=dtype)
    if hasattr(order, "dtype"):
        order = concrete(order, "norm() with its order").item()
    if order == 2:
        return root(p.sum_p(squares(x), axes=axes))
    size = p.abs_p(x)
    if order == math.inf and 0 in (type_of(x).shape[axis] for axis in axes):
        order = 1  # an empty vector has norm 0, as in NumPy
    if order in _REDUCED:
        return _REDUCED[order](size, axes=axes)
    if order == 0:
        return p.sum_p(p.convert_p(p.ne_p(x, 0), dtype=type_of(size).dtype), axes=axes)
    if isinstance(order, str):
        raise ArgumentError(f"norm: vectors have no norm of order {order!r}.")
    if order < 0:  # that of a vector with a zero is zero, and its slope as well
        is_zero = p.eq_p(p.min_p(size, axes=axes), 0)
        size = p.select_p(p.eq_p(size, 0), 1.0, size)
        found = p.pow_p(p.sum_p(p.pow_p(size, float(order)), axes=axes), 1.0 / order)
        return p.select_p(is_zero, 0.0, found)
    return _power(p.sum_p(_power(size, float(order)), axes=axes), 1.0 / order)


_REDUCED: dict[Any, Any] = {1: p.sum_p, math.inf: p.max_p, -math.inf: p.min_p}


def _power(x: Any, exponent: float) -> Any:
    """Returns a positive power of what is not negative, with derivative 0 at 0."""
    is_zero = p.eq_p(x, 0)
    return p.select_p(is_zero, 0.0, p.pow_p(p.select_p(is_zero, 1.0, x), exponent))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Returns the norms of matrices.

    Args:
        x: f32[..., n, m].
        keepdims: whether the last two axes stay, with size 1.
        ord: "fro" for the root of the sum of squares; 1 and -1 for the largest and the smallest sum
            of the absolute values of a column, inf and -inf for those of a row; 2 and -2 for the
            largest and the smallest singular value, "nuc" for the sum of all.
    """
    x = inexact(x)
    ndim = type_of(x).ndim
    if ndim < 2:
        raise AxisError(f"matrix_norm: takes matrices.\n  x: {type_of(x)}")
    axes = (ndim - 2, ndim - 1)
    return kept(_matrix_norm(x, axes, ord), type_of(x).shape, axes, keepdims)


def _matrix_norm(x: Any, axes: tuple[int, ...], order: Any) -> Any:
    rows, columns = axes
    if order in ("fro", "f"):
        return _vector_norm(x, axes, 2)
    if order in (2, -2, "nuc"):
        ends = tuple([axis for axis in range(type_of(x).ndim) if axis not in axes])
        x = where(reduction.all(p.eq_p(x, 0), axis=axes, keepdims=True), 0.0, x)
        values = svdvals(p.transpose_p(x, permutation=(*ends, *axes)))
        if order == -2:
            return reduction.min(values, axis=-1)
        start = {"initial": 0.0} if order == 2 and type_of(values).shape[-1] == 0 else {}
        return (reduction.max if order == 2 else reduction.sum)(values, axis=-1, **start)
    if order not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"norm: matrices have no norm of order {order!r}.")
    summed, left = (rows, columns) if abs(order) == 1 else (columns, rows)
    largest = p.max_p if type_of(x).shape[left] else p.sum_p  # of nothing it is 0
    reduce = largest if order > 0 else p.min_p
    return reduce(p.sum_p(p.abs_p(x), axes=(summed,)), axes=(left - (left > summed),))


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Returns the norm of an array, or those of the vectors or matrices along axes of it.

    Args:
        x: an array; integers are converted to the default dtype.
        ord: as for `vector_norm`, and for `matrix_norm` with two axes; None means the root of the
            sum of squares.
        axis: an axis for vectors, two for matrices, None for the whole array.
        keepdims: whether these axes stay, with size 1.

    Example:
        >>> norm(np.array([[3.0, 0.0], [0.0, 4.0]]))
        array(5.)
    """
    x = inexact(x)
    t = type_of(x)
    axes = canonical_axes("norm", axis, t.ndim)
    if ord is None and (axes or axis is None):
        found = _vector_norm(x, axes, 2)
    elif len(axes) == 1:
        found = _vector_norm(x, axes, ord)
    elif len(axes) == 2:
        found = _matrix_norm(x, axes, ord)
    else:
        raise AxisError(
            f"norm: a norm of order {ord!r} takes one axis or two.\n  x: {t}, axis={axis}"
        )
    return kept(found, t.shape, axes, keepdims)


def matrix_power(a: Any, n: int) -> Any:
    """Multiplies square matrices with themselves.

    Args:
        a: f32[..., m, m].
        n: how often; a negative number multiplies the inverse.
    """
    x = as_array(a)
    t = type_of(x)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices.\n  x: {t}")
    if not isinstance(n, SupportsIndex):
        raise DTypeError(f"matrix_power: the exponent is an integer.\n  n: {n!r}")
    n = operator.index(n)
    if n < 0:
        x, n = inv(x), -n
    if n == 0:
        return broadcast_to(np.eye(t.shape[-1], dtype=t.dtype), t.shape)
    result = None
    while n:
        if n % 2:
            result = x if result is None else matmul(result, x)
        n //= 2
        if n:
            x = matmul(x, x)
    return copied(result)
