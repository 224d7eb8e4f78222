"""Hooks of tensors: when they are called, with what, in which order, and what they may return."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor, tensor
from ftrans.autograd import Function, backward, enable_grad, grad, is_grad_enabled, no_grad
from ftrans.autograd.graph import saved_tensors_hooks
from ftrans.autograd.segment import Segment
from ftrans.autograd.tape import Tape
from ftrans.errors import GraphError
from tests.helpers import assert_close


def leaf(value: Any) -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, "float64"), requires_grad=True)


def plain(value: Any) -> Tensor:
    """Returns a tensor that does not require grad."""
    return tensor(np.array(value, "float64"))


def logging(log: list[Any], name: str = "") -> Callable[[Tensor], None]:
    """Returns a hook that writes down what it is called with."""

    def hook(g: Tensor) -> None:
        value = g.detach().tolist()
        log.append((name, value) if name else value)

    return hook


def doubling(g: Tensor) -> Tensor:
    """Is a hook that changes the gradient."""
    return g * 2


# ------------------------------------------------------------------------------ what they do


def test_a_hook_changes_the_gradient() -> None:
    v = leaf([0, 0, 0])
    handle = v.register_hook(doubling)
    v.backward(plain([1, 2, 3]))
    assert_close(v.grad, [2.0, 4.0, 6.0])
    handle.remove()
    v.grad = None
    v.backward(plain([1, 2, 3]))
    assert_close(v.grad, [1.0, 2.0, 3.0])


def test_a_hook_that_returns_none_changes_nothing() -> None:
    x, log = leaf([1, 2]), []
    x.register_hook(logging(log))
    (x * x).sum().backward()
    assert log == [[2.0, 4.0]]
    assert_close(x.grad, [2.0, 4.0])


def test_a_hook_of_a_leaf_sees_the_sum() -> None:
    x, log = leaf(1), []
    x.register_hook(logging(log))
    (x * 2 + x * 3 + x.sin() * 0).backward()
    assert log == [5.0]


def test_a_hook_sees_this_gradient_and_not_what_was_accumulated() -> None:
    x, log = leaf(1), []
    x.register_hook(logging(log))
    (x * 2).backward()
    (x * 3).backward()
    assert log == [2.0, 3.0]
    assert_close(x.grad, 5.0)


@pytest.mark.parametrize("look", ["never", "before", "after"])
def test_a_hook_of_a_result_sees_the_sum(look: str) -> None:
    x, log = leaf(2), []
    h = x * x
    if look == "before":
        h.item()
    h.register_hook(logging(log))
    y = h * 3 + h * h
    if look == "after":
        y.item()
    y.backward()
    assert log == [3.0 + 8.0]
    assert_close(x.grad, 44.0)


def test_a_hook_that_comes_after_the_use() -> None:
    x, log = leaf(2), []
    h = x * x
    y = h * 3 + h * h
    h.register_hook(logging(log))
    h.register_hook(doubling)
    y.backward()
    assert log == [11.0]
    assert_close(x.grad, 88.0)


def test_a_hook_that_comes_after_the_value_was_looked_at() -> None:
    x, log = leaf(2), []
    h = x * x
    y = h * 3 + h * h
    assert y.item() == 28.0
    h.register_hook(logging(log))
    h.register_hook(doubling)
    z = y + h
    z.backward()
    assert log == [12.0]
    assert_close(x.grad, 96.0)


def test_hooks_in_a_chain_change_what_comes_before() -> None:
    x, log = leaf(1), []
    a = x * 2
    b = a * 3
    c = b * 5
    for value, name in ((a, "a"), (b, "b"), (c, "c")):
        value.register_hook(doubling)
        value.register_hook(logging(log, name))
    c.backward()
    assert log == [("c", 2.0), ("b", 20.0), ("a", 120.0)]
    assert_close(x.grad, 240.0)


def test_hooks_in_a_chain_that_was_run_as_one() -> None:
    x, log = leaf(1), []
    a = x * 2
    b = a * 3
    c = b * 5
    c.item()
    for value, name in ((a, "a"), (c, "c"), (b, "b")):
        value.register_hook(doubling)
        value.register_hook(logging(log, name))
    c.backward()
    assert log == [("c", 2.0), ("b", 20.0), ("a", 120.0)]
    assert_close(x.grad, 240.0)


def test_hooks_in_a_diamond_see_complete_gradients() -> None:
    x, log = leaf(2), []
    a = x * x
    b, c = a * 3, a * 5
    d = b * c
    d.item()
    for value, name in ((a, "a"), (b, "b"), (c, "c")):
        value.register_hook(logging(log, name))
        value.register_hook(doubling)
    d.backward()
    # d = 15 a^2: through b comes 2 * 15 a, and as much through c; doubled once more at a
    assert sorted(log) == [("a", 240.0), ("b", 20.0), ("c", 12.0)]
    assert log[-1][0] == "a"
    assert_close(x.grad, 240.0 * 2 * 4)


@pytest.mark.parametrize("plan", ["llll", "lcll", "cllc", "llcl", "cccc", "lwwl"])
def test_hooks_that_look_and_hooks_that_change_take_turns(plan: str) -> None:
    """What is run on as if nobody changed a gradient is not taken where somebody does."""

    def step(x: Tensor, kinds: str, retain: bool) -> tuple[Any, list[Any]]:
        seen: list[Any] = []

        def hook(kind: str) -> Callable[[Tensor], Any]:
            def called(g: Tensor) -> Any:
                seen.append(g.tolist())
                if kind == "w":
                    g.mul_(3)  # which is another value, as it is in PyTorch
                return g * 2 if kind == "c" else None

            return called

        y = x * x
        y.register_hook(hook(kinds[0]))
        z = (y * x).sin()
        z.register_hook(hook(kinds[1]))
        z.retain_grad()
        w = z * y + z.exp()
        w.register_hook(hook(kinds[2]))
        x.grad = None
        w.sum().backward(retain_graph=retain)
        return x.grad.tolist(), [*seen, z.grad.tolist()]

    x = leaf([0.5, -0.3])
    for kind in plan:
        for kinds in (f"l{kind}l", f"{kind}ll", f"ll{kind}", f"{kind}l{kind}"):
            found, seen = step(x, kinds, False)
            expected, others = step(x, kinds, True)  # one segment after the other
            assert_close(found, expected)
            assert_close(seen, others)


def test_a_hook_that_only_looks_costs_no_program_of_its_own() -> None:
    x = leaf([0.5, -0.3])
    for _ in range(3):
        y = x * x
        y.register_hook(lambda g: None)
        (y.sin() * x).sum().backward()
    before = ftrans.cache_info().interpreted
    y = x * x
    y.register_hook(lambda g: None)
    (y.sin() * x).sum().backward()
    x.grad.numpy()
    assert ftrans.cache_info().interpreted - before <= 2  # and what adds to the gradient


def test_hooks_of_one_value_while_others_are_alive() -> None:
    x, log = leaf([1, 2]), []
    a = x * 2
    b = a * a
    other = a.sin()
    b.register_hook(logging(log))
    b.sum().backward(retain_graph=True)
    other.sum().backward()
    assert log == [[1.0, 1.0]]
    assert_close(x.grad, 8 * np.array([1.0, 2.0]) + 2 * np.cos([2.0, 4.0]))


def test_a_hook_of_what_does_not_lie_on_the_way_is_not_called() -> None:
    x, log = leaf(2), []
    a, b = x * 2, x * 3
    b.register_hook(logging(log))
    a.backward()
    assert log == []


def test_a_hook_of_the_root() -> None:
    x, log = leaf(2), []
    y = x * 3
    y.register_hook(doubling)
    y.register_hook(logging(log))
    y.backward()
    assert log == [2.0]
    assert_close(x.grad, 6.0)


def test_a_hook_of_a_root_that_is_looked_at() -> None:
    x, log = leaf(2), []
    y = x * 3
    z = y * 4
    y.register_hook(doubling)
    y.register_hook(logging(log))
    backward([y, z])
    assert log == [10.0]
    assert_close(x.grad, 30.0)


def test_a_hook_in_a_loop() -> None:
    x = leaf(1.0)
    log: list[Any] = []
    for _ in range(10):
        h = x * 3
        h.register_hook(logging(log))
        (h * h).backward()
        x.grad = None
    assert log == [6.0] * 10


def test_a_hook_is_called_at_each_backward() -> None:
    x, log = leaf(1), []
    h = x * 2
    h.register_hook(logging(log))
    y = h * h
    y.backward(retain_graph=True)
    y.backward()
    assert log == [4.0, 4.0]


def test_a_hook_that_is_added_between_two_passes() -> None:
    x, log = leaf(1), []
    h = x * 2
    y = h * h
    y.backward(retain_graph=True)
    h.register_hook(doubling)
    h.register_hook(logging(log))
    y.backward()
    assert log == [8.0]
    assert_close(x.grad, 8.0 + 16.0)


def test_a_hook_of_a_view_of_the_same_shape_is_its_own() -> None:
    x, log = leaf([1, 2]), []
    h = x * 2
    v = h.view(2)
    v.register_hook(logging(log))
    (h * h + v).sum().backward()
    assert log == [[1.0, 1.0]]


def test_a_hook_of_a_view_of_the_same_shape_leaves_its_base_alone() -> None:
    x = leaf([1, 2])
    h = x * 2
    v = h.reshape(2)
    v.register_hook(lambda g: g * 0)
    (h * h + v).sum().backward()
    assert_close(x.grad, 8 * np.array([1.0, 2.0]))


def test_a_hook_of_a_clone_is_its_own() -> None:
    x, log = leaf([1, 2]), []
    h = x * 2
    v = h.clone()
    v.register_hook(logging(log))
    (h * h + v).sum().backward()
    assert log == [[1.0, 1.0]]


def test_a_hook_of_the_sum_of_a_scalar_is_its_own() -> None:
    x = leaf(3)
    h = x * 2
    s = h.sum()
    s.register_hook(lambda g: g * 0)
    (s + h).backward()
    assert_close(x.grad, 2.0)


def test_a_hook_of_a_copy_of_a_leaf_leaves_the_leaf_alone() -> None:
    x = leaf([1, 2])
    c = x.clone()
    c.register_hook(lambda g: g * 0)
    (c * c + x).sum().backward()
    assert_close(x.grad, [1.0, 1.0])


def test_a_hook_that_is_registered_between_two_orders() -> None:
    x, log = leaf([1, 2]), []
    h = x * x
    (first,) = grad((h * h).sum(), x, create_graph=True)
    h.register_hook(logging(log))
    # first = 2 h 2 x
    first.sum().backward()
    assert_close(x.grad, 12 * np.array([1.0, 4.0]))
    assert log == [[4.0, 8.0]]


def test_a_hook_of_a_view_of_a_leaf() -> None:
    x, log = leaf([1, 2]), []
    v = x.view(2)
    v.register_hook(logging(log))
    (x * x + v).sum().backward()
    assert_close(x.grad, [3.0, 5.0])


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_hook_sees_the_type_of_its_tensor(dtype: str) -> None:
    x = tensor(np.ones(2, dtype), requires_grad=True)
    seen = []
    h = x * 2
    h.register_hook(lambda g: seen.append((g.dtype, g.shape)))
    (h.to("complex128") * 1.5).real.sum().backward()
    assert seen == [(np.dtype(dtype), (2,))]


def test_a_hook_of_an_empty_tensor() -> None:
    x, seen = leaf(np.zeros((0, 3))), []
    h = x * 2
    h.register_hook(lambda g: seen.append(g.shape))
    h.sum().backward()
    assert seen == [(0, 3)]


# ------------------------------------------------------------------------------ order


def test_hooks_are_called_in_order_and_see_what_came_before() -> None:
    x, log = leaf(1), []
    b = x * 3
    b.register_hook(logging(log))
    b.register_hook(doubling)
    b.register_hook(logging(log))
    (b * 3).backward()
    assert log == [3.0, 6.0]


def test_hooks_before_after_accumulation() -> None:
    x, log = leaf(1), []
    x.register_post_accumulate_grad_hook(lambda p: log.append("after"))
    x.register_hook(lambda g: log.append("first"))
    x.register_hook(lambda g: log.append("second"))
    (x * 2).backward()
    assert log == ["first", "second", "after"]


def test_retained_gradients_are_those_after_hooks() -> None:
    a = leaf(2)
    b = 3 * a
    b.retain_grad()
    b.register_hook(doubling)
    (b * 10).backward()
    assert_close(b.grad, 20.0)
    assert_close(a.grad, 60.0)


def test_hooks_after_accumulation_run_in_order() -> None:
    t = leaf([3.0])

    def subtract(p: Tensor) -> None:
        p.grad.sub_(1.0)

    def multiply(p: Tensor) -> None:
        p.grad.mul_(4.0)

    t.register_post_accumulate_grad_hook(subtract)
    t.register_post_accumulate_grad_hook(multiply)
    (t * 3).sum().backward()
    assert_close(t.grad, [8.0])


def test_hooks_of_written_tensors_stay_with_the_value() -> None:
    t, log = leaf(1), []
    s = t.sin()
    s.register_hook(lambda g: log.append(("before", round(g.item(), 4))))
    s.cos_()
    s.register_hook(lambda g: log.append(("after", round(g.item(), 4))))
    s.backward()
    assert log == [("after", 1.0), ("before", -0.7456)]


def test_retain_grad_goes_to_the_newest_value() -> None:
    x = leaf([1, 2])
    a = x * 1
    a.retain_grad()
    a.mul_(2)
    a.sum().backward()
    assert_close(a.grad, [1.0, 1.0])


# ------------------------------------------------------------------------------ when


def test_hooks_of_inputs_of_grad_are_called() -> None:
    a, log = leaf(2), []
    b = 3 * a
    b.register_hook(logging(log))
    (found,) = grad(2 * b, b)
    assert log == [2.0]
    assert_close(found, 2.0)


def test_grad_returns_what_hooks_made() -> None:
    a = leaf(2)
    b = 3 * a
    b.register_hook(doubling)
    a.register_hook(lambda g: g + 1)
    found = grad(2 * b, [a, b])
    assert_close(found[0], 13.0)
    assert_close(found[1], 4.0)


def test_an_input_that_is_asked_for_twice_has_its_hook_called_once() -> None:
    x, log = leaf(2), []
    x.register_hook(logging(log))
    grad(x * x, [x, x])
    assert log == [4.0]


def test_hooks_after_accumulation_are_not_called_by_grad() -> None:
    x, log = leaf(2), []
    x.register_post_accumulate_grad_hook(lambda p: log.append(1))
    grad(x * x, x)
    assert log == []


def test_hooks_with_inputs_of_backward() -> None:
    a, log = leaf(2), []
    b = 3 * a
    b.register_hook(logging(log, "b"))
    a.register_hook(logging(log, "a"))
    backward(2 * b, inputs=[b])
    assert log == [("b", 2.0)]
    assert a.grad is None


def test_hooks_after_accumulation_with_inputs_of_backward() -> None:
    x, y, log = leaf(2), leaf(3), []
    x.register_post_accumulate_grad_hook(lambda p: log.append("x"))
    y.register_post_accumulate_grad_hook(lambda p: log.append("y"))
    backward(x * y, inputs=[y])
    assert log == ["y"]


def test_a_leaf_that_is_not_reached_has_no_hook_called() -> None:
    x, y, log = leaf(2), leaf(3), []
    y.register_hook(logging(log))
    (x * x + y.detach()).backward()
    assert log == []


def test_hooks_with_batched_gradients() -> None:
    a, seen = leaf([1, 2]), []
    h = a**2
    h.register_hook(lambda g: seen.append(g.shape))
    (found,) = grad(h * 1, a, plain(np.eye(2)), is_grads_batched=True, retain_graph=True)
    assert_close(found, [[2.0, 0.0], [0.0, 4.0]])
    assert seen == [(2,), (2,)]
    h.register_hook(lambda g: g / g.norm())
    (found,) = grad(h * 3, a, plain(np.eye(2)), is_grads_batched=True)
    assert_close(found, [[2.0, 0.0], [0.0, 4.0]])


def test_node_hooks_with_batched_gradients() -> None:
    a, b = leaf([1, 2]), leaf([3, 4])
    h = a * b
    h.grad_fn.register_hook(lambda gi, go: (gi[0] * go[0].sum(), None))
    h.grad_fn.register_prehook(lambda go: (go[0] / go[0].norm(),))
    seeds = plain(np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]))
    for create in (False, True):
        rows = grad(h, [a, b], seeds, True, create, is_grads_batched=True)
        expected = [grad(h, [a, b], plain(s), retain_graph=True) for s in seeds.numpy()]
        for i in range(2):
            assert_close(rows[i].detach(), np.stack([each[i].numpy() for each in expected]))
    (none,) = grad(h, a, plain(np.zeros((0, 2))), is_grads_batched=True)
    assert none.shape == (0, 2)


# ------------------------------------------------------------------------------ grad mode


@pytest.mark.parametrize("create", [False, True])
def test_the_grad_mode_of_hooks_is_create_graph(create: bool) -> None:
    x, modes = leaf(2), []
    h = x * x
    h.register_hook(lambda g: modes.append(is_grad_enabled()))
    x.register_hook(lambda g: modes.append(is_grad_enabled()))
    x.register_post_accumulate_grad_hook(lambda p: modes.append(is_grad_enabled()))
    (h * 2).backward(create_graph=create)
    assert modes == [create] * 3
    assert is_grad_enabled()


def test_the_grad_mode_is_restored_under_no_grad() -> None:
    x = leaf(2)
    x.register_hook(doubling)
    y = x * x
    with no_grad():
        y.backward()
        assert not is_grad_enabled()
    assert_close(x.grad, 8.0)


def test_hooks_are_differentiated_with_create_graph() -> None:
    x = leaf(2)
    handle = x.register_hook(lambda g: g * g)
    (first,) = grad(x**3, x, create_graph=True)
    assert_close(first.detach(), 144.0)
    handle.remove()
    # (3 x^2)^2 = 9 x^4
    assert_close(grad(first, x)[0], 36 * 8.0)


@pytest.mark.parametrize("late", [False, True])
def test_hooks_of_results_in_second_derivatives(late: bool) -> None:
    x, log = leaf(2), []
    h = x * x

    def register() -> None:
        h.register_hook(logging(log))
        h.register_hook(doubling)

    if not late:
        register()
    y = h**2
    if late:
        y.item()
        register()
    (first,) = grad(y, x, create_graph=True)
    (second,) = grad(first, x)
    # first = 2 * 2h * 2x; its gradient is 8h, and 8x at h, doubled there, times 2x
    assert_close(first.detach(), 64.0)
    assert log == [8.0, 16.0]
    assert_close(second, 32.0 + 16.0 * 2 * 4)


def test_a_hook_may_use_other_tensors_that_require_grad() -> None:
    x, w = leaf(2), leaf(3)
    x.register_hook(lambda g: g * w)
    (x * x).backward(create_graph=True)
    assert_close(x.grad.detach(), 12.0)
    assert_close(grad(x.grad, w)[0], 4.0)


def test_a_hook_may_use_other_tensors_without_a_graph() -> None:
    x, w = leaf(2), leaf(3)
    x.register_hook(lambda g: g * w)
    (x * x).backward()
    assert_close(x.grad, 12.0)
    assert not x.grad.requires_grad


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("wrong", ["text", 3.0, np.ones(2)])
def test_a_hook_returns_a_tensor_or_none(wrong: Any) -> None:
    x = leaf([1, 2])
    x.register_hook(lambda g: wrong)
    with pytest.raises(RuntimeError, match="a hook returns a tensor, or None"):
        x.sum().backward()


@pytest.mark.parametrize("wrong", [np.ones(2, "float32"), np.ones(3), np.ones((2, 1))])
def test_a_hook_does_not_change_the_type(wrong: Any) -> None:
    x = leaf([1, 2])
    h = x * 1
    h.register_hook(lambda g: tensor(wrong))
    with pytest.raises(RuntimeError, match="hook '<lambda>' has changed the type"):
        h.sum().backward()


def test_hooks_need_requires_grad() -> None:
    with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't"):
        plain(1).register_hook(doubling)


def test_hooks_after_accumulation_are_for_leaves() -> None:
    for x, why in ((leaf(1) * 2, "on non-leaf tensors"), (plain(1), "doesn't require gradient")):
        with pytest.raises(RuntimeError, match=why):
            x.register_post_accumulate_grad_hook(lambda p: None)


def test_hooks_after_accumulation_return_none() -> None:
    x = leaf(1)
    x.register_post_accumulate_grad_hook(lambda p: p)
    with pytest.raises(RuntimeError, match="should return None"):
        (x * 2).backward()


def test_handles_may_be_removed_twice() -> None:
    x, log = leaf(1), []
    first, second = x.register_hook(logging(log)), x.register_hook(logging(log))
    first.remove()
    first.remove()
    (x * 2).backward()
    assert log == [2.0]
    second.remove()
    (x * 2).backward()
    assert log == [2.0]


def test_a_handle_is_a_context() -> None:
    x = leaf(1)
    with x.register_hook(doubling):
        (x * 3).backward()
    (x * 3).backward()
    assert_close(x.grad, 9.0)


def test_a_hook_may_remove_itself() -> None:
    x, log, handles = leaf(1), [], []

    def once(g: Tensor) -> None:
        log.append(g.item())
        handles[0].remove()

    handles.append(x.register_hook(once))
    x.register_hook(logging(log))
    (x * 2).backward()
    (x * 3).backward()
    assert log == [2.0, 2.0, 3.0]


def test_a_handle_of_a_graph_that_is_gone() -> None:
    x = leaf(1)
    h = x * 2
    handle = h.register_hook(doubling)
    h.backward()
    del h
    handle.remove()


# ------------------------------------------------------------------------------ exceptions


class Broken(Exception):
    """Is raised by hooks here."""


def breaking(_: Any) -> None:
    """Is a hook that raises."""
    raise Broken("here")


@pytest.mark.parametrize("where", ["leaf", "result", "after"])
@pytest.mark.parametrize("create", [False, True])
def test_a_hook_that_raises_stops_the_walk(where: str, create: bool) -> None:
    x = leaf(2)
    h = x * x
    y = h * 3
    if where == "after":
        handle = x.register_post_accumulate_grad_hook(breaking)
    else:
        handle = (x if where == "leaf" else h).register_hook(breaking)
    with pytest.raises(Broken, match="here"):
        y.backward(create_graph=create)
    assert is_grad_enabled()
    handle.remove()
    x.grad = None
    (x * x * 3).backward()
    assert_close(x.grad, 12.0)


def test_after_a_hook_of_a_result_that_raised_the_graph_can_be_used() -> None:
    x = leaf(2)
    h = x * x
    y = h * 3
    handle = h.register_hook(breaking)
    with pytest.raises(Broken):
        y.backward()
    handle.remove()
    y.backward()
    assert_close(x.grad, 12.0)


def test_after_a_hook_that_raised_under_no_grad_the_mode_is_kept() -> None:
    x = leaf(2)
    y = x * x
    x.register_hook(breaking)
    with no_grad():
        with pytest.raises(Broken):
            y.backward()
        assert not is_grad_enabled()


# ------------------------------------------------------------------------------ what hooks may do


def test_an_optimiser_in_a_hook() -> None:
    v = leaf([0, 0, 0])

    def step(p: Tensor) -> None:
        p.add_(p.grad, alpha=-0.01)

    v.register_post_accumulate_grad_hook(step)
    v.backward(plain([1, 2, 3]))
    assert_close(v.detach(), [-0.01, -0.02, -0.03])


def test_an_optimiser_in_a_hook_in_a_loop() -> None:
    x = leaf([1.0, 2.0])

    def step(p: Tensor) -> None:
        p.sub_(p.grad, alpha=0.1)
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(30):
        (x * x).sum().backward()
    assert x.grad is None
    assert_close(x.detach(), 0.8**30 * np.array([1.0, 2.0]))


def test_a_hook_may_go_backward_itself() -> None:
    x, w = leaf(2), leaf(3)

    def hook(g: Tensor) -> None:
        with enable_grad():
            (w * w).backward()

    h = x * x
    h.register_hook(hook)
    (h * 5).backward()
    assert_close(w.grad, 6.0)
    assert_close(x.grad, 20.0)


def test_a_hook_may_look_at_pending_values() -> None:
    x, log = leaf(2), []
    h = x * x
    other = x * 7
    h.register_hook(lambda g: log.append(other.item()))
    (h * 5).backward()
    assert log == [14.0]
    other.backward()
    assert_close(x.grad, 27.0)


def test_a_hook_may_write_to_tensors() -> None:
    x, total = leaf(2), plain(0)

    def hook(g: Tensor) -> None:
        total.add_(g)

    h = x * x
    h.register_hook(hook)
    for _ in range(3):
        (h * 5).backward(retain_graph=True)
    assert_close(total, 15.0)


def test_a_gradient_that_a_hook_kept_does_not_change() -> None:
    x, kept = leaf(2), []
    x.register_hook(kept.append)
    (x * 3).backward()
    (x * 4).backward()
    assert [g.item() for g in kept] == [3.0, 4.0]


def test_a_gradient_that_a_hook_wrote_to() -> None:
    x = leaf([2, 3])
    h = x * 1
    h.register_hook(lambda g: g.clone().mul_(2))
    (h * 3).sum().backward()
    assert_close(x.grad, [6.0, 6.0])


def test_a_hook_that_returns_a_leaf_that_is_written_to_later() -> None:
    x, other = leaf([2, 3]), plain([5, 7])
    x.register_hook(lambda g: other)
    (x * 3).sum().backward()
    (x * 3).sum().backward()
    assert_close(x.grad, [10.0, 14.0])
    assert_close(other, [5.0, 7.0])


def test_a_hook_that_returns_another_tensor_with_create_graph() -> None:
    x, other = leaf([2, 3]), plain([5, 7])
    x.register_hook(lambda g: other)
    (x * 3).sum().backward(create_graph=True)
    x.grad.zero_()
    assert_close(other, [5.0, 7.0])


def test_hooks_of_results_make_no_garbage() -> None:
    x = leaf([1, 2])

    def step() -> None:
        h = x * x
        h.register_hook(doubling)
        h.sum().backward()
        x.grad = None

    for _ in range(200):
        step()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(500):
            step()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


def test_a_hook_with_a_name_that_has_none() -> None:
    class Callable_:
        def __call__(self, g: Tensor) -> Any:
            return 5

    x = leaf(1)
    x.register_hook(Callable_())
    with pytest.raises(GraphError, match="Callable_"):
        (x * 2).backward()


def waits(x: Tensor) -> bool:
    """Tells whether the value of a tensor was not computed yet."""
    return type(x._v) is Tape


def test_a_hook_does_not_run_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Segment, "run")  # forward and backward as far as the hook are one program
    x, log = leaf([1.0, 2.0]), list[Any]()
    y = x * 3.0
    y.register_hook(logging(log))
    assert waits(y)
    z = y.exp()
    z.register_hook(doubling)
    loss = (z * y).sum()
    assert waits(loss)
    loss.backward()
    values = np.array([3.0, 6.0])
    expected = np.exp(values) * (1.0 + 2.0 * values)
    assert_close(log[0], expected)
    assert_close(x.grad, 3.0 * expected)


@pytest.mark.parametrize("asked", [False, True])
def test_hooks_of_a_loop_see_what_they_see_where_each_value_is_asked_for(asked: bool) -> None:
    x, log = leaf([0.5, 1.0]), list[Any]()
    for _ in range(5):
        x.grad = None
        y = x.sin()
        y.register_hook(logging(log, "y"))
        z = y * x
        z.register_hook(doubling)
        loss = (z + y).sum()
        if asked:
            loss.item()
        loss.backward()
        at = np.array([0.5, 1.0])
        assert_close(x.grad, (1 + 2 * at) * np.cos(at) + 2 * np.sin(at))
    assert log == [("y", [2.0, 3.0])] * 5


def test_a_hook_that_was_removed_while_its_value_waited() -> None:
    x, log = leaf(2.0), list[Any]()
    y = x * x
    handle = y.register_hook(doubling)
    y.register_hook(logging(log))
    handle.remove()
    (y * 3.0).backward()
    assert log == [3.0]
    assert_close(x.grad, 12.0)


def test_a_hook_of_a_value_that_waits_goes_back_through_the_same_graph() -> None:
    x, log = leaf(2.0), list[Any]()
    z = x * x
    y = z * x

    def hook(g: Tensor) -> None:
        log.extend(found.item() for found in grad(z, x, retain_graph=True))
        log.append(y.grad_fn is not None)

    y.register_hook(hook)
    (y * 3.0).backward()
    assert log == [4.0, True]
    assert_close(x.grad, 36.0)


def test_a_hook_that_raises_leaves_the_graph() -> None:
    x = leaf(2.0)
    y = x * x

    def hook(g: Tensor) -> None:
        raise ZeroDivisionError

    handle = y.register_hook(hook)
    loss = y * 3.0
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    assert x.grad is None
    handle.remove()
    loss.backward()
    assert_close(x.grad, 12.0)


def test_another_thread_goes_back_from_a_value_with_a_hook_that_waits() -> None:
    x, log = leaf(2.0), list[Any]()
    y = x * x
    y.register_hook(logging(log))
    loss = y * 3.0
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert log == [3.0]
    assert_close(x.grad, 12.0)


@pytest.mark.parametrize("before", [False, True])
def test_hooks_on_no_way_to_the_inputs_are_not_called(before: bool) -> None:
    x, other, log = leaf(2.0), leaf(3.0), list[Any]()
    y, z = x * 2.0, other * 2.0
    loss = y * z
    if before:
        loss.item()
    y.register_hook(logging(log, "y"))
    z.register_hook(logging(log, "z"))
    loss.backward(inputs=[x])
    assert log == [("y", 6.0)]
    assert other.grad is None


def test_a_leaf_that_was_asked_for_beside_is_no_part_of_a_gradient() -> None:
    x, other = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y, beside = x.exp(), other.sum()
    beside.item()  # so that one program has computed both
    (found,) = grad((y * y).sum(), x, create_graph=True)
    found.sum().backward()
    assert other.grad is None
    assert_close(x.grad, 4 * np.exp([2.0, 4.0]))


def test_results_keep_their_gradients_where_some_are_asked_for() -> None:
    """What PyTorch 2.13 prints: on the way to what is asked for, and once."""
    x, w = leaf([1.0, 2.0]), leaf([1.0, 2.0])

    def made() -> tuple[Tensor, Tensor, Tensor]:
        y, u = x * 2.0, w * 3.0
        y.retain_grad()
        u.retain_grad()
        return y, u, (y * u).sum()

    y, u, loss = made()
    loss.backward(inputs=[x])
    assert_close(y.grad, [3.0, 6.0])
    assert_close(x.grad, [6.0, 12.0])
    assert u.grad is None
    assert w.grad is None
    for sink in ("x", "y"):
        y, u, loss = made()
        (found,) = grad(loss, x if sink == "x" else y)
        assert_close(found, [6.0, 12.0] if sink == "x" else [3.0, 6.0])
        assert_close(y.grad, [3.0, 6.0])
        assert u.grad is None
    y, u, loss = made()
    loss.backward(inputs=[y], retain_graph=True)
    assert_close(y.grad, [3.0, 6.0])
    loss.backward(inputs=[y])
    assert_close(y.grad, [6.0, 12.0])


def test_a_gradient_that_is_kept_is_what_the_hook_has_made_of_it() -> None:
    x = leaf([1.0, 1.0])
    y = x * 2.0
    y.retain_grad()
    y.register_hook(lambda ct: ct * 10.0)
    (y * 3.0).sum().backward(inputs=[y, x])
    assert_close(y.grad, [30.0, 30.0])
    assert_close(x.grad, [60.0, 60.0])


# ------------------------------------------------------ what hooks ask for that was not run yet


def _asking_unpack(x: Tensor, ask: Callable[[], None]) -> Tensor:
    with saved_tensors_hooks(lambda v: v, lambda v: (ask(), v)[1]):
        return (x * x).sum()


def _asking_hook(x: Tensor, ask: Callable[[], None]) -> Tensor:
    y = x * x
    y.register_hook(lambda g: ask())
    return y.sum()


@pytest.mark.parametrize("made", [_asking_unpack, _asking_hook])
def test_a_hook_asks_for_what_is_pending_outside(made: Any) -> None:
    x, asked = leaf([1.0, 2.0]), list[float]()
    holder: dict[str, Tensor] = {}
    loss = made(x, lambda: asked.append(holder["w"].item()))
    loss.item()
    w = holder["w"] = plain(7.0) * 3
    a = w * 2  # both are pending, and go on being used when the hook has had one of them
    loss.backward()
    b = a * 2 + w
    assert_close(b, 105.0)
    assert_close(a, 42.0)
    assert_close(x.grad, [2.0, 4.0])
    assert asked
    assert set(asked) == {21.0}


def test_a_pack_hook_and_a_forward_ask_for_what_is_pending_outside() -> None:
    x, asked = leaf([1.0, 2.0]), list[float]()
    z = plain(3.0) * 2
    with saved_tensors_hooks(lambda v: (asked.append(z.item()), v)[1], lambda v: v):
        q = z * 5
        y = (x * x * q).sum()
        r = q + 1
    assert_close(r.detach(), 31.0)
    y.backward()
    assert_close(x.grad, [60.0, 120.0])
    assert_close(r + z, 37.0)
    assert set(asked) == {6.0}

    class Reads(Function):
        @staticmethod
        def forward(ctx: Any, v: Tensor) -> Tensor:
            asked.append(c.item())
            return v * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 2

    c = plain(1.0) * 4
    d = c * 5
    applied = Reads.apply(x)
    assert_close(d + 1, 21.0)
    assert_close(applied.detach(), [2.0, 4.0])
    assert asked[-1] == 4.0
