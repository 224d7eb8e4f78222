"""Axes: `broadcast` adds them, `sum` takes them away, `transpose` puts them in order.

All are linear, and each is the transpose of one of them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.ir.above import above
from ftrans.ir.dtype import is_half
from ftrans.primitives.family import normal, reduction, structural
from ftrans.primitives.record import LINEAR, Linear, New, Sample, scalar

# ---------------------------------------------------------------------------------- broadcast


def inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the order that sorts a permutation, or any distinct numbers."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _broadcast_infer(x: ArrayType, *, shape: tuple, axes: tuple) -> ArrayType:
    if len(axes) != x.ndim or any(
        not 0 <= axis < len(shape) or shape[axis] != size
        for axis, size in zip(axes, x.shape, strict=False)
    ):
        raise ShapeError(f"broadcast: {x} does not fit axes {axes} of shape {shape}.")
    return x.update(shape=shape)


def _broadcast_lower(xp: Any, x: Any, *, shape: tuple, axes: tuple) -> Any:
    order, full = _alignment(shape, axes)
    x = x if order is None else xp.transpose(x, order)
    return xp.broadcast_to(xp.reshape(x, full), shape)


def _broadcast_host(t: ArrayType, *, shape: tuple, axes: tuple) -> Callable[[Any], Any] | None:
    """Makes a copy: inside of programs nobody asks whether it is a view."""
    order, full = _alignment(shape, axes)
    if math.prod(shape) > SMALL or order is not None:
        return None

    def copied(x: Any) -> Any:
        found = np.empty(shape, t.dtype)
        found[...] = x.reshape(full)
        return found

    return copied


def thin(*, shape: tuple, axes: tuple) -> Callable[[Any], Any] | None:
    """Returns what does for a broadcast where NumPy itself goes on to broadcast; None if nothing.

    It gives the operand sizes of 1 in the place of what is repeated.
    """
    order, full = _alignment(shape, axes)
    if order is not None:
        return None
    return operator.methodcaller("reshape", full) if axes else lambda x: x


SMALL = 4096
"""The most elements that are copied, since NumPy takes as long to make a view as to copy them."""


@functools.lru_cache(maxsize=1024)
def _alignment(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Returns the order of the axes, None where it is that, and the shape with ones elsewhere."""
    order = inverse(axes)
    full = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    return None if order == tuple(range(len(axes))) else order, full


def _broadcast_transpose(ct: Any, x: Linear, *, shape: tuple, axes: tuple) -> Any:
    summed = tuple(axis for axis in range(len(shape)) if axis not in axes)
    ct = sum_p(ct, axes=summed) if summed else ct
    # what is left stands in ascending order of `axes`
    order = inverse(inverse(axes))
    return ct if order == tuple(range(len(axes))) else transpose_p(ct, permutation=order)


