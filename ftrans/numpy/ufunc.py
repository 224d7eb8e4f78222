"""How a function under NumPy's name is made of a primitive: `unary` and `binary`.

Operands are unified first, so that shapes broadcast and dtypes promote. A result is weak where all
operands were.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ftrans.errors import UnsupportedError
from ftrans.ir import ArrayType, Tracer, bind, type_of
from ftrans.ir.location import passed_over
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import state
from ftrans.numpy.composite import composite, take_over
from ftrans.numpy.promotion import is_array, is_scalar, is_weak, unify, weakly
from ftrans.primitives import broadcast_p, scalar
from ftrans.primitives.record import Primitive
from ftrans.traceback import OnTape, shorten

Function: TypeAlias = Callable[..., Any]

direct: dict[Function, Primitive | None] = {}
"""Functions that record one equation faster than `composite` would take it over, with what it
applies; they handle their own errors, as `boundary` would."""


def read_options(name: str, options: dict[str, Any]) -> np.dtype | None:
    """Returns the dtype among the keyword arguments of a ufunc, and refuses what has no meaning.

    That is `where` without `out`, which `composite` takes, and all others.
    """
    dtype = options.pop("dtype", None)
    options.pop("out", None)
    if options.pop("where", True) is not True:
        raise UnsupportedError(
            f"{name}: where= without out= is not supported, since it leaves elements unset.\n"
            f"  Choose between values instead: ftrans.numpy.where(mask, {name}(...), other)."
        )
    if options:
        raise UnsupportedError(f"{name}: there is no argument {next(iter(options))!r}.")
    return None if dtype is None else np.dtype(dtype)


def marked(out: Any, *xs: Any) -> Any:
    """Returns a traced result as a weak one where all operands promote weakly."""
    return weakly(out, isinstance(out, Tracer) and all(map(is_weak, xs)))


def named(function: Function, name: str, doc: str) -> Function:
    """Gives a function that a factory made its name, its docstring and the place to find it."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = "ftrans.numpy"
    function.__doc__ = doc
    return function


def unary(
    name: str, primitive: Function, doc: str, *, floats: bool = False, whole: Function | None = None
) -> Function:
    """Makes a function of one array, as `binary` does one of two; `whole` is for booleans too."""
    general = _general(name, primitive, floats, whole, whole)
    single = isinstance(primitive, Primitive)

    def function(x: Any, /, **options: Any) -> Any:
        try:
            if type(x) is Tracer and not options and single and x.type.is_inexact and not x.weak:
                frame: Any = x.frame
                if frame is state.trail:
                    return frame.take(primitive, x.index)
                return bind(primitive, (x,), NO_PARAMS)[0]
            if type(x) not in OnTape.types:
                return general(x, **options)
        except OnTape:
            pass
        except Exception as error:
            shorten(error)
            raise
        return OnTape.leap(function, (x,), options)

    direct[function] = primitive if single else None  # type: ignore[assignment]
    return named(function, name, doc)


def binary(
    name: str,
    primitive: Function,
    doc: str,
    *,
    floats: bool = False,
    booleans: Function | None = None,
    whole: Function | None = None,
) -> Function:
    """Makes a function of two arrays.

    Args:
        name: the name.
        primitive: takes two strict operands, or is a function of arrays.
        doc: the docstring.
        floats: whether integers and booleans are converted to floating point.
        booleans: what is done to booleans instead.
        whole: what is done to integers instead.
    """
    general = _general(name, primitive, floats, booleans, whole)
    single = isinstance(primitive, Primitive)

    def function(x: Any, y: Any, /, **options: Any) -> Any:
        try:
            if single and not options:
                # the short way for most operands: of one type, or a Python number
                trail: Any = state.trail
                if trail is not None and (codes := codes_of(trail, x, y)):
                    return trail.take(primitive, *codes)
                met = _meet(x, y)
                if met is not None:
                    return bind(primitive, met, NO_PARAMS)[0]
            if type(x) not in OnTape.types and type(y) not in OnTape.types:
                return general(x, y, **options)
        except OnTape:
            pass
        except Exception as error:
            shorten(error)
            raise
        return OnTape.leap(function, (x, y), options)

    direct[function] = primitive if single else None  # type: ignore[assignment]
    return named(function, name, doc)


def elementary(name: str, primitive: Function, doc: str) -> Function:
    """Makes a function of one array of floating point."""
    return unary(name, primitive, doc, floats=True)


def composed(make: Function, **options: Any) -> Callable[[Function], Function]:
    """Makes the decorator that hands a function of strict operands to `unary` or `binary`."""
    return lambda function: make(function.__name__, function, function.__doc__, **options)


