"""The code of PyTorch's note "Autograd mechanics" that needs no node, saved tensor or module."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import ftrans.torch as torch
from tests.helpers import assert_close


def test_division_by_zero_that_is_masked_afterwards() -> None:
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    div = torch.tensor([0.0, 1.0])

    y = x / div
    mask = div != 0
    loss = y[mask].sum()
    loss.backward()
    assert y.tolist() == [np.inf, 1.0]
    assert mask.tolist() == [False, True]
    assert np.array_equal(x.grad.numpy(), [np.nan, 1.0], equal_nan=True)


def test_division_by_zero_that_is_masked_before() -> None:
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    div = torch.tensor([0.0, 1.0])

    mask = div != 0
    safe = torch.zeros_like(x)
    safe[mask] = x[mask] / div[mask]
    loss = safe.sum()
    loss.backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_threads_that_train() -> None:
    grads: list[Any] = []

    def train_fn() -> None:
        x = torch.ones(5, 5, requires_grad=True)
        y = (x + 3) * (x + 4) * 0.5
        y.sum().backward()
        grads.append(x.grad)

    threads = []
    for _ in range(10):
        p = threading.Thread(target=train_fn, args=())
        p.start()
        threads.append(p)
    for p in threads:
        p.join()
    assert len(grads) == 10
    for grad in grads:
        assert_close(grad.numpy(), np.full((5, 5), 4.5, np.float32))


def test_hook_after_an_in_place_modification() -> None:
    seen: list[float] = []
    leaf = torch.tensor(1.0, requires_grad=True)
    t = leaf.sin()
    t.cos_()
    t.register_hook(lambda grad: seen.append(grad.item()))
    t.backward()
    assert seen == [1.0]
    assert_close(leaf.grad.numpy(), np.float32(-np.sin(np.sin(1.0)) * np.cos(1.0)))


def test_hook_before_an_in_place_modification() -> None:
    # it is told the gradient of the value that was there then
    seen: list[float] = []
    t = torch.tensor(1.0, requires_grad=True).sin()
    t.register_hook(lambda grad: seen.append(grad.item()))
    t.cos_()
    t.backward()
    np.testing.assert_allclose(np.array(seen), np.array([-np.sin(np.sin(1.0))]), rtol=1e-6)
