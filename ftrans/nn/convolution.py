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


def _kernel(name: str, x: Any, weight: Any, groups: int, form: str) -> Any:
    """Returns the strict kernel, whose axes behind the first two are those of x.

    Raises:
        ShapeError: where it has another rank, which is told by the form of those two.
    """
    w = as_array(weight)
    t, of = type_of(x), type_of(w)
    if of.ndim != t.ndim:
        axes = ", ".join("dhw"[5 - t.ndim :])
        raise ShapeError(
            f"{name}: weight is f32[{form}, {axes}].{shown(input=x, weight=w)}\n"
            f"  Its axes behind the first two are those of input."
        )
    if t.dtype != of.dtype:
        raise DTypeError(
            f"{name}: input and weight have different dtypes.{shown(input=x, weight=w)}\n"
            f"  Convert one of them: weight.astype('{t.dtype.name}')."
        )
    if groups < 1:
        raise ArgumentError(f"{name}: groups is a positive number.\n  groups: {groups}")
    return w


def _fit(name: str, x: Any, w: Any, groups: int, fits: bool, makes: str) -> None:
    """Raises where the channels of an operand are not those that a kernel takes."""
    if not fits:
        raise ShapeError(
            f"{name}: the channels do not fit.{shown(input=x, weight=w)}\n  groups: {groups}\n"
            f"  input has {type_of(x).shape[1]} channels, {makes}."
        )


def _convolved(name: str, x: Any, w: Any, bias: Any, groups: int, **settings: Any) -> Any:
    out = p.conv_p(x, w, feature_groups=groups, batch_groups=1, **settings)
    return out if bias is None else fnp.add(out, per_channel(name, "bias", bias, out))


def _padding(
    name: str, padding: Any, kernel: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Returns how much is added before and after, along each axis.

    Args:
        name: the function, for errors.
        padding: a number, one for each axis, "valid" or "same".
        kernel: the sizes of the kernel, as it is dilated.
        strides: those of the convolution.
    """
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


def conv(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Returns the cross-correlation over {count} axes with a kernel.

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        weight: f32[o, c / groups, {axes}].
        bias: f32[o].
        stride: by how many places the kernel moves.
        padding: how many zeros are added on either side, "valid" for none, or "same" for as many
            as keep the sizes, the odd one behind.
        dilation: the distance of the elements of the kernel.
        groups: into how many groups channels are split, that see each other only.

    Returns:
        f32[n, o, ...].

    Example:
        >>> import numpy as np
        >>> x, w = np.ones((1, 1, *[3] * {count})), np.ones((1, 1, *[2] * {count}))
        >>> bool(conv{count}d(x, w).sum() == 4**{count})
        True
    """
    x, name = input, f"conv{type_of(input).ndim - 2}d"
    w = _kernel(name, x, weight, groups, "o, c / groups")
    (_, channels, *room), (outs, taken, *kernel) = type_of(x).shape, type_of(w).shape
    makes = f"weight takes {taken} in each of {groups} groups and makes {outs}"
    _fit(name, x, w, groups, channels == taken * groups and outs % groups == 0, makes)
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
    return _convolved(
        name,
        x,
        w,
        bias,
        groups,
        strides=steps,
        padding=pads,
        lhs_dilation=(1,) * len(room),
        rhs_dilation=dilations,
    )


def conv_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Returns the transpose of `conv{count}d`, also called deconvolution.

    Args:
        input: f32[n, c, {axes}], or f32[c, {axes}] for one example.
        weight: f32[c, o / groups, {axes}].
        bias: f32[o].
        stride: by how many places the kernel moves in the result.
        padding: how much is cut off the result on either side.
        output_padding: how much more of the result there is on its far side.
        groups: into how many groups channels are split, that see each other only.
        dilation: the distance of the elements of the kernel.

    Returns:
        f32[n, o, ...].
    """
    x, name = input, f"conv_transpose{type_of(input).ndim - 2}d"
    w = _kernel(name, x, weight, groups, "c, o / groups")
    (_, channels, *room), (taken, outs, *kernel) = type_of(x).shape, type_of(w).shape
    makes = f"weight takes {taken} in {groups} groups"
    _fit(name, x, w, groups, channels == taken and channels % groups == 0, makes)
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
    parts = fnp.reshape(w, (groups, taken // groups, outs, *kernel))
    turned = fnp.reshape(fnp.swapaxes(parts, 1, 2), (groups * outs, taken // groups, *kernel))
    return _convolved(
        name,
        x,
        fnp.flip(turned, tuple(range(2, len(room) + 2))),
        bias,
        groups,
        strides=(1,) * len(room),
        padding=tuple((r - q, r - q + e) for r, q, e in zip(reach, pads, more, strict=True)),
        lhs_dilation=steps,
        rhs_dilation=dilations,
    )


conv1d, conv2d, conv3d = family(conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = family(conv_transpose)
