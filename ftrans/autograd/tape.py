"""The tape: what a thread's operations on tensors are recorded in, until a value is asked for.

It is a trail, as the functions that transforms trace have: so a loop over training steps finds its
programs by the third step, and an operation costs what it costs to record it. A tape lies below
every stack: a transform that is given a tensor, or closes over one, is one operation of it.

Nothing runs before a value is asked for, and then all that is pending does, so that a loop is cut
at the same place at each turn. What the values of tensors that require grad are computed by is run
linearized: a `Segment` keeps what a later `backward` needs of it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sys import getrefcount, maxsize
from typing import Any
from weakref import ref

import jax.tree_util as tree
import numpy as np

from ftrans.autograd.ahead import expected, run_ahead
from ftrans.autograd.apart import run_apart
from ftrans.autograd.levels import OPEN, attach, pushed, run, tangents_of
from ftrans.autograd.modes import differentiating
from ftrans.autograd.segment import Edge, Segment, current
from ftrans.autograd.tensor import STALE, Tensor, made
from ftrans.autograd.values import (
    after_write,
    check_kept,
    lowered_to,
    pend,
    raised_from,
    waiting,
    written_to,
)
from ftrans.interpreters.dependence import ends, look, requiring, taking_part, trimmed
from ftrans.ir import ArrayType, Program, Tracer, make_tracer, type_of
from ftrans.ir.frame import TAPE, settled
from ftrans.ir.leap import Leap, results_of
from ftrans.ir.location import Location, place_call
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import PAST, Asks, state, untraced
from ftrans.ir.steps import Step
from ftrans.ir.trail import Trail
from ftrans.numpy.ready import call_on, looked_after
from ftrans.primitives import no_grad_p
from ftrans.primitives.observe import observing
from ftrans.pytree import mapped
from ftrans.runtime import keep
from ftrans.runtime.device import device_of
from ftrans.runtime.outlived import Ends, become
from ftrans.traceback import OnTape

MOST_PENDING = 2000
"""How many operations may be pending: after so many they are run, whether one asks or not."""

_ASKS = Asks(order=8)
"""What is asked of custom rules: nobody knows how often one goes backward through them."""

(_ALONE,) = [getrefcount(x) for x in [object()]]
"""How many references `Tape.pending` counts of a tensor that only its list refers to."""


_serials = itertools.count(1)


class Tape(Ends):
    """Is the frame of the operations on tensors that are pending in one thread.

    Attributes:
        held: values that outlive the functions that made them, with tensors for them.
        live: the tensors whose values were recorded here, and that may be pending.
        left: the same by weak references, once another tape was begun.
        targets: for each input what the cotangent of it is for: a leaf, an `Edge`, or None.
        active: whether there is any.
        owners: the tensors that are inputs, by their identity, with the input and the value.
        quiet: the same under `no_grad`, where they are inputs without a target.
        flags: for each result whether it requires grad, as far as that was asked for.
        seen: how many steps these are of.
        twins: for values that require grad those that stand for them where nothing does.
        thread: the thread that records here.
        grad: the grad mode of that thread, to be asked at less cost.
        hooks: those of pending results, by handle.
        leaves: whether the value of a leaf is pending here.
        most: the last result that may be pending; -1 where operations are run one by one.
        serial: the number of the tape.
        inference: whether tensors that are made here are inference tensors.
    """

    __slots__ = (
        "active", "flags", "grad", "held", "hooks", "inference", "leaves", "left", "live", "most",
        "owners", "quiet", "seen", "serial", "targets", "thread", "twins",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__("tensors")
        self.depth = TAPE
        self.held: list[tuple[Tracer, Tensor]] = []
        self.live: list[Tensor] = []
        self.left: list[ref[Tensor]] = []
        self.targets: list[Any] = []
        self.active = False
        self.hooks: dict[int, dict[int, Callable[..., Any]]] = {}
        self.owners: dict[int, tuple[Tensor, int, Any]] = {}
        self.flags: list[bool] = []
        self.quiet: dict[int, tuple[Tensor, int, Any]] = {}
        self.seen, self.serial = 0, next(_serials)
        self.twins: dict[int, int] = {}
        self.thread = threading.get_ident()
        self.leaves = False
        self.grad = state.grad
        self.inference = state.inference
        self.most = -1 if state.saving else MOST_PENDING
        self.asks = _ASKS._replace(only_reverse=False) if OPEN else _ASKS
        self.differentiates, self.late = 1, None
        self.begin()

    def add(self, type: ArrayType, source: Any, target: Any) -> int:
        """Adds an input, an array that nobody will write to, and returns its code."""
        child = self.step.child
        if child is not None and child.key is type:
            self.step = child
        else:
            self.step_to(type)
        self.input_types.append(type)
        self.sources.append(source)
        self.targets.append(target)
        if target is not None:
            self.active = True
        return ~(len(self.sources) - 1)

    def go(self, leap: Leap) -> None:
        """Records the equations of a leap; makes no object, as there."""
        self.targets += leap.blank
        Trail.go(self, leap)

    def input(self, type: ArrayType, source: Any, weak: bool = False) -> Tracer:
        """Adds an input for an array of a user's, which may be written to later: a copy."""
        held = source.copy() if isinstance(source, np.ndarray) else source
        return make_tracer(self, self.add(type, held, None), type, weak)

    def capture(self, value: Any) -> Tracer:
        """Returns the input that stands for an array."""
        return self.input(type_of(value := settled(value)), value)

    def require(self, code: int, holds: Callable[[Any], None]) -> None:
        """Checks an input that is there, on the CPU: now, and when what takes it is leapt over."""
        self.checks.append((code, holds))
        if code < 0 and device_of(array := self.sources[~code]) == "cpu":
            holds(np.asarray(array))

    def is_argument(self, code: int) -> bool:
        """Tells whether an input is differentiated."""
        return self.targets[~code] is not None

    def requires(self, code: Any) -> bool:
        """Tells whether a value depends on what requires grad."""
        if not self.active:
            return False
        if type(code) is not int or code < 0:
            return type(code) is int and self.targets[~code] is not None
        return self.flags[code] if code < len(self.flags) else look(self, code)

    def twin(self, code: int) -> int:
        """Returns the value that stands for one where nothing is to be differentiated."""
        if not OPEN and not self.requires(code):  # where levels are open, tangents may
            return code
        found = self.twins.get(code)
        if found is None:
            tracer = make_tracer(self, code, self.type(code))
            found = self.twins[code] = self.record(no_grad_p, (tracer,), NO_PARAMS)[0].index
        return found

    def code_of(self, x: Tensor) -> int:
        """Returns the code of a tensor's value, as the grad mode of this thread has it."""
        grad, value = self.grad, x._v
        owners = self.owners if grad else self.quiet
        owned = owners.get(id(x))
        if owned is not None and owned[2] is value:
            code = owned[1]
        elif value is self:
            return x._index if grad else self.twin(x._index)
        else:
            if self.most < 0:  # to make a view again is an operation of its own
                self.ran(settle, x)
            elif value is STALE:
                refresh(x)
                return self.code_of(x)
            elif type(value) is Tape:
                settle(x)
            code = self.add(x._type, x._v, x._target() if grad else None)
            if self.most >= 0:
                owners[id(x)] = x, code, x._v  # which keeps the tensor, and so its identity
        return code if grad or not tangents_of(x._v) else self.twin(code)

    def tracer_of(self, x: Tensor) -> Tracer:
        """Returns what stands for a tensor in front-end functions."""
        return make_tracer(self, self.code_of(x), x._type)

    # ------------------------------------------------------------------------------------- running

    def pending(self) -> list[Tensor]:
        """Returns the tensors that wait for their values and that somebody has."""
        if self.left:
            self.live += [x for found in self.left if (x := found()) is not None]
        self.left, count = [], -1
        while count != len(self.live):  # once more: a view that is gone has held its base
            count = len(self.live)
            self.live = [x for x in self.live if getrefcount(x) > _ALONE and x._v is self]
        return self.live

    def finish(self, *tensors: Tensor) -> None:
        """Runs what is pending; where recording goes on, what these tensors depend on.

        It does in another thread, and inside of what is called on this tape.
        """
        if self.thread != threading.get_ident() or self.depth != TAPE:
            copy = self._snapshot()
            waiting = [x for x in tensors if x._v is self]  # or that thread has run it meanwhile
            return copy.run(waiting) if waiting else None
        looked_after(len(self.steps))
        try:
            return self.flush()
        except Exception:
            if state.tape is self:
                state.tape = None
        # who asks for what does not depend on the operation that failed is told the value
        return self.run(tensors)

    def _snapshot(self) -> Tape:
        """Returns a tape with what is recorded here now."""
        copy = Tape()
        copy.steps = list(self.steps)  # before the inputs that they take
        count = len(self.targets)
        copy.input_types, copy.sources = self.input_types[:count], self.sources[:count]
        copy.targets, copy.known = self.targets[:count], dict(self.known)
        copy.active = self.active
        copy.most, copy.inference, copy.hooks = self.most, self.inference, dict(self.hooks)
        stop = copy.steps[-1].stop if copy.steps else 0
        copy.step = Step(None, None, None, stop)  # nothing is found there that belongs to others
        return copy

    def flush(self) -> None:
        """Runs all that is pending, and gives tensors their values."""
        if state.tape is self:
            state.tape = None  # what finalizers record from here on is another tape's
        tensors = self.pending()
        if observing.by is not None:  # what nobody refers to is run too
            others = ends(self.steps, [x._index for x in tensors])
            tensors = [*tensors, *[made(self, code, t) for code, t in others]]
        self.run(tensors, self.hooks)
        self.end()

    def hold(self, tracer: Tracer) -> None:
        """Keeps account of a value that is to be an array in the end: it is a constant."""
        tracer.index = self.twin(tracer.index)
        self.held.append((tracer, waiting(self, tracer.index, tracer.type)))

    def leave(self) -> None:
        """Lets another tape begin; what is pending here is run when it is asked for."""
        if self.held:
            self.run([x for _, x in self.held])
            self._give()
        if state.tape is self:
            state.tape = None
        self.left, self.live = [ref(x) for x in self.pending()], []

    def _give(self) -> None:
        for tracer, x in self.held:
            become(tracer, x._v)
        self.held.clear()

    def end(self) -> None:
        """Lets go of all that was recorded, once it was run."""
        self._give()
        if state.tape is self:
            state.tape = None
        self.depth = PAST
        self.live, self.hooks = [], {}
        self.release()

    def gathered(
        self, tensors: Sequence[Tensor], hooked: Iterable[int]
    ) -> tuple[dict[int, int], Program, list[Any], list[Any]]:
        """Returns what computes the values of tensors, and those with hooks.

        That is the position of each result by its code, a program, its operands and their targets.
        """
        codes = list(dict.fromkeys([*[x._index for x in tensors], *hooked]))
        places = {code: at for at, code in enumerate(codes)}
        program, operands = self.close_at(codes)
        targets = self.targets + [None] * (len(operands) - len(self.targets))
        return places, *trimmed(keep(program), operands, targets)

    def ran(self, by: Callable[..., Any], *args: Any) -> Any:
        """Runs a program by a function, while whatever it calls records on another tape."""
        before = state.tape
        state.tape = None
        try:
            return by(*args)
        finally:
            state.tape = None if before and before.depth == PAST else before
            self.grad = state.grad  # a function may set it for good

    def run(self, tensors: Sequence[Tensor], hooked: Iterable[int] | None = None) -> None:
        """Gives these tensors their values, and computes others, those with hooks before them."""
        if hooked is None:
            hooked = taking_part(self.steps, [x._index for x in tensors], self.hooks)
        places, program, operands, targets = self.gathered(tensors, hooked)
        moved = pushed(program, operands, targets) if OPEN else None
        if moved is not None:
            program, operands, targets = trimmed(*moved[:3])
        active = tuple([target is not None for target in targets])
        flags = requiring(program, active)
        segment = Segment(None, [], targets, program, operands) if True in flags else None
        if segment is None:
            found = self.ran(run, program, operands)
        elif self.most < 0:
            found = self.ran(run_apart, segment)
        else:
            segment.put(self.hooks, places)
            at = expected(program)
            ahead = None if at is None else self.ran(run_ahead, segment, at)
            found = ahead.values if ahead else self.ran(segment.run, operands)
        edges = [Edge(segment, at) if segment and flag else None for at, flag in enumerate(flags)]
        edges = [*map(current, edges)] if self.most < 0 else edges
        if moved is not None:
            attach(moved[3], found[: len(edges)], edges)
        for x in tensors:
            at = places[x._index]
            edge = edges[at]
            if self.inference:
                x._metadata().inference = x.is_inference()
            x._settle(found[at], edge)
            if edge is not None:
                edge.segment.results.append((at, ref(x)))


