"""Elementwise functions made of several primitives, special functions, and what networks ask for.

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
from ftrans.numpy.axes import canonical_axes, kept
from ftrans.numpy.elementwise import subtract, trunc
from ftrans.numpy.indexing import assign
from ftrans.numpy.logic import isinf, where
from ftrans.numpy.promotion import as_array, cast, inexact, unify
from ftrans.numpy.reduction import described, max
from ftrans.numpy.ufunc import as_strict, binary, composed, elementary, unary
from ftrans.numpy.views import copied
from ftrans.primitives.axes import restore

__all__ = [
    "copysign", "digamma", "erf", "erfc", "erfinv", "expit", "gammaln", "gelu", "heaviside",
    "hypot", "i0", "i0e", "i1", "i1e", "lgamma", "log_softmax", "logaddexp", "logaddexp2",
    "logit", "logsumexp", "modf", "nan_to_num", "psi", "relu", "sigmoid", "signbit", "silu", "sinc",
    "softmax", "softplus", "xlog1py", "xlogy",
]  # fmt: skip

erf = elementary("erf", p.erf_p, "Returns the error function.")
erfc = elementary("erfc", p.erfc_p, "Returns 1 - erf(x), exact for large x.")
erfinv = elementary("erfinv", p.erf_inv_p, "Returns the inverse of the error function.")
gammaln = lgamma = elementary("lgamma", p.lgamma_p, "Returns the logarithm of `|gamma(x)|`.")
digamma = psi = elementary("digamma", p.digamma_p, "Returns the derivative of `lgamma`.")
expit = sigmoid = elementary("sigmoid", p.logistic_p, "Returns 1 / (1 + exp(-x)).")
logit = elementary(
    "logit",
    lambda x: p.sub_p(p.log_p(x), p.log1p_p(p.neg_p(x))),
    "Returns log(x / (1 - x)), the inverse of `sigmoid`.",
)
i0e = elementary("i0e", p.bessel_i0e_p, "Returns `exp(-|x|) i0(x)`.")
i1e = elementary("i1e", p.bessel_i1e_p, "Returns `exp(-|x|) i1(x)`.")


def _unscaled(scaled: Callable[..., Any], sign: Callable[..., Any] | None) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        # Where exp(|x|) overflows the function is infinite, and so are its derivatives.
        growth = p.exp_p(p.abs_p(x))
        far = p.eq_p(growth, math.inf)
        safe = p.select_p(far, 0.0, x)
        value = p.mul_p(p.exp_p(p.abs_p(safe)), scaled(safe))
        return p.select_p(far, p.mul_p(sign(x), growth) if sign else growth, value)

    return function


i0 = elementary(
    "i0",
    _unscaled(p.bessel_i0e_p, None),
    "Returns the modified Bessel function of the first kind of order 0.",
)
i1 = elementary(
    "i1",
    _unscaled(p.bessel_i1e_p, p.sign_p),
    "Returns the modified Bessel function of the first kind of order 1.",
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


@composed(binary, floats=True)
def copysign(x: Any, y: Any) -> Any:
    """Returns `|x|` with the sign of y."""
    size = p.abs_p(x)
    return p.select_p(_negative_zeros_too(y), p.neg_p(size), size)


def modf(x: Any) -> tuple[Any, Any]:
    """Returns the fractions of floats, which infinite ones have none of, and what is left."""
    x = inexact(x)
    whole = trunc(x)
    fraction = where(signbit(x), -subtract(whole, x), subtract(x, whole))  # which has x's sign
    return where(isinf(whole), copysign(0.0, whole), fraction), whole


@composed(binary, floats=True)
def hypot(x: Any, y: Any) -> Any:
    """Returns sqrt(x² + y²) without overflow; its gradient at the origin is 0."""
    # h(x, y) = s h(x/s, y/s) for every s > 0, so s is a constant to the derivative
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


@composed(binary, floats=True)
def heaviside(x: Any, y: Any) -> Any:
    """Returns 0 where x < 0, 1 where x > 0, and y at 0."""
    step = p.select_p(p.ne_p(x, x), x, p.convert_p(p.gt_p(x, 0.0), dtype=type_of(x).dtype))
    return p.select_p(p.eq_p(x, 0.0), y, p.stop_gradient_p(step))


# --------------------------------------------------------------------------------- log-sum of two


def _softplus(d: Any, exp: Callable[..., Any], log: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns where d is positive, and log(1 + exp(-|d|)) by a formula smooth on either side."""
    above = p.gt_p(d, 0.0)
    return above, log(exp(p.select_p(above, p.neg_p(d), d)))


def _logaddexp(exp: Callable[..., Any], log1p: Callable[..., Any]) -> Callable[..., Any]:
    def of_two(x: Any, y: Any) -> Any:
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


