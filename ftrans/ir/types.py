"""The types of values, interned, so that equality is identity; and scalars, which carry theirs."""

from __future__ import annotations

import math
from typing import ClassVar, final

import numpy as np

from ftrans.ir.dtype import is_inexact, short_name


class ArrayType:
    """Is the type of one value in a program, printed as `f32[3,4]`.

    Args:
        shape: the sizes of the axes, all known.
        dtype: anything that `numpy.dtype` takes.
        weak: True for a Python scalar. A weak operand has rank zero, broadcasts against any shape,
            and is never differentiated nor batched.

    Example:
        >>> ArrayType((3, 4), "float32")
        f32[3,4]
        >>> ArrayType((3, 4), "float32") is ArrayType((3, 4), "float32")
        True
    """

    __slots__ = ("__weakref__", "dtype", "is_inexact", "ndim", "shape", "size", "weak")

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool
    ndim: int
    size: int
    is_inexact: bool
    """Whether values of this type have tangents."""

    _interned: ClassVar[dict[tuple, ArrayType]] = {}

    def __new__(cls, shape: tuple[int, ...], dtype: object, weak: bool = False) -> ArrayType:
        """Returns the one object for this type."""
        key = (shape, dtype, weak)
        try:
            return cls._interned[key]
        except (KeyError, TypeError):
            return cls._make(shape, dtype, weak)

    @classmethod
    def _make(cls, shape: tuple[int, ...], dtype: object, weak: bool) -> ArrayType:
        shape = tuple(int(size) for size in shape)
        dtype = np.dtype(dtype)  # type: ignore[call-overload]
        key = (shape, dtype, bool(weak))
        if key not in cls._interned:
            self = super().__new__(cls)
            self.shape, self.dtype, self.weak = key
            self.ndim = len(shape)
            self.size = math.prod(shape)
            self.is_inexact = is_inexact(dtype)
            # `setdefault` is atomic: two threads that race here agree on one object
            return cls._interned.setdefault(key, self)
        return cls._interned[key]

    def __reduce__(self) -> tuple:
        return ArrayType, (self.shape, self.dtype, self.weak)

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return f"{short_name(self.dtype)}[{sizes}]{'~' if self.weak else ''}"

    def update(
        self, shape: tuple[int, ...] | None = None, dtype: object | None = None
    ) -> ArrayType:
        """Returns the strong type that differs from this one in what is given."""
        return ArrayType(
            self.shape if shape is None else tuple(shape), self.dtype if dtype is None else dtype
        )

    @property
    def nbytes(self) -> int:
        """The bytes that a dense array of this type occupies."""
        return self.size * self.dtype.itemsize


@final
class Literal:
    """Is a Python scalar that stands in a program as it is.

    Args:
        value: a `bool`, `int`, `float` or `complex`.
        dtype: the dtype that it takes.

    Two literals are equal where dtype and text agree, so that 0.0 and -0.0 differ and NaN equals
    itself.
    """

    __slots__ = ("_array", "_key", "type", "value")

    def __init__(self, value: complex, dtype: object):
        self.type = ArrayType((), dtype, weak=True)
        self.value = value
        self._key = (repr(value), self.type)
        self._array: np.ndarray | None = None

    def __reduce__(self) -> tuple:
        return Literal, (self.value, self.type.dtype)

    @property
    def array(self) -> np.ndarray:
        """The value as a NumPy array of rank zero."""
        if self._array is None:
            with np.errstate(all="ignore"):
                self._array = np.array(self.value).astype(self.type.dtype)
            self._array.flags.writeable = False
        return self._array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)
