"""Operators, methods and properties of tensors, attached from tables when imported.

A method is the function of `ftrans.numpy` by that name, with PyTorch's names of arguments, `dim`
and `keepdim`; where PyTorch's means something else than NumPy's it is written out here. Each
elementwise method has a twin with an underscore that writes its result to the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import jax
import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.graph_members import GraphMembers
from ftrans.autograd.short import binary, composite, taken, unary
from ftrans.autograd.tape import recorded, settle
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.value_members import ValueMembers
from ftrans.autograd.view_members import ViewMembers
from ftrans.autograd.views import assign, old_of, over, view
from ftrans.errors import DTypeError, MissingAttributeError, UnsupportedError
from ftrans.ir import Tracer
from ftrans.ir.stack import state
from ftrans.numpy.advice import of_tensors
from ftrans.numpy.inplace import SIGNS
from ftrans.numpy.methods import CASTS, COMPARISONS, OPERATORS, cast, entries, named
from ftrans.numpy.numbers import whole
from ftrans.numpy.of_type import OfType
from ftrans.numpy.torch_derived import Derived
from ftrans.numpy.torch_functions import ELEMENTWISE, OTHERS, along
from ftrans.numpy.torch_kinds import is_dtype
from ftrans.numpy.torch_methods import Functions, Views, function_of
from ftrans.numpy.torch_spelling import names_of, spelled
from ftrans.numpy.ufunc import direct
from ftrans.runtime.device import Device, placed
from ftrans.traceback import boundary, shorten

Function = Callable[..., Any]

_TWO = frozenset({"mul", "multiply", "div", "divide", "true_divide"})
"""Methods of two tensors that are one primitive each."""


def _in_place(name: str, method: Function, is_operator: bool = False) -> Function:
    """Makes the method that writes to a tensor what another one returns, or the operator."""

    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self) is Tracer:
            return getattr(self, name)(*args, **kwargs)
        try:
            new = method(self, *args, **kwargs)
            if new is NotImplemented and is_operator:
                return new
            return assign(name, self, _found(name, new, *args))
        except Exception as error:
            shorten(error)
            raise

    return named(written, name, f"Writes the result of `{name.rstrip('_')}` to the tensor.")


_INVERSES = {
    "conj": fnp.conj,
    "view_as_real": Views.view_as_complex,
    "view_as_complex": Views.view_as_real,
}


def _viewing(name: str, make: Function) -> Function:
    """Makes a method that returns a view; `make` takes a value of the tensor and arguments."""
    names, inverse = names_of(make), _INVERSES.get(name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "conj" and self._type.dtype.kind != "c":
            return self
        args = whole(args)
        kwargs = kwargs and {names.get(key, key): whole(x) for key, x in kwargs.items()}
        get: Any = named(lambda x: make(x, *args, **kwargs), name, None)
        if inverse is not None:
            get.inverse = inverse
        return view(self, get, (make, args, *kwargs.items()))

    return boundary(named(method, name, make.__doc__))


def _extreme(name: str, indices: Function, of_two: Function) -> Function:
    """Makes `max` or `min`: of all elements, of two tensors, or along a dimension."""
    of_all, of_dim = getattr(fnp, name), named(partial(along, indices), name, None)

    def method(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return taken(of_all, (self,))
        if type(dim) is not int:
            return taken(of_two, (self, dim))
        return taken(of_dim, (self, dim, keepdim))

    return named(method, name, f"Returns the {name} of all elements, or along a dimension.")


# ----------------------------------------------------------------------------------- written out


def _lies_on(x: Any, device: Any) -> bool:
    if isinstance(device, jax.Device):
        held = settle(x)
        return isinstance(held, jax.Array) and held.devices() == {device}
    wanted, own = Device(device), x.device
    return wanted.type == own.type and (wanted.index or 0) == (own.index or 0)


def _moved(x: Any, device: Any) -> Any:
    if x.requires_grad:
        raise UnsupportedError(
            f"to: a tensor that requires grad stays on its device.\n  x: {x._type} on {x.device}\n"
            f"  Create it there: torch.tensor(data, device={device!r:.60}, requires_grad=True)."
        )
    array = settle(x)
    if isinstance(device, str) and Device(device).type == "cpu":
        return of_array(np.array(array))
    return of_array(placed(array, device))


class _Members:
    """Has the methods that do more than to compute a value, and says what to write for others."""

    max = _extreme("max", fnp.argmax, fnp.maximum)
    min = _extreme("min", fnp.argmin, fnp.minimum)

    def allclose(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        """Tells whether all elements are equal up to rounding, as a boolean of Python's."""
        return recorded(fnp.allclose, self, other, *args, **kwargs).item()

    def equal(self: Any, other: Any) -> Any:
        """Tells whether shapes and all elements are equal, as a boolean of Python's."""
        return recorded(fnp.array_equal, self, other).item()

    def to(self: Any, *target: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        """Converts to a dtype, moves to a device, or makes it like another tensor.

        Args:
            *target: a dtype, a device, both, or a tensor.
            dtype: the dtype.
            device: the device, as for `ftrans.set_default_device`.
            **options: PyTorch's `copy`, of which one means `clone`, and others without effect here.

        Raises:
            UnsupportedError: where a tensor with a history is to move to another device.
        """
        for given in target:
            if type(given) is Tensor:
                dtype, device = given.dtype, given.device
            elif isinstance(given, (str, jax.Device)) and not is_dtype(given):
                device = given
            elif given is not None and type(given) is not bool:
                dtype = given
        x = self
        if dtype is not None and np.dtype(dtype) != x.dtype:
            x = taken(fnp.astype, (x, np.dtype(dtype)))
        if device is not None and not _lies_on(x, device):
            x = _moved(x, device)
        return x.clone() if options.get("copy") and x is self else x

    astype = type_as = to

    def cuda(self: Any, device: Any = "cuda") -> Any:
        """Moves to a GPU."""
        return self.to(Device("cuda", device) if isinstance(device, int) else device)

    def copy_(self: Any, source: Any) -> Any:
        """Writes another tensor to this one, broadcast to its shape; gradients go to that."""
        shape, dtype = self._type.shape, self._type.dtype

        def copy_(x: Any, *old: Any) -> Any:
            new = fnp.copy(fnp.broadcast_to(fnp.astype(fnp.asarray(x), dtype), shape))
            return over(new, *old) if old else new

        return assign("copy_", self, recorded(copy_, source, *old_of(self)))

    def _written_by(self: Any, name: str, new: Any) -> Any:
        return assign(name, self, new)

    def fill_(self: Any, value: Any) -> Any:
        """Writes one value to all elements."""

        def fill_(x: Any, v: Any, *old: Any) -> Any:
            return over(fnp.full_like(x, v), *old) if old else fnp.full_like(x, v)

        return assign("fill_", self, recorded(fill_, self, value, *old_of(self)))

    def zero_(self: Any) -> Any:
        """Writes zero to all elements."""
        return assign("zero_", self, of_array(np.zeros(self._type.shape, self._type.dtype)))

    def __getattr__(self: Any, name: str) -> Any:
        fix = of_tensors(name, type(self))
        text = f"A tensor has no attribute {name!r}.\n  x: {self._type}"
        raise MissingAttributeError(f"{text}\n  {fix}." if fix else text)


def _found(name: str, result: Any, *args: Any) -> Any:
    """Returns the result of an operator; raises where it does not take its operand."""
    if result is NotImplemented:
        kinds = ", ".join([type(x).__name__ for x in args])
        raise DTypeError(f"{name}: takes a tensor, an array or a number, not {kinds}.")
    return result


def _scaled(name: str, function: Function, depth: int) -> Function:
    """Makes `x.add(y, alpha=a)`, which is `x + a * y`, and the same of `sub`."""
    short = binary(function, depth=depth)
    scaled = named(lambda x, y, alpha: function(x, fnp.multiply(y, alpha)), name, None)

    def method(self: Any, other: Any, *, alpha: Any = None) -> Any:
        if alpha is not None and state.grad and type(other) is Tensor:
            return recorded(scaled, self, other, alpha)
        return _found(name, short(self, other if alpha is None else other * alpha), other)

    return named(method, name, function.__doc__)


def _checked(operator: Function) -> Function:
    """Makes a method of an operator, which takes its operand or raises."""
    name = operator.__name__
    return named(lambda x, y: _found(name, operator(x, y), y), name, operator.__doc__)


def method_of(name: str, function: Function, depth: int = 1) -> Function:
    """Makes a method of a function of the front end."""
    if name in ("add", "sub", "subtract"):
        return _scaled(name, function, depth + 1)
    if direct.get(function) is None:
        return composite(name, function, names_of(function))
    if name in _TWO:
        return _checked(named(binary(function, depth=depth + 1), name, function.__doc__))
    return unary(name, function, depth)


def install() -> None:
    """Gives `Tensor` its operators, methods and properties."""
    functions = vars(fnp)
    for name, target in entries(OPERATORS):
        setattr(Tensor, f"__{name}__", binary(functions[target]))
        setattr(Tensor, f"__r{name}__", binary(functions[target], swap=True))
        if target in SIGNS:
            twin = binary(functions[target], depth=2)
            setattr(Tensor, f"__i{name}__", _in_place(f"{target}_", twin, True))
    for name, target in entries(COMPARISONS):
        setattr(Tensor, f"__{name}__", binary(functions[target]))
    for name, target in (*entries(ELEMENTWISE), *entries(OTHERS)):
        setattr(Tensor, name, method_of(name, function_of(name, target)))
    for method in (Tensor.cholesky, Tensor.inverse):  # type: ignore[attr-defined]
        method.__doc__ = method.__doc__.partition("\n")[0]  # errors are named where functions are
    for name, target in entries(ELEMENTWISE):
        twin = method_of(name, function_of(name, target), 2)
        setattr(Tensor, f"{name}_", _in_place(f"{name}_", twin))
    for name, dtype in entries(CASTS):
        setattr(Tensor, name, boundary(cast(name, dtype)))
    makers = {Functions: method_of, Views: _viewing}
    others = ValueMembers, GraphMembers, ViewMembers, _Members
    for members in (OfType, Derived, Functions, Views, *others):
        make = makers.get(members, lambda name, member: boundary(spelled(member)))
        for name, member in vars(members).items():
            if isinstance(member, FunctionType):
                if member.__qualname__ == f"{members.__name__}.{name}":
                    member.__qualname__ = f"Tensor.{name}"  # which Python's errors name
                setattr(Tensor, name, make(name, member))
            elif isinstance(member, property):
                setattr(Tensor, name, member)
    Tensor.__array_priority__ = 2000  # type: ignore[attr-defined]


install()
