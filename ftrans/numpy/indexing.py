"""Reading and writing at indices: `x[i]`, `x[i] = v` on traced values, `x.at[i].add(v)`.

A program has no memory to write to, so each write makes a new value. `x[i] = v` rebinds the traced
value `x` to it, and what shares memory with `x` in NumPy to what it reads there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ftrans import primitives as p
from ftrans.errors import DTypeError, MutationError, ShapeError
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex, is_inexact, is_of_kind
from ftrans.ir.frame import check_alive
from ftrans.ir.program import Params
from ftrans.ir.stack import state
from ftrans.numpy.access import taken, updates, written
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.index_plan import plan_index
from ftrans.numpy.promotion import as_array, cast, filled, is_scalar, result_type
from ftrans.numpy.views import apart, is_place_of, overwrite, view_of
from ftrans.traceback import OnTape

__all__ = ["At", "at", "getitem", "setitem"]


def getitem(x: Any, index: Any) -> Any:
    """Reads `x[index]`, by NumPy's rules.

    Args:
        x: an array.
        index: whole numbers, slices, None, Ellipsis, arrays of integers or booleans, and tuples of
            them. The values of boolean masks must be known while tracing.

    Returns:
        The elements. Where an index that is itself traced is out of bounds, NaN is read (the least
        integer, True), whose gradient is zero.

    Raises:
        IndexError: where an index that is known is out of bounds.

    Example:
        >>> getitem(np.arange(6.0).reshape(2, 3), (1, slice(None, None, -1)))
        array([5., 4., 3.])
    """
    x = as_array(x)
    plan = plan_index(x, index)
    read = taken(x, plan.steps)
    return view_of(x, read) if plan.is_view else apart(read, x)


def pick(x: Any, places: Any, axis: int) -> Any:
    """Reads the places of one axis that an index names."""
    return getitem(x, (*(slice(None),) * axis, places))


# ------------------------------------------------------------------------------------ writing


def _write(name: str, op: str, x: Any, index: Any, value: Any, mode: str | None = None) -> Any:
    """Returns `x` with `value` set, added, ... at an index."""
    value = _as_update(name, op, x, value)
    mask = _whole_mask(x, index)
    if mask is not None:
        rest = type_of(x).shape[type_of(mask).ndim :]
        value = _squeezed(value, len(rest))
        if type_of(value).ndim <= len(rest):
            return _write_masked(op, x, mask, broadcast_to(value, rest))
    plan = plan_index(x, index, mode)
    value = _squeezed(value, len(plan.shape))
    try:
        value = broadcast_to(value, plan.shape)
    except ShapeError:
        raise ShapeError(
            f"{name}: the value does not broadcast to what it is written to.\n"
            f"  x[index]: {type_of(x).update(shape=plan.shape)}\n  value: {type_of(value)}"
        ) from None
    return written(name, x, plan.steps, value, op)


def _whole_mask(x: Any, index: Any) -> Any:
    """Returns the mask where the index is one boolean array for the leading axes, else None."""
    if isinstance(index, tuple) and len(index) == 1:
        (index,) = index
    if not isinstance(index, (Tracer, np.ndarray, jax.Array)):
        return None
    t, shape = type_of(index), type_of(x).shape
    return index if t.dtype == bool and t.ndim > 0 and shape[: t.ndim] == t.shape else None


def _write_masked(op: str, x: Any, mask: Any, value: Any) -> Any:
    """Returns `x` with one value set, added, ... wherever a mask holds; the mask can be batched."""
    shape, ndim = type_of(x).shape, type_of(mask).ndim
    mask = p.broadcast_p(mask, shape=shape, axes=tuple(range(ndim)))
    value = p.broadcast_p(value, shape=shape, axes=tuple(range(ndim, len(shape))))
    if op in ("add", "mul"):
        # elsewhere the neutral element, so that no infinite value can spoil a gradient there
        neutral = p.scalar(0 if op == "add" else 1, type_of(x).dtype)
        return updates[op](x, p.select_p(mask, value, neutral))
    return p.select_p(mask, updates[op](x, value), x)


def _squeezed(value: Any, ndim: int) -> Any:
    """Drops leading axes of size 1 that go beyond `ndim`, as NumPy does when it assigns."""
    shape = type_of(value).shape
    extra = max(len(shape) - ndim, 0)
    if not extra or any(n != 1 for n in shape[:extra]):
        return value
    return p.reshape_p(value, shape=shape[extra:])


def _as_update(name: str, op: str, x: Any, value: Any) -> Any:
    """Returns the value in the dtype of `x`.

    Raises:
        DTypeError: where the conversion would lose the imaginary part, or where arithmetic with a
            fraction is asked of integers.
    """
    t = type_of(x)
    if is_scalar(value) and type(value) is int and t.dtype.kind in "iu":
        return np.asarray(value, t.dtype)  # raises where it does not fit
    new = value if is_scalar(value) else as_array(value)
    common = result_type(new, x)
    if is_complex(common) and not is_complex(t.dtype):
        hint = "x.real, or x = x.astype('complex64') before"
    elif op != "set" and is_inexact(common) and not t.is_inexact:
        hint = "x = x.astype('float32') before"
    else:
        return as_array(new, t.dtype)
    raise DTypeError(
        f"{name}: the value cannot be converted to the dtype of the array.\n"
        f"  x: {t}\n  value: {new if is_scalar(new) else type_of(new)}\n  Write {hint}."
    )


# ----------------------------------------------------------------------- writing by assignment


def may_convert(source: np.dtype, target: np.dtype) -> bool:
    """Tells whether a result may be stored in a dtype, by NumPy's casting rule "same_kind".

    What stands for tensors is stored as these are, see `is_of_kind`.
    """
    if is_inexact(target):
        return is_complex(target) or not is_complex(source)
    if state.of_tensors:
        return is_of_kind(source, target)
    return np.can_cast(source, target, "same_kind")


def assign(name: str, x: Any, new: Any, instead: str, *, broadcast: bool = False) -> None:
    """Makes an array hold the result of an operation.

    Args:
        name: names the write, for errors: "x += v".
        x: a traced value, which is rebound; or a NumPy array.
        new: the result.
        instead: what to write where it does not fit, for errors: "x = x + v".
        broadcast: whether the result may broadcast to the shape of `x`.

    Raises:
        ShapeError: where it does not have the shape of `x`.
        DTypeError: where it cannot be stored in the dtype of `x`.
        MutationError: where `x` cannot be written to.
    """
    t, given = type_of(x), type_of(new)
    if given.shape != t.shape:
        try:
            new = broadcast_to(new, t.shape) if broadcast else None
        except ShapeError:
            new = None
        if new is None:
            raise ShapeError(
                f"{name}: the result does not have the shape of the array, which is kept.\n"
                f"  array: {t}\n  result: {given}\n  Write {instead}."
            )
    if given.dtype != t.dtype:
        if not may_convert(given.dtype, t.dtype):
            raise DTypeError(
                f"{name}: the result cannot be stored in the dtype of the array, which is kept.\n"
                f"  array: {t}\n  result: {given}\n  Write {instead}."
            )
        new = cast(new, t.dtype)
    if type(x) is Tracer:
        overwrite(name, x, new)
    elif isinstance(x, np.ndarray) and not isinstance(new, Tracer):
        x[...] = new
    else:
        raise MutationError(
            f"{name}: a plain array cannot hold what is traced, and one of JAX's never changes.\n"
            f"  array: {t}, of type {type(x).__name__}\n  result: {given}\n  Write {instead}."
        )


def setitem(x: Any, index: Any, value: Any) -> None:
    """Does `x[index] = value` on a traced value: `x` denotes the new value from then on.

    All names for the same Python object see the write, and so do its views and what it is a view
    of, as in NumPy. What was computed from `x` before keeps the old value, and so does the array
    that the caller of a transformed function passed for `x`: a write inside the function belongs
    to that call.

    Args:
        x: a traced value.
        index: as for reading.
        value: what broadcasts to `x[index]`; it is converted to the dtype of `x`.

    Raises:
        MutationError: where `x` is a `jax.Array`, which never changes, or shares memory that cannot
            be written to, or is seen outside of the function that is traced.
    """
    if isinstance(x, np.ndarray) and not isinstance(value, Tracer):
        x[index] = value
        return
    if type(x) is not Tracer:
        raise MutationError(
            f"x[...] = v: an array that is not traced cannot take this value.\n"
            f"  x: {type_of(x)}, a {type(x).__name__}\n  v: {type_of(as_array(value))}\n"
            f"  Write x = ftrans.numpy.at(x)[...].set(v) instead."
        )
    if not is_place_of(value, index, x):  # after x[i] += v it is
        check_alive(x)
        overwrite("x[...] = v", x, _write("x[...] = v", "set", x, index, value))


# ------------------------------------------------------------------------------------- x.at[i]


class At:
    """Writes at indices without changing the array: `at(x)[i].add(v)` is a new array.

    Args:
        x: an array; a traced value has it as `x.at`.

    Example:
        >>> at(np.arange(3.0))[0].set(7.0)
        array([7., 1., 2.])
    """

    __slots__ = ("_array",)

    def __init__(self, x: Any):
        self._array = x if type(x) in OnTape.types else as_array(x)

    def __getitem__(self, index: Any) -> _Place:
        """Returns the place `x[index]`, whose methods make new arrays."""
        return _Place(self._array, index)

    def __repr__(self) -> str:
        return f"At({type_of(self._array)})"


at = At


def _writes(name: str, op: str, doc: str) -> Callable[..., Any]:
    def method(self: _Place, value: Any, *, mode: str | None = None) -> Any:
        new = _write(f"x.at[...].{name}", op, self._array, self._index, value, mode)
        return apart(new, self._array, value)

    method.__name__, method.__doc__ = name, doc
    return _of_place(method)


def _of_place(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method of `_Place`, whose array may be a tensor; JAX's promises are not needed."""

    @functools.wraps(method)
    def called(self: _Place, *args: Any, **kwargs: Any) -> Any:
        for promise in ("indices_are_sorted", "unique_indices"):
            kwargs.pop(promise, None)

        def again(array: Any, index: Any, args: Any) -> Any:
            return method(_Place(array, index), *args, **kwargs)

        try:
            return method(self, *args, **kwargs)
        except OnTape:
            pass
        return OnTape.call(again, self._array, self._index, args)

    return called


