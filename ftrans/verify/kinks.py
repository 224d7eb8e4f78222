"""Tells kinks and jumps from wrong derivatives: one-sided differences disagree there.

Between the slopes on both sides of a smooth point lies a gap that shrinks with the step; at a kink
it stays what it is, at a jump it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftrans.verify.call import host
from ftrans.verify.coordinates import count
from ftrans.verify.differences import one_sided
from ftrans.verify.tolerances import precision_of

__all__ = ["Kink", "find_kink", "index_of"]


@dataclass(frozen=True)
class Kink:
    """Is a place where a function has no derivative.

    Attributes:
        index: of the element of the input.
        output: the number of the output.
        left: the slope of one of its elements to the left.
        right: its slope to the right.
        is_jump: whether the function itself jumps there.
    """

    index: tuple[int, ...]
    output: int
    left: float
    right: float
    is_jump: bool

    def __str__(self) -> str:
        if self.is_jump:
            return f"the function jumps at element {self.index}"
        return (
            f"the function has a kink at element {self.index}: "
            f"its slopes are {self.left:.6g} on the left and {self.right:.6g} on the right"
        )


def index_of(coordinate: int, value: Any) -> tuple[int, ...]:
    """Returns the index of the element that a real coordinate belongs to."""
    size = max(1, int(np.prod(value.shape, dtype=np.int64)))
    return tuple(int(i) for i in np.unravel_index(coordinate % size, value.shape))


def find_kink(
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    position: int,
    coordinates: Sequence[int],
    step: float,
    output: int,
) -> Kink | None:
    """Returns the first kink among some coordinates of an argument, or None.

    Args:
        function: takes arrays, returns a list of arrays.
        values: the arguments.
        position: which of them is perturbed.
        coordinates: which of its coordinates are tried.
        step: the step of the differences that are to be explained.
        output: the number of the output whose derivative is in question.
    """
    value = host(values[position])
    for coordinate in list(coordinates)[:8]:
        if coordinate >= count(value):
            continue
        gaps = []
        for h in (step, step / 8):
            right, left = one_sided(function, values, position, coordinate, h)
            gaps.append((right[output], left[output]))
        (right, left), (near_right, near_left) = gaps
        with np.errstate(all="ignore"):
            gap, near = np.abs(right - left), np.abs(near_right - near_left)
            scale = np.max(np.abs(host(function(*values)[output])), initial=0.0)
            noise = 16 * precision_of(value) * scale / step
            kinked = np.isfinite(near) & (gap > 100 * noise) & (near > 0.7 * gap) & (gap > 1e-6)
        if kinked.any():
            k = int(np.argmax(np.where(kinked, gap, -1.0)))
            is_jump = bool(near[k] > 4 * gap[k])
            index = index_of(coordinate, value)
            return Kink(index, output, float(left[k]), float(right[k]), is_jump)
    return None
