"""NumPy's protocols on traced values: what `np.sin(x)`, `array + x` and `np.asarray(x)` do.

A NumPy function is mapped by its name to ours, so that unmodified NumPy code traces. Conversion to
a plain array is refused where it would cut a gradient silently.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from ftrans.errors import ConcretizationError, MutationError, TracedArrayError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.ir.frame import PAST
from ftrans.ir.location import here
from ftrans.ir.source import Opaque
from ftrans.ir.stack import state
from ftrans.numpy.promotion import as_array, is_array
from ftrans.primitives import reshape_p, stop_gradient_p
from ftrans.runtime.jaxlink import foreign
from ftrans.traceback import boundary

__all__ = ["in_rule", "install", "may_have_gradient"]

_REDUCE = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}

# what Python writes for array += x and its like
_IN_PLACE = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "matmul": "@",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
}

# those of numpy.linalg that mean the same as the function of that name in numpy
_LINALG = {"norm", "matmul", "outer", "tensordot", "vecdot", "matrix_transpose", "multi_dot"}


def install() -> None:
    """Gives `Tracer` NumPy's protocols."""
    for name, member in {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
        "__array_namespace__": array_namespace,
        "__array__": array,
        "__dlpack__": dlpack,
        "__dlpack_device__": dlpack_device,
        "__array_priority__": 1000,
    }.items():
        setattr(Tracer, name, boundary(member) if callable(member) else member)


def array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    """Returns the namespace of the array API: `ftrans.numpy`."""
    from ftrans import numpy as namespace

    return namespace


# ------------------------------------------------------------------------------- NumPy's functions


def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Applies a ufunc of NumPy's or SciPy's by the function of the same name."""
    name = ufunc.__name__
    if method == "__call__" and not kwargs:
        trail: Any = state.trail
        plain = trail is not None and np.ndarray in map(type, inputs)
        if plain and any(type(x) is Tracer and x.frame is trail for x in inputs):
            # as captured values they can be taken over, see `composite`
            inputs = tuple(
                [trail.capture(x) if type(x) is np.ndarray and is_array(x) else x for x in inputs]
            )
        return _ours(ufunc, name)(*inputs)
    target = (kwargs.get("out") or (None,))[0]
    if target is not None and target is inputs[0] and name in _IN_PLACE:
        sign = _IN_PLACE[name]
        raise MutationError(
            f"array {sign}= x: a plain array cannot be overwritten by a traced value.\n"
            f"  array: {type_of(target)}\n  x: {type_of(as_array(inputs[-1]))}\n"
            f"  Write array = array {sign} x instead."
        )
    if method == "__call__":
        return _ours(ufunc, name)(*inputs, **kwargs)
    if method == "outer":
        x, y = map(as_array, inputs)
        shape = type_of(x).shape + (1,) * type_of(y).ndim
        return _ours(ufunc, name)(reshape_p(x, shape=shape), y, **kwargs)
    table = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {})
    if name not in table:
        raise UnsupportedError(
            f"np.{name}.{method}: there is no such function of traced values.\n"
            f"  arguments: {_types(inputs)}{_instead('')}"
        )
    kwargs = {key: value for key, value in kwargs.items() if value is not None or key == "axis"}
    if kwargs.get("out") == (None,):
        del kwargs["out"]
    return _ours(ufunc, table[name])(*inputs, **{"axis": 0, **kwargs})


def array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Applies a function of NumPy's by the function of the same name."""
    if not all(issubclass(t, (Tracer, np.ndarray)) for t in types):
        return NotImplemented
    return _ours(func, func.__name__, args)(*args, **kwargs)


_found: dict[tuple[Any, str], Any] = {}


def _ours(function: Any, name: str, args: Any = ()) -> Any:
    """Returns our function for one of NumPy's; raises where there is none."""
    found = _found.get((function, name))
    if found is None:
        found = _found[function, name] = _find(function, name, args)
    return found


def _find(function: Any, name: str, args: Any) -> Any:
    from ftrans import numpy as namespace

    found = getattr(namespace, name, None) if name in namespace.__all__ else None
    if isinstance(function, np.ufunc):
        homes = [np, sys.modules.get("scipy.special")]
        known = any(getattr(home, function.__name__, None) is function for home in homes if home)
        label = f"np.{name}" if getattr(np, name, None) is function else name
    else:
        module = function.__module__
        known = module == "numpy" or (module == "numpy.linalg" and name in _LINALG)
        label = f"{module.replace('numpy', 'np', 1)}.{name}"
    if found is None or not known:
        raise UnsupportedError(
            f"{label}: there is no such function of traced values.\n"
            f"  arguments: {_types(args)}{_instead(label)}"
        )
    return found


def _types(args: Iterable[Any]) -> str:
    shown = (str(type_of(x)) if is_array(x) else type(x).__name__ for x in args)
    return ", ".join(shown) or "a traced value"


def _instead(label: str) -> str:
    call = f"{label}(np.asarray(x.detach()))" if label else "np.asarray(x.detach())"
    return (
        f"\n  Write it with functions of ftrans.numpy; or, as a constant that no gradient goes\n"
        f"  through, {call}."
    )


# -------------------------------------------------------------------------------- plain arrays


def array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """Returns the value as a NumPy array, where no gradient can be lost by that.

    Raises:
        TracedArrayError: where the value depends on what is being differentiated.
    """
    if in_rule() and may_have_gradient(self):
        raise Opaque
    try:
        value = self.value("np.asarray()")
        if foreign([value]) and in_rule():
            raise Opaque
        value = np.asarray(value)
    except ConcretizationError as error:
        raise Opaque(error) if in_rule() else error from None
    if may_have_gradient(self):
        error = TracedArrayError(
            f"np.asarray: a traced value would become a plain array, which cuts its gradient.\n"
            f"  value: {self.type}, {self.origin}\n"
            f"  converted at {here()}\n"
            f"  Write np.asarray(x.detach()) for a constant, or use ftrans.numpy in the place of\n"
            f"  what needs a plain array."
        )
        raise Opaque(error) if in_rule() else error
    return np.array(value, dtype=dtype)


def dlpack(self: Any, **options: Any) -> Any:
    """Hands the value to another library, as `np.asarray` does."""
    return array(self).__dlpack__(**options)


def dlpack_device(self: Any) -> Any:
    """Says where `dlpack` puts the value."""
    return array(self).__dlpack_device__()


def in_rule() -> bool:
    """Tells whether a method of a custom rule is traced, which may be called on arrays instead."""
    return any(frame.rule for frame in state.stack)


def may_have_gradient(x: Any) -> bool:
    """Tells whether a value depends, other than through `stop_gradient`, on an argument.

    Arguments are the declared inputs of frames; what a frame captured from outside is followed.
    Integers and booleans have no gradient.
    """
    pending, seen = [(x.frame, x.index)], set()
    while pending:
        frame, code = pending.pop()
        if frame.depth == PAST or (id(frame), code) in seen:
            continue
        seen.add((id(frame), code))
        if code < 0:
            if not frame.input_types[~code].is_inexact:
                continue
            if not any(t.index == code for t in frame.captured.values()):
                return True
            source = frame.sources[~code]
            if isinstance(source, Tracer):
                pending.append((source.frame, source.index))
            continue
        equation = frame.produced(code)[0]
        if equation.primitive is stop_gradient_p:
            continue
        if any(t.is_inexact for t in equation.types):
            pending += [(frame, c) for c in equation.operands if type(c) is int]
    return False
