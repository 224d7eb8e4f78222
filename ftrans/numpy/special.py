"""Elementwise functions that are made of several primitives, and the special functions.

Each is exact to rounding over the whole range, has no NaN in its gradient where the function has
none, and is differentiated right to every order: a branch is chosen by `select_p` among formulas
that are smooth where they are chosen, and operands of the others are replaced by harmless ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ftrans import primitives as p
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.arithmetic import as_strict
from ftrans.numpy.indexing import assign
from ftrans.numpy.logic import where
from ftrans.numpy.promotion import as_array
from ftrans.numpy.ufunc import binary, unary
from ftrans.numpy.views import copied

__all__ = [
    "copysign", "digamma", "erf", "erfc", "erfinv", "expit", "gammaln", "heaviside", "hypot",
    "i0", "i0e", "i1", "i1e", "lgamma", "logaddexp", "logaddexp2", "logit", "nan_to_num", "psi",
    "sigmoid", "signbit", "sinc", "softplus", "xlog1py", "xlogy",
]  # fmt: skip

erf = unary("erf", p.erf_p, "Returns the error function.", floats=True)
erfc = unary("erfc", p.erfc_p, "Returns 1 - erf(x), exact for large x.", floats=True)
erfinv = unary("erfinv", p.erf_inv_p, "Returns the inverse of the error function.", floats=True)
gammaln = lgamma = unary(
    "lgamma", p.lgamma_p, "Returns `log |gamma(x)|`, of the gamma function.", floats=True
)
digamma = psi = unary("digamma", p.digamma_p, "Returns the derivative of `lgamma`.", floats=True)
expit = sigmoid = unary("sigmoid", p.logistic_p, "Returns 1 / (1 + exp(-x)).", floats=True)
logit = unary(
    "logit",
    lambda x: p.sub_p(p.log_p(x), p.log1p_p(p.neg_p(x))),
    "Returns log(x / (1 - x)), the inverse of `sigmoid`.",
    floats=True,
)


i0e = unary("i0e", p.bessel_i0e_p, "Returns `exp(-|x|) i0(x)`.", floats=True)
i1e = unary("i1e", p.bessel_i1e_p, "Returns `exp(-|x|) i1(x)`.", floats=True)


def _unscaled(scaled: Callable[..., Any], sign: Callable[..., Any] | None) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        # Where exp(|x|) overflows the function is infinite, and so are its derivatives.
        growth = p.exp_p(p.abs_p(x))
        far = p.eq_p(growth, math.inf)
        safe = p.select_p(far, 0.0, x)
        value = p.mul_p(p.exp_p(p.abs_p(safe)), scaled(safe))
        return p.select_p(far, p.mul_p(sign(x), growth) if sign else growth, value)

    return function


i0 = unary(
    "i0",
    _unscaled(p.bessel_i0e_p, None),
    "Returns the modified Bessel function of the first kind of order 0.",
    floats=True,
)
i1 = unary(
    "i1",
    _unscaled(p.bessel_i1e_p, p.sign_p),
    "Returns the modified Bessel function of the first kind of order 1.",
    floats=True,
)


def _negative_zeros_too(x: Any) -> Any:
    is_zero = p.eq_p(x, 0.0)
    reciprocal = p.div_p(1.0, p.select_p(is_zero, x, 1.0))
    return p.select_p(is_zero, p.lt_p(reciprocal, 0.0), p.lt_p(x, 0.0))


signbit = unary(
    "signbit",
    _negative_zeros_too,
    "Tells where x is negative or -0.0; a NaN counts as positive.",
    whole=lambda x: p.lt_p(x, 0) if type_of(x).dtype.kind == "i" else p.ne_p(x, x),
)


def _copysign(x: Any, y: Any) -> Any:
    x, y = as_strict(x, y)
    size = p.abs_p(x)
    return p.select_p(_negative_zeros_too(y), p.neg_p(size), size)


copysign = binary("copysign", _copysign, "Returns `|x|` with the sign of y.", floats=True)


def _hypot(x: Any, y: Any) -> Any:
    # h(x, y) = s h(x/s, y/s) for every s > 0, so s is a constant to the derivative
    x, y = as_strict(x, y)
    far = p.or_p(p.eq_p(p.abs_p(x), math.inf), p.eq_p(p.abs_p(y), math.inf))
    x, y = (p.select_p(far, 1.0, z) for z in (x, y))
    size = p.stop_gradient_p(p.maximum_p(p.abs_p(x), p.abs_p(y)))
    scale = p.select_p(p.eq_p(size, 0.0), 1.0, size)
    u, v = p.div_p(x, scale), p.div_p(y, scale)
    square = p.add_p(p.mul_p(u, u), p.mul_p(v, v))
    at_zero = p.eq_p(square, 0.0)
    root = p.sqrt_p(p.select_p(at_zero, 1.0, square))
    length = p.select_p(at_zero, 0.0, p.mul_p(scale, root))
    return p.select_p(far, math.inf, length)


hypot = binary(
    "hypot",
    _hypot,
    "Returns sqrt(x² + y²) without overflow; its gradient at the origin is 0.",
    floats=True,
)


def _heaviside(x: Any, y: Any) -> Any:
    x, y = as_strict(x, y)
    step = p.select_p(p.ne_p(x, x), x, p.convert_p(p.gt_p(x, 0.0), dtype=type_of(x).dtype))
    return p.select_p(p.eq_p(x, 0.0), y, p.stop_gradient_p(step))


heaviside = binary(
    "heaviside", _heaviside, "Returns 0 where x < 0, 1 where x > 0, and y at 0.", floats=True
)


# --------------------------------------------------------------------------------- log-sum of two


def _softplus(d: Any, exp: Callable[..., Any], log: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns where d is positive, and log(1 + exp(-|d|)) by a formula smooth on either side."""
    above = p.gt_p(d, 0.0)
    return above, log(exp(p.select_p(above, p.neg_p(d), d)))


