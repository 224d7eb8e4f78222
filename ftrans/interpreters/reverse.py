"""Reverse mode, assembled: linearize, then transpose.

PyTorch's convention for complex numbers is applied here, at the boundary of the IR's plain
transposition: `vjp(v) = conj(transpose(conj(v)))`, so that the gradient of a real loss points
along steepest ascent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.affine import check_linear
from ftrans.interpreters.base import building, finish, memoised, replay, simplify
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import linearize, split
from ftrans.interpreters.transpose import pull_back
from ftrans.ir import Literal, Program, type_of
from ftrans.primitives import Linear, broadcast_p, scalar, stop_gradient_p
from ftrans.primitives.axes import zeros
from ftrans.primitives.complex import conjugate


def _pull(linear: Program, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Returns the cotangents of what a program is linear in, zeros where there are none.

    Args:
        linear: a program without `call`, from what it is linear in, followed by residuals.
        residuals: its residuals.
        cotangents: those of its outputs, `None` for zero.
    """
    types = linear.inputs[: len(linear.inputs) - len(residuals)]
    found = pull_back(
        linear, [*map(Linear, types), *residuals], [conjugate(ct) for ct in cotangents]
    )
    return [zeros(t) if ct is None else conjugate(ct) for ct, t in zip(found, types, strict=False)]


@memoised
def value_and_grad(program: Program, active: tuple[bool, ...], with_value: bool = True) -> Program:
    """Differentiates the first output of `program`, a real scalar.

    Args:
        program: any program whose first output is real, of rank zero.
        active: for each input whether its gradient is asked for.
        with_value: whether the first output is asked for as well.

    Returns:
        A program from the inputs to the outputs, followed by the gradients.
    """
    program = simplify(inline(program))
    with building(program.name, program.inputs) as (frame, inputs):
        outs, linear, residuals, out_active = split(program, inputs, active)
        one = broadcast_p(scalar(1, type_of(outs[0]).dtype), shape=(), axes=())
        seeds = [one if i == 0 else None for i, a in enumerate(out_active) if a]
        gradients = _pull(linear, residuals, seeds)
        return finish(frame, [*(outs if with_value else outs[1:]), *gradients])


@memoised
def pullback(program: Program, active: tuple[bool, ...]) -> Program:
    """Returns the backward part of `program`.

    Args:
        program: any program.
        active: for each input whether its cotangent is asked for.

    Returns:
        A program from the residuals of `linearize(program, active)`, followed by the cotangents of
        the active outputs, to the cotangents of the active inputs.
    """
    part = linearize(program, active)
    kinds = list(part.forward.output_types[len(part.active) :])
    count = len(kinds)
    kinds += part.linear.output_types
    with building(program.name, kinds) as (frame, inputs):
        return finish(frame, _pull(part.linear, inputs[:count], inputs[count:]))


@memoised
def linear_pullback(program: Program, count: int, zeros: tuple[bool, ...]) -> Program:
    """Transposes a program that is linear in its first `count` inputs.

    Args:
        program: any program.
        count: the number of linear inputs.
        zeros: which of the others are known to be zero.

    Returns:
        A program from the other inputs, followed by the cotangents of all outputs, to the
        cotangents of the first `count` inputs.
    """
    linear = tuple(i < count for i in range(len(program.inputs)))
    program = simplify(inline(program))
    check_linear(program, linear, zeros=zeros)
    others = program.inputs[count:]
    kinds = [*others, *program.output_types]
    with building(f"transpose({program.name})", kinds) as (frame, inputs):
        return finish(frame, _pull(program, inputs[: len(others)], inputs[len(others) :]))


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
