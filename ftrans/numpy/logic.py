"""Comparisons, logic, bits, tests on numbers, and choosing: what has booleans in or out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import ShapeError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.elementwise import imag
from ftrans.numpy.finding import nonzero
from ftrans.numpy.promotion import as_array, filled, is_array, is_scalar, unify
from ftrans.numpy.ufunc import binary, marked, named, unary

__all__ = [
    "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "equal", "greater", "greater_equal", "invert", "iscomplex", "iscomplexobj",
    "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar",
    "iterable", "left_shift",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor",
    "not_equal", "right_shift", "where",
]  # fmt: skip

equal = binary("equal", p.eq_p, "Tells where x and y are equal; NaN equals nothing.")
not_equal = binary("not_equal", p.ne_p, "Tells where x and y differ; NaN differs from all.")
less = binary("less", p.lt_p, "Tells where x < y.")
less_equal = binary("less_equal", p.le_p, "Tells where x <= y.")
greater = binary("greater", p.gt_p, "Tells where x > y.")
greater_equal = binary("greater_equal", p.ge_p, "Tells where x >= y.")


# ----------------------------------------------------------------------------------------- logic


def truth(x: Any) -> Any:
    """Returns where an array, a sequence or a Python scalar is not zero, as strict booleans."""
    operand = as_array(x)
    t = type_of(operand)
    return operand if t.dtype == bool else p.ne_p(operand, p.scalar(0, t.dtype))


def _logical(name: str, primitive: Any, doc: str) -> Callable[..., Any]:
    def function(x1: Any, x2: Any) -> Any:
        return primitive(*unify(name, truth(x1), truth(x2)))

    return named(function, name, doc)


logical_and = _logical("logical_and", p.and_p, "Tells where x1 and x2 are both not zero.")
logical_or = _logical("logical_or", p.or_p, "Tells where x1 or x2 is not zero.")
logical_xor = _logical("logical_xor", p.xor_p, "Tells where just one of x1 and x2 is not zero.")


def logical_not(x: Any) -> Any:
    """Tells where x is zero."""
    return p.not_p(truth(x))


bitwise_and = binary("bitwise_and", p.and_p, "Returns the bits that are set in both x and y.")
bitwise_or = binary("bitwise_or", p.or_p, "Returns the bits that are set in x or y.")
bitwise_xor = binary("bitwise_xor", p.xor_p, "Returns the bits that are set in one of x and y.")
invert = bitwise_not = bitwise_invert = unary(
    "invert", p.not_p, "Flips every bit of integers; of booleans, returns not x."
)
left_shift = bitwise_left_shift = binary(
    "left_shift", p.shift_left_p, "Shifts the bits of x to the left by y places."
)
right_shift = bitwise_right_shift = binary(
    "right_shift", p.shift_right_p, "Shifts the bits of x to the right by y places."
)


# --------------------------------------------------------------------------------------- testing


def _test(name: str, of_real: Any, doc: str, *, whole: bool, both: Any = p.or_p) -> Any:
    """Makes a test on numbers; of a complex one `both` joins the tests of its parts."""

    def of_float(x: Any) -> Any:
        if is_complex(type_of(x).dtype):
            return both(of_real(p.real_p(x)), of_real(p.imag_p(x)))
        return of_real(x)

    return unary(name, of_float, doc, whole=lambda x: filled(whole, type_of(x).shape, np.bool_))


isnan = _test("isnan", lambda x: p.ne_p(x, x), "Tells where x is NaN.", whole=False)
isinf = _test(
    "isinf", lambda x: p.eq_p(p.abs_p(x), math.inf), "Tells where x is inf or -inf.", whole=False
)
isfinite = _test(
    "isfinite",
    p.is_finite_p,
    "Tells where x is neither inf, -inf nor NaN.",
    whole=True,
    both=p.and_p,
)
isposinf = _test("isposinf", lambda x: p.eq_p(x, math.inf), "Tells where x is inf.", whole=False)
isneginf = _test("isneginf", lambda x: p.eq_p(x, -math.inf), "Tells where x is -inf.", whole=False)


def isreal(x: Any) -> Any:
    """Tells where the imaginary part is 0."""
    return equal(imag(x), 0)


def iscomplex(x: Any) -> Any:
    """Tells where the imaginary part is not 0."""
    return not_equal(imag(x), 0)


def iscomplexobj(x: Any) -> bool:
    """Tells whether the dtype is complex, whatever the values."""
    return is_complex(type_of(as_array(x)).dtype)


def isrealobj(x: Any) -> bool:
    """Tells whether the dtype is not complex."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Tells whether a value is a scalar; a traced value of rank zero is one."""
    return np.isscalar(element) or (type(element) is Tracer and element.type.ndim == 0)


def iterable(y: Any) -> bool:
    """Tells whether a value can be iterated over; an array of rank zero cannot."""
    return type_of(y).ndim > 0 if is_array(y) else np.iterable(y)


# -------------------------------------------------------------------------------------- choosing


def where(
    condition: Any,
    x: Any = None,
    y: Any = None,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Returns x where the condition holds, else y.

    The branch that is not taken gets a cotangent of 0. Where it computes inf or NaN its own
    derivative turns that 0 into NaN; so give it a harmless operand:
    `where(x > 0, log(where(x > 0, x, 1)), 0)`.

    Args:
        condition: booleans; numbers count as true where they are not 0.
        x: values; without x and y the indices where the condition holds are returned.
        y: values.
        size: of the indices, as for `nonzero`.
        fill_value: of the indices, as for `nonzero`.

    Example:
        >>> where(np.array([True, False]), 1.0, np.zeros(2))
        array([1., 0.])
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise UnsupportedError("where: takes both x and y, or neither: where(condition, x, y).")
    mask = truth(condition)
    given = x, y
    # the three have one shape, but not one dtype
    x, y = unify("where", *given)
    if all(map(is_scalar, given)):
        dtype = type_of(x).dtype
        x, y = p.scalar(given[0], dtype), p.scalar(given[1], dtype)
    shapes = [type_of(v).shape for v in (mask, x, y) if not type_of(v).weak]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"where: shapes do not broadcast.\n  condition: {type_of(mask)}\n"
            f"  x: {type_of(x)}\n  y: {type_of(y)}"
        ) from None
    operands = (v if type_of(v).weak else broadcast_to(v, shape) for v in (mask, x, y))
    return marked(p.select_p(*operands), *given)
