"""What the runtime knows of a program, found by one look-up: its final form and its state.

A `Plan` hangs on a program object, a `State` on what equal programs share. Neither refers back to
its program, so that a program that the cache lets go of is freed at once.
"""

from __future__ import annotations

import threading
from typing import Any

from ftrans.interpreters import runnable, simplify
from ftrans.ir import Program
from ftrans.runtime.cache import track
from ftrans.runtime.executable import Executable
from ftrans.runtime.policy import Family, Price, family_of
from ftrans.runtime.segments import Segmented, price_of


class State:
    """Is what equal programs share: how to run them, and what speaks for compiling.

    Attributes:
        evidence: the seconds that compiled runs would have saved so far.
        executable: what was compiled, or None.
        failure: the error that compiling ended in, or None.
        warned: whether the user was told of the failure.
        price: the estimated costs; None before they were asked for.
        pending: whether it is being compiled in the background.
        lock: held while it is compiled.
    """

    __slots__ = (
        "__weakref__",
        "evidence",
        "executable",
        "failure",
        "lock",
        "pending",
        "price",
        "warned",
    )

    def __init__(self) -> None:
        self.price: Price | None = None
        self.lock = threading.RLock()
        self.pending = False
        self.executable: Executable | Segmented | None = None
        self.drop()

    def drop(self) -> None:
        """Forgets what was compiled, and begins anew."""
        self.evidence = 0.0
        self.executable = None
        self.failure: str | None = None
        self.warned = False

    def estimate(self, program: Program) -> Price:
        """Sets and returns the estimated costs; `program` is any with this state."""
        self.price = found = price_of(program)
        return found


class Plan:
    """Says how one program object is run.

    Attributes:
        state: shared by equal programs.
        family: shared by the programs of one function.
        runs: whether it was run before.
    """

    __slots__ = ("_final", "family", "runs", "state")

    def __init__(self, final: Program | None, state: State, family: Family):
        self._final = final
        self.state = state
        self.family = family
        self.runs = False

    def final(self, program: Program) -> Program:
        """Returns the inlined and simplified form of the program that the plan hangs on."""
        return program if self._final is None else self._final


def plan_of(program: Program) -> Plan:
    """Returns the plan of a program, made at its first run."""
    plan: Any = program.memo.get("plan")
    if plan is None:
        final = simplify(runnable(program))
        memo = final.structure.memo
        state = memo.get("state")
        if state is None:
            state = memo.setdefault("state", State())
            track(state)
        made = Plan(None if final is program else final, state, family_of(program))
        plan = program.memo.setdefault("plan", made)
    return plan
