"""Functions of tensors that are transformed: their methods mean what they mean when called.

Of plain arrays they mean what NumPy's do. The numbers are those of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans import Tensor, autograd, func, tensor
from ftrans.autograd import Function
from ftrans.errors import MissingAttributeError
from tests.helpers import assert_close

Q = [[1.0, 0.0], [2.0, 1.0]]

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "transpose": (lambda t: t.transpose(0, 1), [[1.0, 2.0], [0.0, 1.0]]),
    "transpose, from behind": (lambda t: t.transpose(-2, -1), [[1.0, 2.0], [0.0, 1.0]]),
    "var": (lambda t: t.var(0), [0.5, 0.5]),
    "std": (lambda t: t.var(), 2 / 3),
    "max": (lambda t: t.max(1)[0], [1.0, 2.0]),
    "min": (lambda t: t.min(dim=0, keepdim=True).values, [[1.0, 0.0]]),
    "max of two": (lambda t: t.max(t * 0 + 1), [[1.0, 1.0], [2.0, 1.0]]),
    "max of all": (lambda t: t.max(), 2.0),
    "repeat": (lambda t: t.repeat(1, 2), [[1.0, 0.0, 1.0, 0.0], [2.0, 1.0, 2.0, 1.0]]),
    "norm": (lambda t: t.norm(1), 4.0),
    "sort": (lambda t: t.sort(1)[0], [[0.0, 1.0], [1.0, 2.0]]),
    "argsort": (lambda t: t.argsort(1) * t, [[1.0, 0.0], [2.0, 0.0]]),
    "size": (lambda t: t * t.size(0), [[2.0, 0.0], [4.0, 2.0]]),
    "sum": (lambda t: t.sum(1, True), [[1.0], [3.0]]),
    "mean": (lambda t: t.mean(dim=0, keepdim=True), [[1.5, 0.5]]),
    "split": (lambda t: t.split(1)[1], [[2.0, 1.0]]),
    "chunk": (lambda t: torch.chunk(t, 2, 1)[0], [[1.0], [2.0]]),
    "unbind": (lambda t: t.unbind(1)[1], [0.0, 1.0]),
    "view_as": (lambda t: t.view_as(t).expand_as(t), Q),
    "gather": (lambda t: t.gather(1, t.argsort(1)), [[0.0, 1.0], [1.0, 2.0]]),
    "narrow": (lambda t: t.narrow(1, 0, 1).select(1, 0), [1.0, 2.0]),
    "new_zeros": (lambda t: t.new_zeros(2, 2) + t + t.new_full((2, 2), 3.0) - t.new_ones(2), None),
    "add": (lambda t: t.add(t, alpha=2.0).sub(t, alpha=0.5), [[2.5, 0.0], [5.0, 2.5]]),
    "to": (lambda t: t.to("cpu").to(torch.float64).type_as(t), Q),
    "flip": (lambda t: t.flip(1, 0), [[1.0, 2.0], [0.0, 1.0]]),
    "squeeze": (lambda t: t[None].squeeze(0, 1), Q),
    "is": (lambda t: t if isinstance(t, Tensor) and t.is_floating_point() else None, Q),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_method_means_the_same_in_all_ways(name: str) -> None:
    function, expected = FUNCTIONS[name]
    x = tensor(np.array(Q), requires_grad=True)
    direct = function(x)
    if expected is not None:
        assert_close(direct.detach(), expected)
    expected = direct.detach().numpy()
    assert_close(func.vmap(function)(x.detach()[None])[0], expected)
    value = func.vjp(function, x.detach())[0]
    assert_close(value, expected)
    (direct * direct).sum().backward()
    slope = func.grad(lambda t: (function(t) * function(t)).sum())(x.detach())
    assert_close(slope, x.grad)
    jacobian = autograd.functional.jacobian(function, x.detach())
    assert_close((jacobian * (2 * direct.detach()).reshape(*direct.shape, 1, 1)).reshape(
        -1, 2, 2).sum(0), x.grad)  # fmt: skip


def test_of_arrays_they_are_those_of_numpy() -> None:
    x = np.array(Q)
    assert_close(func.vmap(lambda t: t.var(0))(x[None])[0], x.var(0))
    assert_close(func.vmap(lambda t: t.transpose(0, 1))(x[None])[0], x.transpose(0, 1))
    assert_close(func.vmap(lambda t: t.max(1))(x[None])[0], x.max(1))
    assert_close(func.grad(lambda t: t.sum() * t.size)(x), np.full((2, 2), 4.0))
    with pytest.raises(MissingAttributeError, match=r"x\.reshape\(other\.shape\)"):
        func.grad(lambda t: t.view_as(t).sum())(x)


class Product(Function):
    """Has a backward as one writes it for PyTorch."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        a, b = ctx.saved_tensors
        return ct @ b.transpose(0, 1), a.transpose(0, 1) @ ct


