"""Reading at computed places: gather, dynamic_slice and dynamic_update_slice.

An index tuple is the last axis of an integer array: `indices: i32[..., k]` indexes the `k` leading
axes of the operand and takes all of the others. Indices count from 0 upwards; a negative one is out
of bounds. The scatters, which write to such places, are in the file next door.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.ir.dtype import is_inexact, is_integer
from ftrans.primitives.arithmetic import add_p
from ftrans.primitives.family import moveaxis, normal, structural
from ftrans.primitives.record import Absent, Joint, Linear, New, Sample, scalar
from ftrans.primitives.select import clamp_index, convert_p
from ftrans.primitives.shape import (
    broadcast_p,
    concatenate_p,
    expand,
    iota_p,
    reshape_p,
    slice_p,
    transpose_p,
    zeros,
)

__all__ = ["dynamic_slice_p", "dynamic_update_slice_p", "gather_p"]

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


def _gather_infer(
    x: ArrayType, indices: ArrayType, *, in_bounds: bool, fill: Any = None
) -> ArrayType:
    return x.update(shape=check_indices("gather", x, indices))


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


def _gather_jvp(
    t: Any, out: Any, x: Any, indices: Any, *, in_bounds: bool, fill: Any = None
) -> Any:
    # what is read out of bounds is a constant, so its tangent is zero, and never the NaN
    return gather_p(t, indices, in_bounds=in_bounds, fill=None if in_bounds else 0)


def _gather_transpose(ct: Any, x: Any, indices: Any, *, in_bounds: bool, fill: Any = None) -> Any:
    from ftrans.primitives.scatter import scatter_add_p

    return scatter_add_p(zeros(x.type), indices, ct, in_bounds=in_bounds)


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

gather_p = structural(
    "gather",
    infer=_gather_infer,
    lower=_gather_lower,
    jvp=[_gather_jvp, no_index_tangent],
    transpose=[_gather_transpose, no_index_tangent],
    batch=_gather_batch,
    tags=["linear"],
    samples=[
        Sample((normal(3, 2), _rows), {"in_bounds": True}),
        Sample(
            (normal(2, 3), np.array([[[0, 1], [2, 0]], [[1, 2], [-1, 0]]], np.int32)),
            {"in_bounds": False, "fill": 0},
        ),
        Sample((normal(3), np.array([1], np.int32)), {"in_bounds": False, "fill": 0}),
        Sample((normal(2), np.zeros((3, 0), np.int32)), {"in_bounds": True}),
        Sample((normal(0, 2), _rows), {"in_bounds": False, "fill": 0}),
    ],
)


# ------------------------------------------------------------------------------ dynamic_slice


def _check_window(
    name: str, x: ArrayType, sizes: tuple[int, ...], starts: Sequence[ArrayType]
) -> None:
    if len(starts) != x.ndim or any(t.shape != () or t.dtype != np.int32 for t in starts):
        raise ShapeError(
            f"{name}: takes one start i32[] for each axis.\n"
            f"  operand: {x}\n  starts: {', '.join(map(str, starts))}"
        )
    if len(sizes) != x.ndim or any(
        not 0 <= n <= size for n, size in zip(sizes, x.shape, strict=True)
    ):
        raise ShapeError(
            f"{name}: a window of shape {sizes} does not fit the operand.\n  operand: {x}"
        )


def _window(x: Any, sizes: Sequence[int], starts: Sequence[Any]) -> tuple[slice, ...]:
    """Returns the slices of a NumPy array at the starts, clamped as by XLA: -1 becomes 0."""
    low = [min(max(int(a), 0), size - n) for a, n, size in zip(starts, sizes, x.shape, strict=True)]
    return tuple(slice(a, a + n) for a, n in zip(low, sizes, strict=True))


def _slice_infer(x: ArrayType, *starts: ArrayType, sizes: tuple[int, ...]) -> ArrayType:
    _check_window("dynamic_slice", x, sizes, starts)
    return x.update(shape=sizes)


def _slice_lower(xp: Any, x: Any, *starts: Any, sizes: tuple[int, ...]) -> Any:
    if xp is np:
        return x[_window(x, sizes, starts)]
    from jax import lax

    return lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)


def _slice_transpose(ct: Any, x: Any, *starts: Any, sizes: tuple[int, ...]) -> list[Any]:
    return [dynamic_update_slice_p(zeros(x.type), ct, *starts), *[None] * len(starts)]


def _slice_batch(
    size: int, operands: Any, dims: Any, *, sizes: tuple[int, ...]
) -> tuple[Any, int | None]:
    x, *starts = operands
    if all(dim is None for dim in dims[1:]):
        x = moveaxis(x, dims[0], 0)
        return dynamic_slice_p(x, scalar(0, np.int32), *starts, sizes=(size, *sizes)), 0
    is_mapped = dims[0] is not None
    x = moveaxis(x, dims[0], 0) if is_mapped else x
    axes, indices = _mapped_windows(size, type_of(x).shape[is_mapped:], sizes, starts, dims[1:])
    if not axes:
        return x, (0 if is_mapped else None)
    order = _indexed_first(axes, len(sizes))
    if is_mapped:
        x = transpose_p(x, permutation=(0, *(a + 1 for a in order)))
        indices = append_iota(indices, size)
    else:
        x = transpose_p(x, permutation=order)
    return _restored(gather_p(x, indices, in_bounds=True), order), 0


def _mapped_windows(
    size: int,
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    starts: Sequence[Any],
    dims: Sequence[int | None],
) -> tuple[tuple[int, ...], Any]:
    """Returns the axes on which windows can move, and the indices of all of their places.

    The indices are i32[size, window sizes of those axes, number of those axes].
    """
    axes = tuple(axis for axis, n in enumerate(sizes) if n < shape[axis])
    grid = (size, *(sizes[axis] for axis in axes))
    columns = []
    for number, axis in enumerate(axes):
        start = clamp_index(starts[axis], shape[axis] - sizes[axis] + 1)
        at = broadcast_p(start, shape=grid, axes=() if dims[axis] is None else (0,))
        column = add_p(at, iota_p(shape=grid, dtype=np.dtype("int32"), axis=number + 1))
        columns.append(reshape_p(column, shape=(*grid, 1)))
    return axes, concatenate_p(*columns, axis=len(grid)) if columns else None


def _indexed_first(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return axes + tuple(axis for axis in range(ndim) if axis not in axes)


def _restored(x: Any, order: tuple[int, ...]) -> Any:
    """Undoes the permutation `order` of all axes but the first, which is mapped."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return transpose_p(x, permutation=(0, *(axis + 1 for axis in inverse)))


