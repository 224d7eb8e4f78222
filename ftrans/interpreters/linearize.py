"""Linearization: a program split into a forward part and a linear part.

The jvp pass runs with two nested frames. Primal work lands in the outer one, tangent work in the
inner one, and what the inner frame captures is precisely the set of residuals.
"""

from __future__ import annotations

from typing import NamedTuple

from ftrans.interpreters.base import building, memoised
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import push_forward
from ftrans.interpreters.simplify import drop_unused_inputs, simplify
from ftrans.ir import Abstract, Program, open_frame

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
        linear, kept = drop_unused_inputs(simplify(linear), sum(active))
        residuals = [r for r, keep in zip(residuals, kept[sum(active) :], strict=True) if keep]
        forward, captured = known.close([*outs, *residuals])
        assert not captured
    return Linearized(simplify(forward), linear, tuple(t is not None for t in out_tangents))
