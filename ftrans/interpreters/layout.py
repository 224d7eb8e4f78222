"""Reads a program as a sequence in which what repeats can be seen, and says what the copies take.

Two equations are alike where primitive, params and types are; a run of copies can be folded where
each operand is had in the same way in all copies.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.interpreters.flow import flow
from ftrans.interpreters.repeats import Run, find_runs, phases
from ftrans.ir import Equation, Literal, Program
from ftrans.primitives import at_hand_p, graft_p, mark_p, missing_p, slice_p

_TURNS, _TURNING = 16, 200
"""A loop has at least so many turns, and takes the place of so many equations."""

_CHEAP = 1 << 18
"""A turn of a loop has at most so many operations: larger ones gain nothing, and XLA takes long to
compile how what they use is stacked."""

_COPIES, _COPY = 3, 20
"""Blocks stand at least so often, and have so many equations."""

_ROWS = 8
"""From so many slices on they are the rows of an array."""

_ABOUT_ONE = frozenset([at_hand_p, graft_p, mark_p, missing_p])
"""What says something of one value of one program."""


class Loop(NamedTuple):
    """Says what the copies of a run take.

    Attributes:
        run: the run.
        rolls: whether it becomes a loop, rather than blocks.
        sources: for each equation of a copy and each operand what it is: `("literal", it)`;
            `("inside", (offset, result))`, of the same copy; `("const", number)`, what all copies
            share; `("carry", number)`, what copies before left; `("row", number)`, what each copy
            has its own of.
        consts: the values that are shared.
        carries: for each of what is carried which result it is, `(offset, result)`, and what stands
            for it before the first copy: as many values as it comes from copies before.
        rows: for each of what copies have their own of the values or literals, one for each copy.
    """

    run: Run
    rolls: bool
    sources: list[list[tuple[str, Any]]]
    consts: list[int]
    carries: list[tuple[tuple[int, int], tuple[Any, ...]]]
    rows: list[tuple[Any, ...]]


class Layout:
    """Is a simplified program as a sequence of equations.

    Slices that take the rows of an array, and views of these, differ from copy to copy. They are no
    part of the sequence: they are lifted out of it, to be made where they are needed.

    Attributes:
        program: the program.
        entries: the equations of the sequence, as `Program.numbered` yields them.
        maker: for each value the entry of the equation that makes it; None for inputs.
        place: for each value where in the sequence it is made, for what is lifted the array that it
            is a row of; -1 for inputs.
        lifted: for each value whether it is lifted.

    Args:
        program: the program.
        kinds: for each input of which kind it is, as bits; 0 is of those that have no derivative.
        ends: for each output the same.
    """

    def __init__(self, program: Program, kinds: Sequence[int], ends: Sequence[int]):
        self.program = program
        self._kinds, self._ends = kinds, ends
        self.entries: list[Any] = []
        inputs = len(program.inputs)
        self.maker: list[Any] = [None] * inputs
        self.place = [-1] * inputs
        self.lifted = [False] * inputs
        apart = _taken_apart(program)
        for entry in program.numbered():
            equation, numbers, _ = entry
            row_of = self._lifted_from(equation, apart)
            if row_of is None:
                at = len(self.entries)
                self.entries.append(entry)
            else:
                at = self.place[row_of]
            self.maker += [entry] * len(numbers)
            self.place += [at] * len(numbers)
            self.lifted += [row_of is not None] * len(numbers)

    @functools.cached_property
    def flow(self) -> list[tuple[int, int]]:
        """For each value the inputs it has a derivative by, and the outputs it gets one of."""
        return flow(self.program, self._kinds, self._ends)

    def _lifted_from(self, equation: Equation, apart: set[int]) -> int | None:
        """Returns of what an equation takes a row, or views one; None where it is not lifted."""
        x = equation.operands[0] if "view" in equation.primitive.tags else None
        if type(x) is not int or equation.types[0].size > self.program.type_of(x).size:
            return None
        if equation.primitive is slice_p:
            lifts = x in apart and row_axis(self.program, equation) is not None
        else:
            lifts = self.lifted[x]
        return x if lifts else None

    def result(self, value: int) -> int:
        """Tells which result of its equation a value is."""
        return value - self.maker[value][1].start

    def number(self, run: Run, copy: int, what: tuple[int, int]) -> int:
        """Returns the value that a result `(offset, result)` is in one copy of a run."""
        offset, result = what
        return self.entries[run.start + copy * run.period + offset][1].start + result

    def loops(self) -> list[Loop]:
        """Returns what can be folded and is worth it, in order."""
        found: list[Loop] = []
        if len(self.entries) < _COPIES * _COPY:
            return found
        alive = self._alive()
        for start, stop, period in find_runs(self._codes(), _COPIES):
            copy = [e for e, _, _ in self.entries[start : start + period]]
            if all("view" in e.primitive.tags for e in copy):
                continue
            flops = self._flops(copy)
            for run in phases(start, stop, period, alive)[:_PHASES]:
                loop = self._first(run, flops)
                if loop is not None:
                    found.append(loop)
                    break
        return found

    def _first(self, run: Run, flops: int) -> Loop | None:
        """Leaves out copies in front that are not as the others: they make what these share."""
        if self._rolls(run, flops):
            run = self._even(run)
        start, period, copies = run
        for left_out in range(_LEFT_OUT):
            later = Run(start + left_out * period, period, copies - left_out)
            loop = self._loop(later, flops)
            if loop is not None and (not loop.rolls or self._begins_even(loop)):
                return loop
        return None

    def _rolls(self, run: Run, flops: int) -> bool:
        return run.copies >= _TURNS and flops <= _CHEAP

    def _even(self, run: Run) -> Run:
        """Returns the most copies side by side in which derivatives go the same ways.

        In a loop that carries a derivative it is zero at first, where it is not there in the first
        turn by itself; and so it is backwards, where a turn leaves nothing for what is
        differentiated. Times a slope that is infinite it would be NaN.
        """
        values = [
            number for _, numbers, _ in self.entries[run.start : run.stop] for number in numbers
        ]
        numbers: dict[tuple[int, int], int] = {}
        told = [numbers.setdefault(self.flow[v], len(numbers)) for v in values]
        flow = np.array(told).reshape(run.copies, -1)
        changes = np.flatnonzero((flow[1:] != flow[:-1]).any(1)) + 1
        bounds = [0, *changes.tolist(), run.copies]
        length, first = max((b - a, -a) for a, b in itertools.pairwise(bounds))
        return Run(run.start - first * run.period, run.period, length)

    def _begins_even(self, loop: Loop) -> bool:
        """Tells whether that holds of what turns take, and of what the first one is given."""
        flow = self.flow
        taken = [atoms for atoms in loop.rows if type(atoms[0]) is int]
        taken += [(*start, self.number(loop.run, 0, what)) for what, start in loop.carries]
        return all(len({flow[a][0] for a in atoms}) == 1 for atoms in taken)

    def _codes(self) -> Any:
        """Returns a number for each equation of the sequence, equal where they are alike."""
        numbers: dict[Any, int] = {}
        type_of = self.program.type_of
        codes = []
        for equation, _, _ in self.entries:
            primitive, operands, params, types = equation
            key: Any = None
            if not _stays(equation):
                # numbers may differ where they are what others are added to or compared with
                free = "elementwise" in primitive.tags and "costly" not in primitive.tags
                taken = [
                    (a.type if free else a,) if type(a) is Literal else type_of(a) for a in operands
                ]
                key = primitive, params, types, *taken, *params.program_ids
            codes.append(-1 - len(codes) if key is None else numbers.setdefault(key, len(numbers)))
        return np.array(codes)

    def _alive(self) -> Any:
        """Returns how many values made before each place are used from there on."""
        last: dict[int, int] = {}
        place = self.place
        for at, (equation, _, _) in enumerate(self.entries):
            for a in equation.operands:
                if type(a) is int and place[a] >= 0:
                    last[a] = at
        change = np.zeros(len(self.entries) + 2, int)
        for value, at in last.items():
            change[place[value] + 1] += 1
            change[at + 1] -= 1
        return np.cumsum(change)

    def _flops(self, equations: Sequence[Equation]) -> int:
        """Counts the operations of some equations."""
        type_of = self.program.type_of
        return sum(
            primitive.cost(tuple(map(type_of, operands)), types, params).flops
            for primitive, operands, params, types in equations
        )

    def _loop(self, run: Run, flops: int) -> Loop | None:
        """Says what the copies of a run take; None where they cannot be folded, or need not."""
        start, period, copies = run
        rolls = self._rolls(run, flops)
        if period * copies < _TURNING if rolls else copies < _COPIES or period < _COPY:
            return None
        tables: dict[str, dict[Any, int]] = {"const": {}, "carry": {}, "row": {}}
        sources = []
        for offset in range(period):
            alike = [e.operands for e, _, _ in self.entries[start + offset : run.stop : period]]
            taken = []
            for atoms in zip(*alike, strict=True):
                source = self._source(run, atoms)
                if source is None:
                    return None
                kind, what = source
                if kind in tables:
                    what = tables[kind].setdefault(what, len(tables[kind]))
                taken.append((kind, what))
            sources.append(taken)
        loop = Loop(run, rolls, sources, *map(list, tables.values()))
        copied = self._copied(loop) if rolls else 0
        return loop if copied <= _COPIED and copied * copies <= _ALL_COPIED else None

    def _copied(self, loop: Loop) -> int:
        """Returns how many bytes a turn adds to stacks, of what is not stacked by itself."""
        run, kind, place = loop.run, self.program.type_of, self.place
        # of few arrays, or of what was passed as many
        rows = [
            atoms
            for atoms in loop.rows
            if type(atoms[0]) is int
            and (len(set(atoms)) <= run.copies // 2 or {place[a] for a in atoms} == {-1})
        ]
        count = sum(kind(atoms[0]).nbytes for atoms in rows)
        # what few of the turns leave
        left: dict[tuple[int, int], set[int]] = {}
        first, end = (self.entries[at][1].start for at in (run.start, run.stop - 1))
        for at, (equation, _, _) in enumerate(self.entries):
            for a in equation.operands if not run.start <= at < run.stop else ():
                if type(a) is int and first <= a <= end and run.start <= self.place[a] < run.stop:
                    copy, offset = divmod(self.place[a] - run.start, run.period)
                    left.setdefault((offset, self.result(a)), set()).add(copy)
        for what, copies in left.items():
            if copies != {run.copies - 1} and len(copies) <= run.copies // 4:
                count += kind(self.number(run, 0, what)).nbytes
        return count

    def _source(self, run: Run, atoms: tuple[Any, ...]) -> tuple[str, Any] | None:
        """Says how one operand is had, from what it is in each copy."""
        first, same = atoms[0], len(set(atoms)) == 1
        if type(first) is Literal:
            return ("literal", first) if same else ("row", atoms)
        start, period, _ = run
        places = [self.place[a] for a in atoms]
        before = next((copy for copy, at in enumerate(places) if at >= start), len(atoms))
        if before == len(atoms):
            return ("const", first) if same else ("row", atoms)
        # from here on it must be the same result of the same copy, counted from the one it is in
        base, result = places[before] - period * before, self.result(atoms[before])
        for copy in range(before, len(atoms)):
            a = atoms[copy]
            if places[copy] - period * copy != base or self.lifted[a] or self.result(a) != result:
                return None
        lag, offset = divmod(base - start, period)
        if -lag != before or before > _LAGS:
            return None
        what = offset, result
        return ("carry", (what, atoms[:before])) if before else ("inside", what)


_PHASES, _LEFT_OUT = 4, 4
"""How many places in a copy are tried at which copies may begin, and how many first copies."""

_LAGS = 8
"""From so many copies before what is read may come."""

_COPIED, _ALL_COPIED = 1 << 15, 1 << 26
"""So many bytes may be copied for a turn, and for all, that are not as the program is written."""


def _stays(equation: Equation) -> bool:
    """Tells whether an equation is never part of what is folded."""
    primitive, params = equation.primitive, equation.params
    if "external" in primitive.tags or primitive in _ABOUT_ONE:
        return True
    return primitive.is_higher_order and (params.holds_functions or params.traces_anew)


def row_axis(program: Program, equation: Equation) -> int | None:
    """Returns the axis of which a slice takes one place, and else everything; None of others."""
    x = program.type_of(equation.operands[0])
    shape = equation.types[0].shape
    axes = [i for i, (a, b) in enumerate(zip(shape, x.shape, strict=True)) if a != b]
    return axes[0] if len(axes) == 1 and shape[axes[0]] == 1 else None


def _taken_apart(program: Program) -> set[int]:
    """Returns the values of which many rows are taken."""
    counts: dict[Any, int] = {}
    for equation in program.equations:
        if equation.primitive is slice_p and row_axis(program, equation) is not None:
            x = equation.operands[0]
            counts[x] = counts.get(x, 0) + 1
    return {x for x, count in counts.items() if count >= _ROWS}
