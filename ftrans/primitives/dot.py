"""`dot` contracts axes of two arrays: the matrix product, and all that `einsum` needs of it.

The axes of the result are the batch axes, the free axes of `x`, the free axes of `y`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import is_half
from ftrans.primitives.axes import inverse, transpose_p
from ftrans.primitives.family import check_kind, normal, plain, total_bytes
from ftrans.primitives.record import Cost, Sample, operand_type

Axes = tuple[int, ...]
Pair = tuple[Axes, Axes]
"""Axes of `x`, and the axes of `y` that go with them."""


def _free(ndim: int, *taken: Axes) -> Axes:
    """Returns the axes that are neither contracted nor batched."""
    return tuple(axis for axis in range(ndim) if all(axis not in axes for axes in taken))


def _infer(x: ArrayType, y: ArrayType, *, contract: Pair, batch: Pair) -> ArrayType:
    check_kind("dot", "biufc", x, y)
    if x.dtype != y.dtype:
        raise DTypeError(
            f"dot: operands have different dtypes.\n  x: {x}\n  y: {y}\n"
            f"  Convert one of them first: y.astype('{x.dtype.name}')."
        )
    for what, (of_x, of_y) in (("contracted", contract), ("batch", batch)):
        if (
            len(of_x) != len(of_y)
            or not all(0 <= axis < x.ndim for axis in of_x)
            or not all(0 <= axis < y.ndim for axis in of_y)
            or any(x.shape[i] != y.shape[j] for i, j in zip(of_x, of_y, strict=True))
        ):
            raise ShapeError(
                f"dot: the {what} axes do not fit each other.\n"
                f"  x: {x}, axes {of_x}\n  y: {y}, axes {of_y}"
            )
    for name, t, taken in (("x", x, contract[0] + batch[0]), ("y", y, contract[1] + batch[1])):
        if len(set(taken)) != len(taken):
            raise ShapeError(
                f"dot: an axis is named twice.\n  {name}: {t}, contract={contract}, batch={batch}"
            )
    free_x, free_y = _free(x.ndim, contract[0], batch[0]), _free(y.ndim, contract[1], batch[1])
    sizes = [x.shape[axis] for axis in batch[0] + free_x] + [y.shape[axis] for axis in free_y]
    return x.update(shape=tuple(sizes))


def _lower(xp: Any, x: Any, y: Any, *, contract: Pair, batch: Pair) -> Any:
    if xp is not np:
        from jax import lax

        return lax.dot_general(x, y, (contract, batch))
    dtype = x.dtype
    if is_half(dtype):
        x, y = x.astype(np.float32), y.astype(np.float32)
    product: Any = _host(type_of(x), type_of(y), contract=contract, batch=batch)
    return product(x, y).astype(dtype, copy=False)


def _host(x: ArrayType, y: ArrayType, *, contract: Pair, batch: Pair) -> Callable[..., Any] | None:
    if is_half(x.dtype):
        return None
    if x.ndim <= 2 and y.ndim <= 2 and len(contract[0]) == 1 and not batch[0]:
        # as most often, and NumPy's own product of matrices
        of_x, of_y = contract[0][0] != x.ndim - 1, contract[1][0] != 0
        if of_x:
            return (lambda a, b: np.matmul(a.T, b.T)) if of_y else lambda a, b: np.matmul(a.T, b)
        return (lambda a, b: np.matmul(a, b.T)) if of_y else np.matmul
    free_x, free_y = _free(x.ndim, contract[0], batch[0]), _free(y.ndim, contract[1], batch[1])
    rows = tuple([x.shape[a] for a in free_x])
    columns = tuple([y.shape[a] for a in free_y])
    lead = tuple([x.shape[a] for a in batch[0]])
    k = math.prod([x.shape[a] for a in contract[0]])
    order_x, shape_x = batch[0] + free_x + contract[0], (*lead, math.prod(rows), k)
    order_y, shape_y = batch[1] + contract[1] + free_y, (*lead, k, math.prod(columns))
    shape = lead + rows + columns

    def product(a: Any, b: Any) -> Any:
        left, right = a.transpose(order_x).reshape(shape_x), b.transpose(order_y).reshape(shape_y)
        return np.matmul(left, right).reshape(shape)

    return product


def _transposed(which: int) -> Callable[..., Any]:
    """Returns the transpose rule of one operand, x or y."""

    def rule(ct: Any, *operands: Any, contract: Pair, batch: Pair) -> Any:
        # For x: ct has the axes (batch, free of x, free of y). Contracting the last ones with y
        # leaves (batch, free of x, contracted axes in the order of y), which go back to where x
        # has them. For y the roles are exchanged.
        other = 1 - which
        ndims = [operand_type(operand).ndim for operand in operands]
        free = [_free(n, *axes) for n, *axes in zip(ndims, contract, batch, strict=True)]
        lead = tuple(range(len(batch[0])))
        first = len(lead) + (len(free[0]) if other else 0)
        taken = tuple(range(first, first + len(free[other])))
        out = dot_p(ct, operands[other], contract=(taken, free[other]), batch=(lead, batch[other]))
        left = tuple(contract[which][i] for i in inverse(contract[other]))
        permutation = inverse(batch[which] + free[which] + left)
        ordered = permutation == tuple(range(len(permutation)))
        return out if ordered else transpose_p(out, permutation=permutation)

    return rule


def _batch(size: int, operands: Any, dims: Any, *, contract: Pair, batch: Pair) -> tuple[Any, int]:
    x, y = operands
    at_x, at_y = dims

    def shifted(pair: Pair) -> Pair:
        return (
            tuple(a + (at_x is not None and a >= at_x) for a in pair[0]),
            tuple(a + (at_y is not None and a >= at_y) for a in pair[1]),
        )

    contract, batch = shifted(contract), shifted(batch)
    if at_x is not None and at_y is not None:
        batch = ((at_x, *batch[0]), (at_y, *batch[1]))
        return dot_p(x, y, contract=contract, batch=batch), 0
    # one operand mapped: its mapped axis is one more free axis
    free_x = _free(type_of(x).ndim, contract[0], batch[0])
    free_y = _free(type_of(y).ndim, contract[1], batch[1])
    if at_x is not None:
        dim = len(batch[0]) + free_x.index(at_x)
    else:
        dim = len(batch[0]) + len(free_x) + free_y.index(at_y)
    return dot_p(x, y, contract=contract, batch=batch), dim


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    x, _ = operands
    k = math.prod(x.shape[axis] for axis in params["contract"][0])
    return Cost(2 * results[0].size * k, total_bytes(operands, results))


def _samples() -> list[Sample]:
    matrices = {"contract": ((1,), (0,)), "batch": ((), ())}
    return [
        Sample((normal(2, 3), normal(3, 4)), matrices),
        Sample(
            (normal(2, 3, 4, 2), normal(4, 2, 3)),
            {"contract": ((1, 2), (2, 0)), "batch": ((3,), (1,))},
        ),
        Sample((normal(3), normal(2)), {"contract": ((), ()), "batch": ((), ())}),
        Sample((normal(2, 0), normal(0, 3)), matrices),
    ]


dot_p = plain(
    "dot",
    tags=["contraction", "multilinear"],
    kinds="biufc",
    infer=_infer,
    lower=_lower,
    host=_host,
    jvp=[
        lambda t, out, x, y, **params: dot_p(t, y, **params),
        lambda t, out, x, y, **params: dot_p(x, t, **params),
    ],
    transpose=[_transposed(0), _transposed(1)],
    batch=_batch,
    cost=_cost,
    samples=_samples,
)
