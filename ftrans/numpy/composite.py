"""Makes a function that records several equations one step of a trace that is taken again.

What such a function records depends on the types of its operands and on its other arguments alone.
So where the same call has been traced at the same point before, all its equations are taken over
at once, and the Python of the function does not run.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from ftrans.config import config
from ftrans.ir import Tracer, type_of
from ftrans.ir.leap import results_of
from ftrans.ir.location import user_place
from ftrans.ir.stack import state
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.calls import add_argument
from ftrans.numpy.indexing import assign
from ftrans.numpy.promotion import as_array, cast
from ftrans.numpy.ready import of_arrays
from ftrans.numpy.views import relation, view_of
from ftrans.primitives import select_p
from ftrans.traceback import OnTape, shorten

Function = Callable[..., Any]


def arguments_of(function: Function) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the names of what a function takes by position, and of what by name alone.

    `inspect.signature` takes longer, which adds up when all functions are wrapped.
    """
    plain = inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))
    if type(plain) is FunctionType and not hasattr(plain, "__signature__"):
        code = plain.__code__
        names, count = code.co_varnames, code.co_argcount
        return names[:count], names[count : count + code.co_kwonlyargcount]
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.kind < p.VAR_POSITIONAL], [
        p.name for p in found if p.kind == p.KEYWORD_ONLY
    ]


def composite(function: Function) -> Function:
    """Wraps a front-end function that has no effect but to record equations, or to make a view.

    Errors leave it without the frames of ftrans, as by `boundary`.
    """
    names, by_name = arguments_of(function)
    compute = _called if "device" in (*names, *by_name) else of_arrays
    place_of_out = names.index("out") if "out" in names else sys.maxsize

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            if len(args) > place_of_out and args[place_of_out] is not None:
                kwargs["out"] = args[place_of_out]
                args = (*args[:place_of_out], None, *args[place_of_out + 1 :])
            if kwargs and kwargs.get("out") is not None:
                return _call_with_out(called, args, kwargs)
            if not OnTape.types.isdisjoint(map(type, args)):
                raise OnTape
            trail: Any = state.trail
            if trail is None:
                return compute(function, args, kwargs)
            call: list[Any] = [function, config.default_dtype]
            first = None
            for x in args:
                kind = type(x)
                if kind is Tracer and x.frame is trail:
                    if first is None:
                        first = x
                    call += (kind, x.index, x.weak)
                elif not add_argument(call, trail, x):
                    return function(*args, **kwargs)
            for name, x in kwargs.items():
                call.append(name)
                if not add_argument(call, trail, x):
                    return function(*args, **kwargs)
            if first is None:
                first = _first_traced(args)
                if first is None:
                    return function(*args, **kwargs)
            call += user_place(sys._getframe(1))
            return take_over(trail, tuple(call), first, function, *args, **kwargs)
        except OnTape:
            pass
        except Exception as error:
            shorten(error)
            raise
        return OnTape.leap(called, args, kwargs)

    called.__wrapped__ = getattr(function, "__wrapped__", function)  # type: ignore[attr-defined]
    return called


def _called(function: Function, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def take_over(
    trail: Any, call: tuple[Any, ...], first: Tracer, function: Function, *args: Any, **kwargs: Any
) -> Any:
    """Returns the result of a function, without calling it where `call` was learnt before.

    That is as for `Trail.leap`; `first` is the traced operand that the result may be a view of.
    """
    found = trail.leap(call)
    if found is not None:
        result, views = found
        for x, view in zip(results_of(result), views, strict=True):
            is_view, in_order, locked = view
            if is_view:
                view_of(first, x, in_order=in_order, locked=locked)
        return result
    mark = trail.mark()
    result = function(*args, **kwargs)
    how = [relation(x, first) for x in results_of(result)]  # without one it may have been written
    trail.learn(mark, call, result, None if None in how else how, function.__name__, own=True)
    return result


def _first_traced(args: Any) -> Tracer | None:
    for x in args:
        kind = type(x)
        if kind is Tracer:
            return x
        if kind is tuple or kind is list:
            found = _first_traced(x)
            if found is not None:
                return found
    return None


def _call_with_out(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a function with `out=`, and for a ufunc `where=`; returns what was written to.

    That is an array, or a tuple with one for each result.
    """
    code, rest = function.__wrapped__.__code__, dict(kwargs)  # type: ignore[attr-defined]
    out, name = rest.pop("out"), function.__name__
    reduces = "axis" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    mask = True if reduces else rest.pop("where", True)
    found = function(*args, **rest)
    results = found if isinstance(found, tuple) else (found,)
    outs = out if isinstance(out, tuple) else (out,)
    for array, result in zip(outs, results, strict=True):
        if array is None:
            continue
        new = as_array(result)
        if mask is not True:
            shape = type_of(array).shape
            new, mask = broadcast_to(new, shape), broadcast_to(as_array(mask, bool), shape)
            new = select_p(mask, new, cast(array, type_of(new).dtype))
        assign(f"{name}(..., out=x)", array, new, f"x = {name}(...)", broadcast=not reduces)
    written = tuple([r if a is None else a for a, r in zip(outs, results, strict=True)])
    return written if isinstance(found, tuple) else written[0]
