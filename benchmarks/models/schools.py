"""A hierarchical model of eight schools, as Hamiltonian Monte Carlo asks for its slope."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["data", "loss", "parameters"]


def parameters() -> np.ndarray:
    """Returns f32[10]: the mean over five, the logarithm of the spread, the schools' places."""
    return (0.1 * np.random.default_rng(0).normal(size=10)).astype("float32")


def data() -> tuple[np.ndarray, np.ndarray]:
    """Returns the effects that were measured, and their errors, f32[8] each."""
    effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], "float32")
    return effects, np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], "float32")


def loss(lib: Any, params: Any, effects: Any, errors: Any) -> Any:
    """Returns minus the logarithm of the density, but for a constant."""
    xp = lib.numpy
    mean, log_spread, places = 5 * params[0], params[1], params[2:]
    spread = xp.exp(log_spread)
    missed = (effects - mean - spread * places) / errors
    prior = -0.5 * (params[0] ** 2 + xp.sum(places**2)) - xp.log1p((spread / 5) ** 2) + log_spread
    return 0.5 * xp.sum(missed**2) - prior
