"""Replaces every `call` by the equations of the program that it calls.

For running, when nothing is transformed any more, custom rules have served their purpose as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.interpreters.base import building, finish, memoised, replay, simplify, walk
from ftrans.ir import Equation, Program, bind
from ftrans.primitives import (
    at_hand_p,
    call_p,
    checkpoint_p,
    custom_p,
    graft_p,
    mark_p,
    missing_p,
    named_p,
    no_grad_p,
)
from ftrans.primitives.rules.missing import raise_missing

_CALLS = {call_p: "program"}
_VALUES = {at_hand_p: 1, mark_p: 0, named_p: 0, graft_p: 0, no_grad_p: 0}
"""What says something of derivatives alone, and the operand that has its value."""
_RULES = {custom_p: "forward", checkpoint_p: "program", missing_p: ""}
_RULES |= dict.fromkeys(_VALUES, "")
"""What is replaced, and the param with the program that stands for it, if there is one."""


@memoised
def _primitives(program: Program) -> frozenset[Any]:
    """Returns the primitives of a program, those of programs among its params too."""
    return frozenset([equation.primitive for _, equation in program.nested()])


def _holds(program: Program, rules: bool) -> bool:
    """Tells whether calls, or rules, are to be replaced somewhere in a program."""
    return not _primitives(program).isdisjoint(_RULES if rules else _CALLS)


def _expanded(program: Program, operands: Sequence[Any], rules: bool) -> list[Any]:
    """Replays a program with calls, or rules, replaced by what they run."""
    if not _holds(program, rules):
        return replay(program, operands)
    replaced, within = (_RULES, _without_rules) if rules else (_CALLS, inline)

    def step(equation: Equation, taken: list[Any]) -> Sequence[Any]:
        primitive, params = equation.primitive, equation.params
        body = params.get(replaced.get(primitive, ""))
        if body is not None:
            return _expanded(body, taken[: len(body.inputs)], rules)[: len(equation.types)]
        if rules and primitive in _VALUES:
            return [taken[_VALUES[primitive]]]
        if primitive.is_higher_order:
            params = params.map_programs(within)
        return bind(primitive, taken, params)

    return walk(program, operands, step)


def runnable(program: Program) -> Program:
    """Returns an equal program without `call` and without custom rules, which is run.

    What is at hand is not computed in it.

    Raises:
        MissingRuleError: where an output depends on a derivative that there is no rule for.
    """
    return _without_rules(inline(program))


def _without_rules(program: Program) -> Program:
    return _run_rules(program) if _holds(program, True) else program


@memoised
def _run_rules(program: Program) -> Program:
    program = simplify(program)  # which lets all that uses a value take what is at hand
    with building(program.name, program.inputs) as (frame, inputs):
        found = simplify(finish(frame, _expanded(program, inputs, True)))
    for equation, place in zip(found.equations, found.locations, strict=True):
        if equation.primitive is missing_p:
            where = f"\n  {place}: {place.source}" if place else ""
            raise_missing(equation.params["message"], where)
    return found


def inline(program: Program) -> Program:
    """Returns an equal program without `call`, in sub-programs neither."""
    return _inlined(program) if _holds(program, False) else program


@memoised
def _inlined(program: Program) -> Program:
    found = _only_call(program)
    if found is not None:
        return found
    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, _expanded(program, inputs, False))


def _only_call(program: Program) -> Program | None:
    """Returns the program where all that it does is to call a simplified one; else None.

    It is what a transform leaves that is called where nothing else is traced, and need not be
    recorded anew.
    """
    if [equation.primitive for equation in program.equations] != [call_p]:
        return None
    (call,), count = program.equations, len(program.inputs)
    callee = call.params["program"]
    taken, returned = range(count), range(count, count + len(callee.outputs))
    whole = call.operands == tuple(taken) and program.outputs == tuple(returned)
    if not (whole and callee.is_simplified) or _holds(callee, False):
        return None
    found = callee.renamed(program.name)
    found.is_simplified = True
    return found
