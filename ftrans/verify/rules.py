"""The rule itself, called without a transform: what a transform tidies up, or cannot show.

A transform sums what backward should have summed, knows no memory layouts, and traces forward and
backward one right after the other. Here the methods are called on plain arrays, as an opaque rule
is. Where that does not give what the transform gives, nothing is concluded from it.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.tree_util as tree
import numpy as np

from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.decorators import custom_vjp
from ftrans.custom.function import Function
from ftrans.custom.parts import Parts, fit
from ftrans.func.jvp import jvp
from ftrans.ir import Tracer, type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.verify.call import Call, host, is_floating
from ftrans.verify.trial import Trial

__all__ = ["Direct", "check_returned", "check_rule", "direct", "marks"]

RETURNED = "what backward returns"
LAYOUT = "memory layouts of cotangents"
STATE = "state between calls"
NEEDS = "needs_input_grad"
NONE = "cotangents of None"


class Marks(NamedTuple):
    """Is what a `Function` says of itself on its context.

    Attributes:
        rigid: the numbers of the outputs that have no derivative.
        dirty: whether it writes to an input.
    """

    rigid: tuple[int, ...]
    dirty: bool


class Direct:
    """Calls the methods of a rule on plain arrays.

    Args:
        rule: a `Function` class, or a function with `custom_vjp`.
    """

    def __init__(self, rule: Any):
        self.rule = rule
        self.is_class = isinstance(rule, type)

    @property
    def method(self) -> Any:
        """The backward method; None where there is none."""
        if not self.is_class:
            return self.rule.bwd
        for name in ("backward", "vjp"):
            if getattr(self.rule, name) is not getattr(Function, name):
                return getattr(self.rule, name)
        return None

    def bound(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the arguments together with those that have defaults."""
        if not self.is_class:
            return self.rule._positional(tuple(args), {})
        signature = inspect.signature(self.rule.forward)
        if self.rule.setup_context is Function.setup_context:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        found = signature.bind(*args)
        found.apply_defaults()
        return found.args

    def forward(self, args: Sequence[Any], needs: Sequence[bool]) -> tuple[Parts, Any]:
        """Returns the output, and what backward needs."""
        if not self.is_class:
            out, residuals = self.rule.fwd(*args)
            return Parts((out,)), residuals
        ctx = FunctionCtx()
        ctx._state.needs = tuple(needs)
        if self.rule.setup_context is Function.setup_context:
            output = self.rule.forward(ctx, *args)
        else:
            output = self.rule.forward(*args)
            self.rule.setup_context(ctx, tuple(args), output)
        return Parts(output if isinstance(output, tuple) else (output,)), ctx

    def materializes(self, state: Any) -> bool:
        """Tells whether cotangents that are zero are given as arrays."""
        return not self.is_class or state._state.materialize

    def backward(
        self, args: Sequence[Any], output: Parts, state: Any, cotangents: Sequence[Any]
    ) -> list[Any]:
        """Returns what backward returns for each argument, as it is."""
        given = list(cotangents)
        if self.materializes(state):
            given = [
                np.zeros(np.shape(x), type_of(as_array(x)).dtype) if ct is None else ct
                for ct, x in zip(given, output.values, strict=True)
            ]
        if self.is_class:
            state._state.which = "backward"
            found = self.method(state, *output.alone(given))
        else:
            apart = self.rule.nondiff_argnums
            found = self.method(*[args[n] for n in apart], state, *output.alone(given))
        gradients = list(found) if isinstance(found, (tuple, list)) else [found]
        if not self.is_class:
            for number in sorted(n % len(args) for n in self.rule.nondiff_argnums):
                gradients.insert(number, None)
        return (gradients + [None] * len(args))[: len(args)]


def direct(rule: Any) -> Direct | None:
    """Returns the rule with methods that can be called, or None where it has no such."""
    if (isinstance(rule, type) and issubclass(rule, Function)) or isinstance(rule, custom_vjp):
        found = Direct(rule)
    else:
        return None
    return found if found.method is not None else None


def marks(rule: Any, args: Sequence[Any]) -> Marks:
    """Returns what a `Function` says of its outputs and inputs, by a call under a transform."""
    if not (isinstance(rule, type) and issubclass(rule, Function)):
        return Marks((), False)
    seen = [Marks((), False)]

    def note(ctx: FunctionCtx, output: Any) -> None:
        values = Parts(output if isinstance(output, tuple) else (output,)).values
        rigid = {key_of(x) for x in ctx._state.rigid}
        numbers = tuple(i for i, x in enumerate(values) if key_of(x) in rigid)
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
        body = {"forward": staticmethod(forward)}
    else:
        body = {"setup_context": staticmethod(set_up)}
    spy = type(rule.__name__, (rule,), body)
    call = Call(spy.apply, args)
    jvp(call, tuple(call.values), (None,) * len(call.values))
    return seen[-1]


# ---------------------------------------------------------------------------- what it returns


