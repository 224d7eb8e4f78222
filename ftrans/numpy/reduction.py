"""Reductions under NumPy's names, and those that run along an axis.

`axis` may be an int, a tuple of ints, or None for all. Sums and products of small integers and of
booleans are taken in the default integer dtype; means of integers in the default dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import AxisError, UnsupportedError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_integer, is_unsigned
from ftrans.numpy.arithmetic import add, multiply, subtract
from ftrans.numpy.elementwise import maximum, minimum
from ftrans.numpy.logic import isnan, truth
from ftrans.numpy.logic import where as choose
from ftrans.numpy.promotion import (
    as_array,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    cast,
    default_dtype,
    filled,
    flattened,
    inexact,
)
from ftrans.numpy.ufunc import Function, named
from ftrans.numpy.views import copied

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cummax", "cummin",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "logcumsumexp", "max", "min",
    "nancumprod", "nancumsum", "prod", "ptp", "sum",
]  # fmt: skip


def kept(x: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    """Gives a reduced operand axes of size 1 in the place of those that were reduced."""
    if not keepdims or not axes:
        return x
    return p.reshape_p(x, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


def accumulating_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype in which values are added: no integer narrower than the default one."""
    default = default_dtype(int)
    if dtype == np.bool_:
        return default
    if is_integer(dtype) and dtype.itemsize < default.itemsize:
        return np.dtype(f"u{default.name}") if is_unsigned(dtype) else default
    return dtype


def masked(x: Any, mask: Any, identity: Any) -> Any:
    """Puts the identity of a reduction where the mask is False."""
    if mask is True or mask is None:
        return x
    shape = np.broadcast_shapes(type_of(as_array(mask)).shape, type_of(x).shape)
    mask, x = broadcast_to(truth(mask), shape), broadcast_to(x, shape)
    return p.select_p(mask, x, p.scalar(identity, type_of(x).dtype))


def _reduce(x: Any, primitive: Function, axes: tuple[int, ...], keepdims: bool) -> Any:
    if not axes:
        return copied(x)
    return kept(primitive(x, axes=axes), type_of(x).shape, axes, keepdims)


