"""The program cache: which programs are remembered, and what is counted of their use.

Transforms remember their results on the programs themselves, and compiled code sits on what equal
programs share; so to remember a program is to keep it alive. The least recently used goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ftrans.config import config
from ftrans.ir import Program

__all__ = ["CacheInfo", "cache_clear", "cache_info", "counters", "keep", "on_clear"]


class CacheInfo(NamedTuple):
    """Says what the program cache holds and did.

    Attributes:
        hits: calls whose program was there already.
        misses: calls that brought a new program.
        compiled: programs that XLA compiled.
        interpreted: runs of the NumPy interpreter.
        entries: programs that are remembered now.
        limit: the most that are.
    """

    hits: int
    misses: int
    compiled: int
    interpreted: int
    entries: int
    limit: int


class _Counters:
    hits = misses = compiled = interpreted = 0


counters = _Counters()
_programs: OrderedDict[int, Program] = OrderedDict()
_lock = threading.Lock()
_also: list[Callable[[], None]] = []
"""What else forgets when the cache is cleared."""


def on_clear(forget: Callable[[], None]) -> None:
    """Has `forget` called whenever the cache is cleared."""
    _also.append(forget)


def keep(program: Program) -> Program:
    """Remembers a program, as the one used last."""
    key = id(program)
    with _lock:
        if key in _programs:
            counters.hits += 1
            _programs.move_to_end(key)
        else:
            counters.misses += 1
            _programs[key] = program
            while len(_programs) > config.cache_entries:
                _programs.popitem(last=False)
    return program


def cache_info() -> CacheInfo:
    """Returns what the program cache holds and did since it was last cleared.

    Example:
        >>> cache_info().limit
        4096
    """
    with _lock:
        return CacheInfo(
            counters.hits,
            counters.misses,
            counters.compiled,
            counters.interpreted,
            len(_programs),
            config.cache_entries,
        )


def cache_clear() -> None:
    """Forgets all programs and what was compiled for them, and sets the counts to zero."""
    with _lock:
        _programs.clear()
        counters.hits = counters.misses = counters.compiled = counters.interpreted = 0
    for forget in _also:
        forget()
