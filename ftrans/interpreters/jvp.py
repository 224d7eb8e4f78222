"""Forward mode: a program that maps primals and tangents to primals and tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.base import finish, memoised
from ftrans.interpreters.inline import inline
from ftrans.interpreters.simplify import simplify
from ftrans.interpreters.tangents import Tangents
from ftrans.interpreters.transforms import transforms
from ftrans.ir import Literal, Params, Program, Tracer, bind
from ftrans.ir.stack import Placing, opened
from ftrans.primitives.arithmetic import accumulate
from ftrans.primitives.record import LINEAR, Absent, Joint, Recursive


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
    program = simplify(inline(program))
    with opened(Tangents(program.name, closed=True)) as frame:
        primals = [frame.input(t) for t in program.inputs]
        tangents = [
            frame.tangent(t) if a else None for t, a in zip(program.inputs, active, strict=True)
        ]
        outs, out_tangents = push_forward(program, primals, tangents, "jvp")
        result = finish(frame, [*outs, *(t for t in out_tangents if t is not None)])
    return result, tuple(t is not None for t in out_tangents)


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
    values, dots = list(primals), list(tangents)
    with Placing() as place:
        for (primitive, operands, params, _), location in zip(
            program.equations, program.locations, strict=True
        ):
            place.move(location)
            taken = [a if type(a) is Literal else values[a] for a in operands]
            moved = [None if type(a) is Literal else dots[a] for a in operands]
            if [dot for dot in moved if dot is not None]:
                outs, out_dots = tangents_of(primitive, taken, moved, params, mode)
            else:
                outs = bind(primitive, taken, params)
                out_dots = [None] * len(outs)
            values += outs
            dots += out_dots
    return (
        [a if type(a) is Literal else values[a] for a in program.outputs],
        [None if type(a) is Literal else dots[a] for a in program.outputs],
    )


def tangents_of(
    primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params, mode: str
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Applies one primitive to primals and tangents by its rule."""
    rule = getattr(primitive, mode) if primitive.is_higher_order else primitive.jvp
    if isinstance(rule, Recursive):
        outs, dots = rule.rule(transforms, tangents, *primals, **params)
        for out in outs:
            if isinstance(out, Tracer) and isinstance(out.frame, Tangents):
                out.frame.settle(out)
        return outs, dots
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
