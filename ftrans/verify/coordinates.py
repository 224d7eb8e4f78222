"""Real coordinates: an array as a vector of double precision, complex numbers as two real ones.

The pairing of gradients with directions, Re(conj(g) * u), is the plain inner product there, so that
Jacobians are real matrices and a pullback is the transposed one, whatever the dtypes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["count", "from_coordinates", "is_complex", "to_coordinates"]


def is_complex(array: Any) -> bool:
    """Tells whether an array holds complex numbers."""
    return np.dtype(array.dtype).kind == "c"


def count(array: Any) -> int:
    """Returns how many real coordinates an array has."""
    return int(np.prod(array.shape, dtype=np.int64)) * (2 if is_complex(array) else 1)


def to_coordinates(array: Any, lead: int = 0) -> np.ndarray:
    """Returns an array's real coordinates, f64[n]: first all real parts, then all imaginary ones.

    Args:
        array: any array.
        lead: how many axes in front stay as they are.
    """
    array = np.asarray(array)
    shape = array.shape[:lead]
    flat = array.reshape(*shape, int(np.prod(array.shape[lead:], dtype=np.int64)))
    if flat.dtype.kind == "c":
        return np.concatenate([flat.real, flat.imag], axis=-1).astype(np.float64)
    return flat.astype(np.float64)


def from_coordinates(vector: np.ndarray, original: Any, shape: Sequence[int] = ()) -> np.ndarray:
    """Returns the NumPy array with these coordinates, of the dtype and shape of `original`.

    Args:
        vector: f64[..., n].
        original: the array to be like.
        shape: of the axes in front.
    """
    full = (*shape, *original.shape)
    if is_complex(original):
        half = vector.shape[-1] // 2
        whole = np.empty((*vector.shape[:-1], half), np.complex128)
        whole.real, whole.imag = vector[..., :half], vector[..., half:]
        vector = whole
    return vector.reshape(full).astype(original.dtype)
