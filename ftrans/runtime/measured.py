"""What runs take, and what compiling does: for `config.execution = "measured"`.

What a run takes is measured, and how much of it compiled code would save is estimated. The price
of compiling is the estimate times how much longer it has taken here, by the median.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

PART = 0.25
"""The part of its price that compiling has to be worth before a thread begins with it."""

_TRIES = 3
"""So many compiled runs are compared with what was interpreted."""

_SLOWER = 1.05
"""How much longer they may take: else it is interpreted from then on."""

_ratios: deque[float] = deque(maxlen=31)


def learn_price(estimated: float, seconds: float) -> None:
    """Notes what compiling took, beside what it was estimated to take."""
    _ratios.append(seconds / estimated)


def learnt() -> float:
    """Returns how much longer than estimated compiling takes here."""
    return median(_ratios) if _ratios else 1.0


class Times:
    """Notes what the runs of equal programs take.

    Attributes:
        interpreted: the seconds of the quickest interpreted run.
        compiled: those of the quickest compiled one.
        tries: how many compiled ones are still to be looked at.
        is_slower: whether these took longer than interpreted ones.
    """

    __slots__ = ("compiled", "interpreted", "is_slower", "tries")

    def __init__(self) -> None:
        self.interpreted = self.compiled = math.inf
        self.tries = _TRIES
        self.is_slower = False

    def of_interpreted(self, seconds: float) -> bool:
        """Notes an interpreted run; tells whether it was not the first, which takes longer."""
        first = self.interpreted == math.inf
        self.interpreted = min(self.interpreted, seconds)
        return not first

    def of_compiled(self, seconds: float) -> bool:
        """Notes a compiled run; tells whether to interpret from here on."""
        if self.tries:
            self.tries -= 1
            self.compiled = min(self.compiled, seconds)
            self.is_slower = not self.tries and self.compiled > _SLOWER * self.interpreted
        return self.is_slower
