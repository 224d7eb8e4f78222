"""Arithmetic, elementary functions, extrema, rounding, parts of complex numbers, by NumPy's names.

Division rounds down, as Python's does. Integers divided by 0 give 0, as in NumPy, on every machine.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import DTypeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, is_integer
from ftrans.numpy.promotion import (
    as_array,
    cast,
    default_dtype,
    filled,
    inexact,
    is_scalar,
    result_type,
    unify,
)
from ftrans.numpy.ufunc import Function, binary, composed, elementary, marked, read_options, unary
from ftrans.numpy.views import copied, read_only, viewed

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "angle", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "around", "asin", "asinh", "atan", "atan2", "atanh", "cbrt",
    "ceil", "clamp", "clip", "conj", "conjugate", "cos", "cosh", "deg2rad", "degrees", "divide",
    "divmod", "exp", "exp2", "expm1", "fabs", "fix", "float_power", "floor", "floor_divide",
    "fmax", "fmin", "fmod", "imag", "log", "log1p", "log2", "log10", "maximum", "minimum", "mod",
    "multiply", "negative", "positive", "pow", "power", "rad2deg", "radians", "real",
    "reciprocal", "remainder", "rint", "round", "rsqrt", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "subtract", "tan", "tanh", "true_divide", "trunc",
]  # fmt: skip


def _refused(name: str, advice: str) -> Function:
    """Makes what raises where booleans have no such operation."""

    def refuse(*operands: Any) -> Any:
        raise DTypeError(
            f"{name}: booleans have no {name}.\n"
            f"  operands: {', '.join(str(type_of(x)) for x in operands)}\n"
            f"  {advice}"
        )

    return refuse


add = binary("add", p.add_p, "Returns x + y; of booleans, x or y.", booleans=p.or_p)
subtract = binary(
    "subtract",
    p.sub_p,
    "Returns x - y.",
    booleans=_refused("subtract", "Write x ^ y, or convert one: x.astype(int)."),
)
multiply = binary("multiply", p.mul_p, "Returns x * y; of booleans, x and y.", booleans=p.and_p)
divide = true_divide = binary(
    "divide", p.div_p, "Returns x / y; of integers in the default dtype.", floats=True
)
_no_negative = _refused("negative", "Write ~x.")
negative = unary(
    "negative",
    p.neg_p,
    "Returns -x.",
    whole=lambda x: _no_negative(x) if type_of(x).dtype == bool else p.neg_p(x),
)
positive = unary("positive", copied, "Returns x.")
absolute = abs = unary(
    "absolute",
    p.abs_p,
    "Returns `|x|`, real also where x is complex; its gradient at 0 is 0.",
    whole=lambda x: copied(x) if type_of(x).dtype.kind in "bu" else p.abs_p(x),
)
fabs = elementary("fabs", p.abs_p, "Returns `|x|` as a float.")
sign = unary("sign", p.sign_p, "Returns -1, 0 or 1, and `x / |x|` where x is complex.")
reciprocal = elementary(
    "reciprocal", lambda x: p.div_p(1, x), "Returns 1 / x; of integers as floats."
)


def _of_integers(divide: Function) -> Function:
    """Makes a division of integers that gives 0 where the divisor is 0, as NumPy's does."""

    def function(x: Any, y: Any) -> Any:
        nothing, one = (p.scalar(n, type_of(x).dtype) for n in (0, 1))
        by_zero = p.eq_p(y, nothing)
        return p.select_p(by_zero, nothing, divide(x, p.select_p(by_zero, one, y)))

    return function


def _goes_below(x: Any, y: Any, rest: Any) -> Any:
    """Tells where rounding down and rounding toward zero give different quotients."""
    nothing = p.scalar(0, type_of(x).dtype)
    differ = p.ne_p(p.lt_p(rest, nothing), p.lt_p(y, nothing))
    return p.and_p(p.ne_p(rest, nothing), differ)


def _mod(x: Any, y: Any) -> Any:
    rest = p.rem_p(x, y)
    return p.select_p(_goes_below(x, y, rest), p.add_p(rest, y), rest)


