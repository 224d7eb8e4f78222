"""Gradients of values that have not been run: a program to be recorded, and differentiated."""

from __future__ import annotations

from typing import NamedTuple

from ftrans.interpreters.backward import Numbers, pruned, pullback_anew
from ftrans.interpreters.base import excerpt, memoised
from ftrans.interpreters.dependence import behind, depends, requiring
from ftrans.ir import Program


class Slopes(NamedTuple):
    """Says how gradients are computed of a program's inputs, and of outputs.

    Attributes:
        program: from these, and the cotangents of roots, to the gradients.
        inputs: those that it takes.
        outputs: those that it takes.
        leaves: which of the leaves each of the first gradients is of; the others follow in order.
    """

    program: Program
    inputs: Numbers
    outputs: Numbers
    leaves: Numbers


NO_GRADIENT, LEAF, ELSEWHERE = range(3)
"""What the gradient of an input is for: nothing, a leaf, or what was run before."""


@memoised
def slopes(
    program: Program, ends: Numbers, leaves: Numbers, roots: int, inner: int
) -> Slopes | None:
    """Returns how the first outputs, the roots, are differentiated, so that it can be in turn.

    It is None where gradients go elsewhere, where what is asked for is not all reached, and where
    some of it lies behind another.

    Args:
        program: any program.
        ends: for each input what its gradient is for.
        leaves: the inputs that are asked for.
        roots: how many roots there are.
        inner: how many of the outputs that follow are asked for.
    """
    count = roots + inner
    found = set(behind(program, frozenset(range(roots)))[1])
    asked = range(roots, count)
    if not found.issuperset(asked):
        return None
    outputs = [*range(count), *sorted(found.difference(range(count)))]
    every = tuple(range(len(program.inputs)))
    atoms = [program.outputs[p] for p in outputs]
    part, used = pruned(excerpt(program, every, program.numbered(), atoms))
    if not {*used}.issuperset(leaves) or ELSEWHERE in [ends[i] for i in used]:
        return None
    places, needs = [used.index(i) for i in leaves], depends(part)
    for p in asked:
        if not (needs[p].inputs.isdisjoint(places) and needs[p].outputs.isdisjoint({*asked} - {p})):
            return None
    flags = requiring(part, tuple([ends[i] == LEAF for i in used]))
    kept = tuple([p for p, flag in enumerate(flags) if flag and p not in asked])
    active = tuple([i in leaves for i in used])
    pulled, there = pullback_anew(part, active, tuple(asked), kept, tuple(range(roots)), ())
    if not all(there):
        return None
    taken = tuple([outputs[p] for p in (*asked, *kept)])
    return Slopes(pulled, used, taken, tuple(sorted(range(len(leaves)), key=places.__getitem__)))
