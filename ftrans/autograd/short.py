"""The short way: operators and elementwise methods of tensors that have been recorded before.

As for traced values, to record an operation again is to find its step; here no tracer is made. What
is new, or needs more than that, goes the long way, by `recorded`, and comes to the same step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ftrans.autograd.at_hand import at_once, is_ready
from ftrans.autograd.levels import OPEN
from ftrans.autograd.tape import recorded
from ftrans.autograd.tape import tape as begun
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.values import waiting
from ftrans.config import config
from ftrans.ir import Tracer, make_tracer
from ftrans.ir.leap import maker_of, results_of
from ftrans.ir.location import passed_over, user_frame
from ftrans.ir.stack import state
from ftrans.ir.varying import varied
from ftrans.numpy.calls import add_argument
from ftrans.numpy.methods import named
from ftrans.numpy.promotion import is_array, is_scalar
from ftrans.numpy.ufunc import direct
from ftrans.primitives import scalar
from ftrans.runtime import run_small
from ftrans.traceback import shorten

Function = Callable[..., Any]

_new = object.__new__


def _at_once(primitive: Any, swap: bool, *operands: Any) -> Tensor | None:
    """Computes what is small and at hand, which takes as long as to record it; else None."""
    if state.stack or state.inference or OPEN:
        return None
    t, arrays = operands[0]._type, [x._v if type(x) is Tensor else x.array for x in operands]
    found = run_small(primitive, t, arrays[::-1] if swap else arrays)
    return None if found is None else of_array(found, t if found.dtype == t.dtype else None)


def unary(name: str, function: Function, depth: int = 1) -> Function:
    """Makes a method of one tensor; `depth` says how many frames up the user's code is."""
    primitive = direct.get(function)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            tape = state.tape or begun()
            if not (args or kwargs) and primitive is not None and self._type.is_inexact:
                if self._v is not tape and (not tape.grad or is_ready(tape, self)):
                    now = _at_once(primitive, False, self)
                    if now is not None:
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
                    tensor._edge = tensor._meta = None
                    tape.live.append(tensor)
                    if code > tape.most:
                        tape.flush()
                    return tensor
            return _called(tape, None, function, self, *args, **kwargs)
        except Exception as error:
            if type(self) is Tracer:  # the method as a function, `Tensor.exp(x)`
                return recorded(function, self, *args, **kwargs)
            shorten(error)
            raise

    return named(method, name, function.__doc__)


