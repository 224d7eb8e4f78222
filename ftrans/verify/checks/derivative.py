"""Backward and jvp against differences, and against each other by the dot product; of all orders.

Differences are taken in double precision where the function takes that. At a kink any slope
between those of both sides is right. The pullback is a function too, of the point and of the
cotangents: its derivatives are the second ones. That a rule cannot be differentiated twice is
noted, since its author may have said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ftrans.func.jvp import jvp
from ftrans.verify.coordinates import (
    alike,
    count,
    from_coordinates,
    host,
    hosts,
    is_complex,
    scale_of,
    to_coordinates,
    widened,
)
from ftrans.verify.diagnosis import diagnose, fitting, sums
from ftrans.verify.differences import Slope, slope_along, traced_once
from ftrans.verify.probe import Probe
from ftrans.verify.report import Findings

BACKWARD = "backward against differences"
JVP = "jvp against differences"
DOT = "backward against jvp"
KINK = "the sample is at a kink: slopes between both sides are accepted"

_MOST = 400
"""Of how many real coordinates a whole gradient is taken by differences, to see what is wrong."""

_NAMES = {2: ("second", "twice"), 3: ("third", "three times"), 4: ("fourth", "four times")}

Arrays = Sequence[np.ndarray]


def check_derivatives(probe: Probe, findings: Findings, directions: int = 3) -> None:
    """Holds derivatives against differences along random directions, and against each other."""
    names = (BACKWARD, JVP, DOT, "no reverse mode", "no forward mode")
    _Comparison(probe, findings, names).run(directions)


def check_higher(probe: Probe, findings: Findings, order: int) -> None:
    """Holds the derivatives of orders 2, 3, ... against differences of those one order lower."""
    if not probe.is_differentiable:
        return
    for number in range(2, order + 1):
        name, times = _NAMES.get(number, (f"{number}th", str(number)))
        check, missing = f"{name} derivative", f"not {times} differentiable"
        wide = probe.wide
        if wide is None:
            findings.note(check, "not checked: the function does not take double precision")
            return
        pulled = None
        with findings.guarded(check, "backward", missing):
            pulled = _pulled(wide)
        if pulled is None:
            return
        _compare_as(pulled, findings, check, missing)
        if number == 2:
            # it may go by a rule of its own
            pushed = None
            with findings.guarded(check, "jvp", missing):
                pushed = _pushed(wide)
            if pushed is not None:
                _compare_as(pushed, findings, check, missing)
        probe = pulled


def _compare_as(probe: Probe, findings: Findings, check: str, missing: str) -> None:
    """Compares derivatives along one direction, under one name."""
    inner = Findings(findings.report, findings.sample, probe)
    _Comparison(probe, inner, (check, check, check, missing, missing), is_higher=True).run(1)


def _pulled(probe: Probe) -> Probe:
    """Returns the pullback as a function of the floating arguments and of cotangents."""
    size = len(probe.values)

    def pullback(*operands: Any) -> list[Any]:
        return list(probe.pullback(operands[:size])(list(operands[size:])))

    return _of_vectors(probe, pullback, "cotangent", probe.cotangents("second"))


def _pushed(probe: Probe) -> Probe:
    """Returns the pushforward as a function of the floating arguments and of their tangents."""
    size = len(probe.values)

    def pushforward(*operands: Any) -> list[Any]:
        return list(jvp(probe.select, tuple(operands[:size]), tuple(operands[size:]))[1])

    return _of_vectors(probe, pushforward, "tangent", probe.tangents("second"))


def _of_vectors(probe: Probe, function: Any, name: str, vectors: Sequence[Any]) -> Probe:
    made = Probe(function, (*probe.values, *vectors))
    made.labels = [*probe.labels, *(f"{name} {i}" for i in range(len(vectors)))]
    # it is traced wherever it is called, and as exact as the function itself
    made.leaves, made.precision = made(*made.values), probe.precision
    return made


class _Comparison:
    """Compares the derivatives of a probe, under these names of checks and these notes."""

    def __init__(
        self, probe: Probe, findings: Findings, names: Sequence[str], is_higher: bool = False
    ):
        self.probe = probe
        self.findings = findings
        self.backward, self.forward, self.dot, self.no_backward, self.no_forward = names
        self.wide = wide = probe.wide or probe
        # a pullback costs a trace at each of many points
        self.function = traced_once(wide.select, wide.values) if is_higher else wide.select
        precision = probe.precision
        # the relative tolerance of the probe's own numbers, and that against the largest one
        self.rtol, self.floor = max(1e-6, 20 * precision**0.6), 20 * precision**0.75

    def run(self, directions: int) -> None:
        """Compares along so many random directions; stops at the first that fails."""
        probe, findings = self.probe, self.findings
        if not probe.outputs or not sum(map(count, probe.arrays)):
            return
        wide = self.wide
        for k in range(directions):
            tangents, cotangents = probe.tangents(str(k)), probe.cotangents(str(k))
            moves = [to_coordinates(t) for t in tangents]
            grads = dots = slopes = None
            with findings.guarded(self.backward, "the function", self.no_backward):
                slopes = slope_along(self.function, wide.values, moves, wide.precision)
            if slopes is None:
                return
            if any(slope.kinked.any() for slope in slopes):
                findings.note(self.backward, KINK)
            with findings.guarded(self.backward, "backward", self.no_backward):
                grads = probe.pull(cotangents)
            with findings.guarded(self.forward, "jvp", self.no_forward):
                dots = probe.push(tangents)
            if not self._fit(grads, dots, cotangents, moves, slopes):
                slopes = self._blurred(moves, slopes)
            holds = True
            if grads is not None:
                holds &= self._hold_gradients(grads, cotangents, moves, slopes)
            if dots is not None:
                holds &= self._hold_tangents(dots, slopes, moves)
            if not holds:
                return
            if grads is not None and dots is not None:
                self._hold_dot(grads, dots, cotangents, moves)

    def _fit(
        self,
        grads: Arrays | None,
        dots: Arrays | None,
        cotangents: Sequence[Any],
        moves: Arrays,
        slopes: Sequence[Slope],
    ) -> bool:
        """Tells whether all is right, and nothing needs a closer look."""
        fits = True
        if grads is not None and [g.shape for g in grads] == [v.shape for v in self.probe.arrays]:
            fits = self._projected(grads, cotangents, moves, slopes)[0]
        for dot, slope in zip(dots or (), slopes if dots else (), strict=True):
            got = to_coordinates(dot)
            fits = fits and got.shape == slope.value.shape and bool(self._right(got, slope).all())
        return fits

    def _blurred(self, moves: Arrays, slopes: Sequence[Slope]) -> list[Slope]:
        """Returns slopes that are as uncertain as the last digits of the arguments make them."""
        wide, found = self.wide, []
        for seed in range(2):
            values = wide.shaken(seed, self.probe.precision)
            with np.errstate(all="ignore"):
                found.append(slope_along(self.function, values, moves, wide.precision))
        blurred = []
        for slope, *others in zip(slopes, *found, strict=True):
            apart = [np.abs(other.value - slope.value) for other in others]
            error = slope.error + np.nanmax([*apart, 0 * slope.error], 0)
            blurred.append(replace(slope, error=error))
        return blurred

    def _right(self, got: np.ndarray, slope: Slope) -> np.ndarray:
        """Tells of each number of a tangent whether it is right."""
        with np.errstate(all="ignore"):
            size = float(np.max(np.abs(slope.value), initial=0.0, where=np.isfinite(slope.value)))
            sizes = np.maximum(np.abs(slope.low), np.abs(slope.high))
            allowed = 30 * slope.error + self.rtol * sizes + self.floor * size
            right = (got >= slope.low - allowed) & (got <= slope.high + allowed)
            return right | ~np.isfinite(slope.value)

    def _projected(
        self, grads: Arrays, cotangents: Sequence[Any], moves: Arrays, slopes: Sequence[Slope]
    ) -> tuple[bool, float, float, float]:
        """Returns whether the gradients along a direction are right, them, the truth, its size."""
        low = high = allowed = size = 0.0
        for cotangent, slope in zip(cotangents, slopes, strict=True):
            weights = to_coordinates(cotangent)
            if not np.isfinite(slope.value).all():
                return True, 0.0, 0.0, 0.0
            with np.errstate(all="ignore"):
                ends = np.sort([weights * slope.low, weights * slope.high], axis=0)
                low, high = low + ends[0].sum(), high + ends[1].sum()
                allowed += float(np.abs(weights) @ (30 * slope.error))
                size += float(np.abs(weights) @ np.maximum(np.abs(slope.low), np.abs(slope.high)))
        with np.errstate(all="ignore"):
            terms = [to_coordinates(g) * m for g, m in zip(grads, moves, strict=True)]
            got = float(sum(term.sum() for term in terms))
        allowed += (self.rtol + self.floor) * size
        return low - allowed <= got <= high + allowed, got, (low + high) / 2, size

    def _hold_tangents(self, dots: Arrays, slopes: Sequence[Slope], moves: Arrays) -> bool:
        probe, findings = self.probe, self.findings
        for i, (dot, slope, out) in enumerate(zip(dots, slopes, probe.outs, strict=True)):
            got = to_coordinates(dot)
            if got.shape != slope.value.shape:
                what = "the tangent has a wrong shape"
                findings.fail(self.forward, what, dot, out, diagnose(dot, out))
                return False
            if not self._right(got, slope).all() and not self._overflows([dot], slope.value):
                true = from_coordinates(slope.value, widened(out))
                pairs = zip(moves, probe.arrays, strict=True)
                tangents = [from_coordinates(move, array) for move, array in pairs]
                known = {"the result": out} | fitting(probe.arrays, probe.labels, out.shape)
                names = [f"the tangent of {label}" for label in probe.labels]
                known |= fitting(tangents, names, out.shape)
                cause = self._unconjugated(tangents, i, true) or diagnose(dot, true, known)
                what = f"the tangent of output {i} is wrong"
                findings.fail(self.forward, what, dot, true, cause)
                return False
        findings.report.hold(self.forward)
        return True

    def _hold_gradients(
        self, grads: Arrays, cotangents: Sequence[Any], moves: Arrays, slopes: Sequence[Slope]
    ) -> bool:
        probe = self.probe
        for grad, array, label in zip(grads, probe.arrays, probe.labels, strict=True):
            if grad.shape != array.shape:
                what = f"the gradient of {label} has a wrong shape"
                self.findings.fail(self.backward, what, grad, array, diagnose(grad, array))
                return False
        right, got, expected, size = self._projected(grads, cotangents, moves, slopes)
        if right:
            self.findings.report.hold(self.backward)
        elif not self._overflows(grads, np.array(size)):
            self._explain(cotangents, got, expected)
            return False
        return True

    def _hold_dot(
        self, grads: Arrays, dots: Arrays, cotangents: Sequence[Any], moves: Arrays
    ) -> None:
        """Holds <v, Ju> against <J'v, u>."""
        if not all(np.isfinite(array).all() for array in (*grads, *dots)):
            return
        if self.probe.may_overflow(np.concatenate(list(map(to_coordinates, grads)))):
            return
        left = [to_coordinates(g) * m for g, m in zip(grads, moves, strict=True)]
        pairs = zip(cotangents, dots, strict=True)
        right = [to_coordinates(ct) * to_coordinates(dot) for ct, dot in pairs]
        one, other = np.concatenate(left), np.concatenate(right)
        size = float(np.abs(one).sum() + np.abs(other).sum())
        precision = self.probe.precision
        if abs(one.sum() - other.sum()) <= (2 * precision**0.6 + 2 * precision**0.75) * size:
            self.findings.report.hold(self.dot)
            return
        got, expected = np.array(one.sum()), np.array(other.sum())
        what = "<backward(v), u> is not <v, jvp(u)>"
        self.findings.fail(self.dot, what, got, expected, diagnose(got, expected))

    def _overflows(self, found: Arrays, sizes: np.ndarray) -> bool:
        """Tells whether derivatives are infinite since their dtype ends somewhere."""
        if all(np.isfinite(to_coordinates(array)).all() for array in found):
            return False
        return self.findings.derived or self.probe.may_overflow(sizes)

    # ------------------------------------------------------------------------- what is wrong

    def _explain(self, cotangents: Sequence[Any], got: float, expected: float) -> None:
        """Records a wrong gradient, with all its elements where they are not too many."""
        probe = self.probe
        # real cotangents tell a missing conjugate from a missing factor of -1
        plain = [np.real(ct).astype(ct.dtype) for ct in hosts(cotangents)]
        if sum(map(count, probe.arrays)) <= _MOST:
            given = probe.pull(alike(plain, cotangents))
            true = gradients_by_differences(self.wide, plain)
            for i, (grad, truth) in enumerate(zip(given, true, strict=True)):
                with np.errstate(all="ignore"):
                    size = float(np.max(np.abs(truth), initial=0.0))
                    allowed = 3 * self.rtol * np.abs(truth) + 3 * self.floor * size
                    wrong = ~(np.abs(grad - truth) <= allowed)
                if wrong.any() and np.isfinite(truth).all():
                    elsewhere = {
                        f"swapped arguments: it is the gradient of {probe.labels[k]}": other
                        for k, other in enumerate(true)
                        if k != i and other.shape == truth.shape
                    }
                    for ct in plain:
                        elsewhere |= sums(ct, probe.arrays, probe.labels, grad.shape)
                    cause = diagnose(grad, truth, self._known(plain, truth), elsewhere)
                    what = f"the gradient of {probe.labels[i]} is wrong"
                    self.findings.fail(self.backward, what, grad, truth, cause)
                    return
        one, other = np.array(got), np.array(expected)
        what = "the gradient along a random direction is wrong"
        self.findings.fail(self.backward, what, one, other, diagnose(one, other))

    def _known(self, cotangents: Arrays, truth: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what may be missing as a factor or in a term of a gradient."""
        probe = self.probe
        outs = ["the result" if len(probe.outs) == 1 else f"output {i}" for i in probe.outputs]
        cts = ["the cotangent", *(f"cotangent {i}" for i in range(1, len(cotangents)))]
        arrays = [*probe.arrays, *probe.outs, *cotangents]
        return fitting(arrays, [*probe.labels, *outs, *cts], truth.shape)

    def _unconjugated(self, tangents: Arrays, number: int, true: np.ndarray) -> str:
        """Tells whether the jvp of complex numbers is right but for a conjugate."""
        if not any(map(is_complex, tangents)):
            return ""
        turned = self.probe.push(alike([t.conj() for t in tangents], self.probe.values))
        size = float(np.max(np.abs(true), initial=0.0))
        if np.allclose(turned[number].conj(), true, rtol=1e-4, atol=1e-6 * size):
            return "a missing conjugate: tangents are multiplied by the conjugate of the derivative"
        return ""


def gradients_by_differences(probe: Probe, cotangents: Sequence[Any]) -> list[np.ndarray]:
    """Returns the gradients of all arguments by differences, element by element."""
    weights = [to_coordinates(host(ct)) for ct in cotangents]
    function, found = traced_once(probe.select, probe.values), []
    for position, array in enumerate(probe.arrays):
        scale = scale_of(array)
        gradient = np.zeros(count(array))
        for k in range(count(array)):
            moves = [np.zeros(count(v)) for v in probe.arrays]
            moves[position][k] = scale[k]
            slopes = slope_along(function, probe.values, moves, probe.precision, short=True)
            total = sum(float(w @ s.value) for w, s in zip(weights, slopes, strict=True))
            gradient[k] = total / scale[k]
        found.append(from_coordinates(gradient, widened(array)))
    return found
