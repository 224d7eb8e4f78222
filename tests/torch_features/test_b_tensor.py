"""Attributes and methods of tensors, row by row of what PyTorch's documents name."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans import Tensor
from ftrans.autograd import forward_ad
from tests.torch_suite.common import leaf, same


def test_b1_grad() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    assert x.grad is None
    with pytest.warns(UserWarning, match="not a leaf"):
        assert (leaf(1.0) * 2).grad is None
    with pytest.raises(RuntimeError, match=r"grad[\s\S]*\[2\][\s\S]*\[3\]"):
        x.grad = torch.ones(3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"grad[\s\S]*f64[\s\S]*f32"):
        x.grad = torch.ones(2, dtype=torch.float32)
    x.grad = torch.ones(2, dtype=torch.float64)
    (x * x).sum().backward()
    same(x.grad, [3.0, 5.0])
    x.grad = None
    assert x.grad is None


def test_b2_requires_grad() -> None:
    """Works."""
    x = torch.ones(1)
    assert not x.requires_grad
    assert x.requires_grad_() is x
    assert x.requires_grad
    x.requires_grad = False
    assert not x.requires_grad

    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match=r"only leaves[\s\S]*detach\(\)"):
        y.requires_grad = False
    with pytest.raises(RuntimeError, match=r"only leaves[\s\S]*detach\(\)"):
        y.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"requires_grad_[\s\S]*func\.grad\(f, argnums"):
        torch.func.grad(lambda x: x.requires_grad_().sum())(torch.ones(2))


def test_b3_is_leaf() -> None:
    """Works."""
    made = leaf(1.0) * 2
    leaves = [torch.ones(1), leaf(1.0), made, made.detach(), torch.ones(1) * 2]
    assert [x.is_leaf for x in leaves] == [True, True, False, True, True]


def test_b4_grad_fn() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    assert x.grad_fn is None
    total = x.sum()
    assert type(total.grad_fn).__name__ == total.grad_fn.name() == "SumBackward0"
    with torch.no_grad():
        assert x.sum().grad_fn is None

    base = x * 1
    view = base[0]
    view.mul_(3)
    assert view.grad_fn is view.grad_fn
    base.sum().backward()
    same(x.grad, [3.0, 1.0])


def test_b5_detach() -> None:
    """Differs: a write through it leaves derivatives right, where PyTorch's backward raises."""
    t = leaf(1.0)
    d = t.detach()
    assert (d.requires_grad, d.grad_fn) == (False, None)
    d.add_(5)
    same(t, 6.0)
    assert (t._version, d._version) == (1, 1)

    a = leaf([1.0, 2.0])
    b = a * 1
    c = (b * b).sum()
    b.detach().mul_(10)
    c.backward()
    same(b, [10.0, 20.0])
    same(a.grad, [2.0, 4.0])

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(leaf(1.0), leaf(1.0))
        assert forward_ad.unpack_dual(dual.detach() * 2).tangent is None
        same(forward_ad.unpack_dual(dual * 2).tangent, 2.0)


def test_b6_detach_in_place() -> None:
    """Works."""
    with pytest.raises(RuntimeError, match=r"Can't detach views in-place.*detach\(\)"):
        (leaf([1.0, 2.0]) * 1)[0].detach_()
    y = leaf([1.0, 2.0]) * 1
    assert y.detach_() is y
    assert (y.is_leaf, y.requires_grad, y.grad_fn) == (True, False, None)


def test_b7_register_hook() -> None:
    """Works."""
    v = leaf([0.0, 0.0, 0.0])
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    handle = v.register_hook(lambda g: g * 2)
    v.backward(weights)
    same(v.grad, [2.0, 4.0, 6.0])
    handle.remove()
    v.grad = None
    v.backward(weights)
    same(v.grad, [1.0, 2.0, 3.0])

    v.register_hook(lambda g: "wrong")
    with pytest.raises(RuntimeError, match=r"hook '<lambda>'.*tensor, or None[\s\S]*str"):
        v.backward(weights)
    with pytest.raises(RuntimeError, match="hook on a tensor that doesn't require gradient"):
        torch.ones(1).register_hook(lambda g: g)