def _whole_floor_divide(x: Any, y: Any) -> Any:
    below = p.convert_p(_goes_below(x, y, p.rem_p(x, y)), dtype=type_of(x).dtype)
    return p.sub_p(p.div_p(x, y), below)


_CONVERT = "Convert them first: x.astype(int)."


@composed(
    binary, whole=_of_integers(_whole_floor_divide), booleans=_refused("floor_divide", _CONVERT)
)
def floor_divide(x: Any, y: Any) -> Any:
    """Returns the largest whole number not above x / y; its gradient is 0."""
    x, y = p.stop_gradient_p(x), p.stop_gradient_p(y)
    # C's fmod is exact, so the quotient of what it leaves differs from a whole number by rounding
    rest = p.rem_p(x, y)
    below = p.convert_p(_goes_below(x, y, rest), dtype=type_of(x).dtype)
    whole = p.sub_p(p.round_p(p.div_p(p.sub_p(x, rest), y)), below)
    return p.select_p(p.eq_p(y, 0.0), p.div_p(x, y), whole)


mod = remainder = binary(
    "remainder",
    _mod,
    "Returns what x // y leaves, with the sign of y.",
    whole=_of_integers(_mod),
    booleans=_refused("remainder", _CONVERT),
)
fmod = binary(
    "fmod",
    p.rem_p,
    "Returns what the division toward zero leaves, with the sign of x.",
    whole=_of_integers(p.rem_p),
    booleans=_refused("fmod", _CONVERT),
)


def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """Returns `(x // y, x % y)`.

    Example:
        >>> [int(part) for part in divmod(-7, 3)]
        [-3, 2]
    """
    return floor_divide(x, y), remainder(x, y)


# ---------------------------------------------------------------------------------------- powers


def power(x: Any, y: Any, /, **options: Any) -> Any:
    """Returns x to the power y.

    An exponent that is a Python integer is static: x ** 3 is computed by multiplication and is
    differentiated as a polynomial, so that x ** 0 has the gradient 0 everywhere. x ** 0.5 is the
    square root.

    Raises:
        DTypeError: for an integer to a negative static power.
    """
    dtype = read_options("power", options) if options else None
    if dtype is not None:
        x, y = cast(as_array(x), dtype), cast(as_array(y), dtype)
    if is_scalar(y) and not isinstance(y, (bool, complex)) and not is_scalar(x):
        operand = as_array(x)
        t = type_of(operand)
        if (isinstance(y, int) and t.dtype != bool) or (t.is_inexact and y in (1.0, 2.0)):
            return marked(p.integer_pow_p(operand, exponent=int(y)), x)
        if t.is_inexact and y == 0.5:
            return marked(p.sqrt_p(operand), x)
    operands = unify("power", x, y)
    if type_of(operands[0]).dtype == bool:
        operands = unify("power", x, y, dtype=default_dtype(int))
    return marked(p.pow_p(*operands), x, y)


pow = power


def float_power(x: Any, y: Any, /) -> Any:
    """Returns x to the power y, in float64 or complex128."""
    common = result_type(*(v if is_scalar(v) else as_array(v) for v in (x, y)))
    wide = np.dtype("complex128" if is_complex(common) else "float64")
    return p.pow_p(*unify("float_power", x, y, dtype=wide))


@composed(unary)
def square(x: Any) -> Any:
    """Returns x * x."""
    return copied(x) if type_of(x).dtype == bool else p.integer_pow_p(x, exponent=2)


sqrt = elementary("sqrt", p.sqrt_p, "Returns the square root; its slope at 0 is inf.")
rsqrt = elementary("rsqrt", p.rsqrt_p, "Returns 1 / sqrt(x).")
cbrt = elementary("cbrt", p.cbrt_p, "Returns the real cube root.")


# ---------------------------------------------------------------------------- elementary functions

exp = elementary("exp", p.exp_p, "Returns e to the power x.")
exp2 = elementary("exp2", p.exp2_p, "Returns 2 to the power x.")
expm1 = elementary("expm1", p.expm1_p, "Returns exp(x) - 1, exact for small x.")
log = elementary("log", p.log_p, "Returns the natural logarithm.")


