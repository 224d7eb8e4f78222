"""Functions of values that write to places, or to diagonals, as methods of PyTorch's do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_inexact
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.bounds import Bounds, Counted, require
from ftrans.numpy.elementwise import lowest
from ftrans.numpy.methods import with_axis
from ftrans.numpy.rearrangement import diagonal_places
from ftrans.numpy.taking import integers


def mask_of(name: str, mask: Any) -> Any:
    """Returns a mask, which has to be one of booleans."""
    mask = fnp.asarray(mask)
    if mask.dtype != np.bool_:
        raise DTypeError(f"{name}: a mask has booleans.\n  mask: {mask.dtype}\n  Write mask != 0.")
    return mask


def _fitting(name: str, part: Any, shape: Any) -> Any:
    """Returns what is written to places, whose shape it has to have; one element fits to one."""
    if np.shape(part) != tuple(shape) and (np.ndim(part) or math.prod(shape) != 1):
        raise ShapeError(
            f"{name}: what is written has another shape than the places.\n"
            f"  source: shape {np.shape(part)}\n  places: shape {tuple(shape)}"
        )
    return part


def counted(name: str, index: Any) -> Counted:
    """Returns an index of integers that do not count from the end."""
    return Counted(name, integers(name, index))


def _places(name: str, x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """Returns the places that an index of the rank of the array means."""
    axis, shape = canonical_axis(name, dim, x.ndim), np.shape(index)
    if not shape and x.ndim == 1:  # a number is an index of one
        return (counted(name, index),)
    if len(shape) != x.ndim:
        raise ShapeError(
            f"{name}: the index has the rank of the tensor.\n  index: shape {shape}\n"
            f"  tensor: shape {x.shape}"
        )
    found: list[Any] = list(np.indices(shape, sparse=True))
    found[axis] = counted(name, index)
    return tuple(found)


def _along(dim: int, x: Any, item: Any) -> tuple[Any, ...]:
    """Returns the index of an item along a dimension."""
    return (*[slice(None)] * canonical_axis("index", dim, x.ndim), item)


def _rows(name: str, x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """Returns the places that an index of rank one chooses along a dimension."""
    index = integers(name, index)
    if not type_of(index).ndim:  # of rank one it would be a result that is not there yet
        axis = canonical_axis(name, dim, x.ndim)
        low = -x.shape[axis] if name == "index_fill" else 0
        require(index, Bounds(name, type_of(x), axis, low))
        index = fnp.atleast_1d(index)
    if index.ndim > 1:
        raise ShapeError(f"{name}: the index has rank one.\n  index: shape {index.shape}")
    return _along(dim, x, Counted(name, index))


def _at_rows(name: str, x: Any, dim: int, index: Any, part: Any) -> Any:
    """Returns these places of an array, to write a part of that shape to."""
    *before, rows = place = _rows(name, x, dim, index)
    shape = *x.shape[: len(before)], rows.array.shape[0], *x.shape[len(place) :]
    _fitting(name, part, shape)
    return fnp.at(x)[place]


def _set(name: str, x: Any, place: tuple[Any, ...], part: Any) -> Any:
    made = fnp.at(x)[place].set(part)  # which says what is out of bounds
    _fitting(name, part, np.broadcast_to(False, x.shape)[place].shape)
    return made


_SCATTERS = {"add": "add", "multiply": "multiply"}
_REDUCES = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min", "mean": "add"}
_OF_BOOLEANS = {"add": "max", "multiply": "min"}


def _way(name: str, ways: dict[str, str], reduce: Any) -> str:
    if reduce not in ways:
        raise ArgumentError(
            f"{name}: there is no such reduction.\n  reduce: {reduce!r}\n"
            f"  Write one of {', '.join(map(repr, ways))}."
        )
    return ways[reduce]


def _put(place: Any, x: Any, way: str, source: Any) -> Any:
    """Writes to a place of a tensor by a method of it; booleans add up to whether one holds."""
    return getattr(place, _OF_BOOLEANS.get(way, way) if x.dtype == np.bool_ else way)(source)


def _written(name: str, x: Any, dim: int, index: Any, source: Any, way: str) -> Any:
    shape = np.shape(index)
    if 0 in shape:  # of whatever rank
        return fnp.copy(x)
    place = fnp.at(x)[_places(name, x, dim, index)]
    if np.ndim(source):
        source = _fitting(name, source[tuple(map(slice, shape))], shape)
    return _put(place, x, way, source)


def gather(self: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """Returns the elements that an index of the rank of the tensor chooses along a dimension."""
    if 0 in np.shape(index):  # of whatever rank
        return fnp.reshape(fnp.ravel(self)[:0], np.shape(index))
    if not self.ndim:
        return fnp.getitem(self[None], counted("gather", index))
    return fnp.getitem(self, _places("gather", self, dim, index))


@with_axis
def index_select(self: Any, dim: int, index: Any) -> Any:
    """Returns the parts that an index of rank one chooses along a dimension."""
    return fnp.getitem(self, _rows("index_select", self, dim, index))


@with_axis
def scatter(
    self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """Writes elements, or one value, to the places that an index chooses along a dimension."""
    way = "set" if reduce is None else _way("scatter", _SCATTERS, reduce)
    if (src is None) == (value is None):
        raise ArgumentError(
            "scatter: there is nothing to write, or two things.\n  Write src or value."
        )
    return _written("scatter", self, dim, index, value if src is None else src, way)


@with_axis
def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    """Adds elements to the places that an index chooses along a dimension."""
    return _written("scatter_add", self, dim, index, src, "add")


@with_axis
def scatter_reduce(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Reduces elements to the places that an index chooses along a dimension.

    Args:
        self: the tensor.
        dim: the dimension.
        index: of its rank.
        src: the elements.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether what is there counts as well.
    """
    return _reduced("scatter_reduce", self, dim, index, src, reduce, include_self, _REDUCES)


