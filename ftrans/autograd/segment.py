"""What was run of a tape where a `backward` may come: its linear program, with what that needs.

Segments, not operations, are what the engine goes through. Their results are the cut points: where
hooks are called, gradients kept, and tapes that were recorded later begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import ref

from ftrans.autograd.tensor import Tensor
from ftrans.interpreters import Linearized, linearize_marked, pruned
from ftrans.interpreters.base import memoised
from ftrans.ir import Equation, Program, type_of
from ftrans.ir.steps import Step
from ftrans.primitives import no_grad_p

_numbers = itertools.count()


class Edge(NamedTuple):
    """Is a result of a segment, which a cotangent may arrive at."""

    segment: Segment
    position: int


class NodeHooks:
    """Is what somebody has added to a node.

    Attributes:
        before: hooks, called with the gradients of its results, by handle.
        after: hooks, called with those of its operands as well.
        metadata: a dictionary of the user's.
    """

    __slots__ = ("after", "before", "metadata")

    def __init__(self) -> None:
        self.before: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}
        self.metadata: dict[Any, Any] = {}


class Segment:
    """Is a part of a graph that was run.

    Attributes:
        number: orders segments: none depends on a later one.
        split: the program, linearized, with a mark on each result; None where nobody comes back.
        residuals: what the linear program takes.
        targets: for each operand what the cotangent of it is for: a leaf, an `Edge`, or None.
        program: what was run, for derivatives of derivatives.
        operands: what it was run on.
        hooks: what is called with the cotangent of a result, by position and handle.
        retained: the tensors that keep the cotangent of a result, by position.
        results: weak references to the tensors that are results, by position.
        values: results that somebody looks at the cotangents of, by position.
        freed: for each result that a `backward` has been through what that call was.
        saved: where it is one operation, what that has saved, in the place of the residuals.
        node: what somebody has added to that as a node of the graph; None where nobody has.
        inner: the segments of its operations, once somebody has looked at them; for each, None
            where it does not require grad.
        moved: what the cotangents of its results are for, once it was split into its operations.
        operation: the `Part` that it is, where it is one operation.
        place: that of the operation: the number of what it was recorded in, and which one it is.
        lasting: whether it is never freed, since nothing was saved.
    """

    __slots__ = (
        "__weakref__",
        "freed",
        "hooks",
        "inner",
        "lasting",
        "moved",
        "node",
        "number",
        "operands",
        "operation",
        "place",
        "program",
        "residuals",
        "results",
        "retained",
        "saved",
        "split",
        "targets",
        "values",
    )

    def __init__(
        self,
        split: Linearized | None,
        residuals: Sequence[Any],
        targets: Sequence[Any],
        program: Program,
        operands: Sequence[Any],
    ):
        self.number: float = next(_numbers)
        self.split = split
        self.residuals = residuals
        self.targets = targets
        self.program = program
        self.operands = operands
        self.hooks: dict[int, dict[int, Callable[..., Any]]] = {}
        self.retained: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self.results: list[tuple[int, ref[Tensor]]] = []
        self.freed: dict[int, Any] = {}
        self.saved: Sequence[Any] | None = None
        self.node: NodeHooks | None = None
        self.inner: Sequence[Segment | None] | None = None
        self.moved: Sequence[Any] | None = None
        self.operation: Any = None
        self.place: tuple[float, int] | None = None
        self.lasting = False

    @property
    def active(self) -> tuple[bool, ...]:
        """Which operands have a tangent."""
        return tuple([target is not None for target in self.targets])

    @classmethod
    def spent(cls, program: Program, targets: Sequence[Any], call: Any) -> Segment:
        """Returns a segment whose results a `backward` has been through, in one program with it."""
        made = cls(None, (), targets, program, ())
        made.freed = dict.fromkeys(range(len(program.outputs)), call)
        return made

    def behind(self, position: int) -> list[Any]:
        """Returns the leaves and edges that a result depends on."""
        found = [self.targets[i] for i in depends(self.program)[position].inputs]
        return [current(target) for target in found if target is not None]

    def known(self) -> dict[int, Any]:
        """Returns the results that somebody may ask for the derivatives of, by position."""
        found = dict(self.values)
        for position, reference in self.results:
            x = reference()
            if x is not None and x._target() == (self, position):
                found[position] = x._v
        return found

    def free(self, positions: Sequence[int], call: Any) -> None:
        """Lets go of what only these results, and those that they depend on, need."""
        if self.lasting:
            return
        for position in positions:
            for other in depends(self.program)[position].outputs:
                self.freed.setdefault(other, call)
        if self.split is not None and all(
            position in self.freed for position, on in enumerate(self.split.active) if on
        ):
            self.residuals, self.operands = [], []
            for value in self.saved or ():
                value.free()
            self.hooks, self.retained, self.values, self.results = {}, {}, {}, []


def current(target: Any) -> Any:
    """Returns what a cotangent is for by now: a result of an operation, if a segment was split."""
    while isinstance(target, Edge) and target.segment.moved is not None:
        target = target.segment.moved[target.position]
    return target


def passing(values: Sequence[Any], targets: Sequence[Any]) -> Segment:
    """Returns a segment that passes values, and gradients, on as they are."""
    types = [type_of(value) for value in values]
    program = Program.make(types, [], range(len(types)), name="passing")
    active = tuple([target is not None for target in targets])
    marks = tuple([i for i, is_active in enumerate(active) if is_active])
    return Segment(linearize_marked(program, active, marks), [], targets, program, values)


@memoised
def latest_first(program: Program) -> tuple[int, ...]:
    """Returns the positions of the outputs, those that are computed last first."""
    atoms = [atom if type(atom) is int else -1 for atom in program.outputs]
    return tuple(sorted(range(len(atoms)), key=atoms.__getitem__, reverse=True))


class Needs(NamedTuple):
    """Says what an output is computed of: inputs, and outputs, itself among them."""

    inputs: frozenset[int]
    outputs: frozenset[int]


def differentiated(equation: Equation) -> Sequence[Any]:
    """Returns the operands that a cotangent of the results may go to."""
    if "stop" in equation.primitive.tags:
        return ()
    return equation.operands[1:] if equation.primitive is no_grad_p else equation.operands


def moving(equation: Equation) -> list[bool]:
    """Tells for each result whether it can have a gradient; the author of a rule may say not."""
    spec = equation.params.get("spec") if equation.params else None
    smooth = getattr(spec, "smooth", ())
    rest = [True] * (len(equation.types) - len(smooth))
    return [t.is_inexact and s for t, s in zip(equation.types, [*smooth, *rest], strict=False)]


def flow(step: Step) -> tuple[list[int], list[bool]]:
    """Returns what `differentiated` and `moving` tell of a step, and notes it there."""
    equation: Any = step.equation
    taken = [a for a in differentiated(equation) if type(a) is int]
    step.flow = taken, moving(equation)
    return step.flow


@memoised
def depends(program: Program) -> tuple[Needs, ...]:
    """Returns for each output what it is computed of, where a derivative can go."""
    positions: dict[Any, set[int]] = {}
    for position, atom in enumerate(program.outputs):
        positions.setdefault(atom, set()).add(position)
    count = len(program.inputs)
    inputs = [frozenset({i}) for i in range(count)]
    outputs = [frozenset(positions.get(i, ())) for i in range(count)]
    empty: frozenset[int] = frozenset()
    for equation, numbers, _ in program.numbered():
        taken = [a for a in differentiated(equation) if type(a) is int]
        above = empty.union(*[inputs[a] for a in taken])
        before = empty.union(*[outputs[a] for a in taken])
        for number, moves in zip(numbers, moving(equation), strict=True):
            inputs.append(above if moves else empty)
            outputs.append((before if moves else empty) | positions.get(number, set()))
    nothing = Needs(empty, empty)
    return tuple(
        [Needs(inputs[a], outputs[a]) if type(a) is int else nothing for a in program.outputs]
    )


@memoised
def requiring(program: Program, active: tuple[bool, ...]) -> tuple[bool, ...]:
    """Returns for each output whether it requires grad, where the active inputs do."""
    on = {i for i, is_active in enumerate(active) if is_active}
    return tuple([not on.isdisjoint(needs.inputs) for needs in depends(program)])


@memoised
def _needed(program: Program) -> tuple[Any, Any]:
    """Returns what a program is pruned to, with its inputs, and those a derivative goes to.

    None stands for all of it.
    """
    small, needed = pruned(program)
    linked = frozenset[int]().union(*[needs.inputs for needs in depends(small)])
    cut = None if small is program else (small, needed)
    return cut, None if len(linked) == len(needed) else linked


def trimmed(
    program: Program, operands: list[Any], targets: list[Any]
) -> tuple[Program, list[Any], list[Any]]:
    """Leaves out what a program does not need, and the targets that no cotangent goes to."""
    cut, linked = _needed(program)
    if cut is not None:
        program, needed = cut
        operands, targets = [operands[i] for i in needed], [targets[i] for i in needed]
    if linked is not None:  # what is not gone back to is not to be kept alive
        targets = [to if i in linked else None for i, to in enumerate(targets)]
    return program, operands, targets
