"""Elementwise functions against NumPy, their gradients against JAX, and the kinks."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import make_tracer
from tests.helpers import assert_close, on_road
from tests.oracle import jaxpr
from tests.unit.front_end import traced

UNARY = [
    "negative",
    "positive",
    "absolute",
    "fabs",
    "sign",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "square",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "deg2rad",
    "rad2deg",
    "degrees",
    "radians",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "logical_not",
    "sinc",
    "nan_to_num",
    "real",
    "imag",
    "conj",
    "angle",
    "signbit",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "true_divide",
    "floor_divide",
    "mod",
    "remainder",
    "fmod",
    "power",
    "float_power",
    "arctan2",
    "hypot",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "copysign",
    "logaddexp",
    "logaddexp2",
    "heaviside",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isclose",
]
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, np.inf, -np.inf, np.nan])
PLAIN = np.array([0.3, 0.7, 0.45, 0.81])
FLOATS = ["float16", "float32", "float64"]
WHOLE = ["int8", "int32", "uint8", "int64", "bool"]


def same(name: str, *arrays: Any, **options: Any) -> None:
    """Compares our function, eager and traced, with NumPy's."""
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(np, name)(*arrays, **options))
        if expected.dtype.kind == "f" and all(np.asarray(x).dtype.kind in "biu" for x in arrays):
            # NumPy computes with as few bits as hold the integers
            doubles = [np.asarray(x, float) for x in arrays]
            expected = np.asarray(getattr(np, name)(*doubles, **options))
    ours = getattr(fnp, name)
    for found in (
        ours(*arrays, **options),
        traced(lambda *xs: ours(*xs, **options), *map(np.asarray, arrays))[0],
    ):
        found = np.asarray(found)
        wide = expected.astype(found.dtype) if found.dtype.kind in "fc" else expected
        tolerance = {2: 5e-3, 4: 1e-5}.get(found.real.dtype.itemsize, 1e-12)
        assert_close(found, wide, tolerance if found.dtype.kind in "fc" else 0, what=name)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary_on_floats(name: str, dtype: str) -> None:
    # NumPy counts NaN with its sign bit; we have only the order
    edges = EDGES[:-1] if name == "signbit" else EDGES
    same(name, edges.astype(dtype))
    same(name, PLAIN.astype(dtype).reshape(2, 2))
    same(name, np.zeros((0, 3), dtype))
    out = getattr(fnp, name)(PLAIN.astype(dtype))
    assert out.dtype in (np.dtype(dtype), np.bool_)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("name", sorted(set(UNARY) - {"angle"}))
def test_unary_on_integers(name: str, dtype: str) -> None:
    if dtype == "bool" and name in ("negative", "positive", "sign"):
        return
    x = np.array([0, 1, 3, 2], "uint8").astype(dtype)
    same(name, x)


@pytest.mark.parametrize("execution", ["interpret", "compile"])
@pytest.mark.parametrize("name", ["exp", "log", "sin", "tan", "sqrt", "square", "absolute", "conj"])
def test_unary_on_complex(name: str, execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "execution", execution)
    x = np.array([1 + 2j, -0.5 + 1j, 3 - 1j])
    same(name, x)
    same(name, x.astype("complex64"))


@pytest.mark.parametrize("name", BINARY)
def test_binary_on_floats(name: str) -> None:
    x, y = (z.ravel() for z in np.meshgrid(EDGES[:-1], EDGES))
    if name in ("copysign", "isclose"):
        x, y = x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]
    if name in ("mod", "remainder"):
        # the sign of a remainder of zero differs
        x = x[np.isfinite(y)]
        y = y[np.isfinite(y)]
    same(name, x, y)
    same(name, PLAIN.astype("f4").reshape(4, 1), PLAIN.astype("f4"))
    same(name, np.ones((0, 3)), np.ones(3))
    same(name, np.float64(2.5), PLAIN)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "int64"])
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "floor_divide",
        "mod",
        "fmod",
        "power",
        "maximum",
        "minimum",
        "equal",
        "less",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "left_shift",
        "right_shift",
        "logical_and",
        "arctan2",
    ],
)
def test_binary_on_integers(name: str, dtype: str) -> None:
    x = np.array([7, 5, 0, 3, 1], dtype)
    y = np.array([2, 3, 2, 0, 4], dtype)
    same(name, x, y)
    if dtype != "uint8" and name not in ("power", "left_shift", "right_shift"):
        same(name, np.array([-7, 7, -7, 6, -1], dtype), np.array([2, -2, -2, -3, 0], dtype))


