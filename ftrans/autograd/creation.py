"""Making tensors of data, arrays and other tensors."""

from __future__ import annotations

from typing import Any

import jax.tree_util as tree
import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.tape import recorded, settle
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.errors import DTypeError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.ir.stack import state, untraced
from ftrans.traceback import boundary


@boundary
def tensor(data: Any, dtype: Any = None, *, requires_grad: bool = False) -> Tensor:
    """Returns a new tensor, a leaf, with a copy of some data.

    Data are an array, a Python scalar, or nested sequences of them. Without a dtype theirs is kept;
    Python's floats take the default. Gradients are accumulated in it if it is to require grad; a
    `DTypeError` is raised where it is not of floating point then.

    Example:
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> (x**2).sum().backward()
        >>> x.grad
        tensor([2., 4.])
    """
    if any(type(leaf) is Tensor for leaf in tree.tree_leaves(data)):
        data = settle(recorded(fnp.array, data).detach())
    with untraced():  # also where something is traced it is an array
        array = fnp.array(data, dtype)
    return leaf(array, requires_grad)


def leaf(array: Any, requires_grad: bool) -> Tensor:
    """Returns the tensor of an array that nobody else will write to, a leaf where it requires grad.

    Raises:
        DTypeError: where it is not of floating point and is to require grad.
    """
    if type(array) is Tracer:
        raise UnsupportedError(
            f"tensor: a value that a transform traces is no tensor.\n"
            f"  x: {array.type} in {array.frame.name}\n"
            f"  Go on with the value; for its gradient write func.grad(f)(x)."
        )
    if requires_grad and not type_of(array).is_inexact:
        raise DTypeError(
            f"tensor: only Tensors of floating point and complex dtype can require gradients.\n"
            f"  dtype: {array.dtype}\n  Pass dtype='float32'."
        )
    made = of_array(array)
    if requires_grad:
        made.requires_grad_()
    if state.inference:
        made._metadata().inference = True
    return made


@boundary
def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """Returns a tensor of some data: itself where it is one, with its history.

    A NumPy array is copied: what is written to it later does not change the tensor.
    """
    if type(data) is Tensor:
        return data if dtype is None else data.to(dtype)
    return tensor(data, dtype)


@boundary
def from_numpy(array: np.ndarray) -> Tensor:
    """Returns a tensor with a copy of a NumPy array.

    PyTorch's shares its memory; here neither sees what is written to the other.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"from_numpy: expected a NumPy array, not {type(array).__name__}.")
    return tensor(array)
