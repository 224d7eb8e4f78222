"""Tensors in several threads: recorded in one and used in another, and backward at once."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ftrans import Tensor, tensor
from ftrans.autograd import grad, is_grad_enabled, no_grad
from tests.helpers import assert_close


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    """Has threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def leaf(value: Any) -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, "float64"), requires_grad=True)


def together(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Calls a function in as many threads, all at once; returns results, or what was raised."""
    barrier = threading.Barrier(count)
    found: list[Any] = [None] * count

    def work(i: int) -> None:
        barrier.wait()
        try:
            found[i] = function(i)
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return found


def alone(function: Callable[[], Any]) -> Any:
    """Returns what a function returns in a thread of its own."""
    (found,) = together(1, lambda _: function())
    if isinstance(found, Exception):
        raise found
    return found


# ------------------------------------------------------------------------------ backward at once


def test_each_thread_goes_backward_by_itself() -> None:
    def work(_: int) -> Tensor:
        x = tensor(np.ones((5, 5)), requires_grad=True)
        y = (x + 3) * (x + 4) * 0.5
        y.sum().backward()
        return x.grad - (x.detach() + 3.5)

    for found in together(10, work):
        assert_close(found, np.zeros((5, 5)))


def test_all_threads_accumulate_in_one_leaf() -> None:
    x = tensor(np.ones((5, 5)), requires_grad=True)

    def work(_: int) -> None:
        ((x + 3) * (x + 4) * 0.5).sum().backward()

    assert together(10, work) == [None] * 10
    assert_close(x.grad, np.full((5, 5), 45.0))


def test_no_term_is_lost() -> None:
    x = leaf([1, 2])

    def work(i: int) -> None:
        for _ in range(50):
            (x * (i + 1)).sum().backward()

    assert together(4, work) == [None] * 4
    assert_close(x.grad, [500.0, 500.0])


@pytest.mark.slow
def test_no_term_is_lost_with_create_graph() -> None:
    for _ in range(150):
        x = leaf([1, 2])

        def work(_: int, x: Tensor = x) -> None:
            for _ in range(20):
                (x * x).sum().backward(create_graph=True)

        assert together(4, work) == [None] * 4
        assert_close(x.grad.detach(), [160.0, 320.0])


def refused_or_counted(y: Tensor, x: Tensor) -> None:
    """Goes backward four times at once; each time it is an error or accumulates a gradient."""
    found = together(4, lambda _: y.backward())
    refused = [e for e in found if e is not None]
    wrong = [e for e in refused if "second time" not in str(e)]
    assert not wrong, wrong[0]
    expected = (4 - len(refused)) * np.array([2.0, 4.0])
    assert_close(np.zeros(2) if x.grad is None else x.grad, expected)


def test_one_graph_without_retain() -> None:
    sys.setswitchinterval(1)
    x = leaf([1, 2])
    y = (x * x).sum()
    y.item()
    refused_or_counted(y, x)


@pytest.mark.slow
def test_one_graph_without_retain_again_and_again() -> None:
    for _ in range(3000):
        x = leaf([1, 2])
        y = (x * x).sum()
        y.item()
        refused_or_counted(y, x)


@pytest.mark.slow
def test_whether_a_pending_value_requires_grad_is_asked_by_all() -> None:
    for _ in range(1500):
        x, c = leaf([1, 2]), tensor(np.ones(2))
        values = []
        for _ in range(20):
            values += [x * 2, c * 2]

        def ask(_: int, values: Any = values) -> list[bool]:
            return [v.requires_grad for v in values]

        assert together(4, ask) == [[True, False] * 20] * 4


def test_one_graph_with_retain() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    y.item()
    assert together(4, lambda _: y.backward(retain_graph=True)) == [None] * 4
    assert_close(x.grad, [8.0, 16.0])


def test_one_pending_graph_with_retain() -> None:
    for _ in range(100):
        x = leaf([1, 2])
        y = (x * x).sum()
        assert together(4, lambda _, y=y: y.backward(retain_graph=True)) == [None] * 4
        assert_close(x.grad, [8.0, 16.0])


def test_grad_returns_to_each_thread_its_own() -> None:
    x = tensor(np.ones((5, 5)), requires_grad=True)

    def work(i: int) -> Tensor:
        (found,) = grad(((x + 3) * (x + 4) * 0.5 * i).sum(), x)
        return found

    for i, found in enumerate(together(6, work)):
        assert_close(found, np.full((5, 5), 4.5 * i))
    assert x.grad is None


def test_a_shared_trunk() -> None:
    x = leaf([1, 2])
    h = x * x
    h.tolist()

    def work(i: int) -> Tensor:
        (found,) = grad((h * (i + 1)).sum(), x, retain_graph=True)
        return found

    for i, found in enumerate(together(4, work)):
        assert_close(found, (i + 1) * np.array([2.0, 4.0]))


def test_a_pending_trunk() -> None:
    x = leaf([1, 2])
    h = x * x

    def work(i: int) -> Tensor:
        (found,) = grad((h * (i + 1)).sum(), x, retain_graph=True)
        return found

    for i, found in enumerate(together(4, work)):
        assert_close(found, (i + 1) * np.array([2.0, 4.0]))


def test_hooks_in_threads() -> None:
    x = leaf([1, 2])
    h = x * x
    seen: list[Any] = []
    h.register_hook(lambda g: seen.append((threading.get_ident(), g.tolist())))

    def work(i: int) -> int:
        (h * (i + 1)).sum().backward(retain_graph=True)
        return threading.get_ident()

    idents = together(4, work)
    assert sorted(ident for ident, _ in seen) == sorted(idents)
    assert sorted(value[0] for _, value in seen) == [1.0, 2.0, 3.0, 4.0]
    assert_close(x.grad, 10 * np.array([2.0, 4.0]))


def test_hooks_after_accumulation_in_threads() -> None:
    x, seen = leaf(1), []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(1))
    together(5, lambda _: (x * 2).backward())
    assert len(seen) == 5
    assert_close(x.grad, 10.0)


def test_two_threads_that_train_models_of_their_own() -> None:
    def train(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        w, data = leaf(rng.normal(size=3)), tensor(rng.normal(size=(8, 3)))
        for _ in range(50):
            ((data @ w) ** 2).mean().backward()
            with no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        return w.detach().tolist()

    expected = [train(seed) for seed in range(4)]
    assert together(4, train) == expected


# ------------------------------------------------------------------------------ handed over


def test_a_pending_value_is_used_in_another_thread() -> None:
    x = leaf([1, 2])
    y = x * x
    z = alone(lambda: y * 3)
    assert z.requires_grad
    z.sum().backward()
    assert_close(x.grad, [6.0, 12.0])


def test_a_pending_value_goes_backward_in_another_thread() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    alone(y.backward)
    assert_close(x.grad, [2.0, 4.0])
    assert y.item() == 5.0


def test_a_pending_value_is_read_in_another_thread() -> None:
    x = leaf([1, 2])
    y = x * x
    assert alone(y.tolist) == [1.0, 4.0]
    z = y * x
    z.sum().backward()
    assert_close(x.grad, [3.0, 12.0])


def test_the_owner_goes_on_with_what_was_handed_over() -> None:
    x = leaf([1, 2])
    y = x * x
    kept = y * 5
    z = alone(lambda: (y * 3).sum())
    (kept.sum() + z + y.sum()).backward()
    assert_close(x.grad, 9 * np.array([2.0, 4.0]))


def test_a_value_of_a_thread_that_ended() -> None:
    x = leaf([1, 2])
    y = alone(lambda: x * x)
    gc.collect()
    (y * x).sum().backward()
    assert_close(x.grad, [3.0, 12.0])


def test_a_chain_through_threads() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(10):
        before = y
        y = alone(lambda before=before: before * 1.5)
    y.backward()
    assert_close(x.grad, 1.5**10)


def test_many_values_are_handed_over() -> None:
    x = leaf([1, 2])
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit((x * k).sum().item) for k in range(100)]
        assert [f.result() for f in futures] == [3.0 * k for k in range(100)]


def test_the_owner_records_while_others_read() -> None:
    x, stop = leaf([1.0, 2.0]), threading.Event()
    latest, wrong = [x * 1], []

    def read() -> None:
        while not stop.is_set():
            y = latest[0]
            first, second = y.tolist()
            if abs(second - 2 * first) > 1e-9 * abs(second):
                wrong.append((first, second))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    y = x * 1
    for _ in range(500):
        y = y * 1.001
        latest[0] = y
    stop.set()
    for reader in readers:
        reader.join(60)
    assert not wrong
    y.sum().backward()
    assert_close(x.grad, np.full(2, 1.001**500), 1e-9)


def test_a_write_in_another_thread_is_seen() -> None:
    y = leaf([1, 2]) * 1
    v = y[0]
    alone(lambda: y.mul_(10).shape)
    assert_close(v.detach(), 10.0)
    v2 = y[1]
    v2.add_(1)
    assert_close(y.detach(), [10.0, 21.0])


def test_a_write_to_what_is_pending_elsewhere() -> None:
    x = leaf([1, 2])
    y = x * x
    before = y * 2
    alone(lambda: y.add_(1).shape)
    (before + y * y).sum().backward()
    # 2 x^2 + (x^2 + 1)^2
    value = np.array([1.0, 2.0])
    assert_close(x.grad, 4 * value + 4 * value * (value**2 + 1))


def test_a_leaf_is_updated_in_another_thread() -> None:
    x = leaf([1, 2])

    def update() -> None:
        with no_grad():
            x.sub_(x.grad, alpha=0.1)

    for _ in range(5):
        x.grad = None
        (x * x).sum().backward()
        alone(update)
    assert_close(x.detach(), 0.8**5 * np.array([1.0, 2.0]))


def test_a_leaf_that_is_pending_elsewhere_is_one() -> None:
    x = leaf([1, 2])
    with no_grad():
        x.mul_(3)

        def use() -> Tensor:
            return x * x

        y = alone(use)
    assert y.requires_grad
    y.sum().backward()
    assert_close(x.grad, [6.0, 12.0])


def test_a_view_of_what_is_pending_elsewhere() -> None:
    x = leaf([1, 2, 3])
    y = x * x
    v = alone(lambda: y[1:])
    y.mul_(2)
    assert_close(v.detach(), [8.0, 18.0])
    v.sum().backward()
    assert_close(x.grad, [0.0, 8.0, 12.0])


def test_a_hook_is_registered_in_another_thread() -> None:
    x = leaf([1, 2])
    y = x * x
    alone(lambda: y.register_hook(lambda g: g * 2).id)
    (y * 3).sum().backward()
    assert_close(x.grad, [12.0, 24.0])


def test_gradients_are_created_in_another_thread() -> None:
    x = leaf(2)
    y = x**3
    (first,) = alone(lambda: grad(y, x, create_graph=True))
    (second,) = alone(lambda: grad(first, x, create_graph=True))
    assert_close(second.detach(), 12.0)


def test_a_failure_in_one_thread_is_its_own() -> None:
    x = leaf([1, 2])

    def work(i: int) -> Any:
        if i % 2:
            return (x @ np.ones((3, 3))).sum()
        return (x * x).sum().item()

    found = together(4, work)
    assert [f for f in found if isinstance(f, float)] == [5.0, 5.0]
    assert sum(isinstance(f, Exception) for f in found) == 2
    (x * x).sum().backward()
    assert_close(x.grad, [2.0, 4.0])


# ------------------------------------------------------------------------------ what belongs to one


def test_the_mode_belongs_to_the_thread() -> None:
    with no_grad():
        found = together(3, lambda _: is_grad_enabled())
    assert found == [True] * 3


def test_modes_switched_at_once() -> None:
    x = leaf(1)

    def work(i: int) -> bool:
        right = True
        for _ in range(100):
            if i % 2:
                with no_grad():
                    right &= not (x * 2).requires_grad
            else:
                right &= (x * 2).requires_grad
        return right

    assert together(4, work) == [True] * 4


def test_threads_that_ended_leave_nothing() -> None:
    x = leaf([1, 2])

    def work() -> None:
        y = x * x
        (y * 2).sum().backward()
        x.grad = None

    for _ in range(5):
        alone(work)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        alone(work)
    gc.collect()
    assert len(gc.get_objects()) - before < 200
