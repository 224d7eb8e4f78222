"""Code that invites recompilation: trip counts, learning rates and lambdas that are ever new."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import ftrans
from benchmarks import libraries
from benchmarks.measure import interleave, ratio, timed
from benchmarks.models import newton, perceptron
from benchmarks.models.chain import vector
from benchmarks.race import agree
from benchmarks.result import Result, compilations, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS", "lambdas", "learning_rates", "newton_slopes"]


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Has every program compiled, from an empty cache, as long as the scope lasts."""
    before = ftrans.config.execution
    ftrans.cache_clear()
    ftrans.config.execution = "compile"
    try:
        yield
    finally:
        ftrans.config.execution = before


def newton_slopes(lib: Any, count: int) -> np.ndarray:
    """Returns the derivatives of the roots that Newton's method finds from several starts."""
    scale = lib.array(np.float32(2.0))
    return np.array(
        [
            float(lib.grad(lambda c, start=start: newton.root(lib.numpy, start, c))(scale))
            for start in newton.starts(count)
        ]
    )


def learning_rates(steps: int) -> float:
    """Tunes a perceptron by the loss after one step, at a learning rate that falls; returns it."""
    lib = libraries.ftrans()
    params, (images, goals) = perceptron.parameters((8, 8, 2)), perceptron.batch(16, (8, 2))

    def loss(params: Any) -> Any:
        return perceptron.loss(lib.numpy, params, images, goals)

    def descend(params: Any, slopes: Any, rate: float) -> Any:
        pairs = zip(params, slopes, strict=True)
        return [(w - rate * dw, b - rate * db) for (w, b), (dw, db) in pairs]

    value = np.inf
    for number in range(steps):
        rate = 0.1 / (1.0 + 0.01 * number)

        def ahead(params: Any, rate: float = rate) -> Any:
            return loss(descend(params, lib.grad(loss)(params), rate))

        value, slopes = lib.value_and_grad(ahead)(params)
        params = descend(params, slopes, rate)
    return float(value)


def lambdas(count: int) -> np.ndarray:
    """Differentiates the same expression as often, as a new lambda each time."""
    lib = libraries.ftrans()
    xp, x = lib.numpy, vector(8)
    found = np.zeros_like(x)
    for _ in range(count):
        found = lib.grad(lambda x: xp.sum(xp.sin(x) * xp.exp(-x)))(x)
    return found


def _newton(row: Row, settings: Settings) -> Iterator[Result]:
    count = 20 if settings.small else 200
    ours, theirs = libraries.ftrans(), libraries.jax()

    def from_empty() -> float:
        ftrans.cache_clear()
        return timed(lambda: newton_slopes(ours, count), 1)()

    ftrans.cache_clear()
    newton_slopes(ours, count)
    compiled = ftrans.cache_info().compiled
    # the steps of 0.9 and of 8.0 are among the 20 too
    agree(row.name, "JAX", newton_slopes(ours, 20), newton_slopes(theirs, 20), 5e-3)
    probes = {"ftrans": from_empty, "jax": timed(lambda: newton_slopes(theirs, count), 1)}
    times = interleave(probes, min(settings.rounds, 3), settings.limit)
    yield Result.of(
        ratio(times["ftrans"], times["jax"]),
        row=row.name,
        peer="JAX, un-jitted",
        target=time(1 / 10),
        note=f"{count} calls",
    )
    yield Result(row=row.name, target=compilations(3), value=compiled, note=f"{count} calls")


def _rates(row: Row, settings: Settings) -> Iterator[Result]:
    count = 10 if settings.small else 100
    with compiling():
        learning_rates(count)
        compiled = ftrans.cache_info().compiled
    yield Result(row=row.name, target=compilations(2), value=compiled, note=f"{count} steps")


def _lambdas(row: Row, settings: Settings) -> Iterator[Result]:
    with compiling():
        lambdas(100)
        compiled = ftrans.cache_info().compiled
    yield Result(row=row.name, target=compilations(1), value=compiled, note="100 calls")


ROWS = [
    Row(
        "newton",
        "200 calls of un-jitted `grad` through Newton's method in plain Python, of 5 to 20 steps, "
        "ftrans from an empty cache.",
        _newton,
    ),
    Row(
        "learning-rates",
        "100 steps of un-jitted `value_and_grad` of a step that itself takes one, "
        "with a new Python float as its rate each time; compiling is forced.",
        _rates,
    ),
    Row("lambdas", "100 calls of `grad` of a new lambda each; compiling is forced.", _lambdas),
]
