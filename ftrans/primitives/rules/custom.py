"""`custom` runs a program whose derivatives and batches are those that its author gave.

The operands are the inputs of the rule, the values that `forward` captured, and those that the
rules captured. `forward` takes as many of them as it has inputs and returns the results, followed
by what the rules saved; that part are results of the equation where `saved` is true. The tangents
of results come from the rules for the inputs, and from `forward` for what it captured; those of
what is saved always come from `forward`: it is differentiated through.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ftrans.errors import TransposeError
from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives.arithmetic import accumulate, mul_p
from ftrans.primitives.axes import broadcast_p, moveaxis, sum_p, zeros
from ftrans.primitives.control.common import (
    Mask,
    derivative,
    fill_zeros,
    needed_inputs,
    pick,
    present,
    program_cost,
    program_from,
    restrict,
    spread,
    types_of,
    unknown,
    varying,
)
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.namespace import is_traced_by_jax, without_derivative
from ftrans.primitives.record import Linear, Sample, scalar
from ftrans.primitives.rules.custom_jax import with_batches, with_rules
from ftrans.primitives.rules.custom_spec import Rule, Spec, look_up
from ftrans.primitives.rules.missing import missing, missing_cotangents, raise_missing, tied_p


def _infer(*types: ArrayType, forward: Program, spec: Spec, saved: bool, **rules: Any) -> Any:
    return forward.output_types if saved else forward.output_types[: spec.outs]


def _lower(xp: Any, *arrays: Any, **params: Any) -> Any:
    rule = Rule(**params)
    forward, message = rule.forward, rule.spec.missing

    def compute(*xs: Any) -> Sequence[Any]:
        outs = evaluate(xp, forward, xs[: len(forward.inputs)])
        return outs if rule.saved else outs[: rule.spec.outs]

    if xp is not np and any(map(is_traced_by_jax, arrays)):
        if not (rule.is_absent or rule.is_linear):
            return with_rules(arrays, rule)
        if message is not None:
            return without_derivative(compute, arrays, lambda: raise_missing(message))
        if rule.spec.batch is not None and not rule.saved:
            return with_batches(compute, arrays, rule.spec)
    return compute(*arrays)


# ------------------------------------------------------------------------------- derivatives


def _derivative(mode: str, transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    rule = Rule(**params).with_linear_jvp(transforms)
    forward, spec = rule.forward, rule.spec
    n, arity, inputs = spec.outs, spec.arity, len(forward.inputs)
    dots: list[Any] = [None] * n
    nothing = [None] * arity
    given, through = tangents[:arity], [*nothing, *tangents[arity:inputs]]

    def natural(moving: Sequence[Any], mask: Mask) -> list[Any]:
        """Returns the tangents of outputs of `forward`, by its code."""
        if not any(present(moving)):
            return [None] * len(mask)
        body = restrict(transforms, forward, (True,) * inputs, mask)
        return spread(derivative(transforms, mode, body, primals[:inputs], moving), mask)

    if spec.lasting or not any(present(given)):
        outs = custom_p(*primals, **rule._replace(saved=True)._asdict())
    elif rule.forward_mode is None:
        outs = transforms.replay(forward, primals[:inputs])
    else:
        outs, dots = _by_code(transforms, given, primals, rule)
        outs += [None] * (len(forward.outputs) - n)
        given = nothing
    if spec.missing is None and rule.is_absent:
        given, through = nothing, tangents[:inputs]
    if any(present(given)):
        dots = spread(_by_rule(transforms, mode, given, primals, outs, rule), spec.smooth)
    later = len(outs) - n
    dots = list(map(accumulate, dots, natural(through, spec.smooth + (False,) * later)))
    if not rule.saved:
        return outs[:n], dots
    return outs, [*dots, *natural(tangents[:inputs], (False,) * n + (True,) * later)[n:]]


def _by_code(
    transforms: Any, tangents: Sequence[Any], primals: Sequence[Any], rule: Rule
) -> tuple[list[Any], list[Any]]:
    """Returns the results and tangents that the code of a jvp computes, in the place of forward."""
    spec = rule.spec
    dots = fill_zeros(tangents, types_of(primals[: spec.arity]), spec.takes)
    captured = look_up(spec.pushed, primals, (), spec.outs)
    found = list(transforms.replay(rule.forward_mode, [*dots, *captured]))
    return found[: spec.outs], spread(found[spec.outs :], spec.smooth)


def _by_rule(
    transforms: Any,
    mode: str,
    tangents: Sequence[Any],
    primals: Sequence[Any],
    outs: Sequence[Any],
    rule: Rule,
) -> Sequence[Any]:
    """Returns the tangents of smooth results by the author's rules."""
    spec, backward, forward_mode = rule.spec, rule.backward, rule.forward_mode
    types = types_of(pick(outs[: spec.outs], spec.smooth))
    if not types:
        return []
    if rule.is_absent:
        return missing([*tangents, *primals], types, spec.missing or "")
    xs = types_of(primals[: spec.arity])
    pushed = look_up(spec.pushed, primals, outs, spec.outs)
    pulled = look_up(spec.pulled, primals, outs, spec.outs)
    if forward_mode is not None:
        call, mask, taken, more = forward_mode, spec.takes, pushed, pulled
    elif any(present(pick(tangents, spec.gives))):
        call = transforms.exchange(backward, len(types), _not_linear(spec.name))
        mask, taken, more = spec.gives, pulled, []
    else:
        return [None] * len(types)
    dots = fill_zeros(tangents, xs, mask)
    if backward is None or mode == "jvp":
        return transforms.replay(call, [*dots, *taken])
    # a rule that is linear: its jvp is itself, its transpose the author's backward
    operands, count = [*dots, *taken, *more], len(dots)
    places = tuple([("operand", i) for i in range(len(operands))])
    linear = Spec(
        spec.name,
        count,
        smooth=(True,) * len(types),
        gives=tuple(pick(spec.gives, mask)),
        takes=(True,) * count,
        pulled=places[len(places) - len(pulled) :],
        pushed=places[count : count + len(taken)],
        patterns=tuple([tuple(pick(pattern, spec.smooth)) for pattern in spec.patterns]),
    )
    rule = Rule(call, backward, call, rule.variants, linear, False)
    return custom_p(*operands, **rule._asdict())


