"""Operators, methods and properties of traced values, attached from tables when imported.

A method is the function of the same name with the array in first place. Where PyTorch spells it
otherwise and NumPy says nothing, its spelling works too, and so do `dim` and `keepdim` wherever
`axis` and `keepdims` do: they are other names, no more, so that `x.max(dim=0)` returns the values
alone and `x.var(dim=0)` divides by n, as NumPy does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ftrans.errors import (
    ConcretizationError,
    DTypeError,
    LeakedTracerError,
    MissingAttributeError,
    UnsupportedError,
)
from ftrans.ir import Tracer
from ftrans.ir.dtype import is_integer
from ftrans.ir.frame import settled
from ftrans.numpy import inplace
from ftrans.numpy.advice import meant
from ftrans.numpy.inplace import SIGNS, in_place_of
from ftrans.numpy.numbers import number_of, numbers_of, only_element
from ftrans.numpy.ufunc import operator_of, reflected_of
from ftrans.numpy.views import fresh
from ftrans.traceback import boundary

Function = Callable[..., Any]

# name of the operator, and of its function
_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_PREFIXES = {"neg": "negative", "pos": "positive", "invert": "invert", "abs": "absolute"}

# methods that are the function of the same name, or of the name behind the colon
_METHODS = """
    add subtract multiply divide true_divide floor_divide remainder fmod power pow float_power
    sub:subtract mul:multiply div:divide neg:negative positive negative square reciprocal
    abs absolute sign sqrt rsqrt cbrt exp exp2 expm1 log log2 log10 log1p
    sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh arctanh
    asin acos atan atan2 asinh acosh atanh hypot deg2rad rad2deg
    maximum minimum fmax fmin clip clamp floor ceil trunc round
    isnan isinf isfinite isposinf isneginf isclose allclose signbit copysign heaviside
    logaddexp logaddexp2 sinc nan_to_num xlogy erf erfc erfinv lgamma digamma logit
    eq:equal ne:not_equal lt:less le:less_equal gt:greater ge:greater_equal
    equal not_equal less less_equal greater greater_equal array_equal
    logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not
    conj conjugate angle sigmoid relu softplus silu
    matmul mm:matmul mv:matmul bmm:matmul dot inner outer tensordot
    ravel swapaxes swapdims:swapaxes moveaxis movedim:moveaxis repeat flipud fliplr
    diagonal diag tril triu trace take take_along_axis nonzero argwhere searchsorted
    astype copy clone:copy detach:stop_gradient
"""

# those that take an axis, which may be called dim
_AXIS_METHODS = """
    sum prod mean std var max min amax amin any all argmax argmin ptp median count_nonzero
    nansum nanmean nanmedian cumsum cumprod cummax cummin logcumsumexp
    logsumexp softmax log_softmax norm argsort flip roll squeeze unsqueeze:expand_dims
