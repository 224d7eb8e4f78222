"""Forward mode: `jvp` and `linearize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ftrans.errors import ArgumentError, StructureError
from ftrans.func.arguments import Arguments
from ftrans.func.derivative import Derivative, evaluate, split_outputs, with_aux
from ftrans.func.staging import apply, known_inputs, name_of, sources, stage, wants_jax
from ftrans.interpreters import Linearized as Split
from ftrans.interpreters import detach_outputs
from ftrans.interpreters import jvp as push_forward
from ftrans.ir import ArrayType, Program, is_tracing
from ftrans.ir.stack import FORWARD
from ftrans.primitives.axes import zeros
from ftrans.pytree import Skeleton, describe, leaf_name, leaf_names, match_leaf, match_structure
from ftrans.runtime.jaxlink import is_jax, to_jax, x64
from ftrans.traceback import boundary


@boundary
def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Evaluates `func` together with its derivative along `tangents`.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        primals: the positional arguments.
        tangents: one tangent per primal, of the same structure, shapes and dtypes; None stands
            for zero, and tangents of integers are ignored.
        strict: whether to raise where an output does not depend on the inputs, rather than to
            return a zero tangent.
        has_aux: whether `func` returns something besides, of any type.

    Returns:
        `(value, tangent)`, or `(value, tangent, aux)`.

    Example:
        >>> value, tangent = jvp(lambda x: x**3, (2.0,), (1.0,))
        >>> float(value), float(tangent)
        (8.0, 12.0)
    """
    name = f"jvp({name_of(func)})"
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise StructureError(
                f"{name}: {what} must be a tuple with one entry per argument.\n"
                f"  {what}: {describe(given)}\n  Write {what}=({what.rstrip('s')},)."
            )
    arguments = Arguments(name, func, primals, range(len(primals)), integers=True)
    inputs = known_inputs(arguments.values)
    types = [t for t, _, _ in inputs]
    dots = match_tangents(name, arguments.skeleton, arguments.paths, types, tangents)

    def run(*tracers: Any) -> Any:
        return with_aux(name, has_aux, arguments.call(func, tracers, {}))

    staged = stage(name, run, inputs, order=FORWARD)
    value_outputs, _ = split_outputs(staged.outputs)
    active = tuple(dot is not None for dot in dots)
    mask = (*active, *(False,) * len(staged.captured))
    count = value_outputs.arrays
    program, out_active = push_forward(detach_outputs(staged.program, count), mask)
    operands = [*sources(inputs), *staged.captured, *(d for d in dots if d is not None)]
    weak = [*staged.weak, *(w for w, a in zip(staged.weak, out_active, strict=False) if a)]
    found = apply(program, operands, wants_jax(primals, tangents), weak=weak)
    if strict and not all(out_active[:count]):
        number = out_active.index(False)
        label = leaf_names("result", value_outputs.structure)[number]
        raise ArgumentError(
            f"{name}: with strict=True every output must depend on the inputs.\n"
            f"  {label}: {staged.program.output_types[number]} does not\n"
            f"  Leave strict out to get a tangent of zeros."
        )
    total = staged.outputs.arrays
    value, aux = staged.outputs.build(found[:total])
    given = iter(found[total:])
    output_types = staged.program.output_types[:count]
    tangent = value_outputs.build(
        [
            next(given) if a else _zeros(t, is_jax(out))
            for a, t, out in zip(out_active[:count], output_types, found[:count], strict=True)
        ]
    )
    return (value, tangent, aux) if has_aux else (value, tangent)


def _zeros(t: ArrayType, as_jax: bool | None) -> Any:
    """Returns zeros of a type, as a `jax.Array` where it is asked for."""
    array = zeros(t.update())
    if not as_jax or is_tracing():
        return array
    with x64():
        return to_jax(array)


def match_tangents(
    name: str,
    arguments: Skeleton,
    paths: Sequence[tuple[Any, ...]],
    types: Sequence[ArrayType],
    tangents: Sequence[Any],
) -> list[Any]:
    """Returns the tangents of the leaves that are differentiated, `None` for zero.

    Args:
        name: of the function, for errors.
        arguments: the tuple of primals without those leaves.
        paths: their paths, for errors.
        types: their types.
        tangents: one per primal.
    """
    children = arguments.structure.children()
    if len(tangents) != len(children):
        raise StructureError(
            f"{name}: there must be one tangent per primal.\n"
            f"  primals: {len(children)}\n  tangents: {len(tangents)}\n"
            f"  Pass None for a tangent that is zero."
        )
    leaves = []
    for position, (structure, tangent) in enumerate(zip(children, tangents, strict=True)):
        what, like = f"tangents[{position}]", f"primals[{position}]"
        leaves += match_structure(name, what, like, structure, tangent)
    dots = []
    for path, t, leaf in zip(paths, types, arguments.among(leaves), strict=True):
        if leaf is not None:
            what, like = (leaf_name(root, path) for root in ("tangents", "primals"))
            leaf = match_leaf(name, what, t, leaf, like)
        dots.append(leaf)
    return dots


class Linearized(Derivative):
    """Is the derivative of a function at a point: a linear function of tangents.

    It can be called any number of times, and is a pytree whose leaves are the residuals.

    Attributes:
        residuals: the values that the point determined, arrays.
        program: the linear program, from tangents and residuals to tangents.
    """

    title = "derivative"

    @staticmethod
    def program_of(program: Program, mask: tuple[bool, ...], part: Split) -> Program:
        """Returns the linear program."""
        return part.linear

    @property
    def nbytes(self) -> int:
        """The bytes that the residuals hold."""
        return sum(t.nbytes for t in self.program.inputs[len(self._paths) :])

    @boundary
    def __call__(self, *tangents: Any) -> Any:
        """Returns the tangent of the value for one tangent per primal; None stands for zero."""
        types = self.program.inputs[: len(self._paths)]
        dots = match_tangents(self.name, self._arguments, self._paths, types, tangents)
        filled = [
            zeros(t.update()) if dot is None else dot for dot, t in zip(dots, types, strict=True)
        ]
        as_jax = True if self._as_jax or wants_jax(tangents) else self._as_jax
        found = iter(apply(self.program, [*filled, *self.residuals], as_jax, traced=False))
        return self._outputs.build(
            [
                next(found) if a else _zeros(t, as_jax)
                for a, t in zip(self._active, self._output_types, strict=True)
            ]
        )


@boundary
def linearize(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Evaluates `func` and returns its value together with its derivative at that point.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        primals: the positional arguments; leaves that are no floating-point arrays are held fixed.
        has_aux: whether `func` returns something besides, of any type.

    Returns:
        `(value, derivative)`, or `(value, derivative, aux)`; `derivative(*tangents)` can be called
        many times and does not compute again what the point alone determines.

    Example:
        >>> value, derivative = linearize(lambda x: x**2, 3.0)
        >>> float(derivative(1.0)), float(derivative(2.0))
        (6.0, 12.0)
    """
    return evaluate(Linearized, f"linearize({name_of(func)})", func, primals, {}, has_aux)
