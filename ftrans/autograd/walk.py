"""One walk from roots back to leaves: through segments, the last first, and through hooks."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ftrans.autograd.hooks import checked_hook, checked_tuple
from ftrans.autograd.levels import OPEN
from ftrans.autograd.modes import Mode
from ftrans.autograd.segment import Edge, NodeHooks, Segment, current, depends, latest_first
from ftrans.autograd.tape import recorded, settle, tape
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.views import assign, overwrite
from ftrans.errors import GraphError
from ftrans.interpreters import batch, pullback_anew, pulled, pulled_kept
from ftrans.ir import ArrayType, Params, Program, bind, make_tracer, type_of
from ftrans.ir.location import Location
from ftrans.ir.stack import state
from ftrans.primitives import add_p, call_p
from ftrans.runtime import run

_accumulating = threading.Lock()
_current = threading.local()


def walking() -> Walk:
    """Returns the walk that calls a hook of this thread."""
    return _current.walk  # type: ignore[no-any-return]


class Walk:
    """Is one walk from roots back to leaves.

    Args:
        call: what was called, for errors: "backward()".
        sinks: the tensors that are asked for, whose gradients are returned; None to accumulate in
            all leaves.
        create: whether the walk is to be differentiated itself.
        size: how many cotangents there are of each value, along an axis in front; None for one.
    """

    def __init__(
        self, call: str, sinks: Sequence[Any] | None, create: bool, size: int | None = None
    ):
        self.size = size
        self.call = call
        self.create = create
        self.recorded = create or bool(OPEN)  # what is recorded has tangents
        self.found: dict[Any, Any] = {}
        """The cotangents that are complete, by leaf or edge; of leaves, the sum so far."""
        self.reached: dict[Any, Any] = {}
        """The leaves and edges that results depend on, whether a cotangent arrives or not."""
        self.sinks: Any = None if sinks is None else {key_of(sink) for sink in sinks}
        self.waiting: dict[Segment, dict[int, Any]] = {}
        self.heap: list[tuple[float, Segment]] = []
        self.visited: dict[Segment, set[int]] = {}
        self._leads: dict[Edge, bool] = {}
        self._roots: list[Any] = []
        self._ahead: set[Any] | None = None

    # ------------------------------------------------------------------- values, or their recording

    def add(self, x: Any, y: Any) -> Any:
        """Adds two cotangents, of which the first may be None."""
        if x is None:
            return y
        if self.recorded:
            return recorded(add_p, x, y)
        return bind(add_p, (x, y), Params())[0]

    def seed(self, ct: Any) -> Any:
        """Returns a cotangent of a root, without its history where none is asked for."""
        if self.create or not self.recorded:
            return ct
        with Mode(False):
            return recorded(lambda x: x, ct)

    def seen_by_user(self, ct: Any) -> Tensor:
        """Returns the tensor that stands for a cotangent."""
        return ct if type(ct) is Tensor else of_array(ct)

    def taken_from_user(self, ct: Tensor) -> Any:
        """Returns the cotangent that a tensor stands for."""
        return ct if self.recorded else settle(ct)

    def mapped(self, program: Program, count: int) -> Program:
        """Returns a program for as many cotangents as there are at once, its last inputs."""
        if self.size is None:
            return program
        dims = (None,) * (len(program.inputs) - count) + (0,) * count
        return batch(program, self.size, dims, (True,) * len(program.outputs))[0]

    def nothing(self, t: ArrayType) -> Any:
        """Returns the cotangent of what nothing arrives at."""
        zeros = np.zeros(t.shape if self.size is None else (self.size, *t.shape), t.dtype)
        if not self.recorded:
            return zeros
        return of_array(zeros).requires_grad_(self.create)

    # ------------------------------------------------------------------------------------- the walk

    def begin(self, target: Any, ct: Any) -> None:
        """Sends the cotangent of a root."""
        self._roots.append(current(target))
        self.send(target, ct)

    def reaches(self, target: Any) -> bool:
        """Tells whether a cotangent comes to a leaf, or a result of a segment, on this walk."""
        if self._ahead is None:
            self._ahead = set(self.reached)
            pending = list(self._roots)
            while pending:
                to = pending.pop()
                if to is None or key_of(to) in self._ahead:
                    continue
                self._ahead.add(key_of(to))
                if isinstance(to, Edge):
                    segment, others = to.segment, depends(to.segment.program)[to.position].outputs
                    pending += segment.behind(to.position)
                    pending += [Edge(segment, other) for other in others]
        if key_of(target) not in self._ahead:
            return False
        if self.sinks is None or key_of(target) in self.sinks:
            return True
        return isinstance(target, Edge) and self.leads(*target)

    def send(self, target: Any, ct: Any) -> None:
        """Adds a cotangent to what has arrived at a leaf, or at a result of a segment."""
        target = current(target)
        if isinstance(target, Edge):
            segment, position = target
            if self.sinks is not None and not self.leads(segment, position):
                return
            if segment not in self.waiting:
                self.waiting[segment] = {}
                heapq.heappush(self.heap, (-segment.number, segment))
            arrived = self.waiting[segment]
            arrived[position] = self.add(arrived.get(position), ct)
        elif target is not None:
            key = key_of(target)
            self.found[key] = self.add(self.found.get(key), ct)
            self.reached[key] = target

    def leads(self, segment: Segment, position: int) -> bool:
        """Tells whether what is asked for lies at a result of a segment, or behind it."""
        found, pending = self._leads, [Edge(segment, position)]
        while pending:
            edge = pending[-1]
            if edge in found:
                pending.pop()
                continue
            behind = edge.segment.behind(edge.position)
            is_there = key_of(edge) in self.sinks or self._asks_behind(*edge)
            edges = [target for target in behind if isinstance(target, Edge)]
            unknown = [] if is_there else [target for target in edges if target not in found]
            if unknown:
                pending += unknown
                continue
            found[edge] = is_there or any(found[target] for target in edges)
            pending.pop()
        return found[Edge(segment, position)]

    def walk(self) -> None:
        """Goes through all segments that cotangents arrive at."""
        while self.heap:
            _, segment = heapq.heappop(self.heap)
            self.through(segment, self.waiting.pop(segment))

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Is the block in which hooks of users are called."""
        before = getattr(_current, "walk", None)
        _current.walk = self
        try:
            with Mode(self.create):
                yield
        finally:
            _current.walk = before

    def through(self, segment: Segment, arrived: dict[int, Any]) -> None:
        """Takes the cotangents of results of a segment to what it was computed of."""
        needs = depends(segment.program)
        behind = set().union(*[needs[position].outputs for position in arrived])
        for position in arrived:
            for target in segment.behind(position):
                self.reached.setdefault(key_of(target), target)
        for position in behind:
            self.reached.setdefault((segment.number, position), Edge(segment, position))
        stops = tuple(
            [p for p in latest_first(segment.program) if p in behind and self._stops(segment, p)]
        )
        if segment.operation is not None:
            self._operate(segment, arrived, stops)
            return
        first = {p: ct for p, ct in arrived.items() if p not in stops}
        found = {p: arrived[p] for p in stops if p in arrived}
        if first:
            self._pull(segment, stops, first, found)
        for position in stops:
            ct = found.get(position)
            if ct is None:
                continue
            if segment.moved is not None:  # a hook has looked at its nodes
                self.send(Edge(segment, position), ct)
                continue
            ct = self._stop(segment, position, ct)
            if self._goes_on(segment, position):
                self._pull(segment, stops, {position: ct}, found, cut=True)

    def _operate(self, segment: Segment, arrived: dict[int, Any], stops: Sequence[int]) -> None:
        """Takes cotangents through one operation, whose results do not depend on each other."""
        for position in stops:
            if position in arrived:
                ct = self._stop(segment, position, arrived[position])
                arrived[position] = ct if self._goes_on(segment, position) else None
        arrived = {position: ct for position, ct in arrived.items() if ct is not None}
        if segment.node is not None and arrived:
            arrived = self._before(segment.node, segment, arrived)
        if arrived:
            self._pull(segment, (), arrived, {})

    def _asks_behind(self, segment: Segment, position: int) -> bool:
        """Tells whether what a result of a segment is computed of in it is asked for."""
        others = depends(segment.program)[position].outputs - {position}
        return any((segment.number, other) in self.sinks for other in others) or any(
            key_of(target) in self.sinks for target in segment.behind(position)
        )

    def _goes_on(self, segment: Segment, position: int) -> bool:
        """Tells whether a cotangent is asked for anywhere behind a result."""
        return (
            self.sinks is None
            or self._asks_behind(segment, position)
            or any(self.leads(*to) for to in segment.behind(position) if isinstance(to, Edge))
        )

    def _stops(self, segment: Segment, position: int) -> bool:
        """Tells whether somebody looks at the cotangent of a result."""
        key = (segment.number, position)
        asked = self.sinks is not None and key in self.sinks
        return asked or bool(segment.hooks.get(position)) or position in segment.retained

    def _stop(self, segment: Segment, position: int, ct: Any) -> Any:
        """Shows the cotangent of a result to those who look at it; returns what it becomes."""
        ct = self.hooked(segment.hooks.get(position), ct)
        reference = segment.retained.get(position)
        x = None if reference is None else reference()
        if x is not None and self.sinks is None:
            accumulate(self, x, ct)
        self.found[segment.number, position] = ct
        return ct

    def hooked(self, hooks: Mapping[int, Callable[..., Any]] | None, ct: Any) -> Any:
        """Calls hooks with a cotangent, each with what the one before made of it."""
        if not hooks:
            return ct
        x = self.seen_by_user(ct)
        with self.calling():
            for hook in list(hooks.values()):
                new = hook(x)
                if new is not None:
                    x = checked_hook(hook, x, new)
        return self.taken_from_user(x)

    def _pull(
        self,
        segment: Segment,
        stops: tuple[int, ...],
        given: dict[int, Any],
        found: dict[int, Any],
        cut: bool = False,
    ) -> None:
        """Sends cotangents of results, or of what was cut there, to where they belong."""
        if segment.moved is not None and cut:  # who looks at the result has just seen it
            for position, ct in given.items():
                to = current(Edge(segment, position))
                self._operate(to.segment, {to.position: ct}, ())
            return
        self.visited.setdefault(segment, set()).update(given)
        pairs = self.pulled(segment, stops, given, cut)
        if segment.node is not None and pairs:
            pairs = self._after(segment.node, segment, pairs, given)
        for target, ct in pairs:
            if ct is not None and type(target) is int:
                found[target] = self.add(found.get(target), ct)
            elif ct is not None:
                self.send(target, ct)

    def pulled(
        self, segment: Segment, stops: tuple[int, ...], given: dict[int, Any], cut: bool
    ) -> list[tuple[Any, Any]]:
        """Returns the cotangents of operands and stops, None for zero, each with its target."""
        if segment.ahead is not None:
            segment.run()
        # before another thread frees them, or splits the segment
        split, residuals, saved = segment.split, segment.residuals, segment.saved
        held = [*zip(segment.operands, segment.targets, strict=False)]
        if segment.moved is not None:
            return [(Edge(segment, p), ct) for p, ct in given.items()]
        values = None if saved is None else [(value.array(), value.target) for value in saved]
        for position in given:
            if position in segment.freed:
                raise _freed(self.call, segment.freed[position])
        assert split is not None  # else all of it is freed
        outs = [p for p, on in enumerate(split.active) if on]
        stops = tuple([p for p in stops if split.active[p]])
        ends = [None if cut else p for p in outs] + [p if cut else None for p in stops]
        mask = tuple([p is not None and p in given for p in ends])
        cotangents = [given[p] for p in ends if p is not None and p in given]
        if not cotangents:
            return []
        if values is not None and not (self.recorded and held):
            program, present = pulled_kept(segment.program, segment.active, mask)
        elif self.recorded:
            known = segment.known()
            kept = tuple([p for p in sorted(known) if p not in stops and split.active[p]])
            program, present = pullback_anew(
                segment.program,
                segment.active,
                stops,
                kept,
                () if cut else tuple(p for p in outs if p in given),
                tuple(p for p in stops if p in given) if cut else (),
            )
            values = held + [(known[p], Edge(segment, p)) for p in (*stops, *kept)]
        else:
            program, present = pulled(split.linear, sum(segment.active), stops, mask)
            values = [(value, None) for value in residuals]
        program = self.mapped(program, len(cotangents))
        if self.recorded:
            with Mode(self.create):
                cts = _called(program, values, cotangents)
        else:
            cts = run(program, [value for value, _ in values] + cotangents)
        sent = iter(cts)
        targets = [target for target in segment.targets if target is not None]
        pairs = zip((*targets, *stops), present, strict=True)
        return [(to, next(sent) if is_there else None) for to, is_there in pairs]

    def _before(self, node: NodeHooks, segment: Segment, arrived: dict[int, Any]) -> dict[int, Any]:
        """Calls the hooks that come before a node; returns what has arrived at it then."""
        count = len(segment.program.outputs)
        cts = self.shown(node.before, [arrived.get(i) for i in range(count)])
        return {i: ct for i, ct in enumerate(cts) if ct is not None}

    def _after(
        self, node: NodeHooks, segment: Segment, pairs: list[Any], arrived: dict[int, Any]
    ) -> list[Any]:
        """Calls the hooks that come after a node; returns what is sent on then."""
        count = len(segment.program.outputs)
        sent = iter([ct for _, ct in pairs])
        active = iter(segment.targets)
        ends = [next(active) if is_value else None for is_value in node.takes]
        full = [None if target is None else next(sent) for target in ends]
        cts = self.shown(node.after, full, [arrived.get(i) for i in range(count)])
        return [(to, ct) for to, ct in zip(ends, cts, strict=True) if to is not None]

    def shown(
        self, hooks: Mapping[int, Callable[..., Any]], cts: list[Any], *more: list[Any]
    ) -> list[Any]:
        """Calls hooks of a node with cotangents, of which they may return others."""
        if not hooks:
            return cts
        tensors = tuple([None if ct is None else self.seen_by_user(ct) for ct in cts])
        others = [tuple([None if x is None else self.seen_by_user(x) for x in xs]) for xs in more]
        with self.calling():
            for hook in list(hooks.values()):
                new = hook(tensors, *others)
                if new is not None:
                    tensors = checked_tuple(hook, tensors, new)
        return [None if x is None else self.taken_from_user(x) for x in tensors]


