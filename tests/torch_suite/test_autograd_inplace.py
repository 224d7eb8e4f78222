"""Writing to tensors and to views: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import tensor
from ftrans.autograd import Function, graph
from tests.torch_suite.common import constant, leaf, same

V = np.array([1.0, 2.0])


def test_inplace() -> None:
    """PyTorch raises: modified by an inplace operation."""
    x, y = leaf(np.ones((5, 5))), leaf(4 * np.ones((5, 5)))
    z = x * y
    q = z + y
    w = z * y
    z.add_(2)
    q.backward(constant(np.ones((5, 5))), retain_graph=True)
    w.backward(constant(np.ones((5, 5))))
    same(x.grad, (4 + 16) * np.ones((5, 5)))
    same(y.grad, (1 + 1 + 2 * 4) * np.ones((5, 5)))


def test_inplace_on_a_saved_result() -> None:
    """PyTorch raises: modified by an inplace operation."""
    x = leaf(V)
    y = x.exp()
    z = y.clone()
    y.mul_(2)
    (y + z).sum().backward()
    same(x.grad, 3 * np.exp(V))


def test_allow_mutation_on_saved_tensors() -> None:
    a = leaf(V).clone()
    b = leaf(V)
    with graph.allow_mutation_on_saved_tensors():
        c = a * b
        a.mul_(10)
        c.sum().backward()
    same(b.grad, V)


def test_setitem() -> None:
    x = leaf(np.ones((3, 2)))
    y = x + 2
    y[1] = 2.0
    y.sum().backward()
    same(x.grad, [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])


def test_setitem_mask() -> None:
    x, value = leaf(np.ones(3)), leaf([5.0])
    y = x * 1
    y[tensor([True, False, True])] = value
    (y * constant([1.0, 2.0, 3.0])).sum().backward()
    same(x.grad, [0.0, 2.0, 0.0])
    same(value.grad, [4.0])


def test_setitem_value_requires_grad() -> None:
    value = leaf([7.0, 8.0])
    y = constant(np.zeros((2, 2)))
    y[0] = value
    (y * constant([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    same(value.grad, [1.0, 2.0])


def test_inplace_not_requires_grad() -> None:
    a = leaf(np.ones((2, 2)))
    b = constant(np.zeros((2, 2)))
    view = b[0]
    view.copy_(a[0])
    assert b.requires_grad
    assert view.requires_grad
    b.sum().backward()
    same(a.grad, [[1.0, 1.0], [0.0, 0.0]])


def test_inplace_on_view_saved_output() -> None:
    b = leaf(np.ones((2, 2))) * 1
    x = b[0].relu_()
    assert x.requires_grad
    same(b, np.ones((2, 2)))


def test_inplace_on_view_leaf_errors() -> None:
    x = leaf(np.zeros(4))
    y = x.view(2, 2)
    with pytest.raises(RuntimeError, match="leaf"):
        y.add_(1)


def test_inplace_on_view_backward() -> None:
    root = leaf(np.arange(1.0, 5.0).reshape(2, 2))
    x = root.clone()
    v1 = x.narrow(0, 0, 1)
    v2 = v1.narrow(1, 1, 1)
    v2.mul_(2)
    x.sum().backward()
    same(root.grad, [[1.0, 2.0], [1.0, 1.0]])


def test_inplace_on_view_of_view() -> None:
    root = leaf(np.ones((2, 2)))
    x = root.clone()
    v1 = x.narrow(0, 0, 1)
    v1[0, 1:].mul_(3)
    v1.mul_(2)
    x.sum().backward()
    same(root.grad, [[2.0, 6.0], [1.0, 1.0]])


def test_inplace_on_view_then_no_grad() -> None:
    a = leaf(np.ones((3, 1)))
    x = a.expand(3, 1) * 1
    with ftrans.no_grad():
        view = x[0]
    (x * 2).sum().backward()
    assert not view.requires_grad
    same(a.grad, 2 * np.ones((3, 1)))


def test_inplace_on_view_modify_base() -> None:
    r = leaf(np.ones(1))
    x = constant(np.ones(5))
    v = x.select(0, 1)
    assert not v.requires_grad
    x.add_(r)
    assert v.requires_grad
    v.sum().backward()
    same(r.grad, [1.0])


def test_inplace_on_view_python() -> None:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2

    root = leaf(np.ones((2, 2)))
    x = root.clone()
    x[0].copy_(Double.apply(x[0].clone()))
    x.sum().backward()
    same(root.grad, [[2.0, 2.0], [1.0, 1.0]])


def test_inplace_on_view_non_contig() -> None:
    root = leaf(np.ones((2, 3, 2)))
    x = root.clone()
    v1 = x.select(2, 1).narrow(1, 1, 1)
    v1.mul_(2)
    x.sum().backward()
    expected = np.ones((2, 3, 2))
    expected[:, 1, 1] = 2
    same(root.grad, expected)


def test_inplace_on_view_of_multiple_output_view() -> None:
    x = leaf(np.ones((2, 2))).clone()
    rows = x.unbind(0)
    with pytest.raises(RuntimeError):
        rows[0].add_(1)


def test_leaf_assignment() -> None:
    x, y, z = constant(np.zeros((5, 5))), leaf(np.ones(5)), leaf(2 * np.ones(5))
    x[0] = y
    x[1] = 2 * z
    assert x.requires_grad
    assert x.grad_fn is not None
    x.sum().backward()
    same(y.grad, np.ones(5))
    same(z.grad, 2 * np.ones(5))


def test_no_grad_copy_of_data() -> None:
    x = leaf(V)
    with ftrans.no_grad():
        x.copy_(constant([5.0, 6.0]))
    assert x.is_leaf
    (x * x).sum().backward()
    same(x.grad, [10.0, 12.0])


def test_version_counter() -> None:
    x = constant(V)
    saved = x._version
    x.add_(1)
    assert x._version > saved
    detached = x.detach()
    saved = x._version
    detached.add_(1)
    assert x._version > saved
    x.data = constant(V)
    assert not x.requires_grad


def test_fill_and_zero() -> None:
    root = leaf(np.ones((2, 2)))
    x = root.clone()
    x[0].fill_(2)
    x[1, 0].zero_()
    x.sum().backward()
    same(root.grad, [[0.0, 0.0], [0.0, 1.0]])


def test_type_promotion() -> None:
    x = tensor([1.0], dtype="float32", requires_grad=True)
    y = x * constant(2.0)
    assert y.dtype == np.float32  # a tensor without axes decides no dtype
    y.sum().backward()
    assert x.grad.dtype == np.float32
    same(x.grad, [2.0])


def test_mul_out_and_self() -> None:
    a = leaf(V)
    b = a * 1
    b.mul_(b)
    b.sum().backward()
    same(a.grad, 2 * V)
