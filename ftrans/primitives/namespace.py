"""What primitives ask of JAX itself, on both roads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def by_lax(xp: Any, name: str, *arrays: Any, **params: Any) -> Any:
    """Applies a function of `jax.lax`; scalars broadcast.

    Where `xp` is NumPy the function runs at once, in double precision if the arrays are, and also
    inside a trace of JAX's.

    Args:
        xp: `numpy` or `jax.numpy`.
        name: the name of the function in `jax.lax`.
        *arrays: the operands, of one dtype.
        **params: what else the function takes.
    """
    import jax

    function = getattr(jax.lax, name)
    if len({x.shape for x in arrays}) > 1:
        arrays = xp.broadcast_arrays(*arrays)
    if xp is not np:
        return function(*arrays, **params)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        given = [jax.numpy.asarray(unseen(array)) for array in arrays]
        return np.asarray(function(*given, **params))


def unseen(x: Any) -> Any:
    """Returns an array of NumPy's as one that JAX has not seen; anything else as it is.

    JAX 0.10 keeps what `jax.device_put` rounded an array to outside of double precision, by
    identity, and takes that within it as well: rounded, or fewer bytes than XLA reads.
    """
    return x[...] if type(x) is np.ndarray else x


@functools.lru_cache(64)
def _compiled(lower: Callable[..., Any], params: tuple[tuple[str, Any], ...]) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda *arrays: lower(jnp, *arrays, **dict(params)))


def by_jit(
    xp: Any, lower: Callable[..., Any], arrays: Sequence[Any], params: dict[str, Any]
) -> Any:
    """Runs the lowering of a primitive compiled by JAX; returns arrays as it is given.

    Args:
        xp: `numpy` or `jax.numpy`.
        lower: the lowering.
        arrays: the operands.
        params: its params, which are hashable.
    """
    import jax

    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        found = _compiled(lower, tuple(params.items()))(*map(unseen, arrays))
    return jax.tree_util.tree_map(np.asarray, found) if xp is np else found


def hashed(*words: Any) -> Any:
    """Applies JAX's own primitive of Threefry to the words of keys and counters, of one shape."""
    from jax.extend.random import threefry2x32_p  # which takes its time

    return threefry2x32_p.bind(*words)


def without_derivative(
    function: Callable[..., Any], arrays: Sequence[Any], fail: Callable[[], Any]
) -> Any:
    """Applies a function to values that JAX traces, such that JAX cannot differentiate it.

    Args:
        function: takes arrays, and what JAX may pass for them: Python scalars.
        arrays: the values.
        fail: raises what is to be raised where a derivative is asked for.
    """
    import jax

    @jax.custom_jvp
    def applied(*given: Any) -> Any:
        return function(*given)

    @applied.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        fail()

    return applied(*arrays)


def rematerialized(function: Callable[..., Any], arrays: Sequence[Any], prevent_cse: bool) -> Any:
    """Applies a function to values that JAX traces, as `jax.checkpoint` does."""
    import jax

    return jax.checkpoint(function, prevent_cse=prevent_cse)(*arrays)


def rounds() -> bool:
    """Tells whether JAX rounds what is in double precision: outside of our own scopes it may."""
    import jax

    return not jax.config.read("jax_enable_x64")


def held_as(xp: Any, dtype: np.dtype) -> np.dtype:
    """Returns the dtype that values of `dtype` have in `xp`: outside of our scopes JAX narrows."""
    if xp is np:
        return dtype
    import jax

    return jax.dtypes.canonicalize_dtype(dtype)


def is_traced_by_jax(value: Any) -> bool:
    """Tells whether a value belongs to a JAX transformation that is under way."""
    return isinstance(value, _tracer())


@functools.cache
def _tracer() -> type:
    from jax.core import Tracer

    return Tracer
