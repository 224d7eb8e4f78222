"""What all interpreters share: memory on programs, building a new program, replaying one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from ftrans.interpreters.builder import Builder, building, finish
from ftrans.ir import Equation, Literal, Program, bind
from ftrans.ir.frame import Placing, current_frame

__all__ = ["building", "finish", "memoised", "replay", "walk"]

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
        if key in memo:
            return memo[key]
        return memo.setdefault(key, function(*args, **kwargs))

    return remembering


def walk(
    program: Program,
    values: Sequence[Any],
    step: Callable[[Equation, list[Any]], Sequence[Any]],
    lift: Callable[[Literal], Any] = lambda literal: literal,
) -> list[Any]:
    """Goes through a program, equation by equation: what every interpreter of ours is a step of.

    Args:
        program: the program.
        values: what its inputs stand for.
        step: from an equation and what its operands stand for to what its results do. What it
            records gets the location of the equation.
        lift: from a literal to what it stands for.

    Returns:
        What the outputs stand for.
    """
    env = list(values)
    with Placing() as place:
        for equation, location in zip(program.equations, program.locations, strict=True):
            place.move(location)
            env += step(
                equation, [lift(a) if type(a) is Literal else env[a] for a in equation.operands]
            )
    return [lift(a) if type(a) is Literal else env[a] for a in program.outputs]


def replay(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Binds every equation of `program` anew, in the frames of the operands."""
    frame = current_frame()
    if type(frame) is Builder and frame.closed:  # then all of it lands there
        return frame.splice(program, operands)
    return walk(program, operands, lambda e, taken: bind(e.primitive, taken, e.params))
