"""What is run ahead: a segment with the derivative of a result, before that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ftrans.autograd.levels import OPEN, run
from ftrans.autograd.segment import Segment
from ftrans.config import config
from ftrans.interpreters.fused import Fused, fused
from ftrans.ir import Program
from ftrans.primitives.control.common import Mask
from ftrans.primitives.observe import observing

_GONE_BACK = "gone back"
"""Says of a program in its memo which result one went back from when it was run last."""

CHANGED = "changed"
"""Says of a program in its memo that somebody has changed the cotangent of a result."""


class Ahead(NamedTuple):
    """Is what a program with the derivative of a result has returned.

    Attributes:
        plan: what was run.
        values: what it has returned.
        whole: whether that is all of the derivative, for the cotangent 1.
    """

    plan: Fused
    values: Sequence[Any]
    whole: bool

    def pulled(self) -> dict[int, Any]:
        """Returns the cotangents as far as the first stops, by their slots."""
        return dict(zip(self.plan.sent, self.values[len(self.plan.flags) :], strict=False))

    def pull_from(self, stop: int, found: dict[int, Any], is_same: bool) -> None:
        """Goes on from a stop, whose cotangent has been found, and adds to what has been.

        Args:
            stop: a result.
            found: the cotangents, by slot.
            is_same: whether those of all stops so far are as they came.
        """
        rest = self.plan.rests[stop]
        if is_same and rest.unchanged:
            cts = [self.values[i] for i in rest.unchanged]
        elif rest.sent:
            given = [found[slot] for slot in (~stop, *rest.added)]
            cts = run(rest.program, [self.values[i] for i in rest.taken] + given)
        else:
            return
        found.update(zip(rest.sent, cts, strict=True))


def run_ahead(
    segment: Segment, root: int, seed: Any = None, wanted: Mask | None = None
) -> Ahead | None:
    """Runs a segment and the derivative of a result as one; None where that cannot be.

    The cotangent of the result is `seed`, None for 1; `wanted` is as for `fused`.
    """
    program, is_whole = segment.program, seed is None and wanted is None
    if segment.stops and not is_whole:
        return None
    on = CHANGED not in program.memo and not program.calls_host
    plan = fused(program, segment.active, root, segment.stops, on, wanted, seed is not None)
    if plan is None or (wanted is not None and not any(wanted[i] for i in plan.reached)):
        return None
    try:
        given = segment.operands if seed is None else [*segment.operands, seed]
        segment.ahead = Ahead(plan, run(plan.program, given), is_whole)
    except Exception:  # perhaps in the derivative; else it is raised once more
        return None
    return segment.ahead


def taken(segment: Segment, root: int) -> Ahead | None:
    """Returns the derivative of a result if it is there already."""
    if segment.operation is not None or segment.looked_at() != segment.stops or is_watched():
        return None
    segment.program.memo[_GONE_BACK] = root
    ahead = segment.ahead
    return ahead if ahead and ahead.whole and ahead.plan.root == root else None


def expected(program: Program) -> int | None:
    """Returns the result of a program that one went back from when it was run last.

    It is None where what is run is watched, or calls functions of the user's.
    """
    at = program.memo.pop(_GONE_BACK, None)
    return None if OPEN or is_watched() or program.calls_host else at


def is_watched() -> bool:
    """Tells whether somebody looks at what is run, or at its values."""
    return observing.by is not None or config.check_nan
