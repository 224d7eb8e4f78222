"""The HTML form of programs, for notebooks: the text, with types, source and cost on hover."""

from __future__ import annotations

from html import escape

from ftrans.ir.program import Program
from ftrans.ir.text import to_text

__all__ = ["to_html"]

_STYLE = (
    "font-family:monospace;white-space:pre;line-height:1.45;overflow-x:auto;"
    "border-left:3px solid #8886;padding:.4em .8em"
)


def to_html(program: Program) -> str:
    """Returns the text in a `div`, each equation a `span` whose title says where it is from."""
    lines = iter(to_text(program).split("\n"))
    body = [f"<b>{escape(next(lines))}</b>", *_rows(program, lines)]
    return f'<div style="{_STYLE}">' + "\n".join(body) + "</div>"


def _rows(program: Program, lines) -> list[str]:
    """Pairs the lines of the text with the equations that they print."""
    rows = []
    for equation, numbers, location in program.numbered():
        operands = [program.type_of(operand) for operand in equation.operands]
        results = ", ".join(str(program.types[number]) for number in numbers)
        title = [f"{equation.primitive.name}: ({', '.join(map(str, operands))}) -> {results}"]
        if location is not None:
            title.append(f"{location}\n{location.source}")
        cost = equation.primitive.cost(tuple(operands), equation.types, equation.params)
        title.append(f"{cost.flops:,} operations, {cost.nbytes:,} bytes")
        rows.append(f'<span title="{escape(chr(10).join(title))}">{escape(next(lines))}</span>')
        for sub in equation.params.programs():
            rows.append(f"<i>{escape(next(lines))}</i>")
            rows += _rows(sub, lines)
    rows.append(f"<b>{escape(next(lines))}</b>")
    return rows
