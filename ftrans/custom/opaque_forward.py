"""A `forward` that asks for plain arrays.

Where its arguments have values it is called while the call is traced, once: what it returns, and
what it leaves on its context, is known from there on, and is an input of the program. Where they
have none, as under `vmap`, `jit` and in the bodies of loops, it is an `external` equation and
called when the program is run; what it returns is learnt from a call on an example.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from jax.tree_util import tree_leaves as leaves

from ftrans.custom.context import FunctionCtx, attributes_of
from ftrans.custom.effects import left_by
from ftrans.custom.guards import Guards, guards_of
from ftrans.custom.left import Left, known_values, left_of, values_of
from ftrans.custom.methods import Methods
from ftrans.custom.opaque import RuleCallee, snapshot_of
from ftrans.errors import FtransError, RuleError
from ftrans.external.arrays import call_writing, distinct, is_same, to_array
from ftrans.external.captures import captured_error, defined, tracers_of
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.stack import apart
from ftrans.numpy.named import called_by_names
from ftrans.numpy.promotion import as_array, is_scalar, weakly
from ftrans.numpy.protocols import may_have_gradient
from ftrans.primitives import external_p
from ftrans.pytree import Parts
from ftrans.runtime.cache import Remembered

_typings = Remembered(128)


class Recorded(NamedTuple):
    """Is what the call of an opaque `forward` is known by that was recorded.

    Attributes:
        left: what the call on an example has left.
        outside: the names under which traced rules would find what it left outside of the context.
        token: what the rules are tied to, since the call checks their context; or None.
    """

    left: Left
    outside: tuple[str, ...]
    token: Any

    @property
    def is_static(self) -> bool:
        """Whether the results or the context hold what is no array, and is of an example."""
        left = self.left
        told = left.context is not None and bool(left.context.statics)
        return told or not left.output.arrays_alone


class OpaqueForward:
    """Is an opaque `forward` with what belongs to it, for calls that differ in their arrays alone.

    Args:
        methods: those of the class.
        parts: the positional arguments, of which the arrays are not kept.
        kwargs: the keyword-only ones.
        with_context: whether it takes a context, or is followed by `setup_context`.
    """

    def __init__(self, methods: Methods, parts: Parts, kwargs: dict[str, Any], with_context: bool):
        self.methods = methods
        self.with_context = with_context
        self.parts = parts.template()
        self.names = tuple(kwargs)
        self.named = Parts(tuple(kwargs.values()))
        self.count = len(parts.values)
        # what forward hands on as it is, the rules get as it is
        self._statics = {id(x) for parts in (self.parts, self.named) for x in parts.statics}
        self._writes = methods.marks_dirty
        for value in self.named.values:
            if type(value) is Tracer and may_have_gradient(value):
                raise self._named()

    # --------------------------------------------------------------------------- called at once

    def call(self, values: Sequence[Any], needs: Any) -> Left:
        """Calls it, while a function is traced, on values; what it raises is raised.

        What `ctx.needs_input_grad` is may be given as a tuple, or as a function that returns it.
        """
        if self.names:
            named = known_values(self.named.values)
            if named is None:
                raise self._named()
            values = [*values, *named]
        return self.left(*self.run(values, needs))

    def run(self, values: Sequence[Any], needs: Any) -> tuple[Any, list[Any], Any, FunctionCtx]:
        """Calls it as `call` does; returns what `call_writing` does, and the context."""
        with apart():
            try:
                return self._run(values, needs)
            except FtransError as error:
                self._check_captured(error)
                raise

    def _run(self, values: Sequence[Any], needs: Any) -> tuple[Any, list[Any], Any, FunctionCtx]:
        """Calls it on arrays that it must not write to, and on copies if it does."""

        def run(arrays: Sequence[Any]) -> Any:
            nonlocal ctx
            if self.with_context:
                ctx = FunctionCtx()
                ctx.__state__.needs = needs
            return called_by_names(self.methods.by_names, call, arrays, attributes_of(ctx))

        def call(arrays: Sequence[Any]) -> Any:
            args, kwargs = self.parts.build(arrays[: self.count]), {}
            if self.names:
                kwargs = dict(zip(self.names, self.named.build(arrays[self.count :]), strict=True))
            return self.methods.call(ctx, args, kwargs, self.with_context)

        ctx = _UNUSED
        return *call_writing(run, distinct(values), self._writes), ctx

    def left(self, output: Any, given: list[Any], written: Any, ctx: FunctionCtx) -> Left:
        """Returns what a call has left, of what `run` has returned."""
        context = snapshot_of(ctx, self._statics) if self.with_context else None
        left = left_of(output, given[: self.count], written, ctx, context)
        if written and (self.with_context or not self._writes):  # else setup_context says so
            self.methods.check_written([i in left.dirty for i in written])
        return left

    # ------------------------------------------------------------- called when the program is run

    def record(self, ctx: FunctionCtx, inputs: Sequence[Any], needs: Any) -> tuple[Any, Recorded]:
        """Records the call; returns the output with traced values, and fills the context.

        The inputs are the arrays among the positional arguments, traced.
        """
        operands = list(map(as_array, [*inputs, *self.named.values]))
        types = tuple([type_of(x).update() for x in operands])
        # calls are told apart by it only where it is asked for
        needs = needs() if self.methods.asks_needs else (True,) * len(self.parts)
        statics = self.parts.exact_key, self.names, self.named.exact_key
        key = self.methods, self.with_context, types, statics, needs
        typed = lambda: self._typed(key, operands, types, needs)  # noqa: E731
        typing = _typings.find(key, typed)
        if typing.guards is not None and not typing.guards.hold():
            _typings.pop(key, None)
            typing = _typings.find(key, typed)
        outs = list(map(weakly, external_p(*operands, callee=typing.callee), typing.weak))
        left = typing.left
        token = outs[-1] if left.is_told else None
        return left.build(ctx, inputs, outs), Recorded(left, typing.outside, token)

    def _typed(
        self, key: Any, operands: Sequence[Any], types: Sequence[ArrayType], needs: Any
    ) -> _Typing:
        """Calls the method on an example, and notes what it returns."""
        name = f"{self.methods.name}.forward"
        values = values_of(operands, examples=True)
        try:
            with apart():
                call = lambda: self.left(*self._run(values, needs))  # noqa: E731
                left, outside = left_by(call, self.methods.rules, self.methods.written)
        except FtransError as error:
            self._check_captured(error)
            raise
        except Exception as error:
            error.add_note(
                f"ftrans: {name} asks for plain arrays; it was called on an example to learn what "
                f"it returns.\n  {defined(self.methods.forward)}\n"
                f"  Where it cannot be called on any {_shown(types)}, wrap the function in "
                f"ftrans.external(function, out_type)."
            )
            raise
        for value in (*left.output.values, *left.saved):
            if type(value) is Tracer:
                raise captured_error(name, self.methods.forward, value)
        for x in left.objects:
            if not (id(x) in self._statics or isinstance(x, _LASTING)):
                raise _made(name, self.methods.forward, left.ctx, x)
        places, own = left.places
        returned = [*left.output.values, *own]
        if left.is_told:
            returned.append(_CHECKED)
        kinds = [ArrayType(x.shape, x.dtype) for x in map(to_array, returned)]
        kept = copy.copy(self)  # which outlives the call, and so keeps none of its arrays
        kept.named = self.named.template()

        check = _Check(name, self.methods.forward, left.key, places, kinds, types)

        def run(*arrays: Any) -> list[Any]:
            try:
                return check(kept.left(*kept._run(arrays, needs)))
            except RuleError:
                _typings.pop(key, None)  # the example was another one
                kept.methods.memory.clear()
                raise

        callee = RuleCallee(
            name,
            run,
            kinds,
            # an example that differs is checked against itself, not against the one before
            key=(key, left.key, places, tuple(kinds)),
            vmap_method=None,
            copies=bool(left.written),
        )
        weak = [is_scalar(x) for x in returned]
        return _Typing(left, outside, callee, weak, guards_of([self.methods.forward]))

    def _check_captured(self, error: Exception) -> None:
        """Raises, in the place of an error, that it closes over a traced value, if it does."""
        forward = self.methods.forward
        value = next(iter(tracers_of(forward).values()), None)
        if value is not None:
            raise captured_error(f"{self.methods.name}.forward", forward, value) from error

    def _named(self) -> RuleError:
        name, forward = self.methods.name, self.methods.forward
        return RuleError(
            f"{name}.forward: it asks for plain arrays, and a keyword-only argument is traced: "
            f"its derivative would be lost.\n"
            f"  keyword-only: {', '.join(self.names)}\n  it is defined at {defined(forward)}\n"
            f"  Make it positional, so that backward returns its gradient."
        )


class _Typing(NamedTuple):
    """Is what a call on an example has shown.

    Attributes:
        left: what it left.
        outside: as of `Recorded`.
        callee: calls it; it returns what it does, what it saves, and that this is as it was found.
        weak: which of these are Python scalars.
        guards: what it reads, which may change what it leaves; None where that is not known.
    """

    left: Left
    outside: tuple[str, ...]
    callee: RuleCallee
    weak: list[bool]
    guards: Guards | None


class _Check(NamedTuple):
    """Holds what a call has left against what the call on an example has."""

    name: str
    forward: Any
    key: Any
    places: Sequence[tuple[str, int]]
    kinds: Sequence[ArrayType]
    types: Sequence[ArrayType]

    def __call__(self, again: Left) -> list[Any]:
        """Returns the results, and what is saved besides."""
        if again.key != self.key:
            raise RuleError(
                f"{self.name}: what it returned, or left in the context, differs from its first "
                f"call in more than the values of arrays.\n"
                f"  it is defined at {defined(self.forward)}\n"
                f"  Save what depends on values as an array: ctx.name = np.asarray(value)."
            )
        known = {"input": again.inputs, "result": again.output.values}
        kept = []
        for (kind, i), value in zip(self.places, again.saved, strict=True):
            if kind == "own":
                kept.append(value)
            elif not is_same(value, known[kind][i], exact=False):
                raise RuleError(
                    f"{self.name}: what it saved was {kind} {i} itself in its first call, and is "
                    f"another array in this one.\n"
                    f"  it is defined at {defined(self.forward)}\n"
                    f"  Save a copy, np.array(x), of what is only sometimes an argument or a "
                    f"result."
                )
        if again.is_told:
            kept.append(_CHECKED)
        found = [to_array(x) for x in (*again.output.values, *kept)]
        for number, (x, t) in enumerate(zip(found, self.kinds, strict=True)):
            if x.shape != t.shape or x.dtype != t.dtype:
                raise RuleError(
                    f"{self.name}: a result does not have the type that it had in the first call.\n"
                    f"  result {number}: {ArrayType(x.shape, x.dtype)}, at first {t}\n"
                    f"  it is defined at {defined(self.forward)}\n"
                    f"  Types must follow from those of the arguments: {_shown(self.types)}."
                )
        return found


_LASTING = (type, FunctionType, BuiltinFunctionType, ModuleType, np.ufunc)
"""Objects that are not made by a call, but for functions inside of it; those are found out."""


def _made(name: str, forward: Any, ctx: FunctionCtx, x: Any) -> RuleError:
    held = [key for key, value in ctx.__dict__.items() if any(y is x for y in leaves(value))]
    return RuleError(
        f"{name}: it leaves on its context what is neither an array nor a constant, and is called "
        f"when the\n  program is run, since its arguments have no values: as under vmap, jit, or "
        f"in a loop.\n"
        f"  {f'ctx.{held[0]}' if held else 'saved'}: {type(x).__name__}\n"
        f"  it is defined at {defined(forward)}\n"
        f"  Save the arrays that it is made of, and make it in the rule that uses it."
    )


_UNUSED = FunctionCtx()
"""The context of what takes none."""

_CHECKED = np.bool_(True)
"""Is returned by a call whose context was as expected."""


def _shown(types: Iterable[ArrayType]) -> str:
    return ", ".join(map(str, types)) or "no arrays"
