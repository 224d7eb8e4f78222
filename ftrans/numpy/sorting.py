"""Sorting and order statistics, by NumPy's names. NaN sorts last; every sort is stable."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, AxisError, DTypeError, IndexingError, ShapeError
from ftrans.interop import from_jax
from ftrans.ir import type_of
from ftrans.numpy import reduction as over
from ftrans.numpy.axes import canonical_axes, flattened, line_of
from ftrans.numpy.bounds import at_hand
from ftrans.numpy.indexing import pick
from ftrans.numpy.logic import where
from ftrans.numpy.promotion import as_array, cast, inexact, is_array, promote_dtypes
from ftrans.numpy.taking import at_places

__all__ = [
    "argpartition", "argsort", "partition",
    "percentile", "quantile", "sort", "sort_complex", "top_k",
]  # fmt: skip

_i32 = np.dtype("int32")


def _prepared(name: str, x: Any, axis: int | None, kind: Any = None) -> tuple[Any, int]:
    if kind not in (None, "stable", "quicksort", "mergesort", "heapsort"):
        raise ArgumentError(f"{name}: there is no kind {kind!r}; every sort here is stable.")
    x = as_array(x)
    if axis is not None and type_of(x).ndim == 0:
        raise AxisError(f"{name}: an array without axes cannot be sorted.")
    return line_of(name, x, axis)


def sort(
    a: Any,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """Sorts along an axis, in ascending order unless `descending`.

    Args:
        a: an array. Its gradient goes where the elements came from.
        axis: the axis; None sorts all elements as one axis.
        kind: taken for NumPy's sake; every sort is stable.
        stable: likewise.
        descending: whether the largest come first; NaN then comes first too.

    Example:
        >>> sort(np.array([3.0, 1.0, 2.0]), descending=True)
        array([3., 2., 1.])
    """
    x, axis = _prepared("sort", a, axis, kind)
    (out,) = p.sort_p(x, axis=axis, keys=1)
    return p.rev_p(out, axes=(axis,)) if descending else out


def sort_complex(a: Any) -> Any:
    """Sorts along the last axis by the real part, then the imaginary one; the result is complex."""
    x = as_array(a)
    dtype = type_of(x).dtype
    return sort(cast(x, promote_dtypes(dtype, np.dtype("complex64"))))


def argsort(
    a: Any,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """Returns the places from which `sort` takes the elements, as int32.

    Args:
        a: an array.
        axis: the axis; None sorts all elements as one axis.
        kind: taken for NumPy's sake; every sort is stable.
        stable: likewise.
        descending: whether the largest come first; equal ones keep their order.
    """
    x, axis = _prepared("argsort", a, axis, kind)
    t = type_of(x)
    places = p.iota_p(shape=t.shape, dtype=_i32, axis=axis)
    if descending:
        # Reversed before and after, so that equal elements keep their order.
        _, out = p.sort_p(
            p.rev_p(x, axes=(axis,)), p.rev_p(places, axes=(axis,)), axis=axis, keys=1
        )
        return p.rev_p(out, axes=(axis,))
    return p.sort_p(x, places, axis=axis, keys=1)[1]


def partition(a: Any, kth: Any, axis: int | None = -1) -> Any:
    """Returns an order in which the place `kth` has the element that sorting puts there.

    All elements are sorted, which NumPy's condition permits.
    """
    _check_kth("partition", a, kth, axis)
    return sort(a, axis)


def argpartition(a: Any, kth: Any, axis: int | None = -1) -> Any:
    """Returns the places from which `partition` takes the elements, as int32."""
    _check_kth("argpartition", a, kth, axis)
    return argsort(a, axis)


def _check_kth(name: str, x: Any, kth: Any, axis: int | None) -> None:
    x, axis = _prepared(name, x, axis)
    size = type_of(x).shape[axis]
    for k in np.ravel(kth):
        if not -size <= k < size:
            raise IndexingError(
                f"{name}: kth={k} is out of bounds.\n  x: {type_of(x)}, axis {axis}"
            )


def top_k(x: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    """Returns the k largest elements along an axis, in descending order, and their places.

    Args:
        x: an array.
        k: how many.
        axis: the axis.

    Example:
        >>> top_k(np.array([1.0, 3.0, 2.0]), 2)
        (array([3., 2.]), array([1, 2], dtype=int32))
    """
    x, axis = _prepared("top_k", x, axis)
    size = type_of(x).shape[axis]
    if not 0 <= k <= size:
        raise ShapeError(f"top_k: k={k} is more than there is.\n  x: axis {axis} of {type_of(x)}")
    places = pick(argsort(x, axis, descending=True), slice(0, k), axis)
    return at_places(x, places, axis), places


# -------------------------------------------------------------------------------- order statistics


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """Returns the values below which given fractions of the elements lie.

    Args:
        a: an array; integers are converted to the default dtype.
        q: the fractions, from 0 to 1. Their axes come first in the result.
        axis: an axis, or several; None takes all elements.
        out: an array to write the result into.
        overwrite_input: is taken for the sake of NumPy's signature; nothing is overwritten.
        method: what to do between two elements: "linear", "lower", "higher", "midpoint", "nearest";
            with weights "inverted_cdf".
        keepdims: whether these axes stay, with size 1.
        weights: how much each element counts, of the shape of `a`, or of its axis.

    Returns:
        The quantiles; NaN where an element is NaN.

    Example:
        >>> quantile(np.array([1.0, 2.0, 3.0, 4.0]), 0.5)
        array(2.5)
    """
    x = inexact(a)
    t = type_of(x)
    if t.dtype.kind == "c":
        raise DTypeError(f"quantile: complex numbers have no order.\n  x: {t}")
    if axis is not None:
        axis = canonical_axes("quantile", axis, t.ndim)
    keepdims = keepdims and t.ndim > 0  # JAX gives a number an axis
    q = _parts(x, q)
    if is_array(q) and at_hand(q) and not np.all((q >= 0) & (q <= 1)):
        raise ArgumentError("quantile: fractions must lie between 0 and 1.")
    if 0 in type_of(x).shape:
        raise ShapeError(f"quantile: there are no elements to take it of.\n  x: {t}")
    if type_of(q).ndim > 1:
        found = quantile(x, flattened(q), axis, None, False, method, keepdims, weights=weights)
        return p.reshape_p(found, shape=(*type_of(q).shape, *type_of(found).shape[1:]))
    if method == "nearest" and weights is None:
        found = _nearest(x, q, axis, keepdims)
    else:
        found = from_jax(jnp.quantile)(
            x, q, axis, method=method, keepdims=keepdims, weights=weights
        )
    # a NaN is an element's, and so has its gradient
    largest = over.max(x, axis=axis, keepdims=keepdims)
    return where(p.ne_p(largest, largest), largest, found)


def _nearest(x: Any, q: Any, axis: Any, keepdims: bool) -> Any:
    """Returns the nearest elements, between two of them that at an even place, as NumPy does."""
    low, high = (
        from_jax(jnp.quantile)(x, q, axis, method=method, keepdims=keepdims)
        for method in ("lower", "higher")
    )
    t, place = type_of(low), type_of(q)
    count = type_of(x).size // max(t.size // max(place.size, 1), 1)
    exact = p.mul_p(q, p.scalar(count - 1, place.dtype))
    is_low = p.eq_p(p.round_p(exact), p.floor_p(exact))
    return where(p.broadcast_p(is_low, shape=t.shape, axes=tuple(range(place.ndim))), low, high)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """Returns the values below which given percentages of the elements lie, from 0 to 100.

    Args:
        a: an array.
        q: the percentages.
        axis: as for `quantile`, and so are the others.
        out: an array to write the result into.
        overwrite_input: has no effect.
        method: what to do between two elements.
        keepdims: whether the axes stay.
        weights: how much each element counts.
    """
    x = inexact(a)
    fractions = p.div_p(_parts(x, q), 100.0)
    return quantile(x, fractions, axis, method=method, keepdims=keepdims, weights=weights)


def _parts(x: Any, q: Any) -> Any:
    """Returns fractions as floating point, numbers of Python's in the dtype of an array."""
    dtype = type_of(x).dtype
    q = as_array(q, None if hasattr(q, "dtype") else dtype)
    return q if type_of(q).is_inexact else cast(q, dtype)
