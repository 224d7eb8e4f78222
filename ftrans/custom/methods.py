"""What the class of a `Function` says of it: which methods there are, and their parameters."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any

from ftrans.custom.remembered import Memory
from ftrans.errors import MissingRuleError, RuleError
from ftrans.external.captures import defined

__all__ = ["Methods", "asks_needs", "methods_of"]


def methods_of(cls: Any) -> Methods:
    """Returns the methods of a subclass of `Function`, as they are now.

    Raises:
        MissingRuleError: where `forward` is missing.
        RuleError: where both names of `backward` are written.
    """
    forward = cls.forward
    given = (
        forward,
        cls.setup_context,
        cls.backward,
        cls.vjp,
        cls.jvp,
        cls.vmap,
        cls.generate_vmap_rule,
        cls.apply,
        # a function may be changed in place, as by who reloads a module
        getattr(forward, "__code__", None),
        getattr(forward, "__defaults__", None),
        tuple((getattr(forward, "__kwdefaults__", None) or {}).items()),
    )
    found = cls._ftrans_methods
    # a subclass finds those of its base
    if found is None or found.cls is not cls or found.given != given:
        found = cls._ftrans_methods = Methods(cls, given)
    return found


class Methods:
    """Is what a subclass of `Function` says.

    Args:
        cls: the class.
        given: its methods, in the order of `methods_of`.

    Attributes:
        name: that of the class.
        old: whether `forward` takes the context.
        forward: the method.
        setup_context: the method, and so are the following; None where it is not written.
        backward: which may be called `vjp`.
        backward_name: how it is called.
        jvp: see `setup_context`.
        vmap: see `setup_context`.
        generate_vmap_rule: as in the class.
        memory: what is remembered of calls, see `Author`.
        missing: the error where a derivative is asked for, and no rule is written; or None.
        guards: what the methods read, where none of them is opaque and all of it is understood.
    """

    guards: Any = None

    def __init__(self, cls: Any, given: tuple[Any, ...]):
        self.cls = cls
        self.given = given
        self.name = name = cls.__name__
        written = [None if hasattr(x, "__ftrans_default__") else x for x in given[:6]]
        self.forward: Any = written[0]
        self.setup_context: Any = written[1]
        backward, vjp, self.jvp, self.vmap = written[2:]
        self.generate_vmap_rule = given[6]
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
        self.missing = None
        if self.backward is None and self.jvp is None:
            self.missing = (
                f"{name}: a derivative is asked for, and no rule is written.\n"
                f"  Write @staticmethod def backward(ctx, *cotangents), which returns a gradient "
                f"for each argument;\n"
                f"  or @staticmethod def jvp(ctx, *tangents), which returns a tangent for each "
                f"output."
            )
        self._signature, self._count = _parameters(self.forward, self.old)

    @property
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

    def names(self) -> tuple[str, ...]:
        """Returns the names of the positional parameters of `forward`, as far as they have any."""
        if self._signature is None:
            return ()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple([p.name for p in self._signature.parameters.values() if p.kind in positional])

    def bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional arguments with defaults, and those that are keyword-only."""
        signature, count = self._signature, self._count
        if not kwargs and (len(args) == count or (count == -1 and signature is None)):
            return args, kwargs
        assert signature is not None
        try:
            found = signature.bind(*args, **kwargs)
        except TypeError as error:
            hint = ""
            if self.old and len(signature.parameters) < len(args) + len(kwargs):
                hint = (
                    "\n  Without setup_context, forward takes a context in front: write "
                    "forward(ctx, x, ...);\n"
                    "  or write @staticmethod def setup_context(ctx, inputs, output) as well."
                )
            raise RuleError(
                f"{self.name}.apply: the arguments are not those of forward: {error}.\n"
                f"  forward{inspect.signature(self.forward)}, defined at "
                f"{defined(self.forward)}{hint}"
            ) from None
        found.apply_defaults()
        return found.args, found.kwargs


def _parameters(forward: Any, with_context: bool) -> tuple[inspect.Signature | None, int]:
    """Returns the signature without the context, and the number of arguments that need no binding.

    That is -1 where any number does.
    """
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return None, -1
    parameters = list(signature.parameters.values())
    if with_context and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    signature = signature.replace(parameters=parameters)
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        return signature, -2
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return signature, -1
    return signature, sum(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters)


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
    return name in code.co_names or any(
        _code_names(const, name) for const in code.co_consts if isinstance(const, CodeType)
    )
