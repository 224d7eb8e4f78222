"""Functions of JAX as equations: values and derivatives against those that JAX itself gives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.custom.front import external, traceable
from ftrans.errors import MissingRuleError, RuleError, TransposeError
from tests.helpers import assert_close, sampled_rows
from tests.oracle import jaxpr

X = np.array([0.3, -1.0, 2.0])


def by_jax(function: Callable[..., Any], *args: Any) -> Any:
    return jaxpr.evaluate(function)(*args)


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


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize(
    ("order", "road"), sampled_rows(product(ORDERS, ["at once", "jit", "vmap"]), 2)
)
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


@pytest.mark.parametrize("road", ["at once", "jit", "vmap"])
def test_a_rule_for_reverse_mode_is_called_and_not_transposed(road: str) -> None:
    @jax.custom_vjp
    def total(x: Any) -> Any:
        return (x * x).sum()

    def bwd(x: Any, ct: Any) -> tuple[Any]:
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        how: Any = {"vmap_method": "broadcast_all"}
        return (jax.pure_callback(lambda x, ct: 2 * x * ct[..., None], spec, x, ct, **how),)

    total.defvjp(lambda x: (total(x), x), bwd)
    gradient = func.grad(traceable(total))
    if road == "vmap":
        rows = np.stack([X, 3 * X])
        assert_close(func.vmap(gradient)(rows), 2 * rows)
    else:
        assert_close((ftrans.jit(gradient) if road == "jit" else gradient)(X), 2 * X)


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


# ---------------------------------------------------------------- functions that are made anew


def compilations(call: Callable[[float], Any], times: int = 4) -> int:
    """Counts what is compiled by calls after the first one."""
    ftrans.cache_clear()
    call(1.0)
    before = ftrans.cache_info().compiled
    for _ in range(times):
        call(1.0)
    return ftrans.cache_info().compiled - before


TABLE = np.array([1.0, 2.0, 3.0])


SCALE = np.array(2.0)


class Scale:
    factor = 2.0


FACTOR = 2.0

INLINE: dict[str, Callable[[float], Any]] = {
    "constant": lambda k: traceable(lambda x: smooth(x) * 3),
    "closure": lambda k: traceable(lambda x: smooth(x) * k),
    "default": lambda k: traceable(lambda x, k=k: smooth(x) * k),
    "array": lambda k: traceable(lambda x: smooth(x * (TABLE * k))),
    "array of jax": lambda k: (lambda t: traceable(lambda x: smooth(x * t)))(
        jnp.full(3, k, "float32")
    ),
    "global": lambda k: traceable(lambda x: smooth(x) * FACTOR),
    "attribute": lambda k: traceable(lambda x: smooth(x) * Scale.factor),
    "jit inside": lambda k: traceable(lambda x: jax.jit(lambda y: smooth(y * TABLE * k))(x)),
    "array inside": lambda k: traceable(lambda x: jax.jit(lambda y: smooth(y * TABLE))(x)),
    "loop": lambda k: traceable(
        lambda x: jax.lax.scan(lambda c, t: (c * t + k, None), x, TABLE)[0].sum()
    ),
    "key": lambda k: traceable(lambda x: (x * jax.random.normal(jax.random.key(3), (3,))).sum()),
    "callback": lambda k: traceable(lambda x: smooth(jax.pure_callback(np.sort, x, x)) * k),
    "transpose": lambda k: traceable(lambda x: (x * TABLE * k).sum(), transpose=by_table),
}


def by_table(ct: Any) -> Any:
    return ct * TABLE


@pytest.mark.parametrize("kind", [k for k in INLINE if k != "array inside"])
def test_a_function_made_at_each_call_is_compiled_once(kind: str) -> None:
    make = INLINE[kind]
    assert compilations(lambda k: make(k)(X)) == 0


TAKEN: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: func.grad(f)(X),
    "jit": lambda f: ftrans.jit(f)(X),
    "jit vmap grad": lambda f: ftrans.jit(func.vmap(func.grad(f)))(np.stack([X, X])),
}


@pytest.mark.parametrize(
    ("kind", "transform"),
    sampled_rows(
        # vmap refuses a callback
        product([k for k in INLINE if k not in ("array inside", "callback")], TAKEN),
        2,
    ),
)
def test_its_transforms_are_compiled_once(kind: str, transform: str) -> None:
    make = INLINE[kind]
    assert compilations(lambda k: TAKEN[transform](lambda x: make(k)(x))) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in INLINE if k not in ("callback", "transpose")])
@pytest.mark.parametrize("transform", [lambda f: f, func.grad])
def test_a_function_made_at_each_call_reads_what_is_there(
    kind: str, transform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = by_jax if transform is not func.grad else lambda f, x: by_jax(jax.grad(f), x)
    for k in (1.0, 2.0, -0.5, 1.0):
        monkeypatch.setitem(globals(), "FACTOR", k)
        monkeypatch.setattr(Scale, "factor", k)
        TABLE[0] = k
        made = INLINE[kind](k)
        found = transform(lambda x, made=made: made(x))(X)
        assert_close(found, ours(lambda x, k=k: plain(kind, k)(x), X))
    TABLE[0] = 1.0


def plain(kind: str, k: float) -> Callable[..., Any]:
    """The same functions of JAX alone."""
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "traceable", lambda f: seen.append(f))
        INLINE[kind](k)
    return seen[0]


def test_a_function_made_once_keeps_what_it_was_first() -> None:
    table = np.array([1.0, 2.0, 3.0])
    f = traceable(lambda x: jnp.sin(x * table))
    first = f(X)
    table[0] = 7.0
    assert_close(f(X), first)
    assert_close(func.jvp(f, (X,), (np.ones(3),))[1], np.cos(X * [1, 2, 3]) * [1, 2, 3])
    assert_close(ftrans.jit(func.vmap(f))(X[None]), first[None])


@pytest.mark.parametrize(
    "function",
    [lambda x: x * SCALE, lambda x: jax.jit(lambda y: y * TABLE)(x)],
    ids=["a number", "jit inside"],
)
def test_arrays_that_are_part_of_what_is_compiled_must_stay_as_they_were(function: Any) -> None:
    f = traceable(function, name="scaled")
    first = f(X)
    try:
        SCALE[...] = TABLE[0] = 5.0
        assert_close(f(X), first)
        with pytest.raises(RuleError) as caught:
            func.jvp(f, (X,), (X,))
        assert str(caught.value) == (
            "scaled: an array that it closes over was written to after JAX has traced it.\n"
            "  Pass the array as an argument; or wrap the function where it is called, so that it\n"
            "  is traced anew: ftrans.external.jax(function)(...)."
        )
        assert_close(func.jvp(traceable(function), (X,), (X,))[1], by_jax(function, X))
    finally:
        SCALE[...], TABLE[0] = 2.0, 1.0
    assert_close(func.jvp(traceable(function), (X,), (X,))[1], first)


def test_literals_are_told_apart() -> None:
    for value in (0.0, -0.0, 1, 1.0, True, np.nan, np.inf):
        found = traceable(lambda x, v=value: jnp.copysign(v, x) + jnp.asarray(v).dtype.itemsize)
        expected = by_jax(lambda x, v=value: jnp.copysign(v, x) + jnp.asarray(v).dtype.itemsize, X)
        assert_close(found(X), expected)
        negative = traceable(lambda x, v=value: jnp.signbit(jnp.float32(v)) | (x > 9))
        assert np.array_equal(negative(X), np.signbit(np.float32(value)) | (X > 9))


def test_rules_of_jax_are_told_apart() -> None:
    def ruled(slope: float) -> Any:
        f = jax.custom_jvp(lambda x: x * 1.0)
        f.defjvp(lambda primals, tangents: (primals[0] * 1.0, slope * tangents[0]))
        return f

    for slope in (2.0, 3.0):
        g = ruled(slope)
        f = traceable(lambda x, g=g: g(x).sum())
        assert_close(f(X), X.sum())
        assert_close(func.grad(f)(X), np.full(3, slope))
    for slope in (2.0, 3.0):
        found = func.grad(traceable(lambda x, s=slope: jax.nn.relu(x * s).sum()))(X)
        assert_close(found, slope * (X > 0))


def test_it_may_close_over_what_jax_traces() -> None:
    f = traceable(jnp.sin)

    def loss(w: Any) -> Any:
        return traceable(lambda x: (x * w).sum())(f(X.astype(np.float32)))

    for _ in range(2):
        found = jax.grad(loss)(jnp.asarray(2.0))
        assert_close(found, np.sin(X.astype(np.float32)).sum())
    kept = traceable(lambda x: (x * box[0]).sum())
    box: list[Any] = []

    def through(w: Any) -> Any:
        box[:] = [w]
        return kept(X.astype(np.float32))

    for _ in range(2):
        assert_close(jax.grad(through)(jnp.asarray(2.0)), X.astype(np.float32).sum())


def test_results_follow_the_arguments_whatever_is_closed_over() -> None:
    table = jnp.ones(3)
    f = traceable(lambda x: x + table)
    assert type(f(X.astype(np.float32))) is np.ndarray
    assert isinstance(f(jnp.ones(3)), jax.Array)
    key = jax.random.key(1)
    drawn = traceable(lambda x: x + jax.random.normal(key, (3,)))
    expected = by_jax(lambda x: x + jax.random.normal(key, (3,)), X)
    for call in (drawn, ftrans.jit(drawn), lambda x: func.vmap(drawn)(x[None])[0]):
        assert_close(call(X), expected)


def test_a_loop_that_jax_cannot_go_back_through_says_what_to_do() -> None:
    def power(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]

    assert func.jvp(external.jax(power), (2.0,), (1.0,))[1] == 32.0
    with pytest.raises(MissingRuleError, match=r"power: JAX(.|\n)*func\.jvp"):
        func.grad(external.jax(power))(2.0)
