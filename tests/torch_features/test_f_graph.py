"""Nodes, edges and handles of the graph, row by row of what PyTorch's documents name."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.autograd import grad, graph
from tests.torch_suite.common import constant, leaf, same

V = [1.0, 2.0]


def test_f1_node() -> None:
    """Differs: Node is an ordinary base class, in the MRO of every node's class."""
    b = leaf(V).clone()
    sink = b.grad_fn.next_functions[0][0]
    assert isinstance(b.grad_fn, graph.Node)
    assert isinstance(sink, graph.Node)
    assert issubclass(type(b.grad_fn), graph.Node)
    assert not isinstance(b, graph.Node)
    assert graph.Node in type(b.grad_fn).mro()


def test_f2_name() -> None:
    """Works."""
    node = leaf(V).clone().grad_fn
    assert node.name() == type(node).__name__ == "CloneBackward0"
    assert node.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_f3_metadata() -> None:
    """Differs: the traceback of anomaly mode is there while the mode is on."""
    node = leaf(V).exp().grad_fn
    assert node.metadata == {}
    node.metadata["mine"] = 3
    assert node.metadata == {"mine": 3}
    with torch.autograd.detect_anomaly():
        traced = leaf(V).exp()
        found = traced.grad_fn.metadata["traceback_"]
    assert all(type(line) is str for line in found)
    assert "traced = leaf(V).exp()" in "".join(found)
    assert leaf(V).exp().grad_fn.metadata == {}


def test_f4_next_functions() -> None:
    """Works."""

    def names(node: Any) -> list[tuple[str, int]]:
        return [(n.name(), index) for n, index in node.next_functions]

    a = leaf(V)
    node = (a.exp() + a).sum().grad_fn
    assert names(node) == [("AddBackward0", 0)]
    assert names(node.next_functions[0][0]) == [
        ("ExpBackward0", 0),
        ("torch::autograd::AccumulateGrad", 0),
    ]
    assert (a * constant(V)).grad_fn.next_functions[1] == (None, 0)
    sink = ("torch::autograd::AccumulateGrad", 0)
    for node in ((3 * a).grad_fn, (a * 3).grad_fn):
        assert node.next_functions[1] == (None, 0)
        assert (node.next_functions[0][0].name(), node.next_functions[0][1]) == sink


def test_f5_register_hook() -> None:
    """Works."""
    a = leaf([1.0, 1.0, 1.0])
    b = a.clone()
    handle = b.grad_fn.register_hook(lambda given, taken: (taken[0] * 2,))
    b.sum().backward(retain_graph=True)
    same(a.grad, [2.0, 2.0, 2.0])
    a.grad = None
    handle.remove()
    b.sum().backward()
    same(a.grad, [1.0, 1.0, 1.0])


def test_f6_register_prehook() -> None:
    """Works."""
    a = leaf(1.0)
    b = 3 * a
    b.register_hook(lambda g: g * 2)
    b.grad_fn.register_prehook(lambda taken: (taken[0] * 10,))
    b.backward()
    same(a.grad, 60.0)


def test_f7_node_call() -> None:
    """Differs: the node of the result is the whole derivative, not `MulBackward0`."""
    a = leaf([0.0, 0.0])
    b = a.exp()
    found = b.grad_fn(torch.ones(2, dtype=torch.float64))
    same(found, [1.0, 1.0])
    assert found.grad_fn.name() == "PullbackBackward0"
    same(grad(found.sum(), a)[0], [1.0, 1.0])
    for wrong in ((), (found, found)):
        with pytest.raises(TypeError, match=r"ExpBackward0.*(\n.*)*results: 1"):
            b.grad_fn(*wrong)


def test_f8_saved_attributes() -> None:
    """Works."""
    x = leaf(V)
    y, z = x.pow(2), x.exp()
    assert y.grad_fn._saved_self is x
    assert isinstance(y.grad_fn._raw_saved_self, graph.SavedTensor)
    assert z.grad_fn._saved_result is not z
    assert torch.equal(z.grad_fn._saved_result, z)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        y.grad_fn._saved_self  # noqa: B018
    with pytest.raises(AttributeError, match="It has saved: _saved_result"):
        z.grad_fn._saved_self  # noqa: B018


def test_f9_sequence_nr_and_input_metadata() -> None:
    """Works."""
    a = leaf(V)
    first, second = a.exp().grad_fn, a.exp().grad_fn
    assert second._sequence_nr() > first._sequence_nr()
    sink = first.next_functions[0][0]
    assert sink._sequence_nr() > second._sequence_nr()
    about = first._input_metadata[0]
    assert tuple(about.shape) == (2,)
    assert about.dtype == torch.float64


