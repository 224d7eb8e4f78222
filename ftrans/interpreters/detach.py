"""Cuts the tangents of some outputs of a program."""

from __future__ import annotations

from ftrans.interpreters.base import building, finish, memoised, replay
from ftrans.ir import Literal, Program
from ftrans.primitives import stop_gradient_p

__all__ = ["detach_outputs"]


@memoised
def detach_outputs(program: Program, start: int) -> Program:
    """Returns the program with the outputs from number `start` on held constant.

    Args:
        program: any program.
        start: the first output that has no tangent.
    """
    if start >= len(program.outputs):
        return program
    with building(program.name, program.inputs) as (frame, inputs):
        outs = replay(program, inputs)
        cut = [x if isinstance(x, Literal) else stop_gradient_p(x) for x in outs[start:]]
        return finish(frame, [*outs[:start], *cut])
