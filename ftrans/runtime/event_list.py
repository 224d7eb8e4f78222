"""Averages of events, and lists of both, which print as tables and are written to files."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ftrans.errors import ArgumentError
from ftrans.runtime.events import BACKWARD, USER, FunctionEvent, OnHost
from ftrans.runtime.explain import duration
from ftrans.traceback import boundary

_TIMES = ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total")
_SUMS = (*_TIMES, "cpu_memory_usage", "self_cpu_memory_usage", "count", "flops")
_SORTABLE = ("cpu_time", *_SUMS, "key")


class FunctionEventAvg(OnHost):
    """Is a sum of events of one name, with their averages; all else is that of the first.

    Example:
        >>> average = FunctionEventAvg()
        >>> average.add(FunctionEvent(0, "mul", 0, 10, 15)).add(FunctionEvent(1, "mul", 0, 20, 30))
        <FunctionEventAvg key=mul count=2 cpu_time=7.500us>
    """

    key: str | None = None
    road = ""
    count = flops = cpu_memory_usage = self_cpu_memory_usage = 0
    cpu_time_total = self_cpu_time_total = 0.0
    cpu_time = property(lambda e: e.cpu_time_total / e.count if e.count else 0.0)

    def add(self, other: Any) -> FunctionEventAvg:
        """Adds an event, or a sum of some; returns itself.

        Raises:
            ArgumentError: where it has another name.
        """
        if self.key is None:
            for name in ("key", "input_shapes", "stack", "scope", "cpu_parent", "cpu_children"):
                setattr(self, name, getattr(other, name))
        if other.key != self.key:
            raise ArgumentError(
                f"FunctionEventAvg.add: it is of events of another name.\n"
                f"  names: {self.key!r}, {other.key!r}\n  Write EventList(events).total_average()."
            )
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        roads = {*self.road.split(", "), *other.road.split(", ")} - {""}
        self.road = ", ".join(sorted(roads))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        about = f"key={self.key} count={self.count} cpu_time={self.cpu_time_str}"
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
        """Finds out by the times what ran inside of what, thread by thread; counts its memory."""
        threads: dict[Any, list[FunctionEvent]] = defaultdict(list)
        for event in sorted(self, key=lambda e: (e.start_us, -e.end_us)):
            around = threads[event.thread]
            while around and event.end_us > around[-1].end_us:
                around.pop()
            if around:
                event.cpu_parent = around[-1]
                around[-1].cpu_children.append(event)
            for outer in around:
                outer.cpu_memory_usage += event.cpu_memory_usage
            around.append(event)

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Returns averages by name: by shapes too, and by so many lines; there are no overloads."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else []
            stack = event.stack[:group_by_stack_n]
            average = found.setdefault((event.key, str(shapes), *stack), FunctionEventAvg())
            average.add(event).__dict__.update(input_shapes=shapes, stack=stack)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        """Returns the sum of all."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event).key = None
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
        percent = 100 / total if total else 0.0
        columns: dict[str, Callable[[Any], str]] = {
            "Name": lambda e: str(e.key)[:max_name_column_width],
            "Self CPU %": lambda e: f"{percent * e.self_cpu_time_total:.2f}%",
            "Self CPU": lambda e: duration(e.self_cpu_time_total / 1e6),
            "CPU total %": lambda e: f"{percent * e.cpu_time_total:.2f}%",
            "CPU total": lambda e: duration(e.cpu_time_total / 1e6),
            "CPU time avg": lambda e: duration(e.cpu_time / 1e6),
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
        return "\n".join([*lines, f"Self CPU time total: {duration(total / 1e6)}"])

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
            rows.append(row | {"ts": e.start_us, "dur": e.cpu_time_total, "args": about})
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


_NVPROF = (
    "nvprof knows no GPU that JAX runs on. For what one does, write "
    "profile(compiled_trace_dir=...), or emit_nvtx() under nsys."
)
DECLINED = {
    "EnforceUnique": "Keep what was seen in a set: if key in seen.",
    "Kernel": "What a device runs is waited for: its time is that of the event itself.",
    "KinetoStepTracker": "Count steps with itertools.count().",
    "MemRecordsAcc": "Sort records by their time, and write bisect.bisect_left(times, start).",
    "StringTable": "Names are as they are written: there are no mangled ones of C++.",
    "load_nvprof": _NVPROF,
    "parse_nvprof_trace": _NVPROF,
}
"""What to write for names of PyTorch's that are not there."""
