"""Traced values that a function closes over, which it must not where it is called on arrays."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ftrans.custom.parts import defined
from ftrans.errors import RuleError
from ftrans.ir import Tracer

__all__ = ["captured_error", "check_captures", "content", "tracers_of"]


def tracers_of(function: Any) -> dict[str, Tracer]:
    """Returns the traced values that a function uses without being given them, by their names.

    Functions that it closes over are looked into.
    """
    found: dict[str, Tracer] = {}
    pending, seen = [function], set()
    while pending:
        current = pending.pop()
        if type(current) is not FunctionType or id(current) in seen:
            continue
        seen.add(id(current))
        code = current.__code__
        names = dict(zip(code.co_freevars, map(content, current.__closure__ or ()), strict=True))
        for name in code.co_names:
            value = current.__globals__.get(name)
            if type(value) is Tracer:
                names[name] = value
        for name, value in names.items():
            if type(value) is Tracer:
                found[name] = value
            elif isinstance(value, FunctionType):
                pending.append(value)
    return found


def content(cell: Any) -> Any:
    """Returns what a cell of a closure holds; None where it is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def check_captures(name: str, function: Any) -> None:
    """Raises where a function that is to be called on arrays uses a traced value.

    Raises:
        RuleError: naming the variable.
    """
    for value in tracers_of(function).values():
        raise captured_error(name, function, value)


def captured_error(name: str, function: Any, value: Any) -> RuleError:
    """Returns the error for an opaque method that closes over a traced value, naming it."""
    names = [n for n, x in tracers_of(function).items() if x is value]
    variable = names[0] if names else None
    what = f"the variable {variable}" if variable else "a value"
    return RuleError(
        f"{name}: it asks for plain arrays, and closes over {what}, which is traced: its "
        f"derivative would be lost.\n"
        f"  {variable or 'value'}: {value.type}\n  {name} is defined at {defined(function)}\n"
        f"  Pass {variable or 'it'} as an argument."
    )
