"""Pooling: largest elements and averages of windows, which are taken axis by axis.

A window is slices of the operand that are compared or added, so that all derivatives follow. Of
equal elements the first counts, in the order of rows, and a NaN beats all: as in PyTorch. The last
axis is pooled first, which keeps that order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import shown, sizes, wide
from ftrans.numpy.promotion import as_array, cast, inexact

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

_INT = np.dtype("int32")


def _part(x: Any, axis: int, start: int, count: int, step: int) -> Any:
    """Returns `count` elements of an axis, from a start on and a step apart."""
    shape = type_of(x).shape
    ends = (
        (0,) * axis + (start,) + (0,) * (len(shape) - axis - 1),
        (*shape[:axis], start + step * (count - 1) + 1 if count else start, *shape[axis + 1 :]),
        (1,) * axis + (step,) + (1,) * (len(shape) - axis - 1),
    )
    return p.slice_p(x, start=ends[0], stop=ends[1], step=ends[2])


def _padded(x: Any, axis: int, low: int, high: int, value: float) -> Any:
    """Adds elements around an axis, or takes some off where numbers are negative."""
    if not (low or high):
        return x
    ndim = type_of(x).ndim
    one = lambda n: (0,) * axis + (n,) + (0,) * (ndim - axis - 1)  # noqa: E731
    return p.pad_p(x, low=one(low), high=one(high), interior=(0,) * ndim, value=value)


class Window:
    """Says where windows of one axis lie.

    Attributes:
        size, step, dilation, low: the elements of a window and their distance, that of windows,
            and how many elements are added in front.
        room: the size of the axis.
        count: how many windows there are.
    """

    def __init__(self, room: int, size: int, step: int, low: int, dilation: int, ceil: bool):
        self.room, self.size, self.step = room, size, step
        self.low, self.dilation = low, dilation
        left = room + 2 * low - dilation * (size - 1) - 1
        self.count = (left + (step - 1 if ceil else 0)) // step + 1
        if ceil and (self.count - 1) * step >= room + low:
            self.count -= 1  # a window begins in the operand, or in front of it

    @property
    def high(self) -> int:
        """How many elements are added behind; taken off where it is negative."""
        return (
            (self.count - 1) * self.step
            + self.dilation * (self.size - 1)
            + 1
            - self.room
            - self.low
        )

    def slices(self, x: Any, axis: int) -> list[Any]:
        """Returns the first elements of all windows of a padded operand, the second ones, ..."""
        return [_part(x, axis, j * self.dilation, self.count, self.step) for j in range(self.size)]


def _windows(
    name: str, x: Any, count: int, kernel_size: Any, stride: Any, padding: Any, **more: Any
) -> tuple[Any, bool, list[Window]]:
    """Returns an operand with its examples, whether it had any, and the windows of each axis.

    Raises:
        ShapeError: where there is no window.
    """
    x, batched = _with_examples(name, x, count)
    kernel = sizes(name, "kernel_size", kernel_size, count, 1)
    steps = kernel if stride is None else sizes(name, "stride", stride, count, 1)
    pads = sizes(name, "padding", padding, count)
    dilations = sizes(name, "dilation", more.get("dilation", 1), count, 1)
    if any(2 * pad > (k - 1) * d + 1 for pad, k, d in zip(pads, kernel, dilations, strict=True)):
        raise ArgumentError(
            f"{name}: padding is at most half of the kernel, or windows would hold nothing else.\n"
            f"  padding: {pads}, kernel_size: {kernel}\n"
            f"  Write padding={tuple(k // 2 for k in kernel)}, or less."
        )
    room = type_of(x).shape[2:]
    windows = [
        Window(n, k, s, pad, d, more["ceil_mode"])
        for n, k, s, pad, d in zip(room, kernel, steps, pads, dilations, strict=True)
    ]
    if any(window.count < 1 for window in windows):
        raise ShapeError(
            f"{name}: the window is larger than what it moves over.{shown(input=x)}\n"
            f"  kernel_size: {kernel}, padding: {pads}, dilation: {dilations}"
        )
    return x, batched, windows


def _with_examples(name: str, x: Any, count: int) -> tuple[Any, bool]:
    """Returns an operand f32[n, c, ...], and whether it was one: else it was f32[c, ...]."""
    t = type_of(x)
    if t.ndim not in (count + 1, count + 2):
        axes = ", ".join(("d", "h", "w")[3 - count :])
        raise ShapeError(f"{name}: input is f32[n, c, {axes}] or f32[c, {axes}].{shown(input=x)}")
    batched = t.ndim == count + 2
    return (x if batched else p.reshape_p(x, shape=(1, *t.shape))), batched


def _unbatched(x: Any, batched: bool) -> Any:
    return x if batched else p.reshape_p(x, shape=type_of(x).shape[1:])


# --------------------------------------------------------------------------------- the largest


def _along(axis: int, count: int, ndim: int, shape: tuple[int, ...]) -> Any:
    """Returns 0, 1, 2, ... along an axis of a shape."""
    line = p.iota_p(shape=(count,), dtype=_INT, axis=0)
    return p.broadcast_p(line, shape=shape, axes=(axis,))


def _largest(x: Any, axis: int, window: Window, places: Any) -> tuple[Any, Any]:
    """Returns the largest element of each window of an axis, and its place, where asked for."""
    dtype = type_of(x).dtype
    least = {"b": False, "u": 0}.get(dtype.kind, -math.inf)
    if dtype.kind == "i":
        least = int(np.iinfo(dtype).min)
    slices = window.slices(_padded(x, axis, window.low, window.high, least), axis)
    if places is not None:
        places = window.slices(_padded(places, axis, window.low, window.high, -1), axis)
    best, at = slices[0], None if places is None else places[0]
    shape = type_of(best).shape
    for j, value in enumerate(slices[1:], 1):
        takes = p.gt_p(value, best)
        if type_of(x).is_inexact:
            takes = p.or_p(takes, p.ne_p(value, value))
        before = window.low - j * window.dilation
        if before > -window.dilation and window.low:
            # the first that is no padding wins over that, though it be -inf too
            start = p.mul_p(_along(axis, window.count, len(shape), shape), window.step)
            first = p.and_p(p.ge_p(start, before), p.lt_p(start, before + window.dilation))
            takes = p.or_p(takes, first)
        best = p.select_p(takes, value, best)
        if places is not None:
            at = p.select_p(takes, places[j], at)
    return best, at


def _positions(shape: tuple[int, ...]) -> Any:
    """Returns for each element the number of its position among those of its channel."""
    spatial = shape[2:]
    line = p.iota_p(shape=(math.prod(spatial),), dtype=_INT, axis=0)
    line = p.reshape_p(line, shape=spatial)
    return p.broadcast_p(line, shape=shape, axes=tuple(range(2, len(shape))))


def _max_pool(name: str, count: int) -> Callable[..., Any]:
    def max_pool(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        x, batched, windows = _windows(
            name,
            as_array(input),
            count,
            kernel_size,
            stride,
            padding,
            dilation=dilation,
            ceil_mode=ceil_mode,
        )
        places = _positions(type_of(x).shape) if return_indices else None
        for axis in range(count + 1, 1, -1):
            x, places = _largest(x, axis, windows[axis - 2], places)
        if not return_indices:
            return _unbatched(x, batched)
        return _unbatched(x, batched), cast(_unbatched(places, batched), np.int64)

    return _described(
        max_pool,
        name,
        count,
        "the largest elements of windows",
        """padding: how many elements, smaller than all, are added on either side.
        dilation: the distance of the elements of a window.
        ceil_mode: whether a window may reach beyond the far side.
        return_indices: whether to return also where they were, i64, counted in each channel.""",
    )


def _described(
    function: Callable[..., Any], name: str, count: int, what: str, more: str
) -> Callable[..., Any]:
    axes = ", ".join(("d", "h", "w")[3 - count :])
    function.__name__ = function.__qualname__ = name
    windows = """kernel_size: the size of windows, one for all axes or one for each.
        stride: by how many places they move; None is their size.
        """
    if name.startswith("adaptive"):
        windows = ""
    function.__doc__ = f"""Returns {what}.

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        {windows}{more}
    """
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(f"max_pool{n}d", n) for n in (1, 2, 3))


# ------------------------------------------------------------------------------------ averages


def _added(x: Any, axis: int, window: Window) -> Any:
    """Returns the sum of each window of an axis."""
    t = type_of(x)
    if not window.low and window.step == window.size and window.count * window.size == window.room:
        split = (*t.shape[:axis], window.count, window.size, *t.shape[axis + 1 :])
        return p.sum_p(p.reshape_p(x, shape=split), axes=(axis + 1,))
    total, *rest = window.slices(_padded(x, axis, window.low, window.high, 0.0), axis)
    for value in rest:
        total = p.add_p(total, value)
    return total


def averaged(x: Any, axis: int, size: int, step: int, pads: tuple[int, int]) -> Any:
    """Returns the mean of windows of an axis that is padded with zeros, which count."""
    x = _padded(x, axis, *pads, 0.0)
    window = Window(type_of(x).shape[axis], size, step, 0, 1, False)
    return p.mul_p(_added(x, axis, window), 1.0 / size)


def _held(window: Window, padded: bool) -> np.ndarray:
    """Returns how many elements each window holds, those of the padding among them or not."""
    starts = np.arange(window.count) * window.step - window.low
    ends = starts + window.size
    if padded:
        return np.minimum(ends, window.room + window.low) - starts
    return np.minimum(ends, window.room) - np.maximum(starts, 0)


def _avg_pool(name: str, count: int) -> Callable[..., Any]:
    def pooled(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        x, dtype = wide(input)
        x, batched, windows = _windows(
            name, x, count, kernel_size, stride, padding, ceil_mode=ceil_mode
        )
        if divisor_override is not None and divisor_override < 1:
            raise ArgumentError(
                f"{name}: divisor_override is a positive number.\n"
                f"  divisor_override: {divisor_override}"
            )
        for axis in range(count + 1, 1, -1):
            x = _added(x, axis, windows[axis - 2])
        if divisor_override is not None:
            return cast(_unbatched(p.div_p(x, float(divisor_override)), batched), dtype)
        held = [_held(window, count_include_pad) for window in windows]
        if all((n == window.size).all() for n, window in zip(held, windows, strict=True)):
            size = math.prod(window.size for window in windows)
            return cast(_unbatched(p.div_p(x, float(size)), batched), dtype)
        for i, n in enumerate(held):
            shares = (1.0 / n).astype(type_of(x).dtype)
            x = fnp.multiply(x, shares.reshape(-1, *(1,) * (count - 1 - i)))
        return cast(_unbatched(x, batched), dtype)

    def avg_pool(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Any:
        return pooled(input, kernel_size, stride, padding, ceil_mode, count_include_pad)

    return _described(
        avg_pool if count == 1 else pooled,
        name,
        count,
        "the averages of windows",
        """padding: how many zeros are added on either side.
        ceil_mode: whether a window may reach beyond the far side.
        count_include_pad: whether the zeros that were added count."""
        + ("" if count == 1 else "\n        divisor_override: what sums are divided by instead."),
    )


avg_pool1d, avg_pool2d, avg_pool3d = (_avg_pool(f"avg_pool{n}d", n) for n in (1, 2, 3))


def _lp_pool(name: str, count: int) -> Callable[..., Any]:
    def lp_pool(
        input: Any,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Any:
        x = inexact(input)
        x, batched, windows = _windows(name, x, count, kernel_size, stride, 0, ceil_mode=ceil_mode)
        x = fnp.power(x, norm_type)
        for axis in range(count + 1, 1, -1):
            x = _added(x, axis, windows[axis - 2])
        positive = p.gt_p(x, 0.0)
        root = fnp.power(p.select_p(positive, x, 1.0), 1.0 / norm_type)
        return _unbatched(p.select_p(positive, root, 0.0), batched)

    function = _described(
        lp_pool,
        name,
        count,
        "the p-norms of windows",
        "ceil_mode: whether a window may reach beyond the far side.",
    )
    told = "norm_type: the order p of `(sum x^p)^(1/p)`.\n        kernel_size:"
    function.__doc__ = (function.__doc__ or "").replace("kernel_size:", told)
    return function


lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pool(f"lp_pool{n}d", n) for n in (1, 2, 3))


# ---------------------------------------------------------------- windows of a number that is given


def _outputs(name: str, x: Any, output_size: Any, count: int) -> list[int]:
    """Returns how many windows each axis is to have; None in a sequence keeps its size."""
    room = type_of(x).shape[2:]
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * count
    if len(given) == count:
        given = tuple(n if m is None else m for n, m in zip(room, given, strict=True))
    found = sizes(name, "output_size", given, count)
    if 0 in room:
        raise ShapeError(f"{name}: an empty axis has no windows.{shown(input=x)}")
    return list(found)


def _bounds(room: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns where windows of an axis begin and end that cover it evenly."""
    numbers = np.arange(count)
    return numbers * room // max(count, 1), -(-(numbers + 1) * room // max(count, 1))


