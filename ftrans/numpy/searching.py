"""Taking elements by place, and finding the places of elements, by NumPy's names.

Where the shape of a result depends on values, they must be known while tracing: such a function
asks for them, and raises under `vmap` and `jit`.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ftrans.errors import AxisError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_integer
from ftrans.numpy.index_plan import concrete, wrapped
from ftrans.numpy.indexing import At, getitem
from ftrans.numpy.promotion import (
    as_array,
    broadcast_to,
    canonical_axis,
    cast,
    default_dtype,
    promote_dtypes,
    unify,
)
from ftrans.primitives import (
    add_p,
    and_p,
    broadcast_p,
    concatenate_p,
    eq_p,
    gather_p,
    ge_p,
    lt_p,
    ne_p,
    not_p,
    or_p,
    rem_p,
    reshape_p,
    rev_p,
    scalar,
    scatter_add_p,
    select_p,
    sort_p,
    sub_p,
)

__all__ = [
    "argwhere",
    "bincount",
    "choose",
    "compress",
    "digitize",
    "extract",
    "flatnonzero",
    "isin",
    "nonzero",
    "put_along_axis",
    "searchsorted",
    "select",
    "take",
    "take_along_axis",
    "unique",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

_i32 = np.dtype("int32")


def _flat(x: Any) -> Any:
    return reshape_p(x, shape=(type_of(x).size,))


# ----------------------------------------------------------------------------- taking by place


def _integers(name: str, indices: Any) -> Any:
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
    x: Any,
    indices: Any,
    axis: int | None = None,
    *,
    mode: str | None = None,
    fill_value: Any = None,
) -> Any:
    """Takes elements of an axis by their places.

    Args:
        x: an array.
        indices: the places, negative ones from the end. Their axes stand in the place of `axis`.
        axis: the axis; None takes from all elements as one axis.
        mode: for places out of bounds: None or "raise" raises where they are known, and else
            reads NaN as "fill" does; "fill" reads `fill_value`; "wrap" counts around; "clip" takes
            the nearest.
        fill_value: a Python scalar, NaN (the least integer, True) where None.

    Example:
        >>> take(np.array([10, 20, 30]), np.array([2, 0]))
        array([30, 10])
    """
    x = as_array(x)
    if axis is None:
        x, axis = _flat(x), 0
    axis = canonical_axis("take", axis, type_of(x).ndim)
    indices = _integers("take", indices)
    size = type_of(x).shape[axis]
    whole = (slice(None),) * axis
    if mode in (None, "raise", "wrap", "clip"):
        if mode in ("wrap", "clip"):
            if size == 0 and type_of(indices).size:
                raise IndexError(f"take: axis {axis} of {type_of(x)} is empty.")
            indices = (_around if mode == "wrap" else _clipped)(indices, size)
        return getitem(x, (*whole, indices))
    if mode != "fill":
        raise ValueError(
            f"take: there is no mode {mode!r}: choose 'raise', 'fill', 'wrap' or 'clip'."
        )
    from ftrans.numpy.manipulation import moveaxis

    count = type_of(indices).ndim
    places = wrapped(indices, size)
    tuples = reshape_p(places, shape=(*type_of(places).shape, 1))
    out = gather_p(moveaxis(x, axis, 0), tuples, in_bounds=False, fill=fill_value)
    return moveaxis(out, tuple(range(count)), tuple(range(axis, axis + count)))


def _wide(indices: Any, size: int) -> Any:
    """Returns indices in a dtype that holds the size."""
    dtype = type_of(indices).dtype
    return indices if np.iinfo(dtype).max >= size else cast(indices, _i32)


def _around(indices: Any, size: int) -> Any:
    indices = _wide(indices, size)
    left = rem_p(indices, broadcast_like(size, indices))
    if type_of(indices).dtype.kind == "u":
        return left
    return select_p(lt_p(left, 0), add_p(left, size), left)


def broadcast_like(value: Any, x: Any) -> Any:
    """Returns a Python scalar as an array of the type of `x`."""
    t = type_of(x)
    return broadcast_p(scalar(value, t.dtype), shape=t.shape, axes=())


def _clipped(indices: Any, size: int) -> Any:
    indices = _wide(indices, size)
    indices = select_p(ge_p(indices, size), broadcast_like(size - 1, indices), indices)
    return select_p(lt_p(indices, 0), broadcast_like(0, indices), indices)


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


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """Takes elements along an axis by places that differ for each line, as `argsort` gives them.

    Args:
        x: an array.
        indices: the places; all other axes broadcast against those of `x`.
        axis: the axis; None takes from all elements as one axis.

    Example:
        >>> take_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), axis=1)
        array([[2],
               [3]])
    """
    x, indices = as_array(x), _integers("take_along_axis", indices)
    if axis is None:
        x, axis = _flat(x), 0
    axis = canonical_axis("take_along_axis", axis, type_of(x).ndim)
    return getitem(x, _along("take_along_axis", x, indices, axis))


def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    """Returns the array with elements set at the places that `take_along_axis` reads.

    Unlike NumPy's, it leaves `x` as it is and returns the result.

    Args:
        x: an array.
        indices: the places along the axis.
        values: what is set there; it broadcasts.
        axis: the axis; None sets in all elements as one axis.
    """
    x, indices = as_array(x), _integers("put_along_axis", indices)
    if axis is None:
        line = put_along_axis(_flat(x), indices, values, 0)
        return reshape_p(line, shape=type_of(x).shape)
    axis = canonical_axis("put_along_axis", axis, type_of(x).ndim)
    return At(x)[_along("put_along_axis", x, indices, axis)].set(values)


def choose(indices: Any, choices: Any, mode: str = "raise") -> Any:
    """Takes each element from the array that an index names.

    Args:
        indices: which of the choices.
        choices: arrays; all broadcast.
        mode: "raise", "wrap" or "clip", as for `take`.
    """
    indices = _integers("choose", indices)
    arrays = unify("choose", *choices)
    shapes = [type_of(x).shape for x in (indices, *arrays)]
    shape = np.broadcast_shapes(*shapes)
    rows = [broadcast_to(as_array_like(x, arrays), shape) for x in arrays]
    stacked = concatenate_p(*(reshape_p(x, shape=(1, *shape)) for x in rows), axis=0)
    places = broadcast_to(indices, shape)
    if mode in ("wrap", "clip"):
        places = (_around if mode == "wrap" else _clipped)(places, len(rows))
    places = reshape_p(places, shape=(1, *shape))
    return reshape_p(take_along_axis(stacked, places, 0), shape=shape)


def as_array_like(x: Any, arrays: list[Any]) -> Any:
    """Returns a strict operand as an array, where it is a literal."""
    return broadcast_p(x, shape=(), axes=()) if not type_of(x).shape and type_of(x).weak else x


def select(conditions: Any, choices: Any, default: Any = 0) -> Any:
    """Takes each element from the first choice whose condition holds.

    Args:
        conditions: boolean arrays.
        choices: as many arrays.
        default: taken where no condition holds; all broadcast.
    """
    if len(conditions) != len(choices) or not conditions:
        raise ShapeError(
            f"select: takes as many choices as conditions, not {len(choices)} and "
            f"{len(conditions)}."
        )
    masks = [as_array(c) for c in conditions]
    for mask in masks:
        if type_of(mask).dtype != bool:
            raise DTypeError(f"select: conditions must be boolean.\n  condition: {type_of(mask)}")
    *values, out = unify("select", *choices, default)
    shape = np.broadcast_shapes(*(type_of(z).shape for z in (*masks, *values, out)))
    out = _spread(out, shape)
    for mask, value in zip(masks[::-1], values[::-1], strict=True):
        out = select_p(broadcast_to(mask, shape), _spread(value, shape), out)
    return out


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    t = type_of(x)
    return broadcast_p(x, shape=shape, axes=()) if t.weak else broadcast_to(x, shape)


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
    x = as_array(x)
    if axis is None:
        x, axis = _flat(x), 0
    axis = canonical_axis("compress", axis, type_of(x).ndim)
    return getitem(x, (*(slice(None),) * axis, flatnonzero(condition)))


def extract(condition: Any, x: Any) -> Any:
    """Returns the elements at which a condition holds, which must be known while tracing."""
    return getitem(_flat(as_array(x)), flatnonzero(condition))


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
        raise ValueError(f"searchsorted: side {side!r} is neither 'left' nor 'right'.")
    a, v = as_array(a), as_array(v)
    if type_of(a).ndim != 1:
        raise AxisError(f"searchsorted: takes a vector.\n  a: {type_of(a)}")
    if sorter is not None:
        a = take(a, sorter)
    dtype = promote_dtypes(type_of(a).dtype, type_of(v).dtype)
    a, v = cast(a, dtype), cast(v, dtype)
    # Halves an interval [low, high) for each element; NaN counts as larger than all else.
    size, shape = type_of(a).shape[0], type_of(v).shape
    low = broadcast_p(scalar(0, _i32), shape=shape, axes=())
    if size == 0:
        return low
    high = broadcast_p(scalar(size, _i32), shape=shape, axes=())
    for _ in range(size.bit_length()):
        middle = add_p(low, _half(sub_p(high, low)))
        inside = lt_p(low, high)
        at = select_p(inside, middle, broadcast_p(scalar(0, _i32), shape=shape, axes=()))
        found = gather_p(a, reshape_p(at, shape=(*shape, 1)), in_bounds=True)
        right = _before(found, v) if side == "left" else not_p(_before(v, found))
        right = and_p(inside, right)
        low = select_p(right, add_p(middle, 1), low)
        high = select_p(or_p(right, not_p(inside)), high, middle)
    return low


def _half(x: Any) -> Any:
    from ftrans.primitives import shift_right_p

    return shift_right_p(x, broadcast_like(1, x))


def _before(x: Any, y: Any) -> Any:
    """Tells where x sorts before y: NaN comes last."""
    less = lt_p(x, y)
    if not type_of(x).is_inexact:
        return less
    return or_p(less, and_p(eq_p(x, x), ne_p(y, y)))


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
            at = searchsorted(rev_p(bins, axes=(0,)), x, side)
            return sub_p(broadcast_like(size, at), at)
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
    x = _integers("bincount", x)
    if type_of(x).ndim != 1:
        raise AxisError(f"bincount: takes a vector.\n  x: {type_of(x)}")
    if length is None:
        known = concrete(x, "bincount() without length=")
        if known.size and known.min() < 0:
            raise ValueError("bincount: the numbers must not be negative.")
        length = max(int(known.max()) + 1 if known.size else 0, operator.index(minlength))
    n = type_of(x).size
    if weights is None:
        dtype = default_dtype(int)
        counts = broadcast_p(scalar(1, dtype), shape=(n,), axes=())
    else:
        counts = as_array(weights)
        if type_of(counts).shape != (n,):
            raise ShapeError(
                f"bincount: takes as many weights as numbers.\n  x: {type_of(x)}\n"
                f"  weights: {type_of(counts)}"
            )
        dtype = type_of(counts).dtype
    empty = broadcast_p(scalar(0, dtype), shape=(length,), axes=())
    return scatter_add_p(empty, reshape_p(x, shape=(n, 1)), counts, in_bounds=False)


def isin(x: Any, test_elements: Any, *, invert: bool = False) -> Any:
    """Tells for each element whether it is among others.

    Args:
        x: an array.
        test_elements: the others.
        invert: whether to tell the opposite.
    """
    x, others = as_array(x), as_array(test_elements)
    dtype = promote_dtypes(type_of(x).dtype, type_of(others).dtype)
    x, others = cast(x, dtype), _flat(cast(others, dtype))
    shape, size = type_of(x).shape, type_of(others).size
    if size == 0:
        return broadcast_p(scalar(invert, bool), shape=shape, axes=())
    if dtype.kind in "bc" or size < 32:
        from ftrans.primitives import any_p

        full = (*shape, size)
        same = eq_p(
            broadcast_p(x, shape=full, axes=tuple(range(len(shape)))),
            broadcast_p(others, shape=full, axes=(len(shape),)),
        )
        found = any_p(same, axes=(len(shape),))
    else:
        (ordered,) = sort_p(others, axis=0, keys=1)
        places = _clipped(searchsorted(ordered, x), size)
        found = eq_p(gather_p(ordered, reshape_p(places, shape=(*shape, 1)), in_bounds=True), x)
    return not_p(found) if invert else found


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
    if axis is None:
        values = getitem(_flat(x), index)
    else:
        axis = canonical_axis("unique", axis, type_of(x).ndim)
        values = getitem(x, (*(slice(None),) * axis, index))
    extra = [(return_index, index), (return_inverse, inverse), (return_counts, counts)]
    found = tuple(part.astype(_i32) for wanted, part in extra if wanted)
    return (values, *found) if found else values


def unique_values(x: Any, /) -> Any:
    """Returns the different elements, in order; each NaN counts as different."""
    return unique(x, equal_nan=False)


def unique_counts(x: Any, /) -> tuple[Any, Any]:
    """Returns the different elements, in order, and how often each occurs."""
    return unique(x, return_counts=True, equal_nan=False)


def unique_inverse(x: Any, /) -> tuple[Any, Any]:
    """Returns the different elements, in order, and for each element of `x` which of them it is."""
    return unique(x, return_inverse=True, equal_nan=False)
