"""Custom rules in un-jitted gradients: one that is traced, and one that calls NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.measure import Task
from benchmarks.race import Against, race
from benchmarks.result import Result, faster, time
from benchmarks.row import Row, Settings
from ftrans import func
from ftrans import numpy as fnp
from ftrans.autograd import Function

__all__ = ["ROWS"]


class Cube(Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * ct


class NumpyCube(Cube):
    @staticmethod
    def forward(x: Any) -> Any:
        return np.asarray(x) ** 3

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x = np.asarray(ctx.saved_tensors[0])
        return 3 * x**2 * np.asarray(ct)


def _chain(middle: Callable[[Any], Any], library: Any) -> Callable[[Any], Any]:
    """Returns a loss of twenty operations and more with something in the middle."""

    def loss(x: Any) -> Any:
        for _ in range(5):
            x = library.sin(x) * 1.1
        x = middle(x)
        for _ in range(5):
            x = library.cos(x) * 1.1
        return (x * x).sum()

    return loss


def _gradient(middle: Callable[[Any], Any], size: int) -> Callable[[], Task]:
    loss, x = _chain(middle, fnp), np.linspace(0.0, 1.0, size)
    return lambda: lambda: func.grad(loss)(x)


def _torch(size: int) -> Task:
    import torch

    class TorchCube(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return torch.from_numpy(x.numpy() ** 3)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * ct

    loss = _chain(TorchCube.apply, torch)
    x = torch.linspace(0.0, 1.0, size, dtype=torch.float64)
    return lambda: torch.func.grad(loss)(x)


def _traced(row: Row, settings: Settings) -> Iterator[Result]:
    for size, target in ((50, 1.1), (100_000, 1.1)):
        rivals = [Against("the same without one", _gradient(lambda x: x**3, size), time(target))]
        yield from race(row, settings, f"{size} elements", _gradient(Cube.apply, size), rivals)


def _opaque(row: Row, settings: Settings) -> Iterator[Result]:
    size = 50
    rivals = [
        Against("torch.func", lambda: _torch(size), faster(3)),
        Against("the same without one", _gradient(lambda x: x**3, size), time(None)),
    ]
    yield from race(row, settings, f"{size} elements", _gradient(NumpyCube.apply, size), rivals)


ROWS = [
    Row("function", "un-jitted grad of 22 operations, one of them a Function", _traced),
    Row("function-numpy", "the same, with a Function that calls NumPy", _opaque),
]
