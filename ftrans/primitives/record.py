"""The form in which a primitive is declared: one frozen record with every rule that is known of it.

Nothing has a default. A rule that does not exist is `Absent("why")`, so that forgetting one is an
error when the module is imported, and asking for one says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import DTypeError, MissingRuleError
from ftrans.ir import ArrayType, Literal, Params, Tracer, bind, type_of
from ftrans.ir.dtype import is_complex, is_float
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import recording_place

__all__ = [
    "LINEAR",
    "Absent",
    "Cost",
    "Joint",
    "Linear",
    "New",
    "Primitive",
    "Recursive",
    "Sample",
    "registry",
    "scalar",
    "zero",
]


class Cost(NamedTuple):
    """Says what an equation costs: floating-point operations, and bytes read and written."""

    flops: int
    nbytes: int


@dataclass(frozen=True)
class Absent:
    """Declares that a rule does not exist, and why."""

    reason: str


@dataclass(frozen=True)
class Joint:
    """Wraps one rule for all operands at once, where they share work or there are many.

    As `jvp`: `(tangents, outs, *primals, **params) -> tangents of outs`, with `None` for zero.
    As `transpose`: `(cotangents, *operands, **params) -> cotangents of operands`.
    A primitive with one result passes and takes that one, not a tuple.
    """

    rule: Callable[..., Any]


@dataclass(frozen=True)
class Recursive:
    """Wraps a rule of a primitive that carries programs; it is handed the interpreters first.

    As `jvp` and `linearize`: `(transforms, tangents, *primals, **params) -> outs, tangents`.
    As `transpose`: `(transforms, cotangents, *operands, **params) -> cotangents of operands`.
    As `batch`: `(transforms, size, operands, dims, **params) -> outs, dims of outs`.
    """

    rule: Callable[..., Any]


class New(NamedTuple):
    """Is what a rewrite rule puts in the place of an equation: another equation."""

    primitive: Any
    operands: tuple[Any, ...]
    params: dict[str, Any]


LINEAR = object()
"""As `jvp`: the primitive is linear in all inexact operands together.

