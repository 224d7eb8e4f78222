"""Functions that are taken from JAX: found under NumPy's and SciPy's names, with their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import ftrans
import ftrans.numpy as fnp
import ftrans.scipy
from ftrans import func, tensor
from tests.helpers import assert_close

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
