"""Runs a program on arrays, one primitive after the other, by `numpy` or `jax.numpy`.

What does not depend on the arrays is worked out once and kept on the program: for each equation the
function to call, where its operands lie, and which values nothing reads after it. What is run again
and again by NumPy is written out as a function of Python's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np

from ftrans.config import config
from ftrans.ir import Literal, Program
from ftrans.ir.collector import uncollected
from ftrans.ir.program import Equation
from ftrans.primitives.axes import SMALL, broadcast_p, thin
from ftrans.primitives.namespace import is_traced_by_jax, rounds
from ftrans.primitives.observe import Observes, observing
from ftrans.primitives.record import Absent


class Staging:
    """Stands for `jax.numpy` with another way to run programs, which loops and branches thus get.

    Args:
        namespace: `jax.numpy`.
        run: `(program, arrays) -> outputs`.
    """

    __slots__ = ("_namespace", "run")

    def __init__(self, namespace: Any, run: Callable[[Program, Sequence[Any]], list[Any]]):
        self._namespace = namespace
        self.run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)


class _Step(NamedTuple):
    """Is one equation, ready to be run."""

    call: Callable[..., Any]
    """`lower` with its namespace and params, or what `host` makes; it takes the operands."""
    slots: tuple[int, ...]
    results: int
    """How many results there are; -1 stands for one that is no sequence."""
    dropped: tuple[int, ...]


def _by_lower(xp: Any, equation: Equation) -> Callable[..., Any]:
    return functools.partial(equation.primitive.lower, xp, **equation.params)


class _Constant:
    """Returns an array that no run changes; a view of it, which is told from what runs own."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = np.asarray(array).view()
        self.array.flags.writeable = False

    def __call__(self) -> Any:
        return self.array


def _of_numpy(program: Program) -> list[Callable[..., Any]]:
    """Returns what NumPy does for each equation.

    What depends on no input is computed here, and small operands that would be repeated along an
    axis are left to NumPy's own broadcasting where all that takes them does that.
    """
    calls: list[Any] = []
    constants: dict[int, Any] = {}
    spread: list[tuple[int, int]] = []
    users: dict[Any, list[int]] = {}
    outputs = frozenset([a for a in program.outputs if type(a) is int])
    for number, (equation, results, _) in enumerate(program.numbered()):
        primitive, operands, params, _ = equation
        types = [program.type_of(a) for a in operands]
        call = primitive.on_host(types, params) or _by_lower(np, equation)
        for a in operands if users else ():
            if a in users:
                users[a].append(number)
        if _is_fixed(equation, constants) and outputs.isdisjoint(results):
            with np.errstate(all="ignore"):
                call = _Constant(
                    call(*[a.array if type(a) is Literal else constants[a] for a in operands])
                )
            constants[results[0]] = call.array
        elif primitive is broadcast_p and results[0] not in outputs:
            spread.append((number, results[0]))
            users[results[0]] = []
        calls.append(call)
    thinned: set[int] = set()
    for number, result in spread:
        equation = program.equations[number]
        shape = equation.types[0].shape
        if not all(
            _broadcasts(calls[user], program.equations[user])
            and any(
                type(a) is int
                and a != result
                and a not in thinned
                and program.type_of(a).shape == shape
                for a in program.equations[user].operands
            )
            for user in users[result]
        ):
            continue
        found = thin(**equation.params)
        if found is not None:
            calls[number] = found
            thinned.add(result)
    return calls


def _is_fixed(equation: Equation, constants: Mapping[int, Any]) -> bool:
    """Tells whether an equation depends on no input, and has one small result."""
    primitive, operands, _, types = equation
    for a in operands:
        if type(a) is not Literal and a not in constants:
            return False
    return not isinstance(primitive.host, Absent) and types[0].size <= SMALL


def _broadcasts(call: Any, equation: Equation) -> bool:
    """Tells whether what runs an equation broadcasts, with results that are equal to the bit."""
    takes = isinstance(call, np.ufunc) or call is np.where
    return takes and "costly" not in equation.primitive.tags


