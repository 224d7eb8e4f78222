"""Elementwise functions under NumPy's names: arithmetic, powers, rounding, elementary functions.

What is one primitive under another name is made by `unary` and `binary`; operands are unified first,
so that shapes broadcast and dtypes promote. A result is weak where all operands were.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex, is_integer
from ftrans.numpy.promotion import (
    as_array,
    canonical_dtype,
    cast,
    default_dtype,
    inexact,
    is_scalar,
    is_weak,
    result_type,
    unify,
)
from ftrans.numpy.views import fresh
from ftrans.primitives import (
    abs_p,
    acos_p,
    acosh_p,
    add_p,
    and_p,
    asin_p,
    asinh_p,
    atan2_p,
    atan_p,
    atanh_p,
    broadcast_p,
    cbrt_p,
    ceil_p,
    clamp_p,
    complex_p,
    conj_p,
    convert_p,
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
    integer_pow_p,
    log1p_p,
    log_p,
    lt_p,
    maximum_p,
    minimum_p,
    mul_p,
    ne_p,
    neg_p,
    or_p,
    pow_p,
    real_p,
    rem_p,
    round_p,
    rsqrt_p,
    scalar,
    select_p,
    sign_p,
    sin_p,
    sinh_p,
    sqrt_p,
    stop_gradient_p,
    sub_p,
    tan_p,
    tanh_p,
)

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
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
    "cbrt",
    "ceil",
    "clamp",
    "clip",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "divide",
    "divmod",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "imag",
    "log",
    "log1p",
    "log2",
    "log10",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "positive",
    "pow",
    "power",
    "rad2deg",
    "radians",
    "real",
    "reciprocal",
    "remainder",
    "rint",
    "round",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "subtract",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
]

Function = Callable[..., Any]


# --------------------------------------------------------------------------- how they are made


def read_options(name: str, options: dict[str, Any]) -> np.dtype | None:
    """Returns the dtype among the keyword arguments of a ufunc, and refuses what has no meaning.

    Raises:
        TypeError: for `out` and `where`, which write into an array that is there, and for others.
    """
    dtype = options.pop("dtype", None)
    if options.pop("out", None) not in (None, (None,)):
        raise TypeError(
            f"{name}: out= is not supported, since traced values are never overwritten.\n"
            f"  Bind the result to the name instead: y = {name}(...)."
        )
    if options.pop("where", True) is not True:
        raise TypeError(
            f"{name}: where= is not supported, since it leaves elements unset.\n"
            f"  Choose between values instead: ftrans.numpy.where(mask, {name}(...), other)."
        )
    if options:
        raise TypeError(f"{name}: there is no argument {next(iter(options))!r}.")
    return None if dtype is None else canonical_dtype(dtype)


def marked(out: Any, *xs: Any) -> Any:
    """Returns a traced result as a weak one where all operands promote weakly."""
    if isinstance(out, Tracer) and all(is_weak(x) for x in xs):
        return Tracer(out.frame, out.index, out.type, weak=True)
    return out


def named(function: Function, name: str, doc: str) -> Function:
    """Gives a function that a factory made its name and docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def unary(
    name: str,
    primitive: Function,
    doc: str,
    *,
    floats: bool = False,
    whole: Function | None = None,
) -> Function:
    """Makes a function of one array from a primitive.

    Args:
        name: the name.
        primitive: takes a strict operand.
        doc: the docstring.
        floats: whether integers and booleans are converted to the default dtype.
        whole: what is done to integers and booleans instead.
    """

    def function(x: Any, /, **options: Any) -> Any:
        dtype = read_options(name, options) if options else None
        if type(x) is Tracer and dtype is None and not x.weak and x.type.is_inexact:
            return primitive(x)
        (operand,) = unify(name, x, dtype=dtype, to_inexact=floats)
        chosen = primitive if whole is None or type_of(operand).is_inexact else whole
        return marked(chosen(operand), x)

    return named(function, name, doc)


