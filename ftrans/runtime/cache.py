"""The program cache: which programs are remembered, and what is counted of their use.

Transforms remember their results on the programs themselves, and compiled code sits on what equal
programs share; so to remember a program is to keep it alive. Two bounds hold, one on the number of
programs and one on the bytes of compiled code. The least recently used goes first.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from ftrans.config import config
from ftrans.ir import Program


class CacheInfo(NamedTuple):
    """Says what the program cache holds and did.

    Attributes:
        hits: calls whose program was there already.
        misses: calls that brought a new program.
        compiled: programs that XLA compiled.
        interpreted: runs of the NumPy interpreter.
        entries: programs that are remembered now.
        limit: the most that are.
        nbytes: the bytes of compiled code: what XLA reports, else an estimate.
        nbytes_limit: the most that are kept.
    """

    hits: int
    misses: int
    compiled: int
    interpreted: int
    entries: int
    limit: int
    nbytes: int
    nbytes_limit: int


_counts = Counter[str]()
_programs: OrderedDict[int, Program] = OrderedDict()
_holding: OrderedDict[int, Program] = OrderedDict()
"""The programs that refer to functions, and so keep alive what these close over."""
_HOLDING = 256
_states: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = threading.RLock()
_hooks: list[Callable[[], None]] = []


def keep(program: Program) -> Program:
    """Remembers a program, as the one used last."""
    key = id(program)
    with _lock:
        programs = _programs if key in _programs else _holding
        if key in programs:
            _counts["hits"] += 1
            programs.move_to_end(key)
            return program
        _counts["misses"] += 1
        holding = program.holds_functions
        programs = _holding if holding else _programs
        most = min(_HOLDING, config.cache_entries) if holding else config.cache_entries
        programs[key] = program
        # what goes is freed after the lock is, since a great deal may hang on it
        gone = []
        while len(programs) > most:
            gone.append(programs.popitem(last=False))
    return program


def count(what: str) -> None:
    """Counts one program "compiled", or one run "interpreted"."""
    with _lock:
        _counts[what] += 1


def track(state: Any) -> None:
    """Counts what is compiled for a state among the bytes, for as long as it lives."""
    with _lock:
        _states.add(state)


def make_room(newest: Any) -> None:
    """Drops compiled code until the bytes are within their bound; that of `newest` stays."""
    with _lock:
        holding = [s for s in _states if s.code is not None]
        total = sum(s.code.nbytes for s in holding)
        if total <= config.cache_bytes:
            return
        for state in sorted(holding, key=lambda s: s.code.used):
            if state is not newest:
                total -= state.code.nbytes
                state.drop()
                if total <= config.cache_bytes:
                    return


def on_clear(hook: Callable[[], None]) -> Callable[[], None]:
    """Registers what is to be called by `cache_clear`; returns it, and so is a decorator too."""
    _hooks.append(hook)
    return hook


class Remembered(OrderedDict):
    """Is a dict that forgets what was not used for longest; `ftrans.cache_clear` empties it.

    Args:
        most: how many entries it has at most.
    """

    def __init__(self, most: int):
        super().__init__()
        self._most = most
        on_clear(self.clear)

    def find(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns the value for a key, made where there is none."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
            self.bound()
        else:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread has pushed it out
                self[key] = found
        return found

    def bound(self) -> None:
        """Forgets what is too much, after an entry was made without `find`."""
        while len(self) > self._most:
            self.popitem(last=False)


def cache_info() -> CacheInfo:
    """Returns what the program cache holds and did since it was last cleared.

    Example:
        >>> cache_info().limit
        4096
    """
    with _lock:
        executables = [s.code for s in _states]
        return CacheInfo(
            _counts["hits"],
            _counts["misses"],
            _counts["compiled"],
            _counts["interpreted"],
            len(_programs) + len(_holding),
            config.cache_entries,
            sum(e.nbytes for e in executables if e is not None),
            config.cache_bytes,
        )


def cache_clear() -> None:
    """Forgets all programs and what was compiled for them, and sets the counts to zero.

    What else the library remembers goes as well: inferred types, source locations, and what other
    modules registered by `ftrans.runtime.on_clear`.
    """
    with _lock:
        gone = [*_programs.values(), *_holding.values()]
        _programs.clear()
        _holding.clear()
        for state in list(_states):
            state.drop()
        _counts.clear()
    del gone
    for hook in list(_hooks):
        hook()
