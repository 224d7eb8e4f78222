"""How cotangents go back through a program where nobody looks on: all of it, known beforehand."""

from __future__ import annotations

from typing import NamedTuple

from ftrans.interpreters.backward import Numbers, pulled
from ftrans.interpreters.base import excerpt, memoised
from ftrans.interpreters.dependence import behind, linearized, saved_by
from ftrans.ir import Program
from ftrans.primitives.control.common import Mask, pick


class Passage(NamedTuple):
    """Says how cotangents of some results go to what these were computed of.

    Attributes:
        program: from the residuals of `linearized` and these cotangents to those of inputs.
        given: the results, by position, in order.
        sent: the inputs whose cotangents it returns.
        reached: the inputs that are differentiated and that the results depend on.
        spends: whether nobody can come back: all that was saved has been taken.
    """

    program: Program
    given: Numbers
    sent: Numbers
    reached: Numbers
    spends: bool


@memoised
def passage(
    program: Program, active: Mask, given: frozenset[int], wanted: Mask | None = None
) -> Passage | None:
    """Returns how cotangents of results go back; None where none of these requires grad.

    Args:
        program: any program.
        active: for each input whether it is differentiated.
        given: the results, by position.
        wanted: for each input whether its cotangent is asked for; None where all are.
    """
    split = linearized(program, active)
    outs = [p for p, on in enumerate(split.active) if on]
    mask = tuple([p in given for p in outs])
    if True not in mask:
        return None
    back, there = pulled(split.linear, sum(active), (), mask)
    ends = pick(pick(range(len(active)), active), there)
    if wanted is not None:
        kept = [at for at, i in enumerate(ends) if wanted[i]]
        ends = [ends[at] for at in kept]
        outputs = [back.outputs[at] for at in kept]
        back = excerpt(back, range(len(back.inputs)), back.numbered(), outputs)
    inputs = tuple([i for i in behind(program, given)[0] if active[i]])
    spends = saved_by(program, active, split.linear, split.active, given) is None
    return Passage(back, tuple(pick(outs, mask)), tuple(ends), inputs, spends)
