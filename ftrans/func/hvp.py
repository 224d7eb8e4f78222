"""Products with the Hessian, which is never formed: `hvp` and `vhp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftrans.func.grad import value_and_grad
from ftrans.func.jvp import jvp
from ftrans.func.staging import name_of
from ftrans.func.vjp import vjp
from ftrans.traceback import boundary

__all__ = ["hvp", "vhp"]


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _gradient(func: Callable[..., Any], count: int) -> Callable[..., tuple[Any, Any]]:
    """Returns a function of the inputs that returns the gradients, and the value as aux."""
    with_value = value_and_grad(func, tuple(range(count)))

    def gradient(*inputs: Any) -> tuple[Any, Any]:
        value, found = with_value(*inputs)
        return found, value

    gradient.__name__ = name_of(func)
    return gradient


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
    primals, vectors = _as_tuple(inputs), _as_tuple(v)
    _, product, value = jvp(_gradient(func, len(primals)), primals, vectors, has_aux=True)
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
    primals, vectors = _as_tuple(inputs), _as_tuple(v)
    _, pull, value = vjp(_gradient(func, len(primals)), *primals, has_aux=True)
    product = pull(vectors)
    return value, product if isinstance(inputs, tuple) else product[0]
