"""Element types: NumPy's dtype objects, their short names, and the classes that rules ask for.

NumPy's dtypes describe data here; no array is ever made in this layer. `bfloat16` is a dtype that
the package ml_dtypes registers with NumPy, as JAX uses it.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

bfloat16 = np.dtype(ml_dtypes.bfloat16)

NUMERIC = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
"""NumPy's own dtypes of numbers and booleans that XLA has, in the byte order of the machine."""

_SHORT = {"float": "f", "complex": "c", "int": "i", "uint": "u"}


@cache
def short_name(dtype: np.dtype) -> str:
    """Returns the name that programs print, such as `f32` for float32, `bf16` and `bool`.

    Example:
        >>> short_name(np.dtype("complex64"))
        'c64'
    """
    name = dtype.name
    if name == "bfloat16":
        return "bf16"
    letters = name.rstrip("0123456789")
    return _SHORT[letters] + name[len(letters) :] if letters in _SHORT else name


_NARROW = {np.dtype(t) for name, t in vars(ml_dtypes).items() if name.startswith("float8_")}


@cache
def is_float(dtype: np.dtype) -> bool:
    """Tells whether `dtype` is a real floating-point type."""
    return dtype.kind == "f" or dtype == bfloat16 or dtype in _NARROW


@cache
def is_half(dtype: np.dtype) -> bool:
    """Tells whether `dtype` is float16 or bfloat16, whose sums and powers are taken in float32."""
    return dtype.itemsize == 2 and is_float(dtype)


@cache
def is_complex(dtype: np.dtype) -> bool:
    """Tells whether `dtype` is complex."""
    return dtype.kind == "c"


@cache
def is_inexact(dtype: np.dtype) -> bool:
    """Tells whether values of `dtype` have tangents: real or complex floating point."""
    return dtype.kind == "c" or is_float(dtype)


@cache
def is_of_kind(dtype: np.dtype, other: np.dtype) -> bool:
    """Tells whether a dtype is of no further kind: booleans, integers, floats, complex ones."""
    return _kind(dtype) <= _kind(other)


def _kind(dtype: np.dtype) -> int:
    return 0 if dtype.kind == "b" else 1 if is_integer(dtype) else 3 if is_complex(dtype) else 2


@cache
def is_integer(dtype: np.dtype) -> bool:
    """Tells whether `dtype` is a signed or unsigned integer type."""
    return dtype.kind in "iu"


@cache
def is_unsigned(dtype: np.dtype) -> bool:
    """Tells whether `dtype` is an unsigned integer type."""
    return dtype.kind == "u"


@cache
def real_of(dtype: np.dtype) -> np.dtype:
    """Returns the dtype of the real part: float32 for complex64, a real `dtype` itself."""
    return np.dtype({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype))


@cache
def complex_of(dtype: np.dtype) -> np.dtype:
    """Returns the complex dtype whose parts hold values of `dtype`: complex64 for float32."""
    if is_complex(dtype):
        return dtype
    return np.dtype("complex128" if dtype.name in ("float64", "int64", "uint64") else "complex64")
