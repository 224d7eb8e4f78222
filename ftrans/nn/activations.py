"""Activations, and the softmax family: PyTorch's names, kinks and limits.

At a kink each has the slope that PyTorch has. Softmax of half precision is computed in single.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_half
from ftrans.nn.common import per_channel, shown
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.promotion import as_array, cast, inexact

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu",
    "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold",
]  # fmt: skip


def relu(input: Any) -> Any:
    """Returns x where it is positive, else 0; its gradient at 0 is 0.

    Example:
        >>> import numpy as np
        >>> relu(np.array([-1.0, 2.0]))
        array([0., 2.])
    """
    return fnp.relu(input)


def sigmoid(input: Any) -> Any:
    """Returns 1 / (1 + exp(-x))."""
    return fnp.sigmoid(input)


def tanh(input: Any) -> Any:
    """Returns the hyperbolic tangent."""
    return fnp.tanh(input)


def silu(input: Any) -> Any:
    """Returns x sigmoid(x)."""
    return fnp.silu(input)


def mish(input: Any) -> Any:
    """Returns x tanh(softplus(x))."""
    x = inexact(input)
    return fnp.multiply(x, fnp.tanh(fnp.softplus(x)))


def logsigmoid(input: Any) -> Any:
    """Returns log(sigmoid(x)), exact also where that is nearly 0."""
    return fnp.negative(fnp.softplus(fnp.negative(inexact(input))))


def softsign(input: Any) -> Any:
    """Returns `x / (1 + abs(x))`."""
    x = inexact(input)
    return fnp.divide(x, fnp.add(fnp.abs(x), 1.0))


def tanhshrink(input: Any) -> Any:
    """Returns x - tanh(x)."""
    x = inexact(input)
    return fnp.subtract(x, fnp.tanh(x))


def gelu(input: Any, approximate: str = "none") -> Any:
    """Returns x times the chance that a standard normal number is below it.

    Args:
        input: an array.
        approximate: "none", or "tanh" for an approximation by the hyperbolic tangent.

    Reference:
        https://arxiv.org/abs/1606.08415
    """
    if approximate == "none":
        return fnp.gelu(input)
    if approximate != "tanh":
        raise ArgumentError(
            f"gelu: there is no approximation {approximate!r}.\n  Write 'none' or 'tanh'."
        )
    x = inexact(input)
    bent = fnp.multiply(x, fnp.add(fnp.multiply(fnp.square(x), 0.044715), 1.0))
    bent = fnp.multiply(bent, math.sqrt(2.0 / math.pi))
    return fnp.multiply(fnp.multiply(x, 0.5), fnp.add(fnp.tanh(bent), 1.0))


# -------------------------------------------------------------------------- pieces, one per side


def _below(x: Any) -> Any:
    """Returns x where it is negative, else 0: for the branch that is taken there alone."""
    return p.select_p(p.gt_p(x, 0.0), 0.0, x)


def leaky_relu(input: Any, negative_slope: float = 0.01) -> Any:
    """Returns x where it is positive, else `negative_slope * x`, with that slope at 0."""
    x = inexact(input)
    return fnp.where(p.gt_p(x, 0.0), x, fnp.multiply(x, negative_slope))


def prelu(input: Any, weight: Any) -> Any:
    """Returns x where it is positive, else x times a weight that is learnt.

    Args:
        input: f32[n, c, ...], or of rank below 2 with one weight.
        weight: f32[c] or f32[1].
    """
    x, weight = inexact(input), as_array(weight)
    t = type_of(x)
    if type_of(weight).size != 1:
        if t.ndim < 2:
            raise ShapeError(
                f"prelu: there is more than one weight, and input has no axis of channels."
                f"{shown(input=x, weight=weight)}\n  Pass f32[1], or an input f32[n, c]."
            )
        weight = per_channel("prelu", "weight", weight, x)
    else:
        weight = fnp.reshape(weight, ())
    return fnp.where(p.gt_p(x, 0.0), x, fnp.multiply(weight, x))


def elu(input: Any, alpha: float = 1.0) -> Any:
    """Returns x where it is positive, else `alpha (exp(x) - 1)`."""
    x = inexact(input)
    return fnp.where(p.gt_p(x, 0.0), x, fnp.multiply(p.expm1_p(_below(x)), alpha))


def celu(input: Any, alpha: float = 1.0) -> Any:
    """Returns x where it is positive, else `alpha (exp(x / alpha) - 1)`."""
    x = inexact(input)
    low = fnp.multiply(fnp.expm1(fnp.divide(_below(x), alpha)), alpha)
    return fnp.where(p.gt_p(x, 0.0), x, low)


_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def selu(input: Any) -> Any:
    """Returns the scaled `elu` that keeps mean 0 and variance 1.

    Reference:
        https://arxiv.org/abs/1706.02515
    """
    return fnp.multiply(elu(input, _ALPHA), _SCALE)


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """Returns `log(1 + exp(beta x)) / beta`, and x where `beta x` is above a threshold."""
    x = inexact(input)
    bent = fnp.multiply(x, beta)
    return fnp.where(fnp.greater(bent, threshold), x, fnp.divide(fnp.softplus(bent), beta))


def threshold(input: Any, threshold: float, value: float) -> Any:
    """Returns x where it is above a threshold, else a value."""
    x = as_array(input)
    return cast(fnp.where(fnp.greater(x, threshold), x, value), type_of(x).dtype)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Returns x, held between two bounds; on them its gradient is 0."""
    x = as_array(input)
    inside = fnp.logical_and(fnp.greater(x, min_val), fnp.less(x, max_val))
    return fnp.where(inside, x, p.stop_gradient_p(fnp.clip(x, min_val, max_val)))