FAR = np.array([300.0, 256.0, -1.0, -0.5, 1e10, -3e9, 1e19, -1e19, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_casts_to_integers_saturate_on_both_roads(source: str) -> None:
    with np.errstate(all="ignore"):
        x = FAR.astype(getattr(fnp, source))
    for target in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        bounds = np.iinfo(target)
        # Python's integers have no bounds
        clipped = [
            0 if np.isnan(v) else bounds.max if v == np.inf else bounds.min if v == -np.inf
            else min(max(int(v), bounds.min), bounds.max)
            for v in x.real.astype("float64")
        ]  # fmt: skip
        for road in ("interpret", "compile"):
            with on_road(road):
                found = func.vmap(lambda v, target=target: v.astype(target))(x)
            assert found.dtype == target
            assert found.tolist() == clipped, f"{source} to {target}, {road}"


def test_powers_of_integers_take_all_bits_of_the_exponent() -> None:
    for dtype in ("int32", "uint8", "int64"):
        x, y = np.array([3, 7, 2, 5], dtype), np.array([64, 65, 100, 127], dtype)
        for road in ("interpret", "compile"):
            with on_road(road):
                np.testing.assert_array_equal(func.vmap(fnp.power)(x, y), x**y)


def test_running_results_are_taken_in_order_on_both_roads() -> None:
    x = np.array([0, *[1e200] * 30, 1.0, 1.0])
    large = np.array([-1.7e308, *[1e307] * 30])
    half = np.array([60000, 60000, -60000, 2.0] * 9, "float16")
    for road in ("interpret", "compile"):
        with on_road(road):
            assert_close(func.vmap(fnp.cumprod)(x[None])[0], np.cumprod(x))
            assert_close(func.vmap(fnp.cumsum)(large[None])[0], np.cumsum(large))
            with np.errstate(over="ignore"):
                wide = np.cumsum(half, dtype="float32").astype("float16")
            assert_close(func.vmap(fnp.cumsum)(half[None])[0], wide, 0.0)


def test_powers_in_half_precision_are_taken_in_single() -> None:
    x = np.array([709.0, 300.0, 2.0, -3.0], "float16")
    for road in ("interpret", "compile"):
        with on_road(road):
            found = func.vmap(lambda v: v**-2)(x)
        np.testing.assert_array_equal(found, (x.astype("f4") ** -2).astype("float16"))


def test_trace_adds_small_integers_in_the_default_one() -> None:
    for dtype in ("bool", "int8", "uint8", "uint16", "int64", "uint64"):
        x = np.full((3, 3), 100).astype(dtype)
        out = func.vmap(fnp.trace)(x[None])[0]
        assert out == np.trace(x)
        assert out.dtype.kind == np.trace(x).dtype.kind


def test_division_by_zero_of_integers_is_numpys_on_both_roads() -> None:
    x, y = np.array([5, -5, 0]), np.zeros(3, int)
    for road in ("interpret", "compile"):
        with on_road(road):
            for name in ("floor_divide", "mod", "fmod"):
                out = func.vmap(getattr(fnp, name))(x, y)
                np.testing.assert_array_equal(out, [0, 0, 0], err_msg=f"{name} {road}")


@pytest.mark.parametrize("y", [0, 1, 2, 3, -1, -2, 0.5, 2.0, 1.5, -0.5, np.float32(2)])
def test_powers(y: Any) -> None:
    x = np.array([0.5, 1.0, 2.0, 3.5])
    assert_close(fnp.power(x, y), x**y, 1e-14)
    assert_close(func.grad(lambda x: (x**y).sum())(x), float(y) * x ** (float(y) - 1), 1e-13)
    assert_close(fnp.power(2.0, x), 2.0**x, 1e-14)
    with pytest.raises(DTypeError, match="no negative powers"):
        fnp.power(np.array([1, 2]), -1)


def test_promotion_and_scalars() -> None:
    x = np.ones(2, "float16")
    assert fnp.add(x, 2.0).dtype == np.float16
    assert fnp.divide(np.ones(2, int), 2).dtype == ftrans.get_default_dtype()
    assert fnp.add(np.ones(2, "int8"), np.ones(2, "uint8")).dtype == np.int16
    assert fnp.add(np.ones(2, "float32"), np.float64(1)).dtype == np.float64
    assert fnp.sin(np.ones(2), dtype="float32").dtype == np.float32
    assert fnp.add(True, True).dtype == bool
    assert fnp.divide(np.ones(2, int), 2.0).dtype == np.float64
    assert fnp.exp(1.0) == np.exp(1.0)
    with pytest.raises(OverflowError, match="300 does not fit into uint8"):
        fnp.add(np.ones(2, "uint8"), 300)


def test_results_of_weak_operands_are_weak() -> None:
    kinds = []

    def f(x: Any) -> Any:
        weak = make_tracer(x.frame, x.index, x.type, weak=True)
        for y in (weak + 1, fnp.sin(weak), weak**2, fnp.where(weak > 0, weak, 0.0), -weak):
            kinds.append((y.weak, (np.ones(3, "f4") * y).dtype))
        kinds.append(((x + 1.0).weak, (np.ones(3, "f4") * x).dtype))
        return x

    func.grad(f)(np.float64(2.0))
    assert kinds == [(True, np.float32)] * 5 + [(False, np.float64)]


def test_rint_gives_floats_and_round_keeps_integers() -> None:
    whole = np.array([1, -2])
    for run in (lambda f: f(whole), lambda f: func.vmap(f)(whole)):
        assert run(fnp.rint).dtype == ftrans.get_default_dtype()
        assert run(fnp.round).dtype == whole.dtype
        assert_close(run(fnp.rint), whole)


def test_clip_round_where() -> None:
    x = np.array([-2.0, 0.0, 0.5, 1.0, 7.0, np.nan])
    for bounds in ((0.0, 1.0), (None, 1.0), (0.0, None), (np.zeros((2, 1)), x), (3.0, 1.0)):
        assert_close(fnp.clip(x, *bounds), np.clip(x, *bounds))
        found = traced(lambda x, bounds=bounds: fnp.clip(x, *bounds), x)[0]
        assert_close(found, np.clip(x, *bounds))
    same("clip", np.arange(5, dtype="int8"), np.int8(1), np.int8(3))
    for decimals in (0, 1, 2, -1):
        same("round", np.array([1.25, 12.35, -17.5, 0.125]), decimals=decimals)
        same("round", np.array([15, 25, -15, 149, 1250]), decimals=decimals)
    same("where", x > 0, x, np.zeros((2, 1)))
    same("where", x > 0, x, 2.0)
    with pytest.raises(ShapeError, match="where: shapes do not broadcast"):
        fnp.where(np.ones(2, bool), np.ones(3), 1.0)
    with pytest.raises(TypeError, match="both x and y"):
        fnp.where(x > 0, x)


def test_comparing_whole_arrays() -> None:
    x = np.array([1.0, np.nan, np.inf])
    assert bool(fnp.array_equal(x, x, equal_nan=True))
    assert not bool(fnp.array_equal(x, x))
    assert not bool(fnp.array_equal(x, x[:2]))
    assert bool(fnp.array_equiv(np.ones((2, 3)), 1.0))
    assert bool(fnp.allclose(x, x + 1e-12, equal_nan=True))
    assert not bool(fnp.allclose(np.ones(2), np.array([1.0, 1.1])))
    same("isclose", np.array([1, 2]), np.array([1, 3]))
    assert_close(fnp.isreal(np.array([1j, 2])), np.array([False, True]))


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("erf", EDGES), ("erfc", EDGES), ("erfinv", np.array([-0.5, 0.0, 0.9])),
        ("expit", EDGES), ("logit", np.array([0.1, 0.5, 0.99])), ("gammaln", PLAIN),
        ("digamma", PLAIN), ("xlogy", EDGES), ("xlog1py", EDGES), ("i0e", EDGES), ("i1e", EDGES),
        ("i0", np.array([*EDGES[:7], 705.0, -800.0])),  # SciPy's is NaN at infinity
        ("i1", np.array([*EDGES[:7], 705.0, -800.0])),
    ],
)  # fmt: skip
def test_special_functions(name: str, points: Any) -> None:
    args = [points, np.abs(points)] if name.startswith("xlog") else [points]
    with np.errstate(all="ignore"):
        assert_close(getattr(fnp, name)(*args), getattr(scipy.special, name)(*args), 1e-10)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_derivatives_of_digamma_where_x_is_negative(order: int) -> None:
    x = np.array([-0.5, -1.2, -4.99, -5.01, -9.66, -40.3, -1000.25, 1e-3, -1e-3, 0.0])
    f = fnp.digamma
    for _ in range(order):
        f = func.grad(f)
    for road in ("interpret", "compile"):
        with on_road(road):
            found = func.vmap(f)(x)
        np.testing.assert_allclose(found, scipy.special.polygamma(order, x), rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gelu(dtype: str) -> None:
    x = np.array([-5.0, -3.0, -1.5, -0.3, -0.0, 0.0, 0.7, 2.5, 30.0], dtype)
    wide = x.astype("f8")
    chance = scipy.special.ndtr(wide)
    slope = chance + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    rounding = float(np.finfo(dtype).eps)
    # to a few roundings of the value, however small, where 1 + erf would be all rounding
    tiny = float(np.finfo(dtype).smallest_subnormal)
    assert fnp.gelu(x).dtype == traced(fnp.gelu, x)[0].dtype == dtype
    for found in (fnp.gelu(x), traced(fnp.gelu, x)[0]):
        np.testing.assert_allclose(found, wide * chance, rtol=50 * rounding, atol=4 * tiny)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(x))
    np.testing.assert_allclose(
        func.grad(lambda x: fnp.gelu(x).sum())(x), slope, rtol=10 * rounding, atol=10 * rounding
    )


