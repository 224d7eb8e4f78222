"""The code of PyTorch's note "Extending torch.func with autograd.Function", with two bugs mended.

Its second `NumpySort.backward` uses names that are not there, and its `NumpyTake.vmap` counts the
dimensions of a batch by the place of the mapped one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from tests.helpers import assert_close


def to_numpy(tensor: Any) -> np.ndarray:
    return tensor.cpu().numpy()


class NumpySort(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, dim: int) -> Any:
        device = x.device
        x = to_numpy(x)
        ind = np.argsort(x, axis=dim)
        ind_inv = np.argsort(ind, axis=dim)
        result = np.take_along_axis(x, ind, axis=dim)
        return (
            torch.tensor(result, device=device),
            torch.tensor(ind, device=device),
            torch.tensor(ind_inv, device=device),
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, dim = inputs
        _, ind, ind_inv = output
        ctx.mark_non_differentiable(ind, ind_inv)
        ctx.save_for_backward(ind, ind_inv)
        ctx.dim = dim

    @staticmethod
    def backward(ctx: Any, grad_output: Any, _0: Any, _1: Any) -> Any:
        ind, ind_inv = ctx.saved_tensors
        return NumpyTake.apply(grad_output, ind_inv, ind, ctx.dim), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, dim: int) -> Any:
        x_bdim, _ = in_dims
        x = x.movedim(x_bdim, 0)
        dim = dim if dim >= 0 else dim + x.dim() - 1
        return NumpySort.apply(x, dim + 1), (0, 0, 0)


class NumpyTake(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, ind: Any, ind_inv: Any, dim: int) -> Any:
        device = x.device
        x = to_numpy(x)
        ind = to_numpy(ind)
        return torch.tensor(np.take_along_axis(x, ind, dim), device=device)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ind, ind_inv, dim = inputs
        ctx.save_for_backward(ind, ind_inv)
        ctx.dim = dim

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        ind, ind_inv = ctx.saved_tensors
        result = NumpyTake.apply(grad_output, ind_inv, ind, ctx.dim)
        return result, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, ind: Any, ind_inv: Any, dim: int) -> Any:
        x_bdim, ind_bdim, ind_inv_bdim, _ = in_dims
        logical_dim = x.dim() if x_bdim is None else x.dim() - 1
        dim = dim if dim >= 0 else dim + logical_dim

        def maybe_expand_bdim_at_front(x: Any, x_bdim: int | None) -> Any:
            if x_bdim is None:
                return x.expand(info.batch_size, *x.shape)
            return x.movedim(x_bdim, 0)

        x = maybe_expand_bdim_at_front(x, x_bdim)
        ind = maybe_expand_bdim_at_front(ind, ind_bdim)
        ind_inv = maybe_expand_bdim_at_front(ind_inv, ind_inv_bdim)
        return NumpyTake.apply(x, ind, ind_inv, dim + 1), 0


def numpy_sort(x: Any, dim: int = -1) -> Any:
    result, _, _ = NumpySort.apply(x, dim)
    return result


class MyCube(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        (x,) = inputs
        _, dx = output
        ctx.save_for_backward(x, dx)

    @staticmethod
    def backward(ctx: Any, grad_output: Any, grad_dx: Any) -> Any:
        x, dx = ctx.saved_tensors
        return grad_output * dx + grad_dx * 6 * x


class MyMappedCube(MyCube):
    generate_vmap_rule = True


def my_cube(x: Any) -> Any:
    result, _ = MyCube.apply(x)
    return result


def test_gradient_of_a_sort_by_numpy() -> None:
    x = torch.randn(2, 3)
    grad_x = torch.func.grad(lambda x: numpy_sort(x).sum())(x)
    assert torch.allclose(grad_x, torch.ones_like(x))


def test_gradient_tells_where_each_element_went() -> None:
    # the sum of all elements has the same gradient whatever `backward` permutes
    x = torch.randn(2, 3)
    weights = torch.tensor([1.0, 10.0, 100.0])
    found = torch.func.grad(lambda x: (weights * numpy_sort(x)).sum())(x)
    places = np.argsort(np.argsort(x.numpy(), axis=-1), axis=-1)
    assert_close(found.numpy(), 10.0**places)


def test_second_order_gradients_of_a_cube() -> None:
    x = torch.randn([])
    ggx = torch.func.grad(torch.func.grad(my_cube))(x)
    assert torch.allclose(ggx, 6 * x)


def test_generated_vmap_rule() -> None:
    x = torch.randn(3)
    result = torch.vmap(lambda x: MyMappedCube.apply(x)[0])(x)
    assert torch.allclose(result, x**3)


def test_vmap_staticmethod() -> None:
    x = torch.randn(2, 3)
    result = torch.vmap(numpy_sort)(x)
    assert torch.allclose(result, numpy_sort(result, 1))
    assert_close(result.numpy(), np.sort(x.numpy(), axis=1))


@pytest.mark.parametrize("in_dim", [0, 1])
def test_per_sample_gradients_through_vmap_staticmethods(in_dim: int) -> None:
    x = torch.randn(4, 5)
    weights = torch.arange(float(x.shape[1 - in_dim]))
    each = torch.func.grad(lambda row: (weights * numpy_sort(row)).sum())
    found = torch.vmap(each, in_dims=in_dim)(x)
    rows = x.numpy() if in_dim == 0 else x.numpy().T
    assert_close(found.numpy(), np.argsort(np.argsort(rows, axis=1), axis=1).astype(np.float32))


def test_tensors_go_backward_through_them() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    weights = torch.tensor([1.0, 10.0, 100.0])
    (weights * numpy_sort(x)).sum().backward()
    places = np.argsort(np.argsort(x.detach().numpy(), axis=-1), axis=-1)
    assert_close(x.grad.numpy(), 10.0**places)
