"""The tracer: frames are programs under construction, and binding a primitive records an equation.

There is one kind of tracer. Frames nest per thread. An operation lands in the deepest frame among
its operands' frames, but never outside the innermost closed frame; what a frame uses from outside
it captures, as an extra input. Invariant: a frame on the stack only ever refers to itself and to
frames below it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from types import FrameType
from typing import Any, final
from weakref import ref

from ftrans.errors import LeakedTracerError
from ftrans.ir.above import above
from ftrans.ir.axes import depth_of
from ftrans.ir.collector import LONG, allow, put_off
from ftrans.ir.location import Location, here
from ftrans.ir.part import Part, part_of
from ftrans.ir.program import Equation, Params, Program
from ftrans.ir.source import Abstract, Use, example, unknown
from ftrans.ir.stack import NOTHING, PAST, opened, state
from ftrans.ir.types import ArrayType, Literal
from ftrans.traceback import OnTape


@final
class Tracer:
    """Stands for a value of the program that its frame is building.

    Attributes:
        frame: the frame that the value belongs to.
        index: the result with this index where it is >= 0, else the input `~index`.
        type: the type of the value.
        weak: whether it promotes as a Python scalar does.
    """

    __slots__ = ("__weakref__", "frame", "index", "type", "weak")

    frame: Frame
    index: int
    type: ArrayType
    weak: bool

    # Operators, methods and the NumPy protocols are given to this class by ftrans.numpy. It has no
    # `__init__`, which would take half the time that tracing an operation does: see `make_tracer`.

    def move(self, to: Tracer) -> None:
        """Makes this denote what another tracer of the same type does."""
        self.frame, self.index = to.frame, to.index
        if to.frame.made is not None:
            to.frame.made.append(ref(self))

    @property
    def location(self) -> Location | None:
        """Where in the user's code the value was made; None for an input."""
        return None if self.index < 0 else self.frame.produced(self.index)[1]

    def value(self, what: Use = "the value") -> Any:
        """Returns the concrete array behind this tracer, evaluating just what it depends on.

        Args:
            what: names the use, for the error: "bool()", "float()", ...

        Raises:
            ConcretizationError: where it depends on an input that has no value.
        """
        check_alive(self)
        return self.frame.demand(self.index, what, self)

    @property
    def origin(self) -> str:
        """Says in an error where the value comes from: "made at file:line (function)"."""
        if self.location is not None:
            return f"made at {self.location}"
        frame = self.frame
        entered = here(frame.caller) if frame.caller else frame.entered
        return f"an argument of {frame.name}" + (f", called at {entered}" if entered else "")


def make_tracer(frame: Frame, index: int, type: ArrayType, weak: bool = False) -> Tracer:
    """Returns a new tracer; arguments are its attributes."""
    tracer = Tracer()
    tracer.frame = frame
    tracer.index = index
    tracer.type = type
    tracer.weak = weak
    if frame.made is not None:
        frame.made.append(ref(tracer))
    return tracer


