"""The well-formedness of programs: every type inferred anew, every number in range."""

from __future__ import annotations

from ftrans.errors import CheckError
from ftrans.ir.program import Program
from ftrans.ir.types import Literal


def check(program: Program) -> Program:
    """Raises `CheckError` unless `program` is well-formed; returns it otherwise.

    Args:
        program: the program; its sub-programs are checked too.

    Raises:
        CheckError: naming the equation and what is wrong with it.
    """
    defined = len(program.inputs)
    for equation, numbers, _ in program.numbered():
        what = f"{program.name}: equation {numbers.start - len(program.inputs)}, {equation}"
        for operand in equation.operands:
            if not isinstance(operand, Literal) and not 0 <= operand < defined:
                raise CheckError(f"{what}\n  uses value {operand}, which is not defined yet.")
        types = tuple(program.type_of(operand) for operand in equation.operands)
        try:
            inferred = equation.primitive.infer_types(types, equation.params)
        except Exception as error:
            raise CheckError(f"{what}\n  does not type: {error}") from error
        if inferred != equation.types:
            raise CheckError(f"{what}\n  has types {equation.types}, inferred are {inferred}.")
        for sub in equation.params.programs():
            check(sub)
        defined = numbers.stop
    for output in program.outputs:
        if not isinstance(output, Literal) and not 0 <= output < defined:
            raise CheckError(f"{program.name}: output {output} is not defined.")
    return program
