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
from ftrans.numpy.promotion import is_array
from ftrans.pytree import is_constant

ONCE = 2
"""The order of the derivatives that are asked for where rules are not differentiated themselves."""

_TRACED = object()
ARRAYS, _TRACERS = {np.ndarray}, {Tracer}


class Again:
    """Is what such calls have in common: flat arguments, and one result, an array of NumPy's.

    On the context there are no others, and constants. See `Call`, of which one was recorded with
    the key under which later ones are leapt over.
    """

    def __init__(self, call: Any, key: Any):
        left, parts = call.called, call.parts
        self._name, self._form, self._key, self._passed = call.name, call.form, key, call.passed
        self._host = call.form.forward
        self._items = [_TRACED if leaf is None else leaf for leaf in parts.leaves]
        self._marks = _marks(left.ctx) if self._host.with_context else None
        self._constants = [x for x in left.ctx.__held__() if is_constant(x)]
        pool = list(map(id, (*left.inputs, *left.output.values, *self._constants)))
        self._held = [pool.index(id(x)) for x in left.ctx.__held__()]

    @classmethod
    def of(cls, call: Any, key: Any) -> Again | None:
        """Returns it for a call; None where there is more to it."""
        left, parts = call.called, call.parts
        is_flat = parts.structure.num_nodes == len(parts.leaves) + 1
        is_marked = left.dirty or left.written or call.form.forward is None
        if is_marked or not (is_flat and _TRACERS.issuperset(map(type, parts.values))):
            return None
        if left.make is tuple or [type(x) for x in left.output.values] != [np.ndarray]:
            return None
        known = {id(x) for x in (*left.inputs, *left.output.values, *parts.statics)}
        for x in left.ctx.__held__():
            if id(x) not in known and (not is_constant(x) or type(x) in (float, complex)):
                return None
        return cls(call, key)

    def fits(self, args: Sequence[Any], passed: int) -> bool:
        """Tells whether a call with these arguments may be taken the short way."""
        items = self._items
        if len(args) != len(items) or passed != self._passed or config.check:
            return False
        for x, c in zip(args, items, strict=True):
            if c is not (_TRACED if type(x) is Tracer else x):
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
        values: list[Any] = [x for x in args if type(x) is Tracer]
        try:
            arrays = [x.value() for x in values]
        except ConcretizationError:
            return None, None
        if not ARRAYS.issuperset(map(type, arrays)):
            return None, None
        run = self._host.run(arrays, needs)
        result = self._result(run)
        if result is not None:
            result.setflags(write=False)  # it is nobody's: so it need not be held
            values.append(trail.capture(result))
            known = self._key, around
            found = Leap(trail, self._name, self._form.guards, values, known).take()
            if found is not None:
                return found, None
        left = self._host.left(*run)
        left.captured = result
        return None, left

    def _result(self, run: tuple[Any, list[Any], Any, FunctionCtx]) -> Any:
        """Returns the result of a call, if it has left what the one before has, but for arrays."""
        output, given, written, ctx = run
        if type(output) is not np.ndarray or written or not is_array(output):
            return None
        if self._marks is not None:
            pool = (*given, output, *self._constants)
            pairs = zip(ctx.__held__(), self._held, strict=False)
            if _marks(ctx) != self._marks or not all(x is pool[i] for x, i in pairs):
                return None
            del pool
        # what was returned refers to it, and so does the variable, and the context may
        return owned([output], lambda: Counter(map(id, ctx.__held__())), 2)[0]


def _marks(ctx: FunctionCtx) -> tuple[Any, ...]:
    """Returns what a context has beside its values."""
    s = ctx.__state__
    counts = len(s.for_backward), len(s.for_forward), len(s.rigid), len(s.dirty)
    return *ctx.__dict__, *counts, s.materialize
