"""The graph: nodes, edges, their hooks, and what operations save; numbers are PyTorch's."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor, func, tensor
from ftrans.autograd import Function, backward, grad, graph, inference_mode
from ftrans.errors import ArgumentError, GraphError
from tests.helpers import assert_close


def leaf(values: Any) -> Tensor:
    return tensor(values, dtype="float64", requires_grad=True)


# ------------------------------------------------------------------------------------------- nodes


def test_nodes_have_the_names_of_operations() -> None:
    x, m = leaf([1.0, 2.0]), leaf([[1.0, 2.0], [3.0, 4.0]])
    found = {
        (x + 1): "AddBackward0",
        (x - 1): "SubBackward0",
        (1 - x): "RsubBackward1",
        (x * x): "MulBackward0",
        (x / 3): "DivBackward0",
        (x**2): "PowBackward0",
        (x**x): "PowBackward1",
        (2**x): "PowBackward2",
        (-x): "NegBackward0",
        x.exp(): "ExpBackward0",
        x.clone(): "CloneBackward0",
        x.sum(): "SumBackward0",
        m.sum(0): "SumBackward1",
        m.mean(-1, keepdim=True): "MeanBackward1",
        m.max(): "MaxBackward1",
        m.norm(): "LinalgVectorNormBackward0",
        x.log1p(): "Log1PBackward0",
        m.T: "PermuteBackward0",
        m.mT: "TransposeBackward0",
        m.view_as(m): "ViewBackward0",
        m.narrow(0, 0, 1): "SliceBackward0",
        m.split(1)[1]: "SplitBackward0",
        m.unbind()[0]: "UnbindBackward0",
        m.repeat(2, 1): "RepeatBackward0",
        m.mean(): "MeanBackward0",
        m.log_softmax(1): "LogSoftmaxBackward0",
        m @ m: "MmBackward0",
        m @ x: "MvBackward0",
        x @ x: "DotBackward0",
        m.view(4): "ViewBackward0",
        m.t(): "TBackward0",
        x.unsqueeze(0): "UnsqueezeBackward0",
    }
    assert {y.grad_fn.name() for y in found} == set(found.values())
    for y, name in found.items():
        assert y.grad_fn.name() == name
        assert type(y.grad_fn).__name__ == name
        assert isinstance(y.grad_fn, graph.Node)
        assert f"grad_fn=<{name}>" in repr(y)


def test_next_functions_lead_to_the_leaves() -> None:
    a = leaf([0.0, 0.0])
    ((add, _),) = (a.exp() + a).sum().grad_fn.next_functions
    (exp, _), (sink, _) = add.next_functions
    assert (add.name(), exp.name()) == ("AddBackward0", "ExpBackward0")
    assert sink.name() == "torch::autograd::AccumulateGrad"
    assert sink.variable is a
    assert sink.next_functions == ()
    assert exp.next_functions == ((sink, 0),)
    (left, _), (right, _) = (a * 3.0).grad_fn.next_functions
    assert left == sink
    assert right is None


def test_nodes_lead_on_over_values_that_were_asked_for() -> None:
    a = leaf(1.0)
    b = a.exp()
    b.item()
    ((node, _), (none, _)) = (b * 2.0).grad_fn.next_functions
    assert node == b.grad_fn
    assert none is None


def test_a_node_is_itself() -> None:
    y = leaf([1.0]).sin().sum()
    assert y.grad_fn is y.grad_fn
    assert y.grad_fn == y.grad_fn
    assert len({y.grad_fn, y.grad_fn}) == 1
    y.grad_fn.metadata["seen"] = 1
    gc.collect()
    assert y.grad_fn.metadata == {"seen": 1}


def test_leaves_and_constants_have_no_node() -> None:
    x = leaf([1.0])
    assert x.grad_fn is None
    assert tensor([1.0]).grad_fn is None
    assert (x * 2).detach().grad_fn is None
    with ftrans.no_grad():
        assert (x * 2).grad_fn is None


def test_the_graph_can_be_looked_at_after_backward() -> None:
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward()
    ((node, _),) = y.grad_fn.next_functions
    assert node.name() == "MulBackward0"
    assert node.next_functions[0][0].variable is x
    with pytest.raises(GraphError, match="already been freed"):
        _ = node._saved_self


def test_calls_from_one_place_are_nodes_of_their_own() -> None:
    x = leaf([0.5])
    y = x
    for _ in range(3):
        y = y.log_softmax(0)
    count, node = 0, y.grad_fn
    while node.next_functions:
        assert node.name() == "LogSoftmaxBackward0"
        node, count = node.next_functions[0][0], count + 1
    assert count == 3


def test_a_node_can_be_called() -> None:
    a = leaf([0.0, 1.0])
    b = a.exp()
    found = b.grad_fn(tensor([1.0, 1.0], dtype="float64"))
    assert_close(found.detach(), np.exp([0.0, 1.0]))
    (second,) = grad(found.sum(), a)
    assert_close(second, np.exp([0.0, 1.0]))
    with pytest.raises(TypeError, match="a gradient for each result"):
        b.grad_fn()


def test_the_node_of_a_function_has_its_name_and_what_it_saved() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x * 2)
            return x**3

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (twice,) = ctx.saved_tensors
            return ct * 0.75 * twice**2

    x = leaf([1.0, 2.0])
    y = Cube.apply(x)
    assert y.grad_fn.name() == "CubeBackward"
    assert [found.tolist() for found in y.grad_fn.saved_tensors] == [[2.0, 4.0]]
    y.sum().backward()
    assert_close(x.grad, [3.0, 12.0])


def test_numbers_of_nodes_grow() -> None:
    a = leaf([1.0])
    b = a.exp()
    b.item()
    c = b.exp()
    assert c.grad_fn._sequence_nr() > b.grad_fn._sequence_nr()


def test_a_function_that_calls_python_is_not_called_again_for_a_hook() -> None:
    calls: list[int] = []

    class Opaque(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            calls.append(1)
            return np.sin(np.asarray(x))

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct

    x = leaf([1.0, 2.0])
    y = Opaque.apply(x * 1.0) * 2.0
    y.grad_fn.register_hook(lambda gs, _: (gs[0] * 2, *gs[1:]))
    y.sum().backward()
    assert_close(x.grad, [4.0, 4.0])
    assert len(calls) == 1


# ------------------------------------------------------------------------------------------- hooks


def test_a_hook_of_a_node_replaces_gradients() -> None:
    a = leaf([1.0, 1.0])
    b = a.clone()
    handle = b.grad_fn.register_hook(lambda _, given: (given[0] * 2,))
    b.sum().backward(retain_graph=True)
    assert_close(a.grad, [2.0, 2.0])
    handle.remove()
    a.grad = None
    b.sum().backward()
    assert_close(a.grad, [1.0, 1.0])


def test_hooks_come_in_order() -> None:
    """The tensor's, then retain_grad, then the node's, then the node, then those after it."""
    a = leaf(1.0)
    b = 3 * a
    b.retain_grad()
    log: list[Any] = []
    b.register_hook(lambda g: g * 2)

    def before(gradients: Any) -> Any:
        log.append(b.grad.item())
        return (gradients[0] * 10,)

    b.grad_fn.register_prehook(before)
    b.grad_fn.register_hook(lambda found, given: log.append((found, given)))
    b.backward()
    assert log[0] == 2.0
    (found, none), (given,) = log[1]
    assert none is None
    assert (found.item(), given.item()) == (60.0, 20.0)
    assert (b.grad.item(), a.grad.item()) == (2.0, 60.0)


def test_hooks_of_the_node_of_a_leaf() -> None:
    x = leaf([1.0])
    node = x.clone().grad_fn.next_functions[0][0]
    log: list[Any] = []
    x.register_hook(lambda g: log.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))

    def before(gs: Any) -> Any:
        log.append("before")
        return (gs[0] * 5,)

    node.register_prehook(before)
    node.register_hook(lambda found, given: log.append((len(found), given[0].item())))
    (x * 2).sum().backward()
    assert log == ["tensor", "before", "accumulated", (0, 10.0)]
    assert x.grad.item() == 10.0


def test_hooks_of_nodes_are_called_where_the_node_runs() -> None:
    a = leaf(1.0)
    b = 3 * a
    log: list[str] = []
    b.register_hook(lambda g: log.append("tensor"))
    b.grad_fn.register_hook(lambda *_: log.append("node"))
    grad(b * 2, b)
    assert log == ["tensor"]
    grad(b * 2, (a, b))
    assert log == ["tensor", "tensor", "node"]


@pytest.mark.parametrize("returned", [(), 1])
def test_a_hook_returns_as_many_gradients(returned: Any) -> None:
    x = leaf([1.0])
    y = x.sin()
    one = tensor([1.0], dtype="float64")
    y.grad_fn.register_hook(lambda *_: (one, one) if returned else ())
    with pytest.raises(GraphError, match="incorrect number of values"):
        y.sum().backward()


def test_hooks_with_create_graph_are_differentiated() -> None:
    a = leaf([2.0])
    b = a**3
    b.grad_fn.register_hook(lambda gs, _: tuple(g if g is None else g * g for g in gs))
    (first,) = grad(b.sum(), a, create_graph=True)
    assert_close(first.detach(), [144.0])  # (3 a^2)^2
    (second,) = grad(first.sum(), a)
    assert_close(second, [9 * 4 * 8.0])


# ------------------------------------------------------------------------------------------- edges


def test_a_gradient_at_an_edge() -> None:
    a = leaf([0.0, 0.0])
    m = 2 * a
    loss = (m**2 + m).sum()
    edge = graph.get_gradient_edge(m)
    assert edge._fields == ("node", "output_nr", "ownership_token")
    (found,) = grad(loss, edge)
    assert_close(found, [1.0, 1.0])


def test_an_edge_stays_where_it_was_when_its_tensor_is_written_to() -> None:
    a = leaf(1.0)
    x = a.clone()
    before = graph.get_gradient_edge(x)
    x *= 2
    y = x.clone()
    assert [g.item() for g in grad(y, (before, x))] == [2.0, 1.0]


def test_to_go_back_from_an_edge() -> None:
    a = leaf([1.0, 1.0])
    edge = graph.get_gradient_edge((3 * a).sum())
    (found,) = grad(edge, a, retain_graph=True)
    assert_close(found, [3.0, 3.0])
    backward(edge)
    assert_close(a.grad, [3.0, 3.0])


def test_an_edge_in_the_middle_of_what_was_run_at_once() -> None:
    a = leaf([1.0, 2.0])
    y = (a.sin() * 2.0).sum()
    ((node, _),) = y.grad_fn.next_functions
    ((sin, index), _) = node.next_functions
    (found,) = grad(y, graph.GradientEdge(sin, index), retain_graph=True)
    assert_close(found, [2.0, 2.0])
    (found,) = grad(y, a)
    assert_close(found, 2 * np.cos([1.0, 2.0]))


def test_an_edge_needs_a_tensor_that_requires_grad() -> None:
    with pytest.raises(GraphError, match="does not require gradients"):
        graph.get_gradient_edge(tensor([1.0]))


# ---------------------------------------------------------------------------------- several tensors


def test_a_hook_of_several_tensors_is_called_once() -> None:
    a, b = leaf(2.0), leaf(3.0)
    c, d = a * b, a * b
    calls: list[Any] = []
    handle = graph.register_multi_grad_hook((a, b, c, d), calls.append)
    c.backward(retain_graph=True)
    c.backward(inputs=(a,), retain_graph=True)
    there = [[g is not None for g in gradients] for gradients in calls]
    assert there == [[True, True, True, False], [True, False, True, False]]
    assert [g.item() for g in calls[0][:3]] == [3.0, 2.0, 1.0]
    handle.remove()
    c.backward()
    assert len(calls) == 2


@pytest.mark.parametrize("pending", [True, False])
def test_a_hook_of_several_tensors_that_were_read_one_after_the_other(pending: bool) -> None:
    x, aside = leaf([1.0, 2.0]), leaf(1.0)
    y = x * 2
    y.tolist()
    z = y * 3
    z.tolist()
    loss = (z * 1).sum()
    if not pending:
        loss.tolist()
    calls: list[Any] = []
    graph.register_multi_grad_hook(
        (x, aside, z, y),
        lambda found: calls.append([None if g is None else g.tolist() for g in found]),
    )
    loss.backward()
    assert calls == [[[6.0, 6.0], None, [1.0, 1.0], [3.0, 3.0]]]
    (aside * 2).backward()
    assert calls[1:] == [[None, 2.0, None, None]]


def test_a_hook_of_any_of_several_tensors() -> None:
    a, b = leaf(2.0), leaf(3.0)
    c = a * b
    calls: list[Any] = []
    graph.register_multi_grad_hook((a, b, c), calls.append, mode="any")
    c.backward(retain_graph=True)
    grad(c, (a, b))
    assert [g.item() for g in calls] == [1.0, 1.0]
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook((a,), calls.append, mode="first")


def test_a_hook_of_several_tensors_in_threads() -> None:
    a = leaf([1.0, 2.0])
    calls: list[Any] = []
    graph.register_multi_grad_hook((a,), calls.append)
    threads = [threading.Thread(target=lambda: (a * a).sum().backward()) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 5


# ------------------------------------------------------------------------------------ saved values


def test_what_operations_save() -> None:
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    assert x.pow(2).grad_fn._saved_self is x
    both = (x * y).grad_fn
    assert both._saved_self is x
    assert both._saved_other is y
    z = x.exp()
    assert z.grad_fn._saved_result.tolist() == z.tolist()
    assert isinstance(z.grad_fn._raw_saved_result, graph.SavedTensor)
    with pytest.raises(AttributeError, match="It has saved: _saved_result"):
        _ = z.grad_fn._saved_self
    with pytest.raises(RuntimeError, match="from Python is forbidden"):
        graph.SavedTensor()


def test_hooks_of_one_saved_value() -> None:
    a = leaf([1.0, 2.0])
    y = a.pow(2)
    saved = y.grad_fn._raw_saved_self
    saved.register_hooks(lambda t: t * 4, lambda t: t)
    assert y.grad_fn._saved_self.tolist() == [4.0, 8.0]
    with pytest.raises(GraphError, match="only one pair of hooks is allowed at a time"):
        saved.register_hooks(lambda t: t, lambda t: t)
    y.sum().backward()
    assert_close(a.grad, [8.0, 16.0])
    with pytest.raises(GraphError, match="after it has been freed"):
        saved.register_hooks(lambda t: t, lambda t: t)


def test_hooks_pack_once_and_unpack_as_often_as_needed() -> None:
    a = leaf([1.0, 2.0])
    packed: list[Any] = []
    unpacked: list[Any] = []

    def pack(x: Tensor) -> Tensor:
        packed.append(x)
        return x

    def unpack(x: Tensor) -> Tensor:
        unpacked.append(x)
        return x

    with graph.saved_tensors_hooks(pack, unpack):
        y = a * a
    assert len(packed) == 2
    assert not unpacked
    for _ in range(3):
        assert y.grad_fn._saved_self is not a
    assert len(unpacked) == 3
    assert len(packed) == 2
    y.sum().backward()
    assert_close(a.grad, [2.0, 4.0])


def test_numbers_are_not_packed() -> None:
    def never(x: Any) -> Any:
        raise AssertionError

    a = leaf([1.0])
    with graph.saved_tensors_hooks(never, never):
        y = a * 3 + 2
    y.sum().backward()
    assert_close(a.grad, [3.0])


def test_hooks_compose() -> None:
    a = leaf([1.0, 2.0])
    by = lambda n: graph.saved_tensors_hooks(lambda x: n * x, lambda x: n * x)  # noqa: E731
    with by(3.0):
        with by(5.0):
            y = a * a
        z = a * a
    y.sum().backward()
    assert_close(a.grad, 2 * 225 * np.array([1.0, 2.0]))
    a.grad = None
    z.sum().backward()
    assert_close(a.grad, 2 * 9 * np.array([1.0, 2.0]))


def test_the_inner_hook_packs_first() -> None:
    log: list[str] = []
    outer = graph.saved_tensors_hooks(
        lambda x: (log.append("outer"), x)[1], lambda x: (log.append("outer back"), x)[1]
    )
    inner = graph.saved_tensors_hooks(
        lambda x: (log.append("inner"), x)[1], lambda x: (log.append("inner back"), x)[1]
    )
    a = leaf([1.0])
    with outer, inner:
        y = a.sin()
    y.sum().backward()
    assert log == ["inner", "outer", "outer back", "inner back"]


def test_hooks_and_second_derivatives() -> None:
    a = leaf(1.0)
    with graph.saved_tensors_hooks(lambda x: 2 * x, lambda x: x):
        y = a**3
    (g,) = grad(y, a, create_graph=True)
    (second,) = grad(g, a)
    assert second.item() == 6 * 2
    with graph.saved_tensors_hooks(lambda x: 2 * x, lambda x: x):
        y = a**3
        (g,) = grad(y, a, create_graph=True)
    (second,) = grad(g, a)
    assert second.item() == 6 * 8


def test_hooks_belong_to_a_thread() -> None:
    a, packed = leaf([1.0]), []

    def elsewhere() -> None:
        (a * a).sum().backward()

    with graph.saved_tensors_hooks(packed.append, lambda x: x):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert not packed
    assert_close(a.grad, [2.0])


def test_what_was_recorded_before_has_no_hooks() -> None:
    a, packed = leaf([1.0, 2.0]), []
    before = a * a
    with graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        loss = before.sum()
    loss.backward()
    assert not packed
    assert_close(a.grad, [2.0, 4.0])


def test_what_is_packed_is_freed_with_the_graph() -> None:
    class Held:
        def __init__(self, x: Tensor):
            self.array = x.numpy()

    alive: list[Any] = []

    def pack(x: Tensor) -> Held:
        held = Held(x)
        alive.append(weakref.ref(held))
        return held

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(pack, lambda held: tensor(held.array)):
        y = (a * a).sum()
    assert all(found() is not None for found in alive)
    y.backward()
    assert all(found() is None for found in alive)
    assert_close(a.grad, [2.0, 4.0])


def test_a_pack_hook_must_not_write() -> None:
    a = leaf([1.0])
    with (
        graph.saved_tensors_hooks(lambda x: x.add_(1), lambda x: x),
        pytest.raises(GraphError, match="modifying its input in place"),
    ):
        a * a


@pytest.mark.parametrize(
    ("unpack", "text"),
    [
        (lambda x: 1, "expected to be a Tensor but got result of type int"),
        (lambda x: x.reshape(2, 1), "a tensor of another type"),
        (lambda x: x.float(), "a tensor of another type"),
    ],
)
def test_what_is_unpacked_is_checked(unpack: Any, text: str) -> None:
    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(lambda x: x, unpack):
        y = (a * a).sum()
    with pytest.raises(RuntimeError, match=text):
        y.backward()


def test_an_exception_in_a_hook_leaves_nothing_behind() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("full")

    a = leaf([1.0, 2.0])
    with pytest.raises(KeyError, match="full"), graph.saved_tensors_hooks(fails, fails):
        a * a
    y = (a * a).sum()
    y.backward()
    assert_close(a.grad, [2.0, 4.0])


def test_hooks_can_be_disabled() -> None:
    with graph.disable_saved_tensors_hooks("no hooks please"):
        with pytest.raises(RuntimeError, match="no hooks please"):
            graph.save_on_cpu().__enter__()
        with (
            graph.disable_saved_tensors_hooks("nor here"),
            pytest.raises(RuntimeError, match="nor here"),
        ):
            graph.save_on_cpu().__enter__()
    with graph.save_on_cpu():
        pass


def test_save_on_cpu_gives_the_same_gradients() -> None:
    for values in (np.array([1.0, 2.0]), ftrans.numpy.asarray(np.array([1.0, 2.0]), device="cpu")):
        a = tensor(values, requires_grad=True)
        with graph.save_on_cpu(pin_memory=True):
            y = (a.exp() * a).sum()
        y.backward()
        x = np.array([1.0, 2.0])
        assert_close(a.grad, np.exp(x) * (1 + x))


def test_hooks_of_a_function() -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * ct

    packed: list[Any] = []
    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(lambda x: packed.append(x) or x * 10, lambda x: x):
        y = Square.apply(a)
    y.sum().backward()
    assert len(packed) == 1
    assert_close(a.grad, [20.0, 40.0])


def test_hooks_around_a_transform_of_tensors() -> None:
    a = leaf([0.5, 1.5])
    with graph.saved_tensors_hooks(lambda x: x.numpy().copy(), tensor):
        y = func.grad(lambda x: (x**3).sum())(a)
    y.sum().backward()
    assert_close(a.grad, 6 * np.array([0.5, 1.5]))


# ------------------------------------------------------------------------------------------ writes


def test_saved_values_may_be_written_to() -> None:
    a = leaf([1.0, 2.0])
    with graph.allow_mutation_on_saved_tensors() as kept:
        b = a.clone()
        out = (b**2).sum()
        b.sin_()
        out.backward()
        kept.clear()
    assert_close(a.grad, [2.0, 4.0])


def test_versions_can_be_counted_by_hand() -> None:
    a, b = tensor([1.0, 2.0]), tensor([1.0])
    view = a[:1]
    graph.increment_version(view)
    graph.increment_version([a, b])
    assert (a._version, view._version, b._version) == (2, 2, 1)


# ------------------------------------------------------------- nodes among other things that look


def _at_the_middle() -> tuple[Tensor, Tensor, Tensor]:
    a = leaf([1.0, 2.0])
    b = a * 2
    return a, b, (b * b).sum()


def _look(z: Tensor) -> None:
    z.grad_fn.register_hook(lambda *_: None)


def test_hooks_of_tensors_stay_where_nodes_are_looked_at() -> None:
    a, b, z = _at_the_middle()
    b.register_hook(lambda g: g * 10)
    _look(z)
    z.backward()
    assert_close(a.grad, [80.0, 160.0])


def test_gradients_are_retained_where_nodes_are_looked_at() -> None:
    _, b, z = _at_the_middle()
    b.retain_grad()
    _look(z)
    z.backward()
    assert_close(b.grad, [4.0, 8.0])


def test_gradients_in_the_middle_where_nodes_are_looked_at() -> None:
    _, b, z = _at_the_middle()
    edge = graph.get_gradient_edge(b)
    _look(z)
    first, second = grad(z, [b, edge], retain_graph=True)
    assert_close(first, [4.0, 8.0])
    assert_close(second, [4.0, 8.0])
    z.backward(inputs=[b])
    assert_close(b.grad, [4.0, 8.0])


def test_second_derivatives_in_the_middle_where_nodes_are_looked_at() -> None:
    a = leaf([1.0, 2.0])
    b = a * 2
    z = (b**3).sum()
    _look(z)
    (g,) = grad(z, a, create_graph=True)
    (found,) = grad(g.sum(), b)
    assert_close(found, [24.0, 48.0])


def test_hooks_of_several_tensors_where_nodes_are_looked_at() -> None:
    a, b, z = _at_the_middle()
    calls: list[Any] = []
    graph.register_multi_grad_hook([a, b], calls.append)
    _look(z)
    z.backward()
    assert [g is not None for g in calls[0]] == [True, True]


def test_a_hook_may_look_at_nodes() -> None:
    a, b, z = _at_the_middle()
    seen: list[Any] = []

    def hook(g: Tensor) -> Tensor:
        seen.append(z.grad_fn.next_functions[0][0]._saved_self.tolist())
        return g * 10

    b.register_hook(hook)
    z.backward(retain_graph=True)
    z.backward(retain_graph=True)
    assert seen == [[2.0, 4.0]] * 2
    assert_close(a.grad, [160.0, 320.0])


def test_nodes_are_equal_before_and_after_they_are_looked_at() -> None:
    _, b, z = _at_the_middle()
    before, middle = z.grad_fn, b.grad_fn
    seen = {before, middle}
    _look(z)
    assert z.grad_fn in seen
    assert b.grad_fn is middle
    assert z.grad_fn.next_functions[0][0].next_functions[0][0] == middle


def test_operands_stand_in_the_order_of_the_operation() -> None:
    w, b = leaf([[1.0, 2.0]]), leaf([1.0, 2.0])
    y = w - b
    y.grad_fn.register_hook(lambda found, _: (found[0] * 100, found[1]))
    y.sum().backward()
    assert_close(w.grad, [[100.0, 100.0]])
    assert_close(b.grad, [-1.0, -1.0])
    x, m = leaf([[1.0, 2.0]]), leaf([[1.0], [2.0]])
    (mm, _), (bias, _) = (x @ m + leaf([1.0])).grad_fn.next_functions
    assert mm.name() == "MmBackward0"
    assert bias.name() == "torch::autograd::AccumulateGrad"


def test_nodes_behind_saved_values_are_the_same_nodes() -> None:
    a = leaf([1.0, 2.0])
    y = a.exp()
    z = (y * y).sum()
    saved = z.grad_fn.next_functions[0][0]._saved_self
    assert saved.grad_fn == y.grad_fn
    assert y.grad_fn._saved_result.grad_fn == y.grad_fn
    log: list[Any] = []
    saved.grad_fn.register_hook(lambda *_: log.append(1))
    assert_close(saved.grad_fn(tensor([1.0, 1.0], dtype="float64")).detach(), np.exp([1.0, 2.0]))
    z.backward()
    assert log == [1]
    assert_close(a.grad, 2 * np.exp(2 * np.array([1.0, 2.0])))


def test_retained_gradients_follow_views_that_are_written_to() -> None:
    """PyTorch's own test has 1 and 1."""
    b = leaf([1.0, 2.0]) * 1
    view = b[:]
    view.retain_grad()
    view.mul_(2)
    view.sum().backward()
    assert_close(view.grad, [1.0, 1.0])
    b = leaf([1.0, 2.0]) * 1
    view = b[:]
    view.retain_grad()
    b.mul_(2)
    view.sum().backward()
    assert_close(view.grad, [1.0, 1.0])


