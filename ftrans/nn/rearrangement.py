"""Functions that move elements about: padding, pixels, patches of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import padded, ranked, shown, sizes
from ftrans.nn.pooling import Window
from ftrans.numpy.promotion import as_array

__all__ = ["channel_shuffle", "fold", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]

_MODES = {
    "constant": ("constant", -math.inf),
    "reflect": ("reflect", 1),
    "replicate": ("edge", -math.inf),
    "circular": ("wrap", 0),
}
"""What NumPy calls modes, and by how much less than an axis has they may add."""


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """Adds elements around the last axes, or takes some off where a number is negative.

    Args:
        input: an array.
        pad: pairs of how many before and after, the last axis first.
        mode: "constant", "reflect", "replicate" or "circular".
        value: what is added in mode "constant", 0 where None.

    Example:
        >>> import numpy as np
        >>> pad(np.array([1, 2]), (1, 2))
        array([0, 1, 2, 0, 0])
    """
    x = as_array(input)
    t = type_of(x)
    given = [int(n) for n in pad]
    if len(given) % 2 or len(given) > 2 * t.ndim:
        raise ShapeError(
            f"pad: takes a pair of numbers for each axis, the last axis first.{shown(input=x)}\n"
            f"  pad: {tuple(given)}"
        )
    pairs = [tuple(given[i : i + 2]) for i in range(0, len(given), 2)]
    widths = [(0, 0)] * (t.ndim - len(pairs)) + pairs[::-1]
    if mode not in _MODES:
        modes = " or ".join(map(repr, _MODES))
        raise ArgumentError(f"pad: there is no mode {mode!r}.\n  Write {modes}.")
    theirs, less = _MODES[mode]
    for n, (a, b) in zip(t.shape, widths, strict=True):
        if n + a + b < 0 or max(a, b) > (n - less if n or mode == "constant" else 0):
            raise ShapeError(
                f"pad: mode {mode!r} adds and takes off no more than an axis has.{shown(input=x)}\n"
                f"  pad: {tuple(given)}"
            )
    options = {"constant_values": t.dtype.type(value or 0)} if mode == "constant" else {}
    more = [(max(a, 0), max(b, 0)) for a, b in widths]
    x = x if mode == "circular" else fnp.pad(x, more, theirs, **options)
    for axis, (a, b) in enumerate(widths):
        x = padded(x, axis, min(a, 0), min(b, 0), 0)
    return fnp.pad(x, more, theirs) if mode == "circular" else x  # what is left goes around


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """Spreads channels over an image: f32[..., c r², h, w] becomes f32[..., c, h r, w r].

    Reference:
        https://arxiv.org/abs/1609.05158
    """
    x, r = as_array(input), upscale_factor
    *lead, c, h, w = ranked("pixel_shuffle", x, "f32[..., c, h, w]", 3).shape
    if r < 1 or c % (r * r):
        raise ShapeError(
            f"pixel_shuffle: the channels are a multiple of upscale_factor².{shown(input=x)}\n"
            f"  upscale_factor: {r}"
        )
    parts = fnp.reshape(x, (*lead, c // r**2, r, r, h, w))
    return fnp.reshape(fnp.moveaxis(parts, (-2, -1), (-4, -2)), (*lead, c // r**2, h * r, w * r))


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """Undoes `pixel_shuffle`: f32[..., c, h r, w r] becomes f32[..., c r², h, w]."""
    x, r = as_array(input), downscale_factor
    *lead, c, h, w = ranked("pixel_unshuffle", x, "f32[..., c, h, w]", 3).shape
    if r < 1 or h % r or w % r:
        raise ShapeError(
            f"pixel_unshuffle: height and width are multiples of downscale_factor."
            f"{shown(input=x)}\n  downscale_factor: {r}"
        )
    parts = fnp.reshape(x, (*lead, c, h // r, r, w // r, r))
    return fnp.reshape(fnp.moveaxis(parts, (-4, -2), (-2, -1)), (*lead, c * r * r, h // r, w // r))


def channel_shuffle(input: Any, groups: int) -> Any:
    """Takes a channel of each group in turn: f32[n, c, ...], whose channels make so many groups.

    Reference:
        https://arxiv.org/abs/1707.01083
    """
    x = as_array(input)
    n, c, *room = ranked("channel_shuffle", x, "f32[n, c, ...]", 3).shape
    if groups < 1 or c % groups:
        raise ShapeError(
            f"channel_shuffle: the channels are a multiple of groups.{shown(input=x)}\n"
            f"  groups: {groups}"
        )
    parts = fnp.reshape(x, (n, groups, c // groups, *room))
    return fnp.reshape(fnp.swapaxes(parts, 1, 2), (n, c, *room))


def _windows(
    name: str, room: Sequence[int], kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> list[Window]:
    """Returns what moves over each of two axes, of arguments for both or for each."""
    kernel = sizes(name, "kernel_size", kernel_size, 2, 1)
    dilations = sizes(name, "dilation", dilation, 2, 1)
    steps = sizes(name, "stride", stride, 2, 1)
    pads = sizes(name, "padding", padding, 2)
    return [Window(*each) for each in zip(room, kernel, steps, pads, dilations, strict=True)]


def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Adds patches up where they lie: f32[n, c k, p] becomes f32[n, c, h, w], see `unfold`.

    It is the transpose of that, not its inverse: what several patches hold is added.

    Args:
        input: the patches, as columns, f32[n, c k, p], or f32[c k, p].
        output_size: the size of images, (h, w).
        kernel_size: the size of patches, one for both axes or one for each, as are all that follow.
        dilation: the distance of the elements of a patch.
        padding: how many elements around the images patches reach.
        stride: the distance of patches.
    """
    x = as_array(input)
    batched = ranked("fold", x, "f32[n, c k, p] or f32[c k, p]", 2, 3).ndim == 3
    x = x if batched else fnp.expand_dims(x, 0)
    room = sizes("fold", "output_size", output_size, 2, 1)
    windows = _windows("fold", room, kernel_size, dilation, padding, stride)
    kernel = [window.size for window in windows]
    counts, (n, rows, columns) = [window.count for window in windows], type_of(x).shape
    if min(counts) < 1 or columns != math.prod(counts) or rows % math.prod(kernel):
        raise ShapeError(
            f"fold: patches do not fit.{shown(input=input)}\n  output_size: {room}\n"
            f"  Of these there are {' x '.join(map(str, counts))}, each of {math.prod(kernel)} "
            f"elements for each channel: f32[n, {math.prod(kernel)} c, {math.prod(counts)}]."
        )
    c = rows // math.prod(kernel)
    down, across = (
        np.arange(w.size)[:, None] * w.dilation + np.arange(w.count) * w.step for w in windows
    )
    canvas = fnp.zeros((n, c, *(w.room + 2 * w.low for w in windows)), type_of(x).dtype)
    place = fnp.at(canvas)[:, :, down[:, None, :, None], across[:, None, :]]
    found = place.add(fnp.reshape(x, (n, c, *kernel, *counts)))
    found = found[(..., *(slice(w.low, w.low + w.room) for w in windows))]
    return found if batched else found[0]


