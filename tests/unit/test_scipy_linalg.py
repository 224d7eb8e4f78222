"""What `ftrans.scipy.linalg` has beside JAX's functions, against SciPy and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import gradcheck, gradgradcheck
from ftrans.errors import ArgumentError, MissingRuleError, ShapeError
from tests.helpers import assert_close

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 4))
DEFINITE = A @ A.T + np.eye(4)
B = RNG.normal(size=(4, 2))
ours = ftrans.scipy.linalg


@pytest.mark.parametrize("lower", [False, True])
def test_factors_of_definite_matrices(lower: bool) -> None:
    half = np.tril(DEFINITE) if lower else np.triu(DEFINITE)
    assert_close(ours.cholesky(half, lower), scipy.linalg.cholesky(DEFINITE, lower), 1e-12)
    expected = np.linalg.solve(DEFINITE, B)
    assert_close(ours.solve(half, B, lower=lower, assume_a="pos"), expected, 1e-12)
    assert_close(ours.cho_solve(ours.cho_factor(half, lower), B), expected, 1e-12)
    assert_close(ours.solve(A, B[:, 0]), np.linalg.solve(A, B[:, 0]), 1e-12)
    assert_close(ours.inv(A), np.linalg.inv(A), 1e-12)


def test_matrices_that_are_not_what_they_must_be() -> None:
    flat = np.ones((2, 2))
    calls: list[Any] = [
        lambda: ours.cholesky(-flat),
        lambda: ours.cho_factor(-flat),
        lambda: ours.inv(flat),
        lambda: ours.solve(flat, np.ones(2)),
        lambda: ours.solve(-np.eye(2), np.ones(2), assume_a="pos"),
        lambda: ours.solve_triangular(0 * flat, np.ones(2)),
        lambda: ours.solve_triangular([[1, 0], [1, 0]], [1, 2], trans="T", lower=True),
        lambda: ours.lu_solve(ours.lu_factor(flat), np.ones(2)),
        lambda: ours.cho_solve((np.diag([1.0, 0.0]), True), np.ones(2)),
        lambda: ours.solve_banded((1, 1), np.zeros((3, 3)), np.ones(3)),
        lambda: ours.solve_banded((1, 0), np.zeros((2, 3)), b=np.ones(3)),
        lambda: ours.solve_sylvester(np.eye(2), -np.eye(2), flat),
    ]
    for call in calls:
        with pytest.raises(np.linalg.LinAlgError):
            call()
    with pytest.raises(ftrans.FtransError, match="assume_a"):
        ours.solve(A, B, assume_a="banded")
    assert np.isnan(ftrans.jit(ours.cholesky)(-flat)).any()
    assert not np.isfinite(ftrans.jit(ours.solve_triangular)(0 * flat, np.ones(2))).any()
    assert np.isnan(ours.solve_triangular(np.eye(2), np.full(2, np.nan))).all()


def along(f: Any, x: np.ndarray, direction: np.ndarray) -> Any:
    return (f(x + 1e-6 * direction) - f(x - 1e-6 * direction)) / 2e-6


def test_the_gradient_of_complex_definite_systems() -> None:
    z, b, d = (RNG.normal(size=s) + 1j * RNG.normal(size=s) for s in ((3, 3), 3, (3, 3)))

    def f(x: Any) -> Any:
        matrix = x @ fnp.conj(fnp.matrix_transpose(x)) + np.eye(3)
        return fnp.abs(ours.solve(matrix, b, assume_a="pos")).sum()

    expected = along(f, z, d)
    assert_close(np.vdot(func.grad(f)(z), d).real, expected, 1e-7)
    assert_close(func.jvp(f, (z,), (d,))[1], expected, 1e-7)


@pytest.mark.parametrize("bands", [(1, 1), (2, 1), (0, 1), (0, 0), (3, 2)])
def test_banded_systems(bands: tuple[int, int]) -> None:
    ab = RNG.normal(size=(sum(bands) + 1, 6))
    ab[bands[1]] += 5
    for b in (RNG.normal(size=6), RNG.normal(size=(6, 2))):
        assert_close(
            ours.solve_banded(bands, ab, b), scipy.linalg.solve_banded(bands, ab, b), 1e-12
        )
    f = lambda ab: (ours.solve_banded(bands, ab, b) ** 2).sum()  # noqa: E731
    direction = RNG.normal(size=ab.shape)
    for r, row in enumerate(direction):  # what lies outside of the matrix is not read
        shift = bands[1] - r
        row[: max(shift, 0)] = 0
        row[6 + min(shift, 0) :] = 0
    assert_close((func.grad(f)(ab) * direction).sum(), along(f, ab, direction), 1e-6)
    with pytest.raises(ftrans.ShapeError, match="do not fit"):
        ours.solve_banded((1, 2), ab[:1], b)


def test_lu_of_batches() -> None:
    batch = RNG.normal(size=(2, 2, 3, 3))
    permutation, lower, upper = ours.lu(batch)
    assert_close(permutation @ lower @ upper, batch, 1e-12)
    for x, y in zip(ours.lu(A, permute_l=True), scipy.linalg.lu(A, permute_l=True), strict=True):
        assert_close(x, y, 1e-12)


@pytest.mark.parametrize("order", [None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"])
def test_condition_numbers_in_all_norms(order: Any) -> None:
    assert_close(fnp.linalg.cond(A, order), np.linalg.cond(A, order), 1e-10)
    direction = RNG.normal(size=A.shape)
    f = lambda x: np.linalg.cond(x, order)  # noqa: E731
    assert_close((func.grad(f)(A) * direction).sum(), along(f, A, direction), 1e-5)


def test_names_that_there_are_not_say_what_to_do() -> None:
    with pytest.raises(AttributeError, match="SciPy"):
        _ = ftrans.scipy.special.elliprj
    with pytest.raises(AttributeError, match="SciPy"):
        _ = ours.qz
    for name in ("psi", "log1p", "expm1", "exp2", "sinc"):
        x = np.array([0.3, 1.5])
        assert_close(getattr(ftrans.scipy.special, name)(x), getattr(scipy.special, name)(x), 1e-12)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_one_triangle_is_read(lower: bool, is_complex: bool) -> None:
    a = A + 1j * A.T[::-1] if is_complex else A
    b = B[:, 0]
    assert_close(ours.eigh(a, lower=lower)[0], scipy.linalg.eigh(a, lower=lower)[0], 1e-12)
    values = ours.eigh(a, lower=lower, eigvals_only=True)
    assert_close(values, scipy.linalg.eigvalsh(a, lower=lower), 1e-12)
    for kind in ("sym", "her"):
        given = a if kind == "sym" else a - 1j * np.diag(a.diagonal().imag)
        expected = scipy.linalg.solve(given, b, lower=lower, assume_a=kind)
        assert_close(ours.solve(a, b, lower=lower, assume_a=kind), expected, 1e-10)
        assert_close(
            ftrans.jit(lambda a, kind=kind: ours.solve(a, b, lower=lower, assume_a=kind))(a),
            expected,
            1e-10,
        )
    found = fnp.linalg.svd(a, hermitian=True)
    assert_close(found[1], np.linalg.svd(a, hermitian=True)[1], 1e-12)
    assert_close(
        (found[0] * found[1]) @ found[2],
        fnp.linalg.pinv(fnp.linalg.pinv(a, hermitian=True), hermitian=True),
        1e-10,
    )
    assert_close(fnp.linalg.pinv(a, hermitian=True), np.linalg.pinv(a, hermitian=True), 1e-10)


def test_gradients_of_one_triangle_go_to_both() -> None:
    direction = A.T + A
    for f in (
        lambda a: ours.eigh(a, lower=False, eigvals_only=True)[0],
        lambda a: ours.solve(a, B, assume_a="sym").sum(),
        lambda a: fnp.linalg.svd(a, hermitian=True)[1][0],
        lambda a: fnp.linalg.pinv(a, hermitian=True).sum(),
    ):
        gradient = func.grad(f)(DEFINITE)
        assert_close(gradient, gradient.T, 1e-12)
        assert_close(np.vdot(gradient, direction), along(f, DEFINITE, direction), 1e-6)


def test_sylvester_equations() -> None:
    right = RNG.normal(size=(4, 2))
    given = [DEFINITE, A[:2, :2] @ A[:2, :2].T, right]
    assert_close(ours.solve_sylvester(*given), scipy.linalg.solve_sylvester(*given), 1e-12)
    both = ours.solve_sylvester(np.stack([DEFINITE, 2 * DEFINITE]), *given[1:])
    assert_close(both[0], ours.solve_sylvester(*given), 1e-12)
    whole = [np.array([[1, 2], [3, 4]]), np.eye(2, dtype=int), np.array([[1, 2], [3, 4]])]
    assert_close(ours.solve_sylvester(*whole), scipy.linalg.solve_sylvester(*whole), 1e-12)
    turned = [1j * given[0], given[1] + 0j, right + 0j]
    assert_close(ours.solve_sylvester(*turned), scipy.linalg.solve_sylvester(*turned), 1e-12)
    with pytest.raises(ValueError, match="Incompatible shapes"):
        ours.solve_sylvester(DEFINITE, DEFINITE, right)


@pytest.mark.slow
def test_derivatives_of_sylvester_equations() -> None:
    given = [DEFINITE, A[:2, :2] @ A[:2, :2].T, RNG.normal(size=(4, 2))]
    gradcheck(ours.solve_sylvester, tuple(given))
    gradgradcheck(ours.solve_sylvester, tuple(given))
    gradcheck(ours.solve_sylvester, (1j * given[0], given[1] + 0j, given[2] + 0j))


@pytest.mark.slow
def test_derivatives_of_square_roots_of_matrices() -> None:
    pair = np.stack([DEFINITE, DEFINITE + 0.3 * A])
    gradcheck(ours.sqrtm, (pair,))
    gradgradcheck(ours.sqrtm, (pair[1],))


def test_what_numpy_has_too_is_found_there() -> None:
    with pytest.raises(AttributeError, match=r"Write ftrans.numpy.linalg.svdvals\("):
        _ = ours.svdvals


def test_polar_factors() -> None:
    for a in (A, A[:2], A[:, :3], A + 1j * A.T, np.stack([A, A.T])):
        for side in ("left", "right"):
            unitary, definite = ours.polar(a, side)
            theirs = [scipy.linalg.polar(x, side) for x in a.reshape(-1, *a.shape[-2:])]
            assert_close(unitary, np.reshape([u for u, _ in theirs], unitary.shape), 1e-12)
            assert_close(definite, np.reshape([p for _, p in theirs], definite.shape), 1e-12)
    with pytest.raises(ArgumentError, match="polar: side is 'left' or 'right'"):
        ours.polar(A, side="up")
    with pytest.raises(ShapeError, match="polar: takes matrices"):
        ours.polar(A[0])


def test_slopes_of_polar_factors_at_a_rotation() -> None:
    direction = RNG.normal(size=(3, 3))
    _, turn = func.jvp(lambda a: ours.polar(a)[0], (np.eye(3),), (direction,))
    assert_close(turn, (direction - direction.T) / 2, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("a", [A, A[:, :3], A[:2], A + 1j * A.T])
def test_derivatives_of_polar_factors(a: Any, side: str) -> None:
    gradcheck(lambda a: ours.polar(a, side), (a,))
    gradgradcheck(lambda a: ours.polar(a, side)[0], (a,))


@pytest.mark.parametrize("transform", [func.grad, func.jacfwd])
def test_what_jax_does_not_differentiate_says_so(transform: Any) -> None:
    with pytest.raises(MissingRuleError, match="schur: JAX does not differentiate it"):
        transform(lambda a: ours.schur(a)[0].sum())(A)