def composite(name: str, function: Function, names: Mapping[str, str]) -> Function:
    """Makes a method that records several operations: a leap, where it was recorded before.

    Args:
        name: its name.
        function: takes a value of the tensor and the arguments.
        names: those of its keyword arguments that are spelled otherwise.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        return taken(function, (self, *args), kwargs)

    return named(method, name, function.__doc__)


def taken(
    function: Function,
    args: tuple[Any, ...],
    kwargs: Any = None,
    by: tuple[Any, ...] = (),
    instead: Callable[[Any, int], Any] | None = None,
) -> Any:
    """Calls what does no more than to record operations: a leap, where it was recorded before.

    Args:
        function: the function.
        args: its arguments, tensors among them.
        kwargs: those by name.
        by: where the function is made anew at each call, what it is made of: a function, and
            arguments.
        instead: is asked, for the frame of the user's and the number of the tape, what to return
            of what is new; for None that is recorded.
    """
    tape, kwargs = state.tape or begun(), kwargs or {}
    first, call = args[0] if args else None, None
    first = first[0] if type(first) in (list, tuple) and first else first
    try:
        if instead is None and (type(first) is not Tensor or first._v is not tape):
            now = at_once(tape, function, args, kwargs, by)
            if now is not None:
                return now
        user = user_frame(sys._getframe(1))
        if user is not None:
            # names are strings alone, and no argument begins with one
            call = [by[0] if by else function, id(user.f_code), user.f_lasti, len(args), *kwargs]
            for x in (*args, *by[1:], *kwargs.values()):
                kind = type(x)
                if kind is Tensor:  # as `_add` does, spelled out for what is most often given
                    call.append(x._index if tape.grad and x._v is tape else tape.code_of(x))
                elif kind is int:
                    call += (int, x)
                elif not _add(call, tape, x):
                    call = None
                    break
        known = call and tuple(call)
        if instead is not None and known is not None:
            is_known = (known, config.default_dtype) in (tape.step.leaps or ())
            if not is_known and (found := instead(user, tape.serial)) is not None:
                return found
        return _called(tape, known, function, *args, **kwargs)
    except Exception as error:
        shorten(error)
        raise


def _add(call: list[Any], tape: Any, x: Any) -> bool:
    """Does as `add_argument`, and for tensors."""
    kind = type(x)
    if kind is Tensor:
        call.append(x._index if tape.grad and x._v is tape else tape.code_of(x))
        return True
    if kind is tuple or kind is list:
        call += (kind, len(x))
        return all(_add(call, tape, item) for item in x)
    return add_argument(call, tape, x)


def _called(tape: Any, call: Any, function: Function, *args: Any, **kwargs: Any) -> Any:
    """Returns what a function returns: without calling it, where `call` was learnt before."""
    if call is None:
        return recorded(function, *args, **kwargs)
    call = (call, config.default_dtype)
    found = (tape.step.leaps or {}).get(call)
    if found is not None and tape.visits is None and not config.check:
        tape.go(found)
        tensors = [waiting(tape, code, type_) for code, type_, _ in found.results]
        for code, holds in found.checks:
            tape.require(code, holds)
        if tape.step.code > tape.most:
            tape.flush()
        return tensors[0] if found.kind is None else found.kind(tensors)
    mark, given = tape.mark(), [(x, x._v, x._index) for x in args if type(x) is Tensor]
    result = recorded(function, *args, **kwargs)
    results = results_of(result)
    if (
        all(type(x) is Tensor and x._v is tape for x in results)
        and state.tape is tape
        and all(x._v is v and x._index == index for x, v, index in given)  # not written to
    ):
        made, kind = [make_tracer(tape, x._index, x._type) for x in results], maker_of(result)
        tape.learn(mark, call, kind(made) if kind else made[0], (), function.__name__, own=True)
    return result


_KINDS = frozenset({Tensor, float, int, bool, np.ndarray})
"""What does not convert an integer to floating point where it meets a Python number of that."""


def binary(function: Function, swap: bool = False, depth: int = 1) -> Function:
    """Makes the operator that is a function of two.

    Args:
        function: the function.
        swap: whether the tensor is the second operand.
        depth: how many frames up the user's code is.
    """
    primitive = direct.get(function)

    def operator(self: Any, other: Any) -> Any:
        try:
            tape, kind, t = state.tape or begun(), type(other), self._type
            if t.is_inexact:
                met = other._type is t if kind is Tensor else kind is float or kind is int
                if met and primitive is not None:
                    y = other if kind is Tensor else scalar(other, t.dtype)
                    if self._v is not tape and (not tape.grad or is_ready(tape, self, y)):
                        now = _at_once(primitive, swap, self, y)
                        if now is not None:
                            return now
                    x = self._index if tape.grad and self._v is tape else tape.code_of(self)
                    if kind is Tensor:
                        y = other._index if tape.grad and other._v is tape else tape.code_of(other)
                    user, pair = sys._getframe(depth), (y, x) if swap else (x, y)
                    key = (primitive, None, id(user.f_code), user.f_lasti, *pair)
                    child = tape.step.child
                    if child is None or child.key != key:
                        child = tape.step.find(key) or varied(tape, key)
                    if child is not None and tape.visits is None:
                        tape.step = child
                        tape.steps.append(child)
                        tensor = _new(Tensor)  # as `made` does, where most tensors are made
                        tensor._v = tape
                        tensor._index = code = child.code
                        tensor._type = child.type  # type: ignore[assignment]
                        tensor._edge = tensor._meta = None
                        tape.live.append(tensor)
                        if code > tape.most:
                            tape.flush()
                        return tensor
            if kind not in _KINDS and isinstance(other, np.generic):
                other = other.item()  # numbers of NumPy's are those of Python, as in PyTorch
                kind = type(other)
            pair, call = (other, self) if swap else (self, other), None
            if self._v is not tape:
                now = at_once(tape, function, pair, {})
                if now is not None:
                    return now
            if t.is_inexact and (kind is Tensor or kind is int) and not swap:
                user = sys._getframe(depth)
                if passed_over.get(user.f_code.co_filename) is False or user_frame(user) is user:
                    x = self._index if tape.grad and self._v is tape else tape.code_of(self)
                    y = other
                    if kind is Tensor:
                        y = other._index if tape.grad and other._v is tape else tape.code_of(other)
                    call = (function, id(user.f_code), user.f_lasti, x, kind, y)
            if call is None and not (kind is Tensor or is_scalar(other) or is_array(other)):
                return NotImplemented
            return _called(tape, call, function, *pair)
        except Exception as error:
            if type(self) is Tracer:
                return recorded(function, *((other, self) if swap else (self, other)))
            shorten(error)
            raise

    return functools.wraps(function)(operator)
