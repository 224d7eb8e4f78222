"""Primitives that rearrange elements: reshape, concatenate, slice, pad, reverse, roll; and iota.

All are linear. A mapped axis is moved to the front where the params would otherwise have to be
interwoven with it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.axes import broadcast_p, in_front
from ftrans.primitives.family import normal, structural
from ftrans.primitives.namespace import held_as
from ftrans.primitives.record import (
    LINEAR,
    Absent,
    Joint,
    Linear,
    New,
    NotLinear,
    Sample,
    operand_type,
)

# ------------------------------------------------------------------------------------ reshape


def _reshape_infer(x: ArrayType, *, shape: tuple) -> ArrayType:
    if math.prod(shape) != x.size:
        raise ShapeError(f"reshape: {x} has {x.size} elements, {shape} takes {math.prod(shape)}.")
    return x.update(shape=shape)


def _reshape_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    (x,) = operands
    inner = scope.definition(x)
    if inner and inner.primitive is reshape_p:
        x = inner.operands[0]
        return New(reshape_p, (x,), params)
    if scope.type(x).shape == params["shape"]:
        return x
    fill = scope.fill(x)
    if fill is not None:
        return New(broadcast_p, (fill,), {"shape": params["shape"], "axes": ()})
    return None


reshape_p = structural(
    "reshape",
    infer=_reshape_infer,
    lower=lambda xp, x, *, shape: xp.reshape(x, shape),
    host=lambda t, *, shape: operator.methodcaller("reshape", shape),
    jvp=LINEAR,
    transpose=[lambda ct, x, *, shape: reshape_p(ct, shape=x.type.shape)],
    batch=in_front(lambda size, x, *, shape: reshape_p(x, shape=(size, *shape))),
    rewrite=_reshape_rewrite,
    tags=["view"],
    samples=[
        Sample((normal(2, 3),), {"shape": (3, 2)}),
        Sample((normal(1),), {"shape": ()}),
        Sample((normal(0, 3),), {"shape": (2, 0)}),
    ],
)


# -------------------------------------------------------------------------------- concatenate


def _concatenate_infer(*types: ArrayType, axis: int) -> ArrayType:
    first = types[0]
    for t in types:
        if t.dtype != first.dtype:
            raise DTypeError(f"concatenate: operands have different dtypes: {types}.")
        if t.ndim != first.ndim or any(
            a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != axis
        ):
            raise ShapeError(f"concatenate: operands do not fit along axis {axis}: {types}.")
    shape = list(first.shape)
    shape[axis] = sum(t.shape[axis] for t in types)
    return first.update(shape=tuple(shape))


def _concatenate_transpose(ct: Any, *operands: Any, axis: int) -> list[Any]:
    out, start = [], 0
    for operand in operands:
        stop = start + operand_type(operand).shape[axis]
        out.append(part(ct, axis, start, stop) if isinstance(operand, Linear) else None)
        start = stop
    return out


concatenate_p = structural(
    "concatenate",
    infer=_concatenate_infer,
    lower=lambda xp, *xs, axis: xp.concatenate(xs, axis=axis),
    host=lambda *types, axis: lambda *xs: np.concatenate(xs, axis),
    jvp=LINEAR,
    transpose=Joint(_concatenate_transpose),
    batch=in_front(lambda size, *xs, axis: concatenate_p(*xs, axis=axis + 1)),
    samples=[
        Sample((normal(2, 3), normal(1, 3)), {"axis": 0}),
        Sample((normal(2, 1), normal(2, 0), normal(2, 2)), {"axis": 1}),
        Sample((normal(3),), {"axis": 0}),
    ],
)


# -------------------------------------------------------------------------------------- slice


def _slice_infer(x: ArrayType, *, start: tuple, stop: tuple, step: tuple) -> ArrayType:
    if not len(start) == len(stop) == len(step) == x.ndim or any(
        not (0 <= a <= b <= size and s >= 1)
        for a, b, s, size in zip(start, stop, step, x.shape, strict=True)
    ):
        raise ShapeError(f"slice: {start}:{stop}:{step} does not fit {x}.")
    return x.update(shape=tuple(-((a - b) // s) for a, b, s in zip(start, stop, step, strict=True)))


def _slice_lower(xp: Any, x: Any, *, start: tuple, stop: tuple, step: tuple) -> Any:
    if xp is np:
        return x[tuple(map(slice, start, stop, step))]
    from jax import lax

    return lax.slice(x, start, stop, step)


def _slice_transpose(ct: Any, x: Linear, *, start: tuple, stop: tuple, step: tuple) -> Any:
    shape = type_of(ct).shape
    interior = tuple(s - 1 for s in step)
    high = []
    for a, s, n, size in zip(start, step, shape, x.type.shape, strict=True):
        covered = a + (s * (n - 1) + 1 if n else 0)
        high.append(size - covered)
    return pad_p(ct, low=start, high=tuple(high), interior=interior, value=0)


slice_p = structural(
    "slice",
    infer=_slice_infer,
    lower=_slice_lower,
    host=lambda t, *, start, stop, step: operator.itemgetter(tuple(map(slice, start, stop, step))),
    jvp=LINEAR,
    transpose=[_slice_transpose],
    batch=in_front(
        lambda size, x, *, start, stop, step: slice_p(
            x, start=(0, *start), stop=(size, *stop), step=(1, *step)
        )
    ),
    tags=["view"],
    samples=[
        Sample((normal(5, 4),), {"start": (1, 0), "stop": (5, 3), "step": (2, 1)}),
        Sample((normal(7),), {"start": (0,), "stop": (7,), "step": (3,)}),
        Sample((normal(4),), {"start": (2,), "stop": (2,), "step": (1,)}),
    ],
)


def part(x: Any, axis: int, start: int, stop: int, step: int = 1) -> Any:
    """Returns the part of `x` between two places of one axis."""
    shape = type_of(x).shape
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    stops = tuple(stop if i == axis else size for i, size in enumerate(shape))
    steps = tuple(step if i == axis else 1 for i in range(len(shape)))
    return slice_p(x, start=starts, stop=stops, step=steps)


# ---------------------------------------------------------------------------------------- pad


def _pad_infer(x: ArrayType, *, low: tuple, high: tuple, interior: tuple, value: Any) -> ArrayType:
    if not len(low) == len(high) == len(interior) == x.ndim:
        raise ShapeError(f"pad: {low}, {high}, {interior} do not fit {x}.")
    shape = tuple(
        a + b + n + max(n - 1, 0) * i
        for a, b, i, n in zip(low, high, interior, x.shape, strict=True)
    )
    if any(n < 0 for n in shape):
        raise ShapeError(f"pad: crops more of {x} than there is: {low}, {high}.")
    return x.update(shape=shape)


def _pad_lower(xp: Any, x: Any, *, low: tuple, high: tuple, interior: tuple, value: Any) -> Any:
    if xp is not np:
        from jax import lax

        fill = xp.asarray(value, dtype=x.dtype)
        return lax.pad(x, fill, tuple(zip(low, high, interior, strict=True)))
    added = {"low": tuple([max(n, 0) for n in low]), "high": tuple([max(n, 0) for n in high])}
    full = _padding(type_of(x), **added, interior=interior, value=value)(x)
    # negative padding crops
    crop = zip(low, high, full.shape, strict=True)
    return full[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in crop)]


def _padding(
    t: ArrayType, *, low: tuple, high: tuple, interior: tuple, value: Any
) -> Callable[[Any], Any]:
    """Returns what adds elements, none of them less than none."""
    spread = [n + max(n - 1, 0) * i for n, i in zip(t.shape, interior, strict=True)]
    shape = tuple([a + n + b for a, n, b in zip(low, spread, high, strict=True)])
    at = tuple([slice(a, a + n, i + 1) for a, n, i in zip(low, spread, interior, strict=True)])
    is_zero = not any(np.asarray(value).astype(t.dtype).tobytes())  # which -0.0 is not

    def padded(x: Any) -> Any:
        found = np.zeros(shape, t.dtype) if is_zero else np.full(shape, value, t.dtype)
        found[at] = x
        return found

    return padded


def _pad_host(t: ArrayType, **how: Any) -> Callable[[Any], Any] | None:
    return None if min((*how["low"], *how["high"]), default=0) < 0 else _padding(t, **how)


def _pad_transpose(
    ct: Any, x: Linear, *, low: tuple, high: tuple, interior: tuple, value: Any
) -> Any:
    if value != 0:
        raise NotLinear("it puts another value than 0 around them")
    # undo the crops first, then read the places that the elements went to
    shape = type_of(ct).shape
    none = (0,) * len(shape)
    low_crop, high_crop = (tuple(max(-n, 0) for n in side) for side in (low, high))
    if any(low_crop) or any(high_crop):
        ct = pad_p(ct, low=low_crop, high=high_crop, interior=none, value=0)
    start = tuple(max(n, 0) for n in low)
    sizes = zip(start, x.type.shape, interior, strict=True)
    stop = tuple(a + (n + (n - 1) * i if n else 0) for a, n, i in sizes)
    return slice_p(ct, start=start, stop=stop, step=tuple(i + 1 for i in interior))


pad_p = structural(
    "pad",
    infer=_pad_infer,
    lower=_pad_lower,
    host=_pad_host,
    jvp=[lambda t, out, x, *, value, **params: pad_p(t, value=0, **params)],
    transpose=[_pad_transpose],
    batch=in_front(
        lambda size, x, *, low, high, interior, value: pad_p(
            x, low=(0, *low), high=(0, *high), interior=(0, *interior), value=value
        )
    ),
    tags=["linear"],
    samples=[
        Sample((normal(3),), {"low": (1,), "high": (2,), "interior": (1,), "value": 0}),
        Sample((normal(3, 2),), {"low": (-1, 2), "high": (1, -1), "interior": (2, 0), "value": 0}),
        Sample((normal(0),), {"low": (1,), "high": (1,), "interior": (2,), "value": 0}),
        Sample((normal(2),), {"low": (1,), "high": (0,), "interior": (0,), "value": 1}),
        Sample((normal(2),), {"low": (0,), "high": (1,), "interior": (0,), "value": -0.0}),
    ],
)


# ---------------------------------------------------------------------------------------- rev


def _rev_infer(x: ArrayType, *, axes: tuple) -> ArrayType:
    if any(not 0 <= axis < x.ndim for axis in axes):
        raise ShapeError(f"rev: {x} has no axes {axes}.")
    return x


rev_p = structural(
    "rev",
    infer=_rev_infer,
    lower=lambda xp, x, *, axes: xp.flip(x, axes),
    jvp=LINEAR,
    transpose=[lambda ct, x, *, axes: rev_p(ct, axes=axes)],
    batch=lambda size, operands, dims, *, axes: (
        rev_p(operands[0], axes=tuple(axis + (axis >= dims[0]) for axis in axes)),
        dims[0],
    ),
    tags=["view"],
    samples=[Sample((normal(2, 3),), {"axes": (1,)}), Sample((normal(2, 3),), {"axes": (0, 1)})],
)


# --------------------------------------------------------------------------------------- roll


def _roll_infer(x: ArrayType, *, shift: int, axis: int) -> ArrayType:
    if not 0 <= axis < x.ndim or not 0 < shift < x.shape[axis]:
        raise ShapeError(f"roll: {x} cannot be rolled by {shift} along axis {axis}.")
    return x


def _roll_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    (x,) = operands
    if scope.fill(x) is not None:
        return x
    inner = scope.definition(x)
    if inner is None or inner.primitive is not roll_p or inner.params["axis"] != params["axis"]:
        return None
    shift = (params["shift"] + inner.params["shift"]) % types[0].shape[params["axis"]]
    taken = inner.operands[0]
    return New(roll_p, (taken,), {"shift": shift, "axis": params["axis"]}) if shift else taken


def _roll_host(t: ArrayType, *, shift: int, axis: int) -> Callable[[Any], Any]:
    before, cut = (slice(None),) * axis, t.shape[axis] - shift
    last, first = (*before, slice(cut, None)), (*before, slice(cut))
    return lambda x: np.concatenate((x[last], x[first]), axis)


def _rolled_back(ct: Any, x: Linear, *, shift: int, axis: int) -> Any:
    return roll_p(ct, shift=x.type.shape[axis] - shift, axis=axis)


roll_p = structural(
    "roll",
    infer=_roll_infer,
    lower=lambda xp, x, *, shift, axis: xp.roll(x, shift, axis),
    host=_roll_host,
    jvp=LINEAR,
    transpose=[_rolled_back],
    rewrite=_roll_rewrite,
    batch=lambda size, operands, dims, *, shift, axis: (
        roll_p(operands[0], shift=shift, axis=axis + (axis >= dims[0])),
        dims[0],
    ),
    samples=[
        Sample((normal(4, 3),), {"shift": 1, "axis": 0}),
        Sample((normal(2, 5),), {"shift": 3, "axis": 1}),
    ],
)


# --------------------------------------------------------------------------------------- iota


def _iota_lower(xp: Any, *, shape: tuple, dtype: np.dtype, axis: int) -> Any:
    line = xp.arange(shape[axis]).astype(held_as(xp, dtype))
    return xp.broadcast_to(
        line.reshape(tuple(-1 if i == axis else 1 for i in range(len(shape)))), shape
    )


iota_p = structural(
    "iota",
    kinds="",
    infer=lambda *, shape, dtype, axis: ArrayType(shape, dtype),
    lower=_iota_lower,
    host=lambda **params: functools.partial(_iota_lower, np, **params),
    jvp=[],
    transpose=[],
    batch=Absent("it has no operands, so none can be mapped"),
    samples=[
        Sample((), {"shape": (2, 3), "dtype": np.dtype("int32"), "axis": 1}),
        Sample((), {"shape": (3,), "dtype": np.dtype("float32"), "axis": 0}),
    ],
)
