"""Writing in place, as NumPy does it: `x += v`, `x.fill(v)`, `x.sort()`, `np.copyto`, `np.add.at`.

On a traced value each of these gives the value a new version, which its other names and its views
see. Scalars, such as `x[0]` of a vector, are no arrays: `+=` gives the name another one, unless
they stand for tensors.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, DTypeError, MutationError, ShapeError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex
from ftrans.ir.stack import state
from ftrans.numpy.axes import broadcast_to, flattened
from ftrans.numpy.elementwise import imag, real
from ftrans.numpy.indexing import assign, at, may_convert, setitem
from ftrans.numpy.promotion import as_array, cast, is_array
from ftrans.numpy.reduction import cumsum
from ftrans.numpy.sorting import partition as partitioned
from ftrans.numpy.sorting import sort as sorted_
from ftrans.numpy.taking import getitem, integers, within
from ftrans.numpy.taking import put_along_axis as with_put_along_axis
from ftrans.numpy.ufunc import Function, direct, operator_of, take_pair_over
from ftrans.numpy.views import become_view, detached, memories
from ftrans.numpy.views import is_array as can_change
from ftrans.primitives import reshape_p, scalar, select_p
from ftrans.traceback import shorten

__all__ = ["copyto", "fill_diagonal", "place", "put", "putmask"]

RENAMED = ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
"""Methods of PyTorch's that return views, with a twin that has the value be that."""

SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "matmul": "@", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip
"""What Python writes for the functions that have an operator `x += v`."""


def in_place_of(function: Function, sign: str) -> Function:
    """Makes the operator `x += v` of `add`, and so on; the short way is spelled out in it."""
    primitive, operator = direct.get(function), operator_of(function)
    name, instead = f"x {sign}= v", f"x = x {sign} v"

    @functools.wraps(function)
    def in_place(self: Any, other: Any) -> Any:
        try:
            frame, kind, t = self.frame, type(other), self.type
            if frame is state.trail and t.is_inexact and not self.weak and id(self) not in memories:
                partner = None
                if kind is Tracer:
                    if other.frame is frame and not other.weak and other.type.is_inexact:
                        if primitive is not None and other.type is t:
                            partner = other.index
                        elif t.shape:
                            new = take_pair_over(frame, function, self, other)
                            assign(name, self, new, instead)
                            return self
                elif primitive is not None and (kind is float or kind is int):
                    partner = scalar(other, t.dtype)
                if partner is not None:
                    if t.shape or state.of_tensors:  # no frame further in can have captured it
                        self.index = frame.take(primitive, self.index, partner).index
                        return self
                    if self.index >= 0:  # what is passed may be an array of rank zero
                        return frame.take(primitive, self.index, partner)
            result = operator(self, other)
            if result is NotImplemented or not can_change(self):
                return result
            assign(name, self, result, instead)
            return self
        except Exception as error:
            shorten(error)
            raise

    return in_place


# ------------------------------------------------------------------------------------- methods


def fill(self: Any, value: Any) -> None:
    """Sets all elements to a value."""
    setitem(self, ..., value)


def sort(self: Any, axis: int = -1, kind: str | None = None, *, stable: bool = True) -> None:
    """Sorts in place, as `ftrans.numpy.sort` does in a copy."""
    assign("x.sort()", self, sorted_(self, axis, kind, stable=stable), "x = ftrans.numpy.sort(x)")


def set_real(self: Any, value: Any) -> None:
    """Sets the real part."""
    setitem(real(self), ..., value)


def set_imag(self: Any, value: Any) -> None:
    """Sets the imaginary part."""
    if not is_complex(self.type.dtype):
        raise DTypeError(f"x.imag = v: x has no imaginary part to set.\n  x: {self.type}")
    setitem(imag(self), ..., value)


def data_of(self: Any) -> Any:
    """Returns what stands for a tensor without its derivatives, in the same memory."""
    if state.of_tensors:
        return detached(self)
    return Tracer.__getattr__(self, "data")  # type: ignore[attr-defined]  # which raises


