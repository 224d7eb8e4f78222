"""Runs a program on arrays, one primitive after the other, by `numpy` or `jax.numpy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.ir import Literal, Program

__all__ = ["evaluate"]


def evaluate(xp: Any, program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program` for `arrays`, computed with the functions of `xp`.

    Values are dropped after their last use, so that memory is what the program needs.
    """
    last_use = last_uses(program)
    values: list[Any] = list(arrays)
    for index, equation in enumerate(program.equations):
        operands = [a.array if isinstance(a, Literal) else values[a] for a in equation.operands]
        result = equation.primitive.lower(xp, *operands, **equation.params)
        if equation.primitive.multiple:
            values += result
        else:
            values.append(result)
        for number in last_use[index]:
            values[number] = None
    return [a.array if isinstance(a, Literal) else values[a] for a in program.outputs]


def last_uses(program: Program) -> list[list[int]]:
    """Returns for each equation the numbers of the values that nothing after it reads."""
    found = program.memo.get("last_uses")
    if found is None:
        seen = {a for a in program.outputs if type(a) is int}
        backwards = []
        for equation in reversed(program.equations):
            last = {a for a in equation.operands if type(a) is int} - seen
            seen |= last
            backwards.append(sorted(last))
        found = program.memo["last_uses"] = backwards[::-1]
    return found
