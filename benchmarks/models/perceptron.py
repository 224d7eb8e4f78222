"""A perceptron of three layers, on random images of digits' size."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

__all__ = ["batch", "loss", "parameters"]

SIZES = (64, 64, 64, 10)


def parameters(sizes: tuple[int, ...] = SIZES) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns weights f32[m, n] and biases f32[n] of each layer."""
    rng = np.random.default_rng(0)
    return [
        ((rng.normal(size=(m, n)) / np.sqrt(m)).astype("float32"), np.zeros(n, "float32"))
        for m, n in itertools.pairwise(sizes)
    ]


def batch(size: int = 64, sizes: tuple[int, ...] = SIZES) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs f32[size, m] and goals f32[size, n]."""
    rng = np.random.default_rng(1)
    images = rng.normal(size=(size, sizes[0])).astype("float32")
    return images, rng.normal(size=(size, sizes[-1])).astype("float32")


def loss(xp: Any, params: Any, images: Any, goals: Any) -> Any:
    """Returns the mean squared error."""
    *hidden, (weights, biases) = params
    x = images
    for w, b in hidden:
        x = xp.tanh(x @ w + b)
    return xp.mean((x @ weights + biases - goals) ** 2)
