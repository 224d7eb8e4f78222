"""`custom_vjp`, `custom_jvp` and `custom_vmap` in JAX's spelling, where JAX fails and where not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.custom import recording
from ftrans.errors import MissingRuleError, RuleError, TransposeError
from tests.helpers import assert_close, sampled_rows
from tests.oracle import jaxpr
from tests.unit.clean import assert_nothing_open
from tests.unit.function_database import Case
from tests.unit.function_transforms import FORWARD, FURTHER, ONCE, OURS, check

X, Y = np.array([0.5, -1.2]), np.array([0.3, 0.9])
ALL = [*ONCE, *FURTHER]

# ----------------------------------------------------------------- one rule, under all transforms


@ftrans.custom_vjp
def by_vjp(x: Any, y: Any) -> Any:
    return x * fnp.exp(y)


def _forward(x: Any, y: Any) -> Any:
    scale = fnp.exp(y)
    return x * scale, {"scale": scale, "x": [x]}


def _backward(residuals: Any, ct: Any) -> Any:
    scale = residuals["scale"]
    return ct * scale, ct * scale * residuals["x"][0]


by_vjp.defvjp(_forward, _backward)


@ftrans.custom_jvp
def by_jvp(x: Any, y: Any) -> Any:
    return x * fnp.exp(y)


@by_jvp.defjvp
def _rule(primals: Any, tangents: Any) -> Any:
    (x, y), (x_dot, y_dot) = primals, tangents
    scale = fnp.exp(y)
    return x * scale, (x_dot + x * y_dot) * scale


@ftrans.custom_jvp
def by_jvps(x: Any, y: Any) -> Any:
    return x * fnp.exp(y)


by_jvps.defjvps(lambda t, out, x, y: t * fnp.exp(y), lambda t, out, x, y: t * out)


@ftrans.custom_vmap
def by_vmap(x: Any, y: Any) -> Any:
    return x * fnp.exp(y)


@by_vmap.def_vmap
def _batched(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
    x, y = (
        array if mapped else fnp.broadcast_to(array, (axis_size, *array.shape))
        for array, mapped in zip((x, y), in_batched, strict=True)
    )
    return x * fnp.exp(y), True


def plain(x: Any, y: Any) -> Any:
    return x * jnp.exp(y)


@pytest.mark.parametrize(
    ("function", "transform"),
    sampled_rows(itertools.product([by_vjp, by_jvp, by_jvps, by_vmap], ALL), 4),
)
def test_one_rule_is_enough(function: Any, transform: str) -> None:
    check(Case(function, plain, (X, Y)), transform)


def test_jax_takes_a_rule_for_batches() -> None:
    @ftrans.custom_vmap
    def h(x, y):
        return fnp.sin(x) * y

    h.def_vmap(lambda axis_size, in_batched, x, y: (100.0 * x * y, in_batched[0]))
    x = jnp.asarray(X)
    assert_close(jax.vmap(h, (0, None))(x, 2.0), 200 * x)
    assert_close(jax.jit(jax.vmap(jax.vmap(h, (0, None)), (0, None)))(x[None], 2.0), 200 * x[None])
    assert_close(jax.grad(h)(x[0], 2.0), 2 * jnp.cos(x[0]))
    assert_close(jax.vmap(jax.grad(h), (0, None))(x, 2.0), 2 * jnp.cos(x))

    def closing_over(x, w):
        g = ftrans.custom_vmap(lambda x: x * w)
        g.def_vmap(lambda axis_size, in_batched, x: (100.0 * x, in_batched[0]))
        return g(x)

    # the rule does not know of what is closed over
    assert_close(jax.vmap(closing_over, (0, None))(x, 2.0), 100 * x)
    assert_close(jax.vmap(closing_over)(x, x), x * x)


def test_the_rules_are_what_is_called() -> None:
    @ftrans.custom_vjp
    def f(x):
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (100.0 * ct,))

    @ftrans.custom_jvp
    def g(x):
        return fnp.sin(x)

    g.defjvp(lambda primals, tangents: (fnp.sin(*primals), 100.0 * tangents[0]))

    @ftrans.custom_vmap
    def h(x):
        return fnp.sin(x)

    h.def_vmap(lambda axis_size, in_batched, x: (100.0 * x, in_batched[0]))
    for name in (f, g):
        assert_close(func.grad(lambda x: name(x).sum())(X), [100.0] * 2)  # noqa: B023
        assert_close(func.jvp(name, (X,), (X,))[1], 100 * X)
        assert_close(func.vmap(func.grad(name))(X), [100.0] * 2)
        assert_close(ftrans.jit(func.vmap(func.grad(name)))(X), [100.0] * 2)
    assert_close(h(X), np.sin(X))
    assert_close(func.vmap(h)(X), 100 * X)
    assert_close(ftrans.jit(func.vmap(h))(X), 100 * X)
    assert_close(func.grad(lambda x: h(x).sum())(X), np.cos(X))


def test_a_decorated_function_is_itself() -> None:
    assert by_vjp.__name__ == "by_vjp"
    assert_close(by_vjp(X, Y), X * np.exp(Y))
    assert_close(by_vjp(x=X, y=Y), X * np.exp(Y))
    assert callable(by_jvp.defjvp)
    assert isinstance(by_jvp(jnp.asarray(X, "float32"), Y.astype("f4")), jax.Array)


# --------------------------------------------------------------------------- code written for JAX


class Point(NamedTuple):
    x: Any
    y: Any


def norm_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Returns a function of a pytree, as one writes it for JAX."""

    @lib.custom_vjp
    def f(params, point):
        return value(params, point)

    def value(params, point):
        r = np.sqrt(point.x**2 + point.y**2)
        return {"r": r * params["k"][0], "s": point.x + 0 * point.y}

    def fwd(params, point):
        out = value(params, point)
        return out, (params, point, (out["r"], None))

    def bwd(residuals, cts):
        params, point, (r, _) = residuals
        k = params["k"][0]
        slope = cts["r"] * k * k / r
        return {"k": [cts["r"] * r / k]}, Point(slope * point.x + cts["s"], slope * point.y)

    f.defvjp(fwd, bwd)
    return lambda k, x, y: (lambda out: out["r"] ** 2 + 3 * out["s"])(f({"k": [k]}, Point(x, y)))


