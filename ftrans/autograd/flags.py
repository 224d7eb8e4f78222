"""Which results of a tape require grad, as far as that was asked for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ftrans.interpreters.dependence import flow

if TYPE_CHECKING:
    from ftrans.autograd.tape import Tape

_looking = threading.RLock()
"""Held while the `flags` of a tape grow: another thread may ask as well."""


def look(tape: Tape, code: int) -> bool:
    """Notes of all results up to one, or of all, whether they require grad; returns it of that."""
    with _looking:
        # few are gone through sooner; in another thread what is recorded meanwhile is left alone
        if code - len(tape.flags) < 8 or tape.thread != threading.get_ident():
            _go_on(tape, code)
        else:
            # a step says all that came before it, so that a loop finds here what it found last time
            last, active = tape.steps[-1], tuple([target is not None for target in tape.targets])
            known = (last.flow or flow(last))[2]
            if active not in known:
                _go_on(tape, last.stop - 1)
                known[active] = tape.flags.copy()
            tape.flags, tape.seen = known[active].copy(), len(tape.steps)
        return tape.flags[code]


def _go_on(tape: Tape, code: int) -> None:
    flags, targets = tape.flags, tape.targets
    while code >= len(flags):
        step = tape.steps[tape.seen]
        tape.seen += 1
        taken, moves, _ = step.flow or flow(step)
        for a in taken:
            if flags[a] if a >= 0 else targets[~a] is not None:
                flags += moves
                break
        else:
            flags += [False] * len(moves)
