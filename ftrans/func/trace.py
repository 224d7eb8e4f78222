"""The program behind a function: `trace`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.tree_util as tree

from ftrans.func.staging import abstract_inputs, name_of, stage
from ftrans.func.vjp import array_outputs
from ftrans.interpreters import inline, simplify
from ftrans.ir import ArrayType, Program, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar

__all__ = ["abstract_type", "trace"]


def abstract_type(leaf: Any) -> ArrayType | None:
    """Returns the type of an array, a Python scalar, or anything with a shape and a dtype."""
    if isinstance(leaf, ArrayType):
        return leaf
    if is_array(leaf) or is_scalar(leaf):
        t = type_of(as_array(leaf))
        return ArrayType(t.shape, t.dtype, is_scalar(leaf))
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return ArrayType(tuple(leaf.shape), leaf.dtype)
    return None


def trace(func: Callable[..., Any]) -> Callable[..., Program]:
    """Returns a function that traces `func` and returns its program instead of its result.

    Args:
        func: any function of arrays and pytrees, the results of transforms included.

    Returns:
        A function of the same arguments. In the place of arrays it also takes types: `ArrayType`,
        `jax.ShapeDtypeStruct`. Leaves that are no arrays are static. Arrays that `func` captures
        are the last inputs of the program.

    Example:
        >>> import ftrans.numpy as fnp
        >>> print(trace(lambda x: fnp.sin(x) * 2.0)(ArrayType((3,), "float32")))
        lambda(a: f32[3]) -> f32[3]:
            b: f32[3] = sin(a)
            c: f32[3] = mul(b, 2.0)
            return c
    """

    @functools.wraps(func)
    def traced(*args: Any, **kwargs: Any) -> Program:
        leaves, structure = tree.tree_flatten((args, kwargs))
        types = [abstract_type(leaf) for leaf in leaves]

        def run(*tracers: Any) -> Any:
            given = iter(tracers)
            filled = [
                leaf if t is None else next(given) for leaf, t in zip(leaves, types, strict=True)
            ]
            inner_args, inner_kwargs = tree.tree_unflatten(structure, filled)
            return array_outputs("trace", func(*inner_args, **inner_kwargs))

        name = name_of(func)
        known = [t for t in types if t is not None]
        inputs = abstract_inputs(known, f"an argument of {name}, which is being traced")
        staged = stage(name, run, inputs, closed=True)
        return simplify(inline(staged.program)).renamed(name)

    return traced
