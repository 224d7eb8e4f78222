"""What events are written out as: a table, a trace for Perfetto, stacks for flame graphs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from ftrans.errors import ArgumentError
from ftrans.traceback import boundary

_KEYS = "cpu_time cpu_time_total self_cpu_time_total cpu_memory_usage self_cpu_memory_usage count"
_SORTABLE = (*_KEYS.split(), "device_time_total", "self_device_time_total", "flops", "key")


def _time(value: float) -> str:
    size, unit = (1e6, "s") if value >= 1e6 else (1e3, "ms") if value >= 1e3 else (1, "us")
    return f"{value / size:.3f}{unit}"


@boundary
def table(
    events: Any,
    sort_by: str | None = None,
    row_limit: int = 100,
    max_src_column_width: int = 75,
    max_name_column_width: int = 55,
    max_shapes_column_width: int = 80,
    header: str | None = None,
    top_level_events_only: bool = False,
) -> str:
    """Returns a table with a row for each event, or average of some.

    Args:
        events: the list of them.
        sort_by: the attribute that the largest come first of; None keeps the order.
        row_limit: how many rows, at most; -1 for all.
        max_src_column_width: how wide lines of source are, at most.
        max_name_column_width: how wide names are.
        max_shapes_column_width: how wide shapes are.
        header: a line above.
        top_level_events_only: whether what ran inside of something else is left out.

    Raises:
        ArgumentError: where events have no such attribute to be sorted by.
    """
    by = None if sort_by is None else sort_by.replace("cuda", "device")
    if by is not None and by not in _SORTABLE:
        raise ArgumentError(
            f"table: events cannot be sorted by {sort_by!r}.\n"
            f"  Write one of {', '.join(_SORTABLE)}."
        )
    rows = [e for e in events if not top_level_events_only or e.cpu_parent is None]
    if by is not None:
        rows.sort(key=lambda e: getattr(e, by), reverse=True)
    rows = rows if row_limit < 0 else rows[:row_limit]
    total = events.self_cpu_time_total

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
    shown = [[name, *map(cell, rows)] for name, cell in columns.items()]
    shown = [column for column in shown if any(column[1:])]
    widths = [max(map(len, column)) for column in shown]
    lines = [
        "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True))
        for row in zip(*shown, strict=True)
    ]
    above = [] if header is None else [header]
    return "\n".join([*above, *lines, f"Self CPU time total: {_time(total)}"])


def chrome_trace(
    events: Any, path: str | os.PathLike[str], metadata: Any = None, use_python_export: bool = False
) -> None:
    """Writes the events in the trace-event format, which Perfetto and chrome://tracing open.

    Args:
        events: the list of them.
        path: the file.
        metadata: what else is to be in it, a dict for JSON.
        use_python_export: means nothing: there is one way to write it.

    Reference:
        https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    process = os.getpid()
    rows = []
    for e in events:
        about = {"Input Dims": e.input_shapes, "Call stack": "; ".join(e.stack), "flops": e.flops}
        about |= {"Bytes": e.cpu_memory_usage, **e.facts}
        if e.sequence_nr >= 0:
            about["Sequence number"] = e.sequence_nr
        row = {"ph": "X", "name": e.name, "cat": {1: "backward", 7: "range"}.get(e.scope, "cpu_op")}
        row |= {"pid": process, "tid": e.thread, "ts": e.start_us, "dur": e.cpu_time_total}
        rows.append(row | {"args": {name: value for name, value in about.items() if value != []}})
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": rows, "displayTimeUnit": "ms", **(metadata or {})}, file)


@boundary
def stacks(events: Any, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
    """Writes for each event its line, its name and a number, of which flame graphs are drawn.

    Args:
        events: the list of them, recorded with `with_stack=True`.
        path: the file.
        metric: the number, "self_cpu_time_total".

    Raises:
        ArgumentError: for any other number, and where no lines were recorded.
    """
    if metric != "self_cpu_time_total":
        raise ArgumentError(
            f"export_stacks: metric should be one of: self_cpu_time_total.\n  metric: {metric!r}"
        )
    if events and not any(event.stack for event in events):
        raise ArgumentError(
            "export_stacks: no lines were recorded.\n  Write profile(with_stack=True)."
        )
    clean = str.maketrans(" ;\t\n", "____")
    with open(path, "w", encoding="utf-8") as file:
        for event in events:
            value = int(event.self_cpu_time_total)
            if event.stack and value > 0:
                frames = [*reversed(event.stack), event.key]
                file.write(";".join(x.translate(clean) for x in frames) + f" {value}\n")
