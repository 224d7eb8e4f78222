"""Functions that draw: dropout, and what else networks do at random.

Each takes a key, or a generator: `dropout(x, key=key)`, `dropout(x, rng=rng)`.
"""

from __future__ import annotations

import math
from typing import Any

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.nn import draws
from ftrans.nn.activations import leaky_relu, softmax
from ftrans.nn.common import shown
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.promotion import cast, inexact

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
    "gumbel_softmax", "rrelu",
]  # fmt: skip


def check_probability(name: str, argument: str, p: Any) -> None:
    """Raises unless a number is a probability."""
    if not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
        raise ArgumentError(
            f"{name}: {argument} is the probability of a zero, a number from 0 to 1.\n"
            f"  {argument}: {p!r}"
        )


def _kept(key: Any, rate: float, x: Any, axes: int | None) -> Any:
    """Returns a mask of what is kept: of each element, or of each of the first axes."""
    shape = type_of(x).shape
    if axes is None:
        return draws.bernoulli(key, 1.0 - rate, shape)
    mask = draws.bernoulli(key, 1.0 - rate, shape[:axes])
    return p.broadcast_p(mask, shape=shape, axes=tuple(range(axes)))


def _dropped(name: str, x: Any, rate: float, training: bool, key: Any, rng: Any, axes: Any) -> Any:
    check_probability(name, "p", rate)
    if not training or rate == 0.0:
        return x
    key = draws.key_of(name, key, rng)
    if rate == 1.0:
        return p.mul_p(x, 0.0)
    scaled = p.mul_p(x, 1.0 / (1.0 - rate))
    return p.select_p(_kept(key, rate, x, axes), scaled, 0.0)


def dropout(
    input: Any, p: float = 0.5, training: bool = True, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets elements to zero with a probability, and scales the others to keep the mean.

    Args:
        input: an array.
        p: the probability of a zero.
        training: whether to do so; else x is returned as it is.
        key: a key of random numbers.
        rng: a generator, whose next key is taken; with neither it is the default one.

    Raises:
        ArgumentError: where p is no probability, or both a key and a generator are given.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> out = dropout(np.ones(1000), 0.25, key=jax.random.key(0))
        >>> sorted(set(out.round(2).tolist()))
        [0.0, 1.33]
    """
    return _dropped("dropout", inexact(input), p, training, key, rng, None)


def _channels(name: str, input: Any, count: int) -> tuple[Any, int]:
    """Returns a strict operand, and how many axes there are in front of the spatial ones."""
    x = inexact(input)
    axes = type_of(x).ndim - count
    if axes not in (1, 2):
        raise ShapeError(
            f"{name}: input has axes of examples and channels, and {count} more."
            f"{shown(input=x)}\n  Write dropout(input) to drop single elements."
        )
    return x, axes


def dropout1d(
    input: Any, p: float = 0.5, training: bool = True, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets whole channels of f32[n, c, l] to zero with a probability, see `dropout`."""
    x, axes = _channels("dropout1d", input, 1)
    return _dropped("dropout1d", x, p, training, key, rng, axes)


def dropout2d(
    input: Any, p: float = 0.5, training: bool = True, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets whole channels of f32[n, c, h, w] to zero with a probability, see `dropout`."""
    x, axes = _channels("dropout2d", input, 2)
    return _dropped("dropout2d", x, p, training, key, rng, axes)


def dropout3d(
    input: Any, p: float = 0.5, training: bool = True, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets whole channels of f32[n, c, d, h, w] to zero with a probability, see `dropout`."""
    x, axes = _channels("dropout3d", input, 3)
    return _dropped("dropout3d", x, p, training, key, rng, axes)


_LOWEST = -1.7580993408473766  # of selu: -scale * alpha


def _moved(name: str, x: Any, rate: float, training: bool, key: Any, rng: Any, axes: Any) -> Any:
    check_probability(name, "p", rate)
    if not training or rate == 0.0:
        return x
    key = draws.key_of(name, key, rng)
    if rate == 1.0:
        return p.mul_p(x, 0.0)
    a = 1.0 / math.sqrt((1.0 - rate) * (1.0 + rate * _LOWEST**2))
    kept = p.select_p(_kept(key, rate, x, axes), x, _LOWEST)
    return p.add_p(p.mul_p(kept, a), -a * rate * _LOWEST)


def alpha_dropout(
    input: Any, p: float = 0.5, training: bool = False, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets elements to the lowest value of `selu` with a probability, and keeps mean and variance.

    Reference:
        https://arxiv.org/abs/1706.02515
    """
    return _moved("alpha_dropout", inexact(input), p, training, key, rng, None)


def feature_alpha_dropout(
    input: Any, p: float = 0.5, training: bool = False, *, key: Any = None, rng: Any = None
) -> Any:
    """Does to whole channels of f32[n, c, ...] what `alpha_dropout` does to elements."""
    x = inexact(input)
    if type_of(x).ndim < 2:
        raise ShapeError(f"feature_alpha_dropout: input is f32[n, c, ...].{shown(input=x)}")
    return _moved("feature_alpha_dropout", x, p, training, key, rng, 2)


def rrelu(
    input: Any,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    *,
    key: Any = None,
    rng: Any = None,
) -> Any:
    """Returns x where it is positive, else x times a slope that is drawn between two bounds."""
    x = inexact(input)
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    t = type_of(x)
    slope = draws.uniform(draws.key_of("rrelu", key, rng), t.shape, t.dtype, lower, upper)
    return p.select_p(p.gt_p(x, 0.0), x, p.mul_p(x, slope))


def gumbel_softmax(
    logits: Any,
    tau: float = 1.0,
    hard: bool = False,
    axis: int = -1,
    *,
    key: Any = None,
    rng: Any = None,
) -> Any:
    """Draws of the categories that logits weigh, as a softmax that can be differentiated.

    Args:
        logits: f32[...].
        tau: the temperature.
        hard: whether the result is a unit vector, with the derivative of the soft one.
        axis: that of the categories.
        key: a key of random numbers.
        rng: a generator, whose next key is taken; with neither it is the default one.

    Reference:
        https://arxiv.org/abs/1611.01144
    """
    x = inexact(logits)
    t = type_of(x)
    at = canonical_axis("gumbel_softmax", axis, t.ndim)
    noise = draws.gumbel(draws.key_of("gumbel_softmax", key, rng), t.shape, t.dtype)
    soft = softmax(fnp.divide(fnp.add(x, noise), tau), at)
    if not hard:
        return soft
    chosen = fnp.expand_dims(fnp.argmax(soft, axis=at), at)
    line = fnp.reshape(fnp.arange(t.shape[at]), (-1, *(1,) * (t.ndim - at - 1)))
    return p.graft_p(cast(fnp.equal(chosen, line), t.dtype), soft)