def _logarithm(x: Any, base: int) -> Any:
    out, scale = p.log_p(x), math.log(base)
    if is_complex(type_of(x).dtype):  # part by part: a complex quotient has products 0 * inf
        return p.complex_p(p.div_p(p.real_p(out), scale), p.div_p(p.imag_p(out), scale))
    return p.div_p(out, scale)


log2 = elementary("log2", lambda x: _logarithm(x, 2), "Returns the logarithm to base 2.")
log10 = elementary("log10", lambda x: _logarithm(x, 10), "Returns the logarithm to base 10.")
log1p = elementary("log1p", p.log1p_p, "Returns log(1 + x), exact for small x.")
sin = elementary("sin", p.sin_p, "Returns the sine of an angle in radians.")
cos = elementary("cos", p.cos_p, "Returns the cosine of an angle in radians.")
tan = elementary("tan", p.tan_p, "Returns the tangent of an angle in radians.")
arcsin = asin = elementary("arcsin", p.asin_p, "Returns the angle in radians with sine x.")
arccos = acos = elementary("arccos", p.acos_p, "Returns the angle in radians with cosine x.")
arctan = atan = elementary("arctan", p.atan_p, "Returns the angle in radians with tangent x.")
sinh = elementary("sinh", p.sinh_p, "Returns the hyperbolic sine.")
cosh = elementary("cosh", p.cosh_p, "Returns the hyperbolic cosine.")
tanh = elementary("tanh", p.tanh_p, "Returns the hyperbolic tangent.")
arcsinh = asinh = elementary("arcsinh", p.asinh_p, "Returns the inverse hyperbolic sine.")
arccosh = acosh = elementary("arccosh", p.acosh_p, "Returns the inverse hyperbolic cosine.")
arctanh = atanh = elementary("arctanh", p.atanh_p, "Returns the inverse hyperbolic tangent.")
arctan2 = atan2 = binary(
    "arctan2",
    p.atan2_p,
    "Returns the angle of the point (y, x) in radians; its gradient at the origin is 0.",
    floats=True,
)
deg2rad = radians = elementary(
    "deg2rad", lambda x: p.mul_p(x, math.pi / 180), "Converts degrees to radians."
)
rad2deg = degrees = elementary(
    "rad2deg", lambda x: p.mul_p(x, 180 / math.pi), "Converts radians to degrees."
)


# ------------------------------------------------------------------------- larger, smaller, whole

maximum = binary(
    "maximum",
    p.maximum_p,
    "Returns the larger of x and y, NaN where either is; a tie shares its gradient evenly.",
)
minimum = binary(
    "minimum",
    p.minimum_p,
    "Returns the smaller of x and y, NaN where either is; a tie shares its gradient evenly.",
)


def _leaving_nan(extremum: Function) -> Function:
    def choose(x: Any, y: Any) -> Any:
        out = p.select_p(p.ne_p(y, y), x, extremum(x, y))
        return p.select_p(p.ne_p(x, x), y, out)

    return choose


fmax = binary(
    "fmax",
    _leaving_nan(p.maximum_p),
    "Returns the larger of x and y, and the other one where one is NaN.",
)
fmin = binary(
    "fmin",
    _leaving_nan(p.minimum_p),
    "Returns the smaller of x and y, and the other one where one is NaN.",
)


def lowest(dtype: np.dtype, sign: int = 1) -> complex:
    """Returns the smallest value of a dtype, or the largest for `sign` -1."""
    if dtype == np.bool_:
        return sign < 0
    if is_integer(dtype):
        info = np.iinfo(dtype)
        return int(info.min if sign > 0 else info.max)
    return -math.inf * sign


