"""What every derivative must be besides right: linear, pure, whole in its parts.

These compare the rule with itself, so they need no differences and see errors of a few last digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ftrans.func.vjp import vjp
from ftrans.verify.call import host, like
from ftrans.verify.diagnosis import factor_between
from ftrans.verify.trial import Trial

__all__ = ["check_linear", "check_parts", "check_pure", "check_unused"]

LINEAR = "backward is linear"
PURE = "no side effects"
PARTS = "gradients of some inputs"
UNUSED = "outputs that are not used"

_MOST_SUBSETS = 14


def _differentiable(trial: Trial) -> bool:
    return bool(trial.outputs and trial.values)


def check_linear(trial: Trial) -> None:
    """Scales cotangents by 1e-3, 1e3 and -1, adds two of them, and passes zeros."""
    if not _differentiable(trial):
        return
    with trial.guarded(LINEAR, "backward", "no reverse mode"):
        one, other = trial.cotangents("linear"), trial.cotangents("added")
        pullback = vjp(trial.select, *trial.call.values)[1]

        def pull(cotangents: Sequence[Any]) -> list[np.ndarray]:
            return [host(grad) for grad in pullback(list(cotangents))]

        base = pull(one)
        nothing = pull([_times(ct, 0.0) for ct in one])
        for grad, usual in zip(nothing, base, strict=True):
            if np.isfinite(usual).all() and np.any(grad):
                cause = "a term of backward is not multiplied by the cotangent"
                what = "backward of cotangents of zeros is not zero"
                trial.fail(LINEAR, what, grad, np.zeros_like(grad), cause)
                return
        labels = [f"gradient of {label}" for label in trial.call.labels]
        # float16 ends at 65504, and begins at 6e-8
        wide = trial.precision < 1e-5
        for factor in (1e-3, 1e3, -1.0) if wide else (0.125, 8.0, -1.0):
            got = pull([_times(ct, factor) for ct in one])
            expected = [grad * np.asarray(factor, grad.dtype) for grad in base]
            if not all(np.isfinite(x).all() for x in expected):
                continue
            what = f"backward({factor:g} * v) is not {factor:g} * backward(v)"
            cause = _nonlinear(got, base, factor)
            if not trial.same(LINEAR, what, got, expected, labels, slack=4, cause=cause):
                return
        got = pull([a + b for a, b in zip(one, other, strict=True)])
        expected = [a + b for a, b in zip(base, pull(other), strict=True)]
        if all(np.isfinite(x).all() for x in expected):
            what = "backward(v + w) is not backward(v) + backward(w)"
            size = [np.abs(a) + np.abs(b) for a, b in zip(base, pull(other), strict=True)]
            if not _near(got, expected, size, trial.precision):
                cause = "backward is not linear in its cotangent"
                trial.same(LINEAR, what, got, expected, labels, cause=cause)
                return
        trial.report.hold(LINEAR)


def _near(
    got: Sequence[np.ndarray], expected: Sequence[Any], size: Sequence[Any], precision: float
) -> bool:
    return all(
        bool((np.abs(a - b) <= 4 * precision**0.6 * s).all())
        for a, b, s in zip(got, expected, size, strict=True)
    )


def _times(ct: Any, factor: float) -> Any:
    array = host(ct)
    return like((array * np.asarray(factor, array.dtype)).astype(array.dtype), ct)


def _nonlinear(got: Sequence[np.ndarray], base: Sequence[np.ndarray], factor: float) -> str:
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


def check_pure(trial: Trial, other: Trial | None, writes: bool = False) -> None:
    """Runs everything twice, and another call between a forward and its backward.

    Args:
        trial: the trial.
        other: the same function at another point, or None.
        writes: whether the function says that it writes to an input.
    """
    with trial.guarded(PURE, "the function"):
        first = [host(out) for out in trial.call(*trial.call.values)]
        second = [host(out) for out in trial.call(*trial.call.values)]
        cause = "the function is random, or keeps something between calls"
        trial.same(PURE, "two calls differ", second, first, cause=cause, exact=True)
    if _differentiable(trial):
        with trial.guarded(PURE, "backward", "no reverse mode"):
            _backwards(trial, other)
    if not writes:
        _unchanged(trial)


def _unchanged(trial: Trial) -> None:
    """Calls the function on arrays that it could write to, and looks whether it did."""
    given = [value.copy() for value in trial.values]
    with trial.guarded(PURE, "the function"):
        trial.call.func(*trial.call.arguments(given))
    for label, array, value in zip(trial.call.labels, given, trial.values, strict=True):
        if not np.array_equal(array, value, equal_nan=value.dtype.kind in "fc"):
            cause = "forward writes to an input: copy it, or say so by ctx.mark_dirty"
            trial.fail(PURE, f"{label} was written to", array, value, cause)
            return


def _backwards(trial: Trial, other: Trial | None) -> None:
    cotangents = trial.cotangents("pure")
    kept = [host(ct).copy() for ct in cotangents]
    pullback = vjp(trial.select, *trial.call.values)[1]

    def pull() -> list[np.ndarray]:
        return [host(grad) for grad in pullback(list(cotangents))]

    first = pull()
    cause = "backward is random, or keeps something between calls"
    what = "two runs of backward differ"
    if not trial.same(PURE, what, pull(), first, cause=cause, exact=True):
        return
    if any(not np.array_equal(host(c), k) for c, k in zip(cotangents, kept, strict=True)):
        trial.fail(PURE, "a cotangent was written to", cause="backward writes to its cotangent")
        return
    if other is None:
        return
    # two calls before either backward: a Function must not keep anything but on its context
    fresh = vjp(trial.select, *trial.call.values)[1]
    vjp(other.select, *other.call.values)
    got = [host(grad) for grad in fresh(list(cotangents))]
    cause = "state is shared between calls: keep it on ctx, not on the class or a global"
    what = "backward differs where another call came between it and its forward"
    trial.same(PURE, what, got, first, cause=cause, exact=True)


def check_parts(trial: Trial) -> None:
    """Differentiates with respect to some inputs alone, and along the tangents of some."""
    if not _differentiable(trial):
        return
    numbers = sorted(set(trial.call.positions))
    if len(numbers) < 2:
        return
    cotangents, tangents = trial.cotangents("parts"), trial.tangents("parts")
    sizes = range(1, len(numbers))
    subsets = itertools.chain.from_iterable(itertools.combinations(numbers, k) for k in sizes)
    with trial.guarded(PARTS, "backward", "no reverse mode"):
        whole = trial.pull(cotangents)
        for subset in itertools.islice(subsets, _MOST_SUBSETS):
            places = [i for i, n in enumerate(trial.call.positions) if n in subset]
            got = _some(trial, places, cotangents)
            expected = [whole[i] for i in places]
            named = ", ".join(trial.call.labels[i] for i in places)
            cause = "needs_input_grad is not read as it should be"
            what = f"the gradient is another one where only {named} needs one"
            labels = [trial.call.labels[i] for i in places]
            if not trial.same(PARTS, what, got, expected, labels, cause=cause):
                break
    with trial.guarded(PARTS, "jvp", "no forward mode"):
        whole = trial.push(tangents)
        parts = []
        for number in numbers:
            some = [
                t if n == number else None
                for t, n in zip(tangents, trial.call.positions, strict=True)
            ]
            parts.append(trial.push(some))
        got = [np.sum(many, axis=0) for many in zip(*parts, strict=True)]
        size = [np.sum(np.abs(many), axis=0) for many in zip(*parts, strict=True)]
        if not all(np.isfinite(x).all() for x in (*got, *whole)):
            return
        if _near(got, whole, size, trial.precision):
            trial.report.hold(PARTS)
        else:
            what = "jvp is not the sum of those along single inputs"
            cause = "a tangent of None is not treated as zero"
            trial.fail(PARTS, what, got[0], whole[0], cause)


def _some(trial: Trial, places: Sequence[int], cotangents: Sequence[Any]) -> list[np.ndarray]:
    """Returns the gradients of some inputs, the others being constants."""
    values = trial.call.values

    def function(*some: Any) -> list[Any]:
        filled = list(values)
        for place, value in zip(places, some, strict=True):
            filled[place] = value
        return trial.select(*filled)

    pullback = vjp(function, *(values[i] for i in places))[1]
    return [host(grad) for grad in pullback(list(cotangents))]


def check_unused(trial: Trial) -> None:
    """Uses some of several outputs alone: cotangents of the others are zero, or None."""
    if not trial.values or len(trial.outputs) < 2:
        return
    cotangents = trial.cotangents("unused")
    with trial.guarded(UNUSED, "backward", "no reverse mode"):
        for kept in _choices(len(trial.outputs)):
            full = [ct if i in kept else _times(ct, 0.0) for i, ct in enumerate(cotangents)]
            expected = trial.pull(full)

            def function(*values: Any, kept: Sequence[int] = kept) -> list[Any]:
                outs = trial.select(*values)
                return [outs[i] for i in kept]

            pullback = vjp(function, *trial.call.values)[1]
            got = [host(grad) for grad in pullback([cotangents[i] for i in kept])]
            what = (
                f"the gradient is another one where only output {', '.join(map(str, kept))} is used"
            )
            cause = "a cotangent of None is not treated as zero"
            if not trial.same(UNUSED, what, got, expected, trial.call.labels, cause=cause):
                return


def _choices(count: int) -> Iterator[tuple[int, ...]]:
    everything = range(count)
    for i in everything:
        yield (i,)
        if count > 2:
            yield tuple(k for k in everything if k != i)
