"""What PyTorch 2.13 answers, written down: writes over results, what is saved, names and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans import Tensor
from tests.torch_suite.common import constant, leaf, same

COPY, FILL = "torch::autograd::CopyBackwards", "FillBackward3"


def names_behind(y: Tensor) -> list[str | None]:
    return [node and node.name() for node, _ in y.grad_fn.next_functions]


# ------------------------------------------------------------------------------------- writing over


def _set(index: Any) -> Callable[[Any, Any], None]:
    return lambda y, p: y.__setitem__(index, p)


@pytest.mark.parametrize(
    ("write", "old", "new", "name"),
    [
        (lambda y, p: y.copy_(p), [1.0, 2.0], [3.0, 4.0], COPY),
        (lambda y, p: y.copy_(p), [1.0, 2.0], 3.0, COPY),
        (lambda y, p: y.fill_(p), [1.0, 2.0], 3.0, FILL),
        (_set(slice(None)), [1.0, 2.0], [3.0, 4.0], COPY),
        (_set(...), [1.0, 2.0], [3.0, 4.0], COPY),
        (_set(slice(0, 2)), [1.0, 2.0], [3.0, 4.0], COPY),
        (_set(()), 1.0, 3.0, COPY),
        (_set((slice(None), slice(None))), [[1.0, 2.0]], [[3.0, 4.0]], COPY),
        (_set([0, 1]), [1.0, 2.0], [3.0, 4.0], "IndexPutBackward0"),
    ],
)
def test_what_is_written_over_has_the_derivative_zero(
    write: Callable[[Any, Any], Any], old: Any, new: Any, name: str
) -> None:
    q, p = leaf(old), leaf(new)
    y = q * 1
    write(y, p)
    assert y.grad_fn.name() == name
    assert names_behind(y) == ["MulBackward0", "torch::autograd::AccumulateGrad"]
    (y * y).sum().backward()
    same(q.grad, np.zeros(np.shape(old)))
    count = np.size(old) // np.size(new)
    same(p.grad, 2.0 * count * np.asarray(new))


@pytest.mark.parametrize(
    "write",
    [
        lambda y, p: y.view(2, 1).copy_(p.view(2, 1)),
        lambda y, p: y.T.copy_(p),
        lambda y, p: y[:].copy_(p),
        lambda y, p: y.view(1, 2)[0].copy_(p),
    ],
)
def test_what_is_written_over_through_a_view_has_it_too(write: Callable[[Any, Any], Any]) -> None:
    q, p = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = q * 1
    write(y, p)
    assert y.grad_fn.name() == "torch::autograd::CopySlices"
    assert names_behind(y)[0] == "MulBackward0"
    found = torch.autograd.grad((y * y).sum(), [q, p], create_graph=True)
    same(found[0], [0.0, 0.0])
    same(found[1], [6.0, 8.0])
    same(torch.autograd.grad(found[1].sum(), p)[0], [2.0, 2.0])


def test_what_is_written_over_without_grad_keeps_its_history() -> None:
    q, p = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = q * 1
    with torch.no_grad():
        y.copy_(p)
    y.sum().backward()
    same(q.grad, [1.0, 1.0])
    assert p.grad is None
    y = constant([1.0, 2.0])
    y.copy_(p)
    y.sum().backward()
    same(p.grad, [1.0, 1.0])


# -------------------------------------------------------------------------------- sharing by x.data


def test_a_tensor_shares_memory_with_what_its_data_is_set_to() -> None:
    x, y = constant([1.0, 2.0, 3.0]), constant([7.0, 8.0, 9.0])
    view, alias, last = x[:2], x.detach(), y[1:]
    first = view[0]
    x.data = y
    last.mul_(2)
    view.mul_(3)
    first.add_(1)
    x.add_(1)
    same(x, [8.0, 17.0, 19.0])
    same(y, [8.0, 17.0, 19.0])
    same(last, [17.0, 19.0])
    same(view, [4.0, 6.0])
    same(alias, [4.0, 6.0, 3.0])


def test_data_of_views_and_of_a_tensor_itself() -> None:
    x = constant([1.0, 2.0, 3.0])
    view = x[:2]
    first = view[0]
    view.data = constant([7.0, 8.0])
    first.add_(1)
    x.mul_(2)
    view.add_(1)
    same(x, [4.0, 4.0, 6.0])
    same(view, [8.0, 9.0])
    same(first, 4.0)
    x.data = x
    x.data = x.data
    alias = x.data
    x.data = alias[1:]
    x.add_(1)
    same(x, [5.0, 7.0])
    same(alias, [4.0, 5.0, 7.0])


def test_data_is_swapped_and_handed_on() -> None:
    x, y, z = constant([1.0]), constant([4.0]), constant([7.0])
    x.data, y.data = y.data, x.data
    x.add_(1)
    same(x, [5.0])
    same(y, [1.0])
    x.data = y
    y.data = z
    z.add_(1)
    y.mul_(2)
    x.add_(10)
    same(x, [11.0])
    same(y, [16.0])
    same(z, [16.0])


def test_parameters_that_are_parts_of_one_tensor() -> None:
    flat = torch.zeros(4, dtype=torch.float64)
    p, q = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    for i, x in enumerate([p, q]):
        flat[2 * i : 2 * i + 2].copy_(x.data)
        x.data = flat[2 * i : 2 * i + 2]
    for _ in range(3):
        (p * q).sum().backward()
        with torch.no_grad():
            p -= 0.5 * p.grad
            flat.mul_(2)
        p.grad = None
    same(flat, [-28.0, -32.0, 24.0, 32.0])
    same(p, [-28.0, -32.0])
    same(q, [24.0, 32.0])
    same(q.grad, [-8.0, -6.0])
    assert p.is_leaf
    assert p.requires_grad


def test_views_of_a_leaf_keep_their_history_and_what_they_shared() -> None:
    x = leaf([1.0, 2.0, 3.0])
    view, alias = x.view(3), x.detach()
    x.data = constant([7.0, 8.0, 9.0])
    alias.mul_(2)
    (view * view).sum().backward()
    same(x.grad, [4.0, 8.0, 12.0])
    same(view, [2.0, 4.0, 6.0])
    same(x, [7.0, 8.0, 9.0])


# ------------------------------------------------------------------------- what counts as saving

M = [[1.0, 2.0], [3.0, 4.5]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.diagonal(),
        lambda x: x.diag(),
        lambda x: x.trace(),
        lambda x: x.tril(),
        lambda x: x.triu(1),
        lambda x: torch.nn.functional.pad(x, (1, 1)),
        lambda x: torch.nn.functional.pad(x, (1, 1, 0, 1), value=2.0),
        lambda x: x.add(constant(M), alpha=2),
        lambda x: constant(M).sub(x, alpha=3),
        lambda x: (x + 1).tril().diagonal().add(x[0], alpha=2).sum(),
    ],
)
def test_what_can_go_back_twice(function: Callable[[Any], Any]) -> None:
    x = leaf(M)
    y = function(x + 0.0)
    seed = torch.ones_like(y.detach())
    y.backward(seed)
    first = x.grad.clone()
    y.backward(seed)
    same(x.grad, np.asarray(2 * first))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x**1,
        lambda x: x**0,
        lambda x: torch.complex(x, x).real,
        lambda x: torch.where(x > 2, x, x),
        lambda x: torch.maximum(x, x),
        lambda x: torch.addcdiv(x, constant(M), constant(M)),
        lambda x: (x * x).tril(),
        lambda x: x.exp().tril().sin(),
        lambda x: x[[0, 1]],
    ],
)
def test_what_cannot(function: Callable[[Any], Any]) -> None:
    x = leaf(M)
    y = function(x + 0.0)
    seed = torch.ones_like(y.detach())
    y.backward(seed)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward(seed)


def test_what_has_saved_nothing_goes_back_beside_what_has() -> None:
    x = leaf(M)
    y, z = x.tril(), (x * x).sum()
    for _ in range(2):
        y.sum().backward()
    z.backward()
    y.sum().backward()
    same(x.grad, [[5.0, 4.0], [9.0, 12.0]])
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()
    assert x.add(x, alpha=2).grad_fn.name() == "AddBackward0"
    assert names_behind(constant(M).add(x * 1, alpha=2)) == [None, "MulBackward0"]


# ---------------------------------------------------------------------------------- rank zero


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: x.cumsum(0), 1.0),
        (lambda x: x.cumprod(-1), 1.0),
        (lambda x: x.logcumsumexp(dim=0), 1.0),
        (lambda x: x.sort()[0], 1.0),
        (lambda x: x.sort(-1, descending=True).values, 1.0),
        (lambda x: x.topk(1)[0] * 2, 2.0),
        (lambda x: x.gather(0, torch.tensor(0)) * 2, 2.0),
        (lambda x: x.index_select(0, torch.tensor([0])), 1.0),
        (lambda x: x.index_select(0, torch.tensor(0)), 1.0),
        (lambda x: torch.cumsum(x, 0), 1.0),
    ],
)
def test_rank_zero_has_one_element_along_its_dimension(
    function: Callable[[Any], Any], slope: float
) -> None:
    x = leaf(3.0)
    y = function(x)
    same(y, 3.0 * slope)
    same(torch.autograd.grad(y, x)[0], slope)
    same(torch.func.grad(function)(x.detach()), slope)


def test_places_in_rank_zero() -> None:
    x = leaf(3.0)
    found = [x.argmax(0), x.argmin(-1), x.argmax(0, keepdim=True), x.argsort(0), x.sort()[1]]
    for at in [*found, x.topk(1, 0).indices, torch.argmax(x, dim=0)]:
        assert at.shape == ()
        assert at.dtype == torch.int64
        assert at.item() == 0
    with pytest.raises(IndexError, match="out of range"):
        x.cumsum(1)


# -------------------------------------------------------------------------------------- identity


def test_what_changes_nothing_is_the_tensor_itself() -> None:
    x = leaf([1.0, 2.0])
    for y in (x.real, x.conj(), torch.conj(x), x.positive(), torch.positive(x), +x):
        assert y is x
    z = torch.tensor([1.0 + 2.0j], requires_grad=True)
    assert z.real.grad_fn is not None
    assert z.conj().grad_fn is not None


def test_a_number_that_is_taken_first_is_listed_last() -> None:
    x = leaf([1.0, 2.0])
    for y in (1 + x * 1, 2 * (x * 1), x * 1 + 1, (x * 1) * 2):
        assert names_behind(y) == ["MulBackward0", None]
    assert names_behind(constant([1.0, 2.0]) * (x * 1)) == [None, "MulBackward0"]
    node = (2 * x).grad_fn
    assert node._saved_self is None
    assert node._saved_other.item() == 2.0
