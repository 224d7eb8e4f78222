"""What a call computes beside its program: indices, of arguments that are not differentiated for.

Such an argument is a plain array, and so an index by it is checked, counted from the front, and an
input of the program, which does not know where it came from. A proof that all arguments are unknown
leaves it that: what is made of it, by which function, is noted, and done again at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import FtransError
from ftrans.interpreters import simplify
from ftrans.interpreters.backward import pruned
from ftrans.ir import Program, Tracer
from ftrans.ir.frame import Frame
from ftrans.ir.stack import state
from ftrans.primitives.evaluate import evaluate

Function = Callable[..., np.ndarray]


class Beside:
    """Notes what functions make of values of one frame, whose inputs are the arguments.

    Attributes:
        calls: each function, with what it was given; a traced value stands at None.
        taken: the values, of all calls, in their order.
        made: what the functions have returned, which the frame has captured.
    """

    def __init__(self, frame: Frame):
        self._frame: Frame | None = frame
        self.calls: list[tuple[Function, list[Any]]] = []
        self.taken: list[Tracer] = []
        self.made: list[np.ndarray] = []

    def take(self, function: Function, items: Sequence[Any]) -> Tracer | None:
        """Returns what a function of known arrays makes; None where others are traced."""
        known = [None if type(x) is Tracer and x.frame is self._frame else x for x in items]
        if Tracer in map(type, known) or all(x is not None for x in known):
            return None
        assert self._frame is not None, "it is over"
        taken = [x for x in items if type(x) is Tracer]
        demanded, frame_knows = state.demanded, self._frame.known.copy()
        values = iter([np.asarray(x.value()) for x in taken])
        # each call has others: nothing was asked for, and nothing is known of them
        state.demanded, self._frame.known = demanded, frame_knows
        made = function(*[next(values) if x is None else x for x in known])
        self.calls.append((function, known))
        self.taken += taken
        self.made.append(made)
        return self._frame.capture(made)

    def end(self) -> list[Tracer]:
        """Returns the values; refers no longer to them, which are to go with the frame."""
        taken, self.taken, self._frame = self.taken, [], None
        return taken


class Remade(NamedTuple):
    """Says how what was made beside a trace is made of other arguments.

    Attributes:
        program: computes what was taken, of some of the arguments.
        needed: which these are; others are left alone, since they may not be there yet.
        calls: as for `Beside`.
        places: where what is made stands among what the program has captured.
    """

    program: Program
    needed: Sequence[int]
    calls: list[tuple[Function, list[Any]]]
    places: list[int]

    def of(self, arguments: Sequence[Any], captured: Sequence[Any]) -> list[Any] | None:
        """Returns what the program captures; None where Python is to look at an index."""
        found = list(captured)
        taken = evaluate(np, self.program, [np.asarray(arguments[i]) for i in self.needed])
        if any(x.size and x.min() < 0 for x in taken):
            return None  # which may be refused, or count from the end
        values = iter(taken)
        for (function, known), place in zip(self.calls, self.places, strict=True):
            try:
                found[place] = function(*[next(values) if x is None else x for x in known])
            except (IndexError, FtransError):
                return None
        return found


def remade(noted: Beside, values: Program, count: int, captured: Sequence[Any]) -> Remade | None:
    """Returns how what was noted is made again; None where it is no view of an argument.

    Args:
        noted: what was.
        values: computes what was taken, of the arguments and what it has captured.
        count: the number of the arguments.
        captured: what the program has captured.
    """
    places = {id(x): place for place, x in enumerate(captured)}
    program, needed = pruned(simplify(values))
    views = all("view" in equation.primitive.tags for equation in program.equations)
    if not views or any(i >= count for i in needed):
        return None
    return Remade(program, needed, noted.calls, [places[id(x)] for x in noted.made])
