"""What shares memory in a transform of tensors: `detach`, `data`, views in place.

The numbers are PyTorch 2.13's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans import func
from ftrans.errors import MissingAttributeError
from tests.helpers import assert_close

X = np.array([1.0, 2.0, 3.0])
M = np.arange(6.0).reshape(2, 3)


def _doubled_detached(x: Any) -> Any:
    y = x * 1
    y.detach().mul_(2)
    return (y * x).sum()


def _seen_by_detached(x: Any) -> Any:
    y = x * 1
    d = y.detach()
    y.mul_(3)
    return (d * y).sum()


def _element_detached(x: Any) -> Any:
    y = x * 1
    y.detach()[0] = 7.0
    return (y**2).sum()


def _history_written_to_detached(x: Any) -> Any:
    y = x * 1
    d = y[1:].detach()
    d += x[:2]
    return (y**2).sum() + d.sum()


def _part_of_detached(x: Any) -> Any:
    y = x * 1
    y.detach()[1:].zero_()
    return (y**2 * x).sum()


def _detached_twice(x: Any) -> Any:
    y = x * 1
    d = y.detach()
    e = d.detach()
    e.add_(1)
    return (y * d * e * x).sum()


def _copied(x: Any) -> Any:
    y = x.clone()
    n = y.detach().clone()
    n.mul_(5)
    return (y * n).sum()


def _clamped_data(x: Any) -> Any:
    y = x * 2
    y.data.clamp_(max=3.0)
    return (y * x).sum()


def _element_of_data(x: Any) -> Any:
    y = x * 2
    y.data[0] = 1
    return (y * x).sum()


def _unsqueezed(x: Any) -> Any:
    y = x * 2
    v = y.unsqueeze(0)
    y.unsqueeze_(1)
    v.mul_(x)
    return (y[:, 0] * x).sum()


def _view_before(x: Any) -> Any:
    y = x * 2
    v = y[1:]
    y.unsqueeze_(0)
    v.mul_(x[1:])
    return (y[0] * x).sum() + float(y.ndim)


def _back_and_forth(x: Any) -> Any:
    y = x * 2
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.mul_(x)
    return y.sum()


def _view_then_base(x: Any) -> Any:
    y = x * 1
    v = y.view(-1)
    v.unsqueeze_(0)
    y.unsqueeze_(0)
    v[0] = x * 2
    y.mul_(x)
    return (y * y).sum() + v.sum()


def _under_no_grad(x: Any) -> Any:
    y = x * 1
    with torch.no_grad():
        y.unsqueeze_(0)
    return (y * x).sum()


def _detached_then_squeezed(x: Any) -> Any:
    y = x * 1
    y.unsqueeze_(0)
    d = y.detach()
    y.squeeze_(0)
    d.mul_(3)
    return (y * x).sum()


def _turned(m: Any) -> Any:
    y = m * 1
    r = y[0]
    y.transpose_(0, 1)
    y[0].mul_(2)
    r.add_(1)
    return (y @ m).sum() + r.sum()


def _turned_alias(m: Any) -> Any:
    y = m * 1
    z = y
    y.swapaxes_(0, 1)
    return (z @ m).sum()


CASES = [
    pytest.param(_doubled_detached, X, 28, [3, 6, 9], id="detached"),
    pytest.param(_seen_by_detached, X, 126, [9, 18, 27], id="seen by what is detached"),
    pytest.param(_element_detached, X, 62, [14, 4, 6], id="an element"),
    pytest.param(_history_written_to_detached, X, 43, [3, 7, 10], id="a history"),
    pytest.param(_part_of_detached, X, 1, [3, 0, 0], id="a part of it"),
    pytest.param(_detached_twice, X, 254, [12, 45, 112], id="twice"),
    pytest.param(_copied, X, 70, [5, 10, 15], id="copied"),
    pytest.param(_clamped_data, X, 17, [4, 7, 9], id="data"),
    pytest.param(_element_of_data, X, 27, [3, 8, 12], id="an element of data"),
    pytest.param(_unsqueezed, X, 72, [6, 24, 54], id="unsqueeze_"),
    pytest.param(_view_before, X, 74, [4, 24, 54], id="a view that was there"),
    pytest.param(_back_and_forth, X, 28, [4, 8, 12], id="squeeze_"),
    pytest.param(_view_then_base, X, 420, [20, 136, 444], id="a view, then its base"),
    pytest.param(_under_no_grad, X, 14, [2, 4, 6], id="under no_grad"),
    pytest.param(_detached_then_squeezed, X, 42, [4, 8, 12], id="detached, then squeeze_"),
    pytest.param(_turned, M, 204, [[14, 10, 10], [39, 27, 27]], id="transpose_"),
    pytest.param(_turned_alias, M, 153, [[6, 6, 6], [24, 24, 24]], id="swapaxes_"),
]


@pytest.mark.parametrize(("f", "at", "value", "slope"), CASES)
def test_as_outside(f: Callable[[Any], Any], at: Any, value: float, slope: Any) -> None:
    x = torch.tensor(at)
    leaf = torch.tensor(at, requires_grad=True)
    outside = f(leaf)
    outside.backward()
    assert_close(outside.detach(), value)
    assert_close(leaf.grad, slope)
    assert_close(func.grad(f)(x), slope)
    assert_close(func.jacfwd(f)(x), slope)
    ones = torch.ones(at.shape, dtype=torch.float64)
    assert_close(func.jvp(f, (x,), (ones,))[1], np.sum(slope))
    both = func.vmap(func.grad_and_value(f))(torch.tensor(np.stack([at, at])))
    assert_close(both[0], np.stack([slope, slope]))
    assert_close(both[1], [value, value])


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.squeeze(),
        lambda y: y.view(2, 2),
        lambda y: y.reshape(2, 2),
        lambda y: y.transpose(0, 0),
    ],
)
def test_a_view_that_changes_nothing_is_another_name(view: Callable[[Any], Any]) -> None:
    def f(x: Any) -> Any:
        y = x * 1
        p = view(y)
        p.unsqueeze_(0)
        p.mul_(2)
        return y @ y.t()

    assert_close(func.vmap(f)(torch.ones(3, 2, 2)), np.full((3, 2, 2), 8.0))

    def held(x: Any) -> Any:
        y = x * 1
        with torch.no_grad():
            p = view(y)
        return (p * y).sum()

    at = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_close(func.grad(held)(torch.tensor(at)), at)


def test_views_in_place_under_no_grad_can_be_written_to() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        row = y[0]
        with torch.no_grad():
            y.unsqueeze_(0)
        y.mul_(3)
        row.add_(1)
        return (y * y).sum()

    at = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_close(func.grad(f)(torch.tensor(at)), 72 * at + [[12, 12], [0, 0]])


def test_an_argument_gets_another_shape() -> None:
    def f(x: Any) -> Any:
        x.unsqueeze_(0)
        return (x * x).sum() * x.shape[0]

    assert_close(func.grad(f)(torch.tensor(X)), 2 * X)


def test_data_of_arrays_is_no_attribute() -> None:
    with pytest.raises(MissingAttributeError, match=r"x\.detach\(\)"):
        func.grad(lambda x: (x * x.data).sum())(X)


def test_a_value_that_is_assigned_to_data() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.data = torch.tensor([7.0, 7.0, 7.0])
        return (y * x).sum()

    assert_close(func.grad(f)(torch.tensor(X)), 7 + 2 * X)


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: torch.Tensor.exp(x).sum(), np.exp(X)),
        (lambda x: functools.reduce(torch.Tensor.add, [x, x, x]).sum(), [3, 3, 3]),
        (lambda x: sum(map(torch.Tensor.sum, [x, x * 2])), [3, 3, 3]),
        (lambda x: torch.Tensor.var(x), (X - 2)),
        (lambda x: torch.Tensor.mul_(x * 1, x).sum(), 2 * X),
        (lambda x: torch.Tensor.sum(x, dim=0), [1, 1, 1]),
        (lambda x: torch.Tensor.__add__(x, x).sum(), [2, 2, 2]),
        (lambda x: torch.Tensor.max(x, 0).values, [0, 0, 1]),
        (lambda x: torch.Tensor.unsqueeze_(x * 1, 0).sum(), [1, 1, 1]),
        (lambda x: torch.Tensor.__getitem__(x, 0) * 2, [2, 0, 0]),
    ],
)
def test_methods_as_functions_of_the_class(f: Callable[[Any], Any], slope: Any) -> None:
    assert_close(func.grad(f)(torch.tensor(X)), slope)
    leaf = torch.tensor(X, requires_grad=True)
    f(leaf).backward()
    assert_close(leaf.grad, slope)
