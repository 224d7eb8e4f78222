"""Forward mode, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.torch.autograd import forward_ad as fwAD
from tests.torch_suite.common import constant, leaf, same


class Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.tensor(np.asarray(x) ** 3)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return torch.tensor(3 * np.asarray(x) ** 2 * np.asarray(ct))


def test_m1_dual_level() -> None:
    """Differs: levels nest, and an inner one differentiates the derivatives of an outer one."""
    x, v = constant(2.0), constant(1.0)
    with fwAD.dual_level():
        y = fwAD.make_dual(x, v) ** 3
        primal, tangent = fwAD.unpack_dual(y)
        same(primal, 8.0)
        same(tangent, 12.0)
    assert fwAD.unpack_dual(y).tangent is None

    @fwAD.dual_level()
    def slope(x: Any) -> Any:
        return fwAD.unpack_dual(fwAD.make_dual(x, v) ** 3).tangent

    same(slope(x), 12.0)
    with fwAD.dual_level():
        outer = fwAD.make_dual(x, v)
        with fwAD.dual_level():
            first = fwAD.unpack_dual(fwAD.make_dual(outer, v) ** 3).tangent
        same(fwAD.unpack_dual(first).tangent, 12.0)


def test_m2_enter_dual_level() -> None:
    """Works."""
    assert fwAD.enter_dual_level() == 0
    try:
        d = fwAD.make_dual(constant(3.0), constant(1.0), level=0)
        same(fwAD.unpack_dual(d * d, level=0).tangent, 6.0)
    finally:
        fwAD.exit_dual_level(level=0)


def test_m3_exit_dual_level() -> None:
    """Works."""
    with pytest.raises(RuntimeError, match=r"Dual level must be a positive number\."):
        fwAD.exit_dual_level()
    with fwAD.dual_level(), pytest.raises(RuntimeError, match="was not the last one"):
        fwAD.exit_dual_level(level=1)


def test_m4_make_dual() -> None:
    """Differs: a tangent of another dtype is an error, which names the conversion."""
    x, one = leaf([1.0, 2.0]), constant([1.0, 1.0])
    with pytest.raises(RuntimeError, match="no level exists"):
        fwAD.make_dual(x, one)
    with fwAD.dual_level():
        (fwAD.make_dual(x, one) ** 2).sum().backward()
        same(x.grad, [2.0, 4.0])
        with pytest.raises(RuntimeError, match="different size than that of the original Tensor"):
            fwAD.make_dual(x, constant([1.0, 1.0, 1.0]))
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            fwAD.make_dual(torch.tensor([1, 2]), torch.tensor([1, 1]))
        with pytest.raises(TypeError, match=r"tangent\.to\('float64'\)"):
            fwAD.make_dual(x, torch.ones(2, dtype=torch.float32))


def test_m5_unpack_dual() -> None:
    """Works."""
    x = constant(2.0)
    assert fwAD.unpack_dual(x).tangent is None
    with fwAD.dual_level():
        primal, tangent = fwAD.unpack_dual(x, level=0)
        assert tangent is None
        same(primal, 2.0)
        primal, tangent = fwAD.unpack_dual(fwAD.make_dual(x, constant(5.0)), level=0)
        same(primal, 2.0)
        same(tangent, 5.0)
        assert fwAD.unpack_dual(primal).tangent is None


def test_m6_unpacked_dual_tensor() -> None:
    """Works."""
    assert fwAD.UnpackedDualTensor._fields == ("primal", "tangent")
    with fwAD.dual_level():
        found = fwAD.unpack_dual(fwAD.make_dual(constant(2.0), constant(5.0)))
        assert type(found) is fwAD.UnpackedDualTensor
        assert isinstance(found, tuple)
        same(found.primal, 2.0)
        same(found.tangent, 5.0)


def test_m7_dual_of_a_dual() -> None:
    """Works."""
    one = constant(1.0)
    text = (
        "Making a dual Tensor based on a Tensor that already has a forward gradient "
        "at the same level 0"
    )
    with fwAD.dual_level(), pytest.raises(RuntimeError, match=text):
        fwAD.make_dual(fwAD.make_dual(one, one), one)


def test_m8_reverse_over_forward() -> None:
    """Works."""
    x, v = leaf(2.0), leaf(1.0)
    with fwAD.dual_level():
        tangent = fwAD.unpack_dual(fwAD.make_dual(x, v) ** 3).tangent
    found = torch.autograd.grad(tangent, (x, v))
    same(found[0], 12.0)
    same(found[1], 12.0)


def test_m9_forward_over_reverse() -> None:
    """Works."""
    with fwAD.dual_level():
        d = fwAD.make_dual(leaf(2.0), constant(1.0))
        (slope,) = torch.autograd.grad(d**3, d)
        primal, tangent = fwAD.unpack_dual(slope)
    same(primal, 12.0)
    same(tangent, 12.0)


def test_m10_grad_modes() -> None:
    """Differs: `inference_mode` keeps tangents, as `no_grad` does: it is about reverse mode."""
    x = leaf(2.0)
    with fwAD.dual_level():
        d = fwAD.make_dual(x, constant(1.0))
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                y = d * 3
            tangent = fwAD.unpack_dual(y).tangent
            same(tangent, 3.0)
            assert not y.requires_grad
            assert not tangent.requires_grad


@pytest.mark.parametrize(
    "multiply",
    [
        lambda a, out: torch.matmul(torch.eye(2, dtype=torch.float64) * 2, a, out=out),
        lambda a, out: torch.mul(a, 2, out=out),
    ],
)
def test_m11_writing_and_views(multiply: Any) -> None:
    """Differs: functions with `out=` write the tangent too, where PyTorch raises."""
    with fwAD.dual_level():
        x = constant(0.0)
        x.add_(fwAD.make_dual(constant(1.0), constant(1.0)))
        same(fwAD.unpack_dual(x).tangent, 1.0)
        base = fwAD.make_dual(constant([1.0, 2.0]), constant([1.0, 1.0]))
        view = base[:1]
        view *= 2
        same(fwAD.unpack_dual(base).primal, [2.0, 2.0])
        same(fwAD.unpack_dual(base).tangent, [2.0, 1.0])
        out = constant([0.0, 0.0])
        multiply(base, out)
        same(fwAD.unpack_dual(out).primal, [4.0, 4.0])
        same(fwAD.unpack_dual(out).tangent, [4.0, 2.0])


def test_m12_operations_without_forward_mode() -> None:
    """Differs: all operations have it but a Function that is opaque and has no jvp."""
    with fwAD.dual_level():
        d = fwAD.make_dual(leaf([[3.0, 4.0]]), constant([[1.0, 0.0]]))
        found = fwAD.unpack_dual(torch.cdist(d, constant([[0.0, 0.0]])))
        same(found.primal, [[5.0]])
        same(found.tangent, [[0.6]])
        result = Opaque.apply(d)
        with pytest.raises(NotImplementedError, match=r"Opaque: its jvp is asked for(?s:.*)Write"):
            fwAD.unpack_dual(result)


def test_m13_checkpoint() -> None:
    """Works."""
    with fwAD.dual_level():
        dual = fwAD.make_dual(leaf(1.0), constant(2.0))
        result = torch.utils.checkpoint.checkpoint(torch.sin, dual, use_reentrant=False)
        same(fwAD.unpack_dual(result).tangent, 2 * np.cos(1.0))
