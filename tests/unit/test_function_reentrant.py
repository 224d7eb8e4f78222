"""Functions whose methods go backward themselves: through a part of their own, as PyTorch's may.

The numbers are those of the same programs run by PyTorch.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import GraphError, MissingRuleError, RuleError
from tests.helpers import assert_close

CONTAINERS = [np.asarray, jnp.asarray]


class Squares(Function):
    """Is the sum of squares, whose gradient comes of a graph that is made in `backward`."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x * x).sum()

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = (x * x).sum()
        (slope,) = torch.autograd.grad(y, x, ct)
        return slope


class SquaresAhead(Function):
    """Is the same, whose gradient is found in `forward`."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with torch.enable_grad():
            x = x.detach()
            x.requires_grad = True
            y = (x * x).sum()
            (slope,) = torch.autograd.grad(y, x)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ctx.saved_tensors[0] * ct


class SquaresKept(Function):
    """Is the same, whose graph is made in `forward`, and kept on the context."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = (ctx.x * ctx.x).sum()
        return ctx.y.detach()

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        ctx.y.backward(ct)
        return ctx.x.grad


def leaf(*values: float) -> Any:
    return torch.tensor(list(values), requires_grad=True)


@pytest.mark.parametrize("function", [Squares, SquaresAhead, SquaresKept])
def test_steps_on_the_tape(function: Any) -> None:
    x = leaf(1.0, -2.0)
    for _ in range(5):
        (function.apply(x * 1) / 2).backward()
        with torch.no_grad():
            x -= 0.1 * x.grad
        x.grad = None
    assert_close(x.numpy(force=True), np.float32([1.0, -2.0]) * np.float32(0.9) ** 5, 1e-6)


@pytest.mark.parametrize("make", CONTAINERS)
@pytest.mark.parametrize("function", [Squares, SquaresAhead, SquaresKept])
def test_under_transforms_with_values(function: Any, make: Any) -> None:
    x = make(np.array([1.0, 3.0]))
    assert_close(function.apply(x), 10.0)
    assert_close(func.grad(lambda x: function.apply(x) ** 2)(x), [40.0, 120.0])
    assert_close(func.vjp(function.apply, x)[1](make(np.array(3.0)))[0], [6.0, 18.0])


@pytest.mark.parametrize("function", [Squares, SquaresAhead])
@pytest.mark.filterwarnings("ignore:.*vmap calls it")
def test_under_transforms_without_values(function: Any) -> None:
    x = np.array([1.0, 3.0])
    assert_close(ftrans.jit(func.grad(function.apply))(x), 2 * x)
    assert_close(func.vmap(func.grad(function.apply))(np.stack([x, 2 * x])), [2 * x, 4 * x])
    assert_close(func.jacrev(function.apply)(x), 2 * x)

    def repeated(x: Any) -> Any:
        return ftrans.scan(lambda y, _: (y * function.apply(x), None), 1.0, None, length=3)[0]

    assert_close(func.grad(repeated)(x), 3 * 10.0**2 * 2 * x)
    assert torch.autograd.gradcheck(function.apply, leaf(1.0, 2.0).double())


