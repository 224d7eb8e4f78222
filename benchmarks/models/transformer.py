"""A decoder-only transformer whose layers are unrolled: attention, then a network of two layers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["batch", "loss", "parameters"]

WIDTH, HEADS, LENGTH, VOCABULARY = 64, 4, 32, 96


def parameters(layers: int = 12) -> dict[str, Any]:
    """Returns the embeddings, and a dictionary for each layer."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype("float32")

    def layer() -> dict[str, np.ndarray]:
        return {
            "scale1": np.ones(WIDTH, "float32"),
            "shift1": np.zeros(WIDTH, "float32"),
            "qkv": normal(WIDTH, 3 * WIDTH),
            "out": normal(WIDTH, WIDTH),
            "scale2": np.ones(WIDTH, "float32"),
            "shift2": np.zeros(WIDTH, "float32"),
            "up": normal(WIDTH, 4 * WIDTH),
            "up_bias": np.zeros(4 * WIDTH, "float32"),
            "down": normal(4 * WIDTH, WIDTH),
            "down_bias": np.zeros(WIDTH, "float32"),
        }

    return {
        "tokens": normal(VOCABULARY, WIDTH),
        "places": normal(LENGTH, WIDTH),
        "layers": [layer() for _ in range(layers)],
        "head": normal(WIDTH, VOCABULARY),
    }


def batch(size: int = 4) -> np.ndarray:
    """Returns tokens i32[size, LENGTH + 1]."""
    rng = np.random.default_rng(1)
    return rng.integers(VOCABULARY, size=(size, LENGTH + 1)).astype("int32")


def loss(lib: Any, params: Any, tokens: Any) -> Any:
    """Returns the mean cross entropy of each next token."""
    xp = lib.numpy
    inputs, goals = tokens[:, :-1], tokens[:, 1:]
    x = params["tokens"][inputs] + params["places"]
    for layer in params["layers"]:
        x = x + _attention(lib, layer, _normalised(xp, x, layer["scale1"], layer["shift1"]))
        hidden = _normalised(xp, x, layer["scale2"], layer["shift2"])
        hidden = lib.gelu(hidden @ layer["up"] + layer["up_bias"])
        x = x + hidden @ layer["down"] + layer["down_bias"]
    logits = x @ params["head"]
    taken = xp.take_along_axis(logits, goals[..., None], axis=-1)[..., 0]
    return xp.mean(lib.logsumexp(logits, axis=-1) - taken)


def _normalised(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred**2, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * scale + shift


def _attention(lib: Any, layer: Any, x: Any) -> Any:
    """Causal attention of f32[n, t, d]."""
    xp = lib.numpy
    n, t, d = x.shape
    q, k, v = xp.split((x @ layer["qkv"]).reshape(n, t, 3 * HEADS, d // HEADS), 3, axis=2)
    scores = xp.einsum("nqhd,nkhd->nhqk", q, k) / np.sqrt(d // HEADS).astype("float32")
    allowed = np.tri(t, dtype=bool)
    weights = lib.softmax(xp.where(allowed, scores, -1e9), axis=-1)
    return xp.einsum("nhqk,nkhd->nqhd", weights, v).reshape(n, t, d) @ layer["out"]
