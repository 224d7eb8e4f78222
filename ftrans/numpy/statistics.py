"""Averages and spread under NumPy's names, and the reductions that leave out NaN.

Half precision is averaged in single precision, as in NumPy.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, real_of
from ftrans.numpy import reduction as over
from ftrans.numpy.axes import broadcast_to, canonical_axes, kept, reduced_axes
from ftrans.numpy.bounds import at_hand
from ftrans.numpy.elementwise import add, divide, maximum, multiply, subtract
from ftrans.numpy.logic import isnan, logical_not
from ftrans.numpy.logic import where as choose
from ftrans.numpy.promotion import as_array, cast, inexact
from ftrans.numpy.reduction import described, masked
from ftrans.numpy.ufunc import Function, named

__all__ = [
    "average", "mean", "median", "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmedian",
    "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "std", "var",
]  # fmt: skip


def _computed_in(x: Any, dtype: Any) -> tuple[Any, np.dtype]:
    """Returns the operand in the dtype in which it is averaged, and the dtype of the result."""
    x = as_array(x) if dtype is not None else inexact(x)
    result = type_of(x).dtype if dtype is None else np.dtype(dtype)
    wide = np.dtype("float32") if result.itemsize == 2 else result
    return cast(x, wide), result


def _count(x: Any, axes: tuple[int, ...], where: Any, keepdims: bool) -> Any:
    """Returns how many elements take part in a reduction: a number, or an array under a mask."""
    t = type_of(x)
    if where is True or where is None:
        return float(math.prod(t.shape[axis] for axis in axes))
    mask = broadcast_to(as_array(where), t.shape)
    return cast(over.count_nonzero(mask, axis=axes, keepdims=keepdims), real_of(t.dtype))


@described(dtype="the dtype of the result; for integers, None is the default one.")
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """Returns the mean of elements.

    Example:
        >>> float(mean(np.array([1.0, 2.0, 6.0])))
        3.0
    """
    x, result = _computed_in(a, dtype)
    axes = reduced_axes("mean", axis, type_of(x).ndim)
    total = over.sum(x, axis=axes, keepdims=keepdims, where=where)
    return cast(divide(total, _count(x, axes, where, keepdims)), result)


_mean = mean


def _spread(name: str, finish: Function, doc: str) -> Function:
    """Makes `var` or `std`."""

    def function(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = True,
        mean: Any = None,
        correction: float | None = None,
    ) -> Any:
        x, result = _computed_in(a, dtype)
        axes = reduced_axes(name, axis, type_of(x).ndim)
        offset = ddof if correction is None else correction
        center = _mean(x, axes, keepdims=True, where=where) if mean is None else mean
        # masked before it is squared, so that a NaN that takes no part has no derivative either
        gap = masked(
            p.sub_p(x, broadcast_to(cast(as_array(center), type_of(x).dtype), type_of(x).shape)),
            where,
            0,
        )
        count = _count(x, axes, where, keepdims)
        if isinstance(count, float):
            count = count - offset if count > offset else 0.0
        else:
            count = maximum(subtract(count, offset), 0.0)
        total = over.sum(squares(gap), axis=axes, keepdims=keepdims)
        return finish(cast(divide(total, count), real_of(result)))

    describe = described(dtype="the dtype in which it is computed.")
    return describe(named(function, name, doc + _SPREAD_EXAMPLE))


_SPREAD_EXAMPLE = """

    Example:
        >>> import ftrans.numpy as fnp
        >>> float(fnp.var(fnp.array([1.0, 3.0]), ddof=1)), float(fnp.std(fnp.array([1.0, 3.0])))
        (2.0, 1.0)
    """


def squares(x: Any) -> Any:
    """Returns `|x|²`."""
    if is_complex(type_of(x).dtype):
        return p.add_p(squares(p.real_p(x)), squares(p.imag_p(x)))
    return p.integer_pow_p(x, exponent=2)


def root(square: Any) -> Any:
    """Returns the square root with the gradient 0 at 0, which a length has there."""
    at_zero = p.eq_p(square, 0.0)
    return p.select_p(at_zero, 0.0, p.sqrt_p(p.select_p(at_zero, 1.0, square)))


var = _spread("var", lambda square: square, "Returns the variance: the mean of `|x - mean(x)|²`.")
std = _spread(
    "std", root, "Returns the standard deviation, whose gradient is 0 where all elements are equal."
)


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Returns the weighted mean.

    Args:
        a: an array.
        axis: an axis, several, or None for all.
        weights: of the shape of x, or of its axis; None weighs all alike.
        returned: whether to return `(average, sum of weights)`.
        keepdims: whether reduced axes stay, with size 1.

    Example:
        >>> float(average(np.array([1.0, 5.0]), weights=np.array([3.0, 1.0])))
        2.0
    """
    x = as_array(a)
    t = type_of(x)
    axes = canonical_axes("average", axis, t.ndim)
    if weights is None:
        out = mean(x, axes, keepdims=keepdims)
        total: Any = float(math.prod(t.shape[i] for i in axes))
    else:
        weights = as_array(weights)
        given = type_of(weights)
        if given.shape != t.shape:
            if given.shape != tuple(t.shape[i] for i in axes):
                raise ShapeError(
                    f"average: the weights fit neither the array nor the axis.\n  x: {t}\n"
                    f"  weights: {given}\n  axis: {axis}"
                )
            weights = p.broadcast_p(weights, shape=t.shape, axes=axes)
        total = over.sum(weights, axis=axes, keepdims=keepdims)
        if at_hand(total) and not np.all(total):
            raise ArgumentError(f"average: the weights add up to 0.\n  weights: {given}")
        out = divide(over.sum(multiply(x, weights), axis=axes, keepdims=keepdims), total)
    if not returned:
        return out
    u = type_of(out)
    return out, broadcast_to(cast(as_array(total), u.dtype), u.shape)


