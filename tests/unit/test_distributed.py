"""The examples of `examples/distributed`: on eight devices, and in two processes of two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.distributed import program
from examples.distributed.workers import launch

ROOT = Path(__file__).parents[2]
RAW = """
  %a = f32[8,12]{1,0} all-reduce(%x), replica_groups=[4,2]<=[8], to_apply=%add
  %b = (f32[], bf16[3,2]{1,0}) all-gather-start(%y), replica_groups={{0,2,4},{1,3,5}}
  %c = f64[2]{0} reduce-scatter(%z), replica_groups=mesh['i'=4,'j'=2,'k'=3] {'i','k'}
  %d = f32[2]{0} add(%z, %all-reduce.1)
"""


def run(*command: str, limit: float = 240, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def losses(folder: Path) -> dict[int, float]:
    return dict(map(json.loads, (folder / "losses.jsonl").read_text().splitlines()))


def test_collectives_are_read() -> None:
    assert program.read(RAW) == [
        ("all-reduce", 2, 8 * 12 * 4),
        ("all-gather", 3, 4 + 6 * 2),
        ("reduce-scatter", 12, 16),
    ]


EXAMPLES = {
    "digits": ["images: 16,384 bytes, 2,048 on each", "1 all-reduce of 8 devices, 38,444 bytes"],
    "sharded": ["3 all-gather of 8 devices, 1,212,416 bytes", "454,660 on each device"],
    "tensor_parallel": ["8 all-reduce of 2 devices, 196,608 bytes", "196,608 on each device"],
    "ring": ["14 collective-permute of 8 devices, 917,504 bytes"],
    "pipeline": ["2 collective-permute of 8 devices, 2,048 bytes", "131,072 on each device"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_on_eight_devices(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are its own")
    more = ["--out", str(tmp_path)] if name == "digits" else []
    done = run(
        "-m",
        f"examples.distributed.{name}",
        "--steps",
        "10",
        *more,
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in EXAMPLES[name]:
        assert line in done.stdout


@pytest.mark.slow
def test_losses_do_not_depend_on_processes_nor_on_a_worker_that_dies(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are its own")

    def train(folder: str, *options: str, devices: int = 1) -> Any:
        flags = f"--xla_force_host_platform_device_count={devices}"
        command = ["-m", "examples.distributed.digits", "--steps", "24", "--every", "8"]
        out = ["--out", str(tmp_path / folder), "--limit", "200"]
        done = run(*command, *out, *options, XLA_FLAGS=flags)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    train("alone", devices=4)
    two = train("two", "--processes", "2")
    assert "2 processes, 4 devices" in two.stdout
    died = train("died", "--processes", "2", "--fail-at", "12", "--restarts", "1")
    assert "Worker 1 of 2 has ended by SIGKILL; all are ended.\n" in died.stderr
    assert "All workers are started again.\n" in died.stderr
    assert "goes on from step 8" in died.stdout
    expected = losses(tmp_path / "alone")
    assert list(expected) == list(range(24))
    assert losses(tmp_path / "died") == losses(tmp_path / "two")
    for step, value in losses(tmp_path / "two").items():
        np.testing.assert_allclose(value, expected[step], rtol=1e-5)


@pytest.mark.slow
def test_arrays_of_which_a_part_is_in_another_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.in_two_processes", str(tmp_path)]
    assert launch(command, 2, 2, 200) == 0
    assert sorted(x.read_text() for x in tmp_path.iterdir()) == ["right", "right"]


ENDS = "import os, sys, time; n = int(os.environ['EXAMPLE_WORKER']); time.sleep({}); exit(3 * n)"


def test_workers_that_die_and_workers_that_do_not_end(capfd: Any) -> None:
    command = [
        sys.executable,
        "-c",
        ENDS.format("0 if n else 60"),
    ]
    assert launch(command, 2, 1, 50) == 1
    assert capfd.readouterr().err == "Worker 1 of 2 has ended with status 3; all are ended.\n"
    assert launch([sys.executable, "-c", ENDS.format(60)], 2, 1, 1) == 1
    assert capfd.readouterr().err == "The 2 workers took too long, and are ended.\n"
    assert launch([sys.executable, "-c", "pass"], 2, 1, 50) == 0
