"""Linear and bilinear maps, similarity and distances of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans.errors import ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import shown
from ftrans.numpy.promotion import as_array, inexact

__all__ = ["bilinear", "cosine_similarity", "linear", "normalize", "pairwise_distance", "pdist"]


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Returns `input @ weight.T + bias`.

    Args:
        input: f32[..., n].
        weight: f32[m, n], or f32[n].
        bias: f32[m].

    Returns:
        f32[..., m].

    Example:
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


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Returns `input1 @ weight[k] @ input2 + bias[k]` for each k.

    Args:
        input1: f32[..., n].
        input2: f32[..., m].
        weight: f32[k, n, m].
        bias: f32[k].
    """
    x, y, w = map(as_array, (input1, input2, weight))
    a, b, t = map(type_of, (x, y, w))
    if t.ndim != 3 or a.shape[:-1] != b.shape[:-1] or (*a.shape[-1:], *b.shape[-1:]) != t.shape[1:]:
        raise ShapeError(
            f"bilinear: weight f32[k, n, m] takes inputs f32[..., n] and f32[..., m]."
            f"{shown(input1=x, input2=y, weight=w)}"
        )
    out = fnp.einsum("...n,knm,...m->...k", x, w, y)
    return out if bias is None else fnp.add(out, bias)


def normalize(input: Any, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> Any:
    """Returns vectors divided by their p-norm, or by `eps` where that is larger."""
    x = inexact(input)
    return fnp.divide(x, fnp.maximum(fnp.vector_norm(x, axis=axis, ord=p, keepdims=True), eps))


def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    """Returns the cosine of the angle between vectors along an axis; no length is below `eps`."""
    x, y = fnp.broadcast_arrays(inexact(x1), inexact(x2))
    lengths = [fnp.maximum(fnp.vector_norm(v, axis=axis, keepdims=True), eps) for v in (x, y)]
    return fnp.sum(fnp.multiply(*map(fnp.divide, (x, y), lengths)), axis=axis)


def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """Returns the p-norm of `x1 - x2 + eps` along the last axis."""
    gap = fnp.add(fnp.subtract(inexact(x1), inexact(x2)), eps)
    return fnp.vector_norm(gap, axis=-1, ord=p, keepdims=keepdim)


def pdist(input: Any, p: float = 2.0) -> Any:
    """Returns the distances of all pairs of rows i < j, f32[n (n - 1) / 2] of f32[n, m]."""
    x = inexact(input)
    t = type_of(x)
    if t.ndim != 2:
        raise ShapeError(f"pdist: input is f32[n, m].{shown(input=x)}")
    first, second = np.triu_indices(t.shape[0], 1)
    gap = fnp.subtract(fnp.take(x, first, axis=0), fnp.take(x, second, axis=0))
    return fnp.vector_norm(gap, axis=-1, ord=p)
