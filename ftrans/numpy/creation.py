"""Creation of arrays under NumPy's names.

Outside of traced functions they are NumPy arrays, or lie on the device that is asked for; inside,
traced values, recorded as the broadcast of a literal or as an index, so that the container of a
result is that of the function's inputs, and a program runs where these lie, whatever `device` says.
What is made from an array, as by `zeros_like`, has the container of that array.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np

from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import Tracer, is_tracing, type_of
from ftrans.numpy.axes import broadcast_to, ones_at
from ftrans.numpy.borrowed import borrow, double
from ftrans.numpy.numbers import scalar_of
from ftrans.numpy.promotion import (
    as_array,
    cast,
    created_dtype,
    default_dtype,
    filled,
    is_array,
    is_scalar,
)
from ftrans.numpy.shaping import broadcast_arrays, expand_dims, ravel, reshape, spread
from ftrans.numpy.views import copied, viewed
from ftrans.primitives import scalar
from ftrans.runtime.device import placed
from ftrans.runtime.jaxlink import to_jax, x64

__all__ = [
    "arange", "array", "asarray", "ascontiguousarray", "astype", "copy", "empty", "empty_like",
    "from_dlpack", "full", "full_like", "geomspace", "indices", "linspace", "logspace", "meshgrid",
    "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip


def made(x: Any, device: Any = None) -> Any:
    """Returns what a creation function gives: a traced value, or an array on a device."""
    if isinstance(x, Tracer):
        return x
    if is_tracing():
        # an equation that simplification drops: it makes the array an input of the program
        return p.convert_p(x, dtype=type_of(x).dtype)
    return placed(x, device)


def owned(x: Any) -> Any:
    """Returns a copy that can be written to, while tracing by traced values too."""
    return copied(made(x) if is_tracing() else x)


def counted(shape: tuple[int, ...], axis: int, dtype: Any = np.int32) -> Any:
    return p.iota_p(shape=shape, dtype=np.dtype(dtype), axis=axis)


def canonical_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Returns a shape as a tuple of Python integers, checked.

    Raises:
        ShapeError: for a negative size.
    """
    try:
        sizes: Any = (operator.index(shape),)
    except TypeError:
        if isinstance(shape, Tracer) and not shape.type.ndim:
            raise  # its value is not known
        sizes = shape
    found = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in found):
        raise ShapeError(f"{name}: a size is negative.\n  shape: {shape}")
    return found


# ---------------------------------------------------------------------------------------- arrays


