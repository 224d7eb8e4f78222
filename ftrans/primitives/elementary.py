"""Roots, powers, exponentials, logarithms, and the circular and hyperbolic functions.

A rule multiplies the tangent by a factor that the primals alone determine, written in terms of the
result where that is cheap: so the linear part of a program is one product, with one residual.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.ir import ArrayType, Literal, type_of
from ftrans.ir.dtype import is_complex, is_unsigned
from ftrans.primitives.arithmetic import add_p, div_p, mul_p, neg_p, sub_p
from ftrans.primitives.axes import broadcast_p
from ftrans.primitives.conversion import real_p
from ftrans.primitives.elementwise import elementwise, transcendental
from ftrans.primitives.family import edge, in_single
from ftrans.primitives.logic import and_p, eq_p, ge_p, select_p
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import Sample


def _filled(x: Any, type: ArrayType) -> Any:
    """Broadcasts a literal, so that it can meet literals of the rule in a strict equation."""
    return broadcast_p(x, shape=type.shape, axes=()) if isinstance(x, Literal) else x


# -------------------------------------------------------------------------------------- roots


sqrt_p = elementwise(
    "sqrt",
    kinds="fc",
    domain=(0.1, 3.0),
    lower="sqrt",
    jvp=[lambda t, out, x: mul_p(t, div_p(0.5, out))],
    samples=[edge(0.0, -1.0, np.inf)],
)

rsqrt_p = elementwise(
    "rsqrt",
    kinds="fc",
    domain=(0.1, 3.0),
    lower=lambda xp, x: np.reciprocal(np.sqrt(x)) if xp is np else by_lax(xp, "rsqrt", x),
    jvp=[lambda t, out, x: mul_p(t, mul_p(div_p(out, x), -0.5))],
)

cbrt_p = transcendental(
    "cbrt",
    lambda t, out, x: mul_p(t, div_p(1 / 3, mul_p(out, out))),
    kinds="f",
    samples=[edge(0.0, -8.0)],
)


# ---------------------------------------------------------------------------------------- pow


def _whole_power(x: Any, y: Any) -> Any:
    """Computes a power of integers by squaring, once for each bit of the largest exponent."""
    from jax import lax
    from jax import numpy as xp

    def step(state: Any) -> Any:
        out, square, rest = state
        return xp.where(rest & 1 == 1, out * square, out), square * square, rest >> 1

    x, y = xp.broadcast_arrays(x, y)
    return lax.while_loop(lambda state: xp.any(state[2] != 0), step, (xp.ones_like(x), x, y))[0]


def _pow_lower(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return xp.power(x, y)
    power = np.power if xp is np else _whole_power
    if is_unsigned(x.dtype):
        return power(x, y)
    # A negative power of an integer is the integer part of the reciprocal of the positive one.
    positive = power(x, xp.maximum(y, xp.zeros_like(y)))
    odd = xp.bitwise_and(y, xp.ones_like(y)) == 1
    negative = xp.where((x == 1) | ((x == -1) & ~odd), 1, xp.where((x == -1) & odd, -1, 0))
    return xp.where(y < 0, negative, positive).astype(x.dtype)


def _pow_base(t: Any, out: Any, x: Any, y: Any) -> Any:
    # y x^(y-1), except that 0 x^(0-1) is 0 where x is 0 as it is everywhere else
    type = type_of(out)
    x, y = _filled(x, type), _filled(y, type)
    flat = and_p(eq_p(x, 0.0), eq_p(y, 0.0))
    return mul_p(t, mul_p(y, pow_p(x, select_p(flat, 1.0, sub_p(y, 1.0)))))


def _pow_exponent(t: Any, out: Any, x: Any, y: Any) -> Any:
    # x^y log(x), whose limit at x = 0 is 0 from the right of y = 0 on
    type = type_of(out)
    x, y = _filled(x, type), _filled(y, type)
    real = real_p(y) if is_complex(type.dtype) else y
    flat = and_p(eq_p(x, 0.0), ge_p(real, 0.0))
    return mul_p(t, mul_p(out, log_p(select_p(flat, 1.0, x))))


pow_p = transcendental(
    "pow",
    _pow_base,
    _pow_exponent,
    kinds="iufc",
    domain=(0.3, 3.0),
    lower=_pow_lower,
    tags=["exponent"],
    samples=[
        Sample(
            (np.array([0.0, 0.0, 0.0, -2.0, 1.0]), np.array([0.0, 1.0, 2.0, 3.0, 0.0])),
            smooth=False,
        )
    ],
    dlmf="4.2.E26",
)


# ------------------------------------------------------------------ exponentials and logarithms

exp_p = transcendental(
    "exp", lambda t, out, x: mul_p(t, out), samples=[edge(0.0, np.inf, -np.inf, np.nan)]
)

exp2_p = transcendental(
    "exp2",
    lambda t, out, x: mul_p(t, mul_p(out, math.log(2))),
    lower=in_single(lambda xp, x: xp.exp2(x)),
)

expm1_p = transcendental(
    "expm1", lambda t, out, x: mul_p(t, add_p(out, 1.0)), samples=[edge(1e-4, -1e-4)]
)

log_p = transcendental(
    "log", lambda t, out, x: div_p(t, x), domain=(0.1, 3.0), samples=[edge(0.0, -1.0, np.inf)]
)

log1p_p = transcendental(
    "log1p",
    lambda t, out, x: div_p(t, add_p(x, 1.0)),
    domain=(-0.9, 2.0),
    samples=[edge(-1.0, 1e-4)],
)


def _logistic_lower(xp: Any, x: Any) -> Any:
    if xp is not np:
        return by_lax(xp, "logistic", x)
    one = x.dtype.type(1)
    if is_complex(x.dtype):
        return one / (one + np.exp(-x))
    # with the exponential of what is not positive, which cannot overflow
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, one, small) / (one + small)


logistic_p = transcendental(
    "logistic",
    lambda t, out, x: mul_p(t, mul_p(out, sub_p(1.0, out))),
    lower=_logistic_lower,
    samples=[Sample((np.array([-9.0, -1.0, 0.0, 9.0]),)), edge(0.0, 90.0, -90.0)],
)


# ----------------------------------------------------------------------------------- circular

sin_p = transcendental("sin", lambda t, out, x: mul_p(t, cos_p(x)), dlmf="4.20.E1")

cos_p = transcendental("cos", lambda t, out, x: mul_p(t, neg_p(sin_p(x))), dlmf="4.20.E2")

tan_p = transcendental(
    "tan",
    lambda t, out, x: mul_p(t, add_p(mul_p(out, out), 1.0)),
    domain=(-1.2, 1.2),
    dlmf="4.20.E3",
)


def _one_minus_square(x: Any) -> Any:
    """Computes (1 - x) (1 + x), which loses no digits near 1 as 1 - x² does."""
    return mul_p(sub_p(1.0, x), add_p(x, 1.0))


asin_p = transcendental(
    "asin",
    lambda t, out, x: mul_p(t, rsqrt_p(_one_minus_square(x))),
    domain=(-0.9, 0.9),
    samples=[edge(1.0, -1.0)],
    dlmf="4.24.E7",
)

acos_p = transcendental(
    "acos",
    lambda t, out, x: mul_p(t, neg_p(rsqrt_p(_one_minus_square(x)))),
    domain=(-0.9, 0.9),
    samples=[edge(1.0, -1.0)],
    dlmf="4.24.E8",
)

atan_p = transcendental("atan", lambda t, out, x: div_p(t, add_p(mul_p(x, x), 1.0)), dlmf="4.24.E9")


def _atan2_factor(over: Any, y: Any, x: Any, out: Any) -> Any:
    """Computes over / (x² + y²), and 0 at the origin."""
    type = type_of(out)
    y, x = _filled(y, type), _filled(x, type)
    square = add_p(mul_p(x, x), mul_p(y, y))
    return div_p(over, select_p(eq_p(square, 0.0), 1.0, square))


atan2_p = transcendental(
    "atan2",
    lambda t, out, y, x: mul_p(t, _atan2_factor(x, y, x, out)),
    lambda t, out, y, x: mul_p(t, neg_p(_atan2_factor(y, y, x, out))),
    kinds="f",
    samples=[
        Sample(
            (np.array([0.0, -0.0, 1.0, 0.0, -0.0]), np.array([0.0, -0.0, 0.0, -1.0, -1.0])),
            smooth=False,
        )
    ],
)


# --------------------------------------------------------------------------------- hyperbolic

sinh_p = transcendental("sinh", lambda t, out, x: mul_p(t, cosh_p(x)), dlmf="4.34.E1")

cosh_p = transcendental("cosh", lambda t, out, x: mul_p(t, sinh_p(x)), dlmf="4.34.E2")

tanh_p = transcendental(
    "tanh",
    lambda t, out, x: mul_p(t, sub_p(1.0, mul_p(out, out))),
    samples=[edge(0.0, 30.0, -30.0)],
    dlmf="4.34.E3",
)

asinh_p = transcendental(
    "asinh", lambda t, out, x: mul_p(t, rsqrt_p(add_p(mul_p(x, x), 1.0))), dlmf="4.38.E9"
)

acosh_p = transcendental(
    "acosh",
    # two roots, since that of the product has another branch where Re(x) is negative
    lambda t, out, x: mul_p(t, mul_p(rsqrt_p(sub_p(x, 1.0)), rsqrt_p(add_p(x, 1.0)))),
    domain=(1.2, 3.0),
    samples=[edge(1.0)],
    dlmf="4.38.E10",
)

atanh_p = transcendental(
    "atanh",
    lambda t, out, x: div_p(t, _one_minus_square(x)),
    domain=(-0.9, 0.9),
    samples=[edge(1.0, -1.0)],
    dlmf="4.38.E11",
)
