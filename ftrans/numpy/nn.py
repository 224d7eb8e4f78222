"""What networks ask for beyond NumPy: rectifiers, and exponentials normalised along an axis."""

from __future__ import annotations

import math
from typing import Any

from ftrans import primitives as p
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.promotion import canonical_axes, inexact, unify
from ftrans.numpy.reduction import kept, max
from ftrans.numpy.ufunc import as_strict, unary
from ftrans.primitives.axes import restore

__all__ = ["gelu", "log_softmax", "logsumexp", "relu", "silu", "softmax"]

relu = unary(
    "relu",
    lambda x: p.select_p(
        p.le_p(x, p.scalar(0, type_of(x).dtype)), p.scalar(0, type_of(x).dtype), x
    ),
    "Returns x where it is positive, else 0; its gradient at 0 is 0.",
)
silu = unary("silu", lambda x: p.mul_p(x, p.logistic_p(x)), "Returns x sigmoid(x).", floats=True)
gelu = unary(
    "gelu",
    p.gelu_p,
    "Returns x times the chance that a standard normal number is below it.",
    floats=True,
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


def logsumexp(x: Any, axis: Any = None, b: Any = None, *, keepdims: bool = False) -> Any:
    """Returns log(sum(exp(x))) without overflow; where all x are -inf its gradient is 0.

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        b: factors of exp(x), which broadcast with x; the sum must not be negative.
        keepdims: whether reduced axes stay, with size 1.

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


def softmax(x: Any, axis: Any = -1) -> Any:
    """Returns exp(x) divided by its sum along an axis, or over several.

    Where x is inf somewhere, or -inf everywhere, the result is NaN, as PyTorch's and SciPy's is.

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
    raised = p.exp_p(_less(x, _largest(x, axes), axes))
    # one division for each sum, not for each element, forwards and backwards
    scale = p.div_p(1.0, p.sum_p(raised, axes=axes))
    return p.mul_p(raised, restore(scale, t.shape, axes))


def log_softmax(x: Any, axis: Any = -1) -> Any:
    """Returns the logarithm of `softmax`, exact also where that is nearly 0 or 1.

    Args:
        x: an array.
        axis: an axis, several, or None for all.
    """
    x = inexact(x)
    t = type_of(x)
    axes = canonical_axes("log_softmax", axis, t.ndim)
    shifted = _less(x, _largest(x, axes), axes)
    return _less(shifted, p.log_p(p.sum_p(p.exp_p(shifted), axes=axes)), axes)
