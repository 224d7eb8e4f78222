"""Where arrays lie: `device_put`, `with_sharding_constraint`, `reshard`, under all transforms."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.tree_util as tree
from jax.sharding import PartitionSpec

from ftrans.errors import ArgumentError, AxisError, ShapeError, StructureError
from ftrans.func.bodies import spread
from ftrans.ir import is_tracing, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives import place_p
from ftrans.primitives.placing import axes_of, is_on_mesh
from ftrans.pytree import describe, leaf_name, shown
from ftrans.runtime.jaxlink import is_traced_by_jax, unseen, x64
from ftrans.traceback import boundary


@boundary
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Has arrays lie on a mesh of devices as `jax.lax.with_sharding_constraint` has them.

    In traced functions it is what a program says to XLA; derivatives lie as the values do, and an
    axis that `vmap` maps lies as XLA chooses, or along the axes of `spmd_axis_name`. Arrays of
    NumPy's stay as they are there: a program of these alone runs on the host. Elsewhere the arrays
    are moved at once.

    Args:
        x: a pytree of arrays.
        shardings: a `jax.sharding.NamedSharding`, or a `PartitionSpec` on the mesh that is set by
            `jax.set_mesh`; or a pytree of these, which may be a prefix of `x`. Explicit axes of a
            mesh are automatic ones in programs.

    Returns:
        The same values.

    Raises:
        ValueError: where the mesh has no such axis, or does not divide an axis of an array.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from ftrans import func
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        >>> x = with_sharding_constraint(np.arange(3.0), rows)
        >>> func.grad(lambda x: (with_sharding_constraint(x, rows) ** 2).sum())(x)
        Array([0., 2., 4.], dtype=float64)
    """
    return _placed("with_sharding_constraint", x, shardings)


@boundary
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Has arrays lie on a mesh of devices, as `jax.sharding.reshard` has those on explicit axes.

    It is `with_sharding_constraint`, since explicit axes are automatic ones in programs; for values
    that JAX traces it is JAX's own.

    Args:
        xs: a pytree of arrays.
        out_shardings: as for `with_sharding_constraint`.

    Returns:
        The same values.

    Raises:
        ValueError: where the mesh has no such axis, or does not divide an axis of an array.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        ...     reshard(np.arange(3), jax.sharding.PartitionSpec("data"))
        Array([0, 1, 2], dtype=int64)
    """
    return _placed("reshard", xs, out_shardings)


@boundary
def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """Moves arrays to a device or onto a mesh, as `jax.device_put` does, and keeps their dtypes.

    In traced functions it is `with_sharding_constraint` where a sharding on a mesh is given, and
    JAX's own `device_put` elsewhere; what is given after `device` counts outside of them alone.

    Args:
        x: a pytree of arrays.
        device: a device, a sharding, a `PartitionSpec` on the mesh that is set, or a pytree of
            these, which may be a prefix of `x`; None for where JAX puts arrays.
        src: as for `jax.device_put`, like what follows.
        donate: whether the arrays are given up.
        may_alias: whether the results may share memory with the arrays.

    Returns:
        The same values, in arrays of JAX's.

    Raises:
        ValueError: where the mesh has no such axis, or does not divide an axis of an array.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> device_put({"weights": np.ones(2)}, jax.devices()[0])
        {'weights': Array([1., 1.], dtype=float64)}
    """
    return _placed("device_put", x, device, src=src, donate=donate, may_alias=may_alias)


def _placed(name: str, x: Any, shardings: Any, **options: Any) -> Any:
    leaves, structure = tree.tree_flatten_with_path(x)
    targets = _spread(name, x, shardings)
    found = []
    for (path, leaf), target in zip(leaves, targets, strict=True):
        is_foreign = is_traced_by_jax(leaf) and not is_tracing()
        if not is_foreign and (is_array(leaf) or is_scalar(leaf)):
            _check(name, lambda path=path: leaf_name("x", path), type_of(as_array(leaf)), target)
        if is_foreign and name != "device_put":
            own = jax.lax if name == "with_sharding_constraint" else jax.sharding
            found.append(getattr(own, name)(leaf, target))
        elif not is_tracing():
            with x64():
                found.append(jax.device_put(unseen(leaf), target, **options))
        else:
            array = as_array(leaf)
            found.append(array if target is None else place_p(array, sharding=target, names=None))
    return structure.unflatten(found)


def _spread(name: str, x: Any, shardings: Any) -> list[Any]:
    """Returns the sharding of each leaf."""
    given = spread(shardings, x, lambda s: s is None or isinstance(s, PartitionSpec))
    if given is None:
        raise StructureError(
            f"{name}: the shardings do not fit the structure of the arrays.\n"
            f"  x: {shown(tree.tree_structure(x))}\n"
            f"  shardings: {shown(tree.tree_structure(shardings))}\n"
            f"  Use the same containers, or give one sharding for all."
        )
    is_put = name == "device_put"
    if wrong := [s for s in given if not (is_on_mesh(s) or (is_put and _is_place(s)))]:
        more = ", and devices" if is_put else ""
        raise ArgumentError(
            f"{name}: takes shardings on a mesh{more}.\n  sharding: {describe(wrong[0])}\n"
            f"  Write jax.sharding.NamedSharding(mesh, spec), or a jax.sharding.PartitionSpec "
            f"while a mesh is set."
        )
    return given


def _is_place(x: Any) -> bool:
    return x is None or type(x).__module__.partition(".")[0] in ("jax", "jaxlib")


def _check(name: str, label: Any, t: Any, target: Any) -> None:
    """Raises where an array cannot lie on a mesh as is asked."""
    if not is_on_mesh(target):
        return
    is_alone = isinstance(target, PartitionSpec)
    spec: Any = target if is_alone else target.spec
    mesh = jax.sharding.get_abstract_mesh() if is_alone else target.mesh
    if mesh.empty:
        raise ArgumentError(
            f"{name}: a PartitionSpec alone is one on the mesh that is set, and none is.\n"
            f"  sharding: {target}\n"
            f"  Write with jax.set_mesh(mesh): around, or jax.sharding.NamedSharding(mesh, spec)."
        )
    if len(spec) > t.ndim:
        raise AxisError(
            f"{name}: the sharding has more entries than the array has axes.\n"
            f"  {label()}: {t}\n  sharding: {spec}"
        )
    for axis, entry in enumerate(spec):
        names = axes_of([entry])
        for missing in (n for n in names if n not in mesh.shape):
            raise AxisError(
                f"{name}: the mesh has no axis of this name.\n"
                f"  sharding: {spec}, which names {missing!r}\n"
                f"  Its axes are {', '.join(map(repr, mesh.axis_names))}."
            )
        parts = math.prod(mesh.shape[n] for n in names)
        if t.shape[axis] % parts:
            raise ShapeError(
                f"{name}: the mesh does not divide an axis of the array.\n"
                f"  {label()}: axis {axis} of {t} has size {t.shape[axis]}\n"
                f"  sharding: {spec} cuts it into {parts} parts\n"
                f"  Pad it to a multiple of {parts}, or leave it whole by None in the sharding."
            )
