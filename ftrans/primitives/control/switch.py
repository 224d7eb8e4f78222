"""`switch` runs one of several programs, chosen by an index.

The operands are the index, an int32 scalar that is clamped to the branches there are, and the
operands of all branches. The params are `branches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, Program, type_of
from ftrans.ir.axes import names_in
from ftrans.primitives.arithmetic import add_p, mul_p, neg_p
from ftrans.primitives.axes import broadcast_p, to_front, zeros
from ftrans.primitives.control.common import (
    Mask,
    fill_zeros,
    grouped,
    needs,
    opposite,
    pick,
    present,
    program_cost,
    program_from,
    restrict,
    spread,
    union,
    unknown,
)
from ftrans.primitives.conversion import stop_gradient_p
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.logic import clamp_index, eq_p, select_p
from ftrans.primitives.record import Sample, scalar


def _infer(index: ArrayType, *types: ArrayType, branches: tuple) -> tuple[ArrayType, ...]:
    if index.shape != () or index.dtype != np.int32:
        raise DTypeError(f"switch: the index is {index}; it must be i32[].")
    given = tuple(t.update() for t in types)
    outs = [tuple(t.update() for t in branch.output_types) for branch in branches]
    for branch, found in zip(branches, outs, strict=True):
        if tuple(t.update() for t in branch.inputs) != given:
            raise ShapeError(f"switch: {branch.name} takes {branch.inputs}, not {types}.")
        if found != outs[0]:
            raise ShapeError(f"switch: branches return {outs[0]} and {found}.")
    return outs[0]


def _lower(xp: Any, index: Any, *arrays: Any, branches: tuple) -> Any:
    if xp is np:
        chosen = branches[min(max(int(index), 0), len(branches) - 1)]
        return evaluate(np, chosen, arrays)
    from jax import lax

    functions = [lambda *xs, b=branch: tuple(evaluate(xp, b, xs)) for branch in branches]
    return lax.switch(index, functions, *arrays)


def _with_outputs(transforms: Any, program: Program, have: Mask, want: Mask, types: Any) -> Any:
    """Returns `program` with zeros for the trailing outputs that it lacks.

    Its last `sum(have)` outputs are those marked in `have`; those marked in `want` are made.
    """
    first = len(program.outputs) - sum(have)
    with transforms.building(program.name, program.inputs) as (frame, inputs):
        outs = transforms.replay(program, inputs)
        tail = fill_zeros(spread(outs[first:], have), types, want)
        return transforms.finish(frame, outs[:first] + tail)


def _jvp(transforms: Any, tangents: Any, index: Any, *primals: Any, branches: tuple) -> Any:
    active = present(tangents[1:])
    results = [transforms.jvp(branch, active) for branch in branches]
    out_active = union(*(mask for _, mask in results))
    types = branches[0].output_types
    joined = tuple(
        _with_outputs(transforms, program, mask, out_active, types) for program, mask in results
    )
    outs = switch_p(index, *primals, *pick(tangents[1:], active), branches=joined)
    return outs[: len(types)], spread(outs[len(types) :], out_active)


def _linearize(transforms: Any, tangents: Any, index: Any, *primals: Any, branches: tuple) -> Any:
    active = present(tangents[1:])
    parts = [transforms.linearize(branch, active) for branch in branches]
    out_active = union(*(part.active for part in parts))
    types = branches[0].output_types
    # Residuals that are operands are there already. For the others branches share places, one for
    # residuals of one type: only one branch runs.
    atoms = [part.forward.outputs[len(types) :] for part in parts]
    given_at = range(len(primals))
    shared = sorted({a for mine in atoms for a in mine if a in given_at})
    places: list[ArrayType] = []
    taken: list[dict[Any, int]] = []
    for part, residuals in zip(parts, atoms, strict=True):
        free = list(range(len(places)))
        mine: dict[Any, int] = {}
        for atom in residuals:
            if atom in given_at:
                continue
            t = part.forward.type_of(atom)
            found = next((i for i in free if places[i] is t), None)
            if found is None:
                found = len(places)
                places.append(t.update())
            else:
                free.remove(found)
            mine[atom] = found
        taken.append(mine)
    forwards, linears = [], []
    tangent_types = pick(branches[0].inputs, active)
    shared_types = [branches[0].inputs[i] for i in shared]
    for part, residuals, mine in zip(parts, atoms, taken, strict=True):
        with transforms.building(part.forward.name, part.forward.inputs) as (frame, inputs):
            outs = transforms.replay(part.forward, inputs)
            found = dict(zip(residuals, outs[len(types) :], strict=True))
            given = {place: found[atom] for atom, place in mine.items()}
            filled = [given[i] if i in given else zeros(t) for i, t in enumerate(places)]
            forwards.append(transforms.finish(frame, outs[: len(types)] + filled))
        groups = (tangent_types, shared_types, places)
        with grouped(transforms, part.linear.name, *groups) as (frame, (ts, given, saved)):
            operands = [saved[mine[a]] if a in mine else given[shared.index(a)] for a in residuals]
            outs = transforms.replay(part.linear, [*ts, *operands])
            filled = fill_zeros(spread(outs, part.active), types, out_active)
            linears.append(transforms.finish(frame, filled))
    outs = switch_p(index, *primals, branches=tuple(forwards))
    operands = [*pick(tangents[1:], active), *(primals[i] for i in shared), *outs[len(types) :]]
    dots = switch_p(index, *operands, branches=tuple(linears))
    return outs[: len(types)], spread(dots, out_active)


def _transpose(transforms: Any, cts: Any, index: Any, *operands: Any, branches: tuple) -> Any:
    linear, nonzero = unknown(operands), present(cts)
    results = [transforms.transpose(branch, linear, nonzero) for branch in branches]
    have = union(*(mask for _, mask in results))
    types = pick(branches[0].inputs, linear)
    joined = tuple(
        _with_outputs(transforms, program, mask, have, types) for program, mask in results
    )
    constants = pick(operands, opposite(linear))
    found = switch_p(index, *constants, *pick(cts, nonzero), branches=joined)
    return [None, *spread(spread(found, have), linear)]


def select_lanes(mask: Any, x: Any, y: Any) -> Any:
    """Chooses between whole examples: `mask` is bool[n], `x` and `y` have n in front."""
    shape = type_of(x).shape
    if len(shape) > 1:
        mask = broadcast_p(mask, shape=shape, axes=(0,))
    return select_p(mask, x, y)


def cut_lanes(
    size: int, lanes: Any, values: Sequence[Any], dims: Sequence[int | None]
) -> list[Any]:
    """Gives operands the mapped axis in front, and examples whose lane is false no tangents."""
    front = [to_front(size, x, dim) for x, dim in zip(values, dims, strict=True)]
    return [
        select_lanes(lanes, x, stop_gradient_p(x)) if type_of(x).is_inexact else x for x in front
    ]


def _batch(
    transforms: Any, size: int, operands: Any, dims: Any, *, branches: tuple
) -> tuple[Any, Any]:
    index, *rest = operands
    if dims[0] is None:
        mapped = [transforms.batch(branch, size, tuple(dims[1:]))[1] for branch in branches]
        force = union(*mapped)
        joined = tuple(
            transforms.batch(branch, size, tuple(dims[1:]), force)[0] for branch in branches
        )
        outs = switch_p(index, *rest, branches=joined)
        return outs, [0 if m else None for m in force]
    # The index differs between examples: all branches run and the results are selected. Examples
    # that do not take a branch feed it values without tangents, so no NaN comes back from it.
    index = clamp_index(index, len(branches))
    outs: list[Any] = []
    for number, branch in enumerate(branches):
        lanes = eq_p(index, scalar(number, np.int32))
        masked = list(map(to_front, repeat(size), rest, dims[1:]))
        if transforms.axis not in names_in(branch):  # else others' values count in each of them
            masked = cut_lanes(size, lanes, rest, dims[1:])
        every = (True,) * len(branch.outputs)
        program, _ = transforms.batch(branch, size, (0,) * len(rest), every)
        found = transforms.replay(program, masked)
        outs = [*map(select_lanes, repeat(lanes), found, outs)] if outs else found
    return outs, [0] * len(outs)


def _prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
    branches = params["branches"]
    needed = tuple(needs(params, used))[1:]
    if all(used) and all(needed):
        return None
    kept = tuple(restrict(transforms, branch, needed, used) for branch in branches)
    return (operands[0], *pick(operands[1:], needed)), {"branches": kept}, used


def _samples() -> list[Sample]:
    t = ArrayType((3,), "float64")
    branches = (
        program_from(lambda x, y: [mul_p(x, y), x], t, t),
        program_from(lambda x, y: [neg_p(y), zeros(t)], t, t),
        program_from(lambda x, y: [add_p(x, y), y], t, t),
    )
    return [
        Sample((np.int32(i), normal(3), normal(3, seed=1)), {"branches": branches})
        for i in (0, 1, 5)
    ]


switch_p = carrier(
    "switch",
    infer=_infer,
    lower=_lower,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    prune=_prune,
    cost=lambda operands, results, params: max(map(program_cost, params["branches"])),
    samples=_samples,
)
