"""What a fresh process waits for: the import, and the first result after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measure import interleave, ratio
from benchmarks.race import agree
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings
from benchmarks.session import CASES

__all__ = ["ROWS"]


def _measured(*job: str, module: str = "benchmarks.process", **variables: str) -> dict:
    """Runs one job in a process of its own, with some variables in its environment."""
    command = [sys.executable, "-m", module, *job]
    root = Path(__file__).parents[2]
    # an installed package has its bytecode
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= variables
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


# For each library the share of its time that ours may take after so many steps.
_SHARES = {
    "torch": {"1": 4.0, "10": 1.2, "100": 1.0, "1000": 1.0},
    "jax": {"1": None, "10": 1.2, "100": 1.0, "1000": 1.0},
}


def _sessions(row: Row, settings: Settings) -> Iterator[Result]:
    steps = 10 if settings.small else 1000
    for case in ["schools"] if settings.small else CASES:
        with TemporaryDirectory() as store:
            yield from _session(row, case, steps, 1 if settings.small else 3, store)


def _session(row: Row, case: str, steps: int, count: int, store: str) -> Iterator[Result]:
    def run(library: str, **variables: str) -> dict[str, float]:
        job = case, library, str(steps)
        return _measured(*job, module="benchmarks.session", **variables)["seconds"]

    run("ftrans", FTRANS_CACHE_DIR=store)  # fills it
    rounds = [
        {library: run(library) for library in ("ftrans", "ftrans-jit", *_SHARES)}
        | {"again": run("ftrans", FTRANS_CACHE_DIR=store)}
        for _ in range(count)
    ]

    def result(ours: str, theirs: Sequence[str], done: str, **shown: Any) -> Result:
        times = [found[ours][done] for found in rounds]
        others = [min(found[library][done] for library in theirs) for found in rounds]
        return Result.of(ratio(times, others), row=row.name, **shown)

    for library, shares in _SHARES.items():
        peer = {"torch": "PyTorch", "jax": "jax.jit"}[library]
        for done, share in shares.items():
            if int(done) <= steps:
                about = f"{case}, {done} steps"
                yield result("ftrans", [library], done, case=about, peer=peer, target=time(share))
    if steps >= 100:
        about, best = f"{case}, 100 steps, code on disk", "the best of jit, jax.jit, PyTorch"
        peers = ["ftrans-jit", *_SHARES]
        yield result("again", peers, "100", case=about, peer=best, target=time(1.3))


ROWS = [
    Row(
        "sessions",
        "The first steps of training (HMC for the schools) in a fresh process, everything but "
        "imports counted, un-jitted; optax by `from_jax`.",
        _sessions,
    ),
    Row(
        "first-result",
        "The first `hessian` of a model of 64 parameters in a fresh process, after the import.",
        _first,
    ),
    Row("import", "The import in a fresh process.", _import),
]
