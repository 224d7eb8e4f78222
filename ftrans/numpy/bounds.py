"""What is to hold of arrays that are indices, and is checked where their values are at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import IndexingError
from ftrans.ir import Tracer
from ftrans.ir.stack import state
from ftrans.ir.trail import Trail
from ftrans.runtime.jaxlink import is_traced_by_jax

READS = "x[...]"
_FEW = 64


class Bounds(NamedTuple):
    """Raises where an array of indices reaches beyond an axis.

    Attributes:
        name: that of the function.
        type: the type of the array that has the axis.
        axis: the axis.
        low: the least index.
    """

    name: str
    type: Any
    axis: int
    low: int

    def __call__(self, indices: np.ndarray) -> None:
        """Checks known indices.

        Raises:
            IndexError: where one is out of bounds, with that index and the size of the axis.
        """
        if indices.size:
            if indices.size <= _FEW:  # which Python goes through in less time than NumPy begins
                numbers = indices.ravel().tolist()
                low, high = min(numbers), max(numbers)
            else:
                low, high = indices.min(), indices.max()
            if low < self.low or high >= self.type.shape[self.axis]:
                raise out_of_bounds(self, int(low if low < self.low else high))


class Counted(NamedTuple):
    """Is an item of an index, an array that does not count from the end, for a function by name."""

    name: str
    array: Any


class There(NamedTuple):
    """Is an item of an index, an array of places that all exist, as `argsort` returns them."""

    array: Any


def require(array: Any, holds: Callable[[np.ndarray], None]) -> None:
    """Has an array checked, if it is at hand, as tensors are that have their values."""
    if type(array) is Tracer:
        if isinstance(array.frame, Trail):
            array.frame.require(array.index, holds)
    elif not is_unknown(array):
        holds(np.asarray(array))


def looks(_: Any) -> None:
    """Stands for what is looked at beside what is computed; see `at_hand`."""


def at_hand(*arrays: Any) -> bool:
    """Tells whether all arrays are there to be looked at: values may be refused, but none is asked.

    What is traced to be run on others is told that one would have looked, by `looks`.
    """
    for x in arrays:
        if type(x) is Tracer and isinstance(x.frame, Trail):
            x.frame.require(x.index, looks)
    return not any(map(is_unknown, arrays))


def of_known(function: Callable[..., Any], *items: Any) -> Any:
    """Returns what a function makes of integers, some of which may be plain arguments of a call.

    Where the call is proven to do the same again, these are given to the function at each anew.

    Args:
        function: returns an array of NumPy's where it is given such, and holds no traced value.
        items: arrays, known or traced.
    """
    found = None if state.beside is None else state.beside.take(function, items)
    return function(*items) if found is None else found


def concrete(item: Any, what: str) -> Any:
    """Returns the array behind a value, traced or not."""
    return np.asarray(item.value(what) if isinstance(item, Tracer) else item)


def is_unknown(item: Any) -> bool:
    """Tells whether the value of an array is not at hand."""
    return isinstance(item, Tracer) or is_traced_by_jax(item)


def out_of_bounds(bounds: Bounds, number: int) -> IndexError:
    """Returns the error that says which index is beyond an axis."""
    name, type_, axis, low = bounds
    size = type_.shape[axis]
    text = f"{name}: index {number} is out of bounds.\n  x: axis {axis} of {type_} has size {size}"
    if -size <= number < low:
        text += f"\n  Indices do not count from the end here. Write index % {size}."
    return IndexingError(text)
