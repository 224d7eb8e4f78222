"""Convolutions over one to three axes, and their transposes."""

from __future__ import annotations

from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import family, per_channel, shown, sizes
from ftrans.numpy.promotion import as_array

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip


def _kernel(name: str, x: Any, weight: Any, groups: int, transposed: bool) -> Any:
    """Returns the kernel, f32[o, c / groups, ...] or, transposed, f32[c, o / groups, ...]."""
    w = as_array(weight)
    t, of = type_of(x), type_of(w)
    if of.ndim != t.ndim:
        form = "c, o / groups" if transposed else "o, c / groups"
        raise ShapeError(
            f"{name}: weight is f32[{form}, {', '.join('dhw'[5 - t.ndim :])}]."
            f"{shown(input=x, weight=w)}\n  Its axes behind the first two are those of input."
        )
    if t.dtype != of.dtype:
        raise DTypeError(
            f"{name}: input and weight have different dtypes.{shown(input=x, weight=w)}\n"
            f"  Convert one of them: weight.astype('{t.dtype.name}')."
        )
    if groups < 1:
        raise ArgumentError(f"{name}: groups is a positive number.\n  groups: {groups}")
    taken = of.shape[0] if transposed else of.shape[1] * groups
    if t.shape[1] != taken or of.shape[0] % groups:
        raise ShapeError(
            f"{name}: the channels do not fit.{shown(input=x, weight=w)}\n  groups: {groups}\n"
            f"  input has {t.shape[1]} channels, weight takes {taken} in {groups} groups."
        )
    return w


def _biased(name: str, out: Any, bias: Any) -> Any:
    return out if bias is None else fnp.add(out, per_channel(name, "bias", bias, out))


def _padding(
    name: str, padding: Any, kernel: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Returns how much is added before and after each axis, for a kernel as it is dilated."""
    if padding == "valid":
        padding = 0
    if not isinstance(padding, str):
        return tuple((n, n) for n in sizes(name, "padding", padding, len(kernel)))
    if padding != "same":
        raise ArgumentError(
            f"{name}: there is no padding {padding!r}.\n  padding: {padding!r}\n"
            f"  Write a number, one for each spatial axis, 'valid' or 'same'."
        )
    if any(step != 1 for step in strides):
        raise ArgumentError(
            f"{name}: padding 'same' keeps sizes, which a stride does not.\n"
            f"  stride: {strides}\n  Write padding={tuple(k // 2 for k in kernel)}."
        )
    return tuple(((k - 1) // 2, k // 2) for k in kernel)


def _conv(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Returns the cross-correlation over {count} axes with a kernel, f32[n, o, {axes}].

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        weight: f32[o, c / groups, {axes}].
        bias: f32[o].
        stride: by how many places the kernel moves.
        padding: how many zeros are added on either side, "valid" for none, or "same" for as many
            as keep the sizes, the odd one behind.
        dilation: the distance of the elements of the kernel.
        groups: into how many groups channels are split, that see each other only.

    Example:
        >>> import numpy as np
        >>> float(conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))).sum())
        16.0
    """
    x, name = input, f"conv{type_of(input).ndim - 2}d"
    w = _kernel(name, x, weight, groups, False)
    room, kernel = type_of(x).shape[2:], type_of(w).shape[2:]
    steps = sizes(name, "stride", stride, len(room), 1)
    dilations = sizes(name, "dilation", dilation, len(room), 1)
    reach = tuple(d * (k - 1) + 1 if k else 0 for d, k in zip(dilations, kernel, strict=True))
    pads = _padding(name, padding, reach, steps)
    padded = tuple(n + sum(pair) for n, pair in zip(room, pads, strict=True))
    if any(n < k for n, k in zip(padded, reach, strict=True)) or 0 in kernel:
        raise ShapeError(
            f"{name}: the kernel is larger than what it moves over.{shown(input=x, weight=w)}\n"
            f"  padded input: {padded}, dilated kernel: {reach}"
        )
    spread = {"lhs_dilation": (1,) * len(room), "rhs_dilation": dilations}
    out = p.conv_p(
        x, w, strides=steps, padding=pads, feature_groups=groups, batch_groups=1, **spread
    )
    return _biased(name, out, bias)


def _conv_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Returns the transpose of `conv{count}d`, also called deconvolution, f32[n, o, {axes}].

    Its arguments are those of `conv{count}d`, with weight f32[c, o / groups, {axes}]. The stride is
    that in the result, of which `padding` is cut off on either side; on its far side there is
    `output_padding` more.
    """
    x, name = input, f"conv_transpose{type_of(input).ndim - 2}d"
    w = _kernel(name, x, weight, groups, True)
    (_, channels, *room), (_, outs, *kernel) = type_of(x).shape, type_of(w).shape
    steps = sizes(name, "stride", stride, len(room), 1)
    dilations = sizes(name, "dilation", dilation, len(room), 1)
    pads = sizes(name, "padding", padding, len(room))
    more = sizes(name, "output_padding", output_padding, len(room))
    if any(extra >= max(s, d) for extra, s, d in zip(more, steps, dilations, strict=True)):
        raise ArgumentError(
            f"{name}: output_padding is smaller than stride or dilation.\n"
            f"  output_padding: {more}, stride: {steps}, dilation: {dilations}"
        )
    reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    results = tuple(
        (n - 1) * s + r + 1 - 2 * q + e
        for n, s, r, q, e in zip(room, steps, reach, pads, more, strict=True)
    )
    if any(n < 1 for n in (*results, *room, *kernel)):
        raise ShapeError(
            f"{name}: nothing is left of the result.{shown(input=x, weight=w)}\n"
            f"  sizes: {results}, with padding={pads}"
        )
    # c, o within each group become o, c: the groups stand in the output features
    each = channels // groups
    parts = fnp.swapaxes(fnp.reshape(w, (groups, each, outs, *kernel)), 1, 2)
    turned = fnp.flip(fnp.reshape(parts, (groups * outs, each, *kernel)), tuple(range(2, x.ndim)))
    around = tuple((r - q, r - q + e) for r, q, e in zip(reach, pads, more, strict=True))
    moves = {"strides": (1,) * len(room), "lhs_dilation": steps, "rhs_dilation": dilations}
    out = p.conv_p(x, turned, padding=around, feature_groups=groups, batch_groups=1, **moves)
    return _biased(name, out, bias)


conv1d, conv2d, conv3d = family(_conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = family(_conv_transpose)
