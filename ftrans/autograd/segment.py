"""What was run of a tape where a `backward` may come: its linear program, with what that needs.

Segments, not operations, are what the engine goes through. Their results are the cut points: where
hooks are called, gradients kept, and tapes that were recorded later begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ftrans.autograd.levels import run
from ftrans.autograd.tensor import Tensor
from ftrans.errors import GraphError
from ftrans.interpreters import Linearized
from ftrans.interpreters.dependence import depends, leaning, linearized, passed, savers, saving
from ftrans.ir import Program, type_of
from ftrans.primitives.control.common import Mask

if TYPE_CHECKING:
    from ftrans.autograd.ahead import Ahead

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
        stops: the results that hooks were put on before it was run, which keep their `values`.
        ahead: the derivative of a result, where that was run before anybody asked for it.
        targets: for each operand what the cotangent of it is for: a leaf, an `Edge`, or None.
        active: for each whether there is one.
        program: what was run, for derivatives of derivatives.
        operands: what it was run on.
        hooks: what is called with the cotangent of a result, by position and handle.
        retained: the tensors that keep the cotangent of a result, by position.
        results: weak references to the tensors that are results, by position.
        values: results that somebody looks at the cotangents of, by position.
        freed: for each result that a `backward` has been through what that call was.
        partly: the same for operations, where one has been through to some operands alone.
        saved: where it is one operation, what that has saved, in the place of the residuals.
        node: what somebody has added to that as a node of the graph; None where nobody has.
        inner: the segments of its operations, once somebody has looked at them; for each, None
            where it does not require grad.
        moved: what the cotangents of its results are for, once it was split into its operations.
        operation: the `Part` that it is, where it is one operation.
        place: that of the operation: the number of what it was recorded in, and which one it is.
        bare: whether what was saved is gone, while some results are there that need none of it.
        ctx: the context, where it is the call of a `Function` that is `Applied`.
        pull: what goes back through that.
    """

    ahead: Ahead | None = None
    bare = False
    ctx: Any = None
    pull: Callable[[Any, dict[int, Any]], list[Any]]
    inner: Sequence[Segment | None] | None = None
    moved: Sequence[Any] | None = None
    node: NodeHooks | None = None
    operation: Any = None
    partly: Mapping[int, Any] = MappingProxyType({})
    place: tuple[float, int] | None = None
    saved: Sequence[Any] | None = None
    stops: frozenset[int] = frozenset()

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
        self.active = tuple([target is not None for target in targets])
        self.program = program
        self.operands = operands
        self.hooks: dict[int, dict[int, Callable[..., Any]]] = {}
        self.retained: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self.results: list[tuple[int, ref[Tensor]]] = []
        self.freed: dict[int, Any] = {}

    @property
    def plain(self) -> bool:
        """Whether it is there whole, nobody looks at its cotangents, and nothing of it is freed."""
        is_whole = self.ahead is None and self.operation is None and self.moved is None
        return is_whole and not (self.hooks or self.retained or self.freed or self.partly)

    def frees(self, given: Iterable[int], call: Any, wanted: Mask | None) -> bool:
        """Notes which operations were gone through to what was wanted; tells whether all were."""
        if wanted is None:
            return True
        given = frozenset(given)
        every, used = [savers(self.program, given, mask) for mask in (self.active, wanted)]
        self.partly = {**dict.fromkeys(used, call), **self.partly}
        return every <= self.partly.keys()

    def check_there(self, name: str, given: Iterable[int], wanted: Mask | None) -> None:
        """Raises a `GraphError` of a call where what cotangents of results need was freed."""
        calls = [self.freed[position] for position in given if position in self.freed]
        if self.partly and not calls:
            used = savers(self.program, frozenset(given), wanted or self.active)
            calls = [self.partly[number] for number in used if number in self.partly]
        if calls:
            by, place = calls[0]
            raise GraphError(
                f"{name}: trying to backward through the graph a second time.\n"
                f"  It was freed by {by}{f' at {place}' if place else ''}.\n"
                f"  Specify retain_graph=True there, where the graph is to be used again."
            )

    def put(self, hooks: Mapping[int, Any], places: Mapping[int, int]) -> None:
        """Puts hooks of values, by code, on the results that these are, before it is run."""
        if hooks:
            self.hooks = {places[code]: hooks[code] for code in hooks if code in places}
            self.stops = frozenset(self.looked_at())

    def looked_at(self) -> set[int]:
        """Returns the results whose cotangents somebody looks at."""
        return {position for position, hooks in self.hooks.items() if hooks}.union(self.retained)

    def run(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Runs the program, and keeps what a `backward` needs of it; returns the results."""
        split = self._linearized()
        found = run(split.forward, operands)
        self.residuals, self.ahead = found[len(split.active) :], None
        self.values.update({position: found[position] for position in self.stops})
        return found

    def _linearized(self) -> Linearized:
        self.split = found = linearized(self.program, self.active)
        return found

    def spend(self, call: Any) -> None:
        """Notes that a `backward` has been through all results, and lets go of what they need."""
        self.freed = dict.fromkeys(range(len(self.program.outputs)), call)
        self.ahead, self.split, self.residuals, self.operands = None, None, [], []
        self.hooks, self.retained, self.values, self.results = {}, {}, {}, []

    def behind(self, position: int) -> list[Any]:
        """Returns the leaves and edges that a result depends on."""
        found = [self.targets[i] for i in depends(self.program)[position].inputs]
        return [current(target) for target in found if target is not None]

    def known(self) -> dict[int, Any]:
        """Returns the results that somebody may ask for the derivatives of, by position."""
        found = dict(self.values)
        for position, reference in self.results:
            x = reference()
            # what is written to is no result any more, and need not be there
            if x is not None and hasattr(x._v, "shape") and x._target() == (self, position):
                found.setdefault(position, x._v)
        return found

    def free(self, positions: Iterable[int], call: Any, saves: Any = None) -> None:
        """Lets go of what only these results, and those that they depend on, need.

        Results that need nothing that was saved, which are all but `saves`, are not freed.
        """
        split = self.split
        if saves is None and split is not None:
            saves = saving(self.program, self.active, split.linear, split.active)
        elif saves is None:
            return
        through = passed(self.program, frozenset(positions))
        for position in saves:
            if self.program.outputs[position] in through:
                self.freed.setdefault(position, call)
        if saves and self.freed.keys() >= saves:
            split = split or self._linearized()
            outs = [p for p, on in enumerate(split.active) if on]
            if not saves.issuperset([outs[i] for i in leaning(split.linear, sum(self.active))]):
                return  # what has saved nothing that counts takes some of it
            self.bare = len(outs) > len(saves)
            self.ahead, self.residuals, self.operands = None, [], []
            for value in self.saved or ():
                value.free()
            for name in ("hooks", "retained", "values"):  # hooks often hold these in turn
                held = getattr(self, name)
                setattr(self, name, {p: x for p, x in held.items() if p not in saves})
            self.results = [found for found in self.results if found[0] not in saves]


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
    return Segment(linearized(program, active), [], targets, program, values)
