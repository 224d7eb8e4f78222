"""`block` runs a program, as `call` does, but stays: what stands several times is transformed once.

A long program whose stretches repeat is folded into blocks, see `interpreters/fold.py`.
Interpreters remember what they make of the program of a block, so that all blocks of one program
share it, and what is compiled of it.
"""

from __future__ import annotations

from typing import Any

from ftrans.ir import ArrayType, Program
from ftrans.primitives.arithmetic import mul_p
from ftrans.primitives.control.call import call_p
from ftrans.primitives.control.common import (
    merged,
    opposite,
    pick,
    present,
    program_from,
    program_rules,
    restrict,
    spread,
    unknown,
)
from ftrans.primitives.elementary import sin_p
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.record import Sample


def _linearize(transforms: Any, tangents: Any, *primals: Any, program: Program) -> Any:
    active = present(tangents)
    part = transforms.linearize(program, active)
    count, size = len(part.active), len(primals)
    # residuals that are operands are there already
    residuals = part.forward.outputs[count:]
    made = tuple(type(a) is not int or a >= size for a in residuals)
    outputs = (*(True,) * count, *made)
    forward = restrict(transforms, part.forward, (True,) * size, outputs)
    outs = block_p(*primals, program=forward)
    given = [primals[a] for a in pick(residuals, opposite(made))]
    operands = [*pick(tangents, active), *merged(outs[count:], given, made)]
    dots = block_p(*operands, program=part.linear)
    return outs[:count], spread(dots, part.active)


def _transpose(transforms: Any, cts: Any, *operands: Any, program: Program) -> Any:
    linear, nonzero = unknown(operands), present(cts)
    turned, found = transforms.transpose(program, linear, nonzero)
    constants = pick(operands, opposite(linear))
    got = block_p(*constants, *pick(cts, nonzero), program=turned)
    return spread(spread(got, found), linear)


def _samples() -> list[Sample]:
    t = ArrayType((3,), "float64")
    program = program_from(lambda x, y: [mul_p(sin_p(x), y), x, y], t, t)
    return [Sample((normal(3), normal(3, seed=1)), {"program": program})]


block_p = carrier(
    "block",
    infer=call_p.infer,
    lower=call_p.lower,
    **program_rules(lambda *xs, **params: block_p(*xs, **params)),
    linearize=_linearize,
    transpose=_transpose,
    cost=call_p.cost,
    samples=_samples,
)
