"""What networks ask for beyond NumPy: rectifiers, and exponentials normalised along an axis."""

from __future__ import annotations

import math
from typing import Any

from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.promotion import broadcast_to, canonical_axes, inexact
from ftrans.numpy.reduction import max, sum
from ftrans.numpy.ufunc import unary
from ftrans.primitives import (
    add_p,
    convert_p,
    div_p,
    eq_p,
    erfc_p,
    exp_p,
    is_finite_p,
    le_p,
    log_p,
    logistic_p,
    mul_p,
    real_p,
    reshape_p,
    scalar,
    select_p,
    stop_gradient_p,
    sub_p,
)

__all__ = ["gelu", "log_softmax", "logsumexp", "relu", "silu", "softmax"]

relu = unary(
    "relu",
    lambda x: select_p(le_p(x, scalar(0, type_of(x).dtype)), scalar(0, type_of(x).dtype), x),
    "Returns x where it is positive, else 0; its gradient at 0 is 0.",
)
silu = unary("silu", lambda x: mul_p(x, logistic_p(x)), "Returns x sigmoid(x).", floats=True)
gelu = unary(
    "gelu",
    lambda x: mul_p(mul_p(x, 0.5), erfc_p(mul_p(x, -math.sqrt(0.5)))),
    "Returns x times the chance that a standard normal number is below it.",
    floats=True,
)


def _shift(x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the largest elements along some axes, kept, as constants; 0 where they are infinite.

    All that is computed with them does not depend on them, so no derivative goes through.
    """
    fixed = stop_gradient_p(x)
    if is_complex(type_of(x).dtype):
        fixed = real_p(fixed)
    largest = max(fixed, axis=axes, keepdims=True, initial=-math.inf)
    largest = select_p(is_finite_p(largest), largest, 0.0)
    return convert_p(largest, dtype=type_of(x).dtype)


def logsumexp(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Returns log(sum(exp(x))) without overflow; where all x are -inf its gradient is 0.

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        keepdims: whether reduced axes stay, with size 1.

    Example:
        >>> import numpy as np
        >>> round(float(logsumexp(np.array([1000.0, 1000.0]))), 3)
        1000.693
    """
    x = inexact(x)
    t = type_of(x)
    axes = canonical_axes("logsumexp", axis, t.ndim)
    shift = _shift(x, axes)
    total = sum(exp_p(sub_p(x, broadcast_to(shift, t.shape))), axis=axes, keepdims=True)
    nothing = eq_p(total, 0.0)
    found = add_p(log_p(select_p(nothing, 1.0, total)), shift)
    found = select_p(nothing, -math.inf, found)
    if keepdims:
        return found
    rest = tuple(n for i, n in enumerate(t.shape) if i not in axes)
    return reshape_p(found, shape=rest)


def softmax(x: Any, axis: Any = -1) -> Any:
    """Returns exp(x) divided by its sum along an axis, or over several.

    Args:
        x: an array.
        axis: an axis, several, or None for all.

    Example:
        >>> import numpy as np
        >>> softmax(np.array([5.0, 5.0]))
        array([0.5, 0.5])
    """
    x = inexact(x)
    t = type_of(x)
    axes = canonical_axes("softmax", axis, t.ndim)
    raised = exp_p(sub_p(x, broadcast_to(_shift(x, axes), t.shape)))
    total = sum(raised, axis=axes, keepdims=True)
    return div_p(raised, broadcast_to(total, t.shape))


def log_softmax(x: Any, axis: Any = -1) -> Any:
    """Returns the logarithm of `softmax`, exact also where that is nearly 0 or 1.

    Args:
        x: an array.
        axis: an axis, several, or None for all.
    """
    x = inexact(x)
    t = type_of(x)
    axes = canonical_axes("log_softmax", axis, t.ndim)
    shifted = sub_p(x, broadcast_to(_shift(x, axes), t.shape))
    total = log_p(sum(exp_p(shifted), axis=axes, keepdims=True))
    return sub_p(shifted, broadcast_to(total, t.shape))
