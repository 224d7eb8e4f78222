"""Compiled programs through `ftrans.jit` and `jax.jit`: their time, and their temporary memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import libraries
from benchmarks.measure import Task
from benchmarks.programs import PROGRAMS, Build
from benchmarks.race import Against, race
from benchmarks.result import Result, memory, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]


def _jitted(lib: Any, build: Build) -> Task:
    import jax

    function, arguments = build(lib)
    function = lib.jit(function)
    return lambda: jax.block_until_ready(function(*arguments))


def _time(row: Row, settings: Settings) -> Iterator[Result]:
    logarithms = []
    for name, build in PROGRAMS.items():
        rivals = [
            Against("jax.jit", lambda build=build: _jitted(libraries.jax(), build), time(1.05))
        ]
        ours = race(
            row, settings, name, lambda build=build: _jitted(libraries.ftrans(), build), rivals
        )
        for result in ours:
            yield result
            logarithms.append(np.log(result.value or np.nan))
    mean = float(np.exp(np.mean(logarithms)))
    yield Result(row=row.name, case="geometric mean", peer="jax.jit", target=time(1.0), value=mean)


def _temporary(lib: Any, build: Build) -> int:
    """Returns the bytes that the compiled program takes beside its arguments and results."""
    function, arguments = build(lib)
    return lib.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def _memory(row: Row, settings: Settings) -> Iterator[Result]:
    for name, build in PROGRAMS.items():
        ours, theirs = (_temporary(lib(), build) for lib in (libraries.ftrans, libraries.jax))
        yield Result(
            row=row.name,
            case=name,
            peer="jax.jit",
            target=memory(1.0),
            value=ours / theirs if theirs else float(ours > 0),
            note=f"{ours:,} and {theirs:,} bytes",
        )


ROWS = [
    Row("run", "Time of a compiled program, `value_and_grad` of a model unless it says so.", _time),
    Row("memory", "Temporary memory of the same programs, as XLA's analysis gives it.", _memory),
]