class _Place:
    """Is a place in an array. Every method but `get` returns a new array of the same type.

    Indices that are traced and out of bounds are dropped, those that are known are an error. By
    `mode`, as in JAX, both are dropped, "drop" or "fill", or moved to the nearest place, "clip".
    Where an index holds a place several times, `add`, `mul`, `min` and `max` apply to it several
    times, unlike NumPy's `x[i] += v`.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Any, index: Any):
        self._array = array
        self._index = index

    @_of_place
    def get(self, *, mode: str | None = None, fill_value: Any = None) -> Any:
        """Reads the elements.

        Args:
            mode: as for writing.
            fill_value: a Python scalar, read where an index is out of bounds and is dropped.
        """
        x = self._array
        steps = [
            step._replace(params=Params({**step.params, "fill": fill_value}))
            if step.primitive is p.gather_p
            else step
            for step in plan_index(x, self._index, mode).steps
        ]
        return apart(taken(x, steps), x)

    set = _writes("set", "set", "Returns the array with the elements replaced.")
    add = _writes("add", "add", "Returns the array with a value added to the elements.")
    multiply = _writes("multiply", "mul", "Returns the array with the elements times a value.")
    mul = multiply
    min = _writes("min", "min", "Returns the array with the smaller of each element and a value.")
    max = _writes("max", "max", "Returns the array with the larger of each element and a value.")

    @_of_place
    def apply(self, function: Callable[[Any], Any], *, mode: str | None = None) -> Any:
        """Returns the array with a function applied to the elements, once each."""
        return self.set(function(self.get(mode=mode)), mode=mode)

    @_of_place
    def power(self, value: Any, *, mode: str | None = None) -> Any:
        """Returns the array with the elements raised to a power, once each."""
        return self.set(self.get(mode=mode) ** value, mode=mode)

    @_of_place
    def subtract(self, value: Any, *, mode: str | None = None) -> Any:
        """Returns the array with a value subtracted from the elements."""
        new = _as_update("x.at[...].subtract", "add", self._array, value)
        return self.add(p.neg_p(new), mode=mode)

    @_of_place
    def divide(self, value: Any, *, mode: str | None = None) -> Any:
        """Returns the array with the elements divided by a value; it must be of floating point."""
        t = type_of(self._array)
        if not t.is_inexact:
            raise DTypeError(
                f"x.at[...].divide: the quotient of integers is no integer.\n  x: {t}\n"
                f"  Write x.astype('float32').at[...].divide(v)."
            )
        ones = filled(1, t.shape, t.dtype)
        return p.div_p(
            self._array, _write("x.at[...].divide", "mul", ones, self._index, value, mode)
        )
