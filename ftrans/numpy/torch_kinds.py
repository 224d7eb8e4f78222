"""PyTorch's names of kinds of tensors, `FloatTensor`, and what those make of sizes or of data."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.config import config
from ftrans.errors import ArgumentError
from ftrans.ir import Tracer

_KINDS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
_OF_DTYPES = {dtype: kind for kind, dtype in _KINDS.items()}


def is_dtype(name: Any) -> bool:
    """Tells whether an argument is the name of a dtype, or a dtype."""
    return isinstance(name, str) and (name == "bfloat16" or hasattr(np, name.partition(":")[0]))


def kind_of(x: Any) -> str:
    """Returns the name of the kind of a tensor, such as "torch.FloatTensor"."""
    name = x.dtype.name
    kind = _OF_DTYPES.get(name) or f"UI{name[2:]}"  # of more than 8 bits, without a sign
    return f"torch.{'cuda.' if x.device.type == 'cuda' else ''}{kind}Tensor"


def dtype_of(kind: Any) -> Any:
    """Returns the dtype that is meant by the name of a kind, or by what makes such; or a dtype."""
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    if not name.endswith("Tensor"):
        return kind
    plain = name.rpartition(".")[2].removesuffix("Tensor")
    if plain and plain not in _KINDS:
        raise ArgumentError(
            f"type: there is no kind of tensors {name!r}.\n"
            f"  Write a dtype, torch.float32, or one of "
            f"{', '.join(f'torch.{k}Tensor' for k in _KINDS)}."
        )
    return np.dtype(_KINDS[plain]) if plain else config.default_dtype


def typename(obj: Any) -> str:
    """Returns the name of the kind of a tensor, or that of the type of any other object."""
    if type(obj) is Tracer or callable(getattr(obj, "type", None)):
        return kind_of(obj)
    module = getattr(obj, "__module__", None) or type(obj).__module__
    name = getattr(obj, "__qualname__", None) or type(obj).__name__
    return name if module == "builtins" else f"{module}.{name}"


def made_of(name: str, given: tuple[Any, ...], dtype: Any) -> Any:
    """Returns zeros of these sizes, or the only argument as an array, as old constructors do.

    Args:
        name: the constructor, for errors.
        given: integers, or one sequence or array.
        dtype: that of the result.

    Raises:
        ArgumentError: where it is neither, or a tuple of integers, which may be both.
    """
    if not any(isinstance(x, bool) or not hasattr(x, "__index__") or np.ndim(x) for x in given):
        return fnp.zeros(tuple(map(operator.index, given)) or (0,), dtype)
    (data, *more) = given
    if isinstance(data, tuple) and data and all(type(x) is int for x in data):
        sizes = ", ".join(map(str, data))
        raise ArgumentError(
            f"{name}: a tuple of integers may be sizes or data.\n  data: {data}\n"
            f"  Write {name}({sizes}) for that shape, {name}([{sizes}]) for these numbers."
        )
    if more or not (hasattr(data, "dtype") or isinstance(data, (list, tuple, range))):
        raise ArgumentError(
            f"{name}: takes sizes, or a sequence of data.\n"
            f"  given: {', '.join(type(x).__name__ for x in given)}\n"
            f"  Write {name}(2, 3), {name}([1, 2]), or torch.tensor(data) for a number."
        )
    return fnp.array(data, dtype)


def creating(name: str, dtype: str | None = None) -> Callable[..., Any]:
    """Makes an old constructor of this name, whose result has a dtype, or the default one."""

    def made(*given: Any) -> Any:
        """Returns zeros of these sizes, or data, in the dtype that its name says."""
        return made_of(name, given, dtype or config.default_dtype)

    made.__name__ = made.__qualname__ = name
    return made


CREATING = {f"{kind}Tensor": creating(f"{kind}Tensor", dtype) for kind, dtype in _KINDS.items()}
"""Old constructors, by name."""
