"""A row: its name on the command line, a sentence, and how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.result import Result

__all__ = ["QUICK", "THOROUGH", "Row", "Settings"]


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        rounds: how often each contestant is timed.
        fresh: how many fresh processes each contestant gets.
        sample: the seconds that one timing takes at least.
        warm: the seconds of calls that go before the first timing.
        limit: the seconds after which one comparison begins no further round.
        small: whether long inputs are cut short.
    """

    rounds: int = 15
    fresh: int = 7
    sample: float = 0.02
    warm: float = 1.0
    limit: float = 8.0
    small: bool = False


THOROUGH = Settings()
QUICK = Settings(rounds=3, fresh=2, sample=0.005, warm=0.2, limit=2.0, small=True)


@dataclass(frozen=True)
class Row:
    """One row of the table; it yields a result for each of its cases and peers.

    Attributes:
        name: the word that selects it.
        about: what is done, in a sentence.
        run: measures it.
    """

    name: str
    about: str
    run: Callable[[Row, Settings], Iterable[Result]]
