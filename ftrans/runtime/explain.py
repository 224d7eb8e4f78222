"""What became of recent calls: `explain`.

Each run appends one tuple to a ring; words are found for it only when it is looked at.
"""

from __future__ import annotations

import html
import threading
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from ftrans.errors import ArgumentError
from ftrans.ir.stack import state

_KEPT = 256


class Why(Enum):
    """Gives the reason for the road that a run took, with the words for it."""

    PINNED = "config.execution says so"
    COLD = "compiling would have saved {} so far, of {} that it costs"
    NO_GAIN = "a compiled call would take as long"
    FAILED = "XLA could not compile it"
    SLOWER = "compiled calls took longer"
    WAITING = "it is being compiled in the background"
    HOT = "it was compiled before"
    PAYS = "it would have saved {}, of {} that compiling costs"
    DEVICE = "its arrays lie on an accelerator"
    SPREAD = "its arrays lie on several devices"
    OBSERVED = "a profile times every equation"
    FORKED = "it is in a fork of a process that has used XLA, which would wait for its threads"
    MAPPED = "JAX maps an axis that it goes over"


class Call(NamedTuple):
    """Says what became of one call.

    Attributes:
        call: the name of the program, as in "grad(loss)".
        traced: the seconds that tracing and transforming took; None where nothing was traced.
        hit: whether the program had been run before.
        road: "interpreted", "compiled now", or "compiled" by an earlier call.
        reason: why it went that road.
        seconds: how long the run took, compiling included; what JAX computes asynchronously is
            not waited for.
        python: "skipped" where the function was not run, since it is proven to do what it did;
            else why that is not known, as in "reads `table`"; empty where nothing was asked.
        folded: what repeats in the function, and was folded when it was traced, with the first line
            of the first copy: "99 x 4 equations at model.py:12".
    """

    call: str
    traced: float | None
    hit: bool
    road: str
    reason: str
    seconds: float
    python: str = ""
    folded: tuple[str, ...] = ()


SKIPPED = "skipped"

_ring: deque[tuple] = deque(maxlen=_KEPT)


class _Pending(threading.local):
    trace: float | None = None
    python = ""
    folds: tuple[Any, ...] = ()


_pending = _Pending()


def note_trace(seconds: float | None, folds: tuple[Any, ...] = ()) -> None:
    """Tells how long it took to trace, and to make the program that this thread runs next.

    Args:
        seconds: how long; None stands for a program that was not traced for this run.
        folds: what was folded in it, each of the kind `Fold`.
    """
    _pending.trace, _pending.folds = seconds, folds


def note_skipped() -> None:
    """Tells that no function is run for the program that this thread runs next, and none traced."""
    _pending.trace, _pending.folds, _pending.python = None, (), SKIPPED


def note_python(what: str) -> None:
    """Tells what is known of the function that this thread runs next: see `Call.python`."""
    _pending.python = what


def record(
    name: str, hit: bool, road: str, why: Why, spent: float, price: float, seconds: float
) -> tuple:
    """Remembers one run, and returns what `call_of` takes."""
    trace = _pending.trace
    if trace is not None:
        _pending.trace = None
    python = "" if state.stack else _pending.python  # not a value that is asked for on the way
    if python:
        _pending.python = ""
    folds = () if trace is None else _pending.folds
    row = (name, trace, hit, road, why, spent, price, seconds, python, folds)
    _ring.append(row)
    return row


def call_of(row: tuple) -> Call:
    """Returns what is told of a run that was remembered."""
    name, traced, hit, road, why, spent, price, seconds, python, folds = row
    reason = why.value.format(duration(spent), duration(price))
    return Call(name, traced, hit, road, reason, seconds, python, tuple(map(str, folds)))


class Explanation(tuple[Call, ...]):
    """Is a sequence of `Call` tuples that prints as a table, the latest call last."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Explanation(found) if isinstance(index, slice) else found

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                call.call,
                _traced(call),
                "hit" if call.hit else "new",
                "; folded ".join([f"{call.road}: {call.reason}", *call.folded]),
                duration(call.seconds),
            )
            for call in self
        ]

    def __str__(self) -> str:
        if not self:
            return "No calls yet."
        rows = [_HEADER, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
        lines = []
        for row in rows:
            cells = [
                cell.rjust(width) if i in _NUMBERS else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(line("td", row) for row in self._rows())
        return f"<table><thead>{line('th', _HEADER)}</thead><tbody>{body}</tbody></table>"


def _traced(call: Call) -> str:
    if call.python == SKIPPED:
        return SKIPPED
    return "-" if call.traced is None else duration(call.traced)


_HEADER = ("call", "traced", "program", "road", "run")
_NUMBERS = (1, 4)


def duration(seconds: float) -> str:
    """Returns a length of time as people read it.

    Example:
        >>> duration(0.00034), duration(0.15), duration(2)
        ('340 µs', '150 ms', '2 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def explain(last: int = 20) -> Explanation:
    """Tells for the most recent calls what was traced, interpreted or compiled, and why.

    Args:
        last: how many calls, at most 256, which are all that are remembered.

    Returns:
        A sequence of `Call` tuples, the latest last, that prints as a table.

    Raises:
        ArgumentError: where `last` is negative.

    Example:
        >>> import ftrans, numpy as np
        >>> def loss(x):
        ...     return (x * x).sum()
        >>> for _ in range(2):
        ...     _ = ftrans.grad(loss)(np.ones(3))
        >>> [(c.call, c.hit, c.road) for c in ftrans.explain(last=2)]
        [('grad(loss)', False, 'interpreted'), ('grad(loss)', True, 'interpreted')]
        >>> print(ftrans.explain(last=1))
        call        traced  program  road ...
        grad(loss)  ...     hit      interpreted: a compiled call would take as long ...
    """
    if last < 0:
        raise ArgumentError(
            f"explain: there are no fewer than zero calls.\n  last: {last}\n"
            f"  Pass how many of the latest calls to show, as in explain(last=20)."
        )
    return Explanation(map(call_of, list(_ring)[-last:] if last else []))
