"""JAX's gathers and scatters, which say of each axis of the operand how it is indexed.

Ours index the first axes by the last axis of an array of places, and take the others whole. So an
axis is one of three: it is indexed by one place, by a window of places, which adds an axis to those
of the places, or it is taken whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import ftrans.primitives as p
from ftrans.interop.importer import NoCounterpart, Rule, broadcast, shape_of
from ftrans.interop.shapes import declaring, ints, result_shape
from ftrans.ir import type_of
from ftrans.primitives import scalar
from ftrans.primitives.axes import inverse

_INDEX = np.dtype("int32")


RULES: dict[str, Rule] = {}
_rule = declaring(RULES)


class _Places(NamedTuple):
    """Says how an operand is indexed.

    Attributes:
        order: the axes of the operand: those that are indexed, then those that are taken whole.
        grid: the axes of the places that are no windows.
        windows: the axes of the operand that are indexed by windows, in order.
        shape: that of the places: the grid, then the windows.
        indices: the places, i32[*shape, indexed]; None where no axis is indexed.
        in_bounds: whether they are known to be in bounds.
    """

    order: tuple[int, ...]
    grid: int
    windows: list[int]
    shape: tuple[int, ...]
    indices: Any
    in_bounds: bool

    def axis_of(self, axis: int) -> int | None:
        """Returns which axis of a window is one of the operand's; None where it has size 1."""
        if axis in self.windows:
            return self.grid + self.windows.index(axis)
        indexed = 0 if self.indices is None else shape_of(self.indices)[-1]
        if axis in self.order[indexed:]:
            return len(self.shape) + self.order[indexed:].index(axis)
        return None


def _narrow(index: Any, size: int) -> Any:
    """Returns places as i32; those that are out of bounds stay so."""
    t = type_of(index)
    if t.dtype != _INDEX:
        low = 0 if t.dtype.kind == "u" else -1
        if np.iinfo(t.dtype).max >= size:
            ends = [scalar(low, t.dtype), scalar(size, t.dtype)]
            index = p.clamp_p(ends[0], index, ends[1])
        index = p.convert_p(index, dtype=_INDEX)
    return index


def _places(
    x: Any,
    indices: Any,
    sizes: Sequence[int],
    mapped: Sequence[int],
    batching: Sequence[int],
    batching_places: Sequence[int],
    mode: str,
    must_index: Callable[[int], bool],
) -> _Places:
    """Returns how an operand is indexed.

    Args:
        x: the operand.
        indices: where windows start, along the last axis.
        sizes: those of windows, along all axes of the operand.
        mapped: the axes that these starts are of.
        batching: the axes that are indexed by the number of the example.
        batching_places: the axes of `indices` that count these examples.
        mode: "clip", "fill" or "promise".
        must_index: tells of an axis that starts at 0 whether it is indexed all the same.
    """
    shape, grid = shape_of(x), shape_of(indices)[:-1]
    starts: dict[int, Any] = {}
    inside: Any = None
    for i, axis in enumerate(mapped):
        column = p.reshape_p(_part(indices, i), shape=grid)
        column = _narrow(column, shape[axis])
        room = shape[axis] - sizes[axis]
        if mode == "clip":
            column = p.clamp_p(scalar(0, _INDEX), column, scalar(room, _INDEX))
        elif mode == "fill" and sizes[axis] != 1:
            fits = p.and_p(p.ge_p(column, scalar(0, _INDEX)), p.le_p(column, scalar(room, _INDEX)))
            inside = fits if inside is None else p.and_p(inside, fits)
        if mode == "fill" or sizes[axis] != shape[axis] or sizes[axis] == 1:
            starts[axis] = column
    for axis, at in zip(batching, batching_places, strict=True):
        starts[axis] = p.iota_p(shape=grid, dtype=_INDEX, axis=at)
    zero = p.broadcast_p(scalar(0, _INDEX), shape=grid, axes=())
    for axis in range(len(shape)):
        if axis not in starts and must_index(axis):
            starts[axis] = zero
    indexed = sorted(starts)
    order = (*indexed, *[axis for axis in range(len(shape)) if axis not in starts])
    windows = [axis for axis in indexed if sizes[axis] != 1]
    whole = (*grid, *[sizes[axis] for axis in windows])
    if not indexed:
        return _Places(order, len(grid), windows, whole, None, True)
    columns = []
    for axis in indexed:
        start = starts[axis]
        if inside is not None:
            start = p.select_p(inside, start, scalar(-1, _INDEX))
        column = broadcast(start, whole, range(len(grid)))
        if axis in windows:
            steps = p.iota_p(shape=whole, dtype=_INDEX, axis=len(grid) + windows.index(axis))
            moved = p.add_p(column, steps)
            # what begins outside is outside, as a whole
            column = p.select_p(p.lt_p(column, scalar(0, _INDEX)), column, moved)
        columns.append(p.reshape_p(column, shape=(*whole, 1)))
    joined = p.concatenate_p(*columns, axis=len(whole))
    return _Places(order, len(grid), windows, whole, joined, mode != "fill")


def _part(indices: Any, i: int) -> Any:
    shape = shape_of(indices)
    start = (*(0,) * (len(shape) - 1), i)
    return p.slice_p(indices, start=start, stop=(*shape[:-1], i + 1), step=(1,) * len(shape))


def _mode(mode: Any) -> str:
    """Returns what is done with places out of bounds: "clip", "fill" or "promise"."""
    text = str(getattr(mode, "name", mode)).lower()
    for name in ("clip", "fill", "promise"):
        if name in text:
            return name
    raise NoCounterpart


