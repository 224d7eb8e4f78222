"""Repeating, reversing, shifting, padding and picking elements along axes, by NumPy's names."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, AxisError, ShapeError, UnsupportedError
from ftrans.interop import from_jax
from ftrans.ir import Tracer, is_tracing, type_of
from ftrans.numpy.axes import (
    broadcast_to,
    canonical_axes,
    canonical_axis,
    flattened,
    line_of,
    ones_at,
)
from ftrans.numpy.borrowed import borrowed
from ftrans.numpy.indexing import getitem, pick
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.numpy.reduction import accumulated
from ftrans.numpy.shaping import concatenate, moveaxis, swapaxes
from ftrans.numpy.views import apart, copied, read_only, view_of, viewed

__all__ = [
    "append", "diagonal", "diff", "flip", "fliplr", "flipud", "pad",
    "repeat", "roll", "rot90", "tile", "trace",
]  # fmt: skip


def _static(name: str, what: str, value: Any) -> np.ndarray:
    """Returns whole numbers that must be known while tracing, as a NumPy array."""
    if isinstance(value, Tracer):
        value = value.value(f"{name}() with traced {what}")
    array = np.asarray(value)
    if array.size and array.dtype.kind not in "iub":
        raise UnsupportedError(f"{name}: {what} must be whole numbers, not {array.dtype}.")
    if what != "shift" and (array < 0).any():
        raise ShapeError(f"{name}: {what} cannot be negative.\n  {what}: {value}")
    return array.astype(np.int64)


# ------------------------------------------------------------------------------------ repeating


_repeat = borrowed(jnp.repeat, "jax.numpy")


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Any:
    """Repeats each element.

    Args:
        a: an array.
        repeats: how often, known while tracing; one number, or one for each place of the axis.
        axis: the axis; None repeats the elements as one axis.
        total_repeat_length: how long the axis becomes, with which repeats may be traced: what goes
            beyond is cut off, and what lacks is the last element.

    Example:
        >>> repeat(np.array([1, 2]), 2)
        array([1, 1, 2, 2])
    """
    if total_repeat_length is not None:
        return _repeat(a, repeats, axis, total_repeat_length=total_repeat_length)
    x, axis = line_of("repeat", as_array(a), axis)
    shape = type_of(x).shape
    times = _static("repeat", "repeats", repeats)
    if times.size != 1:
        if times.shape != (shape[axis],):
            raise ShapeError(
                f"repeat: the repeats do not fit axis {axis}.\n  x: {type_of(x)}\n"
                f"  repeats: shape {times.shape}"
            )
        return pick(x, np.repeat(np.arange(shape[axis]), times), axis)
    n = int(times.reshape(()))
    axes = tuple(i + (i > axis) for i in range(len(shape)))
    spread = p.broadcast_p(x, shape=(*shape[: axis + 1], n, *shape[axis + 1 :]), axes=axes)
    return p.reshape_p(spread, shape=(*shape[:axis], shape[axis] * n, *shape[axis + 1 :]))


def tile(A: Any, reps: Any) -> Any:
    """Repeats a whole array along its axes.

    Args:
        A: an array.
        reps: how often along each axis; new axes come in front.
    """
    x = as_array(A)
    times = np.atleast_1d(_static("tile", "reps", reps)).tolist()
    ndim = max(type_of(x).ndim, len(times))
    axes = tuple(range(1, 2 * ndim, 2))[ndim - type_of(x).ndim :]
    times, shape = ((*(1,) * (ndim - len(v)), *v) for v in (times, type_of(x).shape))
    pairs = tuple(size for pair in zip(times, shape, strict=True) for size in pair)
    spread = p.broadcast_p(x, shape=pairs, axes=axes)
    return p.reshape_p(spread, shape=tuple(n * m for n, m in zip(times, shape, strict=True)))


# ----------------------------------------------------------------------- reversing and shifting


def flip(m: Any, axis: Any = None) -> Any:
    """Reverses the order along axes; along all where `axis` is None."""
    x = as_array(m)
    axes = canonical_axes("flip", axis, type_of(x).ndim)
    return viewed(x, p.rev_p, axes=axes) if axes else x


def fliplr(m: Any) -> Any:
    """Reverses the second axis."""
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Reverses the first axis."""
    return flip(m, 0)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shifts elements along axes; those that leave at the end come in at the front.

    Args:
        a: an array.
        shift: by how much, known while tracing; one number for each axis, or one for all.
        axis: the axes; None shifts the elements as one axis and restores the shape.
    """
    x = as_array(a)
    t = type_of(x)
    if axis is None:
        return p.reshape_p(roll(flattened(x), shift, 0), shape=t.shape)
    shifts = _static("roll", "shift", shift)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    numbers, places = np.broadcast_arrays(shifts, np.asarray(given))
    out = x
    for by, place in zip(numbers.ravel().tolist(), places.ravel().tolist(), strict=True):
        i = canonical_axis("roll", place, t.ndim)
        shift = by % t.shape[i] if t.shape[i] else 0
        out = p.roll_p(out, shift=shift, axis=i) if shift else out
    return copied(x) if out is x else out


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Turns an array by quarters of a turn, from the first of two axes towards the second."""
    x = as_array(m)
    a, b = canonical_axes("rot90", tuple(axes), type_of(x).ndim)
    if k % 2 == 0:
        return flip(x, (a, b)) if k % 4 else x
    return swapaxes(flip(x, b), a, b) if k % 4 == 1 else flip(swapaxes(x, a, b), b)


