"""Batching: a program over single examples becomes one over many at once.

In chunks it is a scan over slices of the mapped axis, which bounds the memory.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

from ftrans.interpreters.base import batching, building, finish, memoised, replay, walk
from ftrans.interpreters.builder import transforms
from ftrans.interpreters.inline import inline
from ftrans.ir import ArrayType, Program, bind, type_of
from ftrans.ir.axes import names_in, names_of
from ftrans.primitives import concatenate_p, reshape_p, scan_p
from ftrans.primitives.axes import expand, moveaxis
from ftrans.primitives.control.common import Mask, merged, opposite, pick, present
from ftrans.primitives.record import Absent, Recursive
from ftrans.primitives.shape import part


@batching
def batch(
    program: Program,
    size: int,
    dims: tuple[int | None, ...],
    force: tuple[bool, ...] | None = None,
    name: Hashable = None,
) -> tuple[Program, tuple[bool, ...]]:
    """Maps `program` over one axis of some of its inputs.

    Args:
        program: any program.
        size: the size of the mapped axis.
        dims: for each input where the mapped axis sits, `None` where it has none.
        force: for each output whether it must have the axis even where it does not depend on it.
        name: that of the axis: what goes over it in the program is resolved.

    Returns:
        The program, whose mapped outputs have the axis in front; and which outputs are mapped.
    """
    program = inline(program)
    with building(program.name, _mapped_types(program, size, dims)) as (frame, inputs):
        pairs = walk(
            program,
            list(zip(inputs, dims, strict=True)),
            lambda equation, taken: _apply(equation, size, taken, name),
            lambda literal: (literal, None),
        )
        outs, mapped = [], []
        for index, (out, dim) in enumerate(pairs):
            if dim is not None:
                out = moveaxis(out, dim, 0)
            elif force is not None and force[index]:
                out, dim = expand(out, size), 0
            outs.append(out)
            mapped.append(dim is not None)
        result = finish(frame, outs)
    return result, tuple(mapped)


def _apply(equation: Any, size: int, pairs: list[tuple[Any, int | None]], name: Hashable) -> Any:
    primitive, params = equation.primitive, equation.params
    operands = [value for value, _ in pairs]
    dims = [dim for _, dim in pairs]
    own = name is not None and name in names_of(params)
    if all(dim is None for dim in dims) and not own:
        return [(out, None) for out in bind(primitive, operands, params)]
    rule = primitive.batch
    if isinstance(rule, Absent):
        raise primitive.absent("batch", rule.reason)
    if isinstance(rule, Recursive):
        by = _along(name) if own else transforms
        outs, out_dims = rule.rule(by, size, operands, dims, **params)
    else:
        outs, out_dims = rule(size, operands, dims, **params)
    return list(zip(outs, out_dims, strict=True)) if primitive.multiple else [(outs, out_dims)]


@functools.lru_cache(64)
def _along(name: Hashable) -> Any:
    """Returns the interpreters for rules of what goes over an axis that is being mapped."""
    named = functools.partial(batch, name=name)
    return SimpleNamespace(**{**vars(transforms), "batch": named, "axis": name})


@batching
def batch_in_chunks(
    program: Program,
    size: int,
    dims: tuple[int | None, ...],
    chunk: int | None,
    name: Hashable = None,
) -> tuple[Program, tuple[bool, ...]]:
    """Maps `program` over an axis, at most `chunk` examples at a time.

    Args:
        program: any program.
        size: the size of the mapped axis.
        dims: for each input where the mapped axis sits, `None` where it has none.
        chunk: the most examples at once; None for all.
        name: as for `batch`; nothing goes over an axis that is in chunks.

    Returns:
        The program, whose mapped outputs have the axis in front; and which outputs are mapped.
    """
    if chunk is None or chunk >= size:
        return batch(program, size, dims, name=name if name in names_in(program) else None)
    count, rest = divmod(size, chunk)
    mapped = present(dims)
    every = (True,) * len(program.outputs)
    fronts = tuple(None if dim is None else 0 for dim in dims)
    with building(program.name, _mapped_types(program, size, dims)) as (frame, inputs):
        fixed = pick(inputs, opposite(mapped))
        moving = [
            moveaxis(x, dim, 0) for x, dim in zip(inputs, dims, strict=True) if dim is not None
        ]
        body, _ = batch(program, chunk, fronts, every)
        body = _consts_first(body, mapped)
        stacked = [
            reshape_p(part(x, 0, 0, count * chunk), shape=(count, chunk, *type_of(x).shape[1:]))
            for x in moving
        ]
        found = scan_p(
            *fixed,
            *stacked,
            body=body,
            consts=len(fixed),
            carry=0,
            length=count,
            reverse=False,
            unroll=1,
        )
        outs = [reshape_p(y, shape=(count * chunk, *type_of(y).shape[2:])) for y in found]
        if rest:
            last, _ = batch(program, rest, fronts, every)
            rows = [part(x, 0, count * chunk, size) for x in moving]
            tail = replay(last, merged(rows, fixed, mapped))
            outs = [concatenate_p(y, z, axis=0) for y, z in zip(outs, tail, strict=True)]
        return finish(frame, outs), every


def _mapped_types(program: Program, size: int, dims: tuple[int | None, ...]) -> list[ArrayType]:
    return [
        t if dim is None else t.update(shape=(*t.shape[:dim], size, *t.shape[dim:]))
        for t, dim in zip(program.inputs, dims, strict=True)
    ]


def _consts_first(body: Program, mapped: Mask) -> Program:
    """Reorders the inputs of a body as scan takes them: what is not mapped comes first."""
    groups = pick(body.inputs, opposite(mapped)), pick(body.inputs, mapped)
    with building(body.name, [*groups[0], *groups[1]]) as (frame, inputs):
        count = len(groups[0])
        return finish(frame, replay(body, merged(inputs[count:], inputs[:count], mapped)))


@memoised
def place_outputs(
    program: Program, size: int, mapped: tuple[bool, ...], dims: tuple[int | None, ...]
) -> Program:
    """Returns the program with the mapped axis of each output at `dims`.

    Args:
        program: a program whose mapped outputs have the axis in front.
        size: the size of the axis.
        mapped: which outputs have it.
        dims: where each output is to have it; None for an output that has none.
    """
    if all(dim == (0 if m else None) for m, dim in zip(mapped, dims, strict=True)):
        return program
    with building(program.name, program.inputs) as (frame, inputs):
        outs = []
        for out, is_mapped, dim in zip(replay(program, inputs), mapped, dims, strict=True):
            if dim is not None:
                out = moveaxis(out if is_mapped else expand(out, size), 0, dim)
            outs.append(out)
        return finish(frame, outs)
