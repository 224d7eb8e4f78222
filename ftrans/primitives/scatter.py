"""Writing at computed places: set, mul, min and max; what all scatters share stands by `gather`.

Of several updates of one place the last one is set, on every platform.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.ir import ArrayType, type_of
from ftrans.primitives.arithmetic import div_p, mul_p
from ftrans.primitives.axes import broadcast_p, filled, zeros
from ftrans.primitives.conversion import convert_p
from ftrans.primitives.indexing import (
    SCATTER_SAMPLES,
    combining,
    gather_p,
    jax_scatter,
    no_index_tangent,
    read,
    scatter_add_p,
    scattering,
)
from ftrans.primitives.logic import eq_p, select_p
from ftrans.primitives.record import LINEAR, Absent, Joint, Primitive, operand_type, scalar
from ftrans.primitives.reduction import shift
from ftrans.primitives.shape import iota_p, part, reshape_p
from ftrans.primitives.sorting import sort_p

_i32 = np.dtype("int32")


def _rows(indices: Any) -> int:
    """Returns the number of index tuples."""
    return math.prod(type_of(indices).shape[:-1])


def _over_window(mask: Any, updates: ArrayType) -> Any:
    """Broadcasts one value per index tuple to the shape of the updates."""
    axes = tuple(range(type_of(mask).ndim))
    return broadcast_p(mask, shape=updates.shape, axes=axes)


def _masked(mask: Any, x: Any) -> Any:
    return select_p(mask, x, scalar(0, type_of(x).dtype))


# ---------------------------------------------------------------------------------------- set


def _last_wins(x: Any, indices: Any, updates: Any, in_bounds: bool, unique: bool) -> Any:
    """Sets with XLA, which says nothing about the order of updates of one place.

    On CPU the last one is set. Elsewhere every update is first replaced by the last one of its
    place, so that the order does not matter.
    """
    from jax import lax
    from jax import numpy as jnp

    def plain(x: Any, indices: Any, updates: Any) -> Any:
        return jax_scatter("scatter", x, indices, updates, in_bounds, unique)

    def canonical(x: Any, indices: Any, updates: Any) -> Any:
        shape, k = indices.shape[:-1], indices.shape[-1]
        numbers = jnp.arange(math.prod(shape), dtype=_i32).reshape(shape)
        none = jnp.zeros(x.shape[:k], _i32)
        last = jax_scatter("scatter_max", none, indices, numbers, in_bounds, False)
        winner = gather_p.lower(jnp, last, indices, in_bounds=in_bounds, fill=0)
        flat = updates.reshape(numbers.size, *updates.shape[len(shape) :])
        updates = gather_p.lower(jnp, flat, winner[..., None], in_bounds=True)
        return plain(x, indices, updates)

    if unique or math.prod(indices.shape[:-1]) < 2:
        return plain(x, indices, updates)
    return lax.platform_dependent(x, indices, updates, cpu=plain, default=canonical)


def _set_transpose_updates(ct: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Any:
    found = read(ct, indices, **params)
    if params.get("unique") or _rows(indices) < 2:
        return found
    won = _won(type_of(ct).shape, indices, params["in_bounds"])
    return _masked(_over_window(won, updates.type), found)


def _won(shape: tuple[int, ...], indices: Any, in_bounds: bool) -> Any:
    """Tells for each index tuple whether it is the last one of its place."""
    t = type_of(indices)
    numbers = reshape_p(iota_p(shape=(_rows(indices),), dtype=_i32, axis=0), shape=t.shape[:-1])
    none = zeros(ArrayType(shape[: t.shape[-1]], _i32))
    last = scatter_max_p(none, indices, numbers, in_bounds=in_bounds)
    return eq_p(read(last, indices, in_bounds=in_bounds), numbers)


scatter_p = scattering(
    "scatter",
    kinds="biufc",
    write=operator.setitem,
    write_jax=_last_wins,
    # linear in operand and updates together: which update is set depends on the indices alone
    jvp=LINEAR,
    transpose=[
        lambda ct, x, indices, updates, **params: scatter_p(
            ct, indices, zeros(operand_type(updates)), **params
        ),
        no_index_tangent,
        _set_transpose_updates,
    ],
    tags=["structural", "linear"],
    samples=SCATTER_SAMPLES,
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


def _mul_jvp(tangents: Any, out: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Any:
    t_x, _, t_updates = tangents
    total = None if t_x is None else scatter_mul_p(t_x, indices, updates, **params)
    if t_updates is None:
        return total
    factor = read(x, indices, **params)
    if not params.get("unique") and _rows(indices) > 1:
        factor = mul_p(factor, _product_of_others(indices, updates))
    return scatter_add_p(filled(total, x), indices, mul_p(t_updates, factor), **params)


def _product_of_others(indices: Any, updates: Any) -> Any:
    """Returns for each update the product of the other updates of the same place."""
    n, k = _rows(indices), type_of(indices).shape[-1]
    t = type_of(updates)
    factors = reshape_p(updates, shape=(n, *t.shape[type_of(indices).ndim - 1 :]))
    numbers = iota_p(shape=(n,), dtype=_i32, axis=0)
    flat = reshape_p(indices, shape=(n, k))
    columns = [reshape_p(part(flat, 1, a, a + 1), shape=(n,)) for a in range(k)]
    *columns, order = sort_p(*columns, numbers, axis=0, keys=max(k, 1))
    order = reshape_p(order, shape=(n, 1))
    factors = gather_p(factors, order, in_bounds=True)
    around = mul_p(*(_product_before(columns, factors, reverse) for reverse in (False, True)))
    back = scatter_p(zeros(type_of(around)), order, around, in_bounds=True, unique=True)
    return reshape_p(back, shape=t.shape)


def _product_before(columns: Sequence[Any], factors: Any, reverse: bool) -> Any:
    """Returns for each factor the product of those before it that have the same columns.

    Where `reverse`, it is of those after it.
    """
    t = type_of(factors)

    def shifted(x: Any, by: int) -> Any:
        """Returns at each place what stands `by` places before, 1 where the columns differ."""
        moved = shift(x, by, 1.0, axis=0, reverse=reverse)
        for column in columns:
            same = eq_p(column, shift(column, by, 0, axis=0, reverse=reverse))
            moved = select_p(_over_window(same, t), moved, scalar(1, t.dtype))
        return moved

    product, by = factors, 1
    while by < t.shape[0]:
        product = mul_p(product, shifted(product, by))
        by *= 2
    return shifted(product, 1)


scatter_mul_p = scattering(
    "scatter_mul",
    kinds="iufc",
    write=combining(np.multiply),
    jvp=Joint(_mul_jvp),
    transpose=[
        lambda ct, x, indices, updates, **params: scatter_mul_p(ct, indices, updates, **params),
        no_index_tangent,
        Absent("several updates of one place are multiplied with each other"),
    ],
    samples=SCATTER_SAMPLES,
)


# -------------------------------------------------------------------------------- min and max
#
# The minimum norm subgradient: all that equal the result share its tangent evenly, the operand
# among them.


def _extremum_jvp(
    tangents: Any, out: Any, x: Any, indices: Any, updates: Any, **params: Any
) -> Any:
    t_x, _, t_updates = tangents
    t = type_of(x)
    wins = eq_p(x, out)
    found = gather_p(out, indices, in_bounds=params["in_bounds"])
    update_wins = eq_p(updates, found)
    count = scatter_add_p(
        convert_p(wins, dtype=t.dtype), indices, convert_p(update_wins, dtype=t.dtype), **params
    )
    total = None if t_x is None else _masked(wins, t_x)
    if t_updates is not None:
        won = _masked(update_wins, t_updates)
        total = scatter_add_p(filled(total, x), indices, won, **params)
    return div_p(total, count)


def _extremum(name: str, ufunc: np.ufunc) -> Primitive:
    return scattering(
        name,
        kinds="biuf",
        write=combining(ufunc),
        jvp=Joint(_extremum_jvp),
        samples=SCATTER_SAMPLES,
    )


scatter_min_p = _extremum("scatter_min", np.minimum)
scatter_max_p = _extremum("scatter_max", np.maximum)
