"""JAX's keys of random numbers: here a key is the words that it consists of, along a last axis.

What JAX does to a key its implementation says, as functions of words; all else that is done to
keys is done to each of their words. Both are imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ftrans.interop.elementwise import same
from ftrans.interop.importer import Importer, Rule, broadcast, callee_of, key_shape
from ftrans.interop.shapes import ints
from ftrans.interop.slopes import of_gamma
from ftrans.ir import type_of
from ftrans.primitives import external_p
from ftrans.runtime.jaxlink import is_key


def _imported(importer: Importer, function: Callable[..., Any], given: Sequence[Any]) -> Any:
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in map(type_of, given)]
    closed = jax.make_jaxpr(function)(*specs)
    return importer.run(closed.jaxpr, closed.consts, given)


def _of_words(one: Callable[..., Any]) -> Rule:
    """Makes the rule of what is done to some keys or seeds: `one(impl, params, words, ...)`."""

    def rule(importer: Importer, equation: Any, keys: Any, *operands: Any) -> Any:
        avals, params = [var.aval for var in equation.invars], equation.params
        impl = getattr(avals[0].dtype, "_impl", None)  # seeds are no keys yet
        function = functools.partial(one, impl, params)
        shape = np.broadcast_shapes(*[aval.shape for aval in avals])
        for _ in shape:
            function = jax.vmap(function)
        given = [
            broadcast(importer.array(x), (*shape, *words))
            for x, aval in zip((keys, *operands), avals, strict=True)
            for words in [key_shape(aval) if is_key(aval) else ()]
        ]
        return _imported(importer, function, given)

    return rule


def _by_word(importer: Importer, equation: Any, *operands: Any) -> Any:
    """Does to each word of keys what is done to keys."""
    function = functools.partial(equation.primitive.bind, **equation.params)
    axes = [-1 if is_key(var.aval) else None for var in equation.invars]
    arrays = [importer.array(x) for x in operands]
    return _imported(importer, jax.vmap(function, axes, out_axes=-1), arrays)


def _gamma(importer: Importer, equation: Any, *operands: Any) -> Any:
    def ruled(draw: Any) -> Any:
        return of_gamma(draw, equation.params["log_space"])

    arrays = map(importer.array, operands)
    return external_p(*arrays, callee=callee_of(equation, ruled))


RULES: dict[str, Rule] = {
    "random_bits": _of_words(
        lambda impl, params, words: impl.random_bits(
            words, int(params["bit_width"]), ints(params["shape"])
        )
    ),
    "random_gamma": _gamma,
    "random_split": _of_words(lambda impl, params, words: impl.split(words, ints(params["shape"]))),
    "random_fold_in": _of_words(lambda impl, _, words, number: impl.fold_in(words, number)),
    "random_seed": _of_words(lambda _, params, seed: params["impl"].seed(seed)),
    "random_wrap": same,
    "random_unwrap": same,
    "": _by_word,
}
"""The rules of what takes keys, or returns some; the last one is that of all others."""
