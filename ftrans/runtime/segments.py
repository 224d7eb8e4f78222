"""Programs that call Python: split at these calls into segments, each of which XLA compiles.

A call gets the arrays of the segment before it as they lie, and its results go to the next one: no
callback is involved. Calls inside loops and branches are not reached, see `Callee.lower`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ftrans.ir import Literal, Program
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime.executable import Executable, tick
from ftrans.runtime.jaxlink import to_jax, x64
from ftrans.runtime.policy import Price, price

__all__ = ["Segmented", "is_split", "price_of", "split"]


class Segment(NamedTuple):
    """Is a part of a program without calls.

    Attributes:
        program: the part.
        inputs: the values of the whole that it takes.
        outputs: the values that it makes.
    """

    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Call(NamedTuple):
    """Is one call.

    Attributes:
        callee: what is called.
        operands: values of the whole, and literals.
        outputs: the values that it makes.
    """

    callee: Any
    operands: tuple[Any, ...]
    outputs: tuple[int, ...]


def is_split(program: Program) -> bool:
    """Tells whether a program has calls of Python at its top."""
    return any(getattr(e.params.get("callee"), "is_host", False) for e in program.equations)


def split(program: Program) -> list[Segment | Call]:
    """Returns the segments and calls of a program, in the order in which they are run.

    An equation is in the first segment that has all it takes, so that there are few of them.
    """
    found = program.memo.get("segments")
    if found is None:
        found = program.memo.setdefault("segments", _split(program))
    return found


def _split(program: Program) -> list[Segment | Call]:
    level = [0] * len(program.inputs)
    segments: dict[int, list[Any]] = {}
    calls: dict[int, list[Call]] = {}
    for equation, numbers, location in program.numbered():
        at = max([level[a] for a in equation.operands if type(a) is int], default=0)
        callee = equation.params.get("callee")
        if getattr(callee, "is_host", False):
            calls.setdefault(at, []).append(Call(callee, equation.operands, tuple(numbers)))
            at += 1
        else:
            segments.setdefault(at, []).append((equation, numbers, location))
        level += [at] * len(equation.types)
    read = {a for a in program.outputs if type(a) is int}
    made = [call for group in calls.values() for call in group]
    read |= {a for call in made for a in call.operands if type(a) is int}
    used: dict[int, set[int]] = {
        at: {a for e, _, _ in group for a in e.operands if type(a) is int}
        for at, group in segments.items()
    }
    steps: list[Segment | Call] = []
    for at in range(max([*segments, *calls], default=-1) + 1):
        group = segments.get(at)
        if group:
            others = read.union(*(values for other, values in used.items() if other != at))
            steps.append(_segment(program, group, others))
        steps += calls.get(at, [])
    return steps


def _segment(program: Program, group: Sequence[Any], read: set[int]) -> Segment:
    """Makes a program of some equations; `read` are the values that others take."""
    made = [number for _, numbers, _ in group for number in numbers]
    local = set(made)
    taken = [a for e, _, _ in group for a in e.operands if type(a) is int and a not in local]
    inputs = tuple(dict.fromkeys(taken))
    outputs = tuple(number for number in made if number in read)
    position = {number: i for i, number in enumerate((*inputs, *made))}

    def moved(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else position[atom]

    part = Program.make(
        [program.types[i] for i in inputs],
        [e._replace(operands=tuple(map(moved, e.operands))) for e, _, _ in group],
        [position[number] for number in outputs],
        [location for _, _, location in group],
        program.name,
    )
    part.is_simplified = True
    return Segment(part, inputs, outputs)


def price_of(program: Program) -> Price:
    """Estimates what a program costs, of one that is split as the sum over its segments."""
    if not is_split(program):
        return price(program)
    parts = [price(step.program) for step in split(program) if isinstance(step, Segment)]
    paying = [part for part in parts if part.gain > 0]
    return Price(
        sum(part.interpreted for part in parts),
        sum(min(part.interpreted, part.compiled) for part in parts),
        sum(part.compiling for part in paying),
        sum(part.gain for part in paying),
    )


class Segmented:
    """Is the compiled form of a program that calls Python, with what `Executable` has.

    Args:
        program: the program, inlined and simplified.
    """

    calls_host = False  # no compiled code does, but that of loops, which is waited for here

    def __init__(self, program: Program):
        self._steps = split(program)
        self._outputs = program.outputs
        self._count = len(program.types)
        self._executables: dict[int, Executable] = {}
        for number, step in enumerate(self._steps):
            if isinstance(step, Segment):
                self._executables[number] = Executable(step.program)
        self._pays = {n for n in self._executables if price(self._program(n)).gain > 0}
        self._dead = self._last_uses()
        self.used = tick()
        self.fresh = True
        self.patience = _NoPatience()

    def _program(self, number: int) -> Program:
        step = self._steps[number]
        assert isinstance(step, Segment)
        return step.program

    def _last_uses(self) -> list[tuple[int, ...]]:
        """Returns for each step the values that nothing takes after it."""
        later = {a for a in self._outputs if type(a) is int}
        dead = []
        for step in reversed(self._steps):
            atoms = step.inputs if isinstance(step, Segment) else step.operands
            taken = {a for a in (*atoms, *step.outputs) if type(a) is int}
            dead.append(tuple(taken - later))
            later |= taken
        return dead[::-1]

    @property
    def nbytes(self) -> int:
        """The size of the code of all segments."""
        return sum(executable.nbytes for executable in self._executables.values())

    def prepare(self, arrays: Sequence[Any], host: bool) -> None:
        """Compiles the segments where that needs no arrays but only types."""
        if host:
            for number in self._pays:
                self._executables[number].prepare(self._program(number).inputs, host=True)

    def host(self, arrays: Sequence[Any]) -> list[Any]:
        """Runs on NumPy arrays."""
        return self._run(arrays, self._on_host)

    def mixed(self, arrays: Sequence[Any]) -> list[Any]:
        """Runs on arrays of NumPy and JAX; returns `jax.Array`s."""
        outs = self._run(arrays, lambda number, given: self._executables[number].mixed(given))
        with x64():
            return [out if isinstance(out, jax.Array) else to_jax(out) for out in outs]

    def _on_host(self, number: int, given: Sequence[Any]) -> list[Any]:
        if number not in self._pays:
            with np.errstate(all="ignore"):
                return evaluate(np, self._program(number), given)
        executable = self._executables[number]
        found = executable.host(given)
        executable.patience.wait(found)
        return [np.asarray(output) for output in found]

    def _run(self, arrays: Sequence[Any], segment: Any) -> list[Any]:
        self.used = tick()
        values: list[Any] = [*arrays, *itertools.repeat(None, self._count - len(arrays))]

        def read(atom: Any) -> Any:
            return values[atom] if type(atom) is int else atom.array

        for number, step in enumerate(self._steps):
            if isinstance(step, Segment):
                outs = segment(number, [values[i] for i in step.inputs])
            else:
                outs = step.callee.run([read(atom) for atom in step.operands])
                if segment == self._on_host:
                    outs = [np.asarray(out) for out in outs]
            for i, out in zip(step.outputs, outs, strict=True):
                values[i] = out
            for i in self._dead[number]:
                values[i] = None
        return [read(atom) for atom in self._outputs]


class _NoPatience:
    """Waits for nothing: what a segmented program returns is there."""

    def wait(self, arrays: Sequence[Any]) -> None:
        return
