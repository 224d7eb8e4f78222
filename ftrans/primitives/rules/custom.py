"""`custom` runs a program whose derivatives and batches are those that its author gave.

The operands are the inputs of the rule, the values that `forward` captured, and those that the
rules captured. `forward` takes as many of them as it has inputs and returns the results, followed
by what the rules saved; that part are results of the equation where `saved` is true. The tangents
of results come from the rules for the inputs, and from `forward` for what it captured; those of
what is saved always come from `forward`: it is differentiated through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives.arithmetic import accumulate, mul_p
from ftrans.primitives.axes import expand, moveaxis, sum_p
from ftrans.primitives.control.common import (
    Mask,
    derivative,
    fill_zeros,
    pick,
    program_cost,
    program_from,
    restrict,
    spread,
)
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import no_identity, normal
from ftrans.primitives.namespace import is_traced_by_jax, without_derivative
from ftrans.primitives.record import Primitive, Recursive, Sample, scalar
from ftrans.primitives.rules.custom_jax import with_rules
from ftrans.primitives.rules.custom_spec import Spec, look_up
from ftrans.primitives.rules.custom_transpose import transpose_custom
from ftrans.primitives.rules.linear_call import linear_call_p
from ftrans.primitives.rules.missing import missing, raise_missing


def _infer(*types: ArrayType, forward: Program, spec: Spec, saved: bool, **rules: Any) -> Any:
    return forward.output_types if saved else forward.output_types[: spec.outs]


def _lower(
    xp: Any,
    *arrays: Any,
    forward: Program,
    backward: Program | None,
    forward_mode: Program | None,
    variants: tuple[Program, ...],
    spec: Spec,
    saved: bool,
) -> Any:
    message = spec.missing

    def compute(*xs: Any) -> Sequence[Any]:
        outs = evaluate(xp, forward, xs[: len(forward.inputs)])
        return outs if saved else outs[: spec.outs]

    if xp is not np and any(map(is_traced_by_jax, arrays)):
        if backward is not None or forward_mode is not None:
            return with_rules(arrays, forward, backward, forward_mode, spec, saved)
        if message is not None:
            return without_derivative(compute, arrays, lambda: raise_missing(message))
    return compute(*arrays)


# ------------------------------------------------------------------------------- derivatives


def _differentiate(mode: str) -> Recursive:
    def rule(
        transforms: Any,
        tangents: Any,
        *primals: Any,
        forward: Program,
        backward: Program | None,
        forward_mode: Program | None,
        variants: tuple[Program, ...],
        spec: Spec,
        saved: bool,
    ) -> Any:
        n, inputs = spec.outs, len(forward.inputs)
        if forward_mode is not None:
            first = 0 if spec.lasting else n
            forward_mode = transforms.linear_rule(forward_mode, sum(spec.takes), first)
        rules = {
            "forward": forward,
            "backward": backward,
            "forward_mode": forward_mode,
            "variants": variants,
        }
        dots: list[Any] = [None] * n
        given = tangents[: spec.arity]
        if spec.lasting or all(t is None for t in given):
            outs = custom_p(*primals, **rules, spec=spec, saved=True)
        elif forward_mode is None:
            outs = transforms.replay(forward, primals[:inputs])
        else:
            outs, dots = _by_code(transforms, given, primals, forward_mode, spec)
            outs += [None] * (len(forward.outputs) - n)
            given = [None] * spec.arity
        if spec.missing is None and backward is None and forward_mode is None:
            given = [None] * spec.arity
            through = tangents[:inputs]
        else:
            through = [*([None] * spec.arity), *tangents[spec.arity : inputs]]
        if any(t is not None for t in given):
            found = _by_rule(transforms, mode, given, primals, outs, rules, spec)
            dots = spread(found, spec.smooth)
        if any(t is not None for t in through):
            body = _outputs(transforms, forward, spec.smooth + (False,) * (len(outs) - n))
            found = derivative(transforms, mode, body, primals[:inputs], through)
            natural = spread(found, spec.smooth)
            dots = [accumulate(x, y) for x, y in zip(dots, natural, strict=True)]
        if not saved:
            return outs[:n], dots
        moving = tangents[:inputs]
        later: list[Any] = [None] * (len(outs) - n)
        if later and any(t is not None for t in moving):
            body = _outputs(transforms, forward, (False,) * n + (True,) * len(later))
            later = derivative(transforms, mode, body, primals[:inputs], moving)
        return outs, [*dots, *later]

    return Recursive(rule)


def _by_code(
    transforms: Any,
    tangents: Sequence[Any],
    primals: Sequence[Any],
    forward_mode: Program,
    spec: Spec,
) -> tuple[list[Any], list[Any]]:
    """Returns the results and tangents that the code of a jvp computes, in the place of forward."""
    xs = [type_of(x) for x in primals[: spec.arity]]
    dots = fill_zeros(tangents, xs, spec.takes)
    captured = look_up(spec.pushed, primals, (), spec.outs)
    found = list(transforms.replay(forward_mode, [*dots, *captured]))
    outs, moved = found[: spec.outs], found[spec.outs :]
    if all(t is None for t in tangents):
        moved = [None] * sum(spec.smooth)
    return outs, spread(moved, spec.smooth)


def _by_rule(
    transforms: Any,
    mode: str,
    tangents: Sequence[Any],
    primals: Sequence[Any],
    outs: Sequence[Any],
    rules: Any,
    spec: Spec,
) -> Sequence[Any]:
    """Returns the tangents of smooth results by the author's rules."""
    types = [type_of(x) for x in pick(outs[: spec.outs], spec.smooth)]
    backward, forward_mode = rules["backward"], rules["forward_mode"]
    if not types:
        return []
    if backward is None and forward_mode is None:
        moving = [t for t in tangents if t is not None]
        return missing([*moving, *primals], types, spec.missing or "")
    xs = [type_of(x) for x in primals[: spec.arity]]
    if forward_mode is not None:
        dots = fill_zeros(tangents, xs, spec.takes)
        captured = look_up(spec.pushed, primals, outs, spec.outs)
        if backward is None or mode == "jvp":
            return transforms.replay(forward_mode, [*dots, *captured])
        return _both(transforms, tangents, xs, primals, outs, rules, spec)
    dots = fill_zeros(tangents, xs, spec.gives)
    if not any(t is not None for t in pick(tangents, spec.gives)):
        return [None] * len(types)
    pushed = transforms.exchange(backward, len(types), _not_linear(spec.name))
    captured = look_up(spec.pulled, primals, outs, spec.outs)
    if mode == "jvp":
        return transforms.replay(pushed, [*dots, *captured])
    return linear_call_p(
        *dots, *captured, call=pushed, transpose=backward, count=len(dots), **_variants(rules, spec)
    )


