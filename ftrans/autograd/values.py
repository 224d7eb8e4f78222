"""Values of a tape for tensors, and tensors for values: what goes in and out of the front end."""

from __future__ import annotations

from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.autograd.tensor import Tensor, made, of_array
from ftrans.errors import DTypeError, GraphError, UnsupportedError
from ftrans.ir import ArrayType, Tracer
from ftrans.ir.dtype import is_of_kind
from ftrans.ir.frame import Frame
from ftrans.ir.program import Params
from ftrans.ir.source import Opaque
from ftrans.ir.stack import state
from ftrans.numpy.views import in_rule
from ftrans.primitives import convert_p
from ftrans.pytree import mapped

_ATOMS = frozenset({bool, int, float, str, type(None), slice, Tracer, np.ndarray})


def lowered_to(found: Any, x: Any) -> Any:
    """Returns an argument with values of a tape in the place of tensors."""
    kind = type(x)
    if kind is Tensor:
        return found.tracer_of(x)
    if kind in _ATOMS:
        return x
    return mapped(lambda y: found.tracer_of(y) if type(y) is Tensor else y, x)


def raised_from(found: Any, x: Any, before: int = 0) -> Any:
    """Returns the tensor of a value of a tape, or of an array; what else there is as it is.

    A value that was there before is given a name of its own, `before` being the number of results
    that there were: gradients of tensors that have one value are told apart.
    """
    if type(x) is Tracer:
        if x.frame is not found:
            return x
        index = x.index
        if index < before:
            index = found.record(convert_p, (x,), Params({"dtype": x.type.dtype}))[0].index
        return waiting(found, index, x.type)
    return of_array(x) if isinstance(x, np.ndarray) else x


def check_kept(args: Any, kwargs: Any) -> None:
    """Raises where a tensor would be a constant of a function that is traced once.

    Else what is traced may be differentiated by the tape, which rules are told as they are of JAX.

    Raises:
        UnsupportedError: there.
    """
    x = next((x for x in tree.tree_leaves((args, kwargs)) if type(x) is Tensor), None)
    if x is None:
        return
    if state.grad and state.stack[0] is not state.tape:
        state.by_jax = True
    for frame in state.stack:
        if type(frame) is Frame:
            raise UnsupportedError(
                f"{frame.name}: it closes over a tensor, whose value would be part of its code.\n"
                f"  tensor: {x._type}\n"
                f"  Pass it as an argument, or close over x.detach().numpy()."
            )


def check_outside(call: str, more: str) -> None:
    """Raises a `GraphError` inside of a transform, which says more; rules are called later."""
    if state.stack:
        error = GraphError(f"{call}: it cannot be called inside a transform{more}")
        raise Opaque(error) if in_rule() else error


def written_to(out: Any, found: Any) -> Tensor:
    """Writes a result to a tensor, the `out=` of a function; returns that.

    Raises:
        UnsupportedError: where it is no tensor.
        DTypeError: where the tensor is of a lesser kind, which would lose what is behind the point.
    """
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if type(target) is not Tensor:
        raise UnsupportedError(
            f"out=: what is computed of tensors can only be written to a tensor.\n"
            f"  out: of type {type(target).__name__}\n  Write x = f(...), or x.copy_(f(...))."
        )
    if type(found) is Tensor and not is_of_kind(found.dtype, target.dtype):
        raise DTypeError(
            f"out=: the result does not fit into the tensor that it is written to.\n"
            f"  out: {target._type}\n  result: {found._type}"
        )
    return target.copy_(found)


def waiting(found: Any, index: int, type_: ArrayType) -> Tensor:
    """Returns a new tensor of a value of a tape, which gives it that when it is run."""
    tensor = made(found, index, type_)
    found.live.append(tensor)
    return tensor


def pend(found: Any, x: Tensor, index: int) -> None:
    """Makes a tensor stand for a value of a tape."""
    x._index = index
    x._v = found
    found.live.append(x)


def after_write(found: Any, name: str, x: Any, value: Tracer, result: Any) -> Any:
    """Writes to a tensor what a function has written to its value; returns it among the results."""

    def itself(y: Any) -> Any:
        return x if type(y) is Tensor and y._v is found and y._index == value.index else y

    result = mapped(itself, result)
    x._written_by(name, raised_from(found, value))
    return result
