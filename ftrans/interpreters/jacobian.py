"""Dense Jacobians: the pullback, or the tangent map, batched over the standard basis.

The basis is made inside the program from the number of each basis vector, so that in chunks no
more than a chunk of it ever exists.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.interpreters.base import batching, building, finish, replay
from ftrans.interpreters.batch import batch_in_chunks
from ftrans.interpreters.linearize import linearize
from ftrans.interpreters.transpose import transpose
from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives import broadcast_p, convert_p, eq_p, iota_p, reshape_p, scalar
from ftrans.primitives.axes import moveaxis, zeros

INDEX = ArrayType((), np.int32)


def _one_hot(index: Any, t: ArrayType) -> Any:
    """Returns the basis vector of type `t` whose element number `index` is one."""
    if t.size == 1:
        return broadcast_p(scalar(1, t.dtype), shape=t.shape, axes=())
    line = iota_p(shape=(t.size,), dtype=INDEX.dtype, axis=0)
    hot = eq_p(line, broadcast_p(index, shape=(t.size,), axes=()))
    return reshape_p(convert_p(hot, dtype=t.dtype), shape=t.shape)


def _over_basis(
    program: Program, t: ArrayType, constants: list[Any], chunk: int | None
) -> list[Any]:
    """Maps a program of a basis number and constants over the basis of type `t`."""
    size = t.size
    dims = (0, *(None for _ in constants))
    mapped, which = batch_in_chunks(program, size, dims, chunk)
    line = iota_p(shape=(size,), dtype=INDEX.dtype, axis=0)
    outs = replay(mapped, [line, *constants])
    return [
        out if m else broadcast_p(out, shape=(size, *type_of(out).shape), axes=_tail(out))
        for out, m in zip(outs, which, strict=True)
    ]


def _tail(x: Any) -> tuple[int, ...]:
    return tuple(range(1, type_of(x).ndim + 1))


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
    kinds = [t for t, a in zip(program.inputs, active, strict=True) if a]
    count = len(kinds)
    with building(program.name, program.inputs) as (frame, inputs):
        outs = replay(part.forward, inputs)
        residuals = outs[len(part.active) :]
        blocks: list[Any] = []
        position = {i: n for n, i in enumerate(i for i, a in enumerate(part.active) if a)}
        for index in range(outputs):
            t = program.output_types[index].update()
            if index not in position:
                blocks += [zeros(k.update(shape=t.shape + k.shape)) for k in kinds]
                continue
            chosen = tuple(i == position[index] for i in range(len(position)))
            linear = (True,) * count + (False,) * len(residuals)
            back, found = transpose(part.linear, linear, chosen)
            types = [INDEX, *(type_of(r) for r in residuals)]
            with building(back.name, types) as (inner, given):
                row = finish(inner, replay(back, [*given[1:], _one_hot(given[0], t)]))
            rows = iter(_over_basis(row, t, residuals, chunk))
            for has, k in zip(found, kinds, strict=True):
                shape = t.shape + k.shape
                blocks.append(
                    reshape_p(next(rows), shape=shape) if has else zeros(k.update(shape=shape))
                )
        return finish(frame, [*outs[outputs : len(part.active)], *blocks])


@batching
def jacobian_forward(
    program: Program, active: tuple[bool, ...], outputs: int, chunk: int | None
) -> Program:
    """Returns the program of Jacobians, by forward mode; as `jacobian_reverse`."""
    part = linearize(program, active)
    kinds = [t for t, a in zip(program.inputs, active, strict=True) if a]
    with building(program.name, program.inputs) as (frame, inputs):
        outs = replay(part.forward, inputs)
        residuals = outs[len(part.active) :]
        columns: list[list[Any]] = []
        for index, t in enumerate(kinds):
            types = [INDEX, *(type_of(r) for r in residuals)]
            with building(part.linear.name, types) as (inner, given):
                dots = [
                    _one_hot(given[0], k) if i == index else zeros(k) for i, k in enumerate(kinds)
                ]
                column = finish(inner, replay(part.linear, [*dots, *given[1:]]))
            found = iter(_over_basis(column, t, residuals, chunk))
            column_blocks = []
            for out_index, is_active in enumerate(part.active):
                out = program.output_types[out_index]
                block = next(found) if is_active else None
                if out_index >= outputs:
                    continue
                shape = out.shape + t.shape
                if block is None:
                    column_blocks.append(zeros(out.update(shape=shape)))
                else:
                    column_blocks.append(reshape_p(moveaxis_last(block), shape=shape))
            columns.append(column_blocks)
        blocks = [column[i] for i in range(outputs) for column in columns]
        return finish(frame, [*outs[outputs : len(part.active)], *blocks])


def moveaxis_last(x: Any) -> Any:
    """Moves the first axis to the end."""
    return moveaxis(x, 0, type_of(x).ndim - 1)
