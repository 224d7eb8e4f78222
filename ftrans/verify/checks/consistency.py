"""What every derivative must be besides right: linear, whole in its parts, the same at each call.

These compare the rule with itself, so they need no differences and see errors of a few last digits.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ftrans.errors import MissingRuleError, TransposeError
from ftrans.func.jit import jit
from ftrans.verify.coordinates import Arrays, are_finite, close, hosts
from ftrans.verify.diagnosis import factor_between
from ftrans.verify.probe import Probe
from ftrans.verify.report import Case


def linear(probe: Probe) -> Iterator[Case]:
    """Scales cotangents by 1e-3, 1e3 and -1, adds two of them, and passes zeros."""
    if not probe.is_differentiable:
        return
    one, other = probe.cotangents("linear"), probe.cotangents("added")
    pullback = probe.pullback()

    def pull(cotangents: Arrays) -> Arrays:
        return hosts(pullback(list(cotangents)))

    def case(what: str, got: Arrays, expected: Arrays, cause: str, sizes: Any = ()) -> Case:
        # where a gradient overflows, nothing is known of it
        known = [i for i, array in enumerate(expected) if are_finite([array])]
        got, expected, sizes = ([x[i] for i in known] if x else x for x in (got, expected, sizes))
        labels = [f"gradient of {probe.labels[i]}" for i in known]
        return Case(what, got, expected, cause, labels, slack=4, sizes=sizes)

    base = pull(one)
    cause = "a term of backward is not multiplied by the cotangent"
    what = "backward of cotangents of zeros is not zero"
    yield case(what, pull(_times(one, 0.0)), _times(base, 0.0), cause)
    # float16 ends at 65504, and begins at 6e-8
    for factor in (1e-3, 1e3, -1.0) if probe.precision < 1e-5 else (0.125, 8.0, -1.0):
        got = pull(_times(one, factor))
        what = f"backward({factor:g} * v) is not {factor:g} * backward(v)"
        yield case(what, got, _times(base, factor), _nonlinear(got, base, factor))
    cause = "backward is not linear in its cotangent"
    got, added = pull(_sum([one, other])), pull(other)
    expected, sizes = _sum([base, added]), _sum([base, added], np.abs)
    yield case("backward(v + w) is not backward(v) + backward(w)", got, expected, cause, sizes)


def _times(arrays: Arrays, factor: float) -> Arrays:
    return [(a * np.asarray(factor, a.dtype)).astype(a.dtype) for a in arrays]


def _sum(lists: Sequence[Arrays], each: Any = np.asarray) -> Arrays:
    """Returns the sums of the first arrays of several lists, of the second ones, and so on."""
    return [np.sum(list(map(each, many)), axis=0) for many in zip(*lists, strict=True)]


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


def gradients_of_some(probe: Probe) -> Iterator[Case]:
    """Differentiates with respect to some inputs alone."""
    if not probe.is_differentiable or len(set(probe.positions)) < 2:
        return
    cotangents = probe.cotangents("parts")
    whole, numbers = probe.pull(cotangents), sorted(set(probe.positions))
    # the smallest subsets first, and not too many
    subsets = (itertools.combinations(numbers, k) for k in range(1, len(numbers)))
    for subset in itertools.islice(itertools.chain.from_iterable(subsets), 14):
        only = [i for i, n in enumerate(probe.positions) if n in subset]
        labels = [probe.labels[i] for i in only]
        run = functools.partial(probe.pull, cotangents, only=only)
        what = f"backward differs where only {', '.join(labels)} needs a gradient"
        cause = "needs_input_grad is not read as it should be"
        yield Case(what, run, [whole[i] for i in only], cause, labels)


def tangents_of_some(probe: Probe) -> Iterator[Case]:
    """Pushes forward the tangents of some inputs alone."""
    numbers, tangents = sorted(set(probe.positions)), probe.tangents("parts")
    if not probe.is_differentiable or len(numbers) < 2:
        return
    whole = probe.push(tangents)
    pairs = list(zip(tangents, probe.positions, strict=True))
    parts = [probe.push([t if n == number else None for t, n in pairs]) for number in numbers]
    got = _sum(parts)
    if are_finite([*got, *whole]):
        what = "jvp is not the sum of those along single inputs"
        cause = "a tangent of None is not treated as zero"
        yield Case(what, got, whole, cause, slack=2, sizes=_sum(parts, np.abs))


def unused(probe: Probe) -> Iterator[Case]:
    """Uses some of several outputs alone: cotangents of the others are zero, or None."""
    size = len(probe.outputs)
    if not probe.values or size < 2:
        return
    cotangents = probe.cotangents("unused")
    zeros = _times(cotangents, 0.0)
    one_or_most = [itertools.combinations(range(size), n) for n in sorted({1, size - 1})]
    for kept in itertools.chain.from_iterable(one_or_most):
        full = [(cotangents if i in kept else zeros)[i] for i in range(size)]
        outputs = [probe.outputs[i] for i in kept]
        got = probe.pull([cotangents[i] for i in kept], outputs=outputs)
        what = f"the gradient is another one where only output {', '.join(map(str, kept))} is used"
        cause = "a cotangent of None is not treated as zero"
        yield Case(what, got, probe.pull(full), cause, probe.labels)


# ---------------------------------------------------------------------------- the same at each call


def repeated(probe: Probe) -> Iterator[Case]:
    """Calls the function twice."""
    first, second = (hosts(probe(*probe.values)) for _ in range(2))
    cause = "the function is random, or keeps something between calls"
    yield Case("two calls differ", second, first, cause, exact=True)


def unchanged(probe: Probe) -> Iterator[Case]:
    """Calls the function on arrays that it could write to, and looks whether it did."""
    given = [array.copy() for array in probe.values]
    probe.func(*probe.arguments(given))
    for label, array, value in zip(probe.labels, given, probe.values, strict=True):
        if not close(array, value):
            cause = "forward writes to an input: copy it, or say so by ctx.mark_dirty"
            yield Case(f"{label} was written to", [array], [value], cause, slack=0)


def pulled_twice(probe: Probe, other: Probe | None = None) -> Iterator[Case]:
    """Runs backward twice, and once with another call, at another point, before it."""
    if not probe.is_differentiable:
        return
    cotangents = probe.cotangents("pure")
    kept = [ct.copy() for ct in cotangents]

    def case(what: str, pullback: Any, cause: str) -> Case:
        return Case(what, hosts(pullback(list(cotangents))), first, cause, exact=True)

    pullback = probe.pullback()
    first = hosts(pullback(list(cotangents)))
    cause = "backward is random, keeps something between calls, or changes what forward has saved"
    yield case("two runs of backward differ", pullback, cause)
    if not all(map(np.array_equal, cotangents, kept)):
        cause = "backward writes to its cotangent"
        yield Case("a cotangent was written to", cotangents, kept, cause, slack=0)
    if other is not None:
        # two calls before either backward: a Function must not keep anything but on its context
        pullback = probe.pullback()
        other.pullback()
        cause = "state is shared between calls: keep it on ctx, not on the class or in a global"
        what = "backward differs where another call came between it and its forward"
        yield case(what, pullback, cause)


def jitted(probe: Probe) -> Iterator[Case]:
    """Compiles the function together with its gradient, and holds both against un-jitted ones."""
    cotangents = probe.cotangents("jit") if probe.values else []

    def both(*values: Any) -> list[Any]:
        # first, since the function may write to values
        pullback = probe.pullback(values)
        return [*probe(*values), *pullback(cotangents)]

    function = both if probe.is_differentiable else probe
    try:
        expected = hosts(function(*probe.values))
    except (MissingRuleError, TransposeError):
        function, expected = probe, hosts(probe(*probe.values))
    got = hosts(jit(function)(*probe.values))
    labels = [f"output {i}" for i in range(len(probe.leaves))]
    labels += [f"gradient of {label}" for label in probe.labels]
    # compiled code may order sums in another way
    again = lambda seed: function(*probe.shaken(seed))  # noqa: E731
    yield Case("jit gives something else", got, expected, "", labels, slack=20, again=again)