"""

# methods that convert to a dtype, under PyTorch's names
_CASTS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "bool": "bool",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


def install(namespace: Mapping[str, Any]) -> None:
    """Gives `Tracer` its operators, methods and properties.

    Args:
        namespace: the functions of `ftrans.numpy` by name.
    """

    def attach(name: str, member: Any) -> None:
        setattr(Tracer, name, boundary(member) if callable(member) else member)

    for name, target in _OPERATORS.items():
        setattr(Tracer, f"__{name}__", operator_of(namespace[target]))
        setattr(Tracer, f"__r{name}__", reflected_of(namespace[target]))
        if target in SIGNS:
            setattr(Tracer, f"__i{name}__", in_place_of(namespace[target], SIGNS[target]))
    for name, target in _COMPARISONS.items():
        setattr(Tracer, f"__{name}__", operator_of(namespace[target]))
    # functions handle their errors themselves
    for name, target in _PREFIXES.items():
        setattr(Tracer, f"__{name}__", namespace[target])
    for entry in _METHODS.split():
        name, _, target = entry.partition(":")
        setattr(Tracer, name, namespace[target or name])
    for entry in _AXIS_METHODS.split():
        name, _, target = entry.partition(":")
        attach(name, _axis_method(namespace[target or name]))
    for name, dtype in _CASTS.items():
        attach(name, _cast(namespace["astype"], name, dtype))
    for name, member in _own_members(namespace).items():
        attach(name, member)


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


def _cast(astype: Function, name: str, dtype: str) -> Function:
    def method(self: Any) -> Any:
        return astype(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Converts to {dtype}."
    return method


# ----------------------------------------------------------------------------- Python's protocols


def _concrete(x: Any, what: Any) -> np.ndarray:
    return np.asarray(x.value(what))


def _to_bool(self: Any) -> bool:
    return bool(only_element(self, "bool()"))


def _to_int(self: Any) -> int:
    return int(number_of(self, "int()"))


def _to_float(self: Any) -> float:
    return float(number_of(self, "float()"))


def _to_complex(self: Any) -> complex:
    return complex(number_of(self, "complex()"))


def _to_index(self: Any) -> int:
    if self.type.ndim or not is_integer(self.type.dtype):
        raise DTypeError(
            f"Only an integer of rank zero can be an index or a size.\n  x: {self.type}\n"
            f"  Write int(x) to round a number toward zero."
        )
    return int(only_element(self, lambda: meant("use as an index or a size")))


def item(self: Any, *index: Any) -> Any:
    """Returns the only element, or the one at an index, as a Python scalar."""
    return number_of(self, "item()") if not index else numbers_of(self, "item()").item(*index)


def tolist(self: Any) -> Any:
    """Returns the elements as nested lists of Python scalars."""
    return numbers_of(self, "tolist()").tolist()


def _shown(x: Any, show: Callable[[np.ndarray], str]) -> str:
    """Shows the value where there is one, else the type and what traces it."""
    try:
        array = _concrete(x, "printing")
    except ConcretizationError:
        return f"Traced({x.type} in {x.frame.name})"
    except LeakedTracerError:
        return f"Traced({x.type} of {x.frame.name}, which has returned)"
    return show(array)


def _repr(self: Any) -> str:
    start = f"Traced({self.type}, "
    return _shown(self, lambda a: f"{start}{np.array2string(a, separator=', ', prefix=start)})")


def _str(self: Any) -> str:
    return _shown(self, str)


def _format(self: Any, spec: str) -> str:
    if not spec:
        return _str(self)
    return _shown(self, lambda a: format(a.item() if a.size == 1 else a, spec))


def _len(self: Any) -> int:
    if not self.type.ndim:
        raise UnsupportedError(f"len(): an array of rank zero has no length.\n  x: {self.type}")
    return self.type.shape[0]


def _iter(self: Any) -> Iterator[Any]:
    if not self.type.ndim:
        raise UnsupportedError(f"An array of rank zero cannot be iterated.\n  x: {self.type}")
    return (self[i] for i in range(self.type.shape[0]))


_INSTEAD = {
    "backward": "ftrans.func.grad(f)(x)",
    "chunk": "ftrans.numpy.array_split(x, parts)",
    "cpu": "np.asarray(x), which works for all arrays",
    "expand_as": "x.expand(other.shape)",
    "gather": "ftrans.numpy.take_along_axis(x, index, axis)",
    "grad": "ftrans.func.grad(f)(x)",
    "index_select": "ftrans.numpy.take(x, index, axis)",
    "narrow": "x[start : start + length]",
    "new_full": "ftrans.numpy.full(shape, value, x.dtype)",
    "new_ones": "ftrans.numpy.ones(shape, x.dtype)",
    "new_zeros": "ftrans.numpy.zeros(shape, x.dtype)",
    "requires_grad": "func.grad(f, argnums=...): all that is chosen there is differentiated",
    "requires_grad_": "func.grad(f, argnums=...): all that is chosen there is differentiated",
    "select": "x[:, i], with as many colons as the axis has others in front",
    "type_as": "x.astype(other.dtype)",
    "unbind": "tuple(x)",
    "view_as": "x.reshape(other.shape)",
}
"""What to write in the place of PyTorch's methods that are no functions of NumPy's."""


def _missing(self: Any, name: str) -> Any:
    """Says what to write where there is no such attribute."""
    from ftrans import numpy as namespace

    hint = ""
    if name.endswith("_") and not name.startswith("_") and hasattr(type(self), name[:-1]):
        hint = f"\n  Write x[...] = x.{name[:-1]}(...)."
    elif name == "itemset":
        hint = "\n  Write x[...] = value."
    elif name in _INSTEAD:
        hint = f"\n  Write {_INSTEAD[name]}."
    elif not name.startswith("_") and hasattr(namespace, name):
        hint = f"\n  Write ftrans.numpy.{name}(x, ...)."
    raise MissingAttributeError(
        f"A traced value has no attribute {name!r}.\n  x: {self.type} in {self.frame.name}{hint}"
    )


def _no_hash(self: Any) -> int:
    raise UnsupportedError(
        f"hash(): a traced value has no hash, as arrays have none: == compares elements.\n"
        f"  x: {self.type} in {self.frame.name}\n"
        f"  To look a number up, write ftrans.numpy.asarray(values)[x], without a dictionary;\n"
        f"  as a key take int(x), or for the object id(x)."
    )


def _no_pickle(self: Any, protocol: int) -> Any:
    value = settled(self)
    if value is not self:
        return value.__reduce_ex__(protocol)
    raise UnsupportedError(
        f"A traced value cannot be pickled.\n  value: {self.type} in {self.frame.name}\n"
        f"  Return it from the function, or write np.asarray(x.detach())."
    )


# ---------------------------------------------------------------------------- methods of their own


def _own_members(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members whose arguments differ from those of the function."""
    reshape, transpose, ravel = (namespace[n] for n in ("reshape", "transpose", "ravel"))
    broadcast, astype, where = (namespace[n] for n in ("broadcast_to", "astype", "where"))

    def sizes(given: tuple[Any, ...]) -> Any:
        """Returns `(2, 3)` for both x.reshape(2, 3) and x.reshape((2, 3))."""
        return given[0] if len(given) == 1 and np.ndim(given[0]) else given

    def reshaped(self: Any, *shape: Any, order: str = "C") -> Any:
        """Gives the elements another shape; -1 stands for the size that remains."""
        return reshape(self, sizes(shape), order)

    def transposed(self: Any, *axes: Any) -> Any:
        """Permutes the axes as NumPy does; without arguments reverses them."""
        if not axes or axes == (None,):
            return transpose(self)
        return transpose(self, sizes(axes))

    def t(self: Any) -> Any:
        """Transposes a matrix."""
        return transpose(self)

    def flatten(self: Any, start_dim: Any = 0, end_dim: int = -1, *, order: str = "C") -> Any:
        """Returns a copy in which all axes, or those from one to another, are one axis."""
        shape = self.type.shape
        if isinstance(start_dim, str):
            start_dim, order = 0, start_dim
        if not shape or order != "C":
            return fresh(ravel(self, order))
        first, last = range(len(shape))[start_dim], range(len(shape))[end_dim]
        merged = int(np.prod(shape[first : last + 1], dtype=np.int64))
        return fresh(reshape(self, (*shape[:first], merged, *shape[last + 1 :])))

    def expand(self: Any, *shape: Any) -> Any:
        """Repeats the array until it has a shape, in which -1 keeps a size."""
        given, own = sizes(shape), self.type.shape
        lead = len(given) - len(own)
        return broadcast(self, tuple(own[i - lead] if n == -1 else n for i, n in enumerate(given)))

    def tile(self: Any, *repeats: Any) -> Any:
        """Repeats the whole array along its axes."""
        return namespace["tile"](self, sizes(repeats))

    def to(self: Any, dtype: Any) -> Any:
        """Converts to a dtype, or to that of another array."""
        if not isinstance(dtype, type):  # the types of NumPy's scalars have an attribute `dtype`
            dtype = getattr(dtype, "dtype", dtype)
        return astype(self, dtype)

    def choose(self: Any, condition: Any, other: Any) -> Any:
        """Returns the elements where the condition holds, else those of `other`."""
        return where(condition, self, other)

    def masked_fill(self: Any, mask: Any, value: Any) -> Any:
        """Returns the elements, with a value where the mask holds."""
        return where(mask, value, self)

    def contains(self: Any, value: Any) -> bool:
        return bool((self == value).any())

    return {
        "__bool__": _to_bool,
        "__int__": _to_int,
        "__float__": _to_float,
        "__complex__": _to_complex,
        "__index__": _to_index,
        "__round__": lambda self, digits=None: namespace["round"](self, digits or 0),
        "__repr__": _repr,
        "__str__": _str,
        "__format__": _format,
        "__len__": _len,
        "__iter__": _iter,
        "__contains__": contains,
        "__getitem__": namespace["getitem"],
        "__setitem__": namespace["setitem"],
        "__getattr__": _missing,
        "__copy__": fresh,
        "__deepcopy__": lambda self, memo: fresh(self),
        "__hash__": _no_hash,
        "__reduce_ex__": _no_pickle,
        "fill": inplace.fill,
        "item": item,
        "partition": inplace.partition,
        "put": inplace.put,
        "sort": inplace.sort,
        "tolist": tolist,
        "block_until_ready": lambda self: self,
        "contiguous": lambda self: self,
        "numpy": lambda self: np.asarray(self),
        "numel": lambda self: self.type.size,
        "dim": lambda self: self.type.ndim,
        "reshape": reshaped,
        "view": reshaped,
        "transpose": transposed,
        "permute": transposed,
        "t": t,
        "flatten": flatten,
        "expand": expand,
        "tile": tile,
        "to": to,
        "where": choose,
        "masked_fill": masked_fill,
        "shape": property(lambda self: self.type.shape),
        "ndim": property(lambda self: self.type.ndim),
        "size": property(lambda self: self.type.size),
        "dtype": property(lambda self: self.type.dtype),
        "nbytes": property(lambda self: self.type.nbytes),
        "itemsize": property(lambda self: self.type.dtype.itemsize),
        "T": property(lambda self: transpose(self)),
        "mT": property(lambda self: namespace["matrix_transpose"](self)),
        "real": property(lambda self: namespace["real"](self), boundary(inplace.set_real)),
        "imag": property(lambda self: namespace["imag"](self), boundary(inplace.set_imag)),
        "at": property(lambda self: namespace["at"](self)),
    }
