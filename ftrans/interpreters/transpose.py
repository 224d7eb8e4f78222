"""Transposition of linear programs, the second half of reverse mode; and which ones are affine.

Transposition is plain, without conjugation; PyTorch's convention for complex numbers is applied at
the boundary, in gradient.py. Cotangents that are zero are `None` all the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ftrans.errors import RuleError, TransposeError
from ftrans.interpreters.base import building, finish, memoised, replay, simplify
from ftrans.interpreters.builder import transforms
from ftrans.interpreters.inline import inline
from ftrans.ir import Equation, Literal, Params, Program, bind
from ftrans.ir.above import above
from ftrans.ir.stack import Placing
from ftrans.primitives import custom_p, scan_p, switch_p, while_p
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
from ftrans.primitives.rules.missing import Deferred, missing_p


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


above.exchange = exchange


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


# --------------------------------------------------------------------------------- linear or affine
#
# Transposition drops a constant that is added to what is linear, without a word.


class _Part(NamedTuple):
    """What is known of a value.

    Attributes:
        moves: whether it depends on what is linear.
        constant: whether what is left where that is zero is not zero; None where it is unknown.
        place: where a constant was added to what moves.
    """

    moves: bool
    constant: bool | None
    place: str = ""


_LINEAR, _ZERO, _UNKNOWN = _Part(True, False), _Part(False, False), _Part(False, None)


class _Reader:
    """Follows linear values through programs, loops and branches included.

    Args:
        known_only: whether what is unknown is taken for zero.
    """

    def __init__(self, known_only: bool):
        self.known_only = known_only

    def is_term(self, part: _Part) -> bool:
        return not self.known_only if part.constant is None else part.constant

    def joined(self, parts: Sequence[_Part], place: str) -> _Part:
        """Returns what is known of a sum, or of a value that may be any of some."""
        if any(part.moves for part in parts):
            inner = next((part.place for part in parts if part.place), place)
            found = any(map(self.is_term, parts))
            return _Part(True, True, inner) if found else _LINEAR
        return parts[0] if all(part == parts[0] for part in parts) else _UNKNOWN

    def read(self, program: Program, inputs: Sequence[_Part]) -> list[_Part]:
        """Returns what is known of the outputs of an inlined program."""
        parts = list(inputs)

        def part_of(atom: Any) -> _Part:
            if isinstance(atom, Literal):
                return _Part(False, bool(atom.value != 0))
            return parts[atom]

        for equation, _, location in program.numbered():
            place = f"{equation.primitive.name} at {location or 'an unknown place'}"
            given = [part_of(atom) for atom in equation.operands]
            inexact = [program.type_of(atom).is_inexact for atom in equation.operands]
            parts += self._step(equation, given, inexact, place)
        return [part_of(atom) for atom in program.outputs]

    def _step(
        self, equation: Equation, given: list[_Part], inexact: list[bool], place: str
    ) -> Sequence[_Part]:
        primitive, params = equation.primitive, equation.params
        if primitive is switch_p:
            found = [self.read(branch, given[1:]) for branch in params["branches"]]
            return [self.joined(each, place) for each in zip(*found, strict=True)]
        if primitive is scan_p:
            count, carry = params["consts"], params["carry"]
            fixed, state, xs = given[:count], given[count : count + carry], given[count + carry :]
            last = self._loop(params["body"], fixed, state, xs, place)[1]
            return last if params["length"] else [*state, *([_ZERO] * len(last[carry:]))]
        if primitive is while_p:
            first, second = params["cond_consts"], params["cond_consts"] + params["body_consts"]
            return self._loop(params["body"], given[first:second], given[second:], [], place)[0]
        if primitive is custom_p and params["backward"] is params["forward_mode"] is None:
            # there is no rule: it is the code that is transposed
            forward = params["forward"]
            return self.read(forward, given[: len(forward.inputs)])[: len(equation.types)]
        if not any(part.moves for part in given):
            return given if "view" in primitive.tags else [_UNKNOWN] * len(equation.types)
        moving = [part for part in given if part.moves]
        if "linear" in primitive.tags:
            # masks and indices say where terms go
            pairs = zip(given, inexact, strict=True)
            moving += [part for part, is_value in pairs if is_value and not part.moves]
            if params.get("fill"):
                moving.append(_Part(False, True))
        return [self.joined(moving, place)] * len(equation.types)

    def _loop(
        self,
        body: Program,
        fixed: Sequence[_Part],
        state: Sequence[_Part],
        xs: Sequence[_Part],
        place: str,
    ) -> tuple[list[_Part], list[_Part]]:
        """Returns what is known of the carry, before any step, and of the results of a step."""
        before = list(state)
        while True:
            outs = self.read(body, [*fixed, *before, *xs])
            pairs = zip(before, outs[: len(before)], strict=True)
            grown = [self.joined(pair, place) for pair in pairs]
            # places aside: they do not settle
            if [part[:2] for part in grown] == [part[:2] for part in before]:
                return before, outs
            before = grown

    def term(self, outputs: Sequence[_Part]) -> str:
        """Returns how a constant is part of results that should be linear; "" where none is."""
        for part in outputs:
            if self.is_term(part):
                if part.moves:
                    return f"a constant is part of its result.\n  {part.place}"
                return "a result is constant."
        return ""


def check_linear(
    program: Program,
    linear: tuple[bool, ...],
    known_only: bool = False,
    zeros: tuple[bool, ...] = (),
) -> None:
    """Raises where a constant that is not zero is added to what is linear.

    Args:
        program: an inlined, simplified program.
        linear: which inputs it should be linear in.
        known_only: whether values that are not known, as those of other inputs, are taken for zero.
        zeros: which of the last inputs are known to be zero.

    Raises:
        TransposeError: where it is affine.
    """
    inputs = [_LINEAR if is_linear else _UNKNOWN for is_linear in linear]
    start = len(inputs) - len(zeros)
    inputs[start:] = [_ZERO if is_zero else _UNKNOWN for is_zero in zeros]
    reader = _Reader(known_only)
    found = reader.term(reader.read(program, inputs))
    if found:
        advice = (
            "Take the constant away, or write func.vjp(f, x) to transpose the derivative of f at x."
            if "\n" in found
            else "Return it as it is, outside the function that is transposed."
        )
        raise TransposeError(f"the function is affine, not linear: {found}\n  {advice}")


@memoised
def linear_rule(program: Program, count: int, first: int) -> Program:
    """Returns the program of a `jvp`; where it is affine, one whose tangents raise where needed.

    Values that are not known are taken for zero, so that nothing that may be linear is refused.

    Args:
        program: from `count` tangents, followed by constants, to results and their tangents.
        count: the number of tangents.
        first: the number of the first tangent among its results.
    """
    reader = _Reader(known_only=True)
    inputs = [_LINEAR if i < count else _UNKNOWN for i in range(len(program.inputs))]
    found = reader.term(reader.read(simplify(inline(program)), inputs)[first:])
    if not found:
        return program
    error = RuleError(
        f"{program.name}: it is affine in its tangents, not linear: {found}\n"
        f"  A derivative maps tangents of zero to zero: multiply each term by a tangent."
    )
    with building(program.name, program.inputs) as (frame, inputs):
        types = tuple(program.output_types[first:])
        outs = replay(program, inputs)[:first]
        return finish(frame, [*outs, *missing_p(*inputs, types=types, message=Deferred(error))])
