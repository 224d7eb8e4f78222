"""Collectives: what goes over axes that have names, and so from one example, or device, to others.

`axes` says which: one axis, or several for sums and extrema; with none of them there is one place.
Where `batch` maps the axis they become plain operations along it; within `shard_map`, and within
transformations of JAX's, XLA's own. All are linear but extrema. A sum is a map from as many values
as there are places to as many, which are equal: so it is its own transpose, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, AxisError, ConcretizationError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.axes import Axes
from ftrans.primitives.arithmetic import div_p, mul_p
from ftrans.primitives.axes import moveaxis, sum_p, to_front, zeros
from ftrans.primitives.conversion import convert_p
from ftrans.primitives.family import check_kind, elementwise_cost, normal, not_linear, plain
from ftrans.primitives.logic import eq_p, ne_p, or_p, select_p
from ftrans.primitives.record import LINEAR, Primitive, Recursive, Sample
from ftrans.primitives.reduction import max_p, min_p
from ftrans.primitives.shape import concatenate_p, iota_p, part, reshape_p

ALONE = Axes((), ())
"""No axis at all."""


def collective(
    name: str,
    *,
    kinds: str,
    infer: Callable[..., ArrayType],
    alone: Callable[..., Any],
    lower: Callable[..., Any],
    own: Callable[..., Any],
    moved: Callable[..., dict[str, Any]] = lambda **params: params,
    samples: Sequence[Sample],
    tags: Sequence[str] = (),
    **declared: Any,
) -> Primitive:
    """Declares a primitive that goes over named axes.

    Args:
        name: the name.
        kinds: the dtypes that it takes.
        infer: `(type, size, **params) -> type`.
        alone: `(xp, array, **params) -> array`, what it does where there is one place.
        lower: `(lax, array, names, **params) -> array`, by a function of `jax.lax`.
        own: `(size, operand, dim, **params) -> out, out_dim`, where the axis itself is mapped.
        moved: from its params to those for operands with another axis in front.
        samples: operands and params, without the axes.
        tags: "gathers" where all get the same.
        **declared: what else `plain` takes: `jvp` and `transpose`.
    """

    def inferred(*types: ArrayType, axes: Axes, **params: Any) -> ArrayType:
        if kinds:
            check_kind(name, kinds, *types)
        return infer(*types, axes.size, **params)

    def lowered(xp: Any, *arrays: Any, axes: Axes, **params: Any) -> Any:
        if not axes.names:
            return alone(xp, *arrays, **params)
        from jax import lax

        try:
            if xp is not np:
                return lower(lax, *arrays, axes.names, **params)
        except NameError:
            pass  # of JAX's: it maps no such axis at present
        which = f"axis {axes.names[0]!r}" if len(axes.names) == 1 else f"axes {axes.names!r}"
        raise ConcretizationError(
            f"{name}: its value is asked for outside of the {which} that it goes over.\n"
            f"  Return it, or choose by it with ftrans.cond or ftrans.numpy.where."
        )

    def batch(
        transforms: Any, size: int, operands: Any, dims: Any, *, axes: Axes, **params: Any
    ) -> tuple[Any, int | None]:
        if transforms.axis is None or transforms.axis not in axes.names:
            x = moveaxis(operands[0], dims[0], 0)
            return primitive(x, axes=axes, **moved(**params)), 0
        out, dim = own(size, *operands, *dims, **params)
        rest = axes.without(transforms.axis)
        return (primitive(out, axes=rest, **params) if rest.names else out), dim

    primitive = plain(
        name,
        tags=["collective", *tags],
        kinds=kinds,
        infer=inferred,
        lower=lowered,
        batch=Recursive(batch),
        cost=elementwise_cost,
        samples=[s._replace(params={"axes": ALONE, **s.params}) for s in samples],
        **declared,
    )
    return primitive


def _merged(x: Any, axis: int) -> Any:
    """Makes one axis of an axis and the next one."""
    shape = type_of(x).shape
    both = shape[axis] * shape[axis + 1]
    return reshape_p(x, shape=(*shape[:axis], both, *shape[axis + 2 :]))


def _parted(x: Any, axis: int, size: int) -> Any:
    """Makes two axes of one, the first of which has a size."""
    shape = type_of(x).shape
    return reshape_p(x, shape=(*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :]))


# ----------------------------------------------------------------------- sums and extrema


def _own_sum(size: int, x: Any, dim: int | None) -> tuple[Any, None]:
    return (mul_p(x, size) if dim is None else sum_p(x, axes=(dim,))), None


psum_p = collective(
    "psum",
    tags=["gathers"],
    kinds="iufc",
    infer=lambda x, size: x.update(),
    alone=lambda xp, x: x,
    lower=lambda lax, x, names: lax.psum(x, names),
    own=_own_sum,
    jvp=LINEAR,
    transpose=[lambda ct, x, *, axes: psum_p(ct, axes=axes)],
    samples=[Sample((normal(2, 3),)), Sample((normal(),)), Sample((normal(0),))],
)


def _extremum_jvp(t: Any, out: Any, x: Any, *, axes: Axes) -> Any:
    # as those of an array: equal ones share the tangent, and so do NaNs
    hit = or_p(eq_p(x, out), ne_p(x, x))
    count = psum_p(convert_p(hit, dtype=type_of(t).dtype), axes=axes)
    return div_p(psum_p(select_p(hit, t, 0.0), axes=axes), count)


def _extremum(name: str, along: Primitive) -> Primitive:
    return collective(
        name,
        tags=["gathers"],
        kinds="biuf",
        infer=lambda x, size: x.update(),
        alone=lambda xp, x: x,
        lower=lambda lax, x, names: getattr(lax, name)(x, names),
        own=lambda size, x, dim: (x if dim is None else along(x, axes=(dim,)), None),
        jvp=[_extremum_jvp],
        transpose=not_linear,
        samples=[Sample((normal(2, 3),)), Sample((normal(0),))],
    )


pmax_p = _extremum("pmax", max_p)
pmin_p = _extremum("pmin", min_p)


# -------------------------------------------------------------- what is gathered and scattered


def _check_axis(name: str, x: ArrayType, axis: int, ndim: int) -> None:
    if not 0 <= axis < ndim:
        raise AxisError(f"{name}: {x} has no place {axis} for an axis.")


def _check_parts(name: str, x: ArrayType, axis: int, size: int, tiled: bool) -> None:
    """Raises unless an axis has a part for each place."""
    _check_axis(name, x, axis, x.ndim)
    length = x.shape[axis]
    if length % size if tiled else length != size:
        needs = f"a multiple of {size}" if tiled else f"{size}"
        raise ShapeError(
            f"{name}: axis {axis} has no part for each of the {size} places.\n"
            f"  operand: {x}, size {length}\n  Its size has to be {needs}; tiled is {tiled}."
        )


def _tiled(x: ArrayType, axis: int, count: int, parts: int = 1) -> ArrayType:
    """Returns the type with `count` times as many elements along an axis, in `parts`."""
    return x.update(shape=(*x.shape[:axis], x.shape[axis] * count // parts, *x.shape[axis + 1 :]))


def _gathered(x: ArrayType, size: int, *, axis: int, tiled: bool) -> ArrayType:
    _check_axis("all_gather", x, axis, x.ndim + (not tiled))
    if tiled:
        return _tiled(x, axis, size)
    return x.update(shape=(*x.shape[:axis], size, *x.shape[axis:]))


def _own_gather(size: int, x: Any, dim: int | None, *, axis: int, tiled: bool) -> Any:
    out = moveaxis(to_front(size, x, dim), 0, axis)
    return (_merged(out, axis) if tiled else out), None


def _moved(*, axis: int, tiled: bool) -> dict[str, Any]:
    return {"axis": axis + 1, "tiled": tiled}


_TILED = {"axis": 0, "tiled": True}

all_gather_p = collective(
    "all_gather",
    tags=["gathers"],
    kinds="biufc",
    infer=_gathered,
    alone=lambda xp, x, *, axis, tiled: x if tiled else xp.expand_dims(x, axis),
    lower=lambda lax, x, names, **how: lax.all_gather(x, names, **how),
    own=_own_gather,
    moved=_moved,
    jvp=LINEAR,
    transpose=[lambda ct, x, **how: psum_scatter_p(ct, **how)],
    samples=[
        Sample((normal(2, 3),), {"axis": 1, "tiled": False}),
        Sample((normal(2, 3),), _TILED),
        Sample((normal(),), {"axis": 0, "tiled": False}),
    ],
)


def _scattered(x: ArrayType, size: int, *, axis: int, tiled: bool) -> ArrayType:
    _check_parts("psum_scatter", x, axis, size, tiled)
    if tiled:
        return _tiled(x, axis, 1, size)
    return x.update(shape=x.shape[:axis] + x.shape[axis + 1 :])


def _own_scatter(size: int, x: Any, dim: int | None, *, axis: int, tiled: bool) -> Any:
    total, _ = _own_sum(size, x, dim)
    return (_parted(total, axis, size) if tiled else total), axis


psum_scatter_p = collective(
    "psum_scatter",
    kinds="iufc",
    infer=_scattered,
    alone=lambda xp, x, *, axis, tiled: x if tiled else xp.squeeze(x, axis),
    lower=lambda lax, x, names, *, axis, tiled: lax.psum_scatter(
        x, names, scatter_dimension=axis, tiled=tiled
    ),
    own=_own_scatter,
    moved=_moved,
    jvp=LINEAR,
    transpose=[lambda ct, x, **how: all_gather_p(ct, **how)],
    samples=[
        Sample((normal(2, 1),), {"axis": 1, "tiled": False}),
        Sample((normal(2, 3),), _TILED),
    ],
)


# ---------------------------------------------------------------------- what is passed on


def _exchanged(x: ArrayType, size: int, *, split: int, concat: int, tiled: bool) -> ArrayType:
    _check_parts("all_to_all", x, split, size, tiled)
    _check_axis("all_to_all", x, concat, x.ndim)
    if tiled:
        return _tiled(_tiled(x, split, 1, size), concat, size)
    rest = x.shape[:split] + x.shape[split + 1 :]
    return x.update(shape=(*rest[:concat], size, *rest[concat:]))


def _own_exchange(
    size: int, x: Any, dim: int | None, *, split: int, concat: int, tiled: bool
) -> Any:
    out = to_front(size, x, dim)
    if tiled:
        out = _parted(out, split + 1, size)
    # who gets it comes to the front, and from whom it is to where it is put
    out = moveaxis(moveaxis(out, split + 1, 0), 1, concat + 1)
    return (_merged(out, concat + 1) if tiled else out), 0


all_to_all_p = collective(
    "all_to_all",
    kinds="biufc",
    infer=_exchanged,
    alone=lambda xp, x, *, split, concat, tiled: x if tiled else xp.moveaxis(x, split, concat),
    lower=lambda lax, x, names, *, split, concat, tiled: lax.all_to_all(
        x, names, split, concat, tiled=tiled
    ),
    own=_own_exchange,
    moved=lambda *, split, concat, tiled: {
        "split": split + 1,
        "concat": concat + 1,
        "tiled": tiled,
    },
    jvp=LINEAR,
    transpose=[
        lambda ct, x, *, axes, split, concat, tiled: all_to_all_p(
            ct, axes=axes, split=concat, concat=split, tiled=tiled
        )
    ],
    samples=[
        Sample((normal(2, 1, 3),), {"split": 1, "concat": 0, "tiled": False}),
        Sample((normal(2, 3),), {"split": 1, "concat": 0, "tiled": True}),
    ],
)


def _permuted(x: ArrayType, size: int, *, perm: tuple[tuple[int, int], ...]) -> ArrayType:
    for which, places in zip(("source", "destination"), zip(*perm, strict=True), strict=False):
        is_there = all(0 <= place < size for place in places)
        if not is_there or len(set(places)) < len(places):
            fault = f"is the {which} of one pair at most" if is_there else "is one on the axis"
            raise ArgumentError(
                f"ppermute: each place {fault}.\n  perm: {perm}\n  The places are 0 ... {size - 1}."
            )
    return x.update()


def _own_permutation(size: int, x: Any, dim: int | None, *, perm: Any) -> tuple[Any, int]:
    x = to_front(size, x, dim)
    t, source = type_of(x), {to: at for at, to in perm}
    rows, start = [], 0
    while start < size:  # stretches that come from one stretch, or from none
        first, stop = source.get(start), start + 1
        while stop < size and source.get(stop) == (None if first is None else first + stop - start):
            stop += 1
        if first is None:
            rows.append(zeros(t.update(shape=(stop - start, *t.shape[1:]))))
        else:
            rows.append(part(x, 0, first, first + stop - start))
        start = stop
    return (concatenate_p(*rows, axis=0) if rows else x), 0


ppermute_p = collective(
    "ppermute",
    kinds="biufc",
    infer=_permuted,
    alone=lambda xp, x, *, perm: x if perm else xp.zeros_like(x),
    lower=lambda lax, x, names, *, perm: lax.ppermute(x, names, perm),
    own=_own_permutation,
    jvp=LINEAR,
    transpose=[
        lambda ct, x, *, axes, perm: ppermute_p(ct, axes=axes, perm=tuple([p[::-1] for p in perm]))
    ],
    samples=[Sample((normal(2, 3),), {"perm": ((0, 0),)}), Sample((normal(3),), {"perm": ()})],
)

_INDEX = ArrayType((), "int32")

axis_index_p = collective(
    "axis_index",
    kinds="",
    infer=lambda size: _INDEX,
    alone=lambda xp: xp.zeros((), np.int32),
    lower=lambda lax, names: lax.axis_index(names),
    own=lambda size: (iota_p(shape=(size,), dtype=_INDEX.dtype, axis=0), 0),
    jvp=[],
    transpose=[],
    samples=[Sample(())],
)