def _adaptive_avg_pool(name: str, count: int) -> Callable[..., Any]:
    def adaptive_avg_pool(input: Any, output_size: Any) -> Any:
        x, dtype = wide(input)
        x, batched = _with_examples(name, x, count)
        for axis, n in enumerate(_outputs(name, x, output_size, count), 2):
            room = type_of(x).shape[axis]
            if n and room % n == 0:
                x = averaged(x, axis, room // n, room // n, (0, 0))
                continue
            # overlapping windows: a product with the matrix of their shares
            starts, ends = _bounds(room, n)
            at = np.arange(room)
            held = (at >= starts[:, None]) & (at < ends[:, None])
            shares = (held / (ends - starts)[:, None]).astype(type_of(x).dtype)
            x = fnp.moveaxis(fnp.tensordot(x, shares, axes=([axis], [1])), -1, axis)
        return cast(_unbatched(x, batched), dtype)

    return _described(
        adaptive_avg_pool,
        name,
        count,
        "the averages of as many windows as are asked for",
        "output_size: how many there are along each axis; None for as many as elements.",
    )


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive_avg_pool(f"adaptive_avg_pool{n}d", n) for n in (1, 2, 3)
)


def _adaptive_max_pool(name: str, count: int) -> Callable[..., Any]:
    def adaptive_max_pool(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        x, batched = _with_examples(name, as_array(input), count)
        outputs = _outputs(name, x, output_size, count)
        places = _positions(type_of(x).shape) if return_indices else None
        for axis in range(count + 1, 1, -1):
            x, places = _largest_of(x, axis, outputs[axis - 2], places)
        if not return_indices:
            return _unbatched(x, batched)
        return _unbatched(x, batched), cast(_unbatched(places, batched), np.int64)

    return _described(
        adaptive_max_pool,
        name,
        count,
        "the largest elements of as many windows as are asked for",
        """output_size: how many there are along each axis; None for as many as elements.
        return_indices: whether to return also where they were, i64, counted in each channel.""",
    )


def _largest_of(x: Any, axis: int, count: int, places: Any) -> tuple[Any, Any]:
    """Returns the largest elements of windows that cover an axis evenly, and where they were."""
    room = type_of(x).shape[axis]
    if count and room % count == 0:
        return _largest(x, axis, Window(room, room // count, room // count, 0, 1, False), places)
    starts, ends = _bounds(room, count)
    longest = int((ends - starts).max(initial=1))
    # a window that is shorter shows its last element again, which is not above itself
    at = np.minimum(starts[:, None] + np.arange(longest), ends[:, None] - 1).astype(_INT)
    shape = type_of(x).shape
    taken = (*shape[:axis], count * longest, *shape[axis + 1 :])
    x, places = (
        None if v is None else p.reshape_p(fnp.take(v, at.ravel(), axis=axis), shape=taken)
        for v in (x, places)
    )
    return _largest(x, axis, Window(taken[axis], longest, longest, 0, 1, False), places)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive_max_pool(f"adaptive_max_pool{n}d", n) for n in (1, 2, 3)
)
