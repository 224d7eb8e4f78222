"""Thirty-one small operations on a vector, as one writes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["backward", "chain", "long_chain", "vector"]


def vector(*shape: int) -> np.ndarray:
    """Returns f32[*shape] between 0.2 and 1.5."""
    size = int(np.prod(shape))
    return np.linspace(0.2, 1.5, size, dtype=np.float32).reshape(shape)


def chain(xp: Any, x: Any, look: Callable[[Any], Any] | None = None) -> Any:
    """Returns a scalar of f32[8], after 31 operations; the comments count them.

    The value after 18 of them may be looked at.
    """
    y = xp.sin(x) * x + 0.5  # 3
    y = xp.exp(-y * y) + xp.cos(x)  # 8
    z = xp.tanh(y * x) - y / 3.0  # 12
    w = xp.sqrt(z * z + 1.0)  # 15
    y = w * xp.log(w + 2.0)  # 18
    if look is not None:
        look(y)
    z = xp.sin(y) * xp.cos(z) + y  # 22
    w = (z - w) / (1.0 + xp.exp(-z))  # 27
    y = w**2 * x  # 29
    return xp.sum(xp.tanh(y))  # 31


def long_chain(xp: Any, x: Any, length: int) -> Any:
    """Returns a scalar after about `length` operations, each of which needs the one before."""
    y = x
    for _ in range(length // 5):
        y = xp.sin(y) * x + xp.tanh(y) - 0.1
    return xp.sum(y)


def backward(xp: Any, x: Any, look: str = "") -> Callable[[], Any]:
    """Returns what goes backward through the chain, from anew at each call, and returns the slope.

    Args:
        xp: has the functions of tensors.
        x: a leaf, f32[8], of ours or of PyTorch's.
        look: "" to ask for nothing but the gradient; "loss" to ask for the loss before; "value" to
            ask for a value in the middle; "hook" to have a hook called there; "grad" to return the
            slope by `autograd.grad`.
    """
    library = import_module(type(x).__module__.partition(".")[0])
    looks = {"value": lambda y: y.tolist(), "hook": lambda y: y.register_hook(lambda g: None)}

    def task() -> Any:
        x.grad = None
        loss = chain(xp, x, looks.get(look))
        if look == "loss":
            loss.item()
        if look == "grad":
            return library.autograd.grad(loss, x)[0].numpy()
        loss.backward()
        return x.grad.numpy()

    return task
