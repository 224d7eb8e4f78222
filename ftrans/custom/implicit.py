"""Implicit differentiation: a solution has the derivative that its equation gives it.

Of A(w) x = b it follows that A dx = db - dA x, and of f(x, w) = 0 that (df/dx) dx = -(df/dw) dw. So
the solver is never differentiated, may loop as it likes, and is asked again to solve for dx. What
the operator closes over is found by tracing it, and is an input of the rule like any other.

Reference: https://arxiv.org/abs/2105.15183
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.recording import record, staged_for_jax
from ftrans.custom.rule import fit
from ftrans.custom.tracing import Author
from ftrans.errors import MissingRuleError, RuleError
from ftrans.external.captures import defined
from ftrans.func import jvp, linear_transpose, vjp
from ftrans.func.staging import abstract_inputs, apply, name_of, stage
from ftrans.ir import ArrayType, Tracer, is_tracing, type_of
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import FORWARD, state
from ftrans.numpy.elementwise import stop_gradient
from ftrans.numpy.promotion import as_array, cast, is_array, is_scalar, is_weak
from ftrans.primitives import neg_p, stop_gradient_p, sub_p
from ftrans.primitives.axes import zeros
from ftrans.primitives.conversion import conjugate
from ftrans.pytree import Parts, describe, shown
from ftrans.runtime.jaxlink import foreign, is_jax_tracing, is_traced_by_jax
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
            with respect to what it closes over. Outside of transforms it is called on that first,
            to see that it does.
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
    return _Root(f, initial_guess, solve, tangent_solve, has_aux).found()


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
            respect to what it closes over. Outside of transforms it is called on `b` first.
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
    solvers = solve, solve if symmetric else transpose_solve
    return _LinearSolve(matvec, b, solvers, symmetric, has_aux).found()


class _Solution(Author):
    """Is what is solved for, as the author of its rule.

    The inputs of the rule are what the operator closes over, and a right-hand side if there is one.

    Args:
        operator: takes and returns what is like the unknown.
        start: says what that is, by its structure, shapes and dtypes.
        solve: finds it.
        has_aux: whether `solve` returns something besides.
    """

    holds = True
    has_jvp = True
    has_rhs = False
    says = "initial_guess"
    """What errors call `start`."""

    def __init__(self, operator: Any, start: Any, solve: Any, has_aux: bool):
        leaves, self.structure = tree.tree_flatten(start)
        self.operator, self.start, self.solve, self.has_aux = operator, start, solve, has_aux
        self.weak = [is_weak(leaf) for leaf in leaves]
        self.take([as_array(leaf) for leaf in leaves])

    def take(self, arrays: Sequence[Any]) -> None:
        """Takes these for the leaves of `start`."""
        self.arrays = arrays
        self.types = tuple([type_of(x).update() for x in arrays])

    def found(self) -> Any:
        """Returns the solution, as the solver returns it; records it where anything is traced."""
        if not (is_tracing() or is_jax_tracing()):
            return self._at_once()
        if any(self.weak):
            self._promote()
        self.start = self.structure.unflatten(self.arrays)

        def flat(*tracers: Any) -> Any:
            value = self.operator(self.structure.unflatten(tracers))
            return self._leaves(self.operator, value, self._exact)

        inputs = abstract_inputs(self.types, f"an argument of {self.name}")
        staged = stage(self.name, flat, inputs, order=FORWARD)  # the solver may differentiate it
        self.program, self.captured = staged.program, staged.captured
        values = [*self.captured, *(self.arrays if self.has_rhs else ())]
        if any(type(x) is Tracer for x in values):
            return self._recorded(*values)
        if foreign(values):
            return staged_for_jax(self.name, self._recorded, values)
        # it is constant, since nothing moves the equation
        return self._solved(values, self._exact)[1]

    def _recorded(self, *values: Any) -> Any:
        results = record(self, values)
        (output,) = self.output.build(results)
        return output

    # ---------------------------------------------------------------------- what is returned

    def _leaves(self, function: Any, value: Any, fitted: Callable[..., Any]) -> list[Any]:
        """Returns the leaves of what a function of the user's returned, made to fit the unknown.

        Args:
            function: the function.
            value: what it returned.
            fitted: takes how errors call it, a leaf, and its type; returns the leaf.
        """
        where = f"{self.name}: what {name_of(function)} ({defined(function)}) returns"
        leaves, found = tree.tree_flatten(value)
        if found != self.structure:
            raise RuleError(
                f"{where} does not have the structure of the unknown.\n"
                f"  returned: {describe(value)}\n"
                f"  the unknown: {shown(self.structure)}\n  Return the same containers."
            )
        return [fitted(where, leaf, t) for leaf, t in zip(leaves, self.types, strict=True)]

    def _exact(self, where: str, leaf: Any, t: ArrayType) -> Any:
        """Returns a leaf as an array of exactly this type."""
        if is_array(leaf) and type_of(leaf).shape == t.shape:
            wide = type_of(leaf).dtype
            if wide != t.dtype and np.promote_types(wide, t.dtype) == wide:
                raise RuleError(
                    f"{where} has a wider dtype than {self.says}, which says what the unknown is.\n"
                    f"  returned: {type_of(leaf).update()}\n  {self.says}: {t}\n"
                    f"  Pass np.asarray({self.says}, {wide.name!r})."
                )
        return fit(where, leaf, t, "the unknown")

    def _as_result(self, where: str, leaf: Any, t: ArrayType) -> Any:
        """Returns a leaf as a result of the innermost frame, that of `forward`.

        A rule finds what it needs of the solution there, whose derivative is that of the solution.
        A value of another frame, as what the solver closes over, has one of its own, or none.
        """
        exact = self._exact(where, leaf, t)
        return state.stack[-1].record(stop_gradient_p, [exact], NO_PARAMS)[0]

    def _taken(self, found: Any, fitted: Callable[..., Any]) -> tuple[list[Any], Any]:
        """Returns the leaves of the unknown, of what the solver returned, and all of it."""
        if self.has_aux and not (isinstance(found, (tuple, list)) and len(found) == 2):
            raise RuleError(
                f"{self.name}: with has_aux=True {name_of(self.solve)} ({defined(self.solve)}) "
                f"returns a pair.\n"
                f"  returned: {describe(found)}\n  Write return solution, aux."
            )
        x, aux = found if self.has_aux else (found, None)
        leaves = self._leaves(self.solve, x, fitted)
        x = self.structure.unflatten(leaves)
        return leaves, (x, aux) if self.has_aux else x

    def _at_once(self) -> Any:
        """Calls the solver on arrays; structure and shapes are to be those a transform needs."""
        try:
            with np.errstate(all="ignore"):
                value = self.operator(self.start)
        except Exception:  # that is for the solver to find out, or to allow
            pass
        else:
            self._leaves(self.operator, value, _of_shape)
        return self._taken(self.solve(self.operator, self.start), _of_shape)[1]

    def _promote(self) -> None:
        """Gives Python scalars the dtypes of what the operator returns for them."""
        pairs = zip(self.types, self.weak, strict=True)
        types = [ArrayType(t.shape, t.dtype, weak) for t, weak in pairs]
        dtypes = [t.dtype for t in self.types]

        def choose(*tracers: Any) -> None:
            value = self.operator(self.structure.unflatten(tracers))
            found = self._leaves(self.operator, value, lambda where, leaf, t: leaf)
            for i, (x, t) in enumerate(zip(found, self.types, strict=True)):
                chosen = self.weak[i] and is_array(x) and not is_weak(x)
                if chosen and (type_of(x).is_inexact or not t.is_inexact):
                    dtypes[i] = type_of(x).dtype

        stage(self.name, choose, abstract_inputs(types, f"an argument of {self.name}"))
        self.take([cast(x, dtype) for x, dtype in zip(self.arrays, dtypes, strict=True)])

    # ------------------------------------------------------------------------------- the rule

    def closed(self, inputs: Sequence[Any]) -> Callable[[Any], Any]:
        """Returns the operator closing over these inputs in the place of its own."""
        where = f"{self.name}: what the solver passes to the operator"
        captured = inputs[: len(self.captured)]

        def function(x: Any) -> Any:
            pairs = zip(self.structure.flatten_up_to(x), self.types, strict=True)
            leaves = [fit(where, leaf, t, "the unknown") for leaf, t in pairs]
            return self.structure.unflatten(apply(self.program, [*leaves, *captured]))

        return function

    def _solved(self, inputs: Sequence[Any], fitted: Callable[..., Any]) -> tuple[list[Any], Any]:
        """Calls the solver, held constant; returns the leaves of the unknown, and all of it."""
        b = inputs[len(self.captured) :]
        start = self.structure.unflatten(b) if b else self.start
        return self._taken(_detached(lambda: self.solve(self.closed(inputs), start)), fitted)

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Solves the equation; see `Author.forward`."""
        self.inputs = list(inputs)
        self.solution, value = self._solved(inputs, self._as_result)
        self.output = Parts((value,), is_array)
        return self.output.values

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents: those of the unknown, but not aux."""
        count = len(self.types)
        return tuple([i < count and type_of(x).is_inexact for i, x in enumerate(outs)])

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Solves for the tangents of the solution; see `Author.jvp`."""
        moving = [i for i, t in enumerate(tangents) if t is not None]
        primals = tuple(self.inputs[i] for i in moving)
        change = jvp(self.equation(moving), primals, tuple(tangents[i] for i in moving))[1]
        found = self.pushed(self.structure.unflatten([neg_p(as_array(y)) for y in change]))
        return [*tree.tree_leaves(found), *([None] * (len(self.output.values) - len(self.types)))]

    def pushed(self, rhs: Any) -> Any:
        """Solves the linearized equation."""
        raise NotImplementedError

    def equation(self, moving: Sequence[int]) -> Callable[..., Any]:
        """Returns what is zero at the solution, as a function of some of the inputs."""

        def at(*values: Any) -> Any:
            full = list(self.inputs)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            captured, b = full[: len(self.captured)], full[len(self.captured) :]
            found = apply(self.program, [*self.solution, *captured])
            return tuple([sub_p(x, y) for x, y in zip(found, b, strict=True)] if b else found)

        return at


