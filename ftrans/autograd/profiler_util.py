"""The names of `torch.autograd.profiler_util`: events, averages of them, and lists of both."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import json
import os
from bisect import bisect_left, bisect_right
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.traceback import boundary

FUNCTION, BACKWARD, USER = 0, 1, 7
"""PyTorch's numbers for what an event is: an operation, one of a backward pass, a user's range."""

_CPU = ("cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage")
_SUMS = (*_CPU, "count", "device_time_total", "self_device_time_total", "flops")
_SORTABLE = ("cpu_time", *_SUMS, "key")


class Interval(namedtuple("Interval", "start end")):
    """Is a time from `start` to `end`, in microseconds."""

    def elapsed_us(self) -> float:
        """Returns its length."""
        return self.end - self.start


class Kernel(namedtuple("Kernel", "name device duration")):
    """Is what an event ran on a device, and for how many microseconds."""


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
    self_cpu_time_total = property(lambda e: e._own("cpu_time_total"))
    self_cpu_memory_usage = property(lambda e: e._own("cpu_memory_usage"))
    device_time_total = property(lambda e: sum(kernel.duration for kernel in e.kernels))
    self_device_time_total = device_time_total

    def _own(self, name: str) -> Any:
        """Returns a number without that of what ran inside of it."""
        return getattr(self, name) - sum(getattr(child, name) for child in self.cpu_children)

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Adds what it ran on a device."""
        self.kernels.append(Kernel(name, device, duration))


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
        about = f"key={self.key} count={self.count} cpu_time={self.cpu_time:.3f}us"  # type: ignore[attr-defined]
        return f"<FunctionEventAvg {about}>"


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
        threads: dict[Any, list[FunctionEvent]] = defaultdict(list)
        sync = [event for event in self if not event.is_async]
        for event in sorted(sync, key=lambda e: (e.start_us, -e.end_us)):
            around = threads[event.thread, event.node_id]
            while around and (
                event.start_us >= around[-1].end_us or event.end_us > around[-1].end_us
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
        """Returns averages by name: by shapes too, and by so many lines; there are no overloads."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shape else []
            stack = event.stack[:group_by_stack_n]
            average = found.setdefault((event.key, str(shapes), *stack), FunctionEventAvg())
            average.add(event).__dict__.update(input_shapes=shapes, stack=stack)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        """Returns the sum of all."""
        total = functools.reduce(FunctionEventAvg.add, self, FunctionEventAvg())
        total.key = "Total"
        return total

    @boundary
    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """Returns a table with a row for each event, or average of some.

        The largest come first of an attribute, `sort_by`, if there is one; `row_limit` is -1 for
        all, `header` a line above. `top_level_events_only` leaves out what ran inside of others.
        """
        rows = [e for e in self if not top_level_events_only or e.cpu_parent is None]
        if sort_by is not None:
            by = sort_by.replace("cuda", "device")
            if by not in _SORTABLE:
                raise ArgumentError(
                    f"table: events cannot be sorted by {sort_by!r}.\n"
                    f"  Write one of {', '.join(_SORTABLE)}."
                )
            rows.sort(key=lambda e: getattr(e, by), reverse=True)
        rows = rows if row_limit < 0 else rows[:row_limit]
        total = self.self_cpu_time_total

        def share(value: float) -> str:
            return f"{100 * value / total if total else 0:.2f}%"

        columns: dict[str, Callable[[Any], str]] = {
            "Name": lambda e: str(e.key)[:max_name_column_width],
            "Self CPU %": lambda e: share(e.self_cpu_time_total),
            "Self CPU": lambda e: _time(e.self_cpu_time_total),
            "CPU total %": lambda e: share(e.cpu_time_total),
            "CPU total": lambda e: _time(e.cpu_time_total),
            "CPU time avg": lambda e: _time(e.cpu_time),
            "CPU Mem": lambda e: f"{e.cpu_memory_usage:,} B" if e.cpu_memory_usage else "",
            "# of Calls": lambda e: str(e.count),
            "Input Shapes": lambda e: str(e.input_shapes or "")[:max_shapes_column_width],
            "Source Location": lambda e: "; ".join(e.stack)[:max_src_column_width],
            "Total FLOPs": lambda e: f"{e.flops:,}" if e.flops else "",
            "Run": lambda e: e.road,
        }
        shown = []
        for name, cell in columns.items():
            column = [name, *map(cell, rows)]
            if any(column[1:]):
                width = max(map(len, column))
                shown.append([text.rjust(width) for text in column])
        lines = [] if header is None else [header]
        lines += ["  ".join(row) for row in zip(*shown, strict=True)]
        return "\n".join([*lines, f"Self CPU time total: {_time(total)}"])

    def export_chrome_trace(
        self, path: str | os.PathLike[str], metadata: Any = None, use_python_export: bool = False
    ) -> None:
        """Writes the trace-event format, with `metadata`, for Perfetto and chrome://tracing.

        Reference:
            https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
        """
        rows = []
        for e in self:
            about = {"Input Dims": e.input_shapes, "Call stack": "; ".join(e.stack)}
            about |= {"flops": e.flops, "Bytes": e.cpu_memory_usage, **e.facts}
            if e.sequence_nr >= 0:
                about["Sequence number"] = e.sequence_nr
            category = {BACKWARD: "backward", USER: "range"}.get(e.scope, "cpu_op")
            row = {"ph": "X", "name": e.name, "cat": category, "pid": os.getpid(), "tid": e.thread}
            row |= {"ts": e.start_us, "dur": e.cpu_time_total}
            rows.append(row | {"args": {name: x for name, x in about.items() if x != []}})
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": rows, "displayTimeUnit": "ms", **(metadata or {})}, file)

    @boundary
    def export_stacks(
        self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total"
    ) -> None:
        """Writes for each event its line, its name and its time, to draw flame graphs of."""
        if metric != "self_cpu_time_total":
            raise ArgumentError(
                f"export_stacks: metric should be one of: self_cpu_time_total.\n"
                f"  metric: {metric!r}"
            )
        if self and not any(event.stack for event in self):
            raise ArgumentError(
                "export_stacks: no lines were recorded.\n  Write profile(with_stack=True)."
            )
        clean = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                value = int(event.self_cpu_time_total)
                if event.stack and value > 0:
                    frames = [*reversed(event.stack), event.key]
                    file.write(";".join(x.translate(clean) for x in frames) + f" {value}\n")


def _time(value: float) -> str:
    size, unit = (1e6, "s") if value >= 1e6 else (1e3, "ms") if value >= 1e3 else (1, "us")
    return f"{value / size:.3f}{unit}"


# ------------------------------------------------------------------------- apart from a profile


class MemRecordsAcc:
    """Finds records by their time: what `record[0].start_ns()` returns."""

    def __init__(self, mem_records: Sequence[Any]):
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())
        self._starts = [record[0].start_ns() for record in self._records]

    def in_interval(self, start_ns: float, end_ns: float) -> Iterator[Any]:
        """Yields those from one time to another, both included, in order."""
        first, stop = bisect_left(self._starts, start_ns), bisect_right(self._starts, end_ns)
        yield from self._records[first:stop]


class StringTable(defaultdict):
    """Is a dict whose keys stand for themselves, or for what is mangled in them by C++."""

    def __missing__(self, key: str) -> str:
        self[key] = _demangled(key) if key.startswith("_Z") else key
        return self[key]


def _demangled(name: str) -> str:
    """Asks the runtime library of C++, where there is one."""
    path = ctypes.util.find_library("stdc++") or ctypes.util.find_library("c++abi")
    if path is None:
        return name
    demangle = ctypes.CDLL(path).__cxa_demangle
    demangle.restype = ctypes.c_char_p  # a copy is made of it; the original stays
    found = demangle(name.encode(), None, None, None)
    return name if found is None else found.decode()


class EnforceUnique:
    """Raises where a key is seen twice."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    @boundary
    def see(self, *key: Any) -> None:
        """Notes a key; raises an `ArgumentError` where it was seen before."""
        if key in self.seen:
            raise ArgumentError(f"duplicate key: {key}\n  Each is to be seen once.")
        self.seen.add(key)


class KinetoStepTracker:
    """Counts the steps of several requesters: the step is that of the one that is furthest."""

    _current = 0
    _steps: ClassVar[dict[str, int]] = {}

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Has a requester begin at the present step."""
        cls._steps[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forgets a requester; tells whether it was known."""
        return cls._steps.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Counts one more step of a requester, and returns the step."""
        cls._steps[requester] = cls._steps.get(requester, cls._current) + 1
        cls._current = max(cls._current, cls._steps[requester])
        return cls._current

    @classmethod
    def current_step(cls) -> int:
        """Returns the step."""
        return cls._current


@boundary
def parse_nvprof_trace(path: Any) -> Any:
    """Raises an `UnsupportedError`: nvprof knows no GPU that JAX still runs on."""
    raise UnsupportedError(
        f"parse_nvprof_trace: traces of nvprof are not read, nor is a file looked for.\n"
        f"  path: {path!r}\n"
        f"  For what a GPU does, write profile(compiled_trace_dir=...), or emit_nvtx under nsys."
    )
