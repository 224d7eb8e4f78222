"""Operators, methods and properties of traced values, attached from tables when imported.

A method is the function of the same name with the array in first place. Where PyTorch spells it
otherwise and NumPy says nothing, its spelling works too, and so do `dim` and `keepdim` wherever
`axis` and `keepdims` do: they are other names, no more, so that `x.max(dim=0)` returns the values
alone and `x.var(dim=0)` divides by n, as NumPy does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import (
    ConcretizationError,
    DTypeError,
    LeakedTracerError,
    MissingAttributeError,
    UnsupportedError,
)
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex, is_integer
from ftrans.ir.frame import settled
from ftrans.ir.source import Opaque
from ftrans.numpy import inplace, protocols
from ftrans.numpy.advice import meant
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.inplace import SIGNS, in_place_of
from ftrans.numpy.numbers import number_of, numbers_of, only_element
from ftrans.numpy.promotion import as_array
from ftrans.numpy.ufunc import Function, operator_of, reflected_of
from ftrans.numpy.views import fresh
from ftrans.runtime.device import Device
from ftrans.traceback import boundary

# operators, each the function of the same name, or of the name behind the colon
OPERATORS = """
    add sub:subtract mul:multiply truediv:divide floordiv:floor_divide mod:remainder divmod
    pow:power matmul and:bitwise_and or:bitwise_or xor:bitwise_xor lshift:left_shift
    rshift:right_shift
"""
COMPARISONS = "eq:equal ne:not_equal lt:less le:less_equal gt:greater ge:greater_equal"

# methods, in the same way, of tensors too; of these there are twins, `add_`, that write in place
ELEMENTWISE = f"""
    add sub:subtract subtract mul:multiply multiply div:divide divide true_divide floor_divide
    remainder fmod pow:power float_power neg:negative negative positive square reciprocal
    abs absolute sign sqrt rsqrt exp exp2 expm1 log log2 log10 log1p
    sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh arctanh
    asin acos atan atan2 asinh acosh atanh hypot deg2rad rad2deg
    maximum minimum fmax fmin clip clamp floor ceil trunc round nan_to_num copysign
    logaddexp xlogy erf erfc erfinv lgamma digamma logit sigmoid relu
    logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not
    {COMPARISONS}
"""
_TWINNED = f"""{ELEMENTWISE}
    pow power cbrt isnan isinf isfinite isposinf isneginf isclose signbit heaviside logaddexp2
    equal not_equal less less_equal greater greater_equal conj conjugate angle softplus silu sinc
"""
_METHODS = """
    __getitem__:getitem __setitem__:setitem
    __neg__:negative __pos__:positive __invert__:invert __abs__:absolute
    matmul mm:matmul mv:matmul bmm:matmul dot inner outer tensordot
    ravel swapaxes swapdims:swapaxes moveaxis movedim:moveaxis repeat flipud fliplr
    diagonal diag tril triu trace take take_along_axis nonzero argwhere searchsorted
    allclose array_equal astype copy clone:copy detach:stop_gradient
"""

# those that take an axis, which may be called dim
_AXIS_METHODS = """
    sum prod mean std var max min amax amin any all argmax argmin ptp median count_nonzero
    nansum nanmean nanmedian cumsum cumprod cummax cummin logcumsumexp
    logsumexp softmax log_softmax norm argsort flip roll squeeze unsqueeze:expand_dims
"""

# methods that convert to a dtype, under PyTorch's names
CASTS = """
    float:float32 double:float64 half:float16 bfloat16 int:int32 long:int64 short:int16 bool
    cfloat:complex64 cdouble:complex128
