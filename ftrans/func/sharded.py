"""Functions that run on each device of a mesh, on the part of the arguments there: `shard_map`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.tree_util as tree
from jax.sharding import AxisType, PartitionSpec

from ftrans.errors import ArgumentError, AxisError, ShapeError, StructureError
from ftrans.func.bodies import flatten_arrays, spread, stage_body
from ftrans.func.staging import name_of, named
from ftrans.ir import ArrayType, Program, type_of
from ftrans.numpy.promotion import weakly
from ftrans.primitives import shard_map_p
from ftrans.primitives.control.common import varying
from ftrans.primitives.control.shard_map import Over, Spec
from ftrans.pytree import argument_name, describe, leaf_names, shown
from ftrans.traceback import boundary, bounded


@boundary
def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    mesh: Any = None,
    in_specs: Any,
    out_specs: Any,
    axis_names: Iterable[str] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Returns a function that runs `f` on each device of a mesh, on what it has of the arguments.

    It is compiled by `jax.shard_map` from the first call. `psum` and other collectives in `f` go
    from device to device along the axes of the mesh. Derivatives of the whole are those of the
    same function on one device. Those that are taken inside of `f` are what JAX has for
    `check_vma=False`: of a `psum`, each device gets the sum of the cotangents of all.

    Args:
        f: takes and returns pytrees of arrays, by position. JAX's keys become their words. Arrays
            that it closes over are whole on each device.
        mesh: a `jax.sharding.Mesh`; None for the one of `jax.set_mesh`.
        in_specs: a `jax.sharding.PartitionSpec` for each array among the arguments, or for a pytree
            of them: along which axes of the mesh each axis is cut; None, or nothing, where it is
            not.
        out_specs: the same of the results. Where a spec leaves out an axis of the mesh, all devices
            along it must have the same.
        axis_names: the axes of the mesh that `f` goes over; XLA has the others. None of them stands
            for all.
        check_vma: whether to raise where a result is not known to be the same along an axis that
            its spec leaves out.

    Raises:
        AxisError: where a spec names no axis of the mesh, or more axes than an array has.
        ShapeError: where the mesh does not divide an axis.
        StructureError: where specs do not fit the arguments, or the result; and where arguments are
            passed by name.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> import ftrans
        >>> P = jax.sharding.PartitionSpec
        >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("d",))
        >>> mean = lambda x: ftrans.pmean(x.mean(), "d")
        >>> ftrans.shard_map(mean, mesh=mesh, in_specs=P("d"), out_specs=P())(np.arange(4.0))
        array(1.5)
    """
    if f is None:
        options = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
        options |= {"axis_names": axis_names, "check_vma": check_vma}
        return lambda g: shard_map(g, **options)
    name = f"shard_map({name_of(f)})"

    @bounded(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            given = "\n".join([f"  {label}: {describe(x)}" for label, x in kwargs.items()])
            raise StructureError(
                f"{name}: arguments have no names here, since in_specs goes by their order.\n"
                f"{given}\n  Pass them by position."
            )
        over = _over(name, mesh, axis_names)
        leaves, _, _, structure = flatten_arrays(name, "the arguments", args)
        paths = [path for path, _ in tree.tree_flatten_with_path(args)[0]]
        labels = [argument_name(f, path) for path in paths]
        types = [type_of(x).update() for x in leaves]
        given = _specs(name, over, "in_specs", in_specs, args, labels, types)
        _check_sizes(name, over, labels, types, given)
        local = list(map(over.local, types, given))
        axes = tuple(zip(*over.axes(over.names), strict=True))
        staged = stage_body(name, "the function", f, local, structure, axes=axes)
        outs = staged.program.output_types
        template = staged.outputs.build(outs)
        out_labels = leaf_names("result", staged.outputs.structure)
        returned = _specs(name, over, "out_specs", out_specs, template, out_labels, outs)
        specs = (*given, *[((),) * type_of(x).ndim for x in staged.captured])
        if check_vma:
            _check_copies(name, over, staged.program, specs, returned, out_labels)
        found = shard_map_p(
            *leaves,
            *staged.captured,
            program=staged.program,
            over=over,
            in_specs=specs,
            out_specs=tuple(returned),
        )
        return staged.outputs.build(list(map(weakly, found, staged.weak)))

    return named(mapped, name)


def _over(name: str, mesh: Any, axis_names: Iterable[str]) -> Over:
    """Returns the mesh with automatic axes, and those that the function goes over."""
    if mesh is None:
        try:
            mesh = jax.sharding.get_mesh()
        except ValueError:  # within `jax.jit`
            mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            raise ArgumentError(
                f"{name}: there is no mesh.\n"
                f"  Pass mesh=jax.make_mesh(shape, names), or set one: with jax.set_mesh(mesh)."
            )
    if not isinstance(mesh, (jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        raise ArgumentError(
            f"{name}: mesh must be a jax.sharding.Mesh.\n  mesh: {describe(mesh)}\n"
            f"  Make one with jax.make_mesh(shape, names)."
        )
    try:
        wanted = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    except TypeError:
        raise ArgumentError(
            f"{name}: axis_names is a set of names.\n  axis_names: {describe(axis_names)}\n"
            f"  Leave it out to go over all axes of the mesh: {_shown_mesh(mesh)}."
        ) from None
    if unknown := sorted(wanted.difference(mesh.axis_names), key=str):
        raise AxisError(
            f"{name}: axis_names names an axis that the mesh does not have.\n"
            f"  axis_names: {', '.join(map(repr, unknown))}\n  mesh: {_shown_mesh(mesh)}\n"
            f"  Leave axis_names out to go over all of them."
        )
    names = tuple([axis for axis in mesh.axis_names if not wanted or axis in wanted])
    return Over(mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names)), names)


def _shown_mesh(mesh: Any) -> str:
    return ", ".join(f"{axis!r} of size {size}" for axis, size in mesh.shape.items())


def _is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


def _specs(
    name: str,
    over: Over,
    option: str,
    specs: Any,
    value: Any,
    labels: list[str],
    types: Any,
) -> list[Spec]:
    """Returns the spec of each leaf of a pytree, checked, with an entry for each axis."""
    what = "the arguments" if option == "in_specs" else "the result"
    flat = spread(specs, value, _is_spec)
    if flat is None:
        raise StructureError(
            f"{name}: {option} does not fit the structure of {what}.\n"
            f"  {option}: {specs}\n"
            f"  {what.split()[1]}: {shown(tree.tree_structure(value), types)}\n"
            f"  Use the same containers, or one PartitionSpec for all that is in them."
        )
    found = []
    for spec, label, t in zip(flat, labels, types, strict=True):
        if not _is_spec(spec):
            raise StructureError(
                f"{name}: the entries of {option} are PartitionSpecs.\n"
                f"  {label}: {describe(spec)}\n"
                f"  Write PartitionSpec() for what is whole on each device."
            )
        entries = [() if e is None else e if isinstance(e, tuple) else (e,) for e in spec]
        if len(entries) > t.ndim:
            raise AxisError(
                f"{name}: {option} has entries for more axes than there are.\n"
                f"  {label}: {spec} for {t}\n  Give it at most {t.ndim}."
            )
        used = [axis for entry in entries for axis in entry]
        for axis in used:
            if axis not in over.names:
                which = "axis_names" if axis in over.mesh.axis_names else "the mesh"
                raise AxisError(
                    f"{name}: {option} names an axis that {which} does not have.\n"
                    f"  {label}: {spec} for {t}\n  mesh: {_shown_mesh(over.mesh)}\n"
                    f"  Write one of {', '.join(map(repr, over.names))}, or None where it is not "
                    f"cut."
                )
        if len(set(used)) < len(used):
            raise AxisError(
                f"{name}: {option} cuts two axes along the same axis of the mesh.\n"
                f"  {label}: {spec} for {t}\n  Name each axis once."
            )
        found.append((*entries, *[()] * (t.ndim - len(entries))))
    return found


def _check_sizes(
    name: str, over: Over, labels: list[str], types: list[ArrayType], specs: list[Spec]
) -> None:
    for label, t, spec in zip(labels, types, specs, strict=True):
        for axis, names in enumerate(spec):
            size = over.axes(names).size
            if t.shape[axis] % size:
                raise ShapeError(
                    f"{name}: an axis cannot be cut into equal parts.\n"
                    f"  {label}: axis {axis} of {t} has size {t.shape[axis]}\n"
                    f"  in_specs cuts it into {size} along {', '.join(map(repr, names))}\n"
                    f"  Pad it to a multiple of {size}, or cut another axis."
                )


def _check_copies(
    name: str, over: Over, program: Program, given: Any, returned: Any, labels: list[str]
) -> None:
    """Raises where a result may differ along an axis of the mesh that its spec leaves out."""
    for axis in over.names:
        varies = varying(program, over.cut(given, axis), axis)
        for spec, differs, label, t in zip(
            returned, varies, labels, program.output_types, strict=True
        ):
            if differs and not any(axis in entry for entry in spec):
                raise ArgumentError(
                    f"{name}: out_specs leaves out an axis along which a result may differ.\n"
                    f"  {label}: {t} on each device, along {axis!r}\n"
                    f"  Name the axis in out_specs, or go over it with psum, pmax or all_gather; "
                    f"where it is\n  the same for another reason, pass check_vma=False."
                )
