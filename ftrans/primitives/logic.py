"""Comparisons, and logic: bitwise on integers, which is logic on booleans. None has tangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.ir import Literal
from ftrans.primitives.axes import broadcast_p
from ftrans.primitives.elementwise import elementwise
from ftrans.primitives.record import Absent, New, Primitive

__all__ = [
    "and_p",
    "eq_p",
    "ge_p",
    "gt_p",
    "le_p",
    "lt_p",
    "ne_p",
    "not_p",
    "or_p",
    "shift_left_p",
    "shift_right_p",
    "xor_p",
]

_no_tangent = Absent("its values are booleans or integers, which have no tangents")
_two = [_no_tangent, _no_tangent]


def _decided(neutral: bool) -> Any:
    """Returns the rewrite of `and` (neutral: True) or `or` with a known or a repeated operand."""

    def rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
        (result,) = types
        for x, y in (operands, operands[::-1]):
            if scope.type(x) is not result:
                continue
            if x == y:
                return x
            if isinstance(y, Literal) and result.dtype == bool:
                if y.value == neutral:
                    return x
                return New(broadcast_p, (y,), {"shape": result.shape, "axes": ()})
        return None

    return rewrite


def _binary(name: str, function: str, **declared: Any) -> Primitive:
    """Declares a function of two operands; `function` is its name in NumPy."""

    def lower(xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, function)(x, y)

    return elementwise(name, lower=lower, jvp=_two, **declared)


_bits = {"kinds": "biu", "tags": ["commutative"]}

and_p = _binary("and", "bitwise_and", rewrite=_decided(True), **_bits)
or_p = _binary("or", "bitwise_or", rewrite=_decided(False), **_bits)
xor_p = _binary("xor", "bitwise_xor", **_bits)
not_p = elementwise(
    "not", kinds="biu", lower=lambda xp, x: xp.invert(x), jvp=[_no_tangent], tags=["involution"]
)
shift_left_p = _binary("shift_left", "left_shift", kinds="iu", domain=(0.0, 4.0))
shift_right_p = _binary("shift_right", "right_shift", kinds="iu", domain=(0.0, 4.0))


# -------------------------------------------------------------------------------- comparisons


def _comparison(name: str, function: str, kinds: str = "biuf") -> Primitive:
    return _binary(name, function, kinds=kinds, dtype=lambda dtype: np.bool_, tags=["comparison"])


eq_p = _comparison("eq", "equal", "biufc")
ne_p = _comparison("ne", "not_equal", "biufc")
lt_p = _comparison("lt", "less")
le_p = _comparison("le", "less_equal")
gt_p = _comparison("gt", "greater")
ge_p = _comparison("ge", "greater_equal")
