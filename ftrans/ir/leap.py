"""What a function recorded when it was called, to be recorded again without calling it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import CheckError
from ftrans.ir.steps import Step
from ftrans.ir.types import ArrayType


class Leap(NamedTuple):
    """Is what a function recorded.

    Attributes:
        steps: the equations.
        end: the step after them.
        constants: the arrays that it captured.
        types: their types.
        blank: a None for each of them.
        results: the arguments of `make_tracer` for each result.
        kind: makes what the function returned of the results; None where that is the only one.
        view: says how the result is a view.
        checks: the arguments of `Trail.require`.
    """

    steps: list[Step]
    end: Step
    constants: list[Any]
    types: list[ArrayType]
    blank: list[None]
    results: list[tuple[int, ArrayType, bool]]
    kind: Callable[[Any], Any] | None
    view: Any
    checks: list[tuple[int, Callable[[Any], None]]]


def results_of(result: Any) -> Any:
    """Returns what a function returned as a sequence of results."""
    return result if isinstance(result, (tuple, list)) else (result,)


def maker_of(result: Any) -> Callable[[Any], Any] | None:
    """Returns what makes a sequence like this one of other results; None for a single result."""
    kind: Any = type(result)
    return getattr(kind, "_make", kind) if isinstance(result, (tuple, list)) else None


def holds_only(kinds: frozenset[type], x: Any) -> bool:
    """Tells whether lists and tuples, and those in them, hold nothing but what is of some types."""
    if not isinstance(x, (tuple, list)):
        return type(x) in kinds
    return kinds.issuperset(map(type, x)) or all(holds_only(kinds, y) for y in x)


def compare(name: str, before: Leap, now: Leap | None, steps: list[Step]) -> None:
    """Raises where a call that could have been leapt over does not do what it did before."""
    then = [step.equation for step in before.steps]
    found = [step.equation for step in steps]
    if now is not None and then == found and before[3:] == now[3:]:
        pairs = zip_longest(before.constants, now.constants)
        if all(np.array_equal(a, b, a.dtype.kind in "fc") for a, b in pairs):
            return
    differ = [pair for pair in zip_longest(then, found) if pair[0] != pair[1]]
    recorded, records = differ[0] if differ else (before[2:], now and now[2:])
    raise CheckError(
        f"{name}: a call that would have been taken over from an earlier one does something else.\n"
        f"  it recorded: {recorded}\n"
        f"  it records:  {records or 'what cannot be taken over'}\n"
        f"  It reads what is neither an argument of it nor a constant, and has changed."
    )
