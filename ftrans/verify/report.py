"""What a verification found: one row per check, and for each failure both values and the cause.

A check of `check_rules` is a generator of cases: what the rule gave, and what it should have given.
`Findings` compares them up to the first that fails; what the user's code raises is a finding too.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import (
    ConcretizationError,
    GradcheckError,
    MissingRuleError,
    RuleError,
    TransposeError,
)
from ftrans.traceback import boundary
from ftrans.verify.coordinates import close, largest, spread, widened
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
    """One check: how many comparisons held and how many did not, and what else is to be known."""

    check: str
    held: int = 0
    failed: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        """Is "ok", "FAILED", or "-" where there was nothing to compare."""
        return "FAILED" if self.failed else "ok" if self.held else "-"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What stands in a table."""
        held = f"{self.held}/{self.held + self.failed}"
        return self.check, self.result, held, "; ".join(self.notes)


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

    @boundary
    def raise_if_failed(self) -> None:
        """Raises where something is wrong, with the whole report as the message.

        Raises:
            GradcheckError: if there are failures.
        """
        if self.failures:
            raise GradcheckError(str(self))

    def __str__(self) -> str:
        width = max((len(row.check) for row in self.rows), default=5)
        lines = [self._title, "", f"  {'check':{width}}  result  held  notes"]
        for check, result, held, notes in (row.cells for row in self.rows):
            lines.append(f"  {check:{width}}  {result:6}  {held:>4}  {notes}".rstrip())
        return "\n".join([*lines, *(f"\n{failure}" for failure in self.failures)])

    __repr__ = __str__

    @property
    def _title(self) -> str:
        count = len(self.failures)
        verdict = "all rules hold" if self.ok else f"{count} failure{'s' * (count != 1)}"
        return f"check_rules({self.name}): {verdict}"

    def _repr_html_(self) -> str:
        def cells(tag: str, texts: Sequence[str]) -> str:
            inner = "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
            return f"<tr>{inner}</tr>"

        head = cells("th", ("check", "result", "held", "notes"))
        rows = "".join(cells("td", row.cells) for row in self.rows)
        failures = "".join(f"<pre>{html.escape(str(failure))}</pre>" for failure in self.failures)
        return f"<p>{html.escape(self._title)}</p><table>{head}{rows}</table>{failures}"


class Case(NamedTuple):
    """Two lists of arrays that are to be the same but for rounding.

    Attributes:
        what: what is compared.
        got: what the rule gave; or a function that returns it, and must not raise.
        expected: what it should have given.
        cause: the likely cause, where the check knows it, or a function of both arrays.
        labels: how the entries are called.
        slack: how much more than rounding is let through.
        exact: whether both were computed in the same way, so that a few last digits count.
        sizes: of what rounding is relative to, where that is not what is expected.
        again: returns what is expected where arguments are moved by their last digits, for some
            numbers; by how much that moves results is let through.
    """

    what: str
    got: Any
    expected: Sequence[Any]
    cause: str | Callable[[Any, Any], str] = ""
    labels: Sequence[str] = ()
    slack: float = 1.0
    exact: bool = False
    sizes: Sequence[np.ndarray] = ()
    again: Callable[[int], Sequence[Any]] | None = None


@dataclass
class Findings:
    """What the checks of one probe record in a report.

    Attributes:
        report: the report.
        sample: how the sample is called in failures.
        probe: what is checked.
        cut: to how many elements axes were cut, if they were: infinite derivatives are let pass,
            and where nothing is left, exceptions out of the user's code are but noted.
    """

    report: Report
    sample: str
    probe: Probe
    cut: int | None = None

    def compare(self, check: str, what: str, cases: Iterable[Case]) -> bool:
        """Compares cases up to the first that fails; tells whether all held.

        Args:
            check: the check.
            what: what is done while cases are made; see `guarded`.
            cases: what is compared; may record other failures itself.
        """
        before = len(self.report.failures)
        with self.guarded(check, what):
            return all(self.same(check, x) for x in cases) and len(self.report.failures) == before
        return False

    def same(self, check: str, case: Case) -> bool:
        """Records whether what a case compares is the same."""
        got: Any = case.got
        if callable(got):
            try:
                got = got()
            except Exception as error:
                what = f"{case.what} raised {type(error).__name__}: {error}"
                self.fail(check, what, cause=str(case.cause))
                return False
        precision = self.probe.precision
        for i, (one, other) in enumerate(zip(got, case.expected, strict=True)):
            size = case.sizes[i] if case.sizes else np.abs(widened(other))
            if case.exact:
                allowed = 100 * precision * (size + 0.1 * largest(size))
            else:
                slack = 2 * case.slack
                allowed = slack * (precision**0.6 * size + precision**0.75 * largest(size))
            if close(one, other, allowed + 100 * self.probe.least):
                continue
            again = case.again
            if again and close(one, other, spread(other, [again(k)[i] for k in range(3)])):
                continue
            one, other = np.asarray(one), np.asarray(other)
            cause = case.cause if isinstance(case.cause, str) else case.cause(one, other)
            what = f"{case.what} ({case.labels[i]})" if case.labels else case.what
            self.fail(check, what, one, other, cause or diagnose(one, other))
            return False
        self.hold(check)
        return True

    def hold(self, check: str) -> None:
        """Counts a comparison that held."""
        self.report.row(check).held += 1

    def fail(
        self, check: str, what: str, got: Any = None, expected: Any = None, cause: str = ""
    ) -> None:
        """Records that something is wrong."""
        self.report.row(check).failed += 1
        self.report.failures.append(Failure(check, self.sample, what, got, expected, cause))

    def note(self, check: str, text: str) -> None:
        """Records what is no failure, once."""
        notes = self.report.row(check).notes
        if text not in notes:
            notes.append(text)

    @contextmanager
    def guarded(self, check: str, what: str, missing: str = "") -> Iterator[None]:
        """Turns exceptions out of the user's code into findings.

        A rule that is missing, and values that are branched on, are noted; all else is a failure
        of `what` was done.
        """
        try:
            yield
        except (MissingRuleError, TransposeError) as error:
            # a rule that raised while it was traced is kept as a missing one
            first = (str(error) or type(error).__name__).splitlines()[0]
            if " raised " in first:
                self.fail(check, f"{what}: {error}", cause=_why(error))
            else:
                modes = {"backward": "no reverse mode", "jvp": "no forward mode"}
                known = [text for mode, text in modes.items() if mode in what]
                self.note(check, missing or (known[0] if known else first))
        except ConcretizationError:
            self.note(check, "not checked: the function branches on values")
        except Exception as error:
            if self.cut == 0 and not isinstance(error, RuleError):
                self.note(check, f"{what} raised {type(error).__name__} for an empty array")
                return
            self.fail(check, f"{what} raised {type(error).__name__}: {error}", cause=_why(error))


def _why(error: Exception) -> str:
    if "read-only" in str(error):
        return "the rule writes to an array that it was given"
    if "NoneType" in str(error):
        return "a cotangent or tangent of None is not treated as zero"
    return ""
