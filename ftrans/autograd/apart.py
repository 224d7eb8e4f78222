"""Running what was recorded operation by operation, each as a segment of its own.

So it is where somebody is called with what operations save, or with the gradients at their ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ftrans.autograd.parts import Part, parts, required
from ftrans.autograd.saved import save
from ftrans.autograd.segment import Edge, Segment, passing
from ftrans.interpreters import Linearized, kept
from ftrans.ir import Literal, Program
from ftrans.runtime import run

_opening = threading.RLock()

_NAMES = {
    "matmul": ("self", "mat2"),
    "where": ("condition", "self", "other"),
    "concatenate": ("tensors",),
}
"""What PyTorch calls the operands of operations, where not `self` and `other`."""


def run_apart(
    program: Program, operands: Sequence[Any], targets: Sequence[Any]
) -> tuple[list[Any], list[Any], list[Segment | None]]:
    """Runs a program operation by operation.

    Args:
        program: any program.
        operands: what it is run on.
        targets: for each operand what the cotangent of it is for: a leaf, an `Edge`, or None.

    Returns:
        The outputs; for each what a cotangent of it is for; and the segments of the operations.
    """
    values: dict[Any, Any] = dict(enumerate(operands))
    behind: dict[Any, Any] = dict(enumerate(targets))
    needs = required(program, tuple([target is not None for target in targets]))
    inner: list[Segment | None] = []
    for part in parts(program):
        taken = [values[a] for a in part.takes if a is not None]
        reach = [behind.get(a) for a in part.takes if a is not None]
        if needs.isdisjoint(part.gives):
            found, segment = run(part.program, taken), None
        else:
            found, segment = _operation(part, taken, reach)
            edges = [Edge(segment, i) if n in needs else None for i, n in enumerate(part.gives)]
            behind.update(zip(part.gives, edges, strict=True))
        inner.append(segment)
        values.update(zip(part.gives, found, strict=True))
    outs = [a.array if isinstance(a, Literal) else values[a] for a in program.outputs]
    return outs, [behind.get(a) for a in program.outputs], inner


def _operation(part: Part, operands: Sequence[Any], targets: Sequence[Any]) -> tuple[Any, Segment]:
    """Runs one operation; returns its results and its segment."""
    active = tuple([target is not None for target in targets])
    found = kept(part.program, active)
    outs = run(found.forward, operands)
    count = len(part.program.outputs)
    split = Linearized(found.forward, found.linear, found.active)
    held = operands if len(outs) > count else []  # what a rule has saved has no history
    segment = Segment(split, [], targets, part.program, held)
    names = _NAMES.get(part.name, ("self", "other"))
    segment.saved = [
        *[
            save(names[i] if i < len(names) else f"operand_{i}", operands[i], targets[i])
            for i in found.operands
        ],
        *[
            save("result" if count == 1 else f"result{i}", outs[i], Edge(segment, i))
            for i in found.results
        ],
        *[save("tensors", value, None) for value in outs[count:]],
    ]
    return outs[:count], segment


def open_up(segment: Segment) -> Sequence[Segment | None]:
    """Splits a segment that was run as a whole into its operations, and returns theirs.

    They are run once more; a `forward` that calls Python is not, since its results are operands.
    """
    with _opening:
        if segment.inner is None:
            if segment.split is None or not segment.operands:
                segment.inner = _spent(segment)
            else:
                _open(segment)
        assert segment.inner is not None
        return segment.inner


def _spent(segment: Segment) -> list[Segment | None]:
    """Returns the segments of operations that nobody goes back through any more."""
    call = next(iter(segment.freed.values()), None)
    needs = required(segment.program, segment.active)
    return [
        None
        if needs.isdisjoint(part.gives)
        else Segment.spent(part.program, [None] * len(part.program.inputs), call)
        for part in parts(segment.program)
    ]


def _open(segment: Segment) -> None:
    program, operands, targets = segment.program, segment.operands, segment.targets
    outs, behind, inner = run_apart(program, operands, targets)
    step = 1 / (len(inner) + 1)
    for i, found in enumerate(inner):
        if found is not None:  # they come in its place in the order
            found.number = segment.number - 1 + (i + 1) * step
    passed = passing(outs, behind)
    segment.inner, segment.origins = inner, targets
    segment.split, segment.residuals, segment.program = passed.split, [], passed.program
    segment.targets, segment.operands = behind, outs