def softplus_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Is the example of JAX's documentation: log(1 + exp(x)) with a stable slope."""

    @lib.custom_jvp
    def log1pexp(x):
        return np.log(1.0 + np.exp(x))

    @log1pexp.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return log1pexp(x), (1 - 1 / (1 + np.exp(x))) * t

    return log1pexp


def clip_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Clips gradients: JAX's documentation again, with `nondiff_argnums`."""

    @functools.partial(lib.custom_vjp, nondiff_argnums=(0, 1))
    def clip_gradient(lo, hi, x):
        return x * 1

    def fwd(lo, hi, x):
        return x * 1, None

    def bwd(lo, hi, _, ct):
        return (np.clip(ct, lo, hi),)

    clip_gradient.defvjp(fwd, bwd)
    return lambda x: np.sin(clip_gradient(-0.5, 0.5, x))


def app_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Calls a Python function given as an argument that is not differentiated."""

    @functools.partial(lib.custom_jvp, nondiff_argnums=(0,))
    def app(f, x):
        return f(x)

    @app.defjvp
    def rule(f, primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), 2.0 * t * x

    return lambda x: app(lambda x: x**3, x)


def nothing_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Has None for the cotangent of an argument, and None in `defjvps`."""

    @lib.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, y), lambda y, ct: (ct * y, None))

    @lib.custom_jvp
    def g(x, y):
        return x * y

    g.defjvps(lambda t, out, x, y: t * y, None)
    return lambda x, y: f(x, y) + g(x, y)


