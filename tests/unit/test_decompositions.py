"""Determinants and decompositions: derivatives where JAX has none, or none that is finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
import ftrans.torch as torch
from ftrans import func
from tests.helpers import assert_close, sampled

la = fnp.linalg
random = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return random.normal(size=shape)


def of_values(*values: float) -> np.ndarray:
    """Returns a square matrix of these singular values."""
    n = len(values)
    return np.linalg.qr(draw(n, n))[0] * values @ np.linalg.qr(draw(n, n))[0]


def pushed(f: Callable[..., Any], x: Any, t: Any, order: int = 1) -> Any:
    """Returns the derivative of some order along one direction."""
    for _ in range(order):
        f = lambda x, f=f: func.jvp(f, (x,), (t,))[1]  # noqa: E731
    return f(x)


def difference(f: Callable[..., Any], x: Any, t: Any) -> Any:
    h = 1e-6
    return (np.asarray(f(x + h * t)) - np.asarray(f(x - h * t))) / (2 * h)


@pytest.mark.parametrize(
    "values",
    sampled([(2, 3, 5, 0), (2, 3, 5, 7), (2, 3, 0, 0), (2, 0, 0, 0), (1, 1, 1, 2, 0, 0)], 4),
)
def test_determinants_of_singular_matrices_are_polynomials(values: tuple[float, ...]) -> None:
    a, t, n = of_values(*values), draw(len(values), len(values)), len(values)
    at = np.cos(np.pi * (np.arange(n + 1) + 0.5) / (n + 1))
    exact = np.polynomial.polynomial.polyfit(at, [np.linalg.det(a + s * t) for s in at], n)
    for order, factor in ((1, 1), (2, 2), (3, 6)):
        assert_close(pushed(la.det, a, t, order), factor * exact[order], 1e-10)
    assert_close(np.sum(func.grad(la.det)(a) * t), exact[1], 1e-10)
    # as one of a batch, and a Hessian by reverse mode
    batch = np.stack([a, of_values(*range(1, n + 1))])
    assert_close(func.vmap(func.grad(la.det))(batch)[0], func.grad(la.det)(a))
    product = func.vjp(func.grad(la.det), a)[1](t)[0]
    assert_close(np.sum(product * t), 2 * exact[2], 1e-10)


@pytest.mark.parametrize("values", [(2, 0), (0, 0), (2, 3, 0), (2, 0, 0)])
def test_small_determinants_are_polynomials(values: tuple[float, ...]) -> None:
    a, t, n = of_values(*values), draw(len(values), len(values)), len(values)
    at = np.cos(np.pi * (np.arange(n + 1) + 0.5) / (n + 1))
    exact = np.polynomial.polynomial.polyfit(at, [np.linalg.det(a + s * t) for s in at], n)
    for order, factor in ((1, 1), (2, 2), (3, 6)):
        wanted = factor * exact[order] if order <= n else 0.0
        assert_close(pushed(la.det, a, t, order), wanted, 1e-10)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_determinants_of_small_matrices(n: int) -> None:
    a, t = draw(2, n, n), draw(2, n, n)
    assert_close(la.det(a), np.linalg.det(a))
    assert_close(pushed(la.det, a, t), difference(np.linalg.det, a, t), 1e-6)
    assert la.det(np.ones((0, n, n))).shape == (0,)


def test_wide_matrices_have_derivatives_of_their_factors() -> None:
    a, t = draw(2, 3, 5), draw(2, 3, 5)
    for mine, theirs in zip(la.qr(a), np.linalg.qr(a), strict=True):
        assert_close(mine, theirs)
    for f in (lambda x: la.qr(x)[0], lambda x: la.qr(x)[1], lambda x: la.qr(x, mode="r")):
        assert_close(pushed(f, a, t), difference(f, a, t), 1e-6)
        assert_close(pushed(f, a, t, 2), difference(lambda x, f=f: pushed(f, x, t), a, t), 1e-6)


@pytest.mark.parametrize("shape", sampled([(5, 2), (2, 5), (2, 4, 3)], 2))
def test_a_full_decomposition_has_derivatives(shape: tuple[int, ...]) -> None:
    a, t = draw(*shape), draw(*shape)
    u, s, vh = la.svd(a)
    n = s.shape[-1]
    assert_close(np.swapaxes(u, -1, -2) @ u, np.broadcast_to(np.eye(u.shape[-1]), u.shape))
    assert_close(np.swapaxes(vh, -1, -2) @ vh, np.broadcast_to(np.eye(vh.shape[-1]), vh.shape))
    assert_close(u[..., :n] * s[..., None, :] @ vh[..., :n, :], a)

    def beyond(x: Any) -> Any:  # projects onto what the matrix does not reach, on both sides
        u, _, vh = la.svd(x)
        u, v = u[..., n:], fnp.matrix_transpose(vh)[..., n:]
        return u @ fnp.matrix_transpose(u), v @ fnp.matrix_transpose(v)

    for i in (0, 1):
        f = lambda x, i=i: beyond(x)[i]  # noqa: E731
        assert_close(pushed(f, a, t), difference(f, a, t), 1e-6)
        assert_close(pushed(f, a, t, 2), difference(lambda x, f=f: pushed(f, x, t), a, t), 1e-6)


def test_eigenvalues_of_any_matrix_have_second_derivatives() -> None:
    a, t = draw(4, 4), draw(4, 4)
    f = lambda x: (la.eigvals(x) ** 3).real.sum()  # noqa: E731
    assert_close(pushed(f, a, t), 3 * np.trace(a @ a @ t), 1e-10)
    assert_close(pushed(f, a, t, 2), 6 * np.trace(a @ t @ t), 1e-10)
    assert_close(func.grad(f)(a), 3 * (a @ a).T, 1e-10)


def test_eigenvectors_of_any_matrix_have_derivatives() -> None:
    a, t = draw(4, 4), draw(4, 4)
    values, vectors = la.eig(a)
    assert_close(a @ vectors, vectors * values, 1e-10)
    sizes = lambda x: abs(la.eig(x).eigenvectors)  # noqa: E731
    assert_close(pushed(sizes, a, t), difference(sizes, a, t), 1e-6)


def test_the_rank_by_a_bound_as_numpy_has_it() -> None:
    a = of_values(4, 1, 0.1, 0)
    assert la.matrix_rank(a) == 3
    assert la.matrix_rank(a, 0.5) == np.linalg.matrix_rank(a, 0.5) == 2
    assert la.matrix_rank(a, rtol=0.2) == np.linalg.matrix_rank(a, rtol=0.2) == 2
    assert la.matrix_rank(np.stack([a, a]), np.array([0.5, 2])).tolist() == [2, 1]
    assert la.matrix_rank(np.ones((2, 0, 3))).tolist() == [0, 0]
    assert la.matrix_rank(np.ones(3)) == 1


def test_negative_powers_are_those_of_the_inverse() -> None:
    a = draw(3, 3)
    assert_close(la.matrix_power(a, -2), np.linalg.matrix_power(a, -2), 1e-10)


@pytest.mark.parametrize("order", [1, 2, np.inf, "fro", "nuc"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_norms_of_empty_matrices_are_zero(order: Any, shape: tuple[int, int]) -> None:
    assert la.norm(np.ones(shape), order) == 0


def test_norms_of_negative_order_have_slope_zero_at_zero() -> None:
    for x in (np.zeros(3), np.array([0.0, 1.0, 2.0])):
        assert_close(func.grad(lambda x: la.norm(x, -2))(x), np.zeros(3))


def test_tensors_have_our_conventions_of_matrices() -> None:
    a = np.array([[2.0, 9.0], [1.0, 3.0]])  # one triangle is read
    factor = torch.linalg.cholesky(torch.tensor(a))
    assert_close(factor, np.linalg.cholesky(a))
    gradient = func.grad(lambda x: torch.linalg.cholesky(x).sum())(a)
    assert_close(gradient, gradient.T)


def test_logarithms_of_complex_determinants_are_complex() -> None:
    a = draw(3, 3) + 1j * draw(3, 3)
    assert_close(np.exp(torch.logdet(a)), np.linalg.det(a))
    assert_close(torch.take_along_dim(np.array([[1, 2], [3, 4]]), np.array([3, 0])), [4, 1])
    assert_close(torch.diagflat(np.array([1, 2]), offset=1), np.diagflat([1, 2], 1))
