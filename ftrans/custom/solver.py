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
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import FORWARD, state
from ftrans.numpy.elementwise import stop_gradient
from ftrans.numpy.promotion import as_array, cast, is_array, is_scalar, is_weak
from ftrans.primitives import neg_p, stop_gradient_p, sub_p
from ftrans.primitives.axes import zeros
from ftrans.primitives.complex import conjugate
from ftrans.primitives.rules.missing import missing
from ftrans.pytree import Parts, describe, shown
from ftrans.runtime.jaxlink import foreign, is_traced_by_jax

# ------------------------------------------------------------------------------------- the unknown


class Unknown:
    """Is what is solved for.

    Args:
        name: how errors call the function that solves for it.
        start: the argument that says what it is: of its structure, shapes and dtypes.
    """

    def __init__(self, name: str, start: Any):
        leaves, self.structure = tree.tree_flatten(start)
        self.name = name
        self.arrays = [as_array(leaf) for leaf in leaves]
        self.weak = [is_weak(leaf) for leaf in leaves]
        self.types = tuple([type_of(x).update() for x in self.arrays])

    def promote(self, operator: Any) -> None:
        """Gives Python scalars the dtypes of what an operator returns for them."""
        types = [ArrayType(t.shape, t.dtype, w) for t, w in zip(self.types, self.weak, strict=True)]

        def choose(*tracers: Any) -> None:
            value = operator(self.structure.unflatten(tracers))
            found = self.leaves(operator, value, lambda where, leaf, t: leaf)
            for i, (x, t) in enumerate(zip(found, self.types, strict=True)):
                chosen = self.weak[i] and is_array(x) and not is_weak(x)
                if chosen and (type_of(x).is_inexact or not t.is_inexact):
                    dtypes[i] = type_of(x).dtype

        dtypes = [t.dtype for t in self.types]
        stage(self.name, choose, abstract_inputs(types, f"an argument of {self.name}"))
        self.arrays = [cast(x, dtype) for x, dtype in zip(self.arrays, dtypes, strict=True)]
        self.types = tuple([type_of(x).update() for x in self.arrays])

    def leaves(self, function: Any, value: Any, fitted: Callable[..., Any]) -> list[Any]:
        """Returns the leaves of what a function of the user's returned, made to fit.

        Args:
            function: the function.
            value: what it returned.
            fitted: takes how errors call it, a leaf, and its type; returns the leaf.

        Raises:
            RuleError: where it does not have the structure of the unknown.
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

    def exact(self, where: str, leaf: Any, t: ArrayType) -> Any:
        """Returns a leaf as an array of exactly this type."""
        if is_array(leaf) and type_of(leaf).shape == t.shape:
            wide = type_of(leaf).dtype
            if wide != t.dtype and np.promote_types(wide, t.dtype) == wide:
                start = "b" if self.name == "custom_linear_solve" else "initial_guess"
                raise RuleError(
                    f"{where} has a wider dtype than {start}, which says what the unknown is.\n"
                    f"  returned: {type_of(leaf).update()}\n  {start}: {t}\n"
                    f"  Pass np.asarray({start}, {wide.name!r})."
                )
        return fit(where, leaf, t, "the unknown")


def of_shape(where: str, leaf: Any, t: ArrayType) -> Any:
    """Returns an array or scalar of this shape; what is broadcast in a transform is broadcast."""
    if (is_array(leaf) or is_scalar(leaf)) and type_of(as_array(leaf)).shape == t.shape:
        return leaf
    return fit(where, leaf, t, "the unknown")


def with_aux(name: str, solve: Any, found: Any, has_aux: bool) -> tuple[Any, Any]:
    """Returns the solution that a solver returned, and what it returned besides, or None."""
    if has_aux and not (isinstance(found, (tuple, list)) and len(found) == 2):
        raise RuleError(
            f"{name}: with has_aux=True {name_of(solve)} ({defined(solve)}) returns a pair.\n"
            f"  returned: {describe(found)}\n  Write return solution, aux."
        )
    return (found[0], found[1]) if has_aux else (found, None)


# --------------------------------------------------------------------------------------- the rules


def _detached(call: Callable[[], Any]) -> Any:
    """Calls a solver such that no derivative enters it: what it closes over is held constant."""
    staged = stage("solve", call, [])
    moves = [type(x) is Tracer or is_traced_by_jax(x) for x in staged.captured]
    operands = [stop_gradient(x) if m else x for x, m in zip(staged.captured, moves, strict=True)]
    return staged.outputs.build(apply(staged.program, operands))


def _as_result(leaf: Any) -> Any:
    """Returns a value as a result of the innermost frame, that of `forward`.

    A rule finds what it needs of the solution there, whose derivative is that of the solution. A
    value of another frame, as what the solver closes over, would have one of its own, or none.
    """
    return state.stack[-1].record(stop_gradient_p, [leaf], NO_PARAMS)[0]


class _Solver(Author):
    """Is the author of a rule whose inputs are what an operator closes over, and more.

    Args:
        operator: takes and returns what is like the unknown.
        start: says what that is.
        solve: finds it.
        has_aux: whether `solve` returns something besides.
    """

    holds = True
    has_jvp = True
    solved: Any  # calls the solver, for values of the inputs
    equation: Any  # returns what is zero at the solution, for values of the inputs

    def __init__(self, operator: Any, start: Any, solve: Any, has_aux: bool):
        self.unknown = unknown = Unknown(self.name, start)
        if any(unknown.weak):
            unknown.promote(operator)
        self.start = unknown.structure.unflatten(unknown.arrays)
        self.solve, self.has_aux, self.count = solve, has_aux, len(unknown.types)

        def flat(*tracers: Any) -> Any:
            value = operator(unknown.structure.unflatten(tracers))
            return unknown.leaves(operator, value, unknown.exact)

        inputs = abstract_inputs(unknown.types, f"an argument of {self.name}")
        staged = stage(self.name, flat, inputs, order=FORWARD)  # the solver may differentiate it
        self.program, self.captured = staged.program, staged.captured
        self.values: list[Any] = [*self.captured]

    def operator(self, captured: Sequence[Any]) -> Callable[[Any], Any]:
        """Returns the operator closing over these values in the place of its own."""
        structure = self.unknown.structure
        where = f"{self.name}: what the solver passes to the operator"

        def function(x: Any) -> Any:
            pairs = zip(structure.flatten_up_to(x), self.unknown.types, strict=True)
            leaves = [fit(where, leaf, t, "the unknown") for leaf, t in pairs]
            return structure.unflatten(apply(self.program, [*leaves, *captured]))

        return function

    def record(self) -> Any:
        """Records the solution; returns it as the solver returned it."""
        if any(type(x) is Tracer for x in self.values):
            return self._recorded(*self.values)
        if foreign(self.values):
            return staged_for_jax(self.name, self._recorded, self.values)
        _, value = self._solution(self.values)  # it is constant, since nothing moves the equation
        return value

    def _recorded(self, *values: Any) -> Any:
        found = record(self, values)
        (output,) = self.output.build(found)
        return output

    def _solution(
        self, inputs: Sequence[Any], taken: Callable[[Any], Any] = lambda leaf: leaf
    ) -> tuple[list[Any], Any]:
        """Calls the solver, held constant; returns the leaves of the unknown, and all of it."""
        found = _detached(lambda: self.solved(inputs))
        found, aux = with_aux(self.name, self.solve, found, self.has_aux)
        leaves = list(map(taken, self.unknown.leaves(self.solve, found, self.unknown.exact)))
        value = self.unknown.structure.unflatten(leaves)
        return leaves, (value, aux) if self.has_aux else value

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Solves the equation; see `Author.forward`."""
        self.inputs = list(inputs)
        self.solution, value = self._solution(inputs, _as_result)
        self.output = Parts((value,), is_array)
        return self.output.values

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents: those of the unknown, but not aux."""
        return tuple([i < self.count and type_of(x).is_inexact for i, x in enumerate(outs)])

    def _with_aux(self, found: Any) -> Sequence[Any]:
        """Returns the tangents of all results."""
        return [*tree.tree_leaves(found), *([None] * (len(self.output.values) - self.count))]

    def _at_solution(self, moving: Sequence[int]) -> Callable[..., Any]:
        """Returns what is zero at the solution, as a function of some of the inputs."""

        def at(*values: Any) -> Any:
            full = list(self.inputs)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            return tuple(self.equation(full))

        return at

    def right_hand_side(self, tangents: Sequence[Any]) -> Any:
        """Returns what the linearized operator takes the tangents of the solution to."""
        moving = [i for i, t in enumerate(tangents) if t is not None]
        primals = tuple(self.inputs[i] for i in moving)
        change = jvp(self._at_solution(moving), primals, tuple(tangents[i] for i in moving))[1]
        return self.unknown.structure.unflatten([neg_p(as_array(y)) for y in change])


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
        has_aux: bool = False,
    ):
        super().__init__(matvec, b, solve, has_aux)
        self.values += self.unknown.arrays
        self.transpose_solve = transpose_solve
        self.symmetric = symmetric

    def _split(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        count = len(self.captured)
        return values[:count], values[count:]

    def solved(self, inputs: Sequence[Any]) -> Any:
        """Calls the solver."""
        captured, b = self._split(inputs)
        return self.solve(self.operator(captured), self.unknown.structure.unflatten(b))

    def equation(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Returns what is zero at the solution."""
        captured, b = self._split(inputs)
        found = apply(self.program, [*self.solution, *captured])
        return [sub_p(x, y) for x, y in zip(found, b, strict=True)]

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Solves for the tangents of the solution; see `Author.jvp`."""
        captured, _ = self._split(self.inputs)
        solvers = self._plain(self.solve), self._plain(self.transpose_solve)
        rhs, operator = self.right_hand_side(tangents), self.operator(captured)
        return self._with_aux(_solved_in_rule(operator, rhs, *solvers, self.symmetric))

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Solves the transposed equation; see `Author.backward`."""
        if self.transpose_solve is None:
            return self._no_transpose(cotangents)
        captured, _ = self._split(self.inputs)
        structure, types = self.unknown.structure, self.unknown.types
        operator = self.operator(captured)
        if not self.symmetric:
            operator = _transposed(operator, structure, types)
        pairs = zip(cotangents, types, strict=False)
        rhs = structure.unflatten([conjugate(zeros(t) if ct is None else ct) for ct, t in pairs])
        solvers = self._plain(self.transpose_solve), self._plain(self.solve)
        found = _solved_in_rule(operator, rhs, *solvers, self.symmetric)
        adjoint = [neg_p(conjugate(as_array(x))) for x in tree.tree_leaves(found)]
        moving = [i for i, x in enumerate(self.inputs) if type_of(x).is_inexact]
        _, pull = vjp(self._at_solution(moving), *[self.inputs[i] for i in moving])
        pulled = iter(pull(tuple(adjoint)))
        return [next(pulled) if i in moving else None for i in range(len(self.inputs))]

    def _no_transpose(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        message = (
            "custom_linear_solve: reverse mode needs to solve with the transposed operator.\n"
            "  Pass transpose_solve=..., or symmetric=True where the operator is symmetric."
        )
        wanted = [type_of(x).is_inexact for x in self.inputs]
        types = tuple([type_of(x).update() for x in self.inputs if type_of(x).is_inexact])
        found = iter(missing(cotangents, types, message))
        return [next(found) if w else None for w in wanted]

    def _plain(self, solve: Any) -> Any:
        """Returns the solver without aux."""
        if not self.has_aux or solve is None:
            return solve
        return lambda matvec, b: solve(matvec, b)[0]


class Root(_Solver):
    """Is one call of `custom_root`; the arguments are its."""

    name = "custom_root"

    def __init__(self, f: Any, guess: Any, solve: Any, tangent_solve: Any, has_aux: bool):
        super().__init__(f, guess, solve, has_aux)
        self.tangent_solve = tangent_solve

    def solved(self, inputs: Sequence[Any]) -> Any:
        """Calls the solver."""
        return self.solve(self.operator(inputs), self.start)

    def equation(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Returns what is zero at the solution."""
        return apply(self.program, [*self.solution, *inputs])

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Solves for the tangents of the solution; see `Author.jvp`."""
        f, rhs = self.operator(self.inputs), self.right_hand_side(tangents)
        x = self.unknown.structure.unflatten(self.solution)
        solve, asked = self.tangent_solve, False

        def slope(dx: Any) -> Any:
            nonlocal asked
            asked = True
            return jvp(f, (x,), (dx,))[1]

        found = solve(slope, rhs)
        if asked:
            # it solves for any operator that it is given, so also for the transposed one
            found = _solved_in_rule(slope, rhs, solve, solve, symmetric=False)
        return self._with_aux(found)


def _solved_in_rule(matvec: Any, b: Any, solve: Any, transpose_solve: Any, symmetric: bool) -> Any:
    """Records the solution of a linear system in a rule, which JAX may transpose."""
    call = LinearSolve(matvec, b, solve, transpose_solve, symmetric)
    call.linear = call.count
    return call.record()


def _transposed(matvec: Any, structure: Any, types: Sequence[ArrayType]) -> Callable[[Any], Any]:
    """Returns the plain transpose of an operator, without conjugation."""
    transpose = linear_transpose(matvec, structure.unflatten(types))

    def vecmat(x: Any) -> Any:
        (found,) = transpose(tree.tree_map(conjugate, x))
        return tree.tree_map(conjugate, found)

    return vecmat
