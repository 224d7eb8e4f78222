"""Callees that are linear, whose author wrote the transpose: derivatives come from that alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.errors import RuleError
from ftrans.external.batching import alone
from ftrans.external.captures import with_constants
from ftrans.func.staging import rule_frame
from ftrans.func.vmap import vmap
from ftrans.ir import Abstract, ArrayType, Program, Tracer, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.numpy.reduction import sum as sum_
from ftrans.primitives.axes import zeros
from ftrans.primitives.record import Linear
from ftrans.primitives.rules import linear_call_p
from ftrans.primitives.rules.external import Callee, Same, external_p
from ftrans.pytree import describe, flatten_like, shown


class Transpose:
    """Is the transpose of a callee that is linear in all of its operands together.

    Args:
        name: how errors call the callee.
        function: takes a cotangent for each result, returns a sequence with one for each operand,
            or None for zero.
        key: what stands for the function where two are compared.
    """

    def __init__(self, name: str, function: Callable[..., Sequence[Any]], key: Any):
        self.name = name
        self.function = function
        self.key = key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transpose) and self.key == other.key

    def jvp(self, callee: Callee, tangents: Sequence[Any], primals: Sequence[Any]) -> Sequence[Any]:
        """Records the tangents of the results: the callee itself, on tangents."""
        given = [
            zeros(type_of(x).update()) if t is None else t
            for t, x in zip(tangents, primals, strict=True)
        ]
        return external_p(*given, callee=callee)

    def transpose(self, callee: Callee, cts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Records the cotangents of the operands that are `Linear`."""
        given = [zeros(t) if ct is None else ct for ct, t in zip(cts, callee.types, strict=True)]
        types = [(x.type if isinstance(x, Linear) else type_of(x)).update() for x in operands]
        program = self._program(callee, types)
        # the transpose of the transpose is the callee: so second derivatives need no other rule
        back = alone(callee, types)
        found = linear_call_p(
            *given, call=program, transpose=back, count=len(given), variants=(), patterns=()
        )
        return [
            ct if isinstance(x, Linear) else None for ct, x in zip(found, operands, strict=True)
        ]

    def _program(self, callee: Callee, types: Sequence[ArrayType]) -> Program:
        """Traces the author's transpose, for results and operands of these types."""
        source = Abstract(f"a cotangent of {self.name}")
        inputs = [(t.update(), source, False) for t in callee.types]
        opened = rule_frame(f"transpose({self.name})", inputs, closed=True)
        with opened as cts:
            returned = self._cotangents(cts, types)
            program, captured = opened.frame.close(returned)
        for value in captured:
            if type(value) is Tracer:
                raise RuleError(
                    f"{self.name}: its transpose closes over a traced value.\n"
                    f"  value: {value.type}, {value.origin}\n"
                    f"  Give it vjp= or jvp= instead, or pass the value as an argument."
                )
        return with_constants(program, captured) if captured else program

    def _cotangents(self, cts: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
        found = list(self.function(*cts))
        if len(found) != len(types):
            raise RuleError(
                f"{self.name}: its transpose must return one cotangent for each argument.\n"
                f"  returned: {len(found)}\n  arguments: {len(types)}"
            )
        return [
            zeros(t) if ct is None or not t.is_inexact else self._fitted(i, ct, t)
            for i, (ct, t) in enumerate(zip(found, types, strict=True))
        ]

    def _fitted(self, i: int, ct: Any, t: ArrayType) -> Any:
        known = is_array(ct) or is_scalar(ct)
        array = None if not known else as_array(ct, t.dtype) if is_scalar(ct) else as_array(ct)
        if array is None or type_of(array).update() is not t.update():
            raise RuleError(
                f"{self.name}: what its transpose returns does not have the type of the argument.\n"
                f"  argument {i}: {t.update()}\n"
                f"  returned: {type(ct).__name__ if array is None else type_of(array)}\n"
                f"  Return one cotangent for each argument, of its type."
            )
        return array

    def batched(self, size: int, fronts: Sequence[int | None]) -> Transpose:
        """Returns the transpose of the callee on a batch.

        Args:
            size: the size of the batch.
            fronts: for each operand the size of the axis that it has in front; None for no axis.
        """
        mapped = vmap(lambda *cts: tuple(self.function(*cts)))

        def function(*cts: Any) -> Sequence[Any]:
            found = mapped(*cts)
            return [
                ct if ct is None or n == size else sum_(ct, axis=0, keepdims=n is not None)
                for ct, n in zip(found, fronts, strict=True)
            ]

        return Transpose(self.name, function, (self.key, size, tuple(fronts)))


def transpose_of(
    name: str, transpose: Callable[..., Any] | None, structure: Any, outs: Any
) -> Transpose | None:
    """Returns a user's transpose as one that takes and returns leaves; None where there is none."""
    if transpose is None:
        return None
    args, kwargs = structure.unflatten([0] * structure.num_leaves)

    def function(*leaves: Any) -> list[Any]:
        found = transpose(outs.unflatten(leaves))
        if len(args) + len(kwargs) == 1 and not isinstance(found, tuple):
            found = (found,)
        expected = tree.tree_structure((*args, *kwargs.values()))
        matched = flatten_like(expected, tuple(found))
        if matched is None:
            raise RuleError(
                f"{name}: what its transpose returns does not have the structure of the "
                f"arguments.\n  arguments: {shown(expected)}\n  returned: {describe(found)}\n"
                f"  Return a tuple of one cotangent for each argument, None where it is zero."
            )
        return matched

    return Transpose(name, function, (Same(transpose), structure, outs))