def recursive_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Calls the function in its own rules, as much code does."""

    @lib.custom_vjp
    def f(x):
        return np.exp(x)

    def fwd(x):
        out = f(x)
        return out, out

    f.defvjp(fwd, lambda out, ct: (ct * out,))

    @lib.custom_jvp
    def g(x):
        return np.exp(f(x) / 4)

    @g.defjvp
    def rule(primals, tangents):
        out = g(*primals)
        return out, out * f(primals[0]) / 4 * tangents[0]

    return g


def straight_through_code(lib: Any, np: Any) -> Callable[..., Any]:
    """Rounds, and hands the gradient through; keeps no residuals."""

    @lib.custom_vjp
    def rounded(x):
        return np.round(x)

    rounded.defvjp(lambda x: (np.round(x), ()), lambda _, ct: (ct,))
    return lambda x: rounded(3 * x) ** 2


CODES = {
    "pytrees": (norm_code, (np.float64(2.0), np.float64(0.6), np.float64(0.8))),
    "stable slope": (softplus_code, (np.array([0.3, 20.0]),)),
    "nondiff argnums of a vjp": (clip_code, (np.array([0.3, 2.0]),)),
    "nondiff argnums of a jvp": (app_code, (np.array([0.3, 2.0]),)),
    "None": (nothing_code, (X, Y)),
    "straight through": (straight_through_code, (X,)),
}
ONLY_REVERSE = ("pytrees", "None", "straight through")
"""Where JAX has no forward mode to compare with."""
UNTRUE = ("nondiff argnums of a vjp", "nondiff argnums of a jvp", "None", "straight through")
"""Whose rules are not the derivatives of the function."""


@pytest.mark.parametrize(("name", "transform"), sampled_rows(itertools.product(CODES, ALL), 5))
def test_code_for_jax_moves_over(name: str, transform: str) -> None:
    code, arrays = CODES[name]
    ours, theirs = code(ftrans, fnp), code(jax, jnp)
    if transform in (*FORWARD, "grad(jvp)") and name in ONLY_REVERSE:
        compare_with_reverse(ours, theirs, arrays)
    elif transform in (*FORWARD, "grad(jvp)") and name == "nondiff argnums of a vjp":
        with pytest.raises(MissingRuleError, match=r"clip_gradient.*not linear"):
            FURTHER[transform](OURS, ours, arrays)
    elif transform in ONCE or transform in FORWARD or name not in UNTRUE:
        check(Case(ours, theirs, arrays), transform)


@pytest.mark.parametrize("transform", ["grad(grad)", "jvp(grad)", "hessian", "jacrev(jacrev)"])
@pytest.mark.parametrize("name", UNTRUE)
def test_the_second_derivative_is_that_of_the_rule(name: str, transform: str) -> None:
    """The code of a rule is differentiated as it stands, as in JAX: not the function again."""
    code, arrays = CODES[name]
    check(Case(code(ftrans, fnp), code(jax, jnp), arrays), transform)


@pytest.mark.parametrize("transform", ALL)
def test_functions_that_are_called_in_their_own_rules(transform: str) -> None:
    """JAX takes no forward mode of their gradients: it is given the plain function."""
    ours = recursive_code(ftrans, fnp)
    check(Case(ours, lambda x: jnp.exp(jnp.exp(x) / 4), (X,)), transform)


def compare_with_reverse(ours: Any, theirs: Any, arrays: Any) -> None:
    """Compares our forward mode with the transposed Jacobian of JAX's reverse mode."""
    argnums = tuple(range(len(arrays)))
    expected = jaxpr.evaluate(jax.jacrev(theirs, argnums))(*arrays)
    for ours_, theirs_ in zip(func.jacfwd(ours, argnums)(*arrays), expected, strict=True):
        assert_close(ours_, theirs_)
    dots = [np.cos(x) for x in arrays]
    pushed = sum(np.tensordot(j, t, np.ndim(t)) for j, t in zip(expected, dots, strict=True))
    assert_close(func.jvp(ours, arrays, tuple(dots))[1], pushed)
    assert_close(func.linearize(ours, *arrays)[1](*dots), pushed)


def with_defaults(lib: Any, kind: str) -> Any:
    """Returns a function with a default argument, whose rule is handed all of them."""
    if kind == "vjp":
        f = lib.custom_vjp(lambda x, y=2.0: x * y)
        f.defvjp(lambda x, y: (x * y, y), lambda y, ct: (10 * ct * y, None))
    else:
        f = lib.custom_jvp(lambda x, y=2.0: x * y)
        f.defjvp(lambda primals, ts: (primals[0] * primals[1], 10 * ts[0] * primals[1]))
    return f


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f(x),
        lambda f, x: f(x, 5.0),
        lambda f, x: f(x, y=5.0),
        lambda f, x: f(y=5.0, x=x),
    ],
)
def test_defaults_and_names(call: Any, kind: str) -> None:
    ours, theirs = with_defaults(ftrans, kind), with_defaults(jax, kind)
    expected = jax.grad(lambda x: call(theirs, x))(3.0)
    assert_close(func.grad(lambda x: call(ours, x))(3.0), expected)
    assert_close(ftrans.jit(func.grad(lambda x: call(ours, x)))(3.0), expected)


def test_default_arguments_of_custom_vmap() -> None:
    f = ftrans.custom_vmap(lambda x, y=2.0: x * y)
    f.def_vmap(lambda axis_size, in_batched, x, y: (10 * x * y, in_batched[0]))
    assert_close(func.vmap(f)(X), 20 * X)
    assert_close(func.vmap(lambda x: f(x, y=3.0))(X), 30 * X)


def test_nondiff_argnames() -> None:
    @functools.partial(ftrans.custom_vjp, nondiff_argnames=("mode",))
    def f(x, mode):
        return 2 * x

    f.defvjp(lambda x, mode: (2 * x, None), lambda mode, _, ct: (ct * (7 if mode == "a" else 8),))
    assert_close(func.grad(lambda x: f(x, "a"))(1.0), np.float32(7.0))
    assert_close(func.grad(lambda x: f(x, mode="b"))(1.0), np.float32(8.0))


def test_static_arguments_without_nondiff_argnums() -> None:
    """Where JAX asks for `nondiff_argnums`: what is no array is static."""

    @ftrans.custom_vjp
    def f(x, mode, size):
        return x * size if mode == "a" else x

    f.defvjp(
        lambda x, mode, size: (f(x, mode, size), (mode, size)),
        lambda r, ct: (ct * r[1] * (100 if r[0] == "a" else 1), None, None),
    )
    for wrap in (lambda f: f, ftrans.jit):
        assert_close(wrap(func.grad(lambda x: f(x, "a", 3)))(1.0), np.float32(300.0))
        assert_close(wrap(func.vmap(func.grad(lambda x: f(x, "b", 3))))(X), [3.0, 3.0])