class Frame:
    """Is a program under construction.

    Args:
        name: what is being traced, for instance "grad(loss)".
        closed: whether all that happens inside stays inside, as in the body of a loop.
        entered: where in the user's code the tracing was asked for, if that is known already.

    Attributes:
        caller: a Python frame that was called from there, while it runs.
        below: how many results each frame below had when this one was pushed.
        asks: what is asked of the custom rules that are called here, once it is pushed.
        rule: where it is a method of a custom rule, what gives a plain array for a value of it, or
            raises `Opaque`; else None.
        differentiates: 1 where its inputs are differentiated, -1 where a rule does so once, else 0.
        made: weak references to its values, to find those that outlive it; None where few would.
        late: whether full collections wait until it is released, since it is long; None of what
            is not released in a `finally`.
        lanes: where it is traced for many at once, what that was told of randomness, and a value
            that numbers them, if there is one; else None.
        axes: the names of the axes that it is traced along.
        effect: what says that the calls for the sake of their effects have been made; or None.
        ties: whether what is returned is tied to that.
    """

    __slots__ = (
        "__weakref__", "asks", "axes", "below", "caller", "captured", "closed", "demands", "depth",
        "differentiates", "effect", "entered", "equations", "floor", "guarded", "input_types",
        "known", "lanes", "late", "locations", "made", "name", "producers", "rule", "sources",
        "ties",
    )  # fmt: skip

    def __init__(self, name: str, closed: bool = False, entered: Location | None = None):
        self.name = name
        self.closed = closed
        self.entered = entered
        self.caller: FrameType | None = None
        self.made: list[ref[Tracer]] | None = None
        self.asks = NOTHING
        self.rule: Any = None
        self.lanes: tuple[str, Tracer | None] | None = None
        self.axes: tuple[Hashable, ...] = ()
        self.effect: Tracer | None = None
        self.differentiates, self.ties = 0, False
        self.late: bool | None = False
        self.depth, self.floor = -1, 0
        self.below: tuple[int, ...] = ()
        self.input_types: list[ArrayType] = []
        self.sources: list[Any] = []
        self.captured: dict[int, Tracer] = {}
        self.equations: list[Equation] = []
        self.locations: list[Location | None] = []
        self.producers: list[int] = []
        self.known: dict[int, Any] = {}
        self.guarded: list[Any] = []
        self.demands = 0

    count = property(lambda self: len(self.producers), doc="How many results are recorded.")

    def push(self) -> None:
        """Makes this the innermost frame; whoever does so takes it off again in a `finally`."""
        stack = state.stack
        self.depth = len(stack)
        if stack:
            self.below = tuple(map(_count, stack))
            self.floor = self.depth if self.closed else stack[-1].floor
            self.asks = stack[-1].asks
        else:
            state.by_jax = state.asked = False
        stack.append(self)

    def release(self) -> None:
        """Lets go of all values, once the frame is no longer on the stack."""
        if self.late:
            self.late = False
            allow()
        if self.guarded:
            above.release(self.guarded)
        # Captured values refer to the frame that holds them: without the cycle, arrays are freed
        # when the function returns, not when the garbage collector comes by.
        self.captured.clear()
        self.sources.clear()
        self.known.clear()
        self.made = self.caller = self.lanes = self.effect = None

    def input(self, type: ArrayType, source: Any, weak: bool = False) -> Tracer:
        """Adds an input; `source` is its value: an array, an outer tracer or `Abstract`."""
        if not isinstance(source, Tracer):
            above.hold((source,), self.guarded)
        self.input_types.append(type)
        self.sources.append(source)
        return make_tracer(self, ~(len(self.sources) - 1), type, weak)

    def declare(self, inputs: Sequence[tuple[ArrayType, Any, bool]]) -> list[Tracer]:
        """Adds the inputs of a frame that has none: for each its type, source and weakness."""
        tracers = []
        for type_, source, weak in inputs:
            tracers.append(make_tracer(self, ~len(tracers), type_, weak))
            self.input_types.append(type_)
            self.sources.append(source)
        above.hold(self.sources, self.guarded)
        return tracers

    def capture(self, value: Any) -> Tracer:
        """Returns the input that stands for an array, or for a tracer of an outer frame."""
        tracer = self.captured.get(id(value))
        if tracer is None:
            value = settled(value)
            if type(value) is Tracer:
                tracer = self.input(value.type, value, value.weak)
            else:
                tracer = self.input(type_of(value), value)
            self.captured[id(value)] = tracer  # `sources` keeps the value, and so its id, alive
        return tracer

    def is_argument(self, code: int) -> bool:
        """Tells whether an input was declared, not captured."""
        return not any(tracer.index == code for tracer in self.captured.values())

    def lift(self, value: Any) -> Tracer | Literal:
        """Returns `value` as an operand for this frame."""
        if type(value) is Tracer:
            if value.frame is self:
                return value
            check_alive(value)
            return self.capture(value)
        return value if type(value) is Literal else self.capture(value)

    def record(self, primitive: Any, operands: Sequence[Any], params: Params) -> tuple[Tracer, ...]:
        """Records one equation and returns its results."""
        codes: list[Any] = []
        types = []
        for value in operands:
            kind = type(value)
            if kind is Literal:
                codes.append(value)
            else:
                if kind is not Tracer or value.frame is not self:
                    value = self.capture(value)
                codes.append(value.index)
            types.append(value.type)
        results = primitive.infer_types(tuple(types), params)
        first = len(self.producers)
        self.producers.extend([len(self.equations)] * len(results))
        self.equations.append(Equation(primitive, tuple(codes), params, results))
        place = state.place
        self.locations.append(here() if place is None else place[0])
        if first > LONG and self.late is False:
            self.late = put_off()
        return tuple([make_tracer(self, first + i, t) for i, t in enumerate(results)])

    def close(self, outputs: Sequence[Any], name: str | None = None) -> tuple[Program, list[Any]]:
        """Returns the finished program and the values that it captured, in the order of inputs.

        The inputs are those that were declared, then the captured ones.
        """
        lifted = [self.lift(value) for value in outputs]
        # Declared and captured inputs share one list; declared ones come first in the program.
        taken = {~t.index for t in self.captured.values()}
        order = [i for i in range(len(self.sources)) if i not in taken] + sorted(taken)
        position = {~i: number for number, i in enumerate(order)}
        count = len(order)

        def number(code: Any) -> Any:
            if type(code) is Literal:
                return code
            return code + count if code >= 0 else position[code]

        equations = [
            Equation(e.primitive, tuple([number(c) for c in e.operands]), e.params, e.types)
            for e in self.equations
        ]
        program = Program.make(
            [self.input_types[i] for i in order],
            equations,
            [v if type(v) is Literal else number(v.index) for v in lifted],
            self.locations,
            name or self.name,
        )
        return program, [self.sources[i] for i in sorted(taken)]

    def demand(self, code: int, what: Use, asked: Tracer) -> Any:
        """Evaluates what the value `code` depends on and returns its array.

        Args:
            code: the value, as `Tracer.index` gives it.
            what: names the use, for the error.
            asked: the value that was asked for, which may belong to a frame further in.
        """
        self.demands += 1
        state.demanded += 1
        known = self.known
        if code not in known:
            if code < 0:
                known[code] = self._source_value(code, what, asked)
                return known[code]
            part = self.part(code)
            for needed in part.needs:
                if needed not in known:
                    known[needed] = self._source_value(needed, what, asked)
            found = above.run(part.program, [known[needed] for needed in part.needs])
            known.update(zip(part.gives, found, strict=True))
        return known[code]

    def part(self, code: int) -> Part:
        """Returns what computes a result of what is known, or may be: inputs."""
        return part_of(self, code)

    def type(self, atom: Any) -> ArrayType:
        """Returns the type of a value, or of a literal."""
        if type(atom) is Literal:
            return atom.type
        if atom < 0:
            return self.input_types[~atom]
        equation, _, first = self.produced(atom)
        return equation.types[atom - first]

    def produced(self, code: int) -> tuple[Equation, Location | None, int]:
        """Returns the equation that makes the result `code`, its place, and its first result."""
        index = self.producers[code]
        first = bisect_left(self.producers, index)
        return self.equations[index], self.locations[index], first

    def _source_value(self, code: int, what: Use, asked: Tracer) -> Any:
        source = self.sources[~code]
        if isinstance(source, Abstract):
            if state.examples:
                value = lambda x: _value(x, what, asked)  # noqa: E731
                return source.example(self.input_types[~code], value)
            raise unknown(what, asked, source.reason)
        return _value(source, what, asked)


