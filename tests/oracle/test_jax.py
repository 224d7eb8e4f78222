"""`ftrans.func` against `jax`: the same functions, pytrees and options, on the same numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close
from tests.oracle import jaxpr


def in_jax(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls `f` in double precision, as JAX traces it, and returns NumPy arrays."""
    return jaxpr.evaluate(functools.partial(f, **kwargs))(*args)


def assert_same(got: Any, expected: Any, tolerance: float = 1e-11) -> None:
    """Raises unless two pytrees agree in structure, dtypes and values."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert np.asarray(ours).dtype == theirs.dtype
        assert_close(ours, theirs, tolerance if theirs.dtype.itemsize >= 8 else 2e-5)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


# ------------------------------------------------------------------------------- a small network

PARAMS = {
    "layers": [(draw(4, 8), draw(8)), (draw(8, 3), draw(3))],
    "scale": draw(),
}
INPUTS, LABELS = draw(5, 4), np.array([0, 2, 1, 1, 0])


def forward(np: Any, params: Any, x: Any) -> Any:
    (w0, b0), (w1, b1) = params["layers"]
    hidden = np.tanh(x @ w0 + b0)
    return (hidden @ w1 + b1) * params["scale"]


def loss(np: Any, params: Any, x: Any, label: Any) -> Any:
    scores = forward(np, params, x)
    picked = np.take_along_axis(scores, label[..., None], axis=-1)[..., 0]
    return np.mean(np.log(np.sum(np.exp(scores), axis=-1)) - picked)


OUR_LOSS, THEIR_LOSS = functools.partial(loss, fnp), functools.partial(loss, jnp)


@pytest.mark.smoke
def test_gradient_of_a_network_in_its_pytree() -> None:
    got = func.grad(OUR_LOSS)(PARAMS, INPUTS, LABELS)
    assert_same(got, in_jax(jax.grad(THEIR_LOSS), PARAMS, INPUTS, LABELS))


def test_gradients_per_example() -> None:
    got = func.vmap(func.grad(OUR_LOSS), (None, 0, 0))(PARAMS, INPUTS, LABELS)
    expected = in_jax(jax.vmap(jax.grad(THEIR_LOSS), (None, 0, 0)), PARAMS, INPUTS, LABELS)
    assert_same(got, expected)
    for chunk in (1, 2, 5, 7):
        chunked = func.vmap(func.grad(OUR_LOSS), (None, 0, 0), chunk_size=chunk)
        assert_same(chunked(PARAMS, INPUTS, LABELS), expected)


def test_value_and_gradient_in_both_orders() -> None:
    value, gradient = in_jax(jax.value_and_grad(THEIR_LOSS), PARAMS, INPUTS, LABELS)
    assert_same(func.value_and_grad(OUR_LOSS)(PARAMS, INPUTS, LABELS), (value, gradient))
    assert_same(func.grad_and_value(OUR_LOSS)(PARAMS, INPUTS, LABELS), (gradient, value))


def test_hessian_vector_products_of_a_network() -> None:
    vector = jax.tree.map(lambda x: np.cos(3 * x), PARAMS)

    def product(params: Any, vector: Any) -> Any:
        gradient = lambda p: jax.grad(THEIR_LOSS)(p, INPUTS, LABELS)  # noqa: E731
        return jax.jvp(gradient, (params,), (vector,))[1]

    expected = in_jax(product, PARAMS, vector)
    f = lambda params: OUR_LOSS(params, INPUTS, LABELS)  # noqa: E731
    assert_same(func.hvp(f, PARAMS, vector)[1], expected)
    assert_same(func.vhp(f, PARAMS, vector)[1], expected)
    assert_same(func.jvp(func.grad(f), (PARAMS,), (vector,))[1], expected)
    assert_same(func.vjp(func.grad(f), PARAMS)[1](vector)[0], expected)


def test_hessian_of_a_network_in_its_pytree() -> None:
    small = {"layers": [(draw(2, 3), draw(3)), (draw(3, 2), draw(2))], "scale": draw()}
    x, label = draw(4, 2), np.array([0, 1, 1, 0])
    expected = in_jax(jax.hessian(THEIR_LOSS), small, x, label)
    assert_same(func.hessian(OUR_LOSS)(small, x, label), expected, 1e-10)
    assert_same(func.hessian(OUR_LOSS, chunk_size=4)(small, x, label), expected, 1e-10)


def test_jacobians_of_a_network() -> None:
    def ours(params: Any, x: Any) -> Any:
        return forward(fnp, params, x)

    def theirs(params: Any, x: Any) -> Any:
        return forward(jnp, params, x)

    for name in ("jacrev", "jacfwd"):
        expected = in_jax(getattr(jax, name)(theirs), PARAMS, INPUTS[0])
        assert_same(getattr(func, name)(ours)(PARAMS, INPUTS[0]), expected)
        expected = in_jax(getattr(jax, name)(theirs, 1), PARAMS, INPUTS[0])
        assert_same(getattr(func, name)(ours, 1, chunk_size=2)(PARAMS, INPUTS[0]), expected)


# --------------------------------------------------------------------------- options and structures


def several(np: Any, x: Any, y: Any, *, power: int = 2) -> Any:
    return {"a": np.sin(x) * y[0], "b": [x**power, (y[1] @ x).sum()]}


SEVERAL = (draw(3), [draw(), draw(2, 3)])


def flat(np: Any, x: Any, y: Any, *, power: int = 2) -> Any:
    out = several(np, x, y, power=power)
    return out["a"].sum() + (out["b"][0] ** 2).sum() * out["b"][1]


@pytest.mark.parametrize("argnums", [0, 1, (0,), (1, 0), (0, -1)])
def test_argnums(argnums: Any) -> None:
    for name in ("grad", "jacrev", "jacfwd", "hessian"):
        ours = getattr(func, name)(functools.partial(flat, fnp), argnums=argnums)
        theirs = getattr(jax, name)(functools.partial(flat, jnp), argnums=argnums)
        assert_same(ours(*SEVERAL), in_jax(theirs, *SEVERAL), 1e-10)


def test_keyword_arguments_are_passed_on() -> None:
    got = func.grad(functools.partial(flat, fnp))(*SEVERAL, power=3)
    expected = in_jax(lambda *a: jax.grad(functools.partial(flat, jnp))(*a, power=3), *SEVERAL)
    assert_same(got, expected)


def test_vjp_of_several_outputs() -> None:
    ours, theirs = functools.partial(several, fnp), functools.partial(several, jnp)
    value, pullback = func.vjp(ours, *SEVERAL)
    assert_same(value, in_jax(theirs, *SEVERAL))
    for seed in range(2):
        cts = {"a": draw(3, seed=seed), "b": [draw(3, seed=seed + 5), draw(seed=seed)]}
        expected = in_jax(lambda cts: jax.vjp(theirs, *SEVERAL)[1](cts), cts)
        assert_same(pullback(cts), expected)


def test_jvp_and_linearize_of_several_outputs() -> None:
    ours, theirs = functools.partial(several, fnp), functools.partial(several, jnp)
    tangents = jax.tree.map(lambda x: np.cos(2 * x), SEVERAL)
    expected = in_jax(lambda p, t: jax.jvp(theirs, p, t), SEVERAL, tangents)
    assert_same(func.jvp(ours, SEVERAL, tangents), expected)
    value, push = func.linearize(ours, *SEVERAL)
    assert_same((value, push(*tangents)), expected)
    half = jax.tree.map(lambda t: 0.5 * t, tangents)
    assert_same(push(*half), jax.tree.map(lambda t: 0.5 * t, expected[1]))


@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian"])
def test_has_aux(name: str) -> None:
    def f(np: Any, x: Any) -> Any:
        return np.sum(x**3), {"norm": np.sqrt(np.sum(x * x)), "twice": 2 * x}

    x = draw(3)
    got = getattr(func, name)(functools.partial(f, fnp), has_aux=True)(x)
    expected = in_jax(getattr(jax, name)(functools.partial(f, jnp), has_aux=True), x)
    assert_same(got, expected)


@pytest.mark.parametrize("out_dim", [0, 1, -1])
@pytest.mark.parametrize(
    "in_dims",
    [(0, None), (1, 0), (-1, 1), (None, -1), (0, {"u": 1, "v": None}), (1, {"u": 0, "v": 0})],
)
def test_vmap_axes(in_dims: Any, out_dim: int) -> None:
    def f(np: Any, x: Any, y: Any) -> Any:
        return np.outer(x, y["u"]) + y["v"].sum()

    def place(base: np.ndarray, dim: Any) -> np.ndarray:
        return base if dim is None else np.stack([base, -base, 2 * base], axis=dim)

    second = in_dims[1] if isinstance(in_dims[1], dict) else dict.fromkeys("uv", in_dims[1])
    x = place(draw(4), in_dims[0])
    y = {"u": place(draw(2), second["u"]), "v": place(draw(2, 5), second["v"])}
    got = func.vmap(functools.partial(f, fnp), in_dims, out_dim)(x, y)
    assert_same(got, in_jax(jax.vmap(functools.partial(f, jnp), in_dims, out_dim), x, y))


def test_vmap_of_several_outputs_and_axes() -> None:
    def f(np: Any, x: Any, w: Any) -> Any:
        return np.sin(x), {"w": w * 2, "both": x.sum() * w}

    x, w = draw(3, 4), draw(2)
    out = (1, {"w": None, "both": 0})
    got = func.vmap(functools.partial(f, fnp), (0, None), out)(x, w)
    assert_same(got, in_jax(jax.vmap(functools.partial(f, jnp), (0, None), out), x, w))
    nested = func.vmap(func.vmap(functools.partial(f, fnp), (0, None)), (None, 0))(x, draw(5, 2))
    expected = in_jax(
        jax.vmap(jax.vmap(functools.partial(f, jnp), (0, None)), (None, 0)), x, draw(5, 2)
    )
    assert_same(nested, expected)


def test_linear_transpose() -> None:
    def f(np: Any, x: Any, y: Any) -> Any:
        return {"a": MIX @ x + y[:2].sum(), "b": y[::-1] * 3.0}

    cts = {"a": draw(2), "b": draw(4)}
    got = func.linear_transpose(functools.partial(f, fnp), draw(3), draw(4))(cts)
    with jax.enable_x64(True):
        expected = jax.linear_transpose(functools.partial(f, jnp), draw(3), draw(4))(cts)
    assert_same(got, jax.tree.map(np.asarray, tuple(expected)))


MIX = draw(2, 3, seed=9)


# -------------------------------------------------------------------------------- real programs


def attention(np: Any, x: Any, w: Any) -> Any:
    """Self-attention of two heads with a causal mask and a residual connection."""
    n, d = x.shape
    q, k, v = (np.transpose(np.reshape(x @ m, (n, 2, d // 2)), (1, 0, 2)) for m in w)
    scores = np.einsum("hid,hjd->hij", q, k) / (d // 2) ** 0.5
    mask = np.tril(np.ones((n, n), bool))
    weights = np.softmax(np.where(mask, scores, -1e9), axis=-1)
    mixed = np.reshape(np.transpose(weights @ v, (1, 0, 2)), (n, d))
    return x + mixed


def normalised(np: Any, x: Any) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)


THEIR_NP = SimpleNamespace(**{n: getattr(jnp, n) for n in dir(jnp)}, softmax=jax.nn.softmax)


def test_attention() -> None:
    x, w = draw(5, 4), tuple(draw(4, 4, seed=s) for s in range(3))

    def f(np: Any) -> Any:
        return lambda x, w: np.sum(normalised(np, attention(np, x, w)) ** 3)

    expected = in_jax(jax.grad(f(THEIR_NP), (0, 1)), x, w)
    assert_same(func.grad(f(fnp), (0, 1))(x, w), expected, 1e-9)
    many = np.stack([x, x[::-1], 0.5 * x])
    expected = in_jax(jax.vmap(jax.grad(f(THEIR_NP), (0, 1)), (0, None)), many, w)
    assert_same(func.vmap(func.grad(f(fnp), (0, 1)), (0, None))(many, w), expected, 1e-9)


def test_kalman_filter() -> None:
    """A scan over matrices: predictions, a solve by the explicit inverse, and a likelihood."""

    def f(np: Any, lax: Any) -> Any:
        def likelihood(theta: Any, ys: Any) -> Any:
            a = np.stack(
                [
                    np.stack([np.cos(theta), np.sin(theta)]),
                    np.stack([-np.sin(theta), np.cos(theta)]),
                ]
            )

            def step(state: Any, y: Any) -> Any:
                mean, cov = state
                mean, cov = a @ mean, a @ cov @ a.T + 0.1 * np.eye(2, dtype="float64")
                s = cov[0, 0] + 0.5
                gain = cov[:, 0] / s
                r = y - mean[0]
                mean, cov = mean + gain * r, cov - np.outer(gain, cov[0])
                return (mean, cov), -0.5 * (r * r / s + np.log(s))

            init = np.asarray([1.0, 0.0], dtype="float64"), np.eye(2, dtype="float64")
            _, terms = lax.scan(step, init, ys)
            return terms.sum()

        return likelihood

    theta, ys = np.float64(0.4), np.sin(np.arange(8.0))
    for transform in ("grad", "hessian"):
        expected = in_jax(getattr(jax, transform)(f(jnp, jax.lax), argnums=(0, 1)), theta, ys)
        got = getattr(func, transform)(f(fnp, ftrans), argnums=(0, 1))(theta, ys)
        assert_same(got, expected, 1e-9)


def test_newton_steps_through_an_inner_hessian() -> None:
    """The outcome of three Newton steps, differentiated with respect to the problem's data."""

    def f(np: Any, grad: Any, hessian: Any) -> Any:
        def outcome(data: Any) -> Any:
            def energy(x: Any) -> Any:
                return np.sum(np.logaddexp(data * x, 0.0)) + 0.5 * np.sum(x * x)

            x = data * 0.0
            for _ in range(3):
                h, g = hessian(energy)(x), grad(energy)(x)
                # the Hessian is diagonal here
                x = x - g / np.diagonal(h)
            return np.sum(x * x)

        return outcome

    data = draw(3)
    expected = in_jax(jax.grad(f(jnp, jax.grad, jax.hessian)), data)
    assert_same(func.grad(f(fnp, func.grad, func.hessian))(data), expected, 1e-10)
    expected = in_jax(jax.hessian(f(jnp, jax.grad, jax.hessian)), data)
    assert_same(func.hessian(f(fnp, func.grad, func.hessian))(data), expected, 1e-9)


