"""Which traced values share memory in NumPy, so that a write to one is seen by the others.

A value is never written: names are rebound. Where a traced value comes to denote another, so do
those that are live and overlap it in memory. Those that may stand in one memory, weak references by
id, each with what it is a view of; one that Python no longer refers to leaves it.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import MutationError
from ftrans.ir import Tracer, is_tracing, make_tracer, type_of
from ftrans.ir import frame as frames
from ftrans.ir.program import Params
from ftrans.ir.stack import PAST, state
from ftrans.numpy.access import Layout, Step, chain, taken, written
from ftrans.numpy.seen import check_seen, depth_of, depth_of_birth, is_noted, note_birth
from ftrans.runtime.guard import is_held
from ftrans.runtime.outlived import become


class _Member(weakref.ref):
    """Refers to one value of a memory, and outlives it where a view of it is left.

    Attributes:
        key: the identity of the value.
        parent: what it is a view of; None where it is none.
        left: the same as an object of its own, for when it is no longer referred to.
        steps: how it is read from the parent; None until it matters.
        in_order: whether NumPy copies where the parent does not lie in the order of rows.
        read_only: whether NumPy refuses to write to it.
    """

    __slots__ = ("_layout", "in_order", "key", "left", "memory", "parent", "read_only", "steps")
    __eq__, __hash__ = object.__eq__, object.__hash__  # not those of the traced values
    key: int
    memory: dict[int, _Member]
    parent: _Member | None
    left: Tracer
    steps: list[Step] | None
    in_order: bool
    read_only: bool
    _layout: Layout | None

    @property
    def value(self) -> Tracer:
        """What it denotes."""
        tracer = self()
        return self.left if tracer is None else tracer

    @property
    def layout(self) -> Layout:
        """Where its elements lie, once `_resolve` has been called."""
        found = self._layout
        if found is None:
            own = np.empty(self.left.type.shape, self.left.type.dtype)
            if self.parent is None:
                known = _array_behind(self.left)
                own = own if known is None else known
                found = Layout(own, own)
            else:
                base = self.parent.layout
                found = base.after(self.steps)  # type: ignore[arg-type]
                if self.in_order and not base.array.flags.c_contiguous:
                    found = Layout(own, own, is_copy=True)
                if found.is_copy:
                    self.parent, self.read_only = None, False
            self._layout = found
        return found


memories: dict[int, dict[int, _Member]] = {}
"""What traced values share memory, or are known as arrays of rank zero, by id."""


def _forget(member: Any) -> None:
    memories.pop(member.key, None)
    member.memory.pop(member.key, None)


def _join(tracer: Tracer, memory: dict[int, _Member], parent: _Member | None) -> _Member:
    member = _Member(tracer, _forget)
    key = member.key = id(tracer)
    member.memory = memory
    member.parent = parent
    member.in_order = False
    member.read_only = parent is not None and parent.read_only
    member.left = make_tracer(tracer.frame, tracer.index, tracer.type)
    member.steps = member._layout = None
    memory[key] = member
    memories[key] = memory
    return member


def view_of(base: Any, view: Any, *, in_order: bool = False, locked: bool = False) -> Any:
    """Returns `view`, remembered as one of `base` where both are traced and distinct objects.

    Args:
        base: what it is a view of.
        view: the same elements, or some of them.
        in_order: whether it is a copy after all where those of `base` are not in order.
        locked: whether it cannot be written to.
    """
    if type(view) is Tracer and view is not base and type(base) is Tracer:
        memory = memories.get(id(base))
        if memory is None:
            memory = {}
            _join(base, memory, None)
        member = _join(view, memory, memory[id(base)])
        member.in_order = in_order
        member.read_only |= locked
    return view


def viewed(base: Any, primitive: Any, **params: Any) -> Any:
    """Returns what a primitive reads of an array, as the view of it that NumPy returns."""
    if isinstance(base, np.ndarray) and not is_tracing():
        return primitive.lower(np, base, **params)
    return view_of(base, taken(base, (Step(primitive, Params(params), type_of(base).shape),)))


def relation(x: Any, base: Any) -> tuple[bool, bool, bool] | None:
    """Returns whether one value is a view of another, and if so what `view_of` was told of it.

    None where that does not say it: where it is the same object, or a view of something else.
    """
    memory = None if x is base else memories.get(id(x))
    if memory is None:
        return None if x is base else (False, False, False)
    if memories.get(id(base)) is not memory:
        return None
    member = memory[id(x)]
    if member.in_order and member.parent is not memory[id(base)]:
        return None
    return True, member.in_order, member.read_only


def is_place_of(x: Any, index: Any, base: Tracer) -> bool:
    """Tells whether a value is the view `base[index]`: to write it there changes nothing."""
    members = memories.get(id(x))
    if members is None or x is base or memories.get(id(base)) is not members:
        return False
    _resolve("x[...] = v", members[id(x)])
    try:
        place = members[id(base)].layout.array[index]
    except Exception:  # what is no plain index, or traced
        return False
    return isinstance(place, np.ndarray) and members[id(x)].layout.is_same(place)


def is_array(x: Tracer) -> bool:
    """Tells whether a value can be changed in place, as arrays can and NumPy's scalars cannot.

    Those of rank zero can where they are views, were passed as arrays, or stand for tensors.
    """
    if x.type.shape or state.of_tensors or id(x) in memories:
        return True
    source = source_of(x)
    if not isinstance(source, np.ndarray) or not is_held(source):
        return False
    _join(x, {}, None)  # it stays one
    return True


def source_of(x: Tracer) -> Any:
    """Returns what an argument or a captured value stands for; None for what was computed."""
    source: Any = x
    while type(source) is Tracer:
        if source.index >= 0 or ~source.index >= len(source.frame.sources):
            return None
        source = source.frame.sources[~source.index]
    return source


def in_rule() -> bool:
    """Tells whether a method of a custom rule is traced, which may be called on arrays instead."""
    return any(frame.rule is not None for frame in state.stack)


def _array_behind(x: Tracer) -> np.ndarray | None:
    """Returns the plain array that an argument stands for, where that says how it lies.

    In a rule it does not: one that was traced with one array is used for others.
    """
    source = source_of(x)
    known = isinstance(source, np.ndarray) and all(source.strides)
    return source if known and not in_rule() else None


def fresh(x: Any) -> Any:
    """Returns the same value as another Python object, which writes to `x` do not reach."""
    if type(x) is not Tracer:
        return x
    if x.index < 0 and len(x.type.shape) > 1:
        known = _array_behind(x)
        if known is not None and not known.flags.c_contiguous:
            x.frame.demands += 1
            x = p.reshape_p(x, shape=x.type.shape)  # which lies in the order of rows
    return _again(x)


def _again(x: Tracer) -> Tracer:
    made = make_tracer(x.frame, x.index, x.type, x.weak)
    if state.stack and state.stack[-1] is not x.frame:
        note_birth(made, state.stack[-1])
    return made


def read_only(x: Any) -> Any:
    """Returns a view of all of an array that cannot be written to."""
    if isinstance(x, np.ndarray):
        x = x[...]
        x.flags.writeable = False
    if type(x) is Tracer:
        x = view_of(x, _again(x))
        memories[id(x)][id(x)].read_only = True
    return x


def detached(x: Any) -> Any:
    """Returns a value without its derivatives, in the same memory: what PyTorch's `detach` is."""
    found = p.stop_gradient_p(x)
    return view_of(x, _again(x) if found is x else found)


