"""Complex numbers, row by row of what PyTorch's documents name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import ftrans
import ftrans.torch as torch
from tests.torch_suite.common import leaf, same


def point(values: Any) -> Any:
    return torch.tensor(values, dtype=torch.complex128, requires_grad=True)


def pulled(function: Callable[[Any], Any], at: Any, ct: Any = None) -> Any:
    function(at).backward(None if ct is None else torch.tensor(ct, dtype=torch.complex128))
    return at.grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Any) -> Any:
        ctx.save_for_backward(z)
        return z**2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (z,) = ctx.saved_tensors
        return ct * 2 * z.conj()


class Unconjugated(Square):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (z,) = ctx.saved_tensors
        return ct * 2 * z


def test_l1_gradient_is_the_direction_of_steepest_ascent() -> None:
    """Works."""
    same(pulled(lambda z: (z * z.conj()).real, point(3 + 4j)), 6 + 8j)
    same(pulled(lambda z: z.real**2 + z.imag**2, point(3 + 4j)), 6 + 8j)
    same(pulled(torch.abs, point(3 + 4j)), 0.6 + 0.8j)
    z = point(3 + 4j)
    step = 0.5 * pulled(lambda z: z.abs() ** 2, z)
    with torch.no_grad():
        z -= step
    same(z, 0j)


def test_l2_holomorphic_functions() -> None:
    """Works."""
    same(pulled(lambda z: z**2, point(3 + 4j), 1), 6 - 8j)
    same(pulled(lambda z: 2 * z, point(3 + 4j), 1), 2 + 0j)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda z: z.real, 1 + 0j),
        (lambda z: z.imag, 1j),
        (lambda z: torch.angle(z), -0.16 + 0.12j),
        (lambda z: torch.real(z), 1 + 0j),
        (lambda z: torch.imag(z), 1j),
    ],
)
def test_l3_general_formula(function: Callable[[Any], Any], expected: complex) -> None:
    """Works."""
    found = pulled(function, point(3 + 4j))
    assert found.dtype == torch.complex128
    same(found, expected)


def test_l4_real_results_of_complex_numbers() -> None:
    """Works."""
    same(pulled(lambda z: 3 * z.abs() ** 2, point(3 + 4j)), 3 * (6 + 8j))
    z = point(3 + 4j)
    (z.abs() ** 2).backward(torch.tensor(0.5, dtype=torch.float64))
    same(z.grad, 3 + 4j)


@pytest.mark.parametrize(("ct", "expected"), [(1, 1.0), (1j, 2.0)])
def test_l5_complex_results_of_real_numbers(ct: complex, expected: float) -> None:
    """Works."""
    found = pulled(lambda r: (1 + 2j) * r, leaf(3.0), ct)
    assert found.dtype == torch.float64
    same(found, expected)


def test_l6_no_implicit_cotangent_of_a_complex_result() -> None:
    """Works."""
    z = point(3 + 4j)
    text = "grad can be implicitly created only for real scalar outputs but got complex128"
    with pytest.raises(RuntimeError, match=text):
        (z**2).backward()
    with pytest.raises(RuntimeError, match=text):
        torch.autograd.grad(z**2, z)


@pytest.mark.parametrize("function", [torch.abs, torch.angle])
def test_l7_gradients_at_zero(function: Callable[[Any], Any]) -> None:
    """Works."""
    same(pulled(function, point(0j)), 0j)


@pytest.mark.parametrize(
    "transforms",
    [
        lambda: (ftrans.external.jax(jnp.fft.fft), ftrans.external.jax(jnp.fft.ifft)),
        lambda: (torch.fft.fft, torch.fft.ifft),
    ],
)
def test_l8_complex_numbers_inside(transforms: Callable[[], Any]) -> None:
    """Works."""
    forth, back = transforms()
    x = leaf([1.0, 2.0, 4.0])
    result = back(forth(x)).real
    same(result, [1.0, 2.0, 4.0])
    result.sum().backward()
    assert x.grad.dtype == torch.float64
    same(x.grad, [1.0, 1.0, 1.0])


def test_l9_transforms() -> None:
    """Differs: `jacrev` and `jacfwd` take complex numbers, with `holomorphic=` True or False."""
    z, one = (torch.tensor(v, dtype=torch.complex128) for v in (1 + 1j, 1 + 0j))
    value, pull = torch.func.vjp(lambda z: z**2, z)
    same(value, 2j)
    same(pull(one)[0], 2 - 2j)
    same(torch.func.jvp(lambda z: z**2, (z,), (one,))[1], 2 + 2j)
    with pytest.raises(TypeError, match=r"must return a real.*scalar(?s:.*)value\.real"):
        torch.func.grad(lambda z: z**2)(z)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        with pytest.raises(TypeError, match=r"real arguments(?s:.*)Pass holomorphic=True"):
            transform(lambda z: z**2)(z)
        same(transform(lambda z: z**2, holomorphic=True)(z), 2 + 2j)
        pairs = transform(lambda z: z**2, holomorphic=False)(z)
        same(pairs, [[2.0, -2.0], [2.0, 2.0]])


def test_l10_gradcheck() -> None:
    """Differs: the real part is compared before the imaginary one, and named in the message."""
    z = point([3 + 4j, 1 - 1j])
    for fast_mode in (False, True):
        assert torch.autograd.gradcheck(lambda z: z**2, (z,), fast_mode=fast_mode)
        assert torch.autograd.gradcheck(Square.apply, (z,), fast_mode=fast_mode)
        text = "While considering the real part of complex outputs only, Jacobian mismatch"
        with pytest.raises(torch.autograd.GradcheckError, match=text):
            torch.autograd.gradcheck(Unconjugated.apply, (z,), fast_mode=fast_mode)
    with pytest.raises(torch.autograd.GradcheckError, match="a missing conjugate"):
        torch.autograd.gradcheck(Unconjugated.apply, (z,))


@pytest.mark.parametrize(
    ("function", "expected"),
    [(lambda z: 2 * z, (2, 0)), (lambda z: 2 * z.conj(), (0, 2)), (lambda z: z * z, (6 + 8j, 0))],
)
def test_l11_wirtinger_derivatives(function: Any, expected: tuple[complex, complex]) -> None:
    """Works."""
    z = torch.tensor(3 + 4j, dtype=torch.complex128)
    along = [
        torch.func.jvp(function, (z,), (torch.tensor(v, dtype=torch.complex128),))[1]
        for v in (1, 1j)
    ]
    same(0.5 * (along[0] - 1j * along[1]), expected[0])
    same(0.5 * (along[0] + 1j * along[1]), expected[1])
