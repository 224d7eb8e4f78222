"""The operations of a program: what one call of a function has recorded is one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from ftrans.interpreters.base import excerpt, memoised
from ftrans.ir import Literal, Program
from ftrans.ir.location import Called, Location


class Part(NamedTuple):
    """Is one operation of a program.

    Attributes:
        name: that of the function which recorded it.
        program: what it does, as a program of its own.
        takes: for each operand its value in the whole; None for a number.
        gives: the values in the whole that it returns, and others that are needed there.
        results: how many of these are its results, in PyTorch's order: the others follow.
        location: where it was recorded.
    """

    name: str
    program: Program
    takes: tuple[int | None, ...]
    gives: tuple[int, ...]
    results: int
    location: Location | None


@memoised
def parts(program: Program) -> tuple[Part, ...]:
    """Returns the operations of a program, in the order in which they were recorded."""
    groups = [list(group) for _, group in itertools.groupby(program.numbered(), _call)]
    last: dict[Any, int] = {}
    for at, group in enumerate(groups):
        for equation, _, _ in group:
            last.update(dict.fromkeys(equation.operands, at))
    last.update(dict.fromkeys(program.outputs, len(groups)))
    found = [_part(program, at, group, last) for at, group in enumerate(groups)]
    return tuple([part for part in found if part is not None])


def _call(entry: Any) -> Any:
    """Returns what the equations of one operation, which follow each other, have in common."""
    return entry[2] if type(entry[2]) is Called else object()


def _part(program: Program, at: int, group: list[Any], last: dict[Any, int]) -> Part | None:
    own = {number for _, numbers, _ in group for number in numbers}
    needed = [number for number in sorted(own) if last.get(number, -1) > at]
    if not needed:
        return None
    first, numbers, location = group[0]
    results = needed
    if len(own) == getattr(location, "size", 0):  # else some were left out: nobody needs them
        returned = [numbers[0] + i for i in location.returned]
        is_rule = "custom" in first.primitive.tags
        results = [n for n in returned if is_rule or program.types[n].is_inexact]
    count = len(dict.fromkeys(results))
    gives = tuple(dict.fromkeys([*results, *needed]))
    called = location.name if type(location) is Called else first.primitive.name
    if len(group) > 1:
        taken = tuple(dict.fromkeys(_outside(group, own)))
        alone = excerpt(program, taken, group, gives).renamed(called)
        return Part(called, alone, taken, gives, count, location)
    # each operand is one of its own, so that x * x takes x twice
    takes = tuple([None if type(a) is Literal else a for a in first.operands])
    types = [program.types[a] for a in takes if a is not None]
    inputs = iter(range(len(types)))
    operands = tuple([a if type(a) is Literal else next(inputs) for a in first.operands])
    outs = [len(types) + numbers.index(n) for n in gives]
    alone = Program.make(types, [first._replace(operands=operands)], outs, [location], called)
    return Part(called, alone, takes, gives, count, location)


def _outside(group: list[Any], own: set[int]) -> Iterator[int]:
    """Yields what an operation takes, as its last equation names it: what is added to what."""
    made = {number: equation for equation, numbers, _ in group for number in numbers}
    pending = [number for _, numbers, _ in group for number in numbers]
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        if number not in own:
            yield number
        elif number not in seen:
            seen.add(number)
            pending += [a for a in reversed(made[number].operands) if type(a) is int]