"""


def entries(table: str) -> Iterator[tuple[str, str]]:
    """Yields the names of a table, each with that of its function."""
    for entry in table.split():
        name, _, target = entry.partition(":")
        yield name, target or name


_TWINS = {f"{name}_": target for name, target in entries(_TWINNED)}


def install() -> None:
    """Gives `Tracer` its operators, methods and properties, once `ftrans.numpy` is complete."""
    protocols.give_methods()
    functions = vars(fnp)
    for name, target in entries(OPERATORS):
        function = functions[target]
        setattr(Tracer, f"__{name}__", operator_of(function))
        setattr(Tracer, f"__r{name}__", reflected_of(function))
        if target in SIGNS:
            setattr(Tracer, f"__i{name}__", in_place_of(function, SIGNS[target]))
    for name, target in entries(COMPARISONS):
        setattr(Tracer, f"__{name}__", operator_of(functions[target]))
    Tracer.__array_priority__ = 1000  # type: ignore[attr-defined]
    # functions handle their errors themselves
    for name, target in entries(_TWINNED + _METHODS):
        setattr(Tracer, name, functions[target])
    own = {name: _axis_method(functions[target]) for name, target in entries(_AXIS_METHODS)}
    own |= {name: cast(name, dtype) for name, dtype in entries(CASTS)}
    for name, member in {**own, **vars(_Members)}.items():
        if isinstance(member, FunctionType):
            member.__qualname__ = name  # which Python's errors say
            setattr(Tracer, name, boundary(member))
        elif isinstance(member, property):
            setattr(Tracer, name, member)


# --------------------------------------------------------------------------- made from functions


def _axis_method(function: Function) -> Function:
    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return function(self, *args)
        for torch_name, name in (("dim", "axis"), ("dims", "axis"), ("keepdim", "keepdims")):
            if torch_name in kwargs:
                if name in kwargs:
                    raise UnsupportedError(
                        f"{function.__name__}: {torch_name}= and {name}= are one argument."
                    )
                kwargs[name] = kwargs.pop(torch_name)
        return function(self, *args, **kwargs)

    return method


def named(function: Function, name: str, doc: str | None) -> Function:
    """Gives a function a name and a docstring; returns it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def cast(name: str, dtype: str) -> Function:
    """Makes the method that converts to a dtype."""
    return named(lambda self: self.astype(dtype), name, f"Converts to {dtype}.")


# --------------------------------------------------------------------------------- written out


def _shown(x: Any, show: Callable[[np.ndarray], str]) -> str:
    """Shows the value where there is one, else the type and what traces it."""
    try:
        array = np.asarray(x.value("printing"))
    except ConcretizationError:
        return f"Traced({x.type} in {x.frame.name})"
    except LeakedTracerError:
        return f"Traced({x.type} of {x.frame.name}, which has returned)"
    return show(array)


def sizes_of(given: tuple[Any, ...]) -> Any:
    """Returns `(2, 3)` for both x.reshape(2, 3) and x.reshape((2, 3))."""
    return given[0] if len(given) == 1 and np.ndim(given[0]) else given


