"""Arrays as vectors of real coordinates in double precision, complex numbers as two of them.

The pairing of gradients with directions, Re(conj(g) * u), is the plain inner product there, so that
Jacobians are real matrices and a pullback is the transposed one, whatever the dtypes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.runtime.jaxlink import is_jax, to_jax, x64


def is_floating(leaf: Any) -> bool:
    """Tells whether a leaf is an array of real or complex floating point."""
    return is_array(leaf) and type_of(leaf).is_inexact


def is_complex(array: Any) -> bool:
    """Tells whether an array holds complex numbers."""
    return np.dtype(array.dtype).kind == "c"


def host(array: Any) -> np.ndarray:
    """Returns an array of NumPy or JAX as one of NumPy."""
    return np.asarray(array)


def hosts(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Returns several of them."""
    return [np.asarray(array) for array in arrays]


def with_gaps(array: np.ndarray) -> np.ndarray:
    """Returns an array with gaps between its elements in memory."""
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def like(array: Any, original: Any) -> Any:
    """Returns a NumPy array as a `jax.Array` where the original was one."""
    if not is_jax(original):
        return array
    with x64():
        return to_jax(array)


def alike(arrays: Sequence[Any], originals: Sequence[Any]) -> list[Any]:
    """Returns several NumPy arrays, each in the container of its original."""
    return [like(array, original) for array, original in zip(arrays, originals, strict=True)]


def precision_of(array: Any) -> float:
    """Returns the distance from 1 to the next number of an array's dtype; 0 for integers."""
    dtype = np.dtype(array.dtype)
    return 0.0 if dtype.kind in "biu" else float(jnp.finfo(dtype).eps)


def widened(array: Any) -> np.ndarray:
    """Returns a floating array in double precision."""
    return host(array).astype(np.complex128 if is_complex(array) else np.float64)


def last_digits(array: np.ndarray, seed: int, precision: float | None = None) -> np.ndarray:
    """Returns an array moved by a few last digits, at random; one of integers as it is."""
    precision = precision_of(array) if precision is None else precision
    if array.dtype.kind in "biu":
        return array
    signs = np.random.default_rng(seed).choice([-2.0, -1.0, 1.0, 2.0], array.shape)
    return (array * (1 + precision * signs)).astype(array.dtype)


def is_finite(array: np.ndarray) -> bool:
    """Tells whether an array of any dtype holds nothing infinite, and no NaN."""
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.complex128)).all())


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


def index_of(coordinate: int, array: Any) -> tuple[int, ...]:
    """Returns the index of the element that a real coordinate belongs to."""
    size = max(1, int(np.prod(array.shape, dtype=np.int64)))
    return tuple(int(i) for i in np.unravel_index(coordinate % size, array.shape))


def scale_of(array: Any) -> np.ndarray:
    """Returns for each real coordinate of an array how far it is moved, relative to a step of 1.

    It is its own size, so that it keeps its sign; where it is zero, the size of the others, or 1.
    """
    sizes = np.abs(to_coordinates(array))
    usual = float(np.median(sizes[sizes > 0])) if np.any(sizes > 0) else 1.0
    return np.where(sizes > 0, sizes, usual)
