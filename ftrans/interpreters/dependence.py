"""What the results of a program depend on where a derivative can go, and what follows of that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ftrans.interpreters.backward import Rest, fused, pruned
from ftrans.interpreters.base import memoised
from ftrans.ir import Equation, Program
from ftrans.ir.steps import Step
from ftrans.primitives import no_grad_p
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


def flow(step: Step) -> tuple[list[int], list[bool]]:
    """Returns what `differentiated` and `moving` tell of a step, and notes it there."""
    equation: Any = step.equation
    taken = [a for a in differentiated(equation) if type(a) is int]
    step.flow = taken, moving(equation)
    return step.flow


def taking_part(steps: Sequence[Step], codes: Iterable[int], among: Collection[int]) -> list[int]:
    """Returns those of recorded values that others are computed of, all by their codes."""
    needed = set(codes)
    for step in reversed(steps) if among else ():
        equation: Any = step.equation
        if not needed.isdisjoint(range(step.code, step.code + len(equation.types))):
            needed.update([a for a in equation.operands if type(a) is int])
    return [code for code in among if code in needed]


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
        taken = [a for a in differentiated(equation) if type(a) is int]
        above = empty.union(*[inputs[a] for a in taken])
        before = empty.union(*[outputs[a] for a in taken])
        for number, moves in zip(numbers, moving(equation), strict=True):
            inputs.append(above if moves else empty)
            outputs.append((before if moves else empty) | positions.get(number, set()))
    nothing = Needs(empty, empty)
    return tuple(
        [Needs(inputs[a], outputs[a]) if type(a) is int else nothing for a in program.outputs]
    )


@memoised
def behind(program: Program, positions: frozenset[int]) -> tuple[list[int], list[int]]:
    """Returns the inputs that outputs are computed of, and the outputs, latest first."""
    found = [depends(program)[position] for position in positions]
    inputs, outputs = (frozenset[int]().union(*sets) for sets in zip(*found, strict=True))
    return sorted(inputs), [p for p in latest_first(program) if p in outputs]


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
        if not found.isdisjoint(differentiated(equation)):
            found.update(pick(numbers, moving(equation)))
    return frozenset(found)


@memoised
def linked(program: Program) -> tuple[Any, Any]:
    """Returns what a program is pruned to, with its inputs, and those a derivative goes to.

    None stands for all of it.
    """
    small, needed = pruned(program)
    found = frozenset[int]().union(*[needs.inputs for needs in depends(small)])
    cut = None if small is program else (small, needed)
    return cut, None if len(found) == len(needed) else found


class Whole(NamedTuple):
    """Is a program with the derivative of a result of one element, for the cotangent 1.

    Attributes:
        program: returns the results, the cotangents of inputs and of stops, and what `rests` take.
        root: the position of that result.
        stops: the results at which the derivative stops, those that are computed last first.
        flags: for each result whether it requires grad.
        sent: as in `Fused`.
        reached: the inputs that the result depends on and that are differentiated.
        rests: as in `Fused`.
    """

    program: Program
    root: int
    stops: tuple[int, ...]
    flags: tuple[bool, ...]
    sent: tuple[int, ...]
    reached: tuple[int, ...]
    rests: Mapping[int, Rest]


@memoised
def whole(
    program: Program, active: tuple[bool, ...], root: int, looked_at: frozenset[int]
) -> Whole | None:
    """Returns how a program and the derivative of a result are run as one; None where they cannot.

    They cannot where somebody may come back to what else there is: where another result requires
    grad that the root is not computed of. The derivative stops at results that are looked at.
    """
    needs, flags = depends(program), requiring(program, active)
    on = {i for i, is_active in enumerate(active) if is_active}
    if not flags[root]:
        return None
    behind = needs[root].outputs
    if any(flag and i not in behind for i, flag in enumerate(flags)):
        return None
    stops = tuple([p for p in latest_first(program) if p in looked_at and p in behind])
    found = fused(program, active, root, stops)
    reached = tuple(sorted(on.intersection(needs[root].inputs)))
    return Whole(found.program, root, stops, flags, found.sent, reached, found.rests)
