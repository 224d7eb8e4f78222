"""One call of a decorated function inside a traced one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.custom.batching import DecoratedBatch
from ftrans.custom.guards import Guards, guards_of
from ftrans.custom.recording import record
from ftrans.custom.rule import chosen, fit
from ftrans.custom.tracing import Author
from ftrans.errors import RuleError
from ftrans.external.captures import defined
from ftrans.func.staging import name_of, rule_frame
from ftrans.ir import Tracer, type_of
from ftrans.ir.stack import Asks
from ftrans.numpy.promotion import as_array, is_array, is_scalar, is_weak
from ftrans.numpy.views import fresh
from ftrans.primitives import stop_gradient_p
from ftrans.primitives.axes import zeros
from ftrans.pytree import Parts, describe, mapped


class DecoratedCall(Author):
    """Is one call of a decorated function, as the author of what is recorded.

    Args:
        decorated: the function with its rules.
        args: the arguments, all of them positional.

    Attributes:
        parts: those that may have derivatives.
        fixed: the others, in order.
        apart: where these stand among the arguments.
    """

    is_tuple = False
    failure: Exception | None = None
    """What `fwd` raised."""

    def __init__(self, decorated: Any, args: tuple[Any, ...]):
        count = len(args)
        apart = {n % count for n in decorated.nondiff_argnums if -count <= n < count}
        self.parts = Parts([x for i, x in enumerate(args) if i not in apart], is_number)
        self.fixed = [mapped(_held, x) for i, x in enumerate(args) if i in apart]
        self.apart = apart
        self.decorated = decorated
        self.memory = decorated.memory
        self.name = name_of(decorated.function)
        self.has_backward = decorated.bwd is not None
        self.has_jvp = decorated.rule is not None
        self.calls_itself = decorated.fwd is not None  # which may call the function
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
        return found if found and not found.asks_needs else None

    def kept(self) -> dict[str, Any]:
        """Returns what `forward` has left on the call."""
        return {"output": self.output.template()}

    def record(self, *values: Any) -> Any:
        """Records the call on these values; returns what the function returned, traced."""
        results = record(self, values)
        (output,) = self.output.build(results)
        return output

    def arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns all positional arguments, with these values in the place of the arrays."""
        moving, fixed = iter(self.parts.build(values)), iter(self.fixed)
        count = len(self.parts) + len(self.fixed)
        return tuple([next(fixed) if i in self.apart else next(moving) for i in range(count)])

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Traces the function, or `fwd` where the rules will be used."""
        self.primals = inputs
        self.inputs = [type_of(as_array(x)).update() for x in inputs]
        self.weak = [is_weak(x) for x in inputs]
        args = self.arguments(inputs)
        with_rule = ruled and self.has_backward
        output = self._by_fwd(args) if with_rule else self.decorated.function(*args)
        self.output = _results_of(output)
        self.types = [type_of(x).update() for x in self.output.values]
        return self.output.values

    def _by_fwd(self, args: tuple[Any, ...]) -> Any:
        fwd = self.decorated.fwd
        try:
            found = self.decorated.run_forward(args)
        except Exception as error:
            # as of every rule, where its result is needed, which may be nowhere
            self.failure = error
            return self.decorated.function(*args)
        if not _is_pair(found):
            raise RuleError(
                f"{self.name}: fwd must return two things, the result and the residuals.\n"
                f"  returned: {describe(found)}\n  it is defined at {defined(fwd)}\n"
                f"  Write return out, residuals."
            )
        output, self.residuals = found
        if fwd is not None:
            self._check_like(args, output)
        return output

    def _check_like(self, args: tuple[Any, ...], output: Any) -> None:
        """Raises where fwd does not return what the function does; asked once for each types."""
        parts = _results_of(output)
        shape = (parts.key, tuple([type_of(x).update() for x in parts.values]))
        key = (self.parts.key, tuple(self.inputs), shape)
        if key in self.decorated.checked:
            return
        with rule_frame(self.name, (), closed=True):  # it is no part of what fwd records
            expected = _results_of(self.decorated.function(*args))
        types = tuple([type_of(x).update() for x in expected.values])
        if (expected.key, types) != shape:
            raise RuleError(
                f"{self.name}: fwd does not return the result that the function returns.\n"
                f"  fwd: {describe(output)}\n  the function: {expected.build(types)[0]!r}\n"
                f"  fwd is defined at {defined(self.decorated.fwd)}\n  Write return out, residuals."
            )
        self.decorated.checked.add(key)

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents."""
        return tuple([t.is_inexact for t in self.types])

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Calls `bwd`; see `Author.backward`."""
        if self.failure is not None:
            raise self.failure
        bwd, pairs = self.decorated.bwd, zip(cotangents, self.types, strict=True)
        (ct,) = self.output.alone([zeros(t) if x is None else x for x, t in pairs])
        found = self.decorated.run_backward(self.fixed, tree.tree_map(fresh, self.residuals), ct)
        where = f"{self.name}: what {self.decorated.bwd_name} ({defined(bwd)}) returns"
        if not isinstance(found, (tuple, list)) or len(found) != len(self.parts):
            found = tuple(found) if isinstance(found, list) else found
            raise RuleError(
                f"{where} must be a tuple with one cotangent for each argument.\n"
                f"  expected {len(self.parts)}, got {describe(found)}\n"
                f"  Return None for an argument that has no cotangent."
            )
        given = zip(self.parts.split(lambda: where, found), self.inputs, self.weak, strict=True)
        return [
            None
            if x is None or not t.is_inexact
            else fit(f"{where}, number {i}", chosen(x, t) if weak else x, t, "the argument")
            for i, (x, t, weak) in enumerate(given)
        ]

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Calls the rule; see `Author.jvp`."""
        rule = self.decorated.rule
        primals = self.parts.build([fresh(x) for x in self.primals])
        found = rule(*self.fixed, primals, self.parts.alone(tangents))
        if not _is_pair(found) or (found[1] is None and any(t.is_inexact for t in self.types)):
            raise RuleError(
                f"{self.name}: its rule must return two things, the result and its tangent.\n"
                f"  returned: {describe(found)}\n  it is defined at {defined(rule)}\n"
                f"  Write return out, tangent_out."
            )
        where = f"{self.name}: the result that its rule returns ({defined(rule)})"
        pairs = zip(self.output.split(lambda: where, (found[0],)), self.types, strict=True)
        self.rule_outs = [fit(where, x, t, "what the function returns") for x, t in pairs]
        where = f"{self.name}: the tangent that its rule returns ({defined(rule)})"
        pairs = zip(self.output.split(lambda: where, (found[1],)), self.types, strict=True)
        return [
            None if dot is None or not t.is_inexact else fit(where, dot, t, "the result")
            for dot, t in pairs
        ]

    def batch(self, around: Asks, values: Sequence[Any]) -> Any:
        """Returns the author's rule for batches, if there is one."""
        rule = self.decorated.vmap_rule
        if rule is None:
            return None
        return DecoratedBatch(self, self.decorated.vmap_name, rule, around).at_call(values)


def is_number(x: Any) -> bool:
    """Tells whether a leaf is an array, or a Python number that may have a derivative."""
    return is_array(x) or (is_scalar(x) and isinstance(x, (float, complex)))


def _is_pair(found: Any) -> bool:
    return isinstance(found, (tuple, list)) and len(found) == 2


def _held(x: Any) -> Any:
    """Returns a value that no derivative goes through, also where the function computes with it."""
    return stop_gradient_p(x) if type(x) is Tracer and x.type.is_inexact else x


def _results_of(output: Any) -> Parts:
    """Returns what a function returned, with Python numbers made arrays."""
    return Parts((mapped(lambda x: as_array(x) if is_scalar(x) else x, output),), is_array)
