"""Reductions: prod, max, min, any, all, argmax, argmin; `sum` stands in axes.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.errors import AxisError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.arithmetic import div_p, mul_p
from ftrans.primitives.axes import adding, restore, sum_p, transpose_p
from ftrans.primitives.cumulative import cumprod_p, shift
from ftrans.primitives.family import check_kind, normal, one_pass_cost, plain, reduced, reduction
from ftrans.primitives.logic import eq_p, ne_p, or_p
from ftrans.primitives.record import Absent, Primitive, Sample
from ftrans.primitives.select import convert_p, select_p
from ftrans.primitives.shape import reshape_p

__all__ = ["all_p", "any_p", "argmax_p", "argmin_p", "max_p", "min_p", "prod_p"]


# --------------------------------------------------------------------------------------- prod


def _prod_jvp(t: Any, out: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    # Each tangent is multiplied by the elements before it and by those after it, which is exact
    # where elements are zero. The axes are made one, in last place.
    shape = type_of(x).shape
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    flat = (*(shape[axis] for axis in kept), math.prod(shape[axis] for axis in axes))
    x, t = (reshape_p(transpose_p(v, permutation=(*kept, *axes)), shape=flat) for v in (x, t))
    along = {"axis": len(kept)}
    before = cumprod_p(shift(x, 1, 1.0, reverse=False, **along), reverse=False, **along)
    after = cumprod_p(shift(x, 1, 1.0, reverse=True, **along), reverse=True, **along)
    return sum_p(mul_p(t, mul_p(before, after)), axes=(len(kept),))


prod_p = reduction(
    "prod",
    kinds="iufc",
    lower=adding("prod"),
    jvp=[_prod_jvp],
    samples=[
        Sample((normal(0, 3),), {"axes": (0,)}),
        Sample((normal(2, 3),), {"axes": ()}),
        Sample((np.array([0.0, 2.0, 3.0]),), {"axes": (0,)}),
        Sample((np.array([[0.0, 2.0], [0.0, 5.0]]),), {"axes": (1, 0)}),
    ],
)


# ------------------------------------------------------------------------------- max and min


def _extremum_jvp(t: Any, out: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    # equal elements share the tangent, which is the subgradient of least norm; so do NaNs, of
    # which there is one where the result is NaN
    hit = eq_p(x, restore(out, type_of(x).shape, axes))
    hit = or_p(hit, ne_p(x, x))
    count = sum_p(convert_p(hit, dtype=type_of(t).dtype), axes=axes)
    return div_p(sum_p(select_p(hit, t, 0.0), axes=axes), count)


def _extremum(name: str) -> Primitive:
    return reduction(
        name,
        kinds="biuf",
        lower=lambda xp, x, *, axes: getattr(xp, name)(x, axis=axes),
        jvp=[_extremum_jvp],
        samples=[Sample((np.array([[1.0, 1.0, 0.0], [2.0, np.nan, 2.0]]),), {"axes": (1,)}, False)],
        empty=False,
    )


max_p = _extremum("max")
min_p = _extremum("min")


# ------------------------------------------------------------------------------- any and all


def _of_booleans(name: str) -> Primitive:
    return reduction(
        name,
        kinds="b",
        lower=lambda xp, x, *, axes: getattr(xp, name)(x, axis=axes),
        jvp=[Absent("its values are booleans, which have no tangents")],
    )


any_p = _of_booleans("any")
all_p = _of_booleans("all")


# -------------------------------------------------------------------------- argmax and argmin


def _index_of_extremum(name: str) -> Primitive:
    """Declares the int32 index of the first extreme element along `axis`; NaN is extreme."""

    def infer(x: ArrayType, *, axis: int) -> ArrayType:
        check_kind(name, "biuf", x)
        if not 0 <= axis < x.ndim:
            raise AxisError(f"{name}: {x} has no axis {axis}.")
        if x.shape[axis] == 0:
            raise ShapeError(f"{name}: axis {axis} of {x} is empty, so it has no {name}.")
        return x.update(shape=reduced(x.shape, (axis,)), dtype=np.int32)

    def batch(size: int, operands: Any, dims: Any, *, axis: int) -> tuple[Any, int]:
        (dim,) = dims
        return primitive(operands[0], axis=axis + (axis >= dim)), dim - (axis < dim)

    ties = np.array([[1.0, 2.0, 2.0, 1.0], [0.0, np.nan, 3.0, -1.0]])
    primitive = plain(
        name,
        tags=["reduction"],
        kinds="biuf",
        infer=infer,
        lower=lambda xp, x, *, axis: getattr(xp, name)(x, axis=axis).astype(np.int32),
        jvp=[Absent("its values are integers, which have no tangents")],
        batch=batch,
        cost=one_pass_cost,
        samples=lambda: [
            Sample((normal(4),), {"axis": 0}),
            Sample((normal(2, 3, 2),), {"axis": 1}),
            Sample((ties,), {"axis": 1}, False),
            Sample((normal(0, 3),), {"axis": 1}),
        ],
    )
    return primitive


argmax_p = _index_of_extremum("argmax")
argmin_p = _index_of_extremum("argmin")
