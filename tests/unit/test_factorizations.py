"""Factors of matrices: values against NumPy and JAX, derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.errors import ArgumentError, DTypeError, MissingRuleError, ShapeError
from tests.helpers import assert_close

la = fnp.linalg
rng = np.random.default_rng(3)


@pytest.fixture(params=["interpret", pytest.param("compile", marks=pytest.mark.slow)])
def execution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(config, "execution", request.param)
    return request.param


def draw(*shape: int, dtype: str = "float64") -> np.ndarray:
    x = rng.normal(size=shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def adjoint(x: Any) -> Any:
    return fnp.conj(fnp.swapaxes(x, -1, -2))


def span(basis: Any) -> Any:
    """Returns the projection to a space, which no phase and no rotation in it changes."""
    return basis @ adjoint(basis)


def hermitian(x: Any) -> Any:
    return x + adjoint(x)


# smooth at matrices in general position; nothing depends on the phase of a vector
INVARIANT: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: la.solve(a, a[..., :1] * 2 + 1),
    "inv": la.inv,
    "qr": lambda a: span(la.qr(a).Q[..., :2]),
    "r": lambda a: abs(la.qr(a, mode="r")),
    "svdvals": la.svdvals,
    "svd": lambda a: span(la.svd(a, full_matrices=False).U[..., :1]),
    "right": lambda a: span(adjoint(la.svd(a, full_matrices=False).Vh)[..., :1]),
    "product": lambda a: (lambda u, s, vh: (u * fnp.sin(s)[..., None, :]) @ vh)(
        *la.svd(a, full_matrices=False)
    ),
    "full": lambda a: span(la.svd(a).U[..., 1:]),
    "rows": lambda a: span(adjoint(la.svd(a).Vh)[..., 1:]),
}
HERMITIAN: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda a: la.cholesky(hermitian(a) + 9 * np.eye(a.shape[-1])),
    "upper": lambda a: la.cholesky(hermitian(a) + 9 * np.eye(a.shape[-1]), upper=True),
    "eigvalsh": lambda a: la.eigvalsh(hermitian(a)),
    "eigh": lambda a: span(la.eigh(hermitian(a)).eigenvectors[..., :1]),
    "function": lambda a: (lambda w, v: (v * fnp.tanh(w)[..., None, :]) @ adjoint(v))(
        *la.eigh(hermitian(a))
    ),
    "svd of Hermitian": lambda a: la.svd(hermitian(a), hermitian=True).S,
}
WIDE = {"qr", "r", "svdvals", "svd", "right", "product", "full", "rows"}
CASES = [(name, f, (3, 3)) for name, f in {**INVARIANT, **HERMITIAN}.items()]
CASES += [(name, INVARIANT[name], shape) for name in sorted(WIDE) for shape in ((4, 2), (2, 4))]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("name", "f", "shape"), CASES, ids=lambda x: x if type(x) is str else "")
def test_derivatives(name: str, f: Any, shape: Any, dtype: str) -> None:
    """Forward mode is what differences are, and reverse mode what forward mode is; twice."""
    a, t, step = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype), 1e-5

    def loss(a: Any) -> Any:
        out = f(a)
        weights = np.arange(1.0, out.size + 1).reshape(out.shape) / out.size
        return fnp.sum(fnp.sin(fnp.real(out)) * weights) + fnp.sum(fnp.imag(out) * weights**2)

    def along(loss: Any, s: float) -> Any:
        return np.asarray(loss(a + s * t))

    found = func.jvp(loss, (a,), (t,))[1]
    expected = (along(loss, step) - along(loss, -step)) / (2 * step)
    assert_close(found, expected, 2e-7)
    gradient = func.grad(loss)(a)
    assert_close(np.sum(np.real(np.conj(gradient) * t)), found, 1e-9)
    second = func.jvp(func.grad(loss), (a,), (t,))[1]
    slopes = lambda a: func.grad(loss)(a)  # noqa: E731
    expected = (along(slopes, step) - along(slopes, -step)) / (2 * step)
    assert_close(second, expected, 1e-5)


VALUES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "solve": (la.solve, np.linalg.solve, lambda: (draw(2, 3, 3), draw(3))),
    "solve matrices": (la.solve, np.linalg.solve, lambda: (draw(3, 3), draw(4, 3, 2))),
    "solve one for each": (la.solve, np.linalg.solve, lambda: (draw(4, 3, 3), draw(4, 3, 2))),
    "solve complex": (la.solve, np.linalg.solve, lambda: (draw(3, 3, dtype="complex64"), draw(3))),
    "solve integers": (la.solve, np.linalg.solve, lambda: ([[2, 1], [0, 4]], [1, 2])),
    "inv": (la.inv, np.linalg.inv, lambda: (draw(2, 3, 3),)),
    "svdvals": (la.svdvals, np.linalg.svdvals, lambda: (draw(2, 3, 4),)),
    "eigvalsh": (la.eigvalsh, np.linalg.eigvalsh, lambda: (draw(2, 3, 3),)),
    "upper eigvalsh": (
        lambda x: la.eigvalsh(x, UPLO="U"),
        lambda x: np.linalg.eigvalsh(x, UPLO="U"),
        lambda: (draw(3, 3, dtype="complex128"),),
    ),
    "empty": (la.solve, np.linalg.solve, lambda: (draw(0, 3, 3), draw(0, 3, 2))),
    "of nothing": (la.inv, np.linalg.inv, lambda: (draw(0, 0),)),
    "no columns": (la.svdvals, np.linalg.svdvals, lambda: (draw(3, 0),)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_numpy(name: str, execution: str) -> None:
    ours, theirs, arguments = VALUES[name]
    given = arguments()
    expected = theirs(*map(np.asarray, given))
    found = ours(*given)
    assert found.shape == expected.shape
    assert_close(found, expected, 1e-5 if found.dtype == "complex64" else 1e-10)
    traced = ftrans.trace(ours)(*map(np.asarray, given))
    assert_close(ftrans.runtime.run(traced, [*map(np.asarray, given)])[0], ours(*given), 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 2, 4), (0, 2), (2, 0)])
def test_factors_make_the_matrix(shape: Any, dtype: str, execution: str) -> None:
    a = draw(*shape, dtype=dtype)
    tolerance = 2e-5 if dtype in ("float32", "complex64") else 1e-12
    for mode in ("reduced", "complete"):
        q, r = func.vmap(lambda a, m=mode: la.qr(a, m))(a[None])
        assert_close((q @ r)[0], a, tolerance)
        one = adjoint(q) @ q
        assert_close(one, np.broadcast_to(np.eye(q.shape[-1]), one.shape), tolerance)
    for full in (True, False):
        u, s, vh = la.svd(a, full_matrices=full)
        assert (u.dtype, s.dtype) == (np.dtype(dtype), np.real(a).dtype)
        k = min(shape[-2:])
        assert_close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, tolerance)


def test_batches_are_loops(execution: str) -> None:
    a, b = draw(4, 3, 3), draw(4, 3)
    solve = lambda a, b: la.solve(a, b).sum()  # noqa: E731
    both = func.vmap(func.grad(solve, argnums=(0, 1)))(a, b)
    for i in range(4):
        for x, y in zip(both, func.grad(solve, argnums=(0, 1))(a[i], b[i]), strict=True):
            assert_close(x[i], y, 1e-10)
    shared = func.vmap(lambda b: la.solve(a[0], b))(b)
    assert_close(shared, np.stack([np.linalg.solve(a[0], row) for row in b]), 1e-10)
    assert_close(
        func.vmap(la.svdvals, in_dims=1)(np.moveaxis(a, 0, 1)), np.linalg.svdvals(a), 1e-12
    )


def test_a_system_is_factored_once_for_its_derivative() -> None:
    a, b = draw(3, 3), draw(3)
    program = ftrans.trace(func.grad(lambda a: la.solve(a, b).sum()))(a)
    names = [e.primitive.name for e in program.equations]
    assert names.count("lu") == 1
    assert names.count("lu_solve") == 2


def test_what_has_no_factor_is_not_a_number(execution: str) -> None:
    good, bad = np.eye(2), np.diag([1.0, -1.0])
    found = func.vmap(la.cholesky)(np.stack([good, bad]))
    assert_close(found[0], good, 0)
    assert np.isnan(found[1][np.tril_indices(2)]).all()
    assert not np.isfinite(func.vmap(la.solve)(np.zeros((1, 2, 2)), np.ones((1, 2)))).any()
    nan = np.full((1, 2, 2), np.nan)
    for f in (la.svdvals, la.eigvalsh, la.inv):
        assert np.isnan(func.vmap(f)(nan)).all()


def test_the_svd_of_a_singular_hermitian_matrix_is_complete() -> None:
    u, s, vh = la.svd(np.diag([1.0, 0.0, -2.0]), hermitian=True)
    assert_close(vh @ vh.T, np.eye(3), 1e-12)
    assert_close((u * s) @ vh, np.diag([1.0, 0.0, -2.0]), 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str) -> None:
    a = fnp.asarray(np.diag([1.0, 2.0, 3.0, 4.0]), dtype)
    for f in (la.inv, la.cholesky, la.svdvals, la.eigvalsh, la.eigvals, la.det):
        assert np.isfinite(np.asarray(f(a), "complex64")).all()
    assert_close(np.asarray(func.grad(la.det)(a), "float32").diagonal(), [24, 12, 8, 6], 5e-2)


def test_values_at_equal_ones_have_derivatives(execution: str) -> None:
    """Sums of eigenvalues and of singular values are smooth where these are equal."""
    assert_close(func.grad(lambda a: la.eigvalsh(a).sum())(np.eye(3)), np.eye(3), 1e-12)
    q = np.linalg.qr(draw(3, 3))[0]
    assert_close(func.grad(lambda a: la.svdvals(a).sum())(q), q, 1e-12)


@pytest.mark.slow
def test_under_jax() -> None:
    a, b = draw(3, 3), draw(3)
    f = ftrans.to_jax(lambda a: la.solve(a, b).sum() + la.svdvals(a)[0] + la.qr(a).R[0, 0])
    g = lambda a: (  # noqa: E731
        jnp.linalg.solve(a, b).sum() + jnp.linalg.svdvals(a)[0] + jnp.linalg.qr(a)[1][0, 0]
    )
    with jax.enable_x64(True):
        assert_close(jax.grad(f)(a), jax.grad(g)(a), 1e-10)
        second = jax.jacfwd(jax.grad(ftrans.to_jax(lambda a: la.solve(a, b).sum())))(a)
        expected = jax.jacfwd(jax.grad(lambda a: jnp.linalg.solve(a, b).sum()))(a)
        assert_close(second, expected, 1e-8)


def test_errors() -> None:
    a = draw(4, 2)
    with pytest.raises(MissingRuleError, match="complete"):
        func.grad(lambda a: la.qr(a, mode="complete").Q.sum())(a)
    for function in (la.inv, la.det, la.slogdet, la.eig, la.eigvals, la.eigh, la.cholesky):
        name = function.__name__
        with pytest.raises((ShapeError, ArgumentError), match=f"{name}: .*(square|n, n)"):
            function(a)
        with pytest.raises((ShapeError, ArgumentError), match=f"{name}: "):
            func.jvp(function, (np.ones(3),), (np.ones(3),))
    with pytest.raises(la.LinAlgError, match="inv: a matrix is singular"):
        la.inv(np.zeros((2, 2)))
    with pytest.raises(ShapeError, match=r"f64\[n\] or"):
        la.solve(np.eye(3), np.ones(2))
    with pytest.raises(ShapeError, match="broadcast"):
        la.solve(draw(2, 3, 3), draw(5, 3, 1))
    with pytest.raises(ArgumentError, match="mode"):
        la.qr(a, mode="raw")
    with pytest.raises(ArgumentError, match="UPLO"):
        la.eigh(np.eye(2), UPLO="X")
    with pytest.raises((DTypeError, ShapeError)):
        la.svdvals(np.ones(3))


def test_plain_numpy(execution: str) -> None:
    a = draw(3, 3)
    f = lambda a: np.linalg.solve(a, np.ones(3)).sum() + np.linalg.svd(a)[1].sum()  # noqa: E731
    g = lambda a: la.solve(a, np.ones(3)).sum() + la.svdvals(a).sum()  # noqa: E731
    assert_close(func.grad(f)(a), func.grad(g)(a), 1e-10)
    z = np.fft.rfft(np.arange(5.0))
    back = func.grad(lambda x: np.abs(np.fft.rfft(x) - z).sum())(np.ones(5))
    with jax.enable_x64(True):
        expected = jax.grad(lambda x: jnp.abs(jnp.fft.rfft(x) - z).sum())(jnp.ones(5))
    assert_close(back, expected, 1e-10)