# -------------------------------------------------------------------------------------- padding


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Adds elements around an array.

    Args:
        array: an array.
        pad_width: how many before and after: one number, one pair, or one pair for each axis.
        mode: "constant", "edge", "reflect", "symmetric", "wrap", or any other that NumPy has.
        **kwargs: `constant_values`, what is added in mode "constant", like `pad_width`; for other
            modes, `end_values`, `stat_length` and `reflect_type`, as in NumPy.

    Example:
        >>> pad(np.array([1, 2]), (1, 2), constant_values=9)
        array([9, 1, 2, 9, 9])
    """
    x = as_array(array)
    t = type_of(x)
    if isinstance(pad_width, dict):
        found = {canonical_axis("pad", a, t.ndim): w for a, w in pad_width.items()}
        pad_width = [found.get(a, 0) for a in range(t.ndim)]
        pad_width = [w if isinstance(w, (tuple, list)) else (w, w) for w in pad_width]
    widths = np.broadcast_to(_static("pad", "pad_width", pad_width), (t.ndim, 2)).tolist()
    if not t.ndim or (mode == "constant" and kwargs.keys() <= {"constant_values"}):
        return apart(_padded(x, widths, kwargs.get("constant_values", 0)), x)
    taken = _TAKEN.get(mode) if isinstance(mode, str) else kwargs
    if taken is None or not kwargs.keys() <= set(taken):
        choices = "".join(f"\n  mode={name!r} {', '.join(keys)}" for name, keys in _TAKEN.items())
        given = f"pad: none of these is mode={mode!r}"
        raise ArgumentError(f"{given} with {', '.join(kwargs) or 'no argument'}.{choices}")
    known = {key: _nested(np.asarray(v)) for key, v in kwargs.items()}
    return _padding(_nested(widths), mode, tuple(known.items()))(x)


_TAKEN: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",),
    **dict.fromkeys(("edge", "wrap", "empty"), ()),
    **dict.fromkeys(("reflect", "symmetric"), ("reflect_type",)),
    "linear_ramp": ("end_values",),
    **dict.fromkeys(("maximum", "mean", "median", "minimum"), ("stat_length",)),
}
"""The modes of `pad`, and what each takes."""


@functools.lru_cache(256)
def _padding(widths: Any, mode: Any, options: tuple[tuple[str, Any], ...]) -> Any:
    return from_jax(lambda x: jnp.pad(x, widths, mode, **dict(options)))


def _nested(x: Any) -> Any:
    """Returns numbers as nested tuples, which have a hash."""
    x = x if isinstance(x, (str, list)) else np.asarray(x).tolist()
    return tuple(map(_nested, x)) if isinstance(x, list) else x


def _equals_itself_alone(value: complex) -> bool:
    """Tells whether a number can be a param: programs are told apart by `==` of theirs."""
    parts = (value.real, value.imag)
    return value == value and all(part or math.copysign(1, part) > 0 for part in parts)


def _padded(x: Any, widths: list[list[int]], values: Any) -> Any:
    t = type_of(x)
    none = (0,) * t.ndim
    if is_scalar(values) or (not is_array(values) and np.size(values) == 1):
        value = np.asarray(values).astype(t.dtype).item()
        if _equals_itself_alone(value):
            low, high = ((tuple(pair[i] for pair in widths)) for i in (0, 1))
            return p.pad_p(x, low=low, high=high, interior=none, value=value)
    pairs = broadcast_to(as_array(values, t.dtype), (t.ndim, 2))
    for axis, (low, high) in enumerate(widths):
        shape = type_of(x).shape
        before, after = (
            p.broadcast_p(
                getitem(pairs, (axis, side)), shape=(*shape[:axis], n, *shape[axis + 1 :]), axes=()
            )
            for side, n in ((0, low), (1, high))
        )
        x = p.concatenate_p(before, x, after, axis=axis)
    return x


# -------------------------------------------------------------------------- dropping and adding


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Returns the differences of neighbours along an axis.

    Args:
        a: an array.
        n: how often differences are taken.
        axis: the axis.
        prepend: values to put in front first.
        append: values to put behind first.

    Example:
        >>> diff(np.array([1, 4, 9]))
        array([3, 5])
    """
    x = as_array(a)
    if n < 0:
        raise ArgumentError(f"diff: n is {n}; it cannot be negative.")
    if type_of(x).ndim == 0:
        raise AxisError("diff: the array has no axis.")
    if n == 0:
        return x
    axis = canonical_axis("diff", axis, type_of(x).ndim)
    one = ones_at((axis,), type_of(x).shape)
    parts = [
        part if type_of(as_array(part)).ndim else broadcast_to(as_array(part), one)
        for part in (prepend, x, append)
        if part is not None
    ]
    if len(parts) > 1:
        x = concatenate(parts, axis=axis)
    difference = p.ne_p if type_of(x).dtype == bool else p.sub_p
    for _ in range(n):
        size = type_of(x).shape[axis]
        if size == 0:
            break
        x = difference(pick(x, slice(1, None), axis), pick(x, slice(0, size - 1), axis))
    return x


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Appends values at the end of an axis; without an axis, to the elements as one axis."""
    return concatenate([arr, values], axis=axis)


# ------------------------------------------------------------------- differences and diagonals


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Returns the diagonals of two axes, as the last axis.

    Args:
        a: an array of two axes or more.
        offset: how far above the main diagonal; below where negative.
        axis1: the axis of the rows.
        axis2: the axis of the columns.
    """
    x = as_array(a)
    return read_only(view_of(x, diagonal_of(x, offset, axis1, axis2)))