def test_integer_arguments_have_no_cotangent() -> None:
    @ftrans.custom_vjp
    def f(x, i):
        return x[i]

    def backward(residuals: Any, ct: Any) -> Any:
        i, shape = residuals
        return fnp.at(fnp.zeros(shape, ct.dtype))[i].set(10 * ct), None

    f.defvjp(lambda x, i: (x[i], (i, x.shape)), backward)
    assert_close(func.grad(f)(X, np.int64(1)), [0.0, 10.0])
    got = func.vmap(func.grad(f), (None, 0))(X, np.array([1, 0]))
    assert_close(got, [[0.0, 10.0], [10.0, 0.0]])

    @ftrans.custom_vjp
    def g(x, i):
        return x * i

    g.defvjp(
        lambda x, i: (x * i, i),
        lambda i, ct: (10 * ct * i, np.zeros(np.shape(i), jax.dtypes.float0)),
    )
    assert_close(func.grad(lambda x: g(x, np.array([1, 2])).sum())(X), [10.0, 20.0])
    assert_close(func.grad(lambda x: g(x, 3).sum())(X), [30.0, 30.0])


class Model:
    """Has methods with rules; `self` is not differentiated, and yet what it holds is captured."""

    def __init__(self, weight: Any):
        self.weight = weight

    @functools.partial(ftrans.custom_vjp, nondiff_argnums=(0,))
    def by_vjp(self, x):
        return self.weight * x

    by_vjp.defvjp(
        lambda self, x: (self.weight * x, None), lambda self, _, ct: (10 * self.weight * ct,)
    )

    @functools.partial(ftrans.custom_jvp, nondiff_argnums=(0,))
    def by_jvp(self, x):
        return self.weight * x

    @by_jvp.defjvp
    def _rule(self, primals, tangents):
        return self.weight * primals[0], 10 * self.weight * tangents[0]


@pytest.mark.parametrize("name", ["by_vjp", "by_jvp"])
def test_methods(name: str) -> None:
    assert_close(func.grad(getattr(Model(3.0), name))(2.0), np.float32(30.0))
    assert_close(func.vmap(func.grad(getattr(Model(3.0), name)))(X), [30.0, 30.0])


# ------------------------------------------------------------------------------------ custom_vmap


@ftrans.custom_vmap
def polynomial(x):
    return x**3


@polynomial.def_vmap
def _polynomial_rule(axis_size, in_batched, x):
    assert in_batched == [True]
    return x * x * x, True


