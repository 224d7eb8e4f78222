"""Batches of small matrices, the likelihood of a Gaussian process, a Kalman filter."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["batch", "filtered", "likelihood", "observations", "points"]


def batch(count: int, n: int) -> np.ndarray:
    """Returns symmetric positive definite matrices, f64[count, n, n]."""
    a = np.random.default_rng(0).normal(size=(count, n, n))
    return a @ a.swapaxes(1, 2) + n * np.eye(n)


def points(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points on a line, f64[n], and what is observed there, f64[n]."""
    random = np.random.default_rng(1)
    x = np.linspace(0.0, 10.0, n)
    return x, np.sin(x) + 0.1 * random.normal(size=n)


def likelihood(xp: Any, params: Any, x: Any, y: Any) -> Any:
    """Returns the logarithm of the likelihood of a Gaussian process, constants left out.

    Args:
        xp: a namespace with `exp`, `log` and `linalg`.
        params: the logarithms of amplitude, length and noise, f64[3].
        x: where it is observed, f64[n].
        y: what is observed, f64[n].
    """
    amplitude, length, noise = (xp.exp(params[i]) for i in range(3))
    distance = (x[:, None] - x[None, :]) / length
    kernel = amplitude * xp.exp(-0.5 * distance**2) + noise * xp.eye(len(x), dtype=x.dtype)
    factor = xp.linalg.cholesky(kernel)
    weights = xp.linalg.solve(kernel, y)
    return -0.5 * (y @ weights) - xp.log(xp.diagonal(factor)).sum()


def observations(n: int) -> np.ndarray:
    """Returns noisy places of what moves on a line, f64[n]."""
    random = np.random.default_rng(2)
    return np.cumsum(1.0 + 0.1 * random.normal(size=n)) + random.normal(size=n)


def filtered(lib: Any, params: Any, seen: Any) -> Any:
    """Returns the logarithm of the likelihood of places by a Kalman filter of place and speed.

    Args:
        lib: has `numpy` and `scan`.
        params: the logarithms of the variances of the motion and of what is seen, f64[2].
        seen: the places, f64[n].
    """
    xp = lib.numpy
    motion, noise = xp.exp(params[0]), xp.exp(params[1])
    move = np.array([[1.0, 1.0], [0.0, 1.0]])
    spread = motion * np.array([[0.25, 0.5], [0.5, 1.0]])

    def step(state: Any, place: Any) -> Any:
        mean, covariance, total = state
        mean, covariance = move @ mean, move @ covariance @ move.T + spread
        variance = covariance[0, 0] + noise
        gain, error = covariance[:, 0] / variance, place - mean[0]
        total = total - 0.5 * (xp.log(variance) + error**2 / variance)
        covariance = covariance - variance * gain[:, None] * gain[None, :]
        return (mean + gain * error, covariance, total), None

    start = np.zeros(2), np.eye(2), np.array(0.0)
    return lib.scan(step, start, seen)[0][2]
