"""What a planted subject is, and how the files of this folder register theirs.

A wrong subject has one fault, which shows in the mathematics at its samples or in the contract of
rules; a right one has none, however odd it looks. The samples are what is handed to `check_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

__all__ = ["RIGHT", "WRONG", "Subject", "normal", "positive", "right", "wrong"]

F = TypeVar("F")


@dataclass(frozen=True)
class Subject:
    """Is one function with rules of its own.

    Attributes:
        name: tells it from the others.
        function: a `Function` class, or a function that uses one or has rules.
        samples: tuples of positional arguments.
        fault: what is wrong with it; None where nothing is.
    """

    name: str
    function: Any
    samples: tuple[tuple[Any, ...], ...]
    fault: str | None


WRONG: list[Subject] = []
RIGHT: list[Subject] = []


def wrong(fault: str, *samples: tuple[Any, ...], name: str = "") -> Callable[[F], F]:
    """Registers a function that has a fault."""

    def register(function: F) -> F:
        WRONG.append(Subject(name or function.__name__, function, samples, fault))  # type: ignore[attr-defined]
        return function

    return register


def right(*samples: tuple[Any, ...], name: str = "") -> Callable[[F], F]:
    """Registers a function that has none."""

    def register(function: F) -> F:
        RIGHT.append(Subject(name or function.__name__, function, samples, None))  # type: ignore[attr-defined]
        return function

    return register


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns normal numbers, the same ones each time."""
    return np.random.default_rng(seed).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns numbers between 0.5 and 2."""
    return np.random.default_rng(seed).uniform(0.5, 2.0, size=shape)
