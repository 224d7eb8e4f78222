"""A variational autoencoder of images of digits' size; its noise is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import perceptron

__all__ = ["data", "loss", "parameters"]

PIXELS, HIDDEN, LATENT = 64, 128, 8


def parameters() -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the layers of the encoder and of the decoder."""
    return {
        "encoder": perceptron.parameters((PIXELS, HIDDEN, HIDDEN, 2 * LATENT)),
        "decoder": perceptron.parameters((LATENT, HIDDEN, HIDDEN, PIXELS)),
    }


def data(count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Returns images f32[count, 64] within 0 to 1, and normal numbers f32[count, 8]."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(count, LATENT))
    return rng.random((count, PIXELS)).astype("float32"), noise.astype("float32")


def _network(xp: Any, layers: Any, x: Any) -> Any:
    *hidden, (weights, biases) = layers
    for w, b in hidden:
        x = xp.tanh(x @ w + b)
    return x @ weights + biases


def loss(lib: Any, params: Any, images: Any, noise: Any) -> Any:
    """Returns minus the lower bound of the logarithm of the likelihood, mean over images."""
    xp = lib.numpy
    found = _network(xp, params["encoder"], images)
    mean, scale = found[:, :LATENT], found[:, LATENT:]
    logits = _network(xp, params["decoder"], mean + xp.exp(scale) * noise)
    # log(1 + exp(x)), which does not overflow
    softplus = xp.maximum(logits, 0 * logits) + xp.log1p(xp.exp(-xp.abs(logits)))
    missed = (softplus - images * logits).sum(-1)
    apart = 0.5 * (xp.exp(2 * scale) + mean**2 - 1 - 2 * scale).sum(-1)
    return (missed + apart).mean()
