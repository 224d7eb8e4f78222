"""A normalizing flow of affine coupling layers on points of eight coordinates (RealNVP)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import perceptron

__all__ = ["data", "loss", "parameters"]

HALF, HIDDEN, LAYERS = 4, 32, 6


def parameters() -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the network of each layer."""
    return [perceptron.parameters((HALF, HIDDEN, HIDDEN, 2 * HALF)) for _ in range(LAYERS)]


def data(count: int = 128) -> tuple[np.ndarray]:
    """Returns points f32[count, 8]."""
    return (np.random.default_rng(1).normal(size=(count, 2 * HALF)).astype("float32"),)


def loss(lib: Any, params: Any, points: Any) -> Any:
    """Returns the mean of minus the logarithm of the density, but for a constant."""
    xp = lib.numpy
    a, b = points[:, :HALF], points[:, HALF:]
    total = 0.0
    for *hidden, (weights, biases) in params:
        x = a
        for w, bias in hidden:
            x = xp.tanh(x @ w + bias)
        x = x @ weights + biases
        scale, shift = xp.tanh(x[:, :HALF]), x[:, HALF:]
        a, b = b * xp.exp(scale) + shift, a
        total = total + scale.sum(-1)
    return (0.5 * (a**2 + b**2).sum(-1) - total).mean()
