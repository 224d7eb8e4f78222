"""Arrays on meshes: the tests of `on_eight_devices*.py`, in a process that has eight."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_eight_devices(which: str) -> None:
    files = sorted(Path(__file__).parent.glob("on_eight_devices*.py"))
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", which]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, files)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