def _variants(rules: Any, spec: Spec) -> dict[str, Any]:
    """Returns the params of a linear call that choose between variants of its transpose."""
    patterns = tuple(tuple(pick(pattern, spec.smooth)) for pattern in spec.patterns)
    return {"variants": rules["variants"], "patterns": patterns}


def _both(
    transforms: Any,
    tangents: Sequence[Any],
    xs: Sequence[ArrayType],
    primals: Sequence[Any],
    outs: Sequence[Any],
    rules: Any,
    spec: Spec,
) -> Sequence[Any]:
    """Records a linear call of the author's jvp whose transpose is the author's backward."""
    backward, forward_mode = rules["backward"], rules["forward_mode"]
    dots = fill_zeros(tangents, xs, spec.takes)
    pushed = look_up(spec.pushed, primals, outs, spec.outs)
    pulled = look_up(spec.pulled, primals, outs, spec.outs)
    n = sum(spec.smooth)
    types = [t for t, take in zip(xs, spec.takes, strict=True) if take]
    constants = [type_of(x) for x in (*pushed, *pulled)]
    with transforms.building(forward_mode.name, [*types, *constants]) as (frame, given):
        taken = given[: len(types) + len(pushed)]
        call = transforms.finish(frame, transforms.replay(forward_mode, taken))
    cts = list(call.output_types)
    with transforms.building(backward.name, [*cts, *constants]) as (frame, given):
        found = transforms.replay(backward, [*given[:n], *given[n + len(pushed) :]])
        full = fill_zeros(spread(found, spec.gives), xs, spec.takes)
        transpose = transforms.finish(frame, full)
    return linear_call_p(
        *dots,
        *pushed,
        *pulled,
        call=call,
        transpose=transpose,
        count=len(dots),
        variants=(),
        patterns=(),
    )


def _not_linear(name: str) -> str:
    return (
        f"{name}: its jvp was to be derived from backward, which is not linear in the cotangent.\n"
        f"  Write jvp(ctx, *tangents) as well."
    )


def _outputs(transforms: Any, program: Program, mask: Mask) -> Program:
    """Returns the program with the outputs in `mask` alone, and all inputs."""
    return restrict(transforms, program, (True,) * len(program.inputs), mask)


# ---------------------------------------------------------------------------------- batching


