"""What is saved of a value that the linear part of a program needs: the least that it is made of.

A view is made again from what it is a view of, a constant from nothing. What is computed element by
element from broadcasts alone is computed before they are broadcast, which gives the same bits.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ftrans.interpreters.builder import Builder
from ftrans.ir import Atom, Equation, Params
from ftrans.primitives import broadcast_p

__all__ = ["Narrowed", "origin"]

Narrowed: TypeAlias = "dict[int, tuple[Atom, Params] | None]"
"""For values of a frame what they are broadcasts of, and how; None where they are not."""


def origin(frame: Builder, code: int, known: Narrowed) -> tuple[Atom | None, list[Equation]]:
    """Returns what to save for a value, and the equations that lead from there to the value.

    Args:
        frame: the frame of the value.
        code: the number of the value.
        known: what was found so far in this frame.

    Returns:
        A value, a literal, or None for a constant; and views, each of which takes the result of
        the one before.
    """
    views: list[Equation] = []
    atom: Any = code
    while type(atom) is int:
        equation = frame.definition(atom)
        if equation is None:
            break
        if "view" not in equation.primitive.tags:
            narrow = _narrowed(frame, atom, known)
            if narrow is None:
                break
            equation = Equation(broadcast_p, narrow[:1], narrow[1], equation.types)
        views.append(equation)
        atom = equation.operands[0] if equation.operands else None
    return atom, views[::-1]


def _narrowed(frame: Builder, code: int, known: Narrowed) -> tuple[Atom, Params] | None:
    """Finds what a value is a broadcast of; adds to the frame what computes it."""
    pending = [code]  # no recursion: a chain may be longer than the stack
    while pending:
        current = pending[-1]
        equation = frame.definition(current)
        operands = [] if equation is None else [a for a in equation.operands if type(a) is int]
        if current in known or equation is None or not operands:
            known.setdefault(current, None)
        elif equation.primitive is broadcast_p:
            known[current] = operands[0], equation.params
        elif "elementwise" not in equation.primitive.tags or any(
            known.get(a, True) is None for a in operands
        ):
            known[current] = None
        elif missing := [a for a in operands if a not in known]:
            pending.append(missing[0])
            continue
        else:
            known[current] = _before(frame, equation, known)
        pending.pop()
    return known[code]


def _before(frame: Builder, equation: Equation, known: Narrowed) -> tuple[Atom, Params] | None:
    """Computes an elementwise equation before its operands are broadcast, if all are in one way."""
    primitive, operands, params, _ = equation
    how: Params | None = None
    taken: list[Atom] = []
    for atom in operands:
        if type(atom) is int:
            narrow = known[atom]
            if narrow is None or (how is not None and narrow[1] != how):
                return None
            atom, how = narrow
        taken.append(atom)
    assert how is not None
    (small,) = frame.add(primitive, tuple(taken), params)
    return small, how
