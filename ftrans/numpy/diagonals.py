"""Matrices with a diagonal, and the parts of matrices beside one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import is_tracing, type_of
from ftrans.numpy.axes import broadcast_to, flattened
from ftrans.numpy.creation import canonical_shape, counted, made
from ftrans.numpy.promotion import as_array, cast, default_dtype, filled, is_array
from ftrans.numpy.rearrangement import diagonal
from ftrans.primitives import add_p, eq_p, ge_p, pad_p, reshape_p, scalar, select_p

__all__ = ["diag", "diagflat", "eye", "identity", "tri", "tril", "triu"]


def _below(shape: tuple[int, ...], k: int, compare: Any = ge_p) -> Any:
    """Compares the row plus k with the column, over the last two axes."""
    row, column = (counted(shape, axis) for axis in (len(shape) - 2, len(shape) - 1))
    k = broadcast_to(cast(k, "int32"), shape) if is_array(k) else k
    return compare(add_p(row, k), column)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Returns a matrix with ones on a diagonal.

    Args:
        N: the number of rows.
        M: the number of columns; None is N.
        k: how far the diagonal lies above the main one.
        dtype: the dtype; None is `ftrans.get_default_dtype()`.
        device: where to put it, as for `asarray`.
    """
    shape, own = canonical_shape("eye", (N, N if M is None else M)), dtype or default_dtype(float)
    if type(k) is int and not is_tracing():
        return made(np.eye(shape[0], shape[1], k, dtype=own), device)
    return made(cast(_below(shape, k, eq_p), own), device)


def identity(n: int, dtype: Any = None) -> Any:
    """Returns the square matrix with ones on the main diagonal."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Returns a matrix with ones on a diagonal and below it; see `eye`."""
    shape = canonical_shape("tri", (N, N if M is None else M))
    return made(cast(_below(shape, k), dtype or default_dtype(float)))


def _triangle(name: str, x: Any, k: int, lower: bool) -> Any:
    operand = as_array(x)
    t = type_of(operand)
    if t.ndim < 2:
        raise ShapeError(f"{name}: takes matrices.\n  x: {t}\n  Write {name}(x[None, :]).")
    nothing = scalar(0, t.dtype)
    if lower:
        return select_p(_below(t.shape, k), operand, nothing)
    return select_p(_below(t.shape, k - 1), nothing, operand)


def tril(m: Any, k: int = 0) -> Any:
    """Returns matrices with zeros above a diagonal.

    Args:
        m: f32[..., n, m].
        k: how far the diagonal lies above the main one.
    """
    return _triangle("tril", m, k, lower=True)


def triu(m: Any, k: int = 0) -> Any:
    """Returns matrices with zeros below a diagonal.

    Args:
        m: f32[..., n, m].
        k: how far the diagonal lies above the main one.
    """
    return _triangle("triu", m, k, lower=False)


def diag(v: Any, k: int = 0) -> Any:
    """Returns the matrix with a diagonal, or the diagonal of a matrix.

    Args:
        v: f32[n] or f32[n, m].
        k: how far the diagonal lies above the main one.

    Example:
        >>> import numpy as np
        >>> diag(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([1., 4.])
    """
    x = as_array(v, None, default_dtype)
    t = type_of(x)
    if t.ndim == 1:
        out = _with_diagonal(x, k)
    elif t.ndim == 2:
        out = diagonal(x, k)
    else:
        raise ShapeError(f"diag: takes an array of one or two axes.\n  v: {t}")
    return out if is_array(v) else made(out)


def _with_diagonal(x: Any, k: int) -> Any:
    # the elements stand size + 1 apart in the flattened matrix
    n = type_of(x).size
    size = n + abs(k)
    if n == 0:
        return filled(0, (size, size), type_of(x).dtype)
    start = k if k >= 0 else -k * size
    end = size * size - start - (n - 1) * (size + 1) - 1
    flat = pad_p(x, low=(start,), high=(end,), interior=(size,), value=0)
    return reshape_p(flat, shape=(size, size))


def diagflat(v: Any, k: int = 0) -> Any:
    """Returns the matrix whose diagonal holds all elements of an array; see `diag`."""
    x = as_array(v, None, default_dtype)
    out = _with_diagonal(flattened(x), k)
    return out if is_array(v) else made(out)
