"""Makes programs shorter without changing what they compute, to the last bit.

To simplify a program is to build it anew: a `Builder` applies the identities that primitives
declare, folds constants, merges equal equations, and leaves out what no output needs.
"""

from __future__ import annotations

from ftrans.interpreters.base import building, finish, memoised, replay
from ftrans.ir import Program


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
