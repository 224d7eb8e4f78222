"""What branches and loops share: bodies traced in closed frames, and made to fit each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.errors import DTypeError
from ftrans.func.staging import Staged, abstract_inputs, name_of, stage
from ftrans.interpreters.base import building, finish, replay
from ftrans.ir import ArrayType, Program, Tracer, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives import convert_p
from ftrans.pytree import describe, leaf_name
from ftrans.runtime.jaxlink import words
from ftrans.traceback import OnTape


def flatten_arrays(
    name: str, root: str, value: Any, verb: str = "be"
) -> tuple[list[Any], list[str], list[bool], Any]:
    """Flattens a pytree of arrays: leaves, their names, which are Python scalars, structure.

    JAX's keys are taken as their words.
    """
    paths, structure = tree.tree_flatten_with_path(value)
    leaves, names, weak = [], [], []
    for path, leaf in paths:
        leaf, label = words(leaf), leaf_name(root, path)
        if not (is_array(leaf) or is_scalar(leaf)):
            raise DTypeError(
                f"{name}: {root} must {verb} a pytree of arrays.\n  {label}: {describe(leaf)}\n"
                f"  Close over what is no array instead of passing it."
            )
        leaves.append(as_array(leaf))
        names.append(label)
        weak.append(is_scalar(leaf) or (isinstance(leaf, Tracer) and leaf.weak))
    return leaves, names, weak, structure


def stage_body(
    name: str,
    root: str,
    body: Callable[..., Any],
    types: Sequence[ArrayType],
    structure: Any,
    axes: tuple[tuple[Hashable, int], ...] = (),
) -> Staged:
    """Traces a body that takes the pytree `structure`, along named axes if there are any."""

    def call(*tracers: Any) -> Any:
        result = OnTape.returned(body(*tree.tree_unflatten(structure, tracers)))
        flatten_arrays(name, root, result, "return")
        return tree.tree_map(words, result)

    inputs = abstract_inputs(types, f"an argument of a body of {name}")
    title = name if axes else f"{name}({name_of(body)})"
    passed = lambda x: is_array(x) or is_scalar(x)  # noqa: E731
    return stage(title, call, inputs, closed=True, passed=passed, axes=axes)


def adapted(
    program: Program, types: Sequence[ArrayType], places: Sequence[int], dtypes: Sequence[Any]
) -> Program:
    """Returns a body with other inputs, and its outputs converted.

    Args:
        program: the body.
        types: those of the new inputs.
        places: which of these each input of the body is.
        dtypes: those of the outputs.
    """
    with building(program.name, types) as (frame, inputs):
        outs = replay(program, [inputs[place] for place in places])
        return finish(
            frame,
            [
                x if type_of(x).dtype == d else convert_p(x, dtype=d)
                for x, d in zip(outs, dtypes, strict=True)
            ],
        )


def consts_first(program: Program, captured: int, dtypes: Sequence[Any]) -> Program:
    """Returns a body with what it captured in front, where the primitives take it."""
    declared = len(program.inputs) - captured
    types = [*program.inputs[declared:], *program.inputs[:declared]]
    return adapted(program, types, [*range(captured, len(types)), *range(captured)], dtypes)


def spread(prefix: Any, value: Any, is_leaf: Callable[[Any], bool]) -> list[Any] | None:
    """Returns for each leaf of a pytree what a prefix of it says; None where it is no prefix."""
    found: list[Any] = []
    add = lambda x, part: found.extend([x] * tree.tree_structure(part).num_leaves)  # noqa: E731
    try:
        tree.tree_map(add, prefix, value, is_leaf=is_leaf)
    except (ValueError, TypeError):
        return None
    return found
