"""`external` calls what is no program of ours: a Python function on arrays, a kernel, JAX code.

All that is known of it is its `Callee`. It has no derivative: a tangent of it is `missing`, a value
that raises where it is needed in the end, and costs nothing where it is not.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from types import MethodType
from typing import Any

import numpy as np

from ftrans.ir import ArrayType, Equation, Params, Program, type_of
from ftrans.primitives.axes import to_front
from ftrans.primitives.control.common import pick, spread
from ftrans.primitives.family import free_cost, normal, plain
from ftrans.primitives.namespace import is_traced_by_jax
from ftrans.primitives.record import Joint, Sample
from ftrans.primitives.rules.missing import missing, missing_cotangents


class Same:
    """Stands in a key for an object: it is that object alone, and is kept alive."""

    __slots__ = ("_parts",)

    def __init__(self, value: Any):
        # a bound method is made anew whenever it is asked for
        is_method = isinstance(value, MethodType)
        self._parts = (value.__self__, value.__func__) if is_method else (value,)

    def __hash__(self) -> int:
        return hash(tuple(map(id, self._parts)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Same)
            and len(self._parts) == len(other._parts)
            and all(map(operator.is_, self._parts, other._parts))
        )


class Callee(ABC):
    """Is what an `external` equation calls; equal ones must do the same.

    Args:
        name: how errors and the text of programs call it.
        types: the types of the results.
        key: tells apart callees of one class, name and types that do not do the same.

    Attributes:
        calls_host: whether it runs Python on arrays that have values: programs are split at it.
        holds_functions: whether it refers to a function of a user's.
    """

    calls_host: bool
    holds_functions = True

    def __init__(self, name: str, types: Sequence[ArrayType], key: Hashable):
        self.name = name
        self.types = tuple(types)
        self.key = key
        self._hash = hash((name, self.types, key))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is type(self)  # names are gone where Python ends
            and self._hash == other._hash
            and (self.name, self.types, self.key) == (other.name, other.types, other.key)
        )

    def __repr__(self) -> str:
        return self.name

    def program(self, types: Sequence[ArrayType]) -> Program:
        """Returns the program that does nothing but call it, on operands of these types."""
        count = len(types)
        equation = Equation(external_p, tuple(range(count)), Params(callee=self), self.types)
        results = range(count, count + len(self.types))
        return Program.make(types, [equation], results, name=self.name)

    @abstractmethod
    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results, of exactly `types`, for arrays of NumPy or JAX."""

    @abstractmethod
    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for values that JAX traces."""

    @abstractmethod
    def batch(
        self, size: int, operands: Sequence[Any], dims: Sequence[int | None]
    ) -> tuple[Sequence[Any], Sequence[int | None]]:
        """Records what computes the results for many examples at once, with primitives.

        Args:
            size: the number of examples.
            operands: the operands, with one axis more where they are mapped.
            dims: for each operand where the mapped axis sits; not all of them None.

        Returns:
            The results, and where the mapped axis sits in each.
        """

    def jvp(self, tangents: Sequence[Any], primals: Sequence[Any]) -> Sequence[Any] | None:
        """Records the tangents of the results, None for zero; or returns None, having no rule."""
        return None

    def transpose(self, cts: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any] | None:
        """Records the cotangents of the `Linear` operands; or returns None, having no rule."""
        return None

    def missing(self, rule: str) -> str:
        """Returns the error that says that a rule is missing, "jvp" or "transpose"."""
        return f"{self.name}: it has no {rule}."


def _lower(xp: Any, *arrays: Any, callee: Callee) -> Sequence[Any]:
    if xp is np:
        # of an array of JAX's, some functions of NumPy would ask JAX, which rounds
        return [np.asarray(out) for out in callee.run(arrays)]
    # what JAX does not trace has values, wherever it lies
    known = arrays and not any(is_traced_by_jax(array) for array in arrays)
    return callee.run(arrays) if known else callee.lower(arrays)


def _jvp(tangents: Any, outs: Any, *primals: Any, callee: Callee) -> list[Any]:
    given = callee.jvp(tangents, primals)
    if given is not None:
        return list(given)
    moving = [t.is_inexact for t in callee.types]
    types = pick(callee.types, moving)
    return spread(missing([*tangents, *primals], types, callee.missing("jvp")), moving)


def _transpose(cts: Any, *operands: Any, callee: Callee) -> list[Any]:
    given = callee.transpose(cts, operands)
    if given is not None:
        return list(given)
    return missing_cotangents(cts, operands, callee.missing("transpose"))


class _Roll(Callee):
    """Is the sample: NumPy's `roll` along the last axis, whatever is in front of it."""

    calls_host = True

    def __init__(self, type: ArrayType):
        super().__init__("roll", (type,), None)

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        return [np.roll(np.asarray(array), 1, axis=-1) for array in arrays]

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        import jax.numpy as jnp

        return [jnp.roll(array, 1, axis=-1) for array in arrays]

    def batch(self, size: int, operands: Any, dims: Any) -> Any:
        x = to_front(size, operands[0], dims[0])
        return external_p(x, callee=_Roll(type_of(x))), [0]


external_p = plain(
    "external",
    tags=["external"],
    kinds="",
    infer=lambda *operands, callee: callee.types,
    lower=_lower,
    jvp=Joint(_jvp),
    transpose=Joint(_transpose),
    batch=lambda size, operands, dims, *, callee: callee.batch(size, operands, dims),
    cost=free_cost,
    samples=lambda: [
        Sample((normal(2, 3),), {"callee": _Roll(ArrayType((2, 3), "float64"))}, smooth=False)
    ],
    multiple=True,
)