def binary(
    name: str,
    primitive: Function,
    doc: str,
    *,
    floats: bool = False,
    booleans: Function | None = None,
    whole: Function | None = None,
) -> Function:
    """Makes a function of two arrays from a primitive.

    Args:
        name: the name.
        primitive: takes two strict operands.
        doc: the docstring.
        floats: whether integers and booleans are converted to the default dtype.
        booleans: what is done to booleans instead.
        whole: what is done to integers instead.
    """

    def function(x: Any, y: Any, /, **options: Any) -> Any:
        dtype = read_options(name, options) if options else None
        if dtype is None:
            # most operands are two traced values of one type, or one and a float
            if type(x) is Tracer and not x.weak and x.type.is_inexact:
                if type(y) is Tracer:
                    if y.type is x.type and not y.weak:
                        return primitive(x, y)
                elif type(y) is float:
                    return primitive(x, scalar(y, x.type.dtype))
            elif type(x) is float and type(y) is Tracer and not y.weak and y.type.is_inexact:
                return primitive(scalar(x, y.type.dtype), y)
        operands = unify(name, x, y, dtype=dtype, to_inexact=floats)
        kind = _kind_of(operands)
        chosen = booleans if kind == "b" else whole if kind in "iu" else None
        return marked((chosen or primitive)(*operands), x, y)

    return named(function, name, doc)


def _kind_of(operands: Any) -> str:
    """Returns the kind of unified operands: one of b, i, u, f, c."""
    kind = type_of(operands[0]).dtype.kind
    return kind if kind in "biuc" else "f"


def copied(x: Any) -> Any:
    """Returns the same value as an array of its own, which writes to `x` do not reach."""
    return x.copy() if isinstance(x, np.ndarray) else fresh(x)


def _refuse(name: str, advice: str) -> Function:
    """Makes what raises where booleans have no such operation."""

    def refuse(*operands: Any) -> Any:
        raise DTypeError(
            f"{name}: booleans have no {name}.\n"
            f"  operands: {', '.join(str(type_of(x)) for x in operands)}\n"
            f"  {advice}"
        )

    return refuse


# ------------------------------------------------------------------------------------ arithmetic

add = binary("add", add_p, "Returns x + y; of booleans, x or y.", booleans=or_p)
subtract = binary(
    "subtract",
    sub_p,
    "Returns x - y.",
    booleans=_refuse("subtract", "Write x ^ y, or convert one: x.astype(int)."),
)
multiply = binary("multiply", mul_p, "Returns x * y; of booleans, x and y.", booleans=and_p)
divide = true_divide = binary(
    "divide", div_p, "Returns x / y; of integers in the default dtype.", floats=True
)
negative = unary(
    "negative",
    lambda x: neg_p(x) if type_of(x).dtype != bool else _no_negative(x),
    "Returns -x.",
)
_no_negative = _refuse("negative", "Write ~x.")
positive = unary("positive", copied, "Returns x.")
absolute = abs = unary(
    "absolute",
    abs_p,
    "Returns |x|, real also where x is complex; its gradient at 0 is 0.",
    whole=lambda x: copied(x) if type_of(x).dtype.kind in "bu" else abs_p(x),
)
fabs = unary("fabs", abs_p, "Returns |x| as a float.", floats=True)
sign = unary("sign", sign_p, "Returns -1, 0 or 1, and x / |x| where x is complex.")
reciprocal = unary(
    "reciprocal", lambda x: div_p(1, x), "Returns 1 / x; of integers as floats.", floats=True
)


def _whole_divide(x: Any, y: Any, divide: Function) -> Any:
    """Divides integers, and gives 0 where the divisor is 0, as NumPy does on every machine."""
    dtype = type_of(x).dtype
    by_zero = eq_p(y, scalar(0, dtype))
    out = divide(x, select_p(by_zero, scalar(1, dtype), y))
    return select_p(by_zero, scalar(0, dtype), out)


def as_strict(x: Any, y: Any) -> tuple[Any, Any]:
    """Fills literals out to arrays, where an operation is made of several primitives."""
    shape = type_of(x).shape if not type_of(x).weak else type_of(y).shape
    filled = [broadcast_p(v, shape=shape, axes=()) if type_of(v).weak else v for v in (x, y)]
    return filled[0], filled[1]


def _goes_below(x: Any, y: Any, rest: Any) -> Any:
    """Tells where rounding down and rounding toward zero give different quotients."""
    nothing = scalar(0, type_of(x).dtype)
    differ = ne_p(lt_p(rest, nothing), lt_p(y, nothing))
    return and_p(ne_p(rest, nothing), differ)


def _mod(x: Any, y: Any) -> Any:
    rest = rem_p(x, y)
    return select_p(_goes_below(x, y, rest), add_p(rest, y), rest)


def _floor_divide(x: Any, y: Any) -> Any:
    # C's fmod is exact, so the quotient of what it leaves differs from a whole number by rounding
    rest = rem_p(x, y)
    below = convert_p(_goes_below(x, y, rest), dtype=type_of(x).dtype)
    whole = sub_p(round_p(div_p(sub_p(x, rest), y)), below)
    return select_p(eq_p(y, 0.0), div_p(x, y), whole)


