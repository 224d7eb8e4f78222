"""What the class of a `Function` says of it: which methods there are, and their parameters."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from ftrans.custom.reuse import Memory
from ftrans.errors import MissingRuleError, RuleError
from ftrans.external.captures import defined
from ftrans.interop.closure import names_in
from ftrans.ir import type_of
from ftrans.numpy.named import asked
from ftrans.numpy.views import shares
from ftrans.pytree import Parts, has_hash

_FORMS = 64
"""How many forms of calls are remembered of one class at most."""


_given = operator.attrgetter(
    *("forward", "setup_context", "backward", "vjp", "jvp", "vmap"),
    *("generate_vmap_rule", "boxed_grads_call", "apply"),
)


def methods_of(cls: Any) -> Methods:
    """Returns the methods of a subclass of `Function`, as they are now.

    Raises:
        MissingRuleError: where `forward` is missing.
        RuleError: where both names of `backward` are written.
    """
    forward = cls.forward
    named = getattr(forward, "__kwdefaults__", None)
    given = (
        *_given(cls),
        # a function may be changed in place, as by who reloads a module
        getattr(forward, "__code__", None),
        getattr(forward, "__defaults__", None),
        tuple(named.items()) if named else (),
    )
    found = cls._ftrans_methods
    # a subclass finds those of its base
    if found is None or found.cls is not cls or found.given != given:
        found = cls._ftrans_methods = Methods(cls, given)
    return found


class Form:
    """Is what is known of calls of a class that differ in nothing but their arrays.

    Attributes:
        opaque: the methods that were found to ask for plain arrays in such calls.
        guards: what those read that are not opaque, where one is; None where that is not known.
        forward: what calls an opaque `forward`, if the arguments that are no arrays never change.
    """

    __slots__ = ("_tokens", "forward", "guards", "opaque")

    def __init__(self) -> None:
        self.opaque: set[Any] = set()
        self.guards: Any = None
        self.forward: Any = None
        self._tokens: dict[Any, object] = {}

    def token(self, key: Any) -> object:
        """Returns what stands for a key, and is quicker to hash."""
        if len(self._tokens) >= _FORMS:
            self._tokens = {}
        return self._tokens.setdefault(key, object())


class Methods:
    """Is what a subclass of `Function` says, given its methods in the order of `methods_of`.

    Attributes:
        name: that of the class.
        old: whether `forward` takes the context.
        forward: the method.
        setup_context: the method, and so are the following; None where it is not written.
        backward: which may be called `vjp`.
        backward_name: how it is called.
        jvp: see `setup_context`.
        by_names: what makes of arrays what `forward` asks for, see `numpy/named.py`.
        vmap: see `setup_context`.
        generate_vmap_rule: as in the class.
        boxed: whether `backward` takes one list.
        memory: what is remembered of calls, see `Author`.
        missing: the error where a derivative is asked for, and no rule is written; or None.
        parameters: how `forward` takes its arguments.
        guards: what the methods read, where none of them is opaque and all of it is understood.
        again: what later calls of an opaque `forward` may have in common with the last one.
        written: the names of what such a call has written into, and the rules read.
        on_tensors: whether the methods are called on tensors, where these are; None if it is not
            known yet. See `autograd/applied.py`.
    """

    guards: Any = None
    again: Any = None
    on_tensors: bool | None = None

    def __init__(self, cls: Any, given: tuple[Any, ...]):
        self.cls = cls
        self.given = given
        self.name = name = cls.__name__
        written = [None if hasattr(x, "__ftrans_default__") else x for x in given[:6]]
        self.forward: Any = written[0]
        self.setup_context: Any = written[1]
        backward, vjp, self.jvp, self.vmap = written[2:]
        self.by_names = asked(*written[:2])
        self.generate_vmap_rule, self.boxed = given[6:8]
        if self.forward is None:
            raise MissingRuleError(
                f"{name}: forward is missing.\n"
                f"  Write @staticmethod def forward(x, ...), and setup_context(ctx, inputs, "
                f"output);\n  or @staticmethod def forward(ctx, x, ...)."
            )
        if backward is not None and vjp is not None and backward is not vjp:
            raise RuleError(
                f"{name}: both backward and vjp are written, which are two names of one method.\n"
                f"  backward is defined at {defined(backward)}\n"
                f"  vjp is defined at {defined(vjp)}\n  Keep one of them."
            )
        self.backward = backward or vjp
        self.backward_name = "vjp" if vjp is not None else "backward"
        self.old = self.setup_context is None
        self._written = written
        self.memory = Memory()
        self.written: set[str] = set()
        self._forms: dict[Any, Form] = {}
        self.missing = None
        if self.backward is None and self.jvp is None:
            self.missing = (
                f"{name}: a derivative is asked for, and no rule is written.\n"
                f"  Write @staticmethod def backward(ctx, *cotangents), which returns a gradient "
                f"for each argument;\n"
                f"  or @staticmethod def jvp(ctx, *tangents), which returns a tangent for each "
                f"output."
            )
        self.parameters = Parameters(self.forward, self.old)

    def form(self, parts: Parts) -> Form:
        """Returns what is known of calls with arguments that differ from these in arrays alone."""
        key = parts.key
        found = self._forms.get(key)
        if found is None:
            found = Form()
            if all(map(has_hash, parts.statics)):  # else the key is one for as long as they live
                if len(self._forms) >= _FORMS:
                    self._forms = {}
                found = self._forms.setdefault(key, found)
        return found

    @functools.cached_property
    def asks_needs(self) -> bool:
        """Whether one of the methods reads `ctx.needs_input_grad`."""
        return any(map(asks_needs, self._written))

    @functools.cached_property
    def marks_dirty(self) -> bool:
        """Whether what computes the results calls `ctx.mark_dirty`."""
        return _names(self.forward, "mark_dirty") or _names(self.setup_context, "mark_dirty")

    @property
    def rules(self) -> list[Any]:
        """The methods that give derivatives."""
        return [method for method in (self.backward, self.jvp) if method is not None]

    def traced(self) -> list[Any]:
        """Returns the functions that may be traced."""
        all_ = (self.forward, self.setup_context, self.backward, self.jvp, self.vmap)
        return [method for method in all_ if method is not None]

    def call(
        self, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sets_up: bool = True
    ) -> Any:
        """Calls `forward`, and `setup_context` where it is to be; returns the output."""
        if self.old:
            return self.forward(ctx, *args, **kwargs)
        output = self.forward(*args, **kwargs)
        if sets_up:
            self.setup_context(ctx, args, output)
        return output

    def unfit(self, error: TypeError, count: int) -> RuleError:
        """Returns the error for so many arguments that are not those of `forward`."""
        hint, known = "", self.parameters.signature
        if self.old and known is not None and len(known.parameters) < count:
            hint = (
                "\n  Without setup_context, forward takes a context in front: write "
                "forward(ctx, x, ...);\n"
                "  or write @staticmethod def setup_context(ctx, inputs, output) as well."
            )
        return RuleError(
            f"{self.name}.apply: the arguments are not those of forward: {error}.\n"
            f"  forward{inspect.signature(self.forward)}, defined at {defined(self.forward)}{hint}"
        )

    def not_returned(self, value: Any) -> RuleError:
        """Returns the error for an input that is marked as dirty, and is not among the results."""
        return RuleError(
            f"{self.name}: an input is marked as dirty, and is not returned.\n"
            f"  input: {type_of(value)}\n  it is defined at {defined(self.forward)}\n"
            f"  Return it from forward, itself and not a copy: return x."
        )

    def no_input(self) -> RuleError:
        """Returns the error for what is marked as dirty, and was not passed."""
        return RuleError(
            f"{self.name}: mark_dirty was given what is no input of forward.\n"
            f"  it is defined at {defined(self.forward)}\n"
            f"  Mark what was passed to it, no copy or view; of rank zero write x[...] = value."
        )

    def check_alone(self, dirty: Sequence[int], values: Sequence[Any]) -> None:
        """Raises where inputs that are marked as dirty share memory with others."""
        for i in dirty:
            if any(shares(values[i], x) for j, x in enumerate(values) if j != i):
                raise RuleError(
                    f"{self.name}: an input is marked as dirty, and shares memory with another.\n"
                    f"  input: {type_of(values[i])}\n"
                    f"  it is defined at {defined(self.forward)}\n"
                    f"  Pass a copy of one of them: x.copy()."
                )

    def check_written(self, marked: Sequence[bool]) -> None:
        """Raises where `forward` has written to what is not marked."""
        if not all(marked):
            raise RuleError(
                f"{self.name}.forward: it writes into an argument, and does not say so.\n"
                f"  it is defined at {defined(self.forward)}\n"
                f"  Write into a copy, x = np.array(x); or mark the argument, ctx.mark_dirty(x), "
                f"and return it."
            )


class Parameters:
    """Is how a function takes its arguments, in front of which a context may be passed.

    Attributes:
        signature: without the context; None where it is not known.
        names: those of the positional parameters.
        positional: how many positional arguments need no binding; None for any number.
    """

    positional: int | None = None

    def __init__(self, function: Any, with_context: bool = False):
        self._made_of = function, with_context, _facts_of(function)
        self.signature: inspect.Signature | None = None
        self.names: tuple[str, ...] = ()
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return
        found = list(signature.parameters.values())
        if with_context and found and found[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            found = found[1:]
        self.signature = signature.replace(parameters=found)
        self.names = tuple([p.name for p in found if p.kind in _POSITIONAL])
        kinds = {p.kind for p in found} - {inspect.Parameter.VAR_KEYWORD}
        if kinds != {inspect.Parameter.VAR_POSITIONAL}:
            # what takes some and any number, or keyword-only defaults, is bound at each call
            self.positional = len(self.names) if kinds <= _POSITIONAL else -1

    def bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], unfit: Callable[..., RuleError]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional arguments with defaults, and those that are keyword-only.

        What does not fit is the error that `unfit` makes of the function's own and their number.
        """
        known = not kwargs and self.positional in (None, len(args))
        if known or self.signature is None:
            return args, kwargs
        function, with_context, facts = self._made_of
        now = _facts_of(function)
        if len(now) != len(facts) or not all(map(operator.is_, now, facts)):
            self.__init__(function, with_context)  # it was changed in place
        try:
            found = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise unfit(error, len(args) + len(kwargs)) from None
        found.apply_defaults()
        return found.args, found.kwargs


def _facts_of(function: Any) -> tuple[Any, ...]:
    """Returns what the signature of a function is made of, as it is now."""
    written = inspect.unwrap(function)
    named = getattr(written, "__kwdefaults__", None) or {}
    code, defaults = getattr(written, "__code__", None), getattr(written, "__defaults__", None)
    return code, defaults, *named, *named.values()


_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


def asks_needs(function: Any) -> bool:
    """Tells whether the code of a method reads `ctx.needs_input_grad`; None is no method."""
    return _names(function, "needs_input_grad")


def _names(function: Any, name: str) -> bool:
    """Tells whether the code of a function names something, or what it wraps does."""
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None and _code_names(code, name):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


@functools.lru_cache(maxsize=1024)
def _code_names(code: CodeType, name: str) -> bool:
    return name in names_in(code)
