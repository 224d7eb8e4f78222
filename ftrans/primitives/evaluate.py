"""Runs a program on arrays, one primitive after the other, by `numpy` or `jax.numpy`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ftrans.ir import Literal, Program

__all__ = ["Staging", "evaluate"]


class Staging:
    """Stands for `jax.numpy` with another way to run programs, which loops and branches thus get.

    Args:
        namespace: `jax.numpy`.
        run: `(program, arrays) -> outputs`.
    """

    __slots__ = ("_namespace", "run")

    def __init__(self, namespace: Any, run: Callable[[Program, Sequence[Any]], list[Any]]):
        self._namespace = namespace
        self.run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)


def evaluate(xp: Any, program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program` for `arrays`, computed with the functions of `xp`.

    Values are dropped after their last use, so that memory is what the program needs.
    """
    if isinstance(xp, Staging):
        return xp.run(program, arrays)
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
