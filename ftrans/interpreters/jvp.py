"""Forward mode: a program that maps primals and tangents to primals and tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.base import building, finish, memoised
from ftrans.interpreters.inline import inline
from ftrans.interpreters.simplify import simplify
from ftrans.ir import Literal, Params, Program, bind
from ftrans.ir.frame import at_location
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
    name = f"jvp({program.name})"
    with building(name, [*program.inputs, *tangent_types]) as (frame, inputs):
        primals = inputs[: len(active)]
        given = iter(inputs[len(active) :])
        tangents = [next(given) if a else None for a in active]
        outs, out_tangents = push_forward(program, primals, tangents, "jvp")
        nonzero = [t for t in out_tangents if t is not None]
        result = finish(frame, [*outs, *nonzero])
    return simplify(result), tuple(t is not None for t in out_tangents)


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
    values: list[tuple[Any, Any]] = list(zip(primals, tangents, strict=True))

    def read(atom: Any) -> tuple[Any, Any]:
        return (atom, None) if type(atom) is Literal else values[atom]

    for equation, _, location in program.numbered():
        pairs = [read(atom) for atom in equation.operands]
        taken = [primal for primal, _ in pairs]
        dots = [tangent for _, tangent in pairs]
        with at_location(location):
            if all(dot is None for dot in dots):
                outs = bind(equation.primitive, taken, equation.params)
                out_dots: Sequence[Any] = [None] * len(outs)
            else:
                outs, out_dots = tangents_of(
                    equation.primitive, taken, dots, equation.params, mode
                )
        values += zip(outs, out_dots, strict=True)
    pairs = [read(atom) for atom in program.outputs]
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