def _total(name: str, primitive: Function, join: Function, identity: int, doc: str) -> Function:
    """Makes `sum` or `prod`."""

    def function(
        x: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        x = as_array(x)
        own = accumulating_dtype(type_of(x).dtype) if dtype is None else np.dtype(dtype)
        x = masked(cast(x, own), where, identity)
        axes = canonical_axes(name, axis, type_of(x).ndim)
        total = _reduce(x, primitive, axes, keepdims)
        return total if initial is None else join(total, initial)

    return named(function, name, doc + _REDUCTION_ARGS)


_REDUCTION_ARGS = """

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        dtype: the dtype of the result, to which the elements are converted first.
        out: an array to write the result into.
        keepdims: whether reduced axes stay, with size 1.
        initial: a value that takes part in the reduction.
        where: a mask of the elements that take part.
    """


sum = _total("sum", p.sum_p, add, 0, "Adds up elements.")
prod = _total("prod", p.prod_p, multiply, 1, "Multiplies elements; exact also where some are 0.")


def _logical(name: str, primitive: Function, identity: bool, doc: str) -> Function:
    """Makes `any` or `all`."""

    def function(
        x: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
    ) -> Any:
        x = masked(truth(x), where, identity)
        return _reduce(x, primitive, canonical_axes(name, axis, type_of(x).ndim), keepdims)

    return named(function, name, doc + _MASKED_ARGS)


_MASKED_ARGS = """

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        out: an array to write the result into.
        keepdims: whether reduced axes stay, with size 1.
        where: a mask of the elements that take part.
    """

any = _logical("any", p.any_p, False, "Tells whether any element is not 0.")
all = _logical("all", p.all_p, True, "Tells whether all elements are not 0.")


def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Counts the elements that are not 0.

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        keepdims: whether reduced axes stay, with size 1.
    """
    return sum(truth(x), axis=axis, keepdims=keepdims)


# ------------------------------------------------------------------------------- max and min


def _lowest(dtype: np.dtype, sign: int) -> complex:
    """Returns the smallest value of a dtype, or the largest for `sign` -1."""
    if dtype == np.bool_:
        return sign < 0
    if is_integer(dtype):
        info = np.iinfo(dtype)
        return int(info.min if sign > 0 else info.max)
    return -math.inf * sign


def _extremum(name: str, primitive: Function, join: Function, sign: int, doc: str) -> Function:
    """Makes `max` or `min`."""

    def function(
        x: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        x = as_array(x)
        if initial is None and where is not True:
            raise UnsupportedError(
                f"{name}: where= takes initial= too, the value where no element takes part.\n"
                f"  Write {name}(x, where=mask, initial={_lowest(type_of(x).dtype, sign)!r})."
            )
        x = masked(x, where, _lowest(type_of(x).dtype, sign))
        t = type_of(x)
        axes = canonical_axes(name, axis, t.ndim)
        if initial is None:
            return _reduce(x, primitive, axes, keepdims)
        if 0 in (t.shape[i] for i in axes):
            t = t.update(shape=tuple(1 if i in axes else n for i, n in enumerate(t.shape)))
            x = filled(_lowest(t.dtype, sign), t.shape, t.dtype)
        return join(_reduce(x, primitive, axes, keepdims), initial)

    return named(function, name, doc + _MASKED_ARGS.replace("where: a", _INITIAL + "where: a"))


_INITIAL = "initial: a value that takes part.\n        "

max = amax = _extremum(
    "max",
    p.max_p,
    maximum,
    1,
    "Returns the largest element; equal ones share the gradient evenly, and NaN is largest.",
)
min = amin = _extremum(
    "min",
    p.min_p,
    minimum,
    -1,
    "Returns the smallest element; equal ones share the gradient evenly, and NaN is smallest.",
)


def ptp(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Returns the largest element less the smallest.

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        out: an array to write the result into.
        keepdims: whether reduced axes stay, with size 1.
    """
    return subtract(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


def _index_of(name: str, primitive: Function, doc: str) -> Function:
    """Makes `argmax` or `argmin`."""

    def function(x: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        x = as_array(x)
        t = type_of(x)
        if axis is None:
            axes, flat = tuple(range(t.ndim)), flattened(x)
            found = primitive(flat, axis=0)
        else:
            axes = (canonical_axis(name, axis, t.ndim),)
            found = primitive(x, axis=axes[0])
        return kept(cast(found, default_dtype(int)), t.shape, axes, keepdims)

    return named(function, name, doc + _INDEX_ARGS)


_INDEX_ARGS = """

    Args:
        x: an array.
        axis: an axis; None for the index into the flattened array.
        out: an array to write the result into.
        keepdims: whether the axis stays, with size 1.
    """

argmax = _index_of("argmax", p.argmax_p, "Returns the index of the largest element, the first.")
argmin = _index_of("argmin", p.argmin_p, "Returns the index of the smallest element, the first.")


# ---------------------------------------------------------------------------- running along an axis


def _along(name: str, x: Any, axis: Any) -> tuple[Any, int]:
    """Returns the operand and the axis; flattened where that is None."""
    t = type_of(x)
    if axis is None:
        return flattened(x), 0
    return x, canonical_axis(name, axis, t.ndim)


def _running(name: str, primitive: Function, doc: str) -> Function:
    """Makes `cumsum` or `cumprod`."""

    def function(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = as_array(x)
        own = accumulating_dtype(type_of(x).dtype) if dtype is None else dtype
        x, axis = _along(name, cast(x, own), axis)
        return primitive(x, axis=axis, reverse=False)

    return named(function, name, doc + _RUNNING_ARGS)


_RUNNING_ARGS = """

    Args:
        x: an array.
        axis: an axis; None flattens the array first.
        dtype: the dtype of the result, to which the elements are converted first.
        out: an array to write the result into.
    """

cumsum = _running("cumsum", p.cumsum_p, "Returns the running sums along an axis.")
cumprod = _running("cumprod", p.cumprod_p, "Returns the running products along an axis.")


def _running_extremum(name: str, primitive: Function, doc: str) -> Function:
    def function(x: Any, axis: Any = None) -> Any:
        x, axis = _along(name, as_array(x), axis)
        return primitive(x, axis=axis, reverse=False)

    return named(function, name, doc)


cummax = _running_extremum("cummax", p.cummax_p, "Returns the running maxima along an axis.")
cummin = _running_extremum("cummin", p.cummin_p, "Returns the running minima along an axis.")


def logcumsumexp(x: Any, axis: Any = None) -> Any:
    """Returns the logarithms of the running sums of exp(x), without overflow.

    Args:
        x: an array.
        axis: an axis; None flattens the array first.
    """
    x, axis = _along("logcumsumexp", inexact(x), axis)
    return p.cumlogsumexp_p(x, axis=axis, reverse=False)


def _array_api(name: str, running: Function, start: int, doc: str) -> Function:
    def function(
        x: Any,
        /,
        *,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        x = as_array(x)
        t = type_of(x)
        if axis is None and t.ndim != 1:
            raise AxisError(f"{name}: an array of {t.ndim} axes needs one named.\n  x: {t}")
        axis = canonical_axis(name, 0 if axis is None else axis, t.ndim)
        total = running(x, axis, dtype, out)
        if not include_initial:
            return total
        t = type_of(total)
        shape = tuple(1 if i == axis else n for i, n in enumerate(t.shape))
        first = filled(start, shape, t.dtype)
        return p.concatenate_p(first, total, axis=axis)

    return named(function, name, doc)


cumulative_sum = _array_api(
    "cumulative_sum", cumsum, 0, "Returns the running sums, after a 0 with `include_initial`."
)
cumulative_prod = _array_api(
    "cumulative_prod", cumprod, 1, "Returns the running products, after a 1 with `include_initial`."
)


def _running_without_nan(name: str, running: Function, identity: int, doc: str) -> Function:
    def function(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = as_array(x)
        return running(choose(isnan(x), identity, x), axis, dtype, out)

    return named(function, name, doc + _RUNNING_ARGS)


nancumsum = _running_without_nan(
    "nancumsum", cumsum, 0, "Returns running sums in which NaN counts as 0."
)
nancumprod = _running_without_nan(
    "nancumprod", cumprod, 1, "Returns running products in which NaN counts as 1."
)
