"""Forward mode, whose two halves are linearization: what is known, and what is linear.

`jvp` maps primals and tangents to primals and tangents, in one frame. `linearize` runs the same
pass with two nested frames. Primal work lands in the outer one, tangent work in the inner one, and
what the inner frame captures is precisely the set of residuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ftrans.interpreters.base import building, finish, memoised, simplify
from ftrans.interpreters.builder import transforms
from ftrans.interpreters.inline import inline
from ftrans.interpreters.tangents import Tangents
from ftrans.ir import ArrayType, Literal, Params, Program, Tracer, bind, type_of
from ftrans.ir.stack import Placing, opened, state
from ftrans.primitives import mark_p
from ftrans.primitives.arithmetic import accumulate
from ftrans.primitives.axes import zeros
from ftrans.primitives.control.common import pick, present, spread
from ftrans.primitives.record import LINEAR, Absent, Joint, Recursive, scalar


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
        tangents = spread(map(frame.tangent, pick(program.inputs, active)), active)
        outs, out_tangents = push_forward(program, primals, tangents, "jvp")
        out_active = present(out_tangents)
        return finish(frame, [*outs, *pick(out_tangents, out_active)]), out_active


def push_forward(
    program: Program,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    mode: str,
    given: Mapping[int, Any] | None = None,
) -> tuple[list[Any], list[Any]]:
    """Runs `program` on primals and tangents (`None` is zero), each in its own frame.

    Args:
        program: a program without `call`.
        primals: its operands.
        tangents: their tangents.
        mode: "jvp" or "linearize": which rule a primitive that has both applies.
        given: values to be taken for what is marked, by number; tangents stay what they are.
    """
    values, dots = list(primals), list(tangents)
    equations = zip(program.equations, program.locations, strict=True)
    with Placing() as place:  # not by `walk`, whose pairs would cost a tenth
        for (primitive, operands, params, _), location in equations:
            place.move(location)
            taken = [a if type(a) is Literal else values[a] for a in operands]
            moved = [None if type(a) is Literal else dots[a] for a in operands]
            if primitive is mark_p and mode == "linearize":
                outs = bind(primitive, taken, params)
                out_dots = [marked_tangent(moved[0], type_of(taken[0]), params)]
            elif [dot for dot in moved if dot is not None]:
                outs, out_dots = tangents_of(primitive, taken, moved, params, mode)
            else:
                outs = bind(primitive, taken, params)
                out_dots = [None] * len(outs)
            if given and primitive is mark_p:
                outs = [given.get(params["number"], outs[0])]
            values += outs
            dots += out_dots
    return (
        [a if type(a) is Literal else values[a] for a in program.outputs],
        [None if type(a) is Literal else dots[a] for a in program.outputs],
    )


def marked_tangent(tangent: Any, type: ArrayType, params: Params) -> Tracer:
    """Returns a tangent that is marked; it is in the linear program though it be zero."""
    frame: Any = state.stack[-1]
    return frame.mark(zeros(type) if tangent is None else tangent, params)


def tangents_of(
    primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params, mode: str
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Applies one primitive to primals and tangents by its rule."""
    rule = primitive.jvp if type(primitive.linearize) is Absent else getattr(primitive, mode)
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
        return outs, bind(primitive, _completed(primitive, primals, tangents), params)
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


def _completed(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Returns the tangents with zeros for `None`, and with the operands that can have none."""
    out = list(tangents)
    for i, (tangent, primal) in enumerate(zip(tangents, primals, strict=True)):
        if tangent is None:
            t = type_of(primal)
            if not t.is_inexact:
                out[i] = primal
            else:
                out[i] = scalar(0, t.dtype) if "elementwise" in primitive.tags else zeros(t)
    return out


class Linearized(NamedTuple):
    """Is a program split for reverse mode.

    Attributes:
        forward: from the inputs to the outputs, followed by the residuals.
        linear: from the tangents of the active inputs, followed by the residuals, to the tangents
            of those outputs that are active.
        active: for each output whether it has a tangent.
    """

    forward: Program
    linear: Program
    active: tuple[bool, ...]


@memoised
def linearize(program: Program, active: tuple[bool, ...]) -> Linearized:
    """Splits `program` into what the primals determine and what is linear in the tangents.

    Args:
        program: any program.
        active: for each input whether it has a tangent.
    """
    program = simplify(inline(program))
    with building(program.name, program.inputs) as (known, primals):
        outs, linear, residuals, out_active = split(program, primals, active)
        forward = finish(known, [*outs, *residuals])
    return Linearized(forward, linear, out_active)


def split(
    program: Program,
    primals: Sequence[Any],
    active: tuple[bool, ...],
    given: Mapping[int, Any] | None = None,
) -> tuple[list[Any], Program, list[Any], tuple[bool, ...]]:
    """Runs `program` in the frame of its operands, and its derivative in a frame of its own.

    Args:
        program: a program without `call`.
        primals: its operands.
        active: for each input whether it has a tangent.
        given: as for `push_forward`.

    Returns:
        The outputs; the linear program; the residuals, in the frame of the operands; and for each
        output whether it has a tangent.
    """
    with opened(Tangents(f"linear({program.name})", closed=False)) as inner:
        tangents = spread(map(inner.tangent, pick(program.inputs, active)), active)
        outs, dots = push_forward(program, primals, tangents, "linearize", given)
        out_active = present(dots)
        linear, residuals = inner.close(pick(dots, out_active))
    return outs, linear, residuals, out_active
