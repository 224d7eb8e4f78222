"""What a generator draws by: keys made on the host, one for each draw, and what is drawn ahead.

Draw number i is by the key that the words of the generator make of i. That is all that its results
depend on: what was drawn ahead is what would have been drawn.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.ir.stack import state
from ftrans.pytree import describe
from ftrans.random.distributions import DISTRIBUTIONS
from ftrans.random.keys import block, fold_in

_LOW = 0xFFFFFFFF
_KEYS = 256
"""How many keys are made at once, which takes little longer than to make one."""

_ROWS = 256
_AHEAD = 1 << 15
"""The most draws, and elements, that are made ahead: of what is 32 times smaller at least."""

_NONE = (0, 0, None)
_KINDS = 32
"""Of so many shapes and dtypes at once."""


def words_of_seed(seed: Any) -> np.ndarray:
    """Returns the words of a generator: a hash of all bits of a seed, which is not `key(seed)`.

    Args:
        seed: an int that is not negative, a sequence of them, or None for what the system gives.

    Raises:
        ArgumentError: where it is none of these.
    """
    if seed is None:
        seed = int.from_bytes(os.urandom(16), "little")
    try:
        numbers = [operator.index(x) for x in np.asarray(seed).flat]
    except (AttributeError, TypeError, ValueError):
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ArgumentError(
            f"default_rng: a seed is an int that is not negative, or a sequence of them.\n"
            f"  seed: {describe(seed)}\n"
            f"  Write default_rng(0), or default_rng() for another one each time."
        )
    parts: list[int] = []
    for number in numbers:
        own = [number >> 32 * i & _LOW for i in range(-(-number.bit_length() // 32))]
        parts += [len(own), *own]  # so that no two sequences have the same parts
    words = np.array([0x66747261, len(parts)], np.uint32)
    for i in range(0, len(parts), 2):
        words = made_of(words, *np.array([*parts, 0][i : i + 2], np.uint32))
    return words


def made_of(words: np.ndarray, high: Any, low: Any) -> np.ndarray:
    """Returns the keys that words make of counters, uint32[..., 2]."""
    return np.stack(block(words, np.asarray(high), np.asarray(low)), -1)


class Source:
    """Makes the keys of a generator, of its words, from a position on; threads may share it."""

    def __init__(self, words: Any, position: int = 0):
        self._lock = threading.Lock()
        self.begin(words, position)

    def begin(self, words: Any, position: int) -> None:
        """Goes to a position, with other words."""
        with self._lock:
            self.words = np.array(words, np.uint32)
            self.position = position
            self._first = self._end = 0
            self._keys: Any = None
            self._rows: dict[Any, tuple[int, int, Any]] = {}

    def where(self) -> tuple[np.ndarray, int]:
        """Returns the words and the position, which belong together."""
        with self._lock:
            return self.words, self.position

    def key(self) -> np.ndarray:
        """Returns the next key, uint32[2]."""
        with self._lock:
            number = self.position
            self.position = number + 1
            return self._one(number)

    def _one(self, number: int) -> np.ndarray:
        if not self._first <= number < self._end:
            self._keys = self._at(number, _KEYS)
            self._first, self._end = number, number + _KEYS
        return self._keys[number - self._first].copy()

    def _at(self, first: int, count: int) -> np.ndarray:
        numbers = np.arange(first, first + count, dtype=np.uint64)
        high, low = numbers >> np.uint64(32), numbers & np.uint64(_LOW)
        return made_of(self.words, high.astype(np.uint32), low.astype(np.uint32))

    def small(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype, **numbers: int
    ) -> np.ndarray | None:
        """Returns the next draw of a distribution by these parameters; None where it is to be run.

        It is, at first, and where it is large. From the second time on many are made at once.
        """
        kind = name, shape, dtype, *numbers.items()
        with self._lock:
            number = self.position
            first, end, rows = self._rows.get(kind, _NONE)
            if not first <= number < end:
                size = max(math.prod(shape), 1)
                if 32 * size > _AHEAD:
                    return None
                if kind not in self._rows:
                    if len(self._rows) >= _KINDS:
                        self._rows.clear()
                    self._rows[kind] = _NONE
                    return None
                count = min(_ROWS, _AHEAD // size)
                rows = DISTRIBUTIONS[name].rows(shape, dtype, **numbers)(self._at(number, count))
                first = number
                self._rows[kind] = first, first + count, rows
            self.position = number + 1
            return np.array(rows[number - first])


def lanes(name: str) -> Sequence[Any]:
    """Returns what numbers the examples that a draw is for, under each `vmap` that wants that.

    Raises:
        UnsupportedError: where the draw would be the same at each run of what is traced, and under
            `vmap`, unless that was told what is meant.
    """
    found = []
    state.for_this_call()
    for frame in state.stack:
        if frame.closed:
            raise UnsupportedError(
                f"{frame.name}: a generator draws in it, which happens when it is traced: each run "
                f"would get the same numbers.\n"
                f"  Pass a key as an argument, and draw by that: ftrans.random.{name}(key, ...).\n"
                f"  For a key, write rng.key(); for one at each step, ftrans.random.split(key, n)."
            )
        if frame.lanes is not None:
            mode, lane = frame.lanes
            if mode == "error":
                raise UnsupportedError(
                    f"{frame.name}: called random operation while in randomness error mode. "
                    f"Please either use the 'same' or 'different' randomness flags on vmap or "
                    f"perform the randomness operation out of vmap.\n"
                    f"  Write randomness='different', or 'same'; or map over keys = rng.keys(n),\n"
                    f"  and draw by each of them: ftrans.random.{name}(key, ...)."
                )
            if lane is not None:
                found.append(lane)
    return found


def key_for(source: Source, name: str) -> Any:
    """Returns the key of the next draw: of each example its own, where they are told apart.

    The caller's code may be traced: what stands for the key is an input of the program then.
    """
    if not state.stack:
        return source.key()
    found = lanes(name)
    key = source.key()
    for lane in found:
        key = fold_in(key, lane)
    return key
