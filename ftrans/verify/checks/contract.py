"""The rule itself, called without a transform: what a transform tidies up, or cannot show.

A transform sums what backward should have summed, knows no memory layouts, and traces forward and
backward one right after the other. Here the methods are called on plain arrays, as an opaque rule
is. Where that does not give what the transform gives, nothing is concluded from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.tree_util as tree
import numpy as np

from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.decorators import custom_vjp
from ftrans.custom.function import Function
from ftrans.custom.rule import fit
from ftrans.ir import Tracer, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import Parts
from ftrans.verify.checks.linear import subsets
from ftrans.verify.coordinates import host, hosts, is_floating, with_gaps
from ftrans.verify.probe import Probe
from ftrans.verify.report import Findings

RETURNED = "what backward returns"
LAYOUT = "memory layouts of cotangents"
STATE = "state between calls"
NEEDS = "needs_input_grad"
NONE = "cotangents of None"

Arrays = Sequence[np.ndarray]


def is_function(rule: Any) -> bool:
    """Tells whether a rule is a `Function` class."""
    return isinstance(rule, type) and issubclass(rule, Function)


def backward_of(rule: Any) -> Any:
    """Returns the method of a `Function` or `custom_vjp` that is `backward`; None where none is."""
    if isinstance(rule, custom_vjp):
        return rule.bwd
    for name in ("backward", "vjp") if is_function(rule) else ():
        if getattr(rule, name) is not getattr(Function, name):
            return getattr(rule, name)
    return None


# ------------------------------------------------------------------------ what the context says


class Marks(NamedTuple):
    """What a `Function` says of itself on its context.

    Attributes:
        rigid: the numbers of the outputs that have no derivative.
        dirty: whether it writes to an input.
    """

    rigid: tuple[int, ...] = ()
    dirty: bool = False


def marks(rule: Any, args: Sequence[Any]) -> Marks:
    """Returns what a `Function` says of its outputs and inputs, by a call under a transform."""
    seen = [Marks()]
    if not is_function(rule):
        return seen[0]

    def note(ctx: FunctionCtx, output: Any) -> None:
        rigid = {key_of(x) for x in ctx._state.rigid}
        numbered = enumerate(_outputs(output).values)
        numbers = tuple(i for i, x in numbered if key_of(x) in rigid)
        seen.append(Marks(numbers, bool(ctx._state.dirty)))

    def set_up(ctx: FunctionCtx, inputs: Any, output: Any) -> None:
        rule.setup_context(ctx, inputs, output)
        note(ctx, output)

    def forward(ctx: FunctionCtx, *inputs: Any, **others: Any) -> Any:
        output = rule.forward(ctx, *inputs, **others)
        note(ctx, output)
        return output

    if rule.setup_context is Function.setup_context:
        forward.__signature__ = inspect.signature(rule.forward)  # type: ignore[attr-defined]
        spy = _spied(rule, forward=forward)
    else:
        spy = _spied(rule, setup_context=set_up)
    _ = Probe(spy.apply, args).leaves
    return seen[-1]


def _spied(rule: type, **methods: Any) -> Any:
    """Returns a class like `rule` with other methods."""
    return type(rule.__name__, (rule,), {k: staticmethod(v) for k, v in methods.items()})


def _outputs(output: Any) -> Parts:
    return Parts(output if isinstance(output, tuple) else (output,))


def check_returned(probe: Probe, findings: Findings, rule: type) -> None:
    """Looks at the shapes of the gradients of a `Function` before they are summed to the inputs'.

    Args:
        probe: of `rule.apply`.
        findings: takes what is found.
        rule: the class.
    """
    method, seen = backward_of(rule), []
    if not probe.is_differentiable:
        return

    def spied(ctx: Any, *cotangents: Any) -> Any:
        gradients = method(ctx, *cotangents)
        listed = gradients if isinstance(gradients, (tuple, list)) else [gradients]
        seen.append(list(map(_shape, listed)))
        return gradients

    if getattr(method, "__ftrans_once__", False):
        spied.__ftrans_once__ = True  # type: ignore[attr-defined]
    args = probe.arguments()
    name = "backward" if rule.backward is not Function.backward else "vjp"
    with findings.guarded(RETURNED, "backward", "no reverse mode"):
        spy = Probe(_spied(rule, **{name: spied}).apply, args, probe.rigid).settled()
        spy.pull(probe.cotangents("returned"))
        for number, (shape, arg) in enumerate(zip(seen[-1] if seen else [], args, strict=False)):
            if shape is not None and is_floating(arg) and shape != np.shape(arg):
                # the rows above say whether the sum is right
                findings.note(
                    RETURNED,
                    f"the gradient of argument {number} has shape {shape}, and is summed to "
                    f"{np.shape(arg)}",
                )
        findings.report.hold(RETURNED)


def _shape(x: Any) -> Any:
    """Returns the shape of a gradient; None where it has none of its own, as scalars."""
    is_weak = x is None or is_scalar(x) or not is_array(x) or (isinstance(x, Tracer) and x.weak)
    return None if is_weak else type_of(x).shape


# ------------------------------------------------------------------------- called on its own


class _Plain:
    """The methods of a rule, called on plain arrays at the point of a probe.

    Args:
        probe: the probe.
        findings: takes what is found.
        rule: a `Function` class, or a function with `custom_vjp`.

    Attributes:
        cotangents: those of the first call.
        base: its gradients, which those of other calls are held against.
    """

    def __init__(self, probe: Probe, findings: Findings, rule: Any):
        self.probe = probe
        self.findings = findings
        self.rule = rule
        self.cotangents = hosts(probe.cotangents("direct"))
        self.base: list[np.ndarray] = []
        self.is_class = is_function(rule)
        self.method = backward_of(rule)
        self.args = self._arguments(probe)
        self.floats = [any(map(is_floating, tree.tree_leaves(arg))) for arg in self.args]

    def _arguments(self, probe: Probe) -> tuple[Any, ...]:
        """Returns arguments that may be written to, together with those that have defaults."""
        leaves = [host(x).copy() if is_array(x) else x for x in probe.given]
        args = probe.arguments(leaves, range(len(leaves)))
        if not self.is_class:
            return self.rule._positional(args, {})
        signature = inspect.signature(self.rule.forward)
        if self.rule.setup_context is Function.setup_context:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        found = signature.bind(*args)
        found.apply_defaults()
        return found.args

    def forward(
        self, probe: Probe | None = None, needs: Sequence[bool] | None = None
    ) -> tuple[Parts, Any]:
        """Returns the output, and what backward needs.

        Args:
            probe: another point.
            needs: what `needs_input_grad` is, where not all that can be are asked for.
        """
        args = self._arguments(self.probe if probe is None else probe)
        if not self.is_class:
            output, residuals = self.rule.fwd(*args)
            return Parts((output,)), residuals
        ctx = FunctionCtx()
        ctx._state.needs = tuple(self.floats if needs is None else needs)
        if self.rule.setup_context is Function.setup_context:
            output = self.rule.forward(ctx, *args)
        else:
            output = self.rule.forward(*args)
            self.rule.setup_context(ctx, tuple(args), output)
        return _outputs(output), ctx

    def materializes(self, state: Any) -> bool:
        """Tells whether cotangents that are zero are given as arrays."""
        return not self.is_class or state._state.materialize

    def gradients(
        self, cotangents: Sequence[Any], forward: tuple[Parts, Any] | None = None
    ) -> list[np.ndarray]:
        """Returns what backward returns for the floating arrays, zeros for None.

        Args:
            cotangents: those of the outputs that have derivatives.
            forward: what forward has returned, where it need not run again.
        """
        output, state = self.forward() if forward is None else forward
        by_output = dict(zip(self.probe.outputs, cotangents, strict=True))
        given = [by_output.get(i) for i in range(len(output.values))]
        if self.materializes(state):
            given = [
                np.zeros(np.shape(x), type_of(as_array(x)).dtype) if ct is None else ct
                for ct, x in zip(given, output.values, strict=True)
            ]
        if self.is_class:
            state._state.which = "backward"
            found = self.method(state, *output.alone(given))
        else:
            apart = [self.args[n] for n in self.rule.nondiff_argnums]
            found = self.method(*apart, state, *output.alone(given))
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        if not self.is_class:
            for number in sorted(n % len(self.args) for n in self.rule.nondiff_argnums):
                listed.insert(number, None)
        listed = (listed + [None] * len(self.args))[: len(self.args)]
        parts = Parts(self.args)
        gradients = []
        for value, gradient in zip(
            parts.values, parts.split(lambda: "backward", listed), strict=True
        ):
            t = type_of(value)
            if gradient is None and t.is_inexact:
                gradients.append(np.zeros(t.shape, t.dtype))
            elif t.is_inexact:
                gradients.append(host(fit("backward", gradient, t, "it", reduced=True)))
        return gradients

    # ------------------------------------------------------------------------- what is held

    def _hold(
        self, check: str, what: str, run: Callable[[], Arrays], expected: Arrays, cause: str
    ) -> bool:
        """Holds what a call gives against what is expected; an exception is a failure, too."""
        try:
            got = run()
        except Exception as error:
            self.findings.fail(check, f"{what} raised {type(error).__name__}: {error}", cause=cause)
            return False
        labels = self.probe.labels
        return self.findings.same(check, what, got, expected, labels, slack=4, cause=cause)

    def check_layouts(self) -> None:
        """Passes cotangents with gaps, in other orders, and expanded."""
        cause = "the memory layout of the cotangent is taken for granted"
        gradients = self.gradients
        for name, change in (
            ("with gaps", with_gaps),
            ("in Fortran order", np.asfortranarray),
            ("with negative strides", _reversed),
        ):
            given = [change(ct) for ct in self.cotangents]
            what = f"backward differs for a cotangent {name}"
            if not self._hold(LAYOUT, what, lambda g=given: gradients(g), self.base, cause):
                return
        what = "backward differs for an expanded cotangent, of stride 0"
        for expand in (_all_half, _rows_alike):
            given = [expand(ct) for ct in self.cotangents]
            try:
                expected = gradients([np.array(ct) for ct in given])
            except Exception:
                # it is no matter of layouts, then
                return
            if not self._hold(LAYOUT, what, lambda g=given: gradients(g), expected, cause):
                return

    def check_state(self, other: Probe) -> None:
        """Runs forward at another point before backward, and backward a second time."""
        cotangents = self.cotangents

        def interleaved() -> Arrays:
            first = self.forward()
            self.forward(other)
            return self.gradients(cotangents, first)

        cause = "state is shared between calls: keep it on ctx, not on the class or in a global"
        what = "backward differs after another forward"
        self._hold(STATE, what, interleaved, self.base, cause)
        forward = self.forward()
        try:
            self.gradients(cotangents, forward)
            again = self.gradients(cotangents, forward)
        except Exception:
            # it may have let go of what was saved, which a pullback keeps for it
            return
        what = "backward differs when it runs a second time"
        cause = "backward changes what forward has saved"
        self._hold(STATE, what, lambda: again, self.base, cause)

    def check_needs(self) -> None:
        """Asks for the gradients of some inputs alone."""
        for subset in subsets([i for i, is_float in enumerate(self.floats) if is_float]):
            needs = [i in subset for i in range(len(self.args))]
            places = [k for k, i in enumerate(self.probe.positions) if i in subset]

            def some(needs: Any = needs, places: Any = places) -> Arrays:
                found = self.gradients(self.cotangents, self.forward(needs=needs))
                return [found[k] for k in places]

            what = f"backward differs where needs_input_grad is {tuple(needs)}"
            cause = "needs_input_grad is not read as it should be"
            if not self._hold(NEEDS, what, some, [self.base[k] for k in places], cause):
                return

    def check_none(self) -> None:
        """Passes None for cotangents, to a rule that has asked for it."""
        if self.materializes(self.forward()[1]):
            return
        cause = "a cotangent of None is not treated as zero"
        none: list[Any] = [None] * len(self.cotangents)
        zeros = [np.zeros_like(array) for array in self.probe.arrays]
        what = "backward of None for all cotangents is not None or zero"
        if not self._hold(NONE, what, lambda: self.gradients(none), zeros, cause):
            return
        for i, ct in enumerate(self.cotangents) if len(none) > 1 else ():
            some: list[Any] = list(self.cotangents)
            full: list[Any] = list(self.cotangents)
            some[i], full[i] = None, np.zeros_like(ct)
            what = f"backward of None for cotangent {i} is not that of zeros"
            expected = self.gradients(full)
            if not self._hold(NONE, what, lambda s=some: self.gradients(s), expected, cause):
                return


def check_contract(probe: Probe, findings: Findings, rule: Any, other: Probe | None) -> None:
    """Calls the methods of a rule in ways in which a transform does not.

    Args:
        probe: the probe.
        findings: takes what is found.
        rule: the rule.
        other: the same function at another point, or None.
    """
    if probe.precision > 1e-2 or not any(out.size for out in probe.outs):
        return
    try:
        with np.errstate(all="ignore"):
            plain = _Plain(probe, findings, rule)
            given = [ct.copy() for ct in plain.cotangents]
            plain.base = plain.gradients(given)
            expected = probe.pull(plain.cotangents)
    except Exception:
        # it takes traced values alone, or the transform has failed and said so
        return
    # one that writes to its cotangent is harmless where that is traced; else it has failed
    unchanged = all(map(np.array_equal, given, plain.cotangents))
    if unchanged and all(map(_alike, plain.base, expected)):
        with np.errstate(all="ignore"):
            plain.check_layouts()
            if other is not None:
                plain.check_state(other)
            if plain.is_class:
                plain.check_needs()
            plain.check_none()


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, equal_nan=True)


def _reversed(ct: np.ndarray) -> np.ndarray:
    return ct[..., ::-1].copy()[..., ::-1] if ct.ndim else ct


def _all_half(ct: np.ndarray) -> np.ndarray:
    return np.broadcast_to(ct.dtype.type(0.5), ct.shape)


def _rows_alike(ct: np.ndarray) -> np.ndarray:
    return np.broadcast_to(ct[:1], ct.shape) if ct.ndim > 1 and ct.shape[0] else ct
