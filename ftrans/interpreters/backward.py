"""Reverse mode of programs whose values in the middle are differentiated too, or looked at.

Such values are marked: a `mark` stands in the program, and so in its linear program, where their
cotangents are complete that come from several places. No other interpreter has to know of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ftrans.interpreters.base import building, excerpt, finish, memoised, replay, simplify, walk
from ftrans.interpreters.gradient import pull
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import linearize, split
from ftrans.ir import Equation, Params, Program, bind
from ftrans.primitives import mark_p
from ftrans.primitives.control.common import Mask, pick, present

Numbers = tuple[int, ...]


@memoised
def marked(program: Program, positions: Numbers) -> Program:
    """Returns the program with a mark on each of these outputs, under its position.

    All that uses the value uses what is marked. Of several positions of one value the first counts.
    """
    if not positions:
        return program
    at: dict[Any, int] = {}
    for position in positions:
        at.setdefault(program.outputs[position], position)
    equations: list[Equation] = []
    locations: list[Any] = []
    names: list[int] = []
    count = len(program.inputs)

    def name(number: int, type_: Any, location: Any) -> int:
        """Returns what a value is called from here on."""
        nonlocal count
        if number not in at:
            return number_of[number]
        params = Params({"number": at[number]})
        equations.append(Equation(mark_p, (number_of[number],), params, (type_,)))
        locations.append(location)
        count += 1
        return count - 1

    number_of = dict(enumerate(range(count)))
    for number, type_ in enumerate(program.inputs):
        names.append(name(number, type_, None))
    for equation, numbers, location in program.numbered():
        primitive, operands, params, types = equation
        taken = tuple([names[a] if type(a) is int else a for a in operands])
        equations.append(Equation(primitive, taken, params, types))
        locations.append(location)
        for number in numbers:
            number_of[number] = count
            count += 1
        names += [name(n, t, location) for n, t in zip(numbers, types, strict=True)]
    outputs = [names[a] if type(a) is int else a for a in program.outputs]
    return Program.make(program.inputs, equations, outputs, locations, program.name)


@memoised
def pruned(program: Program) -> tuple[Program, Numbers]:
    """Returns a program without the equations and inputs that no output needs; and which remain."""
    needed = {a for a in program.outputs if type(a) is int}
    kept = []
    for equation, numbers, location in reversed(list(program.numbered())):
        if not needed.isdisjoint(numbers):
            needed.update(a for a in equation.operands if type(a) is int)
            kept.append((equation, numbers, location))
    inputs = tuple([number for number in range(len(program.inputs)) if number in needed])
    if len(inputs) == len(program.inputs):
        return program, inputs
    return excerpt(program, inputs, reversed(kept), program.outputs), inputs


def exposed(linear: Program, count: int, cut: Numbers) -> Program:
    """Returns a linear program that is open at marks, which it has.

    Args:
        linear: from tangents, followed by residuals.
        count: the number of tangents.
        cut: the marks at which the tangent is an input, and what arrives there an output.

    Returns:
        A program from the tangents, those at the marks and the residuals to the outputs, followed
        by what arrives at the marks.
    """
    if not cut:
        return linear
    types = {e.params["number"]: e.types[0] for e in linear.equations if e.primitive is mark_p}
    opened = [types[number] for number in cut]
    inputs = [*linear.inputs[:count], *opened, *linear.inputs[count:]]
    with building(linear.name, inputs) as (frame, given):
        start = count + len(cut)
        at = dict(zip(cut, given[count:start], strict=True))
        arrived: dict[int, Any] = {}

        def step(equation: Equation, taken: list[Any]) -> Sequence[Any]:
            number = equation.params["number"] if equation.primitive is mark_p else None
            if number not in at:
                return bind(equation.primitive, taken, equation.params)
            arrived[number] = taken[0]
            return (at[number],)

        outs = walk(linear, [*given[:count], *given[start:]], step)
        return finish(frame, outs + [arrived[number] for number in cut])


@memoised
def pulled(linear: Program, count: int, cut: Numbers, given: Mask) -> tuple[Program, Mask]:
    """Runs a linear program with marks backwards, with Python to be called at some of them.

    Args:
        linear: from `count` tangents, followed by residuals.
        count: the number of tangents.
        cut: the marks at which the cotangents end, and are to be given for what lies before.
        given: for each output, and then for each mark of `cut`, whether a cotangent is given.

    Returns:
        A program from the residuals and the cotangents that are given to those of the tangents, and
        then of the marks, that are not zero; and which ones these are.
    """
    opened = exposed(linear, count, cut)
    first = count + len(cut)
    residuals, types = opened.inputs[first:], pick(opened.output_types, given)
    with building(f"backward({linear.name})", [*residuals, *types]) as (frame, inputs):
        cotangents = iter(inputs[len(residuals) :])
        seeds = [next(cotangents) if g else None for g in given]
        found = pull(opened, inputs[: len(residuals)], seeds)
        mask = present(found)
        return finish(frame, pick(found, mask)), mask


def _opened(program: Program, stops: Numbers) -> Program:
    """Returns a program that takes the values of some outputs, by position, as further inputs.

    What they would have been are further outputs.
    """
    size, count = len(program.inputs), len(stops)
    at: dict[Any, int] = {}
    for i, position in enumerate(stops):
        at.setdefault(program.outputs[position], size + i)
    names = [at.get(number, number) for number in range(size)]
    own = [*range(size)]
    equations = []
    for equation, numbers, _ in program.numbered():
        operands = tuple([names[a] if type(a) is int else a for a in equation.operands])
        equations.append(equation._replace(operands=operands))
        own += [number + count for number in numbers]
        names += [at.get(number, number + count) for number in numbers]
    outputs = [names[a] if type(a) is int else a for a in program.outputs]
    arrived = [program.outputs[position] for position in stops]
    outputs += [own[a] if type(a) is int else a for a in arrived]
    types = [program.type_of(a) for a in arrived]
    inputs = [*program.inputs, *types]
    return Program.make(inputs, equations, outputs, program.locations, program.name)


@memoised
def pullback_anew(
    program: Program, active: Mask, stops: Numbers, kept: Numbers, outs: Numbers, arrived: Numbers
) -> tuple[Program, Mask]:
    """Is `pulled` of a program that is linearized anew, so that all of it can be differentiated.

    Args:
        program: any program.
        active: for each input whether it is differentiated.
        stops: the outputs at which cotangents end; their values are inputs.
        kept: other outputs whose values are inputs, so that derivatives of the result go to them.
        outs: the outputs whose cotangents are given.
        arrived: those of `stops` from which cotangents go on.

    Returns:
        A program from the inputs, the values at `stops` and `kept`, and the cotangents for `outs`
        and `arrived` to those of the active inputs and of `stops`, not zero; and which ones are.
    """
    opened = marked(_opened(program, stops), kept)
    flags = active + (True,) * len(stops)
    first = len(program.outputs)
    places = [*outs, *(first + stops.index(position) for position in arrived)]
    types = [opened.type_of(opened.outputs[place]) for place in (*kept, *places)]
    name = f"backward({program.name})"
    with building(name, [*opened.inputs, *types]) as (frame, inputs):
        size = len(opened.inputs)
        values = dict(zip(kept, inputs[size:], strict=False))
        _, linear, residuals, reached = split(inline(opened), inputs[:size], flags, values)
        given = dict(zip(places, inputs[size + len(kept) :], strict=True))
        seeds = [given.get(place) for place in range(len(opened.outputs))]
        found = pull(linear, residuals, pick(seeds, reached))
        mask = present(found)
        return finish(frame, pick(found, mask)), mask


class Kept(NamedTuple):
    """Says what the derivative of an operation is computed of: what PyTorch saves for `backward`.

    Attributes:
        operands: the inputs that are needed, by position.
        results: the outputs that are needed.
        forward: from the inputs to the outputs, followed by what custom rules have saved.
        residuals: from operands, results and what was saved to the residuals of `linear`.
        linear: as in `Linearized`.
        active: as in `Linearized`.
    """

    operands: Numbers
    results: Numbers
    forward: Program
    residuals: Program
    linear: Program
    active: Mask


@memoised
def kept(program: Program, active: Mask) -> Kept:
    """Returns how a program is linearized if operands and results are saved, and no more.

    What custom rules and control flow compute for a derivative is saved as well: it is not
    computed again.
    """
    forward, linear, out_active = linearize(program, active)
    count, size = len(program.outputs), len(program.inputs)
    outs: dict[Any, int] = {}
    for position, atom in enumerate(forward.outputs[:count]):
        if type(atom) is int and atom >= size:
            outs.setdefault(atom, position)
    needed = {a for a in forward.outputs[count:] if type(a) is int}
    calls: list[int] = []
    again = []
    for equation, numbers, location in reversed(list(forward.numbered())):
        wanted = [n for n in numbers if n in needed and n not in outs]
        if not wanted:
            continue
        if equation.primitive.is_higher_order or not _ONCE.isdisjoint(equation.primitive.tags):
            calls += wanted
            continue
        again.append((equation, numbers, location))
        needed.update([a for a in equation.operands if type(a) is int])
    operands = tuple([n for n in range(size) if n in needed])
    results = tuple([n for n in outs if n in needed])
    saved = [*operands, *results, *sorted(calls)]
    rebuilt = excerpt(forward, saved, reversed(again), forward.outputs[count:])
    given = [*forward.outputs[:count], *sorted(calls)]
    first = Program.make(forward.inputs, forward.equations, given, forward.locations, forward.name)
    at = tuple([outs[n] for n in results])
    return Kept(operands, at, simplify(first), rebuilt, linear, out_active)


_ONCE = frozenset({"custom", "external", "missing", "once", "random"})
"""Tags of what is not computed twice."""


@memoised
def pulled_kept(program: Program, active: Mask, given: Mask) -> tuple[Program, Mask]:
    """Is `pulled` of what `kept` says: from what is saved, and the cotangents that are given."""
    found = kept(program, active)
    saved, types = found.residuals.inputs, pick(found.linear.output_types, given)
    with building(f"backward({program.name})", [*saved, *types]) as (frame, inputs):
        residuals = replay(found.residuals, inputs[: len(saved)])
        cotangents = iter(inputs[len(saved) :])
        seeds = [next(cotangents) if g else None for g in given]
        cts = pull(found.linear, residuals, seeds)
        mask = present(cts)
        return finish(frame, pick(cts, mask)), mask
