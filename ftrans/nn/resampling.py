"""Images of another size, and at other places: interpolated along axes, or at points."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans.errors import ArgumentError, ShapeError, UnsupportedError
from ftrans.ir import type_of
from ftrans.nn.common import INT, in_single, ranked, shown, sizes
from ftrans.nn.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

__all__ = [
    "affine_grid", "grid_sample", "interpolate", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip

_SMOOTH = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
"""The modes in which elements are mixed, and over how many axes each is."""
_MODES = ("nearest", "nearest-exact", "area", *_SMOOTH)


@in_single
def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Returns images of another size.

    Args:
        input: f32[n, c, ...], with one to three spatial axes.
        size: the sizes of those, one for all or one for each.
        scale_factor: by what they are multiplied instead.
        mode: "nearest", "nearest-exact", "area", "linear" over one axis, "bilinear" and "bicubic"
            over two, "trilinear" over three.
        align_corners: whether the centers of the outermost elements stay, not their outer sides.
        recompute_scale_factor: whether places follow from the sizes rather than the factor.
        antialias: not supported.

    Example:
        >>> import numpy as np
        >>> interpolate(np.array([[[1.0, 2.0]]]), 4, mode="linear")
        array([[[1.  , 1.25, 1.75, 2.  ]]])
    """
    *_, first = t_shape = ranked("interpolate", input, "f32[n, c, ...]", 3, 5).shape
    room, count = t_shape[2:], len(t_shape) - 2
    if mode not in _MODES or _SMOOTH.get(mode, count) != count or 0 in (*room, first):
        raise ArgumentError(
            f"interpolate: there is no mode {mode!r} over {count} axes that have elements."
            f"{shown(input=input)}\n  Write one of {', '.join(_MODES)}."
        )
    if antialias:
        raise UnsupportedError(
            "interpolate: there is no antialias.\n"
            "  Write ftrans.from_jax(jax.image.resize)(x, shape, 'bilinear'), which has it."
        )
    if (size is None) == (scale_factor is None) or (align_corners and mode not in _SMOOTH):
        raise ArgumentError(
            "interpolate: takes size or scale_factor, not both, and align_corners in modes that "
            f"mix elements.\n  size: {size}, scale_factor: {scale_factor}, mode: {mode!r}"
        )
    if size is not None:
        news: Any = sizes("interpolate", "size", size, count, 1)
        factors: Any = (None,) * count
    else:
        many = isinstance(scale_factor, (tuple, list))
        factors = tuple(scale_factor) if many else (scale_factor,) * count
        news = [int(n * factor) for n, factor in zip(room, factors, strict=True)]
    if mode == "area":
        pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[count - 1]
        return pool(input, tuple(news))
    for axis, (old, new, factor) in enumerate(zip(room, news, factors, strict=True), 2):
        step = 1 / factor if factor and not recompute_scale_factor else old / new
        input = _along(input, axis, mode, old, new, step, bool(align_corners))
    return input


def _along(x: Any, axis: int, mode: str, old: int, new: int, step: float, align: bool) -> Any:
    """Interpolates along one axis, of which neighbours in the result are a step apart."""
    at = np.arange(new)
    if mode not in _SMOOTH:
        places = (at + (0.5 if mode == "nearest-exact" else 0.0)) * np.float32(step)
        return fnp.take(x, np.minimum(places.astype(INT), old - 1), axis=axis)
    at = at * ((old - 1) / max(new - 1, 1)) if align else (at + 0.5) * step - 0.5
    at = at if mode == "bicubic" else np.clip(at, 0, old - 1)
    low = np.floor(at)
    shares = _cubic(at - low) if mode == "bicubic" else {0: 1 - (at - low), 1: at - low}
    found: Any = 0.0
    for offset, share in shares.items():
        near = np.clip(low + offset, 0, old - 1).astype(INT)
        line = share.astype(type_of(x).dtype).reshape(-1, *(1,) * (type_of(x).ndim - axis - 1))
        found = fnp.take(x, near, axis=axis) * line + found
    return found


def _cubic(t: Any) -> dict[int, Any]:
    """Returns the shares of the four elements around a place, by where they are."""
    a = -0.75
    inner = lambda t: ((a + 2) * t - (a + 3)) * t**2 + 1  # noqa: E731
    outer = lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a  # noqa: E731
    return {-1: outer(t + 1), 0: inner(t), 1: inner(1 - t), 2: outer(2 - t)}


