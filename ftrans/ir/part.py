"""What a value is computed by, of what is known of a frame: the part of its program it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ftrans.ir.program import Program

if TYPE_CHECKING:
    from ftrans.ir.frame import Frame


class Part(NamedTuple):
    """Is what one value is computed by; values are numbered as by `Tracer.index`.

    Attributes:
        program: from what it needs to what it gives.
        needs: what is known already, and inputs.
        gives: all that it computes, but for views, which are made again at no cost.
    """

    program: Program
    needs: Sequence[int]
    gives: Sequence[int]


def part_of(frame: Frame, code: int) -> Part:
    """Returns what computes a result."""
    pending, needs, firsts = [code], set(), set()
    while pending:
        current = pending.pop()
        if current < 0 or current in frame.known:
            needs.add(current)
            continue
        equation, _, first = frame.produced(current)
        if first not in firsts:
            firsts.add(first)
            pending += [c for c in equation.operands if type(c) is int]
    number: dict[Any, int] = {c: i for i, c in enumerate(sorted(needs))}
    types = [frame.type(c) for c in number]
    equations, locations, gives = [], [], []
    for first in sorted(firsts):
        equation, location, _ = frame.produced(first)
        operands = tuple([number[c] if type(c) is int else c for c in equation.operands])
        equations.append(equation._replace(operands=operands))
        locations.append(location)
        results = range(first, first + len(equation.types))
        number.update({c: len(number) + i for i, c in enumerate(results)})
        if code in results or "view" not in equation.primitive.tags:
            gives += results
    outputs = [number[c] for c in gives]
    name = f"a value of {frame.name}"
    return Part(Program.make(types, equations, outputs, locations, name), sorted(needs), gives)
