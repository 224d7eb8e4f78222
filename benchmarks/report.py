"""The results as a table on the screen, as Markdown, and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata

import ftrans
from benchmarks.result import Result
from benchmarks.row import Row

__all__ = ["as_json", "heading", "line", "machine", "markdown", "summary"]

_HOLDS = {True: "yes", False: "no", None: ""}
_CLOSE = "?"
"""Follows the answer where the bound lies between the quartiles."""
_WIDTHS = (14, 26, 21, 38, 15)


def machine() -> dict[str, str]:
    """Returns what the figures depend on: Python, packages, and the kind of machine."""
    found = {"python": platform.python_version(), "system": platform.system()}
    found["ftrans"] = ftrans.__version__
    for package in ("jax", "numpy", "torch", "autograd"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    found["cores"] = str(os.cpu_count())
    found["processor"] = platform.machine()
    return found


def _value(result: Result) -> str:
    if result.value is None:
        return result.note
    shown = f"{_number(result.value)} {result.target.unit}"
    if result.low is not None and result.high is not None:
        shown += f" ({_number(result.low)} to {_number(result.high)})"
    return shown


def _number(value: float) -> str:
    if value == int(value) and value < 1000:
        return str(int(value))
    return f"{value:.3g}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _cells(result: Result) -> Sequence[str]:
    holds = _HOLDS[result.holds] + (_CLOSE if result.is_close else "")
    return result.row, result.case, result.peer, _value(result), str(result.target), holds


def _laid_out(cells: Sequence[str]) -> str:
    *padded, last = cells
    return " ".join(c.ljust(w) for c, w in zip(padded, _WIDTHS, strict=True)) + f" {last}"


def heading() -> str:
    """Returns the head of the table on the screen."""
    return _laid_out(("row", "case", "against", "measured (quartiles)", "target", "holds"))


def line(result: Result) -> str:
    """Returns a result as a line of the table on the screen."""
    return _laid_out(_cells(result)).rstrip()


def markdown(rows: Iterable[Row], results: Sequence[Result]) -> str:
    """Returns the table that the page in the documentation holds."""
    about = {row.name: row.about for row in rows}
    lines = [
        "| row | case | against | measured (quartiles) | target | holds |",
        "|---|---|---|---|---|---|",
    ]
    seen = set()
    for result in results:
        _, *cells = _cells(result)
        first = "" if result.row in seen else f"`{result.row}`: {about[result.row]}"
        seen.add(result.row)
        lines.append("| " + " | ".join([first, *cells]) + " |")
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    """Returns how many targets hold."""
    claims = [result.holds for result in results if result.holds is not None]
    return f"{sum(claims)} of {len(claims)} targets hold."


def as_json(results: Sequence[Result]) -> str:
    """Returns all results, with the versions that they were measured with."""
    listed = [
        {
            "row": r.row,
            "case": r.case,
            "peer": r.peer,
            "unit": r.target.unit,
            "value": r.value,
            "low": r.low,
            "high": r.high,
            "target": str(r.target),
            "holds": r.holds,
            "close": r.is_close,
            "note": r.note,
        }
        for r in results
    ]
    return json.dumps({"machine": machine(), "results": listed}, indent=1)
