"""`Function` under `torch.func`, row by row of what PyTorch's documents name: E1 to E10."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from tests.torch_suite.common import Square, same

Function = torch.autograd.Function
grad, vmap, jacrev, jvp = torch.func.grad, torch.func.vmap, torch.func.jacrev, torch.func.jvp


class Cube(Function):
    """Returns the cube, and its slope as a second result, so that it can be saved."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, ct: Any, ct_slope: Any) -> Any:
        x, slope = ctx.saved_tensors
        return ct * slope + ct_slope * 6 * x


def on_host(x: Any) -> Any:
    return x.detach().cpu().numpy()


class SortByNumPy(Function):
    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        array = on_host(x)
        order = np.argsort(array, axis=dim)
        inverse = np.argsort(order, axis=dim)
        found = np.take_along_axis(array, order, axis=dim)
        return tuple(torch.tensor(a, device=x.device) for a in (found, order, inverse))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, order, inverse = output
        ctx.mark_non_differentiable(order, inverse)
        ctx.save_for_backward(order, inverse)
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx: Any, ct: Any, _order: Any, _inverse: Any) -> Any:
        order, inverse = ctx.saved_tensors
        return TakeByNumPy.apply(ct, inverse, order, ctx.dim), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, dim: int) -> Any:
        x = x.movedim(in_dims[0], 0)
        return SortByNumPy.apply(x, dim % (x.dim() - 1) + 1), (0, 0, 0)


class TakeByNumPy(Function):
    @staticmethod
    def forward(x: Any, order: Any, inverse: Any, dim: int) -> Any:
        return torch.tensor(np.take_along_axis(on_host(x), on_host(order), axis=dim))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, order, inverse, ctx.dim = inputs
        ctx.save_for_backward(order, inverse)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        order, inverse = ctx.saved_tensors
        return TakeByNumPy.apply(ct, inverse, order, ctx.dim), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, order: Any, inverse: Any, dim: int) -> Any:
        rank = x.dim() - (in_dims[0] is not None)
        arrays = [
            array.expand(info.batch_size, *array.shape) if at is None else array.movedim(at, 0)
            for array, at in zip((x, order, inverse), in_dims, strict=False)
        ]
        return TakeByNumPy.apply(*arrays, dim % rank + 1), 0


def times(x: Any) -> Any:
    """Makes a Function that multiplies by what it captures."""

    class Times(Function):
        @staticmethod
        def forward(y: Any) -> Any:
            return y * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * x

    return Times.apply


def test_e1_setup_context_is_not_required() -> None:
    """Differs: a forward that takes ctx works under transforms too, which is an error there."""
    same(grad(Square.apply)(torch.tensor(3.0)), 6.0)
    same(vmap(grad(Square.apply))(torch.tensor([3.0, 4.0])), [6.0, 8.0])
    same(grad(grad(Square.apply))(torch.tensor(3.0)), 2.0)


def test_e2_what_setup_context_saves() -> None:
    """Differs: what `setup_context` computes may be saved too; there grad of grad is then 0."""

    def cube(x: Any) -> Any:
        return Cube.apply(x)[0]

    same(grad(cube)(torch.tensor(2.0)), 12.0)
    same(grad(grad(cube))(torch.tensor(2.0)), 12.0)
    same(vmap(cube)(torch.tensor([1.0, 2.0, 3.0])), [1.0, 8.0, 27.0])

    class Sinh(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return (x.exp() - (-x).exp()) / 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0].exp(), (-inputs[0]).exp())

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            first, second = ctx.saved_tensors
            return ct * (first + second) / 2

    one = torch.tensor(1.0, dtype=torch.float64)
    same(grad(Sinh.apply)(one), np.cosh(1.0))
    same(grad(grad(Sinh.apply))(one), np.sinh(1.0))


