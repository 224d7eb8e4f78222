"""What a verification found: one row per check, and for each failure both values and the cause."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ftrans.errors import GradcheckError
from ftrans.traceback import boundary

__all__ = ["Failure", "Report", "Row"]


@dataclass(frozen=True)
class Failure:
    """Is one thing that is wrong.

    Attributes:
        check: the check that found it.
        sample: which sample, and what was made of it.
        what: what was compared, or what went wrong.
        got: what the rule gave, or None.
        expected: what it should have given, or None.
        cause: the likely cause, or "".
    """

    check: str
    sample: str
    what: str
    got: Any = None
    expected: Any = None
    cause: str = ""

    def because(self, cause: str) -> Failure:
        """Returns the same failure with another likely cause."""
        return replace(self, cause=cause)

    def __str__(self) -> str:
        lines = [f"{self.check}: {self.what}", f"  sample: {self.sample}"]
        if self.got is not None or self.expected is not None:
            lines += [f"  got: {_shown(self.got)}", f"  expected: {_shown(self.expected)}"]
        if self.cause:
            lines.append(f"  likely cause: {self.cause}")
        return "\n".join(lines)


def _shown(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)
    text = np.array2string(value, precision=6, threshold=12, edgeitems=3, separator=", ")
    return " ".join(text.split())


@dataclass
class Row:
    """Is one check: how often it held, and what it has to say.

    Attributes:
        check: its name.
        held: how many comparisons held.
        failed: how many did not.
        notes: why something was not checked, and what is no failure but worth knowing.
    """

    check: str
    held: int = 0
    failed: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        """Is "ok", "FAILED", or "-" where there was nothing to compare."""
        return "FAILED" if self.failed else "ok" if self.held else "-"


class Report:
    """Is what `check_rules` found; it is true where all is right, and prints as a table.

    Attributes:
        name: the function that was checked.
        rows: one per check.
        failures: all that is wrong.
    """

    def __init__(self, name: str):
        self.name = name
        self.rows: list[Row] = []
        self.failures: list[Failure] = []

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Failure]:
        return iter(self.failures)

    def row(self, check: str) -> Row:
        """Returns the row of a check, a new one where there is none yet."""
        for row in self.rows:
            if row.check == check:
                return row
        self.rows.append(Row(check))
        return self.rows[-1]

    def hold(self, check: str) -> None:
        """Counts a comparison that held."""
        self.row(check).held += 1

    def fail(self, failure: Failure) -> None:
        """Adds what is wrong."""
        self.row(failure.check).failed += 1
        self.failures.append(failure)

    def note(self, check: str, text: str) -> None:
        """Adds what is no failure, once."""
        notes = self.row(check).notes
        if text not in notes:
            notes.append(text)

    @boundary
    def raise_if_failed(self) -> None:
        """Raises where something is wrong, with the whole report as the message.

        Raises:
            GradcheckError: if there are failures.
        """
        if self.failures:
            raise GradcheckError(str(self))

    def __str__(self) -> str:
        count = len(self.failures)
        verdict = "all rules hold" if self.ok else f"{count} failure{'s' * (count != 1)}"
        lines = [f"check_rules({self.name}): {verdict}", ""]
        width = max((len(row.check) for row in self.rows), default=5)
        lines.append(f"  {'check':{width}}  result  held  notes")
        for row in self.rows:
            notes = "; ".join(row.notes)
            held = f"{row.held}/{row.held + row.failed}"
            lines.append(f"  {row.check:{width}}  {row.result:6}  {held:>4}  {notes}".rstrip())
        for failure in self.failures:
            lines += ["", *str(failure).splitlines()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def cells(tag: str, *texts: str) -> str:
            return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)

        texts = [
            (r.check, r.result, f"{r.held}/{r.held + r.failed}", "; ".join(r.notes))
            for r in self.rows
        ]
        rows = "".join(f"<tr>{cells('td', *text)}</tr>" for text in texts)
        failures = "".join(f"<pre>{html.escape(str(failure))}</pre>" for failure in self.failures)
        title = html.escape(str(self).splitlines()[0])
        head = cells("th", "check", "result", "held", "notes")
        return f"<p>{title}</p><table><tr>{head}</tr>{rows}</table>{failures}"
