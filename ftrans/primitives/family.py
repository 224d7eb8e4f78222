"""What classes of primitives share: the cost, the inference and the batching of a family."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import AxisError, DTypeError, ShapeError
from ftrans.ir import ArrayType
from ftrans.ir.dtype import is_complex, is_float, is_half
from ftrans.primitives.record import LINEAR, Absent, Cost, Primitive, Recursive, Sample

no_programs = Absent("it carries no program")
by_lower = Absent("there is nothing in `lower` that is known before it runs")
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


def edge(*values: float) -> Sample:
    """Returns a sample of values at which finite differences say nothing."""
    return Sample((np.array(values),), smooth=False)


def check_kind(name: str, kinds: str, *types: ArrayType) -> None:
    """Raises unless every type is among the kinds that a primitive takes."""
    for t in types:
        if ("f" if is_float(t.dtype) else t.dtype.kind) not in kinds:
            words = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
            fix = f"Convert it first: x.astype('{'float32' if 'f' in kinds else 'int32'}')."
            if is_complex(t.dtype):
                fix = "Take a real number of each: abs(x), x.real, x.imag."
            raise DTypeError(
                f"{name}: takes {', '.join(words[k] for k in kinds)} arrays.\n"
                f"  operand: {t}\n  {fix}"
            )


def in_single(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a lowering that computes in single precision for operands in half precision."""

    def lowered(xp: Any, *arrays: Any, **params: Any) -> Any:
        half, single = arrays[0].dtype, np.dtype("float32")
        if not is_half(half):
            return lower(xp, *arrays, **params)
        given = [xp.asarray(x).astype(single) if x.dtype == half else x for x in arrays]
        found = lower(xp, *given, **params)
        if not isinstance(found, (tuple, list)):
            return found.astype(half) if found.dtype == single else found
        return tuple([x.astype(half) if x.dtype == single else x for x in found])

    return lowered


def plain(
    name: str,
    *,
    tags: Sequence[str],
    samples: Callable[[], list[Sample]] | Sequence[Sample],
    transpose: Any = not_linear,
    rewrite: Callable[..., Any] | Absent = no_identity,
    source: str | None = None,
    multiple: bool = False,
    linearize: Recursive | Absent = no_programs,
    host: Callable[..., Any] | Absent = by_lower,
    **declared: Any,
) -> Primitive:
    """Declares a primitive that carries no programs; the arguments are those of `Primitive`.

    What has `LINEAR` for its `jvp` is tagged "linear".
    """
    return Primitive(
        name=name,
        tags=frozenset([*tags, "linear"] if declared["jvp"] is LINEAR else tags),
        linearize=linearize,
        host=host,
        transpose=transpose,
        prune=no_programs,
        rewrite=rewrite,
        samples=samples if callable(samples) else lambda: list(samples),
        source=source,
        multiple=multiple,
        **declared,
    )


def carrier(name: str, *, tags: Sequence[str] = (), **declared: Any) -> Primitive:
    """Declares a primitive that carries programs; its rules are those of `Recursive`."""
    for slot in ("jvp", "linearize", "transpose", "batch"):
        if callable(rule := declared[slot]):
            declared[slot] = Recursive(rule)
    return Primitive(
        name=name,
        tags=frozenset({"control", *tags}),
        kinds="",
        host=by_lower,
        rewrite=no_identity,
        source=None,
        multiple=True,
        **declared,
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
    empty: bool = True,
    **declared: Any,
) -> Primitive:
    """Declares a primitive that reduces over `axes`.

    Args:
        name: the name.
        kinds: the dtypes that it takes.
        samples: further samples.
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
        tags=["reduction"],
        kinds=kinds,
        infer=infer,
        batch=batch,
        cost=one_pass_cost,
        samples=[*drawn, *samples],
        **declared,
    )
    return primitive
