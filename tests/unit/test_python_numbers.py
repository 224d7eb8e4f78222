"""Python floats are weak: double while they are alone, and of the dtype of the arrays they meet."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.ir import Tracer
from tests.helpers import assert_close

ROADS = ("interpret", "compile")


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ftrans.config, "execution", request.param)
    return request.param


# ------------------------------------------------------------------------------------------ alone

X = 1.3
DERIVATIVES: dict[str, Callable[..., Any]] = {
    "grad": func.grad(np.sin),
    "grad_and_value": lambda x: func.grad_and_value(np.sin)(x)[0],
    "vjp": lambda x: func.vjp(np.sin, x)[1](1.0)[0],
    "jvp": lambda x: func.jvp(np.sin, (x,), (1.0,))[1],
    "linearize": lambda x: func.linearize(np.sin, x)[1](1.0),
    "jacrev": func.jacrev(np.sin),
    "jacfwd": func.jacfwd(np.sin),
    "jit": ftrans.jit(func.grad(np.sin)),
    "jit inside": func.grad(ftrans.jit(fnp.sin)),
    "argument of a pytree": lambda x: func.grad(lambda p: np.sin(p["a"]))({"a": x})["a"],
    "cond": func.grad(lambda x: ftrans.cond(True, fnp.sin, fnp.cos, x)),
    "scan": func.grad(lambda x: ftrans.scan(lambda c, _: (c + fnp.sin(x), None), 0.0, None, 1)[0]),
    "custom_vjp": func.grad(ftrans.custom_vjp(fnp.sin)),
    "external": func.grad(ftrans.external.jax(jnp.sin)),
}


def _with_rule() -> Callable[..., Any]:
    @ftrans.custom_vjp
    def sine(x: Any) -> Any:
        return fnp.sin(x)

    sine.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (ct * fnp.cos(x),))
    return func.grad(sine)


DERIVATIVES["custom_vjp"] = _with_rule()


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_at_a_python_float_are_double(name: str, road: str) -> None:
    found = DERIVATIVES[name](X)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, math.cos(X), rtol=1e-15)


def test_second_derivatives_are_double(road: str) -> None:
    for found in (func.hessian(np.sin)(X), func.hvp(np.sin, (X,), (1.0,))[1][0]):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, -math.sin(X), rtol=1e-15)


def test_a_slope_close_to_a_minimum(road: str) -> None:
    x = 1 + 1e-9
    assert float(func.grad(lambda x: (x - 1) ** 2)(x)) == 2 * (x - 1)


def test_scipy_keeps_its_digits() -> None:
    root = scipy.optimize.brentq(func.grad(lambda x: fnp.cos(x) + x**3 / 30), 2.0, 4.0, xtol=1e-14)
    assert abs(-math.sin(root) + root**2 / 10) < 1e-13
    area, _ = scipy.integrate.quad(func.grad(lambda x: fnp.exp(x)), 0.0, 1.0)
    np.testing.assert_allclose(area, math.e - 1, rtol=1e-14)


def test_complex_and_integers_alone() -> None:
    assert func.grad(lambda z: fnp.abs(z) ** 2)(1 + 2j).dtype == np.complex128
    assert func.vjp(lambda z: z * z, 0.1j)[0] == 0.1j * 0.1j
    assert fnp.sin(1).dtype == np.float64
    assert fnp.divide(1, 3) == 1 / 3
    assert fnp.mean([0.1, 0.2]) == np.mean([0.1, 0.2])
    assert fnp.add(1, 2).dtype == np.int32
    assert ftrans.jit(lambda x: x)(2).dtype == np.int32


def test_the_default_dtype_is_that_of_creation_alone(road: str) -> None:
    assert ftrans.get_default_dtype() == np.float32
    ftrans.set_default_dtype("float16")
    try:
        assert fnp.zeros(1).dtype == np.float16
        assert func.grad(np.sin)(X).dtype == np.float64
        assert ftrans.jit(np.sin)(X).dtype == np.float64
        assert fnp.multiply(0.5, 0.5).dtype == np.float64
    finally:
        ftrans.set_default_dtype("float32")


# ------------------------------------------------------------------------------------ with arrays

DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64")


@pytest.mark.parametrize("number", [0.1, 0.1j])
@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion_is_that_of_numpy(dtype: str, number: complex) -> None:
    x = np.ones(2, dtype)
    expected = np.result_type(x, number)
    assert fnp.result_type(x, number) == expected
    assert fnp.multiply(x, number).dtype == expected
    assert_close(fnp.multiply(x, number), np.multiply(x, number))
    assert ftrans.jit(lambda x, k: x * k)(x, number).dtype == expected
    inside = []

    def f(y: Any) -> Any:
        z = fnp.asarray(x)
        given = [z * number, number * z, z * [number, number], fnp.multiply(z, number), z + y]
        inside.extend(value.dtype for value in given)
        return y

    func.vjp(f, number)
    assert set(inside) == {expected}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_digits_are_those_of_the_arrays(dtype: str, road: str) -> None:
    x = np.array([1.1, 2.2, 3.3], dtype)
    rates = [0.1, 1 / 3, 1e-9, 0.7]
    for rate in rates:  # from the second on it is an input of the program
        found = func.grad(lambda x: (x * rate).sum())(x)  # noqa: B023
        np.testing.assert_array_equal(found, np.full(3, rate, dtype))
        assert found.dtype == dtype
    by_list = func.grad(lambda x: (x * [0.1, 1 / 3, 0.7]).sum())(x)
    np.testing.assert_array_equal(by_list, np.array([0.1, 1 / 3, 0.7], dtype))
    assert by_list.dtype == dtype


def test_what_is_made_of_python_floats_alone_stays_weak(road: str) -> None:
    """Else one Python float would widen all of a computation in single precision."""
    w = np.array([0.5, -2.0], "float32")
    weak: dict[str, Any] = {}

    def f(w: Any) -> Any:
        weak["sqrt"] = fnp.sqrt(2.0)
        weak["list"] = fnp.sin([0.1, 0.2])
        weak["where"] = fnp.where(w > 0, 1.0, -1.0)
        weak["cond"] = ftrans.cond(w[0] > 0, lambda: 1.5, lambda: 2.5)
        weak["cond of an operand"] = ftrans.cond(w[0] > 0, lambda x: x, lambda x: 2 * x, 1.5)
        weak["fori"] = ftrans.fori_loop(0, 3, lambda i, c: c * 1.5, 1.0)
        weak["while"] = ftrans.while_loop(lambda c: c < 3, lambda c: c * 2.0, 1.0, max_steps=9)
        weak["scan"] = ftrans.scan(lambda c, x: (c * 1.5, 0.5 * c), 1.0, None, 2)[1]
        weak["grad"] = func.grad(lambda t: (w * t).sum())(0.5)
        weak["vjp"] = func.vjp(lambda t: t * t, 0.5)[0]
        weak["jvp"], weak["tangent"] = func.jvp(lambda t: t * t, (0.5,), (1.0,))
        weak["jacrev"] = func.jacrev(lambda t: w * t)(0.5)
        weak["hessian"] = func.hessian(lambda t: (w * t * t).sum())(0.5)
        weak["jit"] = ftrans.jit(lambda t: t * t)(0.5)
        weak["value"] = func.grad_and_value(lambda t: t * t)(0.5)[1]
        return sum((w * x).sum() for x in weak.values())

    assert func.grad(f)(w).dtype == np.float32
    for name, x in weak.items():
        assert type(x) is Tracer, name
        assert x.weak, name
        assert x.type.dtype == np.float64, name


def test_a_carry_that_starts_as_a_python_float_is_of_the_data() -> None:
    for dtype in ("float16", "float32", "float64"):
        total, _ = ftrans.scan(lambda c, x: (c + x, None), 0.0, np.ones(3, dtype))
        assert total.dtype == dtype
    alone, _ = ftrans.scan(lambda c, _: (c / 3, None), 1.0, None, 1)
    assert alone == 1 / 3


@pytest.mark.parametrize("default", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore:ftrans computes in float64")
def test_creation_has_the_default_dtype(default: str) -> None:
    ftrans.set_default_dtype(default)
    try:
        made = [
            fnp.zeros(2), fnp.full(2, 0.5), fnp.arange(0.0, 1.0, 0.5), fnp.linspace(0, 1, 2),
            fnp.asarray(0.5), fnp.asarray([0.5]), fnp.eye(2), fnp.diag([0.5, 1.0]),
            *fnp.meshgrid([0.5, 1.0]), fnp.geomspace(1.0, 2.0, 2), fnp.full(2, [0.5, 1.0]),
        ]  # fmt: skip
        assert {x.dtype for x in made} == {np.dtype(default)}
    finally:
        ftrans.set_default_dtype("float32")


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_the_types_of_python_are_numpys_as_dtypes(kind: type) -> None:
    want = np.ones(2).astype(kind).dtype
    x = np.ones(2, "float32")
    made = [
        fnp.zeros(2, kind), fnp.ones(2, kind), fnp.empty(2, kind), fnp.full(2, 1, kind),
        fnp.asarray([0, 1], kind), fnp.eye(2, dtype=kind), fnp.tri(2, dtype=kind),
        fnp.identity(2, kind), fnp.indices((2,), kind), fnp.astype(x, kind),
        fnp.zeros_like(x, kind), ftrans.jit(lambda x: x.astype(kind))(x),
        ftrans.vmap(lambda x: x.to(kind))(x),
    ]  # fmt: skip
    assert {y.dtype for y in made} == {want}
    assert fnp.result_type(kind, "bool") == want
    assert fnp.isdtype(want, kind)


def test_a_conversion_to_float_keeps_the_digits() -> None:
    x = np.array([1 + 1e-12, 2.0])
    slopes = func.grad(lambda x: (x.astype(float) - 1.0).prod())(x)
    assert_close(slopes[1] / 1e-12, 1.0, 1e-3)  # 0 in single precision
    for default in (fnp.zeros(2), fnp.eye(2), fnp.tri(2), fnp.identity(2), fnp.empty(2, None)):
        assert default.dtype == ftrans.get_default_dtype()


# ----------------------------------------------------------------------------------- custom rules


class Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, w = ctx.saved_tensors
        return (ct * w).sum(), ct * x


def test_a_rule_gives_a_number_the_gradient_in_the_dtype_of_its_arrays(road: str) -> None:
    w = np.array([0.1, 0.2], "float32")
    gradients = func.grad(lambda x, w: Scaled.apply(x, w).sum(), argnums=(0, 1))(1 / 3, w)
    assert [g.dtype for g in gradients] == [np.float64, np.float32]
    assert_close(gradients[0], np.float64(w.sum()), 1e-6)
    strong = func.grad(lambda x: Scaled.apply(x, np.array([0.1, 0.2])).sum())(np.float64(1 / 3))
    alone = func.grad(lambda x: Scaled.apply(x, np.array([0.1, 0.2])).sum())(1 / 3)
    assert strong == alone == np.sum([0.1, 0.2])


def test_what_a_rule_recorded_for_an_array_is_not_taken_for_a_number() -> None:
    w = np.ones(2, "float32")
    for _ in range(4):
        assert func.vjp(lambda x: Scaled.apply(x, w), 1 / 3)[0].dtype == np.float32
        assert func.vjp(lambda x: Scaled.apply(x, w), np.float64(1 / 3))[0].dtype == np.float64


def test_external_functions_get_doubles(road: str) -> None:
    given = []

    def kernel(x: np.ndarray) -> np.ndarray:
        given.append(x.dtype)
        return np.sin(x)

    call = ftrans.external(kernel, lambda x: x)
    assert call(X) == math.sin(X)
    assert func.vjp(lambda x: call(x.detach()) * x, X)[0] == math.sin(X) * X
    assert set(given) == {np.dtype("float64")}


def test_checks_of_rules_take_python_floats() -> None:
    assert ftrans.check_rules(Scaled, (0.4, np.array([0.1, 0.2]))).ok


# --------------------------------------------------------------------------- under JAX's own x64


def test_jax_traces_numbers_in_its_own_precision() -> None:
    assert jax.jit(lambda x: func.grad(np.sin)(x))(X).dtype == np.float32
    scaled = jax.jit(lambda x: x * func.grad(np.sin)(X))(np.float32(2.0))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, 2 * math.cos(X), rtol=1e-6)
    closed = jax.jit(lambda y: func.grad(lambda x: np.sin(x * y))(X))(np.float32(1.0))
    np.testing.assert_allclose(closed, math.cos(X), rtol=1e-6)
    assert jax.grad(ftrans.jit(lambda x: 2 * x + 0.5))(X).dtype == np.float32
    with jax.enable_x64(True):
        assert jax.jit(lambda x: func.grad(np.sin)(x))(X) == math.cos(X)
