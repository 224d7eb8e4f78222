"""`while` runs a program for as long as another one says so.

The operands are `(*cond_consts, *body_consts, *carry)`, the results the last carry. The params are
`cond: (*cond_consts, *carry) -> bool[]`, `body: (*body_consts, *carry) -> carry`, the counts
`cond_consts, body_consts`, and `bound`: the most steps that are taken, or None. With a bound, the
loop has a reverse mode: it is that of a scan whose steps do nothing once the condition fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import ShapeError, TransposeError
from ftrans.ir import ArrayType, Program
from ftrans.ir.axes import names_in
from ftrans.ir.stack import recording_place
from ftrans.primitives.arithmetic import add_p, mul_p
from ftrans.primitives.axes import to_front
from ftrans.primitives.control.common import (
    Mask,
    grouped,
    needs,
    pick,
    present,
    program_cost,
    program_from,
    push_loop,
    restrict,
    split,
    stable,
    types_of,
)
from ftrans.primitives.control.scan import linearize_scan, transpose_scan
from ftrans.primitives.control.switch import cut_lanes, select_lanes, switch_p
from ftrans.primitives.conversion import convert_p
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.logic import lt_p
from ftrans.primitives.record import Cost, Sample
from ftrans.primitives.reduction import any_p


class _Loop(NamedTuple):
    """Is what the params of a loop say."""

    cond: Program
    body: Program
    cond_consts: int
    body_consts: int
    bound: int | None

    def split(self, values: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Splits operands into the constants of the condition, those of the body, and the carry."""
        return split(values, self.cond_consts, self.body_consts)

    def run(self, operands: Sequence[Any], **changed: Any) -> Any:
        """Records the loop, with some of its params changed."""
        return while_p(*operands, **self._replace(**changed)._asdict())