def _logaddexp(exp: Callable[..., Any], log1p: Callable[..., Any]) -> Callable[..., Any]:
    def of_two(x: Any, y: Any) -> Any:
        x, y = as_strict(x, y)
        # inf - inf is NaN; equal infinities are told apart by nothing but their sum
        same = p.and_p(p.eq_p(x, y), p.eq_p(p.abs_p(x), math.inf))
        d = p.select_p(same, 0.0, p.sub_p(x, y))
        above, rest = _softplus(d, exp, log1p)
        return p.add_p(p.select_p(above, x, y), rest)

    return of_two


logaddexp = binary(
    "logaddexp",
    _logaddexp(p.exp_p, p.log1p_p),
    "Returns log(exp(x) + exp(y)) without overflow.",
    floats=True,
)
logaddexp2 = binary(
    "logaddexp2",
    _logaddexp(p.exp2_p, lambda x: p.div_p(p.log1p_p(x), math.log(2))),
    "Returns log2(2**x + 2**y) without overflow.",
    floats=True,
)


def _softplus_of(x: Any) -> Any:
    above, rest = _softplus(x, p.exp_p, p.log1p_p)
    return p.add_p(p.select_p(above, x, 0.0), rest)


softplus = unary("softplus", _softplus_of, "Returns log(1 + exp(x)) without overflow.", floats=True)


# -------------------------------------------------------------------------------------- limits at 0

# sin(z) / z = sum of (-1)^k z^(2k) / (2k + 1)!
_SERIES = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]


def _sinc(x: Any) -> Any:
    # Near 0 by its series (https://dlmf.nist.gov/4.19.E1), whose derivatives are right there too.
    z = p.mul_p(x, math.pi)
    near = p.lt_p(p.abs_p(p.stop_gradient_p(z)), 0.5)
    small = p.select_p(near, z, 0.0)
    square = p.mul_p(small, small)
    series = p.mul_p(square, _SERIES[-1])
    for coefficient in _SERIES[-2:0:-1]:
        series = p.mul_p(square, p.add_p(series, coefficient))
    large = p.select_p(near, 1.0, z)
    return p.select_p(near, p.add_p(series, 1.0), p.div_p(p.sin_p(large), large))


sinc = unary("sinc", _sinc, "Returns sin(pi x) / (pi x), and 1 at 0.", floats=True)


def _log_times(log: Callable[..., Any], pole: float) -> Callable[..., Any]:
    def product(x: Any, y: Any) -> Any:
        x, y = as_strict(x, y)
        # At x = 0 the value is 0 whatever y; where the logarithm is finite its slope is kept.
        endless = p.or_p(p.le_p(y, pole), p.eq_p(y, math.inf))
        flat = p.and_p(p.eq_p(x, 0.0), endless)
        return p.mul_p(x, log(p.select_p(flat, 1.0 + pole, y)))

    return product


xlogy = binary(
    "xlogy", _log_times(p.log_p, 0.0), "Returns x log(y), and 0 where x is 0.", floats=True
)
xlog1py = binary(
    "xlog1py", _log_times(p.log1p_p, -1.0), "Returns x log(1 + y), and 0 where x is 0.", floats=True
)


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Replaces NaN by 0 and infinities by the largest and smallest numbers of the dtype.

    The gradient is 0 where an element is replaced.

    Args:
        x: an array; integers are returned as they are.
        copy: whether the result is another array; else `x` is written to, and returned.
        nan: what takes the place of NaN.
        posinf: what takes the place of inf; None is the largest number.
        neginf: what takes the place of -inf; None is the smallest number.

    Example:
        >>> import numpy as np
        >>> nan_to_num(np.array([np.nan, 1.0]))
        array([0., 1.])
    """
    operand = as_array(x)
    t = type_of(operand)
    if not copy:
        new = nan_to_num(x, True, nan, posinf, neginf)
        assign("nan_to_num(x, copy=False)", operand, new, "x = nan_to_num(x)")
        return operand
    if not t.is_inexact:
        return copied(operand)
    if is_complex(t.dtype):
        parts = (p.real_p(operand), p.imag_p(operand))
        return p.complex_p(*(nan_to_num(part, True, nan, posinf, neginf) for part in parts))
    info = jnp.finfo(t.dtype)
    posinf = float(info.max) if posinf is None else posinf
    neginf = float(info.min) if neginf is None else neginf
    out = where(p.ne_p(operand, operand), nan, operand)
    out = where(p.eq_p(operand, math.inf), posinf, out)
    return where(p.eq_p(operand, -math.inf), neginf, out)
