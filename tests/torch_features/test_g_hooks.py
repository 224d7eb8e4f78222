"""Which hooks run, and in which order, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans import Tensor
from tests.torch_suite.common import leaf, same

grad = torch.autograd.grad


def logged() -> tuple[list[str], Tensor, Tensor]:
    """Returns a log, a leaf, and a result whose hooks, of tensor and node, write to it."""
    log: list[str] = []
    a = leaf(1.0)
    b = 3 * a
    b.register_hook(lambda g: log.append("tensor"))
    b.grad_fn.register_hook(lambda given, taken: log.append("node"))
    return log, a, b


def sink(x: Tensor) -> Any:
    """Returns the node that accumulates into a leaf."""
    return torch.autograd.graph.get_gradient_edge(x).node


def logged_leaf() -> tuple[list[str], Tensor]:
    """Returns a log, and a leaf with two hooks of the tensor and one of each other kind."""
    log: list[str] = []
    x = leaf(1.0)
    node = sink(x)
    node.register_hook(lambda given, taken: log.append("node_post"))
    x.register_post_accumulate_grad_hook(lambda p: log.append("post_acc"))
    node.register_prehook(lambda taken: log.append("node_pre"))
    x.register_hook(lambda g: log.append("tensor1"))
    x.register_hook(lambda g: log.append("tensor2"))
    return log, x


def test_g1_hooks_of_tensors_run_for_inputs() -> None:
    """Works."""
    log, _, b = logged()
    grad(2 * b, b)
    assert log == ["tensor"]
    log, a, b = logged()
    grad(2 * b, (a, b))
    assert log == ["tensor", "node"]


def test_g2_hooks_after_accumulation_run_at_backward() -> None:
    """Works."""
    log, x = logged_leaf()
    grad(2 * x, x)
    assert log == ["tensor1", "tensor2"]
    (2 * x).backward()
    assert log.count("post_acc") == 1


def test_g3_hooks_of_nodes_run_if_the_node_does() -> None:
    """Works."""
    log, a, b = logged()
    b.grad_fn.register_prehook(lambda taken: log.append("before"))
    grad(2 * b, b)
    assert log == ["tensor"]
    log.clear()
    grad(b * 2, a)
    assert log == ["tensor", "before", "node"]


def test_g4_backward_and_the_nodes_of_inputs() -> None:
    """Differs: neither the node of an input runs nor its hooks, as nothing asks for its results."""
    log, a, b = logged()
    (2 * b).backward(inputs=[b])
    assert a.grad is None
    same(b.grad, 2.0)
    assert log == ["tensor"]


def test_g5_hooks_of_tensors_come_first() -> None:
    """Works."""
    log: list[Any] = []
    b = leaf([1.0, 1.0]) * 1
    b.grad_fn.register_prehook(lambda taken: log.append("node"))
    b.register_hook(lambda g: log.append(g.tolist()))
    b.register_hook(lambda g: 2 * g)
    b.register_hook(lambda g: log.append(g.tolist()))
    (3 * b).sum().backward()
    assert log == [[3.0, 3.0], [6.0, 6.0], "node"]


def test_g6_then_prehooks_of_nodes() -> None:
    """Works."""
    log, x = logged_leaf()
    (2 * x).backward()
    assert log == ["tensor1", "tensor2", "node_pre", "post_acc", "node_post"]


def test_g7_retained_gradients_are_stored_before_prehooks() -> None:
    """Works."""
    seen: list[list[float]] = []
    a = leaf([1.0, 1.0])
    b = 3 * a
    b.retain_grad()
    b.register_hook(lambda g: 2 * g)

    def before(taken: Any) -> Any:
        seen.append(b.grad.tolist())
        return (10 * taken[0],)

    b.grad_fn.register_prehook(before)
    b.sum().backward()
    assert seen == [[2.0, 2.0]]
    same(b.grad, [2.0, 2.0])
    same(a.grad, [60.0, 60.0])


@pytest.mark.parametrize("product", [lambda a: a * 3, lambda a: 3 * a])
def test_g8_then_the_node_runs(product: Any) -> None:
    """Works."""
    seen: list[Any] = []
    a = leaf([1.0, 1.0])
    b = product(a)
    b.register_hook(lambda g: 2 * g)
    b.grad_fn.register_prehook(lambda taken: (10 * taken[0],))
    b.grad_fn.register_hook(lambda given, taken: seen.append((given, taken)))
    b.sum().backward()
    ((given, (taken,)),) = seen
    assert given[1] is None
    same(given[0], [60.0, 60.0])
    same(taken, [20.0, 20.0])
    same(a.grad, [60.0, 60.0])


def test_g9_then_hooks_after_accumulation() -> None:
    """Works."""
    x = leaf(1.0)
    node = sink(x)
    x.register_hook(lambda g: g - 2)
    node.register_prehook(lambda taken: (taken[0] / 5,))

    def accumulated(parameter: Tensor) -> None:
        parameter.grad.add_(0.5)

    def after(given: Any, taken: Any) -> None:
        x.grad.mul_(10)

    x.register_post_accumulate_grad_hook(accumulated)
    node.register_hook(after)
    (x * 1).backward()
    same(x.grad, 3.0)


def test_g10_hooks_of_nodes_come_last() -> None:
    """Works."""
    seen: list[Any] = []
    x = leaf([1.0, 2.0])
    x.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    sink(x).register_hook(lambda given, taken: seen.append((given, taken)))
    (x * x).sum().backward()
    first, (given, (taken,)) = seen
    assert first == "accumulated"
    assert given == ()
    same(taken, [2.0, 4.0])


def test_g11_several_hooks_of_one_kind() -> None:
    """Works."""
    x = leaf(1.0)

    def subtract(parameter: Tensor) -> None:
        parameter.grad.sub_(1)

    def multiply(parameter: Tensor) -> None:
        parameter.grad.mul_(4)

    x.register_post_accumulate_grad_hook(subtract)
    x.register_post_accumulate_grad_hook(multiply)
    (x * 5).backward()
    same(x.grad, 4.0 * (5 - 1))


def test_g12_hooks_of_a_tensor_that_is_written_to() -> None:
    """Works."""
    log: list[tuple[str, float]] = []
    t = leaf(1.0).sin()
    t.register_hook(lambda g: log.append(("before", round(g.item(), 4))))
    t.cos_()
    t.register_hook(lambda g: log.append(("after", g.item())))
    t.backward()
    assert log == [("after", 1.0), ("before", -0.7456)]


def test_g13_retain_grad_of_a_tensor_that_is_written_to() -> None:
    """Works."""
    a = leaf([1.0, 2.0]) * 1
    a.retain_grad()
    a.mul_(2)
    a.sum().backward()
    same(a.grad, [1.0, 1.0])


def test_g14_grad_mode_inside_of_hooks() -> None:
    """Works."""
    for create_graph in (False, True):
        modes: list[bool] = []
        x = leaf(1.0)
        y = x * x
        x.register_hook(lambda g, modes=modes: modes.append(torch.is_grad_enabled()))
        for register in (y.register_hook, y.grad_fn.register_prehook):
            register(lambda g, modes=modes: modes.append(torch.is_grad_enabled()))
        y.grad_fn.register_hook(lambda g, t, modes=modes: modes.append(torch.is_grad_enabled()))
        y.backward(create_graph=create_graph)
        assert modes == [create_graph] * 4


def test_g15_what_hooks_return() -> None:
    """Works."""
    said = "hook '<lambda>' has changed the type of"
    for wrong in (torch.ones(3), torch.ones(2, dtype=torch.float64)):
        x = leaf([1.0, 2.0, 3.0])
        x.register_hook(lambda g, wrong=wrong: wrong)
        with pytest.raises(RuntimeError, match=said):
            (x * x).sum().backward()
    x = leaf([1.0, 2.0, 3.0])
    x.register_hook(lambda g: None)
    (x * x).sum().backward()
    same(x.grad, [2.0, 4.0, 6.0])
