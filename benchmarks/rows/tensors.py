"""Tensors, as one writes them for PyTorch: `backward()` and updates in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ftrans
from benchmarks.measure import Task
from benchmarks.models import perceptron, small
from benchmarks.models.chain import backward, chain, vector
from benchmarks.models.looking import LOOPS
from benchmarks.race import Against, race
from benchmarks.result import Result, faster, time
from benchmarks.row import Row, Settings
from benchmarks.rows.eager import running_python, torch_backward
from ftrans import func
from ftrans import numpy as fnp
from ftrans import torch as ftrans_torch

__all__ = ["ROWS"]


def _function() -> Task:
    """Returns the un-jitted gradient of the chain as a function."""
    x = vector(8)
    return lambda: func.grad(lambda x: chain(fnp, x))(x)


def _backward(look: str = "") -> Task:
    """Returns the gradient of the chain by tensors."""
    return backward(ftrans.Tensor, ftrans.tensor(vector(8), requires_grad=True), look)


def _chain(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [
        Against("func.grad", _function, time(1.05)),
        Against("func.grad that runs its Python", lambda: running_python(_function()), time(1.05)),
        Against("PyTorch", torch_backward, faster(2.5)),
    ]
    yield from race(row, settings, "", _backward, rivals)
    cases = [
        ("its loss is asked for before", "loss", 1.2),
        ("a hook in the middle", "hook", 1.3),
        ("a value in the middle is asked for", "value", 1.5),
        ("by autograd.grad", "grad", 1.1),
    ]
    for case, look, most in cases:
        rivals = [
            Against("the same without", _backward, time(most)),
            Against("PyTorch", lambda look=look: torch_backward(look), faster(None)),
        ]
        yield from race(row, settings, case, lambda look=look: _backward(look), rivals)


def _training(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [
        Against("func.grad_and_value", _functional_step, time(1.15)),
        Against("the same that runs its Python", _running_functional_step, time(1.15)),
    ]
    yield from race(row, settings, "", _step, rivals)


def _step() -> Task:
    """Returns the training step by `backward`, with an update in place."""
    params = [
        (ftrans.tensor(w, requires_grad=True), ftrans.tensor(b, requires_grad=True))
        for w, b in perceptron.parameters()
    ]
    flat = [x for pair in params for x in pair]
    images, goals = map(ftrans.tensor, perceptron.batch())

    def task() -> Any:
        value = perceptron.loss(ftrans.Tensor, params, images, goals)
        value.backward()
        with ftrans.no_grad():
            for x in flat:
                x -= 0.0 * x.grad
        for x in flat:
            x.grad = None
        return value.item()

    return task


def _functional_step() -> Task:
    """Returns the same by a function, un-jitted, on NumPy arrays."""
    params, (images, goals) = perceptron.parameters(), perceptron.batch()

    def task() -> Any:
        loss = lambda p: perceptron.loss(fnp, p, images, goals)  # noqa: E731
        slopes, value = func.grad_and_value(loss)(params)
        for (w, b), (dw, db) in zip(params, slopes, strict=True):
            w -= 0.0 * dw
            b -= 0.0 * db
        return value.item()

    return task


def _running_functional_step() -> Task:
    """Returns the same, whose Python runs at each call, as that of tensors has to."""
    return running_python(_functional_step())


def _hessian(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [Against("PyTorch", _torch_hessian, faster(20))]
    yield from race(row, settings, "", _tensors_hessian, rivals)


def _tensors_hessian() -> Task:
    """Returns the Hessian of a small model by `autograd.functional`."""
    params, given = ftrans.tensor(small.parameters()), [*map(ftrans.tensor, small.data())]
    hessian = ftrans.autograd.functional.hessian
    return lambda: hessian(lambda p: small.loss(fnp, p, *given), params)


def _torch_hessian() -> Task:
    """Returns the same by PyTorch."""
    import torch

    params, given = torch.as_tensor(small.parameters()), [*map(torch.as_tensor, small.data())]
    hessian = torch.autograd.functional.hessian
    return lambda: hessian(lambda p: small.loss(torch, p, *given), params)


def _inner(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [Against("PyTorch", _torch_inner, faster(1.0))]
    yield from race(row, settings, "", _tensors_inner, rivals)


def _steps(xp: Any, grad: Any, params: Any, given: Any) -> Task:
    """Returns the gradient of a loss after five steps of gradient descent, through these."""

    def task() -> Any:
        params.grad, moved = None, params
        for _ in range(5):
            (slope,) = grad(small.loss(xp, moved, *given), moved, create_graph=True)
            moved = moved - 0.1 * slope
        small.loss(xp, moved, *given).backward()
        return params.grad.numpy()

    return task


def _tensors_inner() -> Task:
    params, given = ftrans.tensor(small.parameters(), requires_grad=True), small.data()
    return _steps(fnp, ftrans.autograd.grad, params, [*map(ftrans.tensor, given)])


def _torch_inner() -> Task:
    import torch

    params, given = torch.as_tensor(small.parameters()).requires_grad_(), small.data()
    return _steps(torch, torch.autograd.grad, params, [*map(torch.as_tensor, given)])


def _looking(row: Row, settings: Settings) -> Iterator[Result]:
    for case, loop in LOOPS.items():
        rivals = [Against("PyTorch", lambda loop=loop: loop(_torch()), time(None))]
        yield from race(row, settings, case, lambda loop=loop: loop(ftrans_torch), rivals)


def _torch() -> Any:
    import torch

    return torch


ROWS = [
    Row(
        "backward",
        "31 small operations on a tensor of 8 numbers, and `backward()`.",
        _chain,
    ),
    Row(
        "tensors-training",
        "A training step of a perceptron (64-64-64-10, batch 64) by `backward()` and an update in "
        "place, against un-jitted `grad_and_value` and the same update.",
        _training,
    ),
    Row(
        "tensors-inner",
        "The gradient of a model of 64 parameters through five steps of gradient descent, each by "
        "`grad(create_graph=True)`.",
        _inner,
    ),
    Row(
        "tensors-hessian",
        "`autograd.functional.hessian` of a model of 64 parameters, on tensors.",
        _hessian,
    ),
    Row(
        "tensors-looks",
        "Loops on small tensors that look at values as they go, without gradients.",
        _looking,
    ),
]