def _batch(
    transforms: Any,
    size: int,
    operands: Any,
    dims: Any,
    *,
    forward: Program,
    backward: Program | None,
    forward_mode: Program | None,
    variants: tuple[Program, ...],
    spec: Spec,
    saved: bool,
) -> tuple[Any, Any]:
    inputs, n = len(forward.inputs), spec.outs
    if spec.batch is not None and all(dim is None for dim in dims[spec.arity : inputs]):
        types = [type_of(x) for x in operands[: spec.arity]]
        program, out_dims = spec.batch.program(size, types, dims[: spec.arity])
        captured = [operands[i] for i in spec.batch.captured]
        outs = transforms.replay(program, [*operands[: spec.arity], *captured])
        if saved:
            kept = tuple(i >= n for i in range(len(forward.outputs)))
            body = _outputs(transforms, forward, kept)
            later, mapped = transforms.batch(body, size, tuple(dims[:inputs]))
            outs = [*outs, *transforms.replay(later, operands[:inputs])]
            out_dims = (*out_dims, *(0 if m else None for m in mapped))
        return outs, out_dims
    operands = [
        x if dim is None else moveaxis(x, dim, 0) for x, dim in zip(operands, dims, strict=True)
    ]
    dims = tuple(None if dim is None else 0 for dim in dims)
    force = tuple(s or not spec.lasting for s in spec.smooth)
    force += (False,) * (len(forward.outputs) - n)
    program, mapped = transforms.batch(forward, size, dims[:inputs], force)
    out_dims = tuple(0 if m else None for m in mapped)
    rules = {
        "forward": program,
        "backward": None
        if backward is None
        else _batch_backward(transforms, size, backward, dims, out_dims, spec),
        "forward_mode": None
        if forward_mode is None
        else _batch_forward(transforms, size, forward_mode, dims, out_dims, spec),
        "variants": tuple(
            _batch_backward(transforms, size, v, dims, out_dims, spec) for v in variants
        ),
    }
    outs = custom_p(*operands, **rules, spec=spec._replace(batch=None), saved=saved)
    return outs, out_dims[: len(outs)]


def _batch_backward(
    transforms: Any, size: int, backward: Program, dims: Any, out_dims: Any, spec: Spec
) -> Program:
    """Batches `backward`; what an input without the axis gets is summed over it."""
    kept = pick(dims[: spec.arity], spec.gives)
    captured = look_up(spec.pulled, dims, out_dims, spec.outs)
    n = sum(spec.smooth)
    force = tuple(dim is not None for dim in kept)
    program, mapped = transforms.batch(backward, size, (*[0] * n, *captured), force)
    if mapped == force:
        return program
    with transforms.building(program.name, program.inputs) as (frame, inputs):
        outs = transforms.replay(program, inputs)
        summed = [
            sum_p(x, axes=(0,)) if m and not f else x
            for x, m, f in zip(outs, mapped, force, strict=True)
        ]
        return transforms.finish(frame, summed)


def _batch_forward(
    transforms: Any, size: int, forward_mode: Program, dims: Any, out_dims: Any, spec: Spec
) -> Program:
    captured = look_up(spec.pushed, dims, out_dims, spec.outs)
    force = (True,) * len(forward_mode.outputs)
    taken = (*pick(dims[: spec.arity], spec.takes), *captured)
    if all(dim is None for dim in taken):
        with transforms.building(forward_mode.name, forward_mode.inputs) as (frame, inputs):
            outs = transforms.replay(forward_mode, inputs)
            return transforms.finish(frame, [expand(x, size) for x in outs])
    return transforms.batch(forward_mode, size, taken, force)[0]


# --------------------------------------------------------------------------------- the rest


def _prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
    n = params["spec"].outs
    if params["saved"] and not any(used[n:]):
        return operands, {**params, "saved": False}, (True,) * n + (False,) * (len(used) - n)
    return None


def _samples() -> list[Sample]:
    t = ArrayType((3,), "float64")

    def square(x: Any, y: Any) -> Any:
        xx = mul_p(x, x)
        return [mul_p(xx, y), xx]

    def slope(ct: Any, x: Any, xx: Any, y: Any) -> Any:
        return [mul_p(ct, mul_p(scalar(2, t.dtype), mul_p(x, y))), mul_p(ct, xx)]

    forward = program_from(square, t, t)
    backward = program_from(slope, t, t, t, t)
    references = (("operand", 0), ("saved", 0), ("operand", 1))
    spec = Spec("square", 2, (True,), gives=(True, True), pulled=references)
    params = {"forward": forward, "backward": backward, "forward_mode": None}
    params |= {"variants": (), "spec": spec}
    return [Sample((normal(3), normal(3, seed=1)), {**params, "saved": s}) for s in (False, True)]


custom_p = Primitive(
    name="custom",
    tags=frozenset({"control", "custom"}),
    kinds="",
    infer=_infer,
    lower=_lower,
    jvp=_differentiate("jvp"),
    linearize=_differentiate("linearize"),
    transpose=Recursive(transpose_custom),
    batch=Recursive(_batch),
    prune=_prune,
    rewrite=no_identity,
    cost=lambda operands, results, params: program_cost(params["forward"]),
    samples=_samples,
    source=None,
    multiple=True,
)