def viewing(method: Any) -> Any:
    """Has a method that returns a view return another object where nothing changes."""

    @functools.wraps(method)
    def called(x: Any, *args: Any, **kwargs: Any) -> Any:
        found = method(x, *args, **kwargs)
        return view_of(x, _again(x)) if found is x and type(x) is Tracer else found

    return called


def copied(x: Any) -> Any:
    """Returns the same value as an array of its own, which writes to `x` do not reach."""
    return x.copy() if isinstance(x, np.ndarray) else fresh(x)


def apart(x: Any, *others: Any) -> Any:
    """Returns a value as one that shares no memory with others; copied where it may."""
    if not isinstance(x, np.ndarray):
        return fresh(x) if any(x is other for other in others) else x
    arrays = [other for other in others if isinstance(other, np.ndarray)]
    return x.copy() if any(np.may_share_memory(x, other) for other in arrays) else x


# ------------------------------------------------------------------------------------- writing


def shares(x: Any, y: Any) -> bool:
    """Tells whether elements of two arrays lie in one place."""
    if x is y:
        return True
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.shares_memory(x, y)
    memory = memories.get(id(x), {})
    return id(y) in memory and memory[id(y)] in _sharing("shares(x, y)", memory[id(x)])


def overwrite(name: str, x: Tracer, new: Any) -> None:
    """Makes a traced value denote another one, for all names and all views of it.

    Nothing has changed where this raises. Frames that captured the old value keep it.

    Args:
        name: names the write, for errors: "x += v".
        x: the value.
        new: what it denotes from now on, of the same type.

    Raises:
        MutationError: where it shares memory that cannot be written to, or is seen outside of the
            function in which alone the new value is known.
    """
    frames.check_alive(x)
    stack = state.stack
    if stack and type(new) is not Tracer:
        new = stack[max(stack[-1].floor, depth_of(x))].lift(new)
    if state.held is not None and x.type.is_inexact:
        new = p.graft_p(new, x)  # under no_grad another value, with the derivatives that it had
    memory = memories.get(id(x))
    if memory is None:
        check_seen(name, x, x, new)
        _rebind(x, new)
        return
    member = memory[id(x)]
    if member.read_only:
        _resolve(name, member)
        while member.parent is not None:  # of what was broadcast, it is said why
            new = written(name, member.parent.value, member.steps or (), new)
            member = member.parent
        raise MutationError(
            f"{name}: x is a view that is read-only, as in NumPy.\n"
            f"  x: {x.type}, {x.origin}\n"
            f"  Copy it first: x = x.copy()."
        )
    sharing = _sharing(name, member)
    values = {member: new}
    while sharing and not all(_descends(other, member) for other in sharing):
        base = member.parent
        assert base is not None
        values[base] = written(name, base.value, member.steps or (), values[member])
        member = base
    for other in sharing:
        _derive(other, values)
    found = [(other, other(), value) for other, value in values.items()]
    for _, tracer, value in found:
        if tracer is not None:
            check_seen(name, x, tracer, value)
    for other, tracer, value in found:
        _rebind(other.left, value)
        if tracer is not None:
            _rebind(tracer, value)


