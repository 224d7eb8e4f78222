"""Shapes and axes, joining arrays into one, and cutting one into parts, by NumPy's names.

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
from ftrans.ir.stack import state
from ftrans.numpy.axes import aligned, canonical_axes, canonical_axis
from ftrans.numpy.indexing import pick
from ftrans.numpy.promotion import as_array, common_shape, is_array, promoted
from ftrans.numpy.views import copied, read_only, view_of, viewed
from ftrans.primitives import broadcast_p, concatenate_p, reshape_p, transpose_p

__all__ = [
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays",
    "broadcast_to", "column_stack", "concat", "concatenate", "dsplit", "dstack", "expand_dims",
    "hsplit", "hstack", "matrix_transpose", "moveaxis", "permute_dims", "ravel", "reshape",
    "split", "squeeze", "stack", "swapaxes", "transpose", "unstack", "vsplit", "vstack",
]  # fmt: skip


def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """Gives the elements, in the order of rows, another shape.

    Args:
        a: an array.
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
    x = as_array(a)
    sizes = _sizes(type_of(x), shape)
    axes = _axes_in_order("reshape", x, order, "CAF")
    if order == "F" or axes != tuple(sorted(axes)):
        return transpose(reshape(transpose(x), sizes[::-1], copy=copy))
    out = _view(x, sizes)
    return copied(out) if copy else out


def _axes_in_order(name: str, x: Any, order: str, orders: str) -> tuple[int, ...]:
    """Returns the axes of a strict operand, the one first that runs slowest in an order."""
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


def ravel(a: Any, order: str = "C") -> Any:
    """Returns the elements as one axis; a view of what lies in that order, else a copy.

    Args:
        a: an array.
        order: "C", rows after rows; "F", columns after columns; of plain arrays "A" or "K", as
            they lie in memory.

    Raises:
        UnsupportedError: for order "A" or "K" of a traced value, which does not lie in memory.
    """
    x = as_array(a)
    x = _permuted(x, _axes_in_order("ravel", x, order, "CAFK"))
    if isinstance(x, np.ndarray) and not is_tracing():
        return x.ravel()
    return view_of(x, reshape(x, -1, copy=True), in_order=True)


def squeeze(a: Any, axis: Any = None) -> Any:
    """Drops axes of size 1.

    Args:
        a: an array.
        axis: an axis, or several; None drops all that have size 1.

    Raises:
        ShapeError: where an axis that is named has another size.
    """
    x = as_array(a)
    t = type_of(x)
    if axis is None:
        axes = tuple(i for i, size in enumerate(t.shape) if size == 1)
    else:
        axes = canonical_axes("squeeze", axis, t.ndim)
    if any(t.shape[i] != 1 for i in axes):
        raise ShapeError(f"squeeze: only axes of size 1 can be dropped.\n  x: {t}, axis={axis}")
    return _view(x, tuple(size for i, size in enumerate(t.shape) if i not in axes))


