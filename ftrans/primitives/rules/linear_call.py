"""`linear_call` runs a program that is linear in some operands, and knows its transpose.

The first `count` operands are linear, the others are constants of both programs. It is how the
derivative of a custom rule stands in a linear program: where the rule is `backward`, transposition
must give the author's program, and not what transposing it twice would make of it. For cotangents
of which those in one of the `patterns` are given, the others zero, that of the `variants` is taken.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ftrans.ir import ArrayType, Program
from ftrans.primitives.arithmetic import accumulate, mul_p
from ftrans.primitives.axes import filled
from ftrans.primitives.control.common import (
    derivative,
    fill_zeros,
    present,
    program_cost,
    program_from,
    unknown,
)
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.record import Linear, Sample


def _infer(*types: ArrayType, call: Program, **params: Any) -> Any:
    return call.output_types


def _lower(xp: Any, *arrays: Any, call: Program, **params: Any) -> list[Any]:
    return evaluate(xp, call, arrays)


def _derivative(mode: str, transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    count = params["count"]
    outs = linear_call_p(*primals, **params)
    linear, others = tangents[:count], tangents[count:]
    dots: list[Any] = [None] * len(outs)
    if any(present(linear)):
        dots = linear_call_p(*map(filled, linear, primals), *primals[count:], **params)
    if any(present(others)):
        found = derivative(transforms, mode, params["call"], primals, [None] * count + [*others])
        dots = list(map(accumulate, dots, found))
    return outs, dots


def _transpose(transforms: Any, cts: Any, *operands: Any, **params: Any) -> list[Any]:
    call, count = params["call"], params["count"]
    linear, others = operands[:count], operands[count:]
    if any(unknown(others)):
        return transforms.pull_back(call, operands, cts)
    given = fill_zeros(cts, call.output_types, (True,) * len(cts))
    variants = dict(zip(params["patterns"], params["variants"], strict=True))
    transpose = variants.get(present(cts), params["transpose"])
    found = transforms.replay(transpose, [*given, *others])
    found = [ct if isinstance(x, Linear) else None for ct, x in zip(found, linear, strict=True)]
    return [*found, *([None] * len(others))]


def _batch(
    transforms: Any, size: int, operands: Any, dims: Any, *, call: Program, **params: Any
) -> tuple[Any, list[int | None]]:
    program, mapped = transforms.batch(call, size, tuple(dims))
    return transforms.replay(program, operands), [0 if m else None for m in mapped]


def _samples() -> list[Sample]:
    t = ArrayType((3,), "float64")
    product = program_from(lambda x, y: [mul_p(x, y)], t, t)
    params = {"call": product, "transpose": product, "count": 1, "variants": (), "patterns": ()}
    return [Sample((normal(3), normal(3, seed=1)), params)]


linear_call_p = carrier(
    "linear_call",
    infer=_infer,
    lower=_lower,
    jvp=partial(_derivative, "jvp"),
    linearize=partial(_derivative, "linearize"),
    transpose=_transpose,
    batch=_batch,
    prune=lambda transforms, used, operands, params: None,
    cost=lambda operands, results, params: program_cost(params["call"]),
    samples=_samples,
)
