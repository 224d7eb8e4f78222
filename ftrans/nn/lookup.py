"""Tables that are looked up by integers, and integers as unit vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import INT, shown
from ftrans.numpy.promotion import as_array, cast

__all__ = ["embedding", "one_hot"]


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Any:
    """Returns the rows of a table that integers name.

    Args:
        input: the numbers of rows, i64[...].
        weight: the table, f32[n, m].
        padding_idx: a row that gets no gradient; negative ones count from the end.

    Returns:
        f32[..., m].

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
    rows = fnp.take(table, at, axis=0)
    if padding_idx is None:
        return rows
    if not -t.shape[0] <= padding_idx < t.shape[0]:
        raise ArgumentError(
            f"embedding: there is no row {padding_idx}.{shown(weight=table)}\n"
            f"  padding_idx: {padding_idx}"
        )
    fixed = at == padding_idx % t.shape[0]
    return fnp.where(fnp.expand_dims(fixed, -1), p.stop_gradient_p(rows), rows)


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Returns a vector for each integer, 1 there and else 0, as i64[..., num_classes].

    Args:
        tensor: the integers, i64[...], from 0 up to but without `num_classes`; a vector for
            another one is 0 where it is traced.
        num_classes: how many; -1 counts up to the largest, whose value has to be known.

    Raises:
        ArgumentError: where an integer that is known is out of range.

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
    if num_classes == -1:
        if not type_of(x).size:
            raise ArgumentError(
                f"one_hot: of no integers none is the largest.{shown(tensor=x)}\n"
                f"  Pass num_classes=n."
            )
        num_classes = int(fnp.max(x)) + 1
    if isinstance(x, np.ndarray) and x.size and not 0 <= x.min() <= x.max() < num_classes:
        raise ArgumentError(
            f"one_hot: an integer is out of range.{shown(tensor=x)}\n"
            f"  smallest: {x.min()}, largest: {x.max()}, num_classes: {num_classes}"
        )
    classes = p.iota_p(shape=(num_classes,), dtype=INT, axis=0)
    return cast(fnp.expand_dims(x, -1) == classes, np.int64)
