"""Operators, methods and properties of tensors, attached from tables when imported.

A method is the function of `ftrans.numpy` by that name, with PyTorch's names of arguments, `dim`
and `keepdim`; where PyTorch's means something else than NumPy's it is written out here. Each
elementwise method has a twin with an underscore that writes its result to the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature, unwrap
from types import FunctionType
from typing import Any, NamedTuple

import jax
import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.graph_members import GraphMembers
from ftrans.autograd.short import binary, composite, named, unary
from ftrans.autograd.tape import recorded, settle
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.value_members import ValueMembers
from ftrans.autograd.view_members import ViewMembers, Views
from ftrans.autograd.views import assign, view
from ftrans.errors import ArgumentError, DTypeError, MissingAttributeError, UnsupportedError
from ftrans.ir import Tracer
from ftrans.numpy.inplace import SIGNS
from ftrans.numpy.methods import CASTS, COMPARISONS, OPERATORS, cast, entries, sizes_of
from ftrans.numpy.methods import ELEMENTWISE as _OF_VALUES
from ftrans.numpy.ufunc import direct
from ftrans.runtime.device import Device, placed
from ftrans.traceback import boundary, shorten

Function = Callable[..., Any]

# methods with twins that write in place; the function stands behind a colon
ELEMENTWISE = f"""{_OF_VALUES}
    conj_physical:conjugate tril triu cumsum cumprod heaviside sinc
    addcmul addcdiv lerp masked_fill
"""

# methods without a twin
OTHERS = """
    conj conjugate angle softplus silu isnan isinf isfinite isposinf isneginf isclose allclose
    equal:array_equal signbit
    matmul mm:matmul mv:matmul bmm:matmul dot inner outer tensordot trace diag
    sum prod mean amax amin any all argmax argmin ptp count_nonzero
    nansum nanmean logcumsumexp logsumexp softmax log_softmax
    flip roll nonzero argwhere take_along_axis searchsorted tile clone:copy
"""

_TWO = frozenset({"mul", "multiply", "div", "divide", "true_divide"})
"""Methods of two tensors that are one primitive each."""

# what takes `(dim, keepdim)` by position, in the place of what NumPy has there
_REDUCTIONS = "sum prod mean amax amin any all argmax argmin nansum nanmean logsumexp"


_OTHERWISE = {"k": "diagonal", "shift": "shifts"}


def names_of(function: Function) -> dict[str, str]:
    """Returns what PyTorch's names of keyword arguments are called by a function."""
    taken = signature(function).parameters
    axis = "axes" if "axes" in taken else "axis"
    names = {"dim": axis, "dims": axis, "keepdim": "keepdims"}
    names |= {old: new for new, old in _OTHERWISE.items() if new in taken}
    return {name: target for name, target in names.items() if name not in taken}


def _in_place(name: str, method: Function, is_operator: bool = False) -> Function:
    """Makes the method that writes to a tensor what another one returns, or the operator."""

    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            new = method(self, *args, **kwargs)
            if new is NotImplemented and is_operator:
                return new
            return assign(name, self, _found(name, new, *args))
        except Exception as error:
            shorten(error)
            raise

    return named(written, name, f"Writes the result of `{name.rstrip('_')}` to the tensor.")


def _viewing(name: str, make: Function) -> Function:
    """Makes a method that returns a view; `make` takes a value of the tensor and arguments."""
    names = names_of(make)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        return view(self, named(lambda x: make(x, *args, **kwargs), name, None))

    return boundary(named(method, name, make.__doc__))


def _int64(at: Any) -> Any:
    """Returns places, or counts, in PyTorch's dtype of them; NumPy's functions here have int32."""
    return fnp.astype(at, np.int64)


class Extreme(NamedTuple):
    """Is what `max` and `min` return along a dimension, and `sort`."""

    values: Any
    indices: Any