def test_what_another_thread_has_recorded_is_as_it_recorded_it() -> None:
    a, box = leaf([1.0, 2.0]), []
    thread = threading.Thread(target=lambda: box.append(a * a))
    thread.start()
    thread.join()
    with graph.saved_tensors_hooks(lambda x: x * 10, lambda x: x):
        assert box[0].tolist() == [1.0, 4.0]
    box[0].sum().backward()
    assert_close(a.grad, [2.0, 4.0])


@pytest.mark.parametrize(
    "look", [lambda s: s.sum().item(), lambda s: float(s.sum()), lambda s: s.detach().numpy().sum()]
)
def test_values_can_be_asked_for_inside_of_transforms(look: Any) -> None:
    a, s = leaf([1.0, 2.0]), leaf([2.0, 3.0]) * 1
    found = func.grad(lambda x: (x * look(s)).sum())(a)
    assert_close(found.detach(), [5.0, 5.0])
    assert_close(func.vmap(lambda x: x * look(s * 1))(a).detach(), [5.0, 10.0])


@pytest.mark.parametrize("block", [graph.save_on_cpu, inference_mode])
def test_blocks_inside_of_transforms(block: Any) -> None:
    a, s = leaf([1.0, 2.0]), leaf([3.0, 4.0]) * 1

    def f(x: Any) -> Any:
        with block():
            pass
        return (x * x * s).sum()

    assert_close(func.grad(f)(a).detach(), [6.0, 16.0])
    assert_close(func.grad(f)(np.array([1.0, 2.0])).detach(), [6.0, 16.0])


