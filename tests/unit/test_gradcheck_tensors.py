"""`gradcheck` of functions that cannot be traced: they are called on tensors, as by PyTorch.

What is expected are PyTorch's verdicts on the same functions.
"""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.errors import GradcheckError, GradcheckOutputError
from ftrans.torch.autograd import forward_ad, gradcheck, gradgradcheck


def leaf(*numbers: Any, dtype: Any = torch.float64) -> Any:
    return torch.tensor(numbers, dtype=dtype, requires_grad=True)


X = leaf(0.5, 2.0)
Z = leaf(0.5 + 1j, 2.0 - 0.3j, dtype=torch.complex128)


def slope(x: Any) -> Any:
    return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]


def hooked(x: Any) -> Any:
    y = x * x
    y.register_hook(lambda g: g)
    y.retain_grad()
    return y


def asking(x: Any) -> Any:
    assert x.grad_fn is None
    assert x.is_leaf
    return x * 2 if x.requires_grad else x * 3


def unpacking(x: Any) -> Any:
    primal, tangent = forward_ad.unpack_dual(x)
    return x.sin() if tangent is None else forward_ad.make_dual(primal, tangent).sin()


def stretching(x: Any) -> Any:
    primal, tangent = forward_ad.unpack_dual(x)
    return x if tangent is None else forward_ad.make_dual(primal, 1.1 * tangent)


class Looking(torch.autograd.Function):
    """Asks in `forward` whether its argument requires grad."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        assert x.requires_grad in (True, False)
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ctx.saved_tensors[0].cos()


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("point", [X, Z, leaf(0.5, 2.0, dtype=torch.float32)])
@pytest.mark.parametrize("function", [slope, hooked, asking, unpacking])
def test_what_asks_for_a_graph_is_checked(function: Any, point: Any, fast_mode: bool) -> None:
    if not (function is slope and point is Z):  # one goes backward from a complex sum
        assert gradcheck(function, point, fast_mode=fast_mode, check_batched_grad=True)


@pytest.mark.parametrize("function", [slope, hooked, asking, unpacking])
def test_second_derivatives_of_what_asks_for_a_graph(function: Any) -> None:
    assert gradgradcheck(function, X, check_fwd_over_rev=True)


def test_forward_mode_of_what_asks_for_tangents() -> None:
    assert gradcheck(unpacking, X, check_forward_ad=True, check_batched_forward_grad=True)
    for fast_mode in (False, True):
        with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output"):
            gradcheck(stretching, X, check_forward_ad=True, fast_mode=fast_mode)
    assert gradcheck(stretching, X)


def test_a_function_that_asks_what_requires_grad_is_checked() -> None:
    for check in (gradcheck, gradgradcheck):
        assert check(Looking.apply, X)


def falsified(change: Any) -> Any:
    def function(x: Any) -> Any:
        y = x.clone()
        y.register_hook(change)
        return y

    return function


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_hook_that_falsifies_the_gradient_is_found(fast_mode: bool) -> None:
    wrong = falsified(lambda g: g + 1e-2)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to"):
        gradcheck(wrong, X, fast_mode=fast_mode)
    assert not gradcheck(wrong, X, fast_mode=fast_mode, raise_exception=False)
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(wrong, X, fast_mode=fast_mode, atol=0.1)
    assert not gradcheck(wrong, Z, fast_mode=fast_mode, raise_exception=False)


def test_a_clone_of_what_does_not_require_grad_is_written_to() -> None:
    fixed = torch.tensor([1.0, 2.0], dtype=torch.float64)
    for check in (gradcheck, gradgradcheck):
        assert check(lambda a, x: a.clone().add_(x), (fixed, X))
    assert fixed.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("function", [torch.sin, slope])
def test_cotangents_may_be_of_a_lower_precision(function: Any) -> None:
    assert gradgradcheck(function, X, torch.tensor([0.25, -0.5], dtype=torch.float32))


def test_outputs_that_do_not_require_grad_are_not_compared() -> None:
    assert gradcheck(lambda x: (slope(x), x.detach(), torch.arange(2)), X)
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: slope(x).detach(), X)


def test_shapes_that_depend_on_values_are_found() -> None:
    def function(x: Any) -> Any:
        assert x.requires_grad
        return torch.cat([x, x]) if torch.all(x >= 1) else x

    with pytest.raises(GradcheckOutputError, match="outputs with the same shape when inputs are"):
        gradcheck(function, leaf(1.0))


def test_what_the_function_raises_is_raised() -> None:
    def fails(x: Any) -> Any:
        raise KeyError(f"of {type(x).__name__}")

    with pytest.raises(KeyError, match="of Tensor"):
        gradcheck(fails, X, raise_exception=False)


def test_functions_of_and_to_rank_zero() -> None:
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert gradcheck(slope, (x,))
    assert gradgradcheck(slope, (x,))
    assert gradgradcheck(lambda x: hooked(x).sum(), (X,))
    assert not gradcheck(lambda x: slope(x) + x.detach() * 2, (x,), raise_exception=False)
