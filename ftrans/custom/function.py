"""`Function`: PyTorch's way to write a custom rule, as a class of static methods."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, TypeVar

import jax.tree_util as tree
import numpy as np

from ftrans.custom.batching import FunctionBatch, closed_over
from ftrans.custom.context import FunctionCtx, VmapInfo, key_of
from ftrans.custom.opaque import calls_host
from ftrans.custom.opaque_forward import HostForward, call_writing, maker, read_only
from ftrans.custom.parts import Parts, defined
from ftrans.custom.recording import record
from ftrans.custom.rule import Rule
from ftrans.errors import MissingRuleError, RuleError
from ftrans.func.staging import apply, known_inputs, sources, stage
from ftrans.ir import Tracer, is_tracing, type_of
from ftrans.ir.frame import rebind
from ftrans.numpy.promotion import as_array
from ftrans.numpy.protocols import may_have_gradient
from ftrans.primitives import once_p
from ftrans.runtime.jaxlink import foreign, is_jax, to_jax, x64
from ftrans.traceback import boundary

__all__ = ["Function", "once_differentiable"]

F = TypeVar("F", bound=Callable[..., Any])


class Function:
    """Is the base of operations whose derivatives, or batches, their author writes.

    A subclass has static methods and is called by `apply`. `forward` computes the results; it takes
    the arguments of `apply`, and is followed by `setup_context(ctx, inputs, output)`, or takes a
    context in front of them. All other methods are optional, and one derivative is enough: the
    other is derived from it, and so are batches and derivatives of any order.

    What `forward` or `backward` compute with traced values, by functions of `ftrans.numpy` or
    NumPy's operators, is traced. A method that asks for plain arrays, by `np.asarray(x)`, is
    opaque: it is called when the program is run, on arrays that it must not write to.

    Attributes:
        generate_vmap_rule: is for the sake of code for PyTorch: batches are derived in any case.

    Example:
        >>> import numpy as np
        >>> from ftrans import func
        >>> class Sort(Function):
        ...     @staticmethod
        ...     def forward(x):
        ...         order = np.argsort(np.asarray(x))
        ...         return np.asarray(x)[order], order
        ...
        ...     @staticmethod
        ...     def setup_context(ctx, inputs, output):
        ...         ctx.order = output[1]
        ...
        ...     @staticmethod
        ...     def backward(ctx, ct, _):
        ...         return ct[np.argsort(ctx.order)]
        >>> weights = np.array([1.0, 10.0, 100.0])
        >>> func.grad(lambda x: (Sort.apply(x)[0] * weights).sum())(np.array([3.0, 1.0, 2.0]))
        array([100.,   1.,  10.])

    Reference: https://docs.pytorch.org/docs/stable/notes/extending.func.html
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn(
            f"{type(self).__name__}: a Function is not instantiated; call "
            f"{type(self).__name__}.apply(...)",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: methods are static, and `apply` calls them.

        Raises:
            RuleError: always.
        """
        name = type(self).__name__
        raise RuleError(f"{name}: it has no instances to call.\n  Write {name}.apply(...).")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the results: an array, a tuple of arrays, or pytrees of them."""
        raise NotImplementedError  # `apply` has said so in better words

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        """Saves what the rules need, where `forward` takes no context."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: FunctionCtx, *cotangents: Any) -> Any:
        """Takes the cotangents of the outputs; returns those of the arguments, None for zero."""
        raise NotImplementedError

    vjp = backward

    @staticmethod
    def jvp(ctx: FunctionCtx, *tangents: Any) -> Any:
        """Takes the tangents of the arguments; returns those of the outputs."""
        raise NotImplementedError

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """Computes the results for a batch; returns them and `out_dims`."""
        raise NotImplementedError

    @classmethod
    @boundary
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns what `forward` returns for these arguments.

        Args:
            args: anything; arrays and traced values, also inside pytrees, have derivatives.
            kwargs: as `forward` takes them; keyword-only arrays are treated as closed over.

        Raises:
            MissingRuleError: where `forward` is not written; where a derivative is asked for, and
                none is.
            RuleError: where a method does not do what it must.
        """
        args, kwargs = _bound(cls, args, kwargs)
        parts = Parts(args)
        if not is_tracing() or not any(type(x) is Tracer for x in parts.values):
            if not foreign(parts.values):
                return _at_once(cls, parts, kwargs)
            return _for_jax(cls, parts, kwargs)
        return _Call(cls, parts, kwargs).record()


def once_differentiable(function: F) -> F:
    """Marks a `backward` whose result must not be differentiated; decorates the static method.

    Example:
        >>> class Double(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...
        ...     @staticmethod
        ...     @once_differentiable
        ...     def backward(ctx, ct):
        ...         return 2 * ct
        >>> from ftrans import grad
        >>> float(grad(Double.apply)(1.0))
        2.0
    """

    @functools.wraps(function)
    def once(ctx: FunctionCtx, *cotangents: Any) -> Any:
        return function(ctx, *cotangents)

    once.__ftrans_once__ = True  # type: ignore[attr-defined]
    return once  # type: ignore[return-value]


# ------------------------------------------------------------------------------------- arguments


def _overrides(cls: type, name: str) -> bool:
    return getattr(cls, name) is not getattr(Function, name)


@functools.lru_cache(maxsize=1024)
def _parameters(forward: Any, skipped: int) -> tuple[inspect.Signature | None, int]:
    """Returns the signature without the context, and the number of arguments that need no binding.

    That is -1 where any number does.
    """
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return None, -1
    parameters = list(signature.parameters.values())
    if skipped and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    signature = signature.replace(parameters=parameters)
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        return signature, -2
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return signature, -1
    return signature, sum(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters)


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the positional arguments with defaults, and those that are keyword-only."""
    if not _overrides(cls, "forward"):
        raise MissingRuleError(
            f"{cls.__name__}: forward is missing.\n"
            f"  Write @staticmethod def forward(x, ...), and setup_context(ctx, inputs, output);\n"
            f"  or @staticmethod def forward(ctx, x, ...)."
        )
    old = not _overrides(cls, "setup_context")
    signature, count = _parameters(cls.forward, int(old))
    if not kwargs and (len(args) == count or (count == -1 and signature is None)):
        return args, kwargs
    assert signature is not None
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        hint = ""
        if old and len(signature.parameters) < len(args) + len(kwargs):
            hint = (
                "\n  Without setup_context, forward takes a context in front: write "
                "forward(ctx, x, ...);\n"
                "  or write @staticmethod def setup_context(ctx, inputs, output) as well."
            )
        raise RuleError(
            f"{cls.__name__}.apply: the arguments are not those of forward: {error}.\n"
            f"  forward{inspect.signature(cls.forward)}, defined at {defined(cls.forward)}{hint}"
        ) from None
    found.apply_defaults()
    return found.args, found.kwargs


def _at_once(cls: Any, parts: Parts, kwargs: dict[str, Any]) -> Any:
    """Calls the methods where nothing that they are given is traced; the container follows."""
    ctx = FunctionCtx()
    ctx._state.needs = (False,) * len(parts)

    def call(values: Sequence[Any]) -> Any:
        args = parts.build(values)
        if not _overrides(cls, "setup_context"):
            return cls.forward(ctx, *args, **kwargs)
        output = cls.forward(*args, **kwargs)
        cls.setup_context(ctx, args, output)
        return output

    values = [read_only(x) for x in parts.values]
    output, given, written = call_writing(call, values)
    places = {id(x): i for i, x in enumerate(given)}
    dirty = [places[id(x)] for x in ctx._state.dirty if id(x) in places]
    _check_written(cls, [i in dirty for i in written])
    originals = {id(x): original for x, original in zip(given, parts.values, strict=True)}
    for i in dirty:
        original = parts.values[i]
        if isinstance(original, np.ndarray):
            np.copyto(original, given[i])  # what was declared is done
        else:
            originals[id(given[i])] = given[i]
    as_jax = any(is_jax(x) for x in parts.values)

    def returned(leaf: Any) -> Any:
        leaf = originals.get(id(leaf), leaf)
        if as_jax and type(leaf) is np.ndarray:
            with x64():
                return to_jax(leaf)
        return leaf

    return tree.tree_map(returned, output) if as_jax or originals else output


def _check_written(cls: Any, marked: Sequence[bool]) -> None:
    """Raises where `forward` has written to what is not marked."""
    if not all(marked):
        raise RuleError(
            f"{cls.__name__}.forward: it writes into an argument, and does not say so.\n"
            f"  it is defined at {defined(cls.forward)}\n"
            f"  Write into a copy, x = np.array(x); or mark the argument, ctx.mark_dirty(x), and "
            f"return it."
        )


def _for_jax(cls: Any, parts: Parts, kwargs: dict[str, Any]) -> Any:
    """Calls a rule on values that JAX traces: as a program, so that JAX learns of the rules."""
    inputs = known_inputs(parts.values)

    def call(*tracers: Any) -> Any:
        return _Call(cls, Parts(parts.build(tracers)), kwargs).record()

    staged = stage(cls.__name__, call, inputs, order=4)
    found = apply(staged.program, [*sources(inputs), *staged.captured])
    return staged.outputs.build(found)


# ------------------------------------------------------------------------------------- one call


class _Call:
    """Is one call of a rule inside a traced function, as the author of what is recorded.

    Args:
        cls: the class.
        parts: the positional arguments.
        kwargs: the keyword-only ones.
    """

    def __init__(self, cls: Any, parts: Parts, kwargs: dict[str, Any]):
        self.cls = cls
        self.name = cls.__name__
        self.parts = parts
        self.kwargs = kwargs
        self.ctx = FunctionCtx()
        self.old = not _overrides(cls, "setup_context")
        gives_vjp, gives_backward = _overrides(cls, "vjp"), _overrides(cls, "backward")
        if gives_vjp and gives_backward and cls.vjp is not cls.backward:
            raise RuleError(
                f"{self.name}: both backward and vjp are written, which are two names of one "
                f"method.\n"
                f"  backward is defined at {defined(cls.backward)}\n"
                f"  vjp is defined at {defined(cls.vjp)}\n  Keep one of them."
            )
        self.reverse = cls.backward if gives_backward else cls.vjp if gives_vjp else None
        self.pushed = cls.jvp if _overrides(cls, "jvp") else None
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
        host = HostForward(cls, self.parts, kwargs, inputs, self.old)
        if self.old:
            output = calls_host(
                cls.forward,
                lambda: cls.forward(ctx, *args, **kwargs),
                lambda: host.record(ctx, self._needs_of, True),
            )
        else:
            output = calls_host(
                cls.forward,
                lambda: cls.forward(*args, **kwargs),
                lambda: host.record(ctx, self._needs_of, False),
            )

            def set_up() -> Any:
                cls.setup_context(ctx, args, output)
                return output

            output = calls_host(
                cls.setup_context, set_up, lambda: host.record(ctx, self._needs_of, True)
            )
        self.is_tuple = isinstance(output, tuple)
        self.make = maker(output)
        self.output = Parts(output if self.is_tuple else (output,))
        self.types = [type_of(x).update() for x in self.output.values]
        self.inputs = [type_of(as_array(x)).update() for x in inputs]
        self.weak = tuple([type(x) is Tracer and x.weak for x in inputs])
        self._check_dirty(inputs, host)
        self.patterns = not ctx._state.materialize
        return self.output.values

    def _check_dirty(self, inputs: Sequence[Any], host: HostForward) -> None:
        """Finds which results are the inputs that were marked as written to."""
        self.dirty: list[tuple[int, int]] = []
        marked = {key_of(x) for x in self.ctx._state.dirty}
        _check_written(self.cls, [key_of(inputs[i]) in marked for i in host.written])
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

    def _backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `backward`; see `Author.backward`."""
        ctx, method = self.ctx, self.reverse
        ctx._state.which = "backward"
        once = getattr(method, "__ftrans_once__", False)
        written = inspect.unwrap(method) if once else method  # type: ignore[arg-type]
        rule = Rule(
            f"{self.name}.{'backward' if self.cls.vjp is Function.vjp else 'vjp'}",
            written,
            self.parts.template(),
            self.output.template(),
            tuple(self.inputs),
            tuple(self.types),
            self.moving,
            ctx._state.materialize,
            _names(self.cls, self.old),
            self.weak,
        )
        message = ""
        if once:
            message = _differentiated_again(rule.label, written)
            cotangents = [None if ct is None else once_p(ct, message=message) for ct in cotangents]
        found = calls_host(
            written,
            lambda: rule.gradients(ctx, cotangents),
            lambda: rule.host_gradients(ctx, cotangents, self._needs_of(written)),
        )
        if not once:
            return found
        return [once_p(ct, message=message) if type(ct) is Tracer else ct for ct in found]

    def _jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `jvp`; see `Author.jvp`."""
        ctx, method = self.ctx, self.pushed
        ctx._state.which = "forward"
        rule = Rule(
            f"{self.name}.jvp",
            method,
            self.parts.template(),
            self.output.template(),
            tuple(self.inputs),
            tuple(self.types),
            self.moving,
            ctx._state.materialize,
            _names(self.cls, self.old),
            self.weak,
        )
        return calls_host(
            method,
            lambda: rule.tangents(ctx, tangents),
            lambda: rule.host_tangents(ctx, tangents, self._needs_of(method)),
        )

    def batch(self, order: int) -> tuple[Any, Sequence[Any]]:
        """Returns the author's rule for batches, if there is one, and what it closes over."""
        cls = self.cls
        if not _overrides(cls, "vmap"):
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
        return rule, closed_over(cls.vmap)


def _names(cls: Any, old: bool) -> tuple[str, ...]:
    """Returns the names of the positional parameters of `forward`, as far as they have any."""
    signature, _ = _parameters(cls.forward, int(old))
    if signature is None:
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple([p.name for p in signature.parameters.values() if p.kind in positional])


def _differentiated_again(label: str, method: Any) -> str:
    return (
        f"{label} is marked with once_differentiable, and is differentiated again.\n"
        f"  It is defined at {defined(method)}.\n"
        f"  Take the mark away where it is written with functions that have derivatives."
    )


@functools.lru_cache(maxsize=1024)
def _asks_needs(function: Any) -> bool:
    """Tells whether the code of a method reads `ctx.needs_input_grad`."""
    pending = [getattr(function, "__code__", None)]
    while pending:
        code = pending.pop()
        if code is not None:
            if "needs_input_grad" in code.co_names:
                return True
            pending += [const for const in code.co_consts if isinstance(const, CodeType)]
    return False


def _moves(x: Tracer) -> bool:
    return x.type.is_inexact and may_have_gradient(x)
