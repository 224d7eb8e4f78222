"""Activations, and the softmax family: PyTorch's names, kinks and limits.

At a kink each has the slope that PyTorch has. Softmax of half precision is computed in single.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.stack import state
from ftrans.nn.common import per_channel, shown, wide
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.promotion import as_array, cast, inexact

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu",
    "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold",
]  # fmt: skip


def _activation(name: str, formula: Callable[[Any], Any], doc: str) -> Callable[[Any], Any]:
    """Makes a function of an array of floating point, and nothing else."""

    def activation(input: Any) -> Any:
        return formula(inexact(input))

    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = doc
    return activation


def relu(input: Any) -> Any:
    """Returns x where it is positive, else 0; its gradient at 0 is 0.

    Example:
        >>> import numpy as np
        >>> relu(np.array([-1.0, 2.0]))
        array([0., 2.])
    """
    return fnp.relu(input)


sigmoid = _activation("sigmoid", fnp.sigmoid, "Returns 1 / (1 + exp(-x)).")
tanh = _activation("tanh", fnp.tanh, "Returns the hyperbolic tangent.")
silu = _activation("silu", fnp.silu, "Returns x sigmoid(x).")
mish = _activation("mish", lambda x: x * fnp.tanh(fnp.softplus(x)), "Returns x tanh(softplus(x)).")
softsign = _activation("softsign", lambda x: x / (fnp.abs(x) + 1.0), "Returns `x / (1 + abs(x))`.")
tanhshrink = _activation("tanhshrink", lambda x: x - fnp.tanh(x), "Returns x - tanh(x).")
logsigmoid = _activation(
    "logsigmoid", lambda x: -fnp.softplus(-x), "Returns log(sigmoid(x)), exact also near 0."
)
# the bounds are those of x: rounded, x / 6 + 1/2 may be to either side of its own
hardsigmoid = _activation(
    "hardsigmoid",
    lambda x: fnp.where(x >= 3.0, 1.0, fnp.where(x <= -3.0, 0.0, x / 6.0 + 0.5)),
    "Returns x / 6 + 1/2, held between 0 and 1.",
)
hardswish = _activation(
    "hardswish",
    lambda x: fnp.where(x <= -3.0, 0.0, fnp.where(x >= 3.0, x, x * ((x + 3.0) / 6.0))),
    "Returns x (x + 3) / 6 between -3 and 3, 0 below and x above.",
)
selu = _activation(
    "selu",
    lambda x: elu(x, _ALPHA) * _SCALE,
    "Returns the scaled `elu` that keeps mean 0 and variance 1, https://arxiv.org/abs/1706.02515.",
)
_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def gelu(input: Any, approximate: str = "none") -> Any:
    """Returns x times the chance that a standard normal number is below it.

    It is approximated by the hyperbolic tangent where `approximate` is "tanh".

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
    bent = x * (x**2 * 0.044715 + 1.0) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (fnp.tanh(bent) + 1.0)


def _pieces(x: Any, low: Callable[[Any], Any]) -> Any:
    """Returns x where it is positive, else a function of it, which sees no other x."""
    return fnp.where(x > 0.0, x, low(fnp.where(x > 0.0, 0.0, x)))


def leaky_relu(input: Any, negative_slope: float = 0.01) -> Any:
    """Returns x where it is positive, else `negative_slope * x`, with that slope at 0."""
    x = inexact(input)
    return fnp.where(x > 0.0, x, x * negative_slope)


def prelu(input: Any, weight: Any) -> Any:
    """Returns x where it is positive, else x times a weight that is learnt.

    The weight is f32[1], or f32[c] for f32[n, c, ...].
    """
    x, weight = inexact(input), as_array(weight)
    is_one = type_of(weight).size == 1
    weight = fnp.reshape(weight, ()) if is_one else per_channel("prelu", "weight", weight, x)
    return fnp.where(x > 0.0, x, x * weight)


def elu(input: Any, alpha: float = 1.0) -> Any:
    """Returns x where it is positive, else `alpha (exp(x) - 1)`."""
    return _pieces(inexact(input), lambda x: fnp.expm1(x) * alpha)


def celu(input: Any, alpha: float = 1.0) -> Any:
    """Returns x where it is positive, else `alpha (exp(x / alpha) - 1)`."""
    return _pieces(inexact(input), lambda x: fnp.expm1(x / alpha) * alpha)


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """Returns `log(1 + exp(beta x)) / beta`, and x where `beta x` is above a threshold."""
    x = inexact(input)
    bent = x * beta
    return fnp.where(bent > threshold, x, fnp.softplus(bent) / beta)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Returns x, held between two bounds; on them its gradient is 0."""
    x = as_array(input)
    inside = (x > min_val) & (x < max_val)
    return fnp.where(inside, x, p.stop_gradient_p(fnp.clip(x, min_val, max_val)))


def relu6(input: Any) -> Any:
    """Returns x, held between 0 and 6; on the bounds its gradient is 0."""
    return hardtanh(input, 0.0, 6.0)


def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """Returns x where it is above `lambd` in size, else 0."""
    x = inexact(input)
    return fnp.where((x >= -lambd) & (x <= lambd), 0.0, x)


def threshold(input: Any, threshold: float, value: float) -> Any:
    """Returns x where it is above `threshold`, else `value`."""
    x = as_array(input)
    return fnp.where(x <= threshold, type_of(x).dtype.type(value), x)


def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """Returns x moved towards 0 by `lambd`, which is not negative; 0 where it would pass it."""
    if lambd < 0:
        raise ArgumentError(
            f"softshrink: lambd must not be negative.\n  lambd: {lambd}\n  Write lambd={-lambd}."
        )
    x = inexact(input)
    low = fnp.where(x < -lambd, x + lambd, x * 0.0)
    return fnp.where(x > lambd, x - lambd, low)


def glu(input: Any, axis: int = -1) -> Any:
    """Returns the first half along an axis times the sigmoid of the second half."""
    x = inexact(input)
    t = type_of(x)
    at = canonical_axis("glu", axis, t.ndim)
    if not t.ndim or t.shape[at] % 2:
        raise ShapeError(
            f"glu: it halves an axis, whose size is to be even.{shown(input=x)}\n  axis: {axis}"
        )
    first, second = fnp.split(x, 2, axis=at)
    return first * fnp.sigmoid(second)


# --------------------------------------------------------------------------------------- softmax


def _over(function: Any, name: str, input: Any, axis: int | None, dtype: Any) -> Any:
    """Returns a function of x along an axis; along PyTorch's choice, with its warning, for None."""
    x, dtype = wide(input if dtype is None else cast(as_array(input), dtype))
    ndim = type_of(x).ndim
    if axis is None:
        axis = 0 if ndim in (0, 1, 3) else 1
        state.for_this_call()  # so that it warns each time
        warnings.warn(
            f"{name}: no axis was given, and {axis} is taken, as in PyTorch. Write axis={axis}.",
            stacklevel=5,
        )
    axis = canonical_axis(name, axis, ndim or 1)  # a number counts as a vector of one
    found = function(x if ndim else fnp.reshape(x, (1,)), axis=axis)
    return cast(found if ndim else fnp.reshape(found, ()), dtype)


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
    return _over(fnp.softmax, "softmax", input, axis, dtype)


def log_softmax(input: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Returns the logarithm of `softmax`, exact also where that is nearly 0 or 1."""
    return _over(fnp.log_softmax, "log_softmax", input, axis, dtype)


def softmin(input: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Returns `softmax` of -x."""
    return _over(lambda x, axis: fnp.softmax(-x, axis), "softmin", input, axis, dtype)