_count = attrgetter("count")


def _value(x: Any, what: Use, asked: Tracer) -> Any:
    if type(x) is not Tracer:
        if state.has_value is None or state.has_value(x):
            return x
        if state.examples:
            return example(type_of(x))
        raise unknown(what, asked, None)
    check_alive(x)
    return x.frame.demand(x.index, what, asked)


def rebind(tracer: Tracer, new: Tracer) -> None:
    """Makes a traced value denote another one, for all that refer to it from now on.

    Frames that captured the old value keep it: what stands for it there is moved to a copy.
    """
    for frame in state.stack:
        captured = frame.captured.pop(id(tracer), None)
        if captured is not None:
            old = make_tracer(tracer.frame, tracer.index, tracer.type, tracer.weak)
            frame.captured[id(old)] = captured
            frame.sources[~captured.index] = old
    tracer.move(new)
    tracer.weak = new.weak


def type_of(value: Any) -> ArrayType:
    """Returns the type of a tracer, a literal, or anything that has a shape and a dtype."""
    kind = type(value)
    if kind is Tracer or kind is Literal:
        return value.type
    if kind in OnTape.types:
        raise OnTape
    return ArrayType(value.shape, value.dtype)


def open_frame(name: str, closed: bool = False) -> AbstractContextManager[Frame]:
    """Pushes a new frame for the length of the block."""
    return opened(Frame(name, closed))


TAPE = PAST - 1
"""The depth of a tape, which lies below every stack."""


def settled(value: Any) -> Any:
    """Returns the array of a traced value that has outlived its frame, else the value itself."""
    if type(value) is Tracer and value.frame.depth == PAST:
        return value.frame.known[value.index]
    return value


def check_alive(tracer: Tracer) -> None:
    """Raises where the function that a traced value belongs to has returned.

    Raises:
        LeakedTracerError: then, and where it runs in another thread.
    """
    frame, stack = tracer.frame, state.stack
    if (
        frame.depth == PAST
        or frame is state.tape
        or (frame.depth < len(stack) and stack[frame.depth] is frame)
    ):
        return
    raise LeakedTracerError(
        f"{frame.name}: a traced value was used after the function had returned, or in another "
        f"thread.\n"
        f"  value: {tracer.type}, {tracer.origin}\n"
        f"  used at {here()}\n"
        f"  Return it from the function; grad, vjp and others take has_aux=True for what is not\n"
        f"  the result. To look at it, print(x) inside the function."
    )


def bind(primitive: Any, operands: Sequence[Any], params: Params) -> tuple[Any, ...]:
    """Applies a primitive: records it in the frame it belongs to, or runs it where there is none.

    Args:
        primitive: the primitive.
        operands: tracers, literals and arrays, of the strict types that the primitive takes.
        params: the static part.
    """
    stack = state.stack
    depth = stack[-1].floor if stack else -1
    below = None
    for value in operands:
        if type(value) is Tracer:
            frame = value.frame
            if frame.depth >= len(stack) or stack[frame.depth] is not frame:
                check_alive(value)
                if frame.depth != TAPE:
                    return bind(primitive, [settled(v) for v in operands], params)
                below = frame
            elif frame.depth > depth:
                depth = frame.depth
    if params and stack and stack[-1].asks.axes:
        depth = max(depth, depth_of(params, stack))  # a name means what it means here
    if depth < 0:
        if below is not None:
            return below.record(primitive, operands, params)
        primitive.infer_types(tuple([type_of(value) for value in operands]), params)
        arrays = [v.array if type(v) is Literal else v for v in operands]
        return above.evaluate(primitive, arrays, params)
    return stack[depth].record(primitive, operands, params)
