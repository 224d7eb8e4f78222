"""Products of vectors, matrices and tensors, by NumPy's names; each is one or few `dot_p`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, AxisError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.axes import canonical_axes
from ftrans.numpy.einsum import contracted, einsum
from ftrans.numpy.promotion import as_array, promoted, unify
from ftrans.numpy.shaping import moveaxis, ravel
from ftrans.primitives import conj_p, conv_p, mul_p, reshape_p, rev_p

__all__ = [
    "convolve", "correlate", "dot", "einsum", "inner", "matmul", "matvec", "outer",
    "tensordot", "vdot", "vecdot", "vecmat",
]  # fmt: skip


def _conjugate(x: Any) -> Any:
    return conj_p(x) if is_complex(type_of(x).dtype) else x


def _mismatch(name: str, x: Any, y: Any, why: str, hint: str = "") -> ShapeError:
    lines = f"\n  x: {type_of(x)}\n  y: {type_of(y)}"
    return ShapeError(f"{name}: {why}.{lines}" + (f"\n  {hint}" if hint else ""))


# ------------------------------------------------------------------------------------- products


def matmul(x1: Any, x2: Any, /) -> Any:
    """Multiplies matrices; vectors count as a row on the left and as a column on the right.

    Args:
        x1: f32[..., n, k] or f32[k].
        x2: f32[..., k, m] or f32[k]; the leading axes broadcast.

    Returns:
        f32[..., n, m], without the axes that belong to vectors.

    Raises:
        ShapeError: where the sizes do not fit.

    Example:
        >>> matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
        array([3., 7.])
    """
    x, y = promoted(x1, x2)
    t, u = type_of(x), type_of(y)
    if t.ndim == 0 or u.ndim == 0:
        raise _mismatch("matmul", x, y, "takes vectors and matrices, not scalars", "Write x * y.")
    return _multiplied("matmul", x, "nk" if t.ndim > 1 else "k", y, "km" if u.ndim > 1 else "k")


def _multiplied(name: str, x: Any, of_x: str, y: Any, of_y: str) -> Any:
    """Sums over the label "k" of the last axes of two arrays; the leading axes broadcast."""
    t, u = type_of(x), type_of(y)
    if t.ndim < len(of_x) or u.ndim < len(of_y):
        raise _mismatch(name, x, y, f"takes {len(of_x)} axes of x and {len(of_y)} of y, or more")
    if t.shape[of_x.index("k") - len(of_x)] != u.shape[of_y.index("k") - len(of_y)]:
        raise _mismatch(name, x, y, "the contracted axes have different sizes")
    try:
        batch = np.broadcast_shapes(t.shape[: t.ndim - len(of_x)], u.shape[: u.ndim - len(of_y)])
    except ValueError:
        raise _mismatch(name, x, y, "the leading axes do not broadcast") from None
    lead = tuple(range(len(batch)))
    out = (*lead, *(label for label in of_x + of_y if label != "k"))
    before_x, before_y = (lead[len(lead) + len(of) - v.ndim :] for v, of in ((t, of_x), (u, of_y)))
    return contracted(x, (*before_x, *of_x), y, (*before_y, *of_y), out)


def matvec(x: Any, y: Any, /) -> Any:
    """Multiplies matrices f32[..., n, k] with vectors f32[..., k]."""
    x, y = promoted(x, y)
    return _multiplied("matvec", x, "nk", y, "k")


def vecmat(x: Any, y: Any, /) -> Any:
    """Multiplies the conjugates of vectors f32[..., k] with matrices f32[..., k, m]."""
    x, y = promoted(x, y)
    return _multiplied("vecmat", _conjugate(x), "k", y, "km")


def dot(a: Any, b: Any, /) -> Any:
    """Contracts the last axis of `x` with the last but one of `y`, or its only one.

    Args:
        a: an array; a scalar multiplies.
        b: an array.
    """
    return _contracted_last("dot", a, b, -2)


def _contracted_last(name: str, x: Any, y: Any, axis: int) -> Any:
    """Contracts the last axis of `x` with one of `y`, or its only one; scalars multiply."""
    x, y = promoted(x, y)
    if type_of(x).ndim == 0 or type_of(y).ndim == 0:
        return mul_p(*unify(name, x, y))
    return tensordot(x, y, (-1, max(axis, -type_of(y).ndim)))


def inner(a: Any, b: Any, /) -> Any:
    """Contracts the last axes of both, without conjugation."""
    return _contracted_last("inner", a, b, -1)


def vdot(a: Any, b: Any, /) -> Any:
    """Returns the sum of the products of the conjugated elements of `x` with those of `y`."""
    x, y = promoted(a, b)
    if type_of(x).size != type_of(y).size:
        raise _mismatch("vdot", x, y, "takes arrays of equally many elements")
    return contracted(_conjugate(ravel(x)), ("k",), ravel(y), ("k",), ())


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Returns the products of vectors along an axis, those of `x` conjugated.

    Args:
        x1: f32[..., k].
        x2: f32[..., k]; the other axes broadcast.
        axis: where the vectors lie, counted from the end.
    """
    x, y = promoted(x1, x2)
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    return _multiplied("vecdot", _conjugate(x), "k", y, "k")


