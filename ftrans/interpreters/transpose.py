"""Transposition of linear programs: the second half of reverse mode.

Transposition is plain, without conjugation; PyTorch's convention for complex numbers is applied at
the boundary, in ftrans.func. Cotangents that are zero are `None` all the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.errors import TransposeError
from ftrans.interpreters.affine import check_linear
from ftrans.interpreters.base import building, finish, memoised, simplify
from ftrans.interpreters.builder import transforms
from ftrans.interpreters.inline import inline
from ftrans.ir import Equation, Literal, Params, Program, bind
from ftrans.ir.stack import Placing
from ftrans.primitives.arithmetic import accumulate
from ftrans.primitives.axes import zeros
from ftrans.primitives.control.common import (
    Mask,
    grouped,
    merged,
    moved,
    opposite,
    pick,
    present,
    spread,
    unknown,
)
from ftrans.primitives.record import Absent, Joint, Linear, NotLinear, Recursive
from ftrans.primitives.rules.missing import missing_p


@memoised
def transpose(
    program: Program, linear: tuple[bool, ...], nonzero: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    """Transposes `program` with respect to some of its inputs.

    Args:
        program: a program that is linear in the inputs marked.
        linear: for each input whether its cotangent is asked for.
        nonzero: for each output whether its cotangent is given; the others are zero.

    Returns:
        A program from the inputs that are not linear, followed by the cotangents of the outputs
        that are nonzero, to the cotangents of linear inputs that are nonzero; and for each linear
        input whether it is among them.
    """
    program = inline(program)
    types = pick(program.inputs, opposite(linear)), pick(program.output_types, nonzero)
    with grouped(transforms, f"transpose({program.name})", *types) as (frame, (constants, given)):
        operands = merged(map(Linear, pick(program.inputs, linear)), constants, linear)
        cotangents = pick(pull_back(program, operands, spread(given, nonzero)), linear)
        found = present(cotangents)
        return finish(frame, pick(cotangents, found)), found


@memoised
def exchange(program: Program, count: int, message: str) -> Program:
    """Transposes a program whose first inputs are linear, and gives the result the same form.

    Args:
        program: from `count` linear inputs, followed by constants, to what is linear in them.
        count: the number of linear inputs.
        message: the error where it is not linear; it is raised where the result is needed.

    Returns:
        A program from cotangents of the outputs, followed by the constants, to the cotangents of
        the linear inputs.
    """
    program = simplify(inline(program))
    linear = tuple(i < count for i in range(len(program.inputs)))
    types, others = program.inputs[:count], program.inputs[count:]
    given = len(program.outputs)
    name = f"transpose({program.name})"
    with building(name, [*program.output_types, *others]) as (frame, inputs):
        try:
            check_linear(program, linear, known_only=True)
            operands = [*map(Linear, types), *inputs[given:]]
            found = pull_back(program, operands, inputs[:given])[:count]
        except TransposeError as error:
            # of the constants too, so that derivatives of it are missing, and not zero
            found = missing_p(*inputs, types=types, message=f"{message}\n  {error}")
        return finish(
            frame, [zeros(t) if ct is None else ct for ct, t in zip(found, types, strict=True)]
        )


def pull_back(program: Program, operands: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Runs a linear program backwards.

    Args:
        program: a program without `call`.
        operands: values, or `Linear` where the cotangent is asked for.
        cotangents: those of the outputs, `None` for zero.

    Returns:
        For each operand its cotangent, `None` where it is zero or not asked for.
    """
    values = list(operands)
    linear_equations = []
    with Placing() as place:
        for equation, numbers, location in program.numbered():
            taken = [a if type(a) is Literal else values[a] for a in equation.operands]
            place.move(location)
            if any(linear := unknown(taken)):
                linear_equations.append((equation, numbers, location, taken))
                values += _results(equation, taken, moved(equation, linear))
            else:
                values += bind(equation.primitive, taken, equation.params)

        sums: dict[int, Any] = {}

        def add(atom: Any, cotangent: Any) -> None:
            if cotangent is not None and type(atom) is int and isinstance(values[atom], Linear):
                sums[atom] = accumulate(sums.get(atom), cotangent)

        for output, cotangent in zip(program.outputs, cotangents, strict=True):
            add(output, cotangent)
        for equation, numbers, location, taken in reversed(linear_equations):
            given = [sums.pop(number, None) for number in numbers]
            if any(present(given)):
                place.move(location)
                try:
                    found = _cotangents(equation, taken, given, location)
                except NotLinear as error:
                    raise _not_linear(equation, location, str(error)) from None
                for atom, cotangent in zip(equation.operands, found, strict=True):
                    add(atom, cotangent)
    return [sums.get(number) for number in range(len(program.inputs))]


def _results(equation: Equation, operands: Sequence[Any], moving: Mask) -> list[Any]:
    """Returns what the results are: `Linear` where they move, else values that are computed."""
    primitive, still = equation.primitive, opposite(moving)
    pruned = None if all(moving) else primitive.prune(transforms, still, operands, equation.params)
    if pruned is None or any(unknown(pruned[0])):
        return [*map(Linear, equation.types)]
    taken, params, kept = pruned
    values = spread(bind(primitive, taken, Params(params)), kept)
    return merged(map(Linear, pick(equation.types, moving)), pick(values, still), moving)


def _not_linear(equation: Equation, location: Any, reason: str) -> TransposeError:
    return TransposeError(
        f"the function is not linear in the inputs that it is transposed for.\n"
        f"  {equation.primitive.name} at {location or 'an unknown place'}: {reason}\n"
        f"  Write func.vjp(f, x) to transpose the derivative of f at x instead."
    )


def _cotangents(
    equation: Equation, operands: Sequence[Any], given: Sequence[Any], location: Any
) -> Sequence[Any]:
    """Applies the transpose rule of one equation."""
    primitive, rule = equation.primitive, equation.primitive.transpose
    if isinstance(rule, Recursive):
        return rule.rule(transforms, given, *operands, **equation.params)
    ct = given if primitive.multiple else given[0]
    if any(isinstance(x, Linear) and not x.type.is_inexact for x in operands):
        raise _not_linear(equation, location, "it chooses by their values")
    if isinstance(rule, Joint):
        return rule.rule(ct, *operands, **equation.params)
    asked = [i for i, operand in enumerate(operands) if isinstance(operand, Linear)]
    out: list[Any] = [None] * len(operands)
    for index in asked:
        partial = rule if isinstance(rule, Absent) else rule[index]
        if isinstance(partial, Absent) or ("multilinear" in primitive.tags and len(asked) > 1):
            reason = partial.reason if isinstance(partial, Absent) else "two factors depend on them"
            raise _not_linear(equation, location, reason)
        out[index] = partial(ct, *operands, **equation.params)
    return out