def _called(
    program: Program, inputs: Sequence[tuple[Any, Any]], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Records the call of a program on arrays, each with its target, and on cotangents."""
    found = tape()
    codes = [found.add(type_of(x), x, to) for x, to in inputs]
    if not state.grad:
        codes = [found.twin(code) for code in codes]
    pairs = zip(codes, inputs, strict=True)
    operands = [make_tracer(found, code, type_of(x)) for code, (x, _) in pairs]
    params = Params({"program": program})

    def pullback(*cts: Any) -> Any:
        return bind(call_p, [*operands, *cts], params)

    return recorded(pullback, *cotangents)


def _freed(call: str, freed_by: tuple[str, Location | None]) -> GraphError:
    name, place = freed_by
    return GraphError(
        f"{call}: trying to backward through the graph a second time.\n"
        f"  It was freed by {name}{f' at {place}' if place else ''}.\n"
        f"  Specify retain_graph=True there, where the graph is to be used again."
    )


def key_of(target: Any) -> Any:
    """Returns what a leaf, or a result, is found by."""
    target = current(target)
    return (target.segment.number, target.position) if isinstance(target, Edge) else id(target)


def deliver(walk: Walk, x: Tensor, ct: Any) -> None:
    """Shows the cotangent of a leaf to its hooks, and accumulates it; zero where it is None."""
    meta = x._metadata()
    if ct is None:
        ct = walk.nothing(x._type)
    if not meta.leaf:
        accumulate(walk, x, ct)
        return
    ct = walk.hooked(meta.hooks, ct)
    if meta.node is not None:
        (ct,) = walk.shown(meta.node.before, [ct])
    accumulate(walk, x, ct)
    if meta.after:
        with walk.calling():
            for hook in list(meta.after.values()):
                if hook(x) is not None:
                    raise GraphError("post accumulate grad hooks should return None.")
    if meta.node is not None:
        walk.shown(meta.node.after, [], [ct])


def accumulate(walk: Walk, x: Tensor, ct: Any) -> None:
    """Adds a cotangent to the gradient of a tensor."""
    meta = x._metadata()
    with _accumulating:
        before = meta.grad
        if before is None:
            # with create_graph it may be a tensor that a user has given
            meta.grad = recorded(lambda x: x, ct) if type(ct) is Tensor else of_array(ct, x._type)
        elif walk.create:
            meta.grad = walk.add(before, ct)
        elif walk.recorded:
            with Mode(False):
                new = walk.add(before, ct)
                meta.grad = new if before.requires_grad else assign("backward()", before, new)
        elif before.requires_grad:
            meta.grad = of_array(walk.add(settle(before), ct))
        else:
            overwrite("backward()", before, of_array(walk.add(settle(before), ct)))
