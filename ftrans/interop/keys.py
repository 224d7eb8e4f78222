"""JAX's keys of random numbers: here a key is the words that it consists of.

What JAX does to a key its implementation says, as functions of words, which are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import ftrans.primitives as p
from ftrans.interop.importer import (
    Importer,
    NoCounterpart,
    Rule,
    broadcast,
    is_key,
    key_shape,
    type_of_aval,
)
from ftrans.interop.shapes import ints
from ftrans.ir import type_of
from ftrans.primitives.shape import part


def _of_words(make: Callable[[Any, Any], Callable[..., Any]]) -> Rule:
    """Makes the rule of what is done to each of some keys or seeds; `make` returns it for one."""

    def rule(importer: Importer, equation: Any, keys: Any, *operands: Any) -> Any:
        avals, params = [var.aval for var in equation.invars], equation.params
        function = make(getattr(avals[0].dtype, "_impl", None), params)  # seeds are no keys yet
        shape = np.broadcast_shapes(*[aval.shape for aval in avals])
        for _ in shape:
            function = jax.vmap(function)
        given = [
            broadcast(importer.array(x), (*shape, *words), _trailing(aval, len(shape), words))
            for x, aval in zip((keys, *operands), avals, strict=True)
            for words in [key_shape(aval) if is_key(aval) else ()]
        ]
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in map(type_of, given)]
        closed = jax.make_jaxpr(function)(*specs)
        return importer.run(closed.jaxpr, closed.consts, given)

    return rule


def _trailing(aval: Any, ndim: int, words: tuple[int, ...]) -> range:
    """Returns which axes of a result with `ndim` axes, before those of words, are a value's."""
    return range(ndim - aval.ndim, ndim + len(words))


def _same(importer: Importer, equation: Any, *operands: Any) -> Any:
    return [importer.array(x) for x in operands]


def _shaped(importer: Importer, equation: Any, x: Any, *more: Any) -> Any:
    return p.reshape_p(x, shape=type_of_aval(equation.outvars[0].aval).shape)


def _slice(importer: Importer, equation: Any, x: Any) -> Any:
    params, words = equation.params, key_shape(equation.invars[0].aval)
    start, stop = ints(params["start_indices"]), ints(params["limit_indices"])
    step = params["strides"] or (1,) * len(start)
    more = len(words)
    return p.slice_p(
        x, start=(*start, *[0] * more), stop=(*stop, *words), step=(*ints(step), *[1] * more)
    )


def _behind(equation: Any, axes: Any, first: int) -> tuple[int, ...]:
    """Returns axes of keys, and those of their words behind them."""
    count = len(key_shape(equation.invars[0].aval))
    return (*ints(axes), *range(first, first + count))


def _broadcast(importer: Importer, equation: Any, x: Any, *more: Any) -> Any:
    shape = type_of_aval(equation.outvars[0].aval).shape
    first = equation.outvars[0].aval.ndim
    axes = _behind(equation, equation.params["broadcast_dimensions"], first)
    if any(shape[a] != n for a, n in zip(axes, type_of(x).shape, strict=True)):
        raise NoCounterpart
    return p.broadcast_p(x, shape=shape, axes=axes)


def _transpose(importer: Importer, equation: Any, x: Any) -> Any:
    order = _behind(equation, equation.params["permutation"], equation.invars[0].aval.ndim)
    return p.transpose_p(x, permutation=order)


def _concatenate(importer: Importer, equation: Any, *xs: Any) -> Any:
    return p.concatenate_p(*xs, axis=int(equation.params["dimension"]))


def _unstack(importer: Importer, equation: Any, x: Any, **_: Any) -> Any:
    axis, shape = int(equation.params["axis"]), type_of_aval(equation.outvars[0].aval).shape
    count = type_of(x).shape[axis]
    return [p.reshape_p(part(x, axis, i, i + 1), shape=shape) for i in range(count)]


RULES: dict[str, Rule] = {
    "random_bits": _of_words(
        lambda impl, params: (
            lambda words: impl.random_bits(words, int(params["bit_width"]), ints(params["shape"]))
        )
    ),
    "random_split": _of_words(
        lambda impl, params: lambda words: impl.split(words, ints(params["shape"]))
    ),
    "random_fold_in": _of_words(lambda impl, params: impl.fold_in),
    "random_seed": _of_words(lambda impl, params: params["impl"].seed),
    **dict.fromkeys(("copy", "copy_p", "optimization_barrier", "device_put"), _same),
    **dict.fromkeys(("random_wrap", "random_unwrap"), _same),
    "reshape": _shaped,
    "squeeze": _shaped,
    "expand_dims": _shaped,
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "unstack": _unstack,
}
"""The rules of what takes keys, or returns some."""
