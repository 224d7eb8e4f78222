"""What a verification found: one row per check, and for each failure both values and the cause.

A check of `check_rules` is a function of a probe and of `Findings`: it compares by `same`, which
records what it found, and raises nothing. What the user's code raises is a finding by `guarded`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ftrans.errors import (
    ConcretizationError,
    GradcheckError,
    MissingRuleError,
    RuleError,
    TransposeError,
)
from ftrans.traceback import boundary
from ftrans.verify.coordinates import host
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.probe import Probe


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong.

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
    """One check: how often it held, and what it has to say.

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
    """What `check_rules` found; it is true where all is right, and prints as a table.

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


class Findings:
    """What the checks of one probe record in a report.

    Args:
        report: the report.
        sample: how the sample is called in failures.
        probe: what is checked.

    Attributes:
        lenient: whether exceptions out of the user's code are but noted.
        derived: whether its arrays have lost elements, so that infinite derivatives are let pass.
    """

    def __init__(self, report: Report, sample: str, probe: Probe):
        self.report = report
        self.sample = sample
        self.probe = probe
        self.lenient = self.derived = False

    def same(
        self,
        check: str,
        what: str,
        got: Sequence[Any],
        expected: Sequence[Any],
        labels: Sequence[str] = (),
        slack: float = 1.0,
        cause: str | Callable[[Any, Any], str] = "",
        again: Callable[[int], Sequence[Any]] | None = None,
        exact: bool = False,
    ) -> bool:
        """Records whether two lists of arrays are the same but for rounding.

        Args:
            check: the check.
            what: what is compared.
            got: what the rule gave.
            expected: what it should have given.
            labels: how the entries are called.
            slack: how much more than rounding is let through.
            cause: the likely cause, where the check knows it, or a function of both arrays.
            again: returns what is expected where arguments are moved by their last digits, for
                some numbers; by how much that moves results is let through.
            exact: whether both were computed in the same way, so that a few last digits count.
        """
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            one, other = host(one), host(other)
            if _agree(one, other, self.probe.precision, self.probe.least, slack, exact):
                continue
            if again is None or not _within(one, other, [host(again(k)[i]) for k in range(3)]):
                label = f" ({labels[i]})" if labels else ""
                known = cause if isinstance(cause, str) else cause(one, other)
                self.fail(check, f"{what}{label}", one, other, known or diagnose(one, other))
                return False
        self.report.hold(check)
        return True

    def fail(
        self, check: str, what: str, got: Any = None, expected: Any = None, cause: str = ""
    ) -> None:
        """Records that something is wrong."""
        self.report.fail(Failure(check, self.sample, what, got, expected, cause))

    def note(self, check: str, text: str) -> None:
        """Records what is no failure."""
        self.report.note(check, text)

    @contextmanager
    def guarded(self, check: str, what: str, missing: str = "") -> Iterator[None]:
        """Turns exceptions out of the user's code into findings.

        A rule that is missing, and values that are branched on, are noted; all else is a failure.

        Args:
            check: the check.
            what: what is being done, for the failure.
            missing: what to note where a rule is missing.
        """
        try:
            with np.errstate(all="ignore"):
                yield
        except (MissingRuleError, TransposeError) as error:
            # a rule that raised while it was traced is kept as a missing one
            first = (str(error) or type(error).__name__).splitlines()[0]
            if " raised " in first:
                self.fail(check, f"{what}: {error}", cause=_why(error))
            else:
                self.note(check, missing or first)
        except ConcretizationError:
            self.note(check, "not checked: the function branches on values")
        except Exception as error:
            if self.lenient and not isinstance(error, RuleError):
                self.note(check, f"{what} raised {type(error).__name__} for an empty array")
                return
            self.fail(check, f"{what} raised {type(error).__name__}: {error}", cause=_why(error))


Check = Callable[[Probe, Findings], None]
"""Looks at one probe and records what it finds."""


def _why(error: Exception) -> str:
    if "read-only" in str(error):
        return "the rule writes to an array that it was given"
    if "NoneType" in str(error):
        return "a cotangent or tangent of None is not treated as zero"
    return ""


def _within(one: np.ndarray, other: np.ndarray, moved: Sequence[np.ndarray]) -> bool:
    """Tells whether two arrays differ by no more than what the last digits of arguments do."""
    if one.shape != other.shape or any(m.shape != other.shape for m in moved):
        return False
    one, other = one.astype(np.complex128), other.astype(np.complex128)
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(m.astype(np.complex128) - other) for m in moved], axis=0)
        return bool((np.abs(one - other) <= 30 * spread + 3 * np.max(spread, initial=0.0)).all())


def _agree(
    one: np.ndarray, other: np.ndarray, precision: float, least: float, slack: float, exact: bool
) -> bool:
    """Tells whether two arrays are the same but for rounding, element by element and as a whole."""
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "biu" and other.dtype.kind in "biu":
        return bool((one == other).all())
    wide = np.complex128 if "c" in (one.dtype.kind, other.dtype.kind) else np.float64
    one, other = one.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        finite = np.isfinite(one) & np.isfinite(other)
        size = np.max(np.abs(other), initial=0.0, where=finite)
        if exact:
            allowed = 100 * precision * (np.abs(other) + 0.1 * size)
        else:
            allowed = slack * (2 * precision**0.6 * np.abs(other) + 2 * precision**0.75 * size)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        same |= finite & (np.abs(one - other) <= allowed + 100 * least)
    return bool(same.all())
