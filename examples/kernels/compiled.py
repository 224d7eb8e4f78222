"""Builds a source file into a shared library with the compiler of the system."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def build(name, *flags):
    """Returns the library that is made of a file beside this one; C or C++, by its suffix."""
    variable, usual = ("CC", "cc") if name.endswith(".c") else ("CXX", "c++")
    compiler = shutil.which(os.environ.get(variable, usual))
    if compiler is None:
        raise FileNotFoundError(
            f"There is no compiler to build {name} with: install one that is called {usual}, or "
            f"set {variable} to its path."
        )
    library = Path(tempfile.mkdtemp()) / f"{Path(name).stem}.so"
    command = [
        compiler,
        "-O2",
        "-w",
        "-shared",
        "-fPIC",
        *flags,
        str(HERE / name),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))
