"""Normalisations: of layers, groups, batches, instances; half precision is computed in single.

Statistics are values: `batch_norm` takes them and returns them, where PyTorch writes them.
"""

from __future__ import annotations

import math
from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import in_single, like, per_channel, ranked, shown
from ftrans.numpy.dtypes import finfo
from ftrans.numpy.promotion import cast

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm",
]  # fmt: skip


def _moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Returns x less its mean along some axes, the variance, and the mean."""
    mean = fnp.mean(x, axis=axes, keepdims=True)
    gap = x - mean
    return gap, fnp.mean(gap**2, axis=axes, keepdims=True), mean


def _scaled(gap: Any, variance: Any, eps: float, *params: Any) -> Any:
    return _affine(gap * fnp.rsqrt(variance + eps), *params)


def _affine(x: Any, weight: Any = None, bias: Any = None) -> Any:
    """Multiplies by a weight and adds a bias, where there are such."""
    if weight is not None:
        x = x * like(weight, x)
    return x if bias is None else x + like(bias, x)


def _last(name: str, x: Any, normalized_shape: Any, **params: Any) -> tuple[int, ...]:
    """Returns the axes that a shape names, the last ones; parameters are to have that shape."""
    given = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    shape = type_of(x).shape
    if not given or shape[len(shape) - len(given) :] != given:
        raise ShapeError(
            f"{name}: normalized_shape is that of the last axes of input.{shown(input=x)}\n"
            f"  normalized_shape: {given}\n  Write normalized_shape={shape[-1:]}."
        )
    for argument, value in params.items():
        if value is not None and type_of(value).shape != given:
            raise ShapeError(
                f"{name}: {argument} has the shape that is normalized.{shown(input=x)}\n"
                f"  {argument}: {type_of(value)}\n  normalized_shape: {given}"
            )
    return tuple(range(len(shape) - len(given), len(shape)))


@in_single
def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Returns x with mean 0 and variance 1 over its last axes, times a weight, plus a bias.

    Args:
        input: an array whose last axes are those of `normalized_shape`.
        normalized_shape: the sizes of the axes, or that of the last one.
        weight: of the shape `normalized_shape`.
        bias: of the shape `normalized_shape`.
        eps: is added to the variance.

    Example:
        >>> import numpy as np
        >>> layer_norm(np.array([1.0, 3.0]), 2, eps=0.0)
        array([-1.,  1.])

    Reference:
        https://arxiv.org/abs/1607.06450
    """
    axes = _last("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    gap, variance, _ = _moments(input, axes)
    return _scaled(gap, variance, eps, weight, bias)


@in_single
def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """Returns x over the root of the mean of its squares along the last axes, times a weight.

    Its arguments are those of `layer_norm`. None for `eps` is the spacing of numbers at 1 in the
    dtype that it is computed in.

    Reference:
        https://arxiv.org/abs/1910.07467
    """
    axes = _last("rms_norm", input, normalized_shape, weight=weight)
    least = float(finfo(type_of(input).dtype).eps) if eps is None else eps
    return _scaled(input, fnp.mean(input**2, axis=axes, keepdims=True), least, weight)


@in_single
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Returns x with mean 0 and variance 1 over the channels of each group and all positions.

    The channels of f32[n, c, ...] make `num_groups` groups; weight and bias are f32[c].

    Reference:
        https://arxiv.org/abs/1803.08494
    """
    t = ranked("group_norm", input, "f32[n, c, ...]", 2)
    if num_groups < 1 or t.shape[1] % num_groups:
        raise ArgumentError(
            f"group_norm: the channels do not make {num_groups} groups of one size."
            f"{shown(input=input)}\n  num_groups: {num_groups}\n"
            f"  Pass one that divides {t.shape[1]}."
        )
    parts = fnp.reshape(input, (t.shape[0], num_groups, t.shape[1] // num_groups, *t.shape[2:]))
    gap, variance, _ = _moments(parts, tuple(range(2, t.ndim + 1)))
    out = fnp.reshape(_scaled(gap, variance, eps), t.shape)
    return _affine(out, *_params("group_norm", input, weight, bias))


@in_single
def local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Returns x over `(k + alpha * mean)**beta`, a mean of the squares of `size` channels around.

    The channels of f32[n, c, ...] go on with zeros.

    Reference:
        https://papers.nips.cc/paper/4824-imagenet-classification-with-deep-convolutional-neural-networks
    """
    t = ranked("local_response_norm", input, "f32[n, c, ...]", 3)
    around = [(0, 0), (size // 2, (size - 1) // 2), *[(0, 0)] * (t.ndim - 2)]
    squares = fnp.pad(input**2, around)
    added = sum(squares[:, j : j + t.shape[1]] for j in range(size))
    return input / (added * (alpha / size) + k) ** beta


def _params(name: str, x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Returns weight and bias so that they stand along axis 1."""
    return per_channel(name, "weight", weight, x), per_channel(name, "bias", bias, x)


@in_single
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Any, Any, Any]:
    """Returns x with mean 0 and variance 1 in each channel, and the statistics from then on.

    Args:
        input: f32[n, c, ...].
        running_mean: f32[c], or None in training.
        running_var: f32[c], or None in training; without bias, as all that is kept.
        weight: f32[c].
        bias: f32[c].
        training: whether the statistics are those of the batch, and the running ones move towards
            them; else the running ones are used, and returned as they are.
        momentum: how far they move.
        eps: is added to the variance.

    Returns:
        The result, `running_mean` and `running_var`. No derivative goes through the latter.

    Example:
        >>> import numpy as np
        >>> x = np.array([[1.0], [3.0]])
        >>> out, mean, var = batch_norm(x, np.zeros(1), np.ones(1), training=True, eps=0.0)
        >>> out.ravel(), mean, var
        (array([-1.,  1.]), array([0.2]), array([1.1]))

    Reference:
        https://arxiv.org/abs/1502.03167
    """
    t = ranked("batch_norm", input, "f32[n, c, ...]", 2)
    axes = (0, *range(2, t.ndim))
    gap, variance, *running = _statistics(
        "batch_norm", input, axes, running_mean, running_var, training, momentum
    )
    return _scaled(gap, variance, eps, *_params("batch_norm", input, weight, bias)), *running


def _statistics(
    name: str, x: Any, axes: tuple[int, ...], mean: Any, var: Any, own: bool, momentum: float
) -> tuple[Any, Any, Any, Any]:
    """Returns x less a mean, the variance, and running statistics from then on.

    Mean and variance are its own along some axes, towards which the running ones move, or these.
    """
    old = per_channel(name, "running_mean", mean, x), per_channel(name, "running_var", var, x)
    switch = "training" if name == "batch_norm" else "use_input_stats"
    if not own:
        if mean is None or var is None:
            raise ArgumentError(
                f"{name}: there are no statistics to use.{shown(input=x)}\n"
                f"  Pass both, or {switch}=True."
            )
        center, variance = (like(v, x) for v in old)
        return x - center, variance, mean, var
    count = math.prod(type_of(x).shape[axis] for axis in axes)
    if count == 1:
        raise ShapeError(
            f"{name}: one value in each channel has no variance.{shown(input=x)}\n"
            f"  Pass a larger batch, or {switch}=False."
        )
    gap, variance, center = _moments(x, axes)
    if count:
        mean = _moved(mean, center, momentum)
        var = _moved(var, variance * (count / (count - 1)), momentum)
    return gap, variance, mean, var


def _moved(old: Any, new: Any, momentum: float) -> Any:
    """Returns a statistic moved towards that of a batch, as a constant, in its own dtype."""
    if old is None:
        return None
    t = type_of(old)
    new = fnp.mean(p.stop_gradient_p(new), axis=tuple(i for i in range(new.ndim) if i != 1))
    return cast(fnp.stop_gradient(old) * (1.0 - momentum) + cast(new * momentum, t.dtype), t.dtype)


@in_single
def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Returns x with mean 0 and variance 1 in each channel of each example.

    Its arguments are those of `batch_norm`, with `use_input_stats` for `training`: the running
    statistics move towards the means of those of the examples. Where there are such, they are
    returned besides.

    Reference:
        https://arxiv.org/abs/1607.08022
    """
    t = ranked("instance_norm", input, "f32[n, c, ...]", 3)
    axes = tuple(range(2, t.ndim))
    gap, variance, *running = _statistics(
        "instance_norm", input, axes, running_mean, running_var, use_input_stats, momentum
    )
    out = _scaled(gap, variance, eps, *_params("instance_norm", input, weight, bias))
    return out if running_mean is None and running_var is None else (out, *running)
