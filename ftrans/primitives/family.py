"""What classes of primitives share: the cost, the inference and the batching of a family."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import AxisError, DTypeError, ShapeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.ir.dtype import is_complex, is_half, is_inexact
from ftrans.primitives.record import Absent, Cost, Primitive, Recursive, Sample

no_programs = Absent("it carries no program")
no_identity = Absent("no identity makes it simpler")
not_linear = Absent("it is not linear")


def total_bytes(*groups: Sequence[ArrayType]) -> int:
    """Returns the bytes of all values of these types."""
    return sum(t.nbytes for group in groups for t in group)


def elementwise_cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts one operation for each element of the results."""
    return Cost(sum(t.size for t in results), total_bytes(operands, results))


def one_pass_cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts one operation for each element of the first operand."""
    return Cost(operands[0].size, total_bytes(operands, results))


def free_cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts no arithmetic: the data are moved."""
    return Cost(0, total_bytes(operands, results))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns reproducible normal samples in float64."""
    return np.random.default_rng(seed + math.prod(shape)).normal(size=shape)


def _kind(dtype: np.dtype) -> str:
    return "f" if dtype.kind == "V" or dtype.name == "bfloat16" else dtype.kind


def check_kind(name: str, kinds: str, *types: ArrayType) -> None:
    """Raises unless every type is among the kinds that a primitive takes."""
    for t in types:
        if _kind(t.dtype) not in kinds:
            words = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
            fix = "Convert it first: x.astype('float32')."
            if is_complex(t.dtype):
                fix = "Take a real number of each: abs(x), x.real, x.imag."
            raise DTypeError(
                f"{name}: takes {', '.join(words[k] for k in kinds)} arrays.\n"
                f"  operand: {t}\n  {fix}"
            )


def in_single(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a lowering that computes in single precision for operands in half precision."""

    def lowered(xp: Any, x: Any, **params: Any) -> Any:
        if is_half(x.dtype):
            return lower(xp, xp.asarray(x).astype(np.float32), **params).astype(x.dtype)
        return lower(xp, x, **params)

    return lowered


def plain(
    name: str,
    *,
    tags: Sequence[str],
    kinds: str,
    infer: Callable[..., Any],
    lower: Callable[..., Any],
    jvp: Any,
    transpose: Any = not_linear,
    batch: Callable[..., Any] | Absent,
    cost: Callable[..., Cost],
    samples: Callable[[], list[Sample]] | Sequence[Sample],
    rewrite: Callable[..., Any] | Absent = no_identity,
    source: str | None = None,
    multiple: bool = False,
) -> Primitive:
    """Declares a primitive that carries no programs; the arguments are those of `Primitive`."""
    return Primitive(
        name=name,
        tags=frozenset(tags),
        kinds=kinds,
        infer=infer,
        lower=lower,
        jvp=jvp,
        linearize=no_programs,
        transpose=transpose,
        batch=batch,
        prune=no_programs,
        rewrite=rewrite,
        cost=cost,
        samples=samples if callable(samples) else lambda: list(samples),
        source=source,
        multiple=multiple,
    )


def carrier(
    name: str,
    *,
    tags: Sequence[str] = (),
    infer: Callable[..., Any],
    lower: Callable[..., Any],
    jvp: Callable[..., Any] | Absent,
    linearize: Callable[..., Any] | Absent,
    transpose: Callable[..., Any] | Absent,
    batch: Callable[..., Any] | Absent,
    prune: Callable[..., Any],
    cost: Callable[..., Cost],
    samples: Callable[[], list[Sample]],
) -> Primitive:
    """Declares a primitive that carries programs; its rules are those of `Recursive`."""
    rules = {"jvp": jvp, "linearize": linearize, "transpose": transpose, "batch": batch}
    return Primitive(
        name=name,
        tags=frozenset({"control", *tags}),
        kinds="",
        infer=infer,
        lower=lower,
        prune=prune,
        rewrite=no_identity,
        cost=cost,
        samples=samples,
        source=None,
        multiple=True,
        **{slot: Recursive(rule) if callable(rule) else rule for slot, rule in rules.items()},
    )


def structural(
    name: str, *, tags: Sequence[str] = (), kinds: str = "biufc", **declared: Any
) -> Primitive:
    """Declares a primitive that moves elements about and computes nothing."""
    tags = ["structural", *tags]
    return plain(name, tags=tags, kinds=kinds, cost=free_cost, **declared)


def reduced(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape without the axes."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def reduction(
    name: str,
    *,
    kinds: str,
    samples: Sequence[Sample] = (),
    tags: Sequence[str] = (),
    empty: bool = True,
    **declared: Any,
) -> Primitive:
    """Declares a primitive that reduces over `axes`.

    Args:
        name: the name.
        kinds: the dtypes that it takes.
        samples: further samples.
        tags: further tags.
        empty: whether an axis of size zero can be reduced.
        **declared: what else `plain` takes: `lower` and `jvp`, and `transpose` where it is linear.
    """

    def infer(x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
        check_kind(name, kinds, x)
        if len(set(axes)) != len(axes) or any(not 0 <= axis < x.ndim for axis in axes):
            raise AxisError(f"{name}: {x} cannot be reduced over axes {axes}.")
        if not empty and any(x.shape[axis] == 0 for axis in axes):
            raise ShapeError(
                f"{name}: an empty axis has no {name}.\n  operand: {x}, axes {axes}\n"
                f"  Pass initial=..., the value that an empty reduction has."
            )
        return x.update(shape=reduced(x.shape, axes))

    def batch(size: int, operands: Any, dims: Any, *, axes: tuple[int, ...]) -> tuple[Any, int]:
        (dim,) = dims
        moved = tuple(axis + (axis >= dim) for axis in axes)
        return primitive(operands[0], axes=moved), dim - sum(axis < dim for axis in moved)

    drawn = [
        Sample((normal(2, 3),), {"axes": (0,)}),
        Sample((normal(2, 3, 2),), {"axes": (0, 2)}),
        Sample((normal(3),), {"axes": (0,)}),
        Sample((normal(0, 3),), {"axes": (1,)}),
    ]
    primitive = plain(
        name,
        tags=["reduction", *tags],
        kinds=kinds,
        infer=infer,
        batch=batch,
        cost=one_pass_cost,
        samples=[*drawn, *samples],
        **declared,
    )
    return primitive


def is_differentiable(x: Any) -> bool:
    """Tells whether a value can have a tangent."""
    return not isinstance(x, Literal) and is_inexact(type_of(x).dtype)
