"""Hooks of nodes and of several tensors: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ftrans import Tensor
from ftrans.autograd import Function, backward, grad, graph
from ftrans.errors import GraphError
from tests.torch_suite.common import Identity, constant, leaf, same

V = np.array([1.0, 2.0])


class Powers(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2, x**4

    @staticmethod
    def backward(ctx: Any, second: Any, fourth: Any) -> Any:
        (x,) = ctx.saved_tensors
        return second * 2 * x + fourth * 4 * x**3


# -------------------------------------------------------------------------------- hooks of a node


def test_grad_fn_prehooks() -> None:
    a = leaf([1.0, 1.0])
    b = a.clone()
    b.grad_fn.register_prehook(lambda taken: (taken[0] * 2,))
    b.grad_fn.register_prehook(lambda taken: (taken[0] + 1,))
    b.sum().backward()
    same(a.grad, [3.0, 3.0])


def test_grad_fn_prehooks_multiple_outputs() -> None:
    b = leaf(np.arange(9.0).reshape(3, 3))
    values, _ = b.max(0)
    values.grad_fn.register_prehook(lambda taken: (taken[0] * 2, *taken[1:]))
    values.sum().backward()
    same(b.grad, [[0.0] * 3, [0.0] * 3, [2.0] * 3])

    x = leaf([1.5])
    second, fourth = Powers.apply(x)
    assert second.grad_fn is fourth.grad_fn
    second.grad_fn.register_prehook(lambda taken: (taken[0] * 2, taken[1] * 2))
    (second + fourth).sum().backward()
    same(x.grad, [2 * (3 + 4 * 1.5**3)])


@pytest.mark.parametrize("factor", [None, 1, 2, 3])
def test_grad_fn_prehooks_accumulate_grad(factor: int | None) -> None:
    x = leaf(V)
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_prehook(lambda taken: None if factor is None else (taken[0] * factor,))
    for _ in range(2):
        (x * 1).sum().backward()
    same(x.grad, 2 * np.ones(2) * (factor or 1))


def test_grad_fn_prehooks_remove_hooks() -> None:
    log: list[int] = []
    b = leaf(1.0).clone()
    first = b.grad_fn.register_prehook(lambda taken: log.append(1))
    b.grad_fn.register_prehook(lambda taken: log.append(2))
    first.remove()
    b.backward()
    assert log == [2]


def test_prehook_ordering() -> None:
    log: list[int] = []

    def of_tensor(gradient: Tensor) -> Tensor:
        log.append(1)
        return gradient * 2

    def of_node(taken: Any) -> Any:
        log.append(2)
        return tuple(g * 2 for g in taken)

    a = leaf(1.0)
    b = a.clone()
    b.register_hook(of_tensor)
    b.grad_fn.register_prehook(of_node)
    b.retain_grad()
    b.register_hook(of_tensor)
    b.clone().backward()
    assert log == [1, 1, 2]
    same(b.grad, 4.0)
    same(a.grad, 8.0)


def test_backward_hook_replaces_one_gradient() -> None:
    a = leaf(V)
    y = a * a.exp()
    y.grad_fn.register_hook(lambda given, taken: (None, given[1]))
    y.sum().backward()
    same(a.grad, V * np.exp(V))


def test_hook_of_a_node_sees_the_sum_of_roots() -> None:
    seen: list[list[float]] = []
    y = leaf(V).exp()
    y.grad_fn.register_hook(lambda given, taken: seen.append(taken[0].tolist()))
    backward([y.sum(), (y * 2).sum()])
    assert seen == [[3.0, 3.0]]


def test_hook_of_a_node_at_two_backwards() -> None:
    a = leaf(V)
    y = a.exp()
    y.grad_fn.register_hook(lambda given, taken: (given[0] * 2,))
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    same(a.grad, 4 * np.exp(V))


@pytest.mark.parametrize("wrong", [3, "ab", {"a": 1}, (constant([1.0]),)])
def test_hook_of_a_node_that_returns_something_else(wrong: Any) -> None:
    y = leaf(V).exp()
    y.grad_fn.register_hook(lambda given, taken: wrong)
    with pytest.raises(GraphError):
        y.sum().backward()


def test_hook_of_a_node_that_returns_something_in_the_place_of_none() -> None:
    y = leaf(V) * constant(V)
    y.grad_fn.register_hook(lambda given, taken: (given[0], 3.0))
    with pytest.raises(GraphError, match="a hook returns a tensor"):
        y.sum().backward()


def test_hook_of_a_node_that_raises() -> None:
    a = leaf(V)
    y = (a * a).sum()
    calls: list[int] = []

    def hook(given: Any, taken: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("hook")

    y.grad_fn.register_hook(hook)
    with pytest.raises(KeyError):
        y.backward()
    y.backward()
    same(a.grad, 2 * V)


def test_topological_order_of_hooks() -> None:
    log: list[str] = []
    b = leaf([1.0]).exp()
    c, d = b.sin(), b.cos()
    for name, tensor in zip("bcd", (b, c, d), strict=True):
        tensor.grad_fn.register_hook(lambda given, taken, name=name: log.append(name))
    (c * d).sum().backward()
    assert log == ["d", "c", "b"]


def test_hook_registered_during_backward() -> None:
    calls: list[int] = []
    a = leaf([2.0])
    y = a.exp()
    z = y * y

    def register(given: Any, taken: Any) -> None:
        y.grad_fn.register_hook(lambda given, taken: calls.append(1))

    z.grad_fn.register_hook(register)
    z.sum().backward()
    assert calls == [1]
    same(a.grad, [2 * math.exp(4.0)])


# --------------------------------------------------------------------- hooks of several tensors


def test_multi_grad_all_hooks() -> None:
    first, second, third, fourth = (leaf(V) for _ in range(4))
    found: list[list[bool]] = []
    handle = graph.register_multi_grad_hook(
        (first, second, third, fourth),
        lambda gradients: found.append([g is not None for g in gradients]),
    )
    out = (second * third).sum()
    out.backward(inputs=(second, third), retain_graph=True)
    assert found == [[False, True, True, False]]
    out.backward(inputs=(first, fourth), retain_graph=True)
    assert len(found) == 1
    out.backward(inputs=(first, second, third, fourth), retain_graph=True)
    assert len(found) == 2
    handle.remove()
    out.backward()
    assert len(found) == 2


def test_multi_grad_any_hooks() -> None:
    a, b = leaf(2.0), leaf(3.0)
    found: list[float] = []
    graph.register_multi_grad_hook((a, b), lambda g: found.append(g.item()), mode="any")
    for _ in range(3):
        (a * b).backward()
    assert len(found) == 3


def test_multi_grad_hooks_invalid_mode() -> None:
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((leaf(1.0),), lambda g: None, mode="foo")  # type: ignore[arg-type]


def test_multi_grad_hooks_of_results() -> None:
    found: list[Any] = []
    a, b = leaf(2.0), leaf(3.0)
    c = a * b
    d = a * c
    graph.register_multi_grad_hook((c, d), found.append)
    d.backward(retain_graph=True)
    assert [g.item() for g in found[0]] == [2.0, 1.0]
    grad(d, c)
    assert len(found) == 2


def test_multi_grad_hooks_error_in_hook() -> None:
    def wrong(gradients: Any) -> None:
        raise KeyError("hook")

    a = leaf(2.0)
    handle = graph.register_multi_grad_hook((a,), wrong)
    with pytest.raises(KeyError):
        (a * a).backward()
    handle.remove()
    a.grad = None
    (a * a).backward()
    same(a.grad, 4.0)


def test_multi_grad_hooks_of_one_tensor_twice() -> None:
    found: list[list[float]] = []
    a = leaf(2.0)
    graph.register_multi_grad_hook((a, a), lambda gs: found.append([g.item() for g in gs]))
    (a * a).backward()
    assert found == [[4.0, 4.0]]


def test_hooks_of_a_function_node() -> None:
    a = leaf([1.0])
    y = Identity.apply(a)
    y.grad_fn.register_hook(lambda given, taken: (given[0] * 3,))
    y.sum().backward()
    same(a.grad, [3.0])
