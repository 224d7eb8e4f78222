"""What reverse mode keeps between forward and backward, as a table by the user's lines."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ftrans.interpreters import inline, linearize, simplify
from ftrans.ir import ArrayType, Equation, Location, Program
from ftrans.primitives import scan_p


class Residual(NamedTuple):
    """Is one value that is kept.

    Attributes:
        name: of an argument, or of what the line assigns to, else what computes it; "slope" is
            the derivative of a chain of elementwise operations.
        type: its type.
        nbytes: its size.
        line: the user's line that computes it; None for an argument, or what is closed over.
        why: what needs it, by the operations whose derivatives do, and their lines.
    """

    name: str
    type: ArrayType
    nbytes: int
    line: Location | None
    why: str


class Residuals(tuple[Residual, ...]):
    """Is what reverse mode keeps, the largest first; prints as a table."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The bytes of all."""
        return sum(row.nbytes for row in self)

    def _rows(self) -> list[tuple[str, ...]]:
        def where(row: Residual) -> str:
            if row.line is None:
                return "argument or captured"
            source = textwrap.shorten(row.line.source, 60)
            return f"{row.line}: {source}" if source else str(row.line)

        rows = [(size(r.nbytes), r.name, str(r.type), where(r), r.why) for r in self]
        return [*rows, (size(self.nbytes), "total", "", "", "")]

    def __str__(self) -> str:
        rows = [_HEADER, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(line("td", row) for row in self._rows())
        return f"<table><thead>{line('th', _HEADER)}</thead><tbody>{body}</tbody></table>"


_HEADER = ("bytes", "name", "type", "made at", "needed by")


def size(nbytes: float) -> str:
    """Returns a number of bytes as people read it.

    Example:
        >>> size(40), size(2_500), size(3.2e9)
        ('40 B', '2.5 kB', '3.2 GB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"


def kept(program: Program, active: tuple[bool, ...], names: Iterable[str] = ()) -> Residuals:
    """Returns what reverse mode keeps of a program.

    Args:
        program: any program.
        active: for each input whether it is differentiated by.
        names: those of the first inputs.
    """
    part = linearize(program, active)
    forward, linear = part.forward, part.linear
    labels = dict(enumerate(names))
    made = _makers(forward)
    operations: dict[Any, list[Any]] = {}
    for equation, place in _equations(simplify(inline(program))):
        operations.setdefault(place, []).append(equation.primitive)
    users = _users(linear)
    start = len(linear.inputs) - (len(forward.outputs) - len(part.active))
    rows: dict[Any, Residual] = {}
    for number, atom in enumerate(forward.outputs[len(part.active) :], start):
        if type(atom) is not int:
            continue
        t = forward.types[atom].update()
        if atom < len(forward.inputs):
            name, place = labels.get(atom, "captured"), None
        else:
            equation, place = made[atom]
            assigned = _ASSIGNS.match(place.source) if place else None
            name = assigned[1] if assigned else equation.primitive.name
            if equation.primitive not in operations.get(place, ()):
                name = "slope"  # computed for derivatives alone: that of a chain of operations
        why = ", ".join(
            dict.fromkeys([_needed(e, at, operations.get(at, [])) for e, at in users[number]])
        )
        rows.setdefault(atom, Residual(name, t, t.nbytes, place, why))
    return Residuals(sorted(rows.values(), key=lambda row: -row.nbytes))


_ASSIGNS = re.compile(r"(\w+)\s*(?::[^=]+)?=[^=]")


def _equations(program: Program) -> Iterator[tuple[Equation, Location | None]]:
    for equation, _, place in program.numbered():
        yield equation, place
        for inner in equation.params.programs():
            yield from _equations(inner)


def _makers(program: Program) -> dict[Any, tuple[Equation, Location | None]]:
    """Returns what makes each value, of a loop or a `checkpoint` what does inside."""
    made: dict[Any, tuple[Equation, Location | None]] = {}
    for equation, numbers, place in program.numbered():
        within, atoms = made, numbers
        if "view" in equation.primitive.tags:
            atoms = equation.operands[:1]
        for inner in [p for p in equation.params.programs() if len(p.outputs) == len(numbers)][:1]:
            within, atoms = _makers(inner), inner.outputs
            if equation.primitive is scan_p:
                atoms = [_carried(a, inner, equation.params) for a in atoms]
        made |= {n: within.get(a, (equation, place)) for n, a in zip(numbers, atoms, strict=True)}
    return made


def _carried(atom: Any, body: Program, params: Any) -> Any:
    """Returns what a step gives for what it was given, where that is carried."""
    first, seen = params["consts"], set[Any]()
    while type(atom) is int and first <= atom < first + params["carry"] and atom not in seen:
        seen.add(atom)
        atom = body.outputs[atom - first]
    return atom


def _users(linear: Program) -> list[list[Any]]:
    """Returns for each value of a linear program what takes it, or a view of it."""
    users: list[list[Any]] = [[] for _ in linear.types]
    for equation, numbers, place in reversed(list(linear.numbered())):
        shows = len(equation.operands) == 1 and equation.primitive.tags & {"view", "broadcast"}
        for atom in equation.operands:
            if type(atom) is int:
                users[atom] += users[numbers[0]] if shows else [(equation, place)]
    return users


def _needed(equation: Any, place: Location | None, operations: Sequence[Any]) -> str:
    names = "/".join([p.name for p in dict.fromkeys(operations or [equation.primitive])])
    return f"{names} at line {place.line}" if place else names
