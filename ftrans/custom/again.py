"""The short way for a call of an opaque `forward` that is like one before, but for its arrays.

`forward` is called, since nobody knows what it does. What else there is to a call is known, if what
it has left is alike; if not, that is where the long way begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.config import config
from ftrans.custom.context import FunctionCtx
from ftrans.custom.left import Left
from ftrans.custom.reuse import Leap
from ftrans.errors import ConcretizationError
from ftrans.external.arrays import owned
from ftrans.ir import Tracer
from ftrans.ir.stack import asks, state
from ftrans.pytree import is_constant

ONCE = 2
"""The order of the derivatives that are asked for where rules are not differentiated themselves."""

_ARRAY = object()
_TRACED, _PLAIN = {Tracer, np.ndarray}, {np.ndarray}


class Again:
    """Is what such calls have in common: flat arguments, and results that are NumPy's arrays.

    On the context there are no others, and constants. See `Call`, of which one was recorded with
    the key under which later ones are leapt over.
    """

    __slots__ = (
        *("_constants", "_count", "_form", "_held", "_host", "_items", "_key", "_kind"),
        *("_marks", "_name", "_passed"),
    )

    def __init__(self, call: Any, key: Any):
        left, parts = call.called, call.parts
        self._name, self._form, self._key = call.name, call.form, key
        self._host = call.form.forward
        self._items = [_ARRAY if leaf is None else leaf for leaf in parts.leaves]
        self._passed, self._count = call.passed, len(left.output)
        self._kind = tuple if left.make is tuple else np.ndarray
        self._marks = _marks(left.ctx) if self._host.with_context else None
        self._constants = [x for x in left.ctx._held() if is_constant(x)]
        pool = list(map(id, (*left.inputs, *left.output.values, *self._constants)))
        self._held = [pool.index(id(x)) for x in left.ctx._held()]

    @classmethod
    def of(cls, call: Any, key: Any) -> Again | None:
        """Returns it for a call; None where there is more to it."""
        left, parts = call.called, call.parts
        if call.dirty or left.written or call.form.forward is None:
            return None
        if parts.structure.num_nodes != len(parts.leaves) + 1:
            return None
        if not (left.output.arrays_alone and _PLAIN.issuperset(map(type, left.output.values))):
            return None
        known = {id(x) for x in (*left.inputs, *left.output.values, *parts.statics)}
        for x in left.ctx._held():
            if id(x) not in known and (not is_constant(x) or type(x) in (float, complex)):
                return None
        return cls(call, key)

    def fits(self, args: Sequence[Any], passed: int) -> bool:
        """Tells whether a call with these arguments may be taken the short way."""
        items = self._items
        if len(args) != len(items) or passed != self._passed or config.check:
            return False
        for x, c in zip(args, items, strict=True):
            if c is not (_ARRAY if type(x) in _TRACED else x):
                return False
        form = self._form
        return form.forward is self._host and form.guards is not None

    def take(
        self, trail: Any, args: Sequence[Any], needs: Callable[[], Any]
    ) -> tuple[Tracer | None, Left | None]:
        """Calls `forward`, if there are values.

        Args:
            trail: the innermost frame.
            args: the arguments, which fit.
            needs: returns what `ctx.needs_input_grad` is.

        Returns:
            The result, if the call was recorded; else what `forward` has left, if it was called.
        """
        around = asks()
        if around.order > ONCE or state.by_jax or state.examples:
            return None, None
        values = [x for x in args if type(x) in _TRACED]
        try:
            arrays = [x.value() if type(x) is Tracer else x for x in values]
        except ConcretizationError:
            return None, None
        if not _PLAIN.issuperset(map(type, arrays)):
            return None, None
        run = self._host.run(arrays, needs)
        results = self._results(run)
        if results is not None:
            for x in results:
                x.flags.writeable = False  # it is nobody's: so it need not be held
                values.append(trail.capture(x))
            known = self._key, around
            found = Leap(trail, self._name, self._form.guards, values, known).take()
            if found is not None:
                return found, None
        return None, self._host.left(*run)

    def _results(self, run: tuple[Any, list[Any], Any, FunctionCtx]) -> list[Any] | None:
        """Returns the results of a call, if it has left what the one before has, but for arrays."""
        output, given, written, ctx = run
        outs = list(output) if type(output) is tuple else [output]
        if type(output) is not self._kind or len(outs) != self._count or written:
            return None
        del output
        if self._marks is not None:
            pool = (*given, *outs, *self._constants)
            pairs = zip(ctx._held(), self._held, strict=False)
            if _marks(ctx) != self._marks or not all(x is pool[i] for x, i in pairs):
                return None
            del pool
        if not _PLAIN.issuperset(map(type, outs)):
            return None
        # what was returned refers to each, and the context may
        return owned(outs, lambda: Counter(map(id, ctx._held())), 1)


def _marks(ctx: FunctionCtx) -> tuple[Any, ...]:
    """Returns what a context has beside its values."""
    s = ctx._state
    counts = len(s.for_backward), len(s.for_forward), len(s.rigid), len(s.dirty)
    return *ctx.__dict__, *counts, s.materialize
