"""Calls of a `forward` that needs plain arrays.

The types of what it returns are learnt by calling it once, on the values where they are known, else
on an example; they are those it must return from then on. So is what it leaves in the context: what
is an input or a result there stays one, so that it has the derivative which that has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.leftovers import left_by
from ftrans.custom.methods import Methods
from ftrans.custom.opaque import Remake, RuleCallee, restore, snapshot_of
from ftrans.custom.remembered import Remembered
from ftrans.errors import (
    ConcretizationError,
    FtransError,
    LeakedTracerError,
    RuleError,
    TracedArrayError,
)
from ftrans.external.arrays import call_writing, distinct, is_same, to_array
from ftrans.external.captures import captured_error, defined, tracers_of
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.source import evaluated, example
from ftrans.ir.stack import untraced
from ftrans.numpy.promotion import as_array, is_array, is_scalar, weakly
from ftrans.numpy.protocols import may_have_gradient
from ftrans.primitives import external_p
from ftrans.pytree import Parts
from ftrans.runtime.jaxlink import foreign

__all__ = ["HostForward", "maker"]

_typings = Remembered(128)


class _Typing(NamedTuple):
    """Is what a call of an opaque `forward` has shown.

    Attributes:
        output: what it returned, without the arrays.
        make: makes it of its items.
        context: what it left in the context, without the arrays; None where it takes none.
        places: for each array in the context where it is: `("input" | "result" | "own", number)`.
        rigid: the results that were marked as not differentiable.
        dirty: the inputs that were marked as written to.
        written: the inputs that were written to.
        materialize: whether cotangents of zero are arrays.
        returned: for inputs that were returned which result they are.
        weak: which results of the call were Python scalars.
        is_static: whether the context holds what is no array.
        is_made: whether it holds objects that each call makes anew.
        callee: calls it.
        call: the same, for what is no array in the context.
        left: the names under which rules find what it left outside of the context.
    """

    output: Parts
    make: Any
    context: Parts | None
    places: list[tuple[str, int]]
    rigid: tuple[int, ...]
    dirty: tuple[int, ...]
    written: tuple[int, ...]
    materialize: bool
    returned: dict[int, int]
    weak: list[bool]
    is_static: bool
    is_made: bool
    callee: RuleCallee
    call: _ForwardCall
    left: tuple[str, ...]


class _Called(NamedTuple):
    """Is what one call has left: the output, what makes it of its items, and the context."""

    output: Parts
    make: Any
    ctx: FunctionCtx
    context: Parts | None

    @property
    def saved(self) -> list[Any]:
        """The arrays in the context."""
        return [] if self.context is None else self.context.values

    def shape(self, is_made: bool) -> Any:
        """Returns all but the arrays, and but the objects in the context if those are made anew."""
        kept, context = self.ctx._state, self.context
        outs = [key_of(x) for x in self.output.values]
        rigid = {key_of(x) for x in kept.rigid}
        return (
            self.output.key,
            self.make,
            None if context is None else context.kind if is_made else context.key,
            tuple([k in rigid for k in outs]),
            len(kept.dirty),
            kept.materialize,
        )


class HostForward:
    """Records calls of an opaque `forward`.

    Args:
        methods: those of the class.
        parts: the positional arguments.
        kwargs: the keyword-only ones.
        inputs: the traced values of the arrays among the arguments.

    Attributes:
        returned: for inputs that `forward` returned which result they are.
        written: the inputs that it wrote to.
        token: what the rules are tied to, since the call checks their context; or None.
        is_static: whether the context holds what is no array, which is looked at in each call.
        left: the names under which traced rules would find what it left outside of the context.
        remake: makes it again, where it holds objects that each call makes anew; or None.
    """

    token: Any = None
    is_static = False
    remake: Remake | None = None

    def __init__(
        self, methods: Methods, parts: Parts, kwargs: dict[str, Any], inputs: Sequence[Any]
    ):
        self.methods = methods
        self.parts = parts
        self.named = Parts(tuple(kwargs.values()))
        self.names = tuple(kwargs)
        self.inputs = [*inputs, *self.named.values]
        self.returned: dict[int, int] = {}
        self.written: tuple[int, ...] = ()
        self.left: tuple[str, ...] = ()

    def record(self, ctx: FunctionCtx, needs: Any, with_context: bool) -> Any:
        """Records the call; returns the output with traced values, and fills the context."""
        types = tuple([type_of(x).update() for x in self.inputs])
        methods = self.methods
        set_up = methods.setup_context if with_context else None
        needed = needs(methods.forward, set_up) if methods.old or set_up is not None else ()
        for value in self.named.values:
            if type(value) is Tracer and may_have_gradient(value):
                raise _named(methods, self.names)
        named = (self.names, self.named.key)
        key = (methods, set_up, types, self.parts.key, named, needed)
        typing = _typings.find(key, lambda: self._typed(key, types, set_up, needed))
        self.left = typing.left
        looked_at = typing.is_static and not typing.is_made
        if looked_at and (again := self._called_again(set_up, needed)) is not None:
            # what is no array may be another one at each call
            key = (key, again[0].shape(False))
            typing = _typings.find(key, lambda: self._typing(key, types, *again))
        outs = [
            weakly(x, weak)
            for x, weak in zip(
                external_p(*map(as_array, self.inputs), callee=typing.callee),
                typing.weak,
                strict=True,
            )
        ]
        count = sum(typing.output.counts())
        output = typing.output.build(outs[:count])
        if typing.context is not None:
            place = {"input": self.inputs, "result": outs, "own": outs[count:]}
            restore(typing.context, [place[kind][i] for kind, i in typing.places], ctx)
            self.token, self.is_static = outs[-1], typing.is_static
            if typing.is_made:
                self.remake = Remake(typing.call.template, list(map(as_array, self.inputs)))
            kept = ctx._state
            kept.rigid = tuple([outs[i] for i in typing.rigid])
            kept.dirty = tuple([self.inputs[i] for i in typing.dirty])
            kept.materialize = typing.materialize
        self.returned, self.written = typing.returned, typing.written
        return typing.make(output)

    def _typed(self, key: Any, types: Sequence[ArrayType], set_up: Any, needs: Any) -> _Typing:
        """Calls the method once, and notes what it returns."""
        values = self._values(examples=True)
        rules = [f for f in (self.methods.backward, self.methods.jvp) if f is not None]
        first, left = left_by(lambda: self._call(values, set_up, needs), rules)
        context = first[0].context
        is_made = False
        if context is not None and context.statics:
            second = self._call(values, set_up, needs)[0]
            is_made = first[0].shape(False) != second.shape(False)
            is_made = is_made and first[0].shape(True) == second.shape(True)
        called, arrays, written, call = first
        typing = self._typing(key, types, called, arrays, written, call, is_made)
        return typing._replace(left=left)

    def _values(self, examples: bool) -> list[Any]:
        """Returns the inputs as arrays, or examples of them."""
        with evaluated(lambda x: not foreign([x]), examples):
            found = [x.value() if type(x) is Tracer else x for x in self.inputs]
        return [example(type_of(x)) if foreign([x]) else x for x in found]

    def _called_again(self, set_up: Any, needs: Any) -> Any:
        """Calls the method on the values of this call; None where they are not known."""
        if foreign(self.inputs):
            return None
        try:
            found = self._values(examples=False)
        except ConcretizationError:
            return None
        return self._call(found, set_up, needs)

    def _call(self, values: Sequence[Any], set_up: Any, needs: Any) -> Any:
        """Calls the method; returns what it left, what it was given, what it wrote to, and it."""
        name = f"{self.methods.name}.forward"
        call = _ForwardCall(self, set_up, needs)
        called, arrays, written = self._tried(name, call, distinct(values))
        return called, arrays, written, call

    def _typing(
        self,
        key: Any,
        types: Sequence[ArrayType],
        called: _Called,
        arrays: Sequence[Any],
        written: tuple[int, ...],
        call: _ForwardCall,
        is_made: bool = False,
    ) -> _Typing:
        """Returns what a call has shown."""
        name, forward = f"{self.methods.name}.forward", self.methods.forward
        output, ctx = called.output, called.ctx
        for value in (*output.values, *called.saved):
            if type(value) is Tracer:
                raise captured_error(name, forward, value)
        places, own = _places(called, arrays)
        outs = [key_of(x) for x in output.values]
        given = [key_of(x) for x in arrays]
        rigid = {key_of(x) for x in ctx._state.rigid}
        dirty = {key_of(x) for x in ctx._state.dirty}
        shape = called.shape(is_made)

        def run(*given: Any) -> list[Any]:
            again = call(given)
            known = {"input": given, "result": again.output.values}
            kept = []
            same = again.shape(is_made) == shape
            for (kind, i), value in zip(places, again.saved, strict=True) if same else ():
                if kind == "own":
                    kept.append(value)
                elif not is_same(value, known[kind][i], exact=False):
                    raise RuleError(
                        f"{name}: what it saved was {kind} {i} itself in its first call, and is "
                        f"another array in this one.\n"
                        f"  it is defined at {defined(forward)}\n"
                        f"  Save a copy, np.array(x), of what is only sometimes an argument or a "
                        f"result."
                    )
            if not same:
                raise RuleError(
                    f"{name}: what it returned, or left in the context, differs from its first "
                    f"call in more than the values of arrays.\n"
                    f"  it is defined at {defined(forward)}\n"
                    f"  Save what depends on values as an array: ctx.name = np.asarray(value)."
                )
            if again.context is not None:
                kept.append(_CHECKED)
            found = [to_array(x) for x in (*again.output.values, *kept)]
            for number, (x, t) in enumerate(zip(found, kinds, strict=True)):
                if x.shape != t.shape or x.dtype != t.dtype:
                    raise RuleError(
                        f"{name}: a result does not have the type that it had in the first call.\n"
                        f"  result {number}: {ArrayType(x.shape, x.dtype)}, at first {t}\n"
                        f"  it is defined at {defined(forward)}\n"
                        f"  Types must follow from those of the arguments: {_shown(types)}."
                    )
            return found

        returned = [*output.values, *own]
        if called.context is not None:
            returned.append(_CHECKED)
        kinds = [ArrayType(x.shape, x.dtype) for x in map(to_array, returned)]
        callee = RuleCallee(
            name,
            run,
            kinds,
            key=key,
            vmap_method=None,
            copies=bool(written),
        )
        return _Typing(
            output.template(),
            called.make,
            None if called.context is None else called.context.template(),
            places,
            tuple(i for i, k in enumerate(outs) if k in rigid),
            tuple(i for i, k in enumerate(given) if k in dirty),
            written,
            ctx._state.materialize,
            {i: outs.index(k) for i, k in enumerate(given) if k in outs},
            [is_scalar(value) for value in returned],
            called.context is not None and bool(called.context.statics),
            is_made,
            callee,
            call,
            (),
        )

    def _tried(
        self, name: str, call: _ForwardCall, arrays: list[Any]
    ) -> tuple[_Called, list[Any], tuple[int, ...]]:
        """Calls the method on arrays that it must not write to, and on copies if it does."""
        try:
            with untraced():
                return call_writing(call, arrays)
        except (LeakedTracerError, TracedArrayError) as error:
            value = next(iter(tracers_of(self.methods.forward).values()), None)
            if value is None:
                raise
            raise captured_error(name, self.methods.forward, value) from error
        except Exception as error:
            if not isinstance(error, FtransError):
                error.add_note(
                    f"ftrans: {name} asks for plain arrays; it was called on an example to learn "
                    f"what it returns.\n  {defined(self.methods.forward)}\n"
                    f"  Where it cannot be called on any {_shown(map(type_of, arrays))},"
                    f" wrap the function in ftrans.external(function, out_type)."
                )
            raise


_CHECKED = np.bool_(True)
"""Is returned by a call whose context was as expected."""


def maker(output: Any) -> Any:
    """Returns what makes an output like this one of the tuple of its items."""
    if not isinstance(output, tuple):
        return _only
    return getattr(type(output), "_make", tuple)


def _only(items: tuple[Any, ...]) -> Any:
    return items[0]


def _shown(types: Iterable[ArrayType]) -> str:
    return ", ".join(map(str, types)) or "no arrays"


class _ForwardCall:
    """Calls `forward`, and what belongs to it, on arrays."""

    def __init__(self, host: HostForward, set_up: Any, needs: Any):
        self.methods = host.methods
        self.parts = host.parts.template()
        self.named = host.named.template()
        self.names = host.names
        self.count = sum(self.parts.counts())
        # what forward hands on as it is, the rules get as it is
        self.statics = {id(x) for parts in (self.parts, self.named) for x in parts.statics}
        self.set_up = set_up
        self.needs = needs

    def __call__(self, arrays: Sequence[Any]) -> _Called:
        ctx = FunctionCtx()
        ctx._state.needs = self.needs
        args = self.parts.build(arrays[: self.count])
        kwargs = dict(zip(self.names, self.named.build(arrays[self.count :]), strict=True))
        if self.methods.old:
            output = self.methods.forward(ctx, *args, **kwargs)
        else:
            output = self.methods.forward(*args, **kwargs)
            if self.set_up is not None:
                self.set_up(ctx, args, output)
        items = output if isinstance(output, tuple) else (output,)
        returned = Parts(items, _is_array_of_any_kind)
        has_context = self.methods.old or self.set_up is not None
        snapshot = snapshot_of(ctx, self.statics) if has_context else None
        return _Called(returned, maker(output), ctx, snapshot)

    def template(self, arrays: Sequence[Any]) -> Parts:
        """Returns the context that a call leaves, without its arrays."""
        found, _, _ = call_writing(self, list(arrays))
        return found.context.template()


def _is_array_of_any_kind(x: Any) -> bool:
    """Tells whether a result is an array, also one of another library, or a number."""
    return is_array(x) or is_scalar(x) or hasattr(x, "__dlpack__") or isinstance(x, np.ndarray)


def _places(called: _Called, arrays: Sequence[Any]) -> tuple[list[tuple[str, int]], list[Any]]:
    """Says of the arrays in a context which are inputs or results; returns those that are not."""
    places: list[tuple[str, int]] = []
    own: list[Any] = []
    for value in called.saved:
        for kind, others in (("result", called.output.values), ("input", arrays)):
            found = [i for i, x in enumerate(others) if is_same(value, x, exact=True)]
            if found:
                places.append((kind, found[0]))
                break
        else:
            places.append(("own", len(own)))
            own.append(value)
    return places, own


def _named(methods: Methods, names: Sequence[str]) -> RuleError:
    return RuleError(
        f"{methods.name}.forward: it asks for plain arrays, and a keyword-only argument is traced: "
        f"its derivative would be lost.\n"
        f"  keyword-only: {', '.join(names)}\n  it is defined at {defined(methods.forward)}\n"
        f"  Make it positional, so that backward returns its gradient."
    )
