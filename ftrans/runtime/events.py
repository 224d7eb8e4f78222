"""Events: what runs while somebody asks for it, in which thread, inside of what, and how long."""

from __future__ import annotations

import itertools
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np

from ftrans.ir import Location, Params, type_of

FUNCTION, BACKWARD, USER = 0, 1, 7
"""PyTorch's numbers for what an event is: an operation, one of a backward pass, a user's range."""


class Interval(namedtuple("Interval", "start end")):
    """Is a time from `start` to `end`, in microseconds."""

    def elapsed_us(self) -> float:
        """Returns its length."""
        return self.end - self.start


def _text(name: str) -> Any:
    """Makes the property that is a time as text."""

    def text(self: Any) -> str:
        """The time as text, with its unit."""
        time = getattr(self, name)
        size, unit = (1e6, "s") if time >= 1e6 else (1e3, "ms") if time >= 1e3 else (1, "us")
        return f"{time / size:.3f}{unit}"

    return property(text)


class OnHost:
    """Has what events and their averages share: times as text, and devices that take none."""

    device_time = device_time_total = self_device_time_total = 0.0  # a device is waited for
    device_memory_usage = self_device_memory_usage = 0
    cpu_time_str, cpu_time_total_str = _text("cpu_time"), _text("cpu_time_total")
    device_time_str, device_time_total_str = _text("device_time"), _text("device_time_total")
    self_cpu_time_total_str = _text("self_cpu_time_total")
    self_device_time_total_str = _text("self_device_time_total")


@dataclass(eq=False)
class FunctionEvent(OnHost):
    """Is one thing that ran: an equation, a program, a range. Times are in microseconds.

    Attributes:
        name: of an equation its primitive, of a program the transform and function.
        input_shapes: the shapes of operands, where they were recorded.
        stack: the line of the user's that it comes from, where that was recorded.
        scope: 0 for what runs, 1 for what runs in a backward pass, 7 for a user's range.
        sequence_nr: is shared by what comes from one place of the user's code, forward and back.
        cpu_memory_usage: the bytes of results, views aside, with those of what ran inside of it.
        flops: floating-point operations, where they were counted.
        facts: of a program, how it was run: its road, as `explain` has it, and why.
    """

    id: int
    name: str
    thread: int
    start_us: float
    end_us: float
    input_shapes: list[Any] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    scope: int = FUNCTION
    sequence_nr: int = -1
    cpu_memory_usage: int = 0
    flops: int = 0
    node_id: int = -1
    facts: dict[str, Any] = field(default_factory=dict)
    cpu_parent: FunctionEvent | None = field(default=None, repr=False)
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)

    count = 1
    key = property(lambda e: e.name)
    time_range = property(lambda e: Interval(e.start_us, e.end_us))
    road = property(lambda e: e.facts.get("road", ""))
    cpu_time = cpu_time_total = property(lambda e: e.end_us - e.start_us)
    self_cpu_time_total = property(lambda e: e._own("cpu_time_total"))
    self_cpu_memory_usage = property(lambda e: e._own("cpu_memory_usage"))

    def _own(self, name: str) -> Any:
        """Returns a number without that of what ran inside of it."""
        return getattr(self, name) - sum(getattr(child, name) for child in self.cpu_children)


class _Here(threading.local):
    """Is where a thread is: in which event, whether that is in an equation, and in which group.

    In a backward pass that is the place whose equations it is at, and their event.
    """

    event: Any = None
    deep = False
    group: tuple[Any, Any] = (None, None)


class Collector:
    """Makes events of what it is told of; those that are over are in `events`.

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

    # -------------------------------------------------------------------------------------- events

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
        event.start_us = (perf_counter_ns() - self._start) / 1000
        return event

    def end(self, event: FunctionEvent, failed: bool = False) -> None:
        """Ends an event, which is left out where it has raised."""
        event.end_us = (perf_counter_ns() - self._start) / 1000
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

    def compiled(self, event: str, duration_secs: float, **_: Any) -> None:
        """Is told by JAX how long something took."""
        if event.endswith("backend_compile_duration"):
            around = self._here.event
            if around is not None and around.facts:
                around.facts["road"] = "compiled now"
            made = self.begin("compile")
            made.start_us -= duration_secs * 1e6
            self.end(made)


def _flops(primitive: Any, params: Params, operands: Any, results: Any) -> int:
    """Counts as PyTorch does: two for each product of a contraction, one for each element."""
    if "contraction" in primitive.tags:
        types = [tuple(map(type_of, values)) for values in (operands, results)]
        return primitive.cost(*types, params).flops
    return sum(map(np.size, results)) if "elementwise" in primitive.tags else 0
