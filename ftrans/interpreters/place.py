"""Puts the mapped axis of a batched program's outputs where the caller wants it."""

from __future__ import annotations

from ftrans.interpreters.base import building, finish, memoised, replay
from ftrans.ir import Program
from ftrans.primitives.family import moveaxis
from ftrans.primitives.shape import expand

__all__ = ["place_outputs"]


@memoised
def place_outputs(
    program: Program, size: int, mapped: tuple[bool, ...], dims: tuple[int | None, ...]
) -> Program:
    """Returns the program with the mapped axis of each output at `dims`.

    Args:
        program: a program whose mapped outputs have the axis in front.
        size: the size of the axis.
        mapped: which outputs have it.
        dims: where each output is to have it; None for an output that has none.
    """
    if all(dim == (0 if m else None) for m, dim in zip(mapped, dims, strict=True)):
        return program
    with building(program.name, program.inputs) as (frame, inputs):
        outs = []
        for out, is_mapped, dim in zip(replay(program, inputs), mapped, dims, strict=True):
            if dim is not None:
                out = moveaxis(out if is_mapped else expand(out, size), 0, dim)
            outs.append(out)
        return finish(frame, outs)
