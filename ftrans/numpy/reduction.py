"""Reductions under NumPy's names, and those that run along an axis.

`axis` may be an int, a tuple of ints, or None for all. Sums and products of small integers and of
booleans are taken in the default integer dtype; means of integers in the default dtype.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import AxisError, DTypeError, ShapeError, UnsupportedError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, is_integer, is_unsigned
from ftrans.ir.stack import state
from ftrans.numpy.axes import broadcast_to, canonical_axis, kept, line_of, ones_at, reduced_axes
from ftrans.numpy.elementwise import add, lowest, maximum, minimum, multiply, subtract
from ftrans.numpy.logic import isnan, truth
from ftrans.numpy.logic import where as choose
from ftrans.numpy.promotion import as_array, cast, default_dtype, filled, inexact, is_scalar
from ftrans.numpy.ufunc import Function, named
from ftrans.numpy.views import copied

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cummax", "cummin",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "logcumsumexp", "max", "min",
    "nancumprod", "nancumsum", "prod", "ptp", "sum",
]  # fmt: skip


_MEANINGS = {
    "a": "an array.",
    "x": "an array.",
    "axis": "an axis, several, or None for all.",
    "dtype": "the dtype of the result, to which the elements are converted first.",
    "out": "an array to write the result into.",
    "overwrite_input": "is taken for the sake of NumPy's signature; nothing is overwritten.",
    "keepdims": "whether reduced axes stay, with size 1.",
    "initial": "a value that takes part in the reduction.",
    "where": "a mask of the elements that take part.",
    "mean": "the mean, where it is known already, with the reduced axes of size 1.",
    "ddof": "what is taken off the number of elements that the sum is divided by.",
    "correction": "another name for `ddof`, that of the array API and of PyTorch.",
}
"""What the arguments of reductions mean."""


def described(**meanings: str) -> Callable[[Function], Function]:
    """Makes what adds to a docstring, in front of its example, the arguments of a reduction.

    Args:
        **meanings: of those that differ from the usual ones.
    """

    def describe(function: Function) -> Function:
        known = {**_MEANINGS, **meanings}
        about, example, code = (function.__doc__ or "").partition("    Example:")
        section = "    Args:"
        for name, parameter in inspect.signature(function).parameters.items():
            spelled = str(parameter).partition(":")[0]  # with the asterisks of **options
            section += f"\n        {spelled}: {known[name]}"
        function.__doc__ = f"{about.rstrip()}\n\n{section}\n\n{example}{code}".rstrip()
        return function

    return describe


def _made(function: Function, name: str, doc: str, **meanings: str) -> Function:
    return described(**meanings)(named(function, name, doc))


def accumulated(x: Any, dtype: Any = None) -> Any:
    """Returns an operand in the dtype in which it is added: no integer below the default one.

    What stands for tensors is added in 64 bits, as in PyTorch.
    """
    x = as_array(x)
    if dtype is None:
        dtype, default = type_of(x).dtype, default_dtype(int)
        if state.of_tensors:
            dtype = np.dtype("int64") if dtype.kind in "biu" and dtype.itemsize < 8 else dtype
        elif dtype == np.bool_:
            dtype = default
        elif is_integer(dtype) and dtype.itemsize < default.itemsize:
            dtype = np.dtype(f"u{default.name}") if is_unsigned(dtype) else default
    return cast(x, dtype)


def masked(x: Any, mask: Any, identity: Any) -> Any:
    """Puts the identity of a reduction where the mask is False."""
    if mask is True or mask is None:
        return x
    mask = as_array(mask)
    if type_of(mask).dtype != bool:
        raise DTypeError(
            f"where= takes booleans, as in NumPy.\n  where: {type_of(mask)}\n  Write mask != 0."
        )
    shape = np.broadcast_shapes(type_of(mask).shape, type_of(x).shape)
    mask, x = broadcast_to(mask, shape), broadcast_to(x, shape)
    return p.select_p(mask, x, p.scalar(identity, type_of(x).dtype))


def _reduce(name: str, primitive: Function, x: Any, axis: Any, keepdims: bool) -> Any:
    axes = reduced_axes(name, axis, type_of(x).ndim)
    if not axes:
        return copied(x)
    return kept(primitive(x, axes=axes), type_of(x).shape, axes, keepdims)


def _joined(join: Function, found: Any, initial: Any) -> Any:
    """Joins what was reduced with the number that it is to begin with, if there is one."""
    if initial is None:
        return found
    if np.ndim(initial):
        raise ShapeError(f"initial= is one number.\n  initial: {type_of(as_array(initial))}")
    t = type_of(found)
    if not is_scalar(initial) and t.is_inexact and not is_complex(type_of(initial).dtype):
        initial = cast(as_array(initial), t.dtype)  # which widens nothing, as in NumPy
    return join(found, initial)


def _total(name: str, primitive: Function, join: Function, identity: int, doc: str) -> Function:
    """Makes `sum` or `prod`."""

    def function(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        x = masked(accumulated(a, dtype), where, identity)
        return _joined(join, _reduce(name, primitive, x, axis, keepdims), initial)

    return _made(function, name, doc)


sum = _total("sum", p.sum_p, add, 0, "Adds up elements.")
prod = _total("prod", p.prod_p, multiply, 1, "Multiplies elements; exact also where some are 0.")


def _logical(name: str, primitive: Function, identity: bool, doc: str) -> Function:
    """Makes `any` or `all`."""

    def function(
        a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
    ) -> Any:
        return _reduce(name, primitive, masked(truth(a), where, identity), axis, keepdims)

    return _made(function, name, doc)


any = _logical("any", p.any_p, False, "Tells whether any element is not 0.")
all = _logical("all", p.all_p, True, "Tells whether all elements are not 0.")


@described()
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Counts the elements that are not 0."""
    return sum(truth(a), axis=axis, keepdims=keepdims)


