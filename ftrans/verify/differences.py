"""Jacobians by central differences, all elements perturbed in a few batched calls.

A matrix has one row per real coordinate of the input, and one column per coordinate of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.verify.call import host, like
from ftrans.verify.coordinates import count, from_coordinates, to_coordinates
from ftrans.verify.points import Points, rows_of
from ftrans.verify.tolerances import precision_of

__all__ = ["aligned_difference", "jacobian", "one_sided"]


def jacobian(
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    position: int,
    eps: float,
    batched: bool = True,
) -> list[np.ndarray]:
    """Returns the Jacobian of each output with respect to one argument.

    Args:
        function: takes arrays, returns a list of arrays.
        values: the arguments.
        position: which of them is perturbed.
        eps: how far.
        batched: whether the function may be batched.

    Returns:
        One f64[n, m] per output.
    """
    value = host(values[position])
    base, size = to_coordinates(value), count(value)
    outs = [host(out) for out in function(*values)]
    points = Points(function, values, position, batched)
    total: list[np.ndarray] = [np.empty((size, count(out))) for out in outs]
    steps = _weights(value)
    width = size + sum(map(count, outs))
    rows = max(1, rows_of(width) // (2 * len(steps)))
    for start in range(0, size, rows):
        stop = min(size, start + rows)
        index = np.arange(start, stop)
        found: list[np.ndarray] = [np.zeros((stop - start, count(out))) for out in outs]
        for factor, weight in steps:
            sides = []
            for sign in (1.0, -1.0):
                moved = np.tile(base, (stop - start, 1))
                moved[np.arange(stop - start), index] += sign * factor * eps
                sides.append(from_coordinates(moved, value, (stop - start,)))
            both = points(np.concatenate(sides))
            coordinates = [to_coordinates(side, lead=1) for side in sides]
            gap = (coordinates[0] - coordinates[1])[np.arange(stop - start), index][:, None]
            for out, many in zip(found, both, strict=True):
                ends = to_coordinates(many, lead=1)
                with np.errstate(all="ignore"):
                    slope = (ends[: stop - start] - ends[stop - start :]) / gap
                out += weight * slope
        for whole, part in zip(total, found, strict=True):
            whole[start:stop] = part
    return total


def _weights(value: Any) -> list[tuple[float, float]]:
    """Returns how long the steps are, and how their slopes are combined.

    In double precision there is one, as in PyTorch; in lower precision a second one cancels the
    error of the first, so that steps can be long.
    """
    if precision_of(value) < 1e-10:
        return [(1.0, 1.0)]
    return [(1.0, 4.0 / 3.0), (2.0, -1.0 / 3.0)]


def aligned_difference(
    function: Callable[..., Sequence[Any]], values: Sequence[Any], position: int, eps: float
) -> list[np.ndarray]:
    """Returns the diagonals of the Jacobians of a function that is elementwise in one argument."""
    value = host(values[position])
    sides = []
    for sign in (1.0, -1.0):
        moved = list(values)
        moved[position] = (value + sign * eps).astype(value.dtype)
        sides.append((moved[position], [host(out) for out in function(*moved)]))
    (right, above), (left, below) = sides
    with np.errstate(all="ignore"):
        return [
            ((a.astype(np.float64) - b) / (right.astype(np.float64) - left)).reshape(-1)
            for a, b in zip(above, below, strict=True)
        ]


def one_sided(
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    position: int,
    coordinate: int,
    step: float,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns the slopes of all outputs to the right and to the left of one coordinate.

    Args:
        function: takes arrays, returns a list of arrays.
        values: the arguments.
        position: which of them is perturbed.
        coordinate: which of its coordinates.
        step: how far.
    """
    value = host(values[position])
    base = to_coordinates(value)
    ends, places = [], []
    for sign in (1.0, 0.0, -1.0):
        moved = base.copy()
        moved[coordinate] += sign * step
        point = from_coordinates(moved, value)
        places.append(to_coordinates(point)[coordinate])
        arguments = list(values)
        arguments[position] = like(point, values[position])
        ends.append([to_coordinates(host(out)) for out in function(*arguments)])
    with np.errstate(all="ignore"):
        right = [(a - b) / (places[0] - places[1]) for a, b in zip(ends[0], ends[1], strict=True)]
        left = [(b - c) / (places[1] - places[2]) for b, c in zip(ends[1], ends[2], strict=True)]
    return right, left
