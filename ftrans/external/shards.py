"""Batches that lie on several devices: each part is called by itself, and stays where it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ftrans.ir import ArrayType
from ftrans.runtime.jaxlink import is_jax, x64
from ftrans.runtime.meshes import is_spread


def by_shard(
    arrays: Sequence[Any],
    in_front: Sequence[bool],
    types: Sequence[ArrayType],
    call: Callable[[int, list[Any]], Sequence[Any]],
) -> list[jax.Array] | None:
    """Calls a function on each part of a batch that is in this process.

    Args:
        arrays: of NumPy or JAX.
        in_front: which have the axis of the batch in front.
        types: those of the results for all examples, with that axis in front.
        call: takes how many examples there are, and their arrays.

    Returns:
        The results, each part on its devices; None where no array lies in parts along that axis,
        or one along another axis too.
    """
    parts = [x for x in arrays if is_jax(x) and is_spread([x]) and not x.is_fully_replicated]
    cut = {id(x) for x, m in zip(arrays, in_front, strict=True) if m}
    if not parts or not all(id(x) in cut and _first_alone(x) for x in parts):
        return None
    first = parts[0].sharding
    if any(x.sharding.mesh != first.mesh or x.sharding.spec[0] != first.spec[0] for x in parts):
        return None
    size = types[0].shape[0]
    where = NamedSharding(first.mesh, PartitionSpec(first.spec[0]))
    spread = set(map(id, parts))
    known: dict[int, list[Any]] = {}
    found: list[list[Any]] = [[] for _ in types]
    for device, (rows, *_) in where.addressable_devices_indices_map((size,)).items():  # type: ignore
        start, stop, _ = rows.indices(size)
        if start not in known:
            given = []
            for x, front in zip(arrays, in_front, strict=True):
                if id(x) in spread:
                    held = {s.device: s.data for s in x.addressable_shards}
                    given.append(np.asarray(held[device]))
                else:
                    x = np.asarray(x)
                    given.append(x[rows] if front and len(x) == size else x)
            known[start] = list(call(stop - start, given))
        with x64():
            for outs, out in zip(found, known[start], strict=True):
                outs.append(jax.device_put(np.array(out), device))
    make = jax.make_array_from_single_device_arrays
    return [make(t.shape, where, outs) for t, outs in zip(types, found, strict=True)]


def _first_alone(x: Any) -> bool:
    """Tells whether an array lies in parts along its first axis and no other."""
    return isinstance(x.sharding, NamedSharding) and not any(x.sharding.spec[1:])
