"""Taking and setting elements by their places, and finding places, by NumPy's names.

Those whose shape depends on values are in finding.py.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, AxisError, DTypeError, IndexingError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_integer
from ftrans.numpy.axes import broadcast_to, canonical_axis, line_of
from ftrans.numpy.bounds import There, concrete
from ftrans.numpy.index_plan import wrapped
from ftrans.numpy.indexing import At, getitem, pick
from ftrans.numpy.promotion import as_array, cast, common_shape, default_dtype, filled, promoted
from ftrans.numpy.shaping import moveaxis, stack
from ftrans.numpy.views import copied

__all__ = [
    "bincount", "choose", "put_along_axis", "take",
    "take_along_axis",
]  # fmt: skip

_i32 = np.dtype("int32")


def integers(name: str, indices: Any) -> Any:
    indices = as_array(indices)
    if type_of(indices).size == 0 and isinstance(indices, np.ndarray):
        return indices.astype(_i32)
    if not is_integer(type_of(indices).dtype):
        raise DTypeError(
            f"{name}: indices must be integers.\n  indices: {type_of(indices)}\n"
            f"  Convert them first: indices.astype('int32')."
        )
    return indices


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: Any = None,
    mode: str | None = None,
    *,
    fill_value: Any = None,
) -> Any:
    """Takes elements of an axis by their places.

    Args:
        a: an array.
        indices: the places, negative ones from the end. Their axes stand in the place of `axis`.
        axis: the axis; None takes from all elements as one axis.
        out: an array to write the result into.
        mode: for places out of bounds: None or "raise" raises where they are known, and else
            reads NaN as "fill" does; "fill" reads `fill_value`; "wrap" counts around; "clip" takes
            the nearest.
        fill_value: a Python scalar, for which None means "fill"; NaN (the least integer, True)
            where there is none.

    Example:
        >>> take(np.array([10, 20, 30]), np.array([2, 0]))
        array([30, 10])
    """
    x, axis = line_of("take", as_array(a), axis)
    indices = integers("take", indices)
    size = type_of(x).shape[axis]
    if mode is None and fill_value is not None:
        mode = "fill"
    if mode in (None, "raise", "wrap", "clip"):
        if mode in ("wrap", "clip") and size == 0 and type_of(indices).size:
            raise IndexingError(f"take: axis {axis} of {type_of(x)} is empty.")
        return copied(pick(x, within(indices, size, mode), axis))
    if mode != "fill":
        raise ArgumentError(
            f"take: there is no mode {mode!r}: choose 'raise', 'fill', 'wrap' or 'clip'."
        )
    count = type_of(indices).ndim
    places = wrapped(indices, size)
    tuples = p.reshape_p(places, shape=(*type_of(places).shape, 1))
    out = p.gather_p(moveaxis(x, axis, 0), tuples, in_bounds=False, fill=fill_value)
    return moveaxis(out, tuple(range(count)), tuple(range(axis, axis + count)))


def within(indices: Any, size: int, mode: str | None) -> Any:
    """Returns indices counted around a size for "wrap", or the nearest within it for "clip"."""
    if mode not in ("wrap", "clip"):
        return indices
    if np.iinfo(type_of(indices).dtype).max < size:
        indices = cast(indices, _i32)
    if mode == "wrap":
        left = p.rem_p(indices, size)
        return p.select_p(p.lt_p(left, 0), p.add_p(left, size), left)
    indices = p.select_p(p.ge_p(indices, size), size - 1, indices)
    return p.select_p(p.lt_p(indices, 0), 0, indices)


def _along(name: str, x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """Returns the index by which places along one axis are reached."""
    t, u = type_of(x), type_of(indices)
    if t.ndim != u.ndim:
        raise ShapeError(
            f"{name}: the indices do not have as many axes as the array.\n  x: {t}\n  indices: {u}"
        )
    index: list[Any] = []
    for i, size in enumerate(t.shape):
        if i == axis:
            index.append(indices)
        elif size == 1 or t.shape[i] == u.shape[i] == 1:
            index.append(np.zeros(1, _i32))
        else:
            ones = [1] * (t.ndim - i - 1)
            index.append(np.arange(size, dtype=_i32).reshape(-1, *ones))
    return tuple(index)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """Takes elements along an axis by places that differ for each line, as `argsort` gives them.

    Args:
        arr: an array.
        indices: the places; all other axes broadcast against those of `x`.
        axis: the axis; None takes from all elements as one axis.

    Example:
        >>> take_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), axis=1)
        array([[2],
               [3]])
    """
    indices = integers("take_along_axis", indices)
    x, axis = line_of("take_along_axis", as_array(arr), axis)
    return getitem(x, _along("take_along_axis", x, indices, axis))


def at_places(x: Any, places: Any, axis: int) -> Any:
    """Does as `take_along_axis` for places that all exist, as `argsort` returns them."""
    axis = canonical_axis("take_along_axis", axis, type_of(x).ndim)
    index = _along("take_along_axis", x, places, axis)
    return getitem(x, (*index[:axis], There(places), *index[axis + 1 :]))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> Any:
    """Returns the array with elements set at the places that `take_along_axis` reads.

    Unlike NumPy's, it leaves `x` as it is and returns the result.

    Args:
        arr: an array.
        indices: the places along the axis.
        values: what is set there; it broadcasts.
        axis: the axis; None sets in all elements as one axis.
    """
    x, indices = as_array(arr), integers("put_along_axis", indices)
    line, place = line_of("put_along_axis", x, axis)
    out = At(line)[_along("put_along_axis", line, indices, place)].set(values)
    return out if axis is not None else p.reshape_p(out, shape=type_of(x).shape)


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Takes each element from the array that an index names.

    Args:
        a: which of the choices.
        choices: arrays; all broadcast.
        out: an array to write the result into.
        mode: "raise", "wrap" or "clip", as for `take`.
    """
    indices = integers("choose", a)
    arrays = promoted(*choices)
    shape = common_shape("choose", [indices, *arrays])
    indices = within(indices, len(arrays), mode)
    rows = stack([broadcast_to(x, shape) for x in arrays])
    places = p.reshape_p(broadcast_to(indices, shape), shape=(1, *shape))
    return p.reshape_p(take_along_axis(rows, places, 0), shape=shape)


# ------------------------------------------------------------------------------------ searching


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """Counts how often each number occurs in a vector of integers that are not negative.

    Args:
        x: i32[n].
        weights: what each occurrence counts; 1 where None.
        minlength: the least length of the result.
        length: the length of the result; without it the largest number must be known while
            tracing. Numbers beyond are not counted.
    """
    x = integers("bincount", x)
    if type_of(x).ndim != 1:
        raise AxisError(f"bincount: takes a vector.\n  x: {type_of(x)}")
    if length is None:
        known = concrete(x, "bincount() without length=")
        if min(known.min(initial=0), minlength) < 0:
            raise ArgumentError("bincount: the numbers and minlength must not be negative.")
        length = max(int(known.max()) + 1 if known.size else 0, operator.index(minlength))
    n = type_of(x).size
    counts = filled(1, (n,), default_dtype(int)) if weights is None else as_array(weights)
    if type_of(counts).shape != (n,):
        raise ShapeError(
            f"bincount: takes as many weights as numbers.\n  x: {type_of(x)}\n"
            f"  weights: {type_of(counts)}"
        )
    empty = filled(0, (length,), type_of(counts).dtype)
    return p.scatter_add_p(empty, p.reshape_p(x, shape=(n, 1)), counts, in_bounds=False)
