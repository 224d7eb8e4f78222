"""The slope of a function along a direction, with an estimate of how exact it is.

Central differences are taken over a range of steps and extrapolated; of each number the step is
chosen at which two extrapolations agree best. So the function's scale need not be known, and a
kink or a pole beside the point is stepped over only by the long steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftrans.verify.call import host, like
from ftrans.verify.coordinates import from_coordinates, to_coordinates

__all__ = ["Slope", "scale_of", "slope_along"]

_DOUBLE = tuple(0.03 / 8**k for k in range(10))
_SINGLE = tuple(0.25 / 2**k for k in range(7))
"""The steps, relative to the sizes of the elements that are moved."""


@dataclass(frozen=True)
class Slope:
    """Is the slope of one output, in real coordinates.

    Attributes:
        value: f64[m], NaN where it could not be told.
        error: f64[m], how far it may be off.
        low: f64[m], the lower one of both sides at a kink, else `value`.
        high: f64[m], the upper one.
    """

    value: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def kinked(self) -> np.ndarray:
        """Where one-sided slopes disagree."""
        return self.low < self.high


def scale_of(value: Any) -> np.ndarray:
    """Returns for each real coordinate of an array how far it is moved, relative to a step of 1.

    It is its own size, so that it keeps its sign; where it is zero, the size of the others, or 1.
    """
    sizes = np.abs(to_coordinates(host(value)))
    usual = float(np.median(sizes[sizes > 0])) if np.any(sizes > 0) else 1.0
    return np.where(sizes > 0, sizes, usual)


def slope_along(
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    directions: Sequence[np.ndarray],
    precision: float,
    short: bool = False,
) -> list[Slope]:
    """Returns the slopes of all outputs along a direction.

    Args:
        function: takes arrays, returns a list of arrays.
        values: the arguments.
        directions: for each of them its direction in real coordinates, as long as the elements are.
        precision: how exact the function is: the distance from 1 to the next number.
        short: whether few steps are enough.
    """
    bases = [to_coordinates(host(value)) for value in values]
    steps = _DOUBLE if precision < 1e-10 else _SINGLE
    if short:
        steps = steps[1:-1]

    def at(step: float) -> list[np.ndarray]:
        points = []
        for value, base, direction in zip(values, bases, directions, strict=True):
            moved = from_coordinates(base + step * direction, host(value))
            points.append(like(moved, value))
        with np.errstate(all="ignore"):
            return [to_coordinates(host(out)) for out in function(*points)]

    def beside(step: float) -> list[np.ndarray] | None:
        try:
            return at(step)
        except Exception:
            # a long step may lead out of where the function is defined
            return None

    middle = at(0.0)
    found: list[list[np.ndarray]] = [[] for _ in middle]
    rights: list[list[np.ndarray]] = [[] for _ in middle]
    lefts: list[list[np.ndarray]] = [[] for _ in middle]
    for step in steps:
        above, below = beside(step), beside(-step)
        for i, centre in enumerate(middle):
            lost = np.full(centre.shape, np.nan)
            with np.errstate(all="ignore"):
                right = lost if above is None or above[i].shape != centre.shape else above[i]
                left = lost if below is None or below[i].shape != centre.shape else below[i]
                found[i].append((right - left) / (2 * step))
                rights[i].append((right - centre) / step)
                lefts[i].append((centre - left) / step)
    return [
        _best(np.array(f), np.array(r), np.array(le), c, np.array(steps), precision)
        for f, r, le, c in zip(found, rights, lefts, middle, strict=True)
    ]


def _best(
    central: np.ndarray,
    right: np.ndarray,
    left: np.ndarray,
    middle: np.ndarray,
    steps: np.ndarray,
    precision: float,
) -> Slope:
    """Chooses for each number the step whose extrapolation is confirmed best."""
    if not middle.size:
        return Slope(middle, middle, middle, middle)
    ratio = (steps[0] / steps[1]) ** 2
    with np.errstate(all="ignore"):
        better = (ratio * central[1:] - central[:-1]) / (ratio - 1)
        # the function may be less exact than its dtype: what small steps disagree by tells
        shaken = np.abs(np.diff(central, axis=0)) * steps[1:, None]
        shaken = np.max(np.where(np.isfinite(shaken), shaken, 0.0)[-3:], axis=0)
        blurred = np.maximum(8 * max(precision, 2e-16) * np.abs(middle), 4 * shaken)
        noise = blurred / steps[2:, None]
        doubt = np.abs(better[1:] - better[:-1]) + noise
        doubt = np.where(np.isfinite(doubt), doubt, np.inf)
        value, error = _narrowed(better[1:], doubt)
        kinked = _disagree(right, left, blurred, steps)
        # short steps may be lost in a lower precision inside: then nothing moves, and long ones do
        lost = (central[-3:] == 0).all(axis=0) & (np.abs(central[:3]) > 0).all(axis=0)
        low = np.where(kinked, np.minimum(right[_NEAR], left[_NEAR]), value)
        high = np.where(kinked, np.maximum(right[_NEAR], left[_NEAR]), value)
        # within a kink the mean of both sides is exact, and nothing says that it is the derivative
        error = np.where(kinked, blurred / steps[_NEAR] + np.abs(high - low) * 1e-3, error)
        value = np.where(kinked & ~np.isfinite(value), (low + high) / 2, value)
        long = better[0]
        low = np.where(lost, np.minimum(long, np.minimum(low, 0.0)), low)
        high = np.where(lost, np.maximum(long, np.maximum(high, 0.0)), high)
        error = np.where(lost, error + np.abs(long) / 20, error)
    return Slope(value, error, low, high)


def _narrowed(values: np.ndarray, doubts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least doubtful values that agree with those of all shorter steps.

    Long steps may agree with each other on something else: they are beyond a kink, all of them.
    """
    value, error = values[-1], doubts[-1]
    open_ = np.ones(value.shape, bool)
    for other, doubt in zip(values[-2::-1], doubts[-2::-1], strict=True):
        known = np.isfinite(doubt)
        agrees = np.abs(other - value) <= 3 * (doubt + error)
        better = open_ & known & ((agrees & (doubt < error)) | ~np.isfinite(error))
        open_ &= agrees | ~known | ~np.isfinite(error)
        value, error = np.where(better, other, value), np.where(better, doubt, error)
    return np.where(np.isfinite(error), value, np.nan), error


_NEAR = -3
"""Which step tells one-sided slopes: a short one, but not so short that rounding drowns them."""


def _disagree(
    right: np.ndarray, left: np.ndarray, blurred: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Tells where one-sided slopes disagree however short the step is: at kinks and at jumps."""
    few = slice(_NEAR - 3, _NEAR + 1)
    gaps = np.abs(right - left)[few]
    sides = np.maximum(np.abs(right[_NEAR]), np.abs(left[_NEAR]))
    jumps = gaps * steps[few, None]
    stays = gaps.min(axis=0) > 0.7 * gaps.max(axis=0)
    grows = jumps.min(axis=0) > 0.9 * jumps.max(axis=0)
    large = (gaps[-1] > 8 * blurred / steps[_NEAR]) & (gaps[-1] > 1e-4 * sides)
    return (stays | grows) & large & np.isfinite(gaps).all(axis=0)
