"""Linear maps, similarity and distances of vectors."""

from __future__ import annotations

from typing import Any

from ftrans import numpy as fnp
from ftrans.errors import ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import shown
from ftrans.numpy.promotion import as_array, inexact

__all__ = ["cosine_similarity", "linear", "normalize", "pairwise_distance"]


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Returns `input @ weight.T + bias`.

    Args:
        input: f32[..., n].
        weight: f32[m, n], or f32[n].
        bias: f32[m].

    Returns:
        f32[..., m].

    Example:
        >>> import numpy as np
        >>> linear(np.ones(2), np.array([[1.0, 2.0]]), np.array([10.0]))
        array([13.])
    """
    x, w = as_array(input), as_array(weight)
    t, of = type_of(x), type_of(w)
    if not t.ndim or of.ndim not in (1, 2) or t.shape[-1] != of.shape[-1]:
        raise ShapeError(
            f"linear: the last axis of input and that of weight have one size."
            f"{shown(input=x, weight=w)}\n"
            f"  The weight of n inputs and m outputs is f32[m, n]: perhaps write weight.T."
        )
    b = None if bias is None else as_array(bias)
    if b is not None and type_of(b).shape not in ((), (1,), of.shape[:-1]):
        raise ShapeError(
            f"linear: bias has one number for each output.{shown(input=x, weight=w, bias=b)}\n"
            f"  Pass f32[{', '.join(map(str, of.shape[:-1]))}]."
        )
    out = fnp.matmul(x, fnp.transpose(w))
    return out if b is None else fnp.add(out, b)


def normalize(input: Any, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> Any:
    """Returns vectors divided by their p-norm, or by `eps` where that is larger."""
    x = inexact(input)
    return x / fnp.maximum(fnp.vector_norm(x, axis=axis, ord=p, keepdims=True), eps)


def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    """Returns the cosine of the angle between vectors along an axis; no length is below `eps`."""
    x, y = fnp.broadcast_arrays(inexact(x1), inexact(x2))
    return fnp.sum(fnp.multiply(*[normalize(v, 2.0, axis, eps) for v in (x, y)]), axis=axis)


def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """Returns the p-norm of `x1 - x2 + eps` along the last axis."""
    gap = fnp.subtract(inexact(x1), inexact(x2)) + eps
    return fnp.vector_norm(gap, axis=-1, ord=p, keepdims=keepdim)
