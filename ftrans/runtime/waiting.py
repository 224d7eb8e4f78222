"""Waits for what another thread computes: at first by asking again and again, then asleep.

JAX hands most programs to a thread of its own. To be woken up when it has finished takes longer
than many a program does; to ask takes a sixth of a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_ASKED = 500
"""How often is asked before a wait is left to the system: for about 80 microseconds."""

_SKIPPED = 256
"""For how many calls nobody asks after the results of one took longer."""


class Patience:
    """Knows of one program whether to ask is worth while, from how long it took before."""

    __slots__ = ("_skip",)

    def __init__(self) -> None:
        self._skip = 0

    def wait(self, outputs: Sequence[Any]) -> None:
        """Returns when the outputs of one program are there, or when asking has taken too long."""
        if not outputs:
            return
        if self._skip:
            self._skip -= 1
            return
        is_ready = outputs[-1].is_ready
        for _ in range(_ASKED):
            if is_ready():
                return
        self._skip = _SKIPPED
