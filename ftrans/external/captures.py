"""What functions close over: traced values, which one must not that is called on arrays; arrays."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from types import FunctionType
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans.errors import RuleError
from ftrans.interop.closure import content, names_in
from ftrans.interpreters.base import building, finish, replay
from ftrans.ir import Program, Tracer, type_of
from ftrans.primitives.rules.external import Callee, Same, external_p


def tracers_of(function: Any) -> dict[str, Tracer]:
    """Returns the traced values that a function uses without being given them, by their names.

    Functions that it closes over are looked into.
    """
    return {name: value for name, value in used_by([function]) if type(value) is Tracer}


def used_by(functions: Sequence[Any], deep: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields what functions use without being given it, with its names; functions are looked into.

    Args:
        functions: the functions; what is none is passed over.
        deep: whether functions among the globals are looked into, and functions that are defined
            inside; else those alone that are closed over.
    """
    pending, seen = list(functions), set()
    while pending:
        current = pending.pop()
        if type(current) is not FunctionType or id(current) in seen:
            continue
        seen.add(id(current))
        code, space = current.__code__, current.__globals__
        cells = dict(zip(code.co_freevars, map(content, current.__closure__ or ()), strict=True))
        names = names_in(code) if deep else code.co_names
        shared = {name: space[name] for name in names if name in space}
        yield from {**cells, **shared}.items()
        pending += [*cells.values(), *(shared.values() if deep else ())]


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


def defined(function: Any) -> str:
    """Returns where a function of the user's is defined, for errors: "file:line"."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "an unknown place"


# -------------------------------------------------------------------- arrays inside of programs


def with_constants(program: Program, values: Sequence[Any]) -> Program:
    """Returns the program with its last inputs replaced by arrays that a rule closes over."""
    count = len(program.inputs) - len(values)
    with building(program.name, program.inputs[:count]) as (frame, inputs):
        constants = [external_p(callee=_Constant(value))[0] for value in values]
        return finish(frame, replay(program, [*inputs, *constants]))


class _Constant(Callee):
    """Is an array that a rule closes over; programs have no other place for one."""

    calls_host = False

    def __init__(self, value: Any):
        # what can be written to is copied, and equal to what has the same bytes
        key: Any = Same(value)
        if isinstance(value, np.ndarray):
            value = value.copy()
            key = blake2b(value.tobytes(), digest_size=16).digest()
        super().__init__("constant", (type_of(value).update(),), key)
        self.value = value

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return [self.value]

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return [jnp.asarray(self.value)]

    def batch(self, size: int, operands: Any, dims: Any) -> Any:
        raise AssertionError("a constant has no operand that could be mapped")
