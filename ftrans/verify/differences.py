"""Derivatives by differences: of one direction, and of all elements, a few batched calls each.

Whole Jacobians, which `gradcheck` compares, take central differences of one step, as PyTorch's do.
Along one direction they are taken over a range of steps and extrapolated, and it is known how
exact they are: the function's scale need not be known, and what lies beside a kink is told apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.func.vmap import vmap
from ftrans.verify.coordinates import (
    close,
    count,
    from_coordinates,
    hosts,
    index_of,
    largest,
    precision_of,
    to_coordinates,
)

Function = Callable[..., Sequence[Any]]
"""Takes arrays, returns a list of arrays."""

_BYTES = 1 << 21
"""What the points of one chunk may take: about the size of a processor's cache."""

_FEW = 4
"""How many points are evaluated one by one: along one direction, or along two."""


class Beside:
    """A function at points beside a point, in real coordinates.

    Args:
        function: takes arrays, returns a list of arrays.
        values: the point.

    Attributes:
        batched: whether many points may be evaluated in a batched call. Differences must not depend
            on the batching rule of a function under test, which is held against single calls first.
    """

    def __init__(self, function: Function, values: Sequence[Any], batched: bool = True):
        self.function = function
        self.values = values
        self.batched = batched
        self._bases = list(map(to_coordinates, values))
        self._is_verified = False

    def points(self, moves: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Returns stacked arrays for some of the values, moved by f64[k, n] in coordinates."""
        return {
            i: from_coordinates(self._bases[i] + move, self.values[i]) for i, move in moves.items()
        }

    def __call__(self, points: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        """Returns the coordinates of each output at all points, f64[k, m]."""
        (size,) = set(map(len, points.values()))
        found = None
        if self.batched and size > _FEW:
            found = self._at_once(points, size)
            self.batched = found is not None
        if found is None:
            each = [self._single(points, row) for row in range(size)]
            found = [np.stack(rows) for rows in zip(*each, strict=True)]
        return [to_coordinates(out, lead=1) for out in found]

    def _filled(self, arrays: Mapping[int, np.ndarray]) -> list[Any]:
        return [arrays.get(i, value) for i, value in enumerate(self.values)]

    def _single(self, points: Mapping[int, np.ndarray], row: int) -> list[np.ndarray]:
        return hosts(self.function(*self._filled({i: many[row] for i, many in points.items()})))

    def _at_once(self, points: Mapping[int, np.ndarray], size: int) -> list[np.ndarray] | None:
        in_dims = tuple(0 if i in points else None for i in range(len(self.values)))
        batch = vmap(lambda *xs: list(self.function(*xs)), in_dims)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = hosts(batch(*self._filled(points)))
        except Exception:
            # whatever it was: single calls need no batching, and raise what is the user's own
            return None
        if not self._is_verified:
            for row in (0, size - 1):
                for one, many in zip(self._single(points, row), found, strict=True):
                    # sums may be ordered in another way
                    allowed = 500 * precision_of(one) * largest(one)
                    if one.dtype != many.dtype or not close(one, many[row], allowed):
                        return None
            self._is_verified = True
        return found


# ------------------------------------------------------------------------------------ Jacobians


def central(beside: Beside, position: int, directions: np.ndarray, eps: float) -> list[np.ndarray]:
    """Returns the slopes f64[k, m] of each output along directions f64[k, n] of one argument.

    They are followed as far as `eps` to both sides.
    """
    points = beside.points({position: np.concatenate([eps * directions, -eps * directions])})
    above, below = np.split(to_coordinates(points[position], lead=1), 2)
    with np.errstate(all="ignore"):
        # points are rounded: this is how far they lie from each other
        gap = ((above - below) * directions).sum(1, keepdims=True)
        gap /= (directions**2).sum(1, keepdims=True)
        gap = np.where(gap > 0, gap, 2 * eps)
        ends = (np.split(many, 2) for many in beside(points))
        return [(above - below) / gap for above, below in ends]


def jacobian(beside: Beside, position: int, eps: float) -> list[np.ndarray]:
    """Returns the Jacobian f64[n, m] of each output: a row per coordinate of one argument."""
    value, outs = beside.values[position], hosts(beside.function(*beside.values))
    # in lower precision a second step cancels the error of the first, so that steps can be long
    one, two = [(1.0, 1.0)], [(1.0, 4.0 / 3.0), (2.0, -1.0 / 3.0)]
    steps = one if precision_of(value) < 1e-10 else two

    def slopes(units: np.ndarray) -> list[np.ndarray]:
        each = [(w, central(beside, position, units, factor * eps)) for factor, w in steps]
        return [np.sum([w * found[i] for w, found in each], axis=0) for i in range(len(outs))]

    return _by_rows(slopes, count(value), list(map(count, outs)))


def rows_of(
    function: Function, origin: Any, results: Sequence[Any], batched: bool = True
) -> list[np.ndarray]:
    """Returns the matrices f64[m, n] of a linear map from arrays like `origin` to the results.

    There is one for each result, with a row for each coordinate of the origin.
    """
    beside = Beside(function, [np.zeros(origin.shape, origin.dtype)], batched)
    evaluated = lambda units: beside(beside.points({0: units}))  # noqa: E731
    return _by_rows(evaluated, count(origin), list(map(count, results)))


def _by_rows(
    function: Callable[[np.ndarray], list[np.ndarray]], size: int, widths: Sequence[int]
) -> list[np.ndarray]:
    """Returns what a function makes of the rows of a unit matrix, in chunks that fit the cache."""
    total = [np.empty((size, width)) for width in widths]
    step = max(1, _BYTES // max(16 * (size + sum(widths)), 1))
    for start in range(0, size, step):
        units = np.eye(min(step, size - start), size, start)
        for whole, part in zip(total, function(units), strict=True):
            whole[start : start + step] = part
    return total


def find_kink(
    beside: Beside, position: int, coordinates: Sequence[int], step: float, output: int
) -> str:
    """Returns what to say of the first kink or jump among some coordinates of an argument, or "".

    Between the slopes on both sides of a smooth point lies a gap that shrinks with the step; at a
    kink it stays, at a jump it grows. The step is that of the differences that are to be explained.
    """
    value = beside.values[position]
    for coordinate in [c for c in coordinates[:8] if c < count(value)]:
        sides = []
        for h in (step, step / 8):
            unit = h * np.eye(1, count(value), coordinate)
            points = beside.points({position: np.concatenate([-unit, 0 * unit, unit])})
            places = to_coordinates(points[position], lead=1)[:, coordinate]
            outs = beside(points)[output]
            with np.errstate(all="ignore"):  # but not where the function is called
                sides.append(np.diff(outs, axis=0) / np.diff(places)[:, None])
        with np.errstate(all="ignore"):
            gap, near = (np.abs(right - left) for left, right in sides)
            noise = 16 * precision_of(value) * np.max(np.abs(outs[1]), initial=0.0) / step
            kinked = np.isfinite(near) & (gap > 100 * noise) & (near > 0.7 * gap) & (gap > 1e-6)
        if kinked.any():
            k = int(np.argmax(np.where(kinked, gap, -1.0)))
            index, (left, right) = index_of(coordinate, value), sides[0]
            if near[k] > 4 * gap[k]:
                return f"the function jumps at element {index}"
            return (
                f"the function has a kink at element {index}: "
                f"its slopes are {left[k]:.6g} on the left and {right[k]:.6g} on the right"
            )
    return ""


# ------------------------------------------------------------------------- along one direction

_DOUBLE = tuple(0.03 / 8**k for k in range(10))
_SINGLE = tuple(0.25 / 2**k for k in range(7))
"""The steps, relative to the sizes of the elements that are moved."""

_NEAR = -3
"""Which step tells one-sided slopes: a short one, but not so short that rounding drowns them."""


class Slope(NamedTuple):
    """The slope of one output, in real coordinates.

    Attributes:
        value: f64[m], NaN where it could not be told.
        error: f64[m], how far it may be off.
        low: f64[m], the lower one of both sides at a kink, else `value`.
        high: f64[m], the upper one.
        size: f64[m], how large it is, or what was added up to it.
    """

    value: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray

    @property
    def kinked(self) -> np.ndarray:
        """Where one-sided slopes disagree."""
        return self.low < self.high

    def allows(self, got: np.ndarray, relative: float, floor: float) -> bool:
        """Tells whether all numbers that a rule gave are right; those that could not be told are.

        Each may be off relative to its own size and, by `floor`, to the largest one.
        """
        allowed = 30 * self.error + relative * self.size + floor * largest(self.size)
        right = (got >= self.low - allowed) & (got <= self.high + allowed)
        return bool((right | ~np.isfinite(self.value)).all())


def projected(slopes: Sequence[Slope], weights: Sequence[np.ndarray]) -> Slope:
    """Returns the slope of the sum of all numbers of all outputs, each times its weight."""
    value, error, low, high, size = map(np.concatenate, zip(*slopes, strict=True))
    weight = np.concatenate(weights)
    low, high = np.sort([weight * low, weight * high], axis=0).sum(axis=1, keepdims=True)
    value = (low + high) / 2 if np.isfinite(value).all() else np.full(1, np.nan)
    error, size = (np.atleast_1d(np.abs(weight) @ x) for x in (error, size))
    return Slope(value, error, low, high, size)


@np.errstate(all="ignore")
def slope_along(beside: Beside, directions: Sequence[np.ndarray], precision: float) -> list[Slope]:
    """Returns the slopes of all outputs along a direction.

    Of each number the step is chosen at which two extrapolations agree best, so that a kink or a
    pole beside the point is stepped over only by the long steps.

    Args:
        beside: the function.
        directions: f64[n] for each argument, as long as the elements are.
        precision: how exact the function is: the distance from 1 to the next number.
    """
    steps = _DOUBLE if precision < 1e-10 else _SINGLE

    def at(step: float) -> list[np.ndarray]:
        moves = {i: step * direction[None] for i, direction in enumerate(directions)}
        return [out[0] for out in beside(beside.points(moves))]

    middle = at(0.0)

    def end(step: float) -> list[np.ndarray]:
        lost = [np.full(centre.shape, np.nan) for centre in middle]
        try:
            found = zip(at(step), lost, strict=True)
            return [out if out.shape == nan.shape else nan for out, nan in found]
        except Exception:
            # a long step may lead out of where the function is defined
            return lost

    ends = [(end(step), end(-step)) for step in steps]
    found = []
    for i, centre in enumerate(middle):
        right, left = (np.array([both[side][i] for both in ends]) for side in (0, 1))
        found.append(_best(right, left, centre, np.array(steps)[:, None], precision))
    return found


def _best(
    above: np.ndarray, below: np.ndarray, middle: np.ndarray, steps: np.ndarray, precision: float
) -> Slope:
    """Chooses for each number the step whose extrapolation is confirmed best."""
    if not middle.size:
        return Slope(middle, middle, middle, middle, middle)
    ratio = float(steps[0, 0] / steps[1, 0]) ** 2
    central = (above - below) / (2 * steps)
    right, left = (above - middle) / steps, (middle - below) / steps
    better = (ratio * central[1:] - central[:-1]) / (ratio - 1)
    # the function may be less exact than its dtype: what small steps disagree by tells
    shaken = np.abs(np.diff(central, axis=0)) * steps[1:]
    shaken = np.max(np.where(np.isfinite(shaken), shaken, 0.0)[-3:], axis=0)
    blurred = np.maximum(8 * max(precision, 2e-16) * np.abs(middle), 4 * shaken)
    doubt = np.abs(better[1:] - better[:-1]) + blurred / steps[2:]
    doubt = np.where(np.isfinite(doubt), doubt, np.inf)
    value, error = _narrowed(better[1:], doubt)
    kinked = _disagree(right, left, blurred, steps)
    low = np.where(kinked, np.minimum(right[_NEAR], left[_NEAR]), value)
    high = np.where(kinked, np.maximum(right[_NEAR], left[_NEAR]), value)
    # within a kink the mean of both sides is exact, and nothing says that it is the derivative
    error = np.where(kinked, blurred / steps[_NEAR] + np.abs(high - low) * 1e-3, error)
    value = np.where(kinked & ~np.isfinite(value), (low + high) / 2, value)
    # short steps may be lost in a lower precision inside: then nothing moves, and long ones do
    lost = (central[-3:] == 0).all(axis=0) & (np.abs(central[:3]) > 0).all(axis=0)
    long = better[0]
    low = np.where(lost, np.minimum(long, np.minimum(low, 0.0)), low)
    high = np.where(lost, np.maximum(long, np.maximum(high, 0.0)), high)
    error = np.where(lost, error + np.abs(long) / 20, error)
    return Slope(value, error, low, high, np.maximum(np.abs(low), np.abs(high)))


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


def _disagree(
    right: np.ndarray, left: np.ndarray, blurred: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Tells where one-sided slopes disagree however short the step is: at kinks and at jumps."""
    few = slice(_NEAR - 3, _NEAR + 1)
    gaps = np.abs(right - left)[few]
    sides = np.maximum(np.abs(right[_NEAR]), np.abs(left[_NEAR]))
    jumps = gaps * steps[few]
    stays = gaps.min(axis=0) > 0.7 * gaps.max(axis=0)
    grows = jumps.min(axis=0) > 0.9 * jumps.max(axis=0)
    large = (gaps[-1] > 8 * blurred / steps[_NEAR]) & (gaps[-1] > 1e-4 * sides)
    return (stays | grows) & large & np.isfinite(gaps).all(axis=0)
