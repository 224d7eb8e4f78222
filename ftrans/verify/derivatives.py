"""Backward and jvp against differences, and against each other by the dot product.

Differences are taken in double precision where the function takes that. At a kink any slope
between those of both sides is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ftrans.verify.call import host, like
from ftrans.verify.coordinates import count, from_coordinates, to_coordinates
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.slopes import Slope, scale_of, slope_along
from ftrans.verify.trial import Trial, last_digits

__all__ = ["BACKWARD", "DOT", "JVP", "check_derivatives", "check_slopes"]

BACKWARD = "backward against differences"
JVP = "jvp against differences"
DOT = "backward against jvp"
KINK = "the sample is at a kink: slopes between both sides are accepted"


def check_derivatives(trial: Trial, directions: int = 3) -> None:
    """Holds the derivatives of a trial against differences, and against each other.

    Args:
        trial: the trial.
        directions: how many random directions are tried.
    """
    _Checks(trial, BACKWARD, JVP, DOT, "no reverse mode", "no forward mode").run(directions)


def check_slopes(trial: Trial, check: str, missing: str) -> None:
    """Does the same along one direction, under one name.

    Args:
        trial: the trial.
        check: the name.
        missing: what is noted where there is no derivative.
    """
    _Checks(trial, check, check, check, missing, missing).run(1)


class _Checks:
    """Runs the checks under names of their own.

    Args:
        trial: the trial.
        backward: the name of the check of backward.
        jvp: that of jvp.
        dot: that of one against the other.
        no_backward: what is noted where there is no reverse mode.
        no_jvp: what is noted where there is no forward mode.
    """

    def __init__(
        self, trial: Trial, backward: str, jvp: str, dot: str, no_backward: str, no_jvp: str
    ):
        self.trial = trial
        self.backward = backward
        self.jvp = jvp
        self.dot = dot
        self.no_backward = no_backward
        self.no_jvp = no_jvp

    def run(self, directions: int) -> None:
        """Runs them along so many random directions; stops at the first that fails."""
        trial = self.trial
        if not trial.outputs or not sum(map(count, trial.values)):
            return
        reference = trial.reference() or trial
        for k in range(directions):
            tangents, cotangents = trial.tangents(str(k)), trial.cotangents(str(k))
            moves = [to_coordinates(t) for t in map(host, tangents)]
            grads = dots = slopes = None
            with trial.guarded(self.backward, "the function", self.no_backward):
                slopes = slope_along(
                    reference.select, reference.call.values, moves, reference.precision
                )
            if slopes is None:
                return
            if any(slope.kinked.any() for slope in slopes):
                trial.note(self.backward, KINK)
            with trial.guarded(self.backward, "backward", self.no_backward):
                grads = trial.pull(cotangents)
            with trial.guarded(self.jvp, "jvp", self.no_jvp):
                dots = trial.push(tangents)
            if not self._fits(grads, dots, cotangents, moves, slopes):
                slopes = self._widened(reference, moves, slopes)
            failed = False
            if grads is not None:
                failed |= not self._gradients(reference, grads, cotangents, moves, slopes)
            if dots is not None:
                failed |= not self._tangents(dots, slopes, moves)
            if grads is not None and dots is not None and not failed:
                self._dot(grads, dots, cotangents, moves)
            if failed:
                return

    def _fits(
        self, grads: Any, dots: Any, cotangents: Any, moves: Any, slopes: Sequence[Slope]
    ) -> bool:
        """Tells whether all is right, and nothing needs a closer look."""
        fits = True
        values = self.trial.values
        if grads is not None and [g.shape for g in grads] == [v.shape for v in values]:
            fits = self._projected(grads, cotangents, moves, slopes)[0]
        for dot, slope in zip(dots or (), slopes if dots else (), strict=True):
            got = to_coordinates(dot)
            fits = fits and got.shape == slope.value.shape and bool(self._right(got, slope).all())
        return fits

    def _widened(
        self, reference: Trial, moves: Sequence[np.ndarray], slopes: Sequence[Slope]
    ) -> list[Slope]:
        """Returns slopes that are as uncertain as the last digits of the arguments make them."""
        trial = self.trial
        found = []
        for seed in range(2):
            values = [
                like(last_digits(v, seed, trial.precision), original)
                for v, original in zip(reference.values, reference.call.values, strict=True)
            ]
            with np.errstate(all="ignore"):
                found.append(slope_along(reference.select, values, moves, reference.precision))
        return [
            replace(
                slope,
                error=slope.error
                + np.nanmax(
                    [np.abs(f[i].value - slope.value) for f in found] + [0 * slope.error], 0
                ),
            )
            for i, slope in enumerate(slopes)
        ]

    def _right(self, got: np.ndarray, slope: Slope) -> np.ndarray:
        """Tells of each number of a tangent whether it is right."""
        with np.errstate(all="ignore"):
            size = float(np.max(np.abs(slope.value), initial=0.0, where=np.isfinite(slope.value)))
            allowed = _allowed(self.trial, slope, size)
            right = (got >= slope.low - allowed) & (got <= slope.high + allowed)
            return right | ~np.isfinite(slope.value)

    def _projected(
        self,
        grads: Sequence[np.ndarray],
        cotangents: Sequence[Any],
        moves: Sequence[np.ndarray],
        slopes: Sequence[Slope],
    ) -> tuple[bool, float, float, float]:
        """Returns whether the gradients along a direction are right, them, the truth, its size."""
        low = high = allowed = size = 0.0
        rtol, floor = _rough(self.trial)
        for cotangent, slope in zip(cotangents, slopes, strict=True):
            weights = to_coordinates(host(cotangent))
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
        allowed += (rtol + floor) * size
        return low - allowed <= got <= high + allowed, got, (low + high) / 2, size

    def _tangents(
        self, dots: Sequence[np.ndarray], slopes: Sequence[Slope], moves: Sequence[np.ndarray]
    ) -> bool:
        trial = self.trial
        for i, (dot, slope, out) in enumerate(zip(dots, slopes, trial.outs, strict=True)):
            got = to_coordinates(dot)
            if got.shape != slope.value.shape:
                trial.fail(self.jvp, "the tangent has a wrong shape", dot, out, diagnose(dot, out))
                return False
            right = self._right(got, slope)
            if not right.all() and not _overflows(trial, [dot], slope.value):
                true = from_coordinates(slope.value, _wide(out))
                known = {"the result": out}
                known |= _like_shape(trial.values, trial.call.labels, out)
                known |= _like_shape(
                    [from_coordinates(m, v) for m, v in zip(moves, trial.values, strict=True)],
                    [f"the tangent of {label}" for label in trial.call.labels],
                    out,
                )
                cause = _unconjugated(trial, moves, i, true) or diagnose(dot, true, known)
                trial.fail(self.jvp, f"the tangent of output {i} is wrong", dot, true, cause)
                return False
        trial.report.hold(self.jvp)
        return True

    def _gradients(
        self,
        reference: Trial,
        grads: Sequence[np.ndarray],
        cotangents: Sequence[np.ndarray],
        moves: Sequence[np.ndarray],
        slopes: Sequence[Slope],
    ) -> bool:
        trial = self.trial
        for grad, value, label in zip(grads, trial.values, trial.call.labels, strict=True):
            if grad.shape != value.shape:
                cause = diagnose(grad, value)
                trial.fail(
                    self.backward, f"the gradient of {label} has a wrong shape", grad, value, cause
                )
                return False
        right, got, expected, size = self._projected(grads, cotangents, moves, slopes)
        if right:
            trial.report.hold(self.backward)
            return True
        if _overflows(trial, grads, np.array(size)):
            return True
        self._explain(reference, grads, cotangents, got, expected)
        return False

    def _dot(
        self,
        grads: Sequence[np.ndarray],
        dots: Sequence[np.ndarray],
        cotangents: Sequence[np.ndarray],
        moves: Sequence[np.ndarray],
    ) -> None:
        """Holds <v, Ju> against <J'v, u>."""
        trial = self.trial
        if not all(np.isfinite(array).all() for array in (*grads, *dots)):
            return
        if trial.may_overflow(trial.coordinates(grads)):
            return
        left = np.concatenate([to_coordinates(g) * m for g, m in zip(grads, moves, strict=True)])
        pairs = zip(cotangents, dots, strict=True)
        right = np.concatenate(
            [to_coordinates(host(ct)) * to_coordinates(dot) for ct, dot in pairs]
        )
        size = float(np.abs(left).sum() + np.abs(right).sum())
        allowed = (2 * trial.precision**0.6 + 2 * trial.precision**0.75) * size
        if not abs(left.sum() - right.sum()) <= allowed:
            cause = diagnose(np.array(left.sum()), np.array(right.sum()))
            trial.fail(
                self.dot,
                "<backward(v), u> is not <v, jvp(u)>",
                np.array(left.sum()),
                np.array(right.sum()),
                cause,
            )
        else:
            trial.report.hold(self.dot)

    def _explain(
        self,
        reference: Trial,
        grads: Sequence[np.ndarray],
        cotangents: Sequence[np.ndarray],
        got: float,
        expected: float,
    ) -> None:
        """Records a wrong gradient, with all its elements where they are not too many."""
        trial = self.trial
        rtol, floor = _rough(trial)
        # real cotangents tell a missing conjugate from a missing factor of -1
        plain = [like(np.real(ct).astype(ct.dtype), ct) for ct in map(host, cotangents)]
        if sum(map(count, trial.values)) <= _MOST:
            given = trial.pull(plain)
            true = gradients_by_differences(reference, plain)
            for i, (grad, truth) in enumerate(zip(given, true, strict=True)):
                with np.errstate(all="ignore"):
                    size = float(np.max(np.abs(truth), initial=0.0))
                    wrong = ~(np.abs(grad - truth) <= 3 * rtol * np.abs(truth) + 3 * floor * size)
                if wrong.any() and np.isfinite(truth).all():
                    label = trial.call.labels[i]
                    mixed = _mixed(trial, true, i) | _summed(trial, plain, grad.shape)
                    cause = diagnose(grad, truth, _known(trial, plain, truth), mixed)
                    trial.fail(
                        self.backward, f"the gradient of {label} is wrong", grad, truth, cause
                    )
                    return
        cause = diagnose(np.array(got), np.array(expected))
        what = "the gradient along a random direction is wrong"
        trial.fail(self.backward, what, np.array(got), np.array(expected), cause)


