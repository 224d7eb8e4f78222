"""Arrays inside of programs: what a rule closes over, where there is nobody to pass it in."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans.interpreters.base import building, finish, replay
from ftrans.ir import Program, type_of
from ftrans.primitives.rules.external import Callee, Same, external_p


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

    def missing(self, rule: str) -> str:
        raise AssertionError("a constant has no operand that could have a tangent")
