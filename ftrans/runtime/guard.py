"""Keeps NumPy arrays from being written to while a function that uses them is traced.

A traced function reads a captured array when its program runs, which is after its Python has. To
write into the array in between would change what was meant to be used before: NumPy raises instead,
since the array is marked read-only until the trace ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.ir.frame import set_guard

__all__ = ["hold"]

_held: dict[int, tuple[np.ndarray, int]] = {}
_waiting: dict[int, list[np.ndarray]] = {}
"""Views that are to be writeable again as soon as their base is, by the identity of the base."""
_lock = threading.Lock()


def hold(value: Any) -> Callable[[], None] | None:
    """Marks an array read-only; returns what undoes it, or None where there is nothing to do."""
    if not isinstance(value, np.ndarray):
        return None
    # a view can be written to through the array that owns the memory
    chain = []
    array: Any = value
    while isinstance(array, np.ndarray):
        chain.append(array)
        array = array.base
    with _lock:
        taken = [a for a in reversed(chain) if _hold_one(a)]
    if not taken:
        return None

    def release() -> None:
        with _lock:
            for a in taken:
                _release_one(a)

    return release


def _hold_one(array: np.ndarray) -> bool:
    """Counts one more trace that uses `array`; False where the user made it read-only."""
    _, count = _held.get(id(array), (array, 0))
    if count == 0:
        if not array.flags.writeable:
            return False
        array.flags.writeable = False
    _held[id(array)] = (array, count + 1)
    return True


def _release_one(array: np.ndarray) -> None:
    _, count = _held.pop(id(array))
    if count > 1:
        _held[id(array)] = (array, count - 1)
    elif isinstance(array.base, np.ndarray) and id(array.base) in _held:
        # a view follows its base, which another trace still uses
        _waiting.setdefault(id(array.base), []).append(array)
    else:
        array.flags.writeable = True
        for view in _waiting.pop(id(array), ()):
            view.flags.writeable = True


set_guard(hold)
