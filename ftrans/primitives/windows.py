"""Windows at computed places: `dynamic_slice` reads one, `dynamic_update_slice` writes one.

A window that would reach out of the operand is moved inside, as XLA does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.primitives.arithmetic import add_p
from ftrans.primitives.axes import (
    broadcast_p,
    inverse,
    moveaxis,
    to_front,
    transpose_p,
    zeros,
)
from ftrans.primitives.family import normal, structural
from ftrans.primitives.indexing import append_iota, gather_p
from ftrans.primitives.logic import clamp_index
from ftrans.primitives.record import LINEAR, Joint, Linear, New, Sample, operand_type, scalar
from ftrans.primitives.scatter import scatter_p
from ftrans.primitives.shape import concatenate_p, iota_p, reshape_p, slice_p

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


def _clamped(
    starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns where a window starts and stops along each axis, clamped as by XLA: -1 becomes 0."""
    ends = zip(starts, sizes, shape, strict=True)
    low = tuple(min(max(int(start), 0), size - n) for start, n, size in ends)
    return low, tuple(a + n for a, n in zip(low, sizes, strict=True))


def _slice_infer(x: ArrayType, *starts: ArrayType, sizes: tuple[int, ...]) -> ArrayType:
    _check_window("dynamic_slice", x, sizes, starts)
    return x.update(shape=sizes)


def _slice_lower(xp: Any, x: Any, *starts: Any, sizes: tuple[int, ...]) -> Any:
    if xp is np:
        return x[tuple(map(slice, *_clamped(starts, sizes, x.shape)))]
    from jax import lax

    return lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)


def _slice_batch(
    size: int, operands: Any, dims: Any, *, sizes: tuple[int, ...]
) -> tuple[Any, int | None]:
    x, *starts = operands
    if all(dim is None for dim in dims[1:]):
        x = moveaxis(x, dims[0], 0)
        return dynamic_slice_p(x, scalar(0, np.int32), *starts, sizes=(size, *sizes)), 0
    is_mapped = dims[0] is not None
    x = moveaxis(x, dims[0], 0) if is_mapped else x
    order, indices = _mapped_windows(size, type_of(x).shape[is_mapped:], sizes, starts, dims[1:])
    if indices is None:
        return x, (0 if is_mapped else None)
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
    """Returns the axes, first those on which windows can move, and the indices of all their places.

    The indices are i32[size, window sizes of those axes, number of those axes]; None for no axes.
    """
    axes = tuple(axis for axis, n in enumerate(sizes) if n < shape[axis])
    grid = (size, *(sizes[axis] for axis in axes))
    columns = []
    for number, axis in enumerate(axes):
        start = clamp_index(starts[axis], shape[axis] - sizes[axis] + 1)
        at = broadcast_p(start, shape=grid, axes=() if dims[axis] is None else (0,))
        column = add_p(at, iota_p(shape=grid, dtype=np.dtype("int32"), axis=number + 1))
        columns.append(reshape_p(column, shape=(*grid, 1)))
    order = axes + tuple(axis for axis in range(len(sizes)) if axis not in axes)
    return order, concatenate_p(*columns, axis=len(grid)) if columns else None


def _restored(x: Any, order: tuple[int, ...]) -> Any:
    """Undoes the permutation `order` of all axes but the first, which is mapped."""
    return transpose_p(x, permutation=(0, *(axis + 1 for axis in inverse(order))))


