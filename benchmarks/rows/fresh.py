"""What a fresh process waits for: the import, and the first result after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import interleave, ratio
from benchmarks.race import agree
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]


def _measured(job: str) -> dict:
    """Runs one job of `benchmarks.process` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.process", job]
    root = Path(__file__).parents[2]
    # an installed package has its bytecode
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def _probe(job: str) -> Callable[[], float]:
    return lambda: _measured(job)["seconds"]


def _import(row: Row, settings: Settings) -> Iterator[Result]:
    probes = {job: _probe(job) for job in ("import-ftrans", "import-jax")}
    interleave(probes, 1)  # reads the files from the disk
    times = interleave(probes, settings.fresh)
    found = ratio(times["import-ftrans"], times["import-jax"])
    yield Result.of(found, row=row.name, peer="import jax", target=time(1.25))


def _first(row: Row, settings: Settings) -> Iterator[Result]:
    peers = {"first-jax": ("JAX, un-jitted", 1 / 10), "first-jax-jit": ("jax.jit", 1 / 3)}
    expected = np.array(_measured("first-ftrans")["result"])
    for job, (peer, _) in peers.items():
        agree(row.name, peer, expected, np.array(_measured(job)["result"]))
    times = interleave({job: _probe(job) for job in ("first-ftrans", *peers)}, settings.fresh)
    for job, (peer, share) in peers.items():
        found = ratio(times["first-ftrans"], times[job])
        yield Result.of(found, row=row.name, peer=peer, target=time(share))


ROWS = [
    Row(
        "first-result",
        "The first `hessian` of a model of 64 parameters in a fresh process, after the import.",
        _first,
    ),
    Row("import", "The import in a fresh process.", _import),
]