def outer(a: Any, b: Any, /) -> Any:
    """Returns the products of all elements of `x`, as rows, with all of `y`, as columns."""
    x, y = promoted(a, b)
    return contracted(ravel(x), ("n",), ravel(y), ("m",), ("n", "m"))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Contracts several axes of two arrays.

    Args:
        a: an array.
        b: an array.
        axes: how many: the last of `x` with the first of `y`; or the axes of `x` and the axes of
            `y` that go with them.

    Example:
        >>> tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    x, y = promoted(a, b)
    t, u = type_of(x), type_of(y)
    try:
        count = operator.index(axes)
    except TypeError:
        first, second = axes
    else:
        first, second = range(t.ndim - count, t.ndim), range(count)
        if not 0 <= count <= min(t.ndim, u.ndim):
            raise _mismatch("tensordot", x, y, f"the arrays do not have {count} axes to contract")
    of_x = canonical_axes("tensordot", np.ravel(first).tolist(), t.ndim)
    of_y = canonical_axes("tensordot", np.ravel(second).tolist(), u.ndim)
    if len(of_x) != len(of_y) or any(
        t.shape[i] != u.shape[j] for i, j in zip(of_x, of_y, strict=True)
    ):
        raise _mismatch("tensordot", x, y, f"the axes {of_x} and {of_y} do not fit each other")
    left = [("x", i) for i in range(t.ndim)]
    right = [("y", j) for j in range(u.ndim)]
    for i, j in zip(of_x, of_y, strict=True):
        right[j] = left[i]
    out = [e for e in left if e not in right] + [e for e in right if e not in left]
    return contracted(x, tuple(left), y, tuple(right), tuple(out))


# ----------------------------------------------------------------------------------- convolution


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Returns the discrete convolution of two vectors.

    Args:
        a: f32[n].
        v: f32[m].
        mode: "full" for all n + m - 1 places where they overlap, "same" for the middle max(n, m)
            of them, "valid" for those where they overlap wholly.

    Example:
        >>> convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
        array([1., 3., 2.])
    """
    x, y = promoted(a, v)
    t, u = type_of(x), type_of(y)
    if t.ndim > 1 or u.ndim > 1 or t.size == 0 or u.size == 0:
        raise _mismatch("convolve", x, y, "takes two vectors that are not empty")
    if t.dtype == bool:
        raise DTypeError("convolve: booleans cannot be convolved: write x.astype('int32').")
    if u.size > t.size:
        x, y = y, x
    n, m = type_of(x).size, type_of(y).size
    ends = {"full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2), "valid": (0, 0)}
    if mode not in ends:
        raise ArgumentError(
            f"convolve: there is no mode {mode!r}: choose 'full', 'same' or 'valid'."
        )
    low, high = ends[mode]
    out = conv_p(
        reshape_p(x, shape=(1, 1, n)),
        rev_p(reshape_p(y, shape=(1, 1, m)), axes=(2,)),
        strides=(1,),
        padding=((low, high),),
        lhs_dilation=(1,),
        rhs_dilation=(1,),
        feature_groups=1,
        batch_groups=1,
    )
    return reshape_p(out, shape=(n + low + high - m + 1,))


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """Returns the correlation of two vectors: sums of `x` times the shifted conjugate of `y`.

    Args:
        a: f32[n].
        v: f32[m].
        mode: as for `convolve`.
    """
    x, y = promoted(a, v)
    if type_of(x).ndim != 1 or type_of(y).ndim != 1:
        raise AxisError("correlate: takes two vectors.")
    if type_of(y).size > type_of(x).size:  # whose middle is another one
        return rev_p(_conjugate(correlate(y, x, mode)), axes=(0,))
    return convolve(x, rev_p(_conjugate(as_array(y)), axes=(0,)), mode)
