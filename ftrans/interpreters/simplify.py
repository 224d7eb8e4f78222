"""Makes programs shorter without changing what they compute, to the last bit.

One pass down applies the identities that primitives declare, folds constants and merges equal
equations; one pass up drops what no output needs.
"""

from __future__ import annotations

from typing import Any

from ftrans.interpreters.base import memoised
from ftrans.ir import ArrayType, Atom, Equation, Literal, Location, Params, Program
from ftrans.primitives.record import Absent, New

__all__ = ["drop_unused_inputs", "fills", "simplify"]


class Scope:
    """Is the simplified program so far, as rewrite rules see it."""

    def __init__(self, program: Program):
        self.types: list[ArrayType] = list(program.inputs)
        self.definitions: list[Equation | None] = [None] * len(program.inputs)

    def type(self, atom: Atom) -> ArrayType:
        """Returns the type of a value or literal."""
        return atom.type if isinstance(atom, Literal) else self.types[atom]

    def definition(self, atom: Atom) -> Equation | None:
        """Returns the equation whose only result `atom` is; None for inputs and literals."""
        return None if isinstance(atom, Literal) else self.definitions[atom]

    def fill(self, atom: Atom) -> Literal | None:
        """Returns the literal that `atom` is, or that fills the array that it is."""
        if isinstance(atom, Literal):
            return atom
        equation = self.definitions[atom]
        if (
            equation is not None
            and "broadcast" in equation.primitive.tags
            and isinstance(equation.operands[0], Literal)
        ):
            return equation.operands[0]
        return None


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


@memoised
def simplify(program: Program) -> Program:
    """Returns a program that computes the same with fewer equations.

    Args:
        program: any program; its sub-programs are simplified too.
    """
    scope = Scope(program)
    environment: list[Atom] = list(range(len(program.inputs)))
    equations: list[Equation] = []
    locations: list[Location | None] = []
    merged: dict[Any, list[Atom]] = {}

    def emit(
        primitive: Any, operands: tuple[Atom, ...], params: Params, types: Any, location: Any
    ) -> list[Atom]:
        """Adds an equation, unless an identity or an equal equation makes it superfluous."""
        while not isinstance(primitive.rewrite, Absent):
            found = primitive.rewrite(scope, operands, types, params)
            if found is None:
                break
            if not isinstance(found, New):
                return [found]
            primitive, operands, params = found.primitive, found.operands, Params(found.params)
        ordered = operands
        if "commutative" in primitive.tags:
            ordered = tuple(sorted(operands, key=lambda a: (type(a) is Literal, repr(a))))
        key = (primitive, ordered, params, *(id(p) for p in params.programs()))
        results = merged.get(key)
        if results is None:
            equation = Equation(primitive, operands, params, types)
            equations.append(equation)
            locations.append(location)
            first = len(scope.types)
            results = merged[key] = list(range(first, first + len(types)))
            scope.types += types
            scope.definitions += [equation if len(types) == 1 else None] * len(types)
        return results

    for equation, _, location in program.numbered():
        operands = tuple([a if type(a) is Literal else environment[a] for a in equation.operands])
        params = equation.params
        if equation.primitive.is_higher_order:
            params = params.map_programs(simplify)
        environment += emit(equation.primitive, operands, params, equation.types, location)
    outputs = [a if type(a) is Literal else environment[a] for a in program.outputs]
    return _drop_dead(program, equations, locations, outputs)


def _drop_dead(
    program: Program,
    equations: list[Equation],
    locations: list[Location | None],
    outputs: list[Atom],
) -> Program:
    """Keeps the equations that the outputs need, and numbers their results anew."""
    from ftrans.interpreters.transforms import transforms

    starts = []
    total = len(program.inputs)
    for equation in equations:
        starts.append(total)
        total += len(equation.types)
    live = [False] * total
    for output in outputs:
        if isinstance(output, int):
            live[output] = True
    kept: list[tuple[Equation, Any, list[int]]] = []
    for index in range(len(equations) - 1, -1, -1):
        equation, start = equations[index], starts[index]
        numbers = list(range(start, start + len(equation.types)))
        used = [live[number] for number in numbers]
        if not any(used):
            continue
        if equation.primitive.is_higher_order:
            pruned = equation.primitive.prune(
                transforms, tuple(used), equation.operands, equation.params
            )
            if pruned is not None:
                operands, params, remains = pruned
                numbers = [n for n, keep in zip(numbers, remains, strict=True) if keep]
                types = tuple(t for t, keep in zip(equation.types, remains, strict=True) if keep)
                equation = Equation(equation.primitive, operands, Params(params), types)
        for operand in equation.operands:
            if type(operand) is int:
                live[operand] = True
        kept.append((equation, locations[index], numbers))
    kept.reverse()
    position: dict[int, int] = {n: n for n in range(len(program.inputs))}
    final = []
    for equation, _, numbers in kept:
        operands = tuple([a if type(a) is Literal else position[a] for a in equation.operands])
        final.append(equation._replace(operands=operands))
        for number in numbers:
            position[number] = len(position)
    return Program.make(
        program.inputs,
        final,
        [a if type(a) is Literal else position[a] for a in outputs],
        [location for _, location, _ in kept],
        program.name,
    )


def drop_unused_inputs(program: Program, start: int = 0) -> tuple[Program, tuple[bool, ...]]:
    """Removes the inputs from `start` on that nothing uses; says for all which are kept."""
    used = set(range(start))
    for equation in program.equations:
        used.update(a for a in equation.operands if type(a) is int)
    used.update(a for a in program.outputs if type(a) is int)
    kept = tuple(number in used for number in range(len(program.inputs)))
    if all(kept):
        return program, kept
    position = {}
    for number in range(len(program.types)):
        if number >= len(kept) or kept[number]:
            position[number] = len(position)

    def move(atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else position[atom]

    return (
        Program.make(
            [t for t, keep in zip(program.inputs, kept, strict=True) if keep],
            [e._replace(operands=tuple(map(move, e.operands))) for e in program.equations],
            [move(atom) for atom in program.outputs],
            program.locations,
            program.name,
        ),
        kept,
    )