def test_higher_derivatives_of_gelu() -> None:
    ours, theirs = fnp.gelu, lambda x: jax.nn.gelu(x, approximate=False)
    for _ in range(4):
        ours, theirs = func.grad(ours), jax.grad(theirs)
        for x in (-9.0, -2.0, 0.0, 0.5, 4.0):
            assert_close(ours(np.float64(x)), jaxpr.evaluate(theirs)(x), 1e-12, f"at {x}")


# ------------------------------------------------------------------------------------- gradients

SMOOTH_UNARY = [
    "negative",
    "absolute",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "square",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arctanh",
    "deg2rad",
    "sinc",
    "i0",
    "nan_to_num",
    "real",
    "conj",
    "floor",
    "sign",
]
SMOOTH_BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "mod",
    "fmod",
    "power",
    "arctan2",
    "hypot",
    "maximum",
    "minimum",
    "logaddexp",
    "logaddexp2",
    "copysign",
    "floor_divide",
    "fmax",
    "fmin",
    "heaviside",
]


def jax_grad(name: str, *xs: Any) -> Any:
    f = getattr(jnp, name)
    total = jax.grad(lambda *a: jnp.sum(jnp.sin(f(*a))), tuple(range(len(xs))))
    return list(jaxpr.evaluate(total)(*xs))


