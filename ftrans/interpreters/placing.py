"""Where values lie: what a program says of that is left out, or told of an axis to be mapped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.base import building, finish, memoised, walk
from ftrans.ir import Equation, Params, Program, bind
from ftrans.primitives import place_p, shard_map_p
from ftrans.primitives.control.shard_map import left_to_xla


def places(program: Program) -> bool:
    """Tells whether a program says of a value where it lies."""
    found = program.structure.memo.get("places")
    if found is None:
        found = any(equation.primitive is place_p for _, equation in program.nested())
        program.structure.memo["places"] = found
    return found


@memoised
def placed(program: Program, names: tuple[str, ...] | None) -> Program:
    """Returns a program that has its values lie along further axes of the mesh.

    Args:
        program: any program.
        names: those that the next axis lies on by which it is batched; None leaves out all that
            the program says of where values lie.
    """
    if names is None and not places(program):
        return program

    def step(equation: Equation, taken: list[Any]) -> Sequence[Any]:
        primitive, params = equation.primitive, equation.params
        if primitive is place_p:
            if names is None:
                return taken
            params = Params({**params, "names": names})
        elif primitive is shard_map_p and names is not None:
            params = Params({**params, "over": left_to_xla(params, names)})
        return bind(primitive, taken, params.map_programs(functools.partial(placed, names=names)))

    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, walk(program, inputs, step))
