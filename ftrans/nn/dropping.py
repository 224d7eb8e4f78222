"""Functions that draw: dropout, and what else networks do at random.

Each takes a key, or a generator: `dropout(x, key=key)`, `dropout(x, rng=rng)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans import random
from ftrans.errors import ArgumentError
from ftrans.ir import type_of
from ftrans.nn.activations import softmax
from ftrans.nn.common import family
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.promotion import cast, inexact
from ftrans.random.generator import default_generator
from ftrans.random.keys import consumed
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "gumbel_softmax", "rrelu",
]  # fmt: skip


def key_of(name: str, key: Any, rng: Any) -> Any:
    """Returns the key that a function is to draw by: one that is given, or a generator's next."""
    if key is not None and rng is not None:
        raise ArgumentError(
            f"{name}: draws by a key, or by a generator, not by both.\n  Write key=key, or rng=rng."
        )
    if key is not None:
        # results follow the container of the operands
        is_held = is_jax(key) and not is_traced_by_jax(key)
        return np.array(consumed(name, key)) if is_held else key
    if rng is None:
        return default_generator.key()
    if not callable(getattr(rng, "key", None)):
        raise ArgumentError(
            f"{name}: rng is a generator of keys.\n  rng: {type(rng).__name__}\n"
            f"  Write rng=ftrans.random.default_rng(0), or pass a key: key=ftrans.random.key(0)."
        )
    return rng.key()


def bernoulli(key: Any, p: float, shape: tuple[int, ...]) -> Any:
    """Returns booleans that are True with a probability, those of `random.bernoulli`."""
    # a constant of the program, so that it is none that bodies of loops capture
    return fnp.less(random.uniform(key, shape, "float32"), p)


def check_probability(name: str, argument: str, p: Any) -> None:
    """Raises unless a number is a probability."""
    if not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
        raise ArgumentError(
            f"{name}: {argument} is the probability of a zero, a number from 0 to 1.\n"
            f"  {argument}: {p!r}"
        )


def _thinned(
    name: str, x: Any, rate: float, training: bool, source: Any, axes: Any = None, keep: Any = None
) -> Any:
    """Sets to zero, and scales the rest; or returns `keep(x, kept)`, where `kept` is a mask.

    That is drawn, by a key or a generator, for as many of the first axes as are given, or for all.
    """
    check_probability(name, "p", rate)
    if not training or rate == 0.0:
        return x
    key = key_of(name, *source)
    if rate == 1.0:
        return x * 0.0
    shape = type_of(x).shape
    kept = bernoulli(key, 1.0 - rate, shape[:axes])
    if axes is not None:
        kept = p.broadcast_p(kept, shape=shape, axes=tuple(range(axes)))
    return keep(x, kept) if keep else p.select_p(kept, x * (1.0 / (1.0 - rate)), 0.0)


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

    Example:
        >>> import jax
        >>> import numpy as np
        >>> out = dropout(np.ones(1000), 0.25, key=jax.random.key(0))
        >>> sorted(set(out.round(2).tolist()))
        [0.0, 1.33]
    """
    return _thinned("dropout", inexact(input), p, training, (key, rng))


def _dropout(
    input: Any, p: float = 0.5, training: bool = True, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets whole channels of f32[n, c, {axes}] to zero with a probability, see `dropout`."""
    name = f"dropout{type_of(input).ndim - 2}d"
    return _thinned(name, inexact(input), p, training, (key, rng), 2)


dropout1d, dropout2d, dropout3d = family(_dropout)

_LOWEST = -1.7580993408473766  # of selu: -scale * alpha


def alpha_dropout(
    input: Any, p: float = 0.5, training: bool = False, *, key: Any = None, rng: Any = None
) -> Any:
    """Sets elements to the lowest value of `selu` with a probability, and keeps mean and variance.

    Reference:
        https://arxiv.org/abs/1706.02515
    """

    def keep(x: Any, kept: Any) -> Any:
        a = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * _LOWEST**2))
        return fnp.where(kept, x, _LOWEST) * a - a * p * _LOWEST

    return _thinned("alpha_dropout", inexact(input), p, training, (key, rng), None, keep)


def rrelu(
    input: Any,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    *,
    key: Any = None,
    rng: Any = None,
) -> Any:
    """Returns x where it is positive, else x times a slope that is drawn between two bounds.

    The slope is their mean where it is not for training.

    Reference:
        https://arxiv.org/abs/1505.00853
    """
    if not lower <= upper:
        raise ArgumentError(
            f"rrelu: lower is at most upper.\n  lower: {lower}, upper: {upper}\n"
            f"  Write rrelu(x, {upper}, {lower})."
        )
    x, slope = inexact(input), (lower + upper) / 2
    if training:
        t = type_of(x)
        slope = random.uniform(key_of("rrelu", key, rng), t.shape, t.dtype, lower, upper)
    return fnp.where(x > 0.0, x, x * slope)


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

    Its temperature is `tau`. What is `hard` is a unit vector, with the derivative of the soft one.

    Reference:
        https://arxiv.org/abs/1611.01144
    """
    x = inexact(logits)
    t = type_of(x)
    at = canonical_axis("gumbel_softmax", axis, t.ndim)
    noise = random.gumbel(key_of("gumbel_softmax", key, rng), t.shape, t.dtype)
    soft = softmax((x + noise) / tau, at)
    if not hard:
        return soft
    chosen = fnp.argmax(soft, axis=at, keepdims=True)
    line = fnp.reshape(fnp.arange(t.shape[at]), (-1, *(1,) * (t.ndim - at - 1)))
    return p.graft_p(cast(chosen == line, t.dtype), soft)
