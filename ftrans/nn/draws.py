"""Where the functions of this package get random numbers from: a key, a generator, or the default.

All use of random numbers is in this file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.errors import ArgumentError
from ftrans.interop import from_jax

_split = from_jax(jax.random.split)


@cache
def _drawing(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `draw(key, dtype, *args)` as one of ours.

    The dtype is that of an array that is passed, by which `from_jax` knows that wide numbers are to
    be kept.
    """
    return from_jax(lambda key, like, *args: draw(key, like.dtype, *args))


@cache
def _bernoulli(p: float) -> Callable[..., Any]:
    # a constant of the program, so that it is none that bodies of loops capture
    return from_jax(lambda key, shape: jax.random.bernoulli(key, p, shape))


def _drawn(draw: Callable[..., Any], key: Any, dtype: Any, *args: Any) -> Any:
    return _drawing(draw)(key, np.zeros((), dtype), *args)


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
    return _bernoulli(float(p))(key, shape)


def uniform(key: Any, shape: tuple[int, ...], dtype: Any, low: float, high: float) -> Any:
    """Returns numbers that are distributed evenly from `low` up to `high`."""
    return _drawn(_uniform, key, dtype, shape, low, high)


def _uniform(key: Any, dtype: Any, shape: Any, low: Any, high: Any) -> Any:
    return jax.random.uniform(key, shape, dtype, low, high)


def normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns standard normal numbers."""
    return _drawn(_normal, key, dtype, shape)


def _normal(key: Any, dtype: Any, shape: Any) -> Any:
    return jax.random.normal(key, shape, dtype)


def truncated(key: Any, low: float, high: float, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns standard normal numbers between two bounds."""
    return _drawn(_truncated, key, dtype, low, high, shape)


def _truncated(key: Any, dtype: Any, low: Any, high: Any, shape: Any) -> Any:
    return jax.random.truncated_normal(key, low, high, shape, dtype)


def orthogonal(key: Any, n: int, m: int, dtype: Any) -> Any:
    """Returns a matrix f32[n, m] whose rows or columns are orthonormal."""
    return _drawn(_orthogonal, key, dtype, n, m)


def _orthogonal(key: Any, dtype: Any, n: int, m: int) -> Any:
    return jax.random.orthogonal(key, n, (), dtype, m)


def gumbel(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns numbers of the standard Gumbel distribution."""
    return _drawn(_gumbel, key, dtype, shape)


def _gumbel(key: Any, dtype: Any, shape: Any) -> Any:
    return jax.random.gumbel(key, shape, dtype)


def permutations(key: Any, count: int, length: int) -> Any:
    """Returns permutations of the first integers, i32[length, count], one for each column."""
    return _drawn(_permutations, key, "int32", count, length)


def _permutations(key: Any, dtype: Any, count: int, length: int) -> Any:
    rows = jnp.broadcast_to(jnp.arange(length, dtype=dtype)[:, None], (length, count))
    return jax.random.permutation(key, rows, axis=0, independent=True)
