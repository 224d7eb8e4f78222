"""The same at each call: nothing random, kept between calls or written to, compiled or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import MissingRuleError, TransposeError
from ftrans.func.jit import jit
from ftrans.verify.coordinates import hosts
from ftrans.verify.probe import Probe
from ftrans.verify.report import Findings

PURE = "no side effects"
JIT = "jit against un-jitted"


def check_pure(
    probe: Probe, findings: Findings, other: Probe | None = None, writes: bool = False
) -> None:
    """Runs everything twice, and another call between a forward and its backward.

    Args:
        probe: the probe.
        findings: takes what is found.
        other: the same function at another point, or None.
        writes: whether the function says that it writes to an input.
    """
    with findings.guarded(PURE, "the function"):
        first, second = (hosts(probe(*probe.values)) for _ in range(2))
        cause = "the function is random, or keeps something between calls"
        findings.same(PURE, "two calls differ", second, first, cause=cause, exact=True)
    if probe.is_differentiable:
        with findings.guarded(PURE, "backward", "no reverse mode"):
            _check_backward(probe, findings, other)
    if not writes:
        _check_unchanged(probe, findings)


def _check_unchanged(probe: Probe, findings: Findings) -> None:
    """Calls the function on arrays that it could write to, and looks whether it did."""
    given = [array.copy() for array in probe.arrays]
    with findings.guarded(PURE, "the function"):
        probe.func(*probe.arguments(given))
    for label, array, value in zip(probe.labels, given, probe.arrays, strict=True):
        if not np.array_equal(array, value, equal_nan=value.dtype.kind in "fc"):
            cause = "forward writes to an input: copy it, or say so by ctx.mark_dirty"
            findings.fail(PURE, f"{label} was written to", array, value, cause)
            return


def _check_backward(probe: Probe, findings: Findings, other: Probe | None) -> None:
    cotangents = probe.cotangents("pure")
    kept = [ct.copy() for ct in hosts(cotangents)]
    pullback = probe.pullback()
    first, second = (hosts(pullback(list(cotangents))) for _ in range(2))
    cause = "backward is random, or keeps something between calls"
    what = "two runs of backward differ"
    if not findings.same(PURE, what, second, first, cause=cause, exact=True):
        return
    if not all(map(np.array_equal, hosts(cotangents), kept)):
        findings.fail(PURE, "a cotangent was written to", cause="backward writes to its cotangent")
        return
    if other is None:
        return
    # two calls before either backward: a Function must not keep anything but on its context
    pullback = probe.pullback()
    other.pullback()
    got = hosts(pullback(list(cotangents)))
    cause = "state is shared between calls: keep it on ctx, not on the class or a global"
    what = "backward differs where another call came between it and its forward"
    findings.same(PURE, what, got, first, cause=cause, exact=True)


def check_jit(probe: Probe, findings: Findings) -> None:
    """Compiles the function together with its gradient, and holds both against un-jitted ones."""
    cotangents = probe.cotangents("jit") if probe.values else []

    def both(*values: Any) -> list[Any]:
        # first, since the function may write to values
        pullback = probe.pullback(values)
        return [*probe(*values), *pullback(cotangents)]

    def value(*values: Any) -> list[Any]:
        return probe(*values)

    with findings.guarded(JIT, "jit"):
        function = both if probe.is_differentiable else value
        try:
            expected = hosts(function(*probe.values))
        except (MissingRuleError, TransposeError):
            function = value
            expected = hosts(value(*probe.values))
        got = hosts(jit(function)(*probe.values))
        labels = [f"output {i}" for i in range(len(probe.leaves))]
        labels += [f"gradient of {label}" for label in probe.labels]
        # compiled code may order sums in another way
        again = lambda seed: function(*probe.shaken(seed))  # noqa: E731
        what = "jit gives something else"
        findings.same(JIT, what, got, expected, labels, slack=20, again=again)