def tape() -> Tape:
    """Returns the tape of this thread."""
    found = state.tape
    if found is not None and len(found.sources) > 2 * MOST_PENDING and not state.stack:
        found = found.flush()  # of operations that have failed
    if found is None:
        OnTape.wrap, OnTape.lower = OnTape.ready
        found = state.tape = Tape()
    return found


def settle(x: Tensor) -> Any:
    """Returns the array of a tensor, once it has its value."""
    if x._v is STALE:
        refresh(x)
    if type(x._v) is Tape:
        x._v.finish(x)
    return x._v


def refresh(x: Tensor) -> None:
    """Makes a view again whose base was written to."""
    meta = x._meta
    assert meta is not None
    assert meta.parent is not None
    assert meta.get is not None
    base = meta.parent
    if base._meta is not None and base._meta.leaf and type(base._v) is Tape:
        base._v.run([base])  # a leaf is an input, whatever is pending besides
    found = tape()
    most = found.most
    if found.most >= 0:
        found.most = maxsize  # who refreshes an operand has the codes of others
    try:
        with differentiating(found):
            new = recorded(meta.get, meta.parent)
    finally:
        found.most = most
    if type(new._v) is Tape:
        pend(new._v, x, new._index)
        if meta.leaf:
            new._v.run([x])
    else:  # operations are run one by one
        x._v = new._v
        x._edge = new._edge


