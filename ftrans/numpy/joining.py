"""Joining arrays into one, and cutting one into parts, by NumPy's names."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ftrans.errors import AxisError, ShapeError
from ftrans.ir import type_of
from ftrans.numpy.indexing import getitem
from ftrans.numpy.promotion import as_array, canonical_axis, is_array, promoted
from ftrans.numpy.shaping import atleast_1d, atleast_2d, atleast_3d, expand_dims, ravel
from ftrans.numpy.views import copied
from ftrans.primitives import concatenate_p, reshape_p

__all__ = [
    "append", "array_split", "column_stack", "concat", "concatenate", "dsplit", "dstack",
    "hsplit", "hstack", "split", "stack", "unstack", "vsplit", "vstack",
]  # fmt: skip


def _items(name: str, arrays: Any) -> list[Any]:
    """Returns the arrays to join, as strict operands of the promoted dtype."""
    if is_array(arrays):
        arrays = unstack(arrays)
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


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Joins arrays along an axis; the array API's name of `concatenate`."""
    return concatenate(arrays, axis=axis)


def _joined(name: str, items: list[Any], axis: int, dtype: Any = None) -> Any:
    types = [type_of(x) for x in items]
    around = {t.shape[:axis] + t.shape[axis + 1 :] for t in types}
    if len(around) > 1 or len({t.ndim for t in types}) > 1 or types[0].ndim <= axis:
        lines = "".join(f"\n  operand {i}: {t}" for i, t in enumerate(types))
        raise ShapeError(f"{name}: the arrays do not fit along axis {axis}.{lines}")
    out = concatenate_p(*items, axis=axis) if len(items) > 1 else copied(items[0])
    return out if dtype is None else as_array(out, dtype)


def stack(arrays: Any, /, axis: int = 0, *, dtype: Any = None) -> Any:
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


def _promoted(name: str, arrays: Any, atleast: Any) -> list[Any]:
    return [atleast(x) for x in _items(name, arrays)]


def vstack(arrays: Any) -> Any:
    """Stacks arrays as rows: along the first axis, vectors as rows of a matrix."""
    return _joined("vstack", _promoted("vstack", arrays, atleast_2d), 0)


def hstack(arrays: Any) -> Any:
    """Stacks arrays side by side: along the second axis, vectors along their only one."""
    items = _promoted("hstack", arrays, atleast_1d)
    return _joined("hstack", items, 0 if type_of(items[0]).ndim == 1 else 1)


def dstack(arrays: Any) -> Any:
    """Stacks arrays along the third axis."""
    return _joined("dstack", _promoted("dstack", arrays, atleast_3d), 2)


def column_stack(arrays: Any) -> Any:
    """Stacks vectors as columns of a matrix; matrices side by side."""
    columns = [
        reshape_p(x, shape=(type_of(x).size, 1)) if type_of(x).ndim < 2 else x
        for x in _items("column_stack", arrays)
    ]
    return _joined("column_stack", columns, 1)


def append(x: Any, values: Any, axis: int | None = None) -> Any:
    """Appends values at the end of an axis; without an axis, to the elements as one axis."""
    return concatenate([x, values], axis=axis)


# ----------------------------------------------------------------------------------- splitting


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cuts an array into parts along an axis.

    Args:
        x: an array.
        indices_or_sections: the number of parts, the first of which are longer by one where they
            cannot be equal; or the places to cut at.
        axis: the axis.
    """
    x = as_array(x)
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
    whole = (slice(None),) * axis
    return [
        getitem(x, (*whole, slice(low, high)))
        for low, high in zip([0, *cuts], [*cuts, size], strict=True)
    ]


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cuts an array into equal parts along an axis, or at given places.

    Raises:
        ShapeError: where it cannot be cut into so many equal parts.
    """
    x = as_array(x)
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


def hsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """Cuts along the second axis; a vector along its only one."""
    x = as_array(x)
    return split(x, indices_or_sections, 1 if type_of(x).ndim > 1 else 0)


def vsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """Cuts along the first axis of an array of two or more."""
    return _split_along("vsplit", x, indices_or_sections, 0, 2)


def dsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """Cuts along the third axis."""
    return _split_along("dsplit", x, indices_or_sections, 2, 3)


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
    whole = (slice(None),) * axis
    return tuple(getitem(x, (*whole, i)) for i in range(type_of(x).shape[axis]))
