"""Long programs that repeat: many layers, and a loop of Python's over small steps."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any

import numpy as np

import ftrans
from benchmarks import libraries
from benchmarks.measure import interleave, ratio, timed
from benchmarks.models import transformer
from benchmarks.race import agree
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings
from ftrans import func

__all__ = ["ROWS"]


def _later(
    row: Row,
    settings: Settings,
    peer: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    calls: int,
    most: float,
) -> Result:
    """Compares results, and times calls of what was called before."""
    import jax

    agree(row.name, peer, ours(), theirs(), 2e-3)
    probes = {
        name: timed(lambda run=run: jax.block_until_ready(run()), calls, perf_counter)
        for name, run in (("ftrans", ours), ("jax", theirs))
    }
    times = interleave(probes, settings.rounds, settings.limit)
    found = ratio(times["ftrans"], times["jax"])
    return Result.of(found, row=row.name, case="later ones", peer=peer, target=time(most))


def _layers(row: Row, settings: Settings) -> Iterator[Result]:
    import jax

    layers = 4 if settings.small else 24
    params, tokens = transformer.parameters(layers), transformer.batch()
    rounds = itertools.count(1)

    def gradient(lib: Any) -> Callable[[Any], Any]:
        factor = 1 + next(rounds) / 4096  # another program each time: nothing is known of it

        def loss(params: Any) -> Any:
            return transformer.loss(lib, params, tokens) * factor

        return func.grad(loss) if lib.name == "ftrans" else jax.jit(jax.grad(loss))

    def first(lib: Any) -> Callable[[], float]:
        def clean() -> float:
            ftrans.cache_clear()
            gc.collect()
            work = gradient(lib)
            return timed(lambda: jax.block_until_ready(work(params)), 1, process_time)()

        return clean

    before, ftrans.config.execution = ftrans.config.execution, "compile"
    ftrans.config.fold = True
    try:
        libs = {"ftrans": libraries.ftrans(), "jax": libraries.jax()}
        times = interleave({name: first(lib) for name, lib in libs.items()}, 1)
        yield Result.of(
            ratio(times["ftrans"], times["jax"]),
            row=row.name,
            case="first call",
            peer="jax.jit",
            target=time(1 / 4),
        )
        rounds = itertools.count(1)
        ours = gradient(libs["ftrans"])
        rounds = itertools.count(1)
        theirs = gradient(libs["jax"])
        runs = (lambda: ours(params)), (lambda: theirs(params))
        yield _later(row, settings, "jax.jit", *runs, 1, 1.1)
    finally:
        ftrans.config.execution, ftrans.config.fold = before, False


def _steps(row: Row, settings: Settings) -> Iterator[Result]:
    import jax
    import jax.numpy as jnp

    count = 200 if settings.small else 3_000
    w, start = np.random.default_rng(0).normal(size=(4, 4)).astype("f4"), np.ones(4, "f4")

    def loop(w: Any, x: Any) -> Any:
        for _ in range(count):
            x = x + 0.01 * np.tanh(w @ x)
        return (x * x).sum()

    def scanned(w: Any, x: Any) -> Any:
        step = lambda x, _: (x + 0.01 * jnp.tanh(w @ x), None)  # noqa: E731
        x, _ = jax.lax.scan(step, x, None, length=count)
        return (x * x).sum()

    def first(fold: bool) -> Callable[[], float]:
        def clean() -> float:
            ftrans.cache_clear()
            gc.collect()
            ftrans.config.fold = fold
            try:
                return timed(lambda: func.grad(loop)(w, start), 1, process_time)()
            finally:
                ftrans.config.fold = False

        return clean

    times = interleave({"folded": first(True), "as it is": first(False)}, min(settings.rounds, 3))
    yield Result.of(
        ratio(times["folded"], times["as it is"]),
        row=row.name,
        case="first call",
        peer="with config.fold = False",
        target=time(1 / 4),
    )
    ftrans.config.fold = True
    try:
        ours, theirs = func.grad(loop), jax.jit(jax.grad(scanned))
        for _ in range(20 if settings.small else 60):
            ours(w, start)
        runs = (lambda: ours(w, start)), (lambda: theirs(w, start))
        yield _later(row, settings, "jax.jit of a scan", *runs, 10, 1.5)
    finally:
        ftrans.config.fold = False


ROWS = [
    Row(
        "layers",
        "The gradient of a transformer of 24 unrolled layers, un-jitted and compiled at once, with "
        "`config.fold`: the first call, in seconds of the processor, and later ones.",
        _layers,
    ),
    Row(
        "steps",
        "The un-jitted gradient through 3,000 small steps in a `for` of Python's, with "
        "`config.fold`: the first call, in seconds of the processor, and later ones.",
        _steps,
    ),
]