# ----------------------------------------------------------------------------------------- median


def _median(name: str, x: Any, axis: Any, keepdims: bool, skip: bool) -> Any:
    x, result = _computed_in(as_array(x), None)
    t = type_of(x)
    axes = canonical_axes(name, axis, t.ndim)
    rest = tuple(i for i in range(t.ndim) if i not in axes)
    size = math.prod(t.shape[i] for i in axes)
    shape = (*(t.shape[i] for i in rest), size)
    if size == 0:
        raise ShapeError(f"median: an empty axis has no median.\n  x: {t}, axes {axes}")
    x = p.reshape_p(p.transpose_p(x, permutation=(*rest, *axes)), shape=shape)
    fixed = p.stop_gradient_p(x)
    ordered = p.sort_p(fixed, axis=len(rest), keys=1)[0]
    place = p.iota_p(shape=shape, dtype=np.dtype("int32"), axis=len(rest))
    count: Any = size
    if skip:
        count = over.sum(p.eq_p(fixed, fixed), axis=-1, keepdims=True, dtype=np.int32)
    shares = []
    for number in ((count - 1) // 2, count // 2):
        number = broadcast_to(as_array(number, "int32"), shape)
        middle = over.sum(masked(ordered, p.eq_p(place, number), 0), axis=-1, keepdims=True)
        shares.append(_shared(x, broadcast_to(middle, shape), middle))
    out = multiply(add(*shares), 0.5)
    lost = (over.all if skip else over.any)(p.ne_p(fixed, fixed), axis=-1, keepdims=True)
    # whose NaN has the gradient shared by all that are NaN
    out = choose(lost, over.max(x, axis=-1, keepdims=True), out)
    out = p.reshape_p(out, shape=shape[:-1])
    return cast(kept(out, t.shape, axes, keepdims), result)


def _shared(x: Any, middle: Any, value: Any) -> Any:
    """Returns `value`, with a gradient that the elements equal to it share evenly."""
    hit = p.eq_p(x, middle)
    count = over.sum(hit, axis=-1, keepdims=True)
    # the value and nothing else; of infinities, which have no difference, their mean
    known = [p.select_p(p.is_finite_p(v), v, 0.0) for v in (middle, value)]
    gap = p.select_p(hit, p.sub_p(x, known[0]), 0.0)
    return add(known[1], divide(over.sum(gap, axis=-1, keepdims=True), maximum(count, 1)))


@described()
def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: bool = False
) -> Any:
    """Returns the median, for an even number of elements the mean of the two in the middle.

    Elements equal to it share the gradient evenly.

    Example:
        >>> float(median(np.array([3.0, 1.0, 2.0, 9.0])))
        2.5
    """
    return _median("median", a, axis, keepdims, skip=False)


# -------------------------------------------------------------------------- reductions without NaN


@described()
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: bool = False
) -> Any:
    """Returns the median of the elements that are not NaN; see `median`."""
    return _median("nanmedian", a, axis, keepdims, skip=True)


def _skipping(reduce: Function, doc: str) -> Function:
    """Makes a reduction of the elements that are not NaN from one that takes a mask."""

    def function(a: Any, axis: Any = None, *args: Any, **options: Any) -> Any:
        x = as_array(a)
        known = logical_not(isnan(x))
        if options.get("where", True) is not True:
            known = p.and_p(known, broadcast_to(as_array(options["where"]), type_of(x).shape))
        return reduce(x, axis, *args, **{**options, "where": known})

    return _without_nan(function, reduce, doc)


def _without_nan(function: Function, reduce: Function, doc: str) -> Function:
    function.__signature__ = inspect.signature(reduce)  # type: ignore[attr-defined]
    return described()(named(function, f"nan{reduce.__name__}", doc))


nansum = _skipping(over.sum, "Adds up the elements that are not NaN.")
nanprod = _skipping(over.prod, "Multiplies the elements that are not NaN.")
nanmean = _skipping(mean, "Returns the mean of what is not NaN.")
nanvar = _skipping(var, "Returns the variance of what is not NaN.")
nanstd = _skipping(std, "Returns the deviation of what is not NaN.")


def _extremum_without_nan(reduce: Function, worst: float, doc: str) -> Function:
    signature, is_place = inspect.signature(reduce), reduce in (over.argmax, over.argmin)

    def function(a: Any, *args: Any, **options: Any) -> Any:
        given = signature.bind(a, *args, **options)
        given.apply_defaults()
        x, axis = as_array(a), given.arguments["axis"]
        if not type_of(x).is_inexact:
            return reduce(a, *args, **options)
        unknown = isnan(x)
        found = reduce(p.select_p(unknown, worst, x), *args, **options)
        if not is_place and given.arguments["initial"] is not None:
            return found
        keepdims = given.arguments["keepdims"]
        known = over.any(logical_not(unknown), axis=axis, keepdims=keepdims)
        if not is_place:
            return choose(known, found, math.nan)
        if at_hand(known) and not np.all(known):
            raise ArgumentError(
                f"nan{reduce.__name__}: all elements of a slice are NaN.\n  a: {type_of(x)}"
            )
        return found

    return _without_nan(function, reduce, doc)


nanmax = _extremum_without_nan(over.max, -math.inf, "Returns the largest element that is not NaN.")
nanmin = _extremum_without_nan(over.min, math.inf, "Returns the smallest element that is not NaN.")
nanargmax = _extremum_without_nan(
    over.argmax, -math.inf, "Returns where `nanmax` is; where all are NaN, 0 if traced."
)
nanargmin = _extremum_without_nan(
    over.argmin, math.inf, "Returns where `nanmin` is; where all are NaN, 0 if traced."
)