def set_data(self: Any, value: Any) -> None:
    """Gives what stands for a tensor another value, and leaves its derivatives."""
    setitem(data_of(self), ..., value)


def partition(self: Any, kth: Any, axis: int = -1, kind: str = "introselect") -> None:
    """Partitions in place, as `ftrans.numpy.partition` does in a copy."""
    new = partitioned(self, kth, axis)
    assign("x.partition()", self, new, "x = ftrans.numpy.partition(x, kth)")


# ----------------------------------------------------------------------------- NumPy's functions


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Copies values into an array, in place.

    Args:
        dst: a traced value, or a NumPy array.
        src: what broadcasts to it.
        casting: which conversions are allowed, as in `numpy.can_cast`.
        where: a mask of the elements that are written.
    """
    target, shape = type_of(dst), type_of(dst).shape
    source = type_of(as_array(src))
    new = _values(src, dst) if may_convert(source.dtype, target.dtype) else as_array(src)
    if casting != "same_kind":
        if casting != "unsafe" and not np.can_cast(source.dtype, target.dtype, casting):
            raise DTypeError(
                f"copyto: the values cannot be converted by the rule {casting!r}.\n"
                f"  dst: {target}\n  src: {source}\n  Write casting='same_kind' or 'unsafe'."
            )
        new = cast(new, target.dtype)
    if where is not True:
        mask = broadcast_to(as_array(where, bool), shape)
        new = select_p(mask, broadcast_to(cast(new, target.dtype), shape), as_array(dst))
    assign("copyto", dst, new, "dst = ftrans.numpy.where(mask, src, dst)", broadcast=True)


def _values(v: Any, x: Any) -> Any:
    """Returns what is written to an array; numbers of Python's take its dtype at once."""
    return as_array(v) if is_array(v) else as_array(v, type_of(x).dtype)


def _resized(values: Any, places: Any) -> Any:
    """Returns the values at places, beginning anew after the last."""
    flat = flattened(values)
    return getitem(flat, places % type_of(flat).size)


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Sets elements, in place, that are counted in the order of rows.

    Args:
        a: a traced value, or a NumPy array.
        ind: the places.
        v: the values; they begin anew where there are fewer of them than places.
        mode: what becomes of a place out of bounds: "raise", "wrap" or "clip"; where `ind` is
            traced, "raise" leaves it out.
    """
    size, places, values = type_of(a).size, flattened(integers("put", ind)), _values(v, a)
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentError(f"put: mode is 'raise', 'wrap' or 'clip', not {mode!r}.")
    if size:
        places = within(places, size, mode)
    if type_of(places).size and type_of(values).size:
        values = _resized(values, np.arange(type_of(places).size))
        new = reshape_p(at(flattened(as_array(a)))[places].set(values), shape=type_of(a).shape)
        assign("put", a, new, "x = ftrans.numpy.at(x)[...].set(v)")


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Sets the elements where a mask holds, in place.

    Args:
        a: a traced value, or a NumPy array.
        mask: of as many elements.
        values: the values, counted in the order of rows as the elements of `a`; they begin anew
            where there are fewer of them.
    """
    t, values = type_of(a), _values(values, a)
    mask = _mask("putmask", a, mask)
    if type_of(values).size:
        _put_where("putmask", a, mask, _resized(values, np.arange(t.size)))


def place(arr: Any, mask: Any, vals: Any) -> None:
    """Sets the elements where a mask holds to one value after the other, in place.

    Args:
        arr: a traced value, or a NumPy array.
        mask: of as many elements.
        vals: the values; they begin anew where there are fewer of them.
    """
    vals, mask = _values(vals, arr), _mask("place", arr, mask)
    if type_of(arr).size:
        if not type_of(vals).size:
            raise ShapeError("place: there is no value to set.\n  vals: it is empty")
        number = cumsum(cast(mask, np.dtype("int32"))) - 1
        _put_where("place", arr, mask, _resized(vals, number))


