"""The batch that an enclosing `vmap` most likely makes of a call inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.ir import Tracer, type_of
from ftrans.ir.source import Mapped
from ftrans.ir.stack import state


def likely_batch(values: Sequence[Any]) -> tuple[int, tuple[Any, ...], tuple[Any, ...]] | None:
    """Returns the size of the batch that the innermost `vmap` makes of these, types and axes."""
    for frame in reversed(state.stack):
        mapped = [source for source in frame.sources if type(source) is Mapped]
        if not mapped:
            continue
        dims = tuple([_axis(x, frame) for x in values])
        if all(dim is None for dim in dims):
            if any(inner.rule is not None for inner in state.stack[frame.depth :]):
                continue
            # the body of a loop, say, does not show what is mapped
            dims = tuple([0 if type(x) is Tracer else None for x in values])
        size = mapped[0].array.shape[mapped[0].dim]
        types = []
        for x, dim in zip(values, dims, strict=True):
            t = type_of(x).update()
            types.append(
                t if dim is None else t.update(shape=(*t.shape[:dim], size, *t.shape[dim:]))
            )
        return size, tuple(types), dims
    return None


def _axis(x: Any, mapping: Any) -> int | None:
    """Returns where the axis that a frame maps likely is in a value; None where it is not."""
    if type(x) is not Tracer:
        return None
    if x.frame is mapping and x.index < 0 and type(mapping.sources[~x.index]) is Mapped:
        return mapping.sources[~x.index].dim
    pending, seen = [(x.frame, x.index)], set()
    while pending:
        frame, code = pending.pop()
        if (id(frame), code) in seen or frame.depth < mapping.depth:
            continue
        seen.add((id(frame), code))
        if code < 0:
            source = frame.sources[~code]
            if frame is mapping and type(source) is Mapped:
                return 0
            if type(source) is Tracer:
                pending.append((source.frame, source.index))
            continue
        equation = frame.produced(code)[0]
        pending += [(frame, c) for c in equation.operands if type(c) is int]
    return None
