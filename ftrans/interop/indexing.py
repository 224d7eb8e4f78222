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
        grid: how many axes of the places are no windows.
        kept: the axes of the operand that follow these in what is gathered: windows of several
            places, then those that are taken whole. All others have size 1 there.
        indices: the places, i32[*grid, *windows, indexed].
        in_bounds: whether they are known to be in bounds.
    """

    order: tuple[int, ...]
    grid: int
    kept: tuple[int, ...]
    indices: Any
    in_bounds: bool


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
    gone: Sequence[int],
    batching: Sequence[tuple[int, int]],
    mode: Any,
) -> _Places:
    """Returns how an operand is indexed.

    Args:
        x: the operand.
        indices: where windows start, along the last axis.
        sizes: those of windows, along all axes of the operand.
        mapped: the axes that these starts are of; along all others windows start at 0.
        gone: axes of windows, of size 1, that are left out.
        batching: the axes that are indexed by the number of the example, each with the axis of
            `indices` that counts these.
        mode: what is done with windows that are not inside: "clip" or "fill".
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
    for axis, at in batching:
        starts[axis] = p.iota_p(shape=grid, dtype=_INDEX, axis=at)
    rest = [axis for axis in range(len(shape)) if axis not in starts]
    partial = [axis for axis in rest if axis in gone or sizes[axis] != shape[axis]]
    for axis in partial or (rest[:1] if not starts else []):  # one axis at least is indexed
        starts[axis] = p.broadcast_p(scalar(0, _INDEX), shape=grid, axes=())
    if not starts:
        raise NoCounterpart
    indexed = sorted(starts)
    whole = [axis for axis in range(len(shape)) if axis not in starts]
    windows = [axis for axis in indexed if sizes[axis] != 1]
    full = (*grid, *[sizes[axis] for axis in windows])
    columns = []
    for axis in indexed:
        start = starts[axis]
        if inside is not None:
            start = p.select_p(inside, start, scalar(-1, _INDEX))
        column = broadcast(start, full, range(len(grid)))
        if axis in windows:
            steps = p.iota_p(shape=full, dtype=_INDEX, axis=len(grid) + windows.index(axis))
            moved = p.add_p(column, steps)
            # what begins outside is outside, as a whole
            column = p.select_p(p.lt_p(column, scalar(0, _INDEX)), column, moved)
        columns.append(p.reshape_p(column, shape=(*full, 1)))
    joined = p.concatenate_p(*columns, axis=len(full))
    return _Places((*indexed, *whole), len(grid), (*windows, *whole), joined, mode != "fill")


def _part(indices: Any, i: int) -> Any:
    shape = shape_of(indices)
    start = (*(0,) * (len(shape) - 1), i)
    return p.slice_p(indices, start=start, stop=(*shape[:-1], i + 1), step=(1,) * len(shape))


def _mode(mode: Any, promised: str) -> str:
    """Returns what is done with places out of bounds, "clip" or "fill", by a mode of JAX's.

    `promised` is what XLA does where it was promised that there are none.
    """
    text = str(getattr(mode, "name", mode)).lower()
    for name, found in (("clip", "clip"), ("fill", "fill"), ("promise", promised)):
        if name in text:
            return found
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
    numbers, sizes, shape = dimension_numbers, ints(slice_sizes), result_shape(equation)
    batching = ints(numbers.operand_batching_dims)
    gone = (*ints(numbers.collapsed_slice_dims), *batching)
    pairs = [*zip(batching, ints(numbers.start_indices_batching_dims), strict=True)]
    places = _places(
        x, indices, sizes, ints(numbers.start_index_map), gone, pairs, _mode(mode, "clip")
    )
    options: dict[str, Any] = {"in_bounds": places.in_bounds}
    if not places.in_bounds:
        options["fill"] = None if fill_value is None else np.asarray(fill_value).item()
    found = p.gather_p(p.transpose_p(x, permutation=places.order), places.indices, **options)
    offsets = iter([axis for axis in range(len(sizes)) if axis not in gone])
    grid, order = iter(range(places.grid)), []
    for axis in range(len(shape)):
        if axis not in ints(numbers.offset_dims):
            order.append(next(grid))
        elif (of_x := next(offsets)) in places.kept:
            order.append(places.grid + places.kept.index(of_x))
    return p.reshape_p(p.transpose_p(found, permutation=tuple(order)), shape=shape)


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
        **_: Any,
    ) -> Any:
        if primitive is p.scatter_p and update_jaxpr is not None:
            raise NoCounterpart
        numbers, ndim = dimension_numbers, len(shape_of(x))
        batching = ints(numbers.operand_batching_dims)
        gone = (*ints(numbers.inserted_window_dims), *batching)
        pairs = [*zip(batching, ints(numbers.scatter_indices_batching_dims), strict=True)]
        window = [axis for axis in range(ndim) if axis not in gone]
        dims = dict(zip(window, ints(numbers.update_window_dims), strict=True))
        sizes = [shape_of(updates)[dims[axis]] if axis in dims else 1 for axis in range(ndim)]
        mapped = ints(numbers.scatter_dims_to_operand_dims)
        places = _places(x, indices, sizes, mapped, gone, pairs, _mode(mode, "fill"))
        # of the updates first the grid, then what is kept; all others have size 1
        grid = [dim for dim in range(len(shape_of(updates))) if dim not in dims.values()]
        order = (*grid, *[dims.pop(axis) for axis in places.kept])
        updates = p.transpose_p(updates, permutation=(*order, *dims.values()))
        updates = p.reshape_p(updates, shape=shape_of(updates)[: len(order)])
        written = primitive(
            p.transpose_p(x, permutation=places.order),
            places.indices,
            p.neg_p(updates) if negative else updates,
            in_bounds=places.in_bounds,
        )
        return p.transpose_p(written, permutation=inverse(places.order))

    return scatter


_rule("scatter")(_scattering(p.scatter_p))
for _name in ("add", "mul", "min", "max"):
    _rule(f"scatter-{_name}", f"scatter_{_name}")(_scattering(getattr(p, f"scatter_{_name}_p")))
_rule("scatter-sub", "scatter_sub")(_scattering(p.scatter_add_p, negative=True))


# ---------------------------------------------------------------------------------------- windows


def _starts(x: Any, starts: Sequence[Any]) -> list[Any]:
    """Returns where windows start as i32; what is out of bounds is moved inside."""
    return [_narrow(start, n) for start, n in zip(starts, shape_of(x), strict=True)]


@_rule("dynamic_slice")
def _dynamic_slice(equation: Any, x: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    return p.dynamic_slice_p(x, *_starts(x, starts), sizes=ints(slice_sizes))


@_rule("dynamic_update_slice")
def _dynamic_update_slice(equation: Any, x: Any, update: Any, *starts: Any, **_: Any) -> Any:
    return p.dynamic_update_slice_p(x, update, *_starts(x, starts))