SIX = {
    "grad": (lambda f: func.grad(f)(2.0), 12.0),
    "vmap(grad)": (lambda f: func.vmap(func.grad(f))(np.array([1.0, 2.0])), [3.0, 12.0]),
    "grad(vmap)": (
        lambda f: func.grad(lambda x: func.vmap(f)(x).sum())(np.array([1.0, 2.0])),
        [3.0, 12.0],
    ),
    "jvp": (lambda f: func.jvp(f, (np.float64(2.0),), (np.float64(10.0),))[1], 120.0),
    "hessian": (lambda f: func.hessian(f)(np.float64(2.0)), 12.0),
    "vmap(vmap(grad))": (
        lambda f: func.vmap(func.vmap(func.grad(f)))(np.array([[1.0, 2.0]])),
        [[3.0, 12.0]],
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", SIX)
def test_six_of_six(name: str) -> None:
    call, expected = SIX[name]
    assert_close(call(polynomial), np.asarray(expected), 1e-6)


def test_custom_vmap_of_pytrees() -> None:
    seen: list[Any] = []

    @ftrans.custom_vmap
    def f(pair, y):
        return {"sum": pair["a"] + y, "kept": y}

    @f.def_vmap
    def rule(axis_size, in_batched, pair, y):
        seen.append((axis_size, in_batched))
        out = {"sum": pair["a"] + y, "kept": y}
        return out, {"sum": True, "kept": in_batched[1]}

    xs = np.arange(3.0)
    got = func.vmap(f, (0, None))({"a": xs}, np.float64(5.0))
    assert seen == [(3, [{"a": True}, False])]
    assert_close(got["sum"], xs + 5)
    assert_close(got["kept"], [5.0, 5.0, 5.0])
    moved = func.vmap(lambda a: f({"a": a}, a)["sum"].sum(), 1)(np.arange(6.0).reshape(2, 3))
    assert_close(moved, 2 * np.arange(6.0).reshape(2, 3).sum(0))


def test_a_rule_of_custom_vmap_that_loops() -> None:
    """As JAX's `sequential_vmap` does, whose gradient JAX cannot take."""

    @ftrans.custom_vmap
    def f(x):
        return fnp.sin(x)

    @f.def_vmap
    def rule(axis_size, in_batched, x):
        return ftrans.scan(lambda c, a: (c, f(a)), 0.0, x)[1], True

    assert_close(func.vmap(f)(X), np.sin(X))
    assert_close(func.grad(lambda x: func.vmap(f)(x).sum())(X), np.cos(X))
    assert_close(func.vmap(func.vmap(f))(np.stack([X, Y])), np.sin(np.stack([X, Y])))


# --------------------------------------------------------------------------- what hurts with JAX


def sine() -> Any:
    @ftrans.custom_vjp
    def f(x):
        return fnp.sin(x)

    f.defvjp(lambda x: (fnp.sin(x), fnp.cos(x)), lambda c, ct: (c * ct,))
    return f


def test_forward_mode_of_a_function_with_a_vjp() -> None:
    """jax#3996: four of four, where JAX has one."""
    f = sine()
    assert_close(func.jvp(f, (X,), (Y,))[1], np.cos(X) * Y)
    assert_close(func.jacfwd(f)(X), np.diag(np.cos(X)))
    assert_close(func.linearize(f, X)[1](Y), np.cos(X) * Y)
    assert_close(func.hessian(lambda x: f(x).sum())(X), np.diag(-np.sin(X)))
    linear = func.linearize(f, X)[1]
    assert_close(func.linear_transpose(linear, X)(Y)[0], np.cos(X) * Y)


def made_by_vjp(w: Any) -> Any:
    @ftrans.custom_vjp
    def f(x):
        return w * x

    f.defvjp(lambda x: (w * x, None), lambda _, ct: (w * ct,))
    return f


def made_by_vjp_with_residual(w: Any) -> Any:
    @ftrans.custom_vjp
    def f(x):
        return w * x

    f.defvjp(lambda x: (w * x, w), lambda w, ct: (w * ct,))
    return f


def made_by_jvp(w: Any) -> Any:
    @ftrans.custom_jvp
    def f(x):
        return w * x

    f.defjvp(lambda primals, tangents: (w * primals[0], w * tangents[0]))
    return f


def made_by_vmap(w: Any) -> Any:
    @ftrans.custom_vmap
    def f(x):
        return w * x

    f.def_vmap(lambda axis_size, in_batched, x: (w * x, True))
    return f


@pytest.mark.parametrize(
    "make", [made_by_vjp, made_by_vjp_with_residual, made_by_jvp, made_by_vmap]
)
def test_rules_that_close_over_what_is_differentiated(make: Any) -> None:
    """jax#2520: an UnexpectedTracerError there."""
    three, two = np.float64(3.0), np.float64(2.0)
    assert_close(func.grad(lambda w: make(w)(two))(three), 2.0)
    assert_close(func.grad(lambda w: make(w)(w))(three), 6.0)
    assert_close(func.grad(lambda w: make(w)(2.0))(3.0), np.float32(2.0))
    assert_close(func.jvp(lambda w: make(w)(w), (three,), (two,))[1], 12.0)
    assert_close(func.grad(func.grad(lambda w: make(w)(make(w)(w))))(three), 18.0)
    assert_close(func.hessian(lambda w: make(w)(make(w)(w)))(three), 18.0)
    assert_close(ftrans.jit(func.grad(lambda w: make(w)(w)))(three), 6.0)
    assert_close(func.grad(lambda w: func.vmap(make(w))(X).sum())(three), X.sum())
    if make is not made_by_vmap:
        assert_close(func.vmap(func.grad(lambda w: make(w)(w)))(X), 2 * X)
    assert_nothing_open()


def test_arrays_among_nondiff_argnums() -> None:
    """jax#20889: an array that is not differentiated, inside a scan, under grad."""

    @functools.partial(ftrans.custom_jvp, nondiff_argnums=(1,))
    def f(x, y):
        return x * y

    @f.defjvp
    def rule(y, primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x, y), t * y

    def loss(x: Any) -> Any:
        return ftrans.scan(lambda c, y: (f(c, y), None), x, np.array([2.0, 3.0]))[0]

    assert_close(func.grad(loss)(np.float64(1.5)), 6.0)
    assert_close(ftrans.jit(func.grad(loss))(np.float64(1.5)), 6.0)

    @functools.partial(ftrans.custom_vjp, nondiff_argnums=(0,))
    def g(y, x):
        return x * y

    g.defvjp(lambda y, x: (x * y, None), lambda y, _, ct: (ct * y,))
    for wrap in (lambda f: f, ftrans.jit):
        assert_close(wrap(func.grad(lambda x, y: g(y, x)))(np.float64(2.0), np.float64(5.0)), 5.0)


@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit])
def test_arguments_without_derivatives_have_none(wrap: Callable[..., Any]) -> None:
    """Not by the code of the function either; the slopes are JAX's."""

    @functools.partial(ftrans.custom_jvp, nondiff_argnums=(0,))
    def f(a, x):
        return a * x

    f.defjvp(lambda a, primals, tangents: (f(a, primals[0]), 5 * tangents[0]))
    g = ftrans.custom_vjp(lambda a, x: a["of"] * x, nondiff_argnums=(0,))
    g.defvjp(lambda a, x: (g(a, x), None), lambda a, _, ct: (5 * ct,))
    two, three = np.float64(2.0), np.float64(3.0)
    assert_close(wrap(func.grad(f))(two, three), 0.0)
    assert_close(wrap(func.grad(lambda a: f(a, 3.0)))(two), 0.0)
    assert_close(wrap(func.grad(lambda a, x: a * f(a, x), (0, 1)))(two, three), (6.0, 10.0))
    assert_close(wrap(lambda a, x: func.jvp(f, (a, x), (a, x)))(two, three), (6.0, 15.0))
    assert_close(wrap(func.grad(lambda a, x: g({"of": a}, x), (0, 1)))(two, three), (0.0, 5.0))


