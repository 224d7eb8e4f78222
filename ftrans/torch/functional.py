"""What networks are built of, under the names of `torch.nn.functional`."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError
from ftrans.torch.functions import Function, lifted, rand
from ftrans.traceback import boundary

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "dropout", "elu",
    "gelu", "hardtanh", "huber_loss", "kl_div", "l1_loss", "leaky_relu", "linear", "logsigmoid",
    "mse_loss", "nll_loss", "normalize", "one_hot", "relu6", "smooth_l1_loss", "softplus",
]  # fmt: skip


@lifted
def softplus(input: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    """Returns `log(1 + exp(beta x)) / beta`, and x itself where `beta x` is above a threshold."""
    return fnp.where(input * beta > threshold, input, fnp.softplus(input * beta) / beta)


@lifted
def gelu(input: Any, approximate: str = "none") -> Any:
    """Returns x times the probability that the normal distribution has below it."""
    if approximate == "tanh":
        bent = math.sqrt(2.0 / math.pi) * (input + 0.044715 * input**3)
        return 0.5 * input * (1.0 + fnp.tanh(bent))
    return fnp.gelu(input)


@lifted
def leaky_relu(input: Any, negative_slope: float = 0.01) -> Any:
    """Returns x where it is positive, else x times a slope."""
    return fnp.where(input > 0, input, negative_slope * input)


@lifted
def elu(input: Any, alpha: float = 1.0) -> Any:
    """Returns x where it is positive, else `alpha * (exp(x) - 1)`."""
    return fnp.where(input > 0, input, alpha * fnp.expm1(input))


@lifted
def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Returns x, held between two bounds; on them its gradient is 0."""
    inside = (input > min_val) & (input < max_val)
    return fnp.where(inside, input, fnp.stop_gradient(fnp.clip(input, min_val, max_val)))


@lifted
def relu6(input: Any) -> Any:
    """Returns x, held between 0 and 6; on them its gradient is 0."""
    return hardtanh(input, 0.0, 6.0)


@lifted
def logsigmoid(input: Any) -> Any:
    """Returns the logarithm of the sigmoid."""
    return -fnp.softplus(-input)


@lifted
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Returns `input @ weight.T + bias`."""
    found = fnp.matmul(input, fnp.transpose(weight))
    return found if bias is None else found + bias


@lifted
def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    """Divides by the p-norm along a dimension, or by `eps` where that is larger."""
    return input / fnp.maximum(fnp.vector_norm(input, axis=dim, ord=p, keepdims=True), eps)


@boundary
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Sets elements to zero with a probability, and scales the others to keep the mean.

    Raises:
        ArgumentError: where p is no probability.
    """
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    found = _dropped(input, rand(tuple(input.shape)), float(p))
    return input.copy_(found) if inplace else found


@lifted
def _dropped(input: Any, drawn: Any, p: float) -> Any:
    return fnp.where(drawn >= p, input / (1.0 - p), 0.0) if p < 1.0 else input * 0.0


@lifted
def one_hot(input: Any, num_classes: int = -1) -> Any:
    """Returns a row for each class index, 1 there and else 0; -1 counts up to the largest."""
    count = int(fnp.max(input)) + 1 if num_classes == -1 else num_classes
    return fnp.astype(fnp.expand_dims(input, -1) == np.arange(count), np.int64)


# ------------------------------------------------------------------------------------------ losses


def _reduced(values: Any, reduction: str, weight: Any = None) -> Any:
    if reduction == "mean":
        return fnp.mean(values) if weight is None else fnp.sum(values) / fnp.sum(weight)
    if reduction in ("sum", "none"):
        return fnp.sum(values) if reduction == "sum" else values
    raise ArgumentError(
        f"{reduction} is not a valid value for reduction\n  Write 'mean', 'sum' or 'none'."
    )


def _loss(values: Function) -> Function:
    """Makes a loss of what it is of each element: their mean, their sum, or each."""

    @functools.wraps(values)
    def loss(input: Any, target: Any, *args: Any, reduction: str = "mean", **options: Any) -> Any:
        return _reduced(values(input, target, *args, **options), reduction)

    return lifted(loss)