@with_axis
def index_reduce(
    self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Reduces parts to those that an index of rank one chooses, see `scatter_reduce`; not "sum"."""
    axis = canonical_axis("index_reduce", dim, self.ndim)
    _at_rows("index_reduce", self, dim, index, source)  # which raises where shapes do not fit
    require(index, Bounds("index_reduce", type_of(self), axis, 0))
    ways = {name: way for name, way in _REDUCES.items() if name != "sum"}
    places = fnp.reshape(index, (-1, *(1,) * (self.ndim - axis - 1)))
    places = fnp.broadcast_to(places, np.shape(source))
    return _reduced("index_reduce", self, dim, places, source, reduce, include_self, ways)


def _reduced(
    name: str, x: Any, dim: int, index: Any, src: Any, reduce: str, also: bool, ways: dict[str, str]
) -> Any:
    start, way = x, _way(name, ways, reduce)
    if reduce == "mean" and x.dtype == np.bool_:
        raise DTypeError(f"{name}: booleans have no mean.\n  tensor: {type_of(x)}")
    if not also:
        ends = {"max": lowest(x.dtype), "min": lowest(x.dtype, -1)}
        neutral = {"add": 0, "multiply": 1, **ends}[way]
        start = _written(name, x, dim, index, neutral, "set")
    found = _written(name, start, dim, index, src, way)
    if reduce != "mean":
        return found
    ones = fnp.zeros(x.shape, np.int64)
    count = _written(name, ones + 1 if also else ones, dim, index, 1, "add")
    mean = fnp.divide if is_inexact(x.dtype) else fnp.floor_divide
    return fnp.astype(mean(found, fnp.maximum(count, 1)), x.dtype)


@with_axis
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Adds parts, times `alpha`, to those that an index of rank one chooses along a dimension."""
    part = source if isinstance(alpha, int) and alpha == 1 else alpha * source
    return _put(_at_rows("index_add", self, dim, index, part), self, "add", part)


@with_axis
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    """Writes parts to those that an index of rank one chooses along a dimension."""
    return _at_rows("index_copy", self, dim, index, source).set(source)


@with_axis
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    """Writes one value to the parts that an index of rank one chooses along a dimension."""
    value = fnp.reshape(value, ()) if np.ndim(value) else value
    *before, rows = _rows("index_fill", self, dim, index)
    return fnp.at(self)[(*before, rows.array)].set(value)  # which may count from the end


def index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Writes, or adds, values to `x[indices]`."""
    place = fnp.at(self)[tuple(indices)]
    return _put(place, self, "add" if accumulate else "set", values)


def put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Writes, or adds, elements to places that count through all dimensions."""
    shape = np.shape(index)
    part = fnp.reshape(_fitting("put", fnp.ravel(source), (math.prod(shape),)), shape)
    return fnp.reshape(index_put(fnp.ravel(self), (index,), part, accumulate), self.shape)


def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    """Writes elements, one after the other, to the places where a mask holds."""
    x, holds = fnp.broadcast_arrays(self, mask_of("masked_scatter", mask))
    number = fnp.cumsum(fnp.reshape(fnp.astype(holds, np.int64), (-1,))) - 1
    taken = fnp.take(fnp.reshape(source, (-1,)), number, mode="fill")  # NaN past its end
    return fnp.where(holds, fnp.reshape(taken, x.shape), x)


def select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    """Writes a part to one index along a dimension."""
    place = _along(dim, self, index)
    made = fnp.at(self)[place].set(src)  # which says what is out of bounds
    _fitting("select_scatter", src, (*self.shape[: len(place) - 1], *self.shape[len(place) :]))
    return made


def slice_scatter(
    self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """Writes a part to a slice along a dimension."""
    if step < 1:
        raise ArgumentError(f"slice_scatter: the step is at least 1.\n  step: {step}")
    return _set("slice_scatter", self, _along(dim, self, slice(start, end, step)), src)


def diagonal_scatter(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Writes a part to the diagonal of two dimensions."""
    moved = fnp.moveaxis(self, (dim1, dim2), (-2, -1))
    made = _set("diagonal_scatter", moved, diagonal_places(moved.shape, offset), src)
    return fnp.moveaxis(made, (-2, -1), (dim1, dim2))


def diagflat(self: Any, offset: int = 0) -> Any:
    """Returns zeros with all elements on a diagonal."""
    return fnp.diagflat(self, offset)


def diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Returns zeros with the elements along the last dimension on the diagonal of two new ones."""
    n = self.shape[canonical_axis("diag_embed", -1, self.ndim)] + abs(offset)
    dims = [canonical_axis("diag_embed", dim, self.ndim + 1) for dim in (dim1, dim2)]
    empty = fnp.zeros((*self.shape[:-1], n, n), self.dtype)
    made = fnp.at(empty)[diagonal_places((n, n), offset)].set(self)
    return fnp.moveaxis(made, (-2, -1), dims)


TWINNED = (
    scatter, scatter_add, scatter_reduce, index_reduce, index_add, index_copy, index_fill,
    index_put, put, masked_scatter,
)  # fmt: skip
UNTWINNED = (
    gather, index_select, select_scatter, slice_scatter, diagonal_scatter, diagflat, diag_embed,
)  # fmt: skip
