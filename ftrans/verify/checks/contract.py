"""The rule itself, made an opaque one: what a transform of a traced one tidies up, or cannot show.

A transform sums what backward should have summed; of a rule that is traced it knows no memory
layouts, and traces forward and backward one right after the other. Here the methods are called on
plain arrays. Where that does not give what the transform gives, nothing is concluded from it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.context import key_of
from ftrans.custom.decorators import custom_vjp
from ftrans.custom.function import Function
from ftrans.custom.methods import methods_of
from ftrans.func.staging import name_of
from ftrans.ir import Tracer, type_of
from ftrans.numpy.promotion import is_array, is_scalar
from ftrans.pytree import Parts
from ftrans.verify.checks.consistency import gradients_of_some, pulled_twice, unused
from ftrans.verify.coordinates import Arrays, close, is_floating, precision_of, with_gaps
from ftrans.verify.probe import Probe
from ftrans.verify.report import Case, Findings

RETURNED = "what backward returns"


def is_function(rule: Any) -> bool:
    """Tells whether a rule is a `Function` class."""
    return isinstance(rule, type) and issubclass(rule, Function)


# ------------------------------------------------------------------- heard inside of a transform


def _spied(rule: type, name: str, hear: Callable[..., None]) -> Any:
    """Returns a class like `rule`; of each call of a method, arguments and result are heard."""
    method = getattr(rule, name)

    @functools.wraps(method)
    def spied(*args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        hear(args, found)
        return found

    return type(rule.__name__, (rule,), {name: staticmethod(spied)})


def marks(rule: Any, args: Sequence[Any]) -> tuple[tuple[int, ...], bool]:
    """Returns which outputs a `Function` says have no derivative, and if it writes to an input."""
    seen: list[tuple[tuple[int, ...], bool]] = [((), False)]
    if not is_function(rule):
        return seen[0]
    is_old = methods_of(rule).old

    def hear(given: tuple[Any, ...], found: Any) -> None:
        state, output = given[0].__state__, found if is_old else given[-1]
        rigid = {key_of(x) for x in state.rigid}
        outs = Parts(output if isinstance(output, tuple) else (output,)).values
        numbers = [i for i, x in enumerate(outs) if key_of(x) in rigid]
        seen.append((tuple(numbers), bool(state.dirty)))

    _ = Probe(_spied(rule, "forward" if is_old else "setup_context", hear).apply, args).leaves
    return seen[-1]


def check_returned(findings: Findings, rule: Any) -> None:
    """Looks at the types of gradients before they are made those of the inputs."""
    probe, seen = findings.probe, [()]
    methods = methods_of(rule) if is_function(rule) else None
    if methods is None or methods.backward is None or not probe.is_differentiable:
        return

    def hear(given: Any, found: Any) -> None:
        seen.append(tuple(map(_own_type, found if isinstance(found, (tuple, list)) else [found])))

    args = probe.arguments()
    with findings.guarded(RETURNED, "backward"):
        spy = Probe(_spied(rule, methods.backward_name, hear).apply, args, probe.rigid).settled()
        spy.pull(probe.cotangents("returned"))
        for number, (t, arg) in enumerate(zip(seen[-1], args, strict=False)):
            if t is None or not is_floating(arg):
                continue
            what = f"the gradient of argument {number}"
            if t.shape != np.shape(arg):
                # other checks say whether the sum is right
                findings.note(RETURNED, f"{what} has shape {t.shape}, is summed to {np.shape(arg)}")
            if precision_of(t) > precision_of(arg):
                findings.fail(RETURNED, f"{what} has fewer digits than it", t.dtype, arg.dtype)
        findings.hold(RETURNED)


def _own_type(x: Any) -> Any:
    """Returns the type of a gradient; None where it has none of its own, as scalars."""
    is_weak = x is None or is_scalar(x) or not is_array(x) or (isinstance(x, Tracer) and x.weak)
    return None if is_weak else type_of(x)


# ------------------------------------------------------------------------- called on plain arrays


def _plain(rule: Any, probe: Probe) -> Probe:
    """Returns a rule with `backward` as an opaque one: its methods are called on plain arrays."""
    methods: Any = methods_of(rule) if is_function(rule) else None
    apart = () if methods else rule.nondiff_argnums
    args = probe.arguments()
    if methods:
        args, _ = methods.parameters.bound(args, {}, methods.unfit)
    else:
        args = rule._positional(args, {})

    def forward(ctx: Any, *args: Any) -> Any:
        if methods:
            return methods.call(ctx, _arrays(args), {})
        output, ctx.residuals = rule.run_forward(_arrays(args))
        return (output,)

    @functools.wraps(methods.backward if methods else rule.bwd)
    def backward(ctx: Any, *cotangents: Any) -> Any:
        _ = ctx.needs_input_grad  # it is found out where a method names it
        if methods:
            return methods.backward(ctx, *_arrays(cotangents))
        fixed = [args[n] for n in apart]
        found = list(rule.run_backward(fixed, ctx.residuals, *_arrays(cotangents)))
        for number in sorted(n % len(args) for n in apart):
            found.insert(number, None)
        return tuple(found)

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    plain = Probe(type(name_of(rule), (Function,), body).apply, args, probe.rigid)
    plain.labels, plain.leaves = probe.labels, probe.leaves
    return plain


def _arrays(values: Any) -> Any:
    return tree.tree_map(lambda x: np.asarray(x) if is_array(x) else x, values)


def _layouts(plain: Probe, cotangents: Arrays, base: Arrays) -> Iterator[Case]:
    """Passes cotangents with gaps, in other orders, and expanded."""

    def case(kind: str, given: Arrays, expected: Arrays) -> Case:
        what, run = f"backward differs for {kind}", functools.partial(plain.pull, given)
        cause = "the memory layout of the cotangent is taken for granted"
        return Case(what, run, expected, cause, plain.labels, slack=4)

    for name, change in (
        ("with gaps", with_gaps),
        ("in Fortran order", lambda ct: np.array(ct, order="F")),
        ("with negative strides", lambda ct: np.flip(np.flip(ct).copy())),
    ):
        yield case(f"a cotangent {name}", list(map(change, cotangents)), base)
    halves = [np.broadcast_to(ct.dtype.type(0.5), ct.shape) for ct in cotangents]
    rows = [np.broadcast_to(ct[:1] if ct.ndim else ct, ct.shape) for ct in cotangents]
    for given in (halves, rows):
        try:
            expected = plain.pull(list(map(np.array, given)))
        except Exception:
            # it is no matter of layouts, then
            return
        yield case("an expanded cotangent, of stride 0", given, expected)


def _undefined(plain: Probe) -> Iterator[Case]:
    """Passes None for cotangents, to a rule that has asked for it."""
    zeros = [np.zeros_like(array) for array in plain.values]
    heard = plain.heard()[1]
    for _, error, gradients in heard:

        def none(error: Any = error, gradients: Any = gradients) -> Arrays:
            if error is not None:
                raise error
            pairs = zip(gradients, filter(is_array, plain.given), strict=True)
            found = [ct for ct, x in pairs if is_floating(x)]
            return [zero if ct is None else ct for ct, zero in zip(found, zeros, strict=True)]

        what = "backward of None for all cotangents is not None or zero"
        cause = "a cotangent of None is not treated as zero"
        yield Case(what, none, zeros, cause, plain.labels, slack=4)
    if heard:
        yield from unused(plain)


def check_contract(findings: Findings, rule: Any, other: Probe | None = None) -> None:
    """Calls the methods of a rule in ways in which a transform does not, one at another point."""
    probe, compare = findings.probe, findings.compare
    has_backward = methods_of(rule).backward if is_function(rule) else isinstance(rule, custom_vjp)
    if not has_backward or probe.precision > 1e-2 or not any(out.size for out in probe.outs):
        return
    try:
        plain, cotangents = _plain(rule, probe), probe.cotangents("direct")
        base, expected = plain.pull(cotangents), probe.pull(cotangents)
    except Exception:
        # what it does to plain arrays is its own affair, or the transform has failed and said so
        return
    if not all(map(close, base, expected, [1e-8 + 1e-4 * np.abs(grad) for grad in expected])):
        return
    compare("memory layouts of cotangents", "backward", _layouts(plain, cotangents, base))
    if other is not None:
        compare("state between calls", "backward", pulled_twice(plain, plain.at(other.values)))
    if is_function(rule):
        compare("needs_input_grad", "backward", gradients_of_some(plain))
    compare("cotangents of None", "backward", _undefined(plain))
