"""Callees that are linear, whose author wrote the transpose: derivatives come from that alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ftrans.errors import RuleError
from ftrans.func.vmap import vmap
from ftrans.ir import ArrayType, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.numpy.reduction import sum as sum_
from ftrans.primitives.external import Callee, external_p
from ftrans.primitives.record import Linear
from ftrans.primitives.shape import zeros

__all__ = ["Transpose"]


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
        found = list(self.function(*given))
        if len(found) != len(operands):
            raise RuleError(
                f"{self.name}: its transpose must return one cotangent for each argument.\n"
                f"  returned: {len(found)}\n  arguments: {len(operands)}"
            )
        return [
            self._fitted(i, ct, x.type) if isinstance(x, Linear) and ct is not None else None
            for i, (ct, x) in enumerate(zip(found, operands, strict=True))
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
