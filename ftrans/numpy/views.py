"""Which traced values would share memory in NumPy, so that a write cannot go wrong silently.

Writing to a traced value rebinds it: it denotes a new value from then on. A view would not follow,
so a write is refused while another live value shares the memory. Values that share it stand in one
`_Memory`; one that is no longer referenced from Python leaves it.
"""

from __future__ import annotations

import weakref
from typing import Any

from ftrans.ir import Tracer
from ftrans.ir import frame as frames

__all__ = ["fresh", "is_shared", "is_view_of", "others", "rebind", "view_of"]


class _Memory:
    """Is what a traced value and its views share: weak references to them by id."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[int, _Member] = {}


class _Member(weakref.ref):
    """Refers to one value of a memory, and knows where to forget it when it dies."""

    __slots__ = ("key", "memory")
    key: int
    memory: _Memory


_memories: dict[int, _Memory] = {}


def _forget(member: Any) -> None:
    _memories.pop(member.key, None)
    member.memory.members.pop(member.key, None)


def _join(tracer: Tracer, memory: _Memory) -> None:
    member = _Member(tracer, _forget)
    member.key, member.memory = id(tracer), memory
    memory.members[member.key] = member
    _memories[member.key] = memory


def view_of(base: Any, view: Any) -> Any:
    """Returns `view`, remembered as one of `base` where both are traced and distinct objects."""
    if type(view) is Tracer and view is not base and type(base) is Tracer:
        memory = _memories.get(id(base))
        if memory is None:
            memory = _Memory()
            _join(base, memory)
        _join(view, memory)
    return view


def others(tracer: Tracer) -> list[Tracer]:
    """Returns the live values that share memory with a traced one."""
    memory = _memories.get(id(tracer))
    if memory is None:
        return []
    alive = [member() for key, member in list(memory.members.items()) if key != id(tracer)]
    return [other for other in alive if other is not None]


def is_shared(x: Any) -> bool:
    """Tells whether a traced value shares its memory with others, or did."""
    return id(x) in _memories


def is_view_of(x: Any, base: Any) -> bool:
    """Tells whether two traced values share their memory."""
    return x is not base and is_shared(x) and _memories.get(id(base)) is _memories[id(x)]


def fresh(x: Any) -> Any:
    """Returns the same value as another Python object, which writes to `x` do not reach."""
    return Tracer(x.frame, x.index, x.type, x.weak) if type(x) is Tracer else x


def rebind(tracer: Tracer, new: Any) -> None:
    """Makes a traced value denote another one, for all that refer to it from now on.

    Frames that captured the old value keep it: what stands for it there is moved to a copy.
    """
    memory = _memories.pop(id(tracer), None)
    if memory is not None:
        memory.members.pop(id(tracer), None)
    frames.rebind(tracer, new)