def asarray(a: Any, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> Any:
    """Returns `x` as an array; an array of NumPy or JAX and a traced value stay what they are.

    Args:
        a: an array, a Python scalar, or nested sequences of them, traced values included.
        dtype: the dtype; None keeps that of arrays, and gives Python numbers the default.
        device: where to put it; None leaves arrays of JAX where they are, and puts all else where
            `ftrans.set_default_device` says, which is in NumPy arrays at first.
        copy: whether the result is an array of its own.

    Example:
        >>> asarray([1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    x = as_array(a, dtype, default_dtype)
    out = made(scalar(a, x.dtype) if is_scalar(a) and is_tracing() else x, device)
    return copied(out) if copy and out is a else out


def array(
    object: Any, dtype: Any = None, *, device: Any = None, copy: bool = True, ndmin: int = 0
) -> Any:
    """Returns values as an array of its own, of at least `ndmin` axes; see `asarray`."""
    x = asarray(object, dtype, device=device, copy=copy)
    shape = type_of(x).shape
    return p.reshape_p(x, shape=(1,) * (ndmin - len(shape)) + shape) if len(shape) < ndmin else x


def copy(a: Any, order: str = "K") -> Any:
    """Returns the same values as another array, which writes to `x` do not reach.

    Args:
        a: an array.
        order: how a plain array lies in memory; how others do is left to XLA.
    """
    x = as_array(a)
    if isinstance(x, np.ndarray) and not is_tracing():
        return x.copy(order)  # type: ignore[arg-type]
    return owned(x)


def ascontiguousarray(a: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Returns `x` as an array in the order of rows; a copy where it lies otherwise."""
    x = asarray(a, dtype, device=device)
    return reshape(ravel(x), type_of(x).shape or (1,))


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Converts an array to a dtype; complex numbers become real by their real part.

    Args:
        x: an array.
        dtype: a dtype; `int`, `float` and `complex` are those of NumPy, of 64, 64 and 128 bits.
        copy: whether an array that has the dtype already is copied.
        device: where to put it; None leaves it where it is.
    """
    operand = as_array(x)
    out = cast(operand, dtype)
    if device is not None:
        out = made(out, device)
    return copied(out) if copy and out is operand else out


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Returns the array that another library holds, by DLPack, where possible without a copy.

    Args:
        x: the array: NumPy's where it lies on the CPU, else one of JAX.
        device: where to put it; None as for `asarray`.
        copy: whether the result is an array of its own.
    """
    if x.__dlpack_device__()[0] == 1 and not isinstance(x, jax.Array):  # 1 is the CPU
        out = np.from_dlpack(x, copy=copy)
    else:
        with x64():
            out = jax.numpy.from_dlpack(x, copy=copy)
    return made(out, device)


# ------------------------------------------------------------------------------------ one value


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Returns an array of one value.

    Args:
        shape: an int, or a tuple of them.
        fill_value: a number or an array that broadcasts, traced or not.
        dtype: the dtype; None takes that of the value.
        device: where to put it, as for `asarray`.
    """
    shape = canonical_shape("full", shape)
    if is_scalar(fill_value):
        own = default_dtype(type(fill_value)) if dtype is None else np.dtype(dtype)
        return made(filled(fill_value, shape, own), device)
    value = owned(broadcast_to(as_array(fill_value, dtype, default_dtype), shape))
    return value if is_array(fill_value) and device is None else made(value, device)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Returns an array of zeros, as `empty` does: nothing here is ever uninitialised.

    Args:
        shape: an int, or a tuple of them.
        dtype: the dtype; None is `ftrans.get_default_dtype()`.
        device: where to put it, as for `asarray`.

    Example:
        >>> zeros(2)
        array([0., 0.], dtype=float32)
    """
    return full(shape, 0.0, dtype, device=device)


empty = zeros


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Returns an array of ones; see `zeros`."""
    return full(shape, 1.0, dtype, device=device)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Any:
    """Returns an array of one value, of the shape and dtype of x.

    Args:
        a: an array.
        fill_value: a number or an array that broadcasts.
        dtype: another dtype.
        shape: another shape.
        device: where to put it; None gives the container that x has.
    """
    operand = as_array(a, None, default_dtype)
    t = type_of(operand)
    dtype = t.dtype if dtype is None else np.dtype(dtype)
    shape = t.shape if shape is None else canonical_shape("full_like", shape)
    if not is_scalar(fill_value):
        out = owned(broadcast_to(as_array(fill_value, dtype), shape))
    else:
        out = filled(fill_value, shape, dtype)
    if device is not None or not is_array(a):
        return made(out, device)
    if isinstance(operand, jax.Array) and isinstance(out, np.ndarray):
        with x64():
            return to_jax(out)
    return out


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Returns zeros of the shape and dtype of x; see `full_like`."""
    return full_like(a, 0, dtype, shape=shape, device=device)


empty_like = zeros_like


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Returns ones of the shape and dtype of x; see `full_like`."""
    return full_like(a, 1, dtype, shape=shape, device=device)


# ---------------------------------------------------------------------------------------- ranges


_WHOLE = np.dtype("int32"), np.dtype("int64")
_SAFE = 1 << 30
"""Integers below this, and what is between them, fit into 32 bits."""


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None
) -> Any:
    """Returns start, start + step, ... up to but without stop.

    Args:
        start: the first number; with one argument the stop, and the start is 0.
        stop: the end.
        step: the step; not 0.
        dtype: the dtype; None is the default, or that of the numbers that are not Python's.
        device: where to put it, as for `asarray`.

    Example:
        >>> arange(3)
        array([0, 1, 2], dtype=int32)
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = (scalar_of(x, "arange()") for x in (start, stop, step))
    own = created_dtype(start, stop, step) if dtype is None else np.dtype(dtype)
    if not step:
        raise ArgumentError("arange: the step is not 0.")
    size = max(math.ceil((stop - start) / step), 0)
    is_plain = own in _WHOLE and {int}.issuperset(map(type, (start, stop, step)))
    if is_plain and max(abs(start), abs(stop)) < _SAFE and not is_tracing():
        return made(np.arange(start, stop, step, dtype=own), device)
    line = counted((size,), 0, own)
    if step != 1:
        line = p.mul_p(line, p.scalar(step, own))
    return made(p.add_p(line, p.scalar(start, own)) if start != 0 else line, device)


def _creating(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives what is made of numbers the default dtype, on the default device."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if not is_scalar(given.get("base", 10.0)):  # each row has its own
            labels = "start", "stop", "base"
            given |= zip(labels, broadcast_arrays(*map(given.get, labels)), strict=True)
            given["base"] = expand_dims(given["base"], given.get("axis", 0))
        device, ends = given.pop("device", None), (given["start"], given["stop"])
        of_numbers = all(map(is_scalar, ends))
        given |= {k: double(given[k]) for k in ("start", "stop") if not is_scalar(given[k])}
        dtype = given.get("dtype")
        if of_numbers and dtype is None:
            dtype = default_dtype(complex if complex in map(type, ends) else float)
        given["dtype"] = None if dtype is None else np.dtype(dtype)
        found = function(**given)
        if device is None and not of_numbers:
            return found
        return tree.tree_map(lambda x: made(x, device), found)

    return called


geomspace, linspace, logspace = map(_creating, borrow(jnp, "geomspace linspace logspace").values())


def meshgrid(*xs: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> Any:
    """Returns the coordinates of a grid, one array per axis.

    Args:
        *xs: the coordinates along each axis, f32[n], f32[m], ...
        indexing: "xy" swaps the first two axes, "ij" does not.
        sparse: whether the other axes have size 1.
        copy: whether the results are arrays of their own; else they are views of `xs`.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}.")
    lines = [as_array(x, None, default_dtype) for x in xs]
    lines = [x if type_of(x).ndim == 1 else ravel(x) for x in lines]
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[:2] = [1, 0]
    sizes = [type_of(lines[axis]).size for axis in axes]
    out = []
    for axis, x in zip(axes, lines, strict=True):
        shape = tuple(n if i == axis else 1 for i, n in enumerate(sizes))
        grid = viewed(x, p.reshape_p, shape=shape)
        grid = grid if sparse else spread(grid, tuple(sizes))
        out.append(copied(grid) if copy else grid)
    return tuple([y if is_array(x) else made(y) for x, y in zip(xs, out, strict=True)])


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """Returns the index of each element of a grid, one array per axis.

    Args:
        dimensions: the shape of the grid.
        dtype: the dtype; None is the default of integers.
        sparse: whether to return a tuple of arrays in which the other axes have size 1.
    """
    shape = canonical_shape("indices", dimensions)
    own = default_dtype(int) if dtype is None else np.dtype(dtype)
    if sparse:
        axes = tuple(range(len(shape)))
        lines = [ones_at(axes[:a] + axes[a + 1 :], shape) for a in axes]
        return tuple(made(counted(line, axis, own)) for axis, line in enumerate(lines))
    if not shape:
        return made(filled(0, (0,), own))
    parts = [counted((1, *shape), axis + 1, own) for axis in range(len(shape))]
    return made(p.concatenate_p(*parts, axis=0))
