"""Initialisers: the functions of `torch.nn.init`, which take a shape and return an array.

Each that draws takes a key, or a generator: `xavier_uniform((64, 32), key=key)`. What is created is
of the default dtype where none is given.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import random
from ftrans.config import config
from ftrans.errors import ArgumentError, ShapeError
from ftrans.nn import draws
from ftrans.nn.advice import missing_initialiser

__all__ = [
    "calculate_gain", "constant", "eye", "kaiming_normal", "kaiming_uniform", "normal", "ones",
    "orthogonal", "trunc_normal", "uniform", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip

_LINEAR = "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d sigmoid"
_GAINS = {
    **dict.fromkeys(_LINEAR.split(), 1.0), "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns by how much to scale the weights in front of an activation.

    Args:
        nonlinearity: its name; "linear" and those of convolutions for none.
        param: the slope of "leaky_relu".

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


def _of(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
    given = (shape,) if isinstance(shape, (int, np.integer)) else shape
    return tuple(map(int, given)), np.dtype(config.default_dtype if dtype is None else dtype)


def _fans(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns how many inputs and outputs a weight f32[outputs, inputs, ...] connects.

    Raises:
        ShapeError: where it is none.
    """
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: a weight is f32[outputs, inputs, ...].\n  shape: {shape}\n"
            f"  For a vector write normal(shape, std=0.01, key=key), or zeros(shape)."
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def zeros(shape: Any, *, dtype: Any = None) -> Any:
    """Returns zeros."""
    return fnp.zeros(*_of(shape, dtype))


def ones(shape: Any, *, dtype: Any = None) -> Any:
    """Returns ones."""
    return fnp.ones(*_of(shape, dtype))


def constant(shape: Any, val: float, *, dtype: Any = None) -> Any:
    """Returns one number everywhere."""
    given, kind = _of(shape, dtype)
    return fnp.full(given, val, kind)


def eye(shape: Any, *, dtype: Any = None) -> Any:
    """Returns the matrix of a linear layer that hands its inputs on."""
    given, kind = _of(shape, dtype)
    if len(given) != 2:
        raise ShapeError(f"eye: the shape is that of a matrix.\n  shape: {given}")
    return fnp.eye(*given, dtype=kind)


def _drawn(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an initialiser, of a shape, of what draws by a key an array of a shape and a dtype."""
    name = function.__name__

    @functools.wraps(function)
    def drawn(
        shape: Any, *args: Any, key: Any = None, rng: Any = None, dtype: Any = None, **kwargs: Any
    ) -> Any:
        return function(draws.key_of(name, key, rng), *_of(shape, dtype), *args, **kwargs)

    _, shape, _, *own = inspect.signature(function).parameters.values()
    more = list(inspect.signature(drawn, follow_wrapped=False).parameters.values())[2:-1]
    drawn.__signature__ = inspect.Signature([shape, *own, *more])  # type: ignore[attr-defined]
    return drawn


@_drawn
def uniform(key: Any, shape: Any, dtype: Any, a: float = 0.0, b: float = 1.0) -> Any:
    """Returns numbers that are distributed evenly from a up to b."""
    return random.uniform(key, shape, dtype, a, b)


@_drawn
def normal(key: Any, shape: Any, dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Returns normal numbers.

    Example:
        >>> import jax
        >>> normal((2, 3), key=jax.random.key(0)).shape
        (2, 3)
    """
    return random.normal(key, shape, dtype) * std + mean


@_drawn
def trunc_normal(
    key: Any,
    shape: Any,
    dtype: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
) -> Any:
    """Returns normal numbers, of those between a and b."""
    low, high = (a - mean) / std, (b - mean) / std
    return random.truncated_normal(key, low, high, shape, dtype) * std + mean


def _xavier(name: str, shape: Any, gain: float) -> float:
    """Returns the standard deviation that keeps that of signals and of gradients."""
    return gain * math.sqrt(2.0 / max(sum(_fans(name, shape)), 1))


def _kaiming(name: str, shape: Any, a: float, mode: str, nonlinearity: str) -> float:
    """Returns the standard deviation that keeps that of signals, or of gradients."""
    modes = ("fan_in", "fan_out")
    if mode not in modes:
        raise ArgumentError(f"{name}: there is no mode {mode!r}.\n  Write 'fan_in' or 'fan_out'.")
    fan = _fans(name, shape)[modes.index(mode)]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def _even(key: Any, shape: Any, dtype: Any, deviation: float) -> Any:
    """Returns numbers that are distributed evenly around 0, by their standard deviation."""
    bound = math.sqrt(3.0) * deviation
    return random.uniform(key, shape, dtype, -bound, bound)


@_drawn
def xavier_uniform(key: Any, shape: Any, dtype: Any, gain: float = 1.0) -> Any:
    """Returns numbers that are distributed evenly, scaled by inputs and outputs.

    Reference:
        https://proceedings.mlr.press/v9/glorot10a.html
    """
    return _even(key, shape, dtype, _xavier("xavier_uniform", shape, gain))


@_drawn
def xavier_normal(key: Any, shape: Any, dtype: Any, gain: float = 1.0) -> Any:
    """Returns normal numbers, scaled by inputs and outputs, see `xavier_uniform`."""
    return random.normal(key, shape, dtype) * _xavier("xavier_normal", shape, gain)


@_drawn
def kaiming_uniform(
    key: Any,
    shape: Any,
    dtype: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
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
    return _even(key, shape, dtype, _kaiming("kaiming_uniform", shape, a, mode, nonlinearity))


@_drawn
def kaiming_normal(
    key: Any,
    shape: Any,
    dtype: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
) -> Any:
    """Returns normal numbers, scaled for rectifiers, see `kaiming_uniform`."""
    deviation = _kaiming("kaiming_normal", shape, a, mode, nonlinearity)
    return random.normal(key, shape, dtype) * deviation


@_drawn
def orthogonal(key: Any, shape: Any, dtype: Any, gain: float = 1) -> Any:
    """Returns a weight whose rows, or columns if there are fewer, are orthogonal.

    Reference:
        https://arxiv.org/abs/1312.6120
    """
    _fans("orthogonal", shape)
    drawn = random.orthogonal(key, shape[0], (), dtype, math.prod(shape[1:]))
    return fnp.reshape(drawn, shape) * float(gain)


__getattr__ = missing_initialiser