def _not_linear(name: str) -> str:
    return (
        f"{name}: its jvp was to be derived from backward, which is not linear in the cotangent.\n"
        f"  Write jvp(ctx, *tangents) as well."
    )


# -------------------------------------------------------------------------------- transposition
#
# In a linear program. For what its inputs are linear in, it is the author's `backward`, or the
# transpose of the author's `jvp`; for what `forward` captured, that of `forward`.


def _transpose(transforms: Any, cts: Any, *operands: Any, **params: Any) -> list[Any]:
    rule = Rule(**params).with_linear_jvp(transforms)
    forward, backward, forward_mode, variants, spec, _ = rule
    n, inputs = spec.outs, len(forward.inputs)
    found: list[Any] = [None] * len(operands)
    xs, captured = operands[: spec.arity], operands[spec.arity : inputs]

    def by_code(xs: Sequence[Any], captured: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        """Returns the cotangents by the code of `forward`."""
        rest = [None] * (len(forward.outputs) - len(cts))
        return transforms.pull_back(forward, [*xs, *captured], [*cts, *rest])

    if (rule.is_absent and spec.missing is None) or any(present(cts[n:])):
        found[:inputs] = by_code(xs, captured, cts)
        return found
    if any(unknown(captured)):
        # for what was captured, forward says what it is, the inputs being held
        found[spec.arity : inputs] = by_code(_held(xs), captured, cts)[spec.arity :]
    linear = unknown(xs)
    if not any(linear):
        return found
    given = fill_zeros(cts[:n], forward.output_types[:n], spec.smooth)
    if rule.is_absent:
        found[: spec.arity] = missing_cotangents(
            [*given, *operands[spec.arity :]], xs, spec.missing or ""
        )
        return found
    references = spec.pulled if backward is not None else spec.pushed
    computed = any(kind != "operand" for kind, _ in references)
    outs = _without_linear(transforms, forward, operands) if computed else ()
    values = look_up(references, operands, outs, n)
    if backward is not None:
        of_patterns = dict(zip(spec.patterns, variants, strict=True))
        backward = of_patterns.get(present(cts[:n]), backward)
        needed = needed_inputs(backward, tuple(pick(linear, spec.gives)))
        for i, number in enumerate(range(len(needed) - len(values), len(needed))):
            if _lacks(values[i]) and (not needed[number] or _only_ties(backward, number)):
                # nobody asks for it, but for the check of a forward call, which there is not
                t = backward.inputs[number]
                values[i] = broadcast_p(scalar(True, t.dtype), shape=t.shape, axes=())
    if any(map(_lacks, values)):
        # where the rule does not help, the code does: as of a linear function whose derivative is
        # written as the function itself, of the tangent
        try:
            if _calls_out(forward):
                raise TransposeError("it calls what is not traced")
            found[: spec.arity] = by_code(xs, _held(captured), cts[:n])[: spec.arity]
        except TransposeError as error:
            raise TransposeError(
                f"{spec.name}: it is transposed as a linear function, but its rule depends on the "
                f"values of what it would be linear in, and neither is its code linear:\n  {error}"
            ) from None
        return found
    if backward is not None:
        by_input = spread(transforms.replay(backward, [*given, *values]), spec.gives)
    else:
        tangents = [Linear(t) for t in pick(forward.inputs[: spec.arity], spec.takes)]
        unused = [None] * (0 if spec.lasting else n)
        back = transforms.pull_back(forward_mode, [*tangents, *values], [*unused, *given])
        by_input = spread(back[: len(tangents)], spec.takes)
    for i, ct in enumerate(by_input):
        if linear[i]:
            found[i] = ct
    return found


def _lacks(value: Any) -> bool:
    """Tells whether a value is not there in a linear program."""
    return value is None or isinstance(value, Linear)


def _calls_out(program: Program) -> bool:
    """Tells whether a program calls what is no program, which has no transpose of its own."""
    return any("external" in equation.primitive.tags for _, equation in program.nested())


def _only_ties(program: Program, number: int) -> bool:
    """Tells whether an input is nothing but what values are tied to."""
    uses = [e for e in program.equations if number in e.operands]
    return all(e.primitive is tied_p and e.operands[0] != number for e in uses) and (
        number not in program.outputs
    )


def _held(operands: Sequence[Any]) -> list[Any]:
    """Returns operands with zeros in the place of what is `Linear`."""
    return [zeros(x.type) if isinstance(x, Linear) else x for x in operands]


def _without_linear(transforms: Any, forward: Program, operands: Sequence[Any]) -> list[Any]:
    """Returns results and what is saved, None where they depend on `Linear` operands."""
    given = operands[: len(forward.inputs)]
    outs = transforms.replay(forward, _held(given))
    depends = varying(forward, unknown(given))
    return [None if moves else out for out, moves in zip(outs, depends, strict=True)]


# ---------------------------------------------------------------------------------- batching


def _batch(transforms: Any, size: int, operands: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    rule = Rule(**params)
    forward, backward, forward_mode, variants, spec, saved = rule
    inputs, n = len(forward.inputs), spec.outs
    if rule.is_linear:
        # what is batched here is run forwards
        program, mapped = transforms.batch(forward, size, tuple(dims[:inputs]))
        outs = transforms.replay(program, operands[:inputs])
        return outs, [0 if m else None for m in mapped]
    if spec.batch is not None and not any(present(dims[spec.arity : inputs])):
        types = types_of(operands[: spec.arity])
        program, out_dims = spec.batch.program(size, types, dims[: spec.arity])
        captured = [operands[i] for i in spec.batch.captured]
        outs = transforms.replay(program, [*operands[: spec.arity], *captured])
        if saved:
            later, mapped = transforms.batch(forward, size, tuple(dims[:inputs]))
            outs = [*outs, *transforms.replay(later, operands[:inputs])[n:]]
            out_dims = (*out_dims, *(0 if m else None for m in mapped[n:]))
        return outs, out_dims
    # what the results are linear in has their types
    spread = range(spec.arity - spec.linear, spec.arity) if any(present(dims)) else ()
    pairs = [*zip(operands, dims, strict=True)]
    operands = [_in_front(size, x, dim, i in spread) for i, (x, dim) in enumerate(pairs)]
    dims = tuple(0 if i in spread or dim is not None else None for i, dim in enumerate(dims))
    force = tuple(s or not spec.lasting for s in spec.smooth)
    force += (False,) * (len(forward.outputs) - n)
    program, mapped = transforms.batch(forward, size, dims[:inputs], force)
    out_dims = tuple(0 if m else None for m in mapped)
    back = partial(_batch_backward, transforms, size, dims, out_dims, spec)
    if forward_mode is not None:
        taken = *pick(dims[: spec.arity], spec.takes), *look_up(spec.pushed, dims, out_dims, n)
        every = (True,) * len(forward_mode.outputs)
        forward_mode, _ = transforms.batch(forward_mode, size, taken, every)
    rule = Rule(
        program,
        None if backward is None else back(backward),
        forward_mode,
        tuple(map(back, variants)),
        spec._replace(batch=None),
        saved,
    )
    outs = custom_p(*operands, **rule._asdict())
    return outs, out_dims[: len(outs)]


def _in_front(size: int, x: Any, dim: int | None, spread: bool) -> Any:
    """Returns an operand with its axis in front, which it gets there where it is to be spread."""
    if dim is None and spread:
        t = type_of(x)
        return broadcast_p(x, shape=(size, *t.shape), axes=tuple(range(1, t.ndim + 1)))
    return x if dim is None else moveaxis(x, dim, 0)


def _batch_backward(
    transforms: Any, size: int, dims: Any, out_dims: Any, spec: Spec, backward: Program
) -> Program:
    """Batches `backward`; what an input without the axis gets is summed over it."""
    force = present(pick(dims[: spec.arity], spec.gives))
    captured = look_up(spec.pulled, dims, out_dims, spec.outs)
    n = sum(spec.smooth)
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


custom_p = carrier(
    "custom",
    tags=["custom"],
    infer=_infer,
    lower=_lower,
    jvp=partial(_derivative, "jvp"),
    linearize=partial(_derivative, "linearize"),
    transpose=_transpose,
    batch=_batch,
    prune=_prune,
    cost=lambda operands, results, params: program_cost(params["forward"]),
    samples=_samples,
)