def _general(name: str, primitive: Function, floats: bool, booleans: Any, whole: Any) -> Function:
    """Makes what does for all operands and options what `unary` and `binary` say."""

    def any_operands(*xs: Any, **options: Any) -> Any:
        dtype = read_options(name, options) if options else None
        try:
            operands = unify(name, *xs, dtype=dtype, to_inexact=floats)
        except OverflowError:
            compares = "comparison" in getattr(primitive, "tags", ())
            if not compares or any(is_array(x) and type_of(x).dtype.itemsize > 4 for x in xs):
                raise
            operands = unify(name, *xs, dtype=np.int64)  # a number that does not fit is compared
        kind = type_of(operands[0]).dtype.kind
        chosen = (booleans if kind == "b" else whole if kind in "iu" else None) or primitive
        if len(operands) == 2 and not isinstance(chosen, Primitive):
            operands = as_strict(*operands)
        return marked(chosen(*operands), *xs)

    any_operands.__name__ = name
    return composite(any_operands)


def codes_of(trail: Any, x: Any, y: Any = None) -> tuple[Any, ...] | None:
    """Returns operands as `Trail.take` takes them, where no more need be done to them."""
    own = type(x) is Tracer and x.frame is trail and not x.weak
    other = type(y) is Tracer and y.frame is trail and not y.weak
    if not own:
        codes = codes_of(trail, y, x) if other and type(x) in (float, int) else None
        return codes and codes[::-1]
    t = x.type
    if not t.is_inexact or (other and y.type is not t):
        return None
    if other:
        return x.index, y.index
    if type(y) is float or type(y) is int:
        return x.index, scalar(y, t.dtype)
    return (x.index,) if y is None else None


def _meet(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Returns operands as they are recorded, where no more need be done than to make a literal."""
    if type(x) is Tracer and x.type.is_inexact and not x.weak:
        partner = _partner(x.type, y)
        return None if partner is None else (x, partner)
    if type(y) is Tracer and y.type.is_inexact and not y.weak:
        partner = _partner(y.type, x)
        return None if partner is None else (partner, y)
    return None


def _partner(t: ArrayType, y: Any) -> Any:
    """Returns `y` as it meets an operand of type `t`; None where that takes more."""
    if type(y) is Tracer:
        return y if y.type is t and not y.weak else None
    if type(y) is float or type(y) is int:
        return scalar(y, t.dtype)
    if type(y) is np.ndarray and y.shape == t.shape and y.dtype == t.dtype:
        return y
    return None


def operator_of(function: Function) -> Function:
    """Makes the operator that is a function of two arrays; the short way is spelled out in it.

    Most of what is traced comes through here.
    """
    primitive = direct.get(function)

    def operator(self: Any, other: Any) -> Any:
        try:
            frame, kind = self.frame, type(other)
            if frame is state.trail and not self.weak and self.type.is_inexact:
                t = self.type
                if kind is Tracer:
                    if other.frame is frame and not other.weak and other.type.is_inexact:
                        if primitive is not None and other.type is t:
                            return frame.take(primitive, self.index, other.index)
                        return take_pair_over(frame, function, self, other)
                elif kind is np.ndarray:
                    if is_array(other):
                        # as a captured value it can be taken over, see `composite`
                        return function(self, frame.capture(other))
                elif primitive is not None and (kind is float or kind is int):
                    return frame.take(primitive, self.index, scalar(other, t.dtype))
            if kind is Tracer or is_operand(other):
                return function(self, other)
            return NotImplemented
        except OnTape:
            return NotImplemented  # which a tensor's own operator knows better
        except Exception as error:
            shorten(error)
            raise

    return functools.wraps(function)(operator)


def take_pair_over(trail: Any, function: Function, x: Tracer, y: Tracer) -> Any:
    """Does for two operands of floating point, by a shorter key, what `composite` does for all."""
    user = sys._getframe(2)
    code = user.f_code
    if passed_over.get(code.co_filename) is not False:
        return function(x, y)
    call = (function, id(code), user.f_lasti, x.index, y.index)
    return take_over(trail, call, x, function, x, y)


def reflected_of(function: Function) -> Function:
    """Makes the operator for an operand on the left that is no traced value."""
    primitive = direct.get(function)

    def operator(self: Any, other: Any) -> Any:
        try:
            frame, kind = self.frame, type(other)
            if frame is state.trail and primitive is not None and not self.weak:
                t = self.type
                if (kind is float or kind is int) and t.is_inexact:
                    return frame.take(primitive, scalar(other, t.dtype), self.index)
            return function(other, self) if is_operand(other) else NotImplemented
        except OnTape:
            return NotImplemented
        except Exception as error:
            shorten(error)
            raise

    return functools.wraps(function)(operator)


def is_operand(x: Any) -> bool:
    """Tells whether an operator takes it."""
    return is_array(x) or is_scalar(x) or isinstance(x, (list, tuple))


def as_strict(x: Any, y: Any) -> tuple[Any, Any]:
    """Fills literals out to arrays, where an operation is made of several primitives."""
    shape = type_of(x).shape if not type_of(x).weak else type_of(y).shape
    filled = [broadcast_p(v, shape=shape, axes=()) if type_of(v).weak else v for v in (x, y)]
    return filled[0], filled[1]