@composed(elementary)
def softplus(x: Any) -> Any:
    """Returns log(1 + exp(x)) without overflow."""
    above, rest = _softplus(x, p.exp_p, p.log1p_p)
    return p.add_p(p.select_p(above, x, 0.0), rest)


# -------------------------------------------------------------------------------------- limits at 0

# sin(z) / z = sum of (-1)^k z^(2k) / (2k + 1)!
_SERIES = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]


@composed(elementary)
def sinc(x: Any) -> Any:
    """Returns sin(pi x) / (pi x), and 1 at 0."""
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


def _log_times(log: Callable[..., Any], pole: float) -> Callable[..., Any]:
    def product(x: Any, y: Any) -> Any:
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


# --------------------------------------------------- rectifiers, and exponentials along an axis


@composed(unary)
def relu(x: Any) -> Any:
    """Returns x where it is positive, else 0; its gradient at 0 is 0."""
    nothing = p.scalar(0, type_of(x).dtype)
    return p.select_p(p.le_p(x, nothing), nothing, x)


@composed(elementary)
def silu(x: Any) -> Any:
    """Returns x sigmoid(x)."""
    return p.mul_p(x, p.logistic_p(x))


gelu = elementary(
    "gelu", p.gelu_p, "Returns x times the chance that a standard normal number is below it."
)


def _largest(x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the largest elements along some axes, of real parts, as constants.

    All that is computed with them does not depend on them, so no derivative goes through.
    """
    fixed = p.stop_gradient_p(x)
    if is_complex(type_of(x).dtype):
        fixed = p.real_p(fixed)
    # an empty maximum is an error without an initial value
    return max(fixed, axis=axes, initial=None if type_of(x).size else -math.inf)


def _less(x: Any, y: Any, axes: tuple[int, ...]) -> Any:
    """Subtracts from x what was reduced along some axes."""
    t = type_of(x)
    return p.sub_p(x, restore(p.convert_p(y, dtype=t.dtype), t.shape, axes))


@described(b="factors of exp(x), which broadcast with x; the sum must not be negative.")
def logsumexp(x: Any, axis: Any = None, b: Any = None, *, keepdims: bool = False) -> Any:
    """Returns log(sum(exp(x))) without overflow; where all x are -inf its gradient is 0.

    Example:
        >>> import numpy as np
        >>> round(float(logsumexp(np.array([1000.0, 1000.0]))), 3)
        1000.693
    """
    x = inexact(x)
    if b is not None:
        x, b = as_strict(*unify("logsumexp", x, b))
    t = type_of(x)
    axes = canonical_axes("logsumexp", axis, t.ndim)
    largest = _largest(x if b is None else p.select_p(p.eq_p(b, 0.0), -math.inf, x), axes)
    # inf - inf is NaN, and what is infinite needs no shift
    shift = p.select_p(p.is_finite_p(largest), largest, 0.0)
    terms = p.exp_p(_less(x, shift, axes))
    if b is not None:
        # what has the factor 0 may be beyond the largest of the others, and infinite
        lost = p.and_p(p.eq_p(b, 0.0), p.not_p(p.is_finite_p(terms)))
        terms = p.select_p(lost, 0.0, p.mul_p(terms, b))
    total = p.sum_p(terms, axes=axes)
    # a sum of nothing counts as 1, and its slope is finite: the logarithm comes from the shift
    nothing = p.eq_p(total, 0.0)
    logarithm = p.log_p(p.add_p(total, p.convert_p(nothing, dtype=t.dtype)))
    shift = p.select_p(nothing, -math.inf, p.convert_p(shift, dtype=t.dtype))
    return kept(p.add_p(logarithm, shift), t.shape, axes, keepdims)


@described()
def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> Any:
    """Returns exp(x) divided by its sum along an axis, or over several; `dtype` is x's before.

    Where x is inf somewhere, or -inf everywhere, the result is NaN, as PyTorch's and SciPy's is.

    Example:
        >>> import numpy as np
        >>> softmax(np.array([5.0, 5.0]))
        array([0.5, 0.5])
    """
    x = inexact(x if dtype is None else cast(as_array(x), dtype))
    t = type_of(x)
    axes = canonical_axes("softmax", axis, t.ndim)
    raised = p.exp_p(_less(x, _largest(x, axes), axes))
    # one division for each sum, not for each element, forwards and backwards
    scale = p.div_p(1.0, p.sum_p(raised, axes=axes))
    return p.mul_p(raised, restore(scale, t.shape, axes))


@described()
def log_softmax(x: Any, axis: Any = -1, dtype: Any = None) -> Any:
    """Returns the logarithm of `softmax`, exact also where that is nearly 0 or 1."""
    x = inexact(x if dtype is None else cast(as_array(x), dtype))
    t = type_of(x)
    axes = canonical_axes("log_softmax", axis, t.ndim)
    shifted = _less(x, _largest(x, axes), axes)
    return _less(shifted, p.log_p(p.sum_p(p.exp_p(shifted), axes=axes)), axes)