def _mask(name: str, x: Any, mask: Any) -> Any:
    t, mask = type_of(x), as_array(mask, bool)
    if type_of(mask).size != t.size:
        raise ShapeError(
            f"{name}: mask and array must have the same number of elements.\n"
            f"  array: {t}\n  mask: {type_of(mask)}"
        )
    return flattened(mask)


def _put_where(name: str, x: Any, mask: Any, values: Any) -> None:
    t = type_of(x)
    flat = flattened(as_array(x))
    new = reshape_p(select_p(mask, cast(values, t.dtype), flat), shape=t.shape)
    assign(name, x, new, "x = ftrans.numpy.where(mask, v, x)")


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Sets the elements of the main diagonal, in place.

    Args:
        a: a traced value, or a NumPy array, of two axes or more; of more than two, all of one size.
        val: the values; they begin anew where there are fewer of them.
        wrap: whether the diagonal begins anew below a square, in a tall matrix.
    """
    t = type_of(a)
    if t.ndim < 2 or (t.ndim > 2 and len(set(t.shape)) > 1):
        raise ShapeError(f"fill_diagonal: takes matrices, or more axes of one size.\n  a: {t}")
    step = 1 + int(np.cumprod(t.shape[:0:-1]).sum())
    end = None if wrap or t.ndim > 2 else t.shape[1] ** 2
    put(a, np.arange(t.size)[:end:step], val)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    """Sets elements in place at the places that `take_along_axis` reads, as NumPy's does."""
    new = with_put_along_axis(arr, indices, values, axis)
    assign("put_along_axis", arr, new, "x = ftrans.numpy.put_along_axis(x, indices, values, axis)")


_AT = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide",
    "minimum": "min", "maximum": "max",
}  # fmt: skip


def ufunc_at(name: str, x: Any, index: Any, *value: Any) -> None:
    """Does `np.add.at(x, index, value)`: an element that stands at several indices changes often.

    Raises:
        UnsupportedError: for other ufuncs than those of which `x.at[index]` has the like.
    """
    if name not in _AT:
        raise UnsupportedError(
            f"np.{name}.at: there is no such function of traced values.\n"
            f"  x: {type_of(x)}\n"
            f"  Where no index stands twice, write x[index] = np.{name}(x[index], ...)."
        )
    if not is_array(x):
        raise MutationError(f"np.{name}.at: x must be an array, not of type {type(x).__name__}.")
    new = getattr(at(x)[index], _AT[name])(*value)
    assign(f"np.{name}.at(x, i, v)", x, new, f"x = ftrans.numpy.at(x)[i].{_AT[name]}(v)")


def writing(name: str, function: Function) -> Function:
    """Makes the method by a name that writes what a function of a value returns, and returns it."""

    def written(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not can_change(x):
            return Tracer.__getattr__(x, name)  # type: ignore[attr-defined]  # which raises
        new = function(x, *args, **kwargs)
        if not np.can_cast(type_of(new).dtype, x.dtype, "same_kind"):
            raise DTypeError(
                f"{name}: the result does not fit into the value that it is written to.\n"
                f"  x: {x.type}\n  result: {type_of(new)}"
            )
        x[...] = new
        return x

    return written


def _filled(x: Any, value: Any, *_: Any) -> Any:
    return broadcast_to(as_array(value, x.dtype), x.type.shape)


def _becoming(name: str) -> Function:
    """Makes the method that has a value be the view which another one returns."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        new = getattr(x, name)(*args, **kwargs)
        return x if new is x else become_view(f"{name}_", x, new)

    return method


WRITTEN: dict[str, Function] = {
    **{name: writing(name, of_value) for name, of_value in {
        "copy_": _filled, "fill_": _filled, "zero_": lambda x: _filled(x, 0)
    }.items()},
    **{f"{name}_": _becoming(name) for name in RENAMED},
    "detach": detached,
}  # fmt: skip
"""What methods of PyTorch's write, or share memory, that are the twins of no function."""