# -------------------------------------------------------------------------------- the general road


def recorded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function of the front end, or a transform, on tensors; returns tensors."""
    out = kwargs.pop("out", None)
    if out is not None:
        return written_to(out, recorded(function, *args, **kwargs))
    found = tape()
    name = getattr(function, "__name__", "")
    lowered = [lowered_to(found, x) for x in args]
    keywords = {name: lowered_to(found, x) for name, x in kwargs.items()} if kwargs else kwargs
    if state.stack:
        leaves = tree.tree_leaves((lowered, keywords))
        if any(type(x) is Tracer and x.frame is not found for x in leaves):
            check_kept(args, kwargs)
            return function(*lowered, **keywords)  # it belongs to what is traced
        with untraced():
            return _run(found, name, function, lowered, keywords)
    codes = [x.index if type(x) is Tracer else None for x in lowered]
    result = _run(found, name, function, lowered, keywords)
    for x, value, code in zip(args, lowered, codes, strict=True):
        if code is not None and value.index != code:
            result = after_write(found, name, x, value, result)
    if found.live and found.step.code > found.most:
        found.flush()
    return result


def _run(found: Tape, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls a function with the tape as the innermost frame; returns tensors."""
    before, count = found.step.stop, len(found.steps)
    result = call_on(found, function, args, kwargs)
    one = type(result) is Tracer or isinstance(result, np.ndarray)
    raised = partial(raised_from, found, before=before)
    result = raised(result) if one else mapped(raised, result)
    steps = found.steps
    if count < len(steps) and type(steps[-1].location) is Location:
        # the steps are new: they are of one operation, which the graph shows as one node
        codes = [x._index for x in results_of(result) if type(x) is Tensor]
        place_call(steps, count, name, found.step.stop, codes)
    return result
