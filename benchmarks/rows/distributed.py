"""Training on several devices, and in two processes that share the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import ratio
from benchmarks.race import agree
from benchmarks.result import Result, Target, compilations, time
from benchmarks.row import Row, Settings
from examples.distributed.workers import launch

__all__ = ["ROWS"]

_LIMITS = {"ftrans.jit": 1.05, "un-jitted": 1.3}
_ROOT = Path(__file__).parents[2]


def _sharded(row: Row, settings: Settings) -> Iterator[Result]:
    flags = "--xla_force_host_platform_device_count=8"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    for kind in ("Auto", "Explicit"):
        rounds = str(max(settings.rounds, 5))
        command = [sys.executable, "-m", "benchmarks.sharded", kind, rounds, str(settings.warm)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=_ROOT, env=env, timeout=600
        )
        found = json.loads(done.stdout.splitlines()[-1])
        times, values = found["times"], found["values"]
        for name, limit in _LIMITS.items():
            agree(row.name, "jax.jit", values[name], values["jax.jit"])
            yield Result.of(
                ratio(times[name], times["jax.jit"]),
                row=row.name,
                case=f"{name}, {kind.lower()} axes",
                peer="jax.jit",
                target=time(limit),
            )
        first, later = found["compiled"]
        case = f"un-jitted, {kind.lower()} axes"
        yield Result(row=row.name, case=case, target=compilations(1), value=first)
        yield Result(
            row=row.name, case=f"{case}, later", target=compilations(0), value=later - first
        )


_LEVEL = Target("of its memory after a tenth of the steps", False, 1.02)
_EQUAL = Target("different parameters", False, 0)


def _processes(row: Row, settings: Settings) -> Iterator[Result]:
    steps = 1_000 if settings.small else 10_000
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.sharded", str(steps), folder]
        if launch(command, 2, 2, 1800):
            note = "the workers did not end well"
            yield Result(row=row.name, target=_LEVEL, note=note)
            return
        found = [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]
    case = f"{steps:,} steps"
    growth = max(end / start for start, end in (x["memory"] for x in found))
    yield Result(row=row.name, case=case, target=_LEVEL, value=growth)
    different = len({x["digest"] for x in found}) - 1
    yield Result(row=row.name, case=case, target=_EQUAL, value=different)


ROWS = [
    Row("sharded", "A step of training on eight virtual devices, by data.", _sharded),
    Row("processes", "Two processes of two devices train for long, un-jitted.", _processes),
]
