"""What the rules of the four primitives share: masks over operands, fixpoints, pruned programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ftrans.ir import Abstract, ArrayType, Program, open_frame, type_of
from ftrans.primitives.axes import zeros
from ftrans.primitives.record import Cost

Mask = tuple[bool, ...]


def pick(values: Iterable[Any], mask: Iterable[bool]) -> list[Any]:
    """Returns the values at which `mask` is true."""
    return [value for value, keep in zip(values, mask, strict=True) if keep]


def spread(values: Iterable[Any], mask: Iterable[bool], other: Any = None) -> list[Any]:
    """Puts values back to where `mask` is true, and `other` elsewhere: undoes `pick`."""
    given = iter(values)
    return [next(given) if keep else other for keep in mask]


def union(*masks: Sequence[bool]) -> Mask:
    """Returns where any of the masks is true."""
    return tuple(any(column) for column in zip(*masks, strict=True))


def stable(start: Mask, step: Callable[[Mask], Mask]) -> Mask:
    """Grows a mask by `step` until it no longer changes."""
    while True:
        grown = union(start, step(start))
        if grown == start:
            return start
        start = grown


def fill_zeros(values: Iterable[Any], types: Iterable[ArrayType], mask: Iterable[bool]) -> list:
    """Returns the values at which `mask` is true, zeros standing for `None`."""
    return [
        zeros(t) if value is None else value
        for value, t, keep in zip(values, types, mask, strict=True)
        if keep
    ]


def types_of(values: Iterable[Any]) -> list[ArrayType]:
    """Returns the types of operands."""
    return [type_of(value) for value in values]


def varying(program: Program, inputs: Mask) -> Mask:
    """Tells which outputs depend on the inputs marked."""
    depends = list(inputs)
    for equation in program.equations:
        moves = any(type(a) is int and depends[a] for a in equation.operands)
        depends += [moves] * len(equation.types)
    return tuple(type(a) is int and depends[a] for a in program.outputs)


def needed_inputs(program: Program, outputs: Mask) -> Mask:
    """Tells which inputs the outputs marked depend on."""
    needed = [False] * len(program.types)
    for atom, keep in zip(program.outputs, outputs, strict=True):
        if keep and type(atom) is int:
            needed[atom] = True
    numbered = list(program.numbered())
    for equation, numbers, _ in reversed(numbered):
        if any(needed[number] for number in numbers):
            for atom in equation.operands:
                if type(atom) is int:
                    needed[atom] = True
    return tuple(needed[: len(program.inputs)])


def restrict(transforms: Any, program: Program, inputs: Mask, outputs: Mask) -> Program:
    """Returns the program with only the outputs marked, and only the inputs marked.

    The inputs left out must not be needed by the outputs kept.
    """
    with transforms.building(program.name, pick(program.inputs, inputs)) as (frame, given):
        outs = transforms.replay(
            transforms.simplify(
                Program.make(
                    program.inputs,
                    program.equations,
                    pick(program.outputs, outputs),
                    program.locations,
                    program.name,
                )
            ),
            spread(given, inputs),
        )
        return transforms.finish(frame, outs)


def derivative(
    transforms: Any, mode: str, program: Program, primals: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """Returns the tangents of a program's outputs, `None` for zero, in the frames of the operands.

    Args:
        transforms: the interpreters.
        mode: "jvp" or "linearize", which says how what the primals determine is kept apart.
        program: any program.
        primals: its operands.
        tangents: their tangents, `None` for zero.
    """
    active = tuple(t is not None for t in tangents)
    moving = pick(tangents, active)
    count = len(program.outputs)
    if mode == "jvp":
        pushed, mask = transforms.jvp(program, active)
        dots = transforms.replay(pushed, [*primals, *moving])[count:]
    else:
        part = transforms.linearize(program, active)
        residuals = transforms.replay(part.forward, primals)[count:]
        dots, mask = transforms.replay(part.linear, [*moving, *residuals]), part.active
    return spread(dots, mask)


def program_cost(program: Program) -> Cost:
    """Adds up the cost of the equations of a program."""
    found = program.memo.get("cost")
    if found is None:
        flops = nbytes = 0
        for equation in program.equations:
            operands = tuple(program.type_of(a) for a in equation.operands)
            cost = equation.primitive.cost(operands, equation.types, equation.params)
            flops += cost.flops
            nbytes += cost.nbytes
        found = program.memo["cost"] = Cost(flops, nbytes)
    return found


def program_from(function: Callable[..., Sequence[Any]], *types: ArrayType) -> Program:
    """Returns the program of a function over strict operands, to be a sample.

    Args:
        function: takes one traced value per type and returns a sequence of them.
        types: the types of the inputs.
    """
    with open_frame("sample", closed=True) as frame:
        inputs = [frame.input(t, Abstract("a sample")) for t in types]
        program, captured = frame.close(function(*inputs))
    assert not captured
    return program
