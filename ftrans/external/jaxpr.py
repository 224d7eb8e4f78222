"""What JAX makes of a function, and what tells two of them apart that were traced one by one.

A function that is made anew at each call is traced anew, so that nothing can have changed unseen;
what is compiled is found by the structure of the jaxpr. Arrays that the function closes over are
inputs of the jaxpr, and no part of its structure.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

from ftrans.primitives.rules.external import Same


def key_of(jaxpr: Any) -> Hashable:
    """Returns what is equal for jaxprs that do the same the same way.

    What cannot be compared is like itself alone, as the rules are of `jax.custom_jvp`: they are
    functions that JAX makes for each trace.
    """
    numbers: dict[Any, int] = {}

    def atom(x: Any) -> Hashable:
        if hasattr(x, "val"):
            return static_key(x.val), x.aval
        return numbers.setdefault(x, len(numbers))

    inputs = tuple([(atom(x), x.aval) for x in (*jaxpr.constvars, *jaxpr.invars)])
    equations = tuple(
        [
            (
                equation.primitive,
                tuple(map(atom, equation.invars)),
                static_key(equation.params),
                tuple(map(atom, equation.outvars)),
                static_key(equation.ctx),
                frozenset(equation.effects),
            )
            for equation in jaxpr.eqns
        ]
    )
    return inputs, equations, tuple(map(atom, jaxpr.outvars))


def static_key(value: Any) -> Hashable:
    """Returns what stands in a key for params, literals, and arrays inside of a jaxpr."""
    kind = type(value)
    if hasattr(value, "eqns"):
        return kind, key_of(value), static_key(getattr(value, "consts", ()))
    if isinstance(value, dict):
        return kind, tuple([(name, static_key(value[name])) for name in sorted(value)])
    if isinstance(value, (tuple, list)):
        return kind, tuple(map(static_key, value))
    if isinstance(value, (float, complex)):
        return kind, repr(value)  # which tells zeros apart, and not NaN
    if isinstance(value, np.ndarray) and value.ndim:
        return Same(value), value.tobytes()  # since others may write to it
    if isinstance(value, (np.ndarray, np.generic)):
        return content_key(value)
    try:
        hash(value)
    except TypeError:
        return Same(value)
    return kind, value


def content_key(array: Any) -> Hashable:
    """Returns what stands in a key for an array that nobody writes to any more."""
    return (
        Same(array) if isinstance(array, jax.Array) else (array.dtype, array.shape, array.tobytes())
    )
