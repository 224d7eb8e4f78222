"""JAX's primitives that carry jaxprs: calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ftrans.primitives as p
from ftrans.interop.importer import Importer, Rule, core
from ftrans.interpreters.base import building, finish, replay
from ftrans.ir import Program, type_of

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr"}
_CALLS |= dict.fromkeys(
    ("closed_call", "core_call", "ftrans_call", "custom_lin", "core_closed_call"), "call_jaxpr"
)
"""Primitives that call a jaxpr and do nothing else, with the param that holds it."""


def _closed(jaxpr: Any) -> Any:
    """Returns a jaxpr with its constants."""
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, [])


def _call(importer: Importer, equation: Any, *operands: Any) -> Any:
    closed = _closed(equation.params[_CALLS[equation.primitive.name]])
    return importer.run(closed.jaxpr, closed.consts, operands)


def _checkpoint(importer: Importer, equation: Any, *operands: Any) -> Any:
    params = equation.params
    program, captured = importer.program(_closed(params["jaxpr"]), "checkpoint")
    return p.checkpoint_p(
        *map(importer.array, operands),
        *map(importer.frame.capture, captured),
        program=program,
        policy=params["policy"] and p.policies.checked("from_jax", params["policy"]),
        prevent_cse=bool(params["prevent_cse"]),
    )


def _with_inputs(program: Program, order: Sequence[int], types: Sequence[Any]) -> Program:
    """Returns a program of other inputs, of which its own are these."""
    with building(program.name, types) as (frame, inputs):
        return finish(frame, replay(program, [inputs[i] for i in order]))


def _cond(importer: Importer, equation: Any, index: Any, *operands: Any) -> Any:
    made = [importer.program(branch, "branch") for branch in equation.params["branches"]]
    given = [importer.array(x) for x in operands]
    captured = [value for _, values in made for value in values]
    types = [type_of(x).update() for x in (*given, *captured)]
    branches, start = [], len(given)
    for program, values in made:
        order = [*range(len(given)), *range(start, start + len(values))]
        branches.append(_with_inputs(program, order, types))
        start += len(values)
    index = importer.array(index)
    if type_of(index).dtype != np.int32:
        index = p.convert_p(index, dtype=np.dtype("int32"))
    held = [importer.frame.capture(value) for value in captured]
    return p.switch_p(index, *given, *held, branches=tuple(branches))


def _in_front(program: Program, count: int) -> Program:
    """Returns a program that takes its last inputs, so many, before all others."""
    own = len(program.inputs) - count
    types = [*program.inputs[own:], *program.inputs[:own]]
    return _with_inputs(program, [*range(count, count + own), *range(count)], types)


def _scan(importer: Importer, equation: Any, *operands: Any) -> Any:
    params = equation.params
    body, captured = importer.program(params["jaxpr"], "body")
    if "num_consts" in params:
        consts, carry = params["num_consts"], params["num_carry"]
    else:  # from JAX 0.11 on
        consts, carry, _ = [len(part) for part in params["ft_in"].unpack()]
    return p.scan_p(
        *map(importer.frame.capture, captured),
        *map(importer.array, operands),
        body=_in_front(body, len(captured)),
        consts=len(captured) + int(consts),
        carry=int(carry),
        length=int(params["length"]),
        reverse=bool(params["reverse"]),
        unroll=int(params["unroll"]),
    )


def _while(importer: Importer, equation: Any, *operands: Any) -> Any:
    params = equation.params
    of_cond, of_body = int(params["cond_nconsts"]), int(params["body_nconsts"])
    cond, held_by_cond = importer.program(params["cond_jaxpr"], "cond")
    body, held_by_body = importer.program(params["body_jaxpr"], "body")
    given, capture = [importer.array(x) for x in operands], importer.frame.capture
    cond, body = _in_front(cond, len(held_by_cond)), _in_front(body, len(held_by_body))
    for_cond = [*map(capture, held_by_cond), *given[:of_cond]]
    for_body = [*map(capture, held_by_body), *given[of_cond : of_cond + of_body]]
    if cond.output_types[0].shape:
        cond, body = _for_lanes(cond, body, len(for_cond), len(for_body))
        for_body = [*for_cond, *for_body]
    return p.while_p(
        *for_cond,
        *for_body,
        *given[of_cond + of_body :],
        cond=cond,
        body=body,
        cond_consts=len(for_cond),
        body_consts=len(for_body),
        bound=None,
    )


def _for_lanes(
    cond: Program, body: Program, for_cond: int, for_body: int
) -> tuple[Program, Program]:
    """Returns the programs of one loop for many lanes, each of which ends at its own time."""
    lanes = cond.output_types[0].shape
    with building(cond.name, cond.inputs) as (frame, inputs):
        (goes_on,) = replay(cond, inputs)
        whole = finish(frame, [p.any_p(goes_on, axes=tuple(range(len(lanes))))])
    types = [*cond.inputs[:for_cond], *body.inputs]
    with building(body.name, types) as (frame, inputs):
        carry = inputs[for_cond + for_body :]
        (goes_on,) = replay(cond, [*inputs[:for_cond], *carry])
        axes = tuple(range(len(lanes)))
        outs = [
            p.select_p(p.broadcast_p(goes_on, shape=type_of(x).shape, axes=axes), new, x)
            for new, x in zip(replay(body, inputs[for_cond:]), carry, strict=True)
        ]
        return whole, finish(frame, outs)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_CALLS, _call),
    **dict.fromkeys(("checkpoint", "remat2"), _checkpoint),
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}
