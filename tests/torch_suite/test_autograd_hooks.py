"""Hooks of tensors: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor
from ftrans.autograd import Function, grad
from tests.torch_suite.common import constant, leaf, same, twice

V = np.array([1.0, 2.0])


class CloneAndTwice(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone(), x * 2

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        return first + 2 * second


# ------------------------------------------------------------------------------ hooks of a tensor


def test_hooks() -> None:
    x, y = leaf(np.ones((5, 5))), leaf(4 * np.ones((5, 5)))
    counter = [0]

    def count(increment: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            counter[0] += increment

        return hook

    z = x**2 + x * 2 + x * y + y
    x.register_hook(count(0))
    test = z.register_hook(count(1))
    z.backward(constant(np.ones((5, 5))), retain_graph=True)
    assert counter[0] == 1
    test2 = z.register_hook(count(2))
    z.backward(constant(np.ones((5, 5))), retain_graph=True)
    assert counter[0] == 4
    test2.remove()
    z.backward(constant(np.ones((5, 5))), retain_graph=True)
    assert counter[0] == 5
    test.remove()
    z.register_hook(twice)
    y.grad = None
    z.backward(constant(np.ones((5, 5))))
    same(y.grad, 2 * (np.ones((5, 5)) + 1))
    assert counter[0] == 5


def test_hooks_cpp() -> None:
    x = leaf(np.ones((3, 3)))
    y = x.exp()
    y.register_hook(twice)
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    same(x.grad, 3 * math.e * np.ones((3, 3)))


def test_hook_none() -> None:
    class NoneGradient(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            assert ctx.needs_input_grad == (True, False)
            return x + y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct, None

    called: list[bool] = []

    def hook(gradient: Tensor) -> None:
        called.append(gradient is not None)

    x, y = leaf(V), constant(V)
    rx = leaf(V)
    rx.register_hook(hook)
    NoneGradient.apply(x + rx, y).sum().backward()
    assert called == [True]


def test_hook_with_no_name() -> None:
    class Hook:
        def __call__(self, gradient: Tensor) -> Tensor:
            return gradient * 2

    x = leaf([1.0])
    y = x * 1
    y.register_hook(Hook())
    y.sum().backward()
    same(x.grad, [2.0])


def test_backward_hook_relative_ordering() -> None:
    order: list[str] = []
    x = leaf(V)
    y = x.exp()
    y.register_hook(lambda g: order.append("tensor"))
    y.grad_fn.register_prehook(lambda taken: order.append("before"))
    y.grad_fn.register_hook(lambda given, taken: order.append("after"))
    x.register_hook(lambda g: order.append("leaf"))
    y.sum().backward()
    assert order == ["tensor", "before", "after", "leaf"]


def test_hook_edge_case_when_called_with_grad() -> None:
    calls = {"a": 0, "b": 0}

    def count(name: str) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            calls[name] += 1

        return hook

    a = leaf(1.0)
    b = a * 2
    c = b * 2
    a.register_hook(count("a"))
    b.register_hook(count("b"))
    grad(c, inputs=(b,), retain_graph=True)
    assert calls == {"a": 0, "b": 1}
    grad(c, inputs=(a, b), retain_graph=True)
    assert calls == {"a": 1, "b": 2}


def test_hooks_of_a_leaf_after_all_gradients_are_complete() -> None:
    """PyTorch accumulates into one leaf while others are on their way; here leaves come last."""
    order: list[str] = []
    a, b = leaf(2.0), leaf(3.0)
    late = a.exp()
    late.register_hook(lambda g: order.append("late"))
    b.register_post_accumulate_grad_hook(lambda p: order.append("b"))
    (late * b).backward()
    assert order == ["late", "b"]
    same(b.grad, math.exp(2.0))


def test_post_accumulate_grad_hook_on_non_leaf() -> None:
    with pytest.raises(RuntimeError, match="leaf"):
        (leaf(V) * 2).register_post_accumulate_grad_hook(lambda p: None)


def test_post_accumulate_grad_hook_multiple_hooks() -> None:
    def step(parameter: Tensor) -> None:
        with ftrans.no_grad():
            parameter.sub_(parameter.grad)

    def clear(parameter: Tensor) -> None:
        parameter.grad = None

    x = leaf(np.ones(2))
    x.register_post_accumulate_grad_hook(step)
    x.register_post_accumulate_grad_hook(clear)
    (x * 3).sum().backward()
    same(x, [-2.0, -2.0])
    assert x.grad is None


def test_post_accumulate_grad_hook_multiple_tensors() -> None:
    x, y = leaf(np.ones(2)), leaf(np.ones(2))

    def multiply(parameter: Tensor) -> None:
        parameter.grad.mul_(10)

    for tensor in (x, y):
        tensor.register_post_accumulate_grad_hook(multiply)
    (x * y).sum().backward()
    same(x.grad, [10.0, 10.0])
    same(y.grad, [10.0, 10.0])


def test_post_accumulate_grad_hook_returns_not_none() -> None:
    x = leaf(V)
    x.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(RuntimeError, match="None"):
        x.sum().backward()


def test_post_accumulate_grad_hook_e2e() -> None:
    w = leaf(V)
    values = V.copy()

    def step(parameter: Tensor) -> None:
        with ftrans.no_grad():
            parameter.sub_(0.1 * parameter.grad)
        parameter.grad = None

    w.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (w * w).sum().backward()
        values = values - 0.2 * values
    same(w, values)


def test_post_accumulate_grad_hook_gets_cleaned_up() -> None:
    calls: list[int] = []
    x = leaf(V)
    handle = x.register_post_accumulate_grad_hook(lambda p: calls.append(1))
    x.sum().backward()
    handle.remove()
    x.sum().backward()
    assert calls == [1]


def test_post_accumulate_grad_hook_ordering() -> None:
    order: list[str] = []
    x = leaf(1.0)
    node = (x * 1).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: g - 2)
    node.register_prehook(lambda taken: (taken[0] / 5,))

    def accumulated(parameter: Tensor) -> None:
        order.append("accumulated")
        parameter.grad.add_(0.5)

    def after(given: Any, taken: Any) -> None:
        order.append("after")
        x.grad.mul_(10)

    x.register_post_accumulate_grad_hook(accumulated)
    node.register_hook(after)
    (x * 1).backward()
    same(x.grad, 10 * ((1 - 2) / 5 + 0.5))
    assert order == ["accumulated", "after"]


def test_tensor_hooks_inplace() -> None:
    log: list[tuple[str, float]] = []
    a = leaf(2.0)
    c = a.clone()
    c.register_hook(lambda g: log.append(("before", g.item())))
    c *= 2
    c.register_hook(lambda g: log.append(("after", g.item())))
    c.backward()
    assert log == [("after", 1.0), ("before", 2.0)]


def test_tensor_hooks_inplace_multiple_outputs() -> None:
    log: list[tuple[str, float]] = []
    a = leaf(2.0)
    x, y = CloneAndTwice.apply(a)
    x.register_hook(lambda g: log.append(("x", g.item())))
    y.register_hook(lambda g: log.append(("y", g.item())))
    x *= 3
    y *= 5
    (x + y).backward()
    assert sorted(log) == [("x", 3.0), ("y", 5.0)]
    same(a.grad, 13.0)


def test_retain_grad() -> None:
    x = leaf(np.arange(1.0, 4.0))
    h1 = x * 3
    out = (h1 * h1).sum()
    h1.retain_grad()
    h1.retain_grad()
    out.backward(retain_graph=True)
    same(h1.grad, h1.detach() * 2)
    out.backward(retain_graph=True)
    same(h1.grad, h1.detach() * 4)
    x.retain_grad()
    assert not x.retains_grad
    with ftrans.no_grad():
        y = x * x
    with pytest.raises(RuntimeError):
        y.retain_grad()


def test_retain_grad_inplace() -> None:
    for first, second in ((True, False), (False, True), (True, True)):
        a = leaf(1.0).clone()
        if first:
            a.retain_grad()
        a *= 2
        if second:
            a.retain_grad()
        a.sum().backward()
        same(a.grad, 1.0)


def test_retain_grad_inplace_over_view() -> None:
    base = leaf([1.0]).clone()
    view, other = base[:], base[:]
    view.retain_grad()
    other.retain_grad()
    view.mul_(2)
    (view + other).sum().backward()
    same(view.grad, [1.0])
    same(other.grad, [1.0])


def test_retain_grad_cycle() -> None:
    x = leaf(np.ones((5, 5)))

    def loses_its_graph() -> Any:
        y = x * 2
        y.retain_grad()
        return y.sum()

    loss = loses_its_graph()
    loss.backward()
    same(x.grad, 2 * np.ones((5, 5)))


def test_retains_grad_can_always_observe_tensor_prehook() -> None:
    a = leaf(1.0)
    b = a.clone()
    b.register_hook(twice)
    b.retain_grad()
    b.register_hook(twice)
    b.clone().backward()
    same(b.grad, 4.0)
    same(a.grad, 4.0)
    b = leaf(1.0).clone()
    b.retain_grad()
    b.register_hook(twice)
    b.clone().backward()
    same(b.grad, 2.0)