def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """Returns images of another size: an old name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Returns images of another size, whose elements are the nearest: see `interpolate`."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Returns images of another size, whose outermost elements stay: see `interpolate`."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """Returns where `grid_sample` is to look for images to be mapped affinely, f32[n, ..., d].

    Args:
        theta: the maps, f32[n, d, d + 1], with d of 2 or 3.
        size: that of the images, (n, c, h, w) or (n, c, d, h, w).
        align_corners: whether -1 and 1 are the centers of the outermost elements, not their sides.
    """
    room = tuple(size)[2:]
    shape = type_of(theta).shape
    if len(room) not in (2, 3) or shape != (size[0], len(room), len(room) + 1):
        raise ShapeError(
            f"affine_grid: theta is f32[n, 2, 3] for images, f32[n, 3, 4] for volumes."
            f"{shown(theta=theta)}\n  size: {tuple(size)}"
        )
    lines = [np.linspace(-1, 1, n) if n > 1 else np.zeros(n) for n in room]
    if not align_corners:
        lines = [(2 * np.arange(n) + 1) / n - 1 for n in room]
    places = np.meshgrid(*lines, indexing="ij")[::-1]
    base = np.stack([*places, np.ones(room)], -1).reshape(-1, len(room) + 1)
    found = fnp.matmul(base.astype(type_of(theta).dtype), fnp.swapaxes(theta, 1, 2))
    return fnp.reshape(found, (size[0], *room, len(room)))


_PADDINGS = ("zeros", "border", "reflection")


def _held(at: Any, size: int, padding_mode: str, align_corners: bool | None) -> Any:
    """Returns places along an axis, those beyond its sides as a mode says."""
    if padding_mode == "reflection":
        first, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        far = fnp.abs(at - first) % (2 * span) if span else at * 0.0
        at = fnp.where(far > span, 2 * span - far, far) + first
    return at if padding_mode == "zeros" else fnp.clip(at, 0.0, size - 1.0)


@in_single
def grid_sample(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Any:
    """Returns the values of images at places, f32[n, c, ...].

    Args:
        input: the images, f32[n, c, h, w], or volumes, f32[n, c, d, h, w].
        grid: the places, f32[n, ..., 2] or f32[n, ..., 3]: of each the last axis comes first, from
            -1 on one side to 1 on the other.
        mode: "bilinear", "nearest", or for images "bicubic".
        padding_mode: what is beyond the sides: "zeros", the "border", or by "reflection" at the
            sides what is there.
        align_corners: whether -1 and 1 are the centers of the outermost elements, not their sides.

    Reference:
        https://arxiv.org/abs/1506.02025
    """
    t, of = ranked("grid_sample", input, "f32[n, c, h, w] or f32[n, c, d, h, w]", 4, 5), grid.shape
    n, c, *room = t.shape
    modes = ("bilinear", "nearest", "bicubic")[: 3 if t.ndim == 4 else 2]
    if mode not in modes or padding_mode not in _PADDINGS:
        raise ArgumentError(
            f"grid_sample: there is no such mode.\n"
            f"  mode: {mode!r}, one of {', '.join(modes)}\n"
            f"  padding_mode: {padding_mode!r}, one of {', '.join(_PADDINGS)}"
        )
    if len(of) != t.ndim or of[0] != n or of[-1] != len(room):
        raise ShapeError(
            f"grid_sample: grid has {len(room)} coordinates for each place, f32[{n}, ..., "
            f"{len(room)}].{shown(input=input, grid=grid)}"
        )
    axes = []  # for each axis the places around, and their shares
    for size, i in zip(room, reversed(range(len(room))), strict=True):
        at = fnp.reshape(grid[..., i], (n, -1)) + 1.0
        at = at * ((size - 1) / 2) if align_corners else at * (size / 2) - 0.5
        held = at if mode == "bicubic" else _held(at, size, padding_mode, align_corners)
        low = fnp.stop_gradient(fnp.round(held) if mode == "nearest" else fnp.floor(held))
        t = held - low
        shares = {"nearest": {0: 1.0}, "bilinear": {0: 1.0 - t, 1: t}}.get(mode) or _cubic(t)
        sides = [(low + offset, share) for offset, share in shares.items()]
        if mode == "bicubic":
            sides = [(_held(x, size, padding_mode, align_corners), share) for x, share in sides]
        axes.append([
            (fnp.clip(x, 0.0, size - 1.0), fnp.where((x >= 0) & (x < size), share, 0.0))
            for x, share in sides
        ])  # fmt: skip
    line, found = fnp.reshape(input, (n, c, -1)), 0.0
    for corner in itertools.product(*axes):
        place: Any = 0
        weight: Any = 1.0
        for size, (x, share) in zip(room, corner, strict=True):
            place, weight = place * size + fnp.astype(x, INT), weight * share
        place = fnp.broadcast_to(fnp.expand_dims(place, 1), (n, c, place.shape[-1]))
        found = found + fnp.take_along_axis(line, place, axis=2) * fnp.expand_dims(weight, 1)
    return fnp.reshape(found, (n, c, *of[1:-1]))
