"""Products with the Hessian, which is never formed: `hvp` and `vhp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.tree_util as tree

from ftrans.func.grad import gradient_value_aux
from ftrans.func.jvp import jvp
from ftrans.func.staging import name_of
from ftrans.func.vjp import vjp
from ftrans.ir import type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import leaf_name, match_leaf, match_structure
from ftrans.traceback import boundary


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _gradient(name: str, func: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Returns a function of the inputs that returns the gradients, and the value as aux."""

    @functools.wraps(func)
    def gradient(*inputs: Any) -> tuple[Any, Any]:
        found, value, _ = gradient_value_aux(name, func, range(count), False, inputs, {})
        return found, value

    return gradient


def _checked(name: str, inputs: Any, v: Any) -> Any:
    """Returns `v` where it has the structure and the types of `inputs`."""
    structure = tree.tree_structure(inputs)
    vectors = match_structure(name, "v", "inputs", structure, v)
    paths, _ = tree.tree_flatten_with_path(inputs)
    for (path, leaf), vector in zip(paths, vectors, strict=True):
        if (is_array(leaf) or is_scalar(leaf)) and vector is not None:
            t = type_of(as_array(leaf))
            if t.is_inexact:
                match_leaf(name, leaf_name("v", path), t, vector, leaf_name("inputs", path))
    return v


@boundary
def hvp(func: Callable[..., Any], inputs: Any, v: Any) -> tuple[Any, Any]:
    """Computes the product of the Hessian of `func` with a vector, forward over reverse.

    Args:
        func: returns a real scalar.
        inputs: the argument, a pytree, or a tuple of the positional arguments.
        v: the vector, in the structure of `inputs`.

    Returns:
        `(func(*inputs), product)`, with the product in the structure of `inputs`.

    Example:
        >>> import numpy as np
        >>> value, product = hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
        >>> product
        array([ 6., 12.])
    """
    name = f"hvp({name_of(func)})"
    primals, vectors = _as_tuple(inputs), _as_tuple(_checked(name, inputs, v))
    gradient = _gradient(name, func, len(primals))
    _, product, value = jvp(gradient, primals, vectors, has_aux=True)
    return value, product if isinstance(inputs, tuple) else product[0]


@boundary
def vhp(func: Callable[..., Any], inputs: Any, v: Any) -> tuple[Any, Any]:
    """Computes the product of a vector with the Hessian of `func`, reverse over reverse.

    Args:
        func: returns a real scalar.
        inputs: the argument, a pytree, or a tuple of the positional arguments.
        v: the vector, in the structure of `inputs`.

    Returns:
        `(func(*inputs), product)`, with the product in the structure of `inputs`.

    Example:
        >>> import numpy as np
        >>> value, product = vhp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
        >>> product
        array([ 6., 12.])
    """
    name = f"vhp({name_of(func)})"
    primals, vectors = _as_tuple(inputs), _as_tuple(_checked(name, inputs, v))
    _, pull, value = vjp(_gradient(name, func, len(primals)), *primals, has_aux=True)
    product = pull(vectors)
    return value, product if isinstance(inputs, tuple) else product[0]
