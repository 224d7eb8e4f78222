"""`scan` runs a program a fixed number of times, threading a carry and stacking results.

The body is `(*consts, *carry, *elements) -> (*carry, *results)`; the operands are
`(*consts, *init, *xs)`, and the results `(*carry, *ys)`, with xs and ys stacked along axis 0.
The params are `body, consts, carry` (two counts), `length, reverse, unroll`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, Program
from ftrans.primitives.arithmetic import accumulate, add_p, mul_p
from ftrans.primitives.axes import moveaxis, to_front, zeros
from ftrans.primitives.control.common import (
    Mask,
    carried,
    fill_zeros,
    grouped,
    merged,
    needs,
    opposite,
    pick,
    present,
    program_cost,
    program_from,
    push_loop,
    restrict,
    split,
    spread,
    stable,
    unknown,
    varying,
)
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.record import Cost, Sample


class _Loop(NamedTuple):
    """Is what the params of a loop say."""

    body: Program
    consts: int
    carry: int
    length: int
    reverse: bool
    unroll: int

    def split(self, values: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Splits operands into the constants, the carry, and what the loop goes through."""
        return split(values, self.consts, self.carry)

    def run(self, operands: Sequence[Any], **changed: Any) -> Any:
        """Records the loop, with some of its params changed."""
        return scan_p(*operands, **self._replace(**changed)._asdict())


