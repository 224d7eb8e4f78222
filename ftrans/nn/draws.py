"""Where the functions of this package get random numbers from: a key, a generator, or the default.

All use of random numbers is in this file.
"""

from __future__ import annotations

import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.errors import ArgumentError
from ftrans.interop import from_jax

_split, _bernoulli, _uniform, _normal, _truncated, _orthogonal, _gumbel, _permutation = map(
    from_jax,
    (
        jax.random.split,
        jax.random.bernoulli,
        jax.random.uniform,
        jax.random.normal,
        jax.random.truncated_normal,
        jax.random.orthogonal,
        jax.random.gumbel,
        jax.random.permutation,
    ),
)

_default = np.random.default_rng(secrets.randbits(64))


def key_of(name: str, key: Any, rng: Any) -> Any:
    """Returns the key that a function is to draw by, as the words that it consists of.

    Args:
        name: the function, for errors.
        key: a key, or None.
        rng: a generator, whose next key is taken; or None. With neither it is the default one.

    Raises:
        ArgumentError: where both are given.
    """
    if key is not None and rng is not None:
        raise ArgumentError(
            f"{name}: draws by a key, or by a generator, not by both.\n  Write key=key, or rng=rng."
        )
    if rng is not None:
        if not callable(getattr(rng, "key", None)):
            raise ArgumentError(
                f"{name}: rng is a generator of keys.\n  rng: {type(rng).__name__}\n"
                f"  Pass a key instead: key=jax.random.key(0)."
            )
        key = rng.key()
    if key is None:
        return _default.integers(2**32, size=2, dtype=np.uint32)
    is_key = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(key)) if is_key else key


def split(key: Any, count: int) -> Any:
    """Returns as many keys, stacked."""
    return _split(key, count)


def bernoulli(key: Any, p: float, shape: tuple[int, ...]) -> Any:
    """Returns booleans that are True with a probability."""
    return _bernoulli(key, p, shape)


def uniform(key: Any, shape: tuple[int, ...], dtype: Any, low: float, high: float) -> Any:
    """Returns numbers that are distributed evenly from `low` up to `high`."""
    return _uniform(key, shape, np.dtype(dtype), low, high)


def normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns standard normal numbers."""
    return _normal(key, shape, np.dtype(dtype))


def truncated(key: Any, low: float, high: float, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns standard normal numbers between two bounds."""
    return _truncated(key, low, high, shape, np.dtype(dtype))


def orthogonal(key: Any, n: int, m: int, dtype: Any) -> Any:
    """Returns a matrix f32[n, m] whose rows or columns are orthonormal."""
    return _orthogonal(key, n, (), m, np.dtype(dtype))


def gumbel(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns numbers of the standard Gumbel distribution."""
    return _gumbel(key, shape, np.dtype(dtype))


def permutations(key: Any, count: int, length: int) -> Any:
    """Returns permutations of the first integers, i32[length, count], one for each column."""
    rows = np.broadcast_to(np.arange(length, dtype="int32")[:, None], (length, count))
    return _permutation(key, np.ascontiguousarray(rows), axis=0, independent=True)
