"""Functions with a backward of their own: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ftrans import Tensor
from ftrans.autograd import Function, grad, gradcheck, once_differentiable
from tests.torch_suite.common import Exponential, Identity, constant, leaf, same

V = np.array([1.0, 2.0])


def test_function() -> None:
    class MyFunction(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scalar: float, y: Any) -> Any:
            ctx.scalar = scalar
            ctx.save_for_backward(x, y)
            return x + scalar * y + x * y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            x, y = ctx.saved_tensors
            return ct + ct * y, None, ct * ctx.scalar + ct * x

    values = np.arange(1.0, 5.0).reshape(2, 2)
    x, y = leaf(values), leaf(values + 1)
    result = MyFunction.apply(x, 2, y)
    (x_grad,) = grad(result.sum(), x, create_graph=True)
    same(x_grad, values + 2)
    (again,) = grad(x_grad.sum(), y, retain_graph=True)
    same(again, np.ones((2, 2)))
    result.sum().backward()
    same(x.grad, values + 2)
    same(y.grad, values + 2)


def test_once_differentiable() -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * 2 * x

    x = leaf(V)
    (first,) = grad(Once.apply(x).sum(), x, create_graph=True)
    same(first, 2 * V)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad(first.sum(), x)


def test_function_returns_input() -> None:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2

    for shape in ((1,), ()):
        v = leaf(np.ones(shape))
        Double.apply(v).backward(constant(np.ones(shape)))
        same(v.grad, np.full(shape, 2.0))


def test_mark_non_differentiable() -> None:
    class Positive(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            output = x > 0
            ctx.mark_non_differentiable(output)
            return output

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 0

    x = leaf([-1.0, 2.0])
    mask = Positive.apply(x)
    assert not mask.requires_grad
    (x * mask).sum().backward()
    same(x.grad, [0.0, 1.0])


def test_mark_non_differentiable_mixed() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            a, b = x + 1, x + 2
            ctx.mark_non_differentiable(a)
            return a, b

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return first * 100 + second

    x = leaf(V)
    a, b = Both.apply(x)
    assert b.requires_grad
    (a.sum() + b.sum()).backward()
    same(x.grad, [1.0, 1.0])


def test_save_none_for_backward() -> None:
    class Saves(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(None, x, None)
            return x * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            first, x, last = ctx.saved_tensors
            assert first is None
            assert last is None
            return ct * 2 * x

    x = leaf(V)
    Saves.apply(x).sum().backward()
    same(x.grad, 2 * V)


def test_too_many_grads() -> None:
    class Extra(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct, None, None

    x = leaf([1.0])
    Extra.apply(x).backward(constant([1.0]))
    same(x.grad, [1.0])


def test_set_materialize_grads() -> None:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return first * 5 if second is None else first

    x = leaf([1.0])
    first, _ = Two.apply(x)
    first.sum().backward()
    same(x.grad, [5.0])


def test_custom_function_no_tensors() -> None:
    class Plain(Function):
        @staticmethod
        def forward(ctx: Any, x: float, scalar: float, y: float) -> float:
            return x + scalar * y + x * y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct, None, ct

    assert Plain.apply(3.0, 2, 5.0) == 28.0


def test_custom_function_error() -> None:
    class NoForward(Function):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct

    class NoBackward(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

    with pytest.raises(NotImplementedError, match="forward"):
        NoForward.apply(leaf([1.0]))
    with pytest.raises(NotImplementedError, match="backward"):
        NoBackward.apply(leaf([1.0])).sum().backward()


def test_needs_input_grad() -> None:
    seen: list[tuple[bool, ...]] = []

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int) -> Any:
            return x * y * k

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return ct, None, None

    Product.apply(leaf([2.0]), constant([3.0]), 5).sum().backward()
    assert seen == [(True, False, False)]


def test_dep_nograd() -> None:
    class Masked(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mask = x < 1.5
            ctx.mark_non_differentiable(mask)
            ctx.save_for_backward(mask)
            return mask, x * mask

        @staticmethod
        def backward(ctx: Any, ct_mask: Any, ct: Any) -> Any:
            (mask,) = ctx.saved_tensors
            return ct * mask

    x = leaf(V)
    mask, masked = Masked.apply(x)
    assert not mask.requires_grad
    masked.sum().backward()
    same(x.grad, [1.0, 0.0])


def test_return_leaf_and_duplicate() -> None:
    class DoubleDuplicate(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            output = x * 2
            return output, output

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return first * 2 + second * 2

    x = leaf(V)
    first, second = DoubleDuplicate.apply(x)
    (first + second).sum().backward()
    same(x.grad, [4.0, 4.0])


def test_gradcheck_of_functions() -> None:
    x = leaf([0.3, 0.7])

    def both(x: Tensor) -> Tensor:
        return Exponential.apply(x) * Identity.apply(x)

    assert gradcheck(both, (x,))
