"""Shapes and axes, by NumPy's names.

Where NumPy returns a view, the result is remembered as one (`views`); where it returns a copy, the
result is never the same Python object as an argument.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, AxisError, ShapeError, UnsupportedError
from ftrans.ir import Tracer, is_tracing, type_of
from ftrans.numpy.promotion import aligned, as_array, canonical_axes, canonical_axis
from ftrans.numpy.views import copied, read_only, view_of, viewed
from ftrans.primitives import broadcast_p, reshape_p, transpose_p

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "expand_dims",
    "matrix_transpose", "moveaxis", "permute_dims", "ravel", "reshape", "squeeze", "swapaxes",
    "transpose",
]  # fmt: skip


def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """Gives the elements, in the order of rows, another shape.

    Args:
        x: an array.
        shape: the sizes; one of them can be -1, which takes what is left.
        order: "C", the last axis runs fastest; "F", the first one does; or, of plain arrays, "A",
            as they lie in memory.
        copy: True for a result that is no view of `x`.

    Raises:
        ShapeError: where the number of elements is another one.
        UnsupportedError: for order "A" of a traced value, which does not lie in memory.

    Example:
        >>> reshape(np.arange(6), (2, -1))
        array([[0, 1, 2],
               [3, 4, 5]])
    """
    x = as_array(x)
    sizes = _sizes(type_of(x), shape)
    axes = axes_in_order("reshape", x, order, "CAF")
    if order == "F" or axes != tuple(sorted(axes)):
        return transpose(reshape(transpose(x), sizes[::-1], copy=copy))
    out = _view(x, sizes)
    return copied(out) if copy else out


def axes_in_order(name: str, x: Any, order: str, orders: str) -> tuple[int, ...]:
    """Returns the axes of a strict operand, the one first that runs slowest in an order.

    Args:
        name: names the function, for errors.
        x: the operand.
        order: what is asked for.
        orders: what can be asked for.
    """
    if order not in tuple(orders):
        *others, last = map(repr, orders)
        raise ArgumentError(
            f"{name}: order must be {', '.join(others)} or {last}.\n  order: {order!r}\n"
            f"  Leave it out for the order of rows."
        )
    t = type_of(x)
    rows = tuple(range(t.ndim))
    if order == "F":
        return rows[::-1]
    if order == "C" or t.size == max(t.shape, default=1):
        return rows
    if type(x) is Tracer:
        raise UnsupportedError(
            f"{name}: order {order!r} is that in which the elements lie in memory, which is not "
            f"known of x.\n  x: {t}, {x.origin}\n"
            f"  Write order='C' for the order of rows, or order='F' for that of columns."
        )
    known = np.asarray(x)
    if order == "A":
        return rows[::-1] if known.flags.fnc else rows
    return tuple(sorted(rows, key=lambda axis: -abs(known.strides[axis])))


def _sizes(t: Any, shape: Any) -> tuple[int, ...]:
    """Returns the sizes of a shape with -1 filled in."""
    given = shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
    sizes = tuple(operator.index(size) for size in given)
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known and t.size % known == 0:
        sizes = tuple(t.size // known if size == -1 else size for size in sizes)
    if any(size < 0 for size in sizes) or math.prod(sizes) != t.size:
        raise ShapeError(
            f"reshape: the number of elements does not fit.\n  x: {t} has {t.size}\n"
            f"  shape: {tuple(given)}"
        )
    return sizes


def ravel(x: Any, order: str = "C") -> Any:
    """Returns the elements as one axis; a view of what lies in that order, else a copy.

    Args:
        x: an array.
        order: "C", rows after rows; "F", columns after columns; of plain arrays "A" or "K", as
            they lie in memory.

    Raises:
        UnsupportedError: for order "A" or "K" of a traced value, which does not lie in memory.
    """
    x = as_array(x)
    x = _permuted(x, axes_in_order("ravel", x, order, "CAFK"))
    if isinstance(x, np.ndarray) and not is_tracing():
        return x.ravel()
    return view_of(x, reshape(x, -1, copy=True), in_order=True)


def squeeze(x: Any, /, axis: Any = None) -> Any:
    """Drops axes of size 1.

    Args:
        x: an array.
        axis: an axis, or several; None drops all that have size 1.

    Raises:
        ShapeError: where an axis that is named has another size.
    """
    x = as_array(x)
    t = type_of(x)
    if axis is None:
        axes = tuple(i for i, size in enumerate(t.shape) if size == 1)
    else:
        axes = canonical_axes("squeeze", axis, t.ndim)
    if any(t.shape[i] != 1 for i in axes):
        raise ShapeError(f"squeeze: only axes of size 1 can be dropped.\n  x: {t}, axis={axis}")
    return _view(x, tuple(size for i, size in enumerate(t.shape) if i not in axes))


def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """Inserts axes of size 1.

    Args:
        x: an array.
        axis: where they stand in the result.
    """
    x = as_array(x)
    t = type_of(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = canonical_axes("expand_dims", axis, t.ndim + count)
    sizes = iter(t.shape)
    return _view(x, tuple(1 if i in axes else next(sizes) for i in range(t.ndim + count)))


def _view(x: Any, shape: tuple[int, ...]) -> Any:
    return x if type_of(x).shape == shape else viewed(x, reshape_p, shape=shape)


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """Repeats an array, by NumPy's rules of broadcasting, until it has a shape.

    Raises:
        ShapeError: where it does not broadcast.
    """
    x = as_array(x)
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return read_only(spread(x, tuple(operator.index(size) for size in sizes)))


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Returns the view that `broadcast_to` returns; one of the same shape can be written to."""
    t = type_of(x)
    axes = aligned(t, shape)
    if t.shape == shape:
        return x
    return viewed(_view(x, tuple(shape[a] for a in axes)), broadcast_p, shape=shape, axes=axes)


