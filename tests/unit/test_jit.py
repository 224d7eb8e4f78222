"""`ftrans.jit`: once per signature, inside and outside of other transforms, of ours and of JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close
from tests.oracle import jaxpr

V = np.array([0.5, -1.0, 2.0])
M = np.arange(6.0).reshape(2, 3) / 5


class Counted:
    """Counts how often the Python of a function runs."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


def wave(x: Any, y: Any) -> Any:
    return fnp.sin(x) * y + x


# ------------------------------------------------------------------------------------- signatures


def test_traces_once_per_signature() -> None:
    counted = Counted(lambda x: x * 2)
    f = ftrans.jit(counted)
    for _ in range(3):
        assert_close(f(V), 2 * V)
    assert counted.count == 1
    f(V.astype(np.float32))
    f(M)
    assert counted.count == 3
    f(V + 1)
    assert counted.count == 3


def test_static_arguments_are_part_of_the_signature() -> None:
    counted = Counted(lambda x, n, name="a": x**n if name == "a" else -x)
    f = ftrans.jit(counted, static_argnums=1, static_argnames="name")
    assert_close(f(V, 2), V**2)
    assert_close(f(V, 3), V**3)
    assert_close(f(V, 2, name="b"), -V)
    assert_close(f(V, 3), V**3)
    assert counted.count == 3
    by_tuple = ftrans.jit(lambda x, shape: x.reshape(shape), static_argnums=(1,))
    assert by_tuple(M, (3, 2)).shape == (3, 2)


def test_static_arguments_under_other_transforms() -> None:
    f = ftrans.jit(lambda x, n, *, flip: (x**n).sum() * (-1 if flip else 1), static_argnums=1,
                   static_argnames=("flip",))  # fmt: skip
    gradient = func.grad(lambda x: f(x, 3, flip=True))(V)
    assert_close(gradient, -3 * V**2)
    assert_close(func.vmap(lambda row: f(row, 2, flip=False))(M), (M**2).sum(1))


def test_options_that_name_no_arguments_are_refused() -> None:
    for option, value, what in (
        ("static_argnums", 1.0, "positions"),
        ("static_argnums", ("n",), "positions"),
        ("donate_argnames", 1, "names"),
    ):
        with pytest.raises(ftrans.errors.ArgumentError) as caught:
            ftrans.jit(lambda x, n: x, **{option: value})
        first, second, _ = str(caught.value).splitlines()
        assert first == f"jit: {option} are {what} of arguments."
        assert second == f"  {option}: {value!r}"


def test_keyword_arguments_and_pytrees() -> None:
    @ftrans.jit
    def f(params: Any, *, scale: Any, extra: Any = None) -> Any:
        assert extra is None
        return {"y": [params["w"] * scale, params["b"]], "none": None}

    found = f({"w": M, "b": V}, scale=V)
    assert_close(found["y"][0], M * V)
    assert_close(found["y"][1], V)
    assert found["none"] is None


def test_decorating_with_options() -> None:
    @ftrans.jit(static_argnames="n")
    def power(x: Any, n: int) -> Any:
        """Raises to a power."""
        return x**n

    assert_close(power(V, n=3), V**3)
    assert power.__name__ == "power"
    assert power.__doc__ == "Raises to a power."
    assert_close(ftrans.jit(functools.partial(power, n=2))(V), V**2)


def test_a_function_defined_anew_is_traced_anew() -> None:
    def make(k: float) -> Callable[[Any], Any]:
        return ftrans.jit(lambda x: x * k)

    assert_close([make(k)(V) for k in (1.0, 2.0, 3.0)], [V, 2 * V, 3 * V])


def test_what_it_closes_over_is_frozen() -> None:
    data = np.array([1.0, 2.0, 3.0])
    f = ftrans.jit(lambda x: x * data)
    assert_close(f(V), V * [1.0, 2.0, 3.0])
    data[:] = 7.0
    assert_close(f(V), V * [1.0, 2.0, 3.0])
    f.clear_cache()
    assert_close(f(V), V * 7.0)


