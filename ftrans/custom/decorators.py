"""`custom_vjp`, `custom_jvp` and `custom_vmap`: rules for functions, in JAX's spelling.

Complex derivatives follow PyTorch's convention, as everywhere in ftrans. Derivatives of derivatives
are those of the code of the rule, as in JAX.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.custom.decorated_call import DecoratedCall, is_number
from ftrans.custom.guards import Ruled
from ftrans.custom.methods import Parameters
from ftrans.custom.recording import staged_for_jax
from ftrans.custom.reuse import Memory
from ftrans.errors import MissingRuleError, RuleError, UnsupportedError
from ftrans.func.staging import name_of, named
from ftrans.ir import ArrayType, Tracer, is_tracing, type_of
from ftrans.numpy.promotion import as_array
from ftrans.primitives import add_p
from ftrans.primitives.axes import zeros
from ftrans.pytree import Parts, describe
from ftrans.runtime.jaxlink import foreign
from ftrans.traceback import LIBRARIES, boundary

_LIBRARIES = LIBRARIES | {"scipy"}
_DEFINE = ("defvjp", "defjvp", "defjvps", "def_vmap")


class Decorated(Ruled):
    """Is a function with a rule: what the three decorators share.

    Args:
        function: what it computes.
        nondiff_argnums: arguments that are passed to the rule apart, and have no derivative.
        nondiff_argnames: more of them, by their names.

    Attributes:
        fwd: the rules, and so are the following; None where they are not defined.
        bwd: see `fwd`; without it, `bwd` takes arguments, result and cotangent, as for `external`.
        rule: see `fwd`.
        vmap_rule: see `fwd`.
        bwd_name: how errors call `bwd`.
        vmap_name: how errors call `vmap_rule`.
        written: what the user wrote of all that is traced; empty where that is all of it.
        lasting: as of `Author`.
        checked: the types for which `fwd` returns what the function does.
    """

    fwd: Any = None
    bwd: Any = None
    rule: Any = None
    vmap_rule: Any = None
    bwd_name = "bwd"
    vmap_name = "def_vmap"
    written: tuple[Any, ...] = ()
    lasting = False
    own = frozenset(
        {
            *("function", "nondiff_argnums", "memory", "checked", "_parameters"),
            *("fwd", "bwd", "rule", "vmap_rule", "written"),
            *functools.WRAPPER_ASSIGNMENTS,
            *("__wrapped__", "__ftrans_name__"),
        }
    )
    _define = ""

    def __init__(
        self,
        function: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ):
        if not callable(function):
            raise RuleError(
                f"{type(self).__name__}: it takes a function.\n  given: {describe(function)}"
            )
        copied = () if isinstance(function, Decorated) else functools.WRAPPER_UPDATES
        functools.update_wrapper(self, function, updated=copied)
        named(self, name_of(function))  # type: ignore[type-var]
        self.function = function
        self.memory = Memory()
        self.checked: set[Any] = set()
        self._parameters = _parameters(function)
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else nondiff_argnums
        names = (nondiff_argnames,) if isinstance(nondiff_argnames, str) else nondiff_argnames
        self.nondiff_argnums = (*numbers, *map(self._number_of, names))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        # as a method, it is bound as functions are
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        # what another decorator below this one has
        if name in _DEFINE and isinstance(self.__dict__.get("function"), Decorated):
            return getattr(self.function, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {name_of(self.function)}>"

    def traced(self) -> tuple[Any, ...]:
        """Returns the functions that may be traced."""
        all_ = (self.function, self.fwd, self.bwd, self.rule, self.vmap_rule)
        if self.written:
            inner = self.function.traced() if isinstance(self.function, Decorated) else ()
            all_ = (*self.written, *inner)
        return tuple([function for function in all_ if function is not None])

    def run_forward(self, args: tuple[Any, ...]) -> Any:
        """Returns the result and the residuals; without `fwd`, these are arguments and result."""
        if self.fwd is not None:
            return self.fwd(*args)
        output = self.function(*args)
        return output, (args, output)

    def run_backward(self, fixed: Sequence[Any], residuals: Any, ct: Any) -> Any:
        """Returns what `bwd` returns; without `fwd`, one cotangent may stand alone."""
        if self.fwd is not None:
            return self.bwd(*fixed, residuals, ct)
        args, output = residuals
        found = self.bwd(args, output, ct)
        return found if len(args) != 1 or isinstance(found, (tuple, list)) else (found,)

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function; inside a transform, records it with its rule."""
        if self.bwd is None and self.rule is None and self.vmap_rule is None:
            raise MissingRuleError(
                f"{name_of(self.function)}: its rule is not defined.\n"
                f"  Write {self._define.format(name_of(self.function))} it is called."
            )
        args = self._positional(args, kwargs)
        call = DecoratedCall(self, args)
        values = call.parts.values
        if any(type(x) is Tracer for x in values):
            return call.record(*values)
        if is_tracing() or not foreign(values):
            return self.function(*call.arguments(values))
        return staged_for_jax(call.name, call.record, values)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if kwargs and self._parameters.signature is None:
            raise RuleError(
                f"{name_of(self.function)}: its arguments have no names that are known.\n"
                f"  keywords: {', '.join(kwargs)}\n  Pass them by position."
            )
        args, named = self._parameters.bound(
            args, kwargs, lambda error, _: RuleError(f"{name_of(self.function)}: {error}.")
        )
        if kwargs and (passed := [name for name in named if name in kwargs]):
            raise RuleError(
                f"{name_of(self.function)}: a function with a rule takes no keyword-only "
                f"arguments, since the rule is given positional ones.\n"
                f"  keyword-only: {', '.join(passed)}\n  Make them positional."
            )
        return args

    def _number_of(self, name: str) -> int:
        signature = self._parameters.signature
        names = [] if signature is None else list(signature.parameters)
        if name not in names:
            raise RuleError(
                f"{name_of(self.function)}: nondiff_argnames names what is no argument.\n"
                f"  name: {name!r}\n  arguments: {', '.join(names)}"
            )
        return names.index(name)


