"""The methods of a Function and how it is called, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.torch import func
from tests.torch_suite.common import Product, Square, constant, leaf, same

Function = torch.autograd.Function
fw_ad = torch.autograd.forward_ad

CLOSED_OVER = torch.tensor(1.0)


class F2(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: int, y: Any) -> Any:
        ctx.k = k
        return (x + k * y + x * y) * CLOSED_OVER

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct, None, ct * ctx.k


class F1(F2):
    @staticmethod
    def forward(ctx: Any, x: Any, k: int, y: Any) -> Any:
        ctx.k = k
        return x + k * y + x * y


def tangent_of(f: Any, x: Any) -> Any:
    with fw_ad.dual_level():
        return fw_ad.unpack_dual(f(fw_ad.make_dual(x, torch.ones_like(x)))).tangent


def test_c1_function() -> None:
    """Works."""

    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            result = x.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (result,) = ctx.saved_tensors
            return ct * result

    x = leaf(1.0)
    Exp.apply(x).backward()
    same(x.grad, np.exp(1.0))
    with pytest.warns(DeprecationWarning, match="Exp: a Function is not instantiated"):
        instance = Exp()
    with pytest.raises(RuntimeError, match=r"Write Exp\.apply\(\.\.\.\)"):
        instance(1)


@pytest.mark.parametrize(
    "function",
    [
        F1,
        F2,
    ],
)
def test_c2_apply(function: Any) -> None:
    """Works."""
    name = f"{function.__name__}Backward"
    assert F1.apply(2, 2, 3) == 14
    x = leaf(2.0)
    result = function.apply(x, 2, constant(3.0))
    same(result, 14.0)
    assert result.grad_fn.name() == name
    by_names = function.apply(x, y=constant(3.0), k=2)
    same(by_names, 14.0)
    by_names.backward()
    same(x.grad, 1.0)
    assert by_names.grad_fn.name() == name


def test_c3_forward_with_a_context() -> None:
    """Differs: it can be used with every transform."""

    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, t1: Any, t2: Any, scale: int, t3: Any) -> Any:
            ctx.scale = scale
            ctx.save_for_backward(t1, t2, t3)
            return scale, scale * (t1 + t2 * t3), None, True, scale * (t1 * t2 + t3), "bar", t1

        @staticmethod
        def backward(ctx: Any, *cts: Any) -> Any:
            assert [cts[i] for i in (0, 2, 3, 5)] == [None] * 4
            t1, t2, t3 = ctx.saved_tensors
            ct4, ct5 = cts[1] * ctx.scale, cts[4] * ctx.scale
            return ct4 + ct5 * t2 + cts[6], ct4 * t3 + ct5 * t1, None, ct4 * t2 + ct5

    a, b, c = leaf([2.0]), leaf([3.0]), leaf([5.0])
    results = Mixed.apply(a, b, 10, c)
    assert [results[i] for i in (0, 2, 3, 5)] == [10, None, True, "bar"]
    same(results[1], [170.0])
    same(results[4], [110.0])
    same(results[6], [2.0])
    (results[1] + results[4] + results[6]).sum().backward()
    same(a.grad, [41.0])
    same(b.grad, [70.0])
    same(c.grad, [40.0])
    same(func.vmap(func.grad(Square.apply))(constant([1.0, 3.0])), [2.0, 6.0])


def test_c4_setup_context() -> None:
    """Differs: what `setup_context` computes is a part of higher derivatives."""
    seen: list[Any] = []

    class K(Function):
        @staticmethod
        def forward(x: Any, k: int = 2) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            seen.append((len(inputs), inputs[1]))
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.k, None

    x = leaf(3.0)
    same(K.apply(x), 6.0)
    same(K.apply(x, k=5), 15.0)
    assert seen == [(2, 2), (2, 5)]
    same(torch.autograd.grad(K.apply(x, 5), x)[0], 5.0)

    class Computes(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(2 * inputs[0])

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.saved_tensors[0]

    (slope,) = torch.autograd.grad(Computes.apply(x), x, create_graph=True)
    same(slope, 6.0)
    same(torch.autograd.grad(slope, x)[0], 2.0)


def test_c5_backward_and_vjp() -> None:
    """Works."""

    class Forward(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Vjp(Forward):
        @staticmethod
        def vjp(ctx: Any, ct: Any) -> Any:
            return ct * 2

    class Both(Vjp):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2

    x = leaf(1.0)
    Vjp.apply(x).backward()
    same(x.grad, 2.0)
    with pytest.raises(RuntimeError, match="both backward and vjp are written"):
        Both.apply(x).backward()
    with pytest.raises(NotImplementedError, match="def backward"):
        Forward.apply(x).backward()


def test_c6_number_of_gradients() -> None:
    """Works."""

    def returning(*gradients: Any) -> Any:
        class WrongN(Product):
            @staticmethod
            def backward(ctx: Any, ct: Any) -> Any:
                return gradients

        return WrongN

    x, y = leaf(1.0), leaf(2.0)
    with pytest.raises(RuntimeError, match=r"WrongN\.backward[\s\S]*expected 2, got 1"):
        returning(1.0).apply(x, y).backward()
    with pytest.raises(RuntimeError, match="expected 2, got 3"):
        returning(1.0, 1.0, 1.0).apply(x, y).backward()
    returning(7.0, 8.0, None, None).apply(x, y).backward()
    same(x.grad, 7.0)
    same(y.grad, 8.0)


def test_c7_shapes_of_gradients() -> None:
    """Works."""

    def returning(*shape: int) -> Any:
        class Ones(Square):
            @staticmethod
            def backward(ctx: Any, ct: Any) -> Any:
                return torch.ones(*shape, dtype=torch.float64)

        return Ones

    x = leaf([1.0, 2.0])
    returning(4, 2).apply(x).sum().backward()
    same(x.grad, [4.0, 4.0])
    with pytest.raises(RuntimeError, match=r"gradient of x has the wrong shape[\s\S]*f64\[3\]"):
        returning(3).apply(x).sum().backward()


def test_c8_undefined_gradients() -> None:
    """Works. Transforms return zeros, as `func.grad` does of what does not depend."""

    class Nothing(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return None

    x, other = leaf(3.0), leaf(3.0)
    Nothing.apply(x**2).backward()
    Nothing.apply(x).backward()
    assert x.grad is None
    assert other.grad is None
    same(func.grad(lambda x: Nothing.apply(x**2))(constant(3.0)), 0.0)


def test_c9_jvp() -> None:
    """Differs: a jvp that is missing is derived from backward."""
    given: list[bool] = []

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int) -> Any:
            ctx.k = k
            ctx.save_for_forward(x, y)
            return k * x * y

        @staticmethod
        def jvp(ctx: Any, x_tangent: Any, y_tangent: Any, k_tangent: Any) -> Any:
            given.append(k_tangent is None)
            x, y = ctx.saved_tensors
            return ctx.k * (y * x_tangent + x * y_tangent)

    same(tangent_of(lambda x: Scaled.apply(x, leaf(2.0), 4), leaf(1.0)), 8.0)
    assert given == [True]
    same(tangent_of(Square.apply, leaf(3.0)), 6.0)


def test_c10_jvp_of_views_and_writes() -> None:
    """Differs: no memory is shared, so a jvp returns the tangents, and that is all."""

    class View(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view(-1)

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent.clone().view(-1)

    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x *= 2
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * 2

    same(tangent_of(View.apply, constant([[3.0], [4.0]])), [1.0, 1.0])
    same(tangent_of(Doubled.apply, constant([3.0])), [2.0])
