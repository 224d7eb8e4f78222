"""Arithmetic and powers under NumPy's names.

Division rounds down, as Python's does. Integers divided by 0 give 0, as in NumPy, on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.promotion import as_array, cast, default_dtype, is_scalar, result_type, unify
from ftrans.numpy.ufunc import (
    Function,
    binary,
    composed,
    elementary,
    marked,
    read_options,
    refused,
    unary,
)
from ftrans.numpy.views import copied

__all__ = [
    "abs", "absolute", "add", "cbrt", "divide", "divmod", "fabs", "float_power", "floor_divide",
    "fmod", "mod", "multiply", "negative", "positive", "pow", "power", "reciprocal",
    "remainder", "rsqrt", "sign", "sqrt", "square", "subtract", "true_divide",
]  # fmt: skip

add = binary("add", p.add_p, "Returns x + y; of booleans, x or y.", booleans=p.or_p)
subtract = binary(
    "subtract",
    p.sub_p,
    "Returns x - y.",
    booleans=refused("subtract", "Write x ^ y, or convert one: x.astype(int)."),
)
multiply = binary("multiply", p.mul_p, "Returns x * y; of booleans, x and y.", booleans=p.and_p)
divide = true_divide = binary(
    "divide", p.div_p, "Returns x / y; of integers in the default dtype.", floats=True
)
_no_negative = refused("negative", "Write ~x.")
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
    binary, whole=_of_integers(_whole_floor_divide), booleans=refused("floor_divide", _CONVERT)
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
    booleans=refused("remainder", _CONVERT),
)
fmod = binary(
    "fmod",
    p.rem_p,
    "Returns what the division toward zero leaves, with the sign of x.",
    whole=_of_integers(p.rem_p),
    booleans=refused("fmod", _CONVERT),
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
            return marked(p.integer_pow_p(operand, exponent=y), x)
        if t.is_inexact and y in (1.0, 2.0):
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