def _parameters(function: Any) -> Parameters:
    """Returns how a function takes its arguments; the defaults of libraries are their own."""
    found = Parameters(function)
    written = inspect.unwrap(function)
    while isinstance(written, functools.partial):
        written = written.func
    module = (getattr(written, "__module__", None) or "").partition(".")[0]
    if not inspect.isroutine(written) or inspect.isbuiltin(written) or module in _LIBRARIES:
        found.positional = None
    return found


class custom_vjp(Decorated):
    """Gives a function a rule for reverse mode; all other transforms are derived from it.

    Args:
        function: takes and returns pytrees of arrays; other arguments are static.
        nondiff_argnums: arguments without a derivative, which `bwd` is given in front.
        nondiff_argnames: more of them, by their names.

    Example:
        >>> @custom_vjp
        ... def log1pexp(x):
        ...     return fnp.log(1.0 + fnp.exp(x))
        >>> def fwd(x):
        ...     return log1pexp(x), x
        >>> def bwd(x, ct):
        ...     return (ct * fnp.sigmoid(x),)
        >>> log1pexp.defvjp(fwd, bwd)
        >>> import ftrans.numpy as fnp
        >>> from ftrans import func
        >>> float(func.grad(log1pexp)(0.0)), float(func.grad(func.grad(log1pexp))(0.0))
        (0.5, 0.25)

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.custom_vjp.html
    """

    _define = "{}.defvjp(fwd, bwd) before"

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Defines the rule.

        Args:
            fwd: takes the arguments of the function; returns `(out, residuals)`.
            bwd: takes the residuals and the cotangent of `out`; returns a tuple with a cotangent,
                or None, for each argument.
            symbolic_zeros: must be False; None stands for zero in what `bwd` returns.
            optimize_remat: has no effect: what a program does not need it does not compute.
        """
        if symbolic_zeros:
            raise UnsupportedError(
                "defvjp: symbolic_zeros is not supported.\n"
                "  Leave it out: cotangents that are not needed are not computed."
            )
        self.fwd, self.bwd = fwd, bwd
        self.checked.clear()


class custom_jvp(Decorated):
    """Gives a function a rule for forward mode; all other transforms are derived from it.

    Args:
        function: takes and returns pytrees of arrays; other arguments are static.
        nondiff_argnums: arguments without a derivative, which the rule is given in front.
        nondiff_argnames: more of them, by their names.

    Example:
        >>> @custom_jvp
        ... def f(x, y):
        ...     return x * fnp.sin(y)
        >>> @f.defjvp
        ... def f_jvp(primals, tangents):
        ...     (x, y), (x_dot, y_dot) = primals, tangents
        ...     return f(x, y), fnp.sin(y) * x_dot + x * fnp.cos(y) * y_dot
        >>> import ftrans.numpy as fnp
        >>> from ftrans import func
        >>> float(func.grad(f)(2.0, 0.0)), float(func.grad(f, argnums=1)(2.0, 0.0))
        (0.0, 2.0)

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.custom_jvp.html
    """

    _define = "@{}.defjvp above the rule, before"

    def defjvp(self, rule: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Defines the rule, `(primals, tangents) -> (out, tangent_out)`; can be a decorator.

        Args:
            rule: takes the arguments as a tuple, and their tangents as another, in which None
                stands for what has none.
            symbolic_zeros: must be False.
        """
        if symbolic_zeros:
            raise UnsupportedError("defjvp: symbolic_zeros is not supported.\n  Leave it out.")
        self.rule = rule
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Defines the rule argument by argument: each `(tangent, out, *primals) -> tangent_out`.

        Args:
            rules: one for each argument; None where the result does not depend on it.
        """
        if self.nondiff_argnums:
            raise UnsupportedError(
                "defjvps: it does not take nondiff_argnums.\n  Write defjvp(rule) instead."
            )

        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
            if len(rules) != len(primals):
                raise RuleError(
                    f"{name_of(self.function)}: defjvps was not given one rule for each argument.\n"
                    f"  arguments: {len(primals)}, rules: {len(rules)}\n"
                    f"  None stands for an argument that the result does not depend on."
                )
            out = self(*primals)
            total, add = None, lambda x, y: add_p(as_array(x), as_array(y))
            for one, tangent in zip(rules, tangents, strict=True):
                if one is None or tangent is None:
                    continue
                part = one(tangent, out, *primals)
                total = part if total is None else tree.tree_map(add, total, part)
            if total is None:
                total = tree.tree_map(lambda x: zeros(type_of(as_array(x)).update()), out)
            return out, total

        self.rule = rule


class custom_vmap(Decorated):
    """Gives a function a rule for batches; its derivatives are those of the function.

    Args:
        function: takes and returns pytrees of arrays; other arguments are static.

    Example:
        >>> @custom_vmap
        ... def double(x):
        ...     return 2.0 * x
        >>> @double.def_vmap
        ... def double_many(axis_size, in_batched, x):
        ...     return x + x, in_batched[0]
        >>> import numpy as np
        >>> from ftrans import func
        >>> func.vmap(double)(np.arange(3.0))
        array([0., 2., 4.])
        >>> func.vmap(func.grad(double))(np.arange(3.0))
        array([2., 2., 2.])

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.custom_batching.custom_vmap.html
    """

    _define = "@{}.def_vmap above the rule, before"
    lasting = True

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Defines the rule, `(axis_size, in_batched, *args) -> (out, out_batched)`.

        Args:
            rule: is given mapped arguments with the mapped axis in front, and for each argument a
                pytree of booleans that says what is mapped; returns the result, and the same of it.
        """
        self.vmap_rule = rule
        return rule


