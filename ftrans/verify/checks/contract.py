"""The rule itself, called without a transform: what a transform tidies up, or cannot show.

A transform sums what backward should have summed, knows no memory layouts, and traces forward and
backward one right after the other. Here the methods are called on plain arrays, as an opaque rule
is. Where that does not give what the transform gives, nothing is concluded from it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.tree_util as tree
import numpy as np

from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.decorators import custom_vjp
from ftrans.custom.function import Function
from ftrans.custom.methods import methods_of
from ftrans.custom.rule import fit
from ftrans.ir import Tracer, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import Parts
from ftrans.verify.checks.consistency import subsets
from ftrans.verify.coordinates import close, host, hosts, is_floating, with_gaps
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

    def setup_context(ctx: FunctionCtx, inputs: Any, output: Any) -> None:
        rule.setup_context(ctx, inputs, output)
        note(ctx, output)

    def forward(ctx: FunctionCtx, *inputs: Any, **others: Any) -> Any:
        output = rule.forward(ctx, *inputs, **others)
        note(ctx, output)
        return output

    spy = _spied(rule, forward if methods_of(rule).old else setup_context)
    _ = Probe(spy.apply, args).leaves
    return seen[-1]


def _spied(rule: type, method: Any) -> Any:
    """Returns a class like `rule` with another one of its methods."""
    name = method.__name__
    spying = functools.wraps(getattr(rule, name))(method)
    return type(rule.__name__, (rule,), {name: staticmethod(spying)})


def _outputs(output: Any) -> Parts:
    return Parts(output if isinstance(output, tuple) else (output,))


def check_returned(probe: Probe, findings: Findings, rule: Any) -> None:
    """Looks at the shapes of gradients before they are summed to those of the inputs."""
    method = methods_of(rule).backward if is_function(rule) else None
    seen: list[Any] = [()]
    if method is None or not probe.is_differentiable:
        return

    def spied(ctx: Any, *cotangents: Any) -> Any:
        gradients = method(ctx, *cotangents)
        listed = gradients if isinstance(gradients, (tuple, list)) else [gradients]
        seen.append(list(map(_shape, listed)))
        return gradients

    spied.__name__ = methods_of(rule).backward_name
    args = probe.arguments()
    with findings.guarded(RETURNED, "backward", "no reverse mode"):
        spy = Probe(_spied(rule, spied).apply, args, probe.rigid).settled()
        spy.pull(probe.cotangents("returned"))
        for number, (shape, arg) in enumerate(zip(seen[-1], args, strict=False)):
            if shape is not None and is_floating(arg) and shape != np.shape(arg):
                # the rows above say whether the sum is right
                findings.note(
                    RETURNED,
                    f"the gradient of argument {number} has shape {shape}, and is summed to "
                    f"{np.shape(arg)}",
                )
        findings.hold(RETURNED)


def _shape(x: Any) -> Any:
    """Returns the shape of a gradient; None where it has none of its own, as scalars."""
    is_weak = x is None or is_scalar(x) or not is_array(x) or (isinstance(x, Tracer) and x.weak)
    return None if is_weak else type_of(x).shape


# ------------------------------------------------------------------------- called on its own

Case = tuple[str, str, Callable[[], Arrays], Arrays, str]
"""A check, what is compared, what makes the gradients, what they are to be, why they may not be."""


class _Plain:
    """The methods of a rule that has a `backward`, called on plain arrays at the point of a probe.

    Attributes:
        cotangents: those of the first call.
        base: its gradients, which those of other calls are held against.
    """

    def __init__(self, probe: Probe, rule: Any):
        self.probe = probe
        self.rule = rule
        self.methods = methods_of(rule) if is_function(rule) else None
        self.apart = () if self.methods else rule.nondiff_argnums
        self.args = self._arguments(probe)
        self.floats = [any(map(is_floating, tree.tree_leaves(arg))) for arg in self.args]
        self.cotangents = hosts(probe.cotangents("direct"))
        self.base: list[np.ndarray] = []

    def _arguments(self, probe: Probe) -> tuple[Any, ...]:
        """Returns arguments that may be written to, together with those that have defaults."""
        leaves = [host(x).copy() if is_array(x) else x for x in probe.given]
        args = probe.arguments(leaves, range(len(leaves)))
        if self.methods:
            return self.methods.parameters.bound(args, {}, self.methods.unfit)[0]
        return self.rule._positional(args, {})

    def forward(
        self, probe: Probe | None = None, needs: Sequence[bool] | None = None
    ) -> tuple[Parts, Any]:
        """Returns the output, and what backward needs, where some inputs need gradients, or all."""
        args = self._arguments(self.probe if probe is None else probe)
        if not self.methods:
            output, residuals = self.rule.run_forward(args)
            return Parts((output,)), residuals
        ctx = FunctionCtx()
        ctx._state.needs = tuple(self.floats if needs is None else needs)
        return _outputs(self.methods.call(ctx, args, {})), ctx

    def materializes(self, state: Any) -> bool:
        """Tells whether cotangents that are zero are given as arrays."""
        return not self.methods or state._state.materialize

    def gradients(
        self, cotangents: Sequence[Any], forward: tuple[Parts, Any] | None = None
    ) -> list[np.ndarray]:
        """Returns what backward returns for the floating arrays, zeros for None, after forward."""
        output, state = self.forward() if forward is None else forward
        by_output = dict(zip(self.probe.outputs, cotangents, strict=True))
        given = [by_output.get(i) for i in range(len(output.values))]
        if self.materializes(state):
            pairs = zip(given, output.values, strict=True)
            given = [_zeros(type_of(as_array(x))) if ct is None else ct for ct, x in pairs]
        if self.methods:
            state._state.which = "backward"
            backward: Any = self.methods.backward
            found = backward(state, *output.alone(given))
        else:
            fixed = [self.args[n] for n in self.apart]
            found = self.rule.run_backward(fixed, state, *output.alone(given))
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        for number in sorted(n % len(self.args) for n in self.apart):
            listed.insert(number, None)
        listed = (listed + [None] * len(self.args))[: len(self.args)]
        parts = Parts(self.args)
        pairs = zip(
            map(type_of, parts.values), parts.split(lambda: "backward", listed), strict=True
        )
        return [
            _zeros(t) if ct is None else host(fit("backward", ct, t, "it", reduced=True))
            for t, ct in pairs
            if t.is_inexact
        ]

    # ------------------------------------------------------------------------- what is held

    def layouts(self) -> Iterator[Case]:
        """Passes cotangents with gaps, in other orders, and expanded."""
        cause = "the memory layout of the cotangent is taken for granted"
        for name, change in (
            ("with gaps", with_gaps),
            ("in Fortran order", np.asfortranarray),
            ("with negative strides", lambda ct: np.flip(np.flip(ct).copy())),
        ):
            run = functools.partial(self.gradients, list(map(change, self.cotangents)))
            yield LAYOUT, f"backward differs for a cotangent {name}", run, self.base, cause
        what = "backward differs for an expanded cotangent, of stride 0"
        halves = [np.broadcast_to(ct.dtype.type(0.5), ct.shape) for ct in self.cotangents]
        rows = [np.broadcast_to(ct[:1] if ct.ndim else ct, ct.shape) for ct in self.cotangents]
        for given in (halves, rows):
            try:
                expected = self.gradients(list(map(np.array, given)))
            except Exception:
                # it is no matter of layouts, then
                return
            yield LAYOUT, what, functools.partial(self.gradients, given), expected, cause

    def interleaved(self, other: Probe) -> Iterator[Case]:
        """Runs forward at another point before backward."""

        def run() -> Arrays:
            first = self.forward()
            self.forward(other)
            return self.gradients(self.cotangents, first)

        cause = "state is shared between calls: keep it on ctx, not on the class or in a global"
        yield STATE, "backward differs after another forward", run, self.base, cause

    def twice(self) -> Iterator[Case]:
        """Runs backward a second time."""
        forward = self.forward()
        try:
            self.gradients(self.cotangents, forward)
            again = self.gradients(self.cotangents, forward)
        except Exception:
            # it may have let go of what was saved, which a pullback keeps for it
            return
        cause = "backward changes what forward has saved"
        yield STATE, "backward differs when it runs a second time", lambda: again, self.base, cause

    def needs(self) -> Iterator[Case]:
        """Asks for the gradients of some inputs alone."""
        cause = "needs_input_grad is not read as it should be"
        for subset in subsets([i for i, is_float in enumerate(self.floats) if is_float]):
            needs = tuple(i in subset for i in range(len(self.args)))
            places = [k for k, i in enumerate(self.probe.positions) if i in subset]

            def run(needs: Any = needs, places: Any = places) -> Arrays:
                found = self.gradients(self.cotangents, self.forward(needs=needs))
                return [found[k] for k in places]

            what = f"backward differs where needs_input_grad is {needs}"
            yield NEEDS, what, run, [self.base[k] for k in places], cause

    def nothing(self) -> Iterator[Case]:
        """Passes None for cotangents, to a rule that has asked for it."""
        if self.materializes(self.forward()[1]):
            return
        cause = "a cotangent of None is not treated as zero"
        none: list[Any] = [None] * len(self.cotangents)
        zeros = [np.zeros_like(array) for array in self.probe.arrays]
        what = "backward of None for all cotangents is not None or zero"
        yield NONE, what, functools.partial(self.gradients, none), zeros, cause
        for i, ct in enumerate(self.cotangents) if len(none) > 1 else ():
            some, full = (
                [x if k == i else other for k, other in enumerate(self.cotangents)]
                for x in (None, np.zeros_like(ct))
            )
            what = f"backward of None for cotangent {i} is not that of zeros"
            yield NONE, what, functools.partial(self.gradients, some), self.gradients(full), cause


def check_contract(probe: Probe, findings: Findings, rule: Any, other: Probe | None) -> None:
    """Calls the methods of a rule in ways in which a transform does not, one at another point."""
    has_backward = methods_of(rule).backward if is_function(rule) else isinstance(rule, custom_vjp)
    if not has_backward or probe.precision > 1e-2 or not any(out.size for out in probe.outs):
        return
    plain = _Plain(probe, rule)
    given = [ct.copy() for ct in plain.cotangents]
    try:
        plain.base = plain.gradients(given)
        expected = probe.pull(plain.cotangents)
    except Exception:
        # it takes traced values alone, or the transform has failed and said so
        return
    # one that writes to its cotangent is harmless where that is traced; else it has failed
    allowed = [1e-8 + 1e-4 * np.abs(grad) for grad in expected]
    unchanged = all(map(close, given, plain.cotangents))
    if not unchanged or not all(map(close, plain.base, expected, allowed)):
        return

    def hold(check: str, what: str, run: Callable[[], Arrays], to_be: Arrays, cause: str) -> bool:
        try:
            got = run()
        except Exception as error:
            findings.fail(check, f"{what} raised {type(error).__name__}: {error}", cause=cause)
            return False
        return findings.same(check, what, got, to_be, probe.labels, slack=4, cause=cause)

    for cases in (
        plain.layouts(),
        () if other is None else plain.interleaved(other),
        () if other is None else plain.twice(),
        plain.needs() if plain.methods else (),
        plain.nothing(),
    ):
        # the first that fails ends its kind
        _ = all(hold(*case) for case in cases)


def _zeros(t: Any) -> np.ndarray:
    return np.zeros(t.shape, t.dtype)
