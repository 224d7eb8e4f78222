"""What NumPy and SciPy refuse, or have a value for, at the edges, is so here too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

import ftrans
import ftrans.numpy as fnp
import ftrans.scipy.special as fsp
from ftrans import func
from ftrans.errors import ArgumentError, AxisError, FtransError, ShapeError, UnsupportedError
from tests.helpers import assert_close

X = np.arange(3.0)
_NAN = np.array([[1.0, 2.0], [np.nan, np.nan]])


@pytest.mark.parametrize(
    "call",
    [
        lambda xp: xp.linalg.matrix_power(2 * np.eye(3), 1.5),
        lambda xp: xp.unravel_index([6], (2, 3)),
        lambda xp: xp.unravel_index([-7], (2, 3)),
        lambda xp: xp.unravel_index([1.0], (2, 3)),
        lambda xp: xp.nanargmax([np.nan]),
        lambda xp: xp.nanargmin(_NAN, axis=1),
        lambda xp: xp.histogram(X, bins=[0, 1, 0.5]),
        lambda xp: xp.histogram(X, bins=0),
        lambda xp: xp.histogram(X, range=(1, 0)),
        lambda xp: xp.histogram_bin_edges(X, range=(1, 0)),
        lambda xp: xp.digitize(2.0, np.array([1.0, 3, 2])),
        lambda xp: xp.bincount(np.arange(3), minlength=-1),
        lambda xp: xp.interp(X, X, X, period=0),
        lambda xp: xp.average(X, weights=np.zeros(3)),
        lambda xp: xp.linalg.norm(np.eye(2), axis=()),
        lambda xp: xp.linalg.matrix_rank(np.eye(2), 0.5, rtol=0.5),
        lambda xp: xp.linalg.pinv(np.eye(2), 0.5, rtol=0.5),
        lambda xp: xp.fft.rfftn(X, axes=()),
        lambda xp: xp.fft.irfftn(X, axes=()),
    ],
)
def test_what_numpy_refuses(call: Any) -> None:
    with pytest.raises((ValueError, TypeError, IndexError, ZeroDivisionError)):
        call(np)
    with pytest.raises(FtransError):
        call(fnp)


def test_what_is_traced_has_a_value_instead() -> None:
    assert ftrans.jit(fnp.nanargmax)(np.array([np.nan])) == 0
    assert np.isnan(ftrans.jit(lambda w: fnp.average(X, weights=w))(np.zeros(3)))
    assert ftrans.jit(lambda i: fnp.unravel_index(i, (2, 3)))(np.array([4]))[1] == 1
    assert_close(fnp.nanargmin(_NAN, axis=0), np.nanargmin(_NAN, axis=0))
    assert_close(func.grad(lambda x: fnp.interp(0.5, X, x))(X), np.array([0.5, 0.5, 0]))


@pytest.mark.parametrize("order", [None, 1, 2, -2, "fro", math.inf])
def test_conditions_of_singular_matrices_are_infinite(order: Any) -> None:
    found = [fnp.linalg.cond(x, order) for x in (np.zeros((2, 2)), np.eye(2))]
    assert_close(np.array(found), np.array([math.inf, np.linalg.cond(np.eye(2), order)]))
    assert np.isnan(fnp.linalg.cond(np.full((2, 2), np.nan), order))


@pytest.mark.parametrize("order", [2, -2, "nuc", "fro", 1, math.inf])
def test_norms_of_the_zero_matrix_have_no_slope(order: Any) -> None:
    norm = lambda x: fnp.linalg.norm(x, order, axis=(-2, -1)).sum()  # noqa: E731
    x = np.stack([np.zeros((2, 2)), np.diag([1.0, 3])])
    assert_close(norm(x), np.linalg.norm(x, order, axis=(-2, -1)).sum())
    for gradient in (func.grad(norm)(x), ftrans.jit(func.vmap(func.grad(norm)))(x)):
        assert_close(gradient[0], np.zeros((2, 2)))
        assert np.abs(gradient[1]).sum() > 0.5


def test_lengths_of_sequences_lie_in_them() -> None:
    logs, labels = fnp.log_softmax(np.ones((6, 1, 3)), axis=-1), np.array([[1, 2]])
    assert np.isfinite(ftrans.nn.ctc_loss(logs, labels, [6], [2]))
    for lengths in ([7], [2]), ([-1], [2]), ([6], [3]), ([6], [-1]):
        with pytest.raises(FtransError, match="ctc_loss: lengths lie between 0 and"):
            ftrans.nn.ctc_loss(logs, labels, *lengths)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: fnp.gradient(X, edge_order=3), ArgumentError),
        (lambda: fnp.gradient(X[:2], edge_order=2), ShapeError),
        (lambda: fnp.gradient(X, np.arange(9.0)), ShapeError),
        (lambda: fnp.gradient(X, 1.0, 2.0), ArgumentError),
        (lambda: ftrans.scipy.signal.convolve2d(_NAN, _NAN, boundary="wrap"), UnsupportedError),
        (lambda: fnp.cov(X, aweights=[1.0, -1.0, 2.0]), ArgumentError),
        (lambda: ftrans.scipy.linalg.eigh(np.eye(2), np.eye(2)), UnsupportedError),
        (lambda: fnp.fft.hfft(X, axis=3), AxisError),
        (lambda: fnp.fft.fftshift(X, axes=3), AxisError),
    ],
)
def test_what_jax_refuses_is_told_in_our_words(call: Any, kind: Any) -> None:
    with pytest.raises(kind, match=r"^\w+: "):
        call()


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("expi", [(0.0,), (math.inf,), (-math.inf,), (0.5,)]),
        ("expn", [(1, 0.0), (2, 0.0), (3, 0.0), (1, math.inf), (3, math.inf), (3, 0.5)]),
        ("gammainc", [(0.0, 0.5), (2.0, 0.5)]),
        ("gammaincc", [(math.inf, 1.0), (0.0, 0.5), (2.0, 0.5)]),
        ("poch", [(-1.0, 2.0), (-2.5, 2.0), (2.0, 0.5)]),
        ("beta", [(-2.5, 0.5), (1.5, 0.5)]),
        ("loggamma", [(0.0,), (2.5,)]),
        ("rel_entr", [(math.inf, 2.0), (0.0, 2.0), (1.5, 2.0)]),
    ],
)
def test_special_functions_at_edges(name: str, points: Any) -> None:
    ours, theirs = (getattr(module, name) for module in (ftrans.scipy.special, scipy.special))
    for point in points:
        assert_close(ours(*point), theirs(*point), 1e-10)
    slope = func.grad(lambda x: ours(*points[-1][:-1], x))(points[-1][-1])
    ends = [theirs(*points[-1][:-1], points[-1][-1] + h) for h in (-1e-6, 1e-6)]
    assert_close(slope, (ends[1] - ends[0]) / 2e-6, 1e-6)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning"])
def test_windows_of_any_length(name: str) -> None:
    for length in (4.5, 5, 1, 0, -1):
        assert_close(getattr(fnp, name)(length), getattr(np, name)(length))


@pytest.mark.parametrize(
    ("name", "function", "args"),
    [
        *[("binom", f, (k, 5, 0.3)) for f in ("pmf", "logpmf") for k in (2.5, 2.0)],
        ("binom", "pmf", (2.5, 5, 0.3, 0.5)),
        ("bernoulli", "pmf", (0.3, 0.3)),
        ("geom", "logpmf", (1.5, 0.3)),
        ("nbinom", "pmf", (1.5, 3, 0.3)),
        ("betabinom", "pmf", (1.5, 3, 1.0, 2.0)),
        ("poisson", "pmf", (1.5, 2.0)),
        ("norm", "logpdf", (1.0, 0.0, -1.0)),
        ("norm", "ppf", (0.5, 0.0, -1.0)),
        ("truncnorm", "pdf", (0.5, -1.0, 1.0, 0.0, -1.0)),
        ("t", "pdf", (1.0, -1.0)),
        ("chi2", "cdf", (1.0, -1.0)),
        *[(n, "ppf", (q,)) for n in ("gumbel_r", "gumbel_l") for q in (-0.1, 0.0, 0.3, 1.0)],
    ],
)
def test_distributions_beyond_their_arguments(name: str, function: str, args: Any) -> None:
    ours, theirs = (getattr(getattr(m, name), function) for m in (ftrans.scipy.stats, scipy.stats))
    for call in (ours, ftrans.jit(ours)):
        assert_close(call(*args), theirs(*args), 1e-9)


def test_what_is_checked_takes_tensors() -> None:
    for f in (
        lambda x: ftrans.scipy.linalg.solve_triangular(x, X[:2]).sum(),
        lambda x: ftrans.scipy.linalg.solve(x, X[:2], assume_a="sym").sum(),
        lambda x: ftrans.scipy.stats.norm.logpdf(x, 0.0, 1.0).sum(),
    ):
        x = np.array([[2.0, 1.0], [1.0, 3.0]])
        leaf = ftrans.autograd.tensor(x, requires_grad=True)
        f(leaf).backward()
        assert_close(np.asarray(leaf.grad), func.grad(f)(x), 1e-12)


@pytest.mark.parametrize("point", [(1.0, 8.0), (0.3, 12.3), (20.0, 3.0), (9.0, 9.0), (0.5, 3e7)])
def test_beta_functions_of_large_arguments(point: Any) -> None:
    for name in ("beta", "betaln"):
        ours, theirs = (getattr(module, name) for module in (ftrans.scipy.special, scipy.special))
        assert_close(ours(*point) / theirs(*point), 1.0, 1e-11)
    slopes = func.grad(ftrans.scipy.special.betaln, argnums=(0, 1))(*point)
    both = scipy.special.digamma(sum(point))
    assert_close(np.array(slopes), scipy.special.digamma(point) - both, 1e-9)
    for name in ("pdf", "logpdf"):
        ours, theirs = (getattr(m.stats.beta, name) for m in (ftrans.scipy, scipy))
        assert_close(ours(0.3, *point), theirs(0.3, *point), 1e-11)
    k = np.arange(-1.0, 15.0)
    for name in ("pmf", "logpmf"):
        ours, theirs = (getattr(m.stats.betabinom, name) for m in (ftrans.scipy, scipy))
        assert_close(ours(k, 12, *point, 1), theirs(k, 12, *point, 1), 1e-7)
        assert_close(ours(3, 0, *point), theirs(3, 0, *point))


def test_fractions_of_infinite_numbers() -> None:
    x = np.array([np.inf, -np.inf, 1.5, -2.25, np.nan])
    for ours, theirs in zip(fnp.modf(x), np.modf(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
    assert_close(func.grad(lambda x: np.modf(x)[0].sum())(x[2:4]), np.ones(2))


PLACES = np.array([0.0, 0.5, 2.0, 2.25, 3.0])


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize(
    ("spacing", "axis"),
    [((), None), ((2.0,), 0), ((2.0, 0.5), (1, 0)), ((PLACES, 3), None), ((PLACES.tolist(),), 0)],
)
def test_gradient_takes_distances_and_coordinates(spacing: Any, axis: Any, edge_order: int) -> None:
    x = np.random.default_rng(0).normal(size=(5, 4))
    slopes = lambda lib, x: lib.stack(  # noqa: E731
        lib.gradient(x, *spacing, axis=axis, edge_order=edge_order)
    )
    wanted = slopes(np, x)
    for found in (slopes(fnp, x), func.vmap(lambda x: slopes(fnp, x))(x[None])[0]):
        assert_close(found, wanted)
    assert_close(func.jvp(lambda x: slopes(np, x), (x,), (x,))[1], wanted)  # it is linear


@pytest.mark.parametrize(
    ("start", "stop", "base", "axis"),
    [(0, 2, [2.0, 10.0], 0), (np.arange(2), [2.0, 3.0], np.array([2.0, 10.0]), 1),
     (0.0, np.ones((2, 1)), np.array([2.0, 3.0, 4.0]), 2), (0.0, 1.0, np.array(3.0), 0)],
)  # fmt: skip
def test_logspace_takes_several_bases(start: Any, stop: Any, base: Any, axis: int) -> None:
    wanted = np.logspace(start, stop, 4, base=base, axis=axis)
    for made in (
        fnp.logspace(start, stop, 4, base=base, axis=axis),
        ftrans.jit(lambda b: fnp.logspace(start, stop, 4, base=b, axis=axis))(np.asarray(base)),
    ):
        assert made.shape == wanted.shape
        assert_close(made, wanted)


def test_gradient_at_special_values() -> None:
    x = np.array([1.0, np.inf, 2.0, 3.0, 4.0])
    for f in (x, x[2:].astype("float16"), np.arange(5), x[2:] + 1j):
        found, wanted = fnp.gradient(f, edge_order=2), np.gradient(f, edge_order=2)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_quantiles_of_endless_distributions() -> None:
    q = np.array([0.0, 0.3, 1.0])
    for name in ("cauchy", "gumbel_l", "gumbel_r", "norm", "logistic"):
        ours, theirs = (getattr(m.stats, name) for m in (ftrans.scipy, scipy))
        assert_close(ours.ppf(q), theirs.ppf(q), 1e-7)
        if hasattr(ours, "isf"):
            assert_close(ours.isf(q), theirs.isf(q), 1e-7)


@pytest.mark.parametrize("name", ["gumbel_l", "gumbel_r"])
@pytest.mark.parametrize("function", ["pdf", "logpdf", "ppf"])
def test_gumbels_densities_have_slopes_by_all_arguments(name: str, function: str) -> None:
    ours, theirs = (getattr(getattr(m.stats, name), function) for m in (ftrans.scipy, scipy))
    point, step = np.array([0.3, 0.1, 2.0]), 1e-6
    slope = func.grad(lambda p: ours(p[0], p[1], p[2]))(point)
    ends = [[theirs(*(point + h * e)) for e in np.eye(3)] for h in (step, -step)]
    assert_close(slope, (np.array(ends[0]) - ends[1]) / (2 * step), 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits_are_computed_with_as_wider_ones(dtype: str) -> None:
    x = fnp.asarray([0.25, 0.5, 2.5], dtype)
    wide = x.astype("float64")
    for name in ("expi", "log_ndtr", "ndtr", "spence"):
        got = getattr(fsp, name)(x)
        assert got.dtype == x.dtype
        assert_close(got.astype("float64"), getattr(scipy.special, name)(wide), 0.01)
    assert_close(fsp.expn(2, x).astype("float64"), scipy.special.expn(2, wide), 0.01)
    law = ftrans.scipy.stats.norm
    for got, want in (
        (law.cdf(x), scipy.stats.norm.cdf(wide)),
        (law.ppf(x[:2]), scipy.stats.norm.ppf(wide[:2])),
        (law.logcdf(x, [0.0, 1.0, 2.0]).astype(dtype), scipy.stats.norm.logcdf(wide, [0, 1, 2])),
    ):
        assert got.dtype == x.dtype
        assert_close(got.astype("float64"), want, 0.01)
    assert_close(fnp.fft.rfft(x), np.fft.rfft(wide), 1e-5)
    assert_close(fnp.fft.ihfft(x, n=2), np.fft.ihfft(wide, n=2), 1e-5)
    # PyTorch's norms: squares neither overflow nor vanish
    for size in (300.0, 1e-4):
        x = fnp.full(100, size, dtype)
        assert_close(fnp.linalg.norm(x).astype("float64"), np.array(10 * size), 0.01)
        slopes = func.grad(fnp.linalg.norm)(x)
        assert_close(slopes.astype("float64"), np.full(100, 0.1), 0.01)
