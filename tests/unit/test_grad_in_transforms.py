"""`autograd.grad` inside of a transform, of tensors outside: PyTorch's idiom for a Jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.autograd import Function, grad
from ftrans.errors import GraphError, ShapeError
from ftrans.func import grad as func_grad
from ftrans.func import jacfwd, jacrev, jvp, vmap
from tests.helpers import assert_close

VALUES = np.array([0.3, 0.7, 1.2])
EYE = np.eye(3)


@pytest.fixture
def x() -> Any:
    return torch.tensor(VALUES, requires_grad=True)


def rows(y: Any, x: Any, cts: Any = EYE, **options: Any) -> Any:
    """Returns the gradient for each of the cotangents."""
    options.setdefault("retain_graph", True)
    return vmap(lambda v: grad(y, x, v, **options)[0])(torch.tensor(cts))


def test_a_jacobian_by_rows(x: Any) -> None:
    jacobian = np.diag(np.cos(VALUES)) * VALUES.sum() + np.sin(VALUES)[:, None]
    assert_close(rows(torch.sin(x) * x.sum(), x), jacobian)


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0])
def test_a_graph_that_is_another_each_time(x: Any, scale: float) -> None:
    def jacobian(v: Any) -> Any:
        return grad(y, x, v, retain_graph=True)

    for power in (2, 3):
        y = scale * x**power
        found = vmap(jacobian)(torch.tensor(EYE))
        assert_close(found[0], np.diag(scale * power * VALUES ** (power - 1)))


def test_through_several_parts_of_a_graph(x: Any) -> None:
    z = x * 2.0
    assert z.sum().item() == pytest.approx(2 * VALUES.sum())  # it is run here
    y = z**2
    assert_close(rows(y, z), np.diag(4 * VALUES))
    assert_close(rows(y, x), np.diag(8 * VALUES))


def test_what_is_pending_is_found(x: Any) -> None:
    a = x * 2.0
    b = a.sin()
    y = b.sum() * x
    found = vmap(lambda v: grad(y, (x, a, b), v, retain_graph=True))(torch.tensor(EYE))
    slope = np.outer(VALUES, np.cos(2 * VALUES))
    assert_close(found[0], np.eye(3) * np.sin(2 * VALUES).sum() + 2 * slope)
    assert_close(found[1], slope)
    assert_close(found[2], np.outer(VALUES, np.ones(3)))
    y.sum().backward()
    assert_close(x.grad, found[0].numpy().sum(0))


def test_rows_along_another_axis_in_part_and_nested(x: Any) -> None:
    y = x**2
    row = lambda v: grad(y, x, v, retain_graph=True)[0]  # noqa: E731
    cts = np.arange(9.0).reshape(3, 3)
    assert_close(vmap(row, in_dims=1, out_dims=1)(torch.tensor(cts)), 2 * VALUES[:, None] * cts)
    assert_close(vmap(row, chunk_size=2)(torch.tensor(cts)), 2 * VALUES * cts)
    found = vmap(vmap(row))(torch.tensor(np.stack([cts, -cts])))
    assert_close(found, np.stack([2 * VALUES * cts, -2 * VALUES * cts]))


def test_the_rows_can_be_differentiated_in_turn(x: Any) -> None:
    jacobian = rows(x**3, x, create_graph=True)
    assert jacobian.requires_grad
    assert_close(grad(jacobian.sum(), x)[0], 6 * VALUES)
    assert not rows(x**3, x).requires_grad


def test_derivatives_by_the_cotangent(x: Any) -> None:
    y = x**2
    slope = lambda v: grad(y, x, v, retain_graph=True, create_graph=True)[0]  # noqa: E731
    v = torch.tensor(np.array([1.0, 2.0, 3.0]))
    found = func_grad(lambda v: (slope(v) ** 2).sum())(v)
    assert_close(found.detach(), 8 * VALUES**2 * [1, 2, 3])
    assert_close(grad(found.sum(), x)[0], 16 * VALUES * [1, 2, 3])
    assert_close(jvp(slope, (v,), (v,))[1].detach(), 2 * VALUES * [1, 2, 3])
    # without a graph what it is taken of is a constant, and the cotangent is not
    both = lambda v: (v * grad(y, x, v, retain_graph=True)[0]).sum()  # noqa: E731
    found = func_grad(both)(v)
    assert_close(found, 4 * VALUES * [1, 2, 3])
    assert not found.requires_grad
    row = lambda v: grad(y, x, v, retain_graph=True)[0]  # noqa: E731
    assert_close(jvp(row, (v,), (v,))[1], 2 * VALUES * [1, 2, 3])
    assert_close(jacfwd(row)(v), np.diag(2 * VALUES))
    assert_close(jacrev(row)(v), np.diag(2 * VALUES))


def test_nothing_of_it_is_traced(x: Any) -> None:
    found = vmap(lambda v: v * grad((x**2).sum(), x)[0])(torch.tensor(EYE))
    assert_close(found, np.diag(2 * VALUES))


def test_what_is_made_inside_of_tensors_outside(x: Any) -> None:
    found = vmap(lambda v: grad((x * 3).sin(), x, v)[0])(torch.tensor(EYE))
    assert_close(found, np.diag(3 * np.cos(3 * VALUES)))


def test_hooks_are_called_once_for_all(x: Any) -> None:
    calls = []
    w = x.exp()
    w.register_hook(lambda g: calls.append(1) or g * 2)
    assert_close(rows(w * x, x), np.diag(np.exp(VALUES) * (1 + 2 * VALUES)))
    assert len(calls) == 1


def test_a_kept_gradient_stays_out_of_it(x: Any) -> None:
    w = x.exp()
    w.retain_grad()
    assert_close(rows(w * w, x), np.diag(2 * np.exp(2 * VALUES)))
    assert w.grad is None


def test_a_function_of_the_users(x: Any) -> None:
    class Thrice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.exp() * x.sum().item()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * x.exp() * 3

    assert_close(rows(Thrice.apply(x), x), np.diag(3 * np.exp(VALUES)))


def test_several_outputs_and_what_is_not_used(x: Any) -> None:
    y, other = x.exp(), torch.ones(2, requires_grad=True)
    both = vmap(lambda v: grad([y, (y * 2).sum()], x, [v, None], retain_graph=True)[0])
    assert_close(both(torch.tensor(EYE)), np.diag(np.exp(VALUES)) + 2 * np.exp(VALUES))
    found = vmap(lambda v: grad(y, [x, other], v, retain_graph=True, materialize_grads=True))
    assert_close(found(torch.tensor(EYE))[1], np.zeros((3, 2)))
    with pytest.raises(GraphError, match="appears to not have been used"):
        rows(y, other)


def test_the_graph_is_freed(x: Any) -> None:
    y = x.exp()
    rows(y, x, retain_graph=False)
    with pytest.raises(GraphError, match="a second time"):
        rows(y, x)


def test_other_shapes_are_refused(x: Any) -> None:
    with pytest.raises(ShapeError, match="Mismatch in shape"):
        rows(x.exp(), x, np.eye(2))


def test_what_is_traced_has_no_graph(x: Any) -> None:
    with pytest.raises(GraphError, match="whose values have no graph"):
        vmap(lambda v: grad((x * v).sum(), x)[0])(torch.tensor(EYE))
    with pytest.raises(GraphError, match="whose values have no graph"):
        vmap(lambda v: x.exp().backward(v))(torch.tensor(EYE))