def test_rules_of_functions() -> None:
    def leaves() -> Any:
        made = ([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
        return [tensor(np.array(x), requires_grad=True) for x in made]

    for _ in range(3):
        a, b = leaves()
        Product.apply(a, b).sum().backward()
        assert_close(a.grad, [[11.0, 15.0], [11.0, 15.0]])
        assert_close(b.grad, [[4.0, 4.0], [6.0, 6.0]])
    a, b = leaves()
    assert autograd.gradcheck(Product.apply, (a, b))
    assert autograd.gradgradcheck(Product.apply, [a, b])
    assert autograd.gradcheck(lambda x: x.sort(1)[0].var(), a)


def test_what_is_remembered_of_one_meaning_does_not_stand_for_the_other() -> None:
    class Spread(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.var()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * (x - x.mean())

    x = np.array([1.0, 2.0, 4.0])
    compiled = ftrans.jit(lambda x: x.var())
    for _ in range(3):
        for _ in range(3):
            assert_close(func.vjp(Spread.apply, x)[0], x.var())
            assert_close(compiled(x), x.var())
        for _ in range(3):
            assert_close(Spread.apply(tensor(x)), x.var(ddof=1))
            assert_close(func.vjp(Spread.apply, tensor(x))[0], x.var(ddof=1))
            assert_close(compiled(tensor(x)), x.var(ddof=1))


def test_an_error_leaves_the_meaning_as_it_was() -> None:
    x = tensor([1.0, 2.0])
    with pytest.raises(ZeroDivisionError):
        func.grad(lambda t: t.sum() / 0 if False else 1 / 0)(x)
    assert_close(func.vmap(lambda t: t.var())(np.array([[1.0, 2.0]])), [0.25])


@pytest.mark.parametrize(
    ("index", "shape", "first"),
    [
        ((1, slice(None), [0, 2]), (3, 2), [12, 14]),
        ((slice(None), 0, slice(None), [0, 2]), (2, 3, 2), [0, 2]),
        ((tensor(1), slice(None), [0, 2]), (3, 2), [12, 14]),
        ((1, slice(None), np.array([True, False, True, False])), (3, 2), [12, 14]),
        (([0, 1], 2, [0, 3]), (2,), 8),
        (([0, 1], slice(None), [0, 3]), (2, 3), [0, 4, 8]),
    ],
)
def test_numbers_in_an_index_take_axes_away_before_arrays_in_it_are_read(
    index: Any, shape: Any, first: Any
) -> None:
    """As in PyTorch; in NumPy a number beside an array is one, and its axes come first."""
    x = tensor(np.arange(24.0).reshape((2, 3, 4)))
    x = x.reshape(2, 1, 3, 4) if len(index) == 4 else x
    found = x[index]
    assert found.shape == shape
    row = found[0, 0] if len(index) == 4 else found[0]
    assert row.tolist() == first
    y = tensor(np.zeros(x.shape), requires_grad=True) * 1
    y[index] = found
    assert y[index].tolist() == found.tolist()
    slope = func.grad(lambda x: (x[index] * found).sum())(x)
    assert slope[index].tolist() == found.tolist()
