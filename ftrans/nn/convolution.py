"""Convolutions over one to three axes, their transposes, and the patches that they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import per_channel, shown, sizes
from ftrans.numpy.promotion import as_array

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip


def _operands(
    name: str, count: int, input: Any, weight: Any, groups: int, kernel: str
) -> tuple[Any, Any, bool]:
    """Returns the strict operands, with an axis of examples, and whether input had one.

    Raises:
        ShapeError: where the ranks do not fit, or the channels do not fit the groups.
    """
    x, w = as_array(input), as_array(weight)
    t, of = type_of(x), type_of(w)
    axes = ", ".join(("d", "h", "w")[3 - count :])
    if t.ndim not in (count + 1, count + 2) or of.ndim != count + 2:
        raise ShapeError(
            f"{name}: input is f32[n, c, {axes}] or f32[c, {axes}], weight f32[{kernel}, {axes}]."
            f"{shown(input=x, weight=w)}"
        )
    if t.dtype != of.dtype:
        raise DTypeError(
            f"{name}: input and weight have different dtypes.{shown(input=x, weight=w)}\n"
            f"  Convert one of them: weight.astype('{t.dtype.name}')."
        )
    if groups < 1:
        raise ArgumentError(f"{name}: groups is a positive number.\n  groups: {groups}")
    batched = t.ndim == count + 2
    return (x if batched else p.reshape_p(x, shape=(1, *t.shape))), w, batched


def _biased(name: str, out: Any, bias: Any, batched: bool) -> Any:
    """Adds a bias, and takes the axis of examples off where there was none."""
    if bias is not None:
        out = fnp.add(out, per_channel(name, "bias", as_array(bias), out))
    return out if batched else p.reshape_p(out, shape=type_of(out).shape[1:])


def _padding(
    name: str, padding: Any, kernel: tuple[int, ...], strides: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Returns how much is added before and after, along each axis.

    Args:
        name: the function, for errors.
        padding: a number, one for each axis, "valid" or "same".
        kernel: the sizes of the kernel, as it is dilated.
        strides: those of the convolution.
    """
    if not isinstance(padding, str):
        return [(n, n) for n in sizes(name, "padding", padding, len(kernel))]
    if padding == "valid":
        return [(0, 0)] * len(kernel)
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
    return [((k - 1) // 2, k // 2) for k in kernel]


def _conv(name: str, count: int) -> Callable[..., Any]:
    def conv(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        x, w, batched = _operands(name, count, input, weight, groups, "o, c / groups")
        channels, (outs, taken, *kernel) = type_of(x).shape[1], type_of(w).shape
        if channels != taken * groups or outs % groups:
            raise ShapeError(
                f"{name}: the channels do not fit.{shown(input=x, weight=w)}\n  groups: {groups}\n"
                f"  input has {channels} channels, weight takes {taken} in each of {groups} groups "
                f"and makes {outs}."
            )
        steps, dilations = (
            sizes(name, argument, value, count, 1)
            for argument, value in (("stride", stride), ("dilation", dilation))
        )
        reach = tuple(d * (k - 1) + 1 if k else 0 for d, k in zip(dilations, kernel, strict=True))
        pads = tuple(_padding(name, padding, reach, steps))
        room = [n + a + b for n, (a, b) in zip(type_of(x).shape[2:], pads, strict=True)]
        if any(n < k for n, k in zip(room, reach, strict=True)) or 0 in kernel:
            raise ShapeError(
                f"{name}: the kernel is larger than what it moves over.{shown(input=x, weight=w)}\n"
                f"  padded input: {tuple(room)}, dilated kernel: {reach}"
            )
        out = p.conv_p(
            x,
            w,
            strides=steps,
            padding=pads,
            lhs_dilation=(1,) * count,
            rhs_dilation=dilations,
            feature_groups=groups,
            batch_groups=1,
        )
        return _biased(name, out, bias, batched)

    axes = ", ".join(("d", "h", "w")[3 - count :])
    conv.__name__ = conv.__qualname__ = name
    conv.__doc__ = f"""Returns the cross-correlation over {count} axes with a kernel.

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
        >>> x, w = np.ones({(1, 1, *(3,) * count)}), np.ones({(1, 1, *(2,) * count)})
        >>> float({name}(x, w).sum())
        {float(4**count)}
    """
    return conv


conv1d, conv2d, conv3d = (_conv(f"conv{n}d", n) for n in (1, 2, 3))


def _conv_transpose(name: str, count: int) -> Callable[..., Any]:
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
        x, w, batched = _operands(name, count, input, weight, groups, "c, o / groups")
        channels, (taken, outs, *kernel) = type_of(x).shape[1], type_of(w).shape
        if channels != taken or channels % groups:
            raise ShapeError(
                f"{name}: the channels do not fit.{shown(input=x, weight=w)}\n  groups: {groups}\n"
                f"  input has {channels} channels, weight takes {taken} in {groups} groups."
            )
        steps, dilations, pads, more = (
            sizes(name, argument, value, count, least)
            for argument, value, least in (
                ("stride", stride, 1),
                ("dilation", dilation, 1),
                ("padding", padding, 0),
                ("output_padding", output_padding, 0),
            )
        )
        if any(extra >= max(s, d) for extra, s, d in zip(more, steps, dilations, strict=True)):
            raise ArgumentError(
                f"{name}: output_padding is smaller than stride or dilation.\n"
                f"  output_padding: {more}, stride: {steps}, dilation: {dilations}"
            )
        # c, o within each group become o, c: the groups stand in the output features
        parts = p.reshape_p(w, shape=(groups, taken // groups, outs, *kernel))
        order = (0, 2, 1, *range(3, count + 3))
        parts = p.transpose_p(parts, permutation=order)
        turned = p.reshape_p(parts, shape=(groups * outs, taken // groups, *kernel))
        turned = p.rev_p(turned, axes=tuple(range(2, count + 2)))
        reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        room = type_of(x).shape[2:]
        every = zip(room, steps, reach, pads, more, strict=True)
        results = [(n - 1) * s + r + 1 - 2 * q + e for n, s, r, q, e in every]
        if any(n < 1 for n in (*results, *room, *kernel)):
            raise ShapeError(
                f"{name}: nothing is left of the result.{shown(input=x, weight=w)}\n"
                f"  sizes: {tuple(results)}, with padding={pads}"
            )
        out = p.conv_p(
            x,
            turned,
            strides=(1,) * count,
            padding=tuple((r - q, r - q + e) for r, q, e in zip(reach, pads, more, strict=True)),
            lhs_dilation=steps,
            rhs_dilation=dilations,
            feature_groups=groups,
            batch_groups=1,
        )
        return _biased(name, out, bias, batched)

    axes = ", ".join(("d", "h", "w")[3 - count :])
    conv_transpose.__name__ = conv_transpose.__qualname__ = name
    conv_transpose.__doc__ = f"""Returns the transpose of `conv{count}d`, also called deconvolution.

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
    return conv_transpose


conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    _conv_transpose(f"conv_transpose{n}d", n) for n in (1, 2, 3)
)
