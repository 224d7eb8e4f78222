"""What all interpreters share: memory on programs, building a new program, replaying one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from ftrans.ir import Abstract, ArrayType, Frame, Literal, Program, Tracer, bind, open_frame
from ftrans.ir.frame import at_location

__all__ = ["building", "finish", "memoised", "replay"]

P = ParamSpec("P")
T = TypeVar("T")


def memoised(function: Callable[P, T]) -> Callable[P, T]:
    """Remembers results on the program that is the first argument; the others must be hashable."""
    name = function.__name__

    @functools.wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> T:
        program, *rest = args
        key = (name, *rest, *kwargs.items())
        memo = program.memo  # type: ignore[attr-defined]
        try:
            return memo[key]
        except KeyError:
            return memo.setdefault(key, function(*args, **kwargs))

    return remembering


@contextmanager
def building(
    name: str, types: Sequence[ArrayType]
) -> Iterator[tuple[Frame, list[Tracer]]]:
    """Opens a closed frame with inputs of these types, for the program that is to be made."""
    with open_frame(name, closed=True) as frame:
        yield frame, [frame.input(t, Abstract("an interpreter's input")) for t in types]


def finish(frame: Frame, outputs: Sequence[Any]) -> Program:
    """Closes a frame that must not have captured anything."""
    program, captured = frame.close(outputs)
    assert not captured, f"{frame.name} captured {captured}"
    return program


def replay(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Binds every equation of `program` anew, in the frames of the operands."""
    values = list(operands)

    def read(atom: Any) -> Any:
        return atom if type(atom) is Literal else values[atom]

    for equation, _, location in program.numbered():
        with at_location(location):
            values += bind(
                equation.primitive, [read(atom) for atom in equation.operands], equation.params
            )
    return [read(atom) for atom in program.outputs]
