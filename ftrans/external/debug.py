"""Looks at values while a program runs: `debug.print` and `debug.callback`, under every transform.

A call is an equation that returns True. The calls of one traced function are chained, and all that
the function returns is tied to the last of them: so they happen in order, and as often as what is
returned is computed.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.external.callee import HostCallee
from ftrans.ir import ArrayType, Tracer
from ftrans.ir.stack import state
from ftrans.numpy.elementwise import stop_gradient
from ftrans.numpy.promotion import is_array
from ftrans.primitives import external_p, scalar
from ftrans.primitives.rules.external import Same
from ftrans.pytree import structure_key
from ftrans.runtime.jaxlink import foreign, is_jax_tracing
from ftrans.runtime.outlived import Ends
from ftrans.traceback import boundary

__all__ = ["callback", "print"]

_DONE = ArrayType((), "bool")
_PLAIN = {bool, int, float, complex, str, type(None)}


@boundary
def callback(callback: Callable[..., Any], *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Calls a function with the values of its arguments, when the program that computes them runs.

    In a function that is traced that is once each time that the function is evaluated: also in a
    loop, at each turn, and once for each example under `vmap`, of which both branches are computed,
    and turns that only others take; a gradient does not call it again. What is not needed is not
    computed, and calls nothing: a loop of whose results none is used, or a function of which a
    gradient is asked for that is a constant.

    Args:
        callback: takes NumPy arrays in the place of arrays; what it returns is dropped, and what it
            raises reaches who runs the program.
        *args: pytrees. What is no array is handed on as it is.
        ordered: calls are in order anyway; taken for the sake of JAX's signature.
        **kwargs: as `args`.

    Raises:
        UnsupportedError: inside of a custom rule.

    Example:
        >>> from ftrans import func
        >>> seen = []
        >>> func.grad(lambda x: (callback(seen.append, 2 * x), x**2)[1])(3.0)
        array(6.)
        >>> seen
        [array(6.)]
    """
    _call(callback, callback, args, kwargs)


@boundary
def print(fmt: str, *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Prints values when the program that computes them runs, as `callback` calls functions.

    Args:
        fmt: as for `str.format`.
        *args: what stands in the fields; arrays, or anything else.
        ordered: lines are in order anyway; taken for the sake of JAX's signature.
        **kwargs: what stands in named fields.

    Raises:
        ArgumentError: where the fields are not those of the arguments.
        UnsupportedError: inside of a custom rule.

    Example:
        >>> import ftrans
        >>> def f(x):
        ...     return ftrans.scan(lambda c, v: (c + v, print("c = {}", c)), 0.0, x)[0]
        >>> f(np.array([1.0, 2.0]))
        c = 0.0
        c = 1.0
        array(3.)
    """
    try:
        fmt.format(*[_Anything()] * len(args), **dict.fromkeys(kwargs, _Anything()))
    except (IndexError, KeyError) as error:
        raise ArgumentError(
            f"debug.print: the text has a field that no argument is for.\n  fmt: {fmt!r}\n  {error}"
        ) from None
    _call(lambda *args, **kwargs: builtins.print(fmt.format(*args, **kwargs)), fmt, args, kwargs)


class _Anything:
    """Stands in a field for what may have no value yet."""

    __getattr__ = __getitem__ = lambda self, _: self

    def __format__(self, spec: str) -> str:
        return ""


def _call(function: Callable[..., Any], key: Any, args: Any, kwargs: Any) -> Any:
    leaves, structure = tree.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if is_array(leaf) or type(leaf) is Tracer]
    arrays = [leaves[i] for i in places]
    leaves = [None if i in places else x for i, x in enumerate(leaves)]

    def called(*found: Any) -> Any:
        full = list(leaves)
        for i, x in zip(places, found, strict=True):
            full[i] = np.asarray(x.value("debug") if type(x) is Tracer else x)
        given, named = structure.unflatten(full)
        function(*given, **named)
        return [np.True_]

    frame = state.stack[-1] if state.stack else None
    if foreign(arrays) or (frame is None and is_jax_tracing()):
        return jax.debug.callback(called, *arrays, ordered=False)
    if frame is None or isinstance(frame, Ends):
        return called(*arrays)
    # two calls that do the same are one step of a trail; equal objects need not do the same
    same = [(type(x), repr(x)) if type(x) in _PLAIN else Same(x) for x in (key, *leaves)]
    same = tuple(same), structure_key(structure, True)
    callee = HostCallee("debug", lambda _, *found: called(*found), [_DONE], key=same)
    operands = list(map(stop_gradient, arrays))
    before = frame.effect
    if before is None:
        before = frame.capture(np.asarray(True)) if not operands else scalar(True, bool)
    (done,) = external_p(before, *operands, callee=callee)
    if not done.frame.ties:
        raise UnsupportedError(
            "debug: a custom rule is kept, and called as often as it is needed: nothing is printed "
            "there.\n  Call debug.print around it, or print what it returns."
        )
    done.frame.effect = done
