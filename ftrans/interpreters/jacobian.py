"""Dense Jacobians: the pullback, or the tangent map, batched over the standard basis.

The basis is made inside the program from the number of each basis vector, so that in chunks no
more than a chunk of it ever exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.interpreters.base import batching, building, finish, replay
from ftrans.interpreters.batch import batch_in_chunks
from ftrans.interpreters.jvp import linearize
from ftrans.interpreters.transpose import transpose
from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives import broadcast_p, convert_p, eq_p, iota_p, reshape_p, scalar
from ftrans.primitives.axes import expand, moveaxis, zeros
from ftrans.primitives.control.common import pick, spread, types_of

INDEX = ArrayType((), np.int32)


def _one_hot(index: Any, t: ArrayType) -> Any:
    """Returns the basis vector of type `t` whose element number `index` is one."""
    if t.size == 1:
        return broadcast_p(scalar(1, t.dtype), shape=t.shape, axes=())
    line = iota_p(shape=(t.size,), dtype=INDEX.dtype, axis=0)
    hot = eq_p(line, broadcast_p(index, shape=(t.size,), axes=()))
    return reshape_p(convert_p(hot, dtype=t.dtype), shape=t.shape)


def _over_basis(
    name: str,
    t: ArrayType,
    residuals: list[Any],
    chunk: int | None,
    apply: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """Maps a function of a vector and the residuals over the basis of type `t`."""
    with building(name, [INDEX, *types_of(residuals)]) as (frame, given):
        row = finish(frame, apply(_one_hot(given[0], t), given[1:]))
    mapped, which = batch_in_chunks(row, t.size, (0, *(None for _ in residuals)), chunk)
    line = iota_p(shape=(t.size,), dtype=INDEX.dtype, axis=0)
    outs = replay(mapped, [line, *residuals])
    return [out if m else expand(out, t.size) for out, m in zip(outs, which, strict=True)]


def _shaped(block: Any, type: ArrayType) -> Any:
    """Returns a Jacobian in its shape; `None` is zero."""
    return zeros(type) if block is None else reshape_p(block, shape=type.shape)


@batching
def jacobian_reverse(
    program: Program, active: tuple[bool, ...], outputs: int, chunk: int | None
) -> Program:
    """Returns the program of Jacobians, by reverse mode.

    Args:
        program: any program, real in its active inputs and first outputs.
        active: for each input whether it is differentiated.
        outputs: how many of the first outputs are differentiated.
        chunk: the most rows at once; None for all.

    Returns:
        A program from the inputs to the outputs that are not differentiated, followed for each of
        the others by its Jacobian with respect to each active input, of shape `(*output, *input)`.
    """
    part = linearize(program, active)
    kinds = pick(program.inputs, active)
    with building(program.name, program.inputs) as (frame, inputs):
        outs = replay(part.forward, inputs)
        residuals = outs[len(part.active) :]
        blocks: list[Any] = []
        position = {i: n for n, i in enumerate(i for i, a in enumerate(part.active) if a)}
        for index in range(outputs):
            t = program.output_types[index].update()
            rows: list[Any] = [None] * len(kinds)
            if index in position:
                chosen = tuple(i == position[index] for i in range(len(position)))
                linear = (True,) * len(kinds) + (False,) * len(residuals)
                back, found = transpose(part.linear, linear, chosen)
                pull = lambda ct, given, back=back: replay(back, [*given, ct])  # noqa: E731
                rows = spread(_over_basis(back.name, t, residuals, chunk, pull), found)
            types = [k.update(shape=t.shape + k.shape) for k in kinds]
            blocks += map(_shaped, rows, types)
        return finish(frame, [*outs[outputs : len(part.active)], *blocks])


@batching
def jacobian_forward(
    program: Program, active: tuple[bool, ...], outputs: int, chunk: int | None
) -> Program:
    """Returns the program of Jacobians, by forward mode; as `jacobian_reverse`."""
    part = linearize(program, active)
    kinds = pick(program.inputs, active)
    differentiated = program.output_types[:outputs]
    with building(program.name, program.inputs) as (frame, inputs):
        outs = replay(part.forward, inputs)
        residuals = outs[len(part.active) :]
        columns: list[list[Any]] = []
        for index, t in enumerate(kinds):

            def push(dot: Any, given: list[Any], index: int = index) -> list[Any]:
                dots = [dot if i == index else zeros(k) for i, k in enumerate(kinds)]
                return replay(part.linear, [*dots, *given])

            found = _over_basis(part.linear.name, t, residuals, chunk, push)
            last = [moveaxis(block, 0, type_of(block).ndim - 1) for block in found]
            types = [out.update(shape=out.shape + t.shape) for out in differentiated]
            columns.append([*map(_shaped, spread(last, part.active), types)])
        blocks = [column[i] for i in range(outputs) for column in columns]
        return finish(frame, [*outs[outputs : len(part.active)], *blocks])
