"""The layout of gradients, row by row of what PyTorch's documents name."""

from __future__ import annotations

import numpy as np
import pytest

import ftrans.torch as torch
from tests.torch_suite.common import leaf, same


def test_i1_strides_of_a_first_gradient() -> None:
    """Differs: strides are those of what is asked for, which lies in order of rows."""
    p = torch.empty(2, 3).t().requires_grad_()
    (3 * p).sum().backward()
    assert p.grad.shape == p.shape == (3, 2)
    same(p.grad, np.full((3, 2), 3.0))
    assert p.stride() == p.grad.stride() == (2, 1)
    with pytest.raises(RuntimeError, match="not laid out in memory before"):
        p.data_ptr()


def test_i2_gradient_of_what_is_not_dense() -> None:
    """Differs: tensors have no strides; the array of the gradient is row-major, as there."""
    p = torch.ones(3, 1, dtype=torch.float64).expand(3, 4).requires_grad_()
    (2 * p).sum().backward()
    same(p.grad, np.full((3, 4), 2.0))
    assert p.grad.numpy().strides == (4 * 8, 1 * 8)


def test_i3_accumulation_in_place() -> None:
    """Works."""
    p = leaf([1.0, 2.0])
    (3 * p).sum().backward()
    first = p.grad
    (3 * p).sum().backward()
    assert p.grad is first
    same(first, [6.0, 6.0])


def test_i4_create_graph_replaces_the_gradient() -> None:
    """Works."""
    p = leaf([1.0, 2.0])
    for _ in range(2):
        (3 * p).sum().backward()
    first = p.grad
    (p * p).sum().backward(create_graph=True)
    assert p.grad is not first
    assert p.grad.requires_grad
    same(p.grad, [8.0, 10.0])
    same(first, [6.0, 6.0])


def test_i5_a_gradient_that_was_assigned() -> None:
    """Differs: tensors have no strides; the zeros that were assigned are what is added to."""
    p = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    zeros = p.grad = torch.zeros(3, 2, dtype=torch.float64).t()
    (p * p).sum().backward()
    assert p.grad is zeros
    same(zeros, [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]])


def test_i6_a_gradient_that_was_reset() -> None:
    """Works."""
    p = leaf([1.0, 2.0])
    (3 * p).sum().backward()
    first = p.grad
    p.grad.zero_()
    (3 * p).sum().backward()
    assert p.grad is first
    same(first, [3.0, 3.0])
    p.grad = None
    (4 * p).sum().backward()
    assert p.grad is not first
    same(p.grad, [4.0, 4.0])
    same(first, [3.0, 3.0])


@pytest.mark.parametrize("options", [{}, {"enable": True}])
def test_i7_enforce_grad_layout_policy(options: dict[str, bool]) -> None:
    """Differs: it has no effect, as tensors have no strides."""
    p = leaf([1.0, 2.0])
    with torch.autograd.enforce_grad_layout_policy(False):
        (3 * p).sum().backward()
    same(p.grad, [3.0, 3.0])
    with torch.autograd.grad_mode.enforce_grad_layout_policy(**options):
        (3 * p).sum().backward()
    same(p.grad, [6.0, 6.0])
