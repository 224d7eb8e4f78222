"""Reductions under NumPy's names: over an axis, several, or all, with `keepdims`, `where`, `initial`.

`axis` may be an int, a tuple of ints, or None for all. Sums and products of small integers and of
booleans are taken in the default integer dtype; means of integers in the default dtype.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, is_inexact, is_integer, is_unsigned
from ftrans.numpy.elementwise import (
    Function,
    divide,
    maximum,
    minimum,
    multiply,
    named,
    real,
    subtract,
)
from ftrans.numpy.logic import truth, where
from ftrans.numpy.promotion import (
    as_array,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    canonical_dtype,
    cast,
    default_dtype,
    inexact,
)
from ftrans.primitives import scalar

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "max",
    "mean",
    "median",
    "min",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]


# --------------------------------------------------------------------------- how they are made


def refuse_out(name: str, out: Any) -> None:
    """Raises where an array to write into is given."""
    if out is not None:
        raise TypeError(
            f"{name}: out= is not supported, since traced values are never overwritten.\n"
            f"  Bind the result to the name instead: y = {name}(...)."
        )


def kept(x: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    """Gives a reduced operand axes of size 1 in the place of those that were reduced."""
    if not keepdims or not axes:
        return x
    return p.reshape_p(x, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


def accumulating_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype in which values are added: no integer narrower than the default one."""
    default = default_dtype(int)
    if dtype == bool:
        return default
    if is_integer(dtype) and dtype.itemsize < default.itemsize:
        return np.dtype(f"u{default.name}") if is_unsigned(dtype) else default
    return dtype


def _masked(name: str, x: Any, mask: Any, identity: Any) -> Any:
    """Puts the identity of a reduction where the mask is False."""
    if mask is True or mask is None:
        return x
    shape = np.broadcast_shapes(type_of(as_array(mask)).shape, type_of(x).shape)
    mask, x = broadcast_to(truth(mask), shape), broadcast_to(x, shape)
    return p.select_p(mask, x, scalar(identity, type_of(x).dtype))


def _reduce(x: Any, primitive: Function, axes: tuple[int, ...], keepdims: bool) -> Any:
    if not axes:
        return x
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
        refuse_out(name, out)
        x = as_array(x)
        own = accumulating_dtype(type_of(x).dtype) if dtype is None else canonical_dtype(dtype)
        x = _masked(name, cast(x, own), where, identity)
        axes = canonical_axes(name, axis, type_of(x).ndim)
        total = _reduce(x, primitive, axes, keepdims)
        return total if initial is None else join(total, initial)

    return named(function, name, doc + _REDUCTION_ARGS)


_REDUCTION_ARGS = """

    Args:
        x: an array.
        axis: an axis, several, or None for all.
        dtype: the dtype of the result, to which the elements are converted first.
        out: not supported.
        keepdims: whether reduced axes stay, with size 1.
        initial: a value that takes part in the reduction.
        where: a mask of the elements that take part.
    """

_add: Function = lambda x, y: x + y  # noqa: E731