def become_view(name: str, x: Tracer, new: Tracer) -> Tracer:
    """Has a value denote a view of what it was, of another shape; returns it.

    The views that it had are views of what it was.
    """
    check_seen(name, x, x, new)
    memory = memories.get(id(x))
    if memory is not None:
        was, member = _again(x), memory[id(x)]
        before = _join(was, memory, member.parent)
        for of in ("in_order", "read_only", "steps", "_layout"):
            setattr(before, of, getattr(member, of))
        for other in memory.values():
            node: _Member | None = other
            while node is not None:  # also of those that are no longer referred to
                if node.parent is member:
                    node.parent = before
                node = node.parent
        member.parent, member.steps, member._layout = before, None, None
        member.in_order = False
        member.left = _again(new)
        if state.held is not None:  # it keeps its derivatives, and so does what it was
            state.held.spare(before.left, member.left)
    _rebind(x, new)
    x.type = new.type
    return x


def _sharing(name: str, member: _Member) -> list[_Member]:
    """Returns the live members of a memory that overlap one."""
    live = []
    for other in list(member.memory.values()):
        tracer = other()
        if tracer is None or other is member:
            continue
        if tracer.frame.depth == PAST or tracer.frame in state.stack:
            live.append(other)
    for other in [member, *live]:
        _resolve(name, other)
    layout = member.layout
    if not live:
        member.parent = None  # nobody else sees what it is a view of, but it lies where it lay
    return [other for other in live if other.layout.overlaps(layout)]


def _resolve(name: str, member: _Member) -> None:
    """Finds how a member is made, and those that it is made of."""
    node: _Member | None = member
    while node is not None and node.parent is not None:
        if node.steps is None:
            node.steps = chain(node.parent.value, node.value)
            if node.steps is None:
                raise MutationError(
                    f"{name}: x shares memory with other values in a way that is no longer known, "
                    f"since\n"
                    f"  the function has returned in which a view was made.\n"
                    f"  view: {node.left.type}\n  of: {node.parent.left.type}\n"
                    f"  Copy it first: x = x.copy()."
                )
        node = node.parent


def _descends(member: _Member | None, base: _Member) -> bool:
    while member is not None and member is not base:
        member = member.parent
    return member is not None


def _derive(member: _Member, values: dict[_Member, Any]) -> Any:
    """Returns the new value of a member, made of that of its parent."""
    found = values.get(member)
    if found is None:
        assert member.parent is not None
        base = _derive(member.parent, values)
        found = values[member] = taken(base, member.steps or ())
    return found


def _rebind(tracer: Tracer, new: Any) -> None:
    """Rebinds one value; where it was made is kept in mind, if its index will not say it."""
    if type(new) is not Tracer:
        become(tracer, new)
        return
    if state.held is not None:
        state.held.keep(tracer)
    frame = state.stack[-1]
    if (frame is not tracer.frame or frame is not new.frame) and not is_noted(tracer):
        note_birth(tracer, state.stack[max(depth_of_birth(tracer), 0)])
    frames.rebind(tracer, new)