def in_front(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the batch rule that computes on operands which have the mapped axis in front.

    Args:
        rule: `(size, *operands, **params) -> result`, which has it in front as well.
    """

    def batch(size: int, operands: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        return rule(size, *map(to_front, repeat(size), operands, dims), **params), 0

    return batch


def _broadcast_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    (x,) = operands
    if scope.type(x).shape == params["shape"] and not isinstance(x, Literal):
        return x if params["axes"] == tuple(range(len(params["axes"]))) else None
    inner = scope.definition(x)
    if inner and inner.primitive is broadcast_p:
        axes = tuple(params["axes"][axis] for axis in inner.params["axes"])
        return New(broadcast_p, inner.operands, {"shape": params["shape"], "axes": axes})
    return None


broadcast_p = structural(
    "broadcast",
    infer=_broadcast_infer,
    lower=_broadcast_lower,
    host=_broadcast_host,
    jvp=LINEAR,
    transpose=[_broadcast_transpose],
    batch=in_front(
        lambda size, x, *, shape, axes: broadcast_p(
            x, shape=(size, *shape), axes=(0, *(axis + 1 for axis in axes))
        )
    ),
    rewrite=_broadcast_rewrite,
    tags=["broadcast", "view"],
    samples=[
        Sample((normal(3),), {"shape": (2, 3), "axes": (1,)}),
        Sample((normal(2, 3),), {"shape": (3, 4, 2), "axes": (2, 0)}),
        Sample((normal(),), {"shape": (2, 2), "axes": ()}),
        Sample((normal(0),), {"shape": (2, 0), "axes": (1,)}),
    ],
)

above.broadcast = lambda x, shape: broadcast_p(x, shape=shape, axes=())


def zeros(type: ArrayType) -> Any:
    """Returns zeros of a type, as a strict operand."""
    fill = scalar(0, type.dtype)
    return broadcast_p(fill, shape=type.shape, axes=())


def expand(x: Any, size: int) -> Any:
    """Repeats an operand along a new leading axis."""
    t = type_of(x)
    if isinstance(x, Literal):
        return broadcast_p(x, shape=(size,), axes=())
    return broadcast_p(x, shape=(size, *t.shape), axes=tuple(range(1, t.ndim + 1)))


def filled(tangent: Any, primal: Any) -> Any:
    """Returns a tangent, zeros of the type of the primal where it is None."""
    return zeros(type_of(primal)) if tangent is None else tangent


# ---------------------------------------------------------------------------------------- sum


def restore(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Broadcasts a reduced operand back along the axes that were reduced."""
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    return broadcast_p(x, shape=shape, axes=kept)


def adding(function: str) -> dict[str, Any]:
    """Returns `lower` and `host` of a sum or product; half precision is accumulated in single."""
    of_numpy = {"sum": np.add.reduce, "prod": np.multiply.reduce}[function]

    def lower(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        reduce = of_numpy if xp is np else getattr(xp, function)
        if is_half(x.dtype):
            return reduce(x, axis=axes, dtype=np.float32).astype(x.dtype)
        return reduce(x, axis=axes, dtype=x.dtype)

    def host(t: ArrayType, *, axes: tuple[int, ...]) -> Callable[[Any], Any] | None:
        return None if is_half(t.dtype) else functools.partial(of_numpy, axis=axes, dtype=t.dtype)

    return {"lower": lower, "host": host}


def _sum_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    # negation is exact, so that of the sum is that of each element, but for the sign of a zero
    inner = scope.definition(operands[0])
    if inner and "additive" in inner.primitive.tags:
        return New(inner.primitive, tuple(scope.add(sum_p, inner.operands, params)), {})
    return None


sum_p = reduction(
    "sum",
    kinds="iufc",
    **adding("sum"),
    jvp=LINEAR,
    transpose=[lambda ct, x, *, axes: restore(ct, x.type.shape, axes)],
    rewrite=_sum_rewrite,
    samples=[Sample((normal(0, 3),), {"axes": (0,)})],
)


# ---------------------------------------------------------------------------------- transpose


def _transpose_infer(x: ArrayType, *, permutation: tuple) -> ArrayType:
    if sorted(permutation) != list(range(x.ndim)):
        raise ShapeError(f"transpose: {permutation} is no permutation of the axes of {x}.")
    return x.update(shape=tuple(x.shape[axis] for axis in permutation))


def _transpose_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    (x,) = operands
    permutation = params["permutation"]
    if permutation == tuple(range(len(permutation))):
        return x
    inner = scope.definition(x)
    if inner and inner.primitive is transpose_p:
        first = inner.params["permutation"]
        both = tuple(first[axis] for axis in permutation)
        return New(transpose_p, inner.operands, {"permutation": both})
    fill = scope.fill(x)
    if fill is not None:
        return New(broadcast_p, (fill,), {"shape": types[0].shape, "axes": ()})
    return None


transpose_p = structural(
    "transpose",
    infer=_transpose_infer,
    lower=lambda xp, x, *, permutation: xp.transpose(x, permutation),
    host=lambda t, *, permutation: operator.methodcaller("transpose", permutation),
    jvp=LINEAR,
    transpose=[lambda ct, x, *, permutation: transpose_p(ct, permutation=inverse(permutation))],
    batch=in_front(
        lambda size, x, *, permutation: transpose_p(
            x, permutation=(0, *(axis + 1 for axis in permutation))
        )
    ),
    rewrite=_transpose_rewrite,
    tags=["view"],
    samples=[
        Sample((normal(2, 3, 4),), {"permutation": (2, 0, 1)}),
        Sample((normal(),), {"permutation": ()}),
        Sample((normal(0, 2),), {"permutation": (1, 0)}),
    ],
)


def moveaxis(x: Any, source: int, destination: int) -> Any:
    """Moves one axis of a strict operand, where it has to move at all."""
    if source == destination:
        return x
    order = [axis for axis in range(type_of(x).ndim) if axis != source]
    order.insert(destination, source)
    return transpose_p(x, permutation=tuple(order))


def to_front(size: int, x: Any, dim: int | None) -> Any:
    """Moves the mapped axis of an operand to the front; repeats one that has none."""
    return expand(x, size) if dim is None else moveaxis(x, dim, 0)
