"""The convolution by NumPy: windows are copied side by side, and multiplied as a matrix.

XLA's own takes as long on a CPU, and compiles a function for each shape first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ftrans.ir import ArrayType
from ftrans.ir.dtype import is_half

_MOST = 1 << 23
"""So many bytes the windows of some examples may take: about what a cache holds."""

_TOO_MANY = 1 << 25
"""Where those of one example take more, XLA is to convolve, which copies none."""


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

    It is None for what NumPy has no fast product of matrices for, and for what is too large.
    """
    if x.dtype.kind not in "fc" or is_half(x.dtype) or 0 in (*x.shape, *kernel.shape):
        return None
    (n, c), size, taken = x.shape[:2], x.shape[2:], kernel.shape[2:]
    ends = zip(size, lhs_dilation, padding, strict=True)
    room = tuple([(s - 1) * d + 1 + low + high for s, d, (low, high) in ends])
    axes = list(zip(room, taken, rhs_dilation, strides, strict=True))
    places = tuple([(r - (k - 1) * d - 1) // step + 1 for r, k, d, step in axes])
    per_group = c // feature_groups
    window = per_group * math.prod(taken)
    one = window * math.prod(places) * x.dtype.itemsize
    if min(places, default=1) < 1 or one > _TOO_MANY:
        return None
    from_, to = _kept(size, lhs_dilation, padding, room)
    is_padded = any(map(any, padding)) or any(d > 1 for d in lhs_dilation)
    together = max(1, _MOST // one)
    # rows as long as can be are copied
    last = (taken[-1:] or (1,))[0] > (places[-1:] or (1,))[0]
    outs = kernel.shape[0] // (feature_groups * batch_groups)

    def windows(part: np.ndarray) -> np.ndarray:
        """Returns the windows of examples [n, c, ...] as a matrix [window, places]."""
        count, steps = len(part), part.strides
        over = [s * d for s, d in zip(steps[2:], rhs_dilation, strict=True)]
        along = [s * d for s, d in zip(steps[2:], strides, strict=True)]
        inner = (per_group, *taken), (steps[1], *over)
        outer = (count, *places), (steps[0], *along)
        first, then = (outer, inner) if last else (inner, outer)
        view = as_strided(part, first[0] + then[0], first[1] + then[1], writeable=False)
        matrix = view.reshape(math.prod(first[0]), -1)
        return matrix.T if last else matrix

    def groups(x: np.ndarray, kernel: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the examples and the outputs of each group."""
        for i, rows in enumerate(kernel.reshape(-1, outs, window)):
            if feature_groups > 1:
                yield x[:, i * per_group : (i + 1) * per_group], rows
            else:
                yield x[i * n // batch_groups : (i + 1) * n // batch_groups], rows

    def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        if is_padded:
            padded = np.zeros((n, c, *room), x.dtype)
            padded[to] = x[from_]
            x = padded
        count = n // batch_groups
        found = np.empty((kernel.shape[0], count, *places), x.dtype)
        for i, (examples, rows) in enumerate(groups(x, kernel)):
            mine = found[i * outs : (i + 1) * outs]
            for at in range(0, count, together):
                part = rows @ windows(examples[at : at + together])
                mine[:, at : at + together] = part.reshape(outs, -1, *places)
        return found.swapaxes(0, 1)

    return convolve


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
