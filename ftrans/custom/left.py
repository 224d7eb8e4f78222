"""What one call of an opaque `forward` has left, and how the program takes it from there.

What is known of the inputs is what comes out: arrays, numbers, a context. In the program they stand
for values that are computed of the inputs in a way that nobody knows the derivative of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from operator import itemgetter
from typing import Any

import numpy as np

from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.opaque import missing_of, restore, snapshot_of
from ftrans.errors import ConcretizationError
from ftrans.external.arrays import is_same, owned, read_only, to_array
from ftrans.ir import Tracer, type_of
from ftrans.ir.source import Opaque, evaluated, example
from ftrans.ir.stack import state
from ftrans.numpy.promotion import is_array, is_scalar, weakly
from ftrans.numpy.protocols import may_have_gradient
from ftrans.primitives import once_p
from ftrans.pytree import Parts, is_constant
from ftrans.runtime.jaxlink import foreign, is_traced_by_jax


def known_values(values: Sequence[Any]) -> list[Any] | None:
    """Returns the arrays behind traced values; None where one of them has none."""
    if not values:
        return []
    try:
        found = values_of(values, examples=False)
    except ConcretizationError:
        return None
    return None if foreign(found) else found


def values_of(values: Sequence[Any], examples: bool) -> list[Any]:
    """Returns the arrays behind traced values; or examples, where there are none."""
    with evaluated(lambda x: not is_traced_by_jax(x), examples):
        found = [x.value() if type(x) is Tracer else x for x in values]
    return [example(type_of(x)) if foreign([x]) else x for x in found] if examples else found


@dataclass
class Left:
    """Is what one call of `forward` has left.

    Attributes:
        output: what it returned.
        make: makes that of its items.
        ctx: the context.
        context: what is on it; None where it takes none.
        inputs: what it was given for the inputs.
        written: the inputs that it wrote to.
        captured: the only array that is `known` of it, where that was captured already.
    """

    output: Parts
    make: Any
    ctx: FunctionCtx
    context: Parts | None
    inputs: Sequence[Any]
    written: tuple[int, ...]
    captured: Any = None

    @property
    def is_told(self) -> bool:
        """Whether there is more to it than arrays returned, in which later calls may differ."""
        return self.context is not None or not self.output.arrays_alone

    @property
    def saved(self) -> list[Any]:
        """The arrays and numbers on the context."""
        return [] if self.context is None else self.context.values

    @property
    def places(self) -> tuple[tuple[tuple[str, int], ...], list[Any]]:
        """Says of what is saved which input or result it is; returns those that are neither."""
        return ((), []) if self.context is None else self._places

    @cached_property
    def _places(self) -> tuple[tuple[tuple[str, int], ...], list[Any]]:
        places: list[tuple[str, int]] = []
        own: list[Any] = []
        given = [("input", i, x) for i, x in enumerate(self.inputs)]
        changed = {*self.written, *self.dirty}
        known = [place for place in given if place[1] not in changed]
        known += [("result", i, x) for i, x in enumerate(self.output.values)]
        known += [place for place in given if place[1] in changed]
        for value in self.saved:
            # itself, before arrays that may lie in one place are looked at
            same = [(kind, i) for kind, i, x in known if x is value] or [
                (kind, i) for kind, i, x in known if is_same(value, x, exact=True)
            ]
            if not same:
                same = [("own", len(own))]
                own.append(value)
            places.append(same[0])
        return tuple(places), own

    def known(self) -> list[Any]:
        """Returns the results, and what is saved besides, as arrays that nobody else refers to."""
        if self.captured is not None:
            return [self.captured]
        results, own = self.output.values, self.places[1]

        def held() -> dict[int, float]:
            found = Counter(map(id, (*results, *own, *self.saved, *self.ctx.__held__())))
            found.subtract({id(x) for x in (*results, *own)})
            return {**found, **dict.fromkeys(map(id, self.inputs), inf)}

        found = owned(results, held)
        if own:
            found += owned(own, held)
        return [x if type(x) is Tracer or is_scalar(x) else to_array(x) for x in found]

    @property
    def rigid(self) -> tuple[int, ...]:
        """The results that were marked as not differentiable."""
        if not self.ctx.__state__.rigid:
            return ()
        marked = {key_of(x) for x in self.ctx.__state__.rigid}
        return tuple([i for i, x in enumerate(self.output.values) if key_of(x) in marked])

    @property
    def dirty(self) -> tuple[int, ...]:
        """The inputs that were marked as written to."""
        marked = {key_of(x) for x in self.ctx.__state__.dirty}
        return tuple([i for i, x in enumerate(self.inputs) if key_of(x) in marked])

    @property
    def returned(self) -> dict[int, int]:
        """For inputs that were returned which result they are."""
        outs = [key_of(x) for x in self.output.values]
        given = enumerate(map(key_of, self.inputs))
        return {i: outs.index(key) for i, key in given if key in outs}

    @property
    def key(self) -> Any:
        """All but the arrays, in a form that can be compared and hashed."""
        context, kept = None if self.context is None else self.context.key, self.ctx.__state__
        count = len(kept.dirty)
        return self.output.key, self.make, context, self.rigid, count, kept.materialize

    @property
    def objects(self) -> list[Any]:
        """What is on the context that is neither an array nor a constant."""
        found = [] if self.context is None else self.context.statics
        return [x for x in found if not is_constant(x)]

    def build(self, ctx: FunctionCtx, inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        """Returns what was returned, with traced values in it, and fills a context as this one is.

        The values are those of the results, and of what is saved besides.
        """
        count = len(self.output.values)
        outs = values[:count]
        if self.context is not None:
            place = {"input": inputs, "result": outs, "own": values[count:]}
            restore(self.context, [place[kind][i] for kind, i in self.places[0]], ctx)
            ctx.__state__.rigid = tuple([outs[i] for i in self.rigid])
            ctx.__state__.dirty = tuple([inputs[i] for i in self.dirty])
            ctx.__state__.materialize = self.ctx.__state__.materialize
        return self.make(self.output.build(outs))


def undifferentiated(name: str, found: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Records what a `forward` has computed of its inputs, whose derivative nobody knows."""
    moving = [x for x in inputs if type_of(x).is_inexact]
    message = missing_of(f"{name}.forward")
    values = []
    for x in found:
        weak = x.weak if type(x) is Tracer else is_scalar(x)
        value = x if type(x) is Tracer else state.stack[-1].capture(to_array(x))
        if value.type.is_inexact:
            value = once_p(value, *moving, message=message)
        values.append(weakly(value, weak))
    return values


