"""Linear algebra: batches of small matrices, a Gaussian process, a Kalman filter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import libraries
from benchmarks.measure import Task
from benchmarks.models import matrices
from benchmarks.race import Against, race
from benchmarks.result import Result, faster, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]

_CASES = {
    "solve": lambda linalg, a: linalg.solve(a, a[:, :, :1]),
    "eigh": lambda linalg, a: linalg.eigh(a)[0],
    "svd": lambda linalg, a: linalg.svd(a)[1],
}


def _called(lib: Any, case: str, container: str) -> Task:
    import jax

    a = matrices.batch(1000, 8)
    with jax.enable_x64(True):
        given = jax.numpy.asarray(a) if container == "jax.Array" or lib is jax else a
    linalg = lib.numpy.linalg

    def task() -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(_CASES[case](linalg, given))

    return task


def _batched(row: Row, settings: Settings) -> Iterator[Result]:
    import jax

    for container in ("NumPy", "jax.Array"):
        for case in _CASES:
            make = partial(_called, libraries.ftrans(), case, container)
            rivals = [Against("JAX, un-jitted", partial(_called, jax, case, container), time(1.05))]
            yield from race(row, settings, f"{case}, {container}", make, rivals)


def _gradient(lib: Any, jit: bool) -> Task:
    """Returns the likelihood of a Gaussian process and its gradient, in double precision."""
    import jax

    x, y = matrices.points(200)
    params = np.array([0.0, 0.0, -2.0])

    def value(params: Any, x: Any, y: Any) -> Any:
        return matrices.likelihood(lib.numpy, params, x, y)

    function = lib.value_and_grad(value)
    function = lib.jit(function) if jit else function
    with jax.enable_x64(True):
        given = (
            [*map(lib.numpy.asarray, (params, x, y))] if lib.name != "ftrans" else [params, x, y]
        )

    def task() -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(function(*given))

    return task


def _by_torch() -> Task:
    import torch

    x, y = map(torch.as_tensor, matrices.points(200))
    params = torch.tensor([0.0, 0.0, -2.0], dtype=torch.float64, requires_grad=True)

    def task() -> Any:
        params.grad = None
        value = matrices.likelihood(torch, params, x, y)
        value.backward()
        return value.detach(), params.grad

    return task


def _process(row: Row, settings: Settings) -> Iterator[Result]:
    ours, jax = libraries.ftrans(), libraries.jax()
    rivals = [Against("PyTorch", _by_torch, faster(2))]
    yield from race(row, settings, "un-jitted", partial(_gradient, ours, False), rivals)
    rivals = [Against("jax.jit", partial(_gradient, jax, True), time(1.0))]
    yield from race(row, settings, "jitted", partial(_gradient, ours, True), rivals)


def _filter(lib: Any) -> Task:
    import jax

    params, seen = np.array([-1.0, 0.0]), matrices.observations(500)
    with jax.enable_x64(True):
        given = [*map(jax.numpy.asarray, (params, seen))]
        function = lib.jit(lib.grad(lambda params, seen: matrices.filtered(lib, params, seen)))

    def task() -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(function(*given))

    return task


def _kalman(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [Against("jax.jit", partial(_filter, libraries.jax()), time(1.0))]
    yield from race(row, settings, "", partial(_filter, libraries.ftrans()), rivals)


ROWS = [
    Row("matrices", "`solve`, `eigh` and `svd` of 1,000 matrices of 8 by 8, un-jitted.", _batched),
    Row(
        "gaussian",
        "The likelihood of a Gaussian process of 200 points and its gradient.",
        _process,
    ),
    Row("kalman", "The gradient of a Kalman filter of 500 steps by `scan`, jitted.", _kalman),
]
