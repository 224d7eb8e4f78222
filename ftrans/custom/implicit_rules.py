"""The rules of solutions: the authors of what `custom_root` and `custom_linear_solve` record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.recording import record, staged_for_jax
from ftrans.custom.rule import fit
from ftrans.custom.tracing import Author
from ftrans.errors import RuleError
from ftrans.external.captures import defined
from ftrans.func import jvp, linear_transpose, vjp
from ftrans.func.staging import abstract_inputs, apply, name_of, stage
from ftrans.ir import ArrayType, Program, Tracer, type_of
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import state
from ftrans.numpy.elementwise import stop_gradient
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives import neg_p, stop_gradient_p, sub_p
from ftrans.primitives.axes import zeros
from ftrans.primitives.complex import conjugate
from ftrans.primitives.rules.missing import missing
from ftrans.pytree import Parts, describe, shown
from ftrans.runtime.jaxlink import foreign, is_traced_by_jax

# -------------------------------------------------------------------------------- the operator


class _Closure:
    """Is a function of a pytree with all that it closes over made arguments.

    Args:
        name: names it.
        function: takes and returns pytrees of one structure.
        like: an argument of it.
    """

    def __init__(self, name: str, function: Callable[[Any], Any], like: Any):
        leaves, self.structure = tree.tree_flatten(like)
        self.types = [type_of(as_array(leaf)).update() for leaf in leaves]
        self.name = name

        def flat(*tracers: Any) -> Any:
            return _leaves(name, function, self, function(self.structure.unflatten(tracers)))

        inputs = abstract_inputs(self.types, f"an argument of {name}")
        staged = stage(name, flat, inputs, order=4)  # the solver may differentiate it
        self.program: Program = staged.program
        self.captured = staged.captured

    def at(self, captured: Sequence[Any]) -> Callable[[Any], Any]:
        """Returns the function that closes over these values in the place of its own."""
        where = f"{self.name}: what the solver passes to the operator"

        def function(x: Any) -> Any:
            pairs = zip(self.structure.flatten_up_to(x), self.types, strict=True)
            leaves = [fit(where, leaf, t, "the unknown") for leaf, t in pairs]
            found = apply(self.program, [*leaves, *captured])
            return self.structure.unflatten(found)

        return function


def _leaves(name: str, function: Any, closure: Any, value: Any) -> list[Any]:
    """Returns the leaves of what a function returned, which must be of the types of a closure."""
    where, found = flat_like(name, function, closure.structure, value)
    for leaf, t in zip(found, closure.types, strict=True):
        _check_start(name, where, leaf, t)
    return [
        fit(where, leaf, t, "the unknown") for leaf, t in zip(found, closure.types, strict=True)
    ]


def flat_like(name: str, function: Any, structure: Any, value: Any) -> tuple[str, list[Any]]:
    """Returns how errors call what a function returned, and its leaves.

    Raises:
        RuleError: where it does not have the structure of the unknown.
    """
    where = f"{name}: what {name_of(function)} ({defined(function)}) returns"
    leaves, found = tree.tree_flatten(value)
    if found == structure:
        return where, leaves
    raise RuleError(
        f"{where} does not have the structure of the unknown.\n  returned: {describe(value)}\n"
        f"  the unknown: {shown(structure)}\n  Return the same containers."
    )


def solution_and_aux(name: str, solve: Any, found: Any) -> tuple[Any, Any]:
    """Returns what a solver returned that was said to return both.

    Raises:
        RuleError: where it does not return a pair.
    """
    if not (isinstance(found, (tuple, list)) and len(found) == 2):
        raise RuleError(
            f"{name}: with has_aux=True {name_of(solve)} ({defined(solve)}) returns a pair.\n"
            f"  returned: {describe(found)}\n  Write return solution, aux."
        )
    return found[0], found[1]


_START = {"custom_root": "initial_guess", "custom_linear_solve": "b"}
"""The argument that says which type the unknown has."""


def _check_start(name: str, where: str, leaf: Any, t: ArrayType) -> None:
    """Raises where the unknown has a dtype that is too narrow for what is computed of it."""
    if not is_array(leaf) or type_of(leaf).shape != t.shape:
        return
    wide = type_of(leaf).dtype
    if wide != t.dtype and np.promote_types(wide, t.dtype) == wide:
        start = _START[name]
        raise RuleError(
            f"{where} has a wider dtype than {start}, which says what the unknown is.\n"
            f"  returned: {type_of(leaf).update()}\n  {start}: {t}\n"
            f"  Pass np.asarray({start}, {wide.name!r})."
        )


def _detached(call: Callable[[], Any]) -> Any:
    """Calls a solver such that no derivative enters it: what it closes over is held constant."""
    staged = stage("solve", call, [])
    operands = [stop_gradient(x) if _moves(x) else x for x in staged.captured]
    return staged.outputs.build(apply(staged.program, operands))


def _moves(x: Any) -> bool:
    """Tells whether somebody may take derivatives with respect to a value."""
    return type(x) is Tracer or is_traced_by_jax(x)


def _as_result(leaf: Any) -> Any:
    """Returns a value as a result of the innermost frame, that of `forward`.

    A rule finds what it needs of the solution there, whose derivative is that of the solution. A
    value of another frame, as what the solver closes over, would have one of its own, or none.
    """
    return state.stack[-1].record(stop_gradient_p, [leaf], NO_PARAMS)[0]


class _Solver(Author):
    """Is the author of a rule whose inputs are what an operator closes over, and more."""

    closure: _Closure
    more: list[Any]
    has_aux: bool
    holds = True
    has_jvp = True

    def record(self) -> Any:
        """Records the solution; returns it as the solver returned it."""
        values = [*self.closure.captured, *self.more]
        if any(type(x) is Tracer for x in values):
            return self.recorded(*values)
        if foreign(values):
            return staged_for_jax(self.name, self.recorded, values)
        return self.held(values)

    def recorded(self, *values: Any) -> Any:
        """Records the solution for these values."""
        found = record(self, values)
        (output,) = self.output.build(found)
        return output

    def held(self, values: Sequence[Any]) -> Any:
        """Returns the solution of an equation that nothing moves: it is constant."""
        leaves, aux = self._solution(values)
        return self._returned(leaves, aux)

    def solved(self, inputs: Sequence[Any]) -> Any:
        """Calls the solver."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Solves the equation; see `Author.forward`."""
        self.inputs = list(inputs)
        found, aux = self._solution(inputs)
        leaves = [_as_result(leaf) for leaf in found]
        self.count = len(leaves)
        self.output = Parts((self._returned(leaves, aux),), is_array)
        return self.output.values

    def _solution(self, inputs: Sequence[Any]) -> tuple[list[Any], Any]:
        """Calls the solver, held constant; returns the leaves of the unknown, and aux."""
        found, aux = _detached(lambda: self.solved(inputs)), None
        if self.has_aux:
            found, aux = solution_and_aux(self.name, self.solve, found)
        return _leaves(self.name, self.solve, self.closure, found), aux

    def _returned(self, leaves: Sequence[Any], aux: Any) -> Any:
        value = self.closure.structure.unflatten(leaves)
        return (value, aux) if self.has_aux else value

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents: those of the unknown, but not aux."""
        return tuple([i < self.count and type_of(x).is_inexact for i, x in enumerate(outs)])

    solve: Callable[..., Any]

    @property
    def solution(self) -> list[Any]:
        """The unknown, as `forward` found it."""
        return self.output.values[: self.count]

    def tangent_of_operator(self, captured: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """Returns how the operator at the solution changes with what it closes over."""
        moving = [i for i, t in enumerate(tangents) if t is not None]
        if not moving:
            return None
        at = self._operator_of(captured, moving)
        primals = tuple(captured[i] for i in moving)
        return jvp(at, primals, tuple(tangents[i] for i in moving))[1]

    def _operator_of(self, captured: Sequence[Any], moving: Sequence[int]) -> Callable[..., Any]:
        """Returns the operator at the solution, as a function of some of what it closes over."""

        def at(*values: Any) -> Any:
            full = list(captured)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            return tuple(apply(self.closure.program, [*self.solution, *full]))

        return at


class LinearSolve(_Solver):
    """Is one call of `custom_linear_solve`; the arguments are its."""

    name = "custom_linear_solve"
    has_backward = True

    def __init__(
        self,
        matvec: Any,
        b: Any,
        solve: Any,
        transpose_solve: Any,
        symmetric: bool,
        has_aux: bool,
    ):
        b = tree.tree_map(lambda x: as_array(x) if is_scalar(x) else x, b)
        self.closure = _Closure(self.name, matvec, b)
        self.more = [as_array(leaf) for leaf in tree.tree_leaves(b)]
        self.solve = solve
        self.transpose_solve = transpose_solve
        self.symmetric = symmetric
        self.has_aux = has_aux

    def _split(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        count = len(self.closure.captured)
        return values[:count], values[count:]

    def solved(self, inputs: Sequence[Any]) -> Any:
        """Calls the solver."""
        captured, b = self._split(inputs)
        return self.solve(self.closure.at(captured), self.closure.structure.unflatten(b))

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Solves for the tangents of the solution; see `Author.jvp`."""
        captured, _ = self._split(self.inputs)
        dots, right = self._split(tangents)
        change = self.tangent_of_operator(captured, dots)
        pairs = zip(right, self.closure.types, strict=True)
        rhs = [zeros(t) if dot is None else dot for dot, t in pairs]
        if change is not None:
            rhs = [sub_p(x, as_array(y)) for x, y in zip(rhs, change, strict=True)]
        found = _solved_in_rule(
            self.closure.at(captured),
            self.closure.structure.unflatten(rhs),
            self._plain(self.solve),
            self.transpose_solve and self._plain(self.transpose_solve),
            self.symmetric,
        )
        return [*tree.tree_leaves(found), *([None] * (len(self.output.values) - self.count))]

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Solves the transposed equation; see `Author.backward`."""
        if self.transpose_solve is None:
            return self._no_transpose(cotangents)
        captured, _ = self._split(self.inputs)
        structure, types = self.closure.structure, self.closure.types
        matvec = self.closure.at(captured)
        cts = [zeros(t) if ct is None else ct for ct, t in zip(cotangents, types, strict=False)]
        vecmat = matvec if self.symmetric else _transposed(matvec, structure, types)
        plain = structure.unflatten([conjugate(ct) for ct in cts])
        found = _solved_in_rule(
            vecmat,
            plain,
            self._plain(self.transpose_solve),
            self._plain(self.solve),
            self.symmetric,
        )
        adjoint = [conjugate(as_array(x)) for x in tree.tree_leaves(found)]
        moving = [i for i, w in enumerate(captured) if type_of(w).is_inexact]
        by_captured: list[Any] = [None] * len(captured)
        if moving:
            _, pull = vjp(self._operator_of(captured, moving), *[captured[i] for i in moving])
            pulled = pull(tuple([neg_p(x) for x in adjoint]))
            for i, ct in zip(moving, pulled, strict=True):
                by_captured[i] = ct
        return [*by_captured, *adjoint]

    def _no_transpose(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        message = (
            "custom_linear_solve: reverse mode needs to solve with the transposed operator.\n"
            "  Pass transpose_solve=..., or symmetric=True where the operator is symmetric."
        )
        wanted = [i for i, x in enumerate(self.inputs) if type_of(x).is_inexact]
        types = tuple(type_of(self.inputs[i]).update() for i in wanted)
        found: list[Any] = [None] * len(self.inputs)
        for i, ct in zip(wanted, missing(cotangents, types, message), strict=True):
            found[i] = ct
        return found

    def _plain(self, solve: Any) -> Any:
        """Returns the solver without aux."""
        if not self.has_aux:
            return solve
        return lambda matvec, b: solve(matvec, b)[0]


class Root(_Solver):
    """Is one call of `custom_root`; the arguments are its."""

    name = "custom_root"

    def __init__(self, f: Any, guess: Any, solve: Any, tangent_solve: Any, has_aux: bool):
        guess = tree.tree_map(lambda x: as_array(x) if is_scalar(x) else x, guess)
        self.closure = _Closure(self.name, f, guess)
        self.more = []
        self.guess = guess
        self.solve = solve
        self.tangent_solve = tangent_solve
        self.has_aux = has_aux

    def solved(self, inputs: Sequence[Any]) -> Any:
        """Calls the solver."""
        return self.solve(self.closure.at(inputs), self.guess)

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Solves for the tangents of the solution; see `Author.jvp`."""
        change = self.tangent_of_operator(self.inputs, tangents)
        assert change is not None
        f, structure = self.closure.at(self.inputs), self.closure.structure
        x = structure.unflatten(self.solution)
        asked = False

        def slope(dx: Any) -> Any:
            nonlocal asked
            asked = True
            return jvp(f, (x,), (dx,))[1]

        rhs = structure.unflatten([neg_p(as_array(y)) for y in change])
        found = self.tangent_solve(slope, rhs)
        if asked:
            # it solves for any operator that it is given, so also for the transposed one
            solve = self.tangent_solve
            found = _solved_in_rule(slope, rhs, solve, solve, symmetric=False)
        return [*tree.tree_leaves(found), *([None] * (len(self.output.values) - self.count))]


def _solved_in_rule(matvec: Any, b: Any, solve: Any, transpose_solve: Any, symmetric: bool) -> Any:
    """Records the solution of a linear system in a rule, which JAX may transpose."""
    call = LinearSolve(matvec, b, solve, transpose_solve, symmetric, has_aux=False)
    call.linear = len(call.more)
    return call.record()


def _transposed(matvec: Any, structure: Any, types: Sequence[ArrayType]) -> Callable[[Any], Any]:
    """Returns the plain transpose of an operator, without conjugation."""
    transpose = linear_transpose(matvec, structure.unflatten(types))

    def vecmat(x: Any) -> Any:
        (found,) = transpose(tree.tree_map(conjugate, x))
        return tree.tree_map(conjugate, found)

    return vecmat
