"""Finds what repeats: stretches of a sequence that are several copies of one period.

A sequence is of numbers, equal where equations are alike. Nothing is known here of what they take
from each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_PERIODS, _NEIGHBOURS = 12, 8
"""How many periods are tried: the commonest distances between an element and the next ones equal to
it. What stands in each copy so many times has the right one."""


class Run(NamedTuple):
    """Is a stretch that repeats.

    Attributes:
        start: where it begins.
        period: how long one copy is.
        copies: how many there are.
    """

    start: int
    period: int
    copies: int

    @property
    def stop(self) -> int:
        """The place after it."""
        return self.start + self.period * self.copies


def find_runs(codes: Any, least: int) -> list[tuple[int, int, int]]:
    """Returns stretches that repeat at least `least` times, as `(start, stop, period)`.

    They do not overlap; the longest are taken first, and of equals those of the shortest period.
    Where a copy begins is open: a stretch may hold more than a whole number of them.

    Args:
        codes: the sequence, i64[n].
        least: the least number of copies.
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    gaps = [
        (order[n:] - order[:-n])[ordered[n:] == ordered[:-n]]
        for n in range(1, min(_NEIGHBOURS + 1, len(codes)))
    ]
    periods, counts = np.unique(np.concatenate(gaps or [order]), return_counts=True)
    found = []
    for period in periods[np.argsort(-counts, kind="stable")[:_PERIODS]].tolist():
        same = np.concatenate([[False], codes[:-period] == codes[period:], [False]])
        edges = np.flatnonzero(same[1:] != same[:-1])
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if stop - start >= (least - 1) * period:
                found.append((start, stop + period, period))
    found.sort(key=lambda run: (run[0] - run[1], run[2]))
    taken = np.zeros(len(codes), bool)
    chosen = []
    for start, stop, period in found:
        if not taken[start:stop].any():
            taken[start:stop] = True
            chosen.append((start, stop, period))
    return sorted(chosen)


def phases(start: int, stop: int, period: int, alive: Any) -> list[Run]:
    """Returns where the copies of a stretch may begin, the best first.

    It is where the fewest values are handed from one to the next; among these where most copies
    fit, and then where what is left over is in front, since it is the first turn that differs.

    Args:
        start: where the stretch begins.
        stop: the place after it.
        period: the length of a copy.
        alive: for each place of the sequence how many values made before it are used from it on.
    """
    middle = start + period * ((stop - start) // period // 2)
    found = []
    for shift in range(period):
        count = (stop - start - shift) // period
        run = Run(start + shift, period, count)
        found.append((alive[middle + shift], -count, stop - run.stop, run))
    return [run for *_, run in sorted(found)]
