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

_held: dict[int, tuple[np.ndarray, set[object]]] = {}
"""The arrays that are read-only for traces, each with the holds on it."""
_waiting: dict[int, list[np.ndarray]] = {}
"""Views that are to be writeable again as soon as their base is, by the identity of the base."""
_lock = threading.RLock()


def hold(value: Any, releases: list[Callable[[], None]] | None = None) -> Callable[[], None] | None:
    """Marks an array read-only; returns what undoes it, or None where there is nothing to do.

    Args:
        value: anything; only NumPy arrays are marked.
        releases: receives what undoes it before anything is done, so that an interrupt at any
            moment leaves nothing marked. To release twice is to release once.
    """
    if not isinstance(value, np.ndarray):
        return None
    # a view can be written to through the array that owns the memory
    chain = []
    array: Any = value
    while isinstance(array, np.ndarray):
        chain.append(array)
        array = array.base
    token = object()

    def release() -> None:
        with _lock:
            for a in reversed(chain):
                _release_one(a, token)

    if releases is not None:
        releases.append(release)
    taken = False
    with _lock:
        for a in reversed(chain):
            taken = _hold_one(a, token) or taken
    return release if taken else None


def _hold_one(array: np.ndarray, token: object) -> bool:
    """Adds one more hold on `array`; False where the user made it read-only."""
    held = _held.get(id(array))
    if held is not None:
        held[1].add(token)
        return True
    if not array.flags.writeable:
        return False
    _held[id(array)] = (array, {token})
    array.flags.writeable = False
    return True


def _release_one(array: np.ndarray, token: object) -> None:
    """Takes a hold away, the last one with the mark; may be interrupted and repeated."""
    held = _held.get(id(array))
    if held is None or token not in held[1]:
        return
    if len(held[1]) > 1:
        held[1].discard(token)
    elif isinstance(array.base, np.ndarray) and id(array.base) in _held:
        # a view follows its base, which another trace still uses
        _waiting.setdefault(id(array.base), []).append(array)
        _held.pop(id(array), None)
    else:
        array.flags.writeable = True
        for view in _waiting.get(id(array), ()):
            view.flags.writeable = True
        _waiting.pop(id(array), None)
        _held.pop(id(array), None)


set_guard(hold)
