"""What rules of factorizations are made of: products, triangles and diagonals of matrices.

Matrices are the last two axes of an array; all others are axes of batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.arithmetic import mul_p
from ftrans.primitives.axes import broadcast_p, moveaxis, sum_p, to_front, transpose_p
from ftrans.primitives.conversion import conjugate
from ftrans.primitives.dot import dot_p
from ftrans.primitives.family import check_kind, in_single, plain, total_bytes
from ftrans.primitives.logic import eq_p, ge_p, select_p
from ftrans.primitives.namespace import by_jit, is_traced_by_jax
from ftrans.primitives.record import Cost, Primitive, scalar
from ftrans.primitives.shape import iota_p, reshape_p


def product(x: Any, y: Any) -> Any:
    """Multiplies matrices."""
    n = type_of(x).ndim
    lead = tuple(range(n - 2))
    return dot_p(x, y, contract=((n - 1,), (n - 2,)), batch=(lead, lead))


def turned(x: Any) -> Any:
    """Transposes matrices."""
    n = type_of(x).ndim
    return transpose_p(x, permutation=(*range(n - 2), n - 1, n - 2))


def adjoint(x: Any) -> Any:
    """Transposes matrices, and conjugates them."""
    return conjugate(turned(x))


def places(x: Any) -> tuple[Any, Any]:
    """Returns the row and the column of each element."""
    t = type_of(x)
    count = partial(iota_p, shape=t.shape, dtype=np.dtype("int32"))
    return count(axis=t.ndim - 2), count(axis=t.ndim - 1)


def lower_part(x: Any, strict: bool = False) -> Any:
    """Returns matrices with zeros above the diagonal, or, where `strict`, on it as well."""
    rows, columns = places(x)
    if strict:
        return select_p(ge_p(columns, rows), 0.0, x)
    return select_p(ge_p(rows, columns), x, 0.0)


def upper_part(x: Any) -> Any:
    """Returns matrices with zeros below the diagonal."""
    rows, columns = places(x)
    return select_p(ge_p(columns, rows), x, 0.0)


def on_diagonal(x: Any) -> Any:
    """Tells which elements are on the diagonal."""
    return eq_p(*places(x))


def diagonal(x: Any) -> Any:
    """Returns the diagonals of square matrices."""
    return sum_p(select_p(on_diagonal(x), x, 0.0), axes=(type_of(x).ndim - 2,))


def along_rows(v: Any, like: Any) -> Any:
    """Returns vectors as matrices whose rows are all the same."""
    shape = type_of(like).shape
    return broadcast_p(v, shape=shape, axes=(*range(len(shape) - 2), len(shape) - 1))


def along_columns(v: Any, like: Any) -> Any:
    """Returns vectors as matrices whose columns are all the same."""
    shape = type_of(like).shape
    return broadcast_p(v, shape=shape, axes=tuple(range(len(shape) - 1)))


def times(x: Any, factor: float) -> Any:
    """Multiplies by a number."""
    return mul_p(x, scalar(factor, type_of(x).dtype))


# ---------------------------------------------------------------------------- declaring primitives


def check_matrices(name: str, x: ArrayType, square: bool = True) -> None:
    """Raises unless `x` holds matrices of floating point."""
    check_kind(name, "fc", x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        shape = "f32[..., n, n], square matrices" if square else "f32[..., m, n]"
        raise ShapeError(f"{name}: takes {shape}.\n  operand: {x}")


def each(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], ranks: Sequence[int]
) -> list[np.ndarray]:
    """Calls a function of LAPACK on each member of a batch; the results are stacked.

    Args:
        function: takes one array of each and returns a tuple.
        arrays: of the same axes of batches, in front of as many axes as `ranks` says.
        ranks: for each array.
    """
    lead = arrays[0].shape[: arrays[0].ndim - ranks[0]]
    if not lead:
        return list(function(*arrays))
    flat = [x.reshape((-1, *x.shape[len(lead) :])) for x in arrays]
    found = [function(*some) for some in zip(*flat, strict=True)]
    return [np.stack(parts).reshape((*lead, *parts[0].shape)) for parts in zip(*found, strict=True)]


_MANY = 16
"""So many matrices are left to compiled code, which loops over them faster than Python."""


def many_by_jax(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a lowering that JAX compiles: on a device, and for many matrices on the host."""

    def lowered(xp: Any, *arrays: Any, **params: Any) -> Any:
        is_many = xp is not np or math.prod(arrays[0].shape[:-2]) >= _MANY
        if not is_many or any(0 in x.shape or is_traced_by_jax(x) for x in arrays):
            return lower(xp, *arrays, **params)
        return by_jit(xp, lower, arrays, params)

    return lowered


def in_batches(size: int, operands: Any, dims: Any, primitive: Any, params: Any) -> tuple[Any, Any]:
    """Batches what works on batches itself: the mapped axis is one more axis in front."""
    given = [to_front(size, x, dim) for x, dim in zip(operands, dims, strict=True)]
    found = primitive(*given, **params)
    return found, ([0] * len(found) if primitive.multiple else 0)


def as_columns(size: int, b: Any, dim: int, solve: Callable[[Any], Any]) -> tuple[Any, int]:
    """Batches what solves by one matrix for all: right-hand sides are columns, so they are more."""
    moved = moveaxis(b, dim, type_of(b).ndim - 1)
    *lead, n, m, _ = type_of(moved).shape
    found = solve(reshape_p(moved, shape=(*lead, n, m * size)))
    return reshape_p(found, shape=(*lead, n, m, size)), len(lead) + 2


def _or_nan(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a lowering that leaves to JAX what NumPy refuses to factor: there it is NaN."""

    def lowered(xp: Any, *arrays: Any, **params: Any) -> Any:
        try:
            return lower(xp, *arrays, **params)
        except np.linalg.LinAlgError:
            return by_jit(xp, lower, arrays, params)

    return lowered


def factorization(name: str, *, flops: float, **declared: Any) -> Primitive:
    """Declares a primitive of one batch of matrices.

    Args:
        name: the name.
        flops: how many operations it takes, in units of m n min(m, n).
        **declared: what else `plain` takes.
    """

    def cost(operands: Any, results: Any, params: Any) -> Cost:
        x = operands[0]
        each = x.size * min(x.shape[-2:])
        return Cost(int(flops * each), total_bytes(operands, results))

    def batch(size: int, operands: Any, dims: Any, **params: Any) -> Any:
        return in_batches(size, operands, dims, primitive, params)

    declared["lower"] = in_single(_or_nan(declared["lower"]))
    primitive = plain(
        name, tags=["linalg", "factorization"], kinds="fc", batch=batch, cost=cost, **declared
    )
    return primitive
