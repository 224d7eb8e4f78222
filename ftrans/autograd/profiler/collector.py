"""The collector: is told of everything that runs, in all threads, and makes events of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np

from ftrans.autograd.profiler.events import BACKWARD, FUNCTION, FunctionEvent
from ftrans.errors import UnsupportedError
from ftrans.ir import Location, Params, type_of
from ftrans.ir.stack import state
from ftrans.primitives.observe import observing

_installing = threading.Lock()


class _Here(threading.local):
    """Is where a thread is: in how many equations and backward passes, and in which event.

    In a backward pass there is a group: the place whose equations it is at, and their event.
    """

    deep = backward = 0
    event: Any = None
    group: tuple[Any, Any] = (None, None)


class Collector:
    """Collects events.

    In a backward pass, equations that come from one place are one event, which is named by the
    first primitive that ran forward there, as in "sin_backward".

    Args:
        apart: whether programs are run one equation after the other.
        shapes: whether shapes of operands are recorded.
        stack: whether the user's lines are.
        flops: whether floating-point operations are counted.

    Attributes:
        events: those that are over.
        places: for each place in the user's code its number, and the primitive that names it.
    """

    def __init__(
        self, apart: bool = True, shapes: bool = False, stack: bool = False, flops: bool = False
    ):
        self.apart, self.shapes, self.stack, self.flops = apart, shapes, stack, flops
        self.events: list[FunctionEvent] = []
        self.places: dict[Any, tuple[int, str]] = {}
        self._here = _Here()
        self._ids, self._numbers = itertools.count(), itertools.count()
        self._start = perf_counter_ns()

    def _now(self) -> float:
        return (perf_counter_ns() - self._start) / 1000

    # -------------------------------------------------------------------------------------- events

    def begin(
        self, name: str, place: Location | None = None, operands: Any = (), scope: int = FUNCTION
    ) -> FunctionEvent:
        """Begins an event."""
        event = FunctionEvent(next(self._ids), name, threading.get_native_id(), 0.0, 0.0)
        event.scope = scope or (BACKWARD if self._here.backward else FUNCTION)
        event.sequence_nr = self.places[place][0] if place in self.places else -1
        if self.shapes:
            event.input_shapes = [list(np.shape(x)) for x in operands]
        if self.stack and place is not None:
            event.stack = [f"{place.filename}({place.line}): {place.function}"]
        event.start_us = self._now()
        return event

    def end(self, event: FunctionEvent) -> None:
        """Ends an event."""
        event.end_us = self._now()
        self.events.append(event)

    def drop(self, event: FunctionEvent) -> None:
        """Leaves out an event that has raised."""

    @contextmanager
    def within(self, *about: Any) -> Iterator[FunctionEvent]:
        """Makes the block an event."""
        here = self._here
        event = self.begin(*about)
        outside, here.event, here.group = (here.event, here.group), event, (None, None)
        try:
            yield event
            self._move(None)
        except BaseException:
            for lost in {here.group[1], event} - {None}:
                self.drop(lost)
            raise
        finally:
            here.event, here.group = outside
        self.end(event)

    @contextmanager
    def backward(self, place: Location | None) -> Iterator[None]:
        """Makes the block a backward pass."""
        run_pending()
        self._here.backward += 1
        try:
            with self.within("backward", place):
                yield
                run_pending()
        finally:
            self._here.backward -= 1

    def _move(self, place: Location | None) -> None:
        """Goes on to what comes from another place, in a backward pass."""
        before, event = self._here.group
        if place is before:
            return
        self._here.group = None, None
        if event is not None:
            self.end(event)
        if place in self.places:
            self._here.group = place, self.begin(f"{self.places[place][1]}_backward", place)

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
            if self._here.event is not None and self._here.event.facts:
                self._here.event.facts["road"] = "compiled now"
            made = self.begin("compile")
            made.start_us -= duration_secs * 1e6
            self.end(made)

    def equation(
        self, primitive: Any, params: Params, place: Location | None, run: Any, operands: Any
    ) -> Any:
        """Runs one equation on arrays."""
        here, callee = self._here, params.get("callee")
        name = primitive.name if callee is None else f"{primitive.name}({callee.name})"
        if here.backward and not here.deep:
            self._move(place)
        elif place is not None and place not in self.places:
            self.places[place] = next(self._numbers), name
        event = self.begin(name, place, operands)
        here.deep += 1
        try:
            result = run(*operands)
            if type(result) is not np.ndarray:
                jax.block_until_ready(result)
        except BaseException:
            self.drop(event)
            raise
        finally:
            here.deep -= 1
        self.end(event)
        results = result if primitive.multiple else [result]
        if "view" not in primitive.tags:
            event.cpu_memory_usage = sum(getattr(x, "nbytes", 0) for x in results)
        if self.flops:
            event.flops = _flops(primitive, params, operands, results)
        return result


def _flops(primitive: Any, params: Params, operands: Any, results: Any) -> int:
    """Counts as PyTorch does: two for each product of a contraction, one for each element."""
    if "contraction" in primitive.tags:
        types = [tuple(map(type_of, values)) for values in (operands, results)]
        return primitive.cost(*types, params).flops
    return sum(map(np.size, results)) if "elementwise" in primitive.tags else 0


def install(collector: Collector, what: str) -> None:
    """Has a collector told of what is written from here on.

    Raises:
        UnsupportedError: where there is one.
    """
    run_pending()
    with _installing:
        if observing.by is not None:
            raise UnsupportedError(
                f"{what}: a profile is active already, and they cannot be nested, nor can two "
                f"threads have one each.\n  Write record_function(name) for a part of it."
            )
        observing.by = collector


def remove(collector: Collector, run: bool = True) -> None:
    """Ends that; `run` says whether what is pending is still run for it."""
    if observing.by is collector:
        try:
            if run:
                run_pending()
        finally:
            observing.by = None


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
