"""A network that solves the heat equation: its loss holds second derivatives of the network."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import perceptron

__all__ = ["data", "loss", "parameters"]

SIZES = (2, 32, 32, 1)


def parameters() -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns weights and biases."""
    return perceptron.parameters(SIZES)


def data(count: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Returns points of space and time, f32[count, 2], and places at the start, f32[count]."""
    rng = np.random.default_rng(1)
    return rng.random((count, 2)).astype("float32"), rng.random(count).astype("float32")


def loss(lib: Any, params: Any, points: Any, places: Any) -> Any:
    """Returns how far the network is from a solution that begins as a sine."""
    xp = lib.numpy

    def solution(x: Any, t: Any) -> Any:
        *hidden, (weights, biases) = params
        y = xp.stack([x, t])
        for w, b in hidden:
            y = xp.tanh(y @ w + b)
        return (y @ weights + biases)[0]

    def residual(point: Any) -> Any:
        x, t = point[0], point[1]
        curvature = lib.grad(lib.grad(solution))(x, t)
        return lib.grad(lambda t: solution(x, t))(t) - 0.1 * curvature

    missed = lib.vmap(residual)(points)
    start = lib.vmap(lambda x: solution(x, 0 * x))(places) - xp.sin(np.pi * places)
    return (missed**2).mean() + (start**2).mean()
