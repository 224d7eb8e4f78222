"""Arrays and functions on meshes: the tests of `*on_eight_devices*.py`, in processes with eight."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import sampled

FILES = sorted(path.name for path in Path(__file__).parent.glob("*on_eight_devices*.py"))


@pytest.mark.parametrize("name", sampled(FILES, 3))
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_eight_devices(which: str, name: str) -> None:
    file = Path(__file__).with_name(name)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", which]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    none = pytest.ExitCode.NO_TESTS_COLLECTED
    passes = {0, none} if which == "slow" else {0}  # not all files have slow ones
    assert done.returncode in passes, done.stdout[-4000:] + done.stderr[-2000:]
