"""Events: what ran when, in which thread and inside of what; averages of them, and lists."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ftrans.autograd.profiler.output import chrome_trace, stacks, table

FUNCTION, BACKWARD, USER = 0, 1, 7
"""PyTorch's numbers for what an event is: an operation, one of a backward pass, a user's range."""


class Interval(NamedTuple):
    """Is a time from `start` to `end`, in microseconds."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Returns its length."""
        return self.end - self.start


class Kernel(NamedTuple):
    """Is what an event ran on a device, and for how many microseconds."""

    name: str
    device: int
    duration: float


class _Average:
    """Has the averages of one event, or of a sum of some."""

    cpu_time = property(lambda e: e.cpu_time_total / e.count if e.count else 0.0)
    device_time = property(lambda e: e.device_time_total / e.count if e.count else 0.0)


@dataclass(eq=False)
class FunctionEvent(_Average):
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
    is_async: bool = False
    node_id: int = -1
    facts: dict[str, Any] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    cpu_parent: FunctionEvent | None = field(default=None, repr=False)
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)

    count = 1
    key = property(lambda e: e.name)
    time_range = property(lambda e: Interval(e.start_us, e.end_us))
    road = property(lambda e: e.facts.get("road", ""))
    cpu_time_total = property(lambda e: e.end_us - e.start_us)
    device_time_total = property(lambda e: sum(kernel.duration for kernel in e.kernels))
    self_device_time_total = device_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """How long it took, without what ran inside of it."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        """The bytes of its own results."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Adds what it ran on a device."""
        self.kernels.append(Kernel(name, device, duration))


_TIMES = ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total")
_SUMS = (*_TIMES, "cpu_memory_usage", "self_cpu_memory_usage", "count", "flops")


class FunctionEventAvg(_Average):
    """Is a sum of events, with their averages; what else it has is that of the first.

    Example:
        >>> average = FunctionEventAvg()
        >>> average.add(FunctionEvent(0, "mul", 0, 10, 15)).add(FunctionEvent(1, "mul", 0, 20, 30))
        <FunctionEventAvg key=mul count=2 cpu_time=7.500us>
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.road = ""
        self.__dict__.update(dict.fromkeys(_SUMS, 0))

    def add(self, other: Any) -> FunctionEventAvg:
        """Adds an event, or a sum of some; returns itself."""
        if self.key is None:
            for name in ("key", "input_shapes", "stack", "scope", "cpu_parent"):
                setattr(self, name, getattr(other, name))
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        roads = {*self.road.split(", "), *other.road.split(", ")} - {""}
        self.road = ", ".join(sorted(roads))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} cpu_time={self.cpu_time:.3f}us>"  # type: ignore[attr-defined]
        )


class EventList(list):
    """Is a list of events, or of averages of them, that prints as a table."""

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of what each took without what ran inside of it, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def _populate_cpu_children(self) -> None:
        """Finds out by the times what ran inside of what, thread by thread."""
        sync = [event for event in self if not event.is_async]
        events = sorted(sync, key=lambda e: (e.thread, e.node_id, e.start_us, -e.end_us))
        for _, together in itertools.groupby(events, key=lambda e: (e.thread, e.node_id)):
            around: list[FunctionEvent] = []
            for event in together:
                while around and not (
                    event.start_us < around[-1].end_us and event.end_us <= around[-1].end_us
                ):
                    around.pop()
                if around:
                    event.cpu_parent = around[-1]
                    around[-1].cpu_children.append(event)
                around.append(event)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Returns averages by name.

        Args:
            group_by_input_shape: whether other shapes are another row.
            group_by_stack_n: whether other lines of the user's are, if it is not 0.
            group_by_overload_name: means nothing: primitives have no overloads.
        """
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shape else []
            stack = event.stack[:group_by_stack_n]
            average = found.setdefault((event.key, str(shapes), *stack), FunctionEventAvg())
            average.add(event).__dict__.update(input_shapes=shapes, stack=stack)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        """Returns the sum of all."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key = "Total"
        return total

    table, export_chrome_trace, export_stacks = table, chrome_trace, stacks
