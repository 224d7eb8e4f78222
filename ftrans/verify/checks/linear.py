"""What every derivative must be besides right: linear, and whole in its parts.

These compare the rule with itself, so they need no differences and see errors of a few last digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ftrans.verify.coordinates import host, hosts, like
from ftrans.verify.diagnosis import factor_between
from ftrans.verify.probe import Probe
from ftrans.verify.report import Findings

LINEAR = "backward is linear"
PARTS = "gradients of some inputs"
UNUSED = "outputs that are not used"

Arrays = Sequence[np.ndarray]


def subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yields some of the numbers, but not all: the smallest subsets first, and not too many."""
    sizes = range(1, len(numbers))
    every = itertools.chain.from_iterable(itertools.combinations(numbers, k) for k in sizes)
    return itertools.islice(every, 14)


def check_linear(probe: Probe, findings: Findings) -> None:
    """Scales cotangents by 1e-3, 1e3 and -1, adds two of them, and passes zeros."""
    if not probe.is_differentiable:
        return
    with findings.guarded(LINEAR, "backward", "no reverse mode"):
        one, other = probe.cotangents("linear"), probe.cotangents("added")
        pullback = probe.pullback()

        def pull(cotangents: Sequence[Any]) -> list[np.ndarray]:
            return hosts(pullback(list(cotangents)))

        base = pull(one)
        nothing = pull([_times(ct, 0.0) for ct in one])
        for grad, usual in zip(nothing, base, strict=True):
            if np.isfinite(usual).all() and np.any(grad):
                cause = "a term of backward is not multiplied by the cotangent"
                what = "backward of cotangents of zeros is not zero"
                findings.fail(LINEAR, what, grad, np.zeros_like(grad), cause)
                return
        labels = [f"gradient of {label}" for label in probe.labels]
        # float16 ends at 65504, and begins at 6e-8
        for factor in (1e-3, 1e3, -1.0) if probe.precision < 1e-5 else (0.125, 8.0, -1.0):
            got = pull([_times(ct, factor) for ct in one])
            expected = [_times(grad, factor) for grad in base]
            if not all(np.isfinite(x).all() for x in expected):
                continue
            what = f"backward({factor:g} * v) is not {factor:g} * backward(v)"
            cause = _nonlinear(got, base, factor)
            if not findings.same(LINEAR, what, got, expected, labels, slack=4, cause=cause):
                return
        got = pull([a + b for a, b in zip(one, other, strict=True)])
        parts = list(zip(base, pull(other), strict=True))
        expected = [a + b for a, b in parts]
        if all(np.isfinite(x).all() for x in expected):
            size = [np.abs(a) + np.abs(b) for a, b in parts]
            if not _near(got, expected, size, probe.precision):
                what = "backward(v + w) is not backward(v) + backward(w)"
                cause = "backward is not linear in its cotangent"
                findings.same(LINEAR, what, got, expected, labels, cause=cause)
                return
        findings.report.hold(LINEAR)


def _near(got: Arrays, expected: Arrays, size: Arrays, precision: float) -> bool:
    return all(
        bool((np.abs(a - b) <= 4 * precision**0.6 * s).all())
        for a, b, s in zip(got, expected, size, strict=True)
    )


def _times(ct: Any, factor: float) -> Any:
    array = host(ct)
    return like((array * np.asarray(factor, array.dtype)).astype(array.dtype), ct)


def _nonlinear(got: Arrays, base: Arrays, factor: float) -> str:
    for one, other in zip(got, base, strict=True):
        c = factor_between(one, other)
        if c is None:
            continue
        if abs(c - 1) < 1e-6:
            return "the cotangent is not multiplied in"
        if abs(c - factor**2) < 1e-6 * factor**2:
            return "the cotangent is multiplied in twice"
        if factor < 0 and abs(c + factor) < 1e-6:
            return "the sign of the cotangent is lost"
    return "backward is not linear in its cotangent"


def check_parts(probe: Probe, findings: Findings) -> None:
    """Differentiates with respect to some inputs alone, and along the tangents of some."""
    numbers = sorted(set(probe.positions))
    if not probe.is_differentiable or len(numbers) < 2:
        return
    cotangents, tangents = probe.cotangents("parts"), probe.tangents("parts")
    with findings.guarded(PARTS, "backward", "no reverse mode"):
        whole = probe.pull(cotangents)
        for subset in subsets(numbers):
            only = [i for i, n in enumerate(probe.positions) if n in subset]
            got, expected = probe.pull(cotangents, only=only), [whole[i] for i in only]
            labels = [probe.labels[i] for i in only]
            what = f"the gradient is another one where only {', '.join(labels)} needs one"
            cause = "needs_input_grad is not read as it should be"
            if not findings.same(PARTS, what, got, expected, labels, cause=cause):
                break
    with findings.guarded(PARTS, "jvp", "no forward mode"):
        whole = probe.push(tangents)
        pairs = list(zip(tangents, probe.positions, strict=True))
        parts = [probe.push([t if n == number else None for t, n in pairs]) for number in numbers]
        got = [np.sum(many, axis=0) for many in zip(*parts, strict=True)]
        size = [np.sum(np.abs(many), axis=0) for many in zip(*parts, strict=True)]
        if not all(np.isfinite(x).all() for x in (*got, *whole)):
            return
        if _near(got, whole, size, probe.precision):
            findings.report.hold(PARTS)
        else:
            what = "jvp is not the sum of those along single inputs"
            cause = "a tangent of None is not treated as zero"
            findings.fail(PARTS, what, got[0], whole[0], cause)


def check_unused(probe: Probe, findings: Findings) -> None:
    """Uses some of several outputs alone: cotangents of the others are zero, or None."""
    size = len(probe.outputs)
    if not probe.values or size < 2:
        return
    cotangents = probe.cotangents("unused")
    single = [(i,) for i in range(size)]
    others = [tuple(k for k in range(size) if k != i) for i in range(size)] if size > 2 else []
    with findings.guarded(UNUSED, "backward", "no reverse mode"):
        for kept in (*single, *others):
            full = [ct if i in kept else _times(ct, 0.0) for i, ct in enumerate(cotangents)]
            outputs = [probe.outputs[i] for i in kept]
            got = probe.pull([cotangents[i] for i in kept], outputs=outputs)
            used = ", ".join(map(str, kept))
            what = f"the gradient is another one where only output {used} is used"
            cause = "a cotangent of None is not treated as zero"
            expected = probe.pull(full)
            if not findings.same(UNUSED, what, got, expected, probe.labels, cause=cause):
                return
