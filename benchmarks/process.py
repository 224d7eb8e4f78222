"""What is timed in a process of its own: `python -m benchmarks.process JOB` prints JSON.

Nothing is imported here that a job would have to wait for.
"""

from __future__ import annotations

import json
import sys
import time


def import_ftrans() -> dict:
    start = time.perf_counter()
    import ftrans  # noqa: F401

    return {"seconds": time.perf_counter() - start}


def import_jax() -> dict:
    start = time.perf_counter()
    import jax  # noqa: F401

    return {"seconds": time.perf_counter() - start}


def _first(library: str, jitted: bool) -> dict:
    """Times the first Hessian, its function and its arrays being there."""
    import numpy as np

    from benchmarks import libraries
    from benchmarks.models import small

    lib = getattr(libraries, library)()
    params, inputs, goals = (lib.array(x) for x in (small.parameters(), *small.data()))

    def loss(params, inputs, goals):
        return small.loss(lib.numpy, params, inputs, goals)

    start = time.perf_counter()
    hessian = lib.hessian(loss)
    if jitted:
        hessian = lib.jit(hessian)
    found = np.asarray(hessian(params, inputs, goals))
    return {"seconds": time.perf_counter() - start, "result": found.tolist()}


JOBS = {
    "import-ftrans": import_ftrans,
    "import-jax": import_jax,
    "first-ftrans": lambda: _first("ftrans", False),
    "first-jax": lambda: _first("jax", False),
    "first-jax-jit": lambda: _first("jax", True),
}

if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]]()))
