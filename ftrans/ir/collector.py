"""The cyclic garbage collector, kept from going through what was just made again and again."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ftrans.traceback import after_interrupts

P = ParamSpec("P")
T = TypeVar("T")

LONG = 1000
"""So many new operations make a function long."""

_NEVER = 2**31 - 1
_lock = threading.RLock()  # a finalizer may trace as well
_inside = 0
_usual: tuple[int, int, int] = gc.get_threshold()


def uncollected(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function that makes or reads programs, and no garbage to speak of.

    It takes a third less time where nothing is collected.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return function(*args, **kwargs)
    finally:
        if collects:
            gc.enable()


def put_off() -> bool:
    """Has full collections wait for `allow`, while a long function of a user's is traced.

    That makes a great many objects that stay, which would be gone through at every quarter more.
    What is young is collected as ever. Whoever calls it calls `allow` in a `finally`; it is true.
    """
    global _inside, _usual
    with _lock:
        _inside += 1
        if _inside == 1:
            _usual = gc.get_threshold()
            gc.set_threshold(*_usual[:2], _NEVER)
    return True


def allow() -> None:
    """Lets full collections happen again, once all that have put them off say so."""
    global _inside
    with _lock:
        _inside = max(_inside - 1, 0)
        if not _inside and gc.get_threshold()[2] == _NEVER:
            gc.set_threshold(*_usual)


def _allow_at_last() -> None:
    global _inside
    _inside = 0
    allow()


after_interrupts.append(_allow_at_last)
