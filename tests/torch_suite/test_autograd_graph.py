"""Nodes and edges of the graph: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import Tensor, tensor
from ftrans.autograd import Function, backward, grad, graph, inference_mode
from ftrans.errors import ArgumentError, GraphError
from tests.torch_suite.common import Exponential, Identity, constant, leaf, same

V = np.array([1.0, 2.0])


# ------------------------------------------------------------------------------------------- nodes


def test_function_names_of_nodes() -> None:
    x = leaf(np.ones((2, 3)))
    names = {
        "SigmoidBackward0": x.sigmoid(),
        "ReluBackward0": x.relu(),
        "VarBackward0": x.var(),
        "StdBackward0": x.std(),
        "SoftmaxBackward0": x.softmax(0),
        "SelectBackward0": x[0],
        "SliceBackward0": x[:1],
        "PermuteBackward0": x.permute(1, 0),
        "CumsumBackward0": x.cumsum(0),
        "AbsBackward0": x.abs(),
        "ToCopyBackward0": x.to("float32"),
        "ExpandBackward0": x.expand(2, 2, 3),
        "SqueezeBackward0": x.squeeze(),
        "SortBackward0": x.sort()[0],
        "LogsumexpBackward0": x.logsumexp(0),
        "ProdBackward0": x.prod(),
        "SqrtBackward0": x.sqrt(),
    }
    assert [y.grad_fn.name() for y in names.values()] == list(names)


def test_next_functions() -> None:
    x, y = leaf(np.ones((5, 5))), leaf(np.ones((5, 5)))
    a = x + y
    ((left, _), (right, _)) = a.grad_fn.next_functions
    assert left.variable is x
    assert right.variable is y
    b = a + 5
    assert b.grad_fn.next_functions[0][0] is a.grad_fn


def test_next_functions_of_constants_are_none() -> None:
    x = leaf([1.0])
    (first, second) = (x * constant([2.0])).grad_fn.next_functions
    assert first[0].variable is x
    assert second == (None, 0)


def test_next_functions_of_concatenate() -> None:
    x, y = leaf([1.0]), leaf([2.0])
    found = fnp.concatenate([x, y, x]).grad_fn.next_functions
    assert all(node.variable is z for (node, _), z in zip(found, (x, y, x), strict=True))


def test_accumulate_grad_is_one_node_of_a_leaf() -> None:
    x = leaf([1.0])
    ((node, _), _) = (x * 2).grad_fn.next_functions
    assert node.name() == "torch::autograd::AccumulateGrad"
    assert node.variable is x
    assert (x * 3).grad_fn.next_functions[0][0] is node


def test_accumulate_grad_can_be_called() -> None:
    x = leaf([1.0, 2.0])
    node = (x * 2).grad_fn.next_functions[0][0]
    node(constant([1.0, 2.0]))
    node(constant([1.0, 2.0]))
    same(x.grad, [2.0, 4.0])


def test_grad_badcalls() -> None:
    x = leaf([1.0])
    s = x.exp()
    for wrong in ((), (1, 2), (x, x)):
        with pytest.raises(TypeError):
            s.grad_fn(*wrong)
    with pytest.raises(TypeError):
        s.grad_fn(foo=x)
    same(s.grad_fn(constant([1.0])), [math.e])


def test_grad_fn_is_not_kept_after_detach() -> None:
    x = leaf([1.0])
    assert x.grad_fn is None
    assert (x * 2).detach().grad_fn is None
    with ftrans.no_grad():
        assert (x * 2).grad_fn is None
    assert constant([1.0]).grad_fn is None


def test_node_calls_under_no_grad_and_second_order() -> None:
    a = leaf([0.5])
    b = a.sin()
    with ftrans.no_grad():
        assert not b.grad_fn(constant([1.0])).requires_grad
    found = b.grad_fn(constant([1.0]))
    same(grad(found.sum(), a)[0], [-math.sin(0.5)])


def test_node_call_after_backward() -> None:
    b = leaf([0.5]).sin()
    b.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        b.grad_fn(constant([1.0]))


def test_isinstance_of_node() -> None:
    a = leaf([1.0])
    nodes = [a.exp().grad_fn, a.exp().grad_fn.next_functions[0][0], Identity.apply(a).grad_fn]
    assert all(isinstance(node, graph.Node) for node in nodes)
    assert not isinstance(a, graph.Node)


def test_hooks_are_on_a_node_after_its_tensor_is_gone() -> None:
    calls: list[int] = []
    a = leaf([1.0, 1.0])
    b = a.clone()
    b.grad_fn.register_hook(lambda given, taken: calls.append(1))
    c = b.sum()
    del b
    gc.collect()
    c.backward()
    assert calls == [1]


def test_metadata_of_a_node() -> None:
    node = leaf([1.0]).exp().grad_fn
    node.metadata["k"] = 3
    assert node.metadata["k"] == 3


def test_output_nr() -> None:
    a = leaf(V)
    assert a.output_nr == 0
    first, second = fnp.stack([a, a]).unbind(0)
    assert (first.output_nr, second.output_nr) == (0, 1)
    assert first.grad_fn is second.grad_fn


def test_node_ordering_when_none_returned() -> None:
    class Second(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * 0 + y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return None, ct

    a, b = leaf([1.0]), leaf([2.0])
    Second.apply(a.exp(), b.exp()).sum().backward()
    same(b.grad, np.exp([2.0]))


def test_sequence_numbers_grow_with_time() -> None:
    a = leaf([1.0])
    nodes = [a.exp().grad_fn, a.sin().grad_fn, (a * 2).grad_fn]
    numbers = [node._sequence_nr() for node in nodes]
    assert numbers == sorted(set(numbers))


def test_deep_chain_of_nodes() -> None:
    a = leaf([1.0])
    y = a
    for _ in range(300):
        y = y * 1.001
    node, count = y.grad_fn, 0
    while node.next_functions:
        node, count = node.next_functions[0][0], count + 1
    assert count == 300
    y.sum().backward()
    same(a.grad, [1.001**300])


def test_dependent_backward_frees_nodes() -> None:
    a = leaf(V)
    b = a * 2
    y = b.exp().sum()
    y.grad_fn.register_hook(lambda given, taken: None)
    kept = weakref.ref(b)
    del b
    y.backward()
    gc.collect()
    assert kept() is None
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_hook_closure_cycle() -> None:
    def make() -> weakref.ref[Any]:
        a = leaf([1.0])
        b = a * 2
        b.grad_fn.register_hook(lambda given, taken, b=b: None)
        return weakref.ref(a)

    kept = make()
    gc.collect()
    assert kept() is None


def test_node_of_a_saved_value_can_be_used() -> None:
    a = leaf(V)
    z = (a.exp() * a.exp()).sum()
    saved = z.grad_fn.next_functions[0][0]._saved_self
    assert saved.grad_fn.next_functions[0][0].variable is a
    same(grad(saved.sum(), a)[0], np.exp(V))


def test_increment_version() -> None:
    a = tensor([1.0])
    before = a._version
    graph.increment_version(a)
    graph.increment_version([a])
    graph.increment_version(x for x in [a])
    assert a._version == before + 3
    with pytest.raises(TypeError):
        graph.increment_version(3)  # type: ignore[arg-type]


def test_increment_version_of_a_saved_value() -> None:
    """PyTorch raises: modified by an inplace operation."""
    a = leaf(V)
    b = a * 1
    c = (b * b).sum()
    graph.increment_version(b)
    c.backward()
    same(a.grad, 2 * V)


# ------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize(
    "f",
    [lambda t: t.sum(), lambda t: (t * t).sum(), lambda t: t[0] * 3, lambda t: t.exp().sum()],
)
def test_grad_to_node(f: Callable[[Tensor], Tensor]) -> None:
    t = leaf(V).clone()
    y = f(t)
    edge = graph.get_gradient_edge(t)
    same(grad(y, edge, retain_graph=True)[0], grad(y, t)[0])


def test_grad_to_node_set() -> None:
    x = leaf([1.0])
    edge = graph.get_gradient_edge(x)
    out = x.clone()
    x.data = constant([2.0])
    same(grad(out.sum(), edge, retain_graph=True)[0], [1.0])
    same(grad(out.sum(), x)[0], [1.0])


def test_grad_to_node_inplace() -> None:
    x = leaf(V).clone()
    before = graph.get_gradient_edge(x)
    x *= 2
    after = graph.get_gradient_edge(x)
    old, new = grad(x.sum(), (before, after))
    same(old, [2.0, 2.0])
    same(new, [1.0, 1.0])


def test_grad_to_node_multi() -> None:
    values = np.arange(1.0, 9.0).reshape(4, 2)
    leaves = [leaf(row) for row in values]
    edges = [graph.get_gradient_edge(x) for x in leaves]
    out = (leaves[0] * leaves[1] * leaves[2] * leaves[3]).sum()
    expected = values.prod(0) / values
    for found, row in zip(grad(out, edges, retain_graph=True), expected, strict=True):
        same(found, row)
    for found, row in zip(grad(out, leaves), expected, strict=True):
        same(found, row)


def test_grad_to_node_materialize() -> None:
    """PyTorch raises: materialize_grads cannot be used with an edge."""
    x = leaf(V)
    y = x * 2
    edge = graph.get_gradient_edge(y)
    same(grad((x * 3).sum(), edge, materialize_grads=True)[0], [0.0, 0.0])


def test_grad_to_node_unused() -> None:
    x = leaf(V)
    edge, z = graph.get_gradient_edge(x * 2), (x * 3).sum()
    with pytest.raises(RuntimeError, match="have been used"):
        grad(z, edge, retain_graph=True)
    assert grad(z, edge, allow_unused=True) == (None,)


def test_backward_to_node() -> None:
    x, other = leaf(V), leaf(V)
    (x * other).sum().backward(inputs=graph.get_gradient_edge(x))
    same(x.grad, V)
    assert other.grad is None


def test_get_gradient_edge_output() -> None:
    x = leaf(V)
    y = x * 3
    edge, middle = graph.get_gradient_edge(y.sum()), graph.get_gradient_edge(y)
    same(grad(edge, middle, retain_graph=True)[0], [1.0, 1.0])
    found = grad([edge], [x, middle])
    same(found[0], [3.0, 3.0])
    same(found[1], [1.0, 1.0])


def test_gradient_edge_output_with_gradients() -> None:
    x = leaf(V)
    edge = graph.get_gradient_edge(x * 3)
    same(grad(edge, x, grad_outputs=constant([1.0, 10.0]), retain_graph=True)[0], [3.0, 30.0])
    backward((edge,), (constant([1.0, 10.0]),))
    same(x.grad, [3.0, 30.0])


def test_gradient_edge_from_python_function() -> None:
    t = leaf([1.0])
    a = Identity.apply(t)
    edge = graph.get_gradient_edge(a)
    same(grad(a.sum(), edge, retain_graph=True)[0], [1.0])
    same(grad(edge, t)[0], [1.0])


def test_gradient_edge_graph_ownership() -> None:
    x = leaf(V)
    y = x * 2
    edge, z = graph.get_gradient_edge(y), (y * y).sum()
    del y
    gc.collect()
    same(grad(z, edge)[0], [4.0, 8.0])


def test_gradient_edge_of_a_constant() -> None:
    with pytest.raises(RuntimeError):
        graph.get_gradient_edge(tensor([1.0]))


def test_gradient_edge_equality() -> None:
    b = leaf([1.0]) * 2
    edge = graph.get_gradient_edge(b)
    assert edge == graph.get_gradient_edge(b) == graph.GradientEdge(b.grad_fn, 0)
    assert edge.node is b.grad_fn
    assert edge.output_nr == 0


def test_gradient_edge_that_is_not_there() -> None:
    b = leaf([0.5]).sin()
    for edge in (graph.GradientEdge(b.grad_fn, 3), graph.GradientEdge(None, 0)):  # type: ignore[arg-type]
        with pytest.raises(ArgumentError):
            grad(b.sum(), edge)


def test_gradient_edge_in_the_middle_of_second_order() -> None:
    a = leaf(V)
    z = (a.sin() ** 3).sum()
    edge = graph.GradientEdge(*z.grad_fn.next_functions[0][0].next_functions[0])
    s = np.sin(V)
    (first,) = grad(z, edge, create_graph=True)
    same(first, 3 * s**2)
    same(grad(first.sum(), edge, retain_graph=True)[0], 6 * s)
    same(grad(first.sum(), a)[0], 6 * s * np.cos(V))


def test_gradient_edge_as_a_root_in_the_middle() -> None:
    a = leaf(V)
    z = ((a * 2).exp() * 3).sum()
    edge = graph.GradientEdge(*z.grad_fn.next_functions[0][0].next_functions[0])
    ones = constant([1.0, 1.0])
    same(grad(edge, a, grad_outputs=ones, retain_graph=True)[0], 2 * np.exp(2 * V))
    (first,) = grad([edge, z], a, grad_outputs=[ones, None], create_graph=True)
    same(first, 8 * np.exp(2 * V))
    same(grad(first.sum(), a)[0], 16 * np.exp(2 * V))


def test_gradient_edge_of_a_written_leaf() -> None:
    a = leaf(V)
    edge, first = graph.get_gradient_edge(a), (a * a).sum()
    with ftrans.no_grad():
        a.mul_(3)
    same(grad(first + (a * a).sum(), edge)[0], 8 * V)


def test_gradient_edge_batched() -> None:
    a = leaf(V)
    edge = graph.get_gradient_edge(a**2)
    same(grad(edge, a, constant(np.eye(2)), is_grads_batched=True)[0], np.diag(2 * V))


def test_gradient_edges_twice_and_of_one_target() -> None:
    b = leaf(V) * 2
    edge, z = graph.get_gradient_edge(b), (b * b).sum()
    for found in grad(z, [edge, b, edge]):
        same(found, [4.0, 8.0])


def test_saved_tensors_of_a_function() -> None:
    a = leaf(V)
    y = Exponential.apply(a)
    (saved,) = y.grad_fn.saved_tensors
    same(saved, np.exp(V))
    y.sum().backward()
    with pytest.raises(GraphError, match="freed"):
        y.grad_fn.saved_tensors  # noqa: B018


def test_inference_mode_in_a_node_hook() -> None:
    a = leaf(V)
    y = (a * a).sum()

    def double(given: Any, taken: Any) -> Any:
        with inference_mode():
            return (given[0] * 2,)

    y.grad_fn.register_hook(double)
    y.backward()
    same(a.grad, 4 * V)
