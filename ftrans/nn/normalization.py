"""Normalisations: of layers, groups, batches, instances; half precision is computed in single.

Statistics are values: `batch_norm` takes them and returns them, where PyTorch writes them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import like, per_channel, shown, wide
from ftrans.nn.pooling import averaged
from ftrans.numpy.dtypes import finfo
from ftrans.numpy.promotion import cast

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm",
]  # fmt: skip


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the mean along some axes, which stay with size 1."""
    return fnp.mean(x, axis=axes, keepdims=True)


def _standard(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Returns x less its mean, over its standard deviation, along some axes."""
    gap = fnp.subtract(x, _mean(x, axes))
    return _scaled(gap, _mean(fnp.square(gap), axes), eps)


def _scaled(gap: Any, variance: Any, eps: float) -> Any:
    return fnp.multiply(gap, p.rsqrt_p(fnp.add(variance, eps)))


def _affine(x: Any, weight: Any, bias: Any, dtype: np.dtype) -> Any:
    """Multiplies by a weight and adds a bias, where there are such, and converts back."""
    if weight is not None:
        x = fnp.multiply(x, like(weight, x))
    if bias is not None:
        x = fnp.add(x, like(bias, x))
    return cast(x, dtype)


def _last(name: str, x: Any, normalized_shape: Any, **params: Any) -> tuple[int, ...]:
    """Returns the axes that a shape names: the last ones.

    Raises:
        ShapeError: where these have other sizes, or a parameter has another shape.
    """
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
        >>> layer_norm(np.array([1.0, 3.0]), 2, eps=0.0)
        array([-1.,  1.])

    Reference:
        https://arxiv.org/abs/1607.06450
    """
    x, dtype = wide(input)
    axes = _last("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    return _affine(_standard(x, axes, eps), weight, bias, dtype)


def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    """Returns x over the root of the mean of its squares along the last axes, times a weight.

    Args:
        input: an array whose last axes are those of `normalized_shape`.
        normalized_shape: the sizes of the axes, or that of the last one.
        weight: of the shape `normalized_shape`.
        eps: is added to the mean of the squares; None is the spacing of numbers at 1 in the dtype
            that it is computed in.

    Reference:
        https://arxiv.org/abs/1910.07467
    """
    x, dtype = wide(input)
    axes = _last("rms_norm", x, normalized_shape, weight=weight)
    least = float(finfo(type_of(x).dtype).eps) if eps is None else eps
    return _affine(_scaled(x, _mean(fnp.square(x), axes), least), weight, None, dtype)


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Returns x with mean 0 and variance 1 over the channels of each group and all positions.

    Args:
        input: f32[n, c, ...].
        num_groups: how many groups the channels make; divides c.
        weight: f32[c].
        bias: f32[c].
        eps: is added to the variance.

    Reference:
        https://arxiv.org/abs/1803.08494
    """
    x, dtype = wide(input)
    t = _channels("group_norm", x)
    if num_groups < 1 or t.shape[1] % num_groups:
        raise ArgumentError(
            f"group_norm: the channels do not make {num_groups} groups of one size."
            f"{shown(input=x)}\n  num_groups: {num_groups}\n  Pass one that divides {t.shape[1]}."
        )
    parts = p.reshape_p(x, shape=_split(t.shape, num_groups))
    out = _standard(parts, tuple(range(2, t.ndim + 1)), eps)
    return _affine(fnp.reshape(out, t.shape), *_params("group_norm", x, weight, bias), dtype)


def _split(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    return (shape[0], groups, shape[1] // groups, *shape[2:])


def _channels(name: str, x: Any, least: int = 2) -> Any:
    t = type_of(x)
    if t.ndim < least:
        raise ShapeError(
            f"{name}: input is f32[n, c, ...], with channels along axis 1.{shown(input=x)}"
        )
    return t


def _params(name: str, x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Returns weight and bias so that they stand along axis 1."""
    return (
        None if weight is None else per_channel(name, "weight", weight, x),
        None if bias is None else per_channel(name, "bias", bias, x),
    )


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

    Raises:
        ShapeError: in training, where a channel has a single value.

    Example:
        >>> x = np.array([[1.0], [3.0]])
        >>> out, mean, var = batch_norm(x, np.zeros(1), np.ones(1), training=True, eps=0.0)
        >>> out.ravel(), mean, var
        (array([-1.,  1.]), array([0.2]), array([1.1]))

    Reference:
        https://arxiv.org/abs/1502.03167
    """
    x, dtype = wide(input)
    _channels("batch_norm", x)
    given = {"running_mean": running_mean, "running_var": running_var}
    return _normed("batch_norm", x, dtype, given, weight, bias, training, momentum, eps)


def _normed(
    name: str,
    x: Any,
    dtype: np.dtype,
    running: dict[str, Any],
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any]:
    """Is `batch_norm` of a strict operand, under some name."""
    t = type_of(x)
    axes = (0, *range(2, t.ndim))
    old = [None if v is None else per_channel(name, n, v, x) for n, v in running.items()]
    mean, var = running.values()
    if training:
        count = math.prod(t.shape[axis] for axis in axes)
        if count == 1:
            raise ShapeError(
                f"{name}: one value in each channel has no variance.{shown(input=x)}\n"
                f"  Pass a larger batch, or training=False."
            )
        center = _mean(x, axes)
        gap = fnp.subtract(x, center)
        spread = _mean(fnp.square(gap), axes)
        out = _scaled(gap, spread, eps)
        if mean is not None and count:
            mean = _moved(mean, center, momentum)
        if var is not None and count:
            unbiased = fnp.multiply(spread, count / (count - 1))
            var = _moved(var, unbiased, momentum)
    else:
        if mean is None or var is None:
            raise ArgumentError(
                f"{name}: there are no statistics to use.{shown(input=x)}\n"
                f"  Pass both, or training=True."
            )
        center, spread = (like(v, x) for v in old)
        out = _scaled(fnp.subtract(x, center), spread, eps)
    return _affine(out, *_params(name, x, weight, bias), dtype), mean, var


def _moved(old: Any, new: Any, momentum: float) -> Any:
    """Returns a statistic moved towards that of a batch, as a constant, in its own dtype."""
    t = type_of(old)
    new = p.stop_gradient_p(fnp.reshape(new, t.shape))
    kept = fnp.multiply(fnp.stop_gradient(old), 1.0 - momentum)
    return cast(fnp.add(kept, cast(fnp.multiply(new, momentum), t.dtype)), t.dtype)


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

    Args:
        input: f32[n, c, ...].
        running_mean: f32[c].
        running_var: f32[c].
        weight: f32[c].
        bias: f32[c].
        use_input_stats: whether the statistics are those of each example, and the running ones
            move towards their means; else the running ones are used.
        momentum: how far they move.
        eps: is added to the variance.

    Returns:
        The result; with running statistics, it and those, as `batch_norm` does.

    Reference:
        https://arxiv.org/abs/1607.08022
    """
    x, dtype = wide(input)
    t = _channels("instance_norm", x, 3)
    running = {"running_mean": running_mean, "running_var": running_var}
    if not use_input_stats:
        return _normed("instance_norm", x, dtype, running, weight, bias, False, momentum, eps)
    count = math.prod(t.shape[2:])
    if count == 1:
        raise ShapeError(
            f"instance_norm: one value in each channel has no variance.{shown(input=x)}"
        )
    axes = tuple(range(2, t.ndim))
    center = _mean(x, axes)
    gap = fnp.subtract(x, center)
    spread = _mean(fnp.square(gap), axes)
    out = _affine(_scaled(gap, spread, eps), *_params("instance_norm", x, weight, bias), dtype)
    if running_mean is None and running_var is None:
        return out
    for argument, value in running.items():
        if value is not None:
            per_channel("instance_norm", argument, value, x)
    if running_mean is not None:
        running_mean = _moved(running_mean, fnp.mean(center, axis=0), momentum)
    if running_var is not None:
        unbiased = fnp.multiply(fnp.mean(spread, axis=0), count / (count - 1))
        running_var = _moved(running_var, unbiased, momentum)
    return out, running_mean, running_var


def local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Returns x over `(k + alpha * mean of squares)**beta`, of `size` channels around each.

    Args:
        input: f32[n, c, ...].
        size: how many channels; those that are not there count as 0.
        alpha: the factor of the mean.
        beta: the exponent.
        k: what is added.
    """
    x, dtype = wide(input)
    _channels("local_response_norm", x, 3)
    low, high = size // 2, (size - 1) // 2
    mean = averaged(fnp.square(x), 1, size, 1, (low, high))
    scale = fnp.power(fnp.add(fnp.multiply(mean, alpha), k), beta)
    return cast(fnp.divide(x, scale), dtype)
