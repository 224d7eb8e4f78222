"""Rows: `stack` puts equal arrays into one, `unstack` takes it apart; `table` holds numbers.

They are what a loop goes through that was written as a list. `stack` and `unstack` are linear, and
each is the transpose of the other.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, Literal
from ftrans.primitives.axes import in_front, moveaxis, zeros
from ftrans.primitives.family import free_cost, normal, plain, structural
from ftrans.primitives.namespace import held_as
from ftrans.primitives.record import (
    LINEAR,
    Absent,
    Joint,
    Linear,
    New,
    Sample,
    operand_type,
    scalar,
)
from ftrans.primitives.shape import reshape_p, slice_p


def _stack_infer(*types: ArrayType) -> ArrayType:
    if len({t.update() for t in types}) != 1:  # numbers among them are weak
        raise ShapeError(f"stack: operands have different types, or there are none: {types}.")
    return types[0].update(shape=(len(types), *types[0].shape))


def _stack_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    """Takes the rows of an array at once that were taken apart one by one."""
    rows = [_row(scope, x) for x in operands]
    if rows[0] is None or scope.type(rows[0][0]).shape[1:] != types[0].shape[1:]:
        return None
    base, first = rows[0]
    if rows != [(base, first + i) for i in range(len(rows))]:
        return None
    size, *rest = scope.type(base).shape
    if len(rows) == size:
        return base
    zeros, ones = (0,) * len(rest), (1,) * len(rest)
    stop = (first + len(rows), *rest)
    return New(slice_p, (base,), {"start": (first, *zeros), "stop": stop, "step": (1, *ones)})


def _row(scope: Any, x: Any) -> tuple[Any, int] | None:
    """Returns which row of what an operand is; None where it is no row that was taken."""
    shaped = scope.definition(x)
    taken = (
        scope.definition(shaped.operands[0]) if shaped and shaped.primitive is reshape_p else None
    )
    if not taken or taken.primitive is not slice_p:
        return None
    base = taken.operands[0]
    _, *rest = scope.type(base).shape
    (place, *zeros), stop = taken.params["start"], taken.params["stop"]
    whole = not any(zeros) and stop == (place + 1, *rest) and set(taken.params["step"]) == {1}
    return (base, place) if whole and list(scope.type(x).shape) == rest else None


def _stack_transpose(ct: Any, *operands: Any) -> list[Any]:
    rows = unstack_p(ct)
    return [row if type(x) is Linear else None for row, x in zip(rows, operands, strict=True)]


def _stack_host(*types: ArrayType) -> Any:
    shape, dtype = (len(types), *types[0].shape), types[0].dtype

    def stacked(*xs: Any) -> Any:
        found = np.empty(shape, dtype)
        for i, x in enumerate(xs):
            found[i] = x
        return found

    return stacked


stack_p = structural(
    "stack",
    infer=_stack_infer,
    lower=lambda xp, *xs: xp.stack(xs),
    host=_stack_host,
    jvp=LINEAR,
    transpose=Joint(_stack_transpose),
    batch=in_front(lambda size, *xs: moveaxis(stack_p(*xs), 0, 1)),
    rewrite=_stack_rewrite,
    samples=[
        Sample((normal(3), normal(3, seed=1))),
        Sample((normal(),)),
        Sample((normal(0, 2), normal(0, 2), normal(0, 2))),
    ],
)


def _unstack_infer(x: ArrayType) -> tuple[ArrayType, ...]:
    if not x.shape:
        raise ShapeError(f"unstack: {x} has no axis to take apart.")
    return (x.update(shape=x.shape[1:]),) * x.shape[0]


def _unstack_lower(xp: Any, x: Any) -> list[Any]:
    if xp is np:
        return [x[i, ...] for i in range(x.shape[0])]
    from jax import lax

    return [lax.index_in_dim(x, i, keepdims=False) for i in range(x.shape[0])]


def _unstack_transpose(cts: Any, x: Any) -> list[Any]:
    t = operand_type(x)
    row = t.update(shape=t.shape[1:])
    return [stack_p(*[zeros(row) if ct is None else ct for ct in cts])]


unstack_p = plain(
    "unstack",
    tags=[],  # what is said of all that is structural is said of one result
    kinds="biufc",
    cost=free_cost,
    infer=_unstack_infer,
    lower=_unstack_lower,
    jvp=LINEAR,
    transpose=Joint(_unstack_transpose),
    batch=lambda size, operands, dims: (
        list(unstack_p(moveaxis(operands[0], dims[0], 1))),
        [0] * operand_type(operands[0]).shape[0 if dims[0] else 1],
    ),
    multiple=True,
    samples=[Sample((normal(2, 3),)), Sample((normal(1),)), Sample((normal(3, 0),))],
)


def _table(xp: Any, *, values: tuple[Literal, ...]) -> Any:
    array = np.stack([value.array for value in values])
    return xp.asarray(array.astype(held_as(xp, array.dtype)))


table_p = structural(
    "table",
    kinds="",
    infer=lambda *, values: values[0].type.update(shape=(len(values),)),
    lower=_table,
    host=lambda **params: functools.partial(_table(np, **params).view),
    jvp=[],
    transpose=[],
    batch=Absent("it has no operands, so none can be mapped"),
    samples=[
        Sample((), {"values": tuple([scalar(x, "float32") for x in (0.5, -0.0, 2.0)])}),
        Sample((), {"values": (scalar(1, "int32"), scalar(4, "int32"))}),
    ],
)