def test_an_edge_of_a_result_whose_tensor_is_gone() -> None:
    a = leaf([1.0, 2.0])
    b = a * 2
    z = (b * b).sum()
    z.item()
    edge = graph.get_gradient_edge(b)
    del b
    (first,) = grad(z, edge, create_graph=True)
    assert_close(first.detach(), [4.0, 8.0])


def test_an_edge_of_a_node_with_a_hook() -> None:
    a = leaf([0.0, 1.0])
    z = (a.exp() * 3).sum()
    node, index = z.grad_fn.next_functions[0][0].next_functions[0]
    log: list[Any] = []
    node.register_hook(lambda *_: log.append(1))
    at_edge, at_leaf = grad(z, [graph.GradientEdge(node, index), a])
    assert_close(at_edge, [3.0, 3.0])
    assert_close(at_leaf, 3 * np.exp([0.0, 1.0]))
    assert log == [1]


def test_edges_that_there_are_not() -> None:
    node = leaf([1.0]).exp().grad_fn
    for edge in (graph.GradientEdge(node, 3), graph.GradientEdge(None, 0)):  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="there is no result"):
            backward(edge, tensor([1.0], dtype="float64"))


def test_gradients_in_a_dict_with_edges() -> None:
    a = leaf([1.0, 2.0])
    b = a * 2
    z = (b * b).sum()
    found = grad(z, {"a": a, "b": graph.get_gradient_edge(b)})
    assert_close(found["a"], [8.0, 16.0])
    assert_close(found["b"], [4.0, 8.0])


