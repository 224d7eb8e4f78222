"""The program behind a function: `trace`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftrans.func.derivative import array_outputs
from ftrans.func.staging import Staged, known_inputs, name_of, stage
from ftrans.interpreters import inline, simplify
from ftrans.ir import Abstract, ArrayType, Program
from ftrans.ir.stack import FORWARD
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import split
from ftrans.traceback import bounded


def trace(func: Callable[..., Any]) -> Callable[..., Program]:
    """Returns a function that traces `func` and returns its program instead of its result.

    Args:
        func: any function of arrays and pytrees, the results of transforms included.

    Returns:
        A function of the same arguments. In the place of arrays it also takes types, `ArrayType` or
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

    @bounded(func)
    def traced(*args: Any, **kwargs: Any) -> Program:
        staged, _ = stage_call(func, args, kwargs)
        return simplify(inline(staged.program)).renamed(name_of(func))

    return traced


def stage_call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Staged, list[Any]]:
    """Traces a call of `func` into a program; returns it with the arrays among the arguments.

    Concrete arguments keep their values while `func` is traced, so that it may branch on them.
    """
    name = name_of(func)
    abstract = Abstract(f"an argument of {name}, given as a type")
    taken, skeleton = split((args, kwargs), lambda x: is_array(x) or is_scalar(x) or _is_type(x))
    inputs, arrays = [], []
    for leaf in taken:
        if is_array(leaf) or is_scalar(leaf):
            inputs += known_inputs([leaf])
            arrays.append(as_array(leaf))
        else:
            inputs.append((ArrayType(tuple(leaf.shape), leaf.dtype), abstract, False))

    def run(*tracers: Any) -> Any:
        inner_args, inner_kwargs = skeleton.build(tracers)
        return array_outputs(name, func(*inner_args, **inner_kwargs), "Return the arrays.")

    return stage(name, run, inputs, closed=True, once=True, order=FORWARD), arrays


def _is_type(leaf: Any) -> bool:
    """Tells whether a leaf stands for an array by its shape and dtype alone."""
    return isinstance(leaf, ArrayType) or (
        not is_array(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    )
