"""A model of 64 parameters in one vector, small enough for its Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["data", "loss", "parameters"]


def parameters() -> np.ndarray:
    """Returns f32[64]."""
    return (0.3 * np.random.default_rng(0).normal(size=64)).astype("float32")


def data(count: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs f32[count, 5] and goals f32[count, 2]."""
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(count, 5)).astype("float32"),
        rng.normal(size=(count, 2)).astype("float32"),
    )


def loss(xp: Any, params: Any, inputs: Any, goals: Any) -> Any:
    """Returns the mean squared error of a network with eight hidden units."""
    first, bias = params[:40].reshape(5, 8), params[40:48]
    second = params[48:].reshape(8, 2)
    return xp.mean((xp.tanh(inputs @ first + bias) @ second - goals) ** 2)
