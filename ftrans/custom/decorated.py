"""What the decorators share: a function with a rule, and one call of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.custom.batching import DecoratedBatch, closed_over
from ftrans.custom.fit import fit
from ftrans.custom.guards import Guards, Ruled, guards_of
from ftrans.custom.recording import record, staged_for_jax
from ftrans.custom.remembered import Memory
from ftrans.custom.surroundings import Surroundings
from ftrans.custom.tracing import Author
from ftrans.errors import RuleError
from ftrans.external.captures import defined
from ftrans.func.staging import name_of, named
from ftrans.ir import Tracer, is_tracing, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar, is_weak
from ftrans.primitives.axes import zeros
from ftrans.pytree import Parts, describe
from ftrans.runtime.jaxlink import foreign
from ftrans.traceback import LIBRARIES, boundary


def _is_number(x: Any) -> bool:
    """Tells whether a leaf is an array, or a Python number that may have a derivative."""
    return is_array(x) or (is_scalar(x) and isinstance(x, (float, complex)))


_LIBRARIES = LIBRARIES | {"scipy"}


def _signature_of(function: Any) -> tuple[inspect.Signature | None, int]:
    """Returns the signature, and the number of arguments that need no binding; -1 for any."""
    written = inspect.unwrap(function)
    while isinstance(written, functools.partial):
        written = written.func
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None, -1
    module = (getattr(written, "__module__", None) or "").partition(".")[0]
    if not inspect.isroutine(written) or inspect.isbuiltin(written) or module in _LIBRARIES:
        return signature, -1  # the defaults of library functions are their own
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return signature, -1
    return signature, len(kinds) - kinds.count(inspect.Parameter.KEYWORD_ONLY)


_DEFINE = ("defvjp", "defjvp", "defjvps", "def_vmap")


class Decorated(Ruled):
    """Is a function with a rule: what the three decorators share.

    Args:
        function: what it computes.
        nondiff_argnums: arguments that are passed to the rule apart, and have no derivative.
        nondiff_argnames: more of them, by their names.
    """

    _kind = ""
    lasting = False
    own = frozenset(
        {
            *("function", "nondiff_argnums", "memory", "_signature", "_count", "_checked"),
            *("fwd", "bwd", "rule", "_vmap"),
            *functools.WRAPPER_ASSIGNMENTS,
            *("__wrapped__", "__ftrans_name__"),
        }
    )

    def __init__(
        self,
        function: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ):
        if not callable(function):
            raise RuleError(f"{self._kind}: it takes a function.\n  given: {describe(function)}")
        copied = () if isinstance(function, Decorated) else functools.WRAPPER_UPDATES
        functools.update_wrapper(self, function, updated=copied)
        named(self, name_of(function))  # type: ignore[type-var]
        self.function = function
        self.nondiff_argnums = (
            (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        )
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else nondiff_argnames
        self.memory = Memory()
        self._signature, self._count = _signature_of(function)
        self.nondiff_argnums += tuple([self._number_of(name) for name in names])

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        # as a method, it is bound as functions are
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        # what another decorator below this one has
        if name in _DEFINE and isinstance(self.__dict__.get("function"), Decorated):
            return getattr(self.function, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{self._kind} {name_of(self.function)}>"

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function; inside a transform, records it with its rule."""
        self._check()
        args = self._positional(args, kwargs)
        count = len(args)
        apart = {n % count for n in self.nondiff_argnums if -count <= n < count}
        parts = Parts([x for i, x in enumerate(args) if i not in apart], _is_number)
        fixed = [x for i, x in enumerate(args) if i in apart]
        if not any(type(x) is Tracer for x in parts.values):
            if is_tracing() or not foreign(parts.values):
                return self.function(*args)
            return self._for_jax(parts, fixed, apart)
        return DecoratedCall(self, parts, fixed, apart).record()

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        signature = self._signature
        if not kwargs and (signature is None or len(args) == self._count or self._count < 0):
            return args
        if signature is None:
            raise RuleError(
                f"{name_of(self.function)}: its arguments have no names that are known.\n"
                f"  keywords: {', '.join(kwargs)}\n  Pass them by position."
            )
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RuleError(f"{name_of(self.function)}: {error}.") from None
        if bound.kwargs:
            raise RuleError(
                f"{name_of(self.function)}: a function with a rule takes no keyword-only "
                f"arguments, since the rule is given positional ones.\n"
                f"  keyword-only: {', '.join(bound.kwargs)}\n  Make them positional."
            )
        bound.apply_defaults()
        return bound.args

    def _number_of(self, name: str) -> int:
        names = [] if self._signature is None else list(self._signature.parameters)
        if name not in names:
            raise RuleError(
                f"{name_of(self.function)}: nondiff_argnames names what is no argument.\n"
                f"  name: {name!r}\n  arguments: {', '.join(names)}"
            )
        return names.index(name)

    def _for_jax(self, parts: Parts, fixed: list[Any], apart: set[int]) -> Any:
        def call(*tracers: Any) -> Any:
            given = Parts(parts.build(tracers), _is_number)
            return DecoratedCall(self, given, fixed, apart).record()

        return staged_for_jax(name_of(self.function), call, parts.values)

    # what the subclasses say

    def _check(self) -> None:
        """Raises where the rule is not defined yet."""

    def _forward(self, call: DecoratedCall, args: tuple[Any, ...], ruled: bool) -> Any:
        """Computes the result; `ruled` says whether the rules will be used."""
        return self.function(*args)

    _backward: Any = None
    _jvp: Any = None
    _vmap: Any = None


