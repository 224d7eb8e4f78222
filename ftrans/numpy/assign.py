"""Giving an array that is there a new value: shape and dtype stay, as NumPy has it for `out=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, MutationError, ShapeError
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex, is_inexact
from ftrans.numpy.promotion import as_array, broadcast_to, cast
from ftrans.numpy.views import overwrite
from ftrans.primitives import select_p


def may_convert(source: np.dtype, target: np.dtype) -> bool:
    """Tells whether a result may be stored in a dtype, by NumPy's casting rule "same_kind"."""
    if is_inexact(target):
        return is_complex(target) or not is_complex(source)
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


def call_with_out(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a function with `out=`, and for a ufunc `where=`; returns what was written to.

    Args:
        function: takes the other arguments.
        args: the positional ones.
        kwargs: the named ones, `out` among them: an array, or a tuple with one for each result.
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
