"""`linear_call` runs a program that is linear in some operands, and knows its transpose.

The first `count` operands are linear, the others are constants of both programs. It is how the
derivative of a custom rule stands in a linear program: where the rule is `backward`, transposition
must give the author's program, and not what transposing it twice would make of it. For cotangents
of which those in one of the `patterns` are given, the others zero, that of the `variants` is taken.
"""

from __future__ import annotations

from typing import Any

from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives.arithmetic import accumulate, mul_p
from ftrans.primitives.control.common import derivative, fill_zeros, program_cost, program_from
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import no_identity, normal
from ftrans.primitives.record import Linear, Primitive, Recursive, Sample


def _infer(*types: ArrayType, call: Program, **params: Any) -> Any:
    return call.output_types


def _lower(xp: Any, *arrays: Any, call: Program, **params: Any) -> list[Any]:
    return evaluate(xp, call, arrays)


def _differentiate(mode: str) -> Recursive:
    def rule(
        transforms: Any, tangents: Any, *primals: Any, call: Program, count: int, **params: Any
    ) -> Any:
        params |= {"call": call, "count": count}
        outs = linear_call_p(*primals, **params)
        linear, others = tangents[:count], tangents[count:]
        dots: list[Any] = [None] * len(outs)
        if any(t is not None for t in linear):
            filled = fill_zeros(linear, map(type_of, primals[:count]), (True,) * count)
            dots = list(linear_call_p(*filled, *primals[count:], **params))
        if any(t is not None for t in others):
            found = derivative(transforms, mode, call, primals, [None] * count + list(others))
            dots = [accumulate(x, y) for x, y in zip(dots, found, strict=True)]
        return outs, dots

    return Recursive(rule)


def _transpose(
    transforms: Any,
    cts: Any,
    *operands: Any,
    call: Program,
    transpose: Program,
    count: int,
    variants: tuple[Program, ...],
    patterns: tuple[tuple[bool, ...], ...],
) -> list[Any]:
    linear, others = operands[:count], operands[count:]
    if any(isinstance(x, Linear) for x in others):
        return transforms.pull_back(call, operands, cts)
    given = fill_zeros(cts, call.output_types, (True,) * len(cts))
    present = tuple(ct is not None for ct in cts)
    if present in patterns:
        transpose = variants[patterns.index(present)]
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


linear_call_p = Primitive(
    name="linear_call",
    tags=frozenset({"control"}),
    kinds="",
    infer=_infer,
    lower=_lower,
    jvp=_differentiate("jvp"),
    linearize=_differentiate("linearize"),
    transpose=Recursive(_transpose),
    batch=Recursive(_batch),
    prune=lambda transforms, used, operands, params: None,
    rewrite=no_identity,
    cost=lambda operands, results, params: program_cost(params["call"]),
    samples=_samples,
    source=None,
    multiple=True,
)