class DecoratedCall(Author):
    """Is one call of a decorated function inside a traced one: the author of what is recorded.

    Attributes:
        failure: what `fwd` raised, or None.
    """

    failure: Exception | None = None

    def __init__(self, decorated: Decorated, parts: Parts, fixed: list[Any], apart: set[int]):
        self.decorated = decorated
        self.memory = decorated.memory
        self.name = name_of(decorated.function)
        self.parts = parts
        self.fixed = fixed
        self.apart = apart
        self.has_backward = decorated._backward is not None
        self.has_jvp = decorated._jvp is not None
        self.calls_itself = self.has_backward  # fwd may call the function
        self.lasting = decorated.lasting

    @property
    def lasting_key(self) -> Any:
        """What calls that are like one another have in common, see `Author.lasting_key`."""
        fixed = Parts(self.fixed)
        if not (self.parts.is_constant and fixed.is_constant):
            return None
        return self.decorated.traced(), self.parts.key, fixed.key, tuple(self.apart)

    def guards(self) -> Guards | None:
        """Returns what the functions read, see `Author.guards`."""
        found = guards_of(self.decorated.traced()) if self.output.is_constant else None
        return None if found is None or found.asks_needs else found

    def kept(self) -> dict[str, Any]:
        """Returns what `forward` has left on the call."""
        return {"output": self.output.template()}

    def record(self) -> Any:
        """Records the call; returns what the function returned, with traced values in it."""
        results = record(self, self.parts.values)
        (output,) = self.output.build(results)
        return output

    def arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns all positional arguments, with these values in the place of the arrays."""
        moving, fixed = iter(self.parts.build(values)), iter(self.fixed)
        count = len(self.parts) + len(self.fixed)
        return tuple([next(fixed) if i in self.apart else next(moving) for i in range(count)])

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Traces the function."""
        self.primals = inputs
        output = self.decorated._forward(self, self.arguments(inputs), ruled)
        self.output = results_of(output)
        self.types = [type_of(x).update() for x in self.output.values]
        self.inputs = [type_of(as_array(x)).update() for x in inputs]
        self.weak = [is_weak(x) for x in inputs]
        return self.output.values

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents."""
        return tuple([t.is_inexact for t in self.types])

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Calls the rule; see `Author.backward`."""
        pairs = zip(cotangents, self.types, strict=True)
        (ct,) = self.output.alone([zeros(t) if x is None else x for x, t in pairs])
        return self.decorated._backward(self, ct)

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Calls the rule; see `Author.jvp`."""
        return self.decorated._jvp(self, tangents)

    def batch(self, around: Surroundings, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Returns the author's rule for batches, if there is one, and what it closes over."""
        rule = self.decorated._vmap
        if rule is None:
            return None, ()
        made = DecoratedBatch(
            f"{self.name}.def_vmap",
            rule,
            self.parts.template(),
            self.output.template(),
            False,
            self.types,
            around.order,
            None if self.lasting_key is None else self.guards(),
            None,
        )
        made.trace_at_call(values)
        return made, closed_over(rule)

    def fitted(self, label: str, found: Any, function: Any) -> list[Any]:
        """Returns what a rule returned for the result as one tangent for each array in it."""
        where = f"{self.name}: the {label} ({defined(function)})"
        flat = self.output.split(lambda: where, (found,))
        return [
            None if dot is None or not t.is_inexact else fit(where, dot, t, "the result")
            for dot, t in zip(flat, self.types, strict=True)
        ]


def results_of(output: Any) -> Parts:
    """Returns what a function returned, with Python numbers made arrays."""
    return Parts((tree.tree_map(lambda x: as_array(x) if is_scalar(x) else x, output),), is_array)
