"""The code of the page `torch.autograd` of PyTorch that needs no graph, mode or profiler."""

from __future__ import annotations

from typing import Any

import numpy as np

import ftrans.torch as torch
from ftrans.torch.autograd import Function
from tests.helpers import assert_close


def test_a_factory_makes_a_leaf() -> None:
    autograd_tensor = torch.randn((2, 3, 4), requires_grad=True)
    assert autograd_tensor.shape == (2, 3, 4)
    assert autograd_tensor.requires_grad
    assert autograd_tensor.is_leaf
    assert torch.randn(2, 3, 4, requires_grad=True).size() == torch.Size((2, 3, 4))
    with torch.no_grad():
        assert torch.zeros(2, requires_grad=True).requires_grad


class Exp(Function):
    @staticmethod
    def forward(ctx: Any, i: Any) -> Any:
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (result,) = ctx.saved_tensors
        return grad_output * result


def test_exp() -> None:
    input = torch.randn(4, requires_grad=True)
    output = Exp.apply(input)
    output.sum().backward()
    assert_close(input.grad.numpy(), np.exp(input.detach().numpy()))


def test_gradients_are_reset_before_each_iteration() -> None:
    parameters = [torch.randn(3, requires_grad=True) for _ in range(2)]
    for _ in range(3):
        loss = (parameters[0] * parameters[1]).sum()
        for param in parameters:
            param.grad = None
        loss.backward()
    assert torch.equal(parameters[0].grad, parameters[1])


def test_a_function_of_what_is_captured() -> None:
    constant = torch.tensor([1.0, 2.0])

    def f(input: Any, constant: Any, flag: bool = False) -> Any:
        return input**2 * constant if flag else input

    found = torch.autograd.functional.jacobian(
        lambda x: f(x, constant, flag=True), torch.tensor([3.0, 4.0])
    )
    assert found.tolist() == [[6.0, 0.0], [0.0, 16.0]]


def test_what_is_written_after_it_was_saved() -> None:
    """Where PyTorch refuses, and needs a mode, the gradient is that of what was computed."""
    a = torch.ones(2, 3, requires_grad=True)
    b = a.clone()
    out = (b**2).sum()
    b.sin_()
    out.sum().backward()
    assert a.grad.tolist() == [[2.0] * 3] * 2
    assert_close(b.detach().numpy(), np.full((2, 3), np.sin(1.0), np.float32))
