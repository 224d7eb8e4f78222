"""Runs a program on arrays, one primitive after the other, by `numpy` or `jax.numpy`.

What does not depend on the arrays is worked out once and kept on the program: for each equation the
function to call, where its operands lie, and which values nothing reads after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np

from ftrans.ir import Literal, Program
from ftrans.primitives.namespace import rounds


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


class _Step(NamedTuple):
    """Is one equation, ready to be run."""

    call: Callable[..., Any]
    """`lower` with its params; it takes the namespace, then the operands."""
    slots: tuple[int, ...]
    first: int
    """The first operand, or -1 where there are not one or two."""
    second: int
    multiple: bool
    dropped: tuple[int, ...]


class _Plan(NamedTuple):
    """Is a program, ready to be run: its values lie in one list, inputs first, then literals."""

    literals: tuple[Any, ...]
    steps: tuple[_Step, ...]
    outputs: tuple[int, ...]


def evaluate(xp: Any, program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program` for `arrays`, computed with the functions of `xp`.

    Values are dropped after their last use, so that memory is what the program needs. An error
    carries a note that says which equation it came from.
    """
    if isinstance(xp, Staging):
        return xp.run(program, arrays)
    plan = program.memo.get("evaluate")
    if plan is None:
        plan = program.memo.setdefault("evaluate", _plan(program))
    values: list[Any] = [*arrays, *plan.literals]
    if xp is not np and rounds():
        # JAX may take one that it has seen in double precision for what it then was
        values = [xp.asarray(x) if isinstance(x, np.ndarray) else x for x in values]
    steps = iter(plan.steps)
    try:
        for call, slots, first, second, multiple, dropped in steps:
            # most equations have one or two operands, and a call that unpacks a list costs more
            if second >= 0:
                result = call(xp, values[first], values[second])
            elif first >= 0:
                result = call(xp, values[first])
            else:
                result = call(xp, *[values[slot] for slot in slots])
            if multiple:
                values += result
            else:
                values.append(result)
            for slot in dropped:
                values[slot] = None
    except Exception as error:
        _note(error, program, len(plan.steps) - length_hint(steps) - 1)
        raise
    return list(map(values.__getitem__, plan.outputs))


def _plan(program: Program) -> _Plan:
    """Works out what every evaluation of a program has in common."""
    literals: dict[Literal, int] = {}
    count = len(program.inputs)
    for atom in (*(a for e in program.equations for a in e.operands), *program.outputs):
        if type(atom) is Literal:
            literals.setdefault(atom, count + len(literals))

    def slot(atom: Any) -> int:
        if type(atom) is Literal:
            return literals[atom]
        return atom if atom < count else atom + len(literals)

    steps = []
    read = {a for a in program.outputs if type(a) is int}
    for equation in reversed(program.equations):
        last = {a for a in equation.operands if type(a) is int} - read
        read |= last
        primitive, params = equation.primitive, equation.params
        slots = tuple(map(slot, equation.operands))
        steps.append(
            _Step(
                functools.partial(primitive.lower, **params) if params else primitive.lower,
                slots,
                slots[0] if len(slots) in (1, 2) else -1,
                slots[1] if len(slots) == 2 else -1,
                primitive.multiple,
                tuple(sorted(map(slot, last))),
            )
        )
    return _Plan(
        tuple(literal.array for literal in literals),
        tuple(reversed(steps)),
        tuple(map(slot, program.outputs)),
    )


def _note(error: Exception, program: Program, index: int) -> None:
    """Says in an error which equation it came from, the innermost one where they nest."""
    if getattr(error, "__notes__", None):
        return
    equation, place = program.equations[index], program.locations[index]
    types = ", ".join(str(program.type_of(atom)) for atom in equation.operands)
    error.add_note(
        f"ftrans: raised by {equation.primitive.name} of {types} in {program.name}"
        + (f"\n  {place}: {place.source}" if place else "")
    )
