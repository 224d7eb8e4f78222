"""The tree of what was traced before: a step per input, equation or demand, programs at ends."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ftrans.ir.program import Equation, Program
from ftrans.ir.types import Literal


class Step:
    """Is one input, equation or demand, reached by all that came before it.

    Attributes:
        key: what tells it from its siblings; None at a root.
        equation: the equation, operands as `Tracer.index` gives them; else None.
        location: where the user's code recorded it.
        child: the step that followed last.
        others: all steps that ever followed, by key; None where there is but one.
        stop: the number of results that there are after it.
        code: the first result, as `Tracer.index`.
        type: the type of that.
        ends: the programs that end here, weakly, by name and outputs; with the results that they
            are given.
        part: where it is the demand of a value what computed that: a program, weakly, what it
            needs, and what it gives.
        leaps: what functions that were called here recorded, by call: see `leap.py`.
        flow: what the tape notes of where derivatives go, see `interpreters/dependence.py`.
    """

    __slots__ = (
        "child",
        "code",
        "ends",
        "equation",
        "flow",
        "key",
        "leaps",
        "location",
        "others",
        "part",
        "stop",
        "type",
    )

    def __init__(self, key: Any, equation: Equation | None, location: Any, stop: int):
        self.key = key
        self.equation = equation
        self.location = location
        self.stop = stop
        self.code = stop if equation is None else stop - len(equation.types)
        self.type = equation.types[0] if equation is not None and equation.types else None
        self.child: Step | None = None
        self.others: dict[Any, Step] | None = None
        self.ends: dict[Any, tuple[weakref.ref[Program], dict[int, None]]] | None = None
        self.part: tuple[weakref.ref[Program], frozenset[int], Any, Any] | None = None
        self.leaps: dict[Any, Any] | None = None
        self.flow: tuple[list[Sequence[int]], dict[Any, list[bool]]] | None = None

    def find(self, key: Any) -> Step | None:
        """Returns the step with this key that follows, and remembers it as the last one taken."""
        child = self.child
        if child is not None and child.key == key:
            return child
        others = self.others
        found = None if others is None else others.get(key)
        if found is not None:
            self.child = found
        return found

    def add(self, step: Step) -> Step:
        """Adds a step that follows this one; returns the one that is there already, if any."""
        first, others = self.child, self.others
        if others is None and first is not None:
            others = self.others = {first.key: first}
        if others is not None:
            step = others.setdefault(step.key, step)
        self.child = step
        return step

    def forget(self) -> list[Step]:
        """Lets go of all that followed; returns it."""
        child, others = self.child, self.others
        self.child = self.others = self.ends = self.leaps = self.part = None
        found = [] if others is None else list(others.copy().values())
        return found if child is None else [child, *found]

    def forget_functions(self) -> None:
        """Lets go of the first of the steps that follow which refer to functions, if many do.

        What a function closes over would live as long as its step.
        """
        others = self.others or {}
        # a copy is made at once; to list the items may let another thread in, which adds some
        holding = [key for key, step in others.copy().items() if step.holds_functions]
        for key in holding[: max(len(holding) - _HOLDING, 0)]:
            others.pop(key, None)

    @property
    def holds_functions(self) -> bool:
        """Whether the step refers to a function of a user's."""
        return self.equation is not None and self.equation.params.holds_functions


_HOLDING = 16


class Root:
    """Is where all traces of one name and one list of inputs begin.

    A Python scalar is a literal of the program at first. Where the same place in the user's code
    brings another value in a later trace, it becomes an input, so that a learning rate that
    changes at each step does not make a new program at each.

    Attributes:
        step: the step before the first.
        literals: the literals that were seen first, by place and number of the visit to it.
        varying: the places whose literals are inputs.
        leaves: whether values have outlived a trace, so that the next ones are to know theirs.
    """

    __slots__ = ("leaves", "literals", "step", "varying")

    def __init__(self) -> None:
        self.step = Step(None, None, None, 0)
        self.literals: dict[Any, tuple[tuple[int, Literal], ...]] = {}
        self.varying: dict[Any, set[int]] = {}
        self.leaves = False