def test_a_graph_on_the_context_is_used_once_and_for_one_call() -> None:
    x = leaf(1.0, 2.0)
    y = SquaresKept.apply(x)
    y.backward(retain_graph=True)
    with pytest.raises(GraphError, match="backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuleError, match=r"ctx\.x: Tensor"):
        ftrans.jit(func.grad(SquaresKept.apply))(np.ones(2))


def test_second_derivatives_are_an_error() -> None:
    x = leaf(1.0, 2.0)
    (slope,) = torch.autograd.grad(Squares.apply(x), x, create_graph=True)
    assert_close(slope.numpy(force=True), [2.0, 4.0])
    with pytest.raises(MissingRuleError, match="goes backward itself, and is differentiated again"):
        slope.sum().backward()
    with pytest.raises(MissingRuleError, match=r"Squares: its jvp is asked for"):
        func.jvp(Squares.apply, (np.ones(2),), (np.ones(2),))


def test_checkpointing_as_written_for_pytorch() -> None:
    class Checkpoint(Function):
        @staticmethod
        def forward(ctx: Any, function: Any, *args: Any) -> Any:
            ctx.function = function
            ctx.save_for_backward(*args)
            with torch.no_grad():
                return function(*args)

        @staticmethod
        def backward(ctx: Any, *cts: Any) -> Any:
            inputs = [x.detach().requires_grad_(True) for x in ctx.saved_tensors]
            with torch.enable_grad():
                outputs = ctx.function(*inputs)
            torch.autograd.backward(outputs, cts)
            return (None, *[x.grad for x in inputs])

    def slopes(around: Any) -> Any:
        weights, x = torch.tensor([[0.1, 0.2], [0.3, -0.5]], requires_grad=True), leaf(1.0, 2.0)
        y = x * 2
        for _ in range(3):
            y = around(lambda y: torch.tanh(weights @ y), y)
        y.sum().backward()
        return x.grad.numpy(), weights.grad.numpy()

    found, expected = slopes(Checkpoint.apply), slopes(lambda f, x: f(x))
    assert_close(found[0], expected[0], 1e-5)
    assert_close(found[1], expected[1], 1e-5)


def test_what_is_closed_over_gets_gradients_of_its_own() -> None:
    weight = leaf(2.0)

    class Loaded(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                (weight * x).sum().backward()
            return ct * 2 + x.grad

    x = leaf(1.0)
    Loaded.apply(x).sum().backward()
    assert_close(x.grad.numpy(), [4.0])
    assert_close(weight.grad.numpy(), [1.0])


def test_many_levels() -> None:
    class Countdown(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            Countdown.calls += 1
            if ctx.x < 0:
                return ct
            with torch.enable_grad():
                Countdown.apply(ctx.x).sum().backward()
            return ct

    x = leaf(30.5)
    Countdown.apply(x).sum().backward()
    assert_close(x.grad.numpy(), [1.0])
    assert Countdown.calls >= 31  # tracing a rule calls it, too


def test_an_error_inside_is_raised_and_leaves_nothing_open() -> None:
    class Inner(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            raise ValueError("inside")

    class Outer(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            with torch.enable_grad():
                Inner.apply(leaf(1.0) * 2).sum().backward()
            return ct

    x = leaf(1.0)
    with pytest.raises(ValueError, match="inside"):
        Outer.apply(x).sum().backward()
    (x * 2).sum().backward()
    assert_close(x.grad.numpy(), [2.0])


def test_what_is_written_in_place_and_marked() -> None:
    class Cubed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with torch.enable_grad():
                inner = x.detach().clone().requires_grad_(True)
                (slope,) = torch.autograd.grad((inner**3).sum(), inner)
            ctx.save_for_backward(slope)
            x.mul_(0).add_((inner**3).detach())
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ctx.saved_tensors[0] * ct

    x = leaf(1.0, -2.0)
    y = x * 1
    Cubed.apply(y)
    (y * 2).sum().backward()
    assert_close(y.numpy(force=True), [1.0, -8.0])
    assert_close(x.grad.numpy(), [6.0, 24.0])


def test_only_the_gradients_that_are_needed() -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x @ y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            inner = [
                x.detach().requires_grad_(needed)
                for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)
            ]
            with torch.enable_grad():
                z = inner[0] @ inner[1]
            slopes = iter(torch.autograd.grad(z, [x for x in inner if x.requires_grad], ct))
            return tuple(next(slopes) if x.requires_grad else None for x in inner)

    x = torch.tensor([[1.0, -2.0], [2.0, 2.0]])
    y = torch.tensor([[1.0, -2.0], [2.0, 2.0]], requires_grad=True)
    Product.apply(x, y).sum().backward()
    assert_close(y.grad.numpy(), [[3.0, 3.0], [0.0, 0.0]])


def test_arrays_in_containers_on_the_context_are_tensors_too() -> None:
    class Checkpoint(Function):
        @staticmethod
        def forward(ctx: Any, function: Any, *args: Any) -> Any:
            ctx.function, ctx.inputs = function, {"first": list(args)}
            with torch.no_grad():
                return function(*args)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            inputs = [x.detach().requires_grad_() for x in ctx.inputs["first"]]
            with torch.enable_grad():
                output = ctx.function(*inputs)
            return None, *torch.autograd.grad(output, inputs, ct)

    x, y = leaf(1.0, 2.0), leaf(3.0, -1.0)
    Checkpoint.apply(lambda x, y: x * x * y, x, y).sum().backward()
    assert_close(x.grad.numpy(), [6.0, -4.0])
    assert_close(y.grad.numpy(), [1.0, 4.0])
