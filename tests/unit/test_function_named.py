"""Methods of a `Function` that are called on arrays and ask them in PyTorch's words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans import func
from ftrans.autograd import Function

X = np.array([3.0, 1.0, 2.0])


class Cube(Function):
    """Computes by NumPy, with tensors in between, and says so in both methods."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        array = x.detach().cpu().contiguous().clone().numpy()
        assert type(array) is np.ndarray
        assert x.dim() == 1
        assert x.numel() == len(array)
        total = (torch.tensor(array) * 2.0).sum().item()  # pending, and asked for at once
        assert total == pytest.approx(2.0 * array.sum())
        twice, marked = torch.tensor(2.0 * array), torch.tensor(array + 1.0)
        ctx.mark_non_differentiable(marked)
        ctx.save_for_backward(x, twice)
        ctx.kept = torch.tensor(array)
        return torch.as_tensor(array**3), marked

    @staticmethod
    def backward(ctx: Any, ct: Any, _: Any) -> Any:
        x, twice = ctx.saved_tensors
        assert np.allclose(ctx.kept.numpy(), x.numpy())
        return torch.tensor(ct.detach().numpy() * 1.5 * twice.numpy() * x.cpu().numpy())


def cube(x: Any) -> Any:
    return Cube.apply(x)[0]


def of_rows(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: func.vmap(f)(np.stack([x, x]))[1]


@pytest.mark.parametrize("around", [lambda f: f, ftrans.jit, of_rows])
def test_gradients_in_all_surroundings(around: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that examples are computed in a loop
        gradient = around(func.grad(lambda x: (cube(x) * np.arange(3.0)).sum()))
        for _ in range(3):
            np.testing.assert_allclose(gradient(X), 3 * X**2 * np.arange(3.0))
        np.testing.assert_allclose(around(cube)(X), X**3)


@pytest.mark.parametrize("around", [lambda f: f, ftrans.jit])
def test_what_is_marked_has_no_gradient(around: Any) -> None:
    marked = around(func.grad(lambda x: (Cube.apply(x)[1] * x).sum()))
    np.testing.assert_allclose(marked(X), X + 1.0)


def test_what_is_pending_outside_stays_pending() -> None:
    x = torch.tensor(X, requires_grad=True)
    w = torch.tensor(X, requires_grad=True)
    for _ in range(3):
        x.grad = w.grad = None
        y = w * 2
        (cube(x * 1.0) * y).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 3 * X**2 * 2 * X)
        np.testing.assert_allclose(w.grad.numpy(), 2 * X**3)


def test_what_is_traced_for_a_tensor_stays_on_its_tape() -> None:
    x, w = torch.tensor(X), torch.tensor(X, requires_grad=True)
    for _ in range(3):
        w.grad = None
        y = w * 2
        found = func.grad(lambda x, y=y: (cube(x) * y.detach()).sum())(x)
        (found * y).sum().backward()
        np.testing.assert_allclose(found.numpy(), 3 * X**2 * 2 * X)
        np.testing.assert_allclose(w.grad.numpy(), 2 * found.numpy())


class Doubled(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        array = x.numpy()
        ctx.mark_dirty(x)
        x *= 2.0 + 0.0 * array
        return x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * 2.0


@pytest.mark.parametrize("around", [lambda f: f, ftrans.jit])
def test_what_is_written_to(around: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        return (Doubled.apply(y) * y).sum()  # which is (2 x)²

    np.testing.assert_allclose(around(func.grad(f))(X), 8 * X)
    np.testing.assert_allclose(X, [3.0, 1.0, 2.0])


def test_results_are_plain() -> None:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.numpy()
            return x, x.T, x * 2.0

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            return a + b.T + 2.0 * c

    for found in (Same.apply(X), ftrans.jit(Same.apply)(X), Same.apply(np.zeros(0))):
        assert all(type(x) is np.ndarray for x in found), [type(x) for x in found]
