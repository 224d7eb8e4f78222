"""Reductions: sum, prod, max, min, any, all, argmax, argmin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import AxisError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import bfloat16
from ftrans.primitives.compare import eq_p
from ftrans.primitives.family import _bytes, check_kind, no_identity, no_programs, normal
from ftrans.primitives.record import LINEAR, Absent, Cost, Linear, Primitive, Sample
from ftrans.primitives.shape import broadcast_p

__all__ = ["any_p", "all_p", "max_p", "min_p", "prod_p", "reduced", "restore", "sum_p"]


def reduced(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape without the axes."""
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def restore(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Broadcasts a reduced operand back along the axes that were reduced."""
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    return broadcast_p(x, shape=shape, axes=kept)


def reduction(
    name: str,
    *,
    kinds: str,
    lower: Callable[..., Any],
    jvp: Any,
    transpose: Any = Absent("it is not linear"),
    samples: Sequence[Sample] = (),
    tags: Sequence[str] = (),
    empty: bool = True,
) -> Primitive:
    """Declares a primitive that reduces over `axes`.

    Args:
        name: the name.
        kinds: the dtypes that it takes.
        lower: `(xp, x, *, axes) -> array`.
        jvp: the rule.
        transpose: the rule where it is linear.
        samples: further samples.
        tags: further tags.
        empty: whether an axis of size zero can be reduced.
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

    def cost(operands: Any, results: Any, params: Any) -> Cost:
        return Cost(operands[0].size, _bytes(operands, results))

    drawn = [
        Sample((normal(2, 3),), {"axes": (0,)}),
        Sample((normal(2, 3, 2),), {"axes": (0, 2)}),
        Sample((normal(3),), {"axes": (0,)}),
        Sample((normal(0, 3),), {"axes": (1,)}),
    ]
    primitive = Primitive(
        name=name,
        tags=frozenset({"reduction", *tags}),
        kinds=kinds,
        infer=infer,
        lower=lower,
        jvp=jvp,
        linearize=no_programs,
        transpose=transpose,
        batch=batch,
        prune=no_programs,
        rewrite=no_identity,
        cost=cost,
        samples=lambda: [*drawn, *samples],
        source=None,
        multiple=False,
    )
    return primitive


def _sum_lower(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    if xp is np and x.dtype in (np.float16, bfloat16):
        return np.sum(x, axis=axes, dtype=np.float32).astype(x.dtype)
    return xp.sum(x, axis=axes, dtype=x.dtype)


sum_p = reduction(
    "sum",
    kinds="iufc",
    lower=_sum_lower,
    jvp=LINEAR,
    transpose=[lambda ct, x, *, axes: restore(ct, x.type.shape, axes)],
    tags=["linear"],
    samples=[Sample((normal(0, 3),), {"axes": (0,)})],
)

any_p = reduction(
    "any",
    kinds="b",
    lower=lambda xp, x, *, axes: xp.any(x, axis=axes),
    jvp=[Absent("its values are booleans, which have no tangents")],
)

all_p = reduction(
    "all",
    kinds="b",
    lower=lambda xp, x, *, axes: xp.all(x, axis=axes),
    jvp=[Absent("its values are booleans, which have no tangents")],
)
