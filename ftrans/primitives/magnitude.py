"""Size and sign, the larger and the smaller, bounds, rounding and remainders.

At kinks the derivative is the one of least norm; what is piecewise constant has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, real_of
from ftrans.primitives.arithmetic import div_p, mul_p, neg_p, sub_p
from ftrans.primitives.conversion import complex_p, conj_p, imag_p, real_p
from ftrans.primitives.elementwise import elementwise
from ftrans.primitives.family import edge
from ftrans.primitives.logic import and_p, eq_p, gt_p, le_p, lt_p, or_p, select_p
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import Absent, New, Primitive, Sample, zero

_edges = edge(0.0, -0.0, np.inf, -np.inf, np.nan)


# ------------------------------------------------------------------------------ abs and sign


def _abs_jvp(t: Any, out: Any, x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        return real_p(mul_p(t, conj_p(sign_p(x))))
    return mul_p(t, sign_p(x))


def _abs_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    inner = scope.definition(operands[0])
    if inner and inner.primitive in (neg_p, conj_p) and types[0].is_inexact:
        return New(abs_p, inner.operands, {})
    return None


def _sign_lower(xp: Any, x: Any) -> Any:
    # XLA, and NumPy for bfloat16, keep the sign of a zero
    if xp is np and x.dtype.kind in "iufc":
        return xp.sign(x)
    return xp.where(x == 0, xp.zeros_like(x), xp.sign(x))


def _sign_jvp(t: Any, out: Any, x: Any) -> Any:
    # The sign turns by the part of t across x, divided by |x|: i * sign * Im(conj(sign) t) / |x|.
    if not is_complex(type_of(x).dtype):
        return None
    size = abs_p(x)
    size = select_p(eq_p(size, 0.0), 1.0, size)
    turn = div_p(imag_p(mul_p(t, conj_p(out))), size)
    return mul_p(complex_p(0.0, turn), out)


abs_p = elementwise(
    "abs",
    rewrite=_abs_rewrite,
    kinds="iufc",
    lower="absolute",
    dtype=real_of,
    jvp=[_abs_jvp],
    samples=[_edges],
)

sign_p = elementwise(
    "sign",
    kinds="iufc",
    lower=_sign_lower,
    jvp=[_sign_jvp],
    samples=[edge(0.0, -0.0, 2.0, -3.0)],
)


# ---------------------------------------------------------------------- maximum and minimum


def _share(t: Any, x: Any, y: Any, loses: Primitive) -> Any:
    """Returns the tangent of the operand x: none where x loses, half where x and y are equal."""
    return select_p(loses(x, y), 0.0, select_p(eq_p(x, y), mul_p(t, 0.5), t))


def _same(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, y = operands
    return x if x == y and scope.type(x) is types[0] else None


def _extremum(name: str, loses: Primitive) -> Primitive:
    """Declares the choice of one of two; `loses(x, y)` says where it is not x."""
    ties = Sample((np.array([1.0, 2.0, np.nan, 1.0]), np.array([1.0, 2.0, 0.0, np.nan])))
    return elementwise(
        name,
        rewrite=_same,
        kinds="biuf",
        lower=name,
        jvp=[
            lambda t, out, x, y: _share(t, x, y, loses),
            lambda t, out, x, y: _share(t, y, x, loses),
        ],
        tags=["commutative"],
        samples=[ties._replace(smooth=False)],
    )


maximum_p = _extremum("maximum", lt_p)
minimum_p = _extremum("minimum", gt_p)


# -------------------------------------------------------------------------------------- clamp

# Of low, x and high the operand that the result follows has the tangent; on a bound none has it,
# for there the function is convex or concave and 0 is among its slopes.
clamp_p = elementwise(
    "clamp",
    kinds="iuf",
    lower=lambda xp, low, x, high: xp.minimum(xp.maximum(x, low), high),
    jvp=[
        lambda t, out, low, x, high: select_p(and_p(lt_p(x, low), le_p(low, high)), t, 0.0),
        lambda t, out, low, x, high: select_p(and_p(gt_p(x, low), lt_p(x, high)), t, 0.0),
        lambda t, out, low, x, high: select_p(or_p(gt_p(x, high), gt_p(low, high)), t, 0.0),
    ],
    samples=[
        Sample((np.full(5, 1.0), np.array([0.0, 1.0, 1.5, 2.0, 3.0]), np.full(5, 2.0)), {}, False),
        Sample((np.full(4, 1.0), np.array([0.5, 1.2, 1.7, 2.5]), np.full(4, 2.0))),
    ],
)


# ------------------------------------------------------------------------------ whole numbers


def _rounding(name: str, function: str) -> Primitive:
    """Declares a rounding; `function` is its name in NumPy."""
    return elementwise(
        name,
        kinds="f",
        lower=function,
        jvp=[zero],
        samples=[edge(-1.5, -0.5, 0.5, 1.5, 2.5, 3.0), _edges],
    )


floor_p = _rounding("floor", "floor")
ceil_p = _rounding("ceil", "ceil")
round_p = _rounding("round", "rint")


def _rem_lower(xp: Any, x: Any, y: Any) -> Any:
    if xp is not np:
        return by_lax(xp, "rem", x, y)
    out = np.fmod(x, y)
    return np.where(y == 0, x, out) if x.dtype.kind in "iu" else out


rem_p = elementwise(
    "rem",
    kinds="iuf",
    lower=_rem_lower,
    jvp=[
        lambda t, out, x, y: t,
        # x = quotient * y + out; the difference is a multiple of y but for rounding
        lambda t, out, x, y: mul_p(t, neg_p(round_p(div_p(sub_p(x, out), y)))),
    ],
    domain=(0.6, 4.9),
    tags=["costly"],
    samples=[
        Sample((np.array([7.5, -7.5, 7.5, -7.5]), np.array([2.0, 2.0, -2.0, -2.0]))),
        Sample((np.array([2.0, 0.0, 1.0, np.inf]), np.array([2.0, 3.0, 0.0, 2.0])), smooth=False),
    ],
)

is_finite_p = elementwise(
    "is_finite",
    kinds="fc",
    lower="isfinite",
    jvp=[Absent("its values are booleans, which have no tangents")],
    dtype=lambda dtype: np.bool_,
    samples=[_edges],
)
