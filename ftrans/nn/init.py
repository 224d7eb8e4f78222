"""Initialisers: the functions of `torch.nn.init`, which take a shape and return an array.

Each that draws takes a key, or a generator: `xavier_uniform((64, 32), key=key)`. What is created is
of the default dtype where none is given.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ftrans import numpy as fnp
from ftrans import random
from ftrans.config import config
from ftrans.errors import ArgumentError, ShapeError
from ftrans.nn.advice import missing_initialiser
from ftrans.nn.dropping import key_of

__all__ = [
    "calculate_gain", "kaiming_normal", "kaiming_uniform", "normal", "orthogonal", "trunc_normal",
    "uniform", "xavier_normal", "xavier_uniform",
]  # fmt: skip

_LINEAR = "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d sigmoid"
_GAINS = {
    **dict.fromkeys(_LINEAR.split(), 1.0), "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns by how much to scale the weights in front of an activation, by its name.

    For none it is "linear", or that of a layer; for "leaky_relu" there is its slope besides.

    Example:
        >>> calculate_gain("tanh")
        1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(
            f"calculate_gain: there is no gain for {nonlinearity!r}.\n"
            f"  Write one of {', '.join(sorted((*_GAINS, 'leaky_relu')))}, or a gain of your own."
        )
    return _GAINS[nonlinearity]


class _Draw(NamedTuple):
    """Is an array that is to be drawn, by the initialiser of a name."""

    name: str
    key: Any
    shape: tuple[int, ...]
    dtype: np.dtype

    def even(self, std: float) -> Any:
        """Returns numbers that are distributed evenly around zero, by their standard deviation."""
        bound = math.sqrt(3.0) * std
        return random.uniform(self.key, self.shape, self.dtype, -bound, bound)

    def normal(self, std: float) -> Any:
        """Returns normal numbers around zero."""
        return random.normal(self.key, self.shape, self.dtype) * std

    def fans(self) -> tuple[int, int]:
        """Returns how many inputs and outputs a weight f32[outputs, inputs, ...] connects."""
        if len(self.shape) < 2:
            raise ShapeError(
                f"{self.name}: a weight is f32[outputs, inputs, ...].\n  shape: {self.shape}\n"
                f"  For a vector write normal(shape, std=0.01, key=key), or zeros(shape)."
            )
        field = math.prod(self.shape[2:])
        return self.shape[1] * field, self.shape[0] * field


def _drawn(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an initialiser, which takes a shape first, of a function of what is to be drawn."""

    @functools.wraps(function)
    def drawn(
        shape: Any, *args: Any, key: Any = None, rng: Any = None, dtype: Any = None, **kwargs: Any
    ) -> Any:
        words = key_of(function.__name__, key, rng)
        given = tuple(map(int, (shape,) if isinstance(shape, (int, np.integer)) else shape))
        kind = np.dtype(config.default_dtype if dtype is None else dtype)
        return function(_Draw(function.__name__, words, given, kind), *args, **kwargs)

    _, *own = inspect.signature(function).parameters.values()
    shape, _, *options, _ = inspect.signature(drawn, follow_wrapped=False).parameters.values()
    drawn.__signature__ = inspect.Signature([shape, *own, *options])  # type: ignore[attr-defined]
    return drawn


@_drawn
def uniform(draw: _Draw, a: float = 0.0, b: float = 1.0) -> Any:
    """Returns numbers that are distributed evenly from a up to b."""
    return random.uniform(draw.key, draw.shape, draw.dtype, a, b)


@_drawn
def normal(draw: _Draw, mean: float = 0.0, std: float = 1.0) -> Any:
    """Returns normal numbers.

    Example:
        >>> import jax
        >>> normal((2, 3), key=jax.random.key(0)).shape
        (2, 3)
    """
    return draw.normal(std) + mean


@_drawn
def trunc_normal(
    draw: _Draw, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Any:
    """Returns normal numbers, of those between a and b."""
    low, high = (a - mean) / std, (b - mean) / std
    return random.truncated_normal(draw.key, low, high, draw.shape, draw.dtype) * std + mean


def _xavier(draw: _Draw, gain: float) -> float:
    """Returns the standard deviation that keeps that of signals and of gradients."""
    return gain * math.sqrt(2.0 / max(sum(draw.fans()), 1))


@_drawn
def xavier_uniform(draw: _Draw, gain: float = 1.0) -> Any:
    """Returns numbers that are distributed evenly, scaled by inputs and outputs.

    Reference:
        https://proceedings.mlr.press/v9/glorot10a.html
    """
    return draw.even(_xavier(draw, gain))


@_drawn
def xavier_normal(draw: _Draw, gain: float = 1.0) -> Any:
    """Returns normal numbers, scaled by inputs and outputs, see `xavier_uniform`."""
    return draw.normal(_xavier(draw, gain))


def _kaiming(draw: _Draw, a: float, mode: str, nonlinearity: str) -> float:
    """Returns the standard deviation that keeps that of signals, or of gradients."""
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(
            f"{draw.name}: there is no mode {mode!r}.\n  Write 'fan_in' or 'fan_out'."
        )
    fan = draw.fans()[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


@_drawn
def kaiming_uniform(  # noqa: D417  # the others are those of the decorator
    draw: _Draw, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Any:
    """Returns numbers that are distributed evenly, scaled for rectifiers.

    Args:
        shape: that of a weight, (outputs, inputs, ...).
        a: the slope of "leaky_relu" below 0.
        mode: "fan_in" to keep the size of signals, "fan_out" that of gradients.
        nonlinearity: the activation behind it, see `calculate_gain`.
        key: a key of random numbers.
        rng: a generator, whose next key is taken; with neither it is the default one.
        dtype: that of the result; None is the default one.

    Reference:
        https://arxiv.org/abs/1502.01852
    """
    return draw.even(_kaiming(draw, a, mode, nonlinearity))


@_drawn
def kaiming_normal(
    draw: _Draw, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Any:
    """Returns normal numbers, scaled for rectifiers, see `kaiming_uniform`."""
    return draw.normal(_kaiming(draw, a, mode, nonlinearity))


@_drawn
def orthogonal(draw: _Draw, gain: float = 1) -> Any:
    """Returns a weight whose rows, or columns if there are fewer, are orthogonal.

    Reference:
        https://arxiv.org/abs/1312.6120
    """
    draw.fans()  # which refuses what is no weight
    rows, columns = draw.shape[0], math.prod(draw.shape[1:])
    drawn = random.orthogonal(draw.key, rows, (), draw.dtype, columns)
    return fnp.reshape(drawn, draw.shape) * float(gain)


__getattr__ = missing_initialiser