class _Root(_Solution):
    """Is one call of `custom_root`; the arguments are its."""

    name = "custom_root"

    def __init__(self, f: Any, guess: Any, solve: Any, tangent_solve: Any, has_aux: bool):
        super().__init__(f, guess, solve, has_aux)
        self.tangent_solve = tangent_solve

    def pushed(self, rhs: Any) -> Any:
        """Solves the linearized equation."""
        f, x = self.closed(self.inputs), self.structure.unflatten(self.solution)
        solve, asked = self.tangent_solve, False

        def slope(dx: Any) -> Any:
            nonlocal asked
            asked = True
            return jvp(f, (x,), (dx,))[1]

        found = solve(slope, rhs)
        # it solves for any operator that it is given, so also for the transposed one
        if asked:
            return _solved_in_rule(slope, rhs, (solve, solve), symmetric=False)
        return self._leaves(solve, found, self._exact)


class _LinearSolve(_Solution):
    """Is one call of `custom_linear_solve`; the arguments are its."""

    name = "custom_linear_solve"
    says = "b"
    has_backward = has_rhs = True

    def __init__(self, matvec: Any, b: Any, solvers: Any, symmetric: bool, has_aux: bool = False):
        super().__init__(matvec, b, solvers[0], has_aux)
        self.symmetric = symmetric
        self.solvers = tuple(map(_without_aux, solvers)) if has_aux else solvers

    def pushed(self, rhs: Any) -> Any:
        """Solves the linearized equation."""
        return _solved_in_rule(self.closed(self.inputs), rhs, self.solvers, self.symmetric)

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Solves the transposed equation; see `Author.backward`."""
        solve, transpose_solve = self.solvers
        if transpose_solve is None:
            raise MissingRuleError(
                "custom_linear_solve: reverse mode needs to solve with the transposed operator.\n"
                "  Pass transpose_solve=..., or symmetric=True where the operator is symmetric."
            )
        operator = self.closed(self.inputs)
        if not self.symmetric:
            transpose = linear_transpose(operator, self.structure.unflatten(self.types))
            conjugated = lambda x: tree.tree_map(conjugate, x)  # noqa: E731
            operator = lambda x: conjugated(transpose(conjugated(x))[0])  # noqa: E731
        pairs = zip(cotangents, self.types, strict=False)
        rhs = self.structure.unflatten([conjugate(zeros(t) if x is None else x) for x, t in pairs])
        found = _solved_in_rule(operator, rhs, (transpose_solve, solve), self.symmetric)
        adjoint = [neg_p(conjugate(as_array(x))) for x in tree.tree_leaves(found)]
        moving = [i for i, x in enumerate(self.inputs) if type_of(x).is_inexact]
        _, pull = vjp(self.equation(moving), *[self.inputs[i] for i in moving])
        pulled = iter(pull(tuple(adjoint)))
        return [next(pulled) if i in moving else None for i in range(len(self.inputs))]


def _solved_in_rule(matvec: Any, b: Any, solvers: Any, symmetric: bool) -> Any:
    """Records the solution of a linear system in a rule, which JAX may transpose."""
    call = _LinearSolve(matvec, b, solvers, symmetric)
    call.linear = len(call.types)
    return call.found()


def _without_aux(solve: Any) -> Any:
    return None if solve is None else lambda matvec, b: solve(matvec, b)[0]


def _of_shape(where: str, leaf: Any, t: ArrayType) -> Any:
    """Returns an array or scalar of this shape; what is broadcast in a transform is broadcast."""
    if (is_array(leaf) or is_scalar(leaf)) and type_of(as_array(leaf)).shape == t.shape:
        return leaf
    return fit(where, leaf, t, "the unknown")


def _detached(call: Callable[[], Any]) -> Any:
    """Calls a solver such that no derivative enters it: what it closes over is held constant."""
    staged = stage("solve", call, [])
    moves = [type(x) is Tracer or is_traced_by_jax(x) for x in staged.captured]
    operands = [stop_gradient(x) if m else x for x, m in zip(staged.captured, moves, strict=True)]
    return staged.outputs.build(apply(staged.program, operands))