def test_f10_accumulate_grad_variable() -> None:
    """Works."""
    a = leaf(V)
    node = (a * 2).grad_fn.next_functions[0][0]
    assert node.variable is a
    assert (a * 3).grad_fn.next_functions[0][0] is node


def test_f11_execution_order() -> None:
    """Differs: as there, but hooks of leaves come last, once all gradients are complete."""
    a, b = leaf(1.0), leaf(2.0)
    x = a.exp()
    y, z = x.sin(), b.cos()
    log: list[str] = []
    for name, value in {"x": x, "y": y, "z": z}.items():
        value.grad_fn.register_hook(lambda given, taken, name=name: log.append(name))
    for name, value in {"a": a, "b": b}.items():
        value.register_hook(lambda g, name=name: log.append(name))
    (z + y * x).backward()
    assert log[:3] == ["z", "y", "x"]
    assert sorted(log[3:]) == ["a", "b"]


def test_f12_gradient_edge() -> None:
    """Works."""
    b = leaf(V) * 2
    assert graph.GradientEdge._fields == ("node", "output_nr", "ownership_token")
    edge = graph.GradientEdge(b.grad_fn, 0)
    assert edge == graph.get_gradient_edge(b)
    assert (edge.node is b.grad_fn, edge.output_nr) == (True, 0)
    out = (b * b).sum()
    del b
    gc.collect()
    same(grad(out, edge)[0], [4.0, 8.0])


def test_f13_get_gradient_edge() -> None:
    """Differs: there is no `x.set_`; the error says `x.data = value`, which edges survive."""
    a = leaf([0.0, 0.0])
    m = 2 * a
    out = (m**2 + m).sum()
    edge = graph.get_gradient_edge(m)
    same(grad(out, edge, retain_graph=True)[0], [1.0, 1.0])
    same(grad(out, m)[0], [1.0, 1.0])
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(torch.tensor([1.0]))

    x = leaf(V).clone()
    before = graph.get_gradient_edge(x)
    x *= 2
    old, new = grad(x.sum(), (before, x))
    same(old, [2.0, 2.0])
    same(new, [1.0, 1.0])

    x = leaf(V)
    edge, out = graph.get_gradient_edge(x), x.clone().sum()
    with pytest.raises(AttributeError, match=r"Write x\.data = value"):
        x.set_(constant([3.0, 4.0]))
    x.data = constant([3.0, 4.0])
    same(x, [3.0, 4.0])
    same(grad(out, edge)[0], [1.0, 1.0])


def test_f14_backward_from_an_edge() -> None:
    """Works."""
    a = leaf(V)
    same(grad(graph.get_gradient_edge((3 * a).sum()), a)[0], [3.0, 3.0])
    torch.autograd.backward(graph.get_gradient_edge((3 * a).sum()))
    same(a.grad, [3.0, 3.0])
    rows = torch.eye(2, dtype=torch.float64)
    (found,) = grad(graph.get_gradient_edge(a**2), a, rows, is_grads_batched=True)
    same(found, [[2.0, 0.0], [0.0, 4.0]])


def test_f15_increment_version() -> None:
    """Differs: it counts, and backward never raises: a write cannot reach what was saved."""
    a = leaf(V)
    b = a * 1
    out, before = (b * b).sum(), b._version
    graph.increment_version(b)
    assert b._version == before + 1
    graph.increment_version([b, a])
    assert b._version == before + 2
    out.backward()
    same(a.grad, [2.0, 4.0])

    with torch.inference_mode():
        made = torch.ones(2) * 2
    graph.increment_version(made)
    assert made.is_inference()


def test_f32_removable_handle() -> None:
    """Works."""
    t = leaf(V)
    calls: list[int] = []
    with t.register_hook(lambda g: calls.append(1)):
        (t * 2).sum().backward()
    (t * 2).sum().backward()
    assert calls == [1]
    handle = t.register_hook(lambda g: calls.append(2))
    handle.remove()
    handle.remove()
    (t * 2).sum().backward()
    assert calls == [1]

    hooks: dict[int, Any] = {}
    own = torch.utils.hooks.RemovableHandle(hooks)
    hooks[own.id] = len
    own.remove()
    assert hooks == {}


def test_f33_register_module_full_backward_hook() -> None:
    """Declined: there are no modules; layers are functions, and tensors and nodes have hooks."""
    with pytest.raises(AttributeError, match=r"There are no modules.*layers functions"):
        torch.nn.modules.module.register_module_full_backward_hook(print)
    seen: list[tuple[list[float], list[float]]] = []
    x, w = leaf(V), leaf([3.0, 4.0])
    y = x * w
    y.grad_fn.register_hook(
        lambda given, taken: seen.append((given[0].tolist(), taken[0].tolist()))
    )
    y.sum().backward()
    assert seen == [([3.0, 4.0], [1.0, 1.0])]
