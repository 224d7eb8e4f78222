"""Where functions of this package get random numbers from: a key, a generator, or the default."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import random
from ftrans.errors import ArgumentError
from ftrans.random.generator import default_generator
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax

split = random.split


def key_of(name: str, key: Any, rng: Any) -> Any:
    """Returns the key that a function is to draw by.

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
    if key is not None:
        # results follow the container of the operands
        is_held = is_jax(key) and not is_traced_by_jax(key)
        return np.asarray(random.key_data(key)) if is_held else key
    if rng is None:
        return default_generator.key()
    if not callable(getattr(rng, "key", None)):
        raise ArgumentError(
            f"{name}: rng is a generator of keys.\n  rng: {type(rng).__name__}\n"
            f"  Write rng=ftrans.random.default_rng(0), or pass a key: key=ftrans.random.key(0)."
        )
    return rng.key()


def bernoulli(key: Any, p: float, shape: tuple[int, ...]) -> Any:
    """Returns booleans that are True with a probability, those of `random.bernoulli`."""
    # a constant of the program, so that it is none that bodies of loops capture
    return fnp.less(random.uniform(key, shape, "float32"), p)