def clip(a: Any, min: Any = None, max: Any = None, **options: Any) -> Any:
    """Returns x, held between two bounds.

    On a bound the gradient of x is 0, the slope of least norm; PyTorch 2.13 gives 1 there.

    Args:
        a: an array.
        min: the lower bound; None for none.
        max: the upper bound, which wins over the lower; None for none.
        **options: `a_min` and `a_max` for the bounds, as NumPy once called them, and `dtype`.

    Example:
        >>> clip(np.array([-1.0, 0.5, 3.0]), 0.0, 1.0)
        array([0. , 0.5, 1. ])
    """
    min, max = options.pop("a_min", min), options.pop("a_max", max)
    dtype = read_options("clip", options) if options else None
    given = [v for v in (min, a, max) if v is not None]
    if len(given) == 1:
        return copied(as_array(a, dtype))
    common = [as_array(v) if not is_scalar(v) else v for v in given]
    if dtype is None:
        dtype = result_type(*common)
    if dtype == np.bool_ or is_complex(dtype):
        raise DTypeError(f"clip: takes integers and real floats.\n  x: {type_of(as_array(a))}")
    operands = iter(unify("clip", *common, dtype=dtype))
    below = next(operands) if min is not None else p.scalar(lowest(dtype), dtype)
    middle = next(operands)
    above = next(operands) if max is not None else p.scalar(lowest(dtype, -1), dtype)
    return marked(p.clamp_p(below, middle, above), *given)


clamp = clip

floor = unary("floor", p.floor_p, "Rounds down; integers stay.", whole=copied)
ceil = unary("ceil", p.ceil_p, "Rounds up; integers stay.", whole=copied)


@composed(unary, whole=copied)
def trunc(x: Any) -> Any:
    """Rounds toward zero; integers stay."""
    return p.select_p(p.lt_p(x, 0.0), p.ceil_p(x), p.floor_p(x))


fix = trunc


@composed(unary, floats=True)
def rint(x: Any) -> Any:
    """Rounds to the nearest whole number, halves to even; the result is floating point."""
    if is_complex(type_of(x).dtype):
        return p.complex_p(p.round_p(p.real_p(x)), p.round_p(p.imag_p(x)))
    return p.round_p(x)


def round(a: Any, decimals: int = 0, **options: Any) -> Any:
    """Rounds to a number of decimals, halves to even.

    Args:
        a: an array; integers stay integers.
        decimals: how many digits stay behind the point; negative ones stand before it.
        **options: only refused here, see `ftrans.numpy.add`.

    Example:
        >>> round(np.array([0.125, 2.5]), 2)
        array([0.12, 2.5 ])
    """
    if options:
        read_options("round", options)
    decimals = operator.index(decimals)
    if not type_of(as_array(a)).is_inexact:
        return copied(as_array(a)) if decimals >= 0 else _round_whole(as_array(a), 10**-decimals)
    if decimals == 0:
        return rint(a)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return divide(rint(multiply(a, scale)), scale)
    return multiply(rint(divide(a, scale)), scale)


around = round


def _round_whole(x: Any, unit: int) -> Any:
    quotient, rest = divmod(x, unit)
    twice = multiply(rest, 2)
    half, odd = p.eq_p(twice, unit), p.eq_p(remainder(quotient, 2), 1)
    up = p.or_p(p.gt_p(twice, unit), p.and_p(half, odd))
    return multiply(add(quotient, cast(up, type_of(x).dtype)), unit)


# --------------------------------------------------------------------------------------- complex


@composed(unary)
def real(x: Any) -> Any:
    """Returns the real part, a view of x."""
    return viewed(x, p.real_p) if is_complex(type_of(x).dtype) else x


@composed(unary)
def imag(x: Any) -> Any:
    """Returns the imaginary part, a view of x; 0 where x is real."""
    t = type_of(x)
    return viewed(x, p.imag_p) if is_complex(t.dtype) else read_only(filled(0, t.shape, t.dtype))


@composed(unary)
def conj(x: Any) -> Any:
    """Returns the complex conjugate."""
    return p.conj_p(x) if is_complex(type_of(x).dtype) else copied(x)


conjugate = conj


def angle(z: Any, deg: bool = False) -> Any:
    """Returns the angle of complex numbers in the plane; its gradient at 0 is 0.

    Args:
        z: an array.
        deg: whether in degrees instead of radians.

    Example:
        >>> float(angle(1j, deg=True))
        90.0
    """
    operand = inexact(z)
    out = p.atan2_p(imag(operand), real(operand))
    return rad2deg(out) if deg else out


stop_gradient = unary(
    "stop_gradient", p.stop_gradient_p, "Returns x as a constant: no derivative goes through it."
)
