"""Finding the places of elements, by NumPy's names.

Where the shape of a result depends on values, they must be known while tracing: such a function
asks for them, and raises under `vmap` and `jit`.
"""

from __future__ import annotations

import operator
from collections import namedtuple
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, AxisError, ShapeError
from ftrans.ir import type_of
from ftrans.numpy.axes import flattened, line_of
from ftrans.numpy.index_plan import concrete
from ftrans.numpy.indexing import getitem, pick
from ftrans.numpy.promotion import as_array, cast, default_dtype, filled, promote_dtypes
from ftrans.numpy.taking import clipped, integers, take

__all__ = [
    "argwhere", "bincount", "compress", "digitize", "extract", "flatnonzero", "isin", "nonzero",
    "searchsorted", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip

_i32 = np.dtype("int32")


# ----------------------------------------------------------------- places of what is not zero


def nonzero(x: Any) -> tuple[np.ndarray, ...]:
    """Returns the places of the elements that are not 0, one array for each axis.

    Raises:
        ConcretizationError: where the values are not known, as under `vmap`.
    """
    x = as_array(x)
    if type_of(x).ndim == 0:
        raise AxisError("nonzero: an array without axes has no places: write x.reshape(1).")
    return tuple(i.astype(_i32) for i in np.nonzero(concrete(x, "nonzero()")))


def flatnonzero(x: Any) -> np.ndarray:
    """Returns the places of the elements that are not 0, of all elements as one axis."""
    return np.flatnonzero(concrete(as_array(x), "flatnonzero()")).astype(_i32)


def argwhere(x: Any) -> np.ndarray:
    """Returns the places of the elements that are not 0, each as a row."""
    return np.argwhere(concrete(as_array(x), "argwhere()")).astype(_i32)


def compress(condition: Any, x: Any, axis: int | None = None) -> Any:
    """Takes the places of an axis at which a condition holds, which must be known while tracing."""
    x, axis = line_of("compress", as_array(x), axis)
    return pick(x, flatnonzero(condition), axis)


def extract(condition: Any, x: Any) -> Any:
    """Returns the elements at which a condition holds, which must be known while tracing."""
    return getitem(flattened(as_array(x)), flatnonzero(condition))


# ------------------------------------------------------------------------------------ searching


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Returns where elements would have to be inserted into a sorted vector, as int32.

    Args:
        a: f32[n], in ascending order.
        v: the elements.
        side: "left" for the first such place, "right" for the last.
        sorter: the places that put `a` in order, where it is not.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side {side!r} is neither 'left' nor 'right'.")
    a, v = as_array(a), as_array(v)
    if type_of(a).ndim != 1:
        raise AxisError(f"searchsorted: takes a vector.\n  a: {type_of(a)}")
    if sorter is not None:
        a = take(a, sorter)
    dtype = promote_dtypes(type_of(a).dtype, type_of(v).dtype)
    a, v = cast(a, dtype), cast(v, dtype)
    # Halves an interval [low, high) for each element; NaN counts as larger than all else.
    size, shape = type_of(a).shape[0], type_of(v).shape
    low = filled(0, shape, _i32)
    if size == 0:
        return low
    high = filled(size, shape, _i32)
    for _ in range(size.bit_length()):
        middle = p.add_p(low, p.shift_right_p(p.sub_p(high, low), 1))
        inside = p.lt_p(low, high)
        at = p.select_p(inside, middle, 0)
        found = p.gather_p(a, p.reshape_p(at, shape=(*shape, 1)), in_bounds=True)
        right = _before(found, v) if side == "left" else p.not_p(_before(v, found))
        right = p.and_p(inside, right)
        low = p.select_p(right, p.add_p(middle, 1), low)
        high = p.select_p(p.or_p(right, p.not_p(inside)), high, middle)
    return low


def _before(x: Any, y: Any) -> Any:
    """Tells where x sorts before y: NaN comes last."""
    less = p.lt_p(x, y)
    if not type_of(x).is_inexact:
        return less
    return p.or_p(less, p.and_p(p.eq_p(x, x), p.ne_p(y, y)))


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """Returns in which of the intervals between the bins each element lies, as int32.

    Args:
        x: an array.
        bins: f32[n], all ascending or all descending, known while tracing where it matters which.
        right: whether an interval contains its right end rather than its left one.
    """
    bins = as_array(bins)
    size = type_of(bins).size
    side = "left" if right else "right"
    if size > 1:
        ends = concrete(getitem(bins, np.array([0, size - 1])), "digitize()")
        if ends[0] > ends[1]:
            at = searchsorted(p.rev_p(bins, axes=(0,)), x, side)
            return p.sub_p(size, at)
    return searchsorted(bins, x, side)


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
        if known.size and known.min() < 0:
            raise ArgumentError("bincount: the numbers must not be negative.")
        length = max(int(known.max()) + 1 if known.size else 0, operator.index(minlength))
    n = type_of(x).size
    if weights is None:
        dtype = default_dtype(int)
        counts = filled(1, (n,), dtype)
    else:
        counts = as_array(weights)
        if type_of(counts).shape != (n,):
            raise ShapeError(
                f"bincount: takes as many weights as numbers.\n  x: {type_of(x)}\n"
                f"  weights: {type_of(counts)}"
            )
        dtype = type_of(counts).dtype
    empty = filled(0, (length,), dtype)
    return p.scatter_add_p(empty, p.reshape_p(x, shape=(n, 1)), counts, in_bounds=False)


def isin(x: Any, test_elements: Any, *, invert: bool = False) -> Any:
    """Tells for each element whether it is among others.

    Args:
        x: an array.
        test_elements: the others.
        invert: whether to tell the opposite.
    """
    x, others = as_array(x), as_array(test_elements)
    dtype = promote_dtypes(type_of(x).dtype, type_of(others).dtype)
    x, others = cast(x, dtype), flattened(cast(others, dtype))
    shape, size = type_of(x).shape, type_of(others).size
    if size == 0:
        return filled(invert, shape, bool)
    if dtype.kind in "bc" or size < 32:
        full = (*shape, size)
        same = p.eq_p(
            p.broadcast_p(x, shape=full, axes=tuple(range(len(shape)))),
            p.broadcast_p(others, shape=full, axes=(len(shape),)),
        )
        found = p.any_p(same, axes=(len(shape),))
    else:
        (ordered,) = p.sort_p(others, axis=0, keys=1)
        places = clipped(searchsorted(ordered, x), size)
        found = p.eq_p(
            p.gather_p(ordered, p.reshape_p(places, shape=(*shape, 1)), in_bounds=True), x
        )
    return p.not_p(found) if invert else found


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
) -> Any:
    """Returns the different elements, in order; their values must be known while tracing.

    Each is taken from where it stands first, and so is its gradient.

    Args:
        x: an array.
        return_index: whether to return the place of each, too.
        return_inverse: whether to return for each element of `x` which of them it is.
        return_counts: whether to return how often each occurs.
        axis: the axis whose slices are compared; None compares elements.
        equal_nan: whether NaN equals itself.
    """
    x = as_array(x)
    _, index, inverse, counts = np.unique(
        concrete(x, "unique()"), True, True, True, axis, equal_nan=equal_nan
    )
    line, place = line_of("unique", x, axis)
    values = pick(line, index, place)
    extra = [(return_index, index), (return_inverse, inverse), (return_counts, counts)]
    found = tuple(part.astype(_i32) for wanted, part in extra if wanted)
    return (values, *found) if found else values


UniqueAll = namedtuple("UniqueAll", ["values", "indices", "inverse_indices", "counts"])
UniqueCounts = namedtuple("UniqueCounts", ["values", "counts"])
UniqueInverse = namedtuple("UniqueInverse", ["values", "inverse_indices"])


def unique_values(x: Any, /) -> Any:
    """Returns the different elements, in order; each NaN counts as different."""
    return unique(x, equal_nan=False)


def unique_all(x: Any, /) -> UniqueAll:
    """Returns the different elements; where each stands first, which each of x is, how often."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False))


def unique_counts(x: Any, /) -> UniqueCounts:
    """Returns the different elements, in order, and how often each occurs."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Returns the different elements, in order, and for each element of `x` which of them it is."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False))
