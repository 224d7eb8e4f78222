"""The cyclic garbage collector, paused while a great deal is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncollected(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function that makes or reads programs, and no garbage to speak of.

    The collector would go through what was made so far again and again, for a third of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return function(*args, **kwargs)
    finally:
        if collects:
            gc.enable()
