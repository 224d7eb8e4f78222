"""What a tensor is to Python and to NumPy: its value as a number, an array, a text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import jax
import numpy as np

from ftrans.autograd.creation import leaf
from ftrans.autograd.dispatch import leap
from ftrans.autograd.modes import calling
from ftrans.autograd.tape import recorded, settle
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.errors import ConcretizationError, DTypeError, GraphError, UnsupportedError
from ftrans.ir import Tracer
from ftrans.ir.dtype import is_integer
from ftrans.ir.stack import state, untraced
from ftrans.ir.trail import Trail
from ftrans.numpy import protocols, ready
from ftrans.numpy.methods import named
from ftrans.numpy.torch_methods import MEANT
from ftrans.runtime.device import CPU, Device, device_of, placed

_ARRAYS = frozenset({Tensor, np.ndarray})


def _made_a(number: type) -> Callable[[Any], Any]:
    return lambda self: number(self._only(f"{number.__name__}()"))


def _new(name: str) -> Callable[..., Any]:
    make = MEANT[name]

    def new(
        self: Any, *args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any
    ) -> Any:
        """Returns a tensor that lies where this one does, and has its dtype by default."""
        place = device or (None if self.device.type == "cpu" else self.device)
        with untraced():
            return leaf(placed(make(self, *args, **kwargs), place), requires_grad)

    return named(new, name, new.__doc__)


class ValueMembers:
    """Has what tensors are given that asks for their values, or tells their types."""

    shape, ndim = property(attrgetter("_type.shape")), property(attrgetter("_type.ndim"))
    dtype, nbytes = property(attrgetter("_type.dtype")), property(attrgetter("_type.nbytes"))
    itemsize = property(attrgetter("_type.dtype.itemsize"))

    @property
    def device(self: Any) -> Device:
        """Where it lies; of what is pending, where what it is computed of does."""
        held = self._v.sources if isinstance(self._v, Trail) else [self._v]
        return next((device_of(x) for x in held if isinstance(x, jax.Array)), CPU)

    new_tensor, new_full = _new("new_tensor"), _new("new_full")
    new, new_zeros, new_ones, new_empty = map(_new, ("new", "new_zeros", "new_ones", "new_empty"))

    def __len__(self: Any) -> int:
        if not self._type.ndim:
            raise UnsupportedError(
                f"len(): a tensor of rank zero has no length.\n  x: {self._type}"
            )
        return self._type.shape[0]

    def __contains__(self: Any, value: Any) -> bool:
        return bool((self == value).any())

    def _only(self: Any, what: str) -> Any:
        if self._type.size != 1:
            raise ConcretizationError(
                f"{what}: a tensor of {self._type.size} elements has not one value.\n"
                f"  x: {self._type}\n  Write x.any() or x.all(), or choose an element."
            )
        return ready.looked_at(self._v, settle(self)).item()

    __bool__ = _made_a(bool)
    __int__ = _made_a(int)
    __float__ = _made_a(float)
    __complex__ = _made_a(complex)

    def __index__(self: Any) -> int:
        if not is_integer(self._type.dtype):
            raise DTypeError(f"Only an integer can be an index or a size.\n  x: {self._type}")
        return int(self._only("use as an index or a size"))

    def item(self: Any) -> Any:
        """Returns the only element as a Python scalar."""
        return self._only("item()")

    def tolist(self: Any) -> Any:
        """Returns the elements as nested lists of Python scalars."""
        return ready.looked_at(self._v, settle(self)).tolist()

    def numpy(self: Any, *, force: bool = False) -> Any:
        """Returns the value as a NumPy array that is read-only, since others may have saved it.

        It raises a `GraphError` where the tensor requires grad, since no gradients go through it,
        unless one says `force`, or they are not recorded.
        """
        if state.grad and not force and self.requires_grad and not calling.is_on():
            raise GraphError(
                f"Can't call numpy() on Tensor that requires grad.\n  x: {self._type}\n"
                f"  Use x.detach().numpy() instead."
            )
        array = ready.looked_at(self._v, settle(self)).view()
        array.setflags(write=False)
        return array

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return np.array(array, dtype) if copy or dtype not in (None, array.dtype) else array

    def __dlpack__(self: Any, **options: Any) -> Any:
        """Exports a copy by DLPack: what is written to it does not change the tensor."""
        value = self.numpy() if self.requires_grad else settle(self)  # numpy() refuses
        return value.copy().__dlpack__(**options)

    def __dlpack_device__(self: Any) -> Any:
        return settle(self).__dlpack_device__()

    def __array_ufunc__(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            inputs = tuple([x.item() if isinstance(x, np.generic) else x for x in inputs])
            return leap(protocols.ours(ufunc, ufunc.__name__), inputs, kwargs, 4)
        called = functools.partial(protocols.array_ufunc, None, ufunc, method)
        return recorded(called, *inputs, **kwargs)

    def __array_function__(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is not np.put_along_axis and _ARRAYS.issuperset(types):
            return leap(protocols.ours(func, func.__name__), args, kwargs)
        kinds = tuple({Tracer if t is Tensor else t for t in types})

        def called(*args: Any, **kwargs: Any) -> Any:
            return protocols.array_function(None, func, kinds, args, kwargs)

        called.__name__ = func.__name__
        return recorded(called, *args, **kwargs)

    def __repr__(self: Any) -> str:
        t = self._type
        shown = np.array2string(np.asarray(settle(self)), separator=", ", prefix="tensor(")
        if t.dtype not in (np.float32, np.bool_, np.int64):
            shown += f", dtype={t.dtype}"
        node = self.grad_fn
        if node is not None:
            shown += f", grad_fn=<{node.name()}>"
        elif self.requires_grad:
            shown += ", requires_grad=True"
        return f"tensor({shown})"

    def __format__(self: Any, spec: str) -> str:
        return str(self) if not spec or self._type.ndim else format(self.item(), spec)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        if not self.is_leaf:
            raise GraphError(
                "Only leaves can be pickled or copied deeply; this tensor is the result of an "
                f"operation.\n  x: {self._type}\n  Take x.detach()."
            )
        made_of = np.array(settle(self)), self.requires_grad, self.grad
        return _rebuilt, made_of, vars(self) or None


def _rebuilt(array: np.ndarray, requires_grad: bool, grad: Any) -> Tensor:
    """Makes a leaf of what it was pickled as."""
    tensor = of_array(array).requires_grad_(requires_grad)
    if grad is not None:
        tensor._metadata().grad = grad
    return tensor
