"""Gradients, pullbacks and dense Jacobians: assembled of linearize, transpose and batch.

PyTorch's convention for complex numbers is applied here, at the boundary of the IR's plain
transposition: `vjp(v) = conj(transpose(conj(v)))`, so that the gradient of a real loss points
along steepest ascent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.interpreters.base import (
    batching,
    building,
    excerpt,
    finish,
    memoised,
    replay,
    simplify,
)
from ftrans.interpreters.batch import batch_in_chunks
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import linearize, split
from ftrans.interpreters.transpose import check_linear, pull_back, transpose
from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives import (
    Linear,
    broadcast_p,
    convert_p,
    eq_p,
    iota_p,
    mark_p,
    reshape_p,
    scalar,
    stop_gradient_p,
)
from ftrans.primitives.axes import expand, moveaxis, zeros
from ftrans.primitives.control.common import pick, spread, types_of
from ftrans.primitives.conversion import conjugate


def pull(linear: Program, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Returns the cotangents of what a program is linear in, `None` for zero.

    Args:
        linear: a program without `call`, from what it is linear in, followed by residuals.
        residuals: its residuals.
        cotangents: those of its outputs, `None` for zero.
    """
    count = len(linear.inputs) - len(residuals)
    operands = [*map(Linear, linear.inputs[:count]), *residuals]
    found = pull_back(linear, operands, [conjugate(ct) for ct in cotangents])
    return [conjugate(ct) for ct in found[:count]]


def _pull(linear: Program, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Is `pull`, with zeros where there are no cotangents."""
    found = zip(pull(linear, residuals, cotangents), linear.inputs, strict=False)
    return [zeros(t) if ct is None else ct for ct, t in found]


def _backwards(name: str, linear: Program, count: int) -> Program:
    """Returns the program of `_pull` for a program that is linear in its first `count` inputs."""
    others = linear.inputs[count:]
    with building(name, [*others, *linear.output_types]) as (frame, inputs):
        return finish(frame, _pull(linear, inputs[: len(others)], inputs[len(others) :]))


@memoised
def value_and_grad(program: Program, active: tuple[bool, ...], with_value: bool = True) -> Program:
    """Differentiates the first output of `program`, a real scalar.

    Args:
        program: any program whose first output is real, of rank zero.
        active: for each input whether its gradient is asked for.
        with_value: whether the first output is asked for as well.

    Returns:
        A program from the inputs to the outputs, followed by the gradients.
    """
    program = simplify(inline(program))
    with building(program.name, program.inputs) as (frame, inputs):
        outs, linear, residuals, out_active = split(program, inputs, active)
        one = broadcast_p(scalar(1, type_of(outs[0]).dtype), shape=(), axes=())
        seeds = [one if i == 0 else None for i, a in enumerate(out_active) if a]
        gradients = _pull(linear, residuals, seeds)
        return finish(frame, [*(outs if with_value else outs[1:]), *gradients])


@memoised
def pullback(program: Program, active: tuple[bool, ...]) -> Program:
    """Returns the backward part of `program`.

    Args:
        program: any program.
        active: for each input whether its cotangent is asked for.

    Returns:
        A program from the residuals of `linearize(program, active)`, followed by the cotangents of
        the active outputs, to the cotangents of the active inputs.
    """
    return _backwards(program.name, linearize(program, active).linear, sum(active))


@memoised
def linear_pullback(program: Program, count: int, zeros: tuple[bool, ...]) -> Program:
    """Transposes a program that is linear in its first `count` inputs.

    Args:
        program: any program.
        count: the number of linear inputs.
        zeros: which of the others are known to be zero.

    Returns:
        A program from the other inputs, followed by the cotangents of all outputs, to the
        cotangents of the first `count` inputs.
    """
    linear = tuple(i < count for i in range(len(program.inputs)))
    program = simplify(inline(program))
    check_linear(program, linear, zeros=zeros)
    return _backwards(f"transpose({program.name})", program, count)


@memoised
def detach_outputs(program: Program, start: int) -> Program:
    """Returns the program with the outputs from number `start` on held constant.

    Args:
        program: any program.
        start: the first output that has no tangent.
    """
    if start >= len(program.outputs):
        return program
    with building(program.name, program.inputs) as (frame, inputs):
        outs = replay(program, inputs)
        cut = [
            stop_gradient_p(mark_p(x, number=i)) if type_of(x).is_inexact else x
            for i, x in enumerate(outs[start:])
        ]
        return finish(frame, [*outs[:start], *cut])


@memoised
def attach_outputs(program: Program, start: int, stop: int) -> Program:
    """Undoes `detach_outputs` in what a derivative of such a program is, for derivatives of that.

    Args:
        program: its outputs from `start` to `stop` are those that were held constant.
        start: the first of them.
        stop: that after the last.
    """
    if start >= stop:
        return program
    made: dict[Any, Any] = {n: e for e, numbers, _ in program.numbered() for n in numbers}
    outs = list(program.outputs)
    for i in range(start, stop):
        cut = made.get(outs[i])
        held = made.get(cut.operands[0]) if cut and cut.primitive is stop_gradient_p else None
        if held and held.primitive is mark_p:
            outs[i] = held.operands[0]
    return excerpt(program, range(len(program.inputs)), program.numbered(), outs)


# ---------------------------------------------------------------------------------- dense Jacobians
#
# The pullback, or the tangent map, batched over the standard basis. That is made inside the program
# from the number of each basis vector, so that in chunks no more than a chunk of it ever exists.

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
        for index in range(outputs):
            t = program.output_types[index].update()
            rows: list[Any] = [None] * len(kinds)
            if part.active[index]:
                chosen = tuple(pick([i == index for i in range(len(part.active))], part.active))
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
