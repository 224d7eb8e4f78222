"""Axes that have names: what values are mapped over, as `vmap(axis_name=)` and `shard_map` do it.

An equation that goes over such an axis holds its name and its size among its params, so that types
follow of it alone. What holds a program may give names their meaning inside (`binds_axes`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from ftrans.ir.program import Params, Program


class Axes(NamedTuple):
    """Names axes, each with its size; the first is the one that changes slowest."""

    names: tuple[Hashable, ...]
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many places there are along all of them."""
        found = 1
        for size in self.sizes:
            found *= size
        return found

    def without(self, name: Hashable) -> Axes:
        """Returns the others."""
        kept = [(n, size) for n, size in zip(*self, strict=True) if n != name]
        return Axes(tuple([n for n, _ in kept]), tuple([size for _, size in kept]))


def names_of(params: Params) -> frozenset[Hashable]:
    """Returns the names of axes that an equation with these params goes over."""
    found: frozenset[Hashable] = frozenset()
    bound: Iterable[Hashable] = ()
    for value in params.values():
        if type(value) is Axes:
            found = found.union(value.names)
        bound = getattr(value, "binds_axes", bound)
    for program in params.programs():
        found |= names_in(program)
    return found.difference(bound) if found else found


def names_in(program: Program) -> frozenset[Hashable]:
    """Returns the names of axes that equations of a program go over, at any depth."""
    found: Any = program.memo.get("names of axes")
    if found is None:
        held = [names_of(e.params) for e in program.equations if e.params]
        found = program.memo["names of axes"] = frozenset().union(*held)
    return found


def depth_of(params: Params, stack: Iterable[Any]) -> int:
    """Returns the depth of the innermost frame whose axes an equation goes over; -1 for none.

    Args:
        params: those of the equation.
        stack: the frames.
    """
    names = names_of(params)
    if names:
        for frame in reversed(list(stack)):
            if not names.isdisjoint(frame.axes):
                return frame.depth
    return -1
