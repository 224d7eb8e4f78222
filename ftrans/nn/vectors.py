"""Linear maps, similarity and distances of vectors; tables of them, and integers as vectors."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from ftrans import numpy as fnp
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import INT, shown, wide
from ftrans.numpy.bounds import Counted, of_known, require
from ftrans.numpy.promotion import as_array, cast, inexact, unify
from ftrans.primitives import iota_p, stop_gradient_p

__all__ = [
    "bilinear", "cosine_similarity", "embedding", "embedding_bag", "linear", "normalize", "one_hot",
    "pairwise_distance", "pdist",
]  # fmt: skip


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Returns `input @ weight.T + bias`, f32[..., m].

    Args:
        input: f32[..., n].
        weight: f32[m, n], or f32[n].
        bias: f32[m].

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


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Returns `x @ weight[k] @ y`, plus a bias, for each k: f32[..., k].

    Args:
        input1: f32[..., n].
        input2: f32[..., m].
        weight: f32[k, n, m].
        bias: f32[k].
    """
    out = fnp.einsum("...n,knm,...m->...k", input1, weight, input2)
    return out if bias is None else fnp.add(out, bias)


def normalize(input: Any, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> Any:
    """Returns vectors divided by their p-norm, or by `eps` where that is larger."""
    x = inexact(input)
    return x / fnp.maximum(fnp.vector_norm(x, axis=axis, ord=p, keepdims=True), eps)


def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    """Returns the cosine of the angle between vectors along an axis; no length is below `eps`."""
    x, y = unify("cosine_similarity", inexact(x1), inexact(x2))
    return fnp.sum(fnp.multiply(*[normalize(v, 2.0, axis, eps) for v in (x, y)]), axis=axis)


def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """Returns the p-norm of `x1 - x2 + eps` along the last axis."""
    gap = fnp.subtract(*unify("pairwise_distance", inexact(x1), inexact(x2))) + eps
    return fnp.vector_norm(gap, axis=-1, ord=p, keepdims=keepdim)


def pdist(input: Any, p: float = 2.0) -> Any:
    """Returns the p-norms of the differences of all pairs of rows: (0, 1), (0, 2), ..., (1, 2)."""
    x = inexact(input)
    first, second = np.triu_indices(type_of(x).shape[0], 1)
    gap = fnp.take(x, first.astype(INT), axis=0) - fnp.take(x, second.astype(INT), axis=0)
    return fnp.vector_norm(gap, axis=-1, ord=p)


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Any:
    """Returns the rows of a table that integers name, f32[..., m].

    Args:
        input: the numbers of rows, i64[...].
        weight: the table, f32[n, m].
        padding_idx: a row that gets no gradient; negative ones count from the end.

    Raises:
        IndexError: where a number is known and no row has it.

    Example:
        >>> embedding(np.array([1, 0]), np.array([[1.0], [2.0]]))
        array([[2.],
               [1.]])
    """
    at, table = as_array(input), as_array(weight)
    t = type_of(table)
    if type_of(at).dtype.kind not in "iu":
        raise DTypeError(
            f"embedding: input holds the numbers of rows.{shown(input=at, weight=table)}\n"
            f"  Pass integers first, then the table: embedding(input, weight)."
        )
    if t.ndim != 2:
        raise ShapeError(f"embedding: weight is a table f32[n, m].{shown(weight=table)}")
    rows = fnp.getitem(table, Counted("embedding", at))
    if padding_idx is None:
        return rows
    if not -t.shape[0] <= padding_idx < t.shape[0]:
        raise ArgumentError(
            f"embedding: there is no row {padding_idx}.{shown(weight=table)}\n"
            f"  padding_idx: {padding_idx}"
        )
    fixed = at == padding_idx % t.shape[0]
    return fnp.where(fnp.expand_dims(fixed, -1), stop_gradient_p(rows), rows)


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Returns sums, means or maxima of the rows of a table that bags of integers name, f32[b, m].

    Args:
        input: the numbers of rows, i64[b, n]; or those of all bags one after the other, i64[n].
        weight: the table, f32[k, m].
        offsets: where each bag begins, i64[b], if they stand one after the other.
        mode: "sum", "mean" or "max"; each is 0 of nothing.
        per_sample_weights: what rows are multiplied by, for "sum", in the shape of input.
        include_last_offset: whether the last offset is the number of all, and begins no bag.
        padding_idx: a row that does not count.
    """
    if mode not in ("sum", "mean", "max") or (per_sample_weights is not None and mode != "sum"):
        raise ArgumentError(
            f"embedding_bag: mode is 'sum', 'mean' or 'max', and 'sum' where rows have weights.\n"
            f"  mode: {mode!r}"
        )
    at = as_array(input)
    shape = type_of(at).shape
    if len(shape) not in (1, 2) or (len(shape) == 1) != (offsets is not None):
        raise ShapeError(
            f"embedding_bag: input is i64[b, n], or i64[n] with offsets i64[b]."
            f"{shown(input=at, offsets=offsets)}"
        )
    if offsets is None:
        many, size = shape
        bag: Any = np.repeat(np.arange(many), size)
    else:
        starts = as_array(offsets)
        require(starts, _Starts(shape[0]))
        starts = starts[:-1] if include_last_offset else starts
        many = type_of(starts).shape[0]
        bag = fnp.sum(np.arange(shape[0])[:, None] >= starts, axis=1) - 1
    table, dtype = wide(weight)
    rows = fnp.reshape(embedding(at, table), (-1, type_of(table).shape[1]))
    counts: Any = np.ones(math.prod(shape), bool)
    if padding_idx is not None:
        counts = fnp.reshape(at, (-1,)) != padding_idx % type_of(weight).shape[0]
    column = fnp.expand_dims(counts, -1)
    zeros = fnp.zeros((many, type_of(rows).shape[1]), type_of(rows).dtype)
    number = fnp.at(zeros[:, :1])[bag].add(column)
    if mode == "max":
        largest = fnp.at(zeros - np.inf)[bag].max(fnp.where(column, rows, -np.inf))
        return cast(fnp.where(number > 0, largest, 0.0), dtype)
    if per_sample_weights is not None:
        rows = rows * fnp.reshape(per_sample_weights, (-1, 1))
    total = fnp.at(zeros)[bag].add(fnp.where(column, rows, 0.0))
    return cast(total if mode == "sum" else total / fnp.maximum(number, 1.0), dtype)


class _Starts(NamedTuple):
    """Raises where places do not begin at 0, decrease, or lie beyond so many elements."""

    many: int

    def __call__(self, starts: np.ndarray) -> None:
        if (
            starts.ndim != 1
            or (starts[:1] != 0).any()
            or (np.diff(starts, append=self.many) < 0).any()
        ):
            raise ArgumentError(
                f"embedding_bag: offsets are i64[b], which begin with 0 and do not decrease.\n"
                f"  offsets: {starts.tolist()}, of {self.many} numbers in input"
            )


class _Below(NamedTuple):
    """Raises where an integer is not one of so many classes."""

    many: int

    def __call__(self, x: np.ndarray) -> None:
        if x.size and not 0 <= x.min() <= x.max() < self.many:
            raise ArgumentError(
                f"one_hot: an integer is out of range.{shown(tensor=x)}\n"
                f"  smallest: {x.min()}, largest: {x.max()}, num_classes: {self.many}"
            )


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Returns a vector for each integer, 1 there and else 0, as i64[..., num_classes].

    Args:
        tensor: the integers, i64[...], from 0 up to but without `num_classes`; a vector for
            another one is 0 where it is traced, and an error where it is known.
        num_classes: how many; -1 counts up to the largest, whose value has to be known.

    Example:
        >>> one_hot(np.array([0, 2]))
        array([[1, 0, 0],
               [0, 0, 1]])
    """
    x = as_array(tensor)
    if type_of(x).dtype.kind not in "iu":
        raise DTypeError(
            f"one_hot: tensor holds integers.{shown(tensor=x)}\n  Write tensor.astype('int64')."
        )
    if num_classes == -1 and not type_of(x).size:
        raise ArgumentError(
            f"one_hot: of no integers none is the largest.{shown(tensor=x)}\n  Pass num_classes=n."
        )
    num_classes = operator.index(fnp.max(x) + 1 if num_classes == -1 else num_classes)

    def vectors(x: Any) -> Any:
        require(x, _Below(num_classes))
        if type(x) is np.ndarray:
            return (x[..., None] == np.arange(num_classes)).astype(np.int64)
        classes = iota_p(shape=(num_classes,), dtype=INT, axis=0)
        return cast(fnp.expand_dims(x, -1) == classes, np.int64)

    return of_known(vectors, x)
