"""`rearrange`: axes split, joined, moved, added and left out, in the notation of einops."""

from __future__ import annotations

import math
import re
from typing import Any

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.traceback import boundary

_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|[A-Za-z_]\w*|1|\S)")


@boundary
def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Rearranges the elements of an array as a pattern says.

    Args:
        tensor: the array, or a list of arrays of one shape, stacked along a first axis.
        pattern: the names of its axes, an arrow, and those of the result. Names in parentheses are
            one axis, the last of them runs fastest; `1` and `()` are axes of size 1, `...` stands
            for all axes that are not named.
        axes_lengths: sizes of axes that are split off; one per parenthesis may be left out.

    Returns:
        The same elements in another shape and order.

    Raises:
        ArgumentError: where the pattern is no such pattern.
        ShapeError: where it does not fit the shape.

    Example:
        >>> import numpy as np
        >>> rearrange(np.arange(6).reshape(2, 3), "a b -> b a").shape
        (3, 2)
        >>> rearrange(np.arange(6), "(a b) -> a b", b=2).shape
        (3, 2)
    """
    sides = pattern.split("->")
    if len(sides) != 2:
        raise _wrong(pattern, "it has one arrow, between the axes of the array and of the result")
    left, right = (_axes(pattern, side) for side in sides)
    tensor = fnp.stack(tensor) if isinstance(tensor, (list, tuple)) else tensor
    t = type_of(tensor)
    named = sum(axis != ["..."] for axis in left)
    rest = [f"...{i}" for i in range(t.ndim - named)] if ["..."] in left else []
    left = _spread(left, rest)
    if len(left) != t.ndim:
        raise ShapeError(
            f"rearrange({pattern!r}): the pattern has {len(left)} axes on its left side, the array "
            f"{t.ndim}.\n  array: {t}"
        )
    sizes = _sizes(pattern, left, t, axes_lengths)
    names = [name for axis in left for name in axis]
    right = [[b for a in x for b in (rest if a == "..." else [a])] for x in _spread(right, rest)]
    wanted = [name for axis in right for name in axis]
    if sorted(names) != sorted(wanted):
        odd = ", ".join(sorted(set(names) ^ set(wanted)) or ["an axis twice"])
        raise _wrong(pattern, f"both sides have the same names, once each; not so: {odd}")
    x = fnp.reshape(tensor, tuple([sizes[name] for name in names]))
    x = fnp.transpose(x, tuple([names.index(name) for name in wanted]))
    return fnp.reshape(x, tuple([math.prod([sizes[a] for a in axis]) for axis in right]))


def _spread(axes: list[list[str]], rest: list[str]) -> list[list[str]]:
    """Returns the axes with those that `...` stands for by themselves, but in parentheses."""
    return [a for axis in axes for a in ([[r] for r in rest] if axis == ["..."] else [axis])]


def _axes(pattern: str, side: str) -> list[list[str]]:
    """Returns for each axis of a side the names that it consists of."""
    axes: list[list[str]] = []
    group: list[str] | None = None
    for token in _TOKEN.findall(side):
        if token == "(" and group is None:
            group = []
        elif token == ")" and group is not None:
            axes.append(group)
            group = None
        elif token == "1":
            if group is None:
                axes.append([])
        elif token == "..." or token.isidentifier():
            if group is None:
                axes.append([token])
            else:
                group.append(token)
        else:
            raise _wrong(pattern, f"{token!r} is no name of an axis, parenthesis, 1 or ...")
    if group is not None:
        raise _wrong(pattern, "a parenthesis is not closed")
    names = [name for axis in axes for name in axis]
    if len(set(names)) < len(names):
        raise _wrong(pattern, "each name stands once on a side")
    return axes


def _sizes(pattern: str, axes: list[list[str]], t: Any, given: dict[str, int]) -> dict[str, int]:
    """Returns the sizes of all names."""
    sizes = dict(given)
    for axis, size in zip(axes, t.shape, strict=True):
        unknown = [name for name in axis if name not in sizes]
        known = math.prod([sizes[name] for name in axis if name in sizes])
        if len(unknown) > 1:
            raise ShapeError(
                f"rearrange({pattern!r}): the sizes of {' and '.join(unknown)} are not known.\n"
                f"  array: {t}\n  Pass all but one of them: {unknown[0]}=n."
            )
        if unknown:
            sizes[unknown[0]] = size // known if known else 0
        if math.prod([sizes[name] for name in axis]) != size:
            parts = " * ".join([f"{name}={sizes[name]}" for name in axis]) or "1"
            raise ShapeError(
                f"rearrange({pattern!r}): an axis of size {size} is not {parts}.\n  array: {t}"
            )
    if unused := [name for name in given if not any(name in axis for axis in axes)]:
        raise _wrong(pattern, f"it has no axis {', '.join(unused)}, whose size is given")
    return sizes


def _wrong(pattern: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"rearrange: {pattern!r} is no pattern: {why}.\n  Write 'a (b c) -> c a b'."
    )
