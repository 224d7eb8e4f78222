"""Pooling: largest elements and averages of windows, which are taken axis by axis.

A window is slices of the operand that are compared or added, so that all derivatives follow. Of
equal elements the first counts, in the order of rows, and a NaN beats all: as in PyTorch. The last
axis is pooled first, which keeps that order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import INT, family, in_single, padded, put, shown, sizes
from ftrans.numpy.bounds import Bounds, require
from ftrans.numpy.elementwise import lowest
from ftrans.numpy.promotion import cast

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
    "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Window:
    """Says where windows of one axis lie, which has `room` elements, and `low` added in front.

    A window has `size` elements, at a distance `dilation`; windows are at a distance `step`. With
    `ceil` the last one may reach beyond the far side.
    """

    room: int
    size: int
    step: int
    low: int = 0
    dilation: int = 1
    ceil: bool = False

    @property
    def count(self) -> int:
        """How many windows there are."""
        left = self.room + 2 * self.low - self.dilation * (self.size - 1) - 1
        count = (left + (self.step - 1 if self.ceil else 0)) // self.step + 1
        # a window begins in the operand, or in front of it
        return count - (self.ceil and (count - 1) * self.step >= self.room + self.low)

    def slices(self, x: Any, axis: int, fill: Any) -> list[Any]:
        """Returns the first elements of all windows along an axis, the second ones, ..."""
        last = (self.count - 1) * self.step  # where the last window begins
        high = last + self.dilation * (self.size - 1) + 1 - self.room - self.low
        x = padded(x, axis, self.low, high, fill)
        none, shape = (0,) * type_of(x).ndim, type_of(x).shape
        step = put((1,) * len(none), axis, self.step)

        def part(j: int) -> Any:
            stop = put(shape, axis, j + last + 1)
            return p.slice_p(x, start=put(none, axis, j), stop=stop, step=step)

        return [part(j * self.dilation) for j in range(self.size)]


def _windows(
    name: str, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil: bool, dilation: Any = 1
) -> list[Window]:
    """Returns the windows of each axis of f32[n, c, ...]."""
    room = type_of(x).shape[2:]
    kernel = sizes(name, "kernel_size", kernel_size, len(room), 1)
    steps = kernel if stride is None else sizes(name, "stride", stride, len(room), 1)
    pads = sizes(name, "padding", padding, len(room))
    dilations = sizes(name, "dilation", dilation, len(room), 1)
    if any(2 * pad > (k - 1) * d + 1 for pad, k, d in zip(pads, kernel, dilations, strict=True)):
        raise ArgumentError(
            f"{name}: padding is at most half of the kernel, or windows would hold nothing else.\n"
            f"  padding: {pads}, kernel_size: {kernel}\n"
            f"  Write padding={tuple(k // 2 for k in kernel)}, or less."
        )
    settings = zip(room, kernel, steps, pads, dilations, strict=True)
    windows = [Window(*each, ceil) for each in settings]
    if any(window.count < 1 for window in windows):
        raise ShapeError(
            f"{name}: the window is larger than what it moves over.{shown(input=x)}\n"
            f"  kernel_size: {kernel}, padding: {pads}, dilation: {dilations}"
        )
    return windows


# ----------------------------------------------------------------------------------- the largest


def _largest(x: Any, axis: int, window: Window, places: Any) -> tuple[Any, Any]:
    """Returns the largest element of each window of an axis, and its place, where asked for."""
    best, *values = window.slices(x, axis, lowest(type_of(x).dtype))
    at, *others = [None] * window.size if places is None else window.slices(places, axis, -1)
    behind = (1,) * (type_of(x).ndim - axis - 1)
    for j, (value, place) in enumerate(zip(values, others, strict=True), 1):
        takes = value > best
        if type_of(x).is_inexact:
            takes = takes | (value != value)
        padded = window.low - j * window.dilation
        if window.low and padded > -window.dilation:
            # the first that is no padding wins over that, though it be -inf too
            starts = p.iota_p(shape=(window.count, *behind), dtype=INT, axis=0) * window.step
            takes = takes | (starts >= padded) & (starts < padded + window.dilation)
        best = p.select_p(takes, value, best)
        at = None if places is None else p.select_p(takes, place, at)
    return best, at


def _all_largest(x: Any, return_indices: bool, along: Any) -> Any:
    """Returns the largest elements, and where they were, by a function along one axis."""
    t = type_of(x)
    places = None
    if return_indices:
        each = np.arange(math.prod(t.shape[2:]), dtype=INT)
        places = fnp.broadcast_to(each.reshape(t.shape[2:]), t.shape)
    for axis in range(t.ndim - 1, 1, -1):
        x, places = along(x, axis, places)
    return (x, cast(places, np.int64)) if return_indices else x


def _max_pool(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Returns the largest elements of windows.

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        kernel_size: the size of windows, one for all axes or one for each.
        stride: by how many places they move; None is their size.
        padding: how many elements, smaller than all, are added on either side.
        dilation: the distance of the elements of a window.
        ceil_mode: whether a window may reach beyond the far side.
        return_indices: whether to return also where they were, i64, counted in each channel.
    """
    name = f"max_pool{type_of(input).ndim - 2}d"
    windows = _windows(name, input, kernel_size, stride, padding, ceil_mode, dilation)
    return _all_largest(
        input, return_indices, lambda x, axis, at: _largest(x, axis, windows[axis - 2], at)
    )


