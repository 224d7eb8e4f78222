"""What the functions that are being traced ask of the rules that they call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ftrans.ir import Tracer
from ftrans.ir.source import Mapped
from ftrans.ir.stack import state
from ftrans.primitives.namespace import is_traced_by_jax

__all__ = ["Surroundings", "surroundings"]


class Surroundings(NamedTuple):
    """Is what is asked of a rule that is called at some place.

    Attributes:
        order: how many times rules are to be traced, one in the other; not positive where they are
            not.
        only_reverse: whether nothing but gradients is asked for, so that a `backward` is enough.
        randomness: what the innermost `vmap` was told of randomness.
        is_jax: whether JAX is tracing, too.
    """

    order: int
    only_reverse: bool
    randomness: str
    is_jax: bool


_REVERSE = 2
"""The order of frames of reverse mode, see `Frame`."""

_BY_JAX = 8
"""How many derivatives JAX may take of what it is tracing, which says nothing of that."""


def surroundings() -> Surroundings:
    """Returns what is asked of a rule that is called now."""
    order, only_reverse, randomness, is_jax = 0, True, "error", state.by_jax
    for frame in state.stack:
        order += frame.order
        if frame.order > _REVERSE:
            only_reverse = False
        for source in frame.sources:
            kind: Any = type(source)
            if kind is Tracer or kind is np.ndarray:
                continue
            if kind is Mapped:
                randomness, source = source.randomness, source.array
            if is_traced_by_jax(source):
                is_jax = True
    if is_jax:
        return Surroundings(order + _BY_JAX, False, randomness, True)
    return Surroundings(order, only_reverse, randomness, False)