@pytest.mark.parametrize("name", SMOOTH_UNARY)
def test_gradients_of_unary(name: str) -> None:
    f = getattr(fnp, name)
    found = func.grad(lambda x: fnp.sum(fnp.sin(f(x))))(PLAIN)
    assert_close(found, jax_grad(name, PLAIN)[0], 1e-9)


@pytest.mark.parametrize("order", [0, 1])
def test_derivatives_of_bessel(order: int) -> None:
    # of the scaled ones JAX knows two derivatives, of the others SciPy knows all
    scaled = [fnp.i0e, fnp.i1e][order]
    theirs = [jax.scipy.special.i0e, jax.scipy.special.i1e][order]
    f = [fnp.i0, fnp.i1][order]
    points = np.array([1e-3, -0.3, 0.99, 1.0, -1.01, 3.0, 30.0])
    for n in range(1, 5):
        scaled, f, theirs = func.grad(scaled), func.grad(f), jax.grad(theirs)
        if n <= 2:
            expected = jaxpr.evaluate(jax.vmap(theirs))(points)
            assert_close(func.vmap(scaled)(points), expected, 1e-12)
        for x in np.array([0.0, -0.0, *points]):
            assert_close(f(x), scipy.special.ivp(order, x, n), 1e-12)


@pytest.mark.parametrize("f", [fnp.i0, fnp.i1, fnp.i0e, fnp.i1e])
def test_bessel_of_python_scalars_under_jax(f: Any) -> None:
    assert_close(jax.grad(f)(0.5), func.grad(f)(0.5), 1e-6)
    assert_close(jax.grad(f)(800.0), func.grad(f)(800.0), 1e-6)