def _adaptive_max_pool(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Is `max_pool{count}d` of `output_size` windows along each axis; None for all elements."""
    counts = _outputs("adaptive_max_pool", input, output_size)

    def along(x: Any, axis: int, places: Any) -> tuple[Any, Any]:
        room, count = type_of(x).shape[axis], counts[axis - 2]
        if count and room % count == 0:
            return _largest(x, axis, Window(room, room // count, room // count), places)
        starts, ends = _bounds(room, count)
        longest = int((ends - starts).max(initial=1))
        # a window that is shorter shows its last element again, which is not above itself
        at = np.minimum(starts[:, None] + np.arange(longest), ends[:, None] - 1).astype(INT)
        x, places = (None if v is None else fnp.take(v, at.ravel(), axis=axis) for v in (x, places))
        return _largest(x, axis, Window(count * longest, longest, longest), places)

    return _all_largest(input, return_indices, along)


def _max_unpool(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Any:
    """Puts elements back to where `max_pool{count}d` found them, among zeros.

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        indices: where they were, i64 of that shape, as it returns them.
        kernel_size: its argument, and so are the two that follow.
        stride: see there.
        padding: see there.
        output_size: the size of the result, of which several are pooled to one size.
    """
    shape, name = type_of(input).shape, f"max_unpool{type_of(input).ndim - 2}d"
    room, count = shape[2:], len(shape) - 2
    kernel = sizes(name, "kernel_size", kernel_size, count, 1)
    steps = kernel if stride is None else sizes(name, "stride", stride, count, 1)
    pads = sizes(name, "padding", padding, count)
    if math.prod(type_of(indices).shape) != math.prod(shape):
        raise ShapeError(
            f"{name}: there is one index for each element.{shown(input=input, indices=indices)}"
        )
    found = [
        (n - 1) * s - 2 * pad + k for n, s, pad, k in zip(room, steps, pads, kernel, strict=True)
    ]
    if output_size is not None:
        wanted = sizes(name, "output_size", tuple(output_size)[-count:], count, 1)
        if any(abs(n - m) >= step for n, m, step in zip(wanted, found, steps, strict=True)):
            raise ArgumentError(
                f"{name}: an output of that size is pooled to another size.{shown(input=input)}\n"
                f"  output_size: {wanted}\n  Without it, the size is {tuple(found)}."
            )
        found = list(wanted)
    zeros = fnp.zeros((*shape[:2], math.prod(found)), type_of(input).dtype)
    at = fnp.reshape(indices, (*shape[:2], -1))
    lead = np.indices((*shape[:2], 1), sparse=True)[:2]
    require(indices, Bounds(name, type_of(zeros), 2, 0))
    place = fnp.at(zeros)[(*lead, at)]
    return fnp.reshape(place.set(fnp.reshape(input, (*shape[:2], -1))), (*shape[:2], *found))


def _outputs(name: str, x: Any, output_size: Any) -> tuple[int, ...]:
    """Returns how many windows each axis is to have; None in a sequence keeps its size."""
    room = type_of(x).shape[2:]
    name = f"{name}{len(room)}d"
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * len(room)
    if len(given) == len(room):
        given = tuple(n if m is None else m for n, m in zip(room, given, strict=True))
    found = sizes(name, "output_size", given, len(room))
    if 0 in room:
        raise ShapeError(f"{name}: an empty axis has no windows.{shown(input=x)}")
    return found


def _bounds(room: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns where windows of an axis begin and end that cover it evenly."""
    numbers = np.arange(count)
    return numbers * room // max(count, 1), -(-(numbers + 1) * room // max(count, 1))


# -------------------------------------------------------------------------------------- averages


def _added(x: Any, axis: int, window: Window) -> Any:
    """Returns the sum of each window of an axis."""
    shape = type_of(x).shape
    if not window.low and window.step == window.size and window.count * window.size == window.room:
        split = (*shape[:axis], window.count, window.size, *shape[axis + 1 :])
        return p.sum_p(p.reshape_p(x, shape=split), axes=(axis + 1,))
    first, *others = window.slices(x, axis, 0.0)
    return sum(others, first)


def _held(window: Window, padded: bool) -> np.ndarray:
    """Returns how many elements each window holds, those of the padding among them or not."""
    starts = np.arange(window.count) * window.step - window.low
    ends = np.minimum(starts + window.size, window.room + (window.low if padded else 0))
    return ends - (starts if padded else np.maximum(starts, 0))


@in_single
def _avg_pool(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Returns the averages of windows.

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        kernel_size: the size of windows, one for all axes or one for each.
        stride: by how many places they move; None is their size.
        padding: how many zeros are added on either side.
        ceil_mode: whether a window may reach beyond the far side.
        count_include_pad: whether the zeros that were added count.
        divisor_override: what sums are divided by instead.
    """
    x, count = input, type_of(input).ndim - 2
    windows = _windows(f"avg_pool{count}d", x, kernel_size, stride, padding, ceil_mode)
    for axis in range(count + 1, 1, -1):
        x = _added(x, axis, windows[axis - 2])
    if divisor_override is not None:
        return x / float(*sizes(f"avg_pool{count}d", "divisor_override", divisor_override, 1, 1))
    held = [_held(window, count_include_pad) for window in windows]
    if all((n == window.size).all() for n, window in zip(held, windows, strict=True)):
        return x / float(math.prod(window.size for window in windows))
    for i, n in enumerate(held):
        x = x * (1.0 / n).astype(type_of(x).dtype).reshape(-1, *(1,) * (count - 1 - i))
    return x


@in_single
def _adaptive_avg_pool(input: Any, output_size: Any) -> Any:
    """Is `avg_pool{count}d` of `output_size` windows along each axis; None for all elements."""
    x = input
    for axis, n in enumerate(_outputs("adaptive_avg_pool", x, output_size), 2):
        room = type_of(x).shape[axis]
        if n and room % n == 0:
            x = _added(x, axis, Window(room, room // n, room // n)) * (n / room)
            continue
        # overlapping windows: a product with the matrix of their shares
        starts, ends = _bounds(room, n)
        at = np.arange(room)
        held = (at >= starts[:, None]) & (at < ends[:, None])
        shares = (held / (ends - starts)[:, None]).astype(type_of(x).dtype)
        x = fnp.moveaxis(fnp.tensordot(x, shares, axes=([axis], [1])), -1, axis)
    return x


def _lp_pool(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """Returns `sum(x**p)**(1 / p)` of windows, those of `avg_pool{count}d`; p is `norm_type`."""
    count = math.prod(sizes("lp_pool", "kernel_size", kernel_size, type_of(input).ndim - 2, 1))
    added = _avg_pool(input**norm_type, kernel_size, stride, 0, ceil_mode) * float(count)
    return added ** (1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = family(_lp_pool)
max_pool1d, max_pool2d, max_pool3d = family(_max_pool)
max_unpool1d, max_unpool2d, max_unpool3d = family(_max_unpool)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = family(_adaptive_max_pool)
avg_pool1d, avg_pool2d, avg_pool3d = family(_avg_pool)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = family(_adaptive_avg_pool)
