"""The convolution by NumPy: windows are copied side by side, and multiplied as a matrix.

XLA's own takes as long on a CPU, and compiles a function for each shape first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ftrans.ir import ArrayType
from ftrans.ir.dtype import is_half

Axes: TypeAlias = tuple[int, ...]

_MOST = 1 << 23
"""So many bytes the windows of some examples may take: about what a cache holds."""

_TOO_MANY = 1 << 25
"""Where those of one example take more, XLA is to convolve, which copies none."""


def dilated(size: int, dilation: int) -> int:
    """Returns how far elements reach that are put so far apart."""
    return (size - 1) * dilation + 1 if size else 0


def places_of(
    size: Axes,
    taken: Axes,
    *,
    strides: Axes,
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Axes,
    rhs_dilation: Axes,
) -> Axes:
    """Returns how many windows of some sizes there are along each spatial axis."""
    room, over = map(dilated, size, lhs_dilation), map(dilated, taken, rhs_dilation)
    axes = zip(room, over, padding, strides, strict=True)
    return tuple([max((s - k + low + high) // step + 1, 0) for s, k, (low, high), step in axes])


def convolution(
    x: ArrayType,
    kernel: ArrayType,
    *,
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    feature_groups: int,
    batch_groups: int,
) -> Callable[[np.ndarray, np.ndarray], np.ndarray] | None:
    """Returns what convolves arrays of these types, by these params of `conv`.

    It is None for what NumPy has no fast product of matrices for, for what is too large, and for
    complex numbers, of which infinite ones are multiplied otherwise.
    """
    if x.dtype.kind != "f" or is_half(x.dtype) or 0 in (*x.shape, *kernel.shape):
        return None
    if batch_groups > 1:
        # examples of several groups are the features of groups of fewer examples
        count, features = x.shape[0] // batch_groups, batch_groups * x.shape[1]
        apart = (batch_groups, count, *x.shape[1:])
        joined = x.update(shape=(count, features, *x.shape[2:]))
        params = {"strides": strides, "padding": padding, "lhs_dilation": lhs_dilation}
        params |= {"rhs_dilation": rhs_dilation, "feature_groups": batch_groups}
        by_features = convolution(joined, kernel, batch_groups=1, **params)
        if by_features is None:
            return None
        shape = joined.shape
        return lambda x, kernel: by_features(x.reshape(apart).swapaxes(0, 1).reshape(shape), kernel)
    (n, c), size, taken = x.shape[:2], x.shape[2:], kernel.shape[2:]
    spread = {"lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    places = places_of(size, taken, strides=strides, padding=padding, **spread)
    reach = tuple(map(dilated, size, lhs_dilation))
    room = tuple([r + low + high for r, (low, high) in zip(reach, padding, strict=True)])
    groups, per_group, outs = feature_groups, c // feature_groups, kernel.shape[0] // feature_groups
    window = per_group * math.prod(taken)
    one = groups * window * math.prod(places) * x.dtype.itemsize
    if min(places, default=1) < 1 or one > _TOO_MANY:
        return None
    if any(min(pair) < -r for r, pair in zip(reach, padding, strict=True)):
        return None  # XLA refuses to take away more than there is
    is_padded = any(map(any, padding)) or any(d > 1 for d in lhs_dilation)
    from_, to = _kept(size, lhs_dilation, padding, room)
    together = max(1, _MOST // one)
    spatial = tuple(range(2, x.ndim))
    # What lies together is copied together: examples, or features, stand last.
    examples_last = _run(n, places, strides) > _run(per_group, taken, rhs_dilation)
    order = (1, *spatial, 0) if examples_last else (0, *spatial, 1)
    inner, outer = (0, -1) if examples_last else (-1, 0)  # where features and examples are then

    def laid_out(x: np.ndarray) -> np.ndarray:
        """Returns some examples with zeros around them, as they are copied from."""
        x = x[from_].transpose(order)
        if not is_padded:
            return np.ascontiguousarray(x)
        whole = (x.shape[outer], c, *room)
        padded = np.zeros([whole[axis] for axis in order], x.dtype)
        padded[tuple([to[axis] for axis in order])] = x
        return padded

    def windows(part: np.ndarray) -> np.ndarray:
        """Returns the windows of each group, [group, window, places] or [group, places, window]."""
        steps, feature, example = part.strides[1:-1], part.strides[inner], part.strides[outer]
        over = [s * d for s, d in zip(steps, rhs_dilation, strict=True)]
        along = [s * d for s, d in zip(steps, strides, strict=True)]
        group = (groups, per_group * feature)
        of_window, of_place = [*zip(taken, over, strict=True)], [*zip(places, along, strict=True)]
        features, examples = (per_group, feature), (part.shape[outer], example)
        if examples_last:
            axes = [group, features, *of_window, *of_place, examples]
        else:
            axes = [group, examples, *of_place, *of_window, features]
        shape, lies = zip(*axes, strict=True)
        view = as_strided(part, shape, lies, writeable=False)
        return view.reshape((groups, window, -1) if examples_last else (groups, -1, window))

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        rows = kernel if examples_last else np.moveaxis(kernel, 1, -1)
        rows = rows.reshape(groups, outs, window)
        whole = (n, len(kernel), *places)
        found = np.empty([whole[axis] for axis in order], x.dtype)
        for at in range(0, n, together):
            cut = windows(laid_out(x[at : at + together]))
            if examples_last:
                part = found[..., at : at + together]
                part[...] = (rows @ cut).reshape(part.shape)
            else:
                part = found[at : at + together].reshape(-1, groups, outs)
                part[...] = (cut @ rows.swapaxes(1, 2)).swapaxes(0, 1)
        return found.transpose(np.argsort(order))

    return convolve


def _run(last: int, sizes: tuple[int, ...], steps: tuple[int, ...]) -> int:
    """Returns how many elements lie together, of these axes and one that stands last."""
    return last * sizes[-1] if steps and steps[-1] == 1 else last


def _kept(
    size: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    room: tuple[int, ...],
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Returns which elements of examples are left by the padding, which may be negative, and where.

    Args:
        size: the sizes of the spatial axes.
        dilation: how far apart their elements are put.
        padding: what is added in front of them and behind.
        room: the sizes with all of that.
    """
    from_, to = [slice(None)] * 2, [slice(None)] * 2
    for s, d, (low, _), all_ in zip(size, dilation, padding, room, strict=True):
        first = max(0, -(low // d))
        stop = max(first, min(s, -((low - all_) // d)))
        from_.append(slice(first, stop))
        to.append(slice(low + first * d, low + stop * d - d + 1 if stop > first else 0, d))
    return tuple(from_), tuple(to)
