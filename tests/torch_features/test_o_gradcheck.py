"""`gradcheck`, row by row of what PyTorch's documents name."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.torch.autograd import GradcheckError, gradcheck, gradgradcheck
from tests.torch_suite.common import SinhBySaved, constant, leaf, same


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ct * 2 * x


class Steeper(Square):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return Square.backward(ctx, ct) * 1.01


class Noisy(Square):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        noise = np.random.default_rng().normal(size=2)
        return Square.backward(ctx, ct) + ct * 1e-4 * noise


class Drawing(Square):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return Square.backward(ctx, ct) + 1e-4 * torch.randn(2)


class SinhConstant(SinhBySaved):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        up, down = ctx.saved_tensors
        return ct * (up + down).detach() / 2


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return 2 * ct


class Unsorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.sort(x)[0]

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct


POINT = leaf([0.3, 0.5])


def test_o1_gradcheck() -> None:
    """Works."""
    options = list(inspect.signature(gradcheck).parameters)
    assert options[:6] == ["func", "inputs", "eps", "atol", "rtol", "raise_exception"]
    assert options[-2:] == ["fast_mode", "masked"]
    assert gradcheck(torch.sin, (POINT,)) is True
    assert gradcheck(torch.sin, POINT, eps=1e-6, atol=1e-5, rtol=1e-3) is True
    text = "Jacobian mismatch for output 0 with respect to input 0"
    with pytest.raises(GradcheckError, match=text):
        gradcheck(Steeper.apply, (POINT,))
    assert gradcheck(Steeper.apply, (POINT,), raise_exception=False) is False
    calls = []

    def counted(x: Any) -> Any:
        calls.append(x)
        return torch.sin(x)

    assert gradcheck(counted, (torch.rand(50, 50, dtype=torch.float64, requires_grad=True),))
    assert len(calls) < 100


def test_o2_gradgradcheck() -> None:
    """Differs: `SinhBySaved` passes, since what forward computes of x is differentiated as well."""
    assert gradgradcheck(torch.sin, (POINT,)) is True
    assert gradgradcheck(torch.sin, (POINT,), check_fwd_over_rev=True) is True
    assert gradgradcheck(SinhBySaved.apply, (POINT,)) is True
    x = leaf(1.0)
    (slope,) = torch.autograd.grad(SinhBySaved.apply(x), x, create_graph=True)
    same(torch.autograd.grad(slope, x)[0], np.sinh(1.0))
    assert gradcheck(SinhConstant.apply, (POINT,)) is True
    with pytest.raises(GradcheckError, match="a value that is taken for a constant"):
        gradgradcheck(SinhConstant.apply, (POINT,))


@pytest.mark.parametrize(
    "home",
    [
        "ftrans.torch.autograd",
        "ftrans.torch.autograd.gradcheck",
    ],
)
def test_o3_gradcheck_error(home: str) -> None:
    """Works."""
    error = importlib.import_module(home).GradcheckError
    assert issubclass(error, RuntimeError)
    with pytest.raises(error):
        gradcheck(Steeper.apply, (POINT,))

    def fails(x: Any) -> Any:
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        gradcheck(fails, (POINT,), raise_exception=False)


def test_o4_fast_mode() -> None:
    """Works."""
    many = torch.rand(150, 150, dtype=torch.float64, requires_grad=True)
    assert gradcheck(torch.sin, (many,), fast_mode=True)
    shuffled = leaf([3.0, 1.0, 2.0])
    assert gradcheck(lambda x: torch.sort(x)[0], (shuffled,), fast_mode=True)
    assert not gradcheck(Unsorted.apply, (shuffled,), fast_mode=True, raise_exception=False)
    assert gradcheck(lambda x: torch.cumprod(x, 0), (shuffled,), fast_mode=True)
    z = torch.tensor([3 + 4j, 1 - 1j], dtype=torch.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z, (z,), fast_mode=True)


def test_o5_single_precision() -> None:
    """Differs: it passes without a warning, as differences are taken in double precision."""
    x = torch.tensor(0.3, dtype=torch.float32, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradcheck(torch.sin, (x,)) is True
        assert gradcheck(torch.sin, (x.detach().to(torch.float16).requires_grad_(),)) is True
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(Steeper.apply, (x,))


def test_o6_nondet_tol() -> None:
    """Works."""
    for rule in (Noisy, Drawing):
        with pytest.raises(GradcheckError, match="Backward is not reentrant"):
            gradcheck(rule.apply, (POINT,))
    assert gradcheck(Noisy.apply, (POINT,), nondet_tol=1e-2, atol=1e-2)


def test_o7_check_undefined_grad() -> None:
    """Works."""
    with pytest.raises(GradcheckError, match="to handle undefined output grads"):
        gradcheck(Twice.apply, (POINT,))
    assert gradcheck(Twice.apply, (POINT,), check_undefined_grad=False)


def test_o8_overlapping_memory() -> None:
    """Differs: only arrays overlap; an expanded tensor is a value of its own, and is checked."""
    expanded = torch.ones(1, dtype=torch.float64).expand(3).requires_grad_()
    assert gradcheck(lambda x: x**3, (expanded,)) is True
    with pytest.raises(RuntimeError, match=r"dimension with stride 0(?s:.*)\.copy\(\)"):
        gradcheck(torch.sin, (np.broadcast_to(np.ones(1), (3,)),))


def test_o9_kinks() -> None:
    """Works."""
    at_zero = leaf([0.0])
    assert gradcheck(torch.abs, (at_zero,)) is True
    numbers = r"numerical:\[\[0\.5\]\]\nanalytical:\[\[0\.\]\]"
    with pytest.raises(GradcheckError, match=rf"{numbers}(?s:.*)the function has a kink"):
        gradcheck(torch.relu, (at_zero,))


def test_o10_arguments() -> None:
    """Works."""
    fixed = constant([1.0, 2.0])
    assert gradcheck(lambda x, y: Square.apply(x) * y, (POINT, fixed))
    with pytest.raises(
        ValueError, match=r"requires grad\.\n  Make those .* with requires_grad=True"
    ):
        gradcheck(torch.sin, (fixed,))
    with pytest.raises(AssertionError, match="Set check_forward_ad or check_backward_ad"):
        gradcheck(torch.sin, (POINT,), check_backward_ad=False)


def test_o11_batched_and_forward() -> None:
    """Works."""
    names = ("check_batched_grad", "check_batched_forward_grad", "check_forward_ad")
    flags = dict.fromkeys(names, True)
    assert gradcheck(torch.sin, (POINT,), **flags) is True
    assert gradcheck(torch.sin, (POINT,), check_forward_ad=True, check_backward_ad=False) is True
    for fast_mode in (False, True):
        with pytest.raises(GradcheckError, match="Jacobian mismatch"):
            gradcheck(Steeper.apply, (POINT,), fast_mode=fast_mode, **flags)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.sparse,
        lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,)),
        lambda: POINT.to_sparse(),
    ],
)
def test_o12_masked(make: Any) -> None:
    """Declined: tensors are dense, as the error says; `masked=` is taken and means nothing."""
    assert gradcheck(torch.sin, (POINT,), masked=True) is True
    assert gradgradcheck(torch.sin, (POINT,), masked=True) is True
    with pytest.raises(AttributeError, match="dense"):
        make()


def test_o13_legacy_helpers() -> None:
    """Declined: deprecated, private; the error says `autograd.functional.jacobian`."""
    same(torch.autograd.functional.jacobian(lambda x: 2 * x, POINT), 2 * np.eye(2))
    with pytest.raises(ImportError, match="get_numerical_jacobian"):
        from ftrans.torch.autograd.gradcheck import get_numerical_jacobian  # noqa: F401
    module = importlib.import_module("ftrans.torch.autograd.gradcheck")
    for name in ("get_numerical_jacobian", "get_analytical_jacobian"):
        with pytest.raises(AttributeError, match=r"Write torch\.autograd\.functional\.jacobian"):
            getattr(module, name)