def test_a_forward_rule_that_calls_a_function_with_a_vjp() -> None:
    """jax#19087: "Transpose rule for custom_vjp_call not implemented"."""

    @ftrans.custom_vjp
    def scaled(t):
        return t * 1.0

    scaled.defvjp(lambda t: (t * 1.0, None), lambda _, ct: (ct,))

    @ftrans.custom_jvp
    def f(x, y):
        return x + y

    @f.defjvp
    def rule(primals, tangents):
        return f(*primals), scaled(tangents[0]) + scaled(tangents[1])

    one = np.float64(1.0)
    assert_close(np.stack(func.grad(f, (0, 1))(one, one)), [1.0, 1.0])
    assert_close(np.stack(func.vjp(f, one, one)[1](one)), [1.0, 1.0])
    assert_close(func.jvp(f, (one, one), (one, one))[1], 2.0)


# --------------------------------------------------------------------------------- complex numbers


@pytest.mark.parametrize("z", [np.array([1 + 2j, -0.5 + 0.3j]), np.complex64(1 - 1j)])
def test_complex_gradients_are_conjugates(z: Any) -> None:
    """The plain function, differentiated by us, and by JAX with its other convention."""

    @ftrans.custom_vjp
    def square(z):
        return z * z

    square.defvjp(lambda z: (z * z, z), lambda z, ct: (2 * z.conj() * ct,))

    @ftrans.custom_jvp
    def cube(z):
        return z**3

    cube.defjvp(lambda primals, ts: (primals[0] ** 3, 3 * primals[0] ** 2 * ts[0]))
    for ours, theirs in ((square, lambda z: z * z), (cube, lambda z: z**3)):
        ct = (0.7 - 0.2j) * np.ones_like(z)
        with jax.enable_x64(True):
            expected = np.conj(jax.vjp(theirs, z)[1](np.conj(ct))[0])
            dot = jax.jvp(theirs, (z,), (ct,))[1]
        tolerance = 1e-12 if z.dtype == np.complex128 else 1e-5
        assert_close(func.vjp(ours, z)[1](ct)[0], expected, tolerance)
        assert_close(func.jvp(ours, (z,), (ct,))[1], dot, tolerance)
        assert_close(func.grad(lambda z: (abs(ours(z)) ** 2).sum())(z),  # noqa: B023
                     func.grad(lambda z: (abs(theirs(z)) ** 2).sum())(z), tolerance)  # noqa: B023  # fmt: skip


# ------------------------------------------------------------------- as JAX's own tests have it


def linear_rules(module: Any) -> tuple[Any, Any, Any]:
    """Returns functions whose rules apply them to tangents, as rules of linear functions do."""
    negative = module.custom_jvp(lambda x: -x)
    negative.defjvp(lambda p, t: (negative(*p), negative(*t)))
    product = module.custom_jvp(lambda a, x: a @ x)
    product.defjvp(lambda p, t: (product(*p), product(t[0], p[1]) + product(p[0], t[1])))
    quotient = module.custom_jvp(lambda x, y: x / y)
    quotient.defjvp(lambda p, t: (quotient(*p), quotient(t[0], p[1])))
    return negative, product, quotient


@pytest.mark.slow
def test_rules_that_apply_the_function_to_the_tangent() -> None:
    a, x = np.arange(6.0, dtype="f4").reshape(2, 3), np.arange(3.0, dtype="f4")
    found = []
    for module in (jax, ftrans):
        negative, product, quotient = linear_rules(module)
        found.append(
            [
                module.grad(negative)(3.0),
                module.grad(lambda x, f=product: (f(a, x) ** 2).sum())(x),
                module.hessian(lambda x, f=product: (f(a, x) ** 2).sum())(x),
                module.grad(lambda a, f=product: (f(a, x) ** 2).sum())(a),
                module.vjp(lambda x, f=quotient: f(x, 2.0), 1.0)[1](1.0)[0],
                module.linear_transpose(negative, 3.0)(1.0)[0],
                module.vmap(module.grad(lambda x, f=product: f(a, x).sum()))(np.stack([x, x])),
                module.jit(module.jacrev(lambda x, f=product: f(a, x)))(x),
            ]
        )
    for expected, own in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(own), np.asarray(expected), rtol=1e-6)


