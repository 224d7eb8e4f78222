"""A function evaluated at a point, and what is kept of it there: its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax.tree_util as tree

from ftrans.errors import DTypeError
from ftrans.func.arguments import Arguments
from ftrans.func.staging import apply, known_inputs, sources, split_aux, stage, wants_jax
from ftrans.interpreters import Linearized as Split
from ftrans.interpreters import detach_outputs, linearize
from ftrans.ir import ArrayType, Program, Tracer
from ftrans.ir.stack import FORWARD
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import Skeleton, describe, leaf_name

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


def split_outputs(outputs: Skeleton) -> tuple[Skeleton, int]:
    """Returns the part of `(value, aux)` that is the value, and how many arrays aux has."""
    value_structure, _ = outputs.structure.children()
    leaves = value_structure.num_leaves
    if leaves == len(outputs.leaves):
        return Skeleton(value_structure, outputs.leaves), 0
    value = Skeleton(value_structure, outputs.leaves[:leaves])
    return value, outputs.arrays - value.arrays


@dataclass(eq=False, repr=False)
class Derivative:
    """Is the derivative of a function at a point, a pytree whose leaves are the residuals.

    Attributes:
        title: names the kind.
        program: is called with the residuals and with tangents or cotangents.
        residuals: the values that the point determined, arrays.
    """

    title: ClassVar[str]

    name: str
    program: Program
    residuals: Sequence[Any]
    _outputs: Skeleton
    _output_types: tuple[ArrayType, ...]
    _active: tuple[bool, ...]
    _arguments: Skeleton
    _paths: tuple[tuple[Any, ...], ...]
    _as_jax: bool | None

    def __init_subclass__(cls) -> None:
        names = [field.name for field in fields(Derivative)]
        names.remove("residuals")
        tree.register_dataclass(cls, data_fields=["residuals"], meta_fields=names)

    @staticmethod
    def program_of(program: Program, mask: tuple[bool, ...], part: Split) -> Program:
        """Returns what is to be called, of a program and its linear part."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.title} of {self.name} with {len(self.residuals)} residuals>"


def evaluate(
    kind: type[Derivative],
    name: str,
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool,
) -> tuple[Any, ...]:
    """Returns the value of a function, its derivative there, and aux if there is any."""
    arguments = Arguments(name, func, primals, range(len(primals)), integers=True)

    def run(*tracers: Any) -> Any:
        return with_aux(name, has_aux, arguments.call(func, tracers, kwargs))

    inputs = known_inputs(arguments.values)
    staged = stage(name, run, inputs, order=FORWARD)
    value_outputs, _ = split_outputs(staged.outputs)
    count = value_outputs.arrays
    mask = (True,) * len(inputs) + (False,) * len(staged.captured)
    # aux is not differentiated: the program that is has the outputs of the value alone
    program = detach_outputs(staged.program, count)
    part = linearize(program, mask)
    operands = [*sources(inputs), *staged.captured]
    as_jax = wants_jax(primals, kwargs)
    found = apply(part.forward, operands, as_jax, weak=staged.weak)
    total = staged.outputs.arrays
    derivative = kind(
        name,
        kind.program_of(program, mask, part),
        found[total:],
        value_outputs,
        tuple(staged.program.output_types[:count]),
        tuple(part.active[:count]),
        arguments.skeleton.bare(),
        tuple(arguments.paths),
        as_jax,
    )
    value, aux = staged.outputs.build(found[:total])
    return (value, derivative, aux) if has_aux else (value, derivative)
