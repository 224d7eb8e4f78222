"""Where in a program derivatives go, as the rules of its equations say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ftrans.errors import MissingRuleError
from ftrans.interpreters.base import building, finish
from ftrans.interpreters.jvp import jvp
from ftrans.ir import Equation, Literal, Program, bind


def flow(program: Program, kinds: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Tells of each value by which inputs it has a derivative, and of which outputs it gets one.

    Values of which the same is told have one, or have none, together, whichever of the inputs and
    outputs take part. What rules of users do is not known: it is a kind of its own.

    Args:
        program: any program.
        kinds: for each input of which kinds it is, as bits; 0 is of those that have no derivative.
        ends: for each output the same.

    Returns:
        For each value the kinds of such inputs, and of such outputs.
    """
    known: dict[Any, Any] = {}
    equations = program.equations
    ways = [_way(program, equation, known) for equation in equations]
    unknown = itertools.count(max([bits.bit_length() for bits in (*kinds, *ends)], default=0))
    depends, first = list(kinds), []
    for equation, way in zip(equations, ways, strict=True):
        first.append(len(depends))
        found = [0] * len(equation.types)
        for a, goes in zip(equation.operands, way, strict=True):
            if goes and type(a) is int and depends[a]:
                for result in goes:
                    found[result] |= depends[a]
        if _is_unknown(equation):
            found = [bits and 1 << next(unknown) for bits in found]
        depends += found
    reaches = [0] * len(depends)
    for atom, bits in zip(program.outputs, ends, strict=True):
        if type(atom) is int:
            reaches[atom] |= bits
    for equation, way, start in zip(equations[::-1], ways[::-1], first[::-1], strict=True):
        is_unknown = _is_unknown(equation)
        for a, goes in zip(equation.operands, way, strict=True):
            for result in goes:
                bits = reaches[start + result]
                reaches[a] |= 1 << next(unknown) if bits and is_unknown else bits  # type: ignore[index]
    return list(zip(depends, reaches, strict=True))


def _is_unknown(equation: Equation) -> bool:
    """Tells whether a rule of the user's says where derivatives go."""
    params = equation.params
    return "external" in equation.primitive.tags or params.holds_functions or params.traces_anew


def _way(program: Program, equation: Equation, known: dict[Any, Any]) -> Sequence[Sequence[int]]:
    """Returns for each operand the results that have a derivative by it, as its rule says."""
    primitive, operands, params, types = equation
    kinds = program.types
    taken = tuple([a if type(a) is Literal else kinds[a] for a in operands])
    key = primitive, params, types, taken
    found = known.get(key)
    if found is None:
        found = known[key] = _way_of(equation, taken)
    return found


def _way_of(equation: Equation, taken: Sequence[Any]) -> list[tuple[int, ...]]:
    primitive, _, params, types = equation
    inexact = tuple([i for i, t in enumerate(types) if t.is_inexact])
    moves = [type(x) is not Literal and x.is_inexact for x in taken]
    if "linear" in primitive.tags or _is_unknown(equation):
        return [inexact if m else () for m in moves]
    with building(primitive.name, [x.update() for x in taken if type(x) is not Literal]) as made:
        frame, inputs = made
        given = iter(inputs)
        operands = [x if type(x) is Literal else next(given) for x in taken]
        alone = finish(frame, bind(primitive, operands, params))
    ways = []
    for x, m in zip(operands, moves, strict=True):
        try:
            moved = jvp(alone, tuple([m and x is y for y in inputs]))[1] if m else ()
        except MissingRuleError:
            moved = [t.is_inexact for t in types]
        ways.append(tuple([i for i, is_moved in enumerate(moved) if is_moved]))
    return ways
