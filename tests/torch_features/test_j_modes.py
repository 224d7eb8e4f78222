"""Grad modes, row by row of what PyTorch's documents name."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax.tree_util as tree
import pytest

import ftrans.torch as torch
from tests.torch_suite.common import constant, leaf, same


def test_j1_default_mode() -> None:
    """Works."""
    assert torch.is_grad_enabled()
    assert (leaf(2.0) * 2).requires_grad
    assert not (constant(2.0) * 2).requires_grad


def test_j2_no_grad() -> None:
    """Works."""
    x, elsewhere = leaf(2.0), []

    @torch.no_grad
    def bare() -> bool:
        return (x * 2).requires_grad

    @torch.no_grad()
    def called() -> bool:
        return (x * 2).requires_grad

    assert not bare()
    assert not called()
    with torch.no_grad():
        assert not (x * 2).requires_grad
        assert torch.zeros(2, requires_grad=True).requires_grad
        assert torch.nn.Parameter(torch.ones(2)).requires_grad
        thread = threading.Thread(target=lambda: elsewhere.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(constant(2.0), constant(1.0))
            same(torch.autograd.forward_ad.unpack_dual(dual * dual).tangent, 4.0)
    assert elsewhere == [True]
    assert torch.is_grad_enabled()
    with pytest.warns(FutureWarning, match="class"):

        @torch.no_grad()
        class Decorated:
            pass

    assert type(Decorated()).__name__ == "Decorated"


def test_j3_enable_grad() -> None:
    """Works."""
    x = leaf(2.0)

    @torch.enable_grad
    def twice() -> bool:
        return (x * 2).requires_grad

    with torch.no_grad():
        with torch.enable_grad():
            assert (x * 2).requires_grad
            assert torch.is_grad_enabled()
        assert twice()
        assert not torch.is_grad_enabled()


def test_j4_set_grad_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Works."""
    torch.set_grad_enabled(False)
    try:
        assert not torch.is_grad_enabled()
        assert not (leaf(2.0) * 2).requires_grad
    finally:
        torch.set_grad_enabled(True)

    @torch.set_grad_enabled(False)
    def decorated() -> bool:
        return torch.is_grad_enabled()

    assert torch.is_grad_enabled()
    assert not decorated()
    assert torch.is_grad_enabled()
    with torch.set_grad_enabled(mode=False):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: unraisable.append(found.exc_type))
    with pytest.raises(TypeError, match="'mode'"):
        torch.set_grad_enabled()
    gc.collect()
    assert not unraisable


def test_j5_generators_and_coroutines() -> None:
    """Works."""

    @torch.no_grad()
    def generate() -> Iterator[bool]:
        yield torch.is_grad_enabled()
        yield torch.is_grad_enabled()

    outside, inside = [], []
    for mode in generate():
        inside.append(mode)
        outside.append(torch.is_grad_enabled())
    assert (inside, outside) == ([False, False], [True, True])

    @torch.no_grad()
    async def wait() -> bool:
        await asyncio.sleep(0)
        return torch.is_grad_enabled()

    async def main() -> tuple[bool, bool]:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        return torch.is_grad_enabled(), await task

    assert asyncio.run(main()) == (True, False)


def test_j6_inference_mode() -> None:
    """Differs: inference tensors may be saved and written to, and have versions and tangents."""
    x = leaf([3.0, 4.0])
    with torch.inference_mode():
        i = constant([1.0, 2.0])
        assert torch.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(i, i)
            same(torch.autograd.forward_ad.unpack_dual(dual * dual).tangent, [2.0, 8.0])
    with torch.inference_mode(False):
        assert (x * 2).requires_grad
    assert i.is_inference()
    assert not x.is_inference()
    assert (i + x).requires_grad
    same(torch.autograd.grad((i * x).sum(), x)[0], [1.0, 2.0])
    assert i._version == 0
    i.add_(1)
    same(i, [2.0, 3.0])


def test_j7_tensors_from_no_grad_are_used_later() -> None:
    """Works."""
    x = leaf(3.0)
    with torch.no_grad():
        y = x * 2
    (y * x).backward()
    same(x.grad, 6.0)


def test_j8_normal_tensors_in_inference_mode() -> None:
    """Differs: a write there leaves derivatives right, which is an error in PyTorch."""
    x = leaf([1.0, 2.0])
    a = x * 1
    c = a * a
    version = a._version
    with torch.inference_mode():
        view = a[0]
        a.add_(2)
        assert not view.is_inference()
        assert (a * 2).is_inference()
    assert not a.is_inference()
    assert a.requires_grad
    assert a._version == version + 1
    same(a, [3.0, 4.0])
    c.sum().backward()
    same(x.grad, [2.0, 4.0])


def test_j9_eval_is_not_a_mode() -> None:
    """Declined: there are no modules; the error says to write functions of a pytree of tensors."""
    with pytest.raises(AttributeError, match=r"(?s)'Module'.*Write functions.*a pytree"):
        torch.nn.Module().eval()

    def layer(w: Any, x: Any, training: bool) -> Any:
        return torch.nn.functional.dropout(w * x, 0.5, training=training)

    w = leaf([1.0, 2.0])
    found = layer(w, constant([3.0, 4.0]), training=False)
    assert found.requires_grad
    assert torch.is_grad_enabled()
    found.sum().backward()
    same(w.grad, [3.0, 4.0])


def test_j10_requires_grad_of_all_parameters() -> None:
    """Declined: there are no modules; parameters are a pytree, over which one maps."""
    with pytest.raises(AttributeError, match=r"(?s)'Linear'.*There are no modules.*a pytree"):
        torch.nn.Linear(2, 2).requires_grad_(False)
    parameters: Any = {"w": leaf([1.0, 2.0]), "b": [leaf(3.0)]}
    tree.tree_map(lambda p: p.requires_grad_(False), parameters)
    assert [p.requires_grad for p in tree.tree_leaves(parameters)] == [False, False]
    tree.tree_map(lambda p: p.requires_grad_(), parameters)
    assert [p.requires_grad for p in tree.tree_leaves(parameters)] == [True, True]


def test_j11_frozen_leaves() -> None:
    """Works."""
    w, frozen = leaf(2.0), leaf(3.0)
    frozen.requires_grad_(False)
    assert not (frozen * 2).requires_grad
    (w * frozen).backward()
    assert frozen.grad is None
    same(w.grad, 3.0)


def test_j12_transforms_and_no_grad() -> None:
    """Works."""

    def f(x: Any) -> Any:
        with torch.no_grad():
            c = x**2
        return x - c

    same(torch.func.grad(f)(constant(2.0)), 1.0)
    with torch.no_grad():
        same(torch.func.grad(f)(constant(2.0)), 1.0)
        same(torch.func.grad(lambda x: x**2)(constant(3.0)), 6.0)


def test_j13_set_multithreading_enabled() -> None:
    """Works."""
    with torch.autograd.set_multithreading_enabled(False):
        assert not torch.autograd.is_multithreading_enabled()
        x = leaf(3.0)
        (x * x).backward()
        same(x.grad, 6.0)
    assert torch.autograd.is_multithreading_enabled()
