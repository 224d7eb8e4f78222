"""Staged branches: `cond` and `switch`.

Branches are traced once, in closed frames; what they use from outside they capture, and it is
differentiated and batched like any argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, DTypeError, ShapeError, StructureError
from ftrans.func.bodies import adapted, flatten_arrays, stage_body
from ftrans.func.staging import Staged
from ftrans.ir import ArrayType, type_of
from ftrans.numpy.promotion import as_array, cast, is_array, is_scalar, weakly
from ftrans.primitives import switch_p
from ftrans.primitives.logic import clamp_index
from ftrans.pytree import describe, shown
from ftrans.traceback import boundary


@boundary
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = None,
) -> Any:
    """Runs one of two functions, by a condition that may be traced.

    Only the branch that is taken runs; under `vmap` with a mapped condition both run and the
    results are selected, and no NaN comes back from the branch not taken.

    Args:
        pred: a scalar, true or false.
        true_fun: called with the operands where `pred` is true.
        false_fun: called with the operands where it is not; its result must have the same
            structure, shapes and dtypes.
        operands: pytrees of arrays.
        operand: the only one, by its name in JAX.

    Example:
        >>> float(cond(True, lambda x: x + 1, lambda x: x - 1, 3.0))
        4.0
    """
    if not (is_array(pred) or is_scalar(pred)) or type_of(as_array(pred)).shape != ():
        raise ShapeError(
            f"cond: the condition must be a scalar.\n  pred: {describe(pred)}\n"
            f"  To choose element by element, write ftrans.numpy.where(pred, a, b)."
        )
    if operand is not None:
        operands = (*operands, operand)
    test = as_array(pred)
    index = cast(cast(test, np.bool_), np.int32)
    return _switch("cond", index, [false_fun, true_fun], ["false_fun", "true_fun"], operands)


@boundary
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Runs one of several functions, by an index that may be traced.

    Args:
        index: an integer scalar; it is clamped to the branches that there are.
        branches: called with the operands; their results must agree in structure and types.
        operands: pytrees of arrays.

    Example:
        >>> float(switch(1, [lambda x: x, lambda x: 2 * x], 3.0))
        6.0
    """
    if not branches:
        raise ArgumentError(
            "switch: there must be at least one branch.\n  branches: ()\n"
            "  Pass the functions to choose from: switch(i, [f, g], x)."
        )
    if isinstance(index, int):
        index = min(max(index, 0), len(branches) - 1)  # it may not fit into the default dtype
    array = as_array(index)
    t = type_of(array)
    if t.shape != () or t.dtype.kind not in "iub":
        raise DTypeError(
            f"switch: the index must be an integer scalar.\n  index: {t}\n"
            f"  Convert it: index.astype('int32')."
        )
    if t.dtype != np.int32:
        # clamp before narrowing, so that no large index wraps around
        array = cast(clamp_index(cast(array, np.int64), len(branches)), np.int32)
    names = [f"branches[{i}]" for i in range(len(branches))]
    return _switch("switch", array, list(branches), names, operands)


def _switch(
    name: str,
    index: Any,
    branches: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: Sequence[Any],
) -> Any:
    leaves, _, weak, structure = flatten_arrays(name, "operands", tuple(operands))
    types = [
        ArrayType(type_of(x).shape, type_of(x).dtype, w) for x, w in zip(leaves, weak, strict=True)
    ]
    both = zip(names, branches, strict=True)
    staged = [stage_body(name, label, branch, types, structure) for label, branch in both]
    dtypes = _agree(name, names, staged)
    # all branches take the operands, followed by all that any of them captured
    captured = {id(value): value for part in staged for value in part.captured}
    taken = [t.update() for t in (*types, *map(type_of, captured.values()))]
    place = {key: i for i, key in enumerate(captured, len(leaves))}
    programs = []
    for part in staged:
        given = [*range(len(leaves)), *[place[id(value)] for value in part.captured]]
        programs.append(adapted(part.program, taken, given, dtypes))
    outs = switch_p(index, *leaves, *captured.values(), branches=tuple(programs))
    alike = [all(flags) for flags in zip(*[part.weak for part in staged], strict=True)]
    return staged[0].outputs.build(list(map(weakly, outs, alike)))


def _agree(name: str, names: Sequence[str], staged: Sequence[Staged]) -> list[Any]:
    """Returns the dtypes of the results; raises where branches disagree, naming the leaf."""
    first = staged[0]
    labelled = list(zip(names, staged, strict=True))
    if name == "cond":
        labelled.reverse()
    for part in staged[1:]:
        if part.outputs.structure != first.outputs.structure:
            raise StructureError(
                f"{name}: branches return different structures.\n"
                + "".join(
                    f"  {label}: {shown(p.outputs.structure, p.program.output_types)}\n"
                    for label, p in labelled
                )
                + "  Return the same containers from every branch."
            )
    dtypes = []
    for number, place in enumerate(first.outputs.names("")):
        types = [part.program.output_types[number] for part in staged]
        weak = [part.weak[number] for part in staged]
        # a Python scalar takes the dtype of the arrays that the other branches return
        strong = [t for t, is_loose in zip(types, weak, strict=True) if not is_loose] or types[:1]
        lines = "\n".join(
            f"  {label}{place}: {part.program.output_types[number]}" for label, part in labelled
        )
        for t, is_loose in zip(types, weak, strict=True):
            if t.shape != strong[0].shape:
                raise ShapeError(
                    f"{name}: branches return different shapes.\n{lines}\n"
                    f"  Give them one shape: x.reshape(...), ftrans.numpy.broadcast_to(x, shape)."
                )
            if not is_loose and t.dtype != strong[0].dtype:
                raise DTypeError(
                    f"{name}: branches return different dtypes.\n{lines}\n"
                    f"  Convert them to one: x.astype({strong[0].dtype.name!r})."
                )
        dtypes.append(strong[0].dtype)
    return dtypes