def _extreme(name: str, indices: Function, of_two: Function) -> Function:
    """Makes `max` or `min`: of all elements, of two tensors, or along a dimension."""
    of_all = getattr(fnp, name)

    def along(x: Any, dim: int, keepdim: bool) -> Any:
        if not x.ndim:
            return Extreme(fnp.copy(x), fnp.zeros((), np.int64))
        at = _int64(indices(x, axis=dim, keepdims=True))
        found = Extreme(fnp.take_along_axis(x, at, axis=dim), at)
        return found if keepdim else Extreme(*[fnp.squeeze(y, dim) for y in found])

    def method(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return recorded(of_all, self)
        if type(dim) is not int:
            return recorded(of_two, self, dim)
        return recorded(named(along, name, None), self, dim, keepdim)

    return named(method, name, f"Returns the {name} of all elements, or along a dimension.")


def _spread(function: Function) -> Function:
    """Makes `var` or `std`, which take `(dim, unbiased, keepdim)`, or `(unbiased)` alone."""

    def spread(
        self: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, **options: Any
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        ddof = options.pop("correction", 1) if unbiased is None else int(unbiased)
        return function(self, axis=dim, ddof=ddof, keepdims=keepdim, **options)

    name = function.__name__
    return named(spread, name, f"Is `numpy.{name}`, divided by n - `correction`: 1.")


class Functions:
    """Has the methods that differ from the functions of NumPy by their names, as ones of values."""

    __neg__, __abs__, __invert__ = fnp.negative, fnp.absolute, fnp.invert
    var, std = _spread(fnp.var), _spread(fnp.std)
    where, masked_fill = unwrap(vars(Tracer)["where"]), unwrap(vars(Tracer)["masked_fill"])

    def __round__(self: Any, digits: int | None = None) -> Any:
        return fnp.round(self, digits or 0)

    def div(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
        """Divides; `rounding_mode` "floor" or "trunc" makes quotients whole."""
        if rounding_mode is None:
            return fnp.divide(self, other)
        if rounding_mode not in ("floor", "trunc"):
            raise ArgumentError(
                f"div: there is no rounding mode {rounding_mode!r}.\n  Write 'floor' or 'trunc'."
            )
        floor = fnp.floor_divide(self, other)
        if rounding_mode == "floor":
            return floor
        return fnp.astype(fnp.trunc(fnp.divide(self, other)), floor.dtype)

    def addcmul(self: Any, x: Any, y: Any, *, value: Any = 1) -> Any:
        """Returns `self + value * x * y`."""
        return self + value * x * y

    def addcdiv(self: Any, x: Any, y: Any, *, value: Any = 1) -> Any:
        """Returns `self + value * x / y`."""
        return self + value * x / y

    def lerp(self: Any, end: Any, weight: Any) -> Any:
        """Returns `self + weight * (end - self)`."""
        return self + weight * (end - self)

    def norm(self: Any, p: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
        """Returns the p-norm of all elements, or along dimensions; p is 2 where it is not said."""
        flat = fnp.reshape(self, (-1,)) if dim is None else self
        order = 2 if p in (None, "fro") else p
        found = fnp.vector_norm(flat, axis=dim, ord=order, keepdims=keepdim and dim is not None)
        return fnp.reshape(found, (1,) * self.ndim) if keepdim and dim is None else found

    def tile(self: Any, *sizes: Any, dims: Any = None) -> Any:
        """Repeats the whole tensor along its last dimensions."""
        return fnp.tile(self, tuple(sizes_of(sizes) if dims is None else dims))

    repeat = tile

    def flip(self: Any, *axes: Any, dims: Any = None) -> Any:
        """Reverses the order along dimensions."""
        return fnp.flip(self, tuple(sizes_of(axes) if dims is None else dims))

    def sort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
        """Returns the elements in order along a dimension, and where they were."""
        at = Functions.argsort(self, dim, descending)
        return Extreme(fnp.take_along_axis(self, at, axis=dim), at)

    def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
        """Returns where the elements in order are, along a dimension."""
        return _int64(fnp.argsort(self, axis=dim, stable=True, descending=descending))

    def nonzero(self: Any, *, as_tuple: bool = False) -> Any:
        """Returns where elements are not 0, one per row, or as one tensor per dimension."""
        at = _int64(fnp.argwhere(self))
        return tuple([at[:, i] for i in range(at.shape[1])]) if as_tuple else at

    argwhere = nonzero

    def searchsorted(self: Any, values: Any, *, right: bool = False) -> Any:
        """Returns the places where values are to be put in, so that the order is kept."""
        return _int64(fnp.searchsorted(self, values, side="right" if right else "left"))

    def count_nonzero(self: Any, dim: Any = None) -> Any:
        """Counts the elements that are not 0."""
        return _int64(fnp.count_nonzero(self, dim))

    def nan_to_num(self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
        """Replaces NaN by 0 and infinities by the largest numbers, or by what is given."""
        return fnp.nan_to_num(self, nan=nan or 0.0, posinf=posinf, neginf=neginf)

    def logit(self: Any, eps: float | None = None) -> Any:
        """Returns log(x / (1 - x)), with x held `eps` away from 0 and 1."""
        return fnp.logit(self if eps is None else fnp.clip(self, eps, 1.0 - eps))

    def gather(self: Any, dim: int, index: Any) -> Any:
        """Returns the elements that an index chooses along a dimension."""
        return fnp.take_along_axis(self, index, axis=dim)

    def index_select(self: Any, dim: int, index: Any) -> Any:
        """Returns the parts that an index of rank one chooses along a dimension."""
        return fnp.take(self, index, axis=dim)


# ----------------------------------------------------------------------------------- written out


def _is_dtype(name: Any) -> bool:
    return isinstance(name, str) and (name == "bfloat16" or hasattr(np, name.partition(":")[0]))


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


_INSTEAD = {
    **dict.fromkeys(
        ("stride", "data_ptr", "storage", "storage_offset", "untyped_storage", "layout"),
        "It is not laid out in memory before it is asked for: see x.detach().numpy()",
    ),
    "as_strided": "A value has no strides. Write x[...], x.expand, x.transpose, or x.diagonal",
    "set_": "Write x.data = value",
    "reinforce": "It was removed. Write (-log_prob * reward).sum().backward(), log_prob being the "
    "logarithm of the probability of x",
}
"""What to write in the place of methods of PyTorch's."""


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

    def is_contiguous(self: Any) -> bool:
        """Is true: elements that are asked for lie in order."""
        return True

    def contiguous(self: Any) -> Any:
        """Returns the tensor itself: it says nothing of memory."""
        return self

    __pos__ = contiguous

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
            elif isinstance(given, (str, jax.Device)) and not _is_dtype(given):
                device = given
            elif given is not None and type(given) is not bool:
                dtype = given
        x = self
        if dtype is not None and np.dtype(dtype) != x.dtype:
            x = recorded(fnp.astype, x, np.dtype(dtype))
        if device is not None and not _lies_on(x, device):
            x = _moved(x, device)
        return x.clone() if options.get("copy") and x is self else x

    astype = type_as = to

    def cpu(self: Any) -> Any:
        """Moves to the CPU: the tensor itself, where it lies there."""
        return self.to("cpu")

    def cuda(self: Any, device: Any = "cuda") -> Any:
        """Moves to a GPU."""
        return self.to(Device("cuda", device) if isinstance(device, int) else device)

    def copy_(self: Any, source: Any) -> Any:
        """Writes another tensor to this one, broadcast to its shape; gradients go to that."""
        shape, dtype = self._type.shape, self._type.dtype

        def copy_(x: Any) -> Any:
            return fnp.copy(fnp.broadcast_to(fnp.astype(fnp.asarray(x), dtype), shape))

        return assign("copy_", self, recorded(copy_, source))

    def _written_by(self: Any, name: str, new: Any) -> Any:
        return assign(name, self, new)

    def fill_(self: Any, value: Any) -> Any:
        """Writes one value to all elements."""
        return assign("fill_", self, recorded(lambda x, v: fnp.full_like(x, v), self, value))

    def zero_(self: Any) -> Any:
        """Writes zero to all elements."""
        return assign("zero_", self, of_array(np.zeros(self._type.shape, self._type.dtype)))

    def __getattr__(self: Any, name: str) -> Any:
        fix = "Tensors are dense" if "sparse" in name else _INSTEAD.get(name, "")
        if not fix and hasattr(fnp, name):
            fix = f"Write ftrans.numpy.{name}(x, ...)"
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

    def method(self: Any, other: Any, *, alpha: Any = None) -> Any:
        return _found(name, short(self, other if alpha is None else other * alpha), other)

    return named(method, name, function.__doc__)


def _checked(operator: Function) -> Function:
    """Makes a method of an operator, which takes its operand or raises."""
    name = operator.__name__
    return named(lambda x, y: _found(name, operator(x, y), y), name, operator.__doc__)


def function_of(name: str, target: str) -> Function:
    """Returns the function of values that a method is; reductions take `(x, dim, keepdim)`."""
    function = vars(Functions).get(name) or getattr(fnp, target)
    if name not in _REDUCTIONS.split():
        return function
    places = name.startswith("arg")

    def reduced(input: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        found = function(input, axis=axis, keepdims=keepdims, **options)
        return _int64(found) if places else found

    return named(reduced, name, function.__doc__)


def method_of(name: str, function: Function, depth: int = 1) -> Function:
    """Makes a method of a function of the front end."""
    if name in ("add", "sub", "subtract"):
        return _scaled(name, function, depth + 1)
    if direct.get(function) is None:
        return composite(name, function, names_of(function), depth)
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
    for name, target in entries(ELEMENTWISE):
        twin = method_of(name, function_of(name, target), 2)
        setattr(Tensor, f"{name}_", _in_place(f"{name}_", twin))
    for name, dtype in entries(CASTS):
        setattr(Tensor, name, boundary(cast(name, dtype)))
    makers = {Functions: method_of, Views: _viewing}
    for members in (Functions, Views, ValueMembers, GraphMembers, ViewMembers, _Members):
        make = makers.get(members, lambda name, member: boundary(member))
        for name, member in vars(members).items():
            if isinstance(member, (FunctionType, property)):
                own = make(name, member) if isinstance(member, FunctionType) else member
                setattr(Tensor, name, own)
    Tensor.__array_priority__ = 2000  # type: ignore[attr-defined]


install()
