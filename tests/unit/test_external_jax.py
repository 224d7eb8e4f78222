"""Functions of JAX as equations: values and derivatives against those that JAX itself gives."""

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
from ftrans.autograd import Function
from ftrans.custom.front import external
from ftrans.custom.front_native import traceable
from ftrans.errors import TransposeError
from tests.helpers import assert_close

X = np.array([0.3, -1.0, 2.0])


def by_jax(function: Callable[..., Any], *args: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, function(*args))


def smooth(x: Any) -> Any:
    return jax.scipy.special.logsumexp(x) * jnp.sin(x[0]) + jnp.linalg.norm(x)


@jax.custom_vjp
def square(x: Any) -> Any:
    return x * x


square.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))

ORDERS: dict[str, tuple[Any, Any]] = {
    "grad": (func.grad, jax.grad),
    "hessian": (func.hessian, jax.hessian),
    "jacfwd": (func.jacfwd, jax.jacfwd),
    "jacrev of jacrev": (lambda f: func.jacrev(func.jacrev(f)), lambda f: jax.hessian(f)),
    "third": (lambda f: func.jacfwd(func.hessian(f)), lambda f: jax.jacfwd(jax.hessian(f))),
    "third in reverse": (
        lambda f: func.jacrev(func.jacrev(func.jacrev(f))),
        lambda f: jax.jacrev(jax.jacrev(jax.jacrev(f))),
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("road", ["at once", "jit", "vmap"])
def test_rules_are_asked_of_jax_at_every_order(order: str, road: str) -> None:
    ours, theirs = ORDERS[order]
    expected = by_jax(theirs(smooth), X)
    f = ours(traceable(smooth))
    if road == "vmap":
        found = func.vmap(f)(np.stack([X, X]))[1]
    else:
        found = (ftrans.jit(f) if road == "jit" else f)(X)
    assert_close(found, expected)


def test_a_rule_for_reverse_mode_serves_forward_mode_too() -> None:
    f = traceable(square)
    assert_close(func.jvp(f, (X,), (np.ones(3),))[1], 2 * X)
    assert_close(func.grad(lambda x: f(x).sum())(X), 2 * X)
    assert_close(func.hessian(lambda x: f(x).sum())(X), 2 * np.eye(3))
    assert_close(func.jacrev(func.jacfwd(lambda x: f(f(x)).sum()))(X), np.diag(12 * X**2))
    assert_close(func.vmap(func.grad(f))(X), 2 * X)


def test_loops_pytrees_and_integers() -> None:
    def step(state: Any, count: Any) -> Any:
        return {"x": jnp.sin(state["x"]) * count, "n": count + 1}

    f = traceable(step)

    def ours(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            out = f({"x": carry[0]}, carry[1])
            return (out["x"], out["n"]), None

        return ftrans.scan(body, (x, np.int32(1)), None, length=3)[0][0].sum()

    def theirs(x: Any) -> Any:
        state, n = {"x": x}, jnp.int32(1)
        for _ in range(3):
            out = step(state, n)
            state, n = {"x": out["x"]}, out["n"]
        return state["x"].sum()

    assert_close(func.grad(ours)(X), by_jax(jax.grad(theirs), X))
    assert_close(func.hessian(ours)(X), by_jax(jax.hessian(theirs), X))
    found = f({"x": X}, np.int32(2))
    assert found["n"].dtype == np.int32


def test_complex_derivatives_follow_our_convention() -> None:
    z = np.array([1.0 + 2.0j, -0.5j])
    f = traceable(lambda z: jnp.exp(z) * z)
    ours = func.grad(lambda z: fnp.real(f(z) * (2 - 1j)).sum())(z)
    plain = func.grad(lambda z: fnp.real(fnp.exp(z) * z * (2 - 1j)).sum())(z)
    assert_close(ours, plain)


def test_containers_and_dtypes_are_kept() -> None:
    f = traceable(jnp.sort)
    for dtype in (np.float32, np.float64, np.int64):
        x = X.astype(dtype)
        assert type(f(x)) is np.ndarray
        assert f(x).dtype == dtype
    assert isinstance(f(jnp.ones(3)), jax.Array)
    assert_close(jax.vmap(jax.jit(f))(np.ones((2, 3), np.float32)), np.ones((2, 3), np.float32))


def test_a_linear_function_is_transposed() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    f = traceable(lambda a, x: a @ x)
    found = func.linear_transpose(lambda x: f(matrix, x), X)(np.array([1.0, 2.0]))
    assert_close(found[0] if isinstance(found, tuple) else found, matrix.T @ np.array([1.0, 2.0]))
    with pytest.raises(TransposeError, match="transpose"):
        func.linear_transpose(traceable(jnp.sin), X)(X)


def test_a_rule_for_a_batch_is_taken() -> None:
    seen = []

    def rule(size: int, in_batched: Any, x: Any) -> Any:
        seen.append((size, in_batched, x.shape))
        return x * 2, True

    f = external.jax(lambda x: x * 2, vmap_method=rule)  # type: ignore[attr-defined]
    assert_close(func.vmap(f)(np.ones((4, 3))), np.full((4, 3), 2.0))
    assert seen == [(4, [True], (4, 3))]


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.asarray(x) ** 2

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * x * ct


def test_jax_may_call_us_again() -> None:
    """Inside a transform of JAX inside one of ours."""
    f = traceable(jax.grad(lambda x: Square.apply(jnp.sin(x)).sum()))
    assert_close(f(X), np.sin(2 * X))
    assert_close(func.grad(lambda x: f(x).sum())(X), 2 * np.cos(2 * X))
    assert_close(ftrans.jit(func.vmap(func.grad(f)))(X), 2 * np.cos(2 * X))


def test_a_kernel_of_pallas() -> None:
    pl = pytest.importorskip("jax.experimental.pallas", reason="this JAX has no Pallas")

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.exp(x_ref[...]) + 1

    def call(x: Any) -> Any:
        return pl.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True
        )(x)

    f = traceable(call)
    assert_close(f(X), np.exp(X) + 1)
    assert_close(func.vmap(f)(np.stack([X, 2 * X])), np.exp(np.stack([X, 2 * X])) + 1)
    assert_close(func.jvp(f, (X,), (np.ones(3),))[1], np.exp(X))
