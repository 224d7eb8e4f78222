"""One walk from roots back to leaves: through segments, the last first, and through hooks."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ftrans.autograd.ahead import CHANGED, Ahead
from ftrans.autograd.hooks import checked, stacked
from ftrans.autograd.levels import OPEN, run
from ftrans.autograd.modes import Mode, switch
from ftrans.autograd.pending import pulled_back
from ftrans.autograd.segment import Edge, Segment, current
from ftrans.autograd.tape import recorded, settle, tape
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.views import assign, overwrite
from ftrans.errors import GraphError
from ftrans.interpreters import batch, pruned, pullback_anew, pulled, pulled_kept
from ftrans.interpreters.dependence import behind, depends
from ftrans.interpreters.node_names import listed
from ftrans.interpreters.passage import passage
from ftrans.ir import ArrayType, Params, Program, Tracer, bind, make_tracer, type_of
from ftrans.ir.stack import state
from ftrans.primitives import add_p
from ftrans.primitives.control.common import Mask, pick, present, spread
from ftrans.pytree import mapped
from ftrans.runtime import run_small

_accumulating = threading.Lock()
_current = threading.local()

Cts = dict[int, Any]
Hooks = Mapping[int, Callable[..., Any]]
Stops = tuple[int, ...]


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

    def __init__(self, call: str, sinks: list[Any] | None, create: bool, size: int | None = None):
        self.size, self.call, self.create = size, call, create
        state.unseen = 0  # so that all steps of training are recorded alike
        self.recorded = create or bool(OPEN or state.stack)
        """Whether what it does is recorded, so that it has tangents, or belongs to a transform."""
        self.found: dict[Any, Any] = {}
        """The cotangents that are complete, by leaf or edge; of leaves, the sum so far."""
        self.reached: dict[Any, Any] = {}
        """The leaves and edges that results depend on, whether a cotangent arrives or not."""
        self.sinks: Any = None if sinks is None else {key_of(sink) for sink in sinks}
        self.plain = not (self.recorded or size or Edge in map(type, map(current, sinks or ())))
        self.spent: list[Segment] = []
        self.waiting: dict[Segment, dict[int, Any]] = {}
        self.heap: list[tuple[float, Segment]] = []
        self.visited: dict[Segment, set[int]] = {}
        self._leads: dict[Edge, bool] = {}
        self._passes: set[Any] = set()

    # ------------------------------------------------------------------- values, or their recording

    def add(self, x: Any, y: Any) -> Any:
        """Adds two cotangents, of which the first may be None."""
        if x is None:
            return y
        if self.recorded:
            return recorded(add_p, x, y)
        found = run_small(add_p, type_of(x), (x, y))
        return bind(add_p, (x, y), Params())[0] if found is None else found

    def seed(self, ct: Any) -> Any:
        """Returns a cotangent of a root, without its history where none is asked for."""
        if self.create or not self.recorded or type(ct) is Tracer:
            return ct
        with Mode(False):
            return recorded(lambda x: x, ct)

    def seen_by_user(self, ct: Any) -> Any:
        """Returns the tensor that stands for a cotangent; None for None."""
        return ct if ct is None or type(ct) in (Tensor, Tracer) else of_array(ct)

    def taken_from_user(self, ct: Any) -> Any:
        """Returns the cotangent that a tensor stands for; None for None."""
        return ct if ct is None or self.recorded else settle(ct)

    def nothing(self, t: ArrayType) -> Any:
        """Returns the cotangent of what nothing arrives at."""
        zeros = np.zeros(t.shape if self.size is None else (self.size, *t.shape), t.dtype)
        if not self.recorded:
            return zeros
        return of_array(zeros).requires_grad_(self.create)

    # ------------------------------------------------------------------------------------- the walk

    def send(self, target: Any, ct: Any) -> None:
        """Adds a cotangent to what has arrived at a leaf, or at a result of a segment."""
        if type(target) is Edge:
            target = current(target)
        if type(target) is Edge:
            segment, position = target
            if self.sinks is not None and not self.leads(target):
                return
            if segment not in self.waiting:
                self.waiting[segment] = {}
                heapq.heappush(self.heap, (-segment.number, segment))
            arrived = self.waiting[segment]
            arrived[position] = self.add(arrived.get(position), ct)
        elif target is not None:
            key = id(target)
            before = self.found.get(key)
            self.found[key] = ct if before is None else self.add(before, ct)
            self.reached[key] = target

    def reaches(self, target: Any) -> bool:
        """Tells whether a cotangent comes to a leaf, or a result of a segment, on this walk."""
        if not self._passes:
            begun = [Edge(segment, p) for segment, at in self.waiting.items() for p in at]
            pending = begun + list(self.reached.values())
            while pending:
                to = current(pending.pop())
                if key_of(to) not in self._passes:
                    self._passes.add(key_of(to))
                    if isinstance(to, Edge):
                        others = depends(to.segment.program)[to.position].outputs
                        pending += [Edge(to.segment, other) for other in others]
                        pending += to.segment.behind(to.position)
        target, key = current(target), key_of(target)
        is_asked = self.sinks is None or key in self.sinks
        if not is_asked and isinstance(target, Edge):
            is_asked = self._goes_on(target)
        return is_asked and key in self._passes

    def leads(self, edge: Edge) -> bool:
        """Tells whether what is asked for lies at a result of a segment, or behind it."""
        return key_of(edge) in self.sinks or self._goes_on(edge)

    def _goes_on(self, edge: Edge) -> bool:
        """Tells whether a cotangent is asked for anywhere behind a result."""
        if self.sinks is None:
            return True
        found, pending = self._leads, [edge]
        while pending:
            segment, position = to = pending.pop()
            if to in found:
                continue
            behind = segment.behind(position)
            others = depends(segment.program)[position].outputs - {position}
            keys = [*map(key_of, behind), *[(segment.number, other) for other in others]]
            is_there = not self.sinks.isdisjoint(keys)
            edges = [target for target in behind if isinstance(target, Edge)]
            unknown = [] if is_there else [target for target in edges if target not in found]
            if unknown:
                pending += [to, *unknown]
            else:
                found[to] = is_there or any(found[target] for target in edges)
        return found[edge]

    def walk(self) -> None:
        """Goes through all segments that cotangents arrive at."""
        while self.heap:
            _, segment = heapq.heappop(self.heap)
            self.through(segment, self.waiting.pop(segment))

    def through(self, segment: Segment, arrived: Cts) -> None:
        """Takes the cotangents of results of a segment to what it was computed of."""
        if self.plain and segment.plain and self._pass(segment, arrived):
            return
        inputs, outputs = behind(segment.program, frozenset(arrived))
        inputs = inputs if segment.ctx is None else []  # what it returns None for is not reached
        ends = [current(to) for i in inputs if (to := segment.targets[i]) is not None]
        for target in ends + [Edge(segment, position) for position in outputs]:
            self.reached.setdefault(key_of(target), target)
        looked_at = segment.looked_at()
        if self.sinks is not None:  # nobody is called who is on no way to what is asked for
            leading = [p for p in outputs if self.leads(Edge(segment, p))]
            looked_at = {p for p in leading if p in looked_at or (segment.number, p) in self.sinks}
        stops = tuple([p for p in outputs if p in looked_at])
        if segment.operation is not None:
            self._operate(segment, arrived, stops)
            return
        found = {~p: arrived.pop(p) for p in stops if p in arrived}
        self._pull(segment, stops, arrived, found, False)
        self.go_on(segment, stops, found)

    def _pass(self, segment: Segment, arrived: Cts) -> bool:
        """Does what `through` does where nobody looks on; returns whether it has."""
        residuals, targets = segment.residuals, segment.targets
        wanted = self.asked_of(targets)
        way = passage(segment.program, segment.active, frozenset(arrived), wanted)
        if way is None or not segment.plain:  # another thread has freed it, or opened it up
            return False
        for i in way.reached:
            self.reached.setdefault(key_of(targets[i]), current(targets[i]))
        if way.spends and wanted is None:
            self.spent.append(segment)
        else:
            self.visited.setdefault(segment, set()).update(arrived)
        cts = run(way.program, [*residuals, *[arrived[p] for p in way.given]])
        for i, ct in zip(way.sent, cts, strict=True):
            self.send(targets[i], ct)
        return True

    def asked_of(self, targets: Sequence[Any]) -> Mask | None:
        """Tells for each target whether it is asked for, or lies on the way; None for them all."""
        if self.sinks is None:
            return None
        ends = [current(to) for to in targets]
        asked = [self.leads(to) if type(to) is Edge else id(to) in self.sinks for to in ends]
        left = [to for to, x in zip(ends, asked, strict=True) if to is not None and not x]
        return tuple(asked) if left else None

    def go_on(self, segment: Segment, stops: Stops, found: Cts, ahead: Ahead | None = None) -> None:
        """Takes the cotangents that are found of stops, by their slots, to where they belong.

        Those that were run ahead go on in the same way, to further slots.
        """
        is_same = True
        for position in stops:
            ct = found.get(~position)
            if ct is None:
                continue
            if segment.moved is not None:  # a hook has looked at its nodes
                self.send(Edge(segment, position), ct)
                continue
            before, ct = ct, self._stop(segment, position, ct)
            found[~position] = ct
            if ct is not before:
                is_same = False
                segment.program.memo[CHANGED] = True
            if not self._goes_on(Edge(segment, position)):
                continue
            if ahead is not None and segment.ahead is ahead:
                ahead.pull_from(position, found, is_same)
            elif segment.moved is None:
                self._pull(segment, stops, {position: ct}, found, True)
            else:  # who looks at the result has just seen it
                to = current(Edge(segment, position))
                self._operate(to.segment, {to.position: ct}, ())

    def _operate(self, segment: Segment, arrived: Cts, stops: Stops) -> None:
        """Takes cotangents through one operation, whose results do not depend on each other."""
        for position in stops:
            if position in arrived:
                ct = self._stop(segment, position, arrived[position])
                arrived[position] = ct if self._goes_on(Edge(segment, position)) else None
        node = segment.node
        cts = [arrived.get(position) for position in range(segment.operation.results)]
        if node is not None and any(present(cts)):
            cts = self.shown(node.before, cts)
        pairs = self.pulled(segment, (), {i: ct for i, ct in enumerate(cts) if ct is not None})
        if node is not None and pairs:
            pairs = spread(pairs, present(segment.operation.takes))
            shown = [pairs[i] or (None, None) for i in listed(segment.operation)]
            ends, found = map(list, zip(*shown, strict=True))
            pairs = [*zip(ends, self.shown(node.after, found, cts), strict=True)]
        for target, ct in pairs:
            if ct is not None:
                self.send(target, ct)

    def _pull(self, segment: Segment, stops: Stops, given: Cts, found: Cts, cut: bool) -> None:
        """Sends cotangents of results, or of what was cut there, to where they belong."""
        for target, ct in self.pulled(segment, stops, given, cut):
            if ct is not None and type(target) is int:
                found[~target] = self.add(found.get(~target), ct)
            elif ct is not None:
                self.send(target, ct)

    def _stop(self, segment: Segment, position: int, ct: Any) -> Any:
        """Shows the cotangent of a result to those who look at it; returns what it becomes."""
        ct = self.hooked(segment.hooks.get(position), ct)
        x = segment.retained.get(position, lambda: None)()
        if x is not None and self.size is None and type(ct) is not Tracer:
            accumulate(self, x, ct)
        self.found[segment.number, position] = ct
        return ct

    def hooked(self, hooks: Hooks | None, ct: Any) -> Any:
        """Calls hooks of a tensor with its cotangent, each with what the one before made of it."""
        if not hooks:
            return ct
        return self.taken_from_user(self.called(hooks, self.seen_by_user(ct)))

    def shown(self, hooks: Hooks, cts: list[Any], *more: list[Any]) -> list[Any]:
        """Calls hooks of a node with cotangents, of which they may return others."""
        if not hooks:
            return cts
        given = [tuple(map(self.seen_by_user, xs)) for xs in (cts, *more)]
        return [self.taken_from_user(x) for x in self.called(hooks, *given)]

    def called(self, hooks: Hooks, x: Any, *more: Any, check: Any = checked) -> Any:
        """Calls hooks, each with what the one before made of `x`; returns what is left of it.

        Where there are several cotangents they are called for each by itself.
        """
        if self.size:
            rows = [mapped(itemgetter(i), [x, *more]) for i in range(self.size)]
            return stacked([self._called(hooks, *row, check=check) for row in rows])
        return self._called(hooks, x, *more, check=check)

    def _called(self, hooks: Hooks, x: Any, *more: Any, check: Any) -> Any:
        before, mode = getattr(_current, "walk", None), state.grad_mode
        _current.walk = self
        switch(self.create)
        try:
            for hook in list(hooks.values()):
                new = hook(x, *more)
                x = x if new is None else check(hook, x, new)
        finally:
            _current.walk = before
            switch(mode)
        return x

    def pulled(self, segment: Segment, stops: Stops, given: Cts, cut: bool = False) -> list[Any]:
        """Returns the cotangents of operands and stops, None for zero, each with its target."""
        if not given:
            return []
        # before another thread frees them, or splits the segment
        operands, ahead, targets = segment.operands, segment.ahead, segment.targets
        self.visited.setdefault(segment, set()).update(given)
        if ahead is not None and operands:
            segment.run(operands)
        if segment.ctx is not None:
            return segment.pull(self, given)
        split, residuals, saved = segment.split, segment.residuals, segment.saved
        held: list[tuple[Any, Any]] = []
        if self.recorded:
            inputs, _ = behind(segment.program, frozenset(given))
            held = [(x, targets[i] if i in inputs else None) for i, x in enumerate(operands)]
        if segment.moved is not None:
            return [(Edge(segment, p), ct) for p, ct in given.items()]
        segment.check_there(self.call, given, self.asked_of(targets))
        values = None
        if saved is not None and not segment.bare:
            values = [(value.array(), value.target) for value in saved]
        assert split is not None  # else all of it is freed
        outs = [p for p, on in enumerate(split.active) if on]
        stops = tuple([p for p in stops if split.active[p]])
        mask = tuple([p in given and not cut for p in outs] + [p in given and cut for p in stops])
        begun = pick((*outs, *stops), mask)
        if not begun:
            return []
        if values is not None and not held:
            program, there = pulled_kept(segment.program, segment.active, mask)
        elif self.recorded:
            known = segment.known()
            kept = tuple([p for p in sorted(known) if p not in stops and split.active[p]])
            ends = ((), tuple(begun)) if cut else (tuple(begun), ())
            program, there = pullback_anew(segment.program, segment.active, stops, kept, *ends)
            looked_at = () if segment.bare else (*stops, *kept)
            values = held + [(known[p], Edge(segment, p)) for p in looked_at]
        else:
            program, there = pulled(split.linear, sum(segment.active), stops, mask)
            values = [(value, None) for value in residuals]
        cotangents = [given[p] for p in begun]
        if segment.bare:
            count = len(program.inputs)
            program, needed = pruned(program)
            values, cotangents = [], [cotangents[i - count] for i in needed]
        if self.size is not None:
            dims = (None,) * len(values) + (0,) * len(cotangents)
            program = batch(program, self.size, dims, (True,) * len(program.outputs))[0]
        if self.recorded:
            with Mode(self.create or bool(state.stack)):  # there cotangents keep their derivatives
                cts = _recorded(program, values, cotangents, self.create or not state.stack)
        else:
            cts = run(program, [value for value, _ in values] + cotangents)
        found = spread(spread(cts, there), segment.active + (True,) * len(stops))
        return [*zip((*segment.targets, *stops), found, strict=True)]


def _recorded(
    program: Program, inputs: Sequence[tuple[Any, Any]], cotangents: Sequence[Any], on: bool
) -> Sequence[Any]:
    """Records the call of a program on arrays, with targets where they are on, and cotangents."""
    found, operands = tape(), []
    for x, to in inputs:
        code = found.add(type_of(x), x, to if on else None)
        operands.append(make_tracer(found, code if state.grad else found.twin(code), type_of(x)))
    return pulled_back(program, operands, cotangents)


def key_of(target: Any) -> Any:
    """Returns what a leaf, or a result, is found by."""
    if type(target) is Edge:
        target = current(target)
    return (target.segment.number, target.position) if type(target) is Edge else id(target)


def deliver(walk: Walk, x: Tensor, ct: Any) -> None:
    """Shows the cotangent of a leaf to its hooks, and accumulates it; zero where it is None."""
    meta, ct = x._metadata(), walk.nothing(x._type) if ct is None else ct
    if not meta.leaf:
        accumulate(walk, x, ct)
        return
    if ct.shape != x._type.shape and walk.size is None:
        raise GraphError(
            f"{walk.call}: a leaf has another shape than what was computed of it had.\n"
            f"  leaf: {x._type}\n  gradient: of shape {ct.shape}"
        )
    if meta.hooks:
        ct = walk.hooked(meta.hooks, ct)
    if meta.node is not None:
        (ct,) = walk.shown(meta.node.before, [ct])
    accumulate(walk, x, ct)
    if meta.after:
        walk.called(meta.after, x, check=_refused)
    if meta.node is not None:
        walk.shown(meta.node.after, [], [ct])


def _refused(*given: Any) -> None:
    raise GraphError("post accumulate grad hooks should return None.")


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
        elif before.requires_grad and not before.is_leaf:
            with Mode(False):  # its history stays
                assign("backward()", before, of_array(walk.add(settle(before), ct)))
        else:
            overwrite("backward()", before, of_array(walk.add(settle(before), ct)))
