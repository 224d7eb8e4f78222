"""`call` runs a program: what a transformed function is to the function that calls it.

Every interpreter inlines it first, so it needs no other rule than how to run.
"""

from __future__ import annotations

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, Program
from ftrans.primitives.arithmetic import mul_p
from ftrans.primitives.control.common import program_cost, program_from
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.record import Absent, Sample


def _infer(*types: ArrayType, program: Program) -> tuple[ArrayType, ...]:
    if tuple(t.update() for t in types) != tuple(t.update() for t in program.inputs):
        raise ShapeError(f"call: {program.name} takes {program.inputs}, not {types}.")
    return program.output_types


def _samples() -> list[Sample]:
    square = program_from(lambda x: [mul_p(x, x)], ArrayType((3,), "float64"))
    return [Sample((normal(3),), {"program": square})]


_inlined = Absent("interpreters inline it before they look at equations")

call_p = carrier(
    "call",
    infer=_infer,
    lower=lambda xp, *arrays, program: evaluate(xp, program, arrays),
    jvp=_inlined,
    linearize=_inlined,
    transpose=_inlined,
    batch=_inlined,
    prune=lambda transforms, used, operands, params: None,
    cost=lambda operands, results, params: program_cost(params["program"]),
    samples=_samples,
)