def expand_dims(a: Any, axis: Any = 0) -> Any:
    """Inserts axes of size 1.

    Args:
        a: an array.
        axis: where they stand in the result.
    """
    x = as_array(a)
    t = type_of(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = canonical_axes("expand_dims", axis, t.ndim + count)
    sizes = iter(t.shape)
    return _view(x, tuple(1 if i in axes else next(sizes) for i in range(t.ndim + count)))


def _view(x: Any, shape: tuple[int, ...]) -> Any:
    return x if type_of(x).shape == shape else viewed(x, reshape_p, shape=shape)


def broadcast_to(array: Any, shape: Any) -> Any:
    """Repeats an array, by NumPy's rules of broadcasting, until it has a shape.

    Raises:
        ShapeError: where it does not broadcast.
    """
    x = as_array(array)
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
    shape = common_shape("broadcast_arrays", arrays)
    return tuple(spread(x, shape) for x in arrays)


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


def transpose(a: Any, axes: Any = None) -> Any:
    """Permutes the axes; without `axes`, reverses them.

    Args:
        a: an array.
        axes: for each axis of the result the axis of `x`.
    """
    x = as_array(a)
    ndim = type_of(x).ndim
    order = tuple(range(ndim))[::-1] if axes is None else canonical_axes("transpose", axes, ndim)
    if len(order) != ndim:
        raise AxisError(f"transpose: axes {axes} are not those of the array.\n  x: {type_of(x)}")
    return _permuted(x, order)


permute_dims = transpose  # the array API's name


def _permuted(x: Any, order: tuple[int, ...]) -> Any:
    if order == tuple(range(len(order))):
        return x
    return viewed(x, transpose_p, permutation=order)


def matrix_transpose(x: Any, /) -> Any:
    """Exchanges the last two axes."""
    return swapaxes(x, -2, -1)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Exchanges two axes."""
    x = as_array(a)
    ndim = type_of(x).ndim
    i, j = (canonical_axis("swapaxes", axis, ndim) for axis in (axis1, axis2))
    order = list(range(ndim))
    order[i], order[j] = j, i
    return _permuted(x, tuple(order))


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Moves axes to other places; the others keep their order.

    Example:
        >>> moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = as_array(a)
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


# ------------------------------------------------------------------------------------ joining


_RAISING = ("hstack", "vstack", "dstack", "column_stack")


def _items(name: str, arrays: Any) -> list[Any]:
    """Returns the arrays to join, as strict operands of the promoted dtype."""
    if is_array(arrays):
        arrays = unstack(arrays)
    if state.of_tensors and name in _RAISING:  # what has no dimensions is given some
        arrays = [atleast_1d(x) for x in arrays]
    found = promoted(*arrays)
    if not found:
        raise ShapeError(f"{name}: takes at least one array.")
    return found


def concatenate(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None) -> Any:
    """Joins arrays along an axis that they have.

    Args:
        arrays: the arrays, alike in all other axes.
        axis: the axis; None joins the elements of all as one axis.
        dtype: of the result; promoted where None.

    Example:
        >>> concatenate([np.zeros(2), np.ones(1)])
        array([0., 0., 1.])
    """
    items = _items("concatenate", arrays)
    if axis is None:
        items, axis = [ravel(x) for x in items], 0
    axis = canonical_axis("concatenate", axis, type_of(items[0]).ndim)
    return _joined("concatenate", items, axis, dtype)


concat = concatenate  # the array API's name


def _joined(name: str, items: list[Any], axis: int, dtype: Any = None) -> Any:
    types = [type_of(x) for x in items]
    around = {t.shape[:axis] + t.shape[axis + 1 :] for t in types}
    if len(around) > 1 or len({t.ndim for t in types}) > 1 or types[0].ndim <= axis:
        lines = "".join(f"\n  operand {i}: {t}" for i, t in enumerate(types))
        raise ShapeError(f"{name}: the arrays do not fit along axis {axis}.{lines}")
    out = concatenate_p(*items, axis=axis) if len(items) > 1 else copied(items[0])
    return out if dtype is None else as_array(out, dtype)


def stack(arrays: Any, axis: int = 0, *, dtype: Any = None) -> Any:
    """Joins arrays of one shape along a new axis.

    Args:
        arrays: the arrays.
        axis: where the new axis stands in the result.
        dtype: of the result; promoted where None.
    """
    items = _items("stack", arrays)
    axis = canonical_axis("stack", axis, type_of(items[0]).ndim + 1)
    if len({type_of(x).shape for x in items}) > 1:
        lines = "".join(f"\n  operand {i}: {type_of(x)}" for i, x in enumerate(items))
        raise ShapeError(f"stack: the arrays have different shapes.{lines}")
    return _joined("stack", [expand_dims(x, axis) for x in items], axis, dtype)


def vstack(tup: Any, *, dtype: Any = None) -> Any:
    """Stacks arrays as rows: along the first axis, vectors as rows of a matrix."""
    return _joined("vstack", [atleast_2d(x) for x in _items("vstack", tup)], 0, dtype)


def hstack(tup: Any, *, dtype: Any = None) -> Any:
    """Stacks arrays side by side: along the second axis, vectors along their only one."""
    items = [atleast_1d(x) for x in _items("hstack", tup)]
    return _joined("hstack", items, 0 if type_of(items[0]).ndim == 1 else 1, dtype)


def dstack(tup: Any) -> Any:
    """Stacks arrays along the third axis."""
    return _joined("dstack", [atleast_3d(x) for x in _items("dstack", tup)], 2)


def column_stack(tup: Any) -> Any:
    """Stacks vectors as columns of a matrix; matrices side by side."""
    columns = [
        reshape_p(x, shape=(type_of(x).size, 1)) if type_of(x).ndim < 2 else x
        for x in _items("column_stack", tup)
    ]
    return _joined("column_stack", columns, 1)


# ------------------------------------------------------------------------------------ cutting


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cuts an array into parts along an axis.

    Args:
        ary: an array.
        indices_or_sections: the number of parts, the first of which are longer by one where they
            cannot be equal; or the places to cut at.
        axis: the axis.
    """
    x = as_array(ary)
    axis = canonical_axis("array_split", axis, type_of(x).ndim)
    size = type_of(x).shape[axis]
    try:
        parts = operator.index(indices_or_sections)
    except TypeError:
        cuts = [operator.index(i) for i in indices_or_sections]
    else:
        if parts < 1:
            raise ShapeError(f"array_split: the number of parts is {parts}; it must be positive.")
        least, longer = divmod(size, parts)
        cuts = [i * least + min(i, longer) for i in range(1, parts)]
    ends = zip([0, *cuts], [*cuts, size], strict=True)
    return [pick(x, slice(low, high), axis) for low, high in ends]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cuts an array into equal parts along an axis, or at given places.

    Raises:
        ShapeError: where it cannot be cut into so many equal parts.
    """
    x = as_array(ary)
    axis = canonical_axis("split", axis, type_of(x).ndim)
    sections = indices_or_sections
    if isinstance(sections, (int, np.integer)) and (
        sections < 1 or type_of(x).shape[axis] % sections
    ):
        raise ShapeError(
            f"split: axis {axis} cannot be cut into {sections} equal parts.\n  x: {type_of(x)}\n"
            f"  Write array_split(x, {sections}, axis={axis}) for parts of different sizes."
        )
    return array_split(x, sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Cuts along the second axis; a vector along its only one."""
    x = as_array(ary)
    return split(x, indices_or_sections, 1 if type_of(x).ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Cuts along the first axis of an array of two or more."""
    return _split_along("vsplit", ary, indices_or_sections, 0, 2)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Cuts along the third axis."""
    return _split_along("dsplit", ary, indices_or_sections, 2, 3)


def _split_along(name: str, x: Any, sections: Any, axis: int, least: int) -> list[Any]:
    x = as_array(x)
    if type_of(x).ndim < least:
        raise AxisError(f"{name}: takes an array of {least} axes or more.\n  x: {type_of(x)}")
    return split(x, sections, axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Returns the parts of an array along an axis, which they no longer have."""
    x = as_array(x)
    if type_of(x).ndim == 0:
        raise AxisError("unstack: an array without axes cannot be unstacked.")
    axis = canonical_axis("unstack", axis, type_of(x).ndim)
    return tuple(pick(x, i, axis) for i in range(type_of(x).shape[axis]))
