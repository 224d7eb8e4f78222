"""Functions that are taken from JAX: found under NumPy's and SciPy's names, with their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import ftrans
import ftrans.numpy as fnp
import ftrans.scipy
from ftrans import errors, func, tensor
from tests.helpers import assert_close, sampled

V = np.array([0.3, 1.2, 0.7, 2.0])
A = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.5]])
B = np.array([[1.0, -2.0], [0.5, 0.3], [2.0, 1.0]])
I = np.array([4, 6, 9])  # noqa: E741

OF_NUMPY: dict[str, Callable[[Any], Any]] = {
    "bartlett": lambda np: np.bartlett(5),
    "blackman": lambda np: np.blackman(5),
    "block": lambda np: np.block([[A, B], [B.T, A[:2, :2]]]),
    "corrcoef": lambda np: np.corrcoef(B),
    "cov": lambda np: np.cov(B, rowvar=False),
    "diag_indices": lambda np: np.diag_indices(3),
    "frexp": lambda np: np.frexp(V),
    "gcd": lambda np: np.gcd(I, 6),
    "gradient": lambda np: np.gradient(V),
    "hamming": lambda np: np.hamming(4),
    "hanning": lambda np: np.hanning(4),
    "histogram": lambda np: np.histogram(V, 3),
    "interp": lambda np: np.interp(V, [0.0, 1.0, 2.0], [0.0, 1.0, 4.0]),
    "ix_": lambda np: np.ix_(I[:2], I),
    "kaiser": lambda np: np.kaiser(4, 2.0),
    "lcm": lambda np: np.lcm(I, 6),
    "ldexp": lambda np: np.ldexp(V, 2),
    "modf": lambda np: np.modf(V),
    "nanquantile": lambda np: np.nanquantile(V, 0.3),
    "nextafter": lambda np: np.nextafter(V, 0.0),
    "poly": lambda np: np.poly(V[:3]),
    "polyadd": lambda np: np.polyadd(V, V[:2]),
    "polyder": lambda np: np.polyder(V),
    "polyfit": lambda np: np.polyfit(np.arange(4.0), V, 1),
    "polyint": lambda np: np.polyint(V),
    "polymul": lambda np: np.polymul(V, V),
    "polyval": lambda np: np.polyval(V, 0.5),
    "resize": lambda np: np.resize(V, (2, 3)),
    "rollaxis": lambda np: np.rollaxis(A, 1),
    "setdiff1d": lambda np: np.setdiff1d(I, [6]),
    "spacing": lambda np: np.spacing(V),
    "trapezoid": lambda np: np.trapezoid(V, dx=0.5),
    "tril_indices": lambda np: np.tril_indices(3),
    "trim_zeros": lambda np: np.trim_zeros(np.array([0, 1, 0])),
    "union1d": lambda np: np.union1d(I, [6, 7]),
    "unravel_index": lambda np: np.unravel_index(I, (3, 4)),
    "unwrap": lambda np: np.unwrap(3 * V),
    "vander": lambda np: np.vander(V, 3),
    "r_": lambda np: np.r_[V, 1.0, 0:3],
    "c_": lambda np: np.c_[V, V],
    "mgrid": lambda np: np.mgrid[0:3, 0:2],
    "cholesky": lambda np: np.linalg.cholesky(A),
    "cond": lambda np: np.linalg.cond(A),
    "det": lambda np: np.linalg.det(A),
    "eigh": lambda np: np.linalg.eigvalsh(A),
    "inv": lambda np: np.linalg.inv(A),
    "lstsq": lambda np: np.linalg.lstsq(B, B[:, 0])[0],
    "matrix_rank": lambda np: np.linalg.matrix_rank(B),
    "multi_dot": lambda np: np.linalg.multi_dot([A, A, B]),
    "pinv": lambda np: np.linalg.pinv(B),
    "slogdet": lambda np: tuple(np.linalg.slogdet(A)),
    "solve": lambda np: np.linalg.solve(A, B),
    "svdvals": lambda np: np.linalg.svdvals(B),
    "norm, 2": lambda np: np.linalg.norm(B, 2),
    "norm, nuclear": lambda np: np.linalg.norm(B, "nuc"),
    "norm, -2, of many": lambda np: np.linalg.norm(np.stack([A, A]), -2, axis=(1, 2)),
    "tensorsolve": lambda np: np.linalg.tensorsolve(np.eye(4).reshape(2, 2, 4), A[:2, :2]),
    "fft": lambda np: np.fft.fft(V),
    "fft2": lambda np: np.fft.fft2(A),
    "fftfreq": lambda np: np.fft.fftfreq(5, 0.5),
    "fftshift": lambda np: np.fft.fftshift(V),
    "hfft": lambda np: np.fft.hfft(V),
    "ifftn": lambda np: np.fft.ifftn(A, axes=(0,)),
    "irfft": lambda np: np.fft.irfft(V, n=7),
    "rfft": lambda np: np.fft.rfft(V, norm="ortho"),
    "rfft2": lambda np: np.fft.rfft2(A),
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_the_numbers_are_numpys(name: str) -> None:
    function = OF_NUMPY[name]
    found, expected = function(fnp), function(np)
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    for x, y in zip(found, expected, strict=True):
        assert isinstance(x, np.ndarray)
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-7)


def test_numpys_own_functions_take_traced_values() -> None:
    assert_close(func.grad(lambda x: np.trapezoid(x * x))(V), [0.3, 2.4, 1.4, 2.0])
    assert_close(func.grad(lambda a: np.linalg.slogdet(a)[1])(A), np.linalg.inv(A).T)
    assert_close(func.grad(lambda a: np.linalg.norm(a, 2))(np.diag([3.0, 1.0])), [[1, 0], [0, 0]])
    slope = func.grad(lambda x: (np.abs(np.fft.fft(x)) ** 2).sum())(V)
    assert_close(slope, 2 * len(V) * V)  # by Parseval's theorem
    batch = func.vmap(np.linalg.inv)(np.stack([A, 2 * A]))
    assert_close(batch, np.linalg.inv(np.stack([A, 2 * A])))


@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle_of_a_hermitian_matrix_is_read(lower: bool) -> None:
    full = A + 1j * np.array([[0, 1, -2], [-1, 0, 0.5], [2, -0.5, 0]]) / 5
    part = np.tril(full) if lower else np.triu(full)
    uplo = "L" if lower else "U"
    assert_close(fnp.linalg.eigvalsh(part, uplo), np.linalg.eigvalsh(full))
    assert_close(fnp.linalg.eigh(part, uplo)[0], np.linalg.eigvalsh(full))
    found = fnp.linalg.cholesky(part, upper=not lower)
    assert_close(found, np.linalg.cholesky(full) if lower else np.linalg.cholesky(full).conj().T)
    # the gradient goes to both triangles, as PyTorch has it
    slope = func.grad(lambda a: (fnp.linalg.eigvalsh(a, uplo) ** 2).sum())(A)
    assert_close(slope, 2 * A)
    slope = func.grad(lambda a: fnp.log(fnp.diagonal(fnp.linalg.cholesky(a))).sum())(A)
    assert_close(2 * slope, np.linalg.inv(A))


def test_functions_of_scipy_take_traced_values() -> None:
    slope = func.vmap(func.grad(lambda x: scipy.special.betainc(2.0, 3.0, x)))(V / 3)
    assert_close(slope, scipy.stats.beta.pdf(V / 3, 2.0, 3.0))
    slope = func.vmap(func.grad(lambda x: scipy.special.gammainc(2.0, x)))(V)
    assert_close(slope, scipy.stats.gamma.pdf(V, 2.0))


def by_differences(f: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.eye(x.size).reshape(x.size, *x.shape)
    return np.reshape([(f(x + h) - f(x - h)) / 2e-6 for h in steps], x.shape)


X = np.array([0.3, 0.6])


UFUNCS = {
    name: ufunc
    for name in dir(scipy.special)
    if isinstance(ufunc := getattr(scipy.special, name), np.ufunc)
    and (hasattr(jax.scipy.special, name) or name in fnp.__all__)
}


@pytest.mark.parametrize("name", sampled(list(UFUNCS), 6))
def test_ufuncs_of_scipy_that_jax_has_take_traced_values(name: str) -> None:
    ufunc = UFUNCS[name]
    rest = [np.array([1, 2])] * (ufunc.nin - 1)
    compared = 0
    for args in ([X] * ufunc.nin, [*rest, X], [X, *rest]):

        def value(x: Any, args: Any = args) -> Any:
            found = ufunc(*[x if a is X else a for a in args])
            return np.sum(found[0] if isinstance(found, tuple) else found)

        try:
            expected = value(X)
        except (TypeError, SystemError):  # where one is to be whole
            continue
        if np.isfinite(expected):
            assert_close(func.vmap(value)(X[None]), [expected], 1e-5)
            compared += 1
        if not rest and not np.iscomplexobj(expected):
            assert_close(func.grad(value)(X), by_differences(value, X), 1e-6)
    assert compared


def test_all_those_are_there() -> None:
    assert len(UFUNCS) > 45
    assert_close(func.vmap(scipy.special.zeta)(X + 1.5), scipy.special.zeta(X + 1.5))
    assert_close(func.vmap(scipy.special.zeta)(X + 1.5, X), scipy.special.zeta(X + 1.5, X))


OF_MATRICES: dict[str, Callable[[Any], Any]] = {
    "cond": np.linalg.cond,
    "cross": lambda a: np.linalg.cross(a, V[:3]),
    "diagonal": lambda a: np.linalg.diagonal(a, offset=1),
    "eig": lambda a: abs(np.linalg.eigvals(a)),
    "eigh": lambda a: np.linalg.eigh(a).eigenvalues,
    "lstsq": lambda a: np.linalg.lstsq(a, V[:3], rcond=None)[0],
    "matmul": lambda a: np.linalg.matmul(a, a),
    "matrix_norm": lambda a: np.linalg.matrix_norm(a, ord="nuc"),
    "matrix_rank": lambda a: a * np.linalg.matrix_rank(a),
    "matrix_transpose": lambda a: np.linalg.matrix_transpose(a) * a,
    "multi_dot": lambda a: np.linalg.multi_dot([a, a, V[:3]]),
    "outer": lambda a: np.linalg.outer(a[0], a[1]),
    "pinv": lambda a: np.linalg.pinv(a, rtol=1e-4),
    "qr": lambda a: abs(np.linalg.qr(a).R),
    "slogdet": lambda a: np.linalg.slogdet(a).logabsdet,
    "solve": lambda a: np.linalg.solve(a=a, b=V[:3]),
    "svd": lambda a: np.linalg.svd(a, compute_uv=False),
    "svdvals": np.linalg.svdvals,
    "tensordot": lambda a: np.linalg.tensordot(a, a),
    "tensorinv": lambda a: np.linalg.tensorinv(a, ind=1),
    "tensorsolve": lambda a: np.linalg.tensorsolve(a, V[:3]),
    "trace": np.linalg.trace,
    "vecdot": lambda a: np.linalg.vecdot(a, a),
    "vector_norm": lambda a: np.linalg.vector_norm(a, axis=1),
    **{
        name: lambda a, name=name: abs(getattr(np.fft, name)(a))
        for name in fnp.fft.__all__
        if "freq" not in name
    },
    "sum(a=)": lambda a: np.sum(a=a, axis=0),
    "clip(a_min=)": lambda a: np.clip(a, a_min=0.2, a_max=2.2),
}


@pytest.mark.parametrize("name", OF_MATRICES)
def test_functions_of_matrices_and_transforms_take_traced_values(name: str) -> None:
    a = np.array([[2.0, 0.5, 0.1], [0.4, 3.0, 0.3], [0.15, 0.25, 1.5]])

    def value(a: Any) -> Any:
        return np.sum(OF_MATRICES[name](a) ** 2)

    if name == "eigh":
        a = A
    slope, found = func.grad_and_value(value)(a)
    assert_close(found, value(a), 1e-9)
    expected = by_differences(value, a)
    assert_close(slope + slope.T, expected + expected.T, 2e-6)
    if name != "eigh":
        assert_close(slope, expected, 2e-6)


def test_modules_of_scipy() -> None:
    found = ftrans.scipy.stats.norm.logpdf(V, 0.5, 2.0)
    assert_close(found, scipy.stats.norm.logpdf(V, 0.5, 2.0))
    assert_close(ftrans.scipy.linalg.expm(A), scipy.linalg.expm(A))
    from ftrans.scipy.special import logsumexp

    assert_close(func.grad(logsumexp)(V), scipy.special.softmax(V))
    assert "logsumexp" in dir(ftrans.scipy.special)
    with pytest.raises(AttributeError):
        ftrans.scipy.no_such_module  # noqa: B018


def test_tensors_go_through() -> None:
    x = tensor(A, requires_grad=True)
    fnp.linalg.slogdet(x)[1].backward()
    assert_close(x.grad, np.linalg.inv(A).T)
    y = tensor(0.9 * V, requires_grad=True)
    fnp.interp(y, [0.0, 1.0, 2.0], [0.0, 1.0, 4.0]).sum().backward()
    assert_close(y.grad, [1.0, 3.0, 1.0, 3.0])
    assert isinstance(ftrans.numpy.fft.fft(y), ftrans.Tensor)


def test_weights_that_count_stay_integers() -> None:
    x, counts = np.arange(8.0).reshape(2, 4) ** 2, np.array([1, 2, 1, 3])
    assert_close(fnp.cov(x, fweights=counts), np.cov(x, fweights=counts), 1e-12)
    assert_close(
        fnp.cov([[1, 2, 4]], fweights=[1, 2, 1]), np.cov([[1, 2, 4]], fweights=[1, 2, 1]), 1e-12
    )


def test_pythons_whole_numbers_are_floats_too() -> None:
    assert_close(fnp.nanquantile(V, 1), np.nanquantile(V, 1))
    assert fnp.spacing(1) == np.spacing(1)


# ------------------------------------------------------------------ what JAX takes otherwise


def test_values_that_numpy_refuses() -> None:
    for call in (
        lambda m: m.nanquantile(np.arange(3.0), 1.5),
        lambda m: m.nanpercentile(np.arange(3.0), [50, -1]),
        lambda m: m.fft.rfft(np.zeros(0)),
        lambda m: m.fft.fftn(np.zeros((2, 0))),
        lambda m: m.fft.ifft(np.zeros((2, 0)), axis=1),
    ):
        for module in (np, fnp):
            with pytest.raises(ValueError, match=r"range|between|data points|one element"):
                call(module)
    for call in (
        lambda m: m.nanpercentile([1.0, np.nan, 4.0], [0, 100]),
        lambda m: m.fft.fft(np.zeros((0, 3))),
        lambda m: m.fft.rfft(np.zeros(0), 4),
        lambda m: m.ravel_multi_index(([1, 2], [0, 1]), (3, 4)),
        lambda m: m.histogram(np.arange(9.0) ** 2, bins="auto")[1],
        lambda m: m.histogram([1.0, 2.0, 7.0], "sturges", (0, 8))[0],
    ):
        assert_close(call(fnp), call(np))


def test_masks_of_rows_and_columns() -> None:
    x = np.arange(12.0).reshape(3, 4)
    mask = np.array([True, False, True])
    np.testing.assert_array_equal(x[fnp.ix_(mask, [1, 3])], x[np.ix_(mask, [1, 3])])
    at = func.grad(lambda x: (x[fnp.ix_([True, False, True], [1, 3])] ** 2).sum())(x)
    assert_close(at, 2 * x * np.outer(mask, [0, 1, 0, 1]))


def test_square_roots_of_many_matrices() -> None:
    a = np.random.default_rng(0).normal(size=(2, 3, 4, 4))
    a = a @ np.swapaxes(a, -1, -2) + np.eye(4)
    root = ftrans.scipy.linalg.sqrtm(a)
    assert_close(root @ root, a)
    assert_close(root[1, 2], scipy.linalg.sqrtm(a[1, 2]))
    assert ftrans.scipy.linalg.sqrtm(np.zeros((2, 0, 0))).shape == (2, 0, 0)
    with pytest.raises(ValueError, match="pinv: takes matrices"):
        fnp.linalg.pinv(np.ones(3))


@pytest.mark.slow
def test_correlations_of_all_lengths() -> None:
    generator = np.random.default_rng(0)
    for n, m in [(1, 1), (1, 4), (4, 1), (3, 6), (6, 3), (4, 7), (5, 5)]:
        a, v = generator.normal(size=n), generator.normal(size=m) + 1j
        for mode in ("same", "full", "valid"):
            expected = np.correlate(a, v, mode)
            assert_close(fnp.correlate(a, v, mode), expected)
            assert_close(
                func.jacfwd(lambda a, v=v, mode=mode: np.correlate(a, v, mode))(a) @ a, expected
            )


def test_numbers_that_a_function_of_jaxs_wants_to_know() -> None:
    scaled = ftrans.from_jax(jax.jit(lambda x, s: x * s, static_argnames="s"))
    assert_close(scaled(np.ones(2), s=2.5), [2.5, 2.5])
    assert_close(func.grad(lambda x: scaled(x, s=2.5).sum())(np.ones(2)), [2.5, 2.5])
    x, at = np.ones((2, 2)), np.full((2, 3), -2.0)
    assert_close(ftrans.scipy.ndimage.map_coordinates(x, at, 1, cval=1.5), np.full(3, 1.5))
    t = np.arange(4.0)
    assert_close(fnp.polyfit(t, 2 * t, 1, rcond=1e-8), [2, 0], 1e-9)


STATS = {
    "uniform.pdf": (-0.5, 2.0), "uniform.cdf": (), "truncnorm.cdf": (-0.5, 2.0),
    "gamma.pdf": (2.3,), "wrapcauchy.pdf": (0.3,), "norm.logsf": (), "poisson.pmf": (2.0,),
    "beta.logpdf": (2.0, 3.0),
}  # fmt: skip


@pytest.mark.parametrize("name", STATS)
def test_a_likelihood_of_missing_data_is_missing(name: str) -> None:
    module, method = name.split(".")
    f = getattr(getattr(ftrans.scipy.stats, module), method)
    theirs = getattr(getattr(scipy.stats, module), method)
    x = np.array([0.3, np.nan, 0.9]) if module != "poisson" else np.array([1.0, np.nan, 3.0])
    args = STATS[name]
    assert_close(f(x, *args), theirs(x, *args), 1e-6)
    assert f(np.float32(1), *args).dtype == np.float32


def test_probabilities_beyond_one_have_no_quantile() -> None:
    q = np.array([0.3, 1.5, -0.2, np.nan])
    for name in ("cauchy", "norm", "logistic"):
        ours, theirs = getattr(ftrans.scipy.stats, name), getattr(scipy.stats, name)
        assert_close(ours.ppf(q), theirs.ppf(q), 1e-6)
    assert_close(ftrans.scipy.stats.norm.isf(q=q), scipy.stats.norm.isf(q), 1e-6)


def test_quantiles_of_numbers_have_no_axes() -> None:
    for name in ("quantile", "nanquantile", "percentile", "nanpercentile"):
        for q in (0.5, np.array([0.25, 0.75])):
            for axis in (None, ()):
                found = getattr(fnp, name)(np.array(2.0), q, axis=axis, keepdims=True)
                assert_close(found, getattr(np, name)(np.array(2.0), q, axis=axis, keepdims=True))
    with pytest.raises(errors.AxisError, match="quantile: axis 0 is out of range"):
        fnp.quantile(np.array(2.0), 0.5, axis=0)
