"""The code of PyTorch's tutorial "Double Backward with Custom Functions", but for its pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

import ftrans.torch as torch
from tests.helpers import assert_close


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad_out * 2 * x


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        result = torch.exp(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        (result,) = ctx.saved_tensors
        return result * grad_out


class Sinh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / 2, expx, expnegx

    @staticmethod
    def backward(ctx: Any, grad_out: Any, _grad_out_exp: Any, _grad_out_negexp: Any) -> Any:
        expx, expnegx = ctx.saved_tensors
        grad_input = grad_out * (expx + expnegx) / 2
        grad_input += _grad_out_exp * expx
        grad_input -= _grad_out_negexp * expnegx
        return grad_input


def sinh(x: Any) -> Any:
    return Sinh.apply(x)[0]


class SinhBad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.expx = expx
        ctx.expnegx = expnegx
        return (expx - expnegx) / 2

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        return grad_out * (ctx.expx + ctx.expnegx) / 2


def cube_forward(x: Any) -> Any:
    return x**3


def cube_backward(grad_out: Any, x: Any) -> Any:
    return grad_out * 3 * x**2


def cube_backward_backward(grad_out: Any, sav_grad_out: Any, x: Any) -> Any:
    return grad_out * sav_grad_out * 6 * x


def cube_backward_backward_grad_out(grad_out: Any, x: Any) -> Any:
    return grad_out * 3 * x**2


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return cube_forward(x)

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        (x,) = ctx.saved_tensors
        return CubeBackward.apply(grad_out, x)


class CubeBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad_out: Any, x: Any) -> Any:
        ctx.save_for_backward(x, grad_out)
        return cube_backward(grad_out, x)

    @staticmethod
    def backward(ctx: Any, grad_out: Any) -> Any:
        x, sav_grad_out = ctx.saved_tensors
        dx = cube_backward_backward(grad_out, sav_grad_out, x)
        dgrad_out = cube_backward_backward_grad_out(grad_out, x)
        return dgrad_out, dx


def second_derivative(f: Any, x: Any) -> Any:
    (grad_x,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    return torch.autograd.grad(grad_x.sum(), x)[0]


def test_saving_the_inputs() -> None:
    x = torch.rand(3, 3, requires_grad=True, dtype=torch.double)
    assert torch.autograd.gradcheck(Square.apply, x)
    assert torch.autograd.gradgradcheck(Square.apply, x)


def test_the_gradient_of_a_square_is_a_function_of_x() -> None:
    x = torch.tensor(1.0, requires_grad=True).clone()
    out = Square.apply(x)
    (grad_x,) = torch.autograd.grad(out, x, create_graph=True)
    assert grad_x.requires_grad
    assert grad_x.item() == 2.0
    assert torch.autograd.grad(grad_x, x)[0].item() == 2.0


def test_saving_the_outputs() -> None:
    x = torch.tensor(1.0, requires_grad=True, dtype=torch.double).clone()
    assert torch.autograd.gradcheck(Exp.apply, x)
    assert torch.autograd.gradgradcheck(Exp.apply, x)
    assert_close(second_derivative(Exp.apply, x).numpy(), np.exp(1.0))


def test_saving_intermediate_results() -> None:
    x = torch.rand(3, 3, requires_grad=True, dtype=torch.double)
    assert torch.autograd.gradcheck(sinh, x)
    assert torch.autograd.gradgradcheck(sinh, x)
    assert_close(second_derivative(sinh, x).numpy(), np.sinh(x.detach().numpy()))


def test_saving_intermediate_results_what_not_to_do() -> None:
    """What PyTorch loses silently, the derivative through what `forward` saved, is there."""
    x = torch.rand(3, 3, requires_grad=True, dtype=torch.double)
    (grad_x,) = torch.autograd.grad(SinhBad.apply(x).sum(), x, create_graph=True)
    assert_close(grad_x.detach().numpy(), np.cosh(x.detach().numpy()))
    assert grad_x.requires_grad
    assert_close(second_derivative(SinhBad.apply, x).numpy(), np.sinh(x.detach().numpy()))


def test_when_backward_is_not_tracked() -> None:
    x = torch.tensor(2.0, requires_grad=True, dtype=torch.double)
    assert torch.autograd.gradcheck(Cube.apply, x)
    assert torch.autograd.gradgradcheck(Cube.apply, x)
    assert second_derivative(Cube.apply, x).item() == 12.0