def _start(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def _slice_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, *starts = operands
    if not all(isinstance(start, Literal) for start in starts):
        return None
    sizes, values = params["sizes"], [start.value for start in starts]
    low, stop = _clamped(values, sizes, scope.type(x).shape)
    return New(slice_p, (x,), {"start": low, "stop": stop, "step": (1,) * len(sizes)})


dynamic_slice_p = structural(
    "dynamic_slice",
    infer=_slice_infer,
    lower=_slice_lower,
    jvp=LINEAR,
    tags=["indexed"],
    transpose=Joint(
        lambda ct, x, *at, sizes: [
            dynamic_update_slice_p(zeros(x.type), ct, *at),
            *[None] * len(at),
        ]
    ),
    batch=_slice_batch,
    rewrite=_slice_rewrite,
    samples=[
        Sample((normal(5, 3), _start(1), _start(0)), {"sizes": (2, 3)}),
        Sample((normal(5, 3), _start(9), _start(-2)), {"sizes": (3, 2)}),
        Sample((normal(4), _start(2)), {"sizes": (0,)}),
        Sample((normal(),), {"sizes": ()}),
    ],
)


# ----------------------------------------------------------------------- dynamic_update_slice


def _update_infer(
    x: ArrayType, update: ArrayType, *starts: ArrayType, apart: bool = False
) -> ArrayType:
    if x.dtype != update.dtype or x.ndim != update.ndim:
        raise ShapeError(
            "dynamic_update_slice: the update does not have the dtype and the number of axes of "
            f"the operand.\n  operand: {x}\n  update: {update}"
        )
    _check_window("dynamic_update_slice", x, update.shape, starts)
    return x.update()


def _update_lower(xp: Any, x: Any, update: Any, *starts: Any, apart: bool = False) -> Any:
    if xp is np:
        out = np.array(x)
        out[tuple(map(slice, *_clamped(starts, update.shape, x.shape)))] = update
        return out
    from jax import lax

    if apart:
        put = lambda x, v: lax.dynamic_update_slice(x, v, starts, allow_negative_indices=False)  # noqa: E731
        here = put(xp.zeros(x.shape, bool), xp.ones(update.shape, bool))
        return xp.where(here, put(xp.zeros_like(x), update), x)
    return lax.dynamic_update_slice(x, update, starts, allow_negative_indices=False)


def _update_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> New | None:
    """Keeps XLA from overwriting what it has yet to read.

    Where the update reads elements that it is written over, XLA's CPU compiler writes in place and
    takes for granted that each depends on itself alone (as of jaxlib 0.10, which makes a palindrome
    of `x.at[0].set(x[0, ::-1])`). So it is shown no update in place but where that is so.
    """
    if params.get("apart"):
        return None
    apart = New(dynamic_update_slice_p, operands, {"apart": True})
    x, update, *starts = operands
    base, pending, seen = _unshaped(scope, x), [(update, False)], set()
    while pending:
        atom, moved = pending.pop()
        if (atom, moved) in seen or type(atom) is Literal:
            continue
        seen.add((atom, moved))
        made = scope.definition(atom)
        if _unshaped(scope, atom) == base:
            if moved:
                return apart
        elif made is None or not made.primitive.tags & {"elementwise", "structural"}:
            continue  # what sums or sorts, say, is computed before anything is written
        elif made.primitive is slice_p and _unshaped(scope, made.operands[0]) == base:
            window = None if made.operands[0] != x else made.params
            shape, sizes = scope.type(x).shape, scope.type(update).shape
            if not _is_safe(window, starts, shape, sizes, moved):
                return apart
        else:
            still = made.primitive is reshape_p or "elementwise" in made.primitive.tags
            pending += [(operand, moved or not still) for operand in made.operands]
    return None


def _is_safe(
    window: Any, starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int], moved: bool
) -> bool:
    """Tells whether a window that is read is none of what is written, or just that, unmoved."""
    if window is None or not all(type(start) is Literal for start in starts):
        return False
    written = _clamped([start.value for start in starts], sizes, shape)
    read = window["start"], window["stop"]
    if any(b <= start or stop <= a for a, b, start, stop in zip(*written, *read, strict=True)):
        return True
    return written == read and not moved and all(step == 1 for step in window["step"])


def _unshaped(scope: Any, atom: Any) -> Any:
    """Returns what a value was before it was only given other shapes."""
    made = scope.definition(atom)
    return made.operands[0] if made and made.primitive is reshape_p else atom


def _update_transpose(ct: Any, x: Any, update: Any, *starts: Any, apart: bool = False) -> list[Any]:
    t = operand_type(update)
    return [
        dynamic_update_slice_p(ct, zeros(t), *starts) if isinstance(x, Linear) else None,
        dynamic_slice_p(ct, *starts, sizes=t.shape) if isinstance(update, Linear) else None,
        *[None] * len(starts),
    ]


def _update_batch(size: int, operands: Any, dims: Any, apart: bool = False) -> tuple[Any, int]:
    x, update, *starts = operands
    x, update = to_front(size, x, dims[0]), to_front(size, update, dims[1])
    if all(dim is None for dim in dims[2:]):
        return dynamic_update_slice_p(x, update, scalar(0, np.int32), *starts), 0
    sizes = type_of(update).shape[1:]
    order, indices = _mapped_windows(size, type_of(x).shape[1:], sizes, starts, dims[2:])
    if indices is None:
        return update, 0
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
    jvp=LINEAR,
    tags=["indexed"],
    transpose=Joint(_update_transpose),
    batch=_update_batch,
    rewrite=_update_rewrite,
    samples=[
        Sample((normal(5, 3), normal(2, 3), _start(1), _start(0))),
        Sample((normal(5, 3), normal(3, 2), _start(9), _start(-2))),
        Sample((normal(5, 3), normal(3, 2), _start(9), _start(-2)), {"apart": True}),
        Sample((normal(4), normal(0), _start(2))),
        Sample((normal(), normal(seed=1))),
    ],
)
