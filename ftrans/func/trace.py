"""Functions of arrays that need not be there, but for their types: `trace`, `linear_transpose`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, DTypeError, TransposeError
from ftrans.func.arguments import match_cotangents
from ftrans.func.derivative import array_outputs
from ftrans.func.staging import (
    Staged,
    abstract_inputs,
    apply,
    known_inputs,
    name_of,
    stage,
    wants_jax,
)
from ftrans.interpreters import inline, linear_pullback, simplify
from ftrans.ir import Abstract, ArrayType, Literal, Program, Tracer, make_tracer, type_of
from ftrans.ir.stack import FORWARD
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives import broadcast_p, convert_p, reshape_p
from ftrans.pytree import describe, leaf_name, split
from ftrans.traceback import boundary, bounded


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


@boundary
def eval_shape(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the shapes and dtypes of what a function returns, which is traced and not run.

    Args:
        func: any function of arrays and pytrees.
        args: its arguments; in the place of arrays also types, as for `trace`.
        kwargs: those by name.

    Returns:
        The result, with a `jax.ShapeDtypeStruct` for each array.

    Example:
        >>> import ftrans.numpy as fnp
        >>> eval_shape(lambda x: fnp.ones((3, 2)) @ x, jax.ShapeDtypeStruct((2, 5), "float32"))
        ShapeDtypeStruct(shape=(3, 5), dtype=float32)
    """
    staged, _ = stage_call(func, args, kwargs)
    types = staged.program.output_types
    return staged.outputs.build([jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types])


def stage_call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], kept: bool = True
) -> tuple[Staged, list[Any]]:
    """Traces a call of `func` into a program; returns it with the arrays among the arguments.

    Concrete arguments keep their values while `func` is traced, so that it may branch on them. A
    program that is not kept, but run at once, may capture tensors.
    """
    name = name_of(func)
    abstract = Abstract(f"an argument of {name}, given as a type")
    taken, skeleton = split((args, kwargs), lambda x: _type_like(x) is not None)
    inputs, arrays = [], []
    for leaf in taken:
        if is_array(leaf) or is_scalar(leaf):
            inputs += known_inputs([leaf])
            arrays.append(as_array(leaf))
        else:
            inputs.append((_type_like(leaf), abstract, False))

    def run(*tracers: Any) -> Any:
        inner_args, inner_kwargs = skeleton.build(tracers)
        return array_outputs(name, func(*inner_args, **inner_kwargs), "Return the arrays.")

    return stage(name, run, inputs, closed=kept, once=kept, order=FORWARD), arrays


def _type_like(leaf: Any) -> ArrayType | None:
    """Returns the type of an array, or of what stands for one; None for anything else."""
    if isinstance(leaf, ArrayType):
        return leaf
    if is_array(leaf) or is_scalar(leaf):
        return type_of(as_array(leaf))
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return ArrayType(tuple(leaf.shape), leaf.dtype)
    return None


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Returns a function that writes to no array that it is given, and runs as one program.

    A traced function has no writes left: `x += 1` gives a name another value. So this traces, runs
    the program, and leaves the arguments as they were.

    Args:
        func: a function of arrays and pytrees.
        remove: "mutations" or "mutations_and_views"; a program has neither.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: where something else is to be removed.

    Example:
        >>> import numpy as np
        >>> def f(x):
        ...     x += 1.0
        ...     return x
        >>> x = np.zeros(2)
        >>> functionalize(f)(x), x
        (array([1., 1.]), array([0., 0.]))
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ArgumentError(
            f"functionalize: expected remove='mutations' or 'mutations_and_views', not {remove!r}."
        )

    @bounded(func)
    def functional(*args: Any, **kwargs: Any) -> Any:
        staged, arrays = stage_call(func, args, kwargs, kept=False)
        outs = apply(staged.program, [*arrays, *staged.captured], wants_jax((args, kwargs)))
        return staged.outputs.build(outs)

    return functional


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """Returns what a traced argument stands for, to be printed.

    Args:
        tensor: a value inside of a transform.
        recurse: whether to go on through all transforms, or through the innermost alone.

    Returns:
        The array that the transform was given, under `vmap` with all examples; the value itself
        where it was computed inside, or is not traced.
    """
    while type(tensor) is Tracer and tensor.index < 0:
        source = tensor.frame.sources[~tensor.index]
        if isinstance(source, Abstract):
            source = source.array  # all examples
        if source is None:
            return tensor
        tensor = source
        if not recurse:
            break
    return tensor


_KEEPING = convert_p, broadcast_p, reshape_p


def _is_zero(x: Any) -> bool:
    """Tells whether it is known that all elements are 0, in a function around it too."""
    while type(x) is Tracer:
        if x.index < 0:
            x = x.frame.sources[~x.index]
            continue
        equation = x.frame.produced(x.index)[0]
        (code, *others) = equation.operands
        if others or equation.primitive not in _KEEPING:
            return False
        if type(code) is Literal:
            return not code.array
        x = make_tracer(x.frame, code, x.frame.type(code))
    return isinstance(x, np.ndarray) and not np.any(x)


@boundary
def linear_transpose(func: Callable[..., Any], *primals: Any) -> Callable[..., tuple[Any, ...]]:
    """Returns the transpose of a linear function, which is not run.

    Args:
        func: a function that is linear in all its arguments together.
        primals: arrays, or anything that has a shape and a dtype such as `ArrayType` or
            `jax.ShapeDtypeStruct`: only types are looked at.

    Returns:
        A function from a cotangent, in the structure of the result, to a tuple with one cotangent
        per primal.

    Raises:
        TransposeError: when the returned function is called, where `func` is not linear; an affine
            function, which adds a constant, is not.

    Example:
        >>> import numpy as np
        >>> (ct,) = linear_transpose(lambda x: 3.0 * x, np.float64(0))(1.0)
        >>> float(ct)
        3.0
    """
    name = f"linear_transpose({name_of(func)})"
    paths, structure = tree.tree_flatten_with_path(primals)
    types = []
    for path, leaf in paths:
        t = _type_like(leaf)
        if t is None or not t.is_inexact:
            raise DTypeError(
                f"{name}: a linear function takes floating-point arrays.\n"
                f"  {leaf_name('primals', path)}: {t or describe(leaf)}\n"
                f"  Close over what is not transposed instead of passing it."
            )
        types.append(t)

    def run(*tracers: Any) -> Any:
        found = func(*tree.tree_unflatten(structure, tracers))
        return array_outputs(name, found, "Return the arrays.")

    inputs = abstract_inputs(types, "an argument of linear_transpose")
    staged = stage(name, run, inputs, order=FORWARD)
    program = staged.program
    # a captured array of zeros is no constant term, wherever it is written to or joined
    zeros = tuple(map(_is_zero, staged.captured))
    as_jax = wants_jax(primals)

    @boundary
    def transposed(cotangent: Any) -> tuple[Any, ...]:
        given = match_cotangents(name, cotangent, staged.outputs, program.output_types)
        jaxed = True if as_jax or wants_jax(cotangent) else as_jax
        try:
            backward = linear_pullback(program, len(types), zeros)
        except TransposeError as error:
            raise TransposeError(f"{name}: {error}") from None
        found = apply(backward, [*staged.captured, *given], jaxed, traced=False)
        return tree.tree_unflatten(structure, found)

    return transposed
