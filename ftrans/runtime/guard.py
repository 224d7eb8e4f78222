"""Keeps NumPy arrays from being written to while a function that uses them is traced.

A traced function reads a captured array when its program runs, which is after its Python has. To
write into the array in between would change what was meant to be used before: NumPy raises instead,
since the array is marked read-only until the trace ends. Not reached are views that were made
before, which have a flag of their own, and arrays over the memory of another library.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ftrans.ir.above import above
from ftrans.ir.frame import Tracer
from ftrans.ir.source import Abstract
from ftrans.ir.stack import state
from ftrans.primitives.namespace import is_traced_by_jax

_held: dict[int, tuple[np.ndarray, set[int]]] = {}
"""The arrays that are read-only for traces, each with the identities of the lists that hold it."""
_waiting: dict[int, list[np.ndarray]] = {}
"""Views that are to be writeable again as soon as their base is, by the identity of the base."""
_lock = threading.RLock()


def hold(values: Iterable[Any], holder: list[Any]) -> None:
    """Marks arrays read-only until `release(holder)`; notes what JAX is tracing.

    Args:
        values: the sources of inputs; only NumPy arrays are marked.
        holder: receives each array before anything is done to it, so that an interrupt at any
            moment leaves nothing marked that is not released.
    """
    key = id(holder)
    with _lock:
        for value in values:
            if type(value) is Tracer:
                continue
            if isinstance(value, np.ndarray):
                if value.base is None and not (value.flags.writeable or id(value) in _held):
                    continue
                holder.append(value)
                for array in (value,) if value.base is None else reversed(_chain(value)):
                    _hold_one(array, key)
                continue
            source = value.array if isinstance(value, Abstract) else value
            if type(source) is not np.ndarray and is_traced_by_jax(source):
                state.by_jax = True


def release(holder: list[Any]) -> None:
    """Makes writeable what nothing else holds; may be interrupted and repeated."""
    key = id(holder)
    with _lock:
        while holder:
            value = holder[-1]
            for array in (value,) if value.base is None else reversed(_chain(value)):
                _release_one(array, key)
            holder.pop()


def is_held(array: np.ndarray) -> bool:
    """Tells whether an array is read-only only because a trace uses it."""
    return id(array) in _held


def _chain(value: Any) -> Sequence[np.ndarray]:
    """Returns an array and those that it is a view of: it can be written to through them."""
    base = value.base
    if type(base) is np.ndarray and base.base is None:
        return value, base
    chain = []
    while isinstance(value, np.ndarray):
        chain.append(value)
        value = value.base
    return chain


def _hold_one(array: np.ndarray, holder: int) -> None:
    held = _held.get(id(array))
    if held is not None:
        held[1].add(holder)
    elif array.flags.writeable and (array.base is None or isinstance(array.base, np.ndarray)):
        _held[id(array)] = (array, {holder})  # what is read-only the user made so
        array.setflags(write=False)
    # the memory of another library's object, once read-only, NumPy would not make writeable again


def _release_one(array: np.ndarray, holder: int) -> None:
    key, base = id(array), array.base
    held = _held.get(key)
    if held is None or holder not in held[1]:
        return
    if len(held[1]) > 1:
        held[1].discard(holder)
        return
    if base is not None and id(base) in _held:
        # a view follows its base, which another trace still uses
        _waiting.setdefault(id(base), []).append(array)
    else:
        array.setflags(write=True)
        if key in _waiting:
            for view in _waiting[key]:
                view.setflags(write=True)
            _waiting.pop(key, None)
    _held.pop(key, None)


above.hold, above.release = hold, release
