"""What functions of the front end, and transforms, do that meet a tensor: they run on the tape.

`gradcheck` and `gradgradcheck` run at the values of tensors, for those that require grad.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans import verify
from ftrans.autograd.applied import APPLY, applied
from ftrans.autograd.engine import grad
from ftrans.autograd.forward_ad import dual_level, make_dual, unpack_dual
from ftrans.autograd.hooks import RemovableHandle
from ftrans.autograd.short import binary, taken, unary
from ftrans.autograd.tape import recorded, tape
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.values import check_kept, lowered_to, raised_from
from ftrans.errors import UnsupportedError
from ftrans.ir import Tracer
from ftrans.ir.leap import holds_only
from ftrans.ir.stack import state
from ftrans.numpy.ufunc import direct
from ftrans.pytree import mapped
from ftrans.traceback import OnTape
from ftrans.verify.tensors import Graph, array_of, of_tensors

Function = Callable[..., Any]

_WHOLE = frozenset(
    {Tensor, bool, int, float, str, type(None), np.ndarray, np.float64, np.float32, RemovableHandle}
)


def again(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function anew that has met a tensor.

    Raises:
        UnsupportedError: where the tensor is nowhere among the arguments.
    """
    if not any(type(x) is Tensor for x in tree.tree_leaves((args, kwargs))):
        raise UnsupportedError(
            f"{getattr(function, '__name__', 'a function')}: it meets a tensor that is neither an "
            f"argument of it nor part of one that is a pytree.\n"
            f"  Pass the tensor as an argument, or x.detach().numpy() where no gradient is wanted."
        )
    if state.stack:
        check_kept(args, kwargs)
        found = state.tape or tape()
        lowered = [lowered_to(found, x) for x in args]
        return function(*lowered, **{name: lowered_to(found, x) for name, x in kwargs.items()})
    if function is APPLY:
        return applied(*args, **kwargs)
    return recorded(function, *args, **kwargs)


def leap(function: Function, args: tuple[Any, ...], kwargs: Any, depth: int = 3) -> Any:
    """Does as `again` for a function that does no more than to record operations.

    Args:
        function: the function.
        args: its arguments.
        kwargs: those by name.
        depth: how many frames above a method that is called here the user's code is.
    """
    if state.stack or not (
        Tensor in map(type, args) or any(type(x) is Tensor for x in tree.tree_leaves(args))
    ):
        return again(function, *args, **kwargs)
    if not kwargs and direct.get(function) is not None:
        swap = type(args[0]) is not Tensor
        if not swap or type(args[1]) is Tensor:
            found = _way(function, swap, depth)(*args[::-1] if swap else args)
            if found is not NotImplemented:
                return found
    return taken(function, args, kwargs)


@functools.cache
def _way(function: Function, swap: bool, depth: int) -> Function:
    """Returns the short way of an elementwise function."""
    if function.__code__.co_argcount == 1:
        return unary(function.__name__, function, depth)
    return binary(function, swap, depth)


_wanted = threading.local()
"""Has `arrays` while transforms that close over tensors are to return arrays."""


def wrap(result: Any) -> Any:
    """Returns what a transform returned with tensors in the place of values of the tape."""
    found = state.tape
    if found is None or state.stack or type(result) in _WHOLE or isinstance(result, Iterator):
        return result
    if holds_only(_WHOLE, result):
        return result
    wrapped = mapped(lambda x: raised_from(found, x) if type(x) is Tracer else x, result)
    return mapped(array_of, wrapped) if getattr(_wanted, "arrays", False) else wrapped


def lower(result: Any) -> Any:
    """Returns what a user's function returned with values of the tape in the place of tensors."""
    if type(result) is Tracer or not any(type(x) is Tensor for x in tree.tree_leaves(result)):
        return result
    check_kept((result,), {})
    return lowered_to(state.tape or tape(), result)


@contextmanager
def _as_arrays() -> Iterator[None]:
    before, _wanted.arrays = getattr(_wanted, "arrays", False), True
    try:
        yield
    finally:
        _wanted.arrays = before


_GRAPH = Graph(grad, dual_level, make_dual, unpack_dual, _as_arrays)
gradcheck = of_tensors(verify.gradcheck, _GRAPH)
gradgradcheck = of_tensors(verify.gradgradcheck, _GRAPH)

OnTape.call, OnTape.leap, OnTape.ready, OnTape.of_array = again, leap, (wrap, lower), of_array
OnTape.types.add(Tensor)
