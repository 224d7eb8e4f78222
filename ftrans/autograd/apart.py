"""Running what was recorded operation by operation, each as a segment of its own.

So it is where somebody is called with what operations save, or with the gradients at their ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

from ftrans.autograd.levels import tangents_of
from ftrans.autograd.parts import Part, parts, required
from ftrans.autograd.saved import save
from ftrans.autograd.segment import Edge, Segment, current, passing
from ftrans.errors import UnsupportedError
from ftrans.interpreters import Linearized, kept
from ftrans.ir import Literal
from ftrans.runtime import run

_opening = threading.RLock()

_NAMES = {
    "matmul": ("self", "mat2"),
    "where": ("condition", "self", "other"),
    "concatenate": ("tensors",),
}
"""What PyTorch calls the operands of operations, where not `self` and `other`."""


def run_apart(segment: Segment, values: Sequence[Any], known: Mapping[int, Any]) -> list[Any]:
    """Runs what a segment consists of, operation by operation, and has these take its place.

    Args:
        segment: the segment, which has a program and targets.
        values: what it is run on.
        known: results that are known, by position: they are not to be others now.

    Returns:
        The results.
    """
    program = segment.program
    at: dict[Any, Any] = dict(enumerate(values))
    behind: dict[Any, Any] = dict(enumerate(map(current, segment.targets)))
    needs = required(program, segment.active)
    own = {program.outputs[p]: x for p, x in known.items()}
    found = parts(program)
    step = 1 / (len(found) + 2)
    start = segment.number - 1
    for number in sorted({a for a in program.outputs if type(a) is int} & behind.keys() & needs):
        # an operand that is a result as well: gradients of that end with it
        passed = passing([at[number]], [behind[number]])
        passed.number, behind[number] = start + step / 2, Edge(passed, 0)
    inner: list[Segment | None] = []
    for index, part in enumerate(found):
        taken = [at[a] for a in part.takes if a is not None]
        made = None
        if needs.isdisjoint(part.gives):
            results = run(part.program, taken)
        else:
            reach = [behind.get(a) for a in part.takes if a is not None]
            results, made = _operation(part, taken, reach, own)
            made.number, made.place = start + (index + 1) * step, (segment.number, index)
            edges = [Edge(made, i) if n in needs else None for i, n in enumerate(part.gives)]
            behind.update(zip(part.gives, edges, strict=True))
        inner.append(made)
        at.update(zip(part.gives, results, strict=True))
    segment.inner = inner
    segment.moved = _ends(segment, at, behind)
    return [a.array if isinstance(a, Literal) else at[a] for a in program.outputs]


def _ends(segment: Segment, at: Mapping[Any, Any], behind: Mapping[Any, Any]) -> list[Any]:
    """Returns for each result what its cotangent is for; no two results have the same."""
    ends: list[Any] = []
    for atom in segment.program.outputs:
        target = None if isinstance(atom, Literal) else behind.get(atom)
        if target is not None and target in ends:
            passed = passing([at[atom]], [target])
            passed.number = segment.number - 1e-9
            target = Edge(passed, 0)
        ends.append(target)
    return ends


def _operation(
    part: Part, operands: Sequence[Any], targets: Sequence[Any], known: Mapping[Any, Any]
) -> tuple[Any, Segment]:
    """Runs one operation; returns its results, what is known as it is, and its segment."""
    active = tuple([target is not None for target in targets])
    found = kept(part.program, active)
    outs = run(found.forward, operands)
    count = len(part.program.outputs)
    results = [known.get(n, x) for n, x in zip(part.gives, outs, strict=False)]
    split = Linearized(found.forward, found.linear, found.active)
    held = operands if len(outs) > count else []  # what a rule has saved has no history
    segment = Segment(split, [], targets, part.program, held)
    segment.operation = part
    names = _NAMES.get(part.name, ("self", "other"))
    segment.saved = [
        *[
            save(names[i] if i < len(names) else f"operand_{i}", operands[i], targets[i])
            for i in found.operands
        ],
        *[
            save("result" if count == 1 else f"result{i}", results[i], (ref(segment), i))
            for i in found.results
        ],
        *[save("tensors", value, None) for value in outs[count:]],
    ]
    return results, segment


def open_up(segment: Segment) -> Sequence[Segment | None]:
    """Splits a segment that was run as a whole into its operations, and returns theirs.

    They are run once more, functions of `external` too, which are to be pure. An opaque `forward`
    is not called again: its results are operands.
    """
    if any(map(tangents_of, segment.operands)):
        raise UnsupportedError(
            "forward_ad: operations on dual tensors cannot be looked at one by one in their level: "
            "what they would save has no tangents.\n"
            "  Look at the node after the level, or register hooks on tensors."
        )
    with _opening:
        if segment.inner is None:
            if not segment.operands:
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
    results = segment.results
    run_apart(segment, segment.operands, segment.known())
    assert segment.moved is not None
    for p, target in enumerate(segment.moved):
        if not isinstance(target, Edge):
            continue
        to, i = target  # who looks at a result looks at that of the operation from here on
        for before, now in ((segment.hooks, to.hooks), (segment.retained, to.retained)):
            if p in before:
                now[i] = before[p]  # type: ignore[index]
        if p in segment.values:
            to.values[i] = segment.values[p]
        if p in segment.freed:
            to.freed[i] = segment.freed[p]
        to.results += [(i, x) for position, x in results if position == p]
    segment.split, segment.residuals, segment.operands = None, [], []
