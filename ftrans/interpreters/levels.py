"""Forward mode along several levels at once: values have tangents along sets of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from ftrans.interpreters.jvp import jvp
from ftrans.ir import Program

Levels: TypeAlias = frozenset[int]
NONE: Levels = frozenset()
Place: TypeAlias = tuple[int, Levels]


def along_levels(
    program: Program, moving: Sequence[Collection[Levels]]
) -> tuple[Program, list[Place], list[Place]]:
    """Returns what computes values and their tangents.

    Args:
        program: any program.
        moving: for each input the sets of levels that it has a tangent along.

    Returns:
        A program whose further inputs are tangents, and whose further outputs are those that are
        not zero; and for each input, and each output, which value it is, by position, or the
        tangent of which, along which levels.
    """
    inputs = [(i, NONE) for i in range(len(program.inputs))]
    outputs = [(i, NONE) for i in range(len(program.outputs))]
    for level in sorted({level for sets in moving for levels in sets for level in levels}):
        mask = tuple([levels | {level} in moving[i] for i, levels in inputs])
        program, present = jvp(program, mask)
        for places, moves in ((inputs, mask), (outputs, present)):
            pairs = zip(places, moves, strict=True)
            places += [(i, levels | {level}) for (i, levels), is_moving in pairs if is_moving]
    return program, inputs, outputs
