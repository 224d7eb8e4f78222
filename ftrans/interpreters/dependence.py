"""What the results of a program depend on where a derivative can go, and what follows of that."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ftrans.interpreters.backward import marked, pruned
from ftrans.interpreters.base import excerpt, memoised
from ftrans.interpreters.jvp import Linearized, linearize
from ftrans.ir import ArrayType, Equation, Literal, Program
from ftrans.ir.steps import Step
from ftrans.primitives import call_p, no_grad_p
from ftrans.primitives.control.common import pick


@memoised
def latest_first(program: Program) -> tuple[int, ...]:
    """Returns the positions of the outputs, those that are computed last first."""
    atoms = [atom if type(atom) is int else -1 for atom in program.outputs]
    return tuple(sorted(range(len(atoms)), key=atoms.__getitem__, reverse=True))


class Needs(NamedTuple):
    """Says what an output is computed of: inputs, and outputs, itself among them."""

    inputs: frozenset[int]
    outputs: frozenset[int]


def differentiated(equation: Equation) -> Sequence[Any]:
    """Returns the operands that a cotangent of the results may go to."""
    if "stop" in equation.primitive.tags:
        return ()
    return equation.operands[1:] if equation.primitive is no_grad_p else equation.operands


def moving(equation: Equation) -> list[bool]:
    """Tells for each result whether it can have a gradient; the author of a rule may say not."""
    spec = equation.params.get("spec") if equation.params else None
    smooth = getattr(spec, "smooth", ())
    rest = [True] * (len(equation.types) - len(smooth))
    return [t.is_inexact and s for t, s in zip(equation.types, [*smooth, *rest], strict=False)]


def ways(equation: Equation) -> list[Sequence[int]]:
    """Returns for each result the operands that a cotangent of it may go to."""
    if equation.primitive is call_p:
        inner = [sorted(needs.inputs) for needs in depends(equation.params["program"])]
        return [[a for i in found if type(a := equation.operands[i]) is int] for found in inner]
    taken = [a for a in differentiated(equation) if type(a) is int]
    return [taken if moves else () for moves in moving(equation)]


def flow(step: Step) -> tuple[list[Sequence[int]], dict[tuple[bool, ...], list[bool]]]:
    """Returns the `ways` of a step, and notes them there.

    Besides it returns where to note of all results so far whether they require grad, by which
    inputs do.
    """
    step.flow = ways(step.equation), {}  # type: ignore[arg-type]
    return step.flow


_looking = threading.RLock()
"""Held while the `flags` of a tape grow: another thread may ask as well."""


def look(tape: Any, code: int) -> bool:
    """Notes of all results up to one, or of all, whether they require grad; returns it of that."""
    with _looking:
        # few are gone through sooner; in another thread what is recorded meanwhile is left alone
        if code - len(tape.flags) < 8 or tape.thread != threading.get_ident():
            _go_on(tape, code)
        else:
            # a step says all that came before it, so that a loop finds here what it found last time
            last, active = tape.steps[-1], tuple([target is not None for target in tape.targets])
            known = (last.flow or flow(last))[1]
            if active not in known:
                _go_on(tape, last.stop - 1)
                known[active] = tape.flags.copy()
            tape.flags, tape.seen = known[active].copy(), len(tape.steps)
        return tape.flags[code]


def _go_on(tape: Any, code: int) -> None:
    flags, targets = tape.flags, tape.targets
    while code >= len(flags):
        step = tape.steps[tape.seen]
        tape.seen += 1
        for taken in (step.flow or flow(step))[0]:
            for a in taken:
                if flags[a] if a >= 0 else targets[~a] is not None:
                    flags.append(True)
                    break
            else:
                flags.append(False)


def taking_part(steps: Sequence[Step], codes: Iterable[int], among: Collection[int]) -> list[int]:
    """Returns those of recorded values that others are computed of, all by their codes."""
    needed = set(codes)
    for step in reversed(steps) if among else ():
        equation: Any = step.equation
        if not needed.isdisjoint(range(step.code, step.code + len(equation.types))):
            needed.update([a for a in equation.operands if type(a) is int])
    return [code for code in among if code in needed]


def ends(steps: Sequence[Step], needed: Iterable[int]) -> list[tuple[int, ArrayType]]:
    """Returns the results that nothing is computed of and that are not needed, with types."""
    used, equations = set(needed), [(step.code, step.equation) for step in steps if step.equation]
    used.update([a for _, equation in equations for a in equation.operands if type(a) is int])
    found = [(code + i, t) for code, e in equations for i, t in enumerate(e.types)]
    return [(code, t) for code, t in found if code not in used]


@memoised
def depends(program: Program) -> tuple[Needs, ...]:
    """Returns for each output what it is computed of, where a derivative can go."""
    positions: dict[Any, set[int]] = {}
    for position, atom in enumerate(program.outputs):
        positions.setdefault(atom, set()).add(position)
    count = len(program.inputs)
    inputs = [frozenset({i}) for i in range(count)]
    outputs = [frozenset(positions.get(i, ())) for i in range(count)]
    empty: frozenset[int] = frozenset()
    for equation, numbers, _ in program.numbered():
        for number, taken in zip(numbers, ways(equation), strict=True):
            inputs.append(empty.union(*[inputs[a] for a in taken]))
            outputs.append(empty.union(*[outputs[a] for a in taken], positions.get(number, ())))
    nothing = Needs(empty, empty)
    return tuple(
        [Needs(inputs[a], outputs[a]) if type(a) is int else nothing for a in program.outputs]
    )


@memoised
def behind(program: Program, positions: frozenset[int]) -> tuple[list[int], list[int]]:
    """Returns the inputs that outputs are computed of, and the outputs, latest first."""
    found = [depends(program)[position] for position in positions]
    inputs = frozenset[int]().union(*[needs.inputs for needs in found])
    outputs = frozenset[int]().union(*[needs.outputs for needs in found])
    return sorted(inputs), [p for p in latest_first(program) if p in outputs]


@memoised
def above(program: Program, position: int) -> frozenset[int]:
    """Returns the values that an output is computed of, where no derivative can go as well."""
    found = {program.outputs[position]}
    for equation, numbers, _ in reversed(list(program.numbered())):
        if not found.isdisjoint(numbers):
            found.update(equation.operands)
    return frozenset([a for a in found if type(a) is int])


@memoised
def passed(program: Program, positions: frozenset[int]) -> frozenset[int]:
    """Returns the values that cotangents of outputs come to: not what a call takes and leaves."""
    found: set[Any] = {program.outputs[position] for position in positions}
    for equation, numbers, _ in reversed(list(program.numbered())):
        pairs = enumerate(zip(numbers, moving(equation), strict=True))
        outs = frozenset([i for i, (number, moves) in pairs if moves and number in found])
        if outs and equation.primitive is call_p:
            inner = passed(equation.params["program"], outs)
            found.update([a for i, a in enumerate(equation.operands) if i in inner])
        elif outs:
            found.update(differentiated(equation))
    return frozenset([a for a in found if type(a) is int])


@memoised
def requiring(program: Program, active: tuple[bool, ...]) -> tuple[bool, ...]:
    """Returns for each output whether it requires grad, where the active inputs do."""
    on = {i for i, is_active in enumerate(active) if is_active}
    return tuple([not on.isdisjoint(needs.inputs) for needs in depends(program)])


@memoised
def required(program: Program, active: tuple[bool, ...]) -> frozenset[int]:
    """Returns the values that require grad, where the active inputs do."""
    found = {i for i, is_active in enumerate(active) if is_active}
    for equation, numbers, _ in program.numbered():
        pairs = zip(numbers, ways(equation), strict=True)
        found.update([number for number, taken in pairs if not found.isdisjoint(taken)])
    return frozenset(found)


@memoised
def linearized(program: Program, active: tuple[bool, ...]) -> Linearized:
    """Is `linearize`, with marks on the outputs that require grad in the linear program."""
    marks = tuple([i for i, flag in enumerate(requiring(program, active)) if flag])
    return linearize(marked(program, marks), active)


@memoised
def saving(
    program: Program, active: tuple[bool, ...], linear: Program, flags: tuple[bool, ...]
) -> frozenset[int]:
    """Returns the outputs whose derivatives take what was saved: residuals, or numbers as factors.

    What PyTorch saves whether it is needed or not counts as well, as what `x**1` is computed of. A
    number may be an operand the next time, so that it counts, as it does in PyTorch; places
    that a function makes of shapes alone do not.

    Args:
        program: any program.
        active: for each input whether it is differentiated.
        linear: from tangents and residuals to the tangents of some outputs.
        flags: for each output whether it is one of them.
    """
    needs = required(program, active)
    scaled: list[int] = []
    for equation, numbers, location in program.numbered():
        if _saves_by_name(equation, location):
            scaled += needs.intersection(numbers)
    given = range(sum(active), len(linear.inputs))
    residuals = _above(linear, given, {i for i in given if not linear.inputs[i].is_inexact})
    factors = _above(program, scaled)
    pairs = zip(pick(range(len(flags)), flags), linear.outputs, strict=True)
    found, outs = {p for p, a in pairs if a in residuals}, enumerate(program.outputs)
    return frozenset(found.union([p for p, a in outs if a in factors and a in needs]))


def saved_by(
    program: Program,
    active: tuple[bool, ...],
    linear: Program,
    flags: tuple[bool, ...],
    through: frozenset[int],
) -> frozenset[int] | None:
    """Returns the results whose derivatives take what was saved.

    It is None where these are all that require grad, and a cotangent of some comes to each.

    Args:
        program: any program.
        active: for each input whether it is differentiated.
        linear: the linear program of its results that require grad.
        flags: for each result whether it does.
        through: the results that cotangents are given of.
    """
    saves, values = saving(program, active, linear, flags), passed(program, through)
    outs = pick(range(len(flags)), requiring(program, active))
    return None if all(p in saves and program.outputs[p] in values for p in outs) else saves


def _saves_by_name(equation: Equation, location: Any) -> bool:
    name, has_number = getattr(location, "name", ""), Literal in map(type, equation.operands)
    return name in _SAVING or (name in _SCALING and has_number)


@memoised
def savers(program: Program, given: frozenset[int], active: tuple[bool, ...]) -> frozenset[int]:
    """Returns the operations, by their first results, that cotangents come to and that have saved.

    Args:
        program: any program.
        given: the outputs, by position, whose cotangents go back.
        active: for each input whether they go there.
    """
    way = passed(program, given) & required(program, active)
    found = []
    for equation, numbers, location in program.numbered():
        is_linear = "linear" in equation.primitive.tags and "indexed" not in equation.primitive.tags
        if not way.isdisjoint(numbers) and (not is_linear or _saves_by_name(equation, location)):
            found.append(numbers[0])
    return frozenset(found)


_SCALING = {"div", "divide", "multiply"}
_SAVING = {"addcdiv", "complex", "maximum", "minimum", "power", "where"}
_BY_SHAPE = {"diag", "diagonal", "pad", "trace", "tril", "triu"}


def _above(program: Program, values: Iterable[int], places: Collection[int] = ()) -> set[Any]:
    """Returns values of a program with those that depend on them, where a derivative can go.

    Those of `places` that are used by functions which make them of shapes are left out.
    """
    found: set[Any] = set(values)
    for equation, numbers, location in program.numbered():
        taken = differentiated(equation)
        if places and getattr(location, "name", "") in _BY_SHAPE:
            taken = [a for a in taken if a not in places]
        if not found.isdisjoint(taken):
            found.update(numbers)  # integers too: residuals are made to indices
    return found


@memoised
def leaning(linear: Program, count: int) -> frozenset[int]:
    """Returns the outputs of a linear program that take residuals, its inputs from one on."""
    found = _above(linear, range(count, len(linear.inputs)))
    return frozenset([i for i, a in enumerate(linear.outputs) if a in found])


@memoised
def linked(program: Program) -> tuple[Any, Any]:
    """Returns what a program is pruned to, with its inputs, and those a derivative goes to.

    None stands for all of it.
    """
    small, needed = pruned(program)
    found = frozenset[int]().union(*[needs.inputs for needs in depends(small)])
    cut = None if small is program else (_without(program, needed), needed)
    return cut, None if len(found) == len(needed) else found


def trimmed(
    program: Program, operands: list[Any], targets: list[Any]
) -> tuple[Program, list[Any], list[Any]]:
    """Leaves out what a program does not need, and the targets that no cotangent goes to.

    A target says of an operand what its cotangent is for; None of one that is not differentiated.
    """
    cut, goes_back = linked(program)
    if cut is not None:
        program, needed = cut
        operands, targets = [operands[i] for i in needed], [targets[i] for i in needed]
    if goes_back is not None:  # what is not gone back to is not to be kept alive
        targets = [to if i in goes_back else None for i, to in enumerate(targets)]
    return program, operands, targets


def _without(program: Program, needed: Sequence[int]) -> Program:
    """Returns a program without the inputs that are not needed, and what is made of them.

    What else no output needs stays, since the results of a call are numbered by all that it made.
    """
    lost, kept = set(range(len(program.inputs))).difference(needed), []
    for equation, numbers, location in program.numbered():
        if lost.isdisjoint([a for a in equation.operands if type(a) is int]):
            kept.append((equation, numbers, location))
        else:
            lost.update(numbers)
    return excerpt(program, needed, kept, program.outputs)
