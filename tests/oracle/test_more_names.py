"""Functions that NumPy and JAX have beyond the usual: values against NumPy's, on every road."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import (
    ConcretizationError,
    DTypeError,
    FtransError,
    LinAlgError,
    UnsupportedError,
)
from tests.helpers import assert_close, on_road, sampled

V = np.array([0.3, 1.2, 0.7, 2.0])
A = np.arange(12.0).reshape(3, 4) / 7 + 0.2
SPD = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.5]])


def pieces(np: Any) -> Any:
    return np.piecewise(A, [A < 0.5, A > 1.0], [np.square, np.log, 3.0])


MAPPED: dict[str, Callable[[Any], Any]] = {
    "apply_along_axis": lambda np: np.apply_along_axis(lambda v: v[1:] * v.sum(), 0, A),
    "to a scalar": lambda np: np.apply_along_axis(lambda v: v[-1] - v[0], -1, A),
    "to a matrix": lambda np: np.apply_along_axis(lambda v: v[:, None] * v[:2], 0, A),
    "of a vector": lambda np: np.apply_along_axis(lambda v, k: v * k, 0, V, 2.0),
    "apply_over_axes": lambda np: np.apply_over_axes(np.sum, A, [0, 1]),
    "fromfunction": lambda np: np.fromfunction(lambda i, j: i - 2 * j, (2, 3)),
    "piecewise": pieces,
    "piecewise, one condition": lambda np: np.piecewise(V, V > 1, [lambda x: -x, lambda x: x * x]),
    "piecewise, default 0": lambda np: np.piecewise(V, [V > 1, V > 1.5], [1.0, np.exp]),
    "piecewise, of rank 0": lambda np: np.piecewise(np.float64(2.0), [True], [lambda x: x / 4]),
    "piecewise of nothing": lambda np: np.piecewise(V[:0], [V[:0] > 0], [np.log]),
    "piecewise out of the domain": lambda np: np.piecewise(V - 1, [V > 1, V < 0], [np.log, np.log]),
    "piecewise of integers": lambda np: np.piecewise(np.arange(3), [np.arange(3) > 1], [2.9]),
    "vectorize": lambda np: np.vectorize(lambda a, b: a * b + 1)(V[:, None], V),
    "vectorize, named": lambda np: np.vectorize(lambda a, b: a - b)(V, b=2.0),
    "vectorize, signature": lambda np: np.vectorize(
        lambda a, b: a @ b, signature="(n, m),(m)->(n)"
    )(np.stack([A, 2 * A]), V),
    "vectorize, two results": lambda np: np.vectorize(
        lambda a: (a.sum(), a[:2]), signature="(n)->(),(k)"
    )(A),
    "vectorize, excluded": lambda np: np.vectorize(
        lambda p, x: p[0] * x + p[1], excluded=[0], otypes=[float]
    )([2.0, 1.0], V),
}


def numerical_gradient(function: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.eye(x.size).reshape(x.size, *x.shape)
    slopes = [(float(function(x + h)) - float(function(x - h))) / 2e-6 for h in steps]
    return np.reshape(slopes, x.shape)


def listed(x: Any) -> Any:
    return list(x) if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("name", MAPPED)
def test_functions_are_mapped_as_by_numpy(name: str) -> None:
    for found, expected in zip(listed(MAPPED[name](fnp)), listed(MAPPED[name](np)), strict=True):
        assert np.shape(found) == np.shape(expected)
        assert_close(found, expected)


GRADIENTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "apply_along_axis": (lambda x: (np.apply_along_axis(lambda v: v * v[0], 1, x) ** 2).sum(), A),
    "apply_over_axes": (lambda x: np.apply_over_axes(np.prod, x, [0])[0, 1], A),
    "piecewise": (lambda x: np.piecewise(x, [x < 0.5], [np.sin, np.log]).sum(), V),
    "vectorize": (
        lambda x: fnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, x * x).sum(),
        A,
    ),
    "add.reduceat": (lambda x: (np.add.reduceat(x, [0, 2]) ** 2).sum(), V),
    "logaddexp.reduce": (lambda x: np.logaddexp.reduce(x), V),
    "multiply.outer": (lambda x: np.sin(fnp.multiply.outer(x, x)).sum(), V),
    "pad, mean": (lambda x: (np.pad(x, 2, "mean") ** 2).sum(), V),
    "pad, ramp": (lambda x: (np.pad(x, 2, "linear_ramp", end_values=3) ** 2).sum(), V),
    "quantile, weighted": (
        lambda x: fnp.quantile(x, 0.4, method="inverted_cdf", weights=np.arange(1.0, 5.0)),
        V,
    ),
    "histogram, weighted": (lambda w: (fnp.histogram(V, 3, weights=w)[0] ** 2).sum(), V),
    "pinv": (lambda a: (fnp.linalg.pinv(a, rcond=1e-9) ** 2).sum(), SPD[:2]),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, -2)[0, 1], SPD),
    "cholesky": (lambda a: np.log(np.diagonal(np.linalg.cholesky(a))).sum(), SPD),
    "unique, sized": (lambda x: (fnp.unique(x, size=3) ** 2).sum(), V),
    "where, sized": (lambda x: (x[fnp.where(V > 0.5, size=2)] ** 3).sum(), V),
    "compress, sized": (lambda x: (fnp.compress(V > 0.5, x, size=2) ** 3).sum(), V),
    "repeat, of a length": (
        lambda x: (fnp.repeat(x, np.array([1, 0, 2, 1]), total_repeat_length=5) ** 2).sum(),
        V,
    ),
    "std, about a mean": (lambda x: fnp.std(x, mean=x.mean(keepdims=True)), V),
}


@pytest.mark.slow
@pytest.mark.parametrize("road", ["interpret", "compile"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, road: str) -> None:
    function, x = GRADIENTS[name]
    with on_road(road):
        found = func.grad(function)(x)
        batch = func.vmap(func.grad(function))(np.stack([x, 1.1 * x]))
        symmetric = name == "cholesky"
        expected = numerical_gradient(function, x)
        if symmetric:
            expected = (expected + expected.T) / 2
        assert_close(found, expected, 2e-7)
        assert_close(batch[0], found)
        assert_close(batch[1], func.grad(function)(1.1 * x))


def test_pieces_that_nowhere_hold_have_no_derivative() -> None:
    zeros = np.zeros(2)
    found = func.grad(lambda x: fnp.piecewise(x, [x > 1], [np.log, lambda x: 3 * x]).sum())(zeros)
    assert_close(found, [3.0, 3.0])


def test_what_is_not_differentiated_is_not_taken_for_a_constant() -> None:
    with pytest.raises(FtransError, match="cuts its gradient"):
        func.grad(lambda e: np.pad(V, 1, "linear_ramp", end_values=e).sum())(1.0)


def test_methods_of_ufuncs() -> None:
    names = [name for name in fnp.__all__ if isinstance(getattr(np, name, None), np.ufunc)]
    compared = 0
    for name, method in itertools.product(names, ("reduce", "accumulate", "outer", "reduceat")):
        theirs = getattr(np, name)
        if (theirs.nin, theirs.nout, theirs.signature) != (2, 1, None):
            assert not hasattr(getattr(fnp, name), method)
            continue
        args = {"outer": (A[0], A[1]), "reduceat": (A[0], [0, 2])}.get(method, (A[0],))
        try:
            expected = getattr(theirs, method)(*args)
        except TypeError:
            args = tuple(np.arange(1, 5) if isinstance(a, np.ndarray) else a for a in args)
            try:
                expected = getattr(theirs, method)(*args)
            except TypeError:
                continue
        try:
            found = getattr(getattr(fnp, name), method)(*args)
        except (UnsupportedError, AttributeError, NotImplementedError):
            continue
        assert_close(found, expected)
        compared += 1
    assert compared > 100
    x = V.copy()
    fnp.add.at(x, [0, 0, 1], 1.0)
    assert_close(x - V, [2, 1, 0, 0])


SIZED = {
    "nonzero": lambda np, k: np.nonzero(V > 0.5, **k)[0],
    "flatnonzero": lambda np, k: np.flatnonzero(A > 0.5, **k),
    "argwhere": lambda np, k: np.argwhere(A > 0.5, **k),
    "compress": lambda np, k: np.compress(V > 0.5, V, **k),
    "extract": lambda np, k: np.extract(V > 0.5, V, **k),
    "unique": lambda np, k: np.unique(V, **k),
    "unique_values": lambda np, k: np.unique_values(V, **k),
    "union1d": lambda np, k: np.union1d(V, [5.0], **k),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_a_size_makes_values_needless(name: str) -> None:
    exact = SIZED[name](fnp, {})
    assert_close(exact, SIZED[name](np, {}))
    size = len(exact)
    found = ftrans.jit(lambda: SIZED[name](fnp, {"size": size + 1, "fill_value": 7}))()
    assert_close(found[:size], exact)
    assert_close(found[size], np.full(np.shape(found[size]), 7))


# -------------------------------------------------------------------------------- dtypes and arrays


def test_integers_become_what_they_become_in_numpy() -> None:
    cases = {
        "fft": lambda np, x: np.fft.fft(x),
        "irfft": lambda np, x: np.fft.irfft(x),
        "rfft2": lambda np, x: np.fft.rfft2(x[None]),
        "solve": lambda np, x: np.linalg.solve(
            x[:2, None] * np.eye(2, dtype=x.dtype) + x[0], x[:2]
        ),
        "inv": lambda np, x: np.linalg.inv(np.eye(2, dtype=x.dtype) + x[0]),
        "det": lambda np, x: np.linalg.det(np.eye(2, dtype=x.dtype) + x[0]),
        "cholesky": lambda np, x: np.linalg.cholesky(np.eye(2, dtype=x.dtype)),
        "pinv": lambda np, x: np.linalg.pinv(x[None]),
        "svd": lambda np, x: np.linalg.svd(x[None])[1],
        "qr": lambda np, x: np.linalg.qr(x[None])[1],
        "cov": lambda np, x: np.cov(x),
        "interp": lambda np, x: np.interp(x, x, x),
        "trapezoid": lambda np, x: np.trapezoid(x),
        "gradient": lambda np, x: np.gradient(x),
        "histogram edges": lambda np, x: np.histogram(x)[1],
        "histogram2d": lambda np, x: np.histogram2d(x, x)[0],
    }
    for name, (case, function) in itertools.product(
        ("int8", "int16", "int32", "int64", "uint8", "uint32"), cases.items()
    ):
        x = np.array([1, 2, 3, 5], name)
        found, expected = function(fnp, x), function(np, x)
        assert found.dtype == expected.dtype, (case, name)
        assert_close(found, expected, 1e-6)


def test_histograms_count_in_numpys_dtypes() -> None:
    ones = np.ones(4, "float32")
    assert fnp.histogram(V, 3)[0].dtype.kind == np.histogram(V, 3)[0].dtype.kind == "i"
    for options in ({"weights": ones}, {"density": True}, {"density": True, "weights": ones}):
        found, expected = fnp.histogram(V, 3, **options), np.histogram(V, 3, **options)
        assert found[0].dtype == expected[0].dtype
        assert_close(found[0], expected[0], 1e-6)
    points = np.stack([V, V], 1)
    found, expected = fnp.histogramdd(points, 2), np.histogramdd(points, 2)
    assert found[0].dtype == expected[0].dtype
    assert type(found[1]) is type(expected[1])
    for function in (lambda np: np.histogram(V[:0], 3), lambda np: np.histogram(V[:0], 2, (1, 2))):
        for found, expected in zip(function(fnp), function(np), strict=True):
            assert_close(found, expected)
    uneven = [xp.histogram2d(V, V, [[0, 1, 2], [0, 1, 2, 3]])[0] for xp in (fnp, np)]
    assert_close(*uneven)
    positional = [xp.histogram(V, [0, 1, 2], None, True)[0] for xp in (fnp, np)]
    assert_close(*positional)


def test_sequences_are_arrays_where_arrays_are_expected() -> None:
    cases: list[Callable[[Any], Any]] = [
        lambda np: np.interp((0.5, 1.5), (0, 1, 2), (0.0, 1.0, 4.0)),
        lambda np: np.cov(((1.0, 2.0), (3.0, 5.0))),
        lambda np: np.polyval((1.0, 2.0), 2.0),
        lambda np: np.trapezoid((1.0, 2.0, 3.0)),
        lambda np: np.gcd((4, 6), 2),
        lambda np: np.linalg.solve(((2.0, 0.0), (0.0, 1.0)), (1.0, 2.0)),
        lambda np: np.fft.fft((1.0, 2.0)),
        lambda np: np.resize((1, 2), (2, 3)),
        lambda np: np.unravel_index((1, 2), (2, 2))[1],
        lambda np: np.fft.fft2(A, s=(2, 2), axes=(0, 1)),
        lambda np: np.gradient((1.0, 4.0, 9.0)),
        lambda np: np.gradient(A)[1],
    ]
    for case in cases:
        assert_close(case(fnp), case(np))
    assert type(fnp.gradient(A)) is type(np.gradient(A)) is tuple
    assert_close(func.grad(lambda x: fnp.polyval((x[0], x[1]), 3.0))(V), [3, 1, 0, 0])


def test_masked_arrays_and_matrices_are_refused() -> None:
    masked = np.ma.masked_array(V, V > 1)
    for call in (
        lambda: fnp.cov(masked),
        lambda: fnp.sum(masked),
        lambda: fnp.fft.fft(masked),
        lambda: fnp.linalg.solve(SPD, masked[:3]),
        lambda: func.grad(lambda x: fnp.interp(x, V, masked).sum())(V),
    ):
        with pytest.raises(DTypeError, match="A mask would be lost"):
            call()
    with pytest.raises(DTypeError, match="write @ for products"):
        fnp.linalg.inv(SPD.view(np.matrix))


EIGHT_BITS = [name for name in fnp.__all__ if name.startswith("float8_")]


@pytest.mark.slow
@pytest.mark.parametrize("road", ["interpret", "compile"])
@pytest.mark.parametrize("name", sampled(EIGHT_BITS, 3))
def test_floats_of_eight_bits(name: str, road: str) -> None:
    dtype = getattr(fnp, name)
    assert np.dtype(dtype) == np.dtype(getattr(ml_dtypes, name)) == np.dtype(getattr(jnp, name))
    assert fnp.issubdtype(dtype, fnp.floating)
    assert fnp.isdtype(dtype, "real floating")
    assert fnp.finfo(dtype).bits == 8

    def f(x: Any) -> Any:
        y = x.astype(dtype)
        return (2 * y).astype("float32").sum() + (y * y).astype("float32").max()

    x = np.array([0.5, 1.0, 2.0], "float32")
    with on_road(road):
        assert_close(func.vmap(f)(x[None]), [np.float32(11.0)])
        if name != "float8_e8m0fnu":  # which has no zero, of which a gradient is made
            assert_close(func.grad(f)(x), jax.grad(f)(jnp.asarray(x)))
    with pytest.raises(DTypeError, match="eight bits hold too little"):
        fnp.add(fnp.ones(2, dtype), V[:2])


def test_what_an_array_is() -> None:
    seen = []
    func.grad(lambda x: seen.append((isinstance(x, fnp.ndarray), fnp.isscalar(x))) or x)(1.0)
    assert seen == [(True, True)]
    for x in (V, jnp.ones(2), 1.0, np.float64(1.0), [1.0], "a"):
        assert isinstance(x, fnp.ndarray) == isinstance(x, (np.ndarray, jax.Array))
        assert fnp.isscalar(x) == np.isscalar(x)
        assert fnp.iterable(x) == np.iterable(x)
    with pytest.raises(UnsupportedError, match="makes no array"):
        fnp.ndarray((2,))
    assert issubclass(fnp.float32, fnp.floating)
    assert fnp.double is fnp.float64


def test_names_that_are_numpys_own() -> None:
    file = io.BytesIO()
    fnp.save(file, V)
    file.seek(0)
    assert_close(fnp.load(file), V)
    assert fnp.array_repr(V) == np.array_repr(V)
    assert_close(fnp.frombuffer(V.tobytes()), V)
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(np.einsum_path("ij,jk,k->i", x, x, x[0])[0])
        with pytest.raises(FtransError):
            np.array_repr(x)
        return x.sum()

    func.grad(f)(SPD)
    assert seen == [np.einsum_path("ij,jk,k->i", SPD, SPD, SPD[0])[0]]


# ------------------------------------------------------------------------------- singular matrices


@pytest.mark.slow
def test_matrices_that_have_no_factor_raise_where_values_are_at_hand() -> None:
    bad = {
        "solve": lambda xp, a: xp.linalg.solve(a, np.ones(3)),
        "inv": lambda xp, a: xp.linalg.inv(a),
        "matrix_power": lambda xp, a: xp.linalg.matrix_power(a, -1),
        "cholesky": lambda xp, a: xp.linalg.cholesky(a),
        "cholesky, upper": lambda xp, a: xp.linalg.cholesky(a, upper=True),
    }
    singular = np.diag([1.0, 0.0, 2.0])
    for name, function in bad.items():
        for make in (np.asarray, jnp.asarray):
            a = make(singular)
            with pytest.raises(np.linalg.LinAlgError):
                function(np, singular)
            with pytest.raises(LinAlgError, match="order 2" if "chol" in name else "pivot 2 is 0"):
                function(fnp, a)
        if "upper" not in name:
            stack = np.stack([SPD, SPD, singular, SPD])[:, None]
            with pytest.raises(LinAlgError, match=r"f64\[4,1,3,3\], matrix \[2, 0\]"):
                (fnp.linalg.cholesky if "chol" in name else fnp.linalg.inv)(stack)
        for road in ("interpret", "compile"):
            with on_road(road):
                found = func.vmap(lambda a, f=function: f(fnp, a))(np.stack([SPD, singular]))
                assert_close(found[0], function(np, SPD))
                assert not np.isfinite(found[1]).all()
        assert not np.isfinite(ftrans.jit(lambda a, f=function: f(fnp, a))(singular)).all()
    nan = np.full((2, 2), np.nan)
    assert np.isnan(fnp.linalg.inv(nan)).all()
    assert fnp.linalg.LinAlgError is not np.linalg.LinAlgError


def test_ranks_are_numpys() -> None:
    few = np.outer(V, V)
    for args, options in (
        ((few,), {}),
        ((V,), {}),
        ((0 * V,), {}),
        ((np.stack([SPD, 0 * SPD]),), {}),
        ((SPD, 2.5), {}),
        ((SPD, None, True), {}),
        ((SPD,), {"rtol": 0.6}),
        ((np.arange(4).reshape(2, 2),), {}),
    ):
        expected = np.linalg.matrix_rank(*args, **options)
        assert_close(fnp.linalg.matrix_rank(*args, **options), expected)
    with pytest.raises(ConcretizationError):
        ftrans.jit(lambda a, r: fnp.linalg.pinv(a, rtol=r))(A, 0.1)