def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Returns the patches that `conv2d` sees, as columns: f32[n, c k, p], or f32[c k, p].

    Each of p patches of f32[n, c, h, w], or f32[c, h, w], has k elements of each channel.
    """
    x = as_array(input)
    batched = ranked("unfold", x, "f32[n, c, h, w] or f32[c, h, w]", 3, 4).ndim == 4
    x = x if batched else fnp.expand_dims(x, 0)
    n, c, *room = type_of(x).shape
    windows = _windows("unfold", room, kernel_size, dilation, padding, stride)
    if min(window.count for window in windows) < 1:
        kernel, pads, dilations = zip(*[(w.size, w.low, w.dilation) for w in windows], strict=True)
        raise ShapeError(
            f"unfold: the kernel is larger than what it moves over.{shown(input=x)}\n"
            f"  kernel_size: {kernel}, dilation: {dilations}, padding: {pads}"
        )
    count = math.prod(window.count for window in windows)
    rows, columns = windows
    each = [part for row in rows.slices(x, 2, 0) for part in columns.slices(row, 3, 0)]
    out = p.concatenate_p(*[p.reshape_p(part, shape=(n, c, 1, count)) for part in each], axis=2)
    shape = (n, c * len(each), count)
    return p.reshape_p(out, shape=shape if batched else shape[1:])