def test_b8_register_post_accumulate_grad_hook() -> None:
    """Works."""
    modes: list[bool] = []

    def step(parameter: Tensor) -> None:
        modes.append(torch.is_grad_enabled())
        parameter.add_(parameter.grad, alpha=-0.01)

    v = leaf([0.0, 0.0, 0.0])
    handle = v.register_post_accumulate_grad_hook(step)
    v.backward(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    same(v, [-0.01, -0.02, -0.03])
    handle.remove()
    v.register_post_accumulate_grad_hook(lambda p: modes.append(torch.is_grad_enabled()))
    (v * v).sum().backward(create_graph=True)
    assert modes == [False, True]

    with pytest.raises(RuntimeError, match="non-leaf"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(lambda p: None)
    v.register_post_accumulate_grad_hook(lambda p: p)
    with pytest.raises(RuntimeError, match="should return None"):
        v.sum().backward()


def test_b9_retain_grad() -> None:
    """Works."""
    leaf_ = leaf([1.0, 2.0])
    h = leaf_ * 3
    assert not h.retains_grad
    h.retain_grad()
    h.retain_grad()
    assert h.retains_grad
    out = (h * h).sum()
    out.backward(retain_graph=True)
    same(h.grad, 2 * h)
    out.backward()
    same(h.grad, 4 * h)
    leaf_.retain_grad()
    assert not leaf_.retains_grad
    with pytest.raises(RuntimeError, match=r"retain_grad.*requires_grad=False"):
        torch.ones(1).retain_grad()


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.retain_grad(),
        lambda x: x.register_hook(lambda g: g),
        lambda x: x.register_post_accumulate_grad_hook(lambda p: None),
        lambda x: x.retains_grad,
    ],
)
def test_what_to_write_for_hooks_inside_of_a_transform(use: Any) -> None:
    def f(x: Any) -> Any:
        use(x)
        return x * x

    with pytest.raises(RuntimeError, match="Write "):
        torch.func.grad(f)(leaf(1.0))


def test_b10_output_nr() -> None:
    """Works."""
    a = leaf([1.0, 2.0])
    rows = torch.stack([a, a]).unbind(0)
    assert [row.output_nr for row in rows] == [0, 1]
    assert a.output_nr == a.sum().output_nr == 0


def test_b11_version() -> None:
    """Differs: inference tensors count writes too; a dual tensor, which is a copy, has its own."""
    b = leaf(1.0) * 1
    assert b._version == 0
    b.add_(1)
    assert b._version == 1
    w = torch.zeros(3)
    view = w[1:]
    view.mul_(3)
    assert (view._version, w._version) == (1, 1)

    with torch.inference_mode():
        x = torch.ones(1)
        x.add_(1)
    assert x._version == 1
    with forward_ad.dual_level():
        primal = torch.ones(1)
        dual = forward_ad.make_dual(primal, torch.ones(1))
        dual.add_(1)
        assert (dual._version, primal._version) == (1, 0)


def test_b12_data() -> None:
    """Differs: a write through it is counted, and the gradient is that of what was computed."""
    a = leaf([1.0, 2.0])
    s = a * 1
    z = (s * s).sum()
    s.data.add_(1)
    z.backward()
    same(s, [2.0, 3.0])
    same(a.grad, [2.0, 4.0])
    assert s._version == 1

    a.data = torch.zeros(2, dtype=torch.float64)
    same(a, [0.0, 0.0])
    assert a.requires_grad
    assert not a.data.requires_grad


def test_b13_factories_make_leaves() -> None:
    """Works."""
    for make in (
        lambda: torch.randn(2, 3, 4, requires_grad=True),
        lambda: torch.randn((2, 3, 4), requires_grad=True),
    ):
        with torch.no_grad():
            made = make()
        assert made.shape == (2, 3, 4)
        assert made.requires_grad
        assert made.is_leaf
        (made * 2).sum().backward()
        same(made.grad, np.full((2, 3, 4), 2.0))


def test_b14_numpy_and_deepcopy() -> None:
    """Works."""
    advice = r"Can't call numpy\(\) on Tensor that requires grad[\s\S]*detach\(\)\.numpy\(\)"
    with pytest.raises(RuntimeError, match=advice):
        leaf(1.0).numpy()
    with pytest.raises(RuntimeError, match=advice):
        np.asarray(leaf(1.0))
    with pytest.raises(RuntimeError, match=r"(?i)only leaves[\s\S]*detach\(\)"):
        copy.deepcopy(leaf(1.0) * 2)
    x = leaf(1.0)
    (x * 2).backward()
    twin = copy.deepcopy(x)
    assert twin is not x
    assert twin.requires_grad
    same(twin.grad, 2.0)

    for transform, said in ((torch.func.grad, "cuts its gradient"), (torch.vmap, "not known")):
        with pytest.raises(RuntimeError, match=rf"x\.numpy\(\) of a traced value.*{said}"):
            transform(lambda x: x.numpy())(torch.ones(1))
