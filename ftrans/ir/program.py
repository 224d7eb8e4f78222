"""Programs: immutable values in SSA form, hash-consed; and what makes one well-formed.

Values are numbered, inputs first, then the results of the equations in order; so two programs that
do the same thing the same way are equal and hash alike. Source locations ride along and take no
part in equality, yet a program is interned together with them, so that what an interpreter
remembers of a program names the right lines.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ftrans.errors import CheckError, UnsupportedError
from ftrans.ir.drawing import to_dot, to_svg
from ftrans.ir.location import Location
from ftrans.ir.text import to_html, to_text
from ftrans.ir.types import ArrayType, Literal

Atom: TypeAlias = int | Literal
"""An operand or an output: the number of a value, or a literal."""


class _Claims:
    """Is what can be asked of params and of programs, with all that they hold."""

    __slots__ = ()

    def says(self, what: str) -> bool:
        raise NotImplementedError

    calls_host = property(lambda self: self.says("calls_host"))
    """Whether Python code is called."""

    holds_functions = property(lambda self: self.says("holds_functions"))
    """Whether functions of a user's are referred to, and so all that they close over."""

    traces_anew = property(lambda self: self.says("traces_anew"))
    """Whether there is a function of a user's that is traced each time it is asked for."""


_PLAIN = frozenset({int, float, bool, str, tuple, type(None)})


class Params(_Claims, dict[str, Any]):
    """Is the static part of an equation: a dict that is never changed, and so can be hashed."""

    __slots__ = ("__weakref__", "_carried", "_hash", "_ids")

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.items()))
            return self._hash

    def __reduce__(self) -> tuple:
        return Params, (dict(self),)  # hashes are others where it is loaded

    def programs(self) -> list[Program]:
        """Returns the programs among the params, those inside tuples included."""
        return [value for _, value in self._telling() if type(value) is Program]

    def named_programs(self) -> list[tuple[str, Program]]:
        """Returns the programs with the names of the params, numbered inside of tuples."""
        return [(name, value) for name, value in self._telling() if type(value) is Program]

    def _telling(self) -> list[tuple[str, Any]]:
        """Returns what may answer `says`: programs, those inside tuples too, and objects."""
        found = getattr(self, "_carried", None)
        if found is None:
            found = self._carried = []
            for name, value in self.items():
                if isinstance(value, tuple):
                    pairs = enumerate(value)
                    found += [(f"{name}[{i}]", item) for i, item in pairs if type(item) is Program]
                if type(value) not in _PLAIN:
                    found.append((name, value))
        return found

    @property
    def program_ids(self) -> tuple[int, ...]:
        """What tells apart programs that are equal: their names and locations may differ."""
        try:
            return self._ids
        except AttributeError:
            self._ids = tuple([id(program) for program in self.programs()])
            return self._ids

    def says(self, what: str) -> bool:
        """Tells whether one of the params says so, or a program among them."""
        return any(getattr(value, what, False) for _, value in self._telling())

    def map_programs(self, function: Callable[[Program], Program]) -> Params:
        """Returns params in which every program is replaced by `function` of it."""

        def apply(value: Any) -> Any:
            if isinstance(value, Program):
                return function(value)
            if isinstance(value, tuple) and any(isinstance(item, Program) for item in value):
                items = tuple(apply(item) for item in value)
                return value if all(map(operator.is_, items, value)) else items
            return value

        mapped = {name: apply(value) for name, value in self.items()}
        same = all(value is self[name] for name, value in mapped.items())
        return self if same else Params(mapped)


NO_PARAMS = Params()
"""The params of a primitive that has none."""


class Equation(NamedTuple):
    """Applies a primitive to operands; its results take the next numbers of the program."""

    primitive: Any
    operands: tuple[Atom, ...]
    params: Params
    types: tuple[ArrayType, ...]
    """The types of the results."""


class _Key:
    """Holds what a program is made of, with its hash, which takes long to compute."""

    __slots__ = ("hash", "parts")

    def __init__(self, parts: tuple):
        self.parts = parts
        self.hash = hash(parts)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.hash == other.hash and self.parts == other.parts


class _Structure:
    """Is what all programs that are equal share: the key, and what is compiled for it."""

    __slots__ = ("__weakref__", "key", "memo")

    def __init__(self, key: _Key):
        self.key = key
        self.memo: dict[Any, Any] = {}


