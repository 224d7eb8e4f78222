"""Programs as pictures: a graph in the language of Graphviz, and one in SVG that needs nothing."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from ftrans.ir.types import Literal

if TYPE_CHECKING:
    from ftrans.ir.program import Program


class _Box(NamedTuple):
    """Is an input, an equation or an output.

    Attributes:
        label: what stands in it.
        about: its types, and where it was recorded.
        row: how many boxes lie above it, at most.
        sources: for each operand the box that it comes from, and its type.
    """

    label: str
    about: str
    row: int
    sources: tuple[tuple[int, str], ...]


def _boxes(program: Program) -> list[_Box]:
    boxes = [_Box(f"input {i}", str(t), 0, ()) for i, t in enumerate(program.inputs)]
    origin = list(range(len(boxes)))  # for each value the box that it comes from
    for equation, _, location in program.numbered():
        taken = [a for a in equation.operands if not isinstance(a, Literal)]
        sources = tuple([(origin[a], str(program.types[a])) for a in taken])
        row = 1 + max([boxes[source].row for source, _ in sources], default=0)
        inner = [sub.name for sub in equation.params.programs()]
        label = equation.primitive.name + (f": {', '.join(inner)}" if inner else "")
        results = ", ".join(map(str, equation.types))
        about = results if location is None else f"{results}\n{location}\n{location.source}"
        origin += [len(boxes)] * len(equation.types)
        boxes.append(_Box(label, about, row, sources))
    last = 1 + max([box.row for box in boxes], default=0)
    for i, atom in enumerate(program.outputs):
        t = str(program.type_of(atom))
        sources = () if isinstance(atom, Literal) else ((origin[atom], t),)
        boxes.append(_Box(f"output {i}", t, last, sources))
    return boxes


def to_dot(program: Program) -> str:
    """Returns the program as a graph in the language of Graphviz, for `dot -Tsvg`."""
    lines = [f"digraph {_quoted(program.name)} {{", "  node [shape=box, fontname=monospace];"]
    for i, box in enumerate(_boxes(program)):
        shape = "" if box.label.split()[0] not in ("input", "output") else ", shape=ellipse"
        lines.append(f"  n{i} [label={_quoted(box.label)}, tooltip={_quoted(box.about)}{shape}];")
        lines += [f"  n{source} -> n{i} [label={_quoted(t)}];" for source, t in box.sources]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


_ROW, _HEIGHT, _LETTER, _GAP = 64, 26, 8, 24
_STYLE = "font:13px monospace;stroke-width:1"


def to_svg(program: Program) -> str:
    """Returns the program as a drawing: a row below another one takes what that has computed.

    To point at a box shows its types and the line that it comes from.
    """
    boxes = _boxes(program)
    rows: dict[int, list[int]] = {}
    for i, box in enumerate(boxes):
        rows.setdefault(box.row, []).append(i)
    widths = [_LETTER * len(box.label) + 16 for box in boxes]
    totals = {row: sum(widths[i] + _GAP for i in there) - _GAP for row, there in rows.items()}
    width = max(totals.values(), default=0) + 2 * _GAP
    height = (max(rows, default=0) + 1) * _ROW
    centre: dict[int, tuple[float, float]] = {}
    for row, there in rows.items():
        x = (width - totals[row]) / 2
        for i in there:
            centre[i] = x + widths[i] / 2, row * _ROW + _ROW / 2
            x += widths[i] + _GAP
    drawn = []
    for i, box in enumerate(boxes):
        x, y = centre[i]
        for source, t in box.sources:
            a, b = centre[source]
            drawn.append(
                f'<line x1="{a:g}" y1="{b + _HEIGHT / 2:g}" x2="{x:g}" y2="{y - _HEIGHT / 2:g}" '
                f'stroke="#888"><title>{escape(t)}</title></line>'
            )
        drawn.append(
            f'<g><title>{escape(box.about)}</title><rect x="{x - widths[i] / 2:g}" '
            f'y="{y - _HEIGHT / 2:g}" width="{widths[i]}" height="{_HEIGHT}" rx="5" fill="#8882" '
            f'stroke="#888"/><text x="{x:g}" y="{y + 4:g}" text-anchor="middle" '
            f'fill="currentColor">{escape(box.label)}</text></g>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" style="{_STYLE}">{"".join(drawn)}</svg>'
    )
