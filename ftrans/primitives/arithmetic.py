"""Addition, multiplication and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.ir import Literal
from ftrans.ir.dtype import is_complex
from ftrans.primitives.family import elementwise
from ftrans.primitives.record import LINEAR, New

__all__ = ["add_p", "mul_p", "neg_p", "sub_p", "accumulate"]


def accumulate(x: Any, y: Any) -> Any:
    """Adds two tangents or cotangents of which either may be zero (`None`)."""
    if x is None or y is None:
        return y if x is None else x
    return add_p(x, y)


def _is(literal: Any, value: float) -> bool:
    return isinstance(literal, Literal) and literal.array == value


def _neg_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    inner = scope.definition(operands[0])
    return inner.operands[0] if inner and inner.primitive is neg_p else None


def _add_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    # x + 0.0 is not exact where x is -0.0, so only integers are simplified
    for x, y in (operands, operands[::-1]):
        if _is(y, 0) and not types[0].is_inexact and scope.type(x) is types[0]:
            return x
        inner = scope.definition(y)
        if inner and inner.primitive is neg_p and scope.type(x) is types[0]:
            return New(sub_p, (x, inner.operands[0]), {})
    return None


def _sub_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, y = operands
    if _is(y, 0) and not np.signbit(y.array.real) and scope.type(x) is types[0]:
        return x
    inner = scope.definition(y)
    if inner and inner.primitive is neg_p:
        return New(add_p, (x, inner.operands[0]), {})
    return None


def _mul_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    for x, y in (operands, operands[::-1]):
        if scope.type(x) is not types[0]:
            continue
        if _is(y, 1):
            return x
        if _is(y, -1) and not is_complex(types[0].dtype):
            return New(neg_p, (x,), {})
    x, y = (scope.definition(operand) for operand in operands)
    if x and y and x.primitive is neg_p and y.primitive is neg_p:
        return New(mul_p, (x.operands[0], y.operands[0]), {})
    return None


neg_p = elementwise(
    "neg",
    rewrite=_neg_rewrite,
    kinds="iufc",
    lower=lambda xp, x: xp.negative(x),
    jvp=LINEAR,
    arity=1,
    transpose=[lambda ct, x: neg_p(ct)],
    tags=["linear"],
)

add_p = elementwise(
    "add",
    rewrite=_add_rewrite,
    kinds="iufc",
    lower=lambda xp, x, y: xp.add(x, y),
    jvp=[lambda t, out, x, y: t, lambda t, out, x, y: t],
    transpose=[lambda ct, x, y: ct, lambda ct, x, y: ct],
    tags=["linear", "commutative"],
)

sub_p = elementwise(
    "sub",
    rewrite=_sub_rewrite,
    kinds="iufc",
    lower=lambda xp, x, y: xp.subtract(x, y),
    jvp=[lambda t, out, x, y: t, lambda t, out, x, y: neg_p(t)],
    transpose=[lambda ct, x, y: ct, lambda ct, x, y: neg_p(ct)],
    tags=["linear"],
)

mul_p = elementwise(
    "mul",
    rewrite=_mul_rewrite,
    kinds="iufc",
    lower=lambda xp, x, y: xp.multiply(x, y),
    jvp=[lambda t, out, x, y: mul_p(t, y), lambda t, out, x, y: mul_p(x, t)],
    transpose=[lambda ct, x, y: mul_p(ct, y), lambda ct, x, y: mul_p(x, ct)],
    tags=["multilinear", "commutative"],
)
