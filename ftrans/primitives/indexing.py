"""Reading at computed places, `gather`, its transpose `scatter_add`, and what all scatters share.

An index tuple is the last axis of an integer array: `indices: i32[..., k]` indexes the `k` leading
axes of the operand and takes all of the others. Indices count from 0 upwards; a negative one is out
of bounds. `scatter(operand, indices, updates)` takes updates of the shape that `gather` would read
there, and drops what falls out of bounds. `unique` promises that no two tuples are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import is_inexact, is_integer
from ftrans.primitives.axes import expand, filled, moveaxis, zeros
from ftrans.primitives.conversion import convert_p
from ftrans.primitives.family import check_kind, normal, plain, structural, total_bytes
from ftrans.primitives.record import Absent, Cost, Joint, Primitive, Sample
from ftrans.primitives.shape import concatenate_p, iota_p

no_index_tangent = Absent("indices are integers, which have no tangents")


# ------------------------------------------------------------- index tuples, scatters included


def check_indices(name: str, x: ArrayType, indices: ArrayType) -> tuple[int, ...]:
    """Returns the shape of what index tuples select; raises where they do not fit the operand."""
    if not is_integer(indices.dtype):
        raise DTypeError(
            f"{name}: indices must be integers.\n  operand: {x}\n  indices: {indices}\n"
            f"  Convert them first: indices.astype('int32')."
        )
    if not indices.shape or indices.shape[-1] > x.ndim:
        raise ShapeError(
            f"{name}: the last axis of the indices holds one index for each leading axis of the "
            f"operand.\n  operand: {x}\n  indices: {indices}"
        )
    return indices.shape[:-1] + x.shape[indices.shape[-1] :]


def at_least_one(xp: Any, x: Any, indices: Any) -> tuple[Any, Any]:
    """Gives operand and index tuples one axis more where the tuples are empty."""
    if indices.shape[-1]:
        return x, indices
    return x[None], xp.zeros((*indices.shape[:-1], 1), np.int32)


def numpy_places(x: Any, indices: Any, in_bounds: bool) -> tuple[tuple[Any, ...], Any]:
    """Returns the index arrays by which NumPy reaches the places, and which are inside (or None).

    Those that are not inside are replaced by 0. No indexed axis may be empty.
    """
    columns = tuple(indices[..., axis] for axis in range(indices.shape[-1]))
    if in_bounds:
        return columns, None
    sizes = x.shape[: len(columns)]
    inside = np.logical_and.reduce(
        [(c >= 0) & (c < n) for c, n in zip(columns, sizes, strict=True)]
    )
    return tuple(np.where(inside, c, 0).astype(np.intp) for c in columns), inside


def append_iota(indices: Any, size: int) -> Any:
    """Puts the number of the example in front of every index tuple: the first axis is mapped."""
    t = type_of(indices)
    if size - 1 > np.iinfo(t.dtype).max:
        indices = convert_p(indices, dtype=np.dtype("int32"))
        t = type_of(indices)
    numbers = iota_p(shape=(*t.shape[:-1], 1), dtype=t.dtype, axis=0)
    return concatenate_p(numbers, indices, axis=t.ndim - 1)


# ------------------------------------------------------------------------------------- gather


def _missing(dtype: np.dtype, fill: Any) -> Any:
    """Returns what a place out of bounds reads, where `fill` does not say it: as JAX's "fill"."""
    if fill is not None:
        return fill
    if is_inexact(dtype):
        return math.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def _gather_lower(xp: Any, x: Any, indices: Any, *, in_bounds: bool, fill: Any = None) -> Any:
    x, indices = at_least_one(xp, x, indices)
    k = indices.shape[-1]
    missing = _missing(x.dtype, fill)
    if 0 in x.shape[:k]:
        return xp.full(indices.shape[:-1] + x.shape[k:], missing, dtype=x.dtype)
    if xp is np:
        places, inside = numpy_places(x, indices, in_bounds)
        out = x[places]
        if inside is None or inside.all():
            return out
        inside = inside.reshape(inside.shape + (1,) * (x.ndim - k))
        return np.where(inside, out, np.asarray(missing, dtype=x.dtype))
    from jax import lax

    if indices.dtype.itemsize > 4 and not in_bounds:
        # JAX converts them to int32 before it looks whether they are in bounds
        indices = xp.clip(indices, -1 if indices.dtype.kind == "i" else 0, max(x.shape[:k]))
    first = indices.ndim - 1
    return lax.gather(
        x,
        indices,
        lax.GatherDimensionNumbers(
            offset_dims=tuple(range(first, first + x.ndim - k)),
            collapsed_slice_dims=tuple(range(k)),
            start_index_map=tuple(range(k)),
        ),
        (1,) * k + tuple(x.shape[k:]),
        mode="promise_in_bounds" if in_bounds else "fill",
        fill_value=None if in_bounds else missing,
    )


