"""What an index expression means, worked out once for reading and for writing.

An index is a window (slices and whole numbers, known while tracing), then index arrays on some axes
of the window, then new axes. The place of the axes that index arrays make follows NumPy: that of
the first array where the arrays stand side by side, the front otherwise. A whole number counts as
an array there; not for tensors, whose numbers take axes away first, as PyTorch's do.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, IndexingError
from ftrans.ir import Tracer, type_of
from ftrans.ir.program import Params
from ftrans.ir.stack import state
from ftrans.numpy.access import Step
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.bounds import (
    READS,
    Bounds,
    Counted,
    There,
    concrete,
    is_unknown,
    out_of_bounds,
    require,
)
from ftrans.numpy.promotion import as_array
from ftrans.traceback import OnTape

_i32 = np.dtype("int32")


class Plan(NamedTuple):
    """Says how to read an index from an array, or write to it.

    Attributes:
        steps: what leads from the array to what is read.
        shape: that of what is read.
        is_view: whether NumPy reads a view of the array, or PyTorch where it is a tensor.
    """

    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    is_view: bool


def plan_index(x: Any, index: Any, mode: str | None = None) -> Plan:
    """Returns the plan of `x[index]`.

    Args:
        x: a strict operand.
        index: whole numbers, slices, None, Ellipsis, arrays, lists and tuples of them.
        mode: what is done beyond the bounds, for those that are known too: "drop" and "fill" leave
            them out, "clip" takes the nearest.

    Raises:
        ArgumentError: where there is no such mode.
        IndexError: where it does not fit the array, or, without a mode, is known to reach beyond
            its bounds.
    """
    if mode not in _MODES:
        raise ArgumentError(
            f"x.at[...]: there is no mode {mode!r}: choose 'drop', 'fill' or 'clip', or none."
        )
    given = index if type(index) is tuple else (index,)
    type_ = type_of(x)
    lenient = None if mode == "promise_in_bounds" else mode
    key = _key(given) if lenient is None else None
    if key is None:
        return _plan(type_, given, lenient)
    key = (type_, state.of_tensors, *key)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) > 4096:
            _plans.clear()
        plan = _plans[key] = _plan(type_, given)
    return plan


_MODES = (None, "drop", "fill", "clip", "promise_in_bounds")
_plans: dict[Any, Plan] = {}
"""Plans that hold no array, by the type of the array, what it stands for, and the index."""


def _key(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Returns the index in a form that can be hashed; None where it holds arrays."""
    key = []
    for item in given:
        kind = type(item)
        if kind is int or item is None or item is Ellipsis:
            key.append(item)
        elif kind is slice:
            bounds = (item.start, item.stop, item.step)
            if any(type(bound) is not int and bound is not None for bound in bounds):
                return None
            key.append(bounds)
        else:
            return None
    return tuple(key)