def merged(shape: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    """Returns a shape, not empty, whose axes from one to another are one axis."""
    first, last = [canonical_axis("flatten", axis, len(shape)) for axis in (start, end)]
    return (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


_INSTEAD = {
    "backward": "ftrans.func.grad(f)(x)",
    "chunk": "ftrans.numpy.array_split(x, parts)",
    "data": "x.detach()",
    "expand_as": "x.expand(other.shape)",
    "flat": "x.ravel()",
    "gather": "ftrans.numpy.take_along_axis(x, index, axis)",
    "grad": "ftrans.func.grad(f)(x)",
    "index_select": "ftrans.numpy.take(x, index, axis)",
    "narrow": "x[start : start + length]",
    "new_full": "ftrans.numpy.full(shape, value, x.dtype)",
    "new_ones": "ftrans.numpy.ones(shape, x.dtype)",
    "new_zeros": "ftrans.numpy.zeros(shape, x.dtype)",
    "register_hook": "an autograd.Function, whose backward may change the gradient",
    "register_post_accumulate_grad_hook": "func.grad(f)(x), and call what is to follow",
    "retain_grad": "func.vjp of the part behind it, which gives its gradient",
    "retains_grad": "func.vjp of the part behind it, which gives its gradient",
    "requires_grad": "func.grad(f, argnums=...): all that is chosen there is differentiated; or "
    "ctx.needs_input_grad, in the methods of a Function",
    "requires_grad_": "func.grad(f, argnums=...): all that is chosen there is differentiated",
    "select": "x[:, i], with as many colons as the axis has others in front",
    "type_as": "x.astype(other.dtype)",
    "unbind": "tuple(x)",
    "view_as": "x.reshape(other.shape)",
    **dict.fromkeys(("_meta", "_type", "_v"), "x.f(...) in the place of Tensor.f(x, ...)"),
}
"""What to write in the place of PyTorch's methods that are no functions of NumPy's."""

_ASSIGNED = {"copy_": lambda x, v: v, "fill_": lambda x, v: v, "zero_": lambda x: 0}


def _in_place(x: Any, name: str) -> Callable[..., Any] | None:
    """Makes PyTorch's method that writes what another one returns, and returns what it is of."""
    target = _TWINS.get(name)
    if not x.type.ndim or not (target or name in _ASSIGNED):
        return None  # of rank zero it may be an element, which is no view here

    if target:
        return boundary(functools.partial(inplace.writing(name, getattr(fnp, target)), x))

    def assigned(*args: Any) -> Any:
        x[...] = _ASSIGNED[name](x, *args)
        return x

    return boundary(assigned)


class _Members:
    """Has what traced values are given whose arguments differ from those of a function."""

    shape = property(lambda self: self.type.shape)
    ndim = property(lambda self: self.type.ndim)
    size = property(lambda self: self.type.size)
    dtype = property(lambda self: self.type.dtype)
    device = property(lambda self: Device("cpu"), doc="As of NumPy's arrays: programs have none.")
    nbytes = property(lambda self: self.type.nbytes)
    itemsize = property(lambda self: self.type.dtype.itemsize)
    T = property(lambda self: fnp.transpose(self))
    mT = property(lambda self: fnp.matrix_transpose(self))
    real = property(lambda self: fnp.real(self), boundary(inplace.set_real))
    imag = property(lambda self: fnp.imag(self), boundary(inplace.set_imag))
    data = property(boundary(inplace.data_of), boundary(inplace.set_data))
    at = property(lambda self: fnp.at(self))
    fill, partition, put, sort = inplace.fill, inplace.partition, inplace.put, inplace.sort
    requires_grad = property(None, lambda self, value: self.requires_grad_(value))
    __array_ufunc__, __array_function__ = protocols.array_ufunc, protocols.array_function
    __array__, __array_namespace__ = protocols.array, protocols.array_namespace
    __dlpack__, __dlpack_device__ = protocols.dlpack, protocols.dlpack_device

    def conj(self: Any) -> Any:
        """Returns the complex conjugate, and of real values themselves, as NumPy's arrays do."""
        return fnp.conj(self) if is_complex(self.type.dtype) else self

    conjugate = conj

    def __bool__(self: Any) -> bool:
        return bool(only_element(self, "bool()"))

    def __int__(self: Any) -> int:
        return int(number_of(self, "int()"))

    def __float__(self: Any) -> float:
        return float(number_of(self, "float()"))

    def __complex__(self: Any) -> complex:
        return complex(number_of(self, "complex()"))

    def __index__(self: Any) -> int:
        if self.type.ndim or not is_integer(self.type.dtype):
            raise DTypeError(
                f"Only an integer of rank zero can be an index or a size.\n  x: {self.type}\n"
                f"  Write int(x) to round a number toward zero."
            )
        return int(only_element(self, lambda: meant("use as an index or a size")))

    def __round__(self: Any, digits: int | None = None) -> Any:
        return fnp.round(self, digits or 0)

    def __repr__(self: Any) -> str:
        start = f"Traced({self.type}, "
        return _shown(self, lambda a: f"{start}{np.array2string(a, separator=', ', prefix=start)})")

    def __str__(self: Any) -> str:
        return _shown(self, str)

    def __format__(self: Any, spec: str) -> str:
        if not spec:
            return str(self)
        return _shown(self, lambda a: format(a.item() if a.size == 1 else a, spec))

    def __len__(self: Any) -> int:
        if not self.type.ndim:
            raise UnsupportedError(f"len(): an array of rank zero has no length.\n  x: {self.type}")
        return self.type.shape[0]

    def __iter__(self: Any) -> Iterator[Any]:
        if not self.type.ndim:
            raise UnsupportedError(f"An array of rank zero cannot be iterated.\n  x: {self.type}")
        return (self[i] for i in range(self.type.shape[0]))

    def __contains__(self: Any, value: Any) -> bool:
        return bool((self == value).any())

    def __copy__(self: Any) -> Any:
        return fresh(self)

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return fresh(self)

    def __getattr__(self: Any, name: str) -> Any:
        """Says what to write where there is no such attribute."""
        method, hint = _in_place(self, name), ""
        if method is not None:
            return method
        if name in _ASSIGNED or name == "itemset":
            hint = "\n  Write x[...] = value."
        elif name in _INSTEAD:
            hint = f"\n  Write {_INSTEAD[name]}."
        elif name.endswith("_") and not name.startswith("_") and hasattr(type(self), name[:-1]):
            hint = f"\n  Write {'x[...]' if name in _TWINS else 'x'} = x.{name[:-1]}(...)."
        elif not name.startswith("_") and hasattr(fnp, name):
            hint = f"\n  Write ftrans.numpy.{name}(x, ...)."
        missing = MissingAttributeError(
            f"A traced value has no attribute {name!r}.\n"
            f"  x: {self.type} in {self.frame.name}{hint}"
        )
        if name in ("backward", "requires_grad_") and protocols.in_rule():
            raise Opaque(missing)  # called on tensors, it goes backward itself
        raise missing

    def __hash__(self: Any) -> int:
        raise UnsupportedError(
            f"hash(): a traced value has no hash, as arrays have none: == compares elements.\n"
            f"  x: {self.type} in {self.frame.name}\n"
            f"  To look a number up, write ftrans.numpy.asarray(values)[x], without a dictionary;\n"
            f"  as a key take int(x), or for the object id(x)."
        )

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        value = settled(self)
        if value is not self:
            return value.__reduce_ex__(protocol)
        raise UnsupportedError(
            f"A traced value cannot be pickled.\n  value: {self.type} in {self.frame.name}\n"
            f"  Return it from the function, or write np.asarray(x.detach())."
        )

    def item(self: Any, *index: Any) -> Any:
        """Returns the only element, or the one at an index, as a Python scalar."""
        return number_of(self, "item()") if not index else numbers_of(self, "item()").item(*index)

    def tolist(self: Any) -> Any:
        """Returns the elements as nested lists of Python scalars."""
        return numbers_of(self, "tolist()").tolist()

    def numpy(self: Any) -> np.ndarray:
        """Returns the value as a NumPy array, where no gradient can be lost by that."""
        return np.asarray(self)

    def contiguous(self: Any) -> Any:
        """Returns the value itself: a program says nothing of memory."""
        return self

    block_until_ready = cpu = contiguous

    def numel(self: Any) -> int:
        """Returns the number of elements."""
        return self.type.size

    def dim(self: Any) -> int:
        """Returns the number of axes."""
        return self.type.ndim

    def reshape(self: Any, *shape: Any, order: str = "C") -> Any:
        """Gives the elements another shape; -1 stands for the size that remains."""
        return fnp.reshape(self, sizes_of(shape), order)

    def transpose(self: Any, *axes: Any) -> Any:
        """Permutes the axes as NumPy does; without arguments reverses them."""
        if not axes or axes == (None,):
            return fnp.transpose(self)
        return fnp.transpose(self, sizes_of(axes))

    view, permute = reshape, transpose

    def t(self: Any) -> Any:
        """Transposes a matrix."""
        return fnp.transpose(self)

    def flatten(self: Any, start_dim: Any = 0, end_dim: int = -1, *, order: str = "C") -> Any:
        """Returns a copy in which all axes, or those from one to another, are one axis."""
        shape = self.type.shape
        if isinstance(start_dim, str):
            start_dim, order = 0, start_dim
        if not shape or order != "C":
            return fresh(fnp.ravel(self, order))
        return fresh(fnp.reshape(self, merged(shape, start_dim, end_dim)))

    def expand(self: Any, *shape: Any) -> Any:
        """Repeats the array until it has a shape, in which -1 keeps a size."""
        given, own = sizes_of(shape), self.type.shape
        lead = len(given) - len(own)
        return fnp.broadcast_to(
            self, tuple(own[i - lead] if n == -1 else n for i, n in enumerate(given))
        )

    def tile(self: Any, *repeats: Any) -> Any:
        """Repeats the whole array along its axes."""
        return fnp.tile(self, sizes_of(repeats))

    def to(self: Any, dtype: Any) -> Any:
        """Converts to a dtype, or to that of another array."""
        if not isinstance(dtype, type):  # the types of NumPy's scalars have an attribute `dtype`
            dtype = getattr(dtype, "dtype", dtype)
        return fnp.astype(self, dtype)

    def where(self: Any, condition: Any, other: Any) -> Any:
        """Returns the elements where the condition holds, else those of `other`."""
        return fnp.where(condition, self, other)

    def masked_fill(self: Any, mask: Any, value: Any) -> Any:
        """Returns the elements, with a value where the mask holds, which takes their dtype."""
        found, t = fnp.result_type(self, value), type_of(self)
        if is_complex(found) and found != t.dtype:
            text = f"masked_fill: a complex value does not fit into the elements.\n  x: {t}"
            raise DTypeError(f"{text}\n  Write x.astype({found.name!r}) before.")
        return fnp.where(mask, value if found == t.dtype else as_array(value, t.dtype), self)


def with_axis(function: Function) -> Function:
    """Has a function along a dimension take what has rank zero for one element, as PyTorch does."""

    def called(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.ndim:
            return function(x, *args, **kwargs)
        given = [y[None] if hasattr(y, "ndim") and not y.ndim else y for y in args]
        named = {k: y[None] if hasattr(y, "ndim") and not y.ndim else y for k, y in kwargs.items()}
        found = function(x[None], *given, **named)
        if isinstance(found, tuple):
            return type(found)(*[y[0] for y in found])
        return found[0] if found.ndim else found

    # what Python's errors name
    function.__qualname__ = function.__qualname__.replace("Functions.", "Tensor.")
    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__signature__ = signature(function)  # type: ignore[attr-defined]
    return called
