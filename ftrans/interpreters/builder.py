"""The frame that interpreters build programs in: it keeps them simple while they are recorded.

An equation that an identity makes superfluous, or that is there already, is never added; when the
frame is closed, what no output needs is left out and the rest is numbered. So what interpreters
return is simplified, whatever they record. Invariant: equal equations are one, and so are the
traced values of their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ftrans.ir import Abstract, ArrayType, Atom, Equation, Frame, Literal, Params, Program, Tracer
from ftrans.ir.frame import make_tracer
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import Placing, recording_place
from ftrans.primitives import at_hand_p, broadcast_p
from ftrans.primitives.record import Absent, New

transforms = SimpleNamespace(axis=None)
"""The interpreters as one value, which rules of primitives that carry programs are handed.

`axis` is the name of the axis that is being mapped, for rules for batches of what goes over it.

It stands below all of them, since they call such rules; the package fills it in.
"""

INPUT = Abstract("an interpreter's input")
_SCALAR = Params({"shape": (), "axes": ()})


class Builder(Frame):
    """Is a simplified program under construction; rewrite rules see it as their scope.

    Values are the numbers that `Tracer.index` holds: results from 0 on, inputs from -1 down.

    Args:
        name: as for `Frame`.
        closed: as for `Frame`.
    """

    __slots__ = (
        "_at_hand",
        "_count",
        "_merged",
        "_tracers",
        "before",
        "definitions",
        "fills",
        "starts",
        "types",
    )

    def __init__(self, name: str, closed: bool = True):
        super().__init__(name, closed)
        self.types: dict[Atom, ArrayType] = {}
        self.definitions: dict[Atom, Equation] = {}
        self.fills: dict[Atom, Literal] = {}
        self.starts: list[int] = []
        self.before: Sequence[
            Tracer
        ] = ()  # what the next `checkpoint` that is transposed waits for
        self._at_hand: dict[int, int] = {}
        self._count = 0
        self._merged: dict[Any, Sequence[Atom]] = {}
        self._tracers: dict[Atom, Tracer] = {}

    def release(self) -> None:
        """Lets go of all values, as `Frame.release` does."""
        super().release()
        self.before = ()
        self._tracers.clear()

    # ------------------------------------------------------------------ what rewrite rules see

    def type(self, atom: Atom) -> ArrayType:
        """Returns the type of a value or literal."""
        return atom.type if type(atom) is Literal else self.types[atom]

    def definition(self, atom: Atom) -> Equation | None:
        """Returns the equation whose only result `atom` is; None for inputs and literals."""
        return None if type(atom) is Literal else self.definitions.get(atom)

    def fill(self, atom: Atom) -> Literal | None:
        """Returns the literal that `atom` is, or that fills the array that it is."""
        return atom if type(atom) is Literal else self.fills.get(atom)

    # ----------------------------------------------------------------------------- recording

    def add(
        self,
        primitive: Any,
        operands: tuple[Atom, ...],
        params: Params,
        types: tuple[ArrayType, ...] | None = None,
    ) -> Sequence[Atom]:
        """Adds an equation, unless an identity or an equal one makes it superfluous.

        Args:
            primitive: the primitive.
            operands: values of this frame, and literals.
            params: the static part; its programs are simplified.
            types: those of the results, where they are known.

        Returns:
            What the results are.
        """
        if primitive is at_hand_p:
            atom, value = operands
            if type(atom) is int and type(value) is int and value < 0 <= atom:
                self._at_hand.setdefault(atom, value)
            return (atom,)
        if primitive.is_higher_order:
            params = params.map_programs(transforms.simplify)
        key = _key(primitive, operands, params)
        found = self._merged.get(key)
        if found is None:
            of = self.types
            known = types or primitive.infer_types(
                tuple([a.type if type(a) is Literal else of[a] for a in operands]), params
            )
            found = self._merged[key] = self._simpler(primitive, operands, params, known, key)
        return found

    def _simpler(
        self,
        primitive: Any,
        operands: tuple[Atom, ...],
        params: Params,
        types: tuple[ArrayType, ...],
        key: tuple,
    ) -> Sequence[Atom]:
        """Applies the identities that there are, then adds what is left."""
        asked = key
        while type(primitive.rewrite) is not Absent:
            simpler = primitive.rewrite(self, operands, types, params)
            if simpler is None:
                break
            if type(simpler) is not New:
                return (simpler,)
            primitive, operands = simpler.primitive, simpler.operands
            params = Params(simpler.params) if simpler.params else NO_PARAMS
            key = _key(primitive, operands, params)
            if key in self._merged:
                return self._merged[key]
        first = self._number(types)
        equation = Equation(primitive, operands, params, types)
        self.producers += [len(self.equations)] * len(types)
        self.equations.append(equation)
        self.locations.append(recording_place())
        self.starts.append(first)
        if len(types) == 1:
            self.definitions[first] = equation
            if "broadcast" in primitive.tags and type(operands[0]) is Literal:
                self.fills[first] = operands[0]
            found: Sequence[Atom] = (first,)
        else:
            found = range(first, first + len(types))
        if key is not asked:
            self._merged[key] = found
        return found

    def _number(self, types: tuple[ArrayType, ...]) -> int:
        """Gives values of these types their numbers; returns the first."""
        first = self._count
        for t in types:
            self.types[self._count] = t
            self._count += 1
        return first

    def tracer(self, atom: Atom) -> Tracer:
        """Returns the traced value of an atom; a literal is made an array of rank zero."""
        found = self._tracers.get(atom)
        if found is None:
            if type(atom) is Literal:
                (code,) = self.add(broadcast_p, (atom,), _SCALAR)
                return self.tracer(code)
            found = self._tracers[atom] = make_tracer(self, atom, self.types[atom])
        return found

    def input(self, type: ArrayType, source: Any = INPUT, weak: bool = False) -> Tracer:
        """Adds an input, as `Frame.input` does."""
        tracer = super().input(type, source, weak)
        self.types[tracer.index] = type
        self._tracers[tracer.index] = tracer
        return tracer

    def atom(self, value: Any) -> Atom:
        """Returns what a value is in this frame; captures what is not of it."""
        if type(value) is Tracer and value.frame is self:
            return value.index
        return value if type(value) is Literal else self.capture(value).index

    def record(self, primitive: Any, operands: Sequence[Any], params: Params) -> tuple[Tracer, ...]:
        """Records one equation and returns its results."""
        atoms = [
            x.index if type(x) is Tracer and x.frame is self else self.atom(x) for x in operands
        ]
        return tuple([self.tracer(atom) for atom in self.add(primitive, tuple(atoms), params)])

    def splice(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """Adds the equations of a program; returns what its outputs are, as operands.

        An operand that nothing uses may be None.
        """
        environment: list[Any] = [x if x is None else self.atom(x) for x in operands]
        add = self.add
        with Placing() as place:
            for equation, location in zip(program.equations, program.locations, strict=True):
                place.move(location)
                taken = tuple(
                    [a if type(a) is Literal else environment[a] for a in equation.operands]
                )
                environment += add(equation.primitive, taken, equation.params, equation.types)
        outputs = [a if type(a) is Literal else environment[a] for a in program.outputs]
        return [a if type(a) is Literal else self.tracer(a) for a in outputs]

    # ------------------------------------------------------------------------------- closing

    def close(self, outputs: Sequence[Any], name: str | None = None) -> tuple[Program, list[Any]]:
        """Returns the finished program and the values that it captured, in the order of inputs.

        The inputs are those that were declared, then the captured ones that are needed.
        """
        atoms = [self.atom(value) for value in outputs]
        live = bytearray(self._count + len(self.input_types))
        for atom in atoms:
            if type(atom) is not Literal:
                live[atom] = True
        kept = self._live_equations(live)
        captured = {tracer.index for tracer in self.captured.values() if tracer.index < 0}
        count = len(self.input_types)
        declared = [~i for i in range(count) if ~i not in captured]
        needed = [~i for i in range(count) if ~i in captured and live[~i]]
        # Numbers of inputs are negative, and so is their place: it is counted from the end.
        position: list[Any] = [None] * len(live)
        number = 0
        for code in (*declared, *needed):
            position[code] = number
            number += 1
        equations, locations = [], []
        for (primitive, operands, params, types), numbers, location in kept:
            moved = tuple([a if type(a) is Literal else position[a] for a in operands])
            equations.append(Equation(primitive, moved, params, types))
            locations.append(location)
            for code in numbers:
                position[code] = number
                number += 1
            for code in numbers if self._at_hand else ():
                if live[code] and code in self._at_hand:
                    # all that uses a value takes what is at hand
                    operands = position[code], position[self._at_hand[code]]
                    equations.append(Equation(at_hand_p, operands, NO_PARAMS, (self.types[code],)))
                    locations.append(location)
                    position[code] = number
                    number += 1
        program = Program.make(
            [self.input_types[~code] for code in (*declared, *needed)],
            equations,
            [a if type(a) is Literal else position[a] for a in atoms],
            locations,
            name or self.name,
        )
        program.is_simplified = True
        return program, [self.sources[~code] for code in needed]

    def _live_equations(self, live: bytearray) -> list[tuple[Equation, Sequence[int], Any]]:
        """Returns the equations that `live` values need, pruned, and marks what they need.

        Each comes with the numbers of its results and its location.
        """
        kept: list[tuple[Equation, Sequence[int], Any]] = []
        for index in range(len(self.equations) - 1, -1, -1):
            equation, start = self.equations[index], self.starts[index]
            count = len(equation.types)
            if not (live[start] if count == 1 else any(live[start : start + count])):
                continue
            numbers: Sequence[int] = range(start, start + count)
            if equation.primitive.is_higher_order:
                equation, numbers = _pruned(equation, numbers, live)
            for operand in equation.operands:
                if type(operand) is not Literal:
                    live[operand] = True
            for number in numbers if self._at_hand else ():
                if live[number] and number in self._at_hand:
                    live[self._at_hand[number]] = True
            kept.append((equation, numbers, self.locations[index]))
        kept.reverse()
        return kept


def _key(primitive: Any, operands: tuple[Atom, ...], params: Params) -> tuple:
    """Returns what equal equations have in common."""
    if "commutative" in primitive.tags:
        x, y = operands
        if type(x) is Literal or (type(y) is int and y < x):
            operands = y, x
    if not params:
        return primitive, operands
    if not primitive.is_higher_order:
        return primitive, operands, params
    # Sub-programs compare equal whatever their locations, so their identities are needed too.
    return primitive, operands, params, *(id(p) for p in params.programs())


def _pruned(
    equation: Equation, numbers: Sequence[int], live: bytearray
) -> tuple[Equation, Sequence[int]]:
    """Drops what an equation computes for results that are not needed."""
    primitive, operands, params, types = equation
    used = tuple(bool(live[number]) for number in numbers)
    found = primitive.prune(transforms, used, operands, params)
    if found is None:
        return equation, numbers
    operands, params, kept = found
    return (
        Equation(
            primitive,
            operands,
            Params(params),
            tuple(t for t, keep in zip(types, kept, strict=True) if keep),
        ),
        [n for n, keep in zip(numbers, kept, strict=True) if keep],
    )
