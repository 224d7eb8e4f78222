"""Arrays on meshes with explicit axes, which are automatic ones inside of programs.

With explicit axes JAX has each operation say how its result is placed. Programs leave that to XLA,
as `jax.jit` does on automatic axes: so at their border arrays are put on a mesh of the same devices
with automatic axes, and results back on theirs, which moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np
from jax.sharding import AxisType, NamedSharding

from ftrans.primitives.placing import automatic
from ftrans.runtime.jaxlink import CONCRETE, is_concrete, is_jax, is_jax_tracing, x64


def explicit_mesh(values: Iterable[Any]) -> Any:
    """Returns the mesh with explicit axes that one of some values lies on; None where none does."""
    for x in values:
        if type(x) in CONCRETE or is_concrete(x):  # a call for each array would show
            placed = x.sharding
            if type(placed) is NamedSharding and AxisType.Explicit in placed.mesh.axis_types:
                return placed.mesh
    return None


def mesh_around() -> Any:
    """Returns the mesh with explicit axes that is set, or None."""
    is_set = AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types
    return jax.sharding.get_mesh() if is_set and not is_jax_tracing() else None


def is_spread(values: Iterable[Any]) -> bool:
    """Tells whether one of some values lies on more than one device, or in another process."""
    shardings = [x.sharding for x in values if is_jax(x)]
    return any(len(s.device_set) > 1 or not s.is_fully_addressable for s in shardings)


def to_host(array: Any) -> Any:
    """Returns a copy of an array in NumPy's; as it is where a part lies in another process."""
    is_here = array.is_fully_addressable or array.is_fully_replicated
    return np.array(array) if is_here else array


def on_automatic(mesh: Any, function: Callable[[Any], Any], arguments: Any) -> Any:
    """Calls a function on a pytree with its explicit axes as automatic ones; returns what it does.

    Args:
        mesh: that of arrays among the arguments.
        function: returns a pytree; what lies on that mesh is given its explicit axes back.
        arguments: the pytree.
    """
    plain = automatic(mesh)
    # JAX wants the mesh of a `jax.set_mesh` around to be that of the arrays
    around = AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types
    with jax.set_mesh(plain) if around else nullcontext():
        result = function(tree.tree_map(_moved, arguments))
    lies_there = lambda x: is_concrete(x) and getattr(x.sharding, "mesh", None) == plain  # noqa: E731
    return tree.tree_map(lambda x: _put(x, mesh) if lies_there(x) else x, result)


def _moved(x: Any) -> Any:
    mesh = explicit_mesh([x])
    return x if mesh is None else _put(x, automatic(mesh))


def _put(x: Any, mesh: Any) -> Any:
    placed = NamedSharding(mesh, x.sharding.spec, memory_kind=x.sharding.memory_kind)
    with x64():
        return jax.device_put(x, placed)