def _infer(*types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
    body, consts, carry, length, *_ = loop = _Loop(**params)
    _, _, xs = loop.split(types)
    for t in xs:
        if not t.shape or t.shape[0] != length:
            raise ShapeError(f"scan: {t} is not stacked {length} times along axis 0.")
    given = [*types[: consts + carry], *(x.update(shape=x.shape[1:]) for x in xs)]
    if [t.update() for t in given] != [t.update() for t in body.inputs]:
        raise ShapeError(f"scan: the body takes {body.inputs}, not {tuple(given)}.")
    outs = [t.update() for t in body.output_types]
    if outs[:carry] != [t.update() for t in body.inputs[consts : consts + carry]]:
        raise ShapeError(
            f"scan: the carry {body.inputs[consts : consts + carry]} became {outs[:carry]}."
        )
    return (*outs[:carry], *(t.update(shape=(length, *t.shape)) for t in outs[carry:]))


def _lower(xp: Any, *arrays: Any, **params: Any) -> Any:
    body, _, carry, length, reverse, unroll = loop = _Loop(**params)
    fixed, state, xs = loop.split(arrays)
    if xp is np:
        types = body.output_types[carry:]
        ys = [np.empty((length, *t.shape), t.dtype) for t in types]
        for i in reversed(range(length)) if reverse else range(length):
            outs = evaluate(np, body, [*fixed, *state, *(x[i] for x in xs)])
            state = outs[:carry]
            for y, value in zip(ys, outs[carry:], strict=True):
                y[i] = value
        return [*state, *ys]
    from jax import lax

    def step(state: Any, elements: Any) -> Any:
        outs = evaluate(xp, body, [*fixed, *state, *elements])
        return outs[:carry], outs[carry:]

    state = [xp.asarray(value) for value in state]
    last, ys = lax.scan(step, state, xs, length=length, reverse=reverse, unroll=unroll)
    return [*last, *ys]


def _jvp(transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    loop = _Loop(**params)

    def run(step: Program, consts: int, carry: int, operands: list[Any]) -> Any:
        return loop.run(operands, body=step, consts=consts, carry=carry)

    return push_loop(transforms, tangents, primals, loop.body, loop.consts, loop.carry, run)


def linearize_scan(transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    """Splits a scan into one that also stacks residuals, and a linear one that reads them."""
    body, consts, carry, *_ = loop = _Loop(**params)
    const_mask, init_mask, xs_mask = loop.split(present(tangents))
    carry_mask = stable(
        init_mask,
        lambda mask: transforms.linearize(body, (*const_mask, *mask, *xs_mask)).active[:carry],
    )
    part = transforms.linearize(body, (*const_mask, *carry_mask, *xs_mask))
    outs_count = len(part.active)
    ys_mask = part.active[carry:]
    pc, _, px = loop.split(primals)

    # Residuals that depend on consts alone are computed once, before the loop; those that are
    # elements of xs or of ys are stacked already.
    moving = (False,) * consts + (True,) * (len(primals) - consts)
    varies = varying(part.forward, moving)[outs_count:]
    residual_atoms = part.forward.outputs[outs_count:]
    ys_at = {atom: i for i, atom in enumerate(part.forward.outputs[carry:outs_count], carry)}
    xs_at = range(consts + carry, len(primals))
    stacked = tuple(
        v and a not in xs_at and a not in ys_at for v, a in zip(varies, residual_atoms, strict=True)
    )
    every = (True,) * len(primals)
    forward = restrict(transforms, part.forward, every, (True,) * outs_count + stacked)
    outs = loop.run(primals, body=forward)
    stacks = iter(outs[outs_count:])
    invariant_mask = opposite(varies)
    hoisted = (False,) * outs_count + invariant_mask
    invariants = transforms.replay(
        restrict(transforms, part.forward, opposite(moving), hoisted), pc
    )
    per_step = []
    for atom in pick(residual_atoms, varies):
        if atom in xs_at:
            per_step.append(px[xs_at.index(atom)])
        else:
            per_step.append(outs[ys_at[atom]] if atom in ys_at else next(stacks))

    # The linear loop: consts are their tangents and invariants, elements theirs and residuals.
    fixed, state, elements = loop.split(body.inputs)
    residual_types = part.linear.inputs[sum((*const_mask, *carry_mask, *xs_mask)) :]
    groups = (
        pick(fixed, const_mask),
        pick(residual_types, invariant_mask),
        pick(state, carry_mask),
        pick(elements, xs_mask),
        pick(residual_types, varies),
    )
    with grouped(transforms, part.linear.name, *groups) as (frame, (ct, inv, st, et, res)):
        residuals = merged(res, inv, varies)
        dots = spread(transforms.replay(part.linear, [*ct, *st, *et, *residuals]), part.active)
        step = transforms.finish(
            frame, [*fill_zeros(dots[:carry], state, carry_mask), *pick(dots[carry:], ys_mask)]
        )
    tc, ts, tx = loop.split(tangents)
    front = [*pick(tc, const_mask), *invariants, *fill_zeros(ts, state, carry_mask)]
    dots = loop.run(
        [*front, *pick(tx, xs_mask), *per_step],
        body=step,
        consts=len(groups[0]) + len(groups[1]),
        carry=len(groups[2]),
    )
    carried = spread(dots[: sum(carry_mask)], carry_mask)
    return outs[:outs_count], [*carried, *spread(dots[sum(carry_mask) :], ys_mask)]


def transpose_scan(transforms: Any, cts: Any, *operands: Any, **params: Any) -> Any:
    """Runs a scan the other way, after what is not linear in it has been run as it is."""
    body, consts, carry, _, reverse, _ = loop = _Loop(**params)
    const_mask, init_mask, xs_mask = loop.split(unknown(operands))
    carry_mask = carried(body, unknown(operands), consts, carry)
    fixed, state, elements = loop.split(body.inputs)
    constant_c = pick(operands[:consts], opposite(const_mask))
    constant_x = pick(operands[consts + carry :], opposite(xs_mask))
    kept, constant_s = opposite(carry_mask), []
    if any(kept):
        # Carried values that are not linear are computed first, and their history kept.
        given = (*opposite(const_mask), *kept, *opposite(xs_mask))
        histories = _histories(transforms, body, given, kept, len(constant_c))
        counts = {"consts": len(constant_c), "carry": sum(kept)}
        ran = loop.run(pick(operands, given), body=histories, **counts)
        constant_s = list(ran[sum(kept) :])
    ct_carry = fill_zeros(cts[:carry], state, carry_mask)
    ys_mask = present(cts[carry:])
    linear = (*const_mask, *carry_mask, *xs_mask)
    program, found = transforms.transpose(body, linear, (*carry_mask, *ys_mask))

    # The loop runs the other way; its carry holds the cotangents of the carry and those of the
    # consts, which are summed up.
    groups = (
        pick(fixed, opposite(const_mask)),
        pick(state, carry_mask),
        pick(fixed, const_mask),
        pick(state, kept),
        pick(elements, opposite(xs_mask)),
        pick(body.output_types[carry:], ys_mask),
    )
    with grouped(transforms, program.name, *groups) as (frame, (c, ct_s, sums, s, e, ct_y)):
        got = spread(transforms.replay(program, [*c, *s, *e, *ct_s, *ct_y]), found)
        got_c, got_s, got_x = split(got, len(sums), len(ct_s))
        step = transforms.finish(
            frame,
            [
                *fill_zeros(got_s, groups[1], (True,) * len(got_s)),
                *(accumulate(total, ct) for total, ct in zip(sums, got_c, strict=True)),
                *fill_zeros(got_x, pick(elements, xs_mask), (True,) * len(got_x)),
            ],
        )
    front = [*constant_c, *ct_carry, *map(zeros, groups[2]), *constant_s, *constant_x]
    results = loop.run(
        [*front, *pick(cts[carry:], ys_mask)],
        body=step,
        consts=len(groups[0]),
        carry=len(groups[1]) + len(groups[2]),
        reverse=not reverse,
    )
    ct_s, ct_c, ct_x = split(results, len(groups[1]), len(groups[2]))
    ct_s = [
        ct if wanted else None
        for ct, wanted in zip(spread(ct_s, carry_mask), init_mask, strict=True)
    ]
    return [*spread(ct_c, const_mask), *ct_s, *spread(ct_x, xs_mask)]


def _histories(transforms: Any, body: Program, inputs: Mask, carry: Mask, consts: int) -> Program:
    """Returns the part of a body that is not linear; it also returns the carry it is given."""
    rest = (False,) * (len(body.outputs) - len(carry))
    part = restrict(transforms, body, inputs, (*carry, *rest))
    with transforms.building(part.name, part.inputs) as (frame, given):
        _, start, _ = split(given, consts, sum(carry))
        return transforms.finish(frame, [*transforms.replay(part, given), *start])


def _batch(transforms: Any, size: int, operands: Any, dims: Any, **params: Any) -> Any:
    body, _, carry, *_ = loop = _Loop(**params)
    oc, os, ox = loop.split(operands)
    dc, ds, dx = loop.split(dims)
    dx_inner = [None if dim is None else 0 for dim in dx]

    def inner(mask: Mask) -> tuple:
        return (*dc, *(0 if m else None for m in mask), *dx_inner)

    mapped = stable(present(ds), lambda mask: transforms.batch(body, size, inner(mask))[1][:carry])
    force = (*mapped, *(False,) * (len(body.outputs) - carry))
    program, out_mapped = transforms.batch(body, size, inner(mapped), force)
    init = [to_front(size, x, dim) if m else x for x, dim, m in zip(os, ds, mapped, strict=True)]
    xs = [x if dim is None else moveaxis(x, dim, 1) for x, dim in zip(ox, dx, strict=True)]
    outs = loop.run([*oc, *init, *xs], body=program)
    return outs, [
        *(0 if m else None for m in mapped),
        *(1 if m else None for m in out_mapped[carry:]),
    ]


def _prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
    loop, inputs = _Loop(**params), tuple(needs(params, used))
    c, kept, _ = loop.split(inputs)
    outputs = (*kept, *used[loop.carry :])
    if all(inputs) and all(outputs):
        return None
    body = restrict(transforms, loop.body, inputs, outputs)
    pruned = loop._replace(body=body, consts=sum(c), carry=sum(kept))._asdict()
    return tuple(pick(operands, inputs)), pruned, outputs


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    cost = program_cost(params["body"])
    return Cost(cost.flops * params["length"], cost.nbytes * params["length"])


def _samples() -> list[Sample]:
    t, n = ArrayType((2,), "float64"), ArrayType((), "int32")
    body = program_from(lambda w, x, e: [add_p(mul_p(w, x), e), mul_p(x, e)], t, t, t)
    counted = program_from(lambda w, i, x: [add_p(i, 1), mul_p(w, x), x], t, n, t)
    w, x = normal(2), normal(2, seed=1)
    plain = {"body": body, "consts": 1, "carry": 1, "length": 3, "reverse": False, "unroll": 1}
    return [
        Sample((w, x, normal(3, 2)), plain),
        Sample((w, x, normal(3, 2)), {**plain, "reverse": True}),
        Sample((w, np.int32(0), x), {**plain, "body": counted, "carry": 2}),
        Sample((w, x, normal(0, 2)), {**plain, "length": 0}),
    ]


scan_p = carrier(
    "scan",
    infer=_infer,
    lower=_lower,
    jvp=_jvp,
    linearize=linearize_scan,
    transpose=transpose_scan,
    batch=_batch,
    prune=_prune,
    cost=_cost,
    samples=_samples,
)
