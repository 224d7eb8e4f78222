"""Bitwise logic on integers, which is logic on booleans."""

from __future__ import annotations

from ftrans.primitives.family import elementwise
from ftrans.primitives.record import Absent

__all__ = ["and_p", "not_p", "or_p", "shift_left_p", "shift_right_p", "xor_p"]

_no_tangent = Absent("its values are booleans or integers, which have no tangents")
_two = [_no_tangent, _no_tangent]

and_p = elementwise("and", kinds="biu", lower=lambda xp, x, y: xp.bitwise_and(x, y), jvp=_two)
or_p = elementwise("or", kinds="biu", lower=lambda xp, x, y: xp.bitwise_or(x, y), jvp=_two)
xor_p = elementwise("xor", kinds="biu", lower=lambda xp, x, y: xp.bitwise_xor(x, y), jvp=_two)
not_p = elementwise("not", kinds="biu", lower=lambda xp, x: xp.invert(x), jvp=[_no_tangent])
shift_left_p = elementwise(
    "shift_left",
    kinds="iu",
    lower=lambda xp, x, y: xp.left_shift(x, y),
    jvp=_two,
    domain=(0.0, 4.0),
)
shift_right_p = elementwise(
    "shift_right",
    kinds="iu",
    lower=lambda xp, x, y: xp.right_shift(x, y),
    jvp=_two,
    domain=(0.0, 4.0),
)
