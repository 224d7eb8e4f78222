"""Linearization: a program split into a forward part and a linear part.

The jvp pass runs with two nested frames. Primal work lands in the outer one, tangent work in the
inner one, and what the inner frame captures is precisely the set of residuals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ftrans.interpreters.base import building, finish, memoised, replay, walk
from ftrans.interpreters.factor import factor
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import push_forward
from ftrans.interpreters.simplify import simplify
from ftrans.ir import Abstract, Equation, Frame, Program, Tracer, bind, open_frame

__all__ = ["Linearized", "linearize"]


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

    @property
    def residuals(self) -> int:
        """The number of residuals."""
        return len(self.forward.outputs) - len(self.active)


@memoised
def linearize(program: Program, active: tuple[bool, ...]) -> Linearized:
    """Splits `program` into what the primals determine and what is linear in the tangents.

    Args:
        program: any program.
        active: for each input whether it has a tangent.
    """
    program = simplify(inline(program))
    with building(program.name, program.inputs) as (known, primals):
        with open_frame(f"linear({program.name})") as inner:
            tangents = [
                inner.input(t, Abstract("a tangent")) if a else None
                for t, a in zip(program.inputs, active, strict=True)
            ]
            outs, out_tangents = push_forward(program, primals, tangents, "linearize")
            linear, residuals = inner.close([t for t in out_tangents if t is not None])
        linear, residuals = _take_in_constants(linear, known, residuals)
        slopes, linear = _split(linear, sum(active))
        forward, captured = known.close([*outs, *replay(slopes, residuals)])
        assert not captured
    return Linearized(simplify(forward), linear, tuple(t is not None for t in out_tangents))


def _take_in_constants(
    linear: Program, known: Frame, residuals: list[Any]
) -> tuple[Program, list[Any]]:
    """Makes residuals that are constants, such as zeros, where they are used."""
    made: dict[int, Equation] = {}
    for position, residual in enumerate(residuals):
        if residual.index >= 0:
            equation = known.equations[known.producers[residual.index]]
            if len(equation.types) == 1 and not any(type(a) is int for a in equation.operands):
                made[position] = equation
    if not made:
        return linear, residuals
    start = len(linear.inputs) - len(residuals)
    kept = [i for i in range(len(residuals)) if i not in made]
    types = [*linear.inputs[:start], *(linear.inputs[start + i] for i in kept)]
    with building(linear.name, types) as (frame, inputs):
        given = iter(inputs[start:])
        operands = [
            bind(made[i].primitive, made[i].operands, made[i].params)[0]
            if i in made
            else next(given)
            for i in range(len(residuals))
        ]
        outs = replay(linear, [*inputs[:start], *operands])
        return finish(frame, outs), [residuals[i] for i in kept]


def _split(linear: Program, count: int) -> tuple[Program, Program]:
    """Splits a linear program once its slopes are collected.

    Args:
        linear: from tangents, followed by what the primals gave, to tangents.
        count: the number of tangents.

    Returns:
        The program of the residuals, from what the primals gave; and the linear program that is
        left, from tangents and residuals to tangents.
    """
    factored = factor(linear, tuple(i < count for i in range(len(linear.inputs))))
    with building(linear.name, factored.inputs[count:]) as (known, given):
        with open_frame(linear.name) as inner:
            tangents = [inner.input(t, Abstract("a tangent")) for t in factored.inputs[:count]]
            outs = walk(
                factored,
                [*tangents, *given],
                lambda equation, taken: _place(equation, taken, inner),
            )
            rest, residuals = inner.close(outs)
        return simplify(finish(known, residuals)), simplify(rest)


def _place(equation: Equation, operands: list[Any], inner: Any) -> Any:
    """Binds an equation; constants that need no operand are made where they are used."""
    if any(isinstance(x, Tracer) for x in operands):
        return bind(equation.primitive, operands, equation.params)
    return inner.record(equation.primitive, operands, equation.params)