def _plan(type_: Any, given: tuple[Any, ...], mode: str | None = None) -> Plan:
    items = _with_ellipsis(type_, [_classify(item) for item in given])
    # size, start, stop and step on each axis, one of size 1 for a boolean that is no array included
    cuts: list[tuple[int, int, int, int]] = []
    window: list[int] = []  # what they leave, without the axes at whole numbers
    arrays: list[tuple[int, int, Any]] = []  # axis of the window, axis of x, index
    result: list[int] = []
    positions: list[int] = []  # of items that count as arrays where there is one
    numbers = 0  # items that do not, where a tensor is read
    before = 0, 0  # entries of the result, and axes among them, before the first of those
    fancy = False
    copies = any(isinstance(item, (np.ndarray, jax.Array)) and item.ndim == 0 for item in given)
    axis = rest = 0
    for position, item in enumerate(items):
        if item is None:
            result.append(1)
        if item is None or item is Ellipsis:
            continue
        size = type_.shape[axis] if axis < type_.ndim else 1
        if isinstance(item, slice):
            places = range(size)[item]
            low, high, by = places.start, places.stop, places.step
            if not places:
                low, high, by = 0, 0, 1
            elif by < 0:
                low, high = places[-1], places[0] + 1
            cuts.append((size, low, high, by))
            window.append(len(places))
            result.append(len(places))
            rest += 1
            axis += 1
            continue
        if state.of_tensors and _is_number(item):
            numbers += 1
        else:
            if not positions:
                before = len(result), rest
            positions.append(position - numbers)
        if isinstance(item, bool | np.bool_):
            fancy, found = True, [(-1, np.zeros(int(item), _i32))]
        elif isinstance(item, int) and mode and not -size <= item < size:
            found = [(axis, np.asarray(item))]
        elif isinstance(item, int):
            if not -size <= item < size:
                raise out_of_bounds(Bounds(READS, type_, axis, -size), item)
            cuts.append((size, item % size, item % size + 1, 1))
            axis += 1
            continue
        elif type_of(item).dtype == bool:
            fancy, found = True, list(enumerate(_nonzero(type_, axis, item), axis))
        else:
            fancy, found = fancy or type_of(item).ndim > 0, [(axis, item)]
        for of_x, index in found:
            size = 1 if of_x < 0 else type_.shape[of_x]
            arrays.append((len(window), of_x, index))
            window.append(size)
            cuts.append((size, 0, size, 1))
            axis += of_x >= 0

    names = {id(item.array): item.name for item in given if type(item) is Counted}
    there = {id(item.array) for item in given if type(item) is There}
    indices, in_bounds = _stacked(type_, [(a, item) for _, a, item in arrays], names, mode, there)
    shape, start, stop, step = zip(*cuts, strict=True) if cuts else ((), (), (), ())
    sizes = tuple(len(range(*cut[1:3], abs(cut[3]))) for cut in cuts)
    flipped = tuple(i for i, by in enumerate(step) if by < 0 and sizes[i] > 1)
    steps = _Steps(type_.shape)
    steps.reshape(shape)
    if sizes != shape:
        steps.add(p.slice_p, sizes, start=start, stop=stop, step=tuple(map(abs, step)))
    if flipped:
        steps.add(p.rev_p, sizes, axes=flipped)
    steps.reshape(tuple(window))
    if indices is not None:
        batch = type_of(indices).shape[:-1]
        together = not fancy or positions[-1] - positions[0] == len(positions) - 1
        at, place = before if together else (0, 0)
        result[at:at] = batch
        axes = tuple(a for a, _, _ in arrays)
        others = tuple(a for a in range(len(window)) if a not in axes)
        steps.transpose(axes + others)
        left = (*batch, *(window[a] for a in others))
        steps.add(p.gather_p, left, indices, in_bounds=in_bounds, fill=None)
        # the axes that index arrays make go where they belong
        n, m = len(batch), len(others)
        steps.transpose((*range(n, n + place), *range(n), *range(n + place, n + m)))
    steps.reshape(tuple(result))
    is_element = items and len(positions) + numbers == len(items)
    return Plan(
        tuple(steps),
        tuple(result),
        is_view=not (fancy or copies or (is_element and not state.of_tensors)),
    )


class _Steps(list[Step]):
    """Is a chain of steps that is being made, and the shape to which it has led."""

    def __init__(self, shape: tuple[int, ...]):
        self._shape = shape

    def add(self, primitive: Any, shape: tuple[int, ...], /, *others: Any, **params: Any) -> None:
        self.append(Step(primitive, Params(params), self._shape, others))
        self._shape = shape

    def reshape(self, shape: tuple[int, ...]) -> None:
        if shape != self._shape:
            self.add(p.reshape_p, shape, shape=shape)

    def transpose(self, permutation: tuple[int, ...]) -> None:
        if permutation != tuple(range(len(permutation))):
            shape = tuple(self._shape[axis] for axis in permutation)
            self.add(p.transpose_p, shape, permutation=permutation)


