"""`sort` orders several arrays together along one axis, by the first `keys` of them.

The order is stable, NaN comes last, and complex numbers are compared by real part, then imaginary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.errors import AxisError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import bfloat16, is_complex
from ftrans.primitives.elementwise import align
from ftrans.primitives.family import normal, plain, total_bytes
from ftrans.primitives.indexing import gather_p
from ftrans.primitives.record import Cost, Recursive, Sample
from ftrans.primitives.shape import iota_p, reshape_p


def _infer(*types: ArrayType, axis: int, keys: int) -> tuple[ArrayType, ...]:
    listed = ", ".join(map(str, types))
    if not 1 <= keys <= len(types):
        raise ShapeError(f"sort: {keys} keys of {len(types)} operands.\n  operands: {listed}")
    if any(t.shape != types[0].shape for t in types):
        raise ShapeError(f"sort: operands have different shapes.\n  operands: {listed}")
    if not 0 <= axis < types[0].ndim:
        raise AxisError(f"sort: there is no axis {axis}.\n  operands: {listed}")
    return types


def _lower(xp: Any, *arrays: Any, axis: int, keys: int) -> Any:
    if xp is np:
        if keys == len(arrays) == 1 and arrays[0].dtype.kind in "biuf":
            return (np.sort(arrays[0], axis=axis, kind="stable"),)
        columns = [column for array in arrays[:keys] for column in _columns(array)]
        order = np.lexsort(columns[::-1], axis=axis)
        return tuple(np.take_along_axis(array, order, axis=axis) for array in arrays)
    from jax import lax

    return tuple(lax.sort(arrays, dimension=axis, is_stable=True, num_keys=keys))


def _columns(array: Any) -> list[Any]:
    """Returns the real arrays by which NumPy orders one key; it has no order for bfloat16."""
    if is_complex(array.dtype):
        return [array.real, array.imag]
    return [array.astype(np.float32) if array.dtype == bfloat16 else array]


def _jvp(
    transforms: Any, tangents: Any, *primals: Any, axis: int, keys: int
) -> tuple[Any, list[Any]]:
    # the place that each element came from goes through the sort with it
    t = type_of(primals[0])
    dtype = np.dtype("int32" if t.size < 2**31 else "int64")
    places = reshape_p(iota_p(shape=(t.size,), dtype=dtype, axis=0), shape=t.shape)
    *outs, origin = sort_p(*primals, places, axis=axis, keys=keys)
    indices = reshape_p(origin, shape=(*t.shape, 1))
    out_tangents = [
        None
        if tangent is None
        else gather_p(reshape_p(tangent, shape=(t.size,)), indices, in_bounds=True)
        for tangent in tangents
    ]
    return outs, out_tangents


def _batch(size: int, operands: Any, dims: Any, *, axis: int, keys: int) -> tuple[Any, list[int]]:
    aligned, dim = align(size, operands, dims)
    outs = sort_p(*aligned, axis=axis + (axis >= dim), keys=keys)
    return outs, [dim] * len(outs)


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    # about log2(n) comparisons for each element
    n = operands[0].shape[params["axis"]]
    comparisons = operands[0].size * math.ceil(math.log2(max(n, 2)))
    return Cost(comparisons * params["keys"], total_bytes(operands, results))


def _samples() -> list[Sample]:
    ties = np.array([2, 0, 2, 1, 0], np.int32)
    edges = np.array([0.0, np.nan, -np.inf, -0.0, 3.0, -np.nan, np.inf])
    return [
        Sample((normal(2, 5),), {"axis": 1, "keys": 1}),
        Sample((ties, normal(5), normal(5, seed=1)), {"axis": 0, "keys": 2}),
        Sample((edges, normal(7)), {"axis": 0, "keys": 1}, smooth=False),
        Sample((normal(0, 3), normal(0, 3)), {"axis": 0, "keys": 1}),
    ]


sort_p = plain(
    "sort",
    tags=["sort"],
    kinds="biufc",
    infer=_infer,
    lower=_lower,
    jvp=Recursive(_jvp),
    batch=_batch,
    cost=_cost,
    samples=_samples,
    multiple=True,
)