# ------------------------------------------------------------------------------------ dtypes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_derivatives_keep_the_dtype(dtype: str) -> None:
    def f(np: Any, x: Any) -> Any:
        return np.sum(np.tanh(x) * x * 1.5)

    with jax.enable_x64(True):
        x = np.asarray(jnp.asarray(draw(3)).astype(dtype))
    for name in ("grad", "hessian"):
        got = getattr(func, name)(functools.partial(f, fnp))(x)
        expected = in_jax(getattr(jax, name)(functools.partial(f, jnp)), x)
        assert got.dtype == expected.dtype
        tolerance = {"float16": 5e-3, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
        assert_close(got, expected, tolerance)


def test_mixed_dtypes_and_casts() -> None:
    def f(np: Any, x: Any, y: Any) -> Any:
        z = x.astype("float64") * y
        return np.sum(z.astype("float32") * x)

    x, y = draw(3).astype("float32"), draw(3)
    got = func.grad(functools.partial(f, fnp), (0, 1))(x, y)
    assert_same(got, in_jax(jax.grad(functools.partial(f, jnp), (0, 1)), x, y))


def test_complex_gradients_are_the_conjugates_of_jax() -> None:
    def f(np: Any, z: Any, w: Any) -> Any:
        return np.sum(np.abs(np.exp(1j * z) @ w) ** 2) + np.real(z[0] * w[1])

    z, w = draw(2) + 1j * draw(2, seed=1), draw(2, seed=2) - 1j * draw(2, seed=3)
    got = func.grad(functools.partial(f, fnp), (0, 1))(z, w)
    expected = in_jax(jax.grad(functools.partial(f, jnp), (0, 1)), z, w)
    assert_same(got, jax.tree.map(np.conj, expected))


def test_jax_arrays_come_back_as_jax_arrays() -> None:
    x = jnp.asarray(draw(3).astype("float32"))
    for got in (
        func.grad(lambda x: (x * x).sum())(x),
        func.vmap(fnp.sin)(x),
        func.jvp(fnp.sin, (x,), (x,))[1],
        func.vjp(fnp.sin, x)[1](x)[0],
        ftrans.jit(fnp.sin)(x),
        ftrans.scan(lambda c, x: (c + x, c), x[0], x)[1],
    ):
        assert isinstance(got, jax.Array)
    assert isinstance(func.grad(lambda x: (x * x).sum())(np.ones(3)), np.ndarray)


def test_ftrans_inside_jax_jit() -> None:
    """Our transforms run on values that JAX traces."""
    f = jax.jit(lambda x: func.grad(lambda x: fnp.sum(fnp.sin(x) * x))(x))
    x = draw(3).astype("float32")
    assert_close(f(x), np.cos(x) * x + np.sin(x), 1e-6)
    g = jax.vmap(lambda x: func.jvp(fnp.sin, (x,), (x,))[1])
    assert_close(g(x), np.cos(x) * x, 1e-6)
    h = jax.grad(lambda x: func.grad(lambda y: fnp.sum(y**3 * x))(x).sum())
    assert_close(h(x), 9 * x**2, 1e-5)