def read(x: Any, indices: Any, *, in_bounds: bool, **params: Any) -> Any:
    """Gathers tangents or cotangents; out of bounds is a constant, and so it is zero, not NaN."""
    return gather_p(x, indices, in_bounds=in_bounds, fill=None if in_bounds else 0)


def _gather_batch(size: int, operands: Any, dims: Any, **params: Any) -> tuple[Any, int]:
    x, indices = operands
    at_x, at_indices = dims
    if at_indices is None:
        # the mapped axis stands behind the indexed ones, and so is taken whole
        t = type_of(indices)
        return gather_p(moveaxis(x, at_x, t.shape[-1]), indices, **params), t.ndim - 1
    indices = moveaxis(indices, at_indices, 0)
    if at_x is not None:
        x, indices = moveaxis(x, at_x, 0), append_iota(indices, size)
    return gather_p(x, indices, **params), 0


_rows = np.array([[2], [0], [2]], np.int32)
_outside = np.array([[[0, 1], [2, 0]], [[1, 2], [-1, 0]]], np.int32)

gather_p = structural(
    "gather",
    infer=lambda x, indices, **params: x.update(shape=check_indices("gather", x, indices)),
    lower=_gather_lower,
    jvp=[lambda t, out, x, indices, **params: read(t, indices, **params), no_index_tangent],
    transpose=[
        lambda ct, x, indices, *, in_bounds, fill=None: scatter_add_p(
            zeros(x.type), indices, ct, in_bounds=in_bounds
        ),
        no_index_tangent,
    ],
    batch=_gather_batch,
    tags=["linear", "indexed"],
    samples=[
        Sample((normal(3, 2), _rows), {"in_bounds": True}),
        Sample((normal(2, 3), _outside), {"in_bounds": False, "fill": 0}),
        Sample((normal(3), np.array([1], np.int32)), {"in_bounds": False, "fill": 0}),
        Sample((normal(2), np.zeros((3, 0), np.int32)), {"in_bounds": True}),
        Sample((normal(0, 2), _rows), {"in_bounds": False, "fill": 0}),
    ],
)


# ------------------------------------------------------------------- the family of scatters


def jax_scatter(function: str, x: Any, indices: Any, updates: Any, in_bounds: bool, unique: bool):
    """Writes at index tuples by a function of `jax.lax`."""
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
    tags: Sequence[str] = (),
    **declared: Any,
) -> Primitive:
    """Declares a primitive that writes updates to the places that index tuples name.

    Args:
        name: the name; that of the function in `jax.lax` too.
        kinds: the dtypes that it takes.
        write: `(out, places, updates)`, changes a NumPy array.
        write_jax: `(x, indices, updates, in_bounds, unique)`, where `jax.lax` does otherwise.
        tags: further tags.
        **declared: what else `plain` takes: `jvp`, `transpose` and `samples`.
    """

    def infer(x: ArrayType, indices: ArrayType, updates: ArrayType, **params: Any) -> ArrayType:
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
            out = jax_scatter(name, one, indices_, updates, in_bounds, unique)
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

    primitive = plain(
        name,
        tags=["scatter", "indexed", *tags],
        kinds=kinds,
        infer=infer,
        lower=lower,
        batch=batch,
        cost=cost,
        **declared,
    )
    return primitive


def combining(ufunc: np.ufunc) -> Callable[[Any, Any, Any], None]:
    """Returns what combines updates into a NumPy array by a function, duplicates included."""

    def write(out: Any, places: Any, updates: Any) -> None:
        # `ufunc.at` is five times as fast along one flat axis
        k = len(places)
        window = math.prod(out.shape[k:])
        rows = np.ravel_multi_index(places, out.shape[:k])
        elements = np.asarray(rows)[..., None] * window + np.arange(window)
        ufunc.at(out.reshape(-1), elements.reshape(-1), updates.reshape(-1))

    return write


SCATTER_SAMPLES = [
    Sample((normal(3, 2), _rows, normal(3, 2, seed=1)), {"in_bounds": True}),
    Sample((normal(2, 3), _outside, normal(2, 2, seed=1)), {"in_bounds": False}),
    Sample((normal(3), np.array([1], np.int32), normal(seed=1)), {"in_bounds": True}),
    Sample((normal(2), np.zeros((2, 0), np.int32), normal(2, 2)), {"in_bounds": True}),
]
"""A place written twice; places out of bounds; one scalar index; no index at all."""


# -------------------------------------------------------------------------------- scatter_add


def _add_jvp(tangents: Any, out: Any, x: Any, indices: Any, updates: Any, **params: Any) -> Any:
    t_x, _, t_updates = tangents
    if t_updates is None:
        return t_x
    return scatter_add_p(filled(t_x, x), indices, t_updates, **params)


scatter_add_p = scattering(
    "scatter_add",
    kinds="iufc",
    write=combining(np.add),
    jvp=Joint(_add_jvp),
    transpose=[
        lambda ct, x, indices, updates, **params: ct,
        no_index_tangent,
        lambda ct, x, indices, updates, **params: read(ct, indices, **params),
    ],
    tags=["linear"],
    samples=SCATTER_SAMPLES,
)
