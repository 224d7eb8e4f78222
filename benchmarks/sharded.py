"""Training on several devices: `python -m benchmarks.sharded KIND ROUNDS SECONDS` prints JSON.

It is run in a process that has eight devices, by data, on a mesh with automatic or explicit axes.
`python -m benchmarks.sharded STEPS FOLDER`, as a worker of `examples.distributed.workers`, trains
for so many steps, and writes what memory it took and what its parameters are.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["steps_of"]

SIZES = (256, 512, 512, 64)
BATCH = 1024


def steps_of(kind: str, sizes: tuple[int, ...] = SIZES, batch: int = BATCH) -> Any:
    """Returns the training steps by who computes the gradient, and parameters on a mesh."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    import ftrans
    import ftrans.numpy as fnp
    from benchmarks.models import perceptron
    from ftrans import func

    axes = (getattr(AxisType, kind),)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=axes)
    rows, whole = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("data",), ()))
    params = ftrans.device_put(perceptron.parameters(sizes), whole)
    data = ftrans.device_put(perceptron.batch(batch, sizes), rows)
    move = jax.jit(lambda ps, gs: jax.tree.map(lambda p, g: p - 1e-2 * g, ps, gs))

    def step(gradient: Callable[..., Any]) -> Callable[[Any], Any]:
        def stepped(params: Any) -> Any:
            value, slopes = gradient(params, *data)
            return move(params, slopes), value

        return stepped

    loss = lambda *args: perceptron.loss(fnp, *args)  # noqa: E731
    gradients = {
        "jax.jit": jax.jit(jax.value_and_grad(lambda *args: perceptron.loss(jnp, *args))),
        "ftrans.jit": ftrans.jit(func.value_and_grad(loss)),
        "un-jitted": func.value_and_grad(loss),
    }
    return {name: step(gradient) for name, gradient in gradients.items()}, params


def compare(kind: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Returns the times of rounds by who computes the gradient, and what ftrans has compiled."""
    import jax

    import ftrans
    from benchmarks.measure import calls_for, interleave, timed, warm

    steps, params = steps_of(kind)
    tasks = {
        name: lambda step=step: jax.block_until_ready(step(params)) for name, step in steps.items()
    }
    values = {name: float(task()[1]) for name, task in tasks.items()}
    before = ftrans.cache_info().compiled
    for task in tasks.values():
        warm(task, seconds)
    probes = {
        name: timed(task, calls_for(task, max(seconds, 0.02))) for name, task in tasks.items()
    }
    times = interleave(probes, rounds)
    return {"times": times, "values": values, "compiled": [before, ftrans.cache_info().compiled]}


def work(steps: int, folder: Path) -> None:
    """Trains as one of several workers, and writes the memory of a tenth and of all steps."""
    import jax
    import numpy as np

    from examples.distributed.workers import join

    join()
    made, params = steps_of("Explicit", (64, 64, 10), 64)
    step, seen = made["un-jitted"], []
    for number in range(1, steps + 1):
        params, value = step(params)
        if number in (steps // 10, steps):
            float(value)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen.append(pages * 4096)
    digest = hashlib.sha256()
    for x in jax.tree.leaves(params):
        digest.update(np.asarray(x).tobytes())
    found = {"memory": seen, "digest": digest.hexdigest(), "loss": float(value)}
    (folder / f"{jax.process_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        print(json.dumps(compare(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
