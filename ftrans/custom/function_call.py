"""One call of a `Function` inside a traced function."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Sequence
from types import CodeType
from typing import Any

from ftrans.custom.batching import FunctionBatch, closed_over
from ftrans.custom.calling import check_written, names_of, overrides
from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.opaque import calls_host
from ftrans.custom.opaque_forward import HostForward, maker
from ftrans.custom.parts import Parts, defined
from ftrans.custom.recording import record
from ftrans.custom.rule import Rule
from ftrans.errors import RuleError
from ftrans.func.staging import apply, known_inputs, sources, stage
from ftrans.ir import Tracer, type_of
from ftrans.ir.frame import rebind
from ftrans.numpy.promotion import as_array, is_array, result_type
from ftrans.numpy.protocols import may_have_gradient
from ftrans.primitives import once_p, tied_p

__all__ = ["Call", "record_for_jax"]


def record_for_jax(cls: Any, parts: Parts, kwargs: dict[str, Any]) -> Any:
    """Calls a rule on values that JAX traces: as a program, so that JAX learns of the rules."""
    inputs = known_inputs(parts.values)

    def call(*tracers: Any) -> Any:
        return Call(cls, Parts(parts.build(tracers)), kwargs).record()

    staged = stage(cls.__name__, call, inputs)
    found = apply(staged.program, [*sources(inputs), *staged.captured])
    return staged.outputs.build(found)


class Call:
    """Is one call of a rule inside a traced function, as the author of what is recorded.

    Args:
        cls: the class.
        parts: the positional arguments.
        kwargs: the keyword-only ones.
        passed: how many of the positional arguments were passed, not filled in; None for all.
    """

    def __init__(self, cls: Any, parts: Parts, kwargs: dict[str, Any], passed: int | None = None):
        self.cls = cls
        self.passed = len(parts) if passed is None else passed
        self.name = cls.__name__
        self.parts = parts
        self.kwargs = kwargs
        self.ctx = FunctionCtx()
        self.old = not overrides(cls, "setup_context")
        gives_vjp, gives_backward = overrides(cls, "vjp"), overrides(cls, "backward")
        if gives_vjp and gives_backward and cls.vjp is not cls.backward:
            raise RuleError(
                f"{self.name}: both backward and vjp are written, which are two names of one "
                f"method.\n"
                f"  backward is defined at {defined(cls.backward)}\n"
                f"  vjp is defined at {defined(cls.vjp)}\n  Keep one of them."
            )
        self.reverse = cls.backward if gives_backward else cls.vjp if gives_vjp else None
        self.pushed = cls.jvp if overrides(cls, "jvp") else None
        self.backward = None if self.reverse is None else self._backward
        self.jvp = None if self.pushed is None else self._jvp
        self.missing = None
        if self.reverse is None and self.pushed is None:
            self.missing = (
                f"{self.name}: a derivative is asked for, and no rule is written.\n"
                f"  Write @staticmethod def backward(ctx, *cotangents), which returns a gradient "
                f"for each argument;\n"
                f"  or @staticmethod def jvp(ctx, *tangents), which returns a tangent for each "
                f"output."
            )
        self.patterns = False
        self.calls_itself = False
        self.lasting = True
        self.rule_outs: Sequence[Any] = ()

    @property
    def key(self) -> Any:
        """What the call depends on, see `Author.key`."""
        if self.kwargs:
            return None
        cls = self.cls
        methods = (cls.forward, cls.setup_context, self.reverse, self.pushed, cls.vmap)
        asked = any(map(_asks_needs, methods))
        needs = self.ctx.needs_input_grad if asked else None
        return cls, methods, self.parts.key, needs

    def kept(self) -> dict[str, Any]:
        """Returns what `forward` has left on the call."""
        return {
            "output": self.output.template(),
            "make": self.make,
            "dirty": self.dirty,
        }

    def record(self) -> Any:
        """Records the call; returns what `forward` returned, with traced values in it."""
        values = self.parts.values
        self.ctx._state.needs = self._needs
        results = record(self, values)
        output = self.output.build(results)
        for number, result in self.dirty:
            value = values[number]
            if type(value) is Tracer:
                rebind(value, results[result])
                results[result] = value
        if self.dirty:
            output = self.output.build(results)
        return self.make(output)

    def _needs(self) -> tuple[bool, ...]:
        given = iter(self.parts.values)
        return tuple(
            [
                any(type(x) is Tracer and _moves(x) for x in [next(given) for _ in range(count)])
                for count in self.parts.counts()
            ]
        )

    def _needs_of(self, *methods: Any) -> tuple[bool, ...]:
        """Returns what opaque methods are told of the gradients that are needed, if they ask."""
        if any(map(_asks_needs, methods)):
            return self.ctx.needs_input_grad
        return (True,) * len(self.parts)

    # ----------------------------------------------------------------------------- forward

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Traces `forward` and `setup_context`, or records that they are to be called."""
        cls, ctx, kwargs = self.cls, self.ctx, self.kwargs
        args = self.parts.build(inputs)
        self.primals = [as_array(x) for x in inputs]
        statics = self.parts.key
        host = HostForward(cls, self.parts, kwargs, inputs, self.old)
        if self.old:
            output = calls_host(
                cls.forward,
                statics,
                lambda: cls.forward(ctx, *args, **kwargs),
                lambda: host.record(ctx, self._needs_of, True),
            )
        else:
            output = calls_host(
                cls.forward,
                statics,
                lambda: cls.forward(*args, **kwargs),
                lambda: host.record(ctx, self._needs_of, False),
            )

            def set_up() -> Any:
                cls.setup_context(ctx, args, output)
                return output

            output = calls_host(
                cls.setup_context, statics, set_up, lambda: host.record(ctx, self._needs_of, True)
            )
        self.is_tuple = isinstance(output, tuple)
        self.make = maker(output)
        items = output if self.is_tuple else (output,)
        self.output = Parts(items, _is_result)
        if any(type(x) in (float, complex) for x in self.output.values):
            # numbers that forward has computed are results as well
            dtypes = [x for x in inputs if type_of(x).is_inexact]
            self.output.values = [
                as_array(x, result_type(x, *dtypes)) if type(x) in (float, complex) else x
                for x in self.output.values
            ]
        self.types = [type_of(x).update() for x in self.output.values]
        self.inputs = [type_of(as_array(x)).update() for x in inputs]
        self.weak = tuple([type(x) is Tracer and x.weak for x in inputs])
        self._check_dirty(inputs, host)
        self.token = host.token
        self.patterns = not ctx._state.materialize
        return self.output.values

    def _check_dirty(self, inputs: Sequence[Any], host: HostForward) -> None:
        """Finds which results are the inputs that were marked as written to."""
        self.dirty: list[tuple[int, int]] = []
        ctx_dirty = self.ctx._state.dirty
        marked = {key_of(x) for x in ctx_dirty}
        check_written(self.cls, [key_of(inputs[i]) in marked for i in host.written])
        if not marked:
            return
        outs = [key_of(x) for x in self.output.values]
        for number, value in enumerate(inputs):
            key = key_of(value)
            if key not in marked:
                continue
            place = outs.index(key) if key in outs else host.returned.get(number)
            if place is None:
                raise RuleError(
                    f"{self.name}: an input is marked as dirty, and is not returned.\n"
                    f"  input: {type_of(value)}\n"
                    f"  Return it from forward, defined at {defined(self.cls.forward)}."
                )
            self.dirty.append((number, place))
        if len(self.dirty) < len(marked) and any(type(x) is Tracer for x in ctx_dirty):
            raise RuleError(
                f"{self.name}: mark_dirty was given what is no input of forward.\n"
                f"  it is defined at {defined(self.cls.forward)}\n"
                f"  x *= 2 makes a new traced value: write x[...] = 2 * x, and return x."
            )
        if len(self.dirty) < len(marked):
            warnings.warn(
                f"{self.name}: mark_dirty was given what is no input, which has no effect.",
                UserWarning,
                stacklevel=2,
            )

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents."""
        rigid = {key_of(x) for x in self.ctx._state.rigid}
        self.moving = tuple(
            [
                t.is_inexact and key_of(value) not in rigid
                for t, value in zip(self.types, self.output.values, strict=True)
            ]
        )
        return self.moving

    # ------------------------------------------------------------------------------- rules

    def _rule(self, name: str, method: Any) -> Rule:
        """Returns one method with what it is given and must return."""
        return Rule(
            f"{self.name}.{name}",
            method,
            self.parts.template(),
            self.output.template(),
            tuple(self.inputs),
            tuple(self.types),
            self.moving,
            self.ctx._state.materialize,
            names_of(self.cls, self.old),
            self.weak,
            self.passed,
        )

    def _backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `backward`; see `Author.backward`."""
        ctx, method = self.ctx, self.reverse
        ctx._state.which = "backward"
        cotangents = self._tied(cotangents)
        once = getattr(method, "__ftrans_once__", False)
        written = inspect.unwrap(method) if once else method  # type: ignore[arg-type]
        rule = self._rule("vjp" if overrides(self.cls, "vjp") else "backward", written)
        message = ""
        if once:
            message = _differentiated_again(rule.label, written)
            cotangents = [
                None if ct is None else once_p(ct, *self.primals, message=message)
                for ct in cotangents
            ]
        found = calls_host(
            written,
            self.parts.key,
            lambda: rule.gradients(ctx, cotangents),
            lambda: rule.host_gradients(ctx, cotangents, self._needs_of(written)),
        )
        if not once:
            return found
        return [
            None if ct is None else once_p(as_array(ct), *self.primals, message=message)
            for ct in found
        ]

    def _tied(self, values: Sequence[Any]) -> Sequence[Any]:
        """Lets a rule count on the check of the context that it uses, see `HostForward`."""
        token = self.token
        if token is None:
            return values
        return [None if x is None else tied_p(x, token) for x in values]

    def _jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `jvp`; see `Author.jvp`."""
        ctx, method = self.ctx, self.pushed
        ctx._state.which = "forward"
        tangents = self._tied(tangents)
        rule = self._rule("jvp", method)
        return calls_host(
            method,
            self.parts.key,
            lambda: rule.tangents(ctx, tangents),
            lambda: rule.host_tangents(ctx, tangents, self._needs_of(method)),
        )

    def batch(self, order: int, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Returns the author's rule for batches, if there is one, and what it closes over."""
        cls = self.cls
        if not overrides(cls, "vmap"):
            return None, ()
        if cls.generate_vmap_rule:
            raise RuleError(
                f"{self.name}: generate_vmap_rule is True, and vmap is written as well.\n"
                f"  vmap is defined at {defined(cls.vmap)}\n  Keep one of them."
            )
        rule = FunctionBatch(
            f"{self.name}.vmap",
            cls.vmap,
            self.parts.template(),
            self.output.template(),
            self.is_tuple,
            self.types,
            order,
            FunctionBatch.randomness(),
        )
        rule.probe(values)
        return rule, closed_over(cls.vmap)


def _differentiated_again(label: str, method: Any) -> str:
    return (
        f"{label} is marked with once_differentiable, and is differentiated again.\n"
        f"  It is defined at {defined(method)}.\n"
        f"  Take the mark away where it is written with functions that have derivatives."
    )


def _asks_needs(function: Any) -> bool:
    """Tells whether the code of a method reads `ctx.needs_input_grad`."""
    code = getattr(function, "__code__", None)
    return code is not None and _reads_needs(code)


@functools.lru_cache(maxsize=1024)
def _reads_needs(code: CodeType) -> bool:
    pending: list[Any] = [code]
    while pending:
        code = pending.pop()
        if code is not None:
            if "needs_input_grad" in code.co_names:
                return True
            pending += [const for const in code.co_consts if isinstance(const, CodeType)]
    return False


def _is_result(x: Any) -> bool:
    return is_array(x) or type(x) in (float, complex)


def _moves(x: Tracer) -> bool:
    return x.type.is_inexact and may_have_gradient(x)