# ------------------------------------------------------------------------- containers and dtypes


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool", "complex128"])
def test_containers_and_dtypes_follow_the_arguments(dtype: str) -> None:
    f = ftrans.jit(lambda x: {"x": x, "same": x[::-1]})
    x = np.array([0, 1, 1], dtype)
    found = f(x)
    assert type(found["x"]) is np.ndarray
    assert found["x"].dtype == dtype
    assert found["x"].flags.writeable
    assert not np.shares_memory(found["x"], x)
    with jax.enable_x64(True):
        given = jax.numpy.asarray(x)
    found = f(given)
    assert isinstance(found["same"], jax.Array)
    assert found["same"].dtype == dtype
    assert_close(found["same"], x[::-1])


def test_python_scalars_promote_weakly() -> None:
    f = ftrans.jit(lambda x, k: x * k)
    assert f(V.astype(np.float32), 2.0).dtype == np.float32
    assert f(V.astype(np.float16), 2).dtype == np.float16
    assert f(V, 2).dtype == np.float64
    assert f(np.arange(3), 2).dtype == np.int64
    assert f(np.arange(3), True).dtype == np.int64
    assert f(3, 2.0).dtype == np.float64
    assert float(f(3.0, 2.0)) == 6.0
    for x in (V, V.astype(np.float32), np.arange(3)):
        for k in (2, 2.5, True):
            plain = fnp.multiply(x, k)
            jitted = f(x, k)
            assert jitted.dtype == plain.dtype, (x.dtype, k)
            assert_close(jitted, plain)


def test_results_without_arrays_among_the_arguments() -> None:
    found = ftrans.jit(lambda: fnp.arange(3))()
    assert type(found) is np.ndarray
    assert_close(found, [0, 1, 2])


def test_donated_arguments() -> None:
    f = ftrans.jit(lambda x, y: x + y, donate_argnums=0)
    x = jax.numpy.ones(3)
    assert_close(f(x, x * 2), 3 * np.ones(3))
    assert x.is_deleted()
    assert_close(f(V, V), 2 * V)  # a NumPy array is copied, and stays
    assert_close(V, [0.5, -1.0, 2.0])


def test_lower_is_that_of_jax() -> None:
    lowered = ftrans.jit(lambda x: fnp.sin(x) * 2).lower(V)
    assert "sine" in lowered.as_text()
    assert "f64" in lowered.as_text()
    compiled = lowered.compile()
    assert compiled.cost_analysis() is not None


# ------------------------------------------------------------------------------ other transforms

COMPOSITIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grad of jit": (lambda f: func.grad(f), lambda f: jax.grad(f)),
    "jit of grad": (lambda f: ftrans.jit(func.grad(f)), lambda f: jax.grad(f)),
    "grad of grad of jit": (
        lambda f: func.grad(lambda x, y: func.grad(f)(x, y) * x),
        lambda f: jax.grad(lambda x, y: jax.grad(f)(x, y) * x),
    ),
    "jvp of jit": (
        lambda f: lambda x, y: func.jvp(f, (x, y), (y, x))[1],
        lambda f: lambda x, y: jax.jvp(f, (x, y), (y, x))[1],
    ),
    "jit of vjp": (
        lambda f: ftrans.jit(lambda x, y: func.vjp(f, x, y)[1](y)[1]),
        lambda f: lambda x, y: jax.vjp(f, x, y)[1](y)[1],
    ),
    "hessian of jit": (lambda f: func.hessian(f), lambda f: jax.hessian(f)),
    "jit of jit": (lambda f: ftrans.jit(lambda x, y: ftrans.jit(f)(x, y) * 2),
                   lambda f: lambda x, y: f(x, y) * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_agree_with_jax(name: str) -> None:
    ours, theirs = COMPOSITIONS[name]

    def f(x: Any, y: Any) -> Any:
        return jax.numpy.sin(x) * y + x

    x, y = np.float64(0.7), np.float64(-1.3)
    expected = jaxpr.evaluate(theirs(f))(x, y)
    assert_close(ours(ftrans.jit(wave))(x, y), expected)


def test_vmap_and_jit() -> None:
    f = ftrans.jit(lambda x, w: (x * w).sum())
    assert_close(func.vmap(f, (0, None))(M, V), M @ V)
    assert_close(ftrans.jit(func.vmap(func.grad(f), (0, None)))(M, V), np.stack([V, V]))
    assert_close(func.vmap(lambda row: ftrans.jit(lambda v: (row * v).sum())(V))(M), M @ V)


def test_closures_over_traced_values() -> None:
    def f(a: Any) -> Any:
        inner = ftrans.jit(lambda b: fnp.sin(a * b) * a)
        return inner(a * 2)

    x, step = np.float64(0.6), 1e-6
    slope = (f(x + step) - f(x - step)) / (2 * step)
    assert_close(func.grad(f)(x), slope, 1e-8)
    assert_close(ftrans.jit(func.grad(f))(x), slope, 1e-8)


def test_staged_control_flow_inside() -> None:
    @ftrans.jit
    def f(x: Any, n: Any) -> Any:
        total, ys = ftrans.scan(lambda c, v: (c + v * v, c), 0.0, x)
        total = ftrans.cond(total > 1, lambda t: t * 2, lambda t: t, total)
        return ftrans.fori_loop(0, n, lambda i, t: t + i, total), ys

    found, ys = f(V, 4)
    assert_close(found, 2 * (V**2).sum() + 6)
    assert_close(ys, [0.0, 0.25, 1.25])
    assert_close(func.grad(lambda x: ftrans.jit(lambda x: f.__wrapped__(x, 3)[0])(x))(V), 4 * V)


# ------------------------------------------------------------------------------- JAX from outside


@pytest.mark.parametrize("jitted", [False, True])
def test_inside_jaxs_own_transforms(jitted: bool) -> None:
    ours = func.grad(lambda x: fnp.tanh(x * x).sum())
    if jitted:
        ours = ftrans.jit(ours)

    def theirs(x: Any) -> Any:
        return jax.grad(lambda x: jax.numpy.tanh(x * x).sum())(x)

    x = jax.numpy.asarray(V, "float32")
    assert_close(jax.jit(ours)(x), theirs(x), 1e-6)
    assert_close(jax.vmap(ours)(jax.numpy.asarray(M, "float32")), jax.vmap(theirs)(M), 1e-6)
    assert_close(jax.grad(lambda x: ours(x).sum())(x), jax.grad(lambda x: theirs(x).sum())(x), 1e-5)
    assert_close(jax.jacfwd(ours)(x), jax.jacfwd(theirs)(x), 1e-5)
    with jax.enable_x64(True):
        assert_close(jax.jit(jax.vmap(ours))(M), jax.vmap(theirs)(M), 1e-12)


def test_a_jitted_function_of_jax_is_called_from_outside_only() -> None:
    """JAX's functions take arrays: results of ours go into them as they are."""
    gradient = func.grad(lambda x: (x**3).sum())
    x = jax.numpy.ones(3)
    assert_close(jax.jit(jax.numpy.sum)(gradient(x)), 9.0)


def test_arrays_of_numpy_beside_those_of_jax_may_be_written_to_afterwards() -> None:
    def long(w: Any, x: Any) -> Any:
        for _ in range(20):
            x = fnp.tanh(x @ w) + fnp.sin(x)
        return (x**2).mean()

    jitted = ftrans.jit(long)
    x = jax.numpy.ones((96, 96), "float32")
    for _ in range(60):
        w = np.full((96, 96), 0.1, np.float32)
        out = jitted(w, x)
        w[...] = np.nan
        assert np.isfinite(float(out))
    w = np.full((96, 96), 0.1, np.float32)
    assert np.isfinite(float(jax.jit(lambda x: jitted(w, x))(x)))  # nothing to wait for there
