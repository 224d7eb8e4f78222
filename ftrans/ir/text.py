"""The text form of programs: stable, short, and written like the Python that it came from.

loss(a: f32[3], b: f32[4,3]) -> f32[]:
c: f32[4] = dot(b, a, contract=((1,), (0,)))
d: f32[4] = tanh(c)
e: f32[]  = sum(d, axes=(0,))
return e
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count, product
from string import ascii_lowercase
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ftrans.ir.dtype import short_name
from ftrans.ir.types import Literal

if TYPE_CHECKING:
    from ftrans.ir.program import Atom, Equation, Program


def _letters() -> Iterator[str]:
    """Yields a, b, ..., z, aa, ab, ..."""
    for length in count(1):
        for word in product(ascii_lowercase, repeat=length):
            yield "".join(word)


def _literal_text(literal: Literal) -> str:
    """Returns how a literal is printed: as the Python scalar that it is."""
    value = literal.value
    return repr(value if isinstance(value, (bool, int, float, complex)) else literal.array.item())


def _param_text(value: Any) -> str:
    if isinstance(value, Literal):
        return _literal_text(value)
    if hasattr(value, "itemsize") and hasattr(value, "kind"):
        return short_name(value)
    return value.__name__ if isinstance(value, FunctionType) else repr(value)


def _params_text(equation: Equation) -> list[str]:
    """Returns the static params as `name=value`, leaving out sub-programs, `None` and `False`."""
    carried = {name.partition("[")[0] for name, _ in equation.params.named_programs()}
    return [
        f"{name}={_param_text(value)}"
        for name, value in equation.params.items()
        if value is not None and value is not False and not _is_empty(value) and name not in carried
    ]


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_empty(item) for item in value)


def to_text(program: Program, indent: str = "", heading: str | None = None) -> str:
    """Returns the text form of `program`."""
    return "\n".join(_lines(program, indent, heading or program.name))


def _lines(program: Program, indent: str, heading: str) -> Iterator[str]:
    fresh = _letters()
    names = [next(fresh) for _ in program.inputs]

    def show(atom: Atom) -> str:
        return _literal_text(atom) if isinstance(atom, Literal) else names[atom]

    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, program.inputs, strict=True))
    inner = indent + "    "
    rows: list[tuple[str, str, list[str]]] = []
    for equation in program.equations:
        results = [next(fresh) for _ in equation.types]
        operands = [show(operand) for operand in equation.operands]
        names += results
        left = ", ".join(f"{n}: {t}" for n, t in zip(results, equation.types, strict=True))
        right = f"{equation.primitive.name}({', '.join(operands + _params_text(equation))})"
        nested = [
            line
            for name, sub in equation.params.named_programs()
            for line in _lines(sub, inner + "    ", name)
        ]
        rows.append((left, right + (":" if nested else ""), nested))
    # Align the equals signs of short left-hand sides; a long one does not push the others out.
    width = max((len(left) for left, _, _ in rows if len(left) <= 24), default=0)
    outputs = [show(output) for output in program.outputs]
    types = [str(t) for t in program.output_types]
    result = types[0] if len(types) == 1 else f"({', '.join(types)})"
    yield f"{indent}{heading}({arguments}) -> {result}:"
    for left, right, nested in rows:
        yield f"{inner}{left:<{width}} = {right}"
        yield from nested
    yield f"{inner}return {', '.join(outputs)}".rstrip()


# -------------------------------------------------------------------------------------- HTML

_STYLE = (
    "font-family:monospace;white-space:pre;line-height:1.45;overflow-x:auto;"
    "border-left:3px solid #8886;padding:.4em .8em"
)


def to_html(program: Program) -> str:
    """Returns the text in a `div`, each equation a `span` whose title says where it is from."""
    lines = iter(to_text(program).split("\n"))
    body = [f"<b>{escape(next(lines))}</b>", *_spans(program, lines)]
    return f'<div style="{_STYLE}">' + "\n".join(body) + "</div>"


def _spans(program: Program, lines) -> list[str]:
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
            rows += _spans(sub, lines)
    rows.append(f"<b>{escape(next(lines))}</b>")
    return rows
