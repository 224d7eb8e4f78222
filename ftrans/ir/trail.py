"""Frames of functions that are traced at each call, along the tree of what was traced before.

A function that runs again takes the same path, so that an operation costs one comparison: neither
are its types inferred again, nor is its program built or hashed. The tree only saves work; with or
without it the same programs come out, but for Python scalars that turn out to change (`Root`).
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any

from ftrans.config import config
from ftrans.ir.above import above
from ftrans.ir.collector import LONG, put_off
from ftrans.ir.frame import Frame, Part, Tracer, make_tracer
from ftrans.ir.leap import Leap, compare, maker_of, results_of
from ftrans.ir.location import Location, location_of, passed_over, twin_of, user_frame
from ftrans.ir.program import NO_PARAMS, Equation, Params, Program
from ftrans.ir.stack import state
from ftrans.ir.steps import Root, Step
from ftrans.ir.types import ArrayType, Literal
from ftrans.ir.varying import learn_varied, varied, with_inputs

_roots: dict[Any, Root] = {}
_count = 0
"""How many roots, steps and leaps there are, roughly: threads may miscount."""

_STEPS_PER_PROGRAM = 32
"""With the programs that are kept at first, the tree may hold some 130 MB, at 1 kB for a step."""


def forget_trails() -> None:
    """Forgets all that was traced; traces under way go on."""
    global _count
    # in lists that are made at once: other threads go on adding
    gone = [root.step for root in list(_roots.values())]
    _roots.clear()
    _count = 0
    # whoever holds a traced value holds its steps, but need not hold all that others did after them
    while gone:
        gone += gone.pop().forget()


def _counted(kilobytes: int = 1) -> None:
    """Counts one more thing that is remembered, and forgets all where these are too many."""
    global _count
    _count += kilobytes
    if _count > _STEPS_PER_PROGRAM * config.cache_entries:
        forget_trails()


def _grow(step: Step, new: Step) -> Step:
    _counted()
    return step.add(new)


_MOST_CONSTANT = 1 << 16
"""What captures arrays of so many bytes is not remembered, since these would stay in memory."""


class Trail(Frame):
    """Is the frame of a function that is traced at each call; its arguments are as for `Frame`."""

    __slots__ = ("checks", "declared", "root", "step", "steps", "visits")

    root: Root
    step: Step

    def __init__(self, name: str, closed: bool = False, entered: Location | None = None):
        super().__init__(name, closed, entered)
        self.steps: list[Step] = []
        self.checks: list[tuple[int, Callable[[Any], None]]] = []
        self.visits: dict[Any, int] | None = None
        self.declared = 0

    count = property(attrgetter("step.stop"), doc="How many results are recorded.")

    def declare(self, inputs: Sequence[tuple[ArrayType, Any, bool]]) -> list[Tracer]:
        """Adds the inputs, once and before all else: for each its type, source and weakness."""
        tracers = super().declare(inputs)
        self.declared = len(inputs)
        self.begin()
        if self.made is not None:
            self.made += map(weakref.ref, tracers)
        return tracers

    def begin(self) -> None:
        """Goes to the step before the first; `declare` does."""
        # the depth tells the two traces of a Hessian apart, which have one name
        key = (self.name, self.depth, state.of_tensors, *self.input_types)
        root = _roots.get(key)
        if root is None or root.leaves:
            self.made = []
        if root is None:
            _counted()
            root = _roots.setdefault(key, Root())
        self.root = root
        self.step = root.step

    def input(self, type: ArrayType, source: Any, weak: bool = False) -> Tracer:
        """Adds an input for what is captured."""
        self.step_to(type)
        return super().input(type, source, weak)

    def require(self, code: int, holds: Callable[[Any], None]) -> None:
        """Has the array behind an input checked: on a tape, where that is at hand at each call."""

    def step_to(self, type: ArrayType) -> None:
        """Goes on to the step of one more input of a type."""
        step = self.step
        self.step = step.find(type) or _grow(step, Step(type, None, None, step.stop))

    def take(self, primitive: Any, x: Any, y: Any = None, *, depth: int = 2) -> Tracer:
        """Applies a primitive of one operand, or two, and no params: the short way.

        To be called directly by a function that users call, while this is `state.trail`.

        Args:
            primitive: the primitive.
            x: a value of this frame, as `Tracer.index`, or a literal.
            y: the other operand, if there is one.
            depth: how many frames up the user's code is.
        """
        user = sys._getframe(depth)  # whether this is the user's own code, the step tells
        if y is None:
            key: tuple[Any, ...] = (primitive, None, id(user.f_code), user.f_lasti, x)
        else:
            key = (primitive, None, id(user.f_code), user.f_lasti, x, y)
        step = self.step
        child = step.child
        if child is None or child.key != key:
            child = step.find(key) or self._below(user, key) or varied(self, key)
            child = child or self._by_twin(user.f_code, key)
        if child is None or self.visits is not None:
            codes = key[4:]
            operands = [
                c if type(c) is Literal else make_tracer(self, c, self.type(c)) for c in codes
            ]
            return self.record(primitive, operands, NO_PARAMS)[0]
        self.step = child
        self.steps.append(child)
        # as `make_tracer` does, spelled out where most tracers are made
        made = Tracer()
        made.frame = self
        made.index = child.code
        made.type = child.type  # type: ignore[assignment]
        made.weak = False
        if self.made is not None:
            self.made.append(weakref.ref(made))
        return made

    def _below(self, caller: FrameType, key: tuple) -> Step | None:
        """Returns the next step where the caller is NumPy's protocol, and the user further below.

        So it is for np.sin(x), while fnp.sin(x) is found at once.
        """
        user = user_frame() if passed_over.get(caller.f_code.co_filename) else None
        if user is None:
            return None
        return self.step.find((*key[:2], id(user.f_code), user.f_lasti, *key[4:]))

    def _by_twin(self, code: CodeType | None, key: tuple) -> Step | None:
        """Returns the next step where the place of a key was another instruction of one call."""
        twin = None if code is None else twin_of(code, key[3])
        return None if twin is None else self.step.find((*key[:3], twin, *key[4:]))

    def record(self, primitive: Any, operands: Sequence[Any], params: Params) -> tuple[Tracer, ...]:
        """Records one equation and returns its results."""
        codes: list[Any] = []
        for value in operands:
            kind = type(value)
            if kind is Tracer:
                codes.append(value.index if value.frame is self else self.capture(value).index)
            elif kind is Literal:
                codes.append(value)
            else:
                codes.append(self.capture(value).index)
        place = state.place
        if place is None:
            user = user_frame()
            code, offset = (None, 0) if user is None else (user.f_code, user.f_lasti)
        else:
            location = place[0]
            code, offset = (None, 0) if location is None else (location.code, location.offset)
        # the step's location keeps the code, and so its identity, alive
        key = (primitive, params or None, id(code), offset, *codes)
        if params and primitive.is_higher_order:
            # programs are equal whatever their names and locations; those matter here
            key += params.program_ids
        child = self.step.find(key) or varied(self, key) or self._by_twin(code, key)
        if child is None:
            location = None if code is None else location_of(code, offset)
            child = self._step(key, primitive, codes, params, location)
        self.step = child
        self.steps.append(child)
        if self.visits is not None:
            self._visit(child)
        first = child.code
        if child.stop - first == 1:
            return (make_tracer(self, first, child.type),)  # type: ignore[arg-type]
        types = child.equation.types  # type: ignore[union-attr]
        return tuple([make_tracer(self, first + i, t) for i, t in enumerate(types)])

    def leap(self, call: Any) -> tuple[Any, Any] | None:
        """Takes over the equations of a function that was called at this step before.

        Args:
            call: says all that they depend on: the function, its place in the user's code, traced
                values by `Tracer.index`, other arguments; hashable.

        Returns:
            The result, and what `learn` was told of how it is a view; None where the
            function is to be called, as it always is under `config.check`: `learn` compares then.
        """
        leaps = self.step.leaps
        found = None if leaps is None else leaps.get(call)
        if found is None or config.check:
            return None
        self.go(found)
        for code, holds in found.checks:
            self.require(code, holds)
        if found.kind is None:
            return make_tracer(self, *found.results[0]), found.view
        return found.kind([make_tracer(self, *result) for result in found.results]), found.view

    def go(self, leap: Leap) -> None:
        """Records the equations of a leap; makes no object, lest a finalizer records in between."""
        self.input_types += leap.types
        self.sources += leap.constants
        self.steps += leap.steps
        self.step = leap.end
        if self.visits is not None:
            for step in leap.steps:
                self._visit(step)

    def mark(self) -> tuple[Step, int, int, int, int]:
        """Returns what `learn` needs to know of the time before a call."""
        return self.step, len(self.steps), len(self.sources), self.demands, len(self.checks)

    def learn(
        self,
        mark: tuple[Step, int, int, int, int],
        call: Any,
        result: Any,
        view: Any,
        name: str,
        lasting: bool = True,
        own: bool = False,
    ) -> None:
        """Remembers a call for `leap`, unless it did more than to record equations here.

        Args:
            mark: that of the time before the call.
            call: as for `leap`.
            result: what the function returned: a value, or a sequence of some.
            view: what `leap` returns besides; None where that does not say what the result is.
            name: that of the function.
            lasting: whether the call may be remembered; if not, it is only compared.
            own: whether the arrays that it captured are constants, which it makes of what `call`
                says.

        Raises:
            CheckError: under `config.check`, where an earlier call was another.
        """
        start, count, inputs, demands, checks = mark
        learnt: Leap | None = None
        nbytes = 0
        results = results_of(result)
        constants = self.sources[inputs:]
        if (
            view is not None
            and results
            and all(
                type(x) is Tracer and x.frame is self and x.index >= start.stop for x in results
            )
            and (own or not constants)
            and Tracer not in map(type, constants)
            and (nbytes := sum([x.nbytes for x in constants])) <= _MOST_CONSTANT
            and self.demands == demands
        ):
            values = [(x.index, x.type, x.weak) for x in results]
            found = constants, self.input_types[inputs:], [None] * len(constants)
            how = maker_of(result), view, self.checks[checks:]
            learnt = Leap(self.steps[count:], self.step, *found, values, *how)
        if config.check and start.leaps is not None and call in start.leaps:
            compare(name, start.leaps[call], learnt, self.steps[count:])
        elif lasting and learnt is not None:
            _counted(1 + nbytes // 1024)
            if start.leaps is None:
                start.leaps = {}
            start.leaps[call] = learnt

    def _visit(self, step: Step) -> None:
        visits, place = self.visits, step.key[:1] + step.key[2:4]
        visits[place] = visits.get(place, 0) + 1  # type: ignore[index, union-attr]

    def visited(self, place: Any) -> int:
        """Returns how often a place was visited, a primitive in the user's code; counts on."""
        if self.visits is None:
            self.visits = {}
            for step in self.steps:
                self._visit(step)
        return self.visits.get(place, 0)

    def _step(
        self, key: Any, primitive: Any, codes: list[Any], params: Params, location: Location | None
    ) -> Step:
        """Returns a new step for an equation; or for the one that takes literals as inputs."""
        results = primitive.infer_types(tuple([self.type(c) for c in codes]), params)
        start, count, operands = self.step, len(self.steps), None
        if Literal in map(type, codes):
            operands = with_inputs(self, primitive, key, codes, results[0].shape)
        if operands is None:
            return self._new(key, Equation(primitive, tuple(codes), params, results), location)
        closed = (*key[:4], *operands)
        equation = Equation(primitive, tuple(operands), params, results)
        step = self.step.find(closed) or self._new(closed, equation, location)
        learn_varied(self, start, key, self.steps[count:], step)
        return step

    def _new(self, key: Any, equation: Equation, location: Location | None) -> Step:
        stop = self.step.stop + len(equation.types)
        step = _grow(self.step, Step(key, equation, location, stop))
        if equation.params and step.holds_functions:
            self.step.forget_functions()
        if stop > LONG and self.late is False:
            self.late = put_off()
        return step

    def close(self, outputs: Sequence[Any], name: str | None = None) -> tuple[Program, list[Any]]:
        """Returns the finished program and the values that it captured, as `Frame.close` does."""
        codes = []
        for value in outputs:
            lifted = self.lift(value)
            codes.append(lifted if type(lifted) is Literal else lifted.index)
        return self.close_at(codes, name)

    def close_at(self, codes: Sequence[Any], name: str | None = None) -> tuple[Program, list[Any]]:
        """Does as `close` with values of this frame, given by `Tracer.index`, and literals."""
        ends = self.step.ends
        if ends is None:
            ends = self.step.ends = {}
        key = (name, *codes)
        found, given = ends.get(key, _NO_END)
        program = None if found is None else found()
        if program is None or (given and not self.known.keys() >= given.keys()):
            given = self._given(codes)
            program = self._program(codes, given, name or self.name)
            ends[key] = weakref.ref(program), given
        captured = self.sources[self.declared :]
        if given:
            captured += map(self.known.__getitem__, given)
        return program, captured

    def _given(self, codes: Sequence[Any]) -> dict[int, None]:
        """Returns the results that are known already, and that the outputs depend on, in order."""
        live = set(codes)
        for step in reversed(self.steps) if self.known else ():
            equation: Equation = step.equation  # type: ignore[assignment]
            if not live.isdisjoint(range(step.code, step.stop)):
                live.update(equation.operands)
        return dict.fromkeys(sorted([c for c in self.known if c >= 0 and c in live]))

    def _program(self, codes: Sequence[Any], given: Collection[int], name: str) -> Program:
        """Builds the program, in which inputs have the numbers before all results.

        The last inputs are the values of the results that are given.
        """
        first = len(self.sources)
        count = first + len(given)

        def number(code: Any) -> Any:
            if type(code) is Literal:
                return code
            return code + count if code >= 0 else ~code

        equations = []
        for step in self.steps:
            primitive, operands, params, types = step.equation  # type: ignore[misc]
            equations.append(
                Equation(primitive, tuple([number(c) for c in operands]), params, types)
            )
        types = tuple([self.type(code) for code in given])
        for i, (code, t) in enumerate(zip(given, types, strict=True), first):
            equations.append(Equation(above.at_hand, (number(code), i), NO_PARAMS, (t,)))
        return Program.make(
            (*self.input_types, *types),
            equations,
            [number(code) for code in codes],
            [step.location for step in self.steps] + [None] * len(given),
            name,
        )

    def part(self, code: int) -> Part:
        """Returns what computes a result, as `Frame.part` does; that was asked for is a step."""
        if state.examples:
            return super().part(code)  # what is computed of an example is not known
        step = self.step
        self.step = step = step.find(code) or _grow(step, Step(code, None, None, step.stop))
        if step.part is not None:
            program, held, needs, gives = step.part
            found = program()
            if found is not None and held <= self.known.keys():
                return Part(found, needs, gives)
        part = super().part(code)
        held = frozenset([c for c in part.needs if c >= 0])
        step.part = weakref.ref(part.program), held, part.needs, part.gives
        return part

    def produced(self, code: int) -> tuple[Equation, Location | None, int]:
        """Returns the equation that makes the result `code`, its place, and its first result."""
        step = self.steps[bisect_right(self.steps, code, key=_stop)]
        equation: Equation = step.equation  # type: ignore[assignment]
        return equation, step.location, step.stop - len(equation.types)


_stop = attrgetter("stop")
_NO_END: tuple[None, dict[int, None]] = None, {}
