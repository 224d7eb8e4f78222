"""The error function, the gamma function and Bessel functions, computed by JAX.

Of few elements SciPy computes them on the road of NumPy: calling JAX takes a hundred times as long.
Of more, the error function of single precision is our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.primitives.arithmetic import add_p, div_p, mul_p, neg_p, sub_p
from ftrans.primitives.elementary import exp_p
from ftrans.primitives.elementwise import transcendental
from ftrans.primitives.erf import erf, erfc
from ftrans.primitives.family import edge, in_single
from ftrans.primitives.logic import lt_p, select_p
from ftrans.primitives.magnitude import abs_p, sign_p
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import Sample

_SLOPE = 2 / math.sqrt(math.pi)

_OF_SCIPY = {
    "erf": "erf", "erfc": "erfc", "lgamma": "gammaln", "digamma": "psi",
    "bessel_i0e": "i0e", "bessel_i1e": "i1e",
}  # fmt: skip
"""Names of SciPy's functions by those of `jax.lax`; normal numbers are by JAX's inverse of erf."""

_FEW = 1 << 15
"""Up to so many elements SciPy takes little longer than JAX, which compiles a function first."""


_OF_NUMPY = {"erf": erf, "erfc": erfc}
_SOME = 1 << 17
"""Up to so many elements these take no longer than JAX, but for what that compiles first."""


def _is_few(xp: Any, x: Any) -> bool:
    """Tells whether SciPy is to compute a function, of dtypes that it has."""
    return xp is np and x.size <= _FEW and x.dtype.char in "fd"


def _computed(xp: Any, name: str, x: Any) -> Any:
    """Computes a function of `jax.lax`."""
    if _is_few(xp, x):
        from scipy import special  # which takes its time

        x = np.maximum(x, np.finfo(x.dtype).min) if name == "lgamma" else x  # infinite at -inf
        found = getattr(special, _OF_SCIPY[name])(x)
        return np.copysign(found, x) if name == "bessel_i1e" else found  # at -0.0
    if xp is np and name in _OF_NUMPY and x.size <= _SOME and x.dtype == np.float32:
        return _OF_NUMPY[name](x)
    # A Python scalar that JAX traces is weak there, and in double precision JAX's Bessel functions
    # then mix two dtypes and fail; the dtype, named, makes it strong.
    return by_lax(xp, name, xp.asarray(x, dtype=x.dtype))


def _by(name: str) -> Callable[..., Any]:
    return lambda xp, x: _computed(xp, name, x)


def _bell(x: Any, scale: float) -> Any:
    """Computes scale * exp(-x²)."""
    return mul_p(exp_p(neg_p(mul_p(x, x))), scale)


erf_p = transcendental(
    "erf",
    lambda t, out, x: mul_p(t, _bell(x, _SLOPE)),
    kinds="f",
    lower=_by("erf"),
    dlmf="7.2.E1",
)

erfc_p = transcendental(
    "erfc",
    lambda t, out, x: mul_p(t, _bell(x, -_SLOPE)),
    kinds="f",
    lower=_by("erfc"),
    dlmf="7.2.E2",
)

erf_inv_p = transcendental(
    "erf_inv",
    # the slope of the inverse is the inverse of the slope
    lambda t, out, x: mul_p(t, mul_p(exp_p(mul_p(out, out)), 1 / _SLOPE)),
    kinds="f",
    domain=(-0.9, 0.9),
    samples=[edge(0.0, 1.0, -1.0)],
)


def _gelu_slope(x: Any) -> Any:
    """Computes the slope of x cdf(x) for the standard normal distribution, cdf(x) + x pdf(x).

    By `erf`, which is cheap enough to be computed anew in the backward pass: erfc is not, and what
    it shares with the result would be kept. The error is of the order of the rounding of 1.
    """
    chance = add_p(mul_p(erf_p(mul_p(x, math.sqrt(0.5))), 0.5), 0.5)
    density = mul_p(exp_p(mul_p(mul_p(x, x), -0.5)), math.sqrt(0.5 / math.pi))
    return add_p(chance, mul_p(x, density))


def _gelu_lower(xp: Any, x: Any) -> Any:
    # exact also where 1 + erf would be all rounding
    half, root = (xp.asarray(n, dtype=x.dtype) for n in (0.5, -math.sqrt(0.5)))
    return x * half * _computed(xp, "erfc", x * root)


gelu_p = transcendental(
    "gelu",
    lambda t, out, x: mul_p(t, _gelu_slope(x)),
    kinds="f",
    lower=_gelu_lower,
    samples=[Sample((np.array([0.0, -0.0, -5.0, 20.0, -30.0]),))],
    source="https://arxiv.org/abs/1606.08415",
)

lgamma_p = transcendental(
    "lgamma",
    lambda t, out, x: mul_p(t, digamma_p(x)),
    kinds="f",
    lower=_by("lgamma"),
    domain=(0.3, 4.0),
    dlmf="5.2.E2",
)


def _digamma_lower(xp: Any, x: Any) -> Any:
    # a pole of two signs, of which the sign of the zero chooses one; at other poles it is NaN
    pole = xp.where(xp.signbit(x), xp.inf, -xp.inf).astype(x.dtype)
    return xp.where(abs(x) < np.finfo(x.dtype).tiny, pole, _computed(xp, "digamma", x))


digamma_p = transcendental(
    "digamma",
    lambda t, out, x: mul_p(t, polygamma_p(x, order=1)),
    kinds="f",
    domain=(0.3, 4.0),
    lower=in_single(_digamma_lower),
    dlmf="5.15.E1",
)


def _cotangent_polynomial(order: int) -> np.ndarray:
    """Returns the coefficients of p, where p(cot(x)) is a derivative of cot(x)."""
    found = np.polynomial.Polynomial([0, 1])
    for _ in range(order):
        found = -found.deriv() * [1, 0, 1]
    return found.coef


def _cot_pi(xp: Any, x: Any) -> Any:
    """Computes cot(pi x) for x in (-1, 0), near -1/2 by the tangent of the difference to it."""
    middle = abs(x + 0.5) < 0.25
    angle = xp.where(middle, -0.5 - x, xp.where(x < -0.5, x + 1, x)) * math.pi
    tangent = xp.tan(angle)
    return xp.where(middle, tangent, 1 / tangent)


@np.errstate(all="ignore")
def _polygamma_lower(xp: Any, x: Any, *, order: int) -> Any:
    x = xp.asarray(x)
    sign = 1.0 if order % 2 else -1.0
    negative, far = x <= 0, x > 1e8
    right = xp.where(negative, 1 - x, xp.where(far, 1, x))
    if _is_few(xp, right):
        from scipy import special

        out = special.polygamma(order, right)
    else:
        out = by_lax(xp, "polygamma", xp.full_like(right, order), right)
    # where x is large, by its expansion (https://dlmf.nist.gov/5.15.E8)
    near_zero = 1 / x
    series = sign * math.factorial(order - 1) * near_zero**order * (1 + order / 2 * near_zero)
    out = xp.where(far, series, out)
    # where x is negative, by its reflection: (-1)^n f(1 - x) = f(x) + pi d^n cot(pi x)
    rest = xp.fmod(x, 1)
    cot, power = _cot_pi(xp, rest), xp.zeros_like(x)
    for coefficient in _cotangent_polynomial(order)[::-1]:
        power = power * cot + coefficient
    left = -sign * out - math.pi ** (order + 1) * power
    left = xp.where(rest == 0, sign * xp.inf, left)
    return xp.where(negative, left, out).astype(x.dtype)


polygamma_p = transcendental(
    "polygamma",
    lambda t, out, x, *, order: mul_p(t, polygamma_p(x, order=order + 1)),
    kinds="f",
    domain=None,
    lower=in_single(_polygamma_lower),
    samples=[Sample((np.array([0.4, 1.3, 3.7]),), {"order": order}) for order in (1, 2)],
    dlmf="5.15.E6",
)


# ------------------------------------------------------------------------ modified Bessel functions

# They are scaled by exp(-|x|). Where a rule differentiates that, sign(x) is 0 at 0: so rules see
# no scale at 0, and the derivatives of exp(|x|) i0e(x) are those of I0 there, to every order.

# I1(x) / x = sum of (x/2)^(2k) / (2 k! (k + 1)!)
_I1_SERIES = [0.5 / (math.factorial(k) * math.factorial(k + 1)) for k in range(11)]


def _i1e_over_x(i1e: Any, x: Any) -> Any:
    """Computes i1e(x) / x, near 0 by its series (https://dlmf.nist.gov/10.25.E2)."""
    near = lt_p(abs_p(x), 1.0)
    small = select_p(near, x, 0.0)
    half = mul_p(small, 0.5)
    square = mul_p(half, half)
    series = mul_p(square, _I1_SERIES[-1])
    for coefficient in _I1_SERIES[-2:0:-1]:
        series = mul_p(square, add_p(series, coefficient))
    scaled = mul_p(exp_p(neg_p(abs_p(small))), add_p(series, _I1_SERIES[0]))
    return select_p(near, scaled, div_p(i1e, select_p(near, 1.0, x)))


def _i1e_jvp(t: Any, out: Any, x: Any) -> Any:
    slope = sub_p(bessel_i0e_p(x), _i1e_over_x(out, x))
    return mul_p(t, sub_p(slope, mul_p(sign_p(x), out)))


bessel_i0e_p = transcendental(
    "bessel_i0e",
    lambda t, out, x: mul_p(t, sub_p(bessel_i1e_p(x), mul_p(sign_p(x), out))),
    kinds="f",
    lower=_by("bessel_i0e"),
    samples=[Sample((np.array([5.0, -20.0, 700.0]),)), edge(0.0, -0.0, np.inf, -np.inf, np.nan)],
    dlmf="10.29.E3",
)

bessel_i1e_p = transcendental(
    "bessel_i1e",
    _i1e_jvp,
    kinds="f",
    lower=_by("bessel_i1e"),
    samples=[Sample((np.array([0.0, 5.0, -20.0, 700.0]),)), edge(-0.0, np.inf, -np.inf, np.nan)],
    dlmf="10.29.E2",
)
