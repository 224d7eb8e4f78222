"""The text form of programs: stable, short, and written like the Python that it came from.

loss(a: f32[3], b: f32[4,3]) -> f32[]:
c: f32[4] = dot(b, a, contract=((1,), (0,)))
d: f32[4] = tanh(c)
e: f32[]  = sum(d, axes=(0,))
return e
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from string import ascii_lowercase
from typing import Any

from ftrans.ir.dtype import short_name
from ftrans.ir.program import Atom, Equation, Literal, Program

__all__ = ["letters", "literal_text", "params_text", "to_text"]


def letters() -> Iterator[str]:
    """Yields a, b, ..., z, aa, ab, ..."""
    for length in count(1):
        for word in product(ascii_lowercase, repeat=length):
            yield "".join(word)


def literal_text(literal: Literal) -> str:
    """Returns how a literal is printed: as the Python scalar that it is."""
    value = literal.value
    return repr(value if isinstance(value, (bool, int, float, complex)) else literal.array.item())


def _param_text(value: Any) -> str:
    if isinstance(value, Literal):
        return literal_text(value)
    if hasattr(value, "itemsize") and hasattr(value, "kind"):
        return short_name(value)
    return repr(value)


def params_text(equation: Equation) -> list[str]:
    """Returns the static params as `name=value`, leaving out sub-programs, `None` and `False`."""
    return [
        f"{name}={_param_text(value)}"
        for name, value in equation.params.items()
        if value is not None
        and value is not False
        and not _is_empty(value)
        and not isinstance(value, Program)
        and not (isinstance(value, tuple) and any(isinstance(v, Program) for v in value))
    ]


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_empty(item) for item in value)


def sub_programs(equation: Equation) -> Iterator[tuple[str, Program]]:
    """Yields the sub-programs of an equation with the names that the text gives them."""
    for name, value in equation.params.items():
        if isinstance(value, Program):
            yield name, value
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Program):
                    yield f"{name}[{index}]", item


def to_text(program: Program, indent: str = "", heading: str | None = None) -> str:
    """Returns the text form of `program`."""
    return "\n".join(_lines(program, indent, heading or program.name))


def _lines(program: Program, indent: str, heading: str) -> Iterator[str]:
    fresh = letters()
    names = [next(fresh) for _ in program.inputs]

    def show(atom: Atom) -> str:
        return literal_text(atom) if isinstance(atom, Literal) else names[atom]

    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, program.inputs, strict=True))
    inner = indent + "    "
    rows: list[tuple[str, str, list[str]]] = []
    for equation in program.equations:
        results = [next(fresh) for _ in equation.types]
        operands = [show(operand) for operand in equation.operands]
        names += results
        left = ", ".join(f"{n}: {t}" for n, t in zip(results, equation.types, strict=True))
        right = f"{equation.primitive.name}({', '.join(operands + params_text(equation))})"
        nested = [
            line
            for name, sub in sub_programs(equation)
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