class _Plan:
    """Is a program, ready to be run: its values lie in one list, inputs first, then literals."""

    __slots__ = ("inputs", "literals", "outputs", "runs", "size", "steps", "written")

    def __init__(self, program: Program, xp: Any):
        groups = *[e.operands for e in program.equations], program.outputs
        literals = dict.fromkeys([a for group in groups for a in group if type(a) is Literal])
        first = self.inputs = len(program.inputs)
        slots: dict[Any, int] = {atom: i for i, atom in enumerate(literals, first)}
        slots |= {n: n if n < first else n + len(literals) for n in range(len(program.types))}
        steps = []
        read = {a for a in program.outputs if type(a) is int}
        calls = _of_numpy(program) if xp is np else [_by_lower(xp, e) for e in program.equations]
        for equation, call in zip(reversed(program.equations), reversed(calls), strict=True):
            operands = () if type(call) is _Constant else equation.operands
            last: list[int] = []
            for a in operands:
                if type(a) is not Literal and a not in read:
                    read.add(a)
                    last.append(slots[a])
            taken = tuple([slots[a] for a in operands])
            results = len(equation.types) if equation.primitive.multiple else -1
            steps.append(_Step(call, taken, results, tuple(last)))
        self.literals = [literal.array for literal in literals]
        self.steps = steps[::-1]
        self.outputs = tuple([slots[a] for a in program.outputs])
        self.runs = 0
        self.size = sum([2 + len(step.slots) for step in steps])
        self.written: Callable[..., list[Any]] | None = None

    def count(self) -> None:
        """Counts a run; what is run often is written out, one line for each step."""
        self.runs += 1
        if (self.runs > _OFTEN or config.check) and self.size <= _LONGEST:
            self.written = self._write()

    def _write(self) -> Callable[..., list[Any]]:
        """Returns a function of Python's that does what the loop does, in two thirds of the time.

        To compile it takes as long as the loop needs for some hundred runs.
        """
        known: dict[str, Any] = {"__name__": __name__}
        known.update((f"v{self.inputs + i}", x) for i, x in enumerate(self.literals))
        lines, first = [], self.inputs + len(self.literals)
        for number, step in enumerate(self.steps):
            results = "".join([f"v{first + i}, " for i in range(step.results)]) or f"v{first}"
            call = f"f{number}({', '.join([f'v{slot}' for slot in step.slots])})"
            drops = "".join([f"; v{slot} = None" for slot in step.dropped])
            known[f"f{number}"] = step.call
            lines.append(f" {results} = {call}{drops}" if step.results else f" {call}{drops}")
            first += abs(step.results)
        given = ", ".join([f"v{i}" for i in range(self.inputs)])
        returned = ", ".join([f"v{slot}" for slot in self.outputs])
        source = "\n".join([f"def written({given}):", *lines, f" return [{returned}]"])
        exec(compile(source, "<ftrans program>", "exec"), known)
        return known.pop("written")  # type: ignore[no-any-return]  # so that there is no cycle


_OFTEN = 100
_LONGEST = 2000
"""The longest program that is written out: some 500 equations, which takes some 10 ms at once."""


def evaluate(xp: Any, program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program` for `arrays`, computed with the functions of `xp`.

    Values are dropped after their last use, so that memory is what the program needs. An error
    carries a note that says which equation it came from.
    """
    plan: Any = program.memo.get(xp)
    if plan is None:
        if isinstance(xp, Staging):
            return xp.run(program, arrays)
        plan = program.memo.setdefault(xp, uncollected(_Plan, program, xp))
    by = observing.by
    if by is not None and any(map(is_traced_by_jax, arrays)):
        by = None  # nothing is run
    if plan.written is not None and by is None:
        try:
            return plan.written(*arrays)
        except Exception as error:
            inside = error.__traceback__.tb_next  # type: ignore[union-attr]
            # not where it could not be called, or a signal was handled on the way
            if inside is not None and inside.tb_frame.f_code is plan.written.__code__:
                _note(error, program, inside.tb_lineno - 2)
            raise
    if xp is np:
        plan.count()
    values: list[Any] = [*arrays, *plan.literals]
    if xp is not np and rounds():
        # JAX may take one that it has seen in double precision for what it then was
        values = [xp.asarray(x) if isinstance(x, np.ndarray) else x for x in values]
    steps = iter(plan.steps if by is None else _observed(by, program, plan.steps))
    try:
        for call, slots, results, dropped in steps:
            result = call(*[values[slot] for slot in slots])
            if results < 0:
                values.append(result)
            else:
                values += result
            for slot in dropped:
                values[slot] = None
    except Exception as error:
        _note(error, program, len(plan.steps) - length_hint(steps) - 1)
        raise
    return list(map(values.__getitem__, plan.outputs))


def _observed(by: Observes, program: Program, steps: Sequence[_Step]) -> list[_Step]:
    """Returns the steps of a program with each one run by who is told of it."""

    def told(step: _Step, primitive: Any, params: Any, place: Any) -> _Step:
        return step._replace(
            call=lambda *operands: by.equation(primitive, params, place, step.call, operands)
        )

    return [
        told(step, equation.primitive, equation.params, place)
        for step, (equation, _, place) in zip(steps, program.numbered(), strict=True)
    ]


def _note(error: Exception, program: Program, index: int) -> None:
    """Says in an error which equation it came from, the innermost one where they nest."""
    if getattr(error, "__notes__", None) or not 0 <= index < len(program.equations):
        return
    equation, place = program.equations[index], program.locations[index]
    types = ", ".join(str(program.type_of(atom)) for atom in equation.operands)
    error.add_note(
        f"ftrans: raised by {equation.primitive.name} of {types} in {program.name}"
        + (f"\n  {place}: {place.source}" if place else "")
    )
