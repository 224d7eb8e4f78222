"""What functions that are not traced are given, and what they return, made arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ftrans.errors import RuleError
from ftrans.ir import ArrayType, Tracer
from ftrans.ir.dtype import is_complex, is_float, is_integer
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import describe, flatten_like, shown


def distinct(values: Sequence[Any]) -> list[Any]:
    """Returns arrays that cannot be written to, no two of which lie in one place."""
    if len(values) == 1:
        return [plain(values[0])]
    places: set[int] = set()
    found = []
    for value in values:
        array = plain(value)
        place = np.asarray(array).ctypes.data
        if place in places:
            array = read_only(np.array(array))
        places.add(place)
        found.append(array)
    return found


def plain(array: Any) -> Any:
    """Returns an array as functions get it that are not traced: none that can be written to.

    It is NumPy's, on all roads alike, unless it lies on an accelerator.
    """
    if type(array) is not np.ndarray:
        if isinstance(array, jax.Array) and any(d.platform != "cpu" for d in array.devices()):
            return array
        array = np.asarray(array)
    return read_only(array)


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
    if hasattr(type(value), "requires_grad") and value.requires_grad is True:
        value = value.detach()
    if hasattr(type(value), "__dlpack__"):
        value = np.from_dlpack(value)
    return np.array(value)


def read_only(array: Any) -> Any:
    """Returns a view of an array that cannot be written to."""
    if not isinstance(array, np.ndarray):
        return array
    view = array[...]
    view.setflags(write=False)
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


# ------------------------------------------------------------------------------ what they return


def results(name: str, found: Any, types: Sequence[ArrayType], shared: bool = False) -> list[Any]:
    """Returns what an external function returned, as arrays of these types.

    NumPy arrays among them share memory with nothing else: what somebody refers to is copied.

    Args:
        name: how errors call the function.
        found: the sequence that it returned.
        types: as declared.
        shared: whether they may share memory, as where they are copied in any case.

    Raises:
        RuleError: where number, shape or dtype is not as declared.
    """
    if len(found) != len(types):
        raise RuleError(
            f"{name}: it returned {_count(len(found))}, and declares {_count(len(types))}.\n"
            f"  declared: {', '.join(map(str, types)) or 'nothing'}\n"
            f"  Return one array for each, or declare what it returns."
        )
    arrays = []
    for i, t in enumerate(types):
        # without a variable, so that the references to a new array can be counted
        if type(found[i]) is np.ndarray and (shared or _references(found, i) == _FRESH):
            array = found[i]
        else:
            array = _array(name, i, found[i], types)
        if array.dtype != t.dtype or array.shape != t.shape:
            raise _unlike(name, i, array, types)
        arrays.append(array)
    return arrays


def leaves_of(name: str, outs: Any, found: Any, what: str = "its result") -> list[Any]:
    """Returns the leaves of what a function returned, which must have the declared structure.

    Raises:
        RuleError: where it has another one.
    """
    leaves = flatten_like(outs, found)
    if leaves is None:
        raise RuleError(
            f"{name}: {what} does not have the structure that it declares.\n"
            f"  declared: {shown(outs)}\n"
            f"  returned: {describe(found)}\n"
            f"  Return a pytree of the same containers, or declare what it returns."
        )
    return leaves


def owned(
    values: Sequence[Any], held: Callable[[], Mapping[int, float]], more: int = 0
) -> list[Any]:
    """Returns results with those arrays copied that somebody else refers to, and may write to.

    Args:
        values: the results, of any kind.
        held: returns, by identity, how many references to an array are known besides that of the
            sequence; asked where there are more than that.
        more: how many references to each there are besides these.
    """
    found, fresh = [], _FRESH + more
    for i in range(len(values)):
        count = _references(values, i) if type(values[i]) is np.ndarray else 0
        if count > fresh and count > fresh + held().get(id(values[i]), 0):
            found.append(_plain(values[i]))
        else:
            found.append(values[i])
    return found


def _references(found: Any, i: int) -> int:
    """Counts the references to a result; one that is a view never looks new."""
    return sys.getrefcount(found[i]) if found[i].base is None else sys.maxsize


_FRESH = _references((np.empty(1),), 0)
"""The references to an array that only the sequence of results refers to."""


def _array(name: str, i: int, value: Any, types: Sequence[ArrayType]) -> Any:
    """Returns one result as an array: a copy, but for those of JAX, which nobody can write to."""
    if isinstance(value, np.ndarray):
        return _plain(value)
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (bool, int, float, complex)):
        return _scalar(name, i, value, types)
    if isinstance(value, Tracer) or not (
        hasattr(type(value), "__dlpack__") or hasattr(value, "__array__")
    ):
        what = (
            f"a traced value, {value.type}" if isinstance(value, Tracer) else type(value).__name__
        )
        raise RuleError(
            f"{name}: {_which(i, types)} is no array.\n  returned: {what}\n"
            f"  declared: {types[i]}\n  Return a NumPy array: np.asarray(x)."
        )
    return _foreign(name, i, value, types)


def _plain(value: np.ndarray) -> np.ndarray:
    """Copies an array, without its subclass; keeps a memory layout that is contiguous."""
    return np.array(value, order="C")


def _foreign(name: str, i: int, value: Any, types: Sequence[ArrayType]) -> Any:
    """Copies an array of another library."""
    t = types[i]
    try:
        if hasattr(type(value), "__dlpack__"):
            try:
                return _plain(np.from_dlpack(value))
            except (BufferError, TypeError, ValueError, RuntimeError):
                if t.dtype.kind != "V" and t.dtype.name != "bfloat16":
                    raise
                # NumPy's own exchange knows no such dtype; that of JAX does
                return np.array(jax.dlpack.from_dlpack(value))
        return _plain(np.asarray(value))
    except Exception as error:
        kind = type(value)
        raise RuleError(
            f"{name}: {_which(i, types)} cannot be made an array.\n"
            f"  returned: {kind.__module__}.{kind.__qualname__}\n  declared: {t}\n"
            f"  reason: {error}\n"
            f"  Return it without a gradient, on the CPU: x.detach().cpu()."
        ) from error


def _scalar(name: str, i: int, value: Any, types: Sequence[ArrayType]) -> Any:
    """Returns a Python scalar in the declared dtype."""
    dtype = types[i].dtype
    fits = (
        dtype.kind == "b"
        if isinstance(value, bool)
        else is_integer(dtype) or is_float(dtype) or is_complex(dtype)
        if isinstance(value, int)
        else is_complex(dtype) or (is_float(dtype) and isinstance(value, float))
    )
    try:
        if fits:
            return np.asarray(value, dtype)
        reason = ""
    except OverflowError as error:
        reason = f"  reason: {error}\n"
    raise RuleError(
        f"{name}: {_which(i, types)} does not fit the dtype that it declares.\n"
        f"  returned: {value!r} ({type(value).__name__})\n  declared: {types[i]}\n{reason}"
        f"  Return an array of this dtype, or declare another one."
    )


def _unlike(name: str, i: int, array: Any, types: Sequence[ArrayType]) -> RuleError:
    """Returns the error for a result of another type."""
    given, t = ArrayType(array.shape, array.dtype), types[i]
    if given.shape != t.shape:
        what, how = "shape", "Return an array of this shape"
        if given.size == t.size:
            how = f"Write x.reshape({t.shape}) if the elements are right"
    else:
        what, how = "dtype", f"Convert it, x.astype({t.dtype.name!r})"
        half = given.dtype.kind == t.dtype.kind and 2 * given.dtype.itemsize == t.dtype.itemsize
        if half and isinstance(array, jax.Array):
            how = "JAX keeps 64 bits after jax.config.update('jax_enable_x64', True). Say so"
    return RuleError(
        f"{name}: {_which(i, types)} does not have the {what} that it declares.\n"
        f"  returned: {given}\n  declared: {t}\n  {how}, or declare {given}."
    )


def _which(i: int, types: Sequence[ArrayType]) -> str:
    return "its result" if len(types) == 1 else f"result {i}"


def _count(number: int) -> str:
    return "one result" if number == 1 else f"{number} results"
