"""The names of `torch.autograd.functional`: derivatives of a function at a point, in one call.

They are the transforms of `ftrans.func` with the point, `inputs`, among the arguments: a pytree,
or a tuple of positional arguments. What is "like" it has its structure and shapes. A vector `v` may
be left out, for 1, where that is one element. With `strict` an `ArgumentError` says where something
does not depend. `create_graph` says whether tensors that are returned have a history, under
`no_grad` too; for arrays it means nothing, nor does `vectorize`: it is always as if they were said.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from inspect import signature
from typing import Any, TypeVar

import ftrans.func as transforms
from ftrans.autograd.modes import Mode
from ftrans.func.point import Point
from ftrans.ir import Tracer
from ftrans.ir.stack import state
from ftrans.primitives import stop_gradient_p
from ftrans.pytree import mapped
from ftrans.traceback import boundary

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

_STRATEGIES = {"reverse-mode": transforms.jacrev, "forward-mode": transforms.jacfwd}


def _differentiated(function: F) -> F:
    """Has a function record what it does where a graph is to be created, as PyTorch does."""
    at, bounded = [*signature(function).parameters].index("create_graph"), boundary(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        create_graph = kwargs.get("create_graph", any(args[at : at + 1]))
        with Mode(True) if create_graph and not state.stack else nullcontext():
            return bounded(*args, **kwargs)

    return called  # type: ignore[return-value]


@_differentiated
def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Computes the value of `func` and the product of a vector with its Jacobian.

    The vector is like the value, a pytree of arrays, and the product like `inputs`. In strict mode
    each output must depend on some input, and some output on each input.

    Example:
        >>> import numpy as np
        >>> vjp(lambda x: x**2, np.array([1.0, 2.0]), np.ones(2))
        (array([1., 4.]), array([2., 4.]))
    """
    point = Point("vjp", func, inputs)
    point.check_depends(strict, func, pairwise=False)
    value, pull = transforms.vjp(func, *point.args)
    product = pull(point.vector(v, value, "the value", "func returns"))
    return _kept((value, product if point.several else product[0]), create_graph)


@_differentiated
def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Computes the value of `func` and the product of its Jacobian with a vector.

    The vector is like `inputs`, and the product like the value; `strict` is as for `vjp`.

    Example:
        >>> import numpy as np
        >>> jvp(lambda x: x**2, np.array([1.0, 2.0]), np.ones(2))
        (array([1., 4.]), array([2., 4.]))
    """
    point = Point("jvp", func, inputs)
    point.check_depends(strict, func, pairwise=False)
    return _kept(transforms.jvp(func, point.args, point.vectors(v)), create_graph)


@_differentiated
def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Computes the value of `func` and the product of a vector with its Hessian.

    Vector and product are like `inputs`; `func` must return one real element, else a `ShapeError`
    is raised. In strict mode what must depend is its gradient, as the outputs for `vjp`.

    Example:
        >>> import numpy as np
        >>> value, product = vhp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.ones(2))
        >>> float(value), product
        (9.0, array([ 6., 12.]))
    """
    point = Point("vhp", func, inputs)
    return _kept(point.hessian_product(transforms.vhp, v, strict), create_graph)


@_differentiated
def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Computes the value of `func` and the product of its Hessian with a vector.

    All is as for `vhp`, and it takes as long: it goes forward over reverse.

    Example:
        >>> import numpy as np
        >>> value, product = hvp(lambda x: x[0] ** 2 * x[1], np.array([1.0, 2.0]), np.ones(2))
        >>> float(value), product
        (2.0, array([6., 2.]))
    """
    point = Point("hvp", func, inputs)
    return _kept(point.hessian_product(transforms.hvp, v, strict), create_graph)


@_differentiated
def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Computes the Jacobian of `func`, which returns a pytree of real arrays.

    It is like the value; in the place of each array there is what is like `inputs`, with arrays of
    shape `(*output, *input)`. The strategy is "reverse-mode", row by row, or "forward-mode", column
    by column. In strict mode each output must depend on each input.

    Example:
        >>> import numpy as np
        >>> jacobian(lambda x: x**2, np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """
    point = Point("jacobian", func, inputs)
    transform = point.chosen("strategy", strategy, _STRATEGIES)
    point.check_depends(strict, func, pairwise=True)
    return _kept(transform(func, point.argnums)(*point.args), create_graph)


@_differentiated
def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Computes the Hessian of `func`, which returns one real element, as for `vhp`.

    It is like `inputs`, with what is like `inputs` in the place of each array, and arrays of shape
    `(*input, *input)`: the `jacobian` of the gradient, by a strategy, and strict, as that is.

    Example:
        >>> import numpy as np
        >>> hessian(lambda x: (x**3).sum(), np.array([1.0, 2.0]))
        array([[ 6.,  0.],
               [ 0., 12.]])
    """
    point = Point("hessian", func, inputs)
    transform = point.chosen("outer_jacobian_strategy", outer_jacobian_strategy, _STRATEGIES)
    gradient = transforms.grad(point.scalar, point.argnums)
    point.check_depends(strict, gradient, pairwise=True)
    return _kept(transform(gradient, point.argnums)(*point.args), create_graph)


def _kept(found: Any, create_graph: bool) -> Any:
    """Returns results, of tensors the values alone where no graph is wanted."""
    if create_graph or state.tape is None:
        return found
    on_tape = lambda x: type(x) is Tracer and x.frame is state.tape  # noqa: E731
    return mapped(lambda x: stop_gradient_p(x) if on_tape(x) else x, found)
