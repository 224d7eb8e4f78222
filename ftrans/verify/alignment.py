"""Proves of a program that element i of each result depends on element i of one input alone.

The Jacobian is diagonal then, and one evaluation perturbs all elements at once without mixing them.
Nothing is assumed: where a program does anything that is not elementwise, there is no proof.
"""

from __future__ import annotations

from ftrans.interpreters import runnable
from ftrans.ir import Program

__all__ = ["is_aligned"]


def is_aligned(program: Program, position: int) -> bool:
    """Tells whether all results are proven to be elementwise in one input, of its shape.

    Args:
        program: any program; of custom rules it is what is run that counts.
        position: which input.

    Raises:
        MissingRuleError: where a derivative in it has no rule.
    """
    program = runnable(program)
    shape = program.inputs[position].shape
    if not shape:
        return False
    depends = [i == position for i in range(len(program.inputs))]
    for equation, results, _ in program.numbered():
        moved = any(type(atom) is int and depends[atom] for atom in equation.operands)
        if moved:
            if not equation.primitive.tags & {"elementwise"}:
                return False
            if any(program.types[number].shape != shape for number in results):
                return False
        depends += [moved] * len(results)
    return all(program.type_of(output).shape == shape for output in program.outputs)