@_loss
def mse_loss(input: Any, target: Any) -> Any:
    """Returns the squares of differences."""
    return fnp.square(fnp.subtract(input, target))


@_loss
def l1_loss(input: Any, target: Any) -> Any:
    """Returns the absolute values of differences."""
    return fnp.abs(fnp.subtract(input, target))


@_loss
def huber_loss(input: Any, target: Any, *, delta: float = 1.0) -> Any:
    """Returns half of the squares of differences up to `delta`, and lines from there on."""
    gap = fnp.abs(fnp.subtract(input, target))
    return fnp.where(gap < delta, 0.5 * fnp.square(gap), delta * (gap - 0.5 * delta))


@_loss
def smooth_l1_loss(input: Any, target: Any, *, beta: float = 1.0) -> Any:
    """Returns absolute differences, smoothed by a parabola below `beta`."""
    gap = fnp.abs(fnp.subtract(input, target))
    return fnp.where(gap < beta, 0.5 * fnp.square(gap) / (beta or 1.0), gap - 0.5 * beta)


@_loss
def binary_cross_entropy(input: Any, target: Any, weight: Any = 1.0) -> Any:
    """Returns the cross entropy of probabilities, with logarithms no less than -100."""
    log_p, log_q = (fnp.maximum(fnp.log(p), -100.0) for p in (input, 1.0 - input))
    return -(target * log_p + (1.0 - target) * log_q) * weight


@_loss
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = 1.0, *, pos_weight: Any = 1.0
) -> Any:
    """Returns the cross entropy of the sigmoid of logits."""
    scale = 1.0 + (pos_weight - 1.0) * target
    return ((1.0 - target) * input + scale * fnp.softplus(-input)) * weight


@_loss
def kl_div(input: Any, target: Any, *, log_target: bool = False) -> Any:
    """Returns `target * (log(target) - input)`, the input being logarithms."""
    if log_target:
        return fnp.exp(target) * (target - input)
    return fnp.xlogy(target, target) - target * input


def _chosen(logs: Any, target: Any, weight: Any, ignore_index: int) -> tuple[Any, Any]:
    """Returns minus the logarithms that class indices choose, weighted, and the weights."""
    axis = min(logs.ndim - 1, 1)
    counts = fnp.not_equal(target, ignore_index)
    at = fnp.where(counts, target, 0)
    found = fnp.squeeze(fnp.take_along_axis(logs, fnp.expand_dims(at, axis), axis=axis), axis)
    share = fnp.astype(counts, logs.dtype)
    share = share if weight is None else share * fnp.take(weight, at)
    return fnp.where(counts, -found * share, 0.0), share


@lifted
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """Returns minus the logarithms of probabilities that class indices choose.

    Args:
        input: the logarithms, f32[n, classes, ...] or f32[classes].
        target: the classes, i64[n, ...] or i64[].
        weight: of each class, f32[classes].
        ignore_index: the class that does not count.
        reduction: "mean", weighted, "sum" or "none".
    """
    values, share = _chosen(input, target, weight, ignore_index)
    return _reduced(values, reduction, share)


@lifted
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Returns the cross entropy of logits with class indices, or with probabilities of classes.

    Args:
        input: the logits, f32[n, classes, ...] or f32[classes].
        target: the classes, as for `nll_loss`, or probabilities, in the shape of the logits.
        weight: of each class, f32[classes].
        ignore_index: the class that does not count.
        reduction: "mean", weighted where there are classes, "sum" or "none".
        label_smoothing: the part of the target that is spread evenly over the classes.
    """
    axis, part = min(input.ndim - 1, 1), label_smoothing
    logs, count = fnp.log_softmax(input, axis=axis), input.shape[axis]
    scale = 1.0 if weight is None else fnp.reshape(weight, (-1, *(1,) * (input.ndim - axis - 1)))
    if target.shape == input.shape:
        aim = target * (1.0 - part) + part / count
        return _reduced(-fnp.sum(logs * scale * aim, axis=axis), reduction)
    values, share = _chosen(logs, target, weight, ignore_index)
    if part:
        even = -fnp.sum(logs * scale, axis=axis) * fnp.not_equal(target, ignore_index)
        values = (1.0 - part) * values + part / count * even
    return _reduced(values, reduction, share)
