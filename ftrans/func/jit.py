"""Compilation once per signature: `jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as tree

from ftrans.errors import FtransError, StaticArgumentError
from ftrans.func.staging import (
    abstract_inputs,
    apply,
    argument_name,
    describe,
    leaf_name,
    name_of,
    named,
    stage,
)
from ftrans.func.vjp import array_outputs
from ftrans.interpreters import inline, simplify
from ftrans.ir import Tracer, is_tracing
from ftrans.ir.types import ArrayType
from ftrans.numpy.promotion import default_dtype, is_array, is_scalar
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime.jaxlink import is_jax, x64
from ftrans.traceback import boundary

__all__ = ["jit"]


@boundary
def jit(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Returns a function that traces `func` once per signature and runs it compiled.

    The Python of `func` runs only when shapes, dtypes or static arguments are new, and what it
    closes over is frozen then.

    Args:
        func: takes and returns pytrees of arrays. Leaves of the arguments that are no arrays are
            static: with a new value, the function is traced anew.
        options: those of `jax.jit`: `static_argnums`, `static_argnames`, `donate_argnums`,
            `in_shardings`, `out_shardings`, ...

    Returns:
        The compiled function. Results follow the container of the arguments. Its attribute
        `lower` is that of `jax.jit`.

    Raises:
        StaticArgumentError: when it is called with a static argument that cannot be hashed.

    Example:
        >>> import numpy as np
        >>> jit(lambda x: x * 2)(np.arange(3.0))
        array([0., 2., 4.])
    """
    if func is None:
        return functools.partial(jit, **options)
    name = f"jit({name_of(func)})"

    @functools.wraps(func)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        """Runs under `jax.jit`, on the values that JAX traces."""
        leaves, structure = tree.tree_flatten(_unwrapped((args, kwargs)))
        arrays = [leaf for leaf in leaves if is_jax(leaf)]
        staged = _stage(name, func, leaves, structure, is_jax)
        program = simplify(inline(staged.program))
        # Python scalars are of JAX's default dtype here, and weak: give them the traced one
        arrays = [jnp.asarray(x, t.dtype) for x, t in zip(arrays, program.inputs, strict=False)]
        found = evaluate(jnp, program, [*arrays, *staged.captured])
        return staged.outputs.build([jnp.asarray(out) for out in found])

    compiled = jax.jit(lowered, **options)
    static_numbers = _tuple(options.get("static_argnums"))
    static_names = _tuple(options.get("static_argnames"))

    @boundary
    @functools.wraps(func)
    def jitted(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            return _record(name, func, args, kwargs, static_numbers, static_names)
        result = wrapped = None
        try:
            with x64():
                result = compiled(*args, **kwargs)
        except (TypeError, ValueError) as error:
            if isinstance(error, FtransError):
                raise
            # JAX found fault with the arguments: say it in our terms, if it is one that we know
            _check_arguments(name, func, args, kwargs, static_numbers, static_names)
            wrapped = _wrapped(args, kwargs, static_numbers, static_names)
            if wrapped is None:
                raise
        if wrapped is not None:
            with x64():
                result = compiled(*wrapped[0], **wrapped[1])
        if any(is_jax(leaf) for leaf in tree.tree_leaves((args, kwargs))):
            return result
        return tree.tree_map(lambda x: _host(x), result)

    def lower(*args: Any, **kwargs: Any) -> Any:
        wrapped = _wrapped(args, kwargs, static_numbers, static_names) or (args, kwargs)
        with x64():
            return compiled.lower(*wrapped[0], **wrapped[1])

    jitted.lower = lower  # type: ignore[attr-defined]
    jitted.clear_cache = compiled.clear_cache  # type: ignore[attr-defined]
    return named(jitted, name)


@tree.register_static
@dataclass(frozen=True)
class _Static:
    """Carries a leaf that is no array through `jax.jit`, as part of the structure."""

    value: Any


def _wrapped(
    args: Any, kwargs: Any, numbers: tuple[int, ...], names: tuple[str, ...]
) -> tuple[Any, Any] | None:
    """Returns the arguments with leaves that are no arrays made static; None where all are."""
    found = False

    def wrap(leaf: Any) -> Any:
        nonlocal found
        if is_array(leaf) or is_scalar(leaf):
            return leaf
        found = True
        return _Static(leaf)

    statics = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    args = tuple(arg if i in statics else tree.tree_map(wrap, arg) for i, arg in enumerate(args))
    kwargs = {k: arg if k in names else tree.tree_map(wrap, arg) for k, arg in kwargs.items()}
    return (args, kwargs) if found else None


def _unwrapped(arguments: Any) -> Any:
    """Puts the leaves that are no arrays back into their places."""
    return tree.tree_map(
        lambda x: x.value if isinstance(x, _Static) else x,
        arguments,
        is_leaf=lambda x: isinstance(x, _Static),
    )


def _tuple(option: Any) -> tuple[Any, ...]:
    if option is None:
        return ()
    return (option,) if isinstance(option, (int, str)) else tuple(option)


def _host(x: Any) -> Any:
    import numpy as np

    return np.array(x) if is_jax(x) else x


def _stage(
    name: str,
    func: Callable[..., Any],
    leaves: Any,
    structure: Any,
    is_input: Callable[[Any], bool],
) -> Any:
    """Traces `func` with the leaves that are inputs replaced by traced values."""

    def run(*tracers: Any) -> Any:
        given = iter(tracers)
        filled = [next(given) if is_input(leaf) else leaf for leaf in leaves]
        args, kwargs = tree.tree_unflatten(structure, filled)
        return array_outputs(name, func(*args, **kwargs), "Compute it outside.")

    types = [_type(leaf) for leaf in leaves if is_input(leaf)]
    inputs = abstract_inputs(types, f"an argument of {name}")
    return stage(name, run, inputs, closed=True, once=True)


def _type(leaf: Any) -> ArrayType:
    """Returns the type of an argument; Python scalars, weak in JAX, take our default dtype."""
    if isinstance(leaf, Tracer):
        return ArrayType(leaf.type.shape, leaf.type.dtype, leaf.weak)
    if getattr(getattr(leaf, "aval", None), "weak_type", False) and leaf.shape == ():
        kind = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[leaf.dtype.kind]
        return ArrayType((), default_dtype(kind), weak=True)
    return ArrayType(leaf.shape, leaf.dtype)


def _record(
    name: str,
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    static_numbers: tuple[int, ...],
    static_names: tuple[str, ...],
) -> Any:
    """Records the call of a jitted function inside a traced one."""
    _check_arguments(name, func, args, kwargs, static_numbers, static_names)
    statics = {number % len(args) for number in static_numbers if -len(args) <= number < len(args)}
    dynamic = [None if i in statics else arg for i, arg in enumerate(args)]
    dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in static_names}
    leaves, structure = tree.tree_flatten((tuple(dynamic), dynamic_kwargs))

    def call(*inner: Any, **inner_kwargs: Any) -> Any:
        full = [args[i] if i in statics else arg for i, arg in enumerate(inner)]
        return func(*full, **inner_kwargs, **{k: kwargs[k] for k in static_names if k in kwargs})

    from ftrans.numpy.promotion import as_array

    def is_input(leaf: Any) -> bool:
        return is_array(leaf) or is_scalar(leaf)

    arrays = [as_array(leaf) if is_input(leaf) else leaf for leaf in leaves]
    staged = _stage(name, call, arrays, structure, is_array)
    operands = [leaf for leaf in arrays if is_array(leaf)]
    return staged.outputs.build(apply(staged.program, [*operands, *staged.captured]))


def _check_arguments(
    name: str,
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    numbers: tuple[int, ...],
    names: tuple[str, ...],
) -> None:
    """Raises where what is static, an argument or a leaf that is no array, cannot be hashed."""
    statics = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    given = [((tree.SequenceKey(i),), arg, i in statics) for i, arg in enumerate(args)]
    given += [((tree.GetAttrKey(k),), arg, k in names) for k, arg in kwargs.items()]
    for root, value, static in given:
        if static:
            _check_hashable(name, _label(func, root), value)
            continue
        for path, leaf in tree.tree_flatten_with_path(value)[0]:
            if not (is_array(leaf) or is_scalar(leaf)):
                _check_hashable(name, _label(func, (*root, *path)), leaf)


def _label(func: Callable[..., Any], path: Any) -> str:
    first = path[0]
    if isinstance(first, tree.SequenceKey):
        return argument_name(func, path)
    return leaf_name(first.name, path[1:])


def _check_hashable(name: str, label: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise StaticArgumentError(
            f"{name}: a static argument must be hashable, since programs are found by it.\n"
            f"  {label}: {describe(value)}\n"
            f"  Pass a tuple or another immutable value instead."
        ) from None