def _whole_floor_divide(x: Any, y: Any) -> Any:
    below = convert_p(_goes_below(x, y, rem_p(x, y)), dtype=type_of(x).dtype)
    return sub_p(div_p(x, y), below)


def _by_parts(division: Function, whole: Function) -> tuple[Function, Function]:
    """Returns a division of floats and one of integers, of operands that are strict."""

    def of_floats(x: Any, y: Any) -> Any:
        return division(*as_strict(x, y))

    def of_integers(x: Any, y: Any) -> Any:
        return _whole_divide(*as_strict(x, y), whole)

    return of_floats, of_integers


_floor_of_floats, _floor_of_integers = _by_parts(_floor_divide, _whole_floor_divide)
floor_divide = binary(
    "floor_divide",
    lambda x, y: _floor_of_floats(stop_gradient_p(x), stop_gradient_p(y)),
    "Returns the largest whole number not above x / y; its gradient is 0.",
    whole=_floor_of_integers,
    booleans=_refuse("floor_divide", "Convert them first: x.astype(int)."),
)
_mod_of_floats, _mod_of_integers = _by_parts(_mod, _mod)
mod = remainder = binary(
    "remainder",
    _mod_of_floats,
    "Returns what x // y leaves, with the sign of y.",
    whole=_mod_of_integers,
    booleans=_refuse("remainder", "Convert them first: x.astype(int)."),
)
fmod = binary(
    "fmod",
    rem_p,
    "Returns what the division toward zero leaves, with the sign of x.",
    whole=_by_parts(rem_p, rem_p)[1],
    booleans=_refuse("fmod", "Convert them first: x.astype(int)."),
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
        if isinstance(y, int) and t.dtype != bool:
            return marked(integer_pow_p(operand, exponent=y), x)
        if t.is_inexact and y in (1.0, 2.0):
            return marked(integer_pow_p(operand, exponent=int(y)), x)
        if t.is_inexact and y == 0.5:
            return marked(sqrt_p(operand), x)
    operands = unify("power", x, y)
    if type_of(operands[0]).dtype == bool:
        operands = unify("power", x, y, dtype=default_dtype(int))
    return marked(pow_p(*operands), x, y)


pow = power


def float_power(x: Any, y: Any, /) -> Any:
    """Returns x to the power y, in float64 or complex128."""
    common = result_type(*(v if is_scalar(v) else as_array(v) for v in (x, y)))
    wide = np.dtype("complex128" if is_complex(common) else "float64")
    return pow_p(*unify("float_power", x, y, dtype=wide))


square = unary(
    "square",
    lambda x: integer_pow_p(x, exponent=2),
    "Returns x * x.",
    whole=lambda x: copied(x) if type_of(x).dtype == bool else integer_pow_p(x, exponent=2),
)
sqrt = unary("sqrt", sqrt_p, "Returns the square root; its slope at 0 is inf.", floats=True)
rsqrt = unary("rsqrt", rsqrt_p, "Returns 1 / sqrt(x).", floats=True)
cbrt = unary("cbrt", cbrt_p, "Returns the real cube root.", floats=True)


# -------------------------------------------------------------------------- elementary functions


def _elementary(name: str, primitive: Function, doc: str) -> Function:
    return unary(name, primitive, doc, floats=True)


exp = _elementary("exp", exp_p, "Returns e to the power x.")
exp2 = _elementary("exp2", exp2_p, "Returns 2 to the power x.")
expm1 = _elementary("expm1", expm1_p, "Returns exp(x) - 1, exact for small x.")
log = _elementary("log", log_p, "Returns the natural logarithm.")
log2 = _elementary(
    "log2", lambda x: div_p(log_p(x), math.log(2)), "Returns the logarithm to base 2."
)
log10 = _elementary(
    "log10", lambda x: div_p(log_p(x), math.log(10)), "Returns the logarithm to base 10."
)
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
    if dtype == bool or is_complex(dtype):
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
    lambda x: real_p(x) if is_complex(type_of(x).dtype) else x,
    "Returns the real part.",
)
imag = unary(
    "imag",
    lambda x: (
        imag_p(x)
        if is_complex(type_of(x).dtype)
        else broadcast_p(scalar(0, type_of(x).dtype), shape=type_of(x).shape, axes=())
    ),
    "Returns the imaginary part, 0 where x is real.",
)
conj = conjugate = unary(
    "conj",
    lambda x: conj_p(x) if is_complex(type_of(x).dtype) else x,
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
