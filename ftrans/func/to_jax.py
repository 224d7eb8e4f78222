"""`to_jax`: functions of ours as functions that are written with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as tree

from ftrans.func.jit import Jitted
from ftrans.func.signature import is_given
from ftrans.func.staging import named
from ftrans.ir import is_tracing
from ftrans.runtime.faults import raised
from ftrans.runtime.jaxlink import is_jax, words
from ftrans.traceback import bounded


def to_jax(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Returns a function for JAX: it takes and returns arrays of JAX's, under all that JAX does.

    It is traced once per signature, as by `jit`, and JAX gets what comes of that, with the custom
    rules in it: it differentiates by them. A rule that gives `backward` alone has both modes, as
    it has here, where `backward` is linear and calls no Python code; a rule that gives both has
    JAX's reverse mode.

    Args:
        function: takes and returns pytrees of arrays, written with `ftrans.numpy` or NumPy. What it
            closes over is frozen, and leaves of its arguments that are no arrays are static.
        options: those of `jax.jit`, such as `static_argnums`.

    Returns:
        The function. What it is given becomes JAX's as by `jax.numpy.asarray`, and what it returns
        has the precision of JAX's configuration, whatever it computes in. Keys of `jax.random` are
        handed on as the words that they consist of, which `ftrans.random` takes.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> f = to_jax(lambda x: np.sum(np.sin(x) ** 2))
        >>> jax.vmap(jax.grad(f))(np.zeros((2, 3)))
        Array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float32)
    """
    made = Jitted(function, options)

    def for_jax(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            return made.inside(args, kwargs)
        static = made.statics.positions(args)
        args = tuple([x if i in static else _given(x) for i, x in enumerate(args)])
        kwargs = {k: x if k in made.statics.names else _given(x) for k, x in kwargs.items()}
        record, given, named = made.record_of(args, kwargs)
        cause = None
        try:
            with record.scope():
                result = record.call(record.captured, *given, **named)
            return tree.tree_map(_held, result)
        except Exception as error:
            cause = raised(error)
            if cause is None:
                raise
        raise cause

    return named(bounded(function)(for_jax), f"to_jax({made.shown})")


def _given(x: Any) -> Any:
    """Returns an argument with arrays of JAX's for all arrays and numbers in it."""
    return tree.tree_map(_leaf, x)


def _leaf(x: Any) -> Any:
    x = words(x)
    if not is_given(x):
        return x
    x = x if is_jax(x) else jnp.asarray(x)
    if x.weak_type and jnp.issubdtype(x.dtype, jnp.integer):
        return jax.lax.convert_element_type(x, x.dtype)  # else it would be one of ours, in 32 bits
    return x


def _held(x: Any) -> Any:
    """Returns a result in a dtype that JAX has at present."""
    dtype = jax.dtypes.canonicalize_dtype(x.dtype)
    return x if x.dtype == dtype else jax.lax.convert_element_type(x, dtype)
