"""Linearization: a program split into a forward part and a linear part.

The jvp pass runs with two nested frames. Primal work lands in the outer one, tangent work in the
inner one, and what the inner frame captures is precisely the set of residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ftrans.interpreters.base import building, finish, memoised
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import push_forward
from ftrans.interpreters.simplify import simplify
from ftrans.interpreters.tangents import Tangents
from ftrans.ir import Program
from ftrans.ir.stack import opened


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
        outs, linear, residuals, out_active = split(program, primals, active)
        forward = finish(known, [*outs, *residuals])
    return Linearized(forward, linear, out_active)


def split(
    program: Program, primals: Sequence[Any], active: tuple[bool, ...]
) -> tuple[list[Any], Program, list[Any], tuple[bool, ...]]:
    """Runs `program` in the frame of its operands, and its derivative in a frame of its own.

    Args:
        program: a program without `call`.
        primals: its operands.
        active: for each input whether it has a tangent.

    Returns:
        The outputs; the linear program; the residuals, in the frame of the operands; and for each
        output whether it has a tangent.
    """
    with opened(Tangents(f"linear({program.name})", closed=False)) as inner:
        tangents = [
            inner.tangent(t) if a else None for t, a in zip(program.inputs, active, strict=True)
        ]
        outs, dots = push_forward(program, primals, tangents, "linearize")
        linear, residuals = inner.close([t for t in dots if t is not None])
    return outs, linear, residuals, tuple(t is not None for t in dots)
