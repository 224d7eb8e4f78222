"""Keys of random numbers: a key is the two words, uint32[2], by which counters are hashed.

So it is an array like any: an argument, a carry, a leaf, an axis to map over. Those of `jax.random`
are taken as well, and theirs are made of ours by `jax.random.wrap_key_data`.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any
from weakref import ref

import jax
import numpy as np

from ftrans.errors import ArgumentError, DTypeError, KeyReuseWarning, ShapeError
from ftrans.interop import from_jax
from ftrans.ir import Tracer, type_of
from ftrans.ir.location import here
from ftrans.numpy.promotion import as_array, cast, is_array, is_scalar
from ftrans.primitives import or_p
from ftrans.primitives.random import threefry_p
from ftrans.pytree import describe
from ftrans.runtime import on_clear
from ftrans.runtime.jaxlink import is_jax, is_key
from ftrans.traceback import OnTape, boundary

__all__ = ["PRNGKey", "clone", "fold_in", "key", "key_data", "split", "wrap_key_data"]

WORDS = (2,)
_IMPL = "threefry2x32"
_LOW = 0xFFFFFFFF


def wrapped(words: Any) -> Any:
    """Returns words as one of JAX's typed keys, in what JAX traces."""
    return jax.random.wrap_key_data(words, impl=_IMPL)


_words_of_seed = from_jax(lambda seed: jax.random.key_data(jax.random.key(seed, impl=_IMPL)))


@boundary
def key(seed: Any) -> Any:
    """Returns the key of a seed, the one that `jax.random.key` makes.

    Args:
        seed: an integer, or an integer scalar. Negative ones, and those of 64 bits, count as JAX
            counts them: all 64 bits where `jax_enable_x64` is set, else the lower 32.

    Returns:
        The key, uint32[2].

    Raises:
        ArgumentError: where the seed is no integer, or has more than 64 bits.

    Example:
        >>> key(7)
        array([0, 7], dtype=uint32)
    """
    if type(seed) in OnTape.types:
        raise OnTape
    settings: Any = jax.config
    all_bits = settings.jax_enable_x64
    if isinstance(seed, (int, np.integer, np.bool_)):
        value = int(seed)
        if not -(2**63) <= value < 2**64:
            raise ArgumentError(
                f"key: a seed has 64 bits at most.\n  seed: {value}\n"
                f"  Keep what fits: key(seed % 2**64), or fold_in(key(low), high)."
            )
        short = isinstance(seed, (bool, np.bool_)) or getattr(seed, "nbytes", 8) < 8
        high = value >> 32 & _LOW if all_bits and not short else 0
        return np.array([high, value & _LOW], np.uint32)
    if not is_array(seed) or type_of(seed).dtype.kind not in "iu" or type_of(seed).shape:
        raise ArgumentError(
            f"key: a seed is an integer.\n  seed: {describe(seed)}\n"
            f"  Write key(0); for many keys, split(key(0), n)."
        )
    if type(seed) is Tracer or is_jax(seed):
        return _words_of_seed(seed if all_bits else cast(as_array(seed), "uint32"))
    return key(np.asarray(seed)[()])


PRNGKey = key


def words_of(name: str, given: Any, ndim: int | None = 1) -> Any:
    """Returns the words of a key that somebody passed.

    Args:
        name: that of the function, for errors.
        given: a key of ours or of JAX's.
        ndim: how many axes its words have, one for a single key; None for any number.

    Raises:
        ShapeError: where there are several, or not two words.
        DTypeError: where it is no key at all.
    """
    if type(given) in OnTape.types:
        raise OnTape
    if is_key(given):
        given = jax.random.key_data(given)
    if not is_array(given):
        integer = is_scalar(given) and not isinstance(given, (float, complex))
        raise DTypeError(
            f"{name}: takes a key, uint32[2].\n  key: {describe(given)}\n"
            f"  Make one: ftrans.random.key({given if integer else 0})."
        )
    t = type_of(given)
    if t.dtype != np.uint32:
        raise DTypeError(
            f"{name}: takes a key, uint32[2].\n  key: {t}\n"
            f"  Make one of a seed: ftrans.random.key(0)."
        )
    if t.shape[-1:] != WORDS:
        raise ShapeError(
            f"{name}: takes a key, uint32[2].\n  key: {t}\n"
            f"  A key has two words: ftrans.random.key(0), or one of split(key, n)."
        )
    if ndim is not None and t.ndim != ndim:
        raise ShapeError(
            f"{name}: takes one key, uint32[2].\n  key: {t}\n  For several keys, write "
            f"ftrans.vmap(lambda key: ftrans.random.{name}(key, ...))(keys)."
        )
    return given


