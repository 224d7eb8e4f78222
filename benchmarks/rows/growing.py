"""Functions that grow: what is done in Python takes twice the time for twice the length."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import ftrans
import ftrans.numpy as fnp
from benchmarks.measure import interleave, ratio
from benchmarks.models.chain import long_chain, vector
from benchmarks.result import Result, growth
from benchmarks.row import Row, Settings
from ftrans.func.trace import stage_call
from ftrans.interpreters import simplify

__all__ = ["ROWS"]

X = vector(8)


def _chain(length: int) -> Callable[[Any], Any]:
    return lambda x: long_chain(fnp, x, length)


def _staged(length: int) -> Any:
    """Returns the program of a chain as it was recorded."""
    return stage_call(_chain(length), (X,), {})[0].program


def _seconds(work: Callable[[], Any]) -> float:
    """Returns the processor's seconds: other processes take no part in them."""
    start = time.process_time()
    work()
    return time.process_time() - start


def _trace(length: int) -> float:
    return _seconds(lambda: _staged(length))


def _simplify(length: int) -> float:
    program = _staged(length)
    return _seconds(lambda: simplify(program))


def _grad(length: int) -> float:
    return _seconds(lambda: ftrans.grad(_chain(length))(X))


STAGES = {"trace": _trace, "simplify": _simplify, "grad": _grad}


def _grow(row: Row, settings: Settings) -> Iterator[Result]:
    lengths = (2_500, 5_000, 10_000) if settings.small else (25_000, 50_000, 100_000)

    def clean(stage: Callable[[int], float], length: int) -> Callable[[], float]:
        def probe() -> float:
            ftrans.cache_clear()
            gc.collect()
            # whether a full collection falls into the short or the long chain is chance
            gc.disable()
            try:
                return stage(length)
            finally:
                gc.enable()

        return probe

    for name, stage in STAGES.items():
        probes = {str(length): clean(stage, length) for length in lengths}
        times = interleave(probes, min(settings.rounds, 3), settings.limit)
        for short, long in pairwise(lengths):
            yield Result.of(
                ratio(times[str(long)], times[str(short)]),
                row=row.name,
                case=f"{name}, {short:,} to {long:,}",
                target=growth(2.2),
            )


ROWS = [
    Row(
        "growth",
        "A chain of 25, 50 and 100 thousand operations: traced; simplified; and un-jitted `grad`, "
        "which is interpreted. Seconds of the processor, without the garbage collector.",
        _grow,
    )
]
