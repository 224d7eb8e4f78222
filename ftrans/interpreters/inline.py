"""Replaces every `call` by the equations of the program that it calls.

For running, when nothing is transformed any more, custom rules have served their purpose as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.base import building, finish, memoised, replay, walk
from ftrans.interpreters.simplify import simplify
from ftrans.ir import Equation, Program, bind
from ftrans.primitives import missing_p
from ftrans.primitives.control import call_p
from ftrans.primitives.rules import custom_p, linear_call_p
from ftrans.primitives.rules.missing import raise_missing


@memoised
def _has_call(program: Program) -> bool:
    return any(
        equation.primitive is call_p or any(_has_call(sub) for sub in equation.params.programs())
        for equation in program.equations
    )


@memoised
def _has_rules(program: Program) -> bool:
    return any(
        equation.primitive in _RULES or any(_has_rules(sub) for sub in equation.params.programs())
        for equation in program.equations
    )


_RULES = (custom_p, linear_call_p, missing_p)


def runnable(program: Program) -> Program:
    """Returns an equal program without `call` and without custom rules, which is run.

    Raises:
        MissingRuleError: where an output depends on a derivative that there is no rule for.
    """
    program = inline(program)
    return _without_rules(program) if _has_rules(program) else program


@memoised
def _without_rules(program: Program) -> Program:
    with building(program.name, program.inputs) as (frame, inputs):
        found = finish(frame, _run_rules(program, inputs))
    found = simplify(found)
    _check_none_missing(found)
    return found


def _run_rules(program: Program, operands: Sequence[Any]) -> list[Any]:
    def step(equation: Equation, taken: list[Any]) -> Sequence[Any]:
        primitive, params = equation.primitive, equation.params
        if primitive is custom_p:
            forward = params["forward"]
            outs = _run_rules(forward, taken[: len(forward.inputs)])
            return outs[: len(equation.types)]
        if primitive is linear_call_p:
            return _run_rules(params["call"], taken)
        if primitive.is_higher_order:
            params = params.map_programs(_within)
        return bind(primitive, taken, params)

    return walk(program, operands, step)


def _within(program: Program) -> Program:
    return _without_rules(program) if _has_rules(program) else program


def _check_none_missing(program: Program) -> None:
    for equation, place in zip(program.equations, program.locations, strict=True):
        if equation.primitive is missing_p:
            where = f"\n  {place}: {place.source}" if place else ""
            raise_missing(equation.params["message"], where)


def inline(program: Program) -> Program:
    """Returns an equal program without `call`, in sub-programs neither."""
    return _inlined(program) if _has_call(program) else program


@memoised
def _inlined(program: Program) -> Program:
    found = _only_call(program)
    if found is not None:
        return found
    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, _run(program, inputs))


def _only_call(program: Program) -> Program | None:
    """Returns the program where all that it does is to call a simplified one; else None.

    It is what a transform leaves that is called where nothing else is traced, and need not be
    recorded anew.
    """
    if len(program.equations) != 1:
        return None
    equation = program.equations[0]
    callee = equation.params["program"] if equation.primitive is call_p else None
    count = len(program.inputs)
    if (
        callee is None
        or not callee.is_simplified
        or _has_call(callee)
        or equation.operands != tuple(range(count))
        or program.outputs != tuple(range(count, count + len(callee.outputs)))
    ):
        return None
    found = Program.make(
        callee.inputs, callee.equations, callee.outputs, callee.locations, program.name
    )
    found.is_simplified = True
    return found


def _run(program: Program, operands: Sequence[Any]) -> list[Any]:
    if not _has_call(program):
        return replay(program, operands)

    def step(equation: Equation, taken: list[Any]) -> Sequence[Any]:
        if equation.primitive is call_p:
            return _run(equation.params["program"], taken)
        params = equation.params
        if equation.primitive.is_higher_order:
            params = params.map_programs(inline)
        return bind(equation.primitive, taken, params)

    return walk(program, operands, step)
