"""Arrays that methods are given which ask for plain ones, and those that they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ftrans.numpy.promotion import as_array, is_array, is_scalar


def distinct(values: Sequence[Any]) -> list[Any]:
    """Returns arrays that cannot be written to, no two of which lie in one place."""
    places: set[int] = set()
    found = []
    for value in values:
        array = plain(value)
        view = np.asarray(array)
        if view.ctypes.data in places:
            array = view = read_only(view.copy())
        places.add(view.ctypes.data)
        found.append(array)
    return found


def plain(array: Any) -> Any:
    """Returns an array as functions get it that are not traced: none that can be written to.

    It is NumPy's, on all roads alike, unless it lies on an accelerator.
    """
    if type(array) is np.ndarray:
        array = array[...]
        array.setflags(False)
        return array
    if isinstance(array, jax.Array) and any(d.platform != "cpu" for d in array.devices()):
        return array
    return read_only(np.asarray(array))


def call_writing(
    call: Any, arrays: list[Any], writes: bool = False
) -> tuple[Any, list[Any], tuple[int, ...]]:
    """Calls a function that may write to its arguments, which are read-only at first.

    Args:
        call: the function, of a list of arrays.
        arrays: the arguments.
        writes: whether it is known to write, and is given copies.

    Returns:
        What it returns, the arrays that it was given, and which of them it wrote to.
    """
    if not writes:
        try:
            return call(arrays), arrays, ()
        except ValueError as error:
            if "read-only" not in str(error):
                raise
    copies = [np.array(x) for x in arrays]
    found = call(copies)
    pairs = enumerate(zip(copies, arrays, strict=True))
    written = tuple(i for i, (x, y) in pairs if not np.array_equal(x, y, equal_nan=_has_nan(x)))
    return found, copies, written


def to_array(value: Any) -> Any:
    """Returns an array of any kind, or a number, as one of NumPy or JAX; of others it is a copy."""
    if is_array(value):
        return value
    if is_scalar(value):
        return as_array(value)
    if isinstance(value, np.ndarray):
        return value.astype(value.dtype.newbyteorder("="))
    if getattr(value, "requires_grad", False) is True:
        value = value.detach()
    if hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    return np.array(value)


def read_only(array: Any) -> Any:
    """Returns a view of an array that cannot be written to."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _has_nan(x: np.ndarray) -> bool:
    return x.dtype.kind in "fc"


def is_same(x: Any, y: Any, exact: bool) -> bool:
    """Tells whether two values are one array, which lies in one place or, at least, is equal."""
    if x is y:
        return True
    if is_scalar(x) or is_scalar(y) or not (is_array(x) and is_array(y)):
        return False
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.ctypes.data == y.ctypes.data and x.strides == y.strides and x.size:
        return True
    return not exact and bool(np.array_equal(x, y, equal_nan=_has_nan(x)))
