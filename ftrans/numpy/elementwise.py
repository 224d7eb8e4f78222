"""Elementary functions, extrema, rounding and the parts of complex numbers, under NumPy's names."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, is_integer
from ftrans.numpy.arithmetic import add, divide, divmod, multiply, remainder
from ftrans.numpy.promotion import as_array, cast, inexact, is_scalar, result_type, unify
from ftrans.numpy.ufunc import Function, as_strict, binary, copied, marked, read_options, unary
from ftrans.numpy.views import view_of
from ftrans.primitives import (
    acos_p,
    acosh_p,
    and_p,
    asin_p,
    asinh_p,
    atan2_p,
    atan_p,
    atanh_p,
    broadcast_p,
    ceil_p,
    clamp_p,
    complex_p,
    conj_p,
    cos_p,
    cosh_p,
    div_p,
    eq_p,
    exp2_p,
    exp_p,
    expm1_p,
    floor_p,
    gt_p,
    imag_p,
    log1p_p,
    log_p,
    lt_p,
    maximum_p,
    minimum_p,
    mul_p,
    ne_p,
    or_p,
    real_p,
    round_p,
    scalar,
    select_p,
    sin_p,
    sinh_p,
    stop_gradient_p,
    tan_p,
    tanh_p,
)

__all__ = [
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "around",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clamp",
    "clip",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fmax",
    "fmin",
    "imag",
    "log",
    "log1p",
    "log2",
    "log10",
    "maximum",
    "minimum",
    "rad2deg",
    "radians",
    "real",
    "rint",
    "round",
    "sin",
    "sinh",
    "stop_gradient",
    "tan",
    "tanh",
    "trunc",
]

# -------------------------------------------------------------------------- elementary functions


def _elementary(name: str, primitive: Function, doc: str) -> Function:
    return unary(name, primitive, doc, floats=True)


exp = _elementary("exp", exp_p, "Returns e to the power x.")
exp2 = _elementary("exp2", exp2_p, "Returns 2 to the power x.")
expm1 = _elementary("expm1", expm1_p, "Returns exp(x) - 1, exact for small x.")
log = _elementary("log", log_p, "Returns the natural logarithm.")


def _logarithm(x: Any, base: int) -> Any:
    out, scale = log_p(x), math.log(base)
    if is_complex(type_of(x).dtype):  # part by part: a complex quotient has products 0 * inf
        return complex_p(div_p(real_p(out), scale), div_p(imag_p(out), scale))
    return div_p(out, scale)


log2 = _elementary("log2", lambda x: _logarithm(x, 2), "Returns the logarithm to base 2.")
log10 = _elementary("log10", lambda x: _logarithm(x, 10), "Returns the logarithm to base 10.")
log1p = _elementary("log1p", log1p_p, "Returns log(1 + x), exact for small x.")
sin = _elementary("sin", sin_p, "Returns the sine of an angle in radians.")
cos = _elementary("cos", cos_p, "Returns the cosine of an angle in radians.")
tan = _elementary("tan", tan_p, "Returns the tangent of an angle in radians.")
arcsin = asin = _elementary("arcsin", asin_p, "Returns the angle in radians with sine x.")
arccos = acos = _elementary("arccos", acos_p, "Returns the angle in radians with cosine x.")
arctan = atan = _elementary("arctan", atan_p, "Returns the angle in radians with tangent x.")
sinh = _elementary("sinh", sinh_p, "Returns the hyperbolic sine.")
cosh = _elementary("cosh", cosh_p, "Returns the hyperbolic cosine.")
tanh = _elementary("tanh", tanh_p, "Returns the hyperbolic tangent.")
arcsinh = asinh = _elementary("arcsinh", asinh_p, "Returns the inverse hyperbolic sine.")
arccosh = acosh = _elementary("arccosh", acosh_p, "Returns the inverse hyperbolic cosine.")
arctanh = atanh = _elementary("arctanh", atanh_p, "Returns the inverse hyperbolic tangent.")
arctan2 = atan2 = binary(
    "arctan2",
    atan2_p,
    "Returns the angle of the point (y, x) in radians; its gradient at the origin is 0.",
    floats=True,
)
deg2rad = radians = _elementary(
    "deg2rad", lambda x: mul_p(x, math.pi / 180), "Converts degrees to radians."
)
rad2deg = degrees = _elementary(
    "rad2deg", lambda x: mul_p(x, 180 / math.pi), "Converts radians to degrees."
)


# ------------------------------------------------------------------------- larger, smaller, whole

maximum = binary(
    "maximum",
    maximum_p,
    "Returns the larger of x and y, NaN where either is; a tie shares its gradient evenly.",
)
minimum = binary(
    "minimum",
    minimum_p,
    "Returns the smaller of x and y, NaN where either is; a tie shares its gradient evenly.",
)


def _leaving_nan(extremum: Function) -> Function:
    def choose(x: Any, y: Any) -> Any:
        x, y = as_strict(x, y)
        out = select_p(ne_p(y, y), x, extremum(x, y))
        return select_p(ne_p(x, x), y, out)

    return choose


fmax = binary(
    "fmax",
    _leaving_nan(maximum_p),
    "Returns the larger of x and y, and the other one where one is NaN.",
)
fmin = binary(
    "fmin",
    _leaving_nan(minimum_p),
    "Returns the smaller of x and y, and the other one where one is NaN.",
)


def clip(x: Any, min: Any = None, max: Any = None, **options: Any) -> Any:
    """Returns x, held between two bounds.

    On a bound the gradient of x is 0, the slope of least norm; PyTorch 2.13 gives 1 there.

    Args:
        x: an array.
        min: the lower bound; None for none.
        max: the upper bound, which wins over the lower; None for none.
        **options: `a_min` and `a_max` for the bounds, as NumPy once called them, and `dtype`.

    Example:
        >>> clip(np.array([-1.0, 0.5, 3.0]), 0.0, 1.0)
        array([0. , 0.5, 1. ])
    """
    min, max = options.pop("a_min", min), options.pop("a_max", max)
    dtype = read_options("clip", options) if options else None
    given = [v for v in (min, x, max) if v is not None]
    if len(given) == 1:
        return copied(as_array(x, dtype))
    common = [as_array(v) if not is_scalar(v) else v for v in given]
    if dtype is None:
        dtype = result_type(*common)
    if dtype == np.bool_ or is_complex(dtype):
        raise DTypeError(f"clip: takes integers and real floats.\n  x: {type_of(as_array(x))}")
    low, high = (-math.inf, math.inf) if not is_integer(dtype) else _range(dtype)
    operands = iter(unify("clip", *common, dtype=dtype))
    below = next(operands) if min is not None else scalar(low, dtype)
    middle = next(operands)
    above = next(operands) if max is not None else scalar(high, dtype)
    return marked(clamp_p(below, middle, above), *given)


clamp = clip


def _range(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _trunc(x: Any) -> Any:
    return select_p(lt_p(x, 0.0), ceil_p(x), floor_p(x))


floor = unary("floor", floor_p, "Rounds down; integers stay.", whole=copied)
ceil = unary("ceil", ceil_p, "Rounds up; integers stay.", whole=copied)
trunc = unary("trunc", _trunc, "Rounds toward zero; integers stay.", whole=copied)


def _rint(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        return complex_p(round_p(real_p(x)), round_p(imag_p(x)))
    return round_p(x)


rint = unary("rint", _rint, "Rounds to the nearest whole number, halves to even.", whole=copied)


def round(x: Any, decimals: int = 0, **options: Any) -> Any:
    """Rounds to a number of decimals, halves to even.

    Args:
        x: an array; integers stay integers.
        decimals: how many digits stay behind the point; negative ones stand before it.
        **options: only refused here, see `ftrans.numpy.add`.

    Example:
        >>> round(np.array([0.125, 2.5]), 2)
        array([0.12, 2.5 ])
    """
    if options:
        read_options("round", options)
    if decimals == 0:
        return rint(x)
    if not type_of(as_array(x)).is_inexact:
        return copied(as_array(x)) if decimals > 0 else _round_whole(as_array(x), 10**-decimals)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return divide(rint(multiply(x, scale)), scale)
    return multiply(rint(divide(x, scale)), scale)


around = round


def _round_whole(x: Any, unit: int) -> Any:
    quotient, rest = divmod(x, unit)
    twice = multiply(rest, 2)
    half, odd = eq_p(twice, unit), eq_p(remainder(quotient, 2), 1)
    up = or_p(gt_p(twice, unit), and_p(half, odd))
    return multiply(add(quotient, cast(up, type_of(x).dtype)), unit)


# --------------------------------------------------------------------------------------- complex

real = unary(
    "real",
    lambda x: view_of(x, real_p(x)) if is_complex(type_of(x).dtype) else x,
    "Returns the real part, a view of x.",
)
imag = unary(
    "imag",
    lambda x: (
        view_of(x, imag_p(x))
        if is_complex(type_of(x).dtype)
        else broadcast_p(scalar(0, type_of(x).dtype), shape=type_of(x).shape, axes=())
    ),
    "Returns the imaginary part, a view of x; 0 where x is real.",
)
conj = conjugate = unary(
    "conj",
    lambda x: conj_p(x) if is_complex(type_of(x).dtype) else copied(x),
    "Returns the complex conjugate.",
)


def angle(x: Any, deg: bool = False) -> Any:
    """Returns the angle of complex numbers in the plane; its gradient at 0 is 0.

    Args:
        x: an array.
        deg: whether in degrees instead of radians.

    Example:
        >>> float(angle(1j, deg=True))
        90.0
    """
    operand = inexact(x)
    out = atan2_p(imag(operand), real(operand))
    return rad2deg(out) if deg else out


stop_gradient = unary(
    "stop_gradient", stop_gradient_p, "Returns x as a constant: no derivative goes through it."
)