def check_returned(trial: Trial, rule: type) -> None:
    """Looks at the shapes of the gradients of a `Function` before they are summed to the inputs'.

    Args:
        trial: the trial, of `rule.apply`.
        rule: the class.
    """
    found = direct(rule)
    if found is None or not trial.outputs or not trial.values:
        return
    name = "backward" if rule.backward is not Function.backward else "vjp"
    method, seen = found.method, []

    def spied(ctx: Any, *cotangents: Any) -> Any:
        gradients = method(ctx, *cotangents)
        listed = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        seen.append([_type(x) for x in listed])
        return gradients

    if getattr(method, "__ftrans_once__", False):
        spied.__ftrans_once__ = True  # type: ignore[attr-defined]
    spy = type(rule.__name__, (rule,), {name: staticmethod(spied)})
    call = Call(spy.apply, trial.call.structure.unflatten(trial.call.leaves))
    with trial.guarded(RETURNED, "backward", "no reverse mode"):
        Trial(call, trial.report, trial.sample, trial.rigid).pull(trial.cotangents("returned"))
        args = trial.call.structure.unflatten(trial.call.leaves)
        for number, (gradient, arg) in enumerate(zip(seen[-1] if seen else [], args, strict=False)):
            if gradient is None or not is_floating(arg):
                continue
            if gradient.shape != np.shape(arg):
                # the rows above say whether the sum is right
                trial.note(
                    RETURNED,
                    f"the gradient of argument {number} has shape {gradient.shape}, and is summed "
                    f"to {np.shape(arg)}",
                )
        trial.report.hold(RETURNED)


def _type(x: Any) -> Any:
    """Returns the type of a gradient; None where it has none of its own, as scalars."""
    if x is None or is_scalar(x) or not is_array(x):
        return None
    if isinstance(x, Tracer) and x.weak:
        return None
    return type_of(x)


# ------------------------------------------------------------------------- called on its own


def check_rule(trial: Trial, rule: Direct, other: Call | None) -> None:
    """Calls the methods in ways in which a transform does not.

    Args:
        trial: the trial.
        rule: its methods.
        other: the call at another point, or None.
    """
    if trial.precision > 1e-2 or not any(out.size for out in trial.outs):
        return
    cotangents = [host(ct) for ct in trial.cotangents("direct")]
    given = [ct.copy() for ct in cotangents]
    try:
        with np.errstate(all="ignore"):
            direct_call = _Plain(trial, rule)
            base = direct_call.gradients(given)
            expected = trial.pull(cotangents)
    except Exception:
        # it takes traced values alone, or the transform has failed and said so
        return
    if any(not _alike(a, b) for a, b in zip(base, expected, strict=True)):
        return
    if any(not np.array_equal(a, b) for a, b in zip(given, cotangents, strict=True)):
        # it writes to its cotangent, which is harmless where that is traced; else it has failed
        return
    with np.errstate(all="ignore"):
        _layouts(trial, direct_call, cotangents, base)
        _state(trial, direct_call, cotangents, base, other)
        _needs(trial, direct_call, cotangents, base)
        _none(trial, direct_call, cotangents)


class _Plain:
    """Calls a rule at the point of a trial; gradients are lists of the floating arrays'."""

    def __init__(self, trial: Trial, rule: Direct):
        self.trial = trial
        self.rule = rule
        self.args = rule.bound(_plain(trial.call))
        self.floats = [any(map(is_floating, tree.tree_leaves(arg))) for arg in self.args]

    def forward(self, args: Any = None, needs: Sequence[bool] | None = None) -> tuple[Parts, Any]:
        """Runs forward, on arrays that it may write to."""
        return self.rule.forward(
            self.rule.bound(_plain(self.trial.call) if args is None else args),
            self.floats if needs is None else needs,
        )

    def gradients(self, cotangents: Sequence[Any], forward: Any = None) -> list[Any]:
        """Runs backward, after forward where that is not given."""
        output, state = self.forward() if forward is None else forward
        places = {i: k for k, i in enumerate(self.trial.outputs)}
        given = [cotangents[places[i]] if i in places else None for i in range(len(output.values))]
        found = self.rule.backward(self.args, output, state, given)
        parts = Parts(self.args)
        flat = parts.split(lambda: "backward", found)
        gradients = []
        for value, gradient in zip(parts.values, flat, strict=True):
            if not is_floating(value):
                continue
            t = type_of(value)
            if gradient is None:
                gradients.append(np.zeros(t.shape, t.dtype))
            else:
                gradients.append(host(fit("backward", gradient, t, "it", reduced=True)))
        return gradients


def _plain(call: Call) -> tuple[Any, ...]:
    """Returns the arguments of a call with arrays of NumPy that may be written to."""
    leaves = [host(x).copy() if is_array(x) else x for x in call.leaves]
    return call.structure.unflatten(leaves)


def _alike(a: Any, b: Any) -> bool:
    a, b = host(a), host(b)
    return a.shape == b.shape and bool(
        np.allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=1e-4, equal_nan=True)
    )