def test_the_node_of_a_leaf_can_be_called() -> None:
    a = leaf([1.0, 2.0])
    node = (a * 2).grad_fn.next_functions[0][0]
    node(tensor([3.0, 4.0], dtype="float64"))
    node(tensor([3.0, 4.0], dtype="float64"))
    assert_close(a.grad, [6.0, 8.0])


@pytest.mark.parametrize(
    "step",
    [
        lambda a: a.exp().grad_fn._saved_result,
        lambda a: a.exp().grad_fn(tensor([1.0, 1.0], dtype="float64")),
        lambda a: (a.exp() * a).sum().grad_fn.register_hook(lambda *_: None),
        lambda a: _packed(a),
        lambda a: _packed(a).backward(),
    ],
)
def test_looking_at_nodes_makes_no_garbage(step: Any) -> None:
    a = leaf([1.0, 2.0])
    for _ in range(150):
        step(a)
        a.grad = None
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(200):
            step(a)
            a.grad = None
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()


def _packed(a: Tensor) -> Tensor:
    with graph.saved_tensors_hooks(lambda x: x.numpy().copy(), tensor):
        return (a.exp() * a).sum()


def test_views_have_names() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert x[0].grad_fn.name() == "SelectBackward0"
    assert x[:1].grad_fn.name() == "SliceBackward0"
    y = x * 1
    y[0].mul_(2)
    assert y.grad_fn.name() == "torch::autograd::CopySlices"


