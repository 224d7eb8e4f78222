"""A convolutional network: two convolutions, a pooling after each, and a linear layer."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["batch", "loss", "parameters"]

SIDE, CLASSES = 16, 10


def parameters() -> dict[str, np.ndarray]:
    """Returns kernels f32[out, in, 3, 3] and the linear layer."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, fan: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(fan)).astype("float32")

    features = 16 * (SIDE // 4) ** 2
    return {
        "first": normal(8, 1, 3, 3, fan=9),
        "second": normal(16, 8, 3, 3, fan=72),
        "weights": normal(features, CLASSES, fan=features),
        "biases": np.zeros(CLASSES, "float32"),
    }


def batch(size: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Returns images f32[size, 1, 16, 16] and one-hot labels f32[size, 10]."""
    rng = np.random.default_rng(1)
    images = rng.normal(size=(size, 1, SIDE, SIDE)).astype("float32")
    return images, np.eye(CLASSES, dtype="float32")[rng.integers(CLASSES, size=size)]


def loss(lib: Any, params: Any, images: Any, labels: Any) -> Any:
    """Returns the mean cross entropy."""
    xp = lib.numpy
    x = _pool(xp, xp.maximum(lib.conv(images, params["first"]), 0.0))
    x = _pool(xp, xp.maximum(lib.conv(x, params["second"]), 0.0))
    logits = x.reshape(x.shape[0], -1) @ params["weights"] + params["biases"]
    return xp.mean(lib.logsumexp(logits, axis=-1) - xp.sum(logits * labels, axis=-1))


def _pool(xp: Any, x: Any) -> Any:
    """Averages squares of two by two: f32[n, c, h, w] to f32[n, c, h/2, w/2]."""
    n, c, h, w = x.shape
    return xp.mean(x.reshape(n, c, h // 2, 2, w // 2, 2), axis=(3, 5))
