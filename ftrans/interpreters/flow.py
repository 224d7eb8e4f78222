"""Where in a program derivatives go, as the rules of its equations say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.errors import MissingRuleError
from ftrans.interpreters.base import building, finish
from ftrans.interpreters.jvp import jvp
from ftrans.ir import Equation, Literal, Program, bind

_NONE: tuple[int, ...] = ()


def flow(program: Program, kinds: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Tells of each value by which inputs it has a derivative, and of which outputs it gets one.

    Args:
        program: any program.
        kinds: for each input of which kind it is, as bits; 0 is of those that have no derivative.
        ends: for each output the same.

    Returns:
        For each value the kinds of such inputs, and of such outputs.
    """
    known: dict[Any, Any] = {}
    ways = [_way(program, equation, known) for equation in program.equations]
    depends, first = list(kinds), []
    for equation, way in zip(program.equations, ways, strict=True):
        first.append(len(depends))
        depends += [0] * len(equation.types)
        for a, goes in zip(equation.operands, way, strict=True):
            if goes and type(a) is int and depends[a]:
                for result in goes:
                    depends[first[-1] + result] |= depends[a]
    reaches = [0] * len(depends)
    for atom, bits in zip(program.outputs, ends, strict=True):
        if type(atom) is int:
            reaches[atom] |= bits
    for equation, way, start in zip(program.equations[::-1], ways[::-1], first[::-1], strict=True):
        for a, goes in zip(equation.operands, way, strict=True):
            for result in goes:
                reaches[a] |= reaches[start + result]  # type: ignore[index]
    return list(zip(depends, reaches, strict=True))


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
    if primitive.is_higher_order or not {"external", "linear"}.isdisjoint(primitive.tags):
        return [inexact if m else _NONE for m in moves]
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
