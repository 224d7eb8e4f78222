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
from ftrans.verify.checks.consistency import subsets
from ftrans.verify.coordinates import close, hosts, is_floating, with_gaps
from ftrans.verify.probe import Probe
from ftrans.verify.report import Case, Findings

RETURNED = "what backward returns"

Arrays = Sequence[np.ndarray]


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
        state, output = given[0]._state, found if is_old else given[-1]
        rigid = {key_of(x) for x in state.rigid}
        outs = Parts(output if isinstance(output, tuple) else (output,)).values
        numbers = [i for i, x in enumerate(outs) if key_of(x) in rigid]
        seen.append((tuple(numbers), bool(state.dirty)))

    _ = Probe(_spied(rule, "forward" if is_old else "setup_context", hear).apply, args).leaves
    return seen[-1]


def check_returned(findings: Findings, rule: Any) -> None:
    """Looks at the shapes of gradients before they are summed to those of the inputs."""
    probe, seen = findings.probe, [()]
    methods = methods_of(rule) if is_function(rule) else None
    if methods is None or methods.backward is None or not probe.is_differentiable:
        return

    def hear(given: Any, found: Any) -> None:
        seen.append(tuple(map(_shape, found if isinstance(found, (tuple, list)) else [found])))

    args = probe.arguments()
    with findings.guarded(RETURNED, "backward"):
        spy = Probe(_spied(rule, methods.backward_name, hear).apply, args, probe.rigid).settled()
        spy.pull(probe.cotangents("returned"))
        for number, (shape, arg) in enumerate(zip(seen[-1], args, strict=False)):
            if shape is not None and is_floating(arg) and shape != np.shape(arg):
                # other checks say whether the sum is right
                text = f"the gradient of argument {number} has shape {shape}, and is summed to "
                findings.note(RETURNED, f"{text}{np.shape(arg)}")
        findings.hold(RETURNED)


def _shape(x: Any) -> Any:
    """Returns the shape of a gradient; None where it has none of its own, as scalars."""
    is_weak = x is None or is_scalar(x) or not is_array(x) or (isinstance(x, Tracer) and x.weak)
    return None if is_weak else type_of(x).shape


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
    plain.labels = probe.labels
    return plain


def _arrays(values: Any) -> Any:
    return tree.tree_map(lambda x: np.asarray(x) if is_array(x) else x, values)


class _Contract:
    """What is held of a rule that is called on plain arrays.

    Attributes:
        plain: the rule.
        cotangents: those of the first call.
        base: its gradients, which those of other calls are held against.
    """

    def __init__(self, plain: Probe, cotangents: list[np.ndarray]):
        self.plain = plain
        self.cotangents = cotangents
        self.base = plain.pull(cotangents)

    def _case(self, what: str, cause: str, run: Any, expected: Arrays | None = None) -> Case:
        expected = self.base if expected is None else expected
        return Case(what, run, expected, cause, self.plain.labels, slack=4)

    def layouts(self) -> Iterator[Case]:
        """Passes cotangents with gaps, in other orders, and expanded."""
        cause, pull = "the memory layout of the cotangent is taken for granted", self.plain.pull
        for name, change in (
            ("with gaps", with_gaps),
            ("in Fortran order", lambda ct: np.array(ct, order="F")),
            ("with negative strides", lambda ct: np.flip(np.flip(ct).copy())),
        ):
            run = functools.partial(pull, list(map(change, self.cotangents)))
            yield self._case(f"backward differs for a cotangent {name}", cause, run)
        what = "backward differs for an expanded cotangent, of stride 0"
        halves = [np.broadcast_to(ct.dtype.type(0.5), ct.shape) for ct in self.cotangents]
        rows = [np.broadcast_to(ct[:1] if ct.ndim else ct, ct.shape) for ct in self.cotangents]
        for given in (halves, rows):
            try:
                expected = pull(list(map(np.array, given)))
            except Exception:
                # it is no matter of layouts, then
                return
            yield self._case(what, cause, functools.partial(pull, given), expected)

    def interleaved(self, other: Probe) -> Iterator[Case]:
        """Runs forward at another point before backward, and backward a second time."""
        cause = "state is shared between calls: keep it on ctx, not on the class or in a global"
        pullback = self.plain.pullback()
        self.plain.pullback(other.values)
        run = lambda: hosts(pullback(self.cotangents))  # noqa: E731
        yield self._case("backward differs after another forward", cause, run)
        cause = "backward changes what forward has saved"
        yield self._case("backward differs when it runs a second time", cause, run)

    def needs(self) -> Iterator[Case]:
        """Asks for the gradients of some inputs alone."""
        positions = self.plain.positions
        cause = "needs_input_grad is not read as it should be"
        for subset in subsets(sorted(set(positions))):
            needs = tuple(i in subset for i in range(len(self.plain.arguments())))
            only = [k for k, i in enumerate(positions) if i in subset]
            run = functools.partial(self.plain.pull, self.cotangents, only=only)
            what = f"backward differs where needs_input_grad is {needs}"
            yield self._case(what, cause, run, [self.base[k] for k in only])

    def nothing(self) -> Iterator[Case]:
        """Passes None for cotangents, to a rule that has asked for it."""
        cause = "a cotangent of None is not treated as zero"
        zeros = [np.zeros_like(array) for array in self.plain.values]
        for _, error, gradients in self.plain.heard()[1]:

            def none(error: Any = error, gradients: Any = gradients) -> Arrays:
                if error is not None:
                    raise error
                pairs = zip(gradients, filter(is_array, self.plain.given), strict=True)
                found = [ct for ct, x in pairs if is_floating(x)]
                return [zero if ct is None else ct for ct, zero in zip(found, zeros, strict=True)]

            what = "backward of None for all cotangents is not None or zero"
            yield self._case(what, cause, none, zeros)
            for i, ct in enumerate(self.cotangents) if self.cotangents[1:] else ():
                kept = [(k, x) for k, x in enumerate(self.cotangents) if k != i]
                outputs = [self.plain.outputs[k] for k, _ in kept]
                run = functools.partial(self.plain.pull, [x for _, x in kept], outputs=outputs)
                full = [np.zeros_like(ct) if k == i else x for k, x in enumerate(self.cotangents)]
                what = f"backward of None for cotangent {i} is not that of zeros"
                yield self._case(what, cause, run, self.plain.pull(full))


def check_contract(findings: Findings, rule: Any, other: Probe | None = None) -> None:
    """Calls the methods of a rule in ways in which a transform does not, one at another point."""
    probe = findings.probe
    has_backward = methods_of(rule).backward if is_function(rule) else isinstance(rule, custom_vjp)
    if not has_backward or probe.precision > 1e-2 or not any(out.size for out in probe.outs):
        return
    try:
        contract = _Contract(_plain(rule, probe), probe.cotangents("direct"))
        expected = probe.pull(contract.cotangents)
    except Exception:
        # what it does to plain arrays is its own affair, or the transform has failed and said so
        return
    allowed = [1e-8 + 1e-4 * np.abs(grad) for grad in expected]
    if not all(map(close, contract.base, expected, allowed)):
        return
    findings.compare("memory layouts of cotangents", "backward", contract.layouts())
    if other is not None:
        findings.compare("state between calls", "backward", contract.interleaved(other))
    if is_function(rule):
        findings.compare("needs_input_grad", "backward", contract.needs())
    findings.compare("cotangents of None", "backward", contract.nothing())
