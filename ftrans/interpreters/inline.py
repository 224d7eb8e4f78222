"""Replaces every `call` by the equations of the program that it calls."""

from __future__ import annotations

from typing import Any

from ftrans.interpreters.base import building, finish, memoised
from ftrans.ir import Literal, Program, bind
from ftrans.ir.frame import at_location
from ftrans.primitives.control import call_p

__all__ = ["inline"]


@memoised
def _has_call(program: Program) -> bool:
    return any(
        equation.primitive is call_p or any(_has_call(sub) for sub in equation.params.programs())
        for equation in program.equations
    )


@memoised
def inline(program: Program) -> Program:
    """Returns an equal program without `call`, in sub-programs neither."""
    if not _has_call(program):
        return program
    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, _run(program, inputs))


def _run(program: Program, operands: list[Any]) -> list[Any]:
    values = list(operands)

    def read(atom: Any) -> Any:
        return atom if type(atom) is Literal else values[atom]

    for equation, _, location in program.numbered():
        taken = [read(atom) for atom in equation.operands]
        if equation.primitive is call_p:
            values += _run(equation.params["program"], taken)
            continue
        params = equation.params
        if equation.primitive.is_higher_order:
            params = params.map_programs(inline)
        with at_location(location):
            values += bind(equation.primitive, taken, params)
    return [read(atom) for atom in program.outputs]
