"""`to_jax`: functions of ours under JAX's transformations, with their rules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.autograd.function import once_differentiable
from tests.helpers import assert_close

X = np.array([0.3, -1.2, 2.0], dtype="float32")


class Cube(Function):
    """Has `backward` alone, of a slope that nobody would derive from its code."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 30 * x**2


class Both(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 5

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t * 5


class Clipped(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return fnp.clip(g, -1, 1)


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x


@ftrans.custom_vjp
def cube(x: Any) -> Any:
    return x**3


cube.defvjp(lambda x: (x**3, x), lambda x, g: (g * 30 * x**2,))

plain = ftrans.to_jax(lambda x: np.sum(np.sin(x) * x))


def theirs(x: Any) -> Any:
    return jnp.sum(jnp.sin(x) * x)


TRANSFORMED = {
    "itself": lambda f: f(X),
    "jit": lambda f: jax.jit(f)(X),
    "grad": lambda f: jax.grad(f)(X),
    "value_and_grad": lambda f: jax.value_and_grad(f)(X),
    "jvp": lambda f: jax.jvp(f, (X,), (X,)),
    "linearize": lambda f: jax.linearize(f, X)[1](X),
    "vmap": lambda f: jax.vmap(f)(np.stack([X, 2 * X])),
    "vmap(grad)": lambda f: jax.vmap(jax.grad(f))(np.stack([X, 2 * X])),
    "hessian": lambda f: jax.hessian(f)(X),
    "jacrev(jacfwd)": lambda f: jax.jacrev(jax.jacfwd(f))(X),
    "jit(hessian)": lambda f: jax.jit(jax.hessian(f))(X),
    "scan": lambda f: jax.lax.scan(lambda c, x: (f(c * x), c), 1.0, X),
    "grad of scan": lambda f: jax.grad(lambda x: jax.lax.scan(lambda c, v: (f(c * v), c), x, X)[0])(
        1.0
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f))(X),
    "a Python number": lambda f: (f(2.0), jax.grad(f)(2.0), jax.jvp(f, (2.0,), (1.0,))),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_it_is_like_the_same_written_with_jax(name: str) -> None:
    found, expected = TRANSFORMED[name](plain), TRANSFORMED[name](theirs)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(x, jax.Array)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert_close(x, y, 1e-5)


RULES = {"Function": Cube.apply, "custom_vjp": cube}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_with_backward_alone_has_both_modes(name: str) -> None:
    f = ftrans.to_jax(lambda x: RULES[name](x) * 2)
    slope = 60 * X**2
    ones = np.ones_like(X)
    assert_close(jax.grad(lambda x: f(x).sum())(X), slope, 1e-5)
    assert_close(jax.jvp(f, (X,), (ones,))[1], slope, 1e-5)
    assert_close(jax.jacfwd(f)(X), np.diag(slope), 1e-5)
    assert_close(jax.jacrev(f)(X), np.diag(slope), 1e-5)
    assert_close(jax.vmap(lambda x: jax.jvp(f, (x,), (1.0,))[1])(X), slope, 1e-5)
    assert_close(jax.grad(lambda x: jax.grad(f)(x))(2.0), 240.0, 1e-5)
    assert_close(jax.jvp(jax.grad(f), (2.0,), (1.0,))[1], 240.0, 1e-5)


def test_a_rule_that_gives_both_is_taken_in_reverse() -> None:
    f = ftrans.to_jax(Both.apply)
    assert jax.grad(f)(1.0) == 5
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(f, (1.0,), (1.0,))


def test_a_backward_that_is_not_linear_is_taken_in_reverse() -> None:
    f = ftrans.to_jax(lambda x: Clipped.apply(x) * 7)
    assert jax.grad(f)(1.0) == 1
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(f, (1.0,), (1.0,))


def test_once_differentiable_stays_so() -> None:
    f = ftrans.to_jax(Once.apply)
    assert jax.grad(f)(3.0) == 6
    with pytest.raises(ftrans.MissingRuleError, match="Once"):
        jax.grad(jax.grad(f))(3.0)


def test_pytrees_and_static_arguments() -> None:
    def f(params: Any, *, power: int, name: str) -> Any:
        return {name: fnp.sum(params["w"] ** power) + params["b"]}

    g = ftrans.to_jax(f, static_argnames=("power", "name"))
    params = {"w": X, "b": 1.5}
    found = jax.grad(lambda p: g(p, power=3, name="y")["y"])(params)
    assert_close(found["w"], 3 * X**2, 1e-6)
    assert found["b"] == 1
    assert g(params, power=2, name="z").keys() == {"z"}


def test_what_it_closes_over_may_be_traced_by_jax() -> None:
    def loss(w: Any) -> Any:
        return ftrans.to_jax(lambda x: fnp.sum(fnp.sin(x) * w))(X)

    assert_close(jax.grad(loss)(2.0), np.sin(X).sum(), 1e-6)


def test_precision_is_that_of_jax() -> None:
    f = ftrans.to_jax(lambda x: np.sin(x) * 2)
    assert f(np.ones(2)).dtype == np.float32
    assert f(2.0).dtype == np.float32
    with jax.enable_x64(True):
        assert f(np.ones(2)).dtype == np.float64
        assert f(2.0).dtype == np.float64
    wide = ftrans.to_jax(lambda x: fnp.asarray(x, "float64") + 1e-12 - 1)
    assert wide(1.0).dtype == np.float32
    assert_close(wide(1.0) * 1e12, 1.0, 1e-3)


def test_round_trips() -> None:
    f = ftrans.from_jax(ftrans.to_jax(lambda x: Cube.apply(x).sum()))
    assert_close(func.grad(f)(X), 30 * X**2, 1e-5)
    assert_close(func.jvp(f, (X,), (X,))[1], (30 * X**3).sum(), 1e-5)
    g = ftrans.to_jax(ftrans.from_jax(theirs))
    assert_close(jax.grad(g)(X), jax.grad(theirs)(X), 1e-6)


def test_it_is_a_function_of_ours_too() -> None:
    assert_close(func.grad(plain)(X), jax.grad(theirs)(X), 1e-6)
    x = ftrans.tensor(X, requires_grad=True)
    plain(x).backward()
    assert_close(x.grad.numpy(), jax.grad(theirs)(X), 1e-6)


def test_python_code_that_it_calls() -> None:
    kernel = ftrans.external(lambda x: np.sin(np.asarray(x)), lambda x: x)
    f = ftrans.to_jax(lambda x: kernel(x) * 2)
    assert_close(jax.jit(f)(X), 2 * np.sin(X), 1e-6)


def test_errors_of_python_code_arrive() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ftrans.to_jax(lambda x: fail(x))(X)
    with pytest.raises(ftrans.ConcretizationError):
        ftrans.to_jax(lambda x: x if x > 0 else -x)(1.0)


def test_empty_arrays_and_integers() -> None:
    f = ftrans.to_jax(lambda x, n: fnp.sum(x * n))
    assert f(np.zeros((0, 3), "float32"), 2) == 0
    assert_close(jax.grad(f)(X, 2), np.full(3, 2.0), 0)


def test_it_is_named_like_the_function() -> None:
    def loss(x: Any) -> Any:
        """Is the loss."""
        return x

    f = ftrans.to_jax(loss)
    assert f.__doc__ == "Is the loss."
    assert "loss" in f.__name__


def test_integers_have_the_size_that_jax_has() -> None:
    f = ftrans.to_jax(lambda n: n * 2)
    assert f(3).dtype == np.int32
    with jax.enable_x64(True):
        assert f(2**31) == 2**32
        assert jax.jit(f)(2**31) == 2**32
        slope = jax.grad(ftrans.to_jax(lambda x, n: x * n))(1.0, 2**31)
        assert slope == 2.0**31


def test_nothing_is_wider_than_jax_has_it() -> None:
    assert ftrans.to_jax(lambda n: n * 0.5)(3).dtype == np.float32
    assert ftrans.to_jax(lambda x: x * np.ones(2))(jnp.ones(2)).dtype == np.float32


def test_keys_of_jax() -> None:
    f = ftrans.to_jax(lambda k: ftrans.random.normal(k, (2,)))
    keys = jax.random.split(jax.random.key(0), 3)
    expected = jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys)
    assert_close(jax.jit(jax.vmap(f))(keys), expected, 1e-6)
    assert_close(f(keys[1]), expected[1], 1e-6)
