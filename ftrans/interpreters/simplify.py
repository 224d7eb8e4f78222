"""Makes programs shorter without changing what they compute, to the last bit.

To simplify a program is to build it anew: a `Builder` applies the identities that primitives
declare, folds constants, merges equal equations, and leaves out what no output needs.
"""

from __future__ import annotations

from ftrans.interpreters.base import building, finish, memoised, replay
from ftrans.ir import Atom, Literal, Program

__all__ = ["fills", "simplify"]


def fills(program: Program) -> dict[Atom, Literal]:
    """Returns the literals of a program, and for the arrays that a literal fills that literal."""
    found: dict[Atom, Literal] = {}
    for atom in (*program.outputs, *(a for e in program.equations for a in e.operands)):
        if isinstance(atom, Literal):
            found[atom] = atom
    for equation, numbers, _ in program.numbered():
        if "broadcast" in equation.primitive.tags and isinstance(equation.operands[0], Literal):
            found[numbers.start] = equation.operands[0]
    return found


def simplify(program: Program) -> Program:
    """Returns a program that computes the same with fewer equations.

    Args:
        program: any program; its sub-programs are simplified too.
    """
    return program if program.is_simplified else _simplified(program)


@memoised
def _simplified(program: Program) -> Program:
    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, replay(program, inputs))