@pytest.mark.parametrize("name", SMOOTH_BINARY)
def test_gradients_of_binary(name: str) -> None:
    f = getattr(fnp, name)
    x, y = np.array([0.3, 1.7, 2.45, 5.1]), np.array([1.2, 0.7, 0.3, 2.2])
    found = func.grad(lambda x, y: fnp.sum(fnp.sin(f(x, y))), (0, 1))(x, y)
    for ours, theirs in zip(found, jax_grad(name, x, y), strict=True):
        assert_close(ours, theirs, 1e-9)


KINKS = [
    ("abs", fnp.abs, [0.0, -0.0], [0.0, 0.0]),
    ("relu", fnp.relu, [-1.0, 0.0, 2.0], [0.0, 0.0, 1.0]),
    ("clip", lambda x: fnp.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0], [0.0, 0.0, 1.0, 0.0]),
    ("maximum", lambda x: fnp.maximum(x, 0.0), [0.0, 1.0], [0.5, 1.0]),
    ("minimum", lambda x: fnp.minimum(x, 0.0), [0.0, 1.0], [0.5, 0.0]),
    ("sqrt", fnp.sqrt, [0.0], [np.inf]),
    ("x**0.5", lambda x: x**0.5, [0.0], [np.inf]),
    ("x**0", lambda x: x**0, [0.0, 2.0], [0.0, 0.0]),
    ("x**0.0", lambda x: x**0.0, [0.0], [0.0]),
    ("0**y", lambda y: 0.0**y, [-1.0, 0.0, 1.0], [-np.inf, 0.0, 0.0]),
    ("sign", fnp.sign, [0.0], [0.0]),
    ("sinc", fnp.sinc, [0.0], [0.0]),
    ("i0e", fnp.i0e, [0.0, -0.0], [0.0, 0.0]),
    ("i1e", fnp.i1e, [0.0, -0.0], [0.5, 0.5]),
    ("i0", fnp.i0, [0.0, 800.0, -np.inf], [0.0, np.inf, -np.inf]),
    ("i1", fnp.i1, [0.0, 800.0, -np.inf], [0.5, np.inf, np.inf]),
    ("fmod", lambda x: fnp.fmod(x, 2.0), [2.0], [1.0]),
    ("mod", lambda x: x % 2.0, [2.0, -1.0], [1.0, 1.0]),
    ("floor_divide", lambda x: x // 2.0, [2.0, 3.0], [0.0, 0.0]),
    ("nan_to_num", fnp.nan_to_num, [np.nan, np.inf, 1.0], [0.0, 0.0, 1.0]),
    ("log", fnp.log, [0.0, -1.0], [np.inf, -1.0]),
    ("arccos", fnp.arccos, [1.0], [-np.inf]),
    ("atan2", lambda x: fnp.arctan2(x, x), [0.0], [0.0]),
    ("angle", lambda x: fnp.angle(x), [0.0], [0.0]),
    ("hypot", lambda x: fnp.hypot(x, x), [0.0], [0.0]),
    ("hypot far", lambda x: fnp.hypot(x, 1e200), [1e200], [math.sqrt(0.5)]),
    ("logaddexp", lambda x: fnp.logaddexp(x, 0.0), [0.0, -800.0, 800.0], [0.5, 0.0, 1.0]),
    ("logaddexp inf", lambda x: fnp.logaddexp(x, 1.0), [-np.inf], [0.0]),
    ("softplus", fnp.softplus, [0.0, -800.0, 800.0], [0.5, 0.0, 1.0]),
    ("xlogy", lambda x: fnp.xlogy(x, 2.0), [0.0], [math.log(2.0)]),
    ("xlogy 0", lambda x: fnp.xlogy(x, 0.0), [0.0], [0.0]),
    ("copysign", lambda x: fnp.copysign(x, -1.0), [0.0, 2.0, -2.0], [0.0, -1.0, 1.0]),
    ("lgamma", fnp.lgamma, [0.0, -0.0, np.inf], [-np.inf, np.inf, np.inf]),
    ("digamma", fnp.digamma, [0.0, -2.0, np.inf], [np.inf, np.inf, 0.0]),
    ("heaviside", lambda x: fnp.heaviside(x, 0.5), [0.0, 1.0], [0.0, 0.0]),
    ("where", lambda x: fnp.where(x > 0, x, 2 * x), [0.0, 1.0], [2.0, 1.0]),
]


