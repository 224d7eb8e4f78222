"""The short way: operators and elementwise methods of tensors that have been recorded before.

As for traced values, to record an operation again is to find its step; here no tracer is made. What
is new, or needs more than that, goes the long way, by `recorded`, and comes to the same step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ftrans.autograd.tape import recorded
from ftrans.autograd.tape import tape as begun
from ftrans.autograd.tensor import Tensor
from ftrans.autograd.values import waiting
from ftrans.config import config
from ftrans.ir import make_tracer
from ftrans.ir.location import passed_over
from ftrans.ir.stack import state
from ftrans.numpy.promotion import is_array, is_scalar
from ftrans.numpy.ufunc import direct
from ftrans.primitives import scalar
from ftrans.traceback import shorten

Function = Callable[..., Any]

_new = object.__new__


def _stepped(tape: Any, key: tuple[Any, ...]) -> Tensor | None:
    """Takes the step with a key, and returns its result; None where there is none."""
    step = tape.step
    child = step.child
    if child is None or child.key != key:
        child = step.find(key)
        if child is None:
            return None
    tape.step = child
    tape.steps.append(child)
    tensor = _new(Tensor)  # as `made` does, spelled out where most tensors are made
    tensor._v = tape
    tensor._index = code = child.code
    tensor._type = child.type  # type: ignore[assignment]
    tensor._meta = None
    tape.live.append(tensor)
    if code > tape.most:
        tape.flush()
    return tensor


def unary(name: str, function: Function, depth: int = 1) -> Function:
    """Makes a method of one tensor; `depth` says how many frames up the user's code is."""
    primitive = direct.get(function)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape = state.tape or begun()
        if not (args or kwargs) and primitive is not None:
            t = self._type
            if t.is_inexact and tape.visits is None:
                index = self._index if tape.grad and self._v is tape else tape.code_of(self)
                user = sys._getframe(depth)
                found = _stepped(tape, (primitive, None, id(user.f_code), user.f_lasti, index))
                if found is not None:
                    return found
        try:
            return recorded(function, self, *args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    method.__name__ = method.__qualname__ = name
    method.__doc__ = function.__doc__
    return method


_PLAIN = frozenset({bool, int, str, type(None)})  # equal ones of one type mean the same


def composite(name: str, function: Function, names: Mapping[str, str], depth: int = 1) -> Function:
    """Makes a method that records several operations: a leap, where it was recorded before.

    Args:
        name: its name.
        function: takes a value of the tensor and the arguments.
        names: those of its keyword arguments that are spelled otherwise.
        depth: how many frames up the user's code is.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape, user = state.tape or begun(), sys._getframe(depth)
        call: list[Any] | None = None
        if passed_over.get(user.f_code.co_filename) is False:
            index = self._index if tape.grad and self._v is tape else tape.code_of(self)
            call = [function, id(user.f_code), user.f_lasti, index, len(args)]
            for x in args if not kwargs else (*args, *kwargs, *kwargs.values()):
                kind = type(x)
                if type(x) is Tensor:
                    call.append(x._index if tape.grad and x._v is tape else tape.code_of(x))
                elif kind in _PLAIN:
                    call += (kind, x)
                elif kind is float:
                    call += (kind, repr(x))  # which tells 0.0 from -0.0, and NaN equals itself
                else:
                    call = None
                    break
        try:
            if call is None:
                if kwargs:
                    kwargs = {names.get(key, key): value for key, value in kwargs.items()}
                return recorded(function, self, *args, **kwargs)
            return taken_over(tape, tuple(call), function, names, self, args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    method.__name__ = method.__qualname__ = name
    method.__doc__ = function.__doc__
    return method


def taken_over(
    tape: Any,
    call: Any,
    function: Function,
    names: Mapping[str, str],
    self: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Returns what a function returns, without calling it where `call` was learnt before."""
    call = (call, config.default_dtype)
    leaps = tape.step.leaps
    found = None if leaps is None else leaps.get(call)
    if found is not None and tape.visits is None and not config.check:
        steps, code, type_, _ = found
        tape.steps += steps
        tape.step = steps[-1]
        tensor = waiting(tape, code, type_)
        if code > tape.most:
            tape.flush()
        return tensor
    mark = tape.mark()
    keywords = {names.get(key, key): value for key, value in kwargs.items()}
    result = recorded(function, self, *args, **keywords)
    if type(result) is Tensor and result._v is tape and state.tape is tape:
        tracer = make_tracer(tape, result._index, result._type)
        tape.learn(mark, call, tracer, (), function.__name__)
    return result


def is_operand(x: Any) -> bool:
    """Tells whether an operator of a tensor takes it."""
    return type(x) is Tensor or is_scalar(x) or is_array(x)


def binary(function: Function, swap: bool = False, depth: int = 1) -> Function:
    """Makes the operator that is a function of two.

    Args:
        function: the function.
        swap: whether the tensor is the second operand.
        depth: how many frames up the user's code is.
    """
    primitive = direct.get(function)

    def operator(self: Any, other: Any) -> Any:
        tape, kind, t = state.tape or begun(), type(other), self._type
        if t.is_inexact:
            met = other._type is t if kind is Tensor else kind is float or kind is int
            if met and primitive is not None and tape.visits is None:
                x = self._index if tape.grad and self._v is tape else tape.code_of(self)
                if kind is Tensor:
                    y = other._index if tape.grad and other._v is tape else tape.code_of(other)
                else:
                    y = scalar(other, t.dtype)
                user = sys._getframe(depth)
                pair = (y, x) if swap else (x, y)
                found = _stepped(tape, (primitive, None, id(user.f_code), user.f_lasti, *pair))
                if found is not None:
                    return found
            if (kind is Tensor or kind is int) and not swap:
                user = sys._getframe(depth)
                if passed_over.get(user.f_code.co_filename) is False:
                    x = self._index if tape.grad and self._v is tape else tape.code_of(self)
                    y = other
                    if kind is Tensor:
                        y = other._index if tape.grad and other._v is tape else tape.code_of(other)
                    call = (function, id(user.f_code), user.f_lasti, x, kind, y)
                    try:
                        return taken_over(tape, call, function, {}, self, (other,), {})
                    except Exception as error:
                        shorten(error)
                        raise
        if not is_operand(other):
            return NotImplemented
        try:
            return recorded(function, other, self) if swap else recorded(function, self, other)
        except Exception as error:
            shorten(error)
            raise

    return functools.wraps(function)(operator)
