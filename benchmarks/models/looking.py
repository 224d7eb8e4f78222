"""Loops on small tensors that look at values as they go, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["LOOPS"]


def _given(torch: Any, *shape: int) -> Any:
    return torch.as_tensor(np.random.default_rng(0).normal(size=shape).astype("float32"))


def _decoding(torch: Any) -> Callable[[], Any]:
    """Returns the choice of the largest score, eight times, each of which changes the state."""
    weights = _given(torch, 8, 5)
    begin = _given(torch, 8)

    def task() -> Any:
        state, chosen = begin, []
        for _ in range(8):
            best = int((state @ weights).argmax())
            state = torch.tanh(state + weights[:, best])
            chosen.append(best)
        return np.array(chosen)

    return task


def _path(torch: Any) -> Callable[[], Any]:
    """Returns the best score of a path through ten steps of five states, and its end."""
    steps, scores = _given(torch, 5, 5), _given(torch, 10, 5)

    def task() -> Any:
        best = scores[0]
        for i in range(1, 10):
            best = (best[:, None] + steps).max(0)[0] + scores[i]
        value, end = best.max(0)
        return np.array([value.item(), end.item()])

    return task


def _neighbours(torch: Any) -> Callable[[], Any]:
    """Returns how many of 100 points are nearest to each of five."""
    points = _given(torch, 100, 8)

    def task() -> Any:
        distance = ((points[:, None] - points[None, :5]) ** 2).sum(-1)
        nearest = distance.argmin(1)
        return np.array([(nearest == i).sum().item() for i in range(5)])

    return task


LOOPS = {"decoding": _decoding, "a best path": _path, "nearest neighbours": _neighbours}
"""For each a function of `torch`, or `ftrans.torch`, that returns a task."""
