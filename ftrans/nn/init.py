"""Initialisers: the functions of `torch.nn.init`, which take a shape and return an array.

Each that draws takes a key, or a generator: `xavier_uniform((64, 32), key=key)`. What is created is
of the default dtype where none is given.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.config import config
from ftrans.errors import ArgumentError, ShapeError
from ftrans.nn import draws

__all__ = [
    "calculate_gain", "constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal",
    "ones", "orthogonal", "sparse", "trunc_normal", "uniform", "xavier_normal", "xavier_uniform",
    "zeros",
]  # fmt: skip

_GAINS = dict.fromkeys(
    [
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "sigmoid",
    ],
    1.0,
) | {"tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


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


def dirac(shape: Any, groups: int = 1, *, dtype: Any = None) -> Any:
    """Returns the kernel of a convolution that hands its channels on, as many as there are."""
    given, kind = _of(shape, dtype)
    if len(given) not in (3, 4, 5) or groups < 1 or given[0] % groups:
        raise ShapeError(
            f"dirac: the shape is that of a kernel, f32[outputs, inputs, ...], and groups divides "
            f"outputs.\n  shape: {given}\n  groups: {groups}"
        )
    out = np.zeros(given, kind)
    each = given[0] // groups
    center = tuple(n // 2 for n in given[2:])
    for group in range(groups):
        for channel in range(min(each, given[1])):
            out[(group * each + channel, channel, *center)] = 1
    return out


def uniform(
    shape: Any,
    a: float = 0.0,
    b: float = 1.0,
    *,
    key: Any = None,
    rng: Any = None,
    dtype: Any = None,
) -> Any:
    """Returns numbers that are distributed evenly from a up to b."""
    given, kind = _of(shape, dtype)
    return draws.uniform(draws.key_of("uniform", key, rng), given, kind, a, b)


def normal(
    shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    key: Any = None,
    rng: Any = None,
    dtype: Any = None,
) -> Any:
    """Returns normal numbers.

    Example:
        >>> import jax
        >>> normal((2, 3), key=jax.random.key(0)).shape
        (2, 3)
    """
    given, kind = _of(shape, dtype)
    drawn = draws.normal(draws.key_of("normal", key, rng), given, kind)
    return p.add_p(p.mul_p(drawn, std), mean)


def trunc_normal(
    shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    *,
    key: Any = None,
    rng: Any = None,
    dtype: Any = None,
) -> Any:
    """Returns normal numbers, of those between a and b."""
    given, kind = _of(shape, dtype)
    low, high = (a - mean) / std, (b - mean) / std
    words = draws.key_of("trunc_normal", key, rng)
    return p.add_p(p.mul_p(draws.truncated(words, low, high, given, kind), std), mean)


def xavier_uniform(
    shape: Any, gain: float = 1.0, *, key: Any = None, rng: Any = None, dtype: Any = None
) -> Any:
    """Returns numbers that are distributed evenly, scaled by inputs and outputs.

    Reference:
        https://proceedings.mlr.press/v9/glorot10a.html
    """
    given, _ = _of(shape, dtype)
    bound = gain * math.sqrt(6.0 / max(sum(_fans("xavier_uniform", given)), 1))
    return uniform(given, -bound, bound, key=key, rng=rng, dtype=dtype)


def xavier_normal(
    shape: Any, gain: float = 1.0, *, key: Any = None, rng: Any = None, dtype: Any = None
) -> Any:
    """Returns normal numbers, scaled by inputs and outputs, see `xavier_uniform`."""
    given, _ = _of(shape, dtype)
    std = gain * math.sqrt(2.0 / max(sum(_fans("xavier_normal", given)), 1))
    return normal(given, 0.0, std, key=key, rng=rng, dtype=dtype)


def _kaiming(name: str, shape: tuple[int, ...], a: float, mode: str, nonlinearity: str) -> float:
    """Returns the standard deviation that keeps that of signals, or of gradients."""
    modes = ("fan_in", "fan_out")
    if mode not in modes:
        raise ArgumentError(f"{name}: there is no mode {mode!r}.\n  Write 'fan_in' or 'fan_out'.")
    fan = _fans(name, shape)[modes.index(mode)]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform(
    shape: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    key: Any = None,
    rng: Any = None,
    dtype: Any = None,
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
    given, _ = _of(shape, dtype)
    bound = math.sqrt(3.0) * _kaiming("kaiming_uniform", given, a, mode, nonlinearity)
    return uniform(given, -bound, bound, key=key, rng=rng, dtype=dtype)


def kaiming_normal(
    shape: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    key: Any = None,
    rng: Any = None,
    dtype: Any = None,
) -> Any:
    """Returns normal numbers, scaled for rectifiers, see `kaiming_uniform`."""
    given, _ = _of(shape, dtype)
    std = _kaiming("kaiming_normal", given, a, mode, nonlinearity)
    return normal(given, 0.0, std, key=key, rng=rng, dtype=dtype)


def orthogonal(
    shape: Any, gain: float = 1, *, key: Any = None, rng: Any = None, dtype: Any = None
) -> Any:
    """Returns a weight whose rows, or columns if there are fewer, are orthogonal.

    Reference:
        https://arxiv.org/abs/1312.6120
    """
    given, kind = _of(shape, dtype)
    _fans("orthogonal", given)
    rows, columns = given[0], math.prod(given[1:])
    words = draws.key_of("orthogonal", key, rng)
    drawn = draws.orthogonal(words, rows, columns, kind)
    return p.mul_p(fnp.reshape(drawn, given), float(gain))


def sparse(
    shape: Any,
    sparsity: float,
    std: float = 0.01,
    *,
    key: Any = None,
    rng: Any = None,
    dtype: Any = None,
) -> Any:
    """Returns a matrix of normal numbers, of which a part of each column is 0."""
    given, kind = _of(shape, dtype)
    if len(given) != 2:
        raise ShapeError(f"sparse: the shape is that of a matrix.\n  shape: {given}")
    first, second = draws.split(draws.key_of("sparse", key, rng), 2)
    rows, columns = given
    order = draws.permutations(first, columns, rows)
    drawn = p.mul_p(draws.normal(second, given, kind), std)
    return fnp.where(fnp.less(order, math.ceil(sparsity * rows)), 0.0, drawn)
