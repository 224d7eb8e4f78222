"""Dtypes under NumPy's names, and what can be asked of them and of the type of an array."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ftrans.errors import ShapeError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.numpy import promotion
from ftrans.numpy.axes import canonical_axes
from ftrans.numpy.promotion import as_array, default_dtype, is_array, is_scalar, promote_dtypes
from ftrans.runtime.device import get_default_device
from ftrans.traceback import OnTape, boundary

_ABSTRACT = """
    character complexfloating flexible floating generic inexact integer number object_
    signedinteger unsignedinteger
"""
_ALIASES = {
    "byte": "int8", "short": "int16", "intc": "int32", "int_": "int64", "intp": "int64",
    "long": "int64", "longlong": "int64", "ubyte": "uint8", "ushort": "uint16", "uintc": "uint32",
    "uint": "uint64", "uintp": "uint64", "ulong": "uint64", "ulonglong": "uint64",
    "half": "float16", "single": "float32", "double": "float64", "float_": "float64",
    "csingle": "complex64", "cdouble": "complex128", "complex_": "complex128",
}  # fmt: skip
_EIGHT_BITS = """
    float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu
"""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    *_ABSTRACT.split(), *_ALIASES, *_EIGHT_BITS.split(),
    "bfloat16", "bool_", "broadcast_shapes", "can_cast", "complex64", "complex128", "dtype",
    "finfo", "float16", "float32", "float64", "iinfo", "int8", "int16", "int32", "int64",
    "isdtype", "issubdtype", "ndarray", "ndim", "promote_types", "result_type", "shape", "size",
    "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip


class Scalar(type):
    """Makes a type of NumPy's scalars that converts traced values, too: `float32(x)`.

    It is equal to NumPy's, as a dtype and as a type.
    """

    def __call__(cls, *args: Any) -> Any:
        kinds = (Tracer, jax.Array, list, tuple, *OnTape.types)
        if args and isinstance(args[0], kinds):
            return _converted(args[0], cls)
        return cls.__bases__[0](*args)

    def __eq__(cls, other: object) -> bool:
        # a dtype compares itself with types
        return cls is other or cls.__bases__[0] is other or NotImplemented

    def __hash__(cls) -> int:
        return hash(cls.__bases__[0])

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.__bases__[0])


_converted = boundary(as_array)


def _scalar(base: Any) -> Any:
    name = base.__name__
    doc = f"Is NumPy's type `{name}`; called with a traced value, converts it."
    return Scalar(name, (base,), {"__module__": "ftrans.numpy", "__doc__": doc})


int8, int16, int32, int64 = map(_scalar, (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = map(_scalar, (np.uint8, np.uint16, np.uint32, np.uint64))
float16, float32, float64 = map(_scalar, (np.float16, np.float32, np.float64))
complex64, complex128 = map(_scalar, (np.complex64, np.complex128))
globals().update({name: globals()[meant] for name, meant in _ALIASES.items()})
globals().update({name: getattr(np, name) for name in _ABSTRACT.split()})
globals().update({name: getattr(ml_dtypes, name) for name in _EIGHT_BITS.split()})
# those that cannot be derived from
bool_ = np.bool_
bfloat16 = ml_dtypes.bfloat16
dtype = np.dtype
issubdtype = jnp.issubdtype


class _Arrays(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return is_array(x) and not isinstance(x, np.generic)


class ndarray(metaclass=_Arrays):
    """Is the class of all arrays, traced values and those of JAX included, for `isinstance`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuses to make one, since it is not of this class."""
        raise UnsupportedError("ndarray: makes no array.\n  Write ftrans.numpy.zeros(shape).")


def _dtype_of(x: Any) -> np.dtype:
    return type_of(x).dtype if is_array(x) else np.dtype(x)


def result_type(*xs: Any) -> np.dtype:
    """Returns the dtype that arrays, dtypes and Python scalars promote to.

    Args:
        *xs: arrays, traced or not; dtypes; Python scalars, which are weak.

    Example:
        >>> result_type(np.float16, 2.0)
        dtype('float16')
    """
    taken = [x if is_array(x) or is_scalar(x) else np.empty((), np.dtype(x)) for x in xs]
    return promotion.result_type(*taken)


def promote_types(type1: Any, type2: Any) -> np.dtype:
    """Returns the dtype that two dtypes promote to.

    Example:
        >>> promote_types("int8", "uint8")
        dtype('int16')
    """
    return promote_dtypes(np.dtype(type1), np.dtype(type2))


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Tells whether values of one dtype convert to another.

    Args:
        from_: an array or a dtype.
        to: a dtype.
        casting: NumPy's rule: "safe" keeps every value.
    """
    return np.can_cast(_dtype_of(from_), np.dtype(to), casting)  # type: ignore[arg-type]


isdtype = jnp.isdtype


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Returns the shape that arrays of these shapes broadcast to.

    Args:
        *shapes: ints, or tuples of them.

    Raises:
        ShapeError: where they do not broadcast.

    Example:
        >>> broadcast_shapes((3, 1), (4,))
        (3, 4)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"broadcast_shapes: shapes do not broadcast.\n  shapes: {', '.join(map(str, shapes))}\n"
            f"  Sizes are matched from the last axis on."
        ) from None


def finfo(dtype: Any) -> Any:
    """Returns the limits of a floating-point dtype, or of that of an array."""
    return jnp.finfo(_dtype_of(dtype))


def iinfo(int_type: Any) -> Any:
    """Returns the limits of an integer dtype, or of that of an array."""
    return jnp.iinfo(_dtype_of(int_type))


def shape(a: Any) -> tuple[int, ...]:
    """Returns the sizes of the axes."""
    return type_of(as_array(a)).shape


def ndim(a: Any) -> int:
    """Returns the number of axes."""
    return type_of(as_array(a)).ndim


def size(a: Any, axis: Any = None) -> int:
    """Returns the number of elements, along an axis, several, or all."""
    own = shape(a)
    return math.prod(own[i] for i in canonical_axes("size", axis, len(own)))


_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


class Info:
    """What `__array_namespace_info__()` returns; the answers are those of the array API's 2024.12.

    Example:
        >>> Info().dtypes(kind="complex floating")
        {'complex64': dtype('complex64'), 'complex128': dtype('complex128')}
    """

    def capabilities(self) -> dict[str, Any]:
        """Says what depends on values, which are not always known: under `vmap` and `jit`."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Any:
        """Returns the device where arrays are created; None stands for NumPy's arrays."""
        return get_default_device()

    def devices(self) -> list[Any]:
        """Returns the devices where arrays can lie; None stands for NumPy's arrays."""
        return [None, *jax.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Returns the dtypes that Python's numbers take, and that of indices; on every device."""
        return {
            "real floating": default_dtype(float),
            "complex floating": default_dtype(complex),
            "integral": default_dtype(int),
            "indexing": np.dtype("int32"),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """Returns the dtypes by their names, or those of a kind as for `isdtype`."""
        found = {name: np.dtype(name) for name in _NAMES}
        return {n: d for n, d in found.items() if kind is None or isdtype(d, kind)}