def _start(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def _slice_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, *starts = operands
    if not all(isinstance(start, Literal) for start in starts):
        return None
    shape, sizes = scope.type(x).shape, params["sizes"]
    low = tuple(
        min(max(start.value, 0), size - n)
        for start, n, size in zip(starts, sizes, shape, strict=True)
    )
    stop = tuple(a + n for a, n in zip(low, sizes, strict=True))
    return New(slice_p, (x,), {"start": low, "stop": stop, "step": (1,) * len(sizes)})


dynamic_slice_p = structural(
    "dynamic_slice",
    infer=_slice_infer,
    lower=_slice_lower,
    jvp=Joint(
        lambda tangents, out, x, *starts, sizes: dynamic_slice_p(tangents[0], *starts, sizes=sizes)
    ),
    transpose=Joint(_slice_transpose),
    batch=_slice_batch,
    rewrite=_slice_rewrite,
    tags=["linear"],
    samples=[
        Sample((normal(5, 3), _start(1), _start(0)), {"sizes": (2, 3)}),
        Sample((normal(5, 3), _start(9), _start(-2)), {"sizes": (3, 2)}),
        Sample((normal(4), _start(2)), {"sizes": (0,)}),
        Sample((normal(),), {"sizes": ()}),
    ],
)


# ----------------------------------------------------------------------- dynamic_update_slice


def _update_infer(x: ArrayType, update: ArrayType, *starts: ArrayType) -> ArrayType:
    if x.dtype != update.dtype or x.ndim != update.ndim:
        raise ShapeError(
            "dynamic_update_slice: the update does not have the dtype and the number of axes of "
            f"the operand.\n  operand: {x}\n  update: {update}"
        )
    _check_window("dynamic_update_slice", x, update.shape, starts)
    return x.update()


def _update_lower(xp: Any, x: Any, update: Any, *starts: Any) -> Any:
    if xp is np:
        out = np.array(x)
        out[_window(out, update.shape, starts)] = update
        return out
    from jax import lax

    return lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False)


def _update_jvp(tangents: Any, out: Any, x: Any, update: Any, *starts: Any) -> Any:
    filled = [
        zeros(type_of(primal)) if t is None else t
        for t, primal in zip(tangents, (x, update), strict=False)
    ]
    return dynamic_update_slice_p(*filled, *starts)


def _update_transpose(ct: Any, x: Any, update: Any, *starts: Any) -> list[Any]:
    t = update.type if isinstance(update, Linear) else type_of(update)
    return [
        dynamic_update_slice_p(ct, zeros(t), *starts) if isinstance(x, Linear) else None,
        dynamic_slice_p(ct, *starts, sizes=t.shape) if isinstance(update, Linear) else None,
        *[None] * len(starts),
    ]


def _update_batch(size: int, operands: Any, dims: Any) -> tuple[Any, int]:
    from ftrans.primitives.scatter import scatter_p

    x, update, *starts = operands
    x, update = (
        expand(value, size) if dim is None else moveaxis(value, dim, 0)
        for value, dim in zip((x, update), dims[:2], strict=True)
    )
    if all(dim is None for dim in dims[2:]):
        return dynamic_update_slice_p(x, update, scalar(0, np.int32), *starts), 0
    sizes = type_of(update).shape[1:]
    axes, indices = _mapped_windows(size, type_of(x).shape[1:], sizes, starts, dims[2:])
    if not axes:
        return update, 0
    order = _indexed_first(axes, len(sizes))
    front = (0, *(axis + 1 for axis in order))
    out = scatter_p(
        transpose_p(x, permutation=front),
        append_iota(indices, size),
        transpose_p(update, permutation=front),
        in_bounds=True,
        unique=True,
    )
    return _restored(out, order), 0


dynamic_update_slice_p = structural(
    "dynamic_update_slice",
    infer=_update_infer,
    lower=_update_lower,
    jvp=Joint(_update_jvp),
    transpose=Joint(_update_transpose),
    batch=_update_batch,
    tags=["linear"],
    samples=[
        Sample((normal(5, 3), normal(2, 3), _start(1), _start(0))),
        Sample((normal(5, 3), normal(3, 2), _start(9), _start(-2))),
        Sample((normal(4), normal(0), _start(2))),
        Sample((normal(), normal(seed=1))),
    ],
)
