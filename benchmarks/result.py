"""What a row found: one result for each case and peer, with the target that it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.measure import Ratio

__all__ = ["Disagreement", "Result", "Target", "compilations", "faster", "growth", "memory", "time"]


class Disagreement(Exception):
    """Two libraries gave different results for the same work: nothing is timed."""


class Target(NamedTuple):
    """Says what is measured, and how large or small it is to be.

    Attributes:
        unit: what the value is, as in "12 times faster" or "0.98 of its time".
        at_least: whether the bound is one from below.
        bound: None where the value is shown without a claim.
    """

    unit: str
    at_least: bool
    bound: float | None

    def holds(self, value: float) -> bool | None:
        """Tells whether a value is within the bound; None without one."""
        if self.bound is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return ""
        return f"{'at least' if self.at_least else 'at most'} {self.bound:.4g}"


def faster(times: float | None) -> Target:
    """The peer's time divided by ours."""
    return Target("times faster", True, times)


def time(share: float | None) -> Target:
    """Our time divided by the peer's."""
    return Target("of its time", False, share)


def memory(share: float | None) -> Target:
    """Our temporary memory divided by the peer's."""
    return Target("of its memory", False, share)


def compilations(count: int) -> Target:
    """The number of programs that XLA compiled."""
    return Target("compilations", False, count)


def growth(factor: float) -> Target:
    """The time for twice the length divided by that for the length."""
    return Target("times the time", False, factor)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was found for one case of a row against one peer.

    Attributes:
        row: the name of the row.
        case: what was run, where the row has several cases.
        peer: what it was compared with; empty for counts and growth.
        target: what is measured, and its bound.
        value: the median ratio, or the count; None where nothing was measured.
        low: first quartile of the rounds' ratios; None where there is none.
        high: third quartile.
        note: what else is to be said, such as why nothing was measured.
    """

    row: str
    case: str = ""
    peer: str = ""
    target: Target
    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @classmethod
    def of(cls, found: Ratio, **rest: object) -> Result:
        """Makes a result of a ratio with its quartiles."""
        return cls(value=found.median, low=found.low, high=found.high, **rest)  # type: ignore[arg-type]

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None where there is none, or no value."""
        return None if self.value is None else self.target.holds(self.value)

    @property
    def is_close(self) -> bool:
        """Whether the bound lies between the quartiles, so that another run may say otherwise."""
        if self.low is None or self.high is None:
            return False
        return self.target.holds(self.low) is not self.target.holds(self.high)
