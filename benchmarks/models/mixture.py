"""The log-likelihood of a mixture of Gaussians with full covariances, after the ADBench suite."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["loss", "parameters", "points"]


def parameters(components: int = 10, dims: int = 8) -> dict[str, np.ndarray]:
    """Returns weights, means, and the inverse Cholesky factors as diagonals and lower parts."""
    rng = np.random.default_rng(0)
    return {
        "alphas": rng.normal(size=components).astype("float32"),
        "means": rng.normal(size=(components, dims)).astype("float32"),
        "diagonals": (0.1 * rng.normal(size=(components, dims))).astype("float32"),
        "lower": (0.1 * rng.normal(size=(components, dims, dims))).astype("float32"),
    }


def points(count: int = 1000, dims: int = 8) -> np.ndarray:
    """Returns f32[count, dims]."""
    return np.random.default_rng(1).normal(size=(count, dims)).astype("float32")


def loss(lib: Any, params: Any, xs: Any) -> Any:
    """Returns the log-likelihood of the points, up to a constant."""
    xp = lib.numpy
    dims = xs.shape[1]
    diagonals = xp.exp(params["diagonals"])
    factors = xp.tril(params["lower"], -1) + diagonals[:, :, None] * xp.eye(dims, dtype="float32")
    away = xs[:, None, :] - params["means"]
    scaled = xp.einsum("kij,nkj->nki", factors, away)
    weights = params["alphas"] + xp.sum(params["diagonals"], axis=-1)
    each = lib.logsumexp(weights - 0.5 * xp.sum(scaled**2, axis=-1), axis=-1)
    return xp.sum(each) - xs.shape[0] * lib.logsumexp(params["alphas"], axis=-1)