@_rule("gather")
def _gather(
    equation: Any,
    x: Any,
    indices: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Any:
    numbers, sizes = dimension_numbers, ints(slice_sizes)
    batching = ints(numbers.operand_batching_dims)
    mapped = ints(numbers.start_index_map)
    gone = {*ints(numbers.collapsed_slice_dims), *batching}
    # what starts at 0 and is not whole is cut before
    cut = [
        n if a in mapped or a in batching else m
        for a, (n, m) in enumerate(zip(shape_of(x), sizes, strict=True))
    ]
    if tuple(cut) != shape_of(x):
        x = p.slice_p(x, start=(0,) * len(cut), stop=tuple(cut), step=(1,) * len(cut))
    places = _places(
        x,
        indices,
        sizes,
        mapped,
        batching,
        ints(numbers.start_indices_batching_dims),
        _mode(mode),
        lambda axis: False,
    )
    x = p.transpose_p(x, permutation=places.order)
    if places.indices is None:
        shape = (*places.shape, *shape_of(x))
        found = broadcast(x, shape)
    else:
        fill = None if fill_value is None else np.asarray(fill_value).item()
        options = {} if places.in_bounds else {"fill": fill}
        found = p.gather_p(x, places.indices, in_bounds=places.in_bounds, **options)
    shape = result_shape(equation)
    at = iter([places.axis_of(axis) for axis in range(len(sizes)) if axis not in gone])
    grid, offsets = iter(range(places.grid)), set(ints(numbers.offset_dims))
    wanted = [next(at) if axis in offsets else next(grid) for axis in range(len(shape))]
    # axes of size 1 that are indexed are windows, but none of what was gathered
    kept = tuple([axis for axis in wanted if axis is not None])
    rest = tuple([axis for axis in range(len(shape_of(found))) if axis not in kept])
    return p.reshape_p(p.transpose_p(found, permutation=(*kept, *rest)), shape=shape)


def _scattering(primitive: Callable[..., Any], negative: bool = False) -> Callable[..., Any]:
    def scatter(
        equation: Any,
        x: Any,
        indices: Any,
        updates: Any,
        *,
        dimension_numbers: Any,
        mode: Any,
        update_jaxpr: Any = None,
        unique_indices: bool = False,
        **_: Any,
    ) -> Any:
        if primitive is p.scatter_p and update_jaxpr is not None:
            raise NoCounterpart
        numbers, shape = dimension_numbers, shape_of(x)
        batching = ints(numbers.operand_batching_dims)
        gone = {*ints(numbers.inserted_window_dims), *batching}
        window = [axis for axis in range(len(shape)) if axis not in gone]
        dims = ints(numbers.update_window_dims)
        sizes = [1] * len(shape)
        for axis, dim in zip(window, dims, strict=True):
            sizes[axis] = shape_of(updates)[dim]
        places = _places(
            x,
            indices,
            sizes,
            ints(numbers.scatter_dims_to_operand_dims),
            batching,
            ints(numbers.scatter_indices_batching_dims),
            _mode(mode),
            lambda axis: axis in gone or sizes[axis] != shape[axis],
        )
        if places.indices is None:
            raise NoCounterpart
        # of the updates first the grid, then windows, then what is written whole
        rest = [dim for dim in range(len(shape_of(updates))) if dim not in dims]
        named = {places.axis_of(axis): dim for axis, dim in zip(window, dims, strict=True)}
        single = [
            dim for axis, dim in zip(window, dims, strict=True) if places.axis_of(axis) is None
        ]
        count = len(places.shape) + len(shape) - shape_of(places.indices)[-1]
        order = (*rest, *[named[i] for i in range(places.grid, count)], *single)
        updates = p.transpose_p(updates, permutation=order)
        updates = p.reshape_p(updates, shape=shape_of(updates)[:count])
        written = primitive(
            p.transpose_p(x, permutation=places.order),
            places.indices,
            p.neg_p(updates) if negative else updates,
            in_bounds=places.in_bounds,
        )
        return p.transpose_p(written, permutation=inverse(places.order))

    return scatter


for _name, _primitive in (
    ("scatter", p.scatter_p),
    ("scatter-add", p.scatter_add_p),
    ("scatter_add", p.scatter_add_p),
    ("scatter-mul", p.scatter_mul_p),
    ("scatter_mul", p.scatter_mul_p),
    ("scatter-min", p.scatter_min_p),
    ("scatter_min", p.scatter_min_p),
    ("scatter-max", p.scatter_max_p),
    ("scatter_max", p.scatter_max_p),
):
    _rule(_name)(_scattering(_primitive))
_rule("scatter-sub", "scatter_sub")(_scattering(p.scatter_add_p, negative=True))


# ---------------------------------------------------------------------------------------- windows


def _starts(x: Any, starts: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Returns where windows start as i32; what is out of bounds is moved inside."""
    return [_narrow(start, n) for start, n in zip(starts, shape_of(x), strict=True)]


@_rule("dynamic_slice")
def _dynamic_slice(equation: Any, x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    sizes = ints(slice_sizes)
    return p.dynamic_slice_p(x, *_starts(x, starts, sizes), sizes=sizes)


@_rule("dynamic_update_slice")
def _dynamic_update_slice(equation: Any, x: Any, update: Any, *starts: Any, **_: Any) -> Any:
    return p.dynamic_update_slice_p(x, update, *_starts(x, starts, shape_of(update)))