def test_e3_sort_by_numpy() -> None:
    """Works."""

    def ordered(x: Any) -> Any:
        return SortByNumPy.apply(x, -1)[0]

    x = torch.tensor([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]])
    w = torch.tensor([1.0, 10.0, 100.0])
    expected = [[100.0, 1.0, 10.0], [100.0, 1.0, 10.0]]
    same(grad(lambda x: (ordered(x) * w).sum())(x), expected)
    same(vmap(grad(lambda x: (ordered(x) * w).sum()))(x), expected)
    same(vmap(ordered)(x), [[1.0, 2.0, 3.0], [7.0, 8.0, 9.0]])
    same(jacrev(ordered)(x[0]), [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


def test_e4_other_methods_are_transformable() -> None:
    """Differs: a backward in plain NumPy has no second derivative, an error and not undefined."""

    class Traced(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * ct

    class Opaque(Traced):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return torch.tensor(3 * on_host(x) ** 2 * on_host(ct))

    two = torch.tensor(2.0)
    same(grad(grad(Traced.apply))(two), 12.0)
    same(grad(Opaque.apply)(two), 12.0)
    with pytest.raises(RuntimeError, match=r"Opaque\.backward"):
        grad(grad(Opaque.apply))(two).item()

    class Slope(Square):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return torch.tensor(2 * x.numpy()) * ct

    three = torch.tensor(3.0)
    same(grad(Slope.apply)(three), 6.0)
    with pytest.raises(RuntimeError, match=r"Slope\.backward"):
        grad(grad(Slope.apply))(three).item()


def test_e5_captured_tensors() -> None:
    """Differs: what is captured is differentiated by transforms, which return 0, 3 and 0 there."""
    two, three = torch.tensor(2.0), torch.tensor(3.0)
    same(grad(lambda x: times(x)(two))(three), 2.0)
    same(grad(lambda x: times(x)(x))(three), 6.0)
    same(jvp(lambda x: times(x)(two), (three,), (torch.tensor(1.0),))[1], 2.0)
    x = torch.tensor(3.0, requires_grad=True)
    assert not times(x)(two).requires_grad
    y = torch.tensor(2.0, requires_grad=True)
    times(x)(y).backward()
    same(y.grad, 3.0)
    assert x.grad is None
    same(vmap(lambda x: times(x)(x))(torch.tensor([1.0, 2.0])), [1.0, 4.0])


def test_e6_attributes_of_ctx() -> None:
    """Works."""

    class Kept(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.x, ctx.double = inputs[0], inputs[0] * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2 * ctx.x * ct

    class Intermediate(Kept):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ctx.double * ct

    for function in (Kept.apply, Intermediate.apply):
        same(grad(function)(torch.tensor(3.0)), 6.0)
        same(grad(grad(function))(torch.tensor(3.0)), 2.0)


def test_e7_generate_vmap_rule() -> None:
    """Differs: it changes nothing, rules are always derived; NumPy inside is looped over."""

    class Generated(Cube):
        generate_vmap_rule = True

    class Plain(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return torch.tensor(on_host(x) ** 3)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    x = torch.tensor([1.0, 2.0, 3.0])
    same(vmap(lambda x: Generated.apply(x)[0])(x), [1.0, 8.0, 27.0])
    same(vmap(lambda x: Cube.apply(x)[0])(x), [1.0, 8.0, 27.0])
    with pytest.warns(RuntimeWarning, match=r"Plain\.forward: vmap calls it 3 times"):
        same(vmap(Plain.apply)(x), [1.0, 8.0, 27.0])


class Sum(Function):
    """Adds, and writes down what its rule for batches is told."""

    seen: list[Any] = []  # noqa: RUF012 (emptied by each test)

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        Sum.seen.append((info, in_dims))
        return x.movedim(in_dims[0], 0) + y, 0


def test_e8_vmap_staticmethod() -> None:
    """Works."""
    Sum.seen.clear()
    found = vmap(Sum.apply, (1, None), randomness="different")(torch.ones(2, 3), torch.ones(2))
    same(found, np.full((3, 2), 2.0))
    ((info, in_dims),) = Sum.seen
    assert info == torch.autograd.function.VmapInfo(batch_size=3, randomness="different")
    assert in_dims == (1, None)


@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_e9_info(randomness: str) -> None:
    """Works."""
    Sum.seen.clear()
    vmap(Sum.apply, (0, None), randomness=randomness)(torch.zeros(10), torch.tensor(1.0))
    ((info, _),) = Sum.seen
    assert info.batch_size == 10
    assert info.randomness == randomness
    assert info._fields == ("batch_size", "randomness")


def test_e10_in_dims_have_the_structure_of_the_arguments() -> None:
    """Works."""
    seen = []

    class Same(Function):
        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * 1, y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
            seen.append(in_dims)
            return (x, y), in_dims

    x, two = torch.tensor([1.0, 2.0, 3.0]), torch.tensor(2.0)
    first, (second, third) = vmap(Same.apply)(x, [x, x])
    assert seen[-1] == (0, [0, 0])
    for found in (first, second, third):
        same(found, x)
    vmap(lambda x: Same.apply(x, [two, x]))(x)
    assert seen[-1] == (0, [None, 0])
