"""What these tests share: tensors of float64, and functions that several of them apply."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans import Tensor, tensor
from ftrans.autograd import Function


def leaf(values: Any) -> Tensor:
    return tensor(values, dtype="float64", requires_grad=True)


def constant(values: Any) -> Tensor:
    return tensor(values, dtype="float64")


def same(found: Any, expected: Any) -> None:
    """Raises unless both have one shape and values that agree to float64."""
    found, expected = (x.detach() if isinstance(x, Tensor) else x for x in (found, expected))
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9, atol=1e-12)


def unchanged(value: Any) -> Any:
    return value


def twice(value: Any) -> Any:
    return value * 2


class Identity(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct


class Exponential(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (result,) = ctx.saved_tensors
        return ct * result


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


class Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, y = ctx.saved_tensors
        return ct * y, ct * x


class Returned(Function):
    """Returns its argument itself; its rule says otherwise."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * 2


class SinhBySaved(Function):
    """Saves what it computes in between, whose derivatives are its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        up, down = x.exp(), (-x).exp()
        ctx.save_for_backward(up, down)
        return (up - down) / 2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        up, down = ctx.saved_tensors
        return ct * (up + down) / 2