def _try(
    trial: Trial, check: str, what: str, run: Callable[[], list[Any]], expected: Any, cause: str
) -> bool:
    """Holds what a call gives against what is expected; an exception is a failure, too."""
    try:
        got = run()
    except Exception as error:
        trial.fail(check, f"{what} raised {type(error).__name__}: {error}", cause=cause)
        return False
    return trial.same(check, what, got, expected, trial.call.labels, slack=4, cause=cause)


def _layouts(
    trial: Trial, rule: _Plain, cotangents: Sequence[np.ndarray], base: Sequence[np.ndarray]
) -> None:
    cause = "the memory layout of the cotangent is taken for granted"
    for name, change in (
        ("with gaps", _with_gaps),
        ("in Fortran order", lambda ct: np.asfortranarray(ct)),
        ("with negative strides", lambda ct: ct[..., ::-1].copy()[..., ::-1] if ct.ndim else ct),
    ):
        given = [change(ct) for ct in cotangents]
        what = f"backward differs for a cotangent {name}"
        if not _try(trial, LAYOUT, what, lambda g=given: rule.gradients(g), base, cause):
            return
    ones = [np.full(ct.shape, ct.dtype.type(0.5)) for ct in cotangents]
    wide = [np.broadcast_to(ct.dtype.type(0.5), ct.shape) for ct in cotangents]
    rows = [
        np.broadcast_to(ct[:1], ct.shape) if ct.ndim > 1 and ct.shape[0] else ct
        for ct in cotangents
    ]
    for expanded in (wide, rows):
        flat = ones if expanded is wide else [np.array(ct) for ct in rows]
        what = "backward differs for an expanded cotangent, of stride 0"
        try:
            expected = rule.gradients(flat)
        except Exception:
            # it is no matter of layouts, then
            return
        if not _try(trial, LAYOUT, what, lambda e=expanded: rule.gradients(e), expected, cause):
            return


def _with_gaps(ct: np.ndarray) -> np.ndarray:
    return np.repeat(ct, 2, axis=-1)[..., ::2] if ct.ndim else ct


def _state(
    trial: Trial,
    rule: _Plain,
    cotangents: Sequence[np.ndarray],
    base: Sequence[np.ndarray],
    other: Call | None,
) -> None:
    if other is None:
        return
    cause = "state is shared between calls: keep it on ctx, not on the class or in a global"

    def interleaved() -> list[Any]:
        first = rule.forward()
        rule.forward(_plain(other))
        return rule.gradients(cotangents, first)

    _try(trial, STATE, "backward differs after another forward", interleaved, base, cause)

    forward = rule.forward()
    try:
        rule.gradients(cotangents, forward)
        again = rule.gradients(cotangents, forward)
    except Exception:
        # it may have let go of what was saved, which a pullback keeps for it
        return
    what = "backward differs when it runs a second time"
    cause = "backward changes what forward has saved"
    trial.same(STATE, what, again, base, trial.call.labels, slack=4, cause=cause)


def _needs(
    trial: Trial, rule: _Plain, cotangents: Sequence[np.ndarray], base: Sequence[np.ndarray]
) -> None:
    numbers = [i for i, is_float in enumerate(rule.floats) if is_float]
    if not rule.rule.is_class or len(numbers) < 2:
        return
    for subset in itertools.islice(_subsets(numbers), 14):
        needs = [i in subset for i in range(len(rule.args))]
        places = [k for k, i in enumerate(trial.call.positions) if i in subset]

        def some(needs: Sequence[bool] = needs, places: Sequence[int] = places) -> list[Any]:
            found = rule.gradients(cotangents, rule.forward(needs=needs))
            return [found[k] for k in places]

        what = f"backward differs where needs_input_grad is {tuple(needs)}"
        cause = "needs_input_grad is not read as it should be"
        if not _try(trial, NEEDS, what, some, [base[k] for k in places], cause):
            return


def _subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(1, len(numbers)):
        yield from itertools.combinations(numbers, size)


def _none(trial: Trial, rule: _Plain, cotangents: Sequence[np.ndarray]) -> None:
    """Passes None for cotangents, to a rule that has asked for it."""
    _, state = rule.forward()
    if rule.rule.materializes(state):
        return
    cause = "a cotangent of None is not treated as zero"
    zeros = [np.zeros_like(value) for value in trial.values]
    nothing: list[Any] = [None] * len(cotangents)
    what = "backward of None for all cotangents is not None or zero"
    if not _try(trial, NONE, what, lambda: rule.gradients(nothing), zeros, cause):
        return
    if len(cotangents) < 2:
        return
    for i in range(len(cotangents)):
        some = [None if k == i else ct for k, ct in enumerate(cotangents)]
        full = [np.zeros_like(ct) if k == i else ct for k, ct in enumerate(cotangents)]
        what = f"backward of None for cotangent {i} is not that of zeros"
        expected = rule.gradients(full)
        if not _try(trial, NONE, what, lambda s=some: rule.gradients(s), expected, cause):
            return
