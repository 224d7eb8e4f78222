"""What has to be done in Python before XLA: tracing, transforming and lowering."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from time import process_time
from typing import Any

from benchmarks import libraries
from benchmarks.measure import interleave, ratio, timed
from benchmarks.models import transformer
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]


def _lower(row: Row, settings: Settings) -> Iterator[Result]:
    arguments = transformer.parameters(), transformer.batch()
    rounds = itertools.count(1)

    def lower(lib: Any) -> None:
        # another program each time, as after an edit: neither library knows what it derives
        factor = 1 + next(rounds) / 4096

        def loss(params: Any, tokens: Any) -> Any:
            return transformer.loss(lib, params, tokens) * factor

        lib.jit(lib.value_and_grad(loss)).lower(*arguments)

    def probe(lib: Any) -> Any:
        def clean() -> float:
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
        "Trace, transform and lower `value_and_grad` of a transformer of 12 unrolled layers, a "
        "new program each time. Seconds of the processor.",
        _lower,
    )
]
