"""Functions of values that count which elements there are, as methods of PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.taking import at_places

Function = Callable[..., Any]


def int64(at: Any) -> Any:
    """Returns places, or counts, in PyTorch's dtype of them; NumPy's functions here have int32."""
    return fnp.astype(at, np.int64)


class Extreme(NamedTuple):
    """Is what `max`, `sort` and others return along a dimension."""

    values: Any
    indices: Any


def along(indices: Function, x: Any, dim: int, keepdim: bool) -> Extreme:
    """Returns the extreme values along a dimension, and where they are."""
    if not x.ndim:
        return Extreme(fnp.copy(x), fnp.zeros((), np.int64))
    at = indices(x, axis=dim, keepdims=True)
    found = Extreme(at_places(x, at, dim), int64(at))
    return found if keepdim else Extreme(*[fnp.squeeze(y, dim) for y in found])


def _commonest(x: Any, axis: int, keepdims: bool) -> Any:
    """Returns the last place of the element that is there most often, the smallest one of those."""
    at = fnp.argsort(x, axis=axis, stable=True)
    line = at_places(x, at, axis)
    place = np.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    begins = fnp.logical_or(line != fnp.roll(line, 1, axis=axis), place == 0)
    start = fnp.cummax(fnp.where(begins, place, 0), axis=axis)
    longest = fnp.argmax(place - start, axis=axis, keepdims=True)  # where a run of them ends
    return fnp.take_along_axis(at, longest, axis=axis)


def mode(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns the elements that are there most often along a dimension, and where they are."""
    axis = canonical_axis("mode", dim, self.ndim) if self.ndim else 0
    if self.ndim and not self.shape[axis]:
        raise ArgumentError(f"mode: there is no element.\n  dim: {dim}, of size 0")
    return along(_commonest, self, axis, keepdim)


def unique(
    self: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Returns the different elements in order, whose values are to be known."""
    found = fnp.unique(self, False, return_inverse, return_counts, dim, equal_nan=False)
    return (found[0], *map(int64, found[1:])) if type(found) is tuple else found


def unique_consecutive(
    self: Any,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Returns the elements, or the parts along a dimension, that differ from the one before."""
    line = fnp.reshape(self, (-1,)) if dim is None else fnp.moveaxis(self, dim, 0)
    count = line.shape[0]
    differs = fnp.any(line[1:] != line[:-1], axis=tuple(range(1, line.ndim)))
    begins = fnp.concatenate([np.ones(min(count, 1), bool), differs])
    starts = fnp.nonzero(begins)[0]
    values = fnp.take(line, starts, axis=0)
    found = [values if dim is None else fnp.moveaxis(values, 0, dim)]
    if return_inverse:
        inverse = int64(fnp.cumsum(begins) - 1)
        found.append(fnp.reshape(inverse, self.shape) if dim is None else inverse)
    if return_counts:
        found.append(int64(fnp.diff(starts, append=np.array([count], starts.dtype))))
    return tuple(found) if len(found) > 1 else found[0]


def histc(self: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Counts elements between two bounds, or between the least and the largest of them."""
    bounds = (min, max) if min < max else None
    counts, _ = fnp.histogram(fnp.stop_gradient(self), bins, bounds)
    return fnp.astype(counts, self.dtype)


UNTWINNED = mode, unique, unique_consecutive, histc
