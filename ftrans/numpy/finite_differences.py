"""Slopes of what is known at points alone, by differences."""

from __future__ import annotations

from typing import Any

from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.numpy.axes import canonical_axes
from ftrans.numpy.borrowed import double
from ftrans.numpy.elementwise import add, divide, multiply, subtract
from ftrans.numpy.indexing import getitem, pick
from ftrans.numpy.promotion import as_array, cast
from ftrans.numpy.shaping import concatenate

__all__ = ["gradient"]


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Returns the slopes of sampled values along axes: those of the parabola through three points.

    Args:
        f: the values, of any rank; integers are taken as float64.
        *varargs: the distance of neighbours, one number for all axes or one for each; or, for an
            axis, the coordinates of its points as an array of one axis.
        axis: an axis or several; None is all of them.
        edge_order: 1 for the slope of the first and the last two points at the edges; 2 for the
            parabola through three.

    Returns:
        An array as f for one axis, a tuple of them for several.

    Raises:
        ArgumentError: where there are neither as many distances as axes nor one.
        ShapeError: where an axis has fewer than `edge_order + 1` points, or coordinates do not fit.

    Example:
        >>> import numpy as np
        >>> gradient(np.array([0.0, 1.0, 4.0, 9.0]), edge_order=2)
        array([0., 2., 4., 6.])
    """
    x = double(f)
    axes = canonical_axes("gradient", axis, type_of(x).ndim)
    spacings = varargs or (1.0,)
    if len(spacings) == 1 and not type_of(as_array(spacings[0])).ndim:
        spacings *= len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(
            f"gradient: has {len(varargs)} distances for {len(axes)} axes.\n"
            f"  Give one number for all of them, or one number or array for each."
        )
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is 1 or 2.\n  edge_order: {edge_order!r}")
    found = [_slope(x, h, n, edge_order) for h, n in zip(spacings, axes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(x: Any, spacing: Any, axis: int, edge_order: int) -> Any:
    t, h = type_of(x), double(spacing)
    if t.shape[axis] <= edge_order:
        raise ShapeError(
            f"gradient: axis {axis} needs {edge_order + 1} points or more.\n  f: {t}\n"
            + ("  edge_order=1 needs 2." if edge_order == 2 else "  Leave it out: axis=...")
        )
    along = lambda y, start, stop: pick(y, slice(start, stop), axis)  # noqa: E731
    is_even = not type_of(h).ndim
    if not is_even:
        if type_of(h).shape != (t.shape[axis],):
            raise ShapeError(
                f"gradient: axis {axis} has {t.shape[axis]} points, whose coordinates are as many "
                f"numbers.\n  f: {t}\n  coordinates: {type_of(h)}"
            )
        h = subtract(pick(h, slice(1, None), 0), pick(h, slice(0, -1), 0))
        h = getitem(h, (slice(None), *[None] * (t.ndim - axis - 1)))
    chords = divide(subtract(along(x, 1, None), along(x, 0, -1)), h)
    first, second = along(chords, 0, -1), along(chords, 1, None)
    if is_even:
        share = 0.5
        inner = divide(subtract(along(x, 2, None), along(x, 0, -2)), multiply(2.0, h))
    else:
        before, after = (pick(h, part, 0) for part in (slice(0, -1), slice(1, None)))
        share = divide(before, add(before, after))
        inner = add(first, multiply(share, subtract(second, first)))
    edges = [along(chords, 0, 1), along(chords, -1, None)]
    if edge_order == 2:  # a line through the slopes of two chords goes on as far on either side
        turn = subtract(second, first)
        bend = multiply(share, turn), subtract(turn, multiply(share, turn))
        edges[0] = subtract(edges[0], along(bend[0], 0, 1))
        edges[1] = add(edges[1], along(bend[1], -1, None))
    return cast(concatenate([edges[0], inner, edges[1]], axis=axis), t.dtype)
