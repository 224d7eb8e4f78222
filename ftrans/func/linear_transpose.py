"""Transposition of linear functions: `linear_transpose`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.errors import DTypeError, TransposeError
from ftrans.func.derivative import array_outputs
from ftrans.func.staging import abstract_inputs, apply, name_of, stage, wants_jax
from ftrans.func.vjp import match_cotangents
from ftrans.interpreters import linear_pullback
from ftrans.ir import ArrayType, type_of
from ftrans.ir.stack import FORWARD
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import describe, leaf_name
from ftrans.traceback import boundary


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
        if isinstance(leaf, ArrayType):
            t = leaf
        elif is_array(leaf) or is_scalar(leaf):
            t = type_of(as_array(leaf))
        elif hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            t = ArrayType(tuple(leaf.shape), leaf.dtype)
        else:
            t = None
        if t is None or not t.is_inexact:
            raise DTypeError(
                f"{name}: a linear function takes floating-point arrays.\n"
                f"  {leaf_name('primals', path)}: {t or describe(leaf)}\n"
                f"  Close over what is not transposed instead of passing it."
            )
        types.append(t)

    def run(*tracers: Any) -> Any:
        return array_outputs(
            name, func(*tree.tree_unflatten(structure, tracers)), "Return the arrays."
        )

    staged = stage(
        name, run, abstract_inputs(types, "an argument of linear_transpose"), order=FORWARD
    )
    program = staged.program
    # a captured array of zeros is no constant term, wherever it is written to or joined
    zeros = tuple(isinstance(x, np.ndarray) and not np.any(x) for x in staged.captured)
    as_jax = wants_jax(primals)

    @boundary
    def transposed(cotangent: Any) -> tuple[Any, ...]:
        given = match_cotangents(name, cotangent, staged.outputs, program.output_types)
        jaxed = True if as_jax or wants_jax(cotangent) else as_jax
        try:
            backward = linear_pullback(program, len(types), zeros)
        except TransposeError as error:
            raise TransposeError(f"{name}: {error}") from None
        return tree.tree_unflatten(
            structure, apply(backward, [*staged.captured, *given], jaxed, traced=False)
        )

    return transposed
