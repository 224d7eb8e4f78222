"""The tenth derivative: right to nine digits, and of a program that grows polynomially."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close

ORDER = 10


def by_grad(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return func.grad(f)


def by_jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: func.jvp(f, (x,), (fnp.ones_like(x),))[1]


def alternating(f: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    for n in range(order):
        f = by_grad(f) if n % 2 else by_jvp(f)
    return f


def repeated(way: Any) -> Callable[[Callable[[Any], Any], int], Callable[[Any], Any]]:
    def apply(f: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
        for _ in range(order):
            f = way(f)
        return f

    return apply


WAYS = {"grad": repeated(by_grad), "jvp": repeated(by_jvp), "alternating": alternating}


def tanh_derivative(order: int, x: float) -> float:
    """Returns a derivative of tanh, from the polynomials P with d/dx P(t) = P'(t) (1 - t^2)."""
    coefficients = [Fraction(0), Fraction(1)]  # t
    for _ in range(order):
        slope = [k * c for k, c in enumerate(coefficients)][1:]
        out = [Fraction(0)] * (len(slope) + 2)
        for k, c in enumerate(slope):
            out[k] += c
            out[k + 2] -= c
        coefficients = out
    t = Fraction(math.tanh(x))
    return float(sum(c * t**k for k, c in enumerate(coefficients)))


def sin_derivative(order: int, x: float) -> float:
    return [math.sin, math.cos, lambda x: -math.sin(x), lambda x: -math.cos(x)][order % 4](x)


CASES = {
    "sin": (fnp.sin, sin_derivative),
    "tanh": (fnp.tanh, tanh_derivative),
    "exp": (fnp.exp, lambda order, x: math.exp(x)),
    "power": (lambda x: x**12, lambda n, x: math.perm(12, n) * x ** (12 - n)),
}


def counts(way: Any, f: Any, x: Any) -> list[int]:
    return [ftrans.trace(way(f, order))(x).count() for order in range(1, ORDER + 1)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_tenth_derivative(name: str, way: str) -> None:
    f, closed_form = CASES[name]
    x = np.float64(0.3)
    derivative = WAYS[way](f, ORDER)
    got, expected = float(derivative(x)), closed_form(ORDER, 0.3)
    sizes = counts(WAYS[way], f, x)
    assert abs(got - expected) <= 1e-9 * abs(expected), (
        f"{way} x {ORDER} of {name}: {got!r}, not {expected!r}; equations by order: {sizes}"
    )
    # a program that doubled with each order would have 2 ** 10 equations and more
    assert sizes[-1] <= 2 * ORDER**2, f"{way} of {name}: equations by order: {sizes}"
    doubled = sizes[-1] / max(5, sizes[ORDER // 2 - 1])
    assert doubled <= 2**3, f"{way} of {name} outgrows n ** 3: equations by order: {sizes}"


@pytest.mark.smoke
def test_third_derivative_of_tanh() -> None:
    x = np.float64(0.3)
    got = func.grad(func.grad(func.grad(fnp.tanh)))(x)
    np.testing.assert_allclose(got, tanh_derivative(3, 0.3), rtol=1e-12)


def test_fifth_derivatives_of_a_composition() -> None:
    """d^5/dx^5 sin(x) exp(x) = -4 exp(x) (cos(x) + sin(x)), from (1 + i)^5 = -4 - 4i."""
    x = 0.7
    expected = -4 * math.exp(x) * (math.cos(x) + math.sin(x))
    for way in WAYS.values():
        got = way(lambda x: fnp.sin(x) * fnp.exp(x), 5)(np.float64(x))
        np.testing.assert_allclose(got, expected, rtol=1e-11)


def test_a_mixed_derivative_tensor_is_symmetric() -> None:
    x = np.array([0.3, -0.8, 1.1])
    f = lambda x: fnp.sin(x[0] * x[1]) * fnp.exp(x[2] * x[0]) + (x**4).sum()  # noqa: E731
    third = func.jacfwd(func.hessian(f))(x)
    for axes in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
        np.testing.assert_allclose(third, third.transpose(axes), rtol=1e-12, atol=1e-12)
    step = 1e-5
    differences = np.stack(
        [
            (func.hessian(f)(x + step * e) - func.hessian(f)(x - step * e)) / (2 * step)
            for e in np.eye(3)
        ],
        axis=-1,
    )
    np.testing.assert_allclose(third, differences, rtol=1e-7, atol=1e-7)


AUX: dict[str, Callable[[Any, Any], Any]] = {
    "vjp": lambda f, x: func.vjp(f, x, has_aux=True)[2],
    "jvp": lambda f, x: func.jvp(f, (x,), (x,), has_aux=True)[2],
    "linearize": lambda f, x: func.linearize(f, x, has_aux=True)[2],
}


@pytest.mark.parametrize("transform", AUX)
def test_what_is_returned_besides_has_derivatives_outside(transform: str) -> None:
    """Of the arguments, of what is closed over, and beside what is held constant by the user."""
    x, aux = np.array([0.5, 1.0, 2.0]), AUX[transform]

    def found(x: Any, c: Any) -> Any:
        given = aux(lambda x: (x**3 * c, (c * x * x, fnp.stop_gradient(c) * x, 2)), x)
        assert given[2] == 2
        return (given[0] + given[1] * c).sum()

    assert_close(func.grad(found)(x, np.float64(3.0)), 2 * 3 * x + 9)
    assert_close(func.grad(found, argnums=1)(x, np.float64(3.0)), (x * x).sum() + 3 * x.sum())
    slopes = func.vmap(func.grad(found), in_dims=(None, 0))(x, np.array([1.0, 3.0]))
    assert_close(slopes, np.stack([2 * x + 1, 6 * x + 9]))
    assert_close(func.hessian(found)(x, np.float64(3.0)), np.diag(np.full(3, 6.0)))
    jax_found = jax.grad(lambda x: jax.vjp(lambda x: (x**3, 3.0 * x * x), x, has_aux=True)[2].sum())
    assert_close(func.grad(lambda x: aux(lambda x: (x**3, 3.0 * x * x), x).sum())(x), jax_found(x))


def test_the_value_beside_a_product_with_the_hessian_has_derivatives() -> None:
    x, f = np.array([0.5, 1.0, 2.0]), lambda x: (x**3).sum()
    for product in (func.hvp, func.vhp):
        assert_close(func.grad(lambda x, p=product: p(f, (x,), (x,))[0])(x), 3 * x * x)
