"""Axes and shapes of strict operands: counted from the front, broadcast, made one axis."""

from __future__ import annotations

from typing import Any

from ftrans.errors import AxisError, DTypeError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.stack import state
from ftrans.primitives import broadcast_p, reshape_p


def canonical_axis(name: str, axis: int, ndim: int) -> int:
    """Returns an axis counted from the front, checked.

    Raises:
        AxisError: where there is no such axis.
        DTypeError: where it is no whole number.
    """
    if not hasattr(axis, "__index__"):
        raise DTypeError(f"{name}: an axis is an int.\n  axis: {axis!r}\n  Give one: axis=0.")
    number = axis.__index__()
    if not -ndim <= number < ndim:
        hint = f"Its axes are {-ndim} ... {ndim - 1}." if ndim else "Leave the axis out."
        raise AxisError(
            f"{name}: axis {axis} is out of range for an array of rank {ndim}.\n  {hint}"
        )
    return number % ndim if ndim else 0


def canonical_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Returns axes counted from the front; None means all of them.

    A tensor without axes may be said to have one, as in PyTorch, over which nothing is to be done.
    """
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    if not ndim and state.of_tensors and all(a in (0, -1) for a in given):
        return ()
    axes = tuple(canonical_axis(name, a, ndim) for a in given)
    if len(set(axes)) != len(axes):
        raise AxisError(f"{name}: axes {axis} name an axis twice.")
    return axes


def reduced_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Is `canonical_axes` of what is reduced: no axes of a tensor are all, as in PyTorch."""
    none = state.of_tensors and isinstance(axis, (tuple, list)) and not axis
    return canonical_axes(name, None if none and name not in ("all", "any") else axis, ndim)


def axes_of_tensor(name: str, given: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Is `canonical_axes` of what is a tensor to a function, whatever it is said to stand for."""
    return canonical_axes(name, given if ndim else [a for a in given if a not in (0, -1)], ndim)


def flattened(x: Any) -> Any:
    """Returns the elements of a strict operand, in the order of rows, as one axis."""
    return reshape_p(x, shape=(type_of(x).size,))


def line_of(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """Returns a strict operand and an axis of it; all elements as one axis where that is None."""
    if axis is None:
        return flattened(x), 0
    return x, canonical_axis(name, axis, type_of(x).ndim)


def ones_at(axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns a shape with size 1 at some axes."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def kept(x: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    """Gives a reduced operand axes of size 1 in the place of those that were reduced."""
    return reshape_p(x, shape=ones_at(axes, shape)) if keepdims and axes else x


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcasts a strict operand to a shape by NumPy's rules."""
    t = type_of(x)
    if t.shape == shape:
        return x
    axes = aligned(t, shape)
    if len(axes) < t.ndim:
        x = reshape_p(x, shape=tuple(shape[axis] for axis in axes))
    return broadcast_p(x, shape=shape, axes=axes)


def aligned(t: ArrayType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the axes of a shape that come from an array; the others repeat it.

    Raises:
        ShapeError: where it does not broadcast to the shape.
    """
    offset = len(shape) - t.ndim
    if offset < 0 or any(
        size not in (1, shape[offset + axis]) for axis, size in enumerate(t.shape)
    ):
        raise ShapeError(
            f"broadcast_to: the array does not broadcast to the shape.\n"
            f"  x: {t}\n  shape: {shape}\n"
            f"  Sizes are matched from the last axis on; x[:, None] adds an axis of size 1."
        )
    return tuple(offset + axis for axis, n in enumerate(t.shape) if n == shape[offset + axis])
