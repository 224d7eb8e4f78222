"""One call of a `Function` inside a traced function."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ftrans.custom.again import ARRAYS, ONCE, Again
from ftrans.custom.batching import FunctionBatch, example_by
from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.effects import came_too_late, effects, inside, may_encode, seen_by
from ftrans.custom.guards import Guards, guards_of
from ftrans.custom.left import Handed, Left, known_values, maker, undifferentiated
from ftrans.custom.methods import Methods, asks_needs
from ftrans.custom.opaque import UNKNOWN, check_traced, missing_of
from ftrans.custom.opaque_forward import OpaqueForward, Recorded
from ftrans.custom.recording import record
from ftrans.custom.reuse import Leap
from ftrans.custom.rule import Rule, listener, only_once
from ftrans.custom.tracing import Author, codes_of, may_move, needs_of
from ftrans.errors import RuleError
from ftrans.external.captures import defined
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.source import Opaque
from ftrans.ir.stack import Asks, asks, state
from ftrans.numpy.named import give_tensors
from ftrans.numpy.promotion import as_array, is_array, result_type
from ftrans.numpy.views import overwrite
from ftrans.primitives import once_p, tied_p
from ftrans.primitives.rules.missing import missing
from ftrans.pytree import Parts
from ftrans.traceback import OnTape


class Call(Author):
    """Is one call of a rule inside a traced function, as the author of what is recorded.

    Args:
        methods: those of the class.
        parts: the positional arguments.
        kwargs: the keyword-only ones.
        passed: how many of the positional arguments were passed, not filled in; None for all.
    """

    def __init__(
        self, methods: Methods, parts: Parts, kwargs: dict[str, Any], passed: int | None = None
    ):
        self.methods = methods
        self.passed = len(parts) if passed is None else passed
        self.name = methods.name
        self.parts = parts
        # without the call, which has the context that asks for it
        self.needs = partial(needs_of, parts, self.passed)
        self.form = methods.form(parts)
        self.kwargs = kwargs
        self.listener = None if methods.backward is None else listener()
        self.missing = methods.missing
        self.memory = methods.memory
        self.has_backward = methods.backward is not None
        self.has_jvp = methods.jvp is not None

    @property
    def lasting_key(self) -> Any:
        """What calls that are like one another have in common, see `Author.lasting_key`."""
        if self.kwargs or self.listener or not self.parts.is_constant:
            return None
        needs = self.needs() if self.methods.asks_needs else None
        called = self.called
        left = None if called is None else (called.key, called.places[0])
        return self.parts.key, self.passed, needs, left

    def guards(self) -> Guards | None:
        """Returns what the methods read, see `Author.guards`."""
        called, recorded, form = self.called, self.recorded, self.form
        if recorded is not None and recorded.is_static:
            return None
        if self.handed or not self.output.is_constant:
            return None
        if called is not None and called.objects:
            return None
        known = self.methods.guards or form.guards
        if known is not None and known.hold():
            return known
        found = guards_of([x for x in self.methods.traced() if x not in form.opaque])
        if found is not None and found.asks_needs and not self.methods.asks_needs:
            return None  # a helper does, or another rule
        if not form.opaque:
            self.methods.guards = found
        elif not self.methods.marks_dirty:
            form.guards = found
        return found

    def kept(self) -> dict[str, Any]:
        """Returns what `forward` has left on the call."""
        return {"output": self.output.template(), "make": self.make, "dirty": self.dirty}

    left: Left | None = None
    """What an opaque `forward` has left."""
    called: Left | None = None
    """The same, where it was called for this call, on the values of its inputs."""
    early: Left | None = None
    """The same, where it was called before the call was made."""
    recorded: Recorded | None = None
    """The same, where it is called when the program is run."""
    handed: Any = ()
    """The arrays that methods were handed while they were traced."""

    def record(self) -> Any:
        """Records the call; returns what `forward` returned, with traced values in it."""
        values = self.parts.values
        self.asked = asks().order
        while True:
            self.opaque = self._opaque()
            known: Sequence[Any] = self._known() if True in self.opaque else ()
            leap = None if self.called is None else self._leap(self.called, known)
            if leap is not None and (found := leap.take()) is not None:
                self.methods.again = Again.of(self, leap.known[0])
                return found
            try:
                results = record(self, values, known)
                break
            except Opaque:
                if not self.retries():
                    raise
        for number, result in self.dirty:
            value = values[number]
            if type(value) is Tracer:
                overwrite(f"{self.name}: ctx.mark_dirty(x)", value, results[result])
                results[result] = value
        result = self.make(self.output.build(results))
        if leap is not None:
            leap.learn(self, result)
            self.methods.again = Again.of(self, leap.known[0])
        return result

    def _leap(self, called: Left, known: Sequence[Any]) -> Leap | None:
        """Returns the call as one that is stepped over, but for what `forward` does."""
        trail, guards = state.trail, self.form.guards
        if trail is None or guards is None or self.effects or called.objects:
            return None
        key = self.lasting_key
        if key is None or not ARRAYS.issuperset(map(type, known)):
            return None
        values = [*self.parts.values, *map(trail.capture, known)]
        return Leap(trail, self.name, guards, values, (self.form.token(key), asks()))

    opaque = (False, False)
    """Whether `forward` and `setup_context` were found to be opaque."""

    def _opaque(self) -> tuple[bool, bool]:
        methods, known = self.methods, self.form.opaque
        return methods.forward in known, methods.setup_context in known

    def retries(self) -> bool:
        """Tells whether the call is recorded once more, see `Author.retries`."""
        return self._opaque() != self.opaque

    effects: Sequence[str] = ()
    """The names under which rules find what an opaque `forward` has left outside of the context."""

    def _seen(self) -> dict[str, Any]:
        """Returns what the rules see outside of their arguments, if they may be differentiated."""
        return seen_by(self.methods.rules) if self.asked > ONCE else {}

    def _known(self) -> Sequence[Any]:
        """Calls an opaque `forward`, if there are values; returns what is known from there on."""
        values = known_values(self.parts.values)
        if values is None:
            return ()
        before = self._seen()
        self.called = self.left = self.early or self._host().call(values, self.needs)
        self.effects = effects(before, self._seen(), self.methods.written)
        return self.called.known()

    def _host(self) -> OpaqueForward:
        """Returns the opaque `forward`; one that holds no more than constants serves again."""
        form, with_context = self.form, self.methods.old or self.opaque[1]
        if self.kwargs or not self.parts.is_constant:
            return OpaqueForward(self.methods, self.parts, self.kwargs, with_context)
        if form.forward is None or form.forward.with_context != with_context:
            form.forward = OpaqueForward(self.methods, self.parts, {}, with_context)
        return form.forward

    def _needs_of(self, *methods: Any) -> tuple[bool, ...]:
        """Returns what opaque methods are told of the gradients that are needed, if they ask."""
        if any(map(asks_needs, methods)):
            return self.ctx.needs_input_grad
        return (True,) * self.passed

    # ----------------------------------------------------------------------------- forward

    types: Sequence[ArrayType] = ()

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Traces `forward` and `setup_context`, takes what a call has left, or records the call."""
        count = len(self.parts.values)
        inputs, known = inputs[:count], inputs[count:]
        self.handed, self.recorded = Handed(), None
        self.ctx = ctx = FunctionCtx()
        ctx.__state__.needs = self.needs
        self.primals = [as_array(x) for x in inputs]
        codes = codes_of(inputs)
        output = self._output(inputs, known)
        if codes != codes_of(inputs) and not self.methods.marks_dirty:
            check_traced()
        self.is_tuple = isinstance(output, tuple)
        self.make = maker(output)
        items = output if self.is_tuple else (output,)
        self.output = Parts(items, _is_result)
        if any(type(x) in (float, complex) for x in self.output.values):
            check_traced()  # where they are what they are
            # numbers that forward has computed are results as well
            dtypes = [x for x in inputs if type_of(x).is_inexact]
            self.output.values = [
                as_array(x, result_type(x, *dtypes)) if type(x) in (float, complex) else x
                for x in self.output.values
            ]
        if output is None and self.methods.vmap is not None:
            self._learn_output()
        self.types = [type_of(x).update() for x in self.output.values]
        self.inputs = [type_of(as_array(x)).update() for x in inputs]
        self.weak = tuple([type(x) is Tracer and x.weak for x in inputs])
        self._check_dirty(inputs)
        self.patterns = not ctx.__state__.materialize
        return self.output.values

    def _output(self, inputs: Sequence[Any], known: Sequence[Any]) -> Any:
        """Returns what `forward` returns, with traced values in it, and fills the context."""
        methods, ctx, frame = self.methods, self.ctx, state.stack[-1]
        args = self.parts.build(inputs)
        set_up = None if methods.old else methods.setup_context
        rule = frame.rule
        frame.rule = rule if methods.marks_dirty else self.handed.hand_out
        with_context = methods.old or self.opaque[1]
        before = {} if any(self.opaque) else self._seen()
        if self.called is not None:
            output = self.called.build(ctx, inputs, undifferentiated(self.name, known, inputs))
        elif any(self.opaque):
            output, self.recorded = self._host().record(ctx, inputs, self.needs)
            self.left = self.recorded.left
        else:
            with_context = methods.old
            with self._watched(methods.forward):
                output = methods.forward(*((ctx, *args) if with_context else args), **self.kwargs)
                output = OnTape.returned(output)
        if set_up is not None and not with_context:
            with self._watched(set_up):
                set_up(ctx, args, output)
        frame.rule = rule  # what is asked for from here on no `forward` has
        if not self.handed:
            return output
        self.effects = self.effects or effects(before, self._seen(), methods.written)
        statics = {id(x) for x in self.parts.statics}
        self.left = left = self.handed.left(output, ctx, statics, inputs)
        return left.build(ctx, inputs, undifferentiated(self.name, left.known(), inputs))

    @contextmanager
    def _watched(self, method: Any) -> Iterator[None]:
        """Remembers of a method that it is opaque, where it turns out to be in a block."""
        before = len(self.handed)
        try:
            yield
        except Exception as error:
            if len(self.handed) == before:
                check_traced(error)
                raise
            self.form.opaque.add(method)
            raise Opaque from error  # what fails may do well with nothing but arrays
        except Opaque:
            self.form.opaque.add(method)
            raise
        if len(self.handed) > before:
            self.form.opaque.add(method)

    def _learn_output(self) -> None:
        """Takes what `vmap` returns for the output, where `forward` returns nothing."""
        rule = FunctionBatch(self, asks()._replace(order=0))
        found = example_by(rule, self.parts.values)
        if found is None:
            return
        self.output, self.is_tuple, types = found
        self.make = tuple if self.is_tuple else maker(None)
        message = (
            f"{self.name}.forward: it returns nothing, and is asked for the result of one example."
            f"\n  it is defined at {defined(self.methods.forward)}\n"
            f"  Write it beside vmap, which computes many."
        )
        self.output.values = list(missing(self.primals, types, message)) if types else []

    def _check_dirty(self, inputs: Sequence[Any]) -> None:
        """Finds which results are the inputs that were marked as written to."""
        left = self.called or (self.recorded and self.recorded.left)
        self.dirty: list[tuple[int, int]] = []
        ctx_dirty = self.ctx.__state__.dirty
        marked = {key_of(x) for x in ctx_dirty}
        if left is not None:
            keys = list(map(key_of, inputs))  # those of keyword-only arguments are no inputs
            self.methods.check_written([i < len(keys) and keys[i] in marked for i in left.written])
        if not marked:
            return
        returned = {} if left is None else left.returned
        outs = [key_of(x) for x in self.output.values]
        for number, value in enumerate(inputs):
            key = key_of(value)
            if key not in marked:
                continue
            place = outs.index(key) if key in outs else returned.get(number)
            if place is None:
                raise self.methods.not_returned(value)
            self.dirty.append((number, place))
        self.methods.check_alone([number for number, _ in self.dirty], self.parts.values)
        if len(self.dirty) < len(marked) and any(type(x) is Tracer for x in ctx_dirty):
            check_traced()
            raise self.methods.no_input()
        if len(self.dirty) < len(marked):
            text = f"{self.name}: mark_dirty was given what is no input, which has no effect."
            warnings.warn(text, UserWarning, stacklevel=2)

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents."""
        rigid = {key_of(x) for x in self.ctx.__state__.rigid}
        self.moving = tuple(
            [
                t.is_inexact and key_of(value) not in rigid
                for t, value in zip(self.types, self.output.values, strict=True)
            ]
        )
        return self.moving

    # ------------------------------------------------------------------------------- rules

    def _undifferentiated(self, found: Sequence[Any], message: str) -> list[Any]:
        """Returns what a rule has returned, whose derivatives nobody knows."""
        return [
            None if x is None else once_p(as_array(x), *self.primals, message=message)
            for x in found
        ]

    def _checked(self, found: Sequence[Any]) -> Sequence[Any]:
        """Lets nobody differentiate what a rule may compute of what is not known of `forward`."""
        left, methods = self.left, self.methods
        if left is None:
            return found
        functions = [f for f in (methods.forward, methods.setup_context) if f is not None]
        statics = [] if left.context is None else inside(list(left.ctx.__dict__.values()))
        given = [*self.parts.statics, *self.kwargs.values()]
        if not (left.objects or self.effects or may_encode(statics, functions, given)):
            return found
        return self._undifferentiated(found, missing_of(f"{self.name}.forward"))

    def _rule(self, name: str, which: str, method: Any) -> Rule:
        """Returns one method with what it is given and must return."""
        return Rule(
            f"{self.name}.{name}",
            which,
            method,
            self.parts.template(),
            self.output.template(),
            tuple(self.inputs),
            tuple(self.types),
            self.moving,
            self.ctx.__state__.materialize,
            self.methods.parameters.names,
            self.weak,
            self.passed,
            which == "backward" and self.methods.boxed,
        )

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `backward`; see `Author.backward`."""
        method, cotangents = self.methods.backward, self._tied(cotangents)
        rule = self._rule(self.methods.backward_name, "backward", method)
        message = only_once(rule.label, method)
        if message:
            cotangents = self._undifferentiated(cotangents, message)
        found = self._called(rule, cotangents)
        if any(ct is None and may_move(x) for ct, x in zip(found, self.parts.values, strict=True)):
            check_traced()  # where it is not to count as zero
        if self.listener is not None and not self.ctx.__state__.materialize:
            # once, whatever the patterns of cotangents are
            heard, self.listener = self.listener, None
            heard(rule.label, lambda: self._called(rule, [None] * len(cotangents)))
        return self._undifferentiated(found, message) if message else self._checked(found)

    def _tied(self, values: Sequence[Any]) -> Sequence[Any]:
        """Lets a rule count on the check of the context that it uses, see `Recorded`."""
        token = None if self.recorded is None else self.recorded.token
        if token is None:
            return values
        return [None if x is None else tied_p(x, token) for x in values]

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `jvp`; see `Author.jvp`."""
        rule = self._rule("jvp", "forward", self.methods.jvp)
        return self._checked(self._called(rule, self._tied(tangents)))

    def _called(self, rule: Rule, given: Sequence[Any]) -> Sequence[Any]:
        """Calls a method on traced values; or records that it is called later."""
        method, recorded = rule.method, self.recorded
        if method not in self.form.opaque:
            ctx = self.ctx.__copied__(rule.which)
            codes = codes_of(ctx.__held__())
            try:
                found = rule(ctx, given)
            except Opaque:
                self.form.opaque.add(method)
                raise  # it is called once more, as what it is
            except Exception as error:
                check_traced(error)
                if not isinstance(error, UNKNOWN):
                    raise
                give_tensors(method)  # which are asked by the same names
                self.form.opaque.add(method)
                raise Opaque from error
            if codes != codes_of(ctx.__held__()):
                check_traced()
            if recorded is not None and recorded.outside:
                raise came_too_late(self.name, rule.label, method, recorded.outside)
            return found
        return rule.later(self.ctx.__copied__(rule.which), given, self._needs_of(method))

    def batch(self, around: Asks, values: Sequence[Any]) -> Any:
        """Returns the author's rule for batches, if there is one."""
        vmap = self.methods.vmap
        if vmap is None:
            return None
        if self.methods.generate_vmap_rule:
            raise RuleError(
                f"{self.name}: generate_vmap_rule=True and vmap is written as well.\n"
                f"  vmap is defined at {defined(vmap)}\n  Keep one of them."
            )
        return FunctionBatch(self, around).at_call(values)


def _is_result(x: Any) -> bool:
    return is_array(x) or type(x) in (float, complex)
