"""Derivatives of Functions of second order, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from tests.torch_suite.common import Exponential, SinhBySaved, leaf, same

Function = torch.autograd.Function
gradcheck, gradgradcheck = torch.autograd.gradcheck, torch.autograd.gradgradcheck


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ct * 2 * x


def derivatives(f: Any, x: Any) -> tuple[Any, Any]:
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    return first, torch.autograd.grad(first, x)[0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_d1_grad_mode(create_graph: bool) -> None:
    """Works. What is traced is traced with recording on: so what forward keeps has derivatives."""
    modes: list[bool] = []

    class Looks(Square):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            modes.append(torch.is_grad_enabled())
            return Square.forward(ctx, x)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            modes.append(torch.is_grad_enabled())
            return Square.backward(ctx, ct)

    x = leaf(3.0)
    (slope,) = torch.autograd.grad(Looks.apply(x), x, create_graph=create_graph)
    same(slope, 6.0)
    assert slope.requires_grad == create_graph
    assert modes == [False, create_graph]


def test_d2_saving_inputs() -> None:
    """Works."""
    x = torch.rand(3, 3, requires_grad=True, dtype=torch.double)
    assert gradcheck(Square.apply, x)
    assert gradgradcheck(Square.apply, x)
    first, second = derivatives(Square.apply, leaf(3.0))
    same(first, 6.0)
    same(second, 2.0)


def test_d3_saving_outputs() -> None:
    """Works."""
    x = leaf(1.0)
    assert gradcheck(Exponential.apply, x)
    assert gradgradcheck(Exponential.apply, x)
    once = np.exp(1.0)
    twice = derivatives(lambda x: Exponential.apply(Exponential.apply(x)), x)[1]
    same(twice, np.exp(once) * (once + once**2))


def test_d4_saving_intermediates_that_are_outputs() -> None:
    """Works."""

    class Sinh(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            up, down = torch.exp(x), torch.exp(-x)
            ctx.save_for_backward(up, down)
            return (up - down) / 2, up, down

        @staticmethod
        def backward(ctx: Any, ct: Any, ct_up: Any, ct_down: Any) -> Any:
            up, down = ctx.saved_tensors
            return ct * (up + down) / 2 + ct_up * up - ct_down * down

    def sinh(x: Any) -> Any:
        return Sinh.apply(x)[0]

    x = leaf(1.0)
    first, second = derivatives(sinh, x)
    same(first, np.cosh(1.0))
    same(second, np.sinh(1.0))
    assert abs(first.item() - 1.5430806) < 1e-7
    assert abs(second.item() - 1.1752012) < 1e-7
    assert gradcheck(sinh, x)
    assert gradgradcheck(sinh, x)


class SinhBad(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.up, ctx.down = torch.exp(x), torch.exp(-x)
        return (ctx.up - ctx.down) / 2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * (ctx.up + ctx.down) / 2


@pytest.mark.parametrize("function", [SinhBad, SinhBySaved])
def test_d5_saving_intermediates(function: Any) -> None:
    """Differs: second derivatives are right, where PyTorch's are missing or, when mixed, wrong."""

    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.double = 2 * x
            ctx.save_for_backward(x)
            return 2 * x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * (ctx.double + 2 * ctx.saved_tensors[0])

    x = leaf(1.0)
    first, second = derivatives(function.apply, x)
    assert first.requires_grad
    same(first, np.cosh(1.0))
    same(second, np.sinh(1.0))
    assert gradgradcheck(function.apply, x)
    first, second = derivatives(Mixed.apply, x)
    same(first, 4.0)
    same(second, 4.0)


def test_d6_backward_as_a_function() -> None:
    """Works."""
    called: list[str] = []

    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return CubeBackward.apply(ct, ctx.saved_tensors[0])

    class CubeBackward(Function):
        @staticmethod
        def forward(ctx: Any, ct: Any, x: Any) -> Any:
            ctx.save_for_backward(ct, x)
            return ct * 3 * x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            called.append("second")
            saved, x = ctx.saved_tensors
            return ct * 3 * x**2, ct * saved * 6 * x

    x = leaf(2.0)
    first, second = derivatives(Cube.apply, x)
    same(first, 12.0)
    same(second, 12.0)
    assert called
    assert gradcheck(Cube.apply, x)
    assert gradgradcheck(Cube.apply, x)


def test_d7_pictures() -> None:
    """Differs: no package is needed: programs draw themselves, as text, for Graphviz and in SVG."""
    program = ftrans.trace(Square.apply)(np.array(3.0))
    assert "mul(" in str(program)
    dot = program.to_dot()
    assert dot.startswith("digraph")
    assert "n0 -> n1" in dot
    assert program.to_svg().startswith("<svg")
    node = Square.apply(leaf(3.0)).grad_fn
    assert node.name() == "SquareBackward"
    assert node.next_functions[0][0].variable.item() == 3.0