def test_hooks_that_are_there_cannot_be_disabled() -> None:
    with graph.save_on_cpu(), pytest.raises(RuntimeError, match="not here"):
        graph.disable_saved_tensors_hooks("not here").__enter__()


def test_what_an_author_marks_as_not_differentiable_does_not_require_grad() -> None:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            rounded = x * 2
            ctx.mark_non_differentiable(rounded)
            return rounded, x * 3

        @staticmethod
        def backward(ctx: Any, _: Any, ct: Any) -> Any:
            return ct * 3

    x = leaf([1.0, 2.0])
    for block in (graph.save_on_cpu, ftrans.enable_grad):
        x.grad = None
        with block():
            first, second = Two.apply(x)
        assert not first.requires_grad
        assert first.grad_fn is None
        assert second.requires_grad
        (first * second).sum().backward()
        assert_close(x.grad, [6.0, 12.0])


def test_names_of_composites() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert x.max(1).values.grad_fn.name() == "MaxBackward0"
    assert x.masked_fill(x > 2, 0.0).grad_fn.name() == "MaskedFillBackward0"
    assert x.clamp(0.0, 2.0).grad_fn.name() == "ClampBackward1"
    assert x.clamp(x - 1, x + 1).grad_fn.name() == "ClampBackward0"
    assert x.flatten().grad_fn.name() == "ViewBackward0"


def test_a_hook_of_several_edges() -> None:
    a = leaf([1.0, 2.0])
    b = a * 2
    calls: list[Any] = []
    graph.register_multi_grad_hook([graph.get_gradient_edge(b), a], calls.append)
    (b * b).sum().backward()
    assert [g.tolist() for g in calls[0]] == [[4.0, 8.0], [8.0, 16.0]]


def test_what_is_no_tensor_or_hook_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no tensor, but of int"):
        graph.get_gradient_edge(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a hook is a function"):
        leaf([1.0]).register_hook(3)
