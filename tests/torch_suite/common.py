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