def broadcast_arrays(*xs: Any) -> tuple[Any, ...]:
    """Broadcasts arrays against each other; each keeps its dtype."""
    arrays = [as_array(x) for x in xs]
    shape = _common_shape("broadcast_arrays", arrays)
    return tuple(spread(x, shape) for x in arrays)


def _common_shape(name: str, arrays: Sequence[Any]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(type_of(x).shape for x in arrays))
    except ValueError:
        lines = "".join(f"\n  operand {i}: {type_of(x)}" for i, x in enumerate(arrays))
        raise ShapeError(f"{name}: shapes do not broadcast.{lines}") from None


def _at_least(xs: Sequence[Any], pad: Any) -> Any:
    arrays = [as_array(x) for x in xs]
    out = tuple(_view(x, pad(type_of(x).shape)) for x in arrays)
    return out[0] if len(out) == 1 else out


def atleast_1d(*xs: Any) -> Any:
    """Gives arrays at least one axis; of several, returns a tuple."""
    return _at_least(xs, lambda shape: shape or (1,))


def atleast_2d(*xs: Any) -> Any:
    """Gives arrays at least two axes, new ones in front."""
    return _at_least(xs, lambda shape: (1,) * (2 - len(shape)) + shape)


def atleast_3d(*xs: Any) -> Any:
    """Gives arrays at least three axes: a vector stands in the middle one, a matrix in front."""

    def pad(shape: tuple[int, ...]) -> tuple[int, ...]:
        return {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}.get(len(shape), shape)

    return _at_least(xs, pad)


# ---------------------------------------------------------------------------------------- axes


def transpose(x: Any, /, axes: Any = None) -> Any:
    """Permutes the axes; without `axes`, reverses them.

    Args:
        x: an array.
        axes: for each axis of the result the axis of `x`.
    """
    x = as_array(x)
    ndim = type_of(x).ndim
    order = tuple(range(ndim))[::-1] if axes is None else canonical_axes("transpose", axes, ndim)
    if len(order) != ndim:
        raise AxisError(f"transpose: axes {axes} are not those of the array.\n  x: {type_of(x)}")
    return _permuted(x, order)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """Permutes the axes; the array API's name of `transpose`."""
    return transpose(x, axes)


def _permuted(x: Any, order: tuple[int, ...]) -> Any:
    if order == tuple(range(len(order))):
        return x
    return viewed(x, transpose_p, permutation=order)


def matrix_transpose(x: Any, /) -> Any:
    """Exchanges the last two axes."""
    return swapaxes(x, -2, -1)


def swapaxes(x: Any, /, axis1: int, axis2: int) -> Any:
    """Exchanges two axes."""
    x = as_array(x)
    ndim = type_of(x).ndim
    a, b = (canonical_axis("swapaxes", axis, ndim) for axis in (axis1, axis2))
    order = list(range(ndim))
    order[a], order[b] = b, a
    return _permuted(x, tuple(order))


def moveaxis(x: Any, /, source: Any, destination: Any) -> Any:
    """Moves axes to other places; the others keep their order.

    Example:
        >>> moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = as_array(x)
    ndim = type_of(x).ndim
    sources = canonical_axes("moveaxis", source, ndim)
    targets = canonical_axes("moveaxis", destination, ndim)
    if len(sources) != len(targets):
        raise AxisError(
            f"moveaxis: source {source} and destination {destination} name different numbers of "
            f"axes."
        )
    order = [axis for axis in range(ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return _permuted(x, tuple(order))
