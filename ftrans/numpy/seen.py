"""Which functions see a write to a value: those that were running when it was made.

Where that is not the innermost, and what is written is known there alone, the write is an error.
"""

from __future__ import annotations

import weakref
from typing import Any

from ftrans.errors import MutationError
from ftrans.ir import Abstract, Frame, Tracer
from ftrans.ir.stack import PAST, state

_born: dict[int, tuple[Any, Any]] = {}
"""The frame in which copies of outer values were made, which the index does not say, by id."""


def note_birth(tracer: Tracer, frame: Frame) -> None:
    """Says in which frame a value was made, where its index does not."""
    key = id(tracer)
    _born[key] = weakref.ref(tracer, lambda _: _born.pop(key, None)), weakref.ref(frame)


def is_noted(tracer: Tracer) -> bool:
    """Tells whether that was said of a value."""
    return id(tracer) in _born


def depth_of(tracer: Tracer) -> int:
    """Returns the depth of the frame of a value; -1 where it has outlived that."""
    return -1 if tracer.frame.depth == PAST else tracer.frame.depth


def depth_of_birth(tracer: Tracer) -> int:
    """Returns the depth of the innermost function that was running when a value was made."""
    stack = state.stack
    known = _born.get(id(tracer))
    depth = own = depth_of(tracer)
    if known is not None:
        frame = known[1]()
        if frame is None or frame.depth >= len(stack) or stack[frame.depth] is not frame:
            return own
        return frame.depth
    while depth >= 0 and depth + 1 < len(stack) and tracer.index >= stack[depth + 1].below[own]:
        depth += 1
    return depth


def check_seen(name: str, x: Tracer, seen: Tracer, new: Any) -> None:
    """Raises where a function changes what it has found outside, and cannot change it there.

    The body of a loop and a rule are not run as often as they are traced; what a value would become
    that is unknown while tracing, the function outside could not tell.
    """
    stack = state.stack
    if type(new) is not Tracer or stack[-1] is seen.frame:
        return
    inside = [
        frame
        for frame in stack[depth_of(seen) + 1 :]
        if frame.closed or frame.rule or (frame is new.frame and _is_abstract(frame))
    ]
    if not inside or depth_of_birth(seen) >= inside[-1].depth:
        return
    also = "" if seen is x else f"\n  x is a view of it: {x.type}, {x.origin}"
    raise MutationError(
        f"{name}: what x stands for was made outside of {inside[-1].name}, and would change "
        f"inside.\n"
        f"  outside: {seen.type}, {seen.origin}{also}\n"
        f"  Write to a copy, x = x.copy(), and return it."
    )


def _is_abstract(frame: Frame) -> bool:
    return any(isinstance(source, Abstract) for source in frame.sources)