@pytest.mark.parametrize(("name", "f", "points", "slopes"), KINKS, ids=[k[0] for k in KINKS])
def test_gradients_at_kinks(name: str, f: Any, points: Any, slopes: Any) -> None:
    found = func.grad(lambda x: fnp.sum(f(x)))(np.array(points))
    np.testing.assert_allclose(found, slopes, rtol=1e-14)


def test_complex_kinks() -> None:
    for f in (fnp.abs, fnp.angle):
        assert complex(func.grad(f)(np.complex128(0))) == 0
    assert complex(func.grad(fnp.abs)(np.complex128(3 + 4j))) == pytest.approx(0.6 + 0.8j)
    assert complex(func.grad(fnp.angle)(np.complex128(3 + 4j))) == pytest.approx(-0.16 + 0.12j)


def test_higher_derivatives_where_branches_meet() -> None:
    second = func.grad(func.grad(lambda x: fnp.logaddexp(x, np.float64(1.0))))
    assert float(second(np.float64(1.0))) == pytest.approx(0.25)
    assert float(func.grad(func.grad(fnp.softplus))(np.float64(0.0))) == pytest.approx(0.25)
    curved = func.grad(func.grad(fnp.sinc))
    assert float(curved(np.float64(0.0))) == pytest.approx(-(math.pi**2) / 3)
    fourth = func.grad(func.grad(curved))
    assert float(fourth(np.float64(0.0))) == pytest.approx(math.pi**4 / 5)
    x = np.array([1.0, 1.0])
    with jax.enable_x64(True):
        expected = jax.hessian(lambda x: jnp.sqrt(x[0] ** 2 + x[1] ** 2))(x)
    assert_close(func.hessian(lambda x: fnp.hypot(x[0], x[1]))(x), expected, 1e-12)


def test_stop_gradient() -> None:
    x = np.array([2.0, 3.0])
    assert_close(func.grad(lambda x: (x * fnp.stop_gradient(x)).sum())(x), x)
    weights = {"a": x, "rest": [2.0, None]}
    loss = lambda w: (w["a"] * ftrans.stop_gradient(w)["a"]).sum() + w["rest"][0]  # noqa: E731
    slopes = func.grad(loss)(weights)
    assert_close(slopes["a"], x)
    assert_close(slopes["rest"][0], 1.0)
    assert_close(func.grad(lambda x: (x * x.detach()).sum())(x), x)


# ---------------------------------------------------------------------------------------- errors


def test_refusals() -> None:
    x = np.ones(3)
    with pytest.raises(TypeError, match=r"sin: where= without out= is not supported"):
        fnp.sin(x, where=x > 0)
    with pytest.raises(TypeError, match=r"exp: there is no argument 'axis'"):
        fnp.exp(x, axis=0)
    for f in (fnp.subtract, fnp.floor_divide, fnp.mod):
        with pytest.raises(DTypeError, match="booleans have no"):
            f(x > 0, x > 0)
    with pytest.raises(DTypeError, match="booleans have no negative"):
        fnp.negative(x > 0)
    with pytest.raises(ShapeError, match=r"add: shapes do not broadcast.\n.*f64\[3\]\n.*f64\[2\]"):
        fnp.add(x, np.ones(2))
