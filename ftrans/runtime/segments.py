"""Programs that call Python, or hold blocks: split into stretches, of which those that pay compile.

A call gets the arrays of the stretch before it as they lie, and its results go to the next one: no
callback is involved. Calls inside loops and branches are not reached, see `Callee.lower`. A block
is compiled once, however often it stands in programs. Many inputs that are stacked are so before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.interpreters.base import excerpt
from ftrans.ir import ArrayType, Equation, Location, Program
from ftrans.primitives import block_p, stack_p
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.outside import silently
from ftrans.runtime.executable import Executable, tick
from ftrans.runtime.jaxlink import is_jax, to_jax, x64
from ftrans.runtime.policy import Price, price

Group = list[tuple[Equation, range, Location | None]]
"""Equations of a program, each with the numbers of its results and its place."""


class Stretch(NamedTuple):
    """Is a part of a program that runs in one go.

    Attributes:
        program: the part.
        inputs: the values of the whole that it takes.
        outputs: the values that others take from it.
        pays: whether to compile it is estimated to save time; of calls it never does.
        calls: whether it consists of calls, none of which takes what another one makes, or of
            inputs that are stacked: then it is run on arrays as they lie.
        block: whether it is a block, which shares what is compiled with its equals.
        group: its equations, in the whole.
    """

    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    pays: bool
    calls: bool
    block: bool
    group: Group


def is_split(program: Program) -> bool:
    """Tells whether a program has calls of Python, large blocks, or many inputs to stack."""
    inputs = len(program.inputs)
    return any(_is_block(e) or _is_apart(e, inputs) for e in program.equations)


def _is_block(equation: Equation) -> bool:
    """Tells whether an equation is a block that is large enough to be run by itself."""
    return equation.primitive is block_p and price(equation.params["program"]).interpreted > _LARGE


def _is_apart(equation: Equation, inputs: int) -> bool:
    """Tells whether an equation runs on arrays as they lie: a call, or a stack of many inputs."""
    primitive, operands, params, _ = equation
    if primitive is not stack_p:
        return getattr(params.get("callee"), "calls_host", False)
    return len(operands) >= _MANY and all(type(a) is int and a < inputs for a in operands)


_MANY = 8
"""So many inputs are stacked before: each would cost a compiled program dear."""


def split(program: Program) -> list[Stretch]:
    """Returns calls, blocks and what lies between them, in the order in which they are run.

    An equation is in the first stretch that has all it takes, so that there are few of them.
    """
    found = program.memo.get("stretches")
    if found is None:
        found = program.memo.setdefault("stretches", _stretches(program, _groups(program)))
    return found


def _groups(program: Program) -> list[Group]:
    """Returns calls and other equations by turns; each block by itself."""
    inputs = len(program.inputs)
    level = [0] * inputs
    groups: dict[tuple[int, int], Group] = {}
    for equation, numbers, location in program.numbered():
        at = max([level[a] for a in equation.operands if type(a) is int], default=0)
        block = _is_block(equation)
        # what stands apart has the odd levels
        at |= block or _is_apart(equation, inputs)
        key = at, numbers.start if block else 0
        groups.setdefault(key, []).append((equation, numbers, location))
        level += [at + at % 2] * len(equation.types)
    return [groups[at] for at in sorted(groups)]


def _merged(stretches: Iterable[Stretch]) -> list[Group]:
    """Returns the same equations, with all that lie between two stretches that pay in one group."""
    groups: list[Group] = []
    for pays, some in itertools.groupby(stretches, lambda stretch: stretch.pays):
        found = [stretch.group for stretch in some]
        groups += found if pays else [list(itertools.chain.from_iterable(found))]
    return groups


def _stretches(program: Program, groups: Sequence[Group]) -> list[Stretch]:
    users: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        for equation, _, _ in group:
            for a in equation.operands:
                if type(a) is int:
                    users.setdefault(a, []).append(i)
    returned = {a for a in program.outputs if type(a) is int}
    return [
        _stretch(
            program, group, lambda a, i=i: a in returned or any(j != i for j in users.get(a, ()))
        )
        for i, group in enumerate(groups)
    ]


def _stretch(program: Program, group: Group, read: Callable[[int], bool]) -> Stretch:
    """Makes a program of some equations; `read` tells which values others take."""
    if len(group) == 1 and _is_block(group[0][0]):
        (equation, numbers, _), part = group[0], group[0][0].params["program"]
        taken = [a for a in equation.operands if type(a) is int]
        if len(taken) == len(equation.operands):
            pays = price(part).gain > _LEAVING
            return Stretch(part, tuple(taken), tuple(numbers), pays, False, True, group)
    made = [number for _, numbers, _ in group for number in numbers]
    local = set(made)
    taken = [a for e, _, _ in group for a in e.operands if type(a) is int and a not in local]
    inputs = tuple(dict.fromkeys(taken))
    outputs = tuple(number for number in made if read(number))
    part = excerpt(program, inputs, group, outputs)
    part.is_simplified = True
    apart = [_is_apart(e, len(inputs)) for e in part.equations]
    pays = not any(apart) and price(part).gain > _LEAVING
    return Stretch(part, inputs, outputs, pays, all(apart), False, group)


_LEAVING = 1.5e-5
"""What a compiled stretch has to save, in seconds, beyond what its own call costs: after it, the
functions of NumPy are slower for some 6 to 10 us, and the estimates are no better than the rest."""


_LARGE = 5e-4
"""So many seconds a block takes interpreted, before what it costs to leave it is little."""


def price_of(program: Program) -> Price:
    """Estimates what a program costs; where it is split, with only those stretches compiled."""
    whole = price(program)
    if not is_split(program):
        return whole
    paying = [stretch.program for stretch in split(program) if stretch.pays]
    prices = {part: price(part) for part in paying}  # equal parts are compiled once
    gain = sum(prices[part].gain - _LEAVING for part in paying)
    compiling = sum(part.compiling for part in prices.values())
    return Price(whole.interpreted, whole.interpreted - gain, compiling, gain)


class Segmented:
    """Is the compiled form of a program that is split, with what `Executable` has.

    On NumPy arrays the stretches that pay are compiled, and all between them is interpreted; where
    there are arrays of JAX, everything is compiled but the calls.

    Args:
        program: the program, inlined and simplified. It is not kept alive.
        shared: returns what is compiled of a block, which may be shared with its equals.
        whole: whether all that can be compiled is, and not only what pays.
    """

    calls_host = False  # no compiled code does, but that of loops, which is waited for here

    def __init__(
        self,
        program: Program,
        shared: Callable[[Program], Executable] = Executable,
        *,
        whole: bool = False,
    ):
        self._apart = apart = split(program)
        if whole:
            apart = [stretch._replace(pays=not stretch.calls) for stretch in apart]
        else:
            apart = _stretches(program, _merged(apart))
        self._chain = functools.partial(
            _Chain, shared=shared, outputs=program.outputs, count=len(program.types)
        )
        self._host = self._chain(apart, on_host=True)
        self._mixed: _Chain | None = None
        self.used = tick()
        self.fresh = True

    @property
    def nbytes(self) -> int:
        """The size of the code of all stretches."""
        chains = [self._host] if self._mixed is None else [self._host, self._mixed]
        found = {id(x): x for chain in chains for x, _ in chain.executables}  # blocks share some
        return sum(executable.nbytes for executable in found.values())

    def prepare(self, arrays: Sequence[Any], host: bool) -> None:
        """Compiles the stretches where that needs no arrays but only types."""
        if host:
            for executable, types in self._host.executables:
                executable.prepare(types, host=True)

    def host(self, arrays: Sequence[Any]) -> list[Any]:
        """Runs on NumPy arrays."""
        self.used = tick()
        return list(map(np.array, self._host.run(arrays)))

    def mixed(self, arrays: Sequence[Any]) -> list[Any]:
        """Runs on arrays of NumPy and JAX; returns `jax.Array`s."""
        self.used = tick()
        if self._mixed is None:
            self._mixed = self._chain(self._apart, on_host=False)
        outs = self._mixed.run(arrays)
        with x64():
            return [out if isinstance(out, jax.Array) else to_jax(out) for out in outs]


class _Step(NamedTuple):
    """Is a stretch, ready to be run; `dropped` are the values that nothing takes after it."""

    run: Callable[[Sequence[Any]], Sequence[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dropped: tuple[int, ...]


class _Chain:
    """Is stretches of a program, each made ready to be run in its way, one after the other.

    Args:
        stretches: all of the program.
        shared: as for `Segmented`.
        outputs: its outputs.
        count: how many values it has.
        on_host: whether it runs on NumPy arrays alone.

    Attributes:
        executables: what is compiled, with the types of its inputs.
    """

    def __init__(
        self,
        stretches: Sequence[Stretch],
        shared: Callable[[Program], Executable],
        outputs: Sequence[Any],
        count: int,
        *,
        on_host: bool,
    ):
        self._shared = shared
        self.executables: list[tuple[Executable, Sequence[ArrayType]]] = []
        self._outputs = outputs
        self._count = count
        steps = []
        later = {a for a in outputs if type(a) is int}
        for stretch in reversed(stretches):
            taken = {*stretch.inputs, *stretch.outputs}
            run = self._runner(stretch, on_host)
            steps.append(_Step(run, stretch.inputs, stretch.outputs, tuple(taken - later)))
            later |= taken
        self._steps = steps[::-1]

    def _runner(self, stretch: Stretch, on_host: bool) -> Callable[[Sequence[Any]], Sequence[Any]]:
        program = stretch.program
        if not (stretch.pays if on_host else not stretch.calls):
            return functools.partial(_interpret if on_host else _call, program)
        executable = self._shared(program) if stretch.block else Executable(program)
        self.executables.append((executable, program.inputs))
        return functools.partial(executable.host, own=False) if on_host else executable.mixed

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Returns the outputs of the program."""
        values: list[Any] = [*arrays, *itertools.repeat(None, self._count - len(arrays))]
        for run, inputs, outputs, dropped in self._steps:
            outs = run([values[i] for i in inputs])
            for i, out in zip(outputs, outs, strict=True):
                values[i] = out
            for i in dropped:
                values[i] = None
        return _read(self._outputs, values)


def _interpret(program: Program, arrays: Sequence[Any]) -> list[Any]:
    return silently(program.calls_host, evaluate, np, program, arrays)


def _call(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Runs calls on arrays as they lie."""
    values = [*arrays]
    for equation in program.equations:
        # none takes what another one makes, so that all operands are there
        given = _read(equation.operands, arrays)
        if equation.primitive is stack_p:
            values.append(stack_p.lower(jnp if any(map(is_jax, given)) else np, *given))
        else:
            values += equation.params["callee"].run(given)
    return _read(program.outputs, values)


def _read(atoms: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    return [values[atom] if type(atom) is int else atom.array for atom in atoms]
