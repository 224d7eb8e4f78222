"""The collector: is told of everything that runs, in all threads, and makes events of it."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from time import perf_counter_ns
from typing import Any, TypeVar

import jax
import numpy as np

from ftrans.autograd.profiler_util import BACKWARD, FUNCTION, USER, FunctionEvent
from ftrans.errors import UnsupportedError
from ftrans.ir import Location, Params, type_of
from ftrans.ir.location import here as place_here
from ftrans.ir.stack import state
from ftrans.primitives.observe import observing

F = TypeVar("F", bound=Callable[..., Any])

_installing = threading.Lock()


class _Here(threading.local):
    """Is where a thread is: in which event, whether that is in an equation, and in which group.

    In a backward pass that is the place whose equations it is at, and their event.
    """

    event: Any = None
    deep = False
    group: tuple[Any, Any] = (None, None)


class Collector:
    """Collects events: all that are over, in `events`.

    In a backward pass, equations that come from one place are one event, which is named by the
    first primitive that ran forward there, as in "sin_backward".
    """

    apart = True
    record_shapes = with_stack = with_flops = False

    def __init__(self) -> None:
        self.events: list[FunctionEvent] = []
        self._places: dict[Any, tuple[int, str]] = {}  # their numbers, and what names them
        self._here = _Here()
        self._ids, self._numbers = itertools.count(), itertools.count()
        self._start = perf_counter_ns()

    def install(self) -> None:
        """Is told of what is written from here on; raises where another one is."""
        run_pending()
        with _installing:
            if observing.by is not None:
                raise UnsupportedError(
                    f"{type(self).__name__}: a profile is active already, and they cannot be "
                    f"nested, nor can two threads have one each.\n"
                    f"  Write record_function(name) for a part of it."
                )
            observing.by = self

    def remove(self, run: bool = True) -> None:
        """Ends that; `run` says whether what is pending is still run for it."""
        if observing.by is self:
            try:
                if run:
                    run_pending()
            finally:
                observing.by = None

    # -------------------------------------------------------------------------------------- events

    def _now(self) -> float:
        return (perf_counter_ns() - self._start) / 1000

    def begin(
        self, name: str, place: Location | None = None, operands: Any = (), scope: int = FUNCTION
    ) -> FunctionEvent:
        """Begins an event."""
        event = FunctionEvent(next(self._ids), name, threading.get_native_id(), 0.0, 0.0)
        event.scope = scope or getattr(self._here.event, "scope", FUNCTION)
        event.sequence_nr = self._places.get(place, (-1, ""))[0]
        if self.record_shapes:
            event.input_shapes = [list(np.shape(x)) for x in operands]
        if self.with_stack and place is not None:
            event.stack = [f"{place.filename}({place.line}): {place.function}"]
        event.start_us = self._now()
        return event

    def end(self, event: FunctionEvent, failed: bool = False) -> None:
        """Ends an event, which is left out where it has raised."""
        event.end_us = self._now()
        if not failed:
            self.events.append(event)

    @contextmanager
    def within(self, *about: Any) -> Iterator[FunctionEvent]:
        """Makes the block an event, which `begin` is told about."""
        here, failed = self._here, True
        outside = here.event, here.deep, here.group
        event = here.event = self.begin(*about)
        here.group = None, None
        try:
            yield event
            failed = False
        finally:
            self._move(None, failed)
            here.event, here.deep, here.group = outside
            self.end(event, failed)

    def _move(self, place: Location | None, failed: bool = False) -> None:
        """Goes on to what comes from another place, in a backward pass."""
        before, event = self._here.group
        if place is before:
            return
        self._here.group = None, None
        if event is not None:
            self.end(event, failed)
        if place in self._places:
            self._here.group = place, self.begin(f"{self._places[place][1]}_backward", place)

    # -------------------------------------------------------------------------- what it is told of

    def program(self, name: str, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Runs a program, or what `jit` has compiled."""
        with self.within(name) as event:
            event.facts = {"road": "compiled"}
            return jax.block_until_ready(run(*args, **kwargs))

    def ran(self, call: Any, is_compiled: bool) -> None:
        """Is told how the program was run that is at its end."""
        facts = {"road": call.road, "reason": call.reason, "seen": call.hit}
        self._here.event.facts = facts | {"compiled": is_compiled}

    def compiled(self, event: str, duration_secs: float, **_: Any) -> None:
        """Is told by JAX how long something took."""
        if event.endswith("backend_compile_duration"):
            around = self._here.event
            if around is not None and around.facts:
                around.facts["road"] = "compiled now"
            made = self.begin("compile")
            made.start_us -= duration_secs * 1e6
            self.end(made)

    def equation(
        self, primitive: Any, params: Params, place: Location | None, run: Any, operands: Any
    ) -> Any:
        """Runs one equation on arrays."""
        here, callee = self._here, params.get("callee")
        name = primitive.name if callee is None else f"{primitive.name}({callee.name})"
        if here.event is not None and here.event.scope == BACKWARD and not here.deep:
            self._move(place)
        elif place is not None and place not in self._places:
            self._places[place] = next(self._numbers), name
        with self.within(name, place, operands) as event:
            here.deep = True
            result = run(*operands)
            if type(result) is not np.ndarray:
                jax.block_until_ready(result)
        results = result if primitive.multiple else [result]
        if "view" not in primitive.tags:
            event.cpu_memory_usage = sum(getattr(x, "nbytes", 0) for x in results)
        if self.with_flops:
            event.flops = _flops(primitive, params, operands, results)
        return result


