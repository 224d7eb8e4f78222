"""Implicit differentiation: a solution has the derivative that its equation gives it.

Of A(w) x = b it follows that A dx = db - dA x, and of f(x, w) = 0 that (df/dx) dx = -(df/dw) dw. So
the solver is never differentiated, may loop as it likes, and is asked again to solve for dx. What
the operator closes over is found by tracing it, and is an input of the rule like any other.

Reference: https://arxiv.org/abs/2105.15183
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax.tree_util as tree

from ftrans.custom.solver import LinearSolve, Root, Unknown, of_shape, with_aux
from ftrans.errors import RuleError
from ftrans.func.staging import abstract_inputs, name_of, stage
from ftrans.ir import is_tracing
from ftrans.runtime.cache import Remembered
from ftrans.runtime.jaxlink import is_jax_tracing
from ftrans.traceback import boundary


@boundary
def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[Callable[[Any], Any], Any], Any],
    has_aux: bool = False,
) -> Any:
    """Returns a root of `f`, with the derivative that the implicit function theorem gives.

    Args:
        f: takes and returns a pytree of arrays of the structure of `initial_guess`; derivatives are
            with respect to what it closes over.
        initial_guess: where the solver begins; the root does not depend on it. Python numbers in
            it promote as in arithmetic.
        solve: `(f, initial_guess) -> root`. It is not differentiated.
        tangent_solve: `(g, y) -> x` with g(x) = y, where `g` is `f` linearized at the root, or its
            transpose. Where it does not call `g`, as with a factorization that it closes over, it
            is itself transposed for reverse mode.
        has_aux: whether `solve` returns something besides, without a derivative.

    Returns:
        The root, or `(root, aux)`.

    Raises:
        RuleError: where the root does not have the structure and types of `initial_guess`.

    Example:
        >>> from ftrans import func
        >>> def cube_root(a):
        ...     def newton(f, x):
        ...         for _ in range(20):
        ...             value, slope = func.jvp(f, (x,), (x * 0 + 1,))
        ...             x = x - value / slope
        ...         return x
        ...
        ...     return custom_root(lambda x: x**3 - a, a, newton, lambda g, y: y / g(y * 0 + 1))
        >>> round(float(func.grad(cube_root)(8.0)), 4)  # 1 / (3 * 2 ** 2)
        0.0833

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.lax.custom_root.html
    """
    if not (is_tracing() or is_jax_tracing()):
        return _at_once("custom_root", f, initial_guess, solve, has_aux)
    return Root(f, initial_guess, solve, tangent_solve, has_aux).record()


@boundary
def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Solves a linear system, with derivatives that are linear systems of the same operator.

    Args:
        matvec: the operator, linear in a pytree of the structure of `b`; derivatives are also with
            respect to what it closes over.
        b: the right-hand side; Python numbers in it promote as in arithmetic.
        solve: `(matvec, b) -> x` with matvec(x) = b. It is not differentiated.
        transpose_solve: `(vecmat, b) -> x`, the same for the transpose of the operator; reverse
            mode needs it.
        symmetric: whether the operator is its own transpose, so that `solve` serves for both.
        has_aux: whether `solve` returns something besides, without a derivative.

    Returns:
        The solution, or `(solution, aux)`.

    Raises:
        RuleError: where the solution does not have the structure and types of `b`.
        MissingRuleError: where reverse mode is asked for, and `transpose_solve` is not given.

    Example:
        >>> import numpy as np
        >>> import ftrans.numpy as fnp
        >>> from ftrans import func
        >>> def solution(a, b):
        ...     direct = lambda matvec, b: b / np.array([2.0, 4.0])
        ...     return custom_linear_solve(lambda x: a * x, b, direct, symmetric=True)
        >>> a, b = np.array([2.0, 4.0]), np.array([1.0, 1.0])
        >>> func.grad(lambda a: solution(a, b).sum())(a)  # - b / a ** 2
        array([-0.25  , -0.0625])

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.lax.custom_linear_solve.html
    """
    if not (is_tracing() or is_jax_tracing()):
        return _at_once("custom_linear_solve", matvec, b, solve, has_aux)
    if symmetric:
        transpose_solve = solve
    return LinearSolve(matvec, b, solve, transpose_solve, symmetric, has_aux).record()


# ------------------------------------------------------------------------- where nothing is traced


def _at_once(name: str, f: Any, start: Any, solve: Any, has_aux: bool) -> Any:
    """Calls the solver, and checks that structure and shapes are those that a transform needs."""
    unknown = Unknown(name, start)
    _check_operator(unknown, f)
    found = solve(f, start)
    x, aux = with_aux(name, solve, found, has_aux)
    fitted = unknown.leaves(solve, x, of_shape)
    if all(new is old for new, old in zip(fitted, tree.tree_leaves(x), strict=True)):
        return found
    x = unknown.structure.unflatten(fitted)
    return (x, aux) if has_aux else x


def _check_operator(unknown: Unknown, f: Any) -> None:
    """Raises where a function does not return what it takes; asked once for each signature."""

    def flat(*tracers: Any) -> None:
        unknown.leaves(f, f(unknown.structure.unflatten(tracers)), of_shape)

    def check() -> bool:
        inputs = abstract_inputs(unknown.types, f"an argument of {name_of(f)}")
        try:
            stage(unknown.name, flat, inputs, once=True)
        except RuleError:
            raise
        except Exception:  # it asks for values, say: that is for the solver to find out, or allow
            pass
        return True

    _checked.find((_code_of(f), unknown.name, unknown.structure, unknown.types), check)


_checked = Remembered(256)
"""For which unknowns functions have been checked, by their code."""


def _code_of(function: Any) -> Any:
    """Returns the code of a function of the user's; itself where it has none."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    code = getattr(function, "__code__", None)
    return code or getattr(type(function).__call__, "__code__", function)
