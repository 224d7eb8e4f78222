"""SciPy's `minimize` with derivatives of ours: it iterates in SciPy, on plain arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from typing import Any

import jax.tree_util as tree
import numpy as np
import scipy.optimize
from scipy.optimize import OptimizeResult

from ftrans.errors import ArgumentError, DTypeError, LeakedTracerError, UnsupportedError
from ftrans.func.bodies import flatten_arrays
from ftrans.func.grad import grad_and_value
from ftrans.func.jacobian import hessian, hvp, jacrev
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_float
from ftrans.ir.stack import apart
from ftrans.numpy.advice import declining
from ftrans.traceback import boundary

Function = Callable[..., Any]

__all__ = ["OptimizeResult", "minimize"]

_WITHOUT_GRADIENT = {"nelder-mead", "powell", "cobyla", "cobyqa"}
_WITH_PRODUCTS = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
_WITH_HESSIAN = {"dogleg", "trust-exact"}


class _Vector:
    """Is how a pytree of real arrays and a vector of float64 stand for each other."""

    def __init__(self, x0: Any):
        self.leaves, names, _, self.structure = flatten_arrays("minimize", "x0", x0)
        for x, label in zip(self.leaves, names, strict=True):
            if not is_float(type_of(x).dtype):
                raise DTypeError(
                    f"minimize: x0 must be real and of floating point.\n  {label}: {type_of(x)}\n"
                    f"  Convert it first: x0.astype('float64')."
                )
        self.ends = np.cumsum([type_of(x).size for x in self.leaves])[:-1]

    def of(self, value: Any) -> np.ndarray:
        """Returns a pytree as a vector."""
        return np.concatenate([np.asarray(x, "float64").ravel() for x in tree.tree_leaves(value)])

    def tree(self, vector: Any) -> Any:
        """Returns a vector as a pytree."""
        parts = zip(np.split(np.asarray(vector), self.ends), self.leaves, strict=True)
        made = [x.astype(type_of(like).dtype).reshape(type_of(like).shape) for x, like in parts]
        return tree.tree_unflatten(self.structure, made)

    def matrix(self, value: Any) -> np.ndarray:
        """Returns a pytree of pytrees, whose leaves have the axes of both, as a matrix."""
        sizes, blocks = [type_of(x).size for x in self.leaves], iter(tree.tree_leaves(value))
        return np.block([[np.reshape(next(blocks), (n, m)) for m in sizes] for n in sizes])


@boundary
def minimize(
    fun: Function,
    x0: Any,
    args: Any = (),
    method: Any = None,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Any = None,
    options: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Minimizes a function by a method of SciPy's, which gets its derivatives.

    Gradients, products with the Hessian and Hessians are those of `ftrans.func`, wherever the
    method uses them and none are given. It iterates on plain arrays, and is no function that can be
    differentiated itself: `ftrans.custom_root` gives a minimum its derivative.

    Args:
        fun: from x, a pytree like `x0`, and `args` to a real scalar.
        x0: where it begins: an array, a list of numbers, or a pytree of real arrays.
        args: further arguments of `fun`, `jac`, `hess` and `hessp`.
        method: as for SciPy's `minimize`, and so are `tol` and `options`; None for BFGS, L-BFGS-B
            or SLSQP, by what bounds and constraints there are.
        jac: the gradient, a function of the arguments of `fun`; True where `fun` returns it as
            well, `(value, gradient)`; a text for differences, as in SciPy; None for that of ours.
        hess: the Hessian, a function of the arguments of `fun`.
        hessp: its product with a pytree like x, a function of x, that, and `args`.
        bounds: for each element of x, in the order of leaves, a pair, or a SciPy `Bounds`.
        constraints: as for SciPy's; their functions take a pytree like x, and a `jac` that is not
            given is that of ours.
        tol: the tolerance.
        callback: is called after each step with x; or, where its only parameter is called
            `intermediate_result`, with that.
        options: those of the method.

    Returns:
        SciPy's result, where `x` and `jac` are pytrees like `x0`.

    Example:
        >>> found = minimize(
        ...     lambda p: (p["a"] - 3) ** 2 + (p["b"] ** 2).sum(), {"a": 1.0, "b": np.ones(2)}
        ... )
        >>> float(np.round(found.x["a"], 5))
        3.0
    """
    args = args if isinstance(args, tuple) else (args,)
    if any(type(x) is Tracer for x in tree.tree_leaves((x0, args))):
        raise _traced()
    if isinstance(x0, (list, tuple)) and all(isinstance(x, (int, float)) for x in x0):
        x0 = np.asarray(x0, "float64")
    with apart():
        vector = _Vector(x0)
        name = method.lower() if isinstance(method, str) else method

        def of_tree(function: Function, finish: Function = vector.of) -> Function:
            return lambda v, *more: finish(function(vector.tree(v), *more))

        value, pair = fun, None
        if jac is True:
            value, pair = lambda *xs: fun(*xs)[0], fun
        elif jac is None and name not in _WITHOUT_GRADIENT:
            pair = lambda *xs: grad_and_value(fun)(*xs)[::-1]  # noqa: E731
        called = of_tree(fun, _number)
        if pair is not None:
            called, jac = of_tree(pair, lambda made: (float(made[0]), vector.of(made[1]))), True
        elif callable(jac):
            jac = of_tree(jac)
        if callable(hess):
            hess = of_tree(hess, vector.matrix)
        elif hess is None and (callable(hessp) or name in _WITH_PRODUCTS):
            product = hessp or (lambda x, p, *more: hvp(lambda x: value(x, *more), x, p)[1])
            hessp = lambda v, p, *more: vector.of(  # noqa: E731
                product(vector.tree(v), vector.tree(p), *more)
            )
        elif hess is None and name in _WITH_HESSIAN:
            hess = of_tree(hessian(value), vector.matrix)
        limits = {"bounds": bounds, "constraints": _constraints(constraints, vector), "tol": tol}
        after = {"callback": _callback(callback, vector), "options": options}
        given: Any = {"jac": jac, "hess": hess, "hessp": hessp, **limits, **after}
        try:
            found = scipy.optimize.minimize(called, vector.of(x0), args, method, **given)
        except LeakedTracerError as error:
            raise _traced() from error
    return _with_trees(found, vector)


