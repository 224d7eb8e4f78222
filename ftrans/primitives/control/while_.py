"""`while` runs a program for as long as another one says so.

The operands are `(*cond_consts, *body_consts, *carry)`, the results the last carry. The params are
`cond: (*cond_consts, *carry) -> bool[]`, `body: (*body_consts, *carry) -> carry`, the counts
`cond_consts, body_consts`, and `bound`: the most steps that are taken, or None. With a bound, the
loop has a reverse mode: it is that of a scan whose steps do nothing once the condition fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import ShapeError, TransposeError
from ftrans.ir import ArrayType, Program, type_of
from ftrans.ir.stack import recording_place
from ftrans.primitives.arithmetic import add_p, mul_p
from ftrans.primitives.axes import expand, moveaxis
from ftrans.primitives.control.common import (
    Mask,
    fill_zeros,
    needed_inputs,
    pick,
    program_cost,
    program_from,
    restrict,
    spread,
    stable,
    types_of,
)
from ftrans.primitives.control.scan import linearize_scan
from ftrans.primitives.control.switch import select_lanes, switch_p
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import no_identity, normal
from ftrans.primitives.logic import lt_p
from ftrans.primitives.record import Cost, Primitive, Recursive, Sample
from ftrans.primitives.reduction import any_p
from ftrans.primitives.select import convert_p, stop_gradient_p


def _split(values: Sequence[Any], cond_consts: int, body_consts: int) -> tuple[list, list, list]:
    values = list(values)
    both = cond_consts + body_consts
    return values[:cond_consts], values[cond_consts:both], values[both:]


def _infer(
    *types: ArrayType,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
    bound: int | None,
) -> tuple[ArrayType, ...]:
    cc, bc, state = _split([t.update() for t in types], cond_consts, body_consts)
    if list(cond.inputs) != cc + state or list(body.inputs) != bc + state:
        raise ShapeError(f"while: cond takes {cond.inputs}, body {body.inputs}; given are {types}.")
    outs = [t.update() for t in body.output_types]
    if outs != state:
        raise ShapeError(f"while: the carry {state} became {outs}.")
    (answer,) = cond.output_types
    if answer.shape != () or answer.dtype != bool:
        raise ShapeError(f"while: the condition returns {answer}, not bool[].")
    return tuple(state)


def _lower(
    xp: Any,
    *arrays: Any,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
    bound: int | None,
) -> Any:
    cc, bc, state = _split(arrays, cond_consts, body_consts)
    if xp is np:
        steps = 0
        while (bound is None or steps < bound) and evaluate(np, cond, [*cc, *state])[0]:
            state = evaluate(np, body, [*bc, *state])
            steps += 1
        return state
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


def _carry_mask(body_mask: Mask, init: Mask, step: Any) -> Mask:
    return stable(init, lambda mask: step((*body_mask, *mask)))


def _jvp(
    transforms: Any,
    tangents: Any,
    *primals: Any,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
    bound: int | None,
) -> Any:
    active = tuple(t is not None for t in tangents)
    _, body_mask, init = (tuple(g) for g in _split(active, cond_consts, body_consts))
    mask = _carry_mask(body_mask, init, lambda m: transforms.jvp(body, m)[1])
    program, out_active = transforms.jvp(body, (*body_mask, *mask))
    cc, bc, state = _split(primals, cond_consts, body_consts)
    _, tb, ts = _split(tangents, cond_consts, body_consts)
    fixed, carried = body.inputs[:body_consts], body.inputs[body_consts:]
    groups = (fixed, pick(fixed, body_mask), carried, pick(carried, mask))
    with transforms.building(program.name, [t for g in groups for t in g]) as (frame, inputs):
        given = iter(inputs)
        c, ct, s, st = ([next(given) for _ in group] for group in groups)
        outs = transforms.replay(program, [*c, *s, *ct, *st])
        dots = spread(outs[len(carried) :], out_active)
        step = transforms.finish(frame, [*outs[: len(carried)], *fill_zeros(dots, carried, mask)])
    with transforms.building(cond.name, [*cond.inputs, *groups[3]]) as (frame, inputs):
        test = transforms.finish(frame, transforms.replay(cond, inputs[: len(cond.inputs)]))
    outs = while_p(
        *cc,
        *bc,
        *pick(tb, body_mask),
        *state,
        *fill_zeros(ts, carried, mask),
        cond=test,
        body=step,
        cond_consts=cond_consts,
        body_consts=body_consts + sum(body_mask),
        bound=bound,
    )
    return outs[: len(carried)], spread(outs[len(carried) :], mask)


def _linearize(
    transforms: Any, tangents: Any, *primals: Any, bound: int | None, **params: Any
) -> Any:
    if bound is not None:
        operands, scan_params = _as_scan(transforms, primals, bound=bound, **params)
        return linearize_scan(transforms, tangents, *operands, **scan_params)
    # Without a bound the number of steps, and so of residuals, is not known: the tangent loop runs
    # the primal one along. It can be applied to tangents, but not transposed.
    outs = while_p(*primals, bound=None, **params)
    _, dots = _jvp(transforms, tangents, *primals, bound=None, **params)
    return outs, dots


def _as_scan(
    transforms: Any,
    operands: Any,
    *,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
    bound: int,
) -> tuple[Any, dict[str, Any]]:
    """Returns operands and params of the scan that takes `bound` steps, most of them idle."""
    cc, bc, state = (types_of(g) for g in _split(operands, cond_consts, body_consts))
    with transforms.building(body.name, [*bc, *state]) as (frame, inputs):
        idle = transforms.finish(frame, inputs[body_consts:])
    with transforms.building(body.name, [*cc, *bc, *state]) as (frame, inputs):
        c, b, s = _split(inputs, cond_consts, body_consts)
        (going,) = transforms.replay(cond, [*c, *s])
        index = convert_p(going, dtype=np.dtype("int32"))
        step = transforms.finish(frame, switch_p(index, *b, *s, branches=(idle, body)))
    return operands, {
        "body": step,
        "consts": cond_consts + body_consts,
        "carry": len(state),
        "length": bound,
        "reverse": False,
        "unroll": 1,
    }


def _transpose(transforms: Any, cts: Any, *operands: Any, **params: Any) -> Any:
    raise TransposeError(
        f"while_loop: reverse mode needs to know how many steps there can be.\n"
        f"  while_loop at {recording_place()}\n"
        f"  Pass max_steps=n to while_loop, use scan or fori_loop with a fixed number of steps,\n"
        f"  or differentiate forward: func.jvp, func.jacfwd."
    )


def _batch(
    transforms: Any,
    size: int,
    operands: Any,
    dims: Any,
    *,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
    bound: int | None,
) -> Any:
    oc, ob, os = _split(operands, cond_consts, body_consts)
    dc, db, ds = _split(dims, cond_consts, body_consts)
    count = len(os)

    def inner(mask: Mask) -> tuple:
        return tuple(0 if m else None for m in mask)

    def step(mask: Mask) -> Mask:
        moved = transforms.batch(body, size, (*db, *inner(mask)))[1]
        # a condition that differs between examples makes all of the carry differ
        differs = transforms.batch(cond, size, (*dc, *inner(mask)))[1][0]
        return (True,) * count if differs else moved

    mask = stable(tuple(dim is not None for dim in ds), step)
    program, _ = transforms.batch(body, size, (*db, *inner(mask)), mask)
    test, (differs,) = transforms.batch(cond, size, (*dc, *inner(mask)))
    init = [
        (expand(x, size) if dim is None else moveaxis(x, dim, 0)) if m else x
        for x, dim, m in zip(os, ds, mask, strict=True)
    ]
    if not differs:
        outs = while_p(
            *oc,
            *ob,
            *init,
            cond=test,
            body=program,
            cond_consts=cond_consts,
            body_consts=body_consts,
            bound=bound,
        )
        return outs, [0 if m else None for m in mask]
    # The loop goes on while any example does; those that have finished keep their values.
    test_types = [*types_of(oc), *types_of(init)]
    with transforms.building(cond.name, test_types) as (frame, inputs):
        (lanes,) = transforms.replay(test, inputs)
        going = transforms.finish(frame, [any_p(lanes, axes=(0,))])
    step_types = [*types_of(oc), *types_of(ob), *types_of(init)]
    with transforms.building(body.name, step_types) as (frame, inputs):
        c, b, s = _split(inputs, cond_consts, body_consts)
        (lanes,) = transforms.replay(test, [*c, *s])
        taken = [*b, *s]
        if bound is not None:
            # In reverse mode a finished example must send no NaN back, to the consts neither: it
            # feeds the body values without tangents.
            dims = [*db, *inner(mask)]
            taken, dims = _without_finished(size, lanes, taken, dims)
            program, _ = transforms.batch(body, size, dims, mask)
        new = transforms.replay(program, taken)
        masked = transforms.finish(
            frame, [select_lanes(lanes, x, y) for x, y in zip(new, s, strict=True)]
        )
    outs = while_p(
        *oc,
        *oc,
        *ob,
        *init,
        cond=going,
        body=masked,
        cond_consts=cond_consts,
        body_consts=cond_consts + body_consts,
        bound=bound,
    )
    return outs, [0] * count


def _without_finished(
    size: int, lanes: Any, values: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Any], tuple[int | None, ...]]:
    """Cuts the tangents of the examples whose lane is false, in operands mapped at `dims`."""
    out, out_dims = [], []
    for x, dim in zip(values, dims, strict=True):
        if type_of(x).is_inexact:
            x, dim = (expand(x, size) if dim is None else moveaxis(x, dim, 0)), 0
            x = select_lanes(lanes, x, stop_gradient_p(x))
        out.append(x)
        out_dims.append(dim)
    return out, tuple(out_dims)


def _prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
    cond, body = params["cond"], params["body"]
    cond_consts, body_consts = params["cond_consts"], params["body_consts"]
    tested = needed_inputs(cond, (True,))
    kept = stable(
        tuple(u or t for u, t in zip(used, tested[cond_consts:], strict=True)),
        lambda mask: needed_inputs(body, mask)[body_consts:],
    )
    body_inputs = needed_inputs(body, kept)[:body_consts]
    inputs = (*tested[:cond_consts], *body_inputs, *kept)
    if all(inputs):
        return None
    pruned = {
        **params,
        "cond": restrict(transforms, cond, (*tested[:cond_consts], *kept), (True,)),
        "body": restrict(transforms, body, (*body_inputs, *kept), kept),
        "cond_consts": sum(tested[:cond_consts]),
        "body_consts": sum(body_inputs),
    }
    return tuple(pick(operands, inputs)), pruned, kept


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


while_p = Primitive(
    name="while",
    tags=frozenset({"control"}),
    kinds="",
    infer=_infer,
    lower=_lower,
    jvp=Recursive(_jvp),
    linearize=Recursive(_linearize),
    transpose=Recursive(_transpose),
    batch=Recursive(_batch),
    prune=_prune,
    rewrite=no_identity,
    cost=_cost,
    samples=_samples,
    source=None,
    multiple=True,
)