def test_neither_rule_nor_code_that_is_linear_cannot_be_transposed() -> None:
    squared = ftrans.custom_jvp(lambda x: x * x)
    squared.defjvp(lambda p, t: (squared(*p), squared(*t)))
    with pytest.raises(TransposeError, match=r"neither is its code linear:\n(.*\n)*.*two factors"):
        func.grad(squared)(3.0)


def test_one_rule_for_each_argument() -> None:
    times = ftrans.custom_jvp(lambda x, y: x * y)
    times.defjvps(lambda t, out, x, y: t * y)
    with pytest.raises(RuleError, match="arguments: 2, rules: 1"):
        func.grad(times, argnums=1)(2.0, 3.0)
    times.defjvps(lambda t, out, x, y: t * y, None)
    assert_close(func.grad(times, argnums=(0, 1))(2.0, 3.0), (3.0, 0.0))
    times.defjvps(None, None)
    assert_close(func.jvp(times, (2.0, 3.0), (1.0, 1.0)), (6.0, 0.0))


def test_a_rule_that_forgets_to_return_the_tangent() -> None:
    f = ftrans.custom_jvp(lambda x: x * x)
    f.defjvp(lambda p, t: (f(*p), None))
    with pytest.raises(RuleError, match="must return two things"):
        func.jvp(f, (3.0,), (1.0,))


def test_pairs_may_be_lists() -> None:
    f = ftrans.custom_jvp(lambda x: x * x)
    f.defjvp(lambda p, t: [f(*p), 2 * p[0] * t[0]])
    g = ftrans.custom_vjp(lambda x: x * x)
    g.defvjp(lambda x: [g(x), x], lambda x, ct: [2 * x * ct])
    assert_close((func.grad(f)(3.0), func.grad(g)(3.0)), (6.0, 6.0))


def test_a_decorator_above_another_one_hands_on_what_defines_its_rule() -> None:
    @ftrans.custom_vjp
    @ftrans.custom_vmap
    def f(x):
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
    f.def_vmap(lambda size, batched, x: (x * x * 100, batched[0]))
    x = np.array([1.0, 2.0])
    assert_close(func.vmap(f)(x), 100 * x * x)
    assert_close(func.grad(f)(3.0), 30.0)
    with pytest.raises(AttributeError, match="defjvps"):
        _ = f.defjvps

    inner = ftrans.custom_jvp(lambda x: x * x)
    inner.defjvp(lambda p, t: (inner(*p), 7 * t[0]))
    outer = ftrans.custom_jvp(inner)
    with pytest.raises(MissingRuleError, match="its rule is not defined"):
        outer(2.0)  # that of the inner one is not its own


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_python_numbers_leave_the_dtype_alone(dtype: str) -> None:
    x = np.arange(3).astype(fnp.dtype(dtype))
    by_vjp = ftrans.custom_vjp(lambda s, x: s * x)
    by_vjp.defvjp(lambda s, x: (by_vjp(s, x), (s, x)), lambda r, ct: ((ct * r[1]).sum(), r[0] * ct))
    by_jvp = ftrans.custom_jvp(lambda s, x: s * x)
    by_jvp.defjvp(lambda p, t: (by_jvp(*p), t[0] * p[1] + p[0] * t[1]))
    for f in (by_vjp, by_jvp):
        found = func.grad(lambda x, f=f: f(2.0, x).sum())(x)
        assert found.dtype == x.dtype
        assert_close(found.astype(float), [2.0, 2.0, 2.0])
        assert float(func.grad(lambda s, f=f: f(s, x).sum())(2.0)) == 3.0
        assert func.jvp(lambda s, f=f: f(s, x), (2.0,), (1.0,))[1].dtype == x.dtype


class NoGradient(ftrans.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, ct):
        raise NotImplementedError("has no gradient")


def unwritten() -> Any:
    f = ftrans.custom_jvp(lambda x: x * 1)

    @f.defjvp
    def rule(primals, tangents):
        raise NotImplementedError("has no gradient")

    return f


def without_fwd() -> Any:
    f = ftrans.custom_vjp(lambda x: x * 1)

    def fwd(x):
        raise NotImplementedError("has no gradient")

    f.defvjp(fwd, lambda residuals, ct: (ct,))
    return f


WITHOUT = {"Function": NoGradient.apply, "custom_jvp": unwritten(), "custom_vjp": without_fwd()}


