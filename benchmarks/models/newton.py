"""Newton's method in plain Python: how often it steps depends on values."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["root", "starts"]


def starts(count: int = 200) -> list[float]:
    """Returns numbers from which `root` of 2 takes 5 to 20 steps."""
    return [float(x) for x in np.linspace(0.9, 8.0, count)]


def root(xp: Any, start: Any, scale: Any) -> Any:
    """Returns the root of x exp(x) = scale, by damped steps from `start`."""
    x = start
    while abs(x * xp.exp(x) - scale) > 1e-3:
        x = x - 0.7 * (x - scale * xp.exp(-x)) / (1.0 + x)
    return x
