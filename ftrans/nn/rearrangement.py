"""Functions that move elements about: padding, pixels and channels, patches of images."""

from __future__ import annotations

from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import shown, sizes
from ftrans.numpy.promotion import as_array

__all__ = ["channel_shuffle", "fold", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


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
    if any(n + a + b < 0 for n, (a, b) in zip(t.shape, widths, strict=True)):
        raise ShapeError(
            f"pad: takes off more than there is.{shown(input=x)}\n  pad: {tuple(given)}"
        )
    if mode == "constant":
        fill = 0 if value is None else value
        low, high = (tuple(pair[i] for pair in widths) for i in (0, 1))
        cut = [(min(a, 0), min(b, 0)) for a, b in widths]
        if fill == fill:
            none = (0,) * t.ndim
            return p.pad_p(x, low=low, high=high, interior=none, value=t.dtype.type(fill).item())
        x, widths = _cut(x, cut), [(max(a, 0), max(b, 0)) for a, b in widths]
        return fnp.pad(x, widths, constant_values=fill)
    if mode not in _MODES:
        raise ArgumentError(
            f"pad: there is no mode {mode!r}.\n  Write 'constant', 'reflect', 'replicate' or "
            f"'circular'."
        )
    most = {"reflect": 1, "circular": 0, "replicate": None}[mode]
    for n, (a, b) in zip(t.shape, widths, strict=True):
        if (a > 0 or b > 0) and (n == 0 or (most is not None and max(a, b) > n - most)):
            raise ShapeError(
                f"pad: mode {mode!r} adds no more than an axis has.{shown(input=x)}\n"
                f"  pad: {tuple(given)}"
            )
    x = fnp.pad(x, [(max(a, 0), max(b, 0)) for a, b in widths], mode=_MODES[mode])
    return _cut(x, [(min(a, 0), min(b, 0)) for a, b in widths])


def _cut(x: Any, widths: list[tuple[int, int]]) -> Any:
    none = (0,) * len(widths)
    low, high = (tuple(pair[i] for pair in widths) for i in (0, 1))
    return p.pad_p(x, low=low, high=high, interior=none, value=0) if any(low + high) else x


def _image(name: str, input: Any) -> tuple[Any, tuple[int, ...], int, int, int]:
    x = as_array(input)
    shape = type_of(x).shape
    if len(shape) < 3:
        raise ShapeError(f"{name}: input is f32[..., c, h, w].{shown(input=x)}")
    return x, shape[:-3], *shape[-3:]  # type: ignore[return-value]


def _moved(x: Any, split: tuple[int, ...], lead: int, order: tuple[int, ...], shape: Any) -> Any:
    """Splits axes, changes the order of those behind the first `lead`, and joins them."""
    x = p.reshape_p(x, shape=split)
    x = p.transpose_p(x, permutation=(*range(lead), *(lead + i for i in order)))
    return p.reshape_p(x, shape=shape)


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """Spreads channels over an image: f32[..., c r², h, w] becomes f32[..., c, h r, w r].

    Reference:
        https://arxiv.org/abs/1609.05158
    """
    x, lead, c, h, w = _image("pixel_shuffle", input)
    r = upscale_factor
    if r < 1 or c % (r * r):
        raise ShapeError(
            f"pixel_shuffle: the channels are a multiple of upscale_factor².{shown(input=x)}\n"
            f"  upscale_factor: {r}"
        )
    split, shape = (*lead, c // r**2, r, r, h, w), (*lead, c // r**2, h * r, w * r)
    return _moved(x, split, len(lead), (0, 3, 1, 4, 2), shape)


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """Undoes `pixel_shuffle`: f32[..., c, h r, w r] becomes f32[..., c r², h, w]."""
    x, lead, c, h, w = _image("pixel_unshuffle", input)
    r = downscale_factor
    if r < 1 or h % r or w % r:
        raise ShapeError(
            f"pixel_unshuffle: height and width are multiples of downscale_factor."
            f"{shown(input=x)}\n  downscale_factor: {r}"
        )
    split, shape = (*lead, c, h // r, r, w // r, r), (*lead, c * r * r, h // r, w // r)
    return _moved(x, split, len(lead), (0, 2, 4, 1, 3), shape)


def channel_shuffle(input: Any, groups: int) -> Any:
    """Takes channels of f32[n, c, ...] from each group in turn."""
    x = as_array(input)
    shape = type_of(x).shape
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle: input is f32[n, c, ...], with c a multiple of groups."
            f"{shown(input=x)}\n  groups: {groups}"
        )
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    return _moved(x, split, 1, (1, 0, *range(2, len(shape))), shape)


# -------------------------------------------------------------------------------------- patches


def _settings(name: str, **given: Any) -> list[tuple[int, ...]]:
    return [sizes(name, n, v, 2, 0 if n == "padding" else 1) for n, v in given.items()]


def _counts(
    name: str, room: tuple[int, ...], kernel: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[int, ...]:
    found = tuple(
        (n + 2 * q - d * (k - 1) - 1) // s + 1
        for n, k, d, q, s in zip(room, kernel, dilation, padding, stride, strict=True)
    )
    if min(found) < 1:
        raise ShapeError(
            f"{name}: the kernel is larger than what it moves over.\n  image: {room}\n"
            f"  kernel_size: {kernel}, dilation: {dilation}, padding: {padding}"
        )
    return found


def _offsets(kernel: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(i, j) for i in range(kernel[0]) for j in range(kernel[1])]


def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Returns the patches that a convolution sees, as columns.

    Args:
        input: f32[n, c, h, w] or f32[c, h, w].
        kernel_size: the size of patches, one for both axes or one for each.
        dilation: the distance of the elements of a patch.
        padding: how many zeros are added on either side.
        stride: by how many places patches are apart.

    Returns:
        f32[n, c k, p], of k elements in each of p patches.
    """
    x = as_array(input)
    batched = type_of(x).ndim == 4
    if type_of(x).ndim not in (3, 4):
        raise ShapeError(f"unfold: input is f32[n, c, h, w] or f32[c, h, w].{shown(input=x)}")
    x = x if batched else p.reshape_p(x, shape=(1, *type_of(x).shape))
    kernel, dilations, pads, steps = _settings(
        "unfold", kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
    )
    n, c, *room = type_of(x).shape
    counts = _counts("unfold", tuple(room), kernel, dilations, pads, steps)
    around = (0, 0, *pads)
    x = p.pad_p(x, low=around, high=around, interior=(0,) * 4, value=0)
    parts = []
    for offset in _offsets(kernel):
        start = [o * d for o, d in zip(offset, dilations, strict=True)]
        stop = [a + s * (m - 1) + 1 for a, s, m in zip(start, steps, counts, strict=True)]
        part = p.slice_p(x, start=(0, 0, *start), stop=(n, c, *stop), step=(1, 1, *steps))
        parts.append(p.reshape_p(part, shape=(n, c, 1, counts[0] * counts[1])))
    out = p.concatenate_p(*parts, axis=2)
    shape = (n, c * len(parts), counts[0] * counts[1])
    return p.reshape_p(out, shape=shape if batched else shape[1:])


def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Adds patches up to images: the transpose of `unfold`.

    Args:
        input: f32[n, c k, p] or f32[c k, p], of k elements in each of p patches.
        output_size: height and width of the images.
        kernel_size: the size of patches, one for both axes or one for each.
        dilation: the distance of the elements of a patch.
        padding: how much is cut off the images on either side.
        stride: by how many places patches are apart.

    Returns:
        f32[n, c, h, w].
    """
    x = as_array(input)
    batched = type_of(x).ndim == 3
    if type_of(x).ndim not in (2, 3):
        raise ShapeError(f"fold: input is f32[n, c k, p] or f32[c k, p].{shown(input=x)}")
    x = x if batched else p.reshape_p(x, shape=(1, *type_of(x).shape))
    room, kernel, dilations, pads, steps = _settings(
        "fold",
        output_size=output_size,
        kernel_size=kernel_size,
        dilation=dilation,
        padding=padding,
        stride=stride,
    )
    counts = _counts("fold", room, kernel, dilations, pads, steps)
    n, features, patches = type_of(x).shape
    offsets = _offsets(kernel)
    if features % len(offsets) or patches != counts[0] * counts[1]:
        raise ShapeError(
            f"fold: input does not fit the images.{shown(input=x)}\n  output_size: {room} takes "
            f"{counts[0] * counts[1]} patches of a multiple of {len(offsets)} elements."
        )
    c = features // len(offsets)
    x = p.reshape_p(x, shape=(n, c, len(offsets), *counts))
    total: Any = None
    for number, offset in enumerate(offsets):
        part = p.slice_p(
            x,
            start=(0, 0, number, 0, 0),
            stop=(n, c, number + 1, *counts),
            step=(1,) * 5,
        )
        part = p.reshape_p(part, shape=(n, c, *counts))
        low = [o * d - q for o, d, q in zip(offset, dilations, pads, strict=True)]
        high = [
            m - a - s * (k - 1) - 1 for m, a, s, k in zip(room, low, steps, counts, strict=True)
        ]
        spread = p.pad_p(
            part,
            low=(0, 0, *low),
            high=(0, 0, *high),
            interior=(0, 0, *(s - 1 for s in steps)),
            value=0,
        )
        total = spread if total is None else p.add_p(total, spread)
    return total if batched else p.reshape_p(total, shape=type_of(total).shape[1:])