So it maps tangents as it maps primals, zeros in the place of those that are not there.
"""


def zero(tangent: Any, out: Any, *primals: Any, **params: Any) -> None:
    """Is the jvp rule of an operand on which the result does not depend smoothly: no tangent."""
    return


@dataclass(frozen=True)
class Linear:
    """Stands, in a transpose rule, for an operand whose cotangent is asked for."""

    type: ArrayType

    def __getattr__(self, name: str) -> Any:
        raise NotLinear("it depends on their values")


def operand_type(operand: Any) -> ArrayType:
    """Returns the type of an operand of a transpose rule, which may be `Linear`."""
    return operand.type if isinstance(operand, Linear) else type_of(operand)


class NotLinear(AttributeError):
    """Says why there is no transpose: as a rule asked for the value of what is `Linear`."""


class Sample(NamedTuple):
    """Gives operands and params to try a primitive on.

    `smooth` is False at kinks and edges, where finite differences say nothing.
    """

    operands: tuple[Any, ...]
    params: Mapping[str, Any] = MappingProxyType({})
    smooth: bool = True


registry: dict[str, Primitive] = {}
"""Every primitive by its name."""


def _registered(name: str) -> Primitive:
    """Returns the primitive of a name, as where a program is loaded."""
    return registry[name]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Primitive:
    """Declares one operation with everything that is known of it.

    A primitive is callable with strict operands: arrays and traced values of the exact types that
    it takes, or Python scalars, which take the dtype of the last operand that is not one.

    Attributes:
        name: in lower case; the variable is called `name_p`.
        tags: the classes it belongs to: "elementwise", "linear", "structural", "reduction", ...
        kinds: the dtypes that samples are cast to: letters among b (bool), i, u, f, c.
        infer: `(*types, **params) -> type`, or a tuple of types where `multiple`.
        lower: `(xp, *arrays, **params) -> array`, with `xp` either `numpy` or `jax.numpy`.
        host: `(*types, **params) -> function`, what `lower` with `numpy` does for operands of these
            types, to the bit and with less to decide in each run; None for types where `lower`
            is to be called.
        jvp: one rule per operand, `(tangent, out, *primals, **params) -> tangent`.
        linearize: for primitives that carry programs, or whose linear part is not that of jvp.
        transpose: one rule per operand, `(cotangent, *operands, **params) -> cotangent`.
        batch: `(size, operands, dims, **params) -> out, out_dim`.
        prune: for primitives that carry programs, drops what unused results need:
            `(transforms, used, operands, params) -> operands, params, kept` or None.
        rewrite: `(scope, operands, types, params) -> atom | New | None`, an identity that makes
            the equation simpler, exact to the bit but for signs of zeros.
        cost: `(operand types, result types, params) -> Cost`.
        samples: `() -> [Sample, ...]`, edge cases among them.
        source: where the formula comes from, if from somewhere.
        multiple: whether it has a tuple of results.
        is_higher_order: whether the params hold programs.
    """

    name: str
    tags: frozenset[str]
    kinds: str
    infer: Callable[..., Any]
    lower: Callable[..., Any]
    host: Callable[..., Any] | Absent
    jvp: Any
    linearize: Recursive | Absent
    transpose: Any
    batch: Callable[..., Any] | Recursive | Absent
    prune: Callable[..., Any] | Absent
    rewrite: Callable[..., Any] | Absent
    cost: Callable[[tuple[ArrayType, ...], tuple[ArrayType, ...], Params], Cost]
    samples: Callable[[], list[Sample]]
    source: str | None
    multiple: bool
    is_higher_order: bool = field(init=False)
    _types: dict[Any, tuple[ArrayType, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.name in registry:
            raise ValueError(f"There is a primitive named {self.name} already.")
        registry[self.name] = self
        object.__setattr__(self, "is_higher_order", "control" in self.tags)

    def __reduce__(self) -> tuple:
        return _registered, (self.name,)

    def __repr__(self) -> str:
        return f"{self.name}_p"

    def infer_types(self, types: tuple[ArrayType, ...], params: Params) -> tuple[ArrayType, ...]:
        """Returns the types of the results; remembers them for these types and params."""
        key = (types, params) if params else types
        found = self._types.get(key)
        if found is None:
            result = self.infer(*types, **params)
            found = tuple(result) if self.multiple else (result,)
            # params that hold programs, or functions to call, keep them alive
            heavy = self.is_higher_order or "external" in self.tags
            if len(self._types) > (64 if heavy else 4096):
                self._types.clear()
            self._types[key] = found
        return found

    def on_host(
        self, types: Sequence[ArrayType], params: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Returns what `host` makes for these types; None where `lower` is to be called."""
        return None if isinstance(self.host, Absent) else self.host(*types, **params)

    def __call__(self, *operands: Any, **params: Any) -> Any:
        """Applies the primitive to strict operands: records it, or runs it where nothing traces."""
        for operand in operands:
            if type(operand) is not Tracer and _is_python_scalar(operand):
                operands = _with_literals(self, operands)
                break
        results = bind(self, operands, Params(params) if params else NO_PARAMS)
        return results if self.multiple else results[0]

    def absent(self, rule: str, reason: str) -> MissingRuleError:
        """Returns the error that says that a rule is missing."""
        return MissingRuleError(
            f"{self.name}: it has no {rule} rule: {reason}.\n  {self.name} at {recording_place()}"
        )


def forget_types() -> None:
    """Forgets what types were inferred."""
    for primitive in registry.values():
        primitive._types.clear()


def _is_python_scalar(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)


def _with_literals(primitive: Primitive, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Turns Python scalars into literals of the dtype of the last operand that is not one."""
    arrays = [operand for operand in operands if not _is_python_scalar(operand)]
    if not arrays:
        raise DTypeError(
            f"{primitive.name}_p takes at least one array; Python scalars alone have no dtype.\n"
            f"  operands: {', '.join(map(repr, operands))}\n"
            f"  Write ftrans.numpy.asarray(x, dtype=...) for one of them."
        )
    dtype = type_of(arrays[-1]).dtype
    return tuple([scalar(x, dtype) if _is_python_scalar(x) else x for x in operands])


_scalars: dict[tuple[Any, type, Any], Literal] = {}


def scalar(value: complex, dtype: object) -> Literal:
    """Returns the literal for a Python scalar in a dtype; mostly the same object for the same one.

    Example:
        >>> scalar(2, "float32")
        2.0
    """
    key = (value or repr(value), type(value), dtype)  # 0.0 equals -0.0
    literal = _scalars.get(key)
    if literal is None:
        literal = _scalar(value, np.dtype(dtype))  # type: ignore[call-overload]
        # no complex number with such a part
        if not isinstance(value, complex) or (value.real and value.imag):
            if len(_scalars) >= 4096:
                _scalars.clear()
            _scalars[key] = literal
    return literal


def _scalar(value: complex, dtype: np.dtype) -> Literal:
    if is_float(dtype):
        return Literal(float(value), dtype)  # type: ignore[arg-type]
    if is_complex(dtype):
        return Literal(complex(value), dtype)
    return Literal(bool(value) if dtype.kind == "b" else int(value), dtype)  # type: ignore[arg-type]
