"""`place` says where a value lies: by a sharding of JAX's, which names axes of a mesh of devices.

It changes no value, and arrays of NumPy's have no place. Tangents and cotangents lie as values do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ftrans.errors import AxisError
from ftrans.ir.stack import recording_place
from ftrans.primitives.family import normal, structural
from ftrans.primitives.record import LINEAR, Absent, Sample

HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device
"""Are the memory of the host and that of its devices, for `place`."""

FREE = PartitionSpec.UNCONSTRAINED
"""Is the entry of an axis of which XLA says where it lies."""


@lru_cache(64)
def automatic(mesh: Any) -> Any:
    """Returns a mesh of the same devices, with automatic axes for those that are explicit."""
    kinds = [AxisType.Auto if kind is AxisType.Explicit else kind for kind in mesh.axis_types]
    return mesh.update(axis_types=tuple(kinds))


def is_on_mesh(sharding: Any) -> bool:
    """Tells whether a sharding names axes of a mesh: of its own, or of the one that is set."""
    return isinstance(sharding, (NamedSharding, PartitionSpec))


def _lower(xp: Any, x: Any, *, sharding: Any, names: Any) -> Any:
    if xp is np:
        return x
    if not is_on_mesh(sharding):
        return jax.device_put(x, sharding)
    is_own, now = isinstance(sharding, NamedSharding), jax.typeof(x).sharding
    around = jax.sharding.get_abstract_mesh()
    if AxisType.Explicit in (*around.axis_types, *now.mesh.axis_types):
        # with explicit axes a constraint would be an assertion
        spec = sharding.spec if is_own else sharding
        known = [now.spec[i] if entry is FREE else entry for i, entry in enumerate(spec)]
        return jax.sharding.reshard(x, PartitionSpec(*known))
    if is_own:
        sharding = sharding.update(mesh=automatic(sharding.mesh))
    return jax.lax.with_sharding_constraint(x, sharding)


def axes_of(entries: Sequence[Any]) -> list[str]:
    """Returns the axes of a mesh that entries of a sharding name."""
    named = [(e,) if isinstance(e, str) else e for e in entries if e is not None and e is not FREE]
    return [name for names in named for name in names]


def _transpose(ct: Any, x: Any, *, sharding: Any, names: Any) -> Any:
    # where else than on a mesh the operand lay is not known
    return place_p(ct, sharding=sharding, names=None) if is_on_mesh(sharding) else ct


def _batch(size: int, operands: Any, dims: Any, *, sharding: Any, names: Any) -> tuple[Any, int]:
    (x,), (dim,), entry = operands, dims, FREE if names is None else names
    spec, mesh = getattr(sharding, "spec", sharding), getattr(sharding, "mesh", None)
    given = set(names or ())
    taken = is_on_mesh(sharding) and not given.isdisjoint(axes_of(spec))
    if taken or (mesh is not None and not given.issubset(mesh.axis_names)):
        which = "an axis of the mesh that values lie along already"
        raise AxisError(
            f"vmap: spmd_axis_name names {which if taken else 'no axis of the mesh'}.\n"
            f"  spmd_axis_name: {', '.join(map(repr, names or ()))}\n"
            f"  sharding: {spec} at {recording_place()}\n"
            f"  Name another axis, or leave it out there."
        )
    if mesh is not None:
        sharding = sharding.update(mesh=automatic(mesh), spec=_widened(spec, dim, entry))
    elif isinstance(sharding, PartitionSpec):
        sharding = _widened(sharding, dim, entry)
    return place_p(x, sharding=sharding, names=None), dim


def _widened(spec: Any, dim: int, entry: Any) -> PartitionSpec:
    full = [*spec, *[None] * (dim - len(spec))]
    return PartitionSpec(*full[:dim], entry, *full[dim:])


def _samples() -> list[Sample]:
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    on_axis = {"sharding": NamedSharding(mesh, PartitionSpec("d")), "names": None}
    whole = {"sharding": NamedSharding(mesh, PartitionSpec()), "names": None}
    operands = normal(3, 2), normal(0, 2)
    return [*(Sample((x,), on_axis) for x in operands), Sample((normal(),), whole)]


place_p = structural(
    "place",
    infer=lambda x, *, sharding, names: x.update(),
    lower=_lower,
    jvp=LINEAR,
    transpose=[_transpose],
    batch=_batch,
    rewrite=Absent("it says what nothing else does"),
    samples=_samples,
)
"""Has a value lie as `sharding` says: a `NamedSharding`, a `PartitionSpec` on the mesh that is set
where it is compiled, or what else `jax.device_put` takes.

`names` are axes of the mesh, for the next axis that it is batched by; by None, XLA chooses.
"""
