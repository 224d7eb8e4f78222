"""An LSTM, run over a sequence by `scan`."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["batch", "loss", "parameters"]

INPUT, HIDDEN = 16, 32


def parameters() -> dict[str, np.ndarray]:
    """Returns the weights of the four gates together, and those of the output."""
    rng = np.random.default_rng(0)

    def normal(m: int, n: int) -> np.ndarray:
        return (rng.normal(size=(m, n)) / np.sqrt(m)).astype("float32")

    return {
        "x": normal(INPUT, 4 * HIDDEN),
        "h": normal(HIDDEN, 4 * HIDDEN),
        "bias": np.zeros(4 * HIDDEN, "float32"),
        "out": normal(HIDDEN, INPUT),
    }


def batch(length: int = 64, size: int = 16) -> np.ndarray:
    """Returns sequences f32[length, size, INPUT]."""
    return np.random.default_rng(1).normal(size=(length, size, INPUT)).astype("float32")


def loss(lib: Any, params: Any, xs: Any) -> Any:
    """Returns the mean squared error of the prediction of each next element."""
    xp = lib.numpy

    def sigmoid(x: Any) -> Any:
        return 0.5 * (xp.tanh(0.5 * x) + 1.0)

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        gates = x @ params["x"] + h @ params["h"] + params["bias"]
        i, f, g, o = xp.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * xp.tanh(g)
        h = sigmoid(o) * xp.tanh(c)
        return (h, c), h @ params["out"]

    start = xp.zeros((xs.shape[1], HIDDEN), "float32")
    _, found = lib.scan(step, (start, start), xs[:-1])
    return xp.mean((found - xs[1:]) ** 2)
