"""Functions that are called and not traced: in a batch, and at each step of a compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import ftrans
from benchmarks.measure import Task
from benchmarks.race import Against, race
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings
from ftrans import func

__all__ = ["ROWS"]


def _sorted(x: Any) -> Any:
    return np.sort(x, axis=-1)


def _same(x: Any) -> Any:
    return x


def _batch(row: Row, settings: Settings) -> Iterator[Result]:
    mapped = func.vmap(ftrans.external(_sorted, _same, vmap_method="broadcast_all"))
    for columns, target in ((64, None), (256, 1.5)):
        batch = np.random.default_rng(0).normal(size=(1_000, columns)).astype(np.float32)
        rivals = [
            Against("one batched call", lambda batch=batch: lambda: _sorted(batch), time(target))
        ]
        case = f"np.sort, 1,000 by {columns}"
        yield from race(row, settings, case, lambda batch=batch: lambda: mapped(batch), rivals)


def _step(x: Any) -> Any:
    return x * np.float32(0.999) + np.float32(0.5)


def _ours(body: Callable[[Any], Any], steps: int, start: Any) -> Task:
    step = ftrans.external(body, _same)
    loop = ftrans.jit(lambda x: ftrans.scan(lambda c, _: (step(c), None), x, None, length=steps)[0])
    return lambda: loop(start)


def _callback(steps: int, start: Any) -> Task:
    shape = jax.ShapeDtypeStruct(start.shape, start.dtype)

    def step(x: Any) -> Any:
        return jax.pure_callback(lambda x: _step(np.asarray(x)), shape, x)

    loop = jax.jit(lambda x: jax.lax.scan(lambda c, _: (step(c), None), x, None, length=steps)[0])
    return lambda: np.asarray(loop(start))


def _loop(row: Row, settings: Settings) -> Iterator[Result]:
    steps = 500 if settings.small else 10_000
    start = np.zeros(64, np.float32)

    def against(share: float) -> list[Against]:
        return [Against("jax.pure_callback", lambda: _callback(steps, start), time(share))]

    case = f"{steps:,} steps, NumPy"
    yield from race(row, settings, case, lambda: _ours(_step, steps, start), against(0.2))
    try:
        import numba
    except ModuleNotFoundError:
        yield Result(
            row=row.name,
            case=f"{steps:,} steps, numba",
            peer="jax.pure_callback",
            target=time(0.01),
            note="numba is not installed",
        )
        return
    compiled = numba.njit(_step)
    case = f"{steps:,} steps, numba"
    yield from race(row, settings, case, lambda: _ours(compiled, steps, start), against(0.01))


ROWS = [
    Row(
        "external-vmap",
        'Un-jitted `vmap` of a NumPy function with `vmap_method="broadcast_all"`, against the '
        "function called on the batch. The trace takes some 30 µs, whatever the size.",
        _batch,
    ),
    Row(
        "external-loop",
        "An external function of 64 numbers at each step of a compiled `scan`, against "
        "`jax.pure_callback` in one of `jax.jit`.",
        _loop,
    ),
]