@pytest.mark.parametrize("f", WITHOUT.values(), ids=WITHOUT)
def test_a_rule_that_raises_does_so_where_its_result_is_needed(f: Any) -> None:
    x = np.arange(1.0, 4)
    assert_close(func.grad(lambda x: (x * f(fnp.stop_gradient(x))).sum())(x), x)
    assert_close(func.grad(lambda x: (x * f(x).detach()).sum())(x), x)
    assert_close(func.grad(lambda x: (f(x), x.sum())[1])(x), np.ones(3))
    assert_close(func.grad(lambda x: (x.sum(), f(x)), has_aux=True)(x), (np.ones(3), x))
    for plain in (ftrans.jit, func.vmap, jax.jit, jax.vmap):
        with jax.enable_x64(True):
            assert_close(np.asarray(plain(f)(x)), x)
    out, pull = func.vjp(f, x)
    assert_close(out, x)
    for call in (
        lambda: pull(x),
        lambda: func.grad(lambda x: f(x).sum())(x),
        lambda: func.jvp(f, (x,), (x,)),
        lambda: func.vmap(func.grad(f))(x),
        lambda: ftrans.jit(func.grad(lambda x: f(x).sum()))(x),
        lambda: func.hessian(lambda x: f(x).sum())(x),
        # by way of what the rule closes over: nobody knows what that would be
        lambda: func.grad(lambda w: func.grad(lambda x: f(x * w).sum())(x).sum())(2.0),
    ):
        for _ in range(2):
            with pytest.raises(NotImplementedError, match="has no gradient"):
                call()


# -------------------------------------------------------------------------------- under jax.grad


def straight_through(module: Any, numpy: Any) -> Any:
    rounded = module.custom_vjp(lambda x: numpy.round(x))
    rounded.defvjp(lambda x: (numpy.round(x), None), lambda _, ct: (ct,))
    return lambda x: rounded(x) ** 3


def test_second_derivatives_under_jax_are_of_the_code_of_the_rule() -> None:
    theirs, ours = straight_through(jax, jnp), straight_through(ftrans, fnp)
    for outer in (jax.grad, ftrans.grad):
        for inner in (jax.grad, ftrans.grad):
            if (outer, inner) != (ftrans.grad, jax.grad):
                assert float(outer(inner(ours))(1.2)) == float(jax.grad(jax.grad(theirs))(1.2)) == 0


def closing_over(module: Any, weight: Any) -> Any:
    @module.custom_vjp
    def f(x):
        return (x * weight).sum()

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * 10,))
    return f


def test_what_a_rule_under_jax_closes_over_is_not_differentiated_unless_it_is_asked_for() -> None:
    weight = np.arange(3.0, dtype="f4")
    ours = closing_over(ftrans, weight)
    for wrap in (lambda f: f, jax.jit, jax.checkpoint):
        assert float(wrap(jax.grad(ours))(1.0)) == 10.0
        assert float(jax.grad(wrap(ours))(1.0)) == 10.0
    assert_close(np.asarray(jax.vmap(jax.grad(ours))(np.ones(2, "f4"))), [10.0, 10.0])
    # where it is, it is that of the function
    through = jax.grad(lambda w: closing_over(ftrans, w)(2.0) + w.sum())
    assert_close(np.asarray(through(jnp.asarray(weight))), [3.0, 3.0, 3.0])


@pytest.mark.parametrize("x", [1.0, np.float64(1.0), np.float32(1.0)])
def test_python_numbers_that_jax_traces(x: Any) -> None:
    # JAX gives them 32 bits, and keeps them as they are
    f = lambda x: fnp.sin(fnp.add(x, 2)) * 3  # noqa: E731
    expected = 3 * np.cos(np.float32(3.0))
    np.testing.assert_allclose(jax.jvp(f, (x,), (x,))[1], expected, rtol=1e-6)
    np.testing.assert_allclose(jax.linearize(f, x)[1](x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(f)(x), expected, rtol=1e-6)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jvp(f, (1.0,), (1.0,))[1], 3 * np.cos(3.0), rtol=1e-14)


def test_to_compare_fwd_with_the_function_leaves_nothing_in_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which is done at the first call, whose program is to be like the next ones."""
    recorded = []
    taken = recording._bound
    monkeypatch.setattr(
        recording, "_bound", lambda *args: recorded.append(args[1]["forward"]) or taken(*args)
    )

    def f(x):
        return fnp.sin(x)

    for _ in range(2):
        for function in (f, lambda x: fnp.sin(fnp.array(x.detach()) * 0 + x)):
            rule = ftrans.custom_vjp(function)
            rule.defvjp(lambda x: (fnp.sin(x), x), lambda x, ct: (ct * fnp.cos(x),))
            func.grad(lambda x, r=rule: r(x).sum())(np.ones(3))
    assert [len(program.equations) for program in recorded] == [1] * 4
