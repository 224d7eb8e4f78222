"""Losses of predictions and targets of one shape, and of distances and margins.

Each is a loss of each element, its mean or its sum, as `reduction` says: the functions below return
the values for elements, and `loss` reduces them.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.stack import state
from ftrans.nn.common import fits, loss, shown
from ftrans.nn.vectors import pairwise_distance
from ftrans.numpy.bounds import at_hand
from ftrans.numpy.promotion import as_array, inexact, promoted, unify

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def _pair(name: str, input: Any, target: Any, strict: bool = False) -> list[Any]:
    """Returns operands of one dtype of floating point and one shape.

    Unless it is strict about these, shapes broadcast, with PyTorch's warning.
    """
    x, y = promoted(inexact(input), as_array(target))
    t, u = type_of(x), type_of(y)
    if t.shape == u.shape:
        return [x, y]
    if strict:
        raise ShapeError(
            f"{name}: input and target have different shapes.{shown(input=x, target=y)}\n"
            f"  Give them one shape: target[:, None] adds an axis of size 1."
        )
    out = unify(name, x, y)
    state.for_this_call()  # so that it warns each time
    warnings.warn(
        f"{name}: target {u} is broadcast against input {t}, which is rarely meant. "
        f"Give them one shape.",
        stacklevel=6,
    )
    return out


def _weighed(name: str, values: Any, weight: Any) -> Any:
    """Returns values times weights of their shape, and the sum of these, where there are any."""
    if weight is None:
        return values
    weight = as_array(weight)
    if type_of(weight).shape != type_of(values).shape:
        raise ShapeError(
            f"{name}: weight has the shape of input.{shown(input=values, weight=weight)}"
        )
    return fnp.multiply(values, weight), fnp.sum(weight)


@loss
def mse_loss(input: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Any:
    """Returns the squares of differences.

    Args:
        input: f32[...].
        target: of its shape.
        reduction: "mean", "sum" or "none".
        weight: of its shape; a mean is divided by their sum.

    Example:
        >>> import numpy as np
        >>> float(mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
        2.0
    """
    x, y = _pair("mse_loss", input, target)
    return _weighed("mse_loss", (x - y) ** 2, weight)


@loss
def l1_loss(input: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Any:
    """Returns the sizes of differences, as `mse_loss`; where there is none the gradient is 0."""
    x, y = _pair("l1_loss", input, target)
    return _weighed("l1_loss", fnp.abs(x - y), weight)


@loss
def huber_loss(
    input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    """Returns half of the squares of differences up to `delta`, and lines from there on.

    Reference:
        https://projecteuclid.org/euclid.aoms/1177703732
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta is a positive number.\n  delta: {delta}")
    x, y = _pair("huber_loss", input, target)
    gap = fnp.abs(x - y)
    values = fnp.where(gap <= delta, (x - y) ** 2 * 0.5, (gap - 0.5 * delta) * delta)
    return values if weight is None else _weighed("huber_loss", values, weight)[0]


@loss
def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    """Returns the sizes of differences, smoothed by a parabola below `beta`."""
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative.\n  beta: {beta}")
    x, y = _pair("smooth_l1_loss", input, target)
    gap = fnp.abs(x - y)
    if not beta:
        return gap
    return fnp.where(gap < beta, (x - y) ** 2 * (0.5 / beta), gap - 0.5 * beta)


# ---------------------------------------------------------------------------------- probabilities


@loss
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """Returns `-y log(x) - (1 - y) log(1 - x)`, of logarithms that are no less than -100.

    The weight, by which each element is multiplied, broadcasts.
    """
    x, y = _pair("binary_cross_entropy", input, target, strict=True)
    values = _entropy(*map(p.stop_gradient_p, (x, y)))
    values = p.graft_p(values, _entropy_slopes(x, y))
    return values if weight is None else fnp.multiply(values, weight)


def _logs(x: Any) -> list[Any]:
    """Returns log(x) and log(1 - x), and -100 below."""
    return [fnp.maximum(fnp.log(v), -100.0) for v in (x, 1.0 - x)]


def _entropy(x: Any, y: Any) -> Any:
    first, second = _logs(x)
    return (y - 1.0) * second - y * first


def _entropy_slopes(x: Any, y: Any) -> Any:
    """Returns what has the slope (x - y) / max(x (1 - x), 1e-12), which is PyTorch's."""
    inside = x * (1.0 - x) > 1e-12
    first, second = _logs(p.stop_gradient_p(x))
    ends = x * (x * 0.5 - p.stop_gradient_p(y)) * 1e12 + y * (second - first)
    return fnp.where(inside, _entropy(fnp.where(inside, x, 0.5), y), ends)


@loss
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """Returns `binary_cross_entropy` of sigmoid(x), exact for all x.

    By the weight each element is multiplied, by `pos_weight` the loss of positive examples; both
    broadcast.
    """
    x, y = _pair("binary_cross_entropy_with_logits", input, target, strict=True)
    share = fnp.softplus(-x)
    if pos_weight is not None:
        share = share * (fnp.multiply(fnp.subtract(pos_weight, 1.0), y) + 1.0)
    values = (1.0 - y) * x + share
    return values if weight is None else fnp.multiply(values, weight)


@functools.partial(loss, known=("none", "batchmean", "mean", "sum"))
def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    """Returns the divergence of a target from what is predicted, `y (log(y) - x)`.

    Input holds logarithms of probabilities, f32[n, ...], as the target does with `log_target`. The
    reduction "batchmean" divides the sum by n, which is the mathematical mean.
    """
    x, y = _pair("kl_div", input, target)
    return fnp.exp(y) * (y - x) if log_target else fnp.xlogy(y, y) - y * x


@loss
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """Returns minus the logarithm of the chance of counts, by the Poisson distribution.

    Input holds the expected counts, to which `eps` is added, or their logarithms. What is `full`
    has Stirling's approximation of log(target!) besides, where target is above 1.
    """
    x, y = _pair("poisson_nll_loss", input, target)
    values = fnp.exp(x) - y * x if log_input else x - y * fnp.log(x + eps)
    if not full:
        return values
    above = y > 1.0
    n = fnp.where(above, y, 1.0)
    stirling = n * fnp.log(n) - n + fnp.log(n * (2.0 * math.pi)) * 0.5
    return values + fnp.where(above, stirling, 0.0)


@loss
def gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Returns minus the logarithm of the density of a target, by a normal distribution.

    Input holds the expected values; variances are of its shape, without its last axis, or broadcast
    to it. They are at least `eps`, as if it were not there for the gradient. What is `full` has the
    constant besides.
    """
    x, y = promoted(inexact(input), as_array(target))
    v = as_array(var, type_of(x).dtype)
    shape, own = type_of(x).shape, type_of(v).shape
    if shape and own == shape[:-1]:
        v = fnp.expand_dims(v, -1)
    elif own and not fits(own, shape):
        raise ShapeError(
            f"gaussian_nll_loss: var does not fit input.{shown(input=x, var=v)}\n"
            f"  It has the shape of input, or size 1 along its last axis."
        )
    if at_hand(v) and (v < 0).any():
        raise ArgumentError("gaussian_nll_loss: a variance must not be negative.")
    least = p.graft_p(fnp.maximum(p.stop_gradient_p(v), eps), v)
    values = (fnp.log(least) + fnp.subtract(x, y) ** 2 / least) * 0.5
    return values + 0.5 * math.log(2.0 * math.pi) if full else values


# ---------------------------------------------------------------------------------------- margins


def _above_zero(x: Any) -> Any:
    """Returns x where it is not negative, else 0: its slope at 0 is 1, as that of `clamp_min`."""
    return fnp.where(fnp.less(x, 0.0), 0.0, x)


@loss
def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, reduction: str = "mean"
) -> Any:
    """Returns `max(0, -y (x1 - x2) + margin)`, with y = 1 where x1 should be larger, else -1."""
    gap = fnp.subtract(inexact(input1), inexact(input2))
    return _above_zero(fnp.multiply(fnp.negative(target), gap) + margin)


@loss
def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """Returns x where y is 1, and `max(0, margin - x)` where y is -1."""
    x, y = unify("hinge_embedding_loss", inexact(input), as_array(target))
    return fnp.where(y == -1.0, 0.0, x) + fnp.where(y == 1.0, 0.0, _above_zero(margin - x))


@loss
def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """Returns `log(1 + exp(-y x))`, with y being 1 or -1."""
    x, y = _pair("soft_margin_loss", input, target)
    return fnp.softplus(-(y * x))


@loss
def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, reduction: str = "mean"
) -> Any:
    """Returns 1 - cos where y is 1, and `max(0, cos - margin)` where y is -1.

    Inputs are f32[n, d], the target y is f32[n]; or f32[d] and f32[].
    """
    x, y, goal = inexact(input1), inexact(input2), as_array(target)
    if type_of(goal).ndim + 1 != type_of(x).ndim or type_of(x).ndim != type_of(y).ndim:
        raise ShapeError(
            f"cosine_embedding_loss: inputs are f32[n, d], target f32[n]."
            f"{shown(input1=x, input2=y, target=goal)}"
        )
    squares = (fnp.sum(v**2, axis=-1) + 1e-12 for v in (x, y))
    length = fnp.sqrt(fnp.multiply(*squares))
    cosine = fnp.sum(fnp.multiply(x, y), axis=-1) / length
    near = fnp.where(goal == 1, 1.0 - cosine, 0.0)
    return near + fnp.where(goal == -1, _above_zero(cosine - margin), 0.0)


@loss
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """Returns `max(0, d(anchor, positive) - d(anchor, negative) + margin)` for p-norms d.

    Operands are f32[n, d]; `eps` is added to differences. With `swap` the distance of negative
    from positive counts where it is smaller.
    """
    if margin <= 0:
        raise ArgumentError(
            f"triplet_margin_loss: margin is a positive number.\n  margin: {margin}"
        )
    a, near, far = map(inexact, (anchor, positive, negative))
    if not type_of(a).ndim == type_of(near).ndim == type_of(far).ndim:
        raise ShapeError(
            f"triplet_margin_loss: operands have different ranks."
            f"{shown(anchor=a, positive=near, negative=far)}"
        )
    apart = pairwise_distance(a, far, p, eps)
    if swap:
        apart = fnp.minimum(apart, pairwise_distance(near, far, p, eps))
    return _above_zero(fnp.subtract(pairwise_distance(a, near, p, eps), apart) + margin)


@loss
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """Returns `triplet_margin_loss` with distances of one's own, by default `pairwise_distance`."""
    if margin <= 0:
        raise ArgumentError(
            f"triplet_margin_with_distance_loss: margin is a positive number.\n  margin: {margin}"
        )
    distance = distance_function or pairwise_distance
    near, apart = distance(anchor, positive), distance(anchor, negative)
    if swap:
        apart = fnp.minimum(apart, distance(positive, negative))
    return _above_zero(fnp.subtract(near, apart) + margin)