# ------------------------------------------------------------------------------------ used twice

_used: dict[int, tuple[Any, Any]] = {}
"""Keys that are alive, by identity: the key, weakly, and the place where it was drawn by."""

_told: set[Any] = set()
"""The places where one was told of it."""

on_clear(_told.clear)


def consumed(name: str, given: Any) -> Any:
    """Returns the words of a key, which numbers are drawn by now.

    Warns once for a place, where the same object was drawn by at another one. A place may draw by
    one key time and again: so does a loss that is evaluated at many points for the same noise.
    """
    words = words_of(name, given)
    number, place = id(given), here()
    known = _used.get(number)
    if known is None or known[0]() is not given:
        with contextlib.suppress(TypeError):  # of a class that cannot be referred to weakly
            _used[number] = ref(given, lambda _: _used.pop(number, None)), place
    elif known[1] != place and place is not None and place not in _told:
        _told.add(place)
        warnings.warn_explicit(
            KeyReuseWarning(
                f"{name}: this key was drawn by before, at {known[1]}, so that numbers repeat.\n"
                f"  Split it first: first, second = ftrans.random.split(key). If they are to be\n"
                f"  the same, draw by ftrans.random.clone(key)."
            ),
            KeyReuseWarning,
            place.filename,
            place.line,
        )
    return words


# ------------------------------------------------------------------------------- keys out of keys

_split = from_jax(lambda words, shape: jax.random.key_data(jax.random.split(wrapped(words), shape)))
_fold_in = from_jax(lambda words, n: jax.random.key_data(jax.random.fold_in(wrapped(words), n)))


@boundary
def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """Returns new keys, which are independent of each other; the old one is not to be used again.

    Args:
        key: a key.
        num: how many, or the shape of an array of them.

    Returns:
        The keys, uint32[num, 2]: unpack them, or map over axis 0.

    Example:
        >>> first, second = split(key(0))
        >>> first
        array([1797259609, 2579123966], dtype=uint32)
    """
    return _split(consumed("split", key), shape_of("split", "num", num))


@boundary
def fold_in(key: Any, data: Any) -> Any:
    """Returns the key that comes of a key and a number: of a step, of a layer, of a worker.

    Args:
        key: a key, which may be folded with other numbers as well.
        data: an integer scalar, of which 32 bits count.

    Returns:
        The new key, uint32[2].

    Example:
        >>> fold_in(key(0), 3)
        array([2467461003, 3840466878], dtype=uint32)
    """
    words = words_of("fold_in", key)
    if type(data) in OnTape.types:
        raise OnTape
    if isinstance(data, (int, np.integer)):
        data = np.uint32(int(data) & _LOW)
    if not is_array(data) or type_of(data).dtype.kind not in "iu" or type_of(data).shape:
        raise ArgumentError(
            f"fold_in: data is an integer scalar.\n  data: {describe(data)}\n"
            f"  Write fold_in(key, 3); for many, ftrans.vmap(fold_in, (None, 0))(key, numbers)."
        )
    return _fold_in(words, data)


@boundary
def key_data(keys: Any) -> Any:
    """Returns the words of keys of ours, which they are already, or of JAX's.

    Example:
        >>> key_data(jax.random.key(7))
        Array([0, 7], dtype=uint32)
    """
    return words_of("key_data", keys, None)


@boundary
def wrap_key_data(key_bits_array: Any) -> Any:
    """Returns words as keys, which they are, if there are two of them along the last axis."""
    return words_of("wrap_key_data", key_bits_array, None)


@boundary
def clone(key: Any) -> Any:
    """Returns the same key, to draw the same numbers by once more without a warning."""
    words = words_of("clone", key, None)
    return or_p(words, 0) if type(words) is Tracer else np.array(words)


def shape_of(name: str, label: str, given: Any) -> tuple[int, ...]:
    """Returns a shape that somebody passed: whole numbers that are not negative, or one.

    Raises:
        ArgumentError: otherwise.
    """
    sizes = (given,) if isinstance(given, (int, np.integer)) else given
    try:
        shape = tuple([s.__index__() for s in sizes])
    except (AttributeError, TypeError):
        shape = (-1,)
    if any(size < 0 for size in shape):
        raise ArgumentError(
            f"{name}: a shape is a tuple of ints that are not negative.\n"
            f"  {label}: {describe(given)}\n  Write {label}=(2, 3), or () for one number."
        )
    return shape


def block(words: np.ndarray, high: Any, low: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns what concrete words make of counters, at once."""
    return threefry_p.lower(np, words[0], words[1], high, low)