def _overflows(trial: Trial, found: Sequence[np.ndarray], sizes: np.ndarray) -> bool:
    """Tells whether derivatives are infinite since their dtype ends somewhere."""
    if all(np.isfinite(to_coordinates(array)).all() for array in found):
        return False
    return trial.derived or trial.may_overflow(sizes)


def _rough(trial: Trial) -> tuple[float, float]:
    """Returns the relative tolerance of a trial's own numbers, and that against the largest one."""
    precision = trial.precision
    return max(1e-6, 20 * precision**0.6), 20 * precision**0.75


def _allowed(trial: Trial, slope: Slope, size: float) -> np.ndarray:
    rtol, floor = _rough(trial)
    sizes = np.maximum(np.abs(slope.low), np.abs(slope.high))
    return 30 * slope.error + rtol * sizes + floor * size


def _unconjugated(trial: Trial, moves: Sequence[np.ndarray], number: int, true: np.ndarray) -> str:
    """Tells whether the jvp of complex numbers is right but for a conjugate."""
    if not any(value.dtype.kind == "c" for value in trial.values):
        return ""
    pairs = zip(moves, trial.values, trial.call.values, strict=True)
    tangents = [like(from_coordinates(m, v).conj(), original) for m, v, original in pairs]
    turned = trial.push(tangents)[number].conj()
    size = float(np.max(np.abs(true), initial=0.0))
    if np.allclose(turned, true, rtol=1e-4, atol=1e-6 * size):
        return "a missing conjugate: tangents are multiplied by the conjugate of the derivative"
    return ""


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _like_shape(
    values: Sequence[np.ndarray], labels: Sequence[str], like_this: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the values that broadcast to a shape, by their names."""
    found = {}
    for value, label in zip(values, labels, strict=True):
        try:
            if np.broadcast_shapes(value.shape, like_this.shape) == like_this.shape:
                found[label] = _wide(value)
        except ValueError:
            continue
    return found


# ------------------------------------------------------------------------------- what is wrong

_MOST = 400
"""Of how many real coordinates a whole gradient is taken by differences, to see what is wrong."""


def _known(trial: Trial, cotangents: Sequence[np.ndarray], truth: np.ndarray) -> dict:
    """Returns what may be missing as a factor or in a term of a gradient."""
    known = _like_shape(trial.values, trial.call.labels, truth)
    names = ["the result" if len(trial.outs) == 1 else f"output {i}" for i in trial.outputs]
    known |= _like_shape(trial.outs, names, truth)
    names = ["the cotangent", *(f"cotangent {i}" for i in range(1, len(cotangents)))]
    known |= _like_shape([host(ct) for ct in cotangents], names, truth)
    return known


def _mixed(trial: Trial, true: Sequence[np.ndarray], which: int) -> dict[str, np.ndarray]:
    """Returns the gradients of the other arguments of the same shape: they may be swapped."""
    return {
        f"swapped arguments: it is the gradient of {trial.call.labels[i]}": other
        for i, other in enumerate(true)
        if i != which and other.shape == true[which].shape
    }


def _summed(
    trial: Trial, cotangents: Sequence[np.ndarray], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Returns cotangents, alone and times an argument, summed to the shape of a gradient."""
    found = {}
    for ct in map(host, cotangents):
        over = ct.ndim - len(shape)
        if not 0 < over <= ct.ndim <= 4:
            continue
        factors = {"the cotangent": np.ones((), ct.dtype)}
        for label, value in _like_shape(trial.values, trial.call.labels, ct).items():
            factors[f"the cotangent times {label}"] = value
        for (name, factor), axes in itertools.product(
            factors.items(), itertools.combinations(range(ct.ndim), over)
        ):
            total = (ct * factor).sum(axes)
            if total.shape == shape:
                found[f"a wrong axis: it is {name}, summed over {axes}"] = total
    return found


def gradients_by_differences(trial: Trial, cotangents: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the gradients of all arguments by differences, element by element."""
    weights = [to_coordinates(host(ct)) for ct in cotangents]
    found = []
    for position, value in enumerate(trial.values):
        scale = scale_of(value)
        gradient = np.zeros(count(value))
        for coordinate in range(count(value)):
            moves = [np.zeros(count(v)) for v in trial.values]
            moves[position][coordinate] = scale[coordinate]
            slopes = slope_along(
                trial.select, trial.call.values, moves, trial.precision, short=True
            )
            total = sum(float(w @ s.value) for w, s in zip(weights, slopes, strict=True))
            gradient[coordinate] = total / scale[coordinate]
        found.append(from_coordinates(gradient, _wide(value)))
    return found