def _classify(item: Any) -> Any:
    """Returns None, Ellipsis, a slice, an int, a bool, or an array of booleans or integers."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int, np.bool_)):
        return item
    if type(item) is Counted or type(item) is There:
        return item.array
    if isinstance(item, np.integer):
        return int(item)
    if not isinstance(item, (Tracer, np.ndarray, jax.Array)):
        if type(item) in OnTape.types:
            raise OnTape
        if hasattr(item, "__index__"):
            return operator.index(item)
        if isinstance(item, (str, bytes, dict, set)) or not hasattr(item, "__len__"):
            raise _bad_item(type(item).__name__)
        item = as_array(np.asarray(item) if type(item) is range else item)
        if isinstance(item, np.ndarray) and item.size == 0:
            return item.astype(_i32)  # an empty list has no dtype of its own
    type_ = type_of(item)
    if type_.dtype == bool:
        if type_.ndim == 0:
            return bool(concrete(item, "indexing by a boolean"))
        return item
    if type_.dtype.kind not in "iu":
        raise _bad_item(type_)
    if type_.ndim == 0 and not is_unknown(item):
        return int(np.asarray(item))
    return item


def _is_number(item: Any) -> bool:
    if isinstance(item, int | np.bool_):
        return type(item) is int
    return type_of(item).ndim == 0


def _bad_item(what: Any) -> IndexError:
    return IndexingError(
        f"x[...]: only whole numbers, slices, None, ... and arrays of integers or booleans are "
        f"indices.\n  index: {what}\n  Convert it first: index.astype('int32')."
    )


def _with_ellipsis(type_: Any, items: list[Any]) -> list[Any]:
    """Returns the items with slices in the place of what is left out."""
    at = None
    consumed = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            if at is not None:
                raise IndexingError("x[...]: an index can hold one Ellipsis only.")
            at = position
        elif item is not None and not isinstance(item, bool | np.bool_):
            is_mask = not isinstance(item, (slice, int)) and type_of(item).dtype == bool
            consumed += type_of(item).ndim if is_mask else 1
    missing = type_.ndim - consumed
    if missing < 0:
        raise IndexingError(
            f"x[...]: too many indices.\n  x: {type_} has {type_.ndim} axes\n"
            f"  the index takes {consumed}"
        )
    whole = [slice(None)] * missing
    if at is None:
        return items + whole
    # An ellipsis that stands for no axis stays: it still separates index arrays, as in NumPy.
    return [*items[:at], *(whole or [Ellipsis]), *items[at + 1 :]]


def _nonzero(type_: Any, axis: int, mask: Any) -> tuple[np.ndarray, ...]:
    """Returns the places where a mask holds, one array for each of its axes."""
    found = concrete(mask, "indexing by a boolean mask")
    for offset, size in enumerate(found.shape):
        if type_.shape[axis + offset] != size:
            raise IndexingError(
                f"x[mask]: the mask does not fit.\n  axis {axis + offset} of x: {type_} has size "
                f"{type_.shape[axis + offset]}\n  axis {offset} of the mask: {type_of(mask)} has "
                f"size {size}"
            )
    return np.nonzero(found)


def _stacked(
    type_: Any,
    arrays: Sequence[tuple[int, Any]],
    names: Mapping[int, str],
    mode: str | None,
    there: Collection[int] = (),
) -> tuple[Any, bool]:
    """Returns index arrays as one array of index tuples, and whether they exist for sure.

    Those that do not count from the end have names of functions, by their identity, and those
    whose places all exist are there by it.
    """
    if not arrays:
        return None, True
    shapes = [type_of(item).shape for _, item in arrays]
    try:
        batch = np.broadcast_shapes(*shapes)
    except ValueError:
        lines = "".join(f"\n  index: {type_of(item)}" for _, item in arrays)
        raise IndexingError(f"x[...]: index arrays do not broadcast.{lines}") from None
    if 0 in batch:  # then NumPy looks at no index
        return np.zeros((*batch, len(arrays)), _i32), True
    axes, items = zip(*arrays, strict=True)
    if state.beside is not None:
        again = lambda *known: _stacked(type_, [*zip(axes, known, strict=True)], {}, mode)[0]  # noqa: E731
        found = state.beside.take(again, items)
        if found is not None:
            return found, mode in (None, "clip")
    known = [not is_unknown(item) for item in items]
    columns = []
    for (axis, item), is_known in zip(arrays, known, strict=True):
        size = 1 if axis < 0 else type_.shape[axis]
        if id(item) in there and not is_known:
            columns.append(p.convert_p(item, dtype=_i32))
            continue
        if mode == "clip" and size:
            item = _nearest(item, size, is_known)
        elif axis >= 0 and mode in (None, "clip"):
            name = names.get(id(item))
            require(item, Bounds(name or READS, type_, axis, 0 if name else -size))
        if is_known:
            columns.append(_from_front(np.asarray(item), size))
        else:
            columns.append(wrapped(item, size))
    if all(known):
        stacked = np.stack([np.broadcast_to(column, batch) for column in columns], axis=-1)
        return stacked, mode in (None, "clip")
    columns = [p.reshape_p(broadcast_to(c, batch), shape=(*batch, 1)) for c in columns]
    joined = p.concatenate_p(*columns, axis=len(batch)) if len(columns) > 1 else columns[0]
    return joined, all(id(item) in there for item in items if is_unknown(item))


def _nearest(item: Any, size: int, is_known: bool) -> Any:
    """Returns indices in the place of which are the nearest that there are."""
    smaller, larger = (np.minimum, np.maximum) if is_known else (p.minimum_p, p.maximum_p)
    bounds = np.iinfo(type_of(item).dtype)
    item = smaller(item, size - 1) if bounds.max >= size else item
    return larger(item, -size) if bounds.min < -size else item


def _from_front(item: np.ndarray, size: int) -> np.ndarray:
    """Returns known indices counted from the front, as int32."""
    if item.dtype.kind == "i" and (item < 0).any():
        item = np.where(item < 0, item + np.asarray(size, np.int64), item)
    return np.clip(item, -1, size).astype(_i32)  # what is far out of bounds stays so


def wrapped(item: Any, size: int) -> Any:
    """Returns traced indices counted from the front, as int32; those beyond stay out of bounds."""
    dtype = type_of(item).dtype
    if dtype.itemsize > _i32.itemsize or dtype == np.uint32:
        # int32 must not fold what is far out of bounds back inside
        beyond = p.ge_p(item, p.scalar(size, dtype))
        if dtype.kind == "i":
            beyond = p.or_p(beyond, p.lt_p(item, p.scalar(-size, dtype)))
        item = p.select_p(beyond, p.scalar(size, dtype), item)
    if dtype != _i32:
        item = p.convert_p(item, dtype=_i32)
    if dtype.kind == "u":
        return item
    return p.select_p(p.lt_p(item, 0), p.add_p(item, size), item)
