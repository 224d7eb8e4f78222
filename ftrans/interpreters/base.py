"""What all interpreters share: memory on programs; building, replaying and simplifying one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ftrans.interpreters.builder import Builder
from ftrans.ir import ArrayType, Equation, Frame, Literal, Program, Tracer, bind
from ftrans.ir.collector import uncollected
from ftrans.ir.stack import Placing, opened, state

P = ParamSpec("P")
T = TypeVar("T")


def memoised(function: Callable[P, T], batches: bool = False) -> Callable[P, T]:
    """Remembers results on the program that is the first argument; the others must be hashable.

    Args:
        function: the interpreter.
        batches: whether it may come to rules for batches. Some of these are traced when it is known
            what is mapped, each time: what has one in it is not remembered.
    """
    name = function.__name__

    @functools.wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> T:
        program: Any = args[0]
        memo = program.memo
        key = (name, args[1:], *kwargs.items())
        found = memo.get(key, _GAP)
        if found is _GAP:
            found = uncollected(function, *args, **kwargs)
            if batches and program.traces_anew:
                return found
            found = memo.setdefault(key, _untied(found, program))
        return found.tied(program) if type(found) is _Untied else found  # type: ignore

    return remembering


batching = functools.partial(memoised, batches=True)


class _Untied(NamedTuple):
    """Is a result that holds the program which remembers it, with a gap in the place of that.

    A program that held itself would not be freed when it is forgotten.
    """

    kind: type | None
    items: tuple[Any, ...]

    def tied(self, program: Any) -> Any:
        items = [program if item is _GAP else item for item in self.items]
        if self.kind is None:
            return items[0]
        return tuple(items) if self.kind is tuple else self.kind(*items)


_GAP = object()


def _untied(found: Any, program: Any) -> Any:
    if found is program:
        return _Untied(None, (_GAP,))
    if isinstance(found, tuple) and any(item is program for item in found):
        items = tuple(_GAP if item is program else item for item in found)
        return _Untied(type(found), items)
    return found


@contextmanager
def building(name: str, types: Sequence[ArrayType]) -> Iterator[tuple[Builder, list[Tracer]]]:
    """Opens a closed builder with inputs of these types, for the program that is to be made."""
    with opened(Builder(name)) as builder:
        yield builder, [builder.input(t) for t in types]


def finish(frame: Frame, outputs: Sequence[Any]) -> Program:
    """Closes a frame that must not have captured anything."""
    program, captured = frame.close(outputs)
    assert not captured, f"{frame.name} captured {captured}"
    return program


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


def excerpt(
    program: Program, taken: Sequence[int], entries: Iterable[Any], outputs: Sequence[Any]
) -> Program:
    """Returns the program of some entries of `Program.numbered`, from some values to others."""
    name: dict[Any, int] = {number: i for i, number in enumerate(taken)}
    equations, places, size = [], [], len(taken)
    for equation, numbers, location in entries:
        operands = tuple([name[a] if type(a) is int else a for a in equation.operands])
        equations.append(equation._replace(operands=operands))
        places.append(location)
        for i, number in enumerate(numbers):
            name.setdefault(number, size + i)  # else it is one of the inputs
        size += len(numbers)
    types = [program.types[number] for number in taken]
    outs = [name[a] if type(a) is int else a for a in outputs]
    return Program.make(types, equations, outs, places, program.name)


def replay(program: Program, operands: Sequence[Any]) -> list[Any]:
    """Binds every equation of `program` anew, in the frames of the operands."""
    frame = state.stack[-1] if state.stack else None
    if type(frame) is Builder and frame.closed:  # then all of it lands there
        return frame.splice(program, operands)
    return walk(program, operands, lambda e, taken: bind(e.primitive, taken, e.params))


def simplify(program: Program) -> Program:
    """Returns a program that computes the same, to the last bit, with fewer equations.

    To simplify a program is to build it anew: a `Builder` applies the identities that primitives
    declare, folds constants, merges equal equations, and leaves out what no output needs.

    Args:
        program: any program; its sub-programs are simplified too.
    """
    return program if program.is_simplified else _simplified(program)


@memoised
def _simplified(program: Program) -> Program:
    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, replay(program, inputs))
