"""Running what was recorded operation by operation, each as a segment of its own.

So it is where somebody is called with what operations save, or with the gradients at their ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

from ftrans.autograd.levels import tangents_of
from ftrans.autograd.saved import save
from ftrans.autograd.segment import Edge, Segment, current, passing
from ftrans.errors import UnsupportedError
from ftrans.interpreters import Linearized, kept
from ftrans.interpreters.dependence import required
from ftrans.interpreters.node_names import operand_names
from ftrans.interpreters.parts import Part, parts
from ftrans.ir import Literal
from ftrans.primitives.control.common import present
from ftrans.runtime import run

_opening = threading.RLock()


def run_apart(segment: Segment) -> list[Any]:
    """Runs what a segment consists of, operation by operation, and has these take its place.

    Results that somebody has stay the arrays that they are. The operands are let go of.
    """
    program, segment.ahead = segment.program, None
    at: dict[Any, Any] = dict(enumerate(segment.operands))
    behind: dict[Any, Any] = dict(enumerate(map(current, segment.targets)))
    needs = required(program, segment.active)
    own = {program.outputs[p]: x for p, x in segment.known().items()}
    found = parts(program)
    step = 1 / (len(found) + 2)
    start = segment.number - 1
    for number in sorted({a for a in program.outputs if type(a) is int} & behind.keys() & needs):
        # an operand that is a result as well: gradients of that end with it
        behind[number] = _passing(at[number], behind[number], start + step / 2)
    inner: list[Segment | None] = []
    for index, part in enumerate(found):
        taken = [a for a in part.takes if a is not None]
        operands, made = [at[a] for a in taken], None
        if needs.isdisjoint(part.gives):
            results = run(part.program, operands)
        else:
            results, made = _operation(part, operands, [behind.get(a) for a in taken], own)
            made.number, made.place = start + (index + 1) * step, (segment.number, index)
            behind.update({n: Edge(made, i) for i, n in enumerate(part.gives) if n in needs})
        inner.append(made)
        at.update(zip(part.gives, results, strict=True))
    ends: list[Any] = []
    for atom in program.outputs:
        target = behind.get(atom) if type(atom) is int else None
        if target is not None and target in ends:  # no two results have the same
            target = _passing(at[atom], target, segment.number - 1e-9)
        ends.append(target)
    segment.inner, segment.moved = inner, ends
    segment.split, segment.residuals, segment.operands = None, [], []
    return [a.array if isinstance(a, Literal) else at[a] for a in program.outputs]


def _passing(value: Any, target: Any, number: float) -> Edge:
    """Returns where gradients of a value arrive before they go to what they are for."""
    passed = passing([value], [target])
    passed.number = number
    return Edge(passed, 0)


def _operation(
    part: Part, operands: Sequence[Any], targets: Sequence[Any], known: Mapping[Any, Any]
) -> tuple[Any, Segment]:
    """Runs one operation; returns its results, what is known as it is, and its segment."""
    found = kept(part.program, present(targets))
    outs = run(found.forward, operands)
    count = len(part.program.outputs)
    results = [known.get(n, x) for n, x in zip(part.gives, outs, strict=False)]
    split = Linearized(found.forward, found.linear, found.active)
    held = operands if len(outs) > count else []  # what a rule has saved has no history
    segment = Segment(split, [], targets, part.program, held)
    segment.operation = part
    pairs = zip(operand_names(part), part.takes, strict=True)
    names = [name for name, a in pairs if a is not None]
    saved = [(names[i], operands[i], targets[i]) for i in found.operands]
    for i in found.results:
        saved.append(("result" if count == 1 else f"result{i}", results[i], (ref(segment), i)))
    saved += [("tensors", value, None) for value in outs[count:]]
    segment.saved = [save(*about) for about in saved]
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
        if segment.inner is None and not segment.operands:
            segment.inner = _spent(segment)
        elif segment.inner is None:
            run_apart(segment)
            for p, target in enumerate(segment.moved or ()):
                if isinstance(target, Edge):
                    _look_at(segment, p, *target)
        assert segment.inner is not None
        return segment.inner


def _look_at(segment: Segment, p: int, to: Segment, i: int) -> None:
    """Has who looks at a result look at that of the operation from here on."""
    for name in ("hooks", "retained", "values", "freed"):
        before = getattr(segment, name)
        if p in before:
            getattr(to, name)[i] = before[p]
    to.results += [(i, x) for position, x in segment.results if position == p]


def _spent(segment: Segment) -> list[Segment | None]:
    """Returns the segments of operations that nobody goes back through any more."""
    call = next(iter(segment.freed.values()), None)
    needs = required(segment.program, segment.active)
    found: list[Segment | None] = []
    for part in parts(segment.program):
        own = None
        if not needs.isdisjoint(part.gives):
            own = Segment(None, [], [None] * len(part.program.inputs), part.program, [])
            own.spend(call)
        found.append(own)
    return found
