"""Modes, detached values, anomalies and forward mode: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import tensor
from ftrans.autograd import (
    detect_anomaly,
    grad,
    inference_mode,
    is_grad_enabled,
    set_grad_enabled,
)
from ftrans.autograd import forward_ad as fwAD
from tests.torch_suite.common import Identity, constant, leaf, same

V = np.array([1.0, 2.0])


def test_requires_grad() -> None:
    x, y, z = constant(V), constant(V), leaf(V)
    a = x + y
    assert not a.requires_grad
    b = a + z
    assert b.requires_grad
    b.sum().backward()
    assert a.grad is None
    same(z.grad, [1.0, 1.0])


def test_requires_grad_inplace() -> None:
    a, b = constant(V), leaf(V)
    a += b
    assert a.requires_grad
    with pytest.raises(RuntimeError):
        b += 1


def test_no_requires_grad_inplace() -> None:
    a = constant(V)
    a.add_(5)
    a.requires_grad = True
    (a * 2).sum().backward()
    same(a.grad, [2.0, 2.0])


def test_no_grad() -> None:
    x, y = leaf(V), constant(V)
    with ftrans.no_grad():
        w = x + y
    assert not w.requires_grad
    assert w.grad_fn is None
    with pytest.raises(RuntimeError):
        w.backward(constant(V))


def test_no_grad_python_function() -> None:
    x = leaf(V)
    with ftrans.no_grad():
        y = Identity.apply(x)
    assert not y.requires_grad


def test_set_grad_enabled_and_generators() -> None:
    @ftrans.no_grad()
    def modes() -> Any:
        yield is_grad_enabled()
        with ftrans.enable_grad():
            yield is_grad_enabled()

    found = []
    for mode in modes():
        found.append(mode)
        assert is_grad_enabled()
    assert found == [False, True]
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_detach() -> None:
    x = leaf(V)
    y = x + 2
    y = y.detach()
    z = y * 4 + 2
    assert not y.requires_grad
    assert not z.requires_grad
    y = x * 2
    y = y.detach()
    assert y.grad_fn is None
    z = x + y
    z.sum().backward()
    same(x.grad, [1.0, 1.0])


def test_detach_base() -> None:
    x = leaf(np.ones((2, 2)))
    view = (x * 1)[0]
    with pytest.raises(RuntimeError):
        view.detach_()
    y = x * 1
    y.detach_()
    assert not y.requires_grad


def test_inference_mode_tensors_may_be_saved() -> None:
    """PyTorch raises: Inference tensors cannot be saved for backward."""
    with inference_mode():
        constants = constant(V) * 1
    x = leaf(V)
    (x * constants).sum().backward()
    same(x.grad, V)


# ------------------------------------------------------------------------ anomalies, forward mode


@pytest.mark.filterwarnings("ignore")
def test_anomaly_detect_nan() -> None:
    x = leaf([0.0])
    y = (x / x.detach()).sum() * 0
    y.backward()
    assert np.isnan(x.grad.item())
    with detect_anomaly():
        x = leaf([0.0])
        z = (x.sqrt() * 0).sum()
        with pytest.raises(RuntimeError, match=r"(?i)nan"):
            z.backward()
    with detect_anomaly(check_nan=False):
        x = leaf([0.0])
        (x.sqrt() * 0).sum().backward()
    assert np.isnan(x.grad.item())


def test_anomaly_mode_warns() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with detect_anomaly():
            pass
    assert any("Anomaly" in str(w.message) for w in caught)


def test_forward_mode_ad_basics() -> None:
    primal, tangent = constant(V), constant([3.0, 5.0])
    with fwAD.dual_level():
        dual = fwAD.make_dual(primal, tangent)
        found = fwAD.unpack_dual(dual * dual)
        same(found.primal, V**2)
        same(found.tangent, 2 * V * np.array([3.0, 5.0]))
        assert fwAD.unpack_dual(primal).tangent is None


def test_forward_level_cleanup() -> None:
    with fwAD.dual_level():
        dual = fwAD.make_dual(constant(V), constant(V))
        assert fwAD.unpack_dual(dual).tangent is not None
    with fwAD.dual_level():
        assert fwAD.unpack_dual(constant(V)).tangent is None


def test_nested_level() -> None:
    """PyTorch raises: Nested forward mode AD is not supported at the moment."""
    one = constant([1.0, 1.0])
    with fwAD.dual_level():
        outer = fwAD.make_dual(constant(V), one)
        with fwAD.dual_level():
            inner = fwAD.make_dual(outer, one)
            first = fwAD.unpack_dual(inner**3).tangent
        same(fwAD.unpack_dual(first).tangent, 6 * V)


def test_make_dual_outside_of_a_level() -> None:
    with pytest.raises(RuntimeError, match="level"):
        fwAD.make_dual(constant(V), constant(V))


def test_forward_over_reverse() -> None:
    x = leaf(V)
    with fwAD.dual_level():
        dual = fwAD.make_dual(x, constant([1.0, 1.0]))
        (first,) = grad((dual**3).sum(), dual, create_graph=True)
        same(fwAD.unpack_dual(first).tangent, 6 * V)


def test_isolated_leaf_of_integers() -> None:
    with pytest.raises(RuntimeError):
        tensor([1, 2]).requires_grad_()
