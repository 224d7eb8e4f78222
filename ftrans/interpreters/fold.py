"""Folds what repeats in a traced program: a loop of Python's leaves one copy of its body per turn.

Many cheap copies become one `scan`; a few that are large become `block`s, which share their
program. The folded program computes the same values in the same order, and what is folded is
transformed and compiled once, not as often as it stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.interpreters.base import building, finish, memoised, simplify
from ftrans.interpreters.inline import inline
from ftrans.interpreters.layout import Layout, Loop, row_axis
from ftrans.ir import ArrayType, Equation, Literal, Location, Program, Tracer, bind, type_of
from ftrans.ir.stack import Placing
from ftrans.primitives import (
    block_p,
    broadcast_p,
    concatenate_p,
    gather_p,
    reshape_p,
    rev_p,
    scalar,
    scan_p,
    slice_p,
    stack_p,
    table_p,
)
from ftrans.primitives.axes import moveaxis, zeros
from ftrans.primitives.shape import part

_LONG = 100
"""A program of fewer equations is left as it is."""


def folded(
    program: Program, kinds: tuple[int, ...] | None = None, ends: tuple[int, ...] | None = None
) -> Program:
    """Returns an equal program in which what repeats is folded, where there is such.

    Gradients may differ from those of the program as it is in the last bits: what all turns share
    has the cotangents of each turn summed before they are added up.

    Args:
        program: any program.
        kinds: for each input which others it is differentiated with, as a bit; 0 for none. All
            together without.
        ends: the same for each output.
    """
    if len(program.equations) < _LONG:
        return program
    if kinds is None:
        kinds = tuple([int(t.is_inexact) for t in program.inputs])
    if ends is None:
        ends = (1,) * len(program.outputs)
    return _folded(program, kinds, ends)


class Fold(NamedTuple):
    """Says what was folded; as a string, in words.

    Attributes:
        copies: how many copies of how many equations.
        equations: of how many equations.
        place: where the first copy comes from.
    """

    copies: int
    equations: int
    place: Location | None

    def __str__(self) -> str:
        return f"{self.copies} x {self.equations} equations at {self.place or 'an unknown place'}"


def folds_of(program: Program) -> tuple[Fold, ...]:
    """Returns what was folded in what `folded` returned."""
    return program.memo.get("folds", ())


@memoised
def _folded(program: Program, kinds: tuple[int, ...], ends: tuple[int, ...]) -> Program:
    flat = simplify(inline(program))
    if len(flat.equations) < _LONG:
        return program
    layout = Layout(flat, kinds, ends)
    loops = layout.loops()
    if not loops:
        return program
    found = _Folding(layout, loops).program()
    found.memo["folds"] = tuple(
        [Fold(r.copies, r.period, layout.entries[r.start][2]) for r in (loop.run for loop in loops)]
    )
    return found


class _Row(NamedTuple):
    """Is one element of a stack along its leading axis, that is not taken out of it yet."""

    stack: Tracer
    number: int


class _Folding:
    """Builds the folded program.

    Args:
        layout: the program that is folded.
        loops: what is folded in it, in order.
    """

    def __init__(self, layout: Layout, loops: Sequence[Loop]):
        self._layout = layout
        self._loops = loops
        self._known: dict[int, Any] = {}
        self._stacks: dict[Any, Any] = {}

    def program(self) -> Program:
        """Returns it."""
        source, entries = self._layout.program, self._layout.entries
        pending = list(zip(self._loops, self._used_outside(), strict=True))[::-1]
        with building(source.name, source.inputs) as (frame, inputs), Placing() as place:
            self._known.update(enumerate(inputs))
            at = 0
            while at < len(entries):
                equation, numbers, location = entries[at]
                place.move(location)
                if pending and pending[-1][0].run.start == at:
                    loop, used = pending.pop()
                    (self._scan if loop.rolls else self._blocks)(loop, used)
                    at = loop.run.stop
                else:
                    self._known.update(zip(numbers, self._made(equation), strict=True))
                    at += 1
            return finish(frame, list(map(self._value, source.outputs)))

    # ---------------------------------------------------------------------------------- values

    def _value(self, atom: Any) -> Any:
        """Returns what a value or literal is here."""
        return _taken(self._entry(atom))

    def _entry(self, atom: Any) -> Any:
        """Returns the same, or which row of a stack it is."""
        if type(atom) is Literal:
            return atom
        found = self._known.get(atom)
        if found is None:
            equation, _, _ = self._layout.maker[atom]
            found = self._known[atom] = self._lifted(equation)
        return found

    def _lifted(self, equation: Equation) -> Any:
        """Makes what is lifted out of the sequence: a row, or a view of one."""
        if equation.primitive is not slice_p:
            return self._made(equation)[0]
        x = equation.operands[0]
        axis = row_axis(self._layout.program, equation)
        assert axis is not None
        if (x, axis) not in self._stacks:
            front = moveaxis(self._value(x), axis, 0)
            size, *rest = type_of(front).shape
            rest.insert(axis, 1)
            self._stacks[x, axis] = reshape_p(front, shape=(size, *rest))
        return _Row(self._stacks[x, axis], equation.params["start"][axis])

    def _made(self, equation: Equation) -> Sequence[Any]:
        """Records an equation that is not folded; of rows it is done to their stack at once."""
        primitive, operands, params, _ = equation
        if "view" in primitive.tags and len(operands) == 1:
            x = self._entry(operands[0])
            if (
                type(x) is _Row
                and equation.types[0].size * x.stack.type.shape[0] <= x.stack.type.size
            ):
                key = x.stack.index, primitive, params
                if key not in self._stacks:
                    out, dim = primitive.batch(x.stack.type.shape[0], [x.stack], [0], **params)
                    self._stacks[key] = moveaxis(out, dim, 0)
                return [_Row(self._stacks[key], x.number)]
        elif primitive is concatenate_p:
            found = _joined(list(map(self._entry, operands)), params["axis"])
            if found is not None:
                return [found]
        return bind(primitive, [self._value(a) for a in operands], params)

    def _stacked(self, atoms: Sequence[Any]) -> Any:
        """Returns what copies have their own of, stacked."""
        if type(atoms[0]) is Literal:
            return table_p(values=tuple(atoms))
        entries = list(map(self._entry, atoms))
        pieces = _pieces(entries)
        if pieces is not None:
            stacks = [_cut(p) if len(p) > 1 else stack_p(_taken(p[0])) for p in pieces]
            return concatenate_p(*stacks, axis=0) if len(stacks) > 1 else stacks[0]
        first = entries[0]
        if all(type(x) is _Row and x.stack is first.stack for x in entries):
            stack, numbers = first.stack, [x.number for x in entries]
        else:
            distinct = {a: i for i, a in enumerate(dict.fromkeys(atoms))}
            stack = stack_p(*map(self._value, distinct))
            if len(distinct) == len(atoms):
                return stack
            numbers = [distinct[a] for a in atoms]
        index = table_p(values=tuple([scalar(number, np.int32) for number in numbers]))
        return gather_p(stack, reshape_p(index, shape=(len(numbers), 1)), in_bounds=True)

    # ---------------------------------------------------------------------------------- copies

    def _used_outside(self) -> list[dict[tuple[int, int], set[int]]]:
        """Returns for each loop the results that are used outside of it, and of which copies."""
        layout, runs = self._layout, [loop.run for loop in self._loops]
        of = [-1] * (len(layout.entries) + 1)  # the last is that of the inputs
        for number, run in enumerate(runs):
            of[run.start : run.stop] = [number] * (run.stop - run.start)
        used: list[dict[tuple[int, int], set[int]]] = [{} for _ in runs]

        def use(atoms: Sequence[Any], user: int) -> None:
            for a in atoms:
                if type(a) is Literal or layout.lifted[a]:
                    continue
                number = of[layout.place[a]]
                if number not in (-1, user):
                    run = runs[number]
                    copy, offset = divmod(layout.place[a] - run.start, run.period)
                    used[number].setdefault((offset, layout.result(a)), set()).add(copy)

        for equation, numbers, _ in layout.program.numbered():
            inside = numbers and not layout.lifted[numbers.start]
            use(equation.operands, of[layout.place[numbers.start]] if inside else -1)
        use(layout.program.outputs, -1)
        return used

    def _types(self, loop: Loop) -> tuple[list[ArrayType], list[ArrayType], list[ArrayType]]:
        """Returns the types of what a copy takes: what is shared, what is carried, its rows."""
        kind = self._layout.program.type_of
        return (
            [kind(a) for a in loop.consts],
            [kind(start[0]).update() for _, start in loop.carries],
            [kind(atoms[0]).update() for atoms in loop.rows],
        )

    def _copy(self, loop: Loop, **given: Sequence[Any]) -> dict[tuple[int, int], Any]:
        """Records one copy; returns its results by their place in it.

        Args:
            loop: the loop.
            **given: the values of `const`, `carry` and `row`.
        """
        results: dict[tuple[int, int], Any] = {}
        with Placing() as place:
            for offset, sources in enumerate(loop.sources):
                equation, _, location = self._layout.entries[loop.run.start + offset]
                place.move(location)
                taken = []
                for (kind, what), atom in zip(sources, equation.operands, strict=True):
                    if kind == "literal":
                        x = what
                    elif kind == "inside":
                        x = results[what]
                    else:
                        x = given[kind][what]
                    if kind == "row" and type(atom) is Literal:
                        x = broadcast_p(x, shape=equation.types[0].shape, axes=())
                    taken.append(x)
                for number, out in enumerate(bind(equation.primitive, taken, equation.params)):
                    results[offset, number] = out
        return results

    def _blocks(self, loop: Loop, used: dict[tuple[int, int], set[int]]) -> None:
        """Records a block for each copy."""
        run, number = loop.run, self._layout.number
        outs = list(dict.fromkeys([*(what for what, _ in loop.carries), *used]))
        consts, carries, rows = self._types(loop)
        types = [*consts, *carries, *rows]
        with building(self._layout.program.name, types) as (frame, inputs):
            first, second = len(consts), len(consts) + len(carries)
            shared, carried, own = inputs[:first], inputs[first:second], inputs[second:]
            results = self._copy(loop, const=shared, carry=carried, row=own)
            program = finish(frame, [results[what] for what in outs])
        for copy in range(run.copies):
            left = [
                start[copy] if copy < len(start) else number(run, copy - len(start), what)
                for what, start in loop.carries
            ]
            atoms = [*loop.consts, *left, *[atoms[copy] for atoms in loop.rows]]
            operands = [
                broadcast_p(a, shape=(), axes=()) if type(a) is Literal else self._value(a)
                for a in atoms
            ]
            for what, value in zip(outs, block_p(*operands, program=program), strict=True):
                self._known[number(run, copy, what)] = value

    def _scan(self, loop: Loop, used: dict[tuple[int, int], set[int]]) -> None:
        """Records a loop.

        It carries, for what comes from several copies before, one value for each of these; and what
        is used of its last copy alone. Of all else that is used the results are stacked.
        """
        run, number = loop.run, self._layout.number
        last = run.copies - 1
        slots = [(n, i) for n, (_, start) in enumerate(loop.carries) for i in range(len(start))]
        newest = {what for what, _ in loop.carries}
        at_end = [w for w, copies in used.items() if copies == {last} and w not in newest]
        stacked = [w for w, copies in used.items() if copies != {last}]
        consts, carries, rows = self._types(loop)
        left = [self._layout.program.types[number(run, 0, what)].update() for what in at_end]
        state = [*[carries[n] for n, _ in slots], *left]
        types = [*consts, *state, *rows]
        with building(self._layout.program.name, types) as (frame, inputs):
            given, own = inputs[len(consts) :], inputs[len(consts) + len(state) :]
            held = dict(zip(slots, given[: len(slots)], strict=True))
            # slot i holds what was left i + 1 copies before: the last one is read
            carried = [held[n, len(start) - 1] for n, (_, start) in enumerate(loop.carries)]
            results = self._copy(loop, const=inputs[: len(consts)], carry=carried, row=own)
            moved = [held[n, i - 1] if i else results[loop.carries[n][0]] for n, i in slots]
            outs = [results[what] for what in (*at_end, *stacked)]
            body = finish(frame, [*moved, *outs])
        flow = self._layout.flow
        goes = [flow[number(run, 0, what)] for what, _ in loop.carries]
        own_kinds = [0 if type(a) is Literal else flow[a][0] for a, *_ in loop.rows]
        kinds = [*[flow[a][0] for a in loop.consts], *[goes[n][0] for n, _ in slots]]
        kinds += [*[0] * len(left), *own_kinds]
        ends = [goes[n][1] for n, _ in slots]
        ends += [flow[number(run, last, what)][1] for what in (*at_end, *stacked)]
        begins = [self._value(loop.carries[n][1][-1 - i]) for n, i in slots]
        found = scan_p(
            *map(self._value, loop.consts),
            *begins,
            *map(zeros, left),
            *map(self._stacked, loop.rows),
            body=folded(body, tuple(kinds), tuple(ends)),
            consts=len(consts),
            carry=len(state),
            length=run.copies,
            reverse=False,
            unroll=1,
        )
        ends = [*[loop.carries[n][0] if i == 0 else None for n, i in slots], *at_end]
        for what, value in zip(ends, found, strict=False):
            if what is not None:
                self._known[number(run, last, what)] = value
        for what, stack in zip(stacked, found[len(state) :], strict=True):
            for copy in range(run.copies):
                self._known[number(run, copy, what)] = _Row(stack, copy)


def _taken(entry: Any) -> Any:
    """Takes a row out of its stack."""
    if type(entry) is not _Row:
        return entry
    row = part(entry.stack, 0, entry.number, entry.number + 1)
    return reshape_p(row, shape=type_of(row).shape[1:])


def _pieces(entries: Sequence[Any]) -> list[list[Any]] | None:
    """Groups rows that lie at equal distances in one stack; None where that makes many groups."""
    pieces: list[list[Any]] = []
    for x in entries:
        last = pieces[-1] if pieces else []
        if last and type(x) is type(last[-1]) is _Row and x.stack is last[-1].stack:
            step = x.number - last[-1].number
            if step and (len(last) == 1 or step == last[1].number - last[0].number):
                last.append(x)
                continue
        pieces.append([x])
    return pieces if len(pieces) <= len(entries) // 4 else None


def _cut(rows: Sequence[_Row]) -> Any:
    """Returns the stack of rows that lie at equal distances in one."""
    first, last = rows[0].number, rows[-1].number
    step = rows[1].number - first
    found = part(rows[0].stack, 0, min(first, last), max(first, last) + 1, abs(step))
    return found if step > 0 else rev_p(found, axes=(0,))


def _joined(entries: Sequence[Any], axis: int) -> Any:
    """Returns what is concatenated, with rows that lie side by side in one piece; else None."""
    pieces = _pieces(entries)
    if pieces is None:
        return None
    joined = []
    for piece in pieces:
        if len(piece) == 1:
            joined.append(_taken(piece[0]))
            continue
        stack = _cut(piece)
        size, *shape = type_of(stack).shape
        shape[axis] *= size
        joined.append(reshape_p(moveaxis(stack, 0, axis), shape=tuple(shape)))
    return concatenate_p(*joined, axis=axis) if len(joined) > 1 else joined[0]