# ------------------------------------------------------------------------------- max and min


def _extremum(name: str, primitive: Function, join: Function, sign: int, doc: str) -> Function:
    """Makes `max` or `min`."""

    def function(
        a: Any,
        axis: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        x = as_array(a)
        worst = lowest(type_of(x).dtype, sign)
        if initial is None and where is not True:
            raise UnsupportedError(
                f"{name}: where= takes initial= too, the value where no element takes part.\n"
                f"  Write {name}(x, where=mask, initial={worst!r})."
            )
        x = masked(x, where, worst)
        t = type_of(x)
        if initial is not None and not t.size:
            axes = reduced_axes(name, axis, t.ndim)
            x = filled(worst, ones_at(axes, t.shape), t.dtype)
        return _joined(join, _reduce(name, primitive, x, axis, keepdims), initial)

    return _made(function, name, doc)


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


@described()
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Returns the largest element less the smallest."""
    return subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _index_of(name: str, primitive: Function, doc: str) -> Function:
    """Makes `argmax` or `argmin`."""

    def function(a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        x = as_array(a)
        line, place = line_of(name, x, axis)
        shape = type_of(x).shape
        axes = tuple(range(len(shape))) if axis is None else (place,)
        found = cast(primitive(line, axis=place), default_dtype(int))
        return kept(found, shape, axes, keepdims)

    return _made(function, name, doc, axis="an axis; None for the index into all elements as one.")


argmax = _index_of("argmax", p.argmax_p, "Returns the index of the largest element, the first.")
argmin = _index_of("argmin", p.argmin_p, "Returns the index of the smallest element, the first.")


# ---------------------------------------------------------------------------- running along an axis

_ONE_AXIS = "an axis; None flattens the array first."


def _running(name: str, primitive: Function, doc: str, prepare: Function = accumulated) -> Function:
    """Makes a reduction of all that stands before each element, after `prepare(x, dtype)`."""

    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x, axis = line_of(name, prepare(as_array(a), dtype), axis)
        return primitive(x, axis=axis, reverse=False)

    return _made(function, name, doc, axis=_ONE_AXIS)


def _instead_of_nan(value: int) -> Function:
    return lambda x, dtype: accumulated(choose(isnan(x), value, x), dtype)


cumsum = _running("cumsum", p.cumsum_p, "Returns the running sums along an axis.")
cumprod = _running("cumprod", p.cumprod_p, "Returns the running products along an axis.")
cummax = _running("cummax", p.cummax_p, "Returns the running maxima along an axis.", as_array)
cummin = _running("cummin", p.cummin_p, "Returns the running minima along an axis.", as_array)
nancumsum = _running(
    "nancumsum", p.cumsum_p, "Returns running sums in which NaN counts as 0.", _instead_of_nan(0)
)
nancumprod = _running(
    "nancumprod",
    p.cumprod_p,
    "Returns running products in which NaN counts as 1.",
    _instead_of_nan(1),
)


@described(axis=_ONE_AXIS)
def logcumsumexp(x: Any, axis: Any = None) -> Any:
    """Returns the logarithms of the running sums of exp(x), without overflow."""
    x, axis = line_of("logcumsumexp", inexact(x), axis)
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
        total = running(x, axis, dtype)
        if not include_initial:
            return total
        t = type_of(total)
        return p.concatenate_p(filled(start, ones_at((axis,), t.shape), t.dtype), total, axis=axis)

    return _made(
        function,
        name,
        doc,
        axis="the axis, which a vector need not name.",
        include_initial=f"whether a {start} stands in front.",
    )


cumulative_sum = _array_api(
    "cumulative_sum", cumsum, 0, "Returns the running sums, after a 0 with `include_initial`."
)
cumulative_prod = _array_api(
    "cumulative_prod", cumprod, 1, "Returns the running products, after a 1 with `include_initial`."
)
