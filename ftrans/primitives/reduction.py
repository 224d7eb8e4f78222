"""Reductions, and what runs along one axis from either end; `sum` stands in axes.py.

Of those that run and are not linear, tangents are computed as the values could be: of few elements
by doubling (at step k each joins with the one 2^k before it, and then stands for 2^(k+1) elements);
many are joined in pairs first, to half as many, so that the work grows as they do. Joining never
divides, so zeros and infinities do no harm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ftrans.errors import AxisError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import is_half
from ftrans.primitives.arithmetic import add_p, div_p, mul_p, sub_p
from ftrans.primitives.axes import adding, restore, sum_p, transpose_p
from ftrans.primitives.conversion import convert_p
from ftrans.primitives.elementary import exp_p, log1p_p, logistic_p
from ftrans.primitives.family import check_kind, normal, one_pass_cost, plain, reduced, reduction
from ftrans.primitives.logic import eq_p, ge_p, le_p, ne_p, or_p, select_p
from ftrans.primitives.magnitude import abs_p
from ftrans.primitives.record import LINEAR, Absent, Primitive, Sample, scalar
from ftrans.primitives.shape import concatenate_p, pad_p, part, reshape_p, rev_p

_FEW = 256
"""The most elements whose tangents are computed by doubling."""


def shift(x: Any, by: int, fill: float, *, axis: int, reverse: bool) -> Any:
    """Moves elements along an axis by some places, away from the start that `reverse` says.

    The places that become free hold `fill`.
    """
    ndim = type_of(x).ndim
    gain, loss = (tuple(n if i == axis else 0 for i in range(ndim)) for n in (by, -by))
    low, high = (loss, gain) if reverse else (gain, loss)
    return pad_p(x, low=low, high=high, interior=(0,) * ndim, value=fill)


def _running(join: Callable[..., Any], fill: float) -> Callable[..., Any]:
    """Returns the jvp rule of a running operation.

    Args:
        join: `(x, t, y, s) -> value, tangent` joins a stretch of elements (value x, tangent t)
            with the stretch after it (y and s).
        fill: the neutral value of the operation.
    """

    def rule(t: Any, out: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        if type_of(x).shape[axis] > _FEW and reverse:
            x, t = (rev_p(v, axes=(axis,)) for v in (x, t))
            return rev_p(ran(x, t, axis, False)[1], axes=(axis,))
        return ran(x, t, axis, reverse)[1]

    def ran(x: Any, t: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
        n, by = type_of(x).shape[axis], 1
        if n > _FEW:
            return in_pairs(x, t, axis, n)
        while by < n:
            before = shift(x, by, fill, axis=axis, reverse=reverse)
            x, t = join(before, shift(t, by, 0.0, axis=axis, reverse=reverse), x, t)
            by *= 2
        return x, t

    def in_pairs(x: Any, t: Any, axis: int, n: int) -> tuple[Any, Any]:
        """Runs over pairs of neighbours, and from these to what stands between."""
        first, second = ([part(v, axis, start, n, 2) for v in (x, t)] for start in (0, 1))
        pairs, ts = join(*(part(v, axis, 0, n // 2) for v in first), *second)
        every_second = ran(pairs, ts, axis, False)
        before = (part(v, axis, 0, (n - 1) // 2) for v in every_second)
        after = (part(v, axis, 1, n - n // 2) for v in first)
        joined = zip(first, join(*before, *after), strict=True)
        between = (concatenate_p(part(v, axis, 0, 1), w, axis=axis) for v, w in joined)
        x, t = map(_interleaved, between, every_second, repeat(axis))
        return x, t

    return rule


def _interleaved(x: Any, y: Any, axis: int) -> Any:
    """Returns the elements of x and y in turn; x may have one more."""
    n, m = (type_of(v).shape[axis] for v in (x, y))
    none = (0,) * type_of(x).ndim

    def spread(v: Any, low: int, high: int) -> Any:
        ends = ((*none[:axis], k, *none[axis + 1 :]) for k in (low, high, 1))
        return pad_p(v, **dict(zip(("low", "high", "interior"), ends, strict=True)), value=0.0)

    return add_p(spread(x, 0, int(n == m)), spread(y, 1, n - m))


def _by_scan(name: str, step: str, x: Any, axis: int, reverse: bool) -> Any:
    """Runs along an axis in compiled code: on a CPU one element after the other, as NumPy does.

    In stretches that are joined, as XLA has it, cumprod([0, 1e200, 1e200, ...]) is 0 * inf = NaN
    from some element on. Accelerators need the stretches.
    """
    from jax import lax
    from jax import numpy as xp

    def one_by_one(x: Any) -> Any:
        rows = xp.moveaxis(x, axis, 0)
        join, start = getattr(xp, step), rows[-1 if reverse else 0]
        rest = rows[:-1] if reverse else rows[1:]

        def body(carry: Any, row: Any) -> Any:
            carry = join(carry, row)
            return carry, carry

        out = lax.scan(body, start, rest, reverse=reverse)[1]
        parts = (out, start[None]) if reverse else (start[None], out)
        return xp.moveaxis(xp.concatenate(parts), 0, axis)

    def in_stretches(x: Any) -> Any:
        return getattr(lax, name)(x, axis=axis, reverse=reverse)

    if not x.size:
        return x
    wide = x.astype(np.float32) if is_half(x.dtype) else x
    return lax.platform_dependent(wide, cpu=one_by_one, default=in_stretches).astype(x.dtype)


def cumulative(
    name: str, *, kinds: str, step: str, samples: Sequence[Sample] = (), **declared: Any
) -> Primitive:
    """Declares a running operation along `axis`, which starts at the end of it where `reverse`.

    Args:
        name: the name, also that of the function in `jax.lax`.
        kinds: the dtypes that it takes.
        step: the name of the function of two elements, both in NumPy and in `jax.numpy`.
        samples: further samples.
        **declared: what else `plain` takes: `jvp`, and `transpose` where it is linear.
    """

    def infer(x: ArrayType, *, axis: int, reverse: bool) -> ArrayType:
        check_kind(name, kinds, x)
        if not 0 <= axis < x.ndim:
            raise AxisError(f"{name}: {x} has no axis {axis}.")
        return x.update()

    def lower(xp: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        if xp is not np:
            return _by_scan(name, step, x, axis, reverse)
        wide = x.astype(np.float32) if is_half(x.dtype) else x
        wide = np.flip(wide, axis) if reverse else wide
        out = getattr(np, step).accumulate(wide, axis, dtype=wide.dtype) if x.size else wide
        out = np.flip(out, axis) if reverse else out
        return out.astype(x.dtype, copy=False)

    def batch(size: int, operands: Any, dims: Any, *, axis: int, reverse: bool) -> Any:
        (dim,) = dims
        return primitive(operands[0], axis=axis + (axis >= dim), reverse=reverse), dim

    primitive = plain(
        name,
        tags=["cumulative"],
        kinds=kinds,
        infer=infer,
        lower=lower,
        batch=batch,
        cost=one_pass_cost,
        samples=lambda: [
            Sample((normal(5),), {"axis": 0, "reverse": False}),
            Sample((normal(6),), {"axis": 0, "reverse": True}),
            Sample((normal(2, 3, 2),), {"axis": 1, "reverse": False}),
            Sample((normal(2, 1),), {"axis": 1, "reverse": True}),
            Sample((normal(2, 0),), {"axis": 1, "reverse": False}),
            *samples,
        ],
        **declared,
    )
    return primitive


# ------------------------------------------------------------------------------------- cumsum

cumsum_p = cumulative(
    "cumsum",
    kinds="iufc",
    step="add",
    jvp=LINEAR,
    transpose=[lambda ct, x, *, axis, reverse: cumsum_p(ct, axis=axis, reverse=not reverse)],
)


# ------------------------------------------------------------------------------------ cumprod


cumprod_p = cumulative(
    "cumprod",
    kinds="iufc",
    step="multiply",
    jvp=[
        _running(lambda x, t, y, s: (mul_p(x, y), add_p(mul_p(t, y), mul_p(x, s))), 1.0),
    ],
    samples=[Sample((np.array([2.0, 0.0, 3.0, 0.0, 5.0]),), {"axis": 0, "reverse": False})],
)


# -------------------------------------------------------------------------- cummax and cummin


def _running_extremum(name: str, wins: Primitive, worst: float, step: str) -> Primitive:
    """Declares a running extremum; `wins(y, x)` says where the later y displaces x."""

    def join(x: Any, t: Any, y: Any, s: Any) -> Any:
        # of equal elements the last has the tangent, and NaN displaces all but NaN
        later = or_p(wins(y, x), ne_p(y, y))
        return select_p(later, y, x), select_p(later, s, t)

    ties = np.array([1.0, 2.0, 2.0, 0.0, np.nan, 3.0])
    return cumulative(
        name,
        kinds="iuf",
        step=step,
        jvp=[_running(join, worst)],
        samples=[Sample((ties,), {"axis": 0, "reverse": r}, False) for r in (False, True)],
    )


cummax_p = _running_extremum("cummax", ge_p, -math.inf, "maximum")
cummin_p = _running_extremum("cummin", le_p, math.inf, "minimum")


# ------------------------------------------------------------------------------- cumlogsumexp


def _join_logs(x: Any, t: Any, y: Any, s: Any) -> Any:
    # log(e^x + e^y) = m + log(1 + e^-d), where m is the larger and d = |x - y|. Both choices of m
    # are the same smooth function of x and y, so that derivatives of every order are right.
    above = or_p(ge_p(y, x), ne_p(y, y))
    m = select_p(above, y, x)
    # two infinities have no difference; as equals they share the tangent, and others have none
    infinite = eq_p(abs_p(m), math.inf)
    zero = scalar(0, type_of(m).dtype)
    x, y = (select_p(infinite, select_p(eq_p(v, m), zero, -math.inf), v) for v in (x, y))
    up, down = sub_p(y, x), sub_p(x, y)
    total = add_p(m, log1p_p(exp_p(select_p(above, down, up))))
    return total, add_p(mul_p(t, logistic_p(down)), mul_p(s, logistic_p(up)))


cumlogsumexp_p = cumulative(
    "cumlogsumexp",
    kinds="f",
    step="logaddexp",
    jvp=[_running(_join_logs, -math.inf)],
    samples=[
        Sample((np.array([1.0, 1.0, 1.0]),), {"axis": 0, "reverse": False}),
        Sample((np.array([-np.inf, 1.0, 2.0]),), {"axis": 0, "reverse": False}, False),
    ],
)

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
    **adding("prod"),
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
        host=lambda t, *, axes: functools.partial(getattr(np, f"{name}imum").reduce, axis=axes),
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
