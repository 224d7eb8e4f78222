"""A program with the derivative of one of its results, run as one.

That stops where somebody looks at the cotangent of a result, and is gone on with by other programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ftrans.interpreters.backward import exposed, marked, pruned, pulled
from ftrans.interpreters.base import building, finish, memoised, replay
from ftrans.interpreters.dependence import above, behind, requiring, saved_by
from ftrans.interpreters.gradient import pull
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import split
from ftrans.ir import ArrayType, Program, type_of
from ftrans.primitives import broadcast_p, scalar
from ftrans.primitives.arithmetic import accumulate
from ftrans.primitives.control.common import Mask, pick

Numbers = tuple[int, ...]


class Rest(NamedTuple):
    """Says how a derivative goes on from a result at which it has stopped.

    Attributes:
        program: takes what is `taken`, the cotangent of that result and what is `added`.
        taken: results of `Fused.program`, by position.
        added: the slots in which something has arrived before, which it is added to.
        sent: the slots of the cotangents that it returns.
        unchanged: which results of `Fused.program` these are where the cotangents of all stops so
            far stay as they are; none where it was not run on.
    """

    program: Program
    taken: Numbers
    added: Numbers
    sent: Numbers
    unchanged: Numbers


class Fused(NamedTuple):
    """Is a program with the derivative of a result, for the cotangent 1 or one that is given.

    Cotangents have slots: that of an input is its position, and that of a result at which the
    derivative stops is the complement of its position.

    Attributes:
        program: from the inputs, and that cotangent if it is given, to the results, the cotangents,
            and what `rests` take.
        root: the position of that result.
        stops: the results at which the derivative stops, those that are computed last first.
        flags: for each result whether it requires grad.
        saves: the results whose derivatives take what was saved; None where these are all, and the
            root is computed of them all.
        reached: the inputs that the root depends on and that are differentiated.
        sent: the slots of the cotangents that it returns.
        rests: how it goes on from a result at which it has stopped, by position.
    """

    program: Program
    root: int
    stops: Numbers
    flags: Mask
    saves: frozenset[int] | None
    reached: Numbers
    sent: Numbers
    rests: Mapping[int, Rest]


@memoised
def fused(
    program: Program,
    active: Mask,
    root: int,
    looked_at: frozenset[int] = frozenset(),
    on: bool = False,
    wanted: Mask | None = None,
    seeded: bool = False,
) -> Fused | None:
    """Returns how a program and the derivative of a result are run as one; None where they cannot.

    They cannot where somebody may come back to what else there is: where another result requires
    grad that the root is not computed of.

    Args:
        program: any program.
        active: for each input whether it is differentiated.
        root: the position of that result.
        looked_at: the results whose cotangents somebody looks at.
        on: whether to go on as if they stayed as they are, as they do where one only looks.
        wanted: for each input whether its cotangent is asked for; None where all are.
        seeded: whether the cotangent of the root is given; else it is 1, and the root has one
            element.
    """
    flags = requiring(program, active)
    if not flags[root]:
        return None
    inputs, outputs = behind(program, frozenset({root}))
    values = above(program, root)
    if any(flag and a not in values for a, flag in zip(program.outputs, flags, strict=True)):
        return None
    stops = tuple([p for p in outputs if p in looked_at])
    slots = (*pick(range(len(active)), active), *[~p for p in stops])
    t, count = program.output_types[root].update(), len(program.inputs)
    with building(program.name, [*program.inputs, *([t] if seeded else [])]) as (frame, given):
        source = inline(marked(program, stops))
        outs, linear, residuals, reached = split(source, given[:count], active)
        seed = given[-1] if seeded else broadcast_p(scalar(1, t.dtype), shape=t.shape, axes=())
        seeds = [seed if p == root else None for p, on in enumerate(reached) if on]
        opened = exposed(linear, sum(active), stops)
        cts = pull(opened, residuals, seeds + [None] * len(stops))
        found = {slot: ct for slot, ct in zip(slots, cts, strict=True) if ct is not None}
        if wanted is not None:
            found = {slot: ct for slot, ct in found.items() if wanted[slot]}
        first = tuple(found)
        outs += found.values()
        arrives = {slot: type_of(ct) for slot, ct in found.items()}
        places: dict[int, int] = {}  # of the residuals that are needed, among the results
        rests: dict[int, Rest] = {}
        for stop in stops:
            if ~stop not in arrives:
                continue
            mask = (False,) * len(seeds) + tuple([stop == other for other in stops])
            rest, there = pulled(linear, sum(active), stops, mask)
            sent = tuple(pick(slots, there))
            rest, needed, added = _adding(rest, sent, arrives)
            for i in needed:
                if i not in places:
                    places[i] = len(outs)
                    outs.append(residuals[i])
            unchanged: Numbers = ()
            if on:
                cts = [found[slot] for slot in (~stop, *added)]
                cts = replay(rest, [residuals[i] for i in needed] + cts)
                found.update(zip(sent, cts, strict=True))
                unchanged = tuple(range(len(outs), len(outs) + len(sent)))
                outs += [found[slot] for slot in sent]
            taken = tuple([places[i] for i in needed])
            rests[stop] = Rest(rest, taken, added, sent, unchanged)
        whole = finish(frame, outs)
    ends = tuple([i for i in inputs if active[i]])
    saves = saved_by(program, active, linear, reached, frozenset({root}))
    return Fused(whole, root, stops, flags, saves, ends, first, rests)


def _adding(
    program: Program, ends: Numbers, arrives: dict[int, ArrayType]
) -> tuple[Program, Sequence[int], Numbers]:
    """Returns a program of `pulled` that adds to what has arrived before, and notes what it sends.

    Args:
        program: from residuals and one cotangent to others.
        ends: the slots of these.
        arrives: the types of what has arrived before, by slot.

    Returns:
        A program from the residuals that are needed, the cotangent and what it is added to; these
        residuals; and the slots of the last.
    """
    small, needed = pruned(program)
    count = len(small.inputs)
    added = tuple([end for end in ends if end in arrives])
    types = [*small.inputs, *[arrives[end] for end in added]]
    with building(program.name, types) as (frame, given):
        before = dict(zip(added, given[count:], strict=True))
        cts = zip(ends, replay(small, given[:count]), strict=True)
        total = finish(frame, [accumulate(before.get(end), ct) for end, ct in cts])
    arrives.update(zip(ends, total.output_types, strict=True))
    return total, needed[:-1], added
