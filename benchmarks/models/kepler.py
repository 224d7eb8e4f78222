"""Bodies that attract each other: leapfrog steps, until a time or for a number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["bodies", "simulate", "spread_after"]

STEP = 0.01


def bodies(count: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a sun and its planets: places f32[n, 2], velocities f32[n, 2], masses f32[n]."""
    radii = np.linspace(1.0, 3.0, count - 1)
    angles = np.linspace(0.0, 5.0, count - 1)
    places = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    velocities = np.stack([-np.sin(angles), np.cos(angles)], axis=1) / np.sqrt(radii)[:, None]
    masses = np.concatenate([[1.0], np.full(count - 1, 1e-3)])
    zero = np.zeros((1, 2))
    found = np.concatenate([zero, places]), np.concatenate([zero, velocities]), masses
    return found[0].astype("float32"), found[1].astype("float32"), found[2].astype("float32")


def simulate(lib: Any, places: Any, velocities: Any, masses: Any, until: Any) -> Any:
    """Returns places and velocities at the first step that is not before a time."""

    def go_on(state: Any) -> Any:
        return state[0] < until

    def step(state: Any) -> Any:
        t, q, v = state
        q, v = _leapfrog(lib.numpy, q, v, masses)
        return t + STEP, q, v

    _, q, v = lib.while_loop(go_on, step, (lib.numpy.float32(0.0), places, velocities))
    return q, v


def spread_after(lib: Any, places: Any, velocities: Any, masses: Any, steps: int = 200) -> Any:
    """Returns how far the bodies are from the origin after some steps, squared and added."""

    def step(state: Any, _: Any) -> Any:
        return _leapfrog(lib.numpy, *state, masses), None

    (q, _), _ = lib.scan(step, (places, velocities), None, length=steps)
    return lib.numpy.sum(q**2)


def _leapfrog(xp: Any, q: Any, v: Any, masses: Any) -> Any:
    v = v + 0.5 * STEP * _pull(xp, q, masses)
    q = q + STEP * v
    return q, v + 0.5 * STEP * _pull(xp, q, masses)


def _pull(xp: Any, q: Any, masses: Any) -> Any:
    """Returns accelerations f32[n, 2]; softened, so that a body does not pull itself."""
    apart = q[None, :, :] - q[:, None, :]
    squares = xp.sum(apart**2, axis=-1) + 1e-4
    return xp.sum(apart * (masses[None, :] / (squares * xp.sqrt(squares)))[..., None], axis=1)
