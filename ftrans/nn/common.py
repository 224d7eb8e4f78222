"""What functions of networks share: settings for each spatial axis, reductions, wide arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_half
from ftrans.numpy.promotion import as_array, cast, inexact

Sizes = int | Sequence[int]
"""A number for all spatial axes, or one for each."""


def sizes(name: str, argument: str, value: Any, count: int, least: int = 0) -> tuple[int, ...]:
    """Returns a setting as one number for each spatial axis.

    Args:
        name: the function, for errors.
        argument: the setting.
        value: a number, or a sequence of one or of `count`.
        count: the number of spatial axes.
        least: the smallest number that makes sense.

    Raises:
        ArgumentError: where it is anything else.
    """
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    whole = all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in given)
    if not whole or len(given) not in (1, count) or min(given) < least:
        raise ArgumentError(
            f"{name}: {argument} is a number of at least {least}, or {count} of them, "
            f"one for each spatial axis.\n  {argument}: {value!r}\n"
            f"  Write {argument}={max(least, 1)}, or {argument}={(max(least, 1),) * count}."
        )
    return tuple(map(int, given * count if len(given) == 1 else given))


def shown(**values: Any) -> str:
    """Returns a line for each argument that is there, with its type, for errors."""
    lines = [f"\n  {name}: {type_of(x)}" for name, x in values.items() if x is not None]
    return "".join(lines)


def wide(x: Any) -> tuple[Any, np.dtype]:
    """Returns a strict operand in the dtype to compute in, single where it is half, and its own."""
    x = inexact(x)
    dtype = type_of(x).dtype
    return (cast(x, np.float32) if is_half(dtype) else x), dtype


def like(x: Any, other: Any) -> Any:
    """Returns a parameter in the dtype that another operand is computed in; None stays None."""
    return None if x is None else cast(as_array(x), type_of(other).dtype)


def per_channel(name: str, argument: str, x: Any, like_: Any, axis: int = 1) -> Any:
    """Returns one number per channel, f32[c], so that it broadcasts with an operand.

    Raises:
        ShapeError: where there are more or fewer channels.
    """
    t, of = type_of(x), type_of(like_)
    if t.shape != (of.shape[axis],):
        raise ShapeError(
            f"{name}: {argument} has one number for each channel, axis {axis} of input."
            f"{shown(input=like_)}\n  {argument}: {t}\n  Pass f32[{of.shape[axis]}]."
        )
    return fnp.reshape(x, (-1, *(1,) * (of.ndim - axis - 1)))


REDUCTIONS = ("none", "mean", "sum")


def check_reduction(name: str, reduction: Any, known: Sequence[str] = REDUCTIONS) -> None:
    """Raises for what is no way to reduce a loss."""
    if reduction not in known:
        raise ArgumentError(
            f"{name}: there is no reduction {reduction!r}.\n  reduction: {reduction!r}\n"
            f"  Write {', '.join(map(repr, known[:-1]))} or {known[-1]!r}."
        )


def reduced(name: str, values: Any, reduction: str) -> Any:
    """Returns a loss of each element, their mean or their sum."""
    check_reduction(name, reduction)
    if reduction == "none":
        return values
    return fnp.mean(values) if reduction == "mean" else fnp.sum(values)
