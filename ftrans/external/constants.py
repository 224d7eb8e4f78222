"""Arrays inside of programs: what a rule closes over, where there is nobody to pass it in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ftrans.interpreters.base import building, finish, replay
from ftrans.ir import Program, type_of
from ftrans.primitives import Callee, external_p

__all__ = ["with_constants"]


def with_constants(program: Program, values: Sequence[Any]) -> Program:
    """Returns the program with its last inputs replaced by arrays that a rule closes over."""
    count = len(program.inputs) - len(values)
    with building(program.name, program.inputs[:count]) as (frame, inputs):
        constants = [external_p(callee=_Constant(value))[0] for value in values]
        return finish(frame, replay(program, [*inputs, *constants]))


class _Constant(Callee):
    """Is an array that a rule closes over; programs have no other place for one."""

    is_host = False

    def __init__(self, value: Any):
        self.name = "constant"
        self.value = value
        self.types = (type_of(value).update(),)

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and other.value is self.value

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return [self.value]

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return [jnp.asarray(self.value)]

    def batch(self, size: int, operands: Any, dims: Any) -> Any:
        raise AssertionError("a constant has no operand that could be mapped")

    def missing(self, rule: str) -> str:
        raise AssertionError("a constant has no operand that could have a tangent")