def relu6(input: Any) -> Any:
    """Returns x, held between 0 and 6; on the bounds its gradient is 0."""
    return hardtanh(input, 0.0, 6.0)


def hardsigmoid(input: Any) -> Any:
    """Returns x / 6 + 1/2, held between 0 and 1."""
    x = inexact(input)
    # the bounds are those of x: rounded, x / 6 + 1/2 may be to either side of its own
    below = fnp.where(p.le_p(x, -3.0), 0.0, fnp.add(fnp.divide(x, 6.0), 0.5))
    return fnp.where(p.ge_p(x, 3.0), 1.0, below)


def hardswish(input: Any) -> Any:
    """Returns x (x + 3) / 6 between -3 and 3, 0 below and x above."""
    x = inexact(input)
    inside = fnp.multiply(x, fnp.divide(fnp.add(x, 3.0), 6.0))
    above = fnp.where(p.ge_p(x, 3.0), x, inside)
    return fnp.where(p.le_p(x, -3.0), 0.0, above)


def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """Returns x where it is above `lambd` in size, else 0."""
    x = inexact(input)
    inside = fnp.logical_and(fnp.greater_equal(x, -lambd), fnp.less_equal(x, lambd))
    return fnp.where(inside, 0.0, x)


def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """Returns x moved towards 0 by `lambd`, and 0 where it would pass it.

    Raises:
        ArgumentError: where `lambd` is negative.
    """
    if lambd < 0:
        raise ArgumentError(
            f"softshrink: lambd must not be negative.\n  lambd: {lambd}\n  Write lambd={-lambd}."
        )
    x = inexact(input)
    low = fnp.where(fnp.less(x, -lambd), fnp.add(x, lambd), fnp.multiply(x, 0.0))
    return fnp.where(fnp.greater(x, lambd), fnp.subtract(x, lambd), low)


def glu(input: Any, axis: int = -1) -> Any:
    """Returns the first half along an axis times the sigmoid of the second half.

    Raises:
        ShapeError: where the axis has an odd size.
    """
    x = inexact(input)
    t = type_of(x)
    at = canonical_axis("glu", axis, t.ndim)
    if not t.ndim or t.shape[at] % 2:
        raise ShapeError(
            f"glu: it halves an axis, whose size is to be even.{shown(input=x)}\n  axis: {axis}"
        )
    first, second = fnp.split(x, 2, axis=at)
    return fnp.multiply(first, fnp.sigmoid(second))


# --------------------------------------------------------------------------------------- softmax


def _axis(name: str, axis: int | None, ndim: int) -> int:
    """Returns the axis of a softmax; that of PyTorch, which warns as well, where none is given."""
    if axis is None:
        axis = 0 if ndim in (0, 1, 3) else 1
        warnings.warn(
            f"{name}: no axis was given, and {axis} is taken, as in PyTorch. Write axis={axis}.",
            stacklevel=4,
        )
    return canonical_axis(name, axis, ndim)


def _along(function: Any, input: Any, axis: int | None, dtype: Any) -> Any:
    x = inexact(input if dtype is None else cast(as_array(input), dtype))
    t = type_of(x)
    at = _axis(function.__name__, axis, t.ndim)
    if not t.ndim:
        return fnp.reshape(function(fnp.reshape(x, (1,)), axis=0), ())
    if is_half(t.dtype):
        return cast(function(cast(x, "float32"), axis=at), t.dtype)
    return function(x, axis=at)


def softmax(input: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Returns exp(x) divided by its sum along an axis.

    Args:
        input: an array.
        axis: the axis; without one it is PyTorch's choice, 0 or 1 by the rank, with its warning.
        dtype: the dtype to convert to first.

    Example:
        >>> import numpy as np
        >>> softmax(np.array([5.0, 5.0]), axis=0)
        array([0.5, 0.5])
    """
    return _along(fnp.softmax, input, axis, dtype)


def log_softmax(input: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Returns the logarithm of `softmax`, exact also where that is nearly 0 or 1."""
    return _along(fnp.log_softmax, input, axis, dtype)


def softmin(input: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Returns `softmax` of -x."""
    x = inexact(input if dtype is None else cast(as_array(input), dtype))
    return _along(fnp.softmax, fnp.negative(x), axis, None)
