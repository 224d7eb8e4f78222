"""Random bits: `threefry` is a hash of counters by a key, of which all random numbers are made.

It is the generator of JAX, and so gives the bits that `jax.random` gives. By `bitcast` these bits
are those of other numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.axes import moveaxis
from ftrans.primitives.family import plain, structural, total_bytes
from ftrans.primitives.namespace import hashed
from ftrans.primitives.record import Absent, Cost, Sample, zero
from ftrans.primitives.shape import reshape_p

_OPERATIONS = 110
"""Those of one element: 20 rounds of five, and what the key adds between them."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def _infer(*types: ArrayType) -> tuple[ArrayType, ArrayType]:
    if any(t.dtype != np.uint32 for t in types):
        listed = ", ".join(map(str, types))
        raise DTypeError(
            f"threefry: takes uint32 arrays.\n  operands: {listed}\n"
            f"  Convert them first: x.astype('uint32')."
        )
    t = types[0].update(shape=np.broadcast_shapes(*[t.shape for t in types]))
    return t, t


def _lower(xp: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
    if xp is not np:
        return hashed(*xp.broadcast_arrays(k0, k1, x0, x1))
    k0, k1, x0, x1 = map(np.asarray, (k0, k1, x0, x1))
    words = k0, k1, k0 ^ k1 ^ _PARITY
    shape = np.broadcast_shapes(k0.shape, k1.shape, x0.shape, x1.shape)
    # one axis at least, since NumPy makes numbers of arrays that have none, and warns of overflow
    a, b, turned = (np.empty(shape or (1,), np.uint32) for _ in range(3))
    np.add(x0, words[0], out=a, casting="unsafe")
    np.add(x1, words[1], out=b, casting="unsafe")
    for block in range(5):
        for left in _ROTATIONS[block % 2]:
            np.add(a, b, out=a)
            np.left_shift(b, np.uint32(left), out=turned)
            np.right_shift(b, np.uint32(32 - left), out=b)
            np.bitwise_or(b, turned, out=b)
            np.bitwise_xor(b, a, out=b)
        np.add(a, words[(block + 1) % 3], out=a)
        np.add(b, words[(block + 2) % 3], out=b)
        np.add(b, np.uint32(block + 1), out=b)
    return a.reshape(shape), b.reshape(shape)


def _batch(size: int, operands: Any, dims: Any) -> Any:
    ranks = [type_of(x).ndim - (dim is not None) for x, dim in zip(operands, dims, strict=True)]
    moved = []
    for x, dim, rank in zip(operands, dims, ranks, strict=True):
        if dim is not None:
            x = moveaxis(x, dim, 0)
            more = (1,) * (max(ranks) - rank)
            x = reshape_p(x, shape=(size, *more, *type_of(x).shape[1:])) if more else x
        moved.append(x)
    return threefry_p(*moved), (0, 0)


def _counters(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape), dtype="uint32").reshape(shape)


threefry_p = plain(
    "threefry",
    tags=["random", "costly"],
    kinds="u",
    infer=_infer,
    lower=_lower,
    jvp=[Absent("its operands are integers, which have no tangents")] * 4,
    batch=_batch,
    cost=lambda operands, results, params: Cost(
        _OPERATIONS * results[0].size, total_bytes(operands, results)
    ),
    samples=[
        Sample((_counters(3),) * 4),
        Sample((np.uint32(2**32 - 1), np.uint32(7), *[_counters(2, 3)] * 2)),
        Sample((_counters(2, 1), np.uint32(7), np.uint32(3), _counters(3))),
    ],
    source="https://doi.org/10.1145/2063384.2063405",
    multiple=True,
)
"""Hashes the counters x0, x1 by the key k0, k1: Threefry-2x32 of 20 rounds; shapes broadcast."""


def _infer_cast(x: ArrayType, *, dtype: np.dtype) -> ArrayType:
    if "b" in (x.dtype.kind, dtype.kind) or x.dtype.itemsize != dtype.itemsize:
        raise DTypeError(
            f"bitcast: takes numbers of as many bits as those that they become.\n"
            f"  operand: {x}\n  dtype: {dtype}\n  Convert it first: x.astype(...)."
        )
    return x.update(dtype=dtype)


def _lower_cast(xp: Any, x: Any, *, dtype: np.dtype) -> Any:
    if xp is np:
        return np.asarray(x).view(dtype)
    from jax import lax

    return lax.bitcast_convert_type(x, dtype)


bitcast_p = structural(
    "bitcast",
    kinds="iuf",
    infer=_infer_cast,
    lower=_lower_cast,
    jvp=[zero],
    batch=lambda size, operands, dims, *, dtype: (bitcast_p(*operands, dtype=dtype), dims[0]),
    samples=[
        Sample((_counters(3),), {"dtype": np.dtype("float32")}),
        Sample(
            (np.array([[1.0, -0.0, np.nan]], "f4"),), {"dtype": np.dtype("uint32")}, smooth=False
        ),
    ],
)
"""Is what its bits are in another dtype of as many of them."""
