"""`shard_map` runs a program on each device of a mesh, on the part of the operands that lies there.

The specs say for each axis of an operand, or result, along which axes of the mesh it is cut; along
others each device has the same. `over` gives the mesh, and names of its axes that the program goes
over. Derivatives are those of one map from the values of all devices to those of all devices, in
which a sum over devices is its own transpose: what the whole takes from equal copies of a result it
takes in equal shares, and an operand that was copied gets what all the copies get.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, Axes, Program
from ftrans.ir.axes import names_in
from ftrans.primitives.arithmetic import div_p, mul_p
from ftrans.primitives.axes import expand
from ftrans.primitives.collectives import psum_p
from ftrans.primitives.control.common import (
    Mask,
    needs,
    opposite,
    pick,
    present,
    program_cost,
    program_from,
    restrict,
    spread,
    unknown,
    varying,
)
from ftrans.primitives.elementary import sin_p
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.family import carrier, normal
from ftrans.primitives.namespace import by_jit
from ftrans.primitives.record import Cost, Sample
from ftrans.primitives.shape import reshape_p

Spec = tuple[tuple[str, ...], ...]
"""For each axis of an array the axes of the mesh that it is cut along, the slowest first."""


@dataclass(frozen=True)
class Over:
    """Says over which devices a program runs.

    Attributes:
        mesh: JAX's, with automatic axes.
        names: those of its axes that the program goes over; others are left to XLA.
    """

    mesh: Any
    names: tuple[str, ...]

    on_devices = True
    """Whether it runs on devices alone."""

    @property
    def binds_axes(self) -> tuple[str, ...]:
        """The names that have their meaning here."""
        return self.names

    def axes(self, names: Any) -> Axes:
        """Returns axes of the mesh with their sizes."""
        return Axes(tuple(names), tuple([self.mesh.shape[name] for name in names]))

    def cut(self, specs: Sequence[Spec], axis: str) -> Mask:
        """Tells what differs along an axis."""
        return tuple([any(axis in names for names in spec) for spec in specs])

    def unmentioned(self, spec: Spec, used: Any) -> Axes:
        """Returns the axes that are used along which each device has the same."""
        mentioned = {name for names in spec for name in names}
        return self.axes([n for n in self.names if n in used and n not in mentioned])

    def local(self, t: ArrayType, spec: Spec) -> ArrayType:
        """Returns the type of the part of an array that one device has."""
        sizes = [self.axes(names).size for names in spec]
        if any(n % size for n, size in zip(t.shape, sizes, strict=True)):
            raise ShapeError(f"shard_map: {t} cannot be cut along {spec} of {self.mesh}.")
        return t.update(shape=tuple([n // s for n, s in zip(t.shape, sizes, strict=True)]))

    def whole(self, t: ArrayType, spec: Spec) -> ArrayType:
        """Returns the type of the array that the parts make."""
        sizes = [self.axes(names).size for names in spec]
        return t.update(shape=tuple([n * s for n, s in zip(t.shape, sizes, strict=True)]))


class _Map(NamedTuple):
    """Is what the params say."""

    program: Program
    over: Over
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]

    def run(self, operands: Any, program: Program, in_specs: Any, out_specs: Any) -> Any:
        """Records another one over the same devices."""
        made = _Map(program, self.over, tuple(in_specs), tuple(out_specs))
        return shard_map_p(*operands, **made._asdict())


def _used(params: Any) -> frozenset[Any]:
    """Returns the axes along which a map does something; along others all devices do the same."""
    program, _, *specs = _Map(**params)
    return names_in(program).union(*[names for some in specs for spec in some for names in spec])


def left_to_xla(params: Any, names: Any) -> Over:
    """Returns over what a map goes where its values lie along further axes of the mesh besides."""
    over, used = params["over"], _used(params)
    left = tuple([axis for axis in over.names if axis not in names or axis in used])
    return Over(over.mesh, left) if left else over  # JAX takes none for all


def _infer(*types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
    program, over, in_specs, out_specs = _Map(**params)
    given = tuple(map(over.local, [t.update() for t in types], in_specs))
    if given != tuple([t.update() for t in program.inputs]):
        raise ShapeError(f"shard_map: {program.name} takes {program.inputs}, not {given}.")
    return tuple(map(over.whole, [t.update() for t in program.output_types], out_specs))


def _lower(xp: Any, *arrays: Any, **params: Any) -> Any:
    if xp is np:  # it is not worth it, see `policy`, but somebody wants each equation by itself
        return by_jit(np, _lower, arrays, params)
    import jax
    from jax.sharding import PartitionSpec

    program, over, in_specs, out_specs = _Map(**params)

    def body(*parts: Any) -> list[Any]:
        found = evaluate(jax.numpy, program, parts)
        dtypes = [jax.dtypes.canonicalize_dtype(t.dtype) for t in program.output_types]
        return list(map(jax.numpy.asarray, found, dtypes))

    def mapped(*arrays: Any) -> list[Any]:
        placed = [PartitionSpec(*spec) for spec in in_specs]
        mesh, arrays = _on_mesh(over.mesh, arrays, placed)
        return jax.shard_map(
            body,
            mesh=mesh,
            in_specs=tuple(placed),
            out_specs=[PartitionSpec(*spec) for spec in out_specs],
            axis_names=set(over.names),
            check_vma=False,
        )(*arrays)

    return jax.jit(mapped)(*arrays)


def _on_mesh(mesh: Any, arrays: Any, specs: Any) -> tuple[Any, Any]:
    """Returns the mesh as JAX wants it where it runs, and arrays that lie on it.

    Within another `shard_map` it is the one that is there. On explicit axes JAX wants arrays to lie
    as they are cut.
    """
    import jax
    from jax.sharding import AxisType, NamedSharding, get_abstract_mesh, reshard

    held = [jax.typeof(x).sharding.mesh for x in arrays]
    kinds = {kind for m in (get_abstract_mesh(), *held) for kind in m.axis_types}
    if AxisType.Explicit in kinds:
        mesh = mesh.update(axis_types=(AxisType.Explicit,) * len(mesh.axis_names))
        found = zip(arrays, specs, strict=True)
        arrays = [reshard(x, NamedSharding(mesh, spec)) for x, spec in found]
    return None if AxisType.Manual in kinds else mesh, arrays


def _jvp(transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    program, _, in_specs, out_specs = this = _Map(**params)
    active = present(tangents)
    pushed, nonzero = transforms.jvp(program, active)
    given = [*primals, *pick(tangents, active)]
    specs = (*in_specs, *pick(in_specs, active)), (*out_specs, *pick(out_specs, nonzero))
    outs, count = this.run(given, pushed, *specs), len(nonzero)
    return outs[:count], spread(outs[count:], nonzero)


def _linearize(transforms: Any, tangents: Any, *primals: Any, **params: Any) -> Any:
    """Keeps residuals where they are: stacked along the axes of the mesh that they differ along."""
    program, over, in_specs, out_specs = this = _Map(**params)
    active = present(tangents)
    part = transforms.linearize(program, active)
    count, size, first = len(part.active), len(primals), sum(active)
    residuals = part.forward.outputs[count:]
    # those that are operands are there already
    made = tuple([type(a) is not int or a >= size for a in residuals])
    with transforms.building(part.forward.name, part.forward.inputs) as (frame, inputs):
        outs = transforms.replay(part.forward, inputs)
        stacked = [expand(x, 1) for x in pick(outs[count:], made)]
        forward = transforms.finish(frame, [*outs[:count], *stacked])
    types = part.linear.inputs
    differ = [varying(part.forward, over.cut(in_specs, axis), axis)[count:] for axis in over.names]
    along = [tuple(compress(over.names, of_each)) for of_each in zip(*differ, strict=True)]
    specs = [
        (names, *[()] * t.ndim) if new else in_specs[a]
        for names, a, t, new in zip(along, residuals, types[first:], made, strict=True)
    ]
    outs = this.run(primals, forward, in_specs, (*out_specs, *pick(specs, made)))
    wide = [
        t.update(shape=(1, *t.shape)) if new else t
        for t, new in zip(types[first:], made, strict=True)
    ]
    with transforms.building(part.linear.name, [*types[:first], *wide]) as (frame, inputs):
        given = [reshape_p(x, shape=t.shape) for x, t in zip(inputs, types, strict=True)]
        linear = transforms.finish(frame, transforms.replay(part.linear, given))
    new = iter(outs[count:])
    kept = [next(new) if m else primals[a] for a, m in zip(residuals, made, strict=True)]
    given = [*pick(tangents, active), *kept]
    given_specs = [*pick(in_specs, active), *specs]
    dots = this.run(given, linear, given_specs, pick(out_specs, part.active))
    return outs[:count], spread(dots, part.active)


def _transpose(transforms: Any, cts: Any, *operands: Any, **params: Any) -> Any:
    program, over, in_specs, out_specs = this = _Map(**params)
    linear, nonzero = unknown(operands), present(cts)
    turned, found = transforms.transpose(program, linear, nonzero)
    constants = pick(operands, opposite(linear))
    from_specs, to_specs = pick(out_specs, nonzero), pick(pick(in_specs, linear), found)
    first, used = len(constants), _used(params)
    with transforms.building(turned.name, turned.inputs) as (frame, inputs):
        shares = [
            div_p(ct, copies) if (copies := over.unmentioned(spec, used).size) > 1 else ct
            for ct, spec in zip(inputs[first:], from_specs, strict=True)
        ]
        got = transforms.replay(turned, [*inputs[:first], *shares])
        summed = [
            psum_p(ct, axes=axes) if (axes := over.unmentioned(spec, used)).names else ct
            for ct, spec in zip(got, to_specs, strict=True)
        ]
        turned = transforms.finish(frame, summed)
    specs = [*pick(in_specs, opposite(linear)), *from_specs]
    got = this.run([*constants, *pick(cts, nonzero)], turned, specs, to_specs)
    return spread(spread(got, found), linear)


def _batch(transforms: Any, size: int, operands: Any, dims: Any, **params: Any) -> Any:
    program, _, in_specs, out_specs = this = _Map(**params)
    batched, mapped = transforms.batch(program, size, tuple(dims))
    given = [
        spec if dim is None else (*spec[:dim], (), *spec[dim:])
        for spec, dim in zip(in_specs, dims, strict=True)
    ]
    returned = [((), *spec) if m else spec for spec, m in zip(out_specs, mapped, strict=True)]
    return this.run(operands, batched, given, returned), [0 if m else None for m in mapped]


def _prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
    needed = tuple(needs(params, used))
    if all(used) and all(needed):
        return None
    changed = {
        "program": restrict(transforms, params["program"], needed, used),
        "in_specs": tuple(pick(params["in_specs"], needed)),
        "out_specs": tuple(pick(params["out_specs"], used)),
    }
    return tuple(pick(operands, needed)), {**params, **changed}, used


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    cost, places = program_cost(params["program"]), math.prod(params["over"].mesh.shape.values())
    return Cost(cost.flops * places, cost.nbytes * places)


def _samples() -> list[Sample]:
    import jax

    over = Over(jax.sharding.Mesh(jax.devices()[:1], ("d",)), ("d",))
    axes = over.axes(["d"])
    t = ArrayType((2, 3), "float64")
    program = program_from(
        lambda x, y: [psum_p(mul_p(sin_p(x), y), axes=axes), mul_p(x, x), y], t, t
    )
    cut, same = (("d",), ()), ((), ())
    specs = {"in_specs": (cut, same), "out_specs": (same, cut, same)}
    operands = normal(2, 3), normal(2, 3, seed=1)
    return [Sample(operands, {"program": program, "over": over, **specs})]


shard_map_p = carrier(
    "shard_map",
    infer=_infer,
    lower=_lower,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    prune=_prune,
    cost=_cost,
    samples=_samples,
)
