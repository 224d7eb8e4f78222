"""Reverse mode: `vjp`, and the pullback that it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.errors import DTypeError, StructureError
from ftrans.func.arguments import Arguments
from ftrans.func.staging import apply, known_inputs, name_of, sources, split_aux, stage, wants_jax
from ftrans.interpreters import detach_outputs, linearize, pullback
from ftrans.ir import ArrayType, Program, Tracer
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives.axes import zeros
from ftrans.pytree import (
    Skeleton,
    describe,
    leaf_name,
    leaf_names,
    match_leaf,
    match_structure,
    shown,
)
from ftrans.traceback import boundary

_AUX = "To return something besides, write return value, aux and pass has_aux=True."


def array_outputs(name: str, value: Any, hint: str = _AUX) -> Any:
    """Returns a function's result with every leaf made an array.

    Raises:
        DTypeError: where a leaf cannot be one, naming it.
    """
    if type(value) is Tracer:
        return value

    def convert(path: Sequence[Any], leaf: Any) -> Any:
        if is_array(leaf) or is_scalar(leaf):
            return as_array(leaf)
        raise DTypeError(
            f"{name}: the function must return arrays, or a pytree of them.\n"
            f"  {leaf_name('result', path)}: {describe(leaf)}\n"
            f"  {hint}"
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
        outputs: Skeleton,
        output_types: Sequence[ArrayType],
        active: Sequence[bool],
        arguments: Skeleton,
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
        if not cotangents and structure.num_leaves:
            raise StructureError(
                f"{self.name}: the pullback takes the cotangent of the output.\n"
                f"  output: {shown(structure, self._output_types)}\n"
                f"  Write pullback(ftrans.numpy.ones_like(value)) for the gradient of its sum."
            )
        matched = match_cotangents(self.name, given, self._outputs, self._output_types)
        operands = [ct for ct, active in zip(matched, self._active, strict=True) if active]
        as_jax = True if self._as_jax or wants_jax(given) else self._as_jax
        found = apply(self.program, [*self.residuals, *operands], as_jax, traced=False)
        return self._arguments.alone(found)

    def __repr__(self) -> str:
        return f"<pullback of {self.name} with {len(self.residuals)} residuals>"


tree.register_pytree_node(
    Pullback,
    lambda p: (
        p.residuals,
        (p.name, p.program, p._outputs, p._output_types, p._active, p._arguments, p._as_jax),
    ),
    lambda data, residuals: Pullback(data[0], data[1], residuals, *data[2:]),
)


def match_cotangents(name: str, given: Any, outputs: Skeleton, types: Sequence[Any]) -> list[Any]:
    """Returns one cotangent per array that a function returned, of exactly its type.

    Args:
        name: of the function, for errors.
        given: the cotangents, in the structure of the outputs; None stands for zero.
        outputs: how the function's outputs make its result.
        types: the types of the outputs.
    """
    structure = outputs.structure
    leaves = match_structure(name, "cotangent", "the output", structure, given)
    found = []
    for leaf, t, path in zip(leaves, types, leaf_names("", structure), strict=True):
        if leaf is None:
            found.append(zeros(t.update()))
        else:
            like = f"output{path}" if path else "the output"
            found.append(match_leaf(name, f"cotangent{path}", t, leaf, like))
    return found


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
    arguments = Arguments(name, func, primals, range(len(primals)), integers=True)

    def run(*tracers: Any) -> Any:
        return with_aux(name, has_aux, arguments.call(func, tracers, kwargs))

    inputs = known_inputs(arguments.values)
    staged = stage(name, run, inputs, order=4)
    value_outputs, aux_count = split_outputs(staged.outputs)
    count = len(arguments.values)
    # aux is not differentiated: the program that is has the outputs of the value alone
    program = staged.program
    mask = (True,) * count + (False,) * len(staged.captured)
    differentiated = detach_outputs(program, value_outputs.arrays)
    part = linearize(differentiated, mask)
    operands = [*sources(inputs), *staged.captured]
    as_jax = wants_jax(primals, kwargs)
    found = apply(part.forward, operands, as_jax, weak=staged.weak)
    total = value_outputs.arrays + aux_count
    back = Pullback(
        name,
        pullback(differentiated, mask),
        found[total:],
        value_outputs,
        program.output_types[: value_outputs.arrays],
        part.active[: value_outputs.arrays],
        arguments.skeleton.bare(),
        as_jax,
    )
    value, aux = staged.outputs.build(found[:total])
    return (value, back, aux) if has_aux else (value, back)


def split_outputs(outputs: Skeleton) -> tuple[Skeleton, int]:
    """Returns the part of `(value, aux)` that is the value, and how many arrays aux has."""
    value_structure, _ = outputs.structure.children()
    leaves = value_structure.num_leaves
    if leaves == len(outputs.leaves):
        return Skeleton(value_structure, outputs.leaves), 0
    value = Skeleton(value_structure, outputs.leaves[:leaves])
    return value, outputs.arrays - value.arrays