def linear(function: Callable[..., Any], transpose: Callable[..., Any]) -> custom_jvp:
    """Returns a function that is linear in all arguments together, with its transpose as its rule.

    The transpose has the function as its own, and the other way round: so neither is ever
    differentiated, and both are traced no more than once for each order.

    Args:
        function: takes and returns pytrees of arrays.
        transpose: takes a cotangent of what the function returns; returns one for each argument.
    """
    backs: dict[Any, custom_jvp] = {}

    def pull(primals: tuple[Any, ...], out: Any, ct: Any) -> Any:
        parts, types = _parts_of(primals)
        key = parts.exact_key, types
        if len(backs) >= _BACKS:
            backs.clear()
        return (backs.get(key) or backs.setdefault(key, back_to(parts.template(), types)))(ct)

    def back_to(parts: Parts, types: Sequence[ArrayType]) -> custom_jvp:
        def back(ct: Any) -> Any:
            found = transpose(ct)
            return _filled(parts, types, found if isinstance(found, tuple) else (found,))

        pull_back = lambda primals, out, cts: (made(*cts),)  # noqa: E731
        return _linear(named(back, f"transpose({name_of(function)})"), pull_back, made.traced())

    made = _linear(function, functools.wraps(transpose)(pull), (transpose,))
    return made


_BACKS = 64
"""For how many types of arguments the transpose of a function is kept at most."""


def _linear(function: Any, pull: Any, written: tuple[Any, ...]) -> custom_jvp:
    """Returns a function with the rules of one that is linear."""

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        # nobody takes the first result, nor differentiates it: the rule lasts
        return function(*primals), made(*_filled(*_parts_of(primals), tangents))

    made = custom_jvp(function)
    made.lasting = True  # the function has no other derivative
    made.rule, made.bwd, made.bwd_name, made.written = rule, pull, "its transpose", written
    return made


def _parts_of(primals: tuple[Any, ...]) -> tuple[Parts, tuple[ArrayType, ...]]:
    parts = Parts(primals, is_number)
    return parts, tuple([type_of(as_array(x)).update() for x in parts.values])


def _filled(parts: Parts, types: Sequence[ArrayType], given: Any) -> Any:
    """Returns tangents or cotangents of such arguments with zeros in the place of None."""
    if len(given) != len(parts):
        return given  # which is an error where it is returned
    leaves = parts.split(lambda: "what its transpose returns", given)
    return parts.build([zeros(t) if v is None else v for v, t in zip(leaves, types, strict=True)])