def diagonal_of(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Returns what `diagonal` does of a strict operand, to which more can be written."""
    t = type_of(x)
    if t.ndim < 2:
        raise AxisError(f"diagonal: takes an array of two axes or more.\n  x: {t}")
    a, b = canonical_axes("diagonal", (axis1, axis2), t.ndim)
    if isinstance(x, np.ndarray) and not is_tracing():
        found = x.diagonal(offset, a, b)
        found.flags.writeable = x.flags.writeable
        return found
    moved = moveaxis(x, (a, b), (-2, -1))
    return getitem(moved, diagonal_places(type_of(moved).shape, offset))


def diagonal_places(shape: tuple[int, ...], offset: int) -> tuple[Any, ...]:
    """Returns the index of a diagonal of the last two axes."""
    rows, columns = shape[-2:]
    places = np.arange(max(min(rows + min(offset, 0), columns - max(offset, 0)), 0))
    return ..., places - min(offset, 0), places + max(offset, 0)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """Returns the sums of the diagonals of two axes.

    Args:
        a: an array of two axes or more.
        offset: how far above the main diagonal.
        axis1: the axis of the rows.
        axis2: the axis of the columns.
        dtype: in which to sum; booleans and small integers take the default integer.
    """
    line = accumulated(diagonal(a, offset, axis1, axis2), dtype)
    return p.sum_p(line, axes=(type_of(line).ndim - 1,))
