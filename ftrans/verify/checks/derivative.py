"""Backward and jvp against differences, and against each other by the dot product; of all orders.

Differences are taken in double precision where the function takes that. At a kink any slope
between those of both sides is right. The pullback is a function too, of the point and of the
cotangents: its derivatives are the second ones. That a rule cannot be differentiated twice is
noted, since its author may have said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.verify.coordinates import (
    Arrays,
    are_finite,
    close,
    count,
    from_coordinates,
    is_complex,
    largest,
    scale_of,
    to_coordinates,
    widened,
)
from ftrans.verify.diagnosis import diagnose, sums
from ftrans.verify.differences import Beside, Slope, projected, slope_along
from ftrans.verify.probe import Probe
from ftrans.verify.report import Case, Findings

_MOST = 400
"""Of how many real coordinates a whole gradient is taken by differences, to see what is wrong."""

_NAMES = {2: ("second", "twice"), 3: ("third", "three times"), 4: ("fourth", "four times")}


def check_derivatives(findings: Findings, directions: int = 3) -> None:
    """Holds derivatives against differences along random directions, and against each other."""
    names = "backward against differences", "jvp against differences", "backward against jvp"
    _Comparison(findings, names).run(directions)


def check_higher(findings: Findings, order: int) -> None:
    """Holds the derivatives of orders 2, 3, ... against differences of those one order lower."""
    probe = findings.probe
    if not probe.is_differentiable:
        return
    for number in range(2, order + 1):
        name, times = _NAMES.get(number, (f"{number}th", f"{number} times"))
        check, missing = f"{name} derivative", f"not {times} differentiable"
        wide = probe.wide
        if wide is None:
            findings.note(check, "not checked: the function does not take double precision")
            return
        found = []
        with findings.guarded(check, "backward", missing):
            found += [_derivative(wide, wide.pulled, "cotangent", wide.cotangents("second"))]
        if not found:
            return
        if number == 2:
            # it may go by a rule of its own
            with findings.guarded(check, "jvp", missing):
                found += [_derivative(wide, wide.pushed, "tangent", wide.tangents("second"))]
        for derivative in found:
            inner = Findings(findings.report, findings.sample, derivative)
            _Comparison(inner, (check, check, check), missing).run(1)
        probe = found[0]


def _derivative(probe: Probe, func: Any, name: str, vectors: Sequence[Any]) -> Probe:
    """Returns a derivative as a function of the floating arguments and of vectors."""
    made = Probe(func, (*probe.values, *vectors))
    made.labels = [*probe.labels, *(f"{name} {i}" for i in range(len(vectors)))]
    # it is traced wherever it is called, and as exact as the function itself
    made.leaves, made.precision = made(*made.values), probe.precision
    return made


class _Comparison:
    """Compares the derivatives of a probe, under these names of checks.

    Of those of higher order it is said what is `missing` where there are none.
    """

    def __init__(self, findings: Findings, names: Sequence[str], missing: str = ""):
        self.findings = findings
        self.probe = probe = findings.probe
        self.backward, self.forward, self.dot = names
        self.missing = missing
        self.wide = probe.wide or probe
        precision = probe.precision
        # the relative tolerance of the probe's own numbers, and that against the largest one
        self.rtol, self.floor = max(1e-6, 20 * precision**0.6), 20 * precision**0.75

    def run(self, directions: int) -> None:
        """Compares along so many random directions; stops at the first that fails."""
        probe = self.probe
        if probe.outputs and sum(map(count, probe.values)):
            for k in range(directions):
                if not self._holds(probe.tangents(str(k)), probe.cotangents(str(k))):
                    return

    def _holds(self, tangents: Sequence[Any], cotangents: Sequence[Any]) -> bool:
        """Compares along one direction."""
        probe, findings = self.probe, self.findings
        moves, weights = list(map(to_coordinates, tangents)), list(map(to_coordinates, cotangents))
        slopes: list[Slope] = []
        grads: list[np.ndarray] = []
        dots: list[np.ndarray] = []
        with findings.guarded(self.backward, "the function", self.missing):
            slopes = self._slopes(self.wide.values, moves)
        if not slopes:
            return False
        if any(slope.kinked.any() for slope in slopes):
            text = "the sample is at a kink: slopes between both sides are accepted"
            findings.note(self.backward, text)
        with findings.guarded(self.backward, "backward", self.missing):
            grads = probe.pull(cotangents)
        with findings.guarded(self.forward, "jvp", self.missing):
            dots = probe.push(tangents)
        left = [to_coordinates(grad) * move for grad, move in zip(grads, moves, strict=False)]
        along = np.array([sum(term.sum() for term in left)])
        pushed = list(map(to_coordinates, dots))
        fits = not grads or self._allows(projected(slopes, weights), along)
        if not fits or not all(map(self._allows, slopes, pushed)):
            slopes = self._blurred(moves, slopes)
        holds = True
        if grads:
            truth = projected(slopes, weights)
            if self._allows(truth, along):
                findings.hold(self.backward)
            elif not self._overflows(grads, truth.size):
                self._explain(cotangents, along[0], truth.value[0])
                holds = False
        if dots:
            holds &= self._hold_tangents(dots, slopes, moves)
        if holds and grads and dots:
            # <v, Ju> against <J'v, u>
            terms = left, [w * dot for w, dot in zip(weights, pushed, strict=True)]
            one, other = map(np.concatenate, terms)
            sizes = np.concatenate(list(map(to_coordinates, grads)))
            if are_finite((sizes, one, other)) and not probe.may_overflow(sizes):
                what, size = "<backward(v), u> is not <v, jvp(u)>", np.abs([*one, *other]).sum()
                findings.same(self.dot, Case(what, [one.sum()], [other.sum()], sizes=[size]))
        return holds

    def _slopes(self, values: Sequence[Any], moves: Arrays) -> list[Slope]:
        return slope_along(Beside(self.wide.select, values), moves, self.wide.precision)

    def _allows(self, slope: Slope, got: np.ndarray) -> bool:
        return slope.allows(got, self.rtol, self.floor)

    def _blurred(self, moves: Arrays, slopes: Sequence[Slope]) -> list[Slope]:
        """Returns slopes that are as uncertain as the last digits of the arguments make them."""
        shaken = [self.wide.shaken(seed, self.probe.precision) for seed in range(2)]
        found = [self._slopes(values, moves) for values in shaken]
        blurred = []
        for slope, *others in zip(slopes, *found, strict=True):
            apart = [np.abs(other.value - slope.value) for other in others]
            blur = np.nanmax([*apart, 0 * slope.error], axis=0)
            blurred.append(slope._replace(error=slope.error + blur))
        return blurred

    def _hold_tangents(self, dots: Arrays, slopes: Sequence[Slope], moves: Arrays) -> bool:
        probe = self.probe
        for i, (dot, slope, out) in enumerate(zip(dots, slopes, probe.outs, strict=True)):
            if self._allows(slope, to_coordinates(dot)) or self._overflows([dot], slope.value):
                continue
            true = from_coordinates(slope.value, widened(out))
            tangents = list(map(from_coordinates, moves, probe.values))
            known = {"the result": out} | probe.named
            known |= {f"the tangent of {k}": t for k, t in zip(probe.labels, tangents, strict=True)}
            cause = diagnose(dot, true, known)
            turned = probe.push([t.conj() for t in tangents])[i].conj()
            if any(map(is_complex, tangents)) and close(turned, true, 1e-4 * largest(true)):
                text = "tangents are multiplied by the conjugate of the derivative"
                cause = f"a missing conjugate: {text}"
            what = f"the tangent of output {i} is wrong"
            self.findings.fail(self.forward, what, dot, true, cause)
            return False
        self.findings.hold(self.forward)
        return True

    def _overflows(self, found: Arrays, sizes: np.ndarray) -> bool:
        """Tells whether derivatives are infinite since their dtype ends somewhere."""
        is_cut = self.findings.cut is not None
        return not are_finite(found) and (is_cut or self.probe.may_overflow(sizes))

    # ------------------------------------------------------------------------- what is wrong

    def _explain(self, cotangents: Sequence[Any], got: float, expected: float) -> None:
        """Records a wrong gradient, with all its elements where they are not too many."""
        probe, fail = self.probe, self.findings.fail
        # real cotangents tell a missing conjugate from a missing factor of -1
        plain = [np.real(ct).astype(ct.dtype) for ct in cotangents]
        if sum(map(count, probe.values)) <= _MOST:
            given = probe.pull(plain)
            true = gradients_by_differences(self.wide, plain)
            for i, (grad, truth) in enumerate(zip(given, true, strict=True)):
                allowed = 3 * self.rtol * np.abs(truth) + 3 * self.floor * largest(truth)
                if are_finite([truth]) and not close(grad, truth, allowed):
                    elsewhere = {
                        f"swapped arguments: it is the gradient of {probe.labels[k]}": other
                        for k, other in enumerate(true)
                        if k != i and other.shape == truth.shape
                    }
                    for ct in plain:
                        elsewhere |= sums(ct, probe.named, grad.shape)
                    cause = diagnose(grad, truth, self._known(plain), elsewhere)
                    what = f"the gradient of {probe.labels[i]} is wrong"
                    fail(self.backward, what, grad, truth, cause)
                    return
        one, other = np.array(got), np.array(expected)
        what = "the gradient along a random direction is wrong"
        fail(self.backward, what, one, other, diagnose(one, other))

    def _known(self, cotangents: Arrays) -> dict[str, np.ndarray]:
        """Returns what may be missing as a factor or in a term of a gradient."""
        probe = self.probe
        outs = ["the result" if len(probe.outs) == 1 else f"output {i}" for i in probe.outputs]
        cts = ["the cotangent", *(f"cotangent {i}" for i in range(1, len(cotangents)))]
        pairs = zip((*outs, *cts), (*probe.outs, *cotangents), strict=True)
        return probe.named | dict(pairs)


def gradients_by_differences(probe: Probe, cotangents: Sequence[Any]) -> list[np.ndarray]:
    """Returns the gradients of all arguments by differences, element by element."""
    weights = [to_coordinates(np.asarray(ct)) for ct in cotangents]
    beside, found = Beside(probe.select, probe.values), []
    for position, array in enumerate(probe.values):
        scale = scale_of(array)
        gradient = np.zeros(count(array))
        for k in range(count(array)):
            moves = [np.zeros(count(v)) for v in probe.values]
            moves[position][k] = scale[k]
            slopes = slope_along(beside, moves, probe.precision)
            total = sum(float(w @ s.value) for w, s in zip(weights, slopes, strict=True))
            gradient[k] = total / scale[k]
        found.append(from_coordinates(gradient, widened(array)))
    return found
