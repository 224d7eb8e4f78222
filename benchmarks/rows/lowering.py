"""What has to be done in Python before XLA: tracing, transforming and lowering."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from time import process_time
from typing import Any

import ftrans
from benchmarks import libraries
from benchmarks.measure import interleave, ratio, timed
from benchmarks.programs import PROGRAMS
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]


def _lower(row: Row, settings: Settings) -> Iterator[Result]:
    build = PROGRAMS["transformer"]

    def lower(lib: Any) -> None:
        # a new function each time, so that neither library finds the trace of the one before
        function, arguments = build(lib)
        lib.jit(function).lower(*arguments)

    def probe(lib: Any) -> Any:
        def clean() -> float:
            ftrans.cache_clear()
            gc.collect()
            return timed(lambda: lower(lib), 1, process_time)()

        return clean

    probes = {"ftrans": probe(libraries.ftrans()), "jax": probe(libraries.jax())}
    interleave(probes, 1)
    times = interleave(probes, max(3, settings.rounds // 3), 2 * settings.limit)
    yield Result.of(
        ratio(times["ftrans"], times["jax"]), row=row.name, peer="jax.jit", target=time(1 / 3)
    )


ROWS = [
    Row(
        "lower",
        "Trace, transform and lower `value_and_grad` of a transformer of 12 unrolled layers; "
        "ftrans from an empty cache. Seconds of the processor.",
        _lower,
    )
]
