"""Writing at computed places: set, add, mul, min and max.

`scatter(operand, indices, updates)` takes index tuples as `gather` does, and updates of the shape
that `gather` would read there. What falls out of bounds is dropped. `unique` promises that no two
tuples are equal; without it, of several updates of one place the last one is set, on every
platform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.arithmetic import div_p, mul_p
from ftrans.primitives.compare import eq_p
from ftrans.primitives.family import (
    check_kind,
    moveaxis,
    no_identity,
    no_programs,
    normal,
    total_bytes,
)
from ftrans.primitives.indexing import (
    append_iota,
    at_least_one,
    check_indices,
    gather_p,
    no_index_tangent,
    numpy_places,
)
from ftrans.primitives.logic import and_p
from ftrans.primitives.record import Absent, Cost, Joint, Linear, Primitive, Sample, scalar
from ftrans.primitives.select import convert_p, select_p
from ftrans.primitives.shape import (
    broadcast_p,
    expand,
    iota_p,
    pad_p,
    reshape_p,
    rev_p,
    slice_p,
    zeros,
)

__all__ = ["scatter_add_p", "scatter_max_p", "scatter_min_p", "scatter_mul_p", "scatter_p"]

_i32 = np.dtype("int32")


# ------------------------------------------------------------------------------ the family


def _jax_scatter(function: str, x: Any, indices: Any, updates: Any, in_bounds: bool, unique: bool):
    from jax import lax

    k, first = indices.shape[-1], indices.ndim - 1
    return getattr(lax, function)(
        x,
        indices,
        updates,
        lax.ScatterDimensionNumbers(
            update_window_dims=tuple(range(first, first + x.ndim - k)),
            inserted_window_dims=tuple(range(k)),
            scatter_dims_to_operand_dims=tuple(range(k)),
        ),
        unique_indices=unique,
        mode="promise_in_bounds" if in_bounds else "drop",
    )


def scattering(
    name: str,
    *,
    kinds: str,
    write: Callable[[Any, Any, Any], Any],
    write_jax: Callable[..., Any] | None = None,
    jvp: Any,
    transpose: Any,
    tags: Sequence[str] = (),
    samples: Sequence[Sample],
) -> Primitive:
    """Declares a primitive that writes updates to the places that index tuples name.

    Args:
        name: the name; that of the function in `jax.lax` too.
        kinds: the dtypes that it takes.
        write: `(out, places, updates)`, changes a NumPy array.
        write_jax: `(x, indices, updates, in_bounds, unique)`, where `jax.lax` does otherwise.
        jvp: the rule.
        transpose: the rule.
        tags: further tags.
        samples: the samples.
    """

    def infer(
        x: ArrayType,
        indices: ArrayType,
        updates: ArrayType,
        *,
        in_bounds: bool,
        unique: bool = False,
    ) -> ArrayType:
        check_kind(name, kinds, x)
        shape = check_indices(name, x, indices)
        if updates.dtype != x.dtype:
            raise DTypeError(
                f"{name}: operand and updates have different dtypes.\n"
                f"  operand: {x}\n  updates: {updates}\n"
                f"  Convert them first: updates.astype('{x.dtype.name}')."
            )
        if updates.shape != shape:
            raise ShapeError(
                f"{name}: the updates do not have the shape {shape} of what they replace.\n"
                f"  operand: {x}\n  indices: {indices}\n  updates: {updates}"
            )
        return x.update()

    def lower(
        xp: Any, x: Any, indices: Any, updates: Any, *, in_bounds: bool, unique: bool = False
    ) -> Any:
        if 0 in x.shape[: indices.shape[-1]]:
            return x
        one, indices_ = at_least_one(xp, x, indices)
        if xp is np:
            out, updates = np.array(one, order="C"), np.asarray(updates)
            places, inside = numpy_places(out, indices_, in_bounds)
            if inside is not None and not inside.all():
                places, updates = tuple(place[inside] for place in places), updates[inside]
            write(out, places, updates)
        elif write_jax:
            out = write_jax(one, indices_, updates, in_bounds, unique)
        else:
            out = _jax_scatter(name, one, indices_, updates, in_bounds, unique)
        return out if one is x else out[0]

    def batch(size: int, operands: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        x, indices, updates = operands
        at_x, at_indices, at_updates = dims
        x, updates = (
            (expand(value, size), 0) if dim is None else (value, dim)
            for value, dim in ((x, at_x), (updates, at_updates))
        )
        if at_indices is None:
            # the mapped axis stands behind the indexed ones, and so is written whole
            t = type_of(indices)
            x, updates = moveaxis(*x, t.shape[-1]), moveaxis(*updates, t.ndim - 1)
            return primitive(x, indices, updates, **params), t.shape[-1]
        indices = append_iota(moveaxis(indices, at_indices, 0), size)
        return primitive(moveaxis(*x, 0), indices, moveaxis(*updates, 0), **params), 0

    def cost(operands: Any, results: Any, params: Any) -> Cost:
        flops = 0 if name == "scatter" else operands[2].size
        return Cost(flops, total_bytes(operands, results))

    primitive = Primitive(
        name=name,
        tags=frozenset({"scatter", *tags}),
        kinds=kinds,
        infer=infer,
        lower=lower,
        jvp=jvp,
        linearize=no_programs,
        transpose=transpose,
        batch=batch,
        prune=no_programs,
        rewrite=no_identity,
        cost=cost,
        samples=lambda: list(samples),
        source=None,
        multiple=False,
    )
    return primitive


def _combining(ufunc: np.ufunc) -> Callable[[Any, Any, Any], None]:
    """Returns what combines updates into a NumPy array by a function, duplicates included."""

    def write(out: Any, places: Any, updates: Any) -> None:
        # `ufunc.at` is five times as fast along one flat axis
        k = len(places)
        window = math.prod(out.shape[k:])
        rows = np.ravel_multi_index(places, out.shape[:k])
        elements = np.asarray(rows)[..., None] * window + np.arange(window)
        ufunc.at(out.reshape(-1), elements.reshape(-1), updates.reshape(-1))

    return write


def _rows(indices: Any) -> int:
    """Returns the number of index tuples."""
    return math.prod(type_of(indices).shape[:-1])


def _type(operand: Any) -> ArrayType:
    return operand.type if isinstance(operand, Linear) else type_of(operand)


def _filled(tangent: Any, primal: Any) -> Any:
    return zeros(type_of(primal)) if tangent is None else tangent


def _over_window(mask: Any, updates: ArrayType) -> Any:
    """Broadcasts one value per index tuple to the shape of the updates."""
    axes = tuple(range(type_of(mask).ndim))
    return broadcast_p(mask, shape=updates.shape, axes=axes)


def _masked(mask: Any, x: Any) -> Any:
    return select_p(mask, x, scalar(0, type_of(x).dtype))


_rows_twice = np.array([[2], [0], [2]], np.int32)
_outside = np.array([[[0, 1], [2, 0]], [[1, 2], [-1, 0]]], np.int32)


def _samples(smooth: bool = True) -> list[Sample]:
    """Returns: a place written twice; places out of bounds; one scalar index; no index at all."""
    return [
        Sample((normal(3, 2), _rows_twice, normal(3, 2, seed=1)), {"in_bounds": True}, smooth),
        Sample((normal(2, 3), _outside, normal(2, 2, seed=1)), {"in_bounds": False}, smooth),
        Sample((normal(3), np.array([1], np.int32), normal(seed=1)), {"in_bounds": True}, smooth),
        Sample((normal(2), np.zeros((2, 0), np.int32), normal(2, 2)), {"in_bounds": True}, smooth),
    ]


# ---------------------------------------------------------------------------------------- set


def _last_wins(x: Any, indices: Any, updates: Any, in_bounds: bool, unique: bool) -> Any:
    """Sets with XLA, which says nothing about the order of updates of one place.

    On CPU the last one is set. Elsewhere every update is first replaced by the last one of its
    place, so that the order does not matter.
    """
    from jax import lax
    from jax import numpy as jnp

    def plain(x: Any, indices: Any, updates: Any) -> Any:
        return _jax_scatter("scatter", x, indices, updates, in_bounds, unique)

    def canonical(x: Any, indices: Any, updates: Any) -> Any:
        shape, k = indices.shape[:-1], indices.shape[-1]
        numbers = jnp.arange(math.prod(shape), dtype=_i32).reshape(shape)
        none = jnp.zeros(x.shape[:k], _i32)
        last = _jax_scatter("scatter_max", none, indices, numbers, in_bounds, False)
        winner = gather_p.lower(jnp, last, indices, in_bounds=in_bounds, fill=0)
        flat = updates.reshape(-1, *updates.shape[len(shape) :])
        updates = gather_p.lower(jnp, flat, winner[..., None], in_bounds=True)
        return plain(x, indices, updates)

    if unique or math.prod(indices.shape[:-1]) < 2:
        return plain(x, indices, updates)
    return lax.platform_dependent(x, indices, updates, cpu=plain, default=canonical)


def _set_transpose(
    ct: Any, x: Any, indices: Any, updates: Any, *, in_bounds: bool, unique: bool = False
) -> list[Any]:
    params = {"in_bounds": in_bounds, "unique": unique}
    u = _type(updates)
    ct_x = ct_updates = None
    if isinstance(x, Linear):
        ct_x = scatter_p(ct, indices, zeros(u), **params)
    if isinstance(updates, Linear):
        ct_updates = gather_p(ct, indices, in_bounds=in_bounds, fill=None if in_bounds else 0)
        if not unique and _rows(indices) > 1:
            won = _won(type_of(ct).shape, indices, in_bounds)
            ct_updates = _masked(_over_window(won, u), ct_updates)
    return [ct_x, None, ct_updates]


def _won(shape: tuple[int, ...], indices: Any, in_bounds: bool) -> Any:
    """Tells for each index tuple whether it is the last one of its place."""
    t = type_of(indices)
    numbers = reshape_p(iota_p(shape=(_rows(indices),), dtype=_i32, axis=0), shape=t.shape[:-1])
    none = zeros(ArrayType(shape[: t.shape[-1]], _i32))
    last = scatter_max_p(none, indices, numbers, in_bounds=in_bounds)
    found = gather_p(last, indices, in_bounds=in_bounds, fill=None if in_bounds else 0)
    return eq_p(found, numbers)


def _numpy_set(out: Any, places: Any, updates: Any) -> None:
    out[places] = updates


scatter_p = scattering(
    "scatter",
    kinds="biufc",
    write=_numpy_set,
    write_jax=_last_wins,
    # linear in operand and updates together: which update is set depends on the indices alone
    jvp=Joint(
        lambda tangents, out, x, indices, updates, **params: scatter_p(
            _filled(tangents[0], x), indices, _filled(tangents[2], updates), **params
        )
    ),
    transpose=Joint(_set_transpose),
    tags=["structural", "linear"],
    samples=_samples(),
)


# ---------------------------------------------------------------------------------------- add


def _add_jvp(tangents: Any, out: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Any:
    t_x, _, t_updates = tangents
    if t_updates is None:
        return t_x
    return scatter_add_p(_filled(t_x, x), indices, t_updates, **params)


def _add_transpose(
    ct: Any, x: Any, indices: Any, updates: Any, *, in_bounds: bool, unique: bool = False
) -> Any:
    return gather_p(ct, indices, in_bounds=in_bounds, fill=None if in_bounds else 0)


scatter_add_p = scattering(
    "scatter_add",
    kinds="iufc",
    write=_combining(np.add),
    jvp=Joint(_add_jvp),
    transpose=[
        lambda ct, x, indices, updates, **params: ct,
        no_index_tangent,
        _add_transpose,
    ],
    tags=["linear"],
    samples=_samples(),
)


# ---------------------------------------------------------------------------------------- mul
#
# At one place, out = x u_1 ... u_n. The tangent is
#
#     t_x u_1 ... u_n + sum_j x t_j prod_{i != j} u_i.
#
# The product over the others is formed without division, so that it is right where updates are
# zero, and is right again when it is differentiated: the tuples are sorted, so that those of one
# place stand together, and products over all that stand before, and over all that stand after,
# are built up by doubling.


def _mul_jvp(
    tangents: Any,
    out: Any,
    x: Any,
    indices: Any,
    updates: Any,
    *,
    in_bounds: bool,
    unique: bool = False,
) -> Any:
    params = {"in_bounds": in_bounds, "unique": unique}
    t_x, _, t_updates = tangents
    total = None if t_x is None else scatter_mul_p(t_x, indices, updates, **params)
    if t_updates is None:
        return total
    factor = gather_p(x, indices, in_bounds=in_bounds, fill=None if in_bounds else 0)
    if not unique and _rows(indices) > 1:
        factor = mul_p(factor, _product_of_others(indices, updates))
    start = zeros(type_of(x)) if total is None else total
    return scatter_add_p(start, indices, mul_p(t_updates, factor), **params)


def _product_of_others(indices: Any, updates: Any) -> Any:
    """Returns for each update the product of the other updates of the same place."""
    from ftrans.primitives.sorting import sort_p

    n, k = _rows(indices), type_of(indices).shape[-1]
    t = type_of(updates)
    factors = reshape_p(updates, shape=(n, *t.shape[type_of(indices).ndim - 1 :]))
    if k == 0:
        return reshape_p(_product_around([], factors), shape=t.shape)
    numbers = iota_p(shape=(n,), dtype=_i32, axis=0)
    flat = reshape_p(indices, shape=(n, k))
    columns = [reshape_p(_part(flat, 1, a, a + 1), shape=(n,)) for a in range(k)]
    *columns, order = sort_p(*columns, numbers, axis=0, keys=k)
    order = reshape_p(order, shape=(n, 1))
    around = _product_around(columns, gather_p(factors, order, in_bounds=True))
    back = scatter_p(zeros(type_of(around)), order, around, in_bounds=True, unique=True)
    return reshape_p(back, shape=t.shape)


def _product_around(columns: Sequence[Any], factors: Any) -> Any:
    """Returns for each factor the product of its neighbours that have the same columns."""
    backwards = [rev_p(column, axes=(0,)) for column in columns]
    after = _product_before(backwards, rev_p(factors, axes=(0,)))
    return mul_p(_product_before(columns, factors), rev_p(after, axes=(0,)))


def _product_before(columns: Sequence[Any], factors: Any) -> Any:
    """Returns for each factor the product of those before it that have the same columns."""
    t = type_of(factors)
    n = t.shape[0]
    one = scalar(1, t.dtype)

    def shifted(x: Any, by: int) -> Any:
        """Returns at each place what stands `by` places before, 1 where the columns differ."""
        same = None
        for column in columns:
            equal = eq_p(_part(column, 0, by, n), _part(column, 0, 0, n - by))
            same = equal if same is None else and_p(same, equal)
        none = (0,) * (t.ndim - 1)
        moved = pad_p(
            _part(x, 0, 0, n - by),
            low=(by, *none),
            high=(0, *none),
            interior=(0, *none),
            value=1,
        )
        if same is None:
            return moved
        same = pad_p(same, low=(by,), high=(0,), interior=(0,), value=False)
        return select_p(_over_window(same, t), moved, one)

    product, by = factors, 1
    while by < n:
        product = mul_p(product, shifted(product, by))
        by *= 2
    return shifted(product, 1)


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    """Returns the part of `x` between two places of one axis."""
    shape = type_of(x).shape
    return slice_p(
        x,
        start=tuple(start if a == axis else 0 for a in range(len(shape))),
        stop=tuple(stop if a == axis else size for a, size in enumerate(shape)),
        step=(1,) * len(shape),
    )


scatter_mul_p = scattering(
    "scatter_mul",
    kinds="iufc",
    write=_combining(np.multiply),
    jvp=Joint(_mul_jvp),
    transpose=[
        lambda ct, x, indices, updates, **params: scatter_mul_p(ct, indices, updates, **params),
        no_index_tangent,
        Absent("several updates of one place are multiplied with each other"),
    ],
    samples=_samples(),
)


# -------------------------------------------------------------------------------- min and max
#
# The minimum norm subgradient: all that equal the result share its tangent evenly, the operand
# among them.


def _extremum_jvp(
    tangents: Any,
    out: Any,
    x: Any,
    indices: Any,
    updates: Any,
    *,
    in_bounds: bool,
    unique: bool = False,
) -> Any:
    params = {"in_bounds": in_bounds, "unique": unique}
    t_x, _, t_updates = tangents
    t = type_of(x)
    wins = eq_p(x, out)
    found = gather_p(out, indices, in_bounds=in_bounds)
    update_wins = eq_p(updates, found)
    count = scatter_add_p(
        convert_p(wins, dtype=t.dtype), indices, convert_p(update_wins, dtype=t.dtype), **params
    )
    total = None if t_x is None else _masked(wins, t_x)
    if t_updates is not None:
        start = zeros(t) if total is None else total
        total = scatter_add_p(start, indices, _masked(update_wins, t_updates), **params)
    return div_p(total, count)


def _extremum(name: str, ufunc: np.ufunc) -> Primitive:
    return scattering(
        name,
        kinds="biuf",
        write=_combining(ufunc),
        jvp=Joint(_extremum_jvp),
        transpose=Absent("it is not linear"),
        samples=_samples(),
    )


scatter_min_p = _extremum("scatter_min", np.minimum)
scatter_max_p = _extremum("scatter_max", np.maximum)
