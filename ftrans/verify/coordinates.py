"""Arrays as vectors of real coordinates in double precision, complex numbers as two of them.

The pairing of gradients with directions, Re(conj(g) * u), is the plain inner product there, so that
Jacobians are real matrices and a pullback is the transposed one, whatever the dtypes are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.runtime.jaxlink import is_jax, to_jax, x64

Arrays = Sequence[np.ndarray]


def is_floating(leaf: Any) -> bool:
    """Tells whether a leaf is an array of real or complex floating point."""
    return is_array(leaf) and type_of(leaf).is_inexact


def is_complex(array: Any) -> bool:
    """Tells whether an array holds complex numbers."""
    return np.dtype(array.dtype).kind == "c"


def hosts(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Returns arrays of NumPy or JAX as ones of NumPy."""
    return [np.asarray(array) for array in arrays]


def with_gaps(array: np.ndarray) -> np.ndarray:
    """Returns an array with gaps between its elements in memory."""
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def like(array: Any, original: Any) -> Any:
    """Returns a NumPy array as a `jax.Array` where the original was one; a traced one as it is."""
    if not is_jax(original) or not isinstance(array, np.ndarray):
        return array
    with x64():
        return to_jax(array)


def precision_of(array: Any) -> float:
    """Returns the distance from 1 to the next number of an array's dtype; 0 for integers."""
    dtype = np.dtype(array.dtype)
    return 0.0 if dtype.kind in "biu" else float(jnp.finfo(dtype).eps)


def widened(array: Any) -> np.ndarray:
    """Returns an array in double precision."""
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def agreeing(one: Any, other: Any, allowed: Any = 0.0) -> np.ndarray:
    """Tells of each number in an array whether it is another one, or as close as is allowed.

    NaN is the same as NaN; what is infinite is close to nothing else, and integers are exact.
    """
    one, other = np.asarray(one), np.asarray(other)
    same = one == other
    if one.dtype.kind in "biu" and other.dtype.kind in "biu":
        return same
    one, other = widened(one), widened(other)
    with np.errstate(all="ignore"):
        apart = np.abs(one - other)
        close = np.isfinite(apart) & (apart <= allowed)
    return same | close | (np.isnan(one) & np.isnan(other))


def close(one: Any, other: Any, allowed: Any = 0.0) -> bool:
    """Tells whether two arrays have one shape, and agree in each number."""
    return np.shape(one) == np.shape(other) and bool(agreeing(one, other, allowed).all())


def are_finite(arrays: Iterable[Any]) -> bool:
    """Tells whether arrays of any dtype hold nothing infinite, and no NaN."""
    return all(bool(np.isfinite(widened(array)).all()) for array in arrays)


def largest(array: Any) -> float:
    """Returns the size of the largest number in an array that is finite, or 0."""
    sizes = np.abs(widened(array))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def spread(array: Any, moved: Sequence[Any]) -> np.ndarray:
    """Returns how far off what depends on last digits may be, by what others of them made of it."""
    apart = np.abs(np.stack(list(map(widened, moved))) - widened(array)).max(axis=0)
    return 30 * apart + 3 * np.max(apart, initial=0.0)


def count(array: Any) -> int:
    """Returns how many real coordinates an array has."""
    return math.prod(array.shape) * (2 if is_complex(array) else 1)


def to_coordinates(array: Any, lead: int = 0) -> np.ndarray:
    """Returns an array's real coordinates, f64[n]: first all real parts, then all imaginary ones.

    So many axes as `lead` says stay in front as they are.
    """
    array = np.asarray(array)
    flat = array.reshape(*array.shape[:lead], math.prod(array.shape[lead:]))
    if flat.dtype.kind == "c":
        return np.concatenate([flat.real, flat.imag], axis=-1).astype(np.float64)
    return flat.astype(np.float64)


def from_coordinates(vector: np.ndarray, original: Any) -> np.ndarray:
    """Returns the arrays with coordinates f64[..., n], of the dtype and shape of `original`."""
    full = (*vector.shape[:-1], *original.shape)
    if is_complex(original):
        half = vector.shape[-1] // 2
        whole = np.empty((*vector.shape[:-1], half), np.complex128)
        whole.real, whole.imag = vector[..., :half], vector[..., half:]
        vector = whole
    return vector.reshape(full).astype(original.dtype)


def index_of(coordinate: int, array: Any) -> tuple[int, ...]:
    """Returns the index of the element that a real coordinate belongs to."""
    number = coordinate % max(1, math.prod(array.shape))
    return tuple(int(i) for i in np.unravel_index(number, array.shape))


def scale_of(array: Any) -> np.ndarray:
    """Returns for each real coordinate of an array how far it is moved, relative to a step of 1.

    It is its own size, so that it keeps its sign; where that is zero, or so small or large that no
    step can be told, it is the size of the others, or 1.
    """
    sizes = np.abs(to_coordinates(array))
    known = np.isfinite(sizes) & (sizes >= float(jnp.finfo(array.dtype).tiny))
    return np.where(known, sizes, np.median(sizes[known]) if known.any() else 1.0)


# ------------------------------------------------------------------------------- other numbers


def last_digits(array: np.ndarray, seed: int, precision: float | None = None) -> np.ndarray:
    """Returns an array moved by a few last digits, at random; one of integers as it is."""
    precision = precision_of(array) if precision is None else precision
    if array.dtype.kind in "biu":
        return array
    signs = np.random.default_rng(seed).choice([-2.0, -1.0, 1.0, 2.0], array.shape)
    return (array * (1 + precision * signs)).astype(array.dtype)


def moved(array: np.ndarray, steps: int) -> np.ndarray:
    """Returns the same elements in another order, where they may be, and a little larger."""
    return scaled(array if is_structured(array) else np.roll(array, steps), steps)


def scaled(array: np.ndarray, steps: int) -> np.ndarray:
    """Returns an array with elements a little larger; one of integers as it is."""
    if array.dtype.kind in "biu":
        return array
    return (array * np.asarray(1 + 0.0625 * steps, array.dtype)).astype(array.dtype)


def is_structured(array: np.ndarray) -> bool:
    """Tells whether the order of the elements may matter to what a function takes.

    So it is where they are sorted, or add up to one, or where a matrix is symmetric or triangular.
    """
    if array.dtype.kind == "c" or array.ndim == 0 or array.size < 3:
        return False
    flat = array.astype(np.float64)
    with np.errstate(all="ignore"):
        steps = np.diff(flat, axis=-1)
        if steps.size and (np.all(steps > 0) or np.all(steps < 0)):
            return True
        if np.allclose(flat.sum(-1), 1.0):
            return True
        if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
            return False
        turned = np.swapaxes(flat, -1, -2)
        is_triangular = not np.any(np.triu(flat, 1)) or not np.any(np.tril(flat, -1))
        return is_triangular or np.allclose(flat, turned)
