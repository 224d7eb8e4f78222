"""Running sums, products, extrema and log-sum-exps along one axis."""

from __future__ import annotations

from typing import Any

from ftrans import primitives as p
from ftrans.errors import AxisError
from ftrans.ir import type_of
from ftrans.numpy.logic import isnan, where
from ftrans.numpy.promotion import as_array, canonical_axis, cast, filled, flattened, inexact
from ftrans.numpy.reduction import accumulating_dtype
from ftrans.numpy.ufunc import Function, named

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "logcumsumexp", "nancumprod", "nancumsum",
]  # fmt: skip


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

    return named(function, name, doc + _ARGS)


_ARGS = """

    Args:
        x: an array.
        axis: an axis; None flattens the array first.
        dtype: the dtype of the result, to which the elements are converted first.
        out: an array to write the result into.
    """

cumsum = _running("cumsum", p.cumsum_p, "Returns the running sums along an axis.")
cumprod = _running("cumprod", p.cumprod_p, "Returns the running products along an axis.")


def _extremum(name: str, primitive: Function, doc: str) -> Function:
    def function(x: Any, axis: Any = None) -> Any:
        x, axis = _along(name, as_array(x), axis)
        return primitive(x, axis=axis, reverse=False)

    return named(function, name, doc)


cummax = _extremum("cummax", p.cummax_p, "Returns the running maxima along an axis.")
cummin = _extremum("cummin", p.cummin_p, "Returns the running minima along an axis.")


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


def _skipping(name: str, running: Function, identity: int, doc: str) -> Function:
    def function(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = as_array(x)
        return running(where(isnan(x), identity, x), axis, dtype, out)

    return named(function, name, doc + _ARGS)


nancumsum = _skipping("nancumsum", cumsum, 0, "Returns running sums in which NaN counts as 0.")
nancumprod = _skipping(
    "nancumprod", cumprod, 1, "Returns running products in which NaN counts as 1."
)