def _traced() -> UnsupportedError:
    return UnsupportedError(
        "minimize: it iterates on values, and was given one that is traced, or uses one.\n"
        "  Minimize on plain arrays, and give the minimum its derivative as a root of the\n"
        "  gradient: ftrans.custom_root."
    )


def _number(found: Any) -> float:
    if np.shape(found) != ():
        raise ArgumentError(
            f"minimize: the function must return a scalar.\n  returned: {type_of(found)}\n"
            f"  Sum it, or take its mean."
        )
    return float(found)


def _constraints(given: Any, vector: _Vector) -> Any:
    """Returns constraints on vectors, for those on pytrees."""
    if isinstance(given, (list, tuple)):
        return [_constraints(one, vector) for one in given]

    def on_vector(function: Function) -> Function:
        return lambda v, *more: np.asarray(function(vector.tree(v), *more))

    def jacobian(function: Function) -> Function:
        def rows(v: Any, *more: Any) -> Any:
            parts = tree.tree_leaves(jacrev(function)(vector.tree(v), *more))
            pairs = zip(parts, vector.leaves, strict=True)
            return np.concatenate([np.reshape(x, (-1, type_of(y).size)) for x, y in pairs], 1)

        return rows

    if isinstance(given, dict):
        jac = given.get("jac") or jacobian(given["fun"])
        known = on_vector(jac) if callable(given.get("jac")) else jac
        return {**given, "fun": on_vector(given["fun"]), "jac": known}
    if isinstance(given, scipy.optimize.NonlinearConstraint):
        made: Any = copy(given)
        made.fun = on_vector(given.fun)
        made.jac = on_vector(given.jac) if callable(given.jac) else jacobian(given.fun)
        return made
    return given


def _callback(callback: Any, vector: _Vector) -> Any:
    if callback is None:
        return None
    if list(inspect.signature(callback).parameters) == ["intermediate_result"]:
        return lambda intermediate_result: callback(
            intermediate_result=_with_trees(intermediate_result, vector)
        )
    return lambda v, *state: callback(vector.tree(v), *state)


def _with_trees(found: OptimizeResult, vector: _Vector) -> OptimizeResult:
    known = {key: found[key] for key in ("x", "jac", "grad") if key in found}
    size = np.shape(known["x"])  # trust-constr has for `jac` those of the constraints
    return OptimizeResult(
        found | {k: vector.tree(v) for k, v in known.items() if np.shape(v) == size}
    )


def _instead(name: str) -> str | None:
    if not hasattr(scipy.optimize, name):
        return None
    return f"Write scipy.optimize.{name}, with jac=ftrans.jacrev(fun) where it takes one."


__getattr__ = declining("ftrans.scipy.optimize", _instead)
