"""Backward passes in several threads, row by row of what PyTorch's documents name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import ftrans.torch as torch
from ftrans.autograd import grad, graph
from tests.torch_suite.common import leaf, same, unchanged

ONES = np.ones((5, 5))


def together(count: int, function: Callable[[], Any]) -> list[Any]:
    """Calls a function in as many threads, all at once; returns results, or what was raised."""
    barrier = threading.Barrier(count)
    found: list[Any] = [None] * count

    def work(i: int) -> None:
        barrier.wait()
        try:
            found[i] = function()
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return found


def test_r1_backward_at_once() -> None:
    """Works."""

    def work() -> Any:
        x = leaf(ONES)
        y = (x + 3) * (x + 4) * 0.5
        y.sum().backward()
        return x.grad

    for found in together(10, work):
        same(found, ONES + 3.5)


def test_r2_a_leaf_that_threads_share() -> None:
    """Differs: accumulation in a leaf is under a lock, so that the sum is the sum."""
    x = leaf(ONES)

    def work() -> None:
        for _ in range(20):
            ((x + 3) * (x + 4) * 0.5).sum().backward()

    assert together(10, work) == [None] * 10
    same(x.grad, np.full((5, 5), 20 * 45.0))


def test_r3_a_graph_that_threads_share() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.item()
    refused = [error for error in together(4, y.backward) if error is not None]
    assert all("backward through the graph a second time" in str(error) for error in refused)
    same(x.grad, (4 - len(refused)) * np.array([2.0, 4.0]))
    (late,) = together(1, y.backward)
    assert "backward through the graph a second time" in str(late)


def test_r4_grad_in_threads() -> None:
    """Works."""
    x = leaf(ONES)
    for found in together(10, lambda: grad(((x + 3) * (x + 4) * 0.5).sum(), x)[0]):
        same(found, ONES + 3.5)
    assert x.grad is None


def test_r5_state_of_a_thread() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    packed: list[Any] = []

    def look() -> tuple[bool, bool, bool]:
        (x * x).sum().backward()
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            (x * 2).requires_grad,
        )

    with torch.no_grad():
        assert together(1, look) == [(True, False, True)]
    with torch.inference_mode():
        assert together(1, look) == [(True, False, True)]
    with graph.saved_tensors_hooks(lambda t: packed.append(t) or t, unchanged):
        assert together(1, look) == [(True, False, True)]
    assert packed == []
    same(x.grad, [6.0, 12.0])


def test_r6_hooks_of_nodes_in_threads() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    y = x * x
    lock = threading.Lock()
    seen: list[list[float]] = []
    nodes: list[int] = []

    def note(gradients: Any) -> None:
        with lock:
            seen.append([g.sum().item() for g in gradients])

    graph.register_multi_grad_hook((x, y), note)
    y.grad_fn.register_hook(lambda given, taken: nodes.append(1))
    assert together(5, lambda: y.sum().backward(retain_graph=True)) == [None] * 5
    assert seen == [[6.0, 2.0]] * 5
    assert nodes == [1] * 5
    same(x.grad, [10.0, 20.0])