def _infer(*types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
    loop = _Loop(**params)
    cond, body = loop.cond, loop.body
    cc, bc, state = loop.split([t.update() for t in types])
    if list(cond.inputs) != cc + state or list(body.inputs) != bc + state:
        raise ShapeError(f"while: cond takes {cond.inputs}, body {body.inputs}; given are {types}.")
    outs = [t.update() for t in body.output_types]
    if outs != state:
        raise ShapeError(f"while: the carry {state} became {outs}.")
    (answer,) = cond.output_types
    if answer.shape != () or answer.dtype != bool:
        raise ShapeError(f"while: the condition returns {answer}, not bool[].")
    return tuple(state)


def _lower(xp: Any, *arrays: Any, **params: Any) -> Any:
    loop = _Loop(**params)
    cond, body, bound = loop.cond, loop.body, loop.bound
    cc, bc, state = loop.split(arrays)
    if xp is np:
        steps = 0
        while (bound is None or steps < bound) and evaluate(np, cond, [*cc, *state])[0]:
            state = evaluate(np, body, [*bc, *state])
            steps += 1
        return list(state)
    from jax import lax

    state = [xp.asarray(value) for value in state]
    if bound is None:
        return lax.while_loop(
            lambda s: evaluate(xp, cond, [*cc, *s])[0],
            lambda s: evaluate(xp, body, [*bc, *s]),
            state,
        )
    _, last = lax.while_loop(
        lambda s: (s[0] < bound) & evaluate(xp, cond, [*cc, *s[1]])[0],
        lambda s: (s[0] + 1, evaluate(xp, body, [*bc, *s[1]])),
        (xp.asarray(0, "int32"), state),
    )
    return last


def _jvp(transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    loop = _Loop(**params)
    cond, first = loop.cond, loop.cond_consts

    def run(step: Program, consts: int, carry: int, operands: list[Any]) -> Any:
        more = types_of(operands)[consts + len(cond.inputs) - first :]
        with transforms.building(cond.name, [*cond.inputs, *more]) as (frame, inputs):
            test = transforms.finish(frame, transforms.replay(cond, inputs[: len(cond.inputs)]))
        operands = [*primals[:first], *operands]
        return loop.run(operands, cond=test, body=step, body_consts=consts)

    return push_loop(
        transforms,
        tangents[first:],
        primals[first:],
        loop.body,
        loop.body_consts,
        len(cond.inputs) - first,
        run,
    )


def _linearize(transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    if params["bound"] is not None:
        return linearize_scan(transforms, tangents, *primals, **_as_scan(transforms, **params))
    # Without a bound the number of steps, and so of residuals, is not known: the tangent loop runs
    # the primal one along. It can be applied to tangents, but not transposed.
    outs = while_p(*primals, **params)
    _, dots = _jvp(transforms, tangents, *primals, **params)
    return outs, dots


def _as_scan(transforms: Any, **params: Any) -> dict[str, Any]:
    """Returns the params of the scan that takes `bound` steps, most of them idle."""
    loop = _Loop(**params)
    cc, bc, state = loop.split([*loop.cond.inputs[: loop.cond_consts], *loop.body.inputs])
    with grouped(transforms, loop.body.name, bc, state) as (frame, (_, s)):
        idle = transforms.finish(frame, s)
    with grouped(transforms, loop.body.name, cc, bc, state) as (frame, (c, b, s)):
        (going,) = transforms.replay(loop.cond, [*c, *s])
        index = convert_p(going, dtype=np.dtype("int32"))
        step = transforms.finish(frame, switch_p(index, *b, *s, branches=(idle, loop.body)))
    return {
        "body": step,
        "consts": loop.cond_consts + loop.body_consts,
        "carry": len(state),
        "length": loop.bound,
        "reverse": False,
        "unroll": 1,
    }


def _transpose(transforms: Any, cts: Any, *operands: Any, **params: Any) -> Any:
    if params["bound"] is not None:
        return transpose_scan(transforms, cts, *operands, **_as_scan(transforms, **params))
    raise TransposeError(
        f"while_loop: reverse mode needs to know how many steps there can be.\n"
        f"  while_loop at {recording_place()}\n"
        f"  Pass max_steps=n to while_loop, use scan or fori_loop with a fixed number of steps,\n"
        f"  or differentiate forward: func.jvp, func.jacfwd."
    )


def _batch(transforms: Any, size: int, operands: Any, dims: Any, **params: Any) -> Any:
    loop = _Loop(**params)
    oc, ob, os = loop.split(operands)
    dc, db, ds = loop.split(dims)
    count = len(os)

    def inner(mask: Mask) -> tuple:
        return tuple(0 if m else None for m in mask)

    def step(mask: Mask) -> Mask:
        moved = transforms.batch(loop.body, size, (*db, *inner(mask)))[1]
        # a condition that differs between examples makes all of the carry differ
        differs = transforms.batch(loop.cond, size, (*dc, *inner(mask)))[1][0]
        return (True,) * count if differs else moved

    mask = stable(present(ds), step)
    program, _ = transforms.batch(loop.body, size, (*db, *inner(mask)), mask)
    test, (differs,) = transforms.batch(loop.cond, size, (*dc, *inner(mask)))
    init = [to_front(size, x, dim) if m else x for x, dim, m in zip(os, ds, mask, strict=True)]
    if not differs:
        return loop.run([*oc, *ob, *init], cond=test, body=program), list(inner(mask))
    # The loop goes on while any example does; those that have finished keep their values.
    tc, tb, ts = types_of(oc), types_of(ob), types_of(init)
    with transforms.building(loop.cond.name, [*tc, *ts]) as (frame, inputs):
        (lanes,) = transforms.replay(test, inputs)
        going = transforms.finish(frame, [any_p(lanes, axes=(0,))])
    with grouped(transforms, loop.body.name, tc, tb, ts) as (frame, (c, b, s)):
        (lanes,) = transforms.replay(test, [*c, *s])
        taken = [*b, *s]
        if loop.bound is not None and transforms.axis not in names_in(loop.body):
            # In reverse mode a finished example must send no NaN back, to the consts neither.
            taken = cut_lanes(size, lanes, taken, [*db, *inner(mask)])
            program, _ = transforms.batch(loop.body, size, (0,) * len(taken), mask)
        new = transforms.replay(program, taken)
        masked = transforms.finish(
            frame, [select_lanes(lanes, x, y) for x, y in zip(new, s, strict=True)]
        )
    consts = loop.cond_consts + loop.body_consts
    outs = loop.run([*oc, *oc, *ob, *init], cond=going, body=masked, body_consts=consts)
    return outs, [0] * count


def _prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
    loop = _Loop(**params)
    cond, body = loop.cond, loop.body
    inputs = tuple(needs(params, used))
    tested, body_inputs, kept = loop.split(inputs)
    if all(inputs):
        return None
    pruned = loop._replace(
        cond=restrict(transforms, cond, (*tested, *kept), (True,)),
        body=restrict(transforms, body, (*body_inputs, *kept), kept),
        cond_consts=sum(tested),
        body_consts=sum(body_inputs),
    )
    return tuple(pick(operands, inputs)), pruned._asdict(), kept


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts one step where no bound is known, else all that there can be."""
    steps = params["bound"] or 1
    flops, nbytes = map(sum, zip(*map(program_cost, (params["cond"], params["body"])), strict=True))
    return Cost(flops * steps, nbytes * steps)


def _samples() -> list[Sample]:
    t, n = ArrayType((2,), "float64"), ArrayType((), "int32")
    cond = program_from(lambda stop, i, x: [lt_p(i, stop)], n, n, t)
    body = program_from(lambda w, i, x: [add_p(i, 1), mul_p(w, x)], t, n, t)
    operands = (np.int32(3), normal(2), np.int32(0), normal(2, seed=1))
    params = {"cond": cond, "body": body, "cond_consts": 1, "body_consts": 1}
    return [Sample(operands, {**params, "bound": bound}) for bound in (None, 5, 2)]


while_p = carrier(
    "while",
    infer=_infer,
    lower=_lower,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    prune=_prune,
    cost=_cost,
    samples=_samples,
)
