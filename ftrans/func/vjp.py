"""Reverse mode: `vjp`, and the pullback that it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.errors import DTypeError
from ftrans.func.arguments import Arguments
from ftrans.func.staging import (
    Outputs,
    apply,
    describe,
    known_inputs,
    leaf_name,
    match_leaf,
    match_structure,
    name_of,
    split_aux,
    stage,
    wants_jax,
)
from ftrans.interpreters import linearize, pullback
from ftrans.interpreters.detach import detach_outputs
from ftrans.ir import ArrayType, Program
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives.shape import zeros
from ftrans.traceback import boundary

__all__ = ["Pullback", "array_outputs", "leaf_names", "split_outputs", "vjp", "with_aux"]


def array_outputs(name: str, value: Any) -> Any:
    """Returns a function's result with every leaf made an array.

    Raises:
        DTypeError: where a leaf cannot be one, naming it.
    """

    def convert(path: Sequence[Any], leaf: Any) -> Any:
        if is_array(leaf) or is_scalar(leaf):
            return as_array(leaf)
        raise DTypeError(
            f"{name}: the function must return arrays, or a pytree of them.\n"
            f"  {leaf_name('result', path)}: {describe(leaf)}\n"
            f"  To return something besides, write return value, aux and pass has_aux=True."
        )

    return tree.tree_map_with_path(convert, value)


def with_aux(name: str, has_aux: bool, result: Any) -> tuple[Any, Any]:
    """Splits the result of a function into arrays and aux (None without `has_aux`)."""
    if not has_aux:
        return array_outputs(name, result), None
    value, aux = split_aux(name, result)
    return array_outputs(name, value), aux


class Pullback:
    """Maps cotangents of a function's outputs to cotangents of its inputs.

    It can be called any number of times, and is a pytree whose leaves are the residuals.

    Attributes:
        residuals: the values saved by the forward pass, arrays.
        program: the backward program, from residuals and cotangents to cotangents.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        residuals: Sequence[Any],
        outputs: Outputs,
        output_types: Sequence[ArrayType],
        active: Sequence[bool],
        arguments: Arguments,
        as_jax: bool | None,
    ):
        self.name = name
        self.program = program
        self.residuals = list(residuals)
        self._outputs = outputs
        self._output_types = tuple(output_types)
        self._active = tuple(active)
        self._arguments = arguments
        self._as_jax = as_jax

    @property
    def nbytes(self) -> int:
        """The bytes that the residuals hold."""
        return sum(t.nbytes for t in self.program.inputs[: len(self.residuals)])

    @boundary
    def __call__(self, *cotangents: Any) -> Any:
        """Returns the cotangents of the inputs.

        Args:
            cotangents: the cotangent of the output, in its structure; where the output is a tuple,
                its elements may be passed one by one. None stands for zero.

        Returns:
            A tuple with one entry per primal.

        Raises:
            StructureError: where the structure does not fit the output.
            ShapeError: where a shape does not.
            DTypeError: where a dtype does not.
        """
        structure = self._outputs.structure
        given = cotangents[0] if len(cotangents) == 1 else tuple(cotangents)
        leaves = match_structure(self.name, "cotangents", structure, given)
        names = leaf_names(structure)
        operands = []
        for leaf, t, active, name in zip(
            leaves, self._output_types, self._active, names, strict=True
        ):
            if not active:
                continue
            if leaf is None:
                operands.append(zeros(t.update()))
            else:
                operands.append(match_leaf(self.name, f"cotangent{name}", t, leaf, "the output"))
        as_jax = True if self._as_jax or wants_jax(given) else self._as_jax
        found = apply(self.program, [*self.residuals, *operands], as_jax)
        return self._arguments.build(found)

    def __repr__(self) -> str:
        return f"<pullback of {self.name} with {len(self.residuals)} residuals>"


def leaf_names(structure: Any) -> list[str]:
    """Returns how errors name the leaves of a pytree, after its root."""
    paths, _ = tree.tree_flatten_with_path(
        tree.tree_unflatten(structure, [0] * structure.num_leaves)
    )
    return [tree.keystr(path) for path, _ in paths]


@boundary
def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False, **kwargs: Any) -> Any:
    """Evaluates `func` and returns its value together with its pullback.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        primals: the positional arguments, pytrees; integer leaves are held fixed.
        has_aux: whether `func` returns something besides, of any type.
        kwargs: passed to `func` as they are.

    Returns:
        `(value, pullback)`, or `(value, pullback, aux)`. `pullback(cotangent)` is a tuple with one
        entry per primal.

    Example:
        >>> value, pullback = vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> [float(ct) for ct in pullback(1.0)]
        [3.0, 2.0]
    """
    name = f"vjp({name_of(func)})"
    arguments = Arguments(name, primals, range(len(primals)), integers=True)

    def run(*tracers: Any) -> Any:
        return with_aux(name, has_aux, arguments.call(func, tracers, kwargs))

    staged = stage(name, run, known_inputs(arguments.values))
    value_outputs, aux_count = split_outputs(staged.outputs)
    count = len(arguments.values)
    # aux is not differentiated: the program that is has the outputs of the value alone
    program = staged.program
    mask = tuple(i < count for i in range(len(program.inputs)))
    differentiated = detach_outputs(program, value_outputs.arrays)
    part = linearize(differentiated, mask)
    operands = [*(as_array(v) for v in arguments.values), *staged.captured]
    as_jax = wants_jax(primals, kwargs)
    found = apply(part.forward, operands, as_jax)
    total = value_outputs.arrays + aux_count
    back = Pullback(
        name,
        pullback(differentiated, mask),
        found[total:],
        value_outputs,
        program.output_types[: value_outputs.arrays],
        part.active[: value_outputs.arrays],
        arguments,
        as_jax,
    )
    value, aux = staged.outputs.build(found[:total])
    return (value, back, aux) if has_aux else (value, back)


def split_outputs(outputs: Outputs) -> tuple[Outputs, int]:
    """Returns the part of `(value, aux)` that is the value, and how many arrays aux has."""
    value_structure, _ = outputs.structure.children()
    leaves = value_structure.num_leaves
    value = Outputs(value_structure, outputs.leaves[:leaves])
    return value, outputs.arrays - value.arrays
