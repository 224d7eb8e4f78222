"""The short way: operators and elementwise methods of tensors that have been recorded before.

As for traced values, to record an operation again is to find its step; here no tracer is made. What
is new, or needs more than that, goes the long way, by `recorded`, and comes to the same step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ftrans.autograd.levels import OPEN
from ftrans.autograd.tape import recorded
from ftrans.autograd.tape import tape as begun
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.values import waiting
from ftrans.config import config
from ftrans.ir import make_tracer
from ftrans.ir.location import passed_over
from ftrans.ir.stack import state
from ftrans.numpy.promotion import is_array, is_scalar
from ftrans.numpy.torch_methods import named
from ftrans.numpy.ufunc import direct
from ftrans.primitives import scalar
from ftrans.runtime import run_small
from ftrans.traceback import shorten

Function = Callable[..., Any]

_new = object.__new__


def _at_once(primitive: Any, swap: bool, *operands: Any) -> Tensor | None:
    """Computes what is small under `no_grad`, which takes as long as to record it; else None."""
    if state.stack or state.inference or OPEN:
        return None
    t, arrays = operands[0]._type, [x._v if type(x) is Tensor else x.array for x in operands]
    found = run_small(primitive, t, arrays[::-1] if swap else arrays)
    return None if found is None else of_array(found, t if found.dtype == t.dtype else None)


def unary(name: str, function: Function, depth: int = 1) -> Function:
    """Makes a method of one tensor; `depth` says how many frames up the user's code is."""
    primitive = direct.get(function)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape = state.tape or begun()
        if not (args or kwargs) and primitive is not None and self._type.is_inexact:
            if not tape.grad and (now := _at_once(primitive, False, self)) is not None:
                return now
            index = self._index if tape.grad and self._v is tape else tape.code_of(self)
            user = sys._getframe(depth)
            key = (primitive, None, id(user.f_code), user.f_lasti, index)
            child = tape.step.child
            if child is None or child.key != key:
                child = tape.step.find(key)
            if child is not None and tape.visits is None:
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
        try:
            return _called(tape, None, function, self, *args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return named(method, name, function.__doc__)


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
        if kwargs:
            kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        try:
            return _called(tape, call and tuple(call), function, self, *args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return named(method, name, function.__doc__)


def _called(tape: Any, call: Any, function: Function, *args: Any, **kwargs: Any) -> Any:
    """Returns what a function returns: without calling it, where `call` was learnt before."""
    if call is None:
        return recorded(function, *args, **kwargs)
    call = (call, config.default_dtype)
    found = (tape.step.leaps or {}).get(call)
    if found is not None and tape.visits is None and not config.check:
        steps, code, type_, _ = found
        tape.steps += steps
        tape.step = steps[-1]
        tensor = waiting(tape, code, type_)
        if code > tape.most:
            tape.flush()
        return tensor
    mark = tape.mark()
    result = recorded(function, *args, **kwargs)
    if type(result) is Tensor and result._v is tape and state.tape is tape:
        made = make_tracer(tape, result._index, result._type)
        tape.learn(mark, call, made, (), function.__name__)
    return result


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
            if met and primitive is not None:
                y = other if kind is Tensor else scalar(other, t.dtype)
                if not tape.grad and (now := _at_once(primitive, swap, self, y)) is not None:
                    return now
                x = self._index if tape.grad and self._v is tape else tape.code_of(self)
                if kind is Tensor:
                    y = other._index if tape.grad and other._v is tape else tape.code_of(other)
                user, pair = sys._getframe(depth), (y, x) if swap else (x, y)
                key = (primitive, None, id(user.f_code), user.f_lasti, *pair)
                child = tape.step.child
                if child is None or child.key != key:
                    child = tape.step.find(key)
                if child is not None and tape.visits is None:
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
        call = None
        if t.is_inexact and (kind is Tensor or kind is int) and not swap:
            user = sys._getframe(depth)
            if passed_over.get(user.f_code.co_filename) is False:
                x = self._index if tape.grad and self._v is tape else tape.code_of(self)
                y = other
                if kind is Tensor:
                    y = other._index if tape.grad and other._v is tape else tape.code_of(other)
                call = (function, id(user.f_code), user.f_lasti, x, kind, y)
        if call is None and not (kind is Tensor or is_scalar(other) or is_array(other)):
            return NotImplemented
        try:
            return _called(tape, call, function, *((other, self) if swap else (self, other)))
        except Exception as error:
            shorten(error)
            raise

    return functools.wraps(function)(operator)
