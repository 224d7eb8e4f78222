"""`custom_vjp`, `custom_jvp` and `custom_vmap`: rules for functions, in JAX's spelling.

Complex derivatives follow PyTorch's convention, as everywhere in ftrans. Derivatives of derivatives
are those of the code of the rule, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.custom.decorated import Decorated, DecoratedCall, results_of
from ftrans.custom.fit import chosen, fit
from ftrans.errors import MissingRuleError, RuleError, UnsupportedError
from ftrans.external.captures import defined
from ftrans.func.staging import name_of, rule_frame
from ftrans.ir import type_of
from ftrans.numpy.promotion import as_array
from ftrans.numpy.views import fresh
from ftrans.primitives import add_p
from ftrans.primitives.axes import zeros
from ftrans.pytree import Parts, describe


def _described(parts: Parts, types: Sequence[Any]) -> str:
    (found,) = parts.build(types)
    return repr(found)


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

    _kind = "custom_vjp"
    fwd: Any = None
    bwd: Any = None

    def __init__(
        self,
        function: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ):
        super().__init__(function, nondiff_argnums, nondiff_argnames)
        self._checked: set[Any] = set()

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
        self._checked.clear()

    def _check(self) -> None:
        if self.bwd is None:
            raise MissingRuleError(
                f"{name_of(self.function)}: its rule is not defined.\n"
                f"  Write {name_of(self.function)}.defvjp(fwd, bwd) before it is called."
            )

    def traced(self) -> tuple[Any, ...]:
        """Returns the functions that may be traced."""
        return self.function, self.fwd, self.bwd

    def _forward(self, call: DecoratedCall, args: tuple[Any, ...], ruled: bool) -> Any:
        if not ruled:
            return self.function(*args)
        try:
            found = self.fwd(*args)
        except Exception as error:
            # as of every rule, where its result is needed, which may be nowhere
            call.failure = error
            return self.function(*args)
        if not (isinstance(found, (tuple, list)) and len(found) == 2):
            raise RuleError(
                f"{call.name}: fwd must return two things, the result and the residuals.\n"
                f"  returned: {describe(found)}\n  it is defined at {defined(self.fwd)}\n"
                f"  Write return out, residuals."
            )
        output, call.residuals = found  # type: ignore[attr-defined]
        self._check_like(call, args, output)
        return output

    def _check_like(self, call: DecoratedCall, args: tuple[Any, ...], output: Any) -> None:
        """Raises where fwd does not return what the function does; asked once for each types."""
        parts = results_of(output)
        shape = (parts.key, tuple([type_of(x).update() for x in parts.values]))
        key = (call.parts.key, tuple([type_of(as_array(x)).update() for x in call.primals]), shape)
        if key in self._checked:
            return
        with rule_frame(call.name, (), closed=True):  # it is no part of what fwd records
            expected = results_of(self.function(*args))
        types = tuple([type_of(x).update() for x in expected.values])
        if (expected.key, types) != shape:
            raise RuleError(
                f"{call.name}: fwd does not return the result that the function returns.\n"
                f"  fwd: {describe(output)}\n  the function: {_described(expected, types)}\n"
                f"  fwd is defined at {defined(self.fwd)}\n  Write return out, residuals."
            )
        self._checked.add(key)

    def _backward(self, call: DecoratedCall, ct: Any) -> Sequence[Any]:  # type: ignore[override]
        if call.failure is not None:
            raise call.failure
        residuals = tree.tree_map(fresh, call.residuals)  # type: ignore[attr-defined]
        found = self.bwd(*call.fixed, residuals, ct)
        where = f"{call.name}: what bwd ({defined(self.bwd)}) returns"
        if isinstance(found, list):
            found = tuple(found)
        if not isinstance(found, tuple) or len(found) != len(call.parts):
            raise RuleError(
                f"{where} must be a tuple with one cotangent for each argument.\n"
                f"  expected {len(call.parts)}, got {describe(found)}\n"
                f"  Return None for an argument that has no cotangent."
            )
        flat = call.parts.split(lambda: where, found)
        given = zip(flat, call.inputs, call.weak, strict=True)
        return [
            None
            if x is None or not t.is_inexact
            else fit(f"{where}, number {i}", chosen(x, t, weak), t, "the argument")
            for i, (x, t, weak) in enumerate(given)
        ]


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

    _kind = "custom_jvp"
    rule: Any = None

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
            total = None
            for one, tangent in zip(rules, tangents, strict=True):
                if one is None or tangent is None:
                    continue
                part = one(tangent, out, *primals)
                total = part if total is None else tree.tree_map(_add, total, part)
            if total is None:
                total = tree.tree_map(lambda x: zeros(type_of(as_array(x)).update()), out)
            return out, total

        self.rule = rule

    def _check(self) -> None:
        if self.rule is None:
            raise MissingRuleError(
                f"{name_of(self.function)}: its rule is not defined.\n"
                f"  Write @{name_of(self.function)}.defjvp above the rule, before it is called."
            )

    def traced(self) -> tuple[Any, ...]:
        """Returns the functions that may be traced."""
        return self.function, self.rule

    def _jvp(self, call: DecoratedCall, tangents: Sequence[Any]) -> Sequence[Any]:  # type: ignore[override]
        primals = call.parts.build([fresh(x) for x in call.primals])
        found = self.rule(*call.fixed, primals, call.parts.alone(tangents))
        if not (isinstance(found, (tuple, list)) and len(found) == 2) or (
            found[1] is None and any(t.is_inexact for t in call.types)
        ):
            raise RuleError(
                f"{call.name}: its rule must return two things, the result and its tangent.\n"
                f"  returned: {describe(found)}\n  it is defined at {defined(self.rule)}\n"
                f"  Write return out, tangent_out."
            )
        where = f"{call.name}: the result that its rule returns ({defined(self.rule)})"
        outs = call.output.split(lambda: where, (found[0],))
        pairs = zip(outs, call.types, strict=True)
        call.rule_outs = [fit(where, x, t, "what the function returns") for x, t in pairs]
        return call.fitted("tangent that its rule returns", found[1], self.rule)


def _add(x: Any, y: Any) -> Any:
    return add_p(as_array(x), as_array(y))


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

    _kind = "custom_vmap"
    lasting = True

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Defines the rule, `(axis_size, in_batched, *args) -> (out, out_batched)`.

        Args:
            rule: is given mapped arguments with the mapped axis in front, and for each argument a
                pytree of booleans that says what is mapped; returns the result, and the same of it.
        """
        self._vmap = rule
        return rule

    def traced(self) -> tuple[Any, ...]:
        """Returns the functions that may be traced."""
        return self.function, self._vmap

    def _check(self) -> None:
        if self._vmap is None:
            raise MissingRuleError(
                f"{name_of(self.function)}: its rule is not defined.\n"
                f"  Write @{name_of(self.function)}.def_vmap above the rule, before it is called."
            )
