"""What is at hand, and has no gradient, is computed at once where it is small.

Indices are NumPy's, since each would make another program; functions have one for their operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.autograd.levels import OPEN
from ftrans.autograd.tape import Tape, settle, tape
from ftrans.autograd.tensor import STALE, Tensor, of_array
from ftrans.ir.stack import state
from ftrans.numpy import ready
from ftrans.numpy.moving import is_moving, read, written
from ftrans.primitives.observe import observing

_NONE = object()


def is_constant(x: Any) -> bool:
    """Tells of what is no more pending whether no gradient goes through it."""
    return x._edge is None and (x._meta is None or not x._meta.leaf)


def is_ready(found: Tape, *operands: Any) -> bool:
    """Tells whether tensors among operands are there, and what is made of them has no gradient."""
    for x in operands:
        if type(x) is Tensor and (
            type(x._v) is not np.ndarray or (found.grad and not is_constant(x))
        ):
            return False
    return ready.may_go_on()


def array_of(x: Tensor) -> np.ndarray | None:
    """Returns the array of a tensor, where nobody minds what is made of it; else None."""
    if not is_constant(x):
        return None
    if state.stack or state.inference or OPEN or observing.by is not None:
        return None
    array = _again(x) if x._v is STALE else x._v
    return array if type(array) is np.ndarray else None


def _again(x: Tensor) -> np.ndarray | None:
    """Returns the array of a view whose base was written to."""
    meta: Any = x._meta
    parent, index = meta.parent, getattr(meta.get, "index", _NONE)
    base = None if parent is None or index is _NONE else array_of(parent)
    found = None if base is None else read(base, index)
    if found is not None:
        x._v = found
    return found


def at_once(
    found: Tape, function: Callable[..., Any], args: Any, kwargs: Any, by: tuple[Any, ...] = ()
) -> Any:
    """Returns what a function returns of what is at hand and small; None where it is recorded.

    The arguments are those of `taken`; `found` is the tape of this thread.
    """
    if state.stack or state.inference or OPEN or not is_ready(found, *args):
        return None
    return ready.at_once(function, args, kwargs, by, _IN_GRAD_MODE if found.grad else _IN_NONE)


_IN_GRAD_MODE = ready.Of(Tensor, lambda x: x._type, array_of, Tape, of_array)
_IN_NONE = _IN_GRAD_MODE._replace(array=lambda x: x._v if type(x._v) is np.ndarray else None)


def element(x: Tensor, index: Any) -> Tensor | None:
    """Reads an index that makes a view; None where that is to be recorded."""
    array = array_of(x)
    found = None if array is None else read(array, index)
    return None if found is None else of_array(found)


def chosen(x: Tensor, index: Any) -> Tensor | None:
    """Reads an index that holds arrays of integers or masks, and numbers; None likewise."""
    array, items = array_of(x), []
    if array is None:
        return None
    for item in index if type(index) is tuple else (index,):
        if type(item) is Tensor and item._type.dtype == bool:
            settle(item)  # how many elements there are depends on it
        value = array_of(item) if type(item) is Tensor else item
        is_array = type(value) is np.ndarray and value.ndim > 0 and value.dtype.kind in "ib"
        if not is_array and type(value) is not int:
            return None
        items.append(value)
    try:
        return of_array(array[tuple(items)])
    except IndexError:
        return None  # the error is that of what is recorded


def with_element(x: Tensor, index: Any, value: Any) -> Tensor | None:
    """Returns a tensor with other elements at such an index; None likewise."""
    array = array_of(x)
    if array is not None and type(value) is Tensor:
        value = array_of(value)
    found = None if array is None or value is None else written(array, index, value)
    return None if found is None else of_array(found, x._type)


def put(base: Tensor, get: Callable[[Any], Any] | None, new: Tensor) -> Tensor | None:
    """Returns a base with other elements at a view that `get` makes; None likewise."""
    index = getattr(get, "index", _NONE)
    if index is _NONE or new.requires_grad or base.requires_grad or state.stack:
        return None
    if is_moving(base._type, None, index, tape().serial):  # or each index makes a program
        settle(base)
        settle(new)
    return with_element(base, index, new)
