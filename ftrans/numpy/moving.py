"""Indices of numbers: NumPy's own, or of arrays, where others come from one place at each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.runtime.cache import Remembered

_KINDS = {float: "fc", int: "fciu", bool: "b"}
"""Of which kinds of arrays a number is an element as it is."""


def _counts_back(index: Any) -> bool:
    items = index if type(index) is tuple else (index,)
    steps: list[Any] = [x.step for x in items if type(x) is slice]
    return any(step is not None and step < 1 for step in steps)


def read(array: np.ndarray, index: Any) -> np.ndarray | None:
    """Returns what is at an index of numbers and slices; None where there is nothing."""
    try:
        return None if _counts_back(index) else np.asarray(array[index])
    except IndexError:
        return None


def written(array: np.ndarray, index: Any, value: Any) -> np.ndarray | None:
    """Returns a copy with other elements at such an index; None where these do not fit."""
    if type(value) is np.ndarray:
        if value.dtype != array.dtype:
            return None
    elif array.dtype.kind not in _KINDS.get(type(value), "") or _counts_back(index):
        return None
    found = array.copy()
    try:
        with np.errstate(all="ignore"):
            found[index] = value
    except (IndexError, ValueError, OverflowError):
        return None
    return found


class _Place:
    """Counts the indices that come from a place, and the turns in which others came."""

    __slots__ = ("indices", "kept", "moves", "turn", "turns")

    def __init__(self, kept: Any):
        self.kept = kept
        self.indices: set[Any] = set()
        self.turn = self.turns = 0
        self.moves = False


_TURNS, _MANY = 3, 64
"""In so many turns, or so often, other indices come from a place before they are inputs.

Those of a loop in a step are constants of its program, and the same in the next one.
"""

_places = Remembered(1024)


def is_moving(place: Any, kept: Any, index: Any, turn: int) -> bool:
    """Tells whether other indices came from a place before, so that this one is to be an input.

    Args:
        place: is hashable, and stands for one place while `kept` is alive.
        kept: is kept alive.
        index: what makes a view, of which no program is known.
        turn: the number of the program that is recorded.
    """
    found: _Place = _places.find(place, lambda: _Place(kept))
    if not found.moves:
        items = index if type(index) is tuple else (index,)
        key = tuple([(x.start, x.stop, x.step) if type(x) is slice else x for x in items])
        if key not in found.indices:
            found.indices.add(key)
            found.turns += turn != found.turn
            found.turn = turn
            found.moves = found.turns > _TURNS or len(found.indices) > _MANY
    return found.moves


def as_arrays(index: Any, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], int | None] | None:
    """Returns an index with arrays in the place of its numbers; None for one of another kind.

    Where it is of numbers alone, what is read has an axis of one more, of which it says which.
    """
    items = index if type(index) is tuple else (index,)
    if not {int, slice}.issuperset(map(type, items)) or _counts_back(index):
        return None
    if len(items) > len(shape):
        return None
    axes = [axis for axis, x in enumerate(items) if x != slice(None)]
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None  # NumPy would have what is between stand elsewhere
    spans = [x for x in items if type(x) is slice and x != slice(None)]
    left, found = len(spans), list[Any](items)
    for axis in axes:
        x = items[axis]
        if type(x) is int:
            found[axis] = np.full((1,) * max(1, len(spans)), x)
        else:
            left -= 1
            span = np.arange(*x.indices(shape[axis]))  # which ends where the axis does
            found[axis] = span.reshape((-1,) + (1,) * left)
    return tuple(found), None if spans else axes[0]