def _flops(primitive: Any, params: Params, operands: Any, results: Any) -> int:
    """Counts as PyTorch does: two for each product of a contraction, one for each element."""
    if "contraction" in primitive.tags:
        types = [tuple(map(type_of, values)) for values in (operands, results)]
        return primitive.cost(*types, params).flops
    return sum(map(np.size, results)) if "elementwise" in primitive.tags else 0


def is_profiling() -> bool:
    """Tells whether somebody is told of what runs: a profile, `emit_nvtx` or `emit_itt`."""
    return observing.by is not None


def run_pending() -> None:
    """Runs what is pending in this thread, so that it counts to where it was written."""
    tape = state.tape
    if tape is not None and tape.steps and not state.stack:
        try:
            tape.flush()
        except Exception:
            # it is raised again where somebody asks for a value that depends on it
            state.tape = None


# ----------------------------------------------------------------------------------------- ranges


class record_function(ContextDecorator):
    """Makes a block, or each call of a function, one event of a profile, by a name.

    What is written in it is run in it. In a function that is traced, where nothing runs, the event
    is the tracing. `args` is a text about it, for the reader of the code.

    Example:
        >>> from ftrans import autograd, tensor
        >>> x = tensor([1.0, 2.0])
        >>> with autograd.profiler.profile() as prof:
        ...     with record_function("double"):
        ...         y = x * 2
        >>> [event.name for event in prof.function_events]
        ['double', 'tensors', 'mul']
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._entered: list[Any] = []

    def _recreate_cm(self) -> record_function:
        return type(self)(self.name, self.args)  # each call of a function has its own

    def __enter__(self) -> record_function:
        by: Any = observing.by
        if by is not None:
            run_pending()
        self._entered.append((by, by and by.begin(self.name, place_here(), (), USER)))
        return self

    def __exit__(self, *error: object) -> None:
        by, event = self._entered.pop()
        if by is not None:
            if error[0] is None:
                run_pending()
            by.end(event)


def backward_pass(function: F) -> F:
    """Makes each call of a function of the engine an event, where there is a profile."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        by: Any = observing.by
        if by is None:
            return function(*args, **kwargs)
        run_pending()
        with by.within("backward", place_here(), (), BACKWARD):
            result = function(*args, **kwargs)
            run_pending()
            return result

    return called  # type: ignore[return-value]
