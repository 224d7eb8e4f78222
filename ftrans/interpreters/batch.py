"""Batching: a program over single examples becomes one over many at once."""

from __future__ import annotations

from typing import Any

from ftrans.interpreters.base import building, finish, memoised, walk
from ftrans.interpreters.inline import inline
from ftrans.ir import Program, bind
from ftrans.primitives.family import moveaxis
from ftrans.primitives.record import Absent, Recursive
from ftrans.primitives.shape import expand

__all__ = ["batch"]


@memoised
def batch(
    program: Program,
    size: int,
    dims: tuple[int | None, ...],
    force: tuple[bool, ...] | None = None,
) -> tuple[Program, tuple[bool, ...]]:
    """Maps `program` over one axis of some of its inputs.

    Args:
        program: any program.
        size: the size of the mapped axis.
        dims: for each input where the mapped axis sits, `None` where it has none.
        force: for each output whether it must have the axis even where it does not depend on it.

    Returns:
        The program, whose mapped outputs have the axis in front; and which outputs are mapped.
    """
    program = inline(program)
    types = [
        t if dim is None else t.update(shape=(*t.shape[:dim], size, *t.shape[dim:]))
        for t, dim in zip(program.inputs, dims, strict=True)
    ]
    with building(program.name, types) as (frame, inputs):
        pairs = walk(
            program,
            list(zip(inputs, dims, strict=True)),
            lambda equation, taken: _apply(equation, size, taken),
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


def _apply(equation: Any, size: int, pairs: list[tuple[Any, int | None]]) -> Any:
    primitive, params = equation.primitive, equation.params
    operands = [value for value, _ in pairs]
    dims = [dim for _, dim in pairs]
    if all(dim is None for dim in dims):
        return [(out, None) for out in bind(primitive, operands, params)]
    rule = primitive.batch
    if isinstance(rule, Absent):
        raise primitive.absent("batch", rule.reason)
    if isinstance(rule, Recursive):
        from ftrans.interpreters.transforms import transforms

        outs, out_dims = rule.rule(transforms, size, operands, dims, **params)
    else:
        outs, out_dims = rule(size, operands, dims, **params)
    return list(zip(outs, out_dims, strict=True)) if primitive.multiple else [(outs, out_dims)]
