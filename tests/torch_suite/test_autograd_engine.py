"""What backward and grad do: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor
from ftrans.autograd import (
    Function,
    backward,
    grad,
)
from tests.torch_suite.common import constant, leaf, same

V = np.array([1.0, 2.0])


# ---------------------------------------------------------------------------- backward and grad


def test_grad() -> None:
    values = np.arange(4.0).reshape(2, 2)
    x, y = leaf(values), leaf(values + 1)
    z = x**2 + y * x + y**2
    z.backward(constant(np.ones((2, 2))), create_graph=True)
    x_grad, y_grad = 2 * values + values + 1, values + 2 * (values + 1)
    same(x.grad, x_grad)
    same(y.grad, y_grad)
    (found,) = grad([(x.grad + 2 * y.grad).sum()], [x])
    same(found, 4 * np.ones((2, 2)))
    same(x.grad, x_grad)


def test_grad_nonleaf() -> None:
    x = leaf(V)
    y = x.exp()
    (found,) = grad((y * y).sum(), y)
    same(found, 2 * np.exp(V))
    assert x.grad is None
    assert y.is_leaf is False


def test_grad_materialize_grads() -> None:
    x, a = leaf(0.5), leaf(1.0)
    y = x * a
    (first,) = grad(y, x, create_graph=True)
    (none,) = grad(first, x, create_graph=True, allow_unused=True)
    (second,) = grad(first, x, create_graph=True, allow_unused=True, materialize_grads=True)
    assert none is None
    same(second, 0.0)
    a = y
    with pytest.raises(ValueError, match="allow_unused"):
        grad(a, x, allow_unused=False, materialize_grads=True)


@pytest.mark.parametrize("is_run", [False, True])
def test_a_gradient_depends_on_what_it_is_computed_of(is_run: bool) -> None:
    x, a = leaf(0.5), leaf(2.0)

    def slope(of: Any, at: Any) -> Any:
        if is_run:
            of.item()
        return grad(of, at, create_graph=True)[0]

    first = slope(x * a, x)
    found, none = grad(first, [a, x], allow_unused=True)
    same(found, 1.0)
    assert none is None
    first = slope(x * a, x)
    with pytest.raises(RuntimeError, match="have been used"):
        grad(first, x)
    first.backward()
    assert x.grad is None
    same(a.grad, 1.0)
    first = slope(x * 3 + 2, x)
    assert not first.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(first, x)
    weights, rows = leaf([1.0, 2.0]), constant([[1.0, 2.0], [3.0, 4.0]])
    assert not slope((rows @ weights).sum(), weights).requires_grad
    assert slope((rows @ weights).sin().sum(), weights).requires_grad
    square = x * x
    found, none = grad(slope(square * a, a), [x, a], allow_unused=True)
    same(found, 1.0)
    assert none is None
    second = slope(slope(x**3 * a, x), x)
    same(grad(second, [x, a]), (12.0, 3.0))


def test_grad_unreachable() -> None:
    x, y = leaf([1.0]), leaf([1.0])
    z, w = x * 2, y * 2
    first, second = grad(x * 2, [x, y], allow_unused=True)
    same(first, [2.0])
    assert second is None
    z2 = leaf([1.0])
    assert grad(w, [z2], retain_graph=True, allow_unused=True) == (None,)
    with pytest.raises(RuntimeError, match="have been used"):
        grad(z, [x, y])


def test_grad_batched_grad() -> None:
    x = leaf(np.arange(4.0).reshape(2, 2))
    out = x.clone()
    batch = np.arange(12.0).reshape(3, 2, 2)
    (found,) = grad(out, (x,), (constant(batch),), is_grads_batched=True)
    same(found, batch)


def test_hessian_vector() -> None:
    values = np.arange(1.0, 5.0).reshape(2, 2)
    x, y = leaf(values), leaf(values + 1)
    z = x**2 + y * x + y**2
    z.backward(constant(np.ones((2, 2))), create_graph=True)
    (x.grad + 2 * y.grad).sum().backward(create_graph=True)
    same(x.grad, 2 * values + values + 1 + 4)
    same(y.grad, values + 2 * (values + 1) + 5)


def test_backward_with_inputs() -> None:
    x, y = leaf(V), leaf(V + 1)
    gradient = constant([1.0, 1.0])

    def f() -> Tensor:
        return x**2 + y * x + y**2

    f().backward(gradient, inputs=[x, y])
    same(x.grad, 2 * V + V + 1)
    same(y.grad, V + 2 * (V + 1))
    x.grad = y.grad = None
    f().backward(gradient, inputs=x)
    same(x.grad, 2 * V + V + 1)
    assert y.grad is None


def test_backward_with_inputs_empty() -> None:
    x = leaf(V)
    with pytest.raises(RuntimeError, match="empty"):
        (x * x).sum().backward(inputs=[])


@pytest.mark.filterwarnings("ignore")
def test_backward_with_nonleaf_inputs() -> None:
    x = leaf(V)
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    same(y.grad, [4.0, 8.0])
    assert x.grad is None


def test_backward_twice_with_saved_values() -> None:
    b = leaf(V)
    c = (b * b).sum()
    c.backward()
    with pytest.raises(RuntimeError, match="second time"):
        c.backward()


def test_backward_twice_retained_graph_with_saved_values() -> None:
    b = leaf(V)
    c = (b * b).sum()
    c.backward(retain_graph=True)
    c.backward()
    same(b.grad, 4 * V)


def test_multi_backward() -> None:
    x, y = leaf(np.ones((2, 2))), leaf(2 * np.ones((2, 2)))
    given = np.arange(4.0).reshape(2, 2)
    backward([x * y, y * 2], [constant(given), constant(given + 1)])
    same(x.grad, 2 * given)
    same(y.grad, given + 2 * (given + 1))


def test_multi_backward_no_grad() -> None:
    x, y = leaf(V), constant(V)
    with pytest.raises(RuntimeError, match="does not require grad"):
        backward([x * y, y * 2], [constant(V), constant(V)])


def test_multi_backward_of_a_leaf() -> None:
    x = leaf(V)
    backward([x, x * 2], [constant(V), constant(V)])
    same(x.grad, 3 * V)


def test_accumulate_grad() -> None:
    x = leaf(np.ones((5, 5)))
    z = x + 2
    z.backward(constant(np.ones((5, 5))), retain_graph=True)
    x_grad = x.grad
    x_clone = x.grad.clone()
    z.backward(constant(np.ones((5, 5))), retain_graph=True)
    assert x.grad is x_grad
    same(x_grad, 2 * x_clone)
    z.backward(constant(np.ones((5, 5))), create_graph=True)
    assert x.grad is not x_grad
    same(x.grad, 3 * np.ones((5, 5)))


def test_accumulate_grad_tensor_reference() -> None:
    x = leaf(np.ones(2))
    x.grad = constant([0.5, 0.5])
    before = x.grad
    (x * 2).sum().backward()
    assert x.grad is before
    same(x.grad, [2.5, 2.5])


def test_dependent_backward() -> None:
    x = leaf(V)
    y = x**2
    z = y**3
    go_y, go_z = constant(V), constant(V + 1)
    backward([y, z], [go_y, go_z])
    same(x.grad, 2 * V * V + (V + 1) * 6 * V**5)


def test_duplicate_backward_root() -> None:
    a, b = leaf(V), leaf(V + 1)
    x = a * b
    given = constant(V)
    backward([x, x], [given, given])
    same(a.grad, 2 * V * (V + 1))
    same(b.grad, 2 * V * V)


# --------------------------------------------------------------------- reentrant and in threads


def test_reentrant_backward_in_a_hook() -> None:
    class Reentrant(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct

    inner = leaf([3.0])
    a = leaf([2.0])
    y = Reentrant.apply(a)

    def hook(gradient: Tensor) -> None:
        with ftrans.enable_grad():
            (inner * inner).sum().backward()

    y.register_hook(hook)
    y.sum().backward()
    same(inner.grad, [6.0])
    same(a.grad, [1.0])


def test_reentrant_with_leaf_variable_hook() -> None:
    param = leaf(np.ones(2))

    def hook(gradient: Tensor) -> Tensor:
        with ftrans.enable_grad():
            other = gradient.detach().requires_grad_()
            (found,) = grad((other**2).sum(), other)
        return found

    param.register_hook(hook)
    (param * 3).sum().backward()
    same(param.grad, [6.0, 6.0])


def test_reentrant_with_non_leaf_variable_hook() -> None:
    param = leaf(np.ones(2))
    middle = param * 2

    def hook(gradient: Tensor) -> Tensor:
        with ftrans.enable_grad():
            other = gradient.detach().requires_grad_()
            (found,) = grad((other**2).sum(), other)
        return found

    middle.register_hook(hook)
    (middle * 3).sum().backward()
    same(param.grad, [12.0, 12.0])


def test_multithread_saved_tensors_and_backward() -> None:
    x = leaf(np.ones(3))
    threads = [threading.Thread(target=lambda: (x * x).sum().backward()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(x.grad, 8 * np.ones(3))


def test_multithread_fork_join() -> None:
    x = leaf(np.ones(3))
    found: list[Tensor] = []
    threads = [threading.Thread(target=lambda: found.append((x * 3).sum())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (found[0] + found[1] + found[2]).backward()
    same(x.grad, 9 * np.ones(3))


def test_multithread_exception_propagation() -> None:
    raised: list[BaseException] = []

    def target() -> None:
        b = leaf(V)
        y = (b * b).sum()
        y.backward()
        try:
            y.backward()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert "second time" in str(raised[0])
