"""Gradients of values that have not been run: a program to be recorded, and differentiated."""

from __future__ import annotations

from typing import Any, NamedTuple

from ftrans.interpreters.backward import Numbers, pullback_anew
from ftrans.interpreters.base import excerpt, memoised
from ftrans.interpreters.dependence import behind, requiring
from ftrans.ir import Program


class Slopes(NamedTuple):
    """Says how gradients are computed of some values of a program with respect to others.

    Attributes:
        program: from `taken`, and the cotangents of roots, to the gradients.
        taken: values of the program, by number.
    """

    program: Program
    taken: Numbers


@memoised
def slopes(
    program: Program, leaves: Numbers, run: Numbers, roots: int, inner: int
) -> Slopes | None:
    """Returns how the first outputs, the roots, are differentiated, so that it can be in turn.

    No more is computed anew than what lies between. It is None where not all of what is asked for
    is reached, where some of it lies behind another, and where functions of users are called.

    Args:
        program: any program.
        leaves: the inputs that are asked for.
        run: the inputs that these may lie behind, too.
        roots: how many roots there are.
        inner: how many of the outputs that follow are asked for as well.
    """
    asked: list[Any] = [*leaves, *program.outputs[roots : roots + inner]]
    ends: list[Any] = list(program.outputs[:roots])
    before, _ = behind(program, frozenset(range(roots)))
    if leaves and not set(before).isdisjoint(run):
        return None
    moved, between = set(asked), []
    for entry in program.numbered():
        equation, numbers, _ = entry
        if not moved.isdisjoint(equation.operands):
            if not moved.isdisjoint(numbers):
                return None
            moved.update(numbers)
            between.append(entry)
    if len(set(asked)) < len(asked) or not moved.issuperset(ends):
        return None
    needed, entries = set(ends), []
    for entry in reversed(between):
        equation, numbers, _ = entry
        if not needed.isdisjoint(numbers):
            needed.update(equation.operands)
            entries.append(entry)
    made = {number for _, numbers, _ in entries for number in numbers}
    others = sorted([a for a in needed.difference(made, asked) if type(a) is int])
    values = [*ends, *[a for a in program.outputs[roots:] if a in made]]
    part = excerpt(program, [*asked, *others], reversed(entries), values)
    active = (True,) * len(asked) + (False,) * len(others)
    kept = tuple([p for p, flag in enumerate(requiring(part, active)) if flag])
    if part.calls_host:
        return None
    pulled, there = pullback_anew(part, active, (), kept, tuple(range(roots)), ())
    return Slopes(pulled, (*asked, *others, *[values[p] for p in kept])) if all(there) else None
