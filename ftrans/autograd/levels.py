"""Dual levels: which values have tangents, and how what is computed of them gets its own.

A tangent belongs to a value, an array that nobody writes to, and to a set of levels: with two of
them open, a value may have one along each, and one along both, the second derivative. A run that
takes such values runs the `jvp` of its program. Where no level is open, nobody looks for any.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np

from ftrans import runtime
from ftrans.autograd.tensor import Tensor, made
from ftrans.interpreters.levels import NONE, Levels, Place, along_levels
from ftrans.ir import Program, type_of

OPEN: set[int] = set()
"""The levels that are open, in all threads: by numbers that are never given again."""


class _Entered(threading.local):
    def __init__(self) -> None:
        self.levels: list[int] = []


entered = _Entered()
"""Has the levels that this thread has opened, the innermost one last."""

_numbers = itertools.count()


class Tangent:
    """Is a tangent: an array, the `Edge` that it is if it requires grad, and the user's tensor."""

    __slots__ = ("edge", "shown", "value")

    def __init__(self, value: Any, edge: Any = None, shown: Tensor | None = None):
        self.value, self.edge, self.shown = value, edge, shown

    def tensor(self) -> Tensor:
        """Returns the tensor that a user has for it; a new one, where that was written to."""
        if self.shown is None or self.shown._v is not self.value:
            self.shown = made(self.value, 0, type_of(self.value))
            if self.edge is not None:
                self.shown._edge = self.edge
                self.edge.segment.results.append((self.edge.position, ref(self.shown)))
        return self.shown


_carried: dict[int, list[Any]] = {}
"""Weak references to all values that have tangents, with these, by the identity of the array."""


def begin() -> int:
    """Opens a level, the innermost one of this thread; returns how many there are around it."""
    entered.levels.append(next(_numbers))
    OPEN.add(entered.levels[-1])
    return len(entered.levels) - 1


def end() -> None:
    """Closes the innermost level of this thread, and lets go of all tangents along it."""
    level = entered.levels.pop()
    OPEN.discard(level)
    for found in _carried.copy().values():  # a copy, since arrays may be freed meanwhile
        found[1] = {levels: x for levels, x in found[1].items() if level not in levels}


def tangents_of(value: Any) -> Mapping[Levels, Tangent]:
    """Returns the tangents of a value, by the levels that each is along."""
    found = _carried.get(id(value))
    return {} if found is None else found[1]  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """Returns the same value without tangents, as another array where it has some."""
    if not tangents_of(value):
        return value
    return value.view() if isinstance(value, np.ndarray) else value.copy()


def carry(value: Any, tangents: Mapping[Levels, Tangent]) -> None:
    """Gives a value tangents, and to each of these what it has along the other levels."""
    found = dict(tangents)
    for levels in tangents:  # a tangent along two levels belongs to one along each, maybe zero
        for count in range(1, len(levels)):
            for part in map(frozenset, itertools.combinations(levels, count)):
                found.setdefault(part, Tangent(np.zeros_like(value)))
    values = {NONE: value, **{levels: x.value for levels, x in found.items()}}
    for levels, x in values.items():
        own = {other - levels: moving for other, moving in found.items() if levels < other}
        if own or tangents_of(x):
            _carried[id(x)] = [ref(x, functools.partial(_carried.pop, id(x))), own]


def run(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Runs a program on arrays that nobody writes to; where levels are open each gets its own."""
    return runtime.run(program, arrays, own=bool(OPEN))


def pushed(
    program: Program, operands: Sequence[Any], targets: Sequence[Any]
) -> tuple[Program, list[Any], list[Any], list[Place]] | None:
    """Is `along_levels` with operands and their targets; None where no operand has a tangent."""
    given = [tangents_of(x) for x in operands]
    if not any(given):
        return None
    program, inputs, outputs = along_levels(program, given)
    new = [given[i][levels] for i, levels in inputs[len(operands) :]]
    values, edges = [x.value for x in new], [x.edge for x in new]
    return program, [*operands, *values], [*targets, *edges], outputs


def attach(outputs: Sequence[Place], found: Sequence[Any], edges: Sequence[Any]) -> None:
    """Gives values that a run has found, arrays of its own, their tangents.

    `pushed` said of the outputs what they are; an edge is None where one does not require grad.
    """
    tangents: dict[int, dict[Levels, Tangent]] = {}
    for (at, levels), x, edge in zip(outputs, found, edges, strict=True):
        if levels:
            tangents.setdefault(at, {})[levels] = Tangent(x, edge)
    for at, own in tangents.items():
        carry(found[at], own)
