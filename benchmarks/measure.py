"""Interleaved timing: A B A B ..., and the ratios of the times within each round.

The speed of a shared machine drifts, so a time by itself is no claim. Two tasks that are timed in
one round meet the same machine, and the median of the rounds' ratios is what is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Ratio", "Task", "calls_for", "interleave", "median", "ratio", "timed", "warm"]

Task = Callable[[], Any]
"""Does the work once and returns its result, when that is there."""
Probe = Callable[[], float]
"""Does the work and returns the seconds that one time of it took."""
Clock = Callable[[], float]


class Ratio(NamedTuple):
    """A ratio of times, and how far the rounds were apart.

    Attributes:
        median: that of the rounds' ratios.
        low: their first quartile.
        high: their third quartile.
    """

    median: float
    low: float
    high: float


def interleave(
    probes: Mapping[str, Probe],
    rounds: int,
    seconds: float = float("inf"),
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Returns what each probe measured in each round; a round asks every probe once, in order.

    Args:
        probes: by name.
        rounds: how many rounds are measured.
        seconds: after so many no further round is begun; two are always measured, if asked for.
        clock: tells the time by which rounds are cut short.
    """
    found: dict[str, list[float]] = {name: [] for name in probes}
    start = clock()
    for number in range(rounds):
        if number >= 2 and clock() - start > seconds:
            break
        for name, probe in probes.items():
            found[name].append(probe())
    return found


def timed(task: Task, calls: int, clock: Clock = time.perf_counter) -> Probe:
    """Returns the probe that calls a task so many times and divides."""

    def probe() -> float:
        start = clock()
        for _ in range(calls):
            task()
        return (clock() - start) / calls

    return probe


def calls_for(task: Task, seconds: float, clock: Clock = time.perf_counter) -> int:
    """Returns how many calls of a task take about so many seconds, one at the least."""
    calls = 1
    while True:
        spent = timed(task, calls, clock)() * calls
        if spent >= seconds / 4 or calls >= 1_000_000:
            return max(1, round(calls * seconds / max(spent, 1e-9)))
        calls *= 4


def warm(task: Task, seconds: float, clock: Clock = time.perf_counter) -> None:
    """Calls a task for so many seconds, once at the least."""
    start = clock()
    task()
    while clock() - start < seconds:
        task()


def median(times: Sequence[float]) -> float:
    """Returns the median."""
    return float(np.median(times))


def ratio(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Returns the ratio of the times in each round, `over` by `under`, with quartiles.

    Example:
        >>> ratio([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
        Ratio(median=3.0, low=2.5, high=3.5)
    """
    ratios = np.divide(over, under)
    low, middle, high = (float(q) for q in np.quantile(ratios, (0.25, 0.5, 0.75)))
    return Ratio(middle, low, high)