class Program(_Claims):
    """Is a function in the IR: typed inputs, equations, outputs.

    Make one with `Program.make`, or by tracing; never change one. `==` compares what programs do
    and ignores names and source locations.

    Attributes:
        inputs: the types of the inputs, which are the values 0, 1, ...
        equations: in the order in which they run.
        outputs: the values or literals that the program returns.
        locations: for each equation the place in the user's code that it comes from, or None.
        name: what the program is called when it is printed.
        is_simplified: whether it is known that `simplify` would leave it as it is.
    """

    __slots__ = (
        "__weakref__",
        "equations",
        "inputs",
        "is_simplified",
        "locations",
        "memo",
        "name",
        "outputs",
        "structure",
        "types",
    )

    inputs: tuple[ArrayType, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]
    locations: tuple[Location | None, ...]
    name: str
    types: tuple[ArrayType, ...]
    structure: _Structure
    memo: dict[Any, Any]
    is_simplified: bool

    _structures: ClassVar[weakref.WeakValueDictionary[_Key, _Structure]] = (
        weakref.WeakValueDictionary()
    )
    _programs: ClassVar[weakref.WeakValueDictionary[tuple, Program]] = weakref.WeakValueDictionary()
    # `setdefault` of a weak dictionary is not atomic; of two threads both could win.
    _lock: ClassVar[threading.RLock] = threading.RLock()

    @classmethod
    def make(
        cls,
        inputs: Sequence[ArrayType],
        equations: Sequence[Equation],
        outputs: Sequence[Atom],
        locations: Sequence[Location | None] | None = None,
        name: str = "program",
    ) -> Program:
        """Returns the program with these parts: the same object whenever the parts are the same."""
        parts = (tuple(inputs), tuple(equations), tuple(outputs))
        places = (None,) * len(parts[1]) if locations is None else tuple(locations)
        key = _Key(parts)
        structure = cls._structures.get(key)
        if structure is None:
            with cls._lock:
                structure = cls._structures.setdefault(key, _Structure(key))
        # Sub-programs compare equal whatever their locations, so their identities are needed too.
        nested = tuple(
            [
                id(sub)
                for equation in parts[1]
                if equation.primitive.is_higher_order
                for sub in equation.params.programs()
            ]
        )
        located = (structure, places, nested, name)
        program = cls._programs.get(located)
        if program is None:
            program = object.__new__(cls)
            # the parts of the structure, not those given: equal programs share their memory
            program.inputs, program.equations, program.outputs = (
                parts if nested else structure.key.parts
            )
            program.locations = places
            program.name = name
            program.structure = structure
            program.types = program.inputs + tuple([t for e in program.equations for t in e.types])
            program.memo = {}
            program.is_simplified = False
            with cls._lock:
                program = cls._programs.setdefault(located, program)
        return program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.structure is other.structure

    def __hash__(self) -> int:
        return self.structure.key.hash

    def __copy__(self) -> Program:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self

    def __reduce__(self) -> tuple:
        if self.holds_functions:
            names = [e.primitive.name for e in self.equations if e.params.holds_functions]
            raise UnsupportedError(
                f"pickle: the program {self.name} calls Python functions, which are no part of "
                f"it.\n  equations: {', '.join(dict.fromkeys(names))}\n"
                f"  Pickle the arguments, and trace the function where they are loaded."
            )
        # without source locations: those are code, which is not loaded elsewhere
        return _loaded, (self.inputs, self.equations, self.outputs, self.name, self.is_simplified)

    @property
    def output_types(self) -> tuple[ArrayType, ...]:
        """The types of the outputs."""
        return tuple(self.type_of(output) for output in self.outputs)

    def type_of(self, atom: Atom) -> ArrayType:
        """Returns the type of a value of this program, or of a literal."""
        return atom.type if type(atom) is Literal else self.types[atom]

    def says(self, what: str) -> bool:
        """Tells whether the params of an equation say so."""
        found = self.memo.get(what)
        if found is None:
            found = self.memo[what] = any(e.params.says(what) for e in self.equations if e.params)
        return found

    def numbered(self) -> Iterator[tuple[Equation, range, Location | None]]:
        """Yields each equation with the numbers of its results and its source location."""
        number = len(self.inputs)
        for equation, location in zip(self.equations, self.locations, strict=True):
            stop = number + len(equation.types)
            yield equation, range(number, stop), location
            number = stop

    def nested(self) -> Iterator[tuple[Program, Equation]]:
        """Yields all equations, those of programs among their params too, each with its program."""
        for equation in self.equations:
            yield self, equation
            if equation.primitive.is_higher_order:
                for inner in equation.params.programs():
                    yield from inner.nested()

    def renamed(self, name: str) -> Program:
        """Returns the same program under another name."""
        return Program.make(self.inputs, self.equations, self.outputs, self.locations, name)

    def __len__(self) -> int:
        return len(self.equations)

    def count(self) -> int:
        """Returns the number of equations, those of sub-programs included."""
        return sum(1 for _ in self.nested())

    def __str__(self) -> str:
        return to_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return to_html(self)

    def to_dot(self) -> str:
        """Returns the program as a graph for Graphviz, in the language DOT."""
        return to_dot(self)

    def to_svg(self) -> str:
        """Returns the program as a drawing in SVG: a box for each equation, below its operands."""
        return to_svg(self)


def _loaded(inputs: Any, equations: Any, outputs: Any, name: str, is_simplified: bool) -> Program:
    """Returns a program from what was pickled of it."""
    program = Program.make(inputs, equations, outputs, name=name)
    program.is_simplified = program.is_simplified or is_simplified
    return program


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
