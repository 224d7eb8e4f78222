"""What a fresh process waits for: the import, and the first result after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measure import interleave, ratio
from benchmarks.race import agree
from benchmarks.result import Result, time
from benchmarks.row import Row, Settings
from benchmarks.session import CASES

__all__ = ["ROWS"]


def _measured(*job: str, module: str = "benchmarks.process") -> dict:
    """Runs one job in a process of its own."""
    command = [sys.executable, "-m", module, *job]
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


# For each library the share of its time that ours may take after so many steps.
_SHARES = {
    "torch": {"1": 4.0, "10": 1.2, "100": 1.0, "1000": 1.0},
    "jax": {"1": None, "10": 1.2, "100": 1.0, "1000": 1.0},
}


def _sessions(row: Row, settings: Settings) -> Iterator[Result]:
    steps = 10 if settings.small else 1000
    cases = ["schools"] if settings.small else list(CASES)
    for case in cases:
        run = partial(_measured, module="benchmarks.session")
        rounds = [
            {library: run(case, library, str(steps)) for library in ("ftrans", *_SHARES)}
            for _ in range(1 if settings.small else 3)
        ]
        for library, shares in _SHARES.items():
            for done, share in shares.items():
                if int(done) <= steps:
                    ours, theirs = (
                        [found[name]["seconds"][done] for found in rounds]
                        for name in ("ftrans", library)
                    )
                    yield Result.of(
                        ratio(ours, theirs),
                        row=row.name,
                        case=f"{case}, {done} steps",
                        peer={"torch": "PyTorch", "jax": "jax.jit"}[library],
                        target=time(share),
                    )


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
