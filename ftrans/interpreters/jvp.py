"""Forward mode: a program that maps primals and tangents to primals and tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.base import building, finish, memoised, walk
from ftrans.interpreters.factor import factor
from ftrans.interpreters.inline import inline
from ftrans.interpreters.simplify import simplify
from ftrans.ir import Equation, Params, Program, bind
from ftrans.primitives.arithmetic import accumulate
from ftrans.primitives.record import LINEAR, Absent, Joint, Recursive

__all__ = ["jvp", "push_forward", "tangents_of"]


@memoised
def jvp(program: Program, active: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    """Differentiates `program` in forward mode.

    Args:
        program: any program.
        active: for each input whether it has a tangent.

    Returns:
        A program from the inputs and the tangents of the active ones to the outputs and the
        tangents that are not zero; and for each output whether its tangent is among them.
    """
    program = inline(program)
    tangent_types = [t for t, a in zip(program.inputs, active, strict=True) if a]
    with building(program.name, [*program.inputs, *tangent_types]) as (frame, inputs):
        primals = inputs[: len(active)]
        given = iter(inputs[len(active) :])
        tangents = [next(given) if a else None for a in active]
        outs, out_tangents = push_forward(program, primals, tangents, "jvp")
        nonzero = [t for t in out_tangents if t is not None]
        result = simplify(finish(frame, [*outs, *nonzero]))
    marked = tuple(i >= len(active) for i in range(len(inputs)))
    return factor(result, marked), tuple(t is not None for t in out_tangents)


def push_forward(
    program: Program, primals: Sequence[Any], tangents: Sequence[Any], mode: str
) -> tuple[list[Any], list[Any]]:
    """Runs `program` on primals and tangents (`None` is zero), each in its own frame.

    Args:
        program: a program without `call`.
        primals: its operands.
        tangents: their tangents.
        mode: "jvp" or "linearize": which rule a primitive that carries programs applies.
    """

    def step(equation: Equation, pairs: list[Any]) -> Any:
        taken = [primal for primal, _ in pairs]
        dots = [tangent for _, tangent in pairs]
        if all(dot is None for dot in dots):
            return [(out, None) for out in bind(equation.primitive, taken, equation.params)]
        outs, out_dots = tangents_of(equation.primitive, taken, dots, equation.params, mode)
        return zip(outs, out_dots, strict=True)

    values = list(zip(primals, tangents, strict=True))
    pairs = walk(program, values, step, lambda literal: (literal, None))
    return [primal for primal, _ in pairs], [tangent for _, tangent in pairs]


def tangents_of(
    primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params, mode: str
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Applies one primitive to primals and tangents by its rule."""
    from ftrans.interpreters.transforms import transforms

    rule = getattr(primitive, mode) if primitive.is_higher_order else primitive.jvp
    if isinstance(rule, Recursive):
        return rule.rule(transforms, tangents, *primals, **params)
    outs = bind(primitive, primals, params)
    if not any(out.type.is_inexact for out in outs):
        return outs, [None] * len(outs)
    if isinstance(rule, Absent):
        raise primitive.absent("jvp", rule.reason)
    if rule is LINEAR:
        return outs, bind(primitive, tangents, params)
    given = outs if primitive.multiple else outs[0]
    if isinstance(rule, Joint):
        dots = rule.rule(tangents, given, *primals, **params)
        return outs, dots if primitive.multiple else [dots]
    total = None
    for partial, tangent in zip(rule, tangents, strict=True):
        if tangent is None:
            continue
        if isinstance(partial, Absent):
            raise primitive.absent("jvp", partial.reason)
        total = accumulate(total, partial(tangent, given, *primals, **params))
    return outs, [total]
