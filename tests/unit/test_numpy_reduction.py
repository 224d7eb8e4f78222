"""Reductions, averages and running operations against NumPy, SciPy and JAX, and their kinks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import ftrans
import ftrans.numpy as fnp
from ftrans import func, primitives
from ftrans.errors import AxisError, DTypeError, ShapeError
from ftrans.interpreters import inline
from ftrans.primitives.control.common import program_cost
from tests.helpers import assert_close
from tests.unit.front_end import check_gradients, check_values, traced

# NumPy warns of slices in which all is NaN or masked
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

X = np.random.default_rng(0).normal(size=(3, 4, 2))
HOLES = np.where(X > 0.8, np.nan, X)
MASK = X > -0.5
AXES: list[Any] = [None, 0, -1, (0, 2), (1,), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_values(axis: Any, keepdims: bool) -> None:
    options = {"axis": axis, "keepdims": keepdims}
    for name in ("sum", "prod", "mean", "max", "min", "amax", "amin", "std", "var", "ptp"):
        theirs = getattr(np, name)(X, **options)
        check_values(lambda x, n=name, o=options: getattr(fnp, n)(x, **o), theirs, X, what=name)
    for name in ("any", "all", "count_nonzero"):
        theirs = getattr(np, name)(MASK, **options)
        check_values(lambda x, n=name, o=options: getattr(fnp, n)(x, **o), theirs, MASK, what=name)
    if axis != ():
        check_values(lambda x: fnp.median(x, **options), np.median(X, **options), X)
        theirs = scipy.special.logsumexp(X, **options)
        check_values(lambda x: fnp.logsumexp(x, **options), theirs, X)
    for name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"):
        if axis == ():
            continue
        theirs = getattr(np, name)(HOLES, **options)
        check_values(lambda x, n=name, o=options: getattr(fnp, n)(x, **o), theirs, HOLES, what=name)
    if axis != ():
        check_values(lambda x: fnp.nanmedian(x, **options), np.nanmedian(HOLES, **options), HOLES)


@pytest.mark.parametrize("axis", [None, 0, 2, (0, 1)])
def test_masks_and_initial_values(axis: Any) -> None:
    mask = MASK[..., :1]
    for name in ("sum", "prod", "mean", "std", "var"):
        theirs = getattr(np, name)(X, axis=axis, where=mask)
        check_values(
            lambda x, n=name: getattr(fnp, n)(x, axis=axis, where=mask), theirs, X, what=name
        )
    for name in ("sum", "prod", "max", "min"):
        options = {"axis": axis, "initial": 0.3, "where": mask}
        theirs = getattr(np, name)(X, **options)
        check_values(lambda x, n=name, o=options: getattr(fnp, n)(x, **o), theirs, X, what=name)
    for name in ("any", "all"):
        theirs = getattr(np, name)(X > 0, axis=axis, where=mask)
        check_values(
            lambda x, n=name: getattr(fnp, n)(x > 0, axis=axis, where=mask), theirs, X, what=name
        )


def test_arg_reductions() -> None:
    ties = np.array([[1.0, 3.0, 3.0], [np.nan, 0.0, 0.0]])
    for name in ("argmax", "argmin"):
        for options in ({}, {"axis": 0}, {"axis": -1}, {"axis": 1, "keepdims": True}):
            theirs = getattr(np, name)(ties, **options)
            check_values(lambda x, n=name, o=options: getattr(fnp, n)(x, **o), theirs, ties)
        theirs = getattr(np, "nan" + name)(ties, axis=1)
        check_values(lambda x, n=name: getattr(fnp, "nan" + n)(x, axis=1), theirs, ties)
    assert fnp.argmax(np.array([False, True])) == 1
    assert fnp.argmax(ties).dtype == np.int32


def test_dtypes() -> None:
    for dtype, expected in (
        ("bool", "int32"), ("int8", "int32"), ("uint8", "uint32"), ("int64", "int64"),
        ("float16", "float16"), ("float32", "float32"), ("complex64", "complex64"),
    ):  # fmt: skip
        x = np.array([1, 1, 0], dtype)
        assert fnp.sum(x).dtype == expected
        assert fnp.cumsum(x).dtype == expected
        assert fnp.prod(x).dtype == expected
        assert fnp.sum(x, dtype="float64").dtype == np.float64
    assert fnp.mean(np.array([1, 2])).dtype == np.float32
    assert fnp.mean(np.array([1, 2]), dtype="float64").dtype == np.float64
    assert fnp.var(np.array([1j, 2])).dtype == np.float64
    assert fnp.max(np.array([True, False])).dtype == bool
    # sums beyond the largest half
    assert float(fnp.mean(np.full(100, 60000.0, "float16"))) == 60000.0
    assert fnp.mean(np.full(100, 60000.0, "float16")).dtype == np.float16


def test_sizes_zero_and_one() -> None:
    empty = np.zeros((0, 3))
    check_values(lambda x: fnp.sum(x, axis=0), np.zeros(3), empty)
    check_values(lambda x: fnp.prod(x, axis=0), np.ones(3), empty)
    check_values(lambda x: fnp.mean(x, axis=1), np.zeros(0), empty)
    check_values(lambda x: fnp.mean(x, axis=0), np.full(3, np.nan), empty)
    check_values(lambda x: fnp.max(x, axis=1), np.zeros(0), empty)
    check_values(lambda x: fnp.max(x, axis=0, initial=-1.0), np.full(3, -1.0), empty)
    check_values(lambda x: fnp.logsumexp(x, axis=0), np.full(3, -np.inf), empty)
    check_values(lambda x: fnp.var(x, ddof=1), np.nan, np.ones(1))
    check_values(fnp.sum, np.float64(3.0), np.float64(3.0))
    check_values(fnp.median, np.float64(3.0), np.float64(3.0))
    check_values(fnp.sum, np.int32(6), np.array([1, 2, 3], "int32"))
    check_values(lambda x: fnp.max(x, initial=5), np.int32(5), np.array([1, 2, 3], "int32"))


def test_nan_and_infinities() -> None:
    x = np.array([[1.0, np.nan, 2.0], [np.inf, -np.inf, 0.0], [np.nan] * 3])
    with np.errstate(all="ignore"):
        for name in ("max", "min", "median", "sum"):
            theirs = getattr(np, name)(x, axis=1)
            check_values(lambda x, n=name: getattr(fnp, n)(x, axis=1), theirs, x, what=name)
    check_values(lambda x: fnp.nanmax(x, axis=1), np.array([2.0, np.inf, np.nan]), x)
    check_values(lambda x: fnp.nanmedian(x, axis=1), np.array([1.5, 0.0, np.nan]), x)
    even = np.array([np.inf, np.inf, -np.inf, 0.0])
    check_values(fnp.median, np.inf, even)


def test_average_and_corrections() -> None:
    weights = np.array([1.0, 2.0, 0.5, 1.5])
    for axis, w in ((1, weights), ((1,), weights), (None, MASK + 1.0), (0, None)):
        theirs = np.average(X, axis, w)
        check_values(lambda x, a=axis, w=w: fnp.average(x, a, w), theirs, X)
    _, total = fnp.average(X, 1, weights, returned=True)
    assert_close(total, np.full((3, 2), 5.0))
    for ddof in (1, 2, 1.5):
        check_values(lambda x, d=ddof: fnp.var(x, 0, ddof=d), np.var(X, 0, ddof=ddof), X)
        check_values(lambda x, d=ddof: fnp.std(x, correction=d), np.std(X, ddof=ddof), X)
    z = X[..., 0] + 1j * X[..., 1]
    check_values(lambda z: fnp.var(z, axis=0), np.var(z, axis=0), z)
    with pytest.raises(ShapeError, match=r"average: the weights fit neither.*\n  x: f64\[3,4,2\]"):
        fnp.average(X, 0, weights)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_running_operations(axis: Any) -> None:
    for name in ("cumsum", "cumprod"):
        check_values(lambda x, n=name: getattr(fnp, n)(x, axis), getattr(np, name)(X, axis), X)
        theirs = getattr(np, "nan" + name)(HOLES, axis)
        check_values(lambda x, n=name: getattr(fnp, "nan" + n)(x, axis), theirs, HOLES)
    for name, ufunc in (
        ("cummax", np.maximum), ("cummin", np.minimum), ("logcumsumexp", np.logaddexp)
    ):  # fmt: skip
        flat, along = (X.ravel(), 0) if axis is None else (X, axis)
        theirs = ufunc.accumulate(flat, axis=along)
        check_values(lambda x, n=name: getattr(fnp, n)(x, axis), theirs, X, what=name)


def test_array_api_running_operations() -> None:
    for name in ("cumulative_sum", "cumulative_prod"):
        for options in ({"axis": 1}, {"axis": 0, "include_initial": True}):
            theirs = getattr(np, name)(X, **options)
            check_values(lambda x, n=name, o=options: getattr(fnp, n)(x, **o), theirs, X)
        with pytest.raises(AxisError, match="needs one named"):
            getattr(fnp, name)(X)


@pytest.mark.parametrize("axis", [0, -1, (0, 2), None])
def test_normalised_exponentials(axis: Any) -> None:
    x = X * 300
    check_values(lambda x: fnp.softmax(x, axis), scipy.special.softmax(x, axis), x)
    check_values(lambda x: fnp.log_softmax(x, axis), scipy.special.log_softmax(x, axis), x)
    with jax.enable_x64(True):
        check_gradients(lambda x: fnp.softmax(x, axis), lambda x: jax.nn.softmax(x, axis), X)
        check_gradients(
            lambda x: fnp.log_softmax(x, axis), lambda x: jax.nn.log_softmax(x, axis), X
        )
    check_values(fnp.logsumexp, 1000.0 + np.log(2), np.array([1000.0, 1000.0]))
    for keepdims in (False, True):
        check_gradients(
            lambda x, k=keepdims: fnp.logsumexp(x, axis, keepdims=k),
            lambda x, k=keepdims: jax.nn.logsumexp(x, axis, keepdims=k),
            X,
        )


INFINITIES = np.array(
    [
        [-np.inf, 0.0, 1.0],
        [-np.inf, -np.inf, -np.inf],
        [np.inf, 0.0, 1.0],
        [np.inf, np.inf, -np.inf],
        [np.nan, 0.0, -np.inf],
        [1e300, -1e300, 1e300],
    ]
)


def test_exponentials_of_infinities() -> None:
    x = INFINITIES
    with jax.enable_x64(True):
        theirs = [np.asarray(f(x)) for f in (jax.nn.softmax, jax.nn.log_softmax)]
        slopes = np.array(jax.grad(lambda x: jax.nn.logsumexp(x, axis=1).sum())(x))
    check_values(fnp.softmax, theirs[0], x)
    check_values(fnp.softmax, scipy.special.softmax(x, axis=1), x)
    check_values(fnp.log_softmax, theirs[1], x)
    check_values(lambda x: fnp.logsumexp(x, axis=1), scipy.special.logsumexp(x, axis=1), x)
    # JAX's slopes, but for those of nothing, which it makes NaN
    slopes[1] = 0.0
    found = func.grad(lambda x: fnp.logsumexp(x, axis=1).sum())(x)
    np.testing.assert_allclose(found, slopes, rtol=1e-12)
    nothing = x[1]
    np.testing.assert_array_equal(func.hessian(fnp.logsumexp)(nothing), np.zeros((3, 3)))


def test_exponentials_of_nothing_and_of_scalars() -> None:
    empty = np.zeros((0, 3))
    for f in (fnp.softmax, fnp.log_softmax):
        for axis in (0, 1, None):
            check_values(lambda x, f=f, axis=axis: f(x, axis), empty, empty)
    check_values(lambda x: fnp.logsumexp(x, axis=1), np.zeros(0), empty)
    check_values(lambda x: fnp.softmax(x, None), np.float64(1.0), np.float64(3.0))
    check_values(lambda x: fnp.logsumexp(x), np.float64(3.0), np.float64(3.0))
    check_values(lambda x: fnp.logsumexp(x, axis=()), X, X)
    whole = np.array([1, 2, 3], "int32")
    check_values(fnp.softmax, scipy.special.softmax(whole).astype("f4"), whole)
    z = np.array([0.3 + 1j, -0.2 - 2j, 5.0])
    check_values(fnp.logsumexp, scipy.special.logsumexp(z), z)


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "prod",
        "mean",
        "max",
        "min",
        "std",
        "var",
        "ptp",
        "cumsum",
        "cumprod",
        "median",
        "nanmean",
        "nanmax",
    ],
)
def test_gradients(name: str) -> None:
    for axis in (None, 0, 2):
        check_gradients(
            lambda x, a=axis: getattr(fnp, name)(x, axis=a),
            lambda x, a=axis: getattr(jnp, name)(x, axis=a),
            X,
            what=f"{name} {axis}",
        )


def last_log(x: Any) -> Any:
    return fnp.logcumsumexp(x)[-1]


def middle(x: Any) -> Any:
    return fnp.quantile(x, 0.5)


KINKS = [
    ("max", fnp.max, [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
    ("min", fnp.min, [1.0, 1.0, 2.0], [0.5, 0.5, 0.0]),
    ("amax", lambda x: fnp.amax(x, axis=0), [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
    ("std", fnp.std, [1.0, 1.0], [0.0, 0.0]),
    ("nanstd", fnp.nanstd, [1.0, np.nan, 1.0], [0.0, 0.0, 0.0]),
    ("nanvar", fnp.nanvar, [1.0, np.nan, 3.0], [-1.0, 0.0, 1.0]),
    ("nanmax", fnp.nanmax, [1.0, np.nan, 3.0], [0.0, 0.0, 1.0]),
    ("nansum", lambda x: fnp.nansum(x * x), [1.0, np.inf, 3.0], [2.0, np.inf, 6.0]),
    ("median", fnp.median, [1.0, 1.0, 2.0], [0.5, 0.5, 0.0]),
    ("median even", fnp.median, [1.0, 2.0, 3.0, 9.0], [0.0, 0.5, 0.5, 0.0]),
    ("median ties", fnp.median, [2.0, 1.0, 2.0, 9.0], [0.5, 0.0, 0.5, 0.0]),
    ("nanmedian", fnp.nanmedian, [1.0, np.nan, 4.0, 2.0], [0.0, 0.0, 0.0, 1.0]),
    ("prod", fnp.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    ("prod of zeros", fnp.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    ("logsumexp", fnp.logsumexp, [-np.inf, -np.inf], [0.0, 0.0]),
    ("cummax", lambda x: fnp.cummax(x, 0).sum(), [1.0, 1.0, 0.0], [1.0, 2.0, 0.0]),
    ("max of NaN", fnp.max, [np.nan, 1.0, 1.0], [1.0, 0.0, 0.0]),
    ("min of NaN", fnp.min, [1.0, np.nan, np.nan], [0.0, 0.5, 0.5]),
    ("max of infinities", fnp.max, [np.inf, np.inf, 1.0], [0.5, 0.5, 0.0]),
    ("cummax of NaN", lambda x: fnp.cummax(x, 0).sum(), [1.0, np.nan, 2.0], [1.0, 2.0, 0.0]),
    ("logcumsumexp of NaN", last_log, [np.nan, 1.0, 1.0], [np.nan, np.nan, np.nan]),
    ("logcumsumexp of NaN, last", last_log, [1.0, 1.0, np.nan], [np.nan, np.nan, np.nan]),
    ("logcumsumexp of inf", last_log, [1.0, np.inf, 1.0], [0.0, 1.0, 0.0]),
    ("logcumsumexp of nothing", last_log, [-np.inf, -np.inf, 1.0], [0.0, 0.0, 1.0]),
    ("median of infinities", fnp.median, [np.inf, np.inf, 1.0], [0.5, 0.5, 0.0]),
    ("median of NaN", fnp.median, [np.nan, 1.0, 2.0], [1.0, 0.0, 0.0]),
    ("nanmedian of NaN", fnp.nanmedian, [np.nan, np.nan], [0.5, 0.5]),
    ("quantile of infinities", middle, [np.inf, 0.0, np.inf], [1.0, 0.0, 0.0]),
    ("quantile of NaN", middle, [1.0, np.nan, 2.0], [0.0, 1.0, 0.0]),
]


@pytest.mark.parametrize(("name", "f", "points", "slopes"), KINKS, ids=[k[0] for k in KINKS])
def test_gradients_at_kinks(name: str, f: Any, points: Any, slopes: Any) -> None:
    x = np.array(points)
    np.testing.assert_allclose(func.grad(f)(x), slopes, rtol=1e-12)
    if np.all(np.isfinite(slopes)):  # else the tangents of one element meet the slopes of others
        np.testing.assert_allclose(func.jacfwd(f)(x), slopes, rtol=1e-12)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "max", "all", "argmin", "median", "cumsum"])
def test_out_by_position(name: str) -> None:
    between = () if name in ("max", "all", "argmin", "median") else (None,)
    expected = getattr(np, name)(X, 0)

    def f(x: Any) -> Any:
        out = fnp.zeros(expected.shape, expected.dtype)
        kept = out[...]
        assert getattr(fnp, name)(x, 0, *between, out) is out
        return kept

    for _ in range(2):
        assert_close(func.vjp(f, X)[0], expected)
    out = np.zeros(expected.shape, expected.dtype)
    assert getattr(fnp, name)(X, 0, *between, out) is out
    assert_close(out, expected)


def test_refusals() -> None:
    with pytest.raises(TypeError, match=r"max: where= takes initial= too"):
        fnp.max(X, where=MASK)
    with pytest.raises(AxisError, match=r"sum: axis 3 is out of range"):
        fnp.sum(X, axis=3)
    with pytest.raises(AxisError, match="name an axis twice"):
        fnp.sum(X, axis=(0, -3))
    with pytest.raises(ShapeError, match="an empty axis has no max"):
        fnp.max(np.zeros((0, 2)), axis=0)
    with pytest.raises(ShapeError, match="an empty axis has no median"):
        fnp.median(np.zeros(0))
    assert traced(lambda x: fnp.sum(x, axis=()), X)[0].shape == X.shape


def test_logsumexp_with_factors() -> None:
    factors = np.array([[0.0], [1.0], [2.5], [0.5]])
    for axis in (None, 1, (0, 1)):
        theirs = scipy.special.logsumexp(X, axis=axis, b=factors)
        check_values(lambda x, a=axis: fnp.logsumexp(x, a, factors), theirs, X)
        check_values(lambda b, a=axis: fnp.logsumexp(X, a, b=b), theirs, factors)
        check_gradients(
            lambda x, b, a=axis: fnp.logsumexp(x, a, b=b),
            lambda x, b, a=axis: jnp.log((b * jnp.exp(x)).sum(a)),
            X,
            factors,
        )
    # what counts nothing does not overflow
    large = np.array([1.0, 2000.0])
    check_values(lambda x: fnp.logsumexp(x, b=[1.0, 0.0]), np.float64(1.0), large)
    slopes = func.grad(lambda x: fnp.logsumexp(x, b=[1.0, 0.0]))(large)
    assert_close(slopes, [1.0, 0.0])
    assert np.isnan(fnp.logsumexp(np.zeros(2), b=[1.0, -2.0]))
    assert fnp.logsumexp(np.zeros(2), b=[1.0, -1.0]) == -np.inf


@pytest.mark.parametrize("name", ["max", "min", "argmax", "median", "ptp", "cummax", "maximum"])
def test_complex_numbers_have_no_order(name: str) -> None:
    x = np.array([1 + 2j, 2.0])
    arguments = (x, x) if name == "maximum" else (x,)
    with pytest.raises(DTypeError) as caught:
        getattr(fnp, name)(*arguments)
    assert str(caught.value).endswith(
        " arrays.\n  operand: c128[2]\n  Take a real number of each: abs(x), x.real, x.imag."
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_operations_over_many_elements(name: str) -> None:
    """Many are joined in pairs: their tangents, and what is pulled back, are those of JAX."""
    step = {"cumprod": "multiply", "cummax": "maximum", "cummin": "minimum"}.get(name, "logaddexp")
    rng = np.random.default_rng(0)
    for n, reverse in ((257, False), (514, True), (1027, False)):
        x = 1 + 0.1 * rng.normal(size=(n, 2))
        if name == "cumprod":
            x[[n // 2, n // 2 + 3]] = 0.0
        t = rng.normal(size=x.shape)
        ours = lambda x, r=reverse: getattr(primitives, f"{name}_p")(x, axis=0, reverse=r)  # noqa: E731

        def theirs(x: Any, reverse: bool = reverse) -> Any:
            join = lambda y, z: (getattr(jnp, step)(y, z),) * 2  # noqa: E731
            first, rest = (x[-1], x[:-1]) if reverse else (x[0], x[1:])
            ys = jax.lax.scan(join, first, rest, reverse=reverse)[1]
            return jnp.concatenate([ys, first[None]] if reverse else [first[None], ys])

        with jax.enable_x64(True):
            pushed = jax.jit(lambda x, t, f=theirs: jax.jvp(f, (x,), (t,)))(x, t)
            pulled = jax.jit(lambda x, t, f=theirs: jax.vjp(f, x)[1](t)[0])(x, t)
        for got, expected in zip(func.jvp(ours, (x,), (t,)), pushed, strict=True):
            assert_close(got, expected, 1e-10)
        assert_close(func.vjp(ours, x)[1](t)[0], pulled, 1e-10)


def test_the_work_of_a_gradient_of_cumprod_grows_as_its_elements() -> None:
    gradient = func.grad(lambda x: (fnp.cumprod(x) * x).sum())
    costs = [
        program_cost(inline(ftrans.trace(gradient)(np.ones(n)))).nbytes / n for n in (2**12, 2**20)
    ]
    assert costs[1] < 1.1 * costs[0]
