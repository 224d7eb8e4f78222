"""Derivatives held against differences: `gradcheck` beside PyTorch's, with the same verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import ftrans
import ftrans.numpy as fnp
from benchmarks.measure import Task
from benchmarks.race import Against, race
from benchmarks.result import Result, faster
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]


def _points(count: int) -> np.ndarray:
    return np.linspace(0.1, 1.0, count)


def _scaled_sine(factor: float) -> Any:
    """Returns the sine as a rule of its own, whose derivative is off by a factor."""

    @ftrans.custom_vjp
    def sine(x: Any) -> Any:
        return fnp.sin(x)

    sine.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (factor * fnp.cos(x) * ct,))
    return sine


def _torch_sine(factor: float) -> Any:
    import torch

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return factor * torch.cos(x) * ct

    return Sine.apply


WEIGHTS = np.random.default_rng(0).normal(size=(20, 20))

CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], float | None]] = {
    "sin": (lambda: fnp.sin, lambda torch: torch.sin, 20),
    "a rule that is wrong by 1 %": (
        lambda: _scaled_sine(1.01),
        lambda torch: _torch_sine(1.01),
        None,
    ),
    "sin of a matrix product": (
        lambda: lambda x: fnp.sin(WEIGHTS @ x.reshape(20, -1)),
        lambda torch: lambda x: torch.sin(torch.as_tensor(WEIGHTS) @ x.reshape(20, -1)),
        None,
    ),
}


def _ours(make: Callable[[], Any], count: int) -> Task:
    from ftrans.autograd import gradcheck

    function, x = make(), _points(count)
    return lambda: np.array(gradcheck(function, x, raise_exception=False))


def _theirs(make: Callable[[Any], Any], count: int, fast: bool) -> Task:
    """Returns PyTorch's verdict."""
    import torch

    function = make(torch)
    x = torch.as_tensor(_points(count)).requires_grad_()
    check = torch.autograd.gradcheck
    return lambda: np.array(check(function, x, raise_exception=False, fast_mode=fast))


def _gradcheck(row: Row, settings: Settings) -> Iterator[Result]:
    for case, (ours, theirs, target) in CASES.items():
        count = 400 if settings.small else 2_500 if target else 400
        slow, fast = (partial(_theirs, theirs, count, fast) for fast in (False, True))
        rivals = [Against("PyTorch", slow, faster(target))]
        if case == "sin":
            # with so many numbers its tolerance lets the wrong rule pass
            rivals.append(Against("PyTorch, fast_mode", fast, faster(None)))
        yield from race(row, settings, case, partial(_ours, ours, count), rivals)


ROWS = [
    Row(
        "gradcheck",
        "`autograd.gradcheck` of functions of 2,500 numbers in double precision, of 400 where "
        "there is no target; verdicts are compared. Where it is elementwise, ftrans proves it "
        "and perturbs all elements at once; the matrix product is checked element by element.",
        _gradcheck,
    )
]
