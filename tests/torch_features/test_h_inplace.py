"""Writing in place, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from tests.torch_suite.common import constant, leaf, same


def test_h1_what_was_saved_is_modified() -> None:
    """Differs: what was saved keeps its value, so the gradient is right, not an error."""
    a = leaf([1.0, 2.0])
    b = a * 1
    c = b * b
    b.add_(1)
    assert b._version == 1
    c.sum().backward()
    same(a.grad, [2.0, 4.0])
    same(b, [2.0, 3.0])


def test_h2_operations_that_save_nothing() -> None:
    """Works."""
    a = leaf([1.0, 2.0])
    b = a * 1
    e = b + 1
    b.add_(1)
    e.sum().backward()
    same(a.grad, [1.0, 1.0])


def test_h3_leaves() -> None:
    """Works."""
    text = "a leaf Variable that requires grad is being used in an in-place operation"
    with pytest.raises(RuntimeError, match=text):
        leaf(1.0).add_(1)
    with pytest.raises(RuntimeError, match=text):
        leaf([1.0, 2.0])[0].add_(1)
    with pytest.raises(RuntimeError, match=text):
        leaf([1.0, 2.0])[0] = 1.0
    x = leaf([1.0, 2.0])
    with torch.no_grad():
        x.add_(1)
    same(x, [2.0, 3.0])
    assert x.is_leaf


def test_h4_views_rewrite_the_history_of_their_base() -> None:
    """Works."""
    a = leaf([1.0, 2.0])
    v = a * 1
    w = v[1]
    v[0].mul_(3)
    w.mul_(5)
    same(v, [3.0, 10.0])
    assert v.grad_fn.name() == "torch::autograd::CopySlices"
    v.sum().backward()
    same(a.grad, [3.0, 5.0])


@pytest.mark.parametrize(
    "parts",
    [lambda x: x.unbind(), lambda x: x.split(1), lambda x: x.chunk(2)],
    ids=["unbind", "split", "chunk"],
)
def test_h5_several_views(parts: Any) -> None:
    """Works."""
    base = leaf([1.0, 2.0]) * 1
    with pytest.raises(RuntimeError, match=r"one of several views .* cannot be modified inplace"):
        parts(base)[0].add_(1)
    with torch.no_grad():
        parts(base)[0].add_(1)
    same(base, [2.0, 2.0])

    x = constant([1.0, 2.0])
    for row in parts(x):
        row.add_(1)
    same(x, [2.0, 3.0])


def test_h6_view_that_was_made_in_no_grad() -> None:
    """Works."""
    base = leaf([1.0, 2.0]) * 1
    with torch.no_grad():
        view = base[0]
    text = "A view was created in no_grad mode and is being modified inplace with grad mode enabled"
    with pytest.raises(RuntimeError, match=text):
        view.add_(1)
    with torch.no_grad():
        view.add_(1)
    same(base, [2.0, 2.0])

    with torch.no_grad():
        x = constant([1.0, 2.0])
        view = x[1:]
    view += 1
    same(x, [1.0, 3.0])


def test_h7_setitem() -> None:
    """Works."""
    x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    y = x + 2
    y[1] = 2
    same(y[1], [2.0, 2.0])
    y.sum().backward()
    same(x.grad, [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    x, value = leaf([1.0, -1.0, 2.0]), leaf(7.0)
    y = x * 1
    y[x > 0] = value
    same(y, [7.0, -1.0, 7.0])
    y.sum().backward()
    same(x.grad, [0.0, 1.0, 0.0])
    same(value.grad, 2.0)


def test_h8_out() -> None:
    """Differs: `out=` is a write in place, and differentiated; there it is an error."""
    a, x = leaf([1.0, 2.0]), constant([0.0, 0.0])
    assert torch.pow(a, 2, out=x) is x
    same(x, [1.0, 4.0])
    x.sum().backward()
    same(a.grad, [2.0, 4.0])

    slopes = {
        torch.add: [1.0, 1.0], torch.sub: [1.0, 1.0],
        torch.mul: [2.0, 4.0], torch.div: [0.5, 0.25],
    }  # fmt: skip
    for function, expected in slopes.items():
        a, x = leaf([1.0, 3.0]), constant([0.0, 0.0])
        assert function(a, constant([2.0, 4.0]), out=x) is x
        same(x, function(a, constant([2.0, 4.0])))
        x.sum().backward()
        same(a.grad, expected)


def test_h9_no_more_is_saved_than_needed() -> None:
    """Works."""
    mean, x = leaf([1.0]), constant([0.0])
    loss: Any = 0
    for i in range(3):
        x.detach_()
        x.copy_(mean + i)
        loss = loss + x * float(i)
    same(loss, [8.0])
    loss.backward()
    same(mean.grad, [3.0])


class Undeclared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x[...] = x * 2
        return x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return 2 * ct


class UndeclaredByNumPy(Undeclared):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        array = x.numpy()
        array *= 2
        return torch.tensor(array)


def test_h10_no_error_means_right_gradients() -> None:
    """Differs: it holds for writes through `.data` too, and undeclared ones are errors."""
    a = leaf([1.0, 2.0])
    b = a * 1
    c = b * b
    b.data.add_(1)
    same(b, [2.0, 3.0])
    c.sum().backward()
    same(a.grad, [2.0, 4.0])
    a = leaf([1.0, 2.0])
    b = a * 1
    for function in (Undeclared, UndeclaredByNumPy):
        with pytest.raises(RuntimeError, match=r"writes into (.|\n)*ctx\.mark_dirty\(x\)"):
            function.apply(leaf([1.0, 2.0]) * 1)