def left_of(
    output: Any,
    inputs: Sequence[Any],
    written: tuple[int, ...],
    ctx: FunctionCtx,
    context: Parts | None = None,
) -> Left:
    """Returns what a call has left, of what it returned and of its context."""
    items = output if isinstance(output, tuple) else (output,)
    return Left(Parts(items, _is_array_of_any_kind), maker(output), ctx, context, inputs, written)


def maker(output: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Returns what makes an output like this one of the tuple of its items."""
    if not isinstance(output, tuple):
        return _ONLY
    return getattr(type(output), "_make", tuple)


_ONLY = itemgetter(0)


def _is_array_of_any_kind(x: Any) -> bool:
    """Tells whether a result is an array, also one of another library, or a number."""
    return is_array(x) or is_scalar(x) or hasattr(type(x), "__dlpack__")


class Handed:
    """Is the arrays that a method was handed while it was traced, as it asked for them.

    So it is called once, though it turns out to be opaque while it is traced.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def hand_out(self, x: Tracer) -> np.ndarray:
        """Returns the array behind a traced value of the method.

        Raises:
            Opaque: where there is none.
        """
        _check_captured(x.frame)
        found = self._arrays.get(x.index)
        if found is None:
            values = known_values([x])
            if values is None:
                raise Opaque
            found = self._arrays[x.index] = read_only(np.asarray(values[0]))
        return found

    def left(self, output: Any, ctx: FunctionCtx, statics: Any, inputs: Sequence[Any]) -> Left:
        """Returns what the method has left; `statics` as for `snapshot_of`, inputs traced."""
        context = snapshot_of(ctx, statics)
        found = left_of(output, self._among(inputs), (), ctx, context)
        _check_captured(state.stack[-1], *found.output.values, *found.saved)
        for values in (found.output.values, context.values):
            values[:] = self._among(values)
        return found

    def _among(self, values: Sequence[Any]) -> list[Any]:
        return [self._arrays.get(x.index, x) if type(x) is Tracer else x for x in values]


def _check_captured(frame: Any, *values: Any) -> None:
    """Raises where a method closes over what is differentiated: called on arrays, it is told so."""
    outside = [frame.sources[~t.index] for t in frame.captured.values()]
    outside += [x for x in values if type(x) is Tracer and x.frame is not frame]
    if any(type(x) is Tracer and may_have_gradient(x) for x in outside):
        raise Opaque
