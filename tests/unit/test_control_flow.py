"""Staged control flow under every transform: `cond`, `switch`, `scan` and the loops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import TransposeError
from tests.helpers import assert_close, sampled_rows
from tests.oracle import jaxpr

F64 = np.float64


def oracle(
    transform: Callable[[Callable[..., Any]], Callable[..., Any]], f: Any, *args: Any
) -> Any:
    """Applies JAX's transform to `f`, a function over `jax.numpy` and `jax.lax`."""
    return jaxpr.evaluate(transform(f))(*args)


def assert_trees_close(got: Any, expected: Any, tolerance: float = 1e-11) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_close(ours, theirs, tolerance)


def differences(f: Callable[[Any], Any], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Returns the gradient of a scalar function of an array, by central differences."""
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = step
        out[i] = (f(x + e) - f(x - e)) / (2 * step)
    return out


@pytest.fixture(params=["interpret", "compile"])
def execution(request: pytest.FixtureRequest) -> Any:
    before = ftrans.config.execution
    ftrans.config.execution = request.param
    yield request.param
    ftrans.config.execution = before


# ------------------------------------------------------------------------------------------- cond


def forever(x: Any) -> Any:
    """Never returns where it runs."""
    return ftrans.while_loop(lambda s: s == s, lambda s: s, x)


@pytest.mark.smoke
def test_cond_runs_one_branch(execution: str) -> None:
    def f(x: Any) -> Any:
        return ftrans.cond(x > 0, lambda x: x * 2, forever, x)

    x = F64(3.0)
    assert_close(f(x), 6.0)
    assert_close(func.jvp(f, (x,), (F64(1.0),))[1], 2.0)
    assert_close(func.vmap(lambda x, y: x * f(y), (0, None))(np.ones(2), x), [6.0, 6.0])
    if execution == "compile":
        assert_close(ftrans.jit(f)(x), 6.0)


def test_cond_runs_one_branch_in_reverse_mode(execution: str) -> None:
    def f(x: Any) -> Any:
        return ftrans.cond(x > 0, lambda x: x**3, lambda x: fnp.stop_gradient(forever(x)), x)

    assert_close(func.grad(f)(F64(2.0)), 12.0)
    assert_close(func.grad(func.grad(f))(F64(2.0)), 12.0)


def test_cond_takes_pytrees_and_closes_over_traced_values() -> None:
    def f(w: Any, x: Any) -> Any:
        out = ftrans.cond(
            x.sum() > 0,
            lambda d: {"a": d["a"] * w, "b": (d["b"].sum(), w)},
            lambda d: {"a": d["b"], "b": (w * w, d["a"].sum())},
            {"a": x, "b": fnp.sin(x)},
        )
        return (out["a"] ** 2).sum() + out["b"][0] * out["b"][1]

    for sign in (1.0, -1.0):
        w, x = F64(0.7), sign * np.array([0.5, 1.5])
        gw, gx = func.grad(f, (0, 1))(w, x)
        assert_close(gw, differences(lambda w, x=x: f(F64(w), x), np.asarray(w)), 1e-7)
        assert_close(gx, differences(lambda x, w=w: f(w, x), x), 1e-7)


def test_cond_branches_that_ignore_their_operands() -> None:
    def f(x: Any) -> Any:
        return ftrans.cond(x > 0, lambda x: 1.0, lambda x: x * 3, x)

    assert_close([func.grad(f)(F64(2.0)), func.grad(f)(F64(-2.0))], [0.0, 3.0])
    assert_close(func.vmap(func.grad(f))(np.array([2.0, -2.0])), [0.0, 3.0])


# The branch not taken has no finite value, or no finite derivative, where it is not taken.
POISONED = {
    "log": (lambda np, x: np.log(x), lambda np, x: x * 0.5),
    "sqrt": (lambda np, x: np.sqrt(x), lambda np, x: x * x),
    "reciprocal": (lambda np, x: 1.0 / np.where(x > 0, x, 0.0), lambda np, x: -x),
    "power": (lambda np, x: x**1.5, lambda np, x: np.exp(x)),
    "norm": (lambda np, x: np.sqrt(np.maximum(x, 0.0)) * x, lambda np, x: np.sin(x)),
}


@pytest.mark.parametrize(
    ("name", "execution"),
    [*product(POISONED, ["interpret"]), *sampled_rows(product(POISONED, ["compile"]), 3)],
    indirect=["execution"],
)
def test_no_nan_from_the_branch_not_taken(name: str, execution: str) -> None:
    yes, no = POISONED[name]
    xs = np.array([2.0, -1.0, 0.0, 0.5])

    def f(x: Any) -> Any:
        return ftrans.cond(x > 0, lambda x: yes(fnp, x), lambda x: no(fnp, x), x)

    one_by_one = [f(x) for x in xs]
    slopes = [func.grad(f)(x) for x in xs]
    curvatures = [func.grad(func.grad(f))(x) for x in xs]
    assert np.isfinite([one_by_one, slopes, curvatures]).all()
    total = lambda xs: func.vmap(f)(xs).sum()  # noqa: E731
    assert_close(func.vmap(f)(xs), one_by_one)
    assert_close(func.vmap(func.grad(f))(xs), slopes)
    assert_close(func.grad(total)(xs), slopes)
    assert_close(func.jvp(func.vmap(f), (xs,), (np.ones(4),))[1], slopes)
    assert_close(func.vmap(lambda x: func.jvp(f, (x,), (F64(1.0),))[1])(xs), slopes)
    assert_close(func.vmap(func.grad(func.grad(f)))(xs), curvatures)
    assert_close(func.grad(lambda xs: func.grad(total)(xs).sum())(xs), curvatures)
    assert_close(func.grad(lambda xs: func.vmap(func.grad(f))(xs).sum())(xs), curvatures)
    assert_close(func.hessian(total)(xs), np.diag(curvatures))
    assert_close(func.vmap(func.hessian(f))(xs), curvatures)


def test_no_nan_through_captured_values_and_nested_cond() -> None:
    xs = np.array([2.0, -1.0, 0.0, 0.5])

    def f(x: Any, w: Any) -> Any:
        def deep(y: Any) -> Any:
            # x and w are captured; both branches of the inner cond would poison the other
            return ftrans.cond(y > 1, lambda y: fnp.log(y) * w, lambda y: fnp.sqrt(x) * w, y)

        return ftrans.cond(x > 0, deep, lambda y: y * w, x)

    w = F64(1.3)
    expected = [func.grad(f, (0, 1))(x, w) for x in xs]
    assert np.isfinite(expected).all()
    got = func.vmap(func.grad(f, (0, 1)), (0, None))(xs, w)
    assert_close(np.stack(got, -1), expected)
    total = lambda xs, w: func.vmap(f, (0, None))(xs, w).sum()  # noqa: E731
    gx, gw = func.grad(total, (0, 1))(xs, w)
    assert_close(gx, [e[0] for e in expected])
    assert_close(gw, sum(e[1] for e in expected))


def test_switch_clamps_its_index_as_jax_does() -> None:
    branches = [lambda np, x: np.sin(x), lambda np, x: x * x, lambda np, x: -x]
    x = F64(0.7)
    for index in (-7, -1, 0, 1, 2, 3, 2**40):
        for transform in (lambda f: f, jax.grad):
            ours = func.grad if transform is jax.grad else transform
            got = ours(
                lambda x, i=index: ftrans.switch(i, [lambda x, b=b: b(fnp, x) for b in branches], x)
            )(x)
            clamped = min(max(index, 0), 2)
            expected = oracle(transform, lambda x, i=clamped: branches[i](jnp, x), x)
            assert_close(got, expected)


def test_switch_with_a_batched_index() -> None:
    branches = [lambda x, w: fnp.sin(x) * w, lambda x, w: x * x, lambda x, w: w / x]
    indices, xs, w = np.array([2, 0, 5, 1, -3]), np.linspace(0.5, 2.5, 5), F64(1.5)

    def f(i: Any, x: Any, w: Any) -> Any:
        return ftrans.switch(i, branches, x, w)

    expected = [
        func.grad(lambda x, w, i=i: f(i, x, w), (0, 1))(x, w)
        for i, x in zip(indices, xs, strict=True)
    ]
    got = func.vmap(func.grad(f, (1, 2)), (0, 0, None))(indices, xs, w)
    assert_close(np.stack(got, -1), expected)


def test_a_cond_whose_condition_is_not_batched_stays_one_under_vmap() -> None:
    def f(p: Any, x: Any) -> Any:
        return ftrans.cond(p, lambda x: fnp.sin(x), lambda x: fnp.cos(x), x)

    program = ftrans.trace(func.vmap(f, (None, 0)))(np.bool_(True), np.ones(3))
    assert "switch" in str(program)
    assert "select" not in str(program)
    assert "select" in str(ftrans.trace(func.vmap(f))(np.ones(3, bool), np.ones(3)))


# ------------------------------------------------------------------------------------------- scan


def recurrence(np: Any, lax: Any, reverse: bool = False, unroll: int = 1, rule: Any = None) -> Any:
    """Returns a scan over pytrees that uses a constant, all of the carry and of the elements."""

    def f(w: Any, init: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            a, b = carry["a"], carry["b"]
            new = {"a": np.tanh(w * a + x["u"]) + 0.1 * b.sum(), "b": b * np.cos(a) + x["v"]}
            return new, (new["a"] * b, {"left": x["u"] * a})

        last, ys = lax.scan(step, init, xs, reverse=reverse, unroll=unroll)
        return last, ys

    return f


def operands() -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    draw = lambda *shape: random.normal(size=shape)  # noqa: E731
    return draw(), {"a": draw(), "b": draw(2)}, {"u": draw(4), "v": draw(4, 2)}


def scalar_of(np: Any, lax: Any, **options: Any) -> Any:
    f = recurrence(np, lax, **options)

    def scalar(w: Any, init: Any, xs: Any) -> Any:
        leaves = jax.tree.leaves(f(w, init, xs))
        return sum((np.sin(leaf) * (i + 1.0)).sum() for i, leaf in enumerate(leaves))

    return scalar


@pytest.mark.parametrize("unroll", [1, 3, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_agrees_with_jax(reverse: bool, unroll: int, execution: str) -> None:
    options: dict[str, Any] = {"reverse": reverse, "unroll": unroll}
    args = operands()
    assert_trees_close(
        recurrence(fnp, ftrans, **options)(*args),
        oracle(lambda f: f, recurrence(jnp, jax.lax, **options), *args),
    )
    ours, theirs = scalar_of(fnp, ftrans, **options), scalar_of(jnp, jax.lax, **options)
    everything = (0, 1, 2)
    assert_trees_close(
        func.grad(ours, everything)(*args),
        oracle(lambda f: jax.grad(f, everything), theirs, *args),
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_composes_with_every_transform(reverse: bool) -> None:
    w, init, xs = operands()
    ours = scalar_of(fnp, ftrans, reverse=reverse)
    theirs = scalar_of(jnp, jax.lax, reverse=reverse)

    def both(make: Callable[[Any, Any], Any], *args: Any) -> None:
        expected = oracle(lambda f: make(jax, f), theirs, *args)
        assert_trees_close(make(func, ours), expected) if not args else assert_trees_close(
            make(func, ours)(*args), expected
        )

    both(lambda space, f: space.hessian(f), w, init, xs)
    both(lambda space, f: space.hessian(f, argnums=(0, 1)), w, init, xs)
    both(lambda space, f: space.grad(lambda *a: space.grad(f)(*a) ** 2), w, init, xs)
    both(lambda space, f: lambda *a: space.jvp(space.grad(f), a, a), w, init, xs)
    both(lambda space, f: space.jacrev(space.jacfwd(f)), w, init, xs)
    many = jax.tree.map(lambda x: np.stack([x, 0.5 * x, -x]), xs)
    both(lambda space, f: space.vmap(space.grad(f), (None, None, 0)), w, init, many)
    both(
        lambda space, f: space.vmap(space.grad(f, (0, 1, 2)), (0, None, 0)), np.ones(3), init, many
    )
    both(
        lambda space, f: space.grad(lambda *a: space.vmap(f, (0, None, 0))(*a).sum(), (0, 1, 2)),
        np.ones(3),
        init,
        many,
    )
    both(
        lambda space, f: space.vmap(space.vmap(f, (0, None, None)), (None, None, 0)),
        np.ones(2),
        init,
        many,
    )


def test_scan_maps_over_inner_axes() -> None:
    w, init, xs = operands()
    many = {"u": np.stack([xs["u"], -xs["u"]], 1), "v": np.stack([xs["v"], 2 * xs["v"]], 2)}
    axes = (None, None, {"u": 1, "v": 2})
    got = func.vmap(recurrence(fnp, ftrans), axes)(w, init, many)
    expected = oracle(lambda f: jax.vmap(f, axes), recurrence(jnp, jax.lax), w, init, many)
    assert_trees_close(got, expected)


def test_loop_invariant_residuals_are_not_stacked() -> None:
    n = 50

    def f(w: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return c * fnp.exp(fnp.sin(w)), None  # exp(sin(w)) is the same at each step

        return ftrans.scan(step, x, None, length=n)[0]

    _, pullback = func.vjp(f, np.ones(3) * 1e-3, np.ones(3))
    shapes = [np.shape(r) for r in pullback.residuals]
    assert sum(np.prod(s) for s in shapes) <= 3 * n + 12, shapes
    program = func.vjp(lambda x: f(np.full(3, 1e-3), x), np.ones(3))[1]
    assert sum(np.prod(np.shape(r)) for r in program.residuals) <= 12


def test_scan_of_length_zero_and_one() -> None:
    step = lambda c, x: (c * x, c + x)  # noqa: E731
    for n in (0, 1):
        xs = np.arange(1.0, 1.0 + n)
        last, ys = ftrans.scan(step, F64(2.0), xs)
        assert_close(last, 2.0)
        assert ys.shape == (n,)
        gradient = func.grad(lambda c, xs: ftrans.scan(step, c, xs)[0], (0, 1))(F64(2.0), xs)
        assert_close(gradient[0], 1.0)
        assert_close(gradient[1], np.full(n, 2.0))


def test_integers_are_carried_through_a_differentiated_scan() -> None:
    table = np.array([0.5, -1.0, 2.0, 0.25])

    def f(np: Any, lax: Any) -> Any:
        def scalar(x: Any, start: Any) -> Any:
            def step(carry: Any, _: Any) -> Any:
                i, v, flag = carry
                v = np.where(flag, v * np.asarray(table)[i], np.sin(v) + v)
                return ((i + 1) % 4, v, ~flag), (i, v)

            (i, v, _), (seen, vs) = lax.scan(step, (start, x, np.asarray(True)), None, length=6)
            return v * (i + 1) + (vs * seen).sum()

        return scalar

    x, start = F64(0.8), np.int32(1)
    expected = oracle(jax.grad, f(jnp, jax.lax), x, start)
    assert_close(func.grad(f(fnp, ftrans))(x, start), expected)
    xs, starts = np.array([0.8, -0.3, 1.2]), np.array([1, 0, 3], np.int32)
    expected = oracle(lambda f: jax.vmap(jax.grad(f)), f(jnp, jax.lax), xs, starts)
    assert_close(func.vmap(func.grad(f(fnp, ftrans)))(xs, starts), expected)
    expected = oracle(
        lambda f: jax.grad(lambda x, s: jax.vmap(f)(x, s).sum()), f(jnp, jax.lax), xs, starts
    )
    ours = func.grad(lambda x, s: func.vmap(f(fnp, ftrans))(x, s).sum())(xs, starts)
    assert_close(ours, expected)


def test_scan_in_scan_in_cond() -> None:
    def f(np: Any, lax: Any) -> Any:
        def scalar(w: Any, xs: Any) -> Any:
            def inner(c: Any, y: Any) -> Any:
                return lax.cond(c > y, lambda c: c * w, lambda c: c + y * np.cos(w), c), c * y

            def outer(c: Any, row: Any) -> Any:
                last, ys = lax.scan(inner, c * w, row, reverse=True)
                return np.sin(last), (ys * w).sum()

            last, ys = lax.cond(
                w > 0, lambda c: lax.scan(outer, c, xs), lambda c: (c, np.zeros_like(xs[:, 0])), w
            )
            return last + (ys**2).sum()

        return scalar

    w, xs = F64(0.6), np.random.default_rng(1).normal(size=(3, 2))
    for transform in ("grad", "hessian"):
        for argnums in (0, 1):
            expected = oracle(
                lambda f, t=transform, a=argnums: getattr(jax, t)(f, argnums=a),
                f(jnp, jax.lax),
                w,
                xs,
            )
            got = getattr(func, transform)(f(fnp, ftrans), argnums=argnums)(w, xs)
            assert_close(got, expected, 1e-10)
    ws = np.array([0.6, -0.3, 1.1])
    expected = oracle(lambda f: jax.vmap(jax.grad(f), (0, None)), f(jnp, jax.lax), ws, xs)
    assert_close(func.vmap(func.grad(f(fnp, ftrans)), (0, None))(ws, xs), expected, 1e-10)


# ------------------------------------------------------------------------------------------ while


def grow(np: Any, while_loop: Any, **options: Any) -> Any:
    """Returns f(x, w): x is scaled by 1 + w^2 until it exceeds 10; the steps depend on both."""

    def f(x: Any, w: Any) -> Any:
        return while_loop(
            lambda s: s[0] < 10.0,
            lambda s: (s[0] * (1.0 + w * w) + 0.3, np.sin(s[1]) + s[0]),
            (x, w),
            **options,
        )

    return f


def unrolled(x: Any, w: Any) -> Any:
    """Is the same in Python, which ftrans differentiates as it runs."""
    y = w
    while x < 10.0:
        x, y = x * (1.0 + w * w) + 0.3, fnp.sin(y) + x
    return x, y


STARTS = [(0.5, 1.2), (2.0, -0.7), (11.0, 0.4), (9.9, 3.0)]


@pytest.mark.parametrize("start", STARTS)
def test_while_with_a_bound_has_the_reverse_mode_of_the_unrolled_loop(
    start: Any, execution: str
) -> None:
    x, w = map(F64, start)
    bounded = grow(fnp, ftrans.while_loop, max_steps=40)
    weight = lambda f: lambda x, w: f(x, w)[0] * 2 + fnp.sin(f(x, w)[1])  # noqa: E731
    assert_trees_close(bounded(x, w), unrolled(x, w))
    ours, theirs = weight(bounded), weight(unrolled)
    assert_trees_close(func.grad(ours, (0, 1))(x, w), func.grad(theirs, (0, 1))(x, w))
    if execution == "interpret":
        assert_trees_close(
            func.hessian(ours, (0, 1))(x, w), func.hessian(theirs, (0, 1))(x, w), 1e-10
        )


def test_forward_mode_of_while_with_and_without_a_bound() -> None:
    for start in STARTS:
        x, w = map(F64, start)
        expected = func.jvp(unrolled, (x, w), (F64(1.0), F64(0.5)))
        for options in ({}, {"max_steps": 40}):
            f = grow(fnp, ftrans.while_loop, **options)
            assert_trees_close(func.jvp(f, (x, w), (F64(1.0), F64(0.5))), expected)
            _, push = func.linearize(f, x, w)
            assert_trees_close(push(F64(1.0), F64(0.5)), expected[1])
            second = func.jacfwd(func.jacfwd(lambda x, f=f, w=w: f(x, w)[1]))(x)
            assert_close(second, func.jacfwd(func.jacfwd(lambda x, w=w: unrolled(x, w)[1]))(x))


def test_while_without_a_bound_has_no_reverse_mode_and_says_so() -> None:
    f = grow(fnp, ftrans.while_loop)
    with pytest.raises(TransposeError, match=r"max_steps=n") as caught:
        func.grad(lambda x: f(x, x)[0])(F64(0.5))
    assert "reverse mode needs to know how many steps" in str(caught.value)
    assert "func.jvp" in str(caught.value)
    # where the loop carries no tangent there is nothing to transpose
    steps = lambda x: ftrans.while_loop(lambda i: i < 3, lambda i: i + 1, 0) * x  # noqa: E731
    assert_close(func.grad(steps)(F64(2.0)), 3.0)
    stopped = lambda x: fnp.stop_gradient(f(x, x)[0]) * x  # noqa: E731
    assert_close(func.grad(stopped)(F64(0.5)), f(F64(0.5), F64(0.5))[0])


def test_what_is_linear_in_a_loop_or_branch_is_transposed_beside_what_is_not() -> None:
    """Counters and conditions are computed as they are; in closed form, `f(x) = c * A @ x`."""
    a = np.array([[2.0, 1.0], [0.0, 3.0]])

    def bounded(x: Any, steps: int = 5) -> Any:
        step = lambda s: (s[0] + 1, a @ s[1])  # noqa: E731
        count, x = ftrans.while_loop(lambda s: s[0] < 3, step, (0, x), max_steps=steps)
        return count * x

    def branching(x: Any) -> Any:
        def body(state: Any, _: Any) -> Any:
            grow = lambda i, x: (i + 1, a @ x)  # noqa: E731
            i, x = ftrans.cond(state[0] < 2, grow, lambda i, x: (i, x), *state)
            return (i, i * x), x

        (_, last), every = ftrans.scan(body, (0, x), None, length=4)
        return last + every[1]

    square = np.linalg.matrix_power(a, 2)
    cases = [
        (bounded, 3 * np.linalg.matrix_power(a, 3)),
        (lambda x: bounded(x, steps=2), 2 * square),
        (branching, 9 * square),
    ]
    for f, matrix in cases:
        x = np.array([1.0, -2.0])
        assert_close(f(x), matrix @ x)
        assert_close(func.linear_transpose(f, x)(x)[0], matrix.T @ x)
        assert_close(ftrans.jit(lambda x, f=f: func.linear_transpose(f, x)(x)[0])(x), matrix.T @ x)
    stop = lambda x: ftrans.while_loop(lambda x: x < 3, lambda x: 2 * x, x, max_steps=9)  # noqa: E731
    with pytest.raises(TransposeError, match=r"switch at .*: it depends on their values"):
        func.linear_transpose(stop, 1.0)(1.0)


@pytest.mark.parametrize("kind", ["scan", "while"])
def test_what_varies_in_loops_of_loops_of_loops(kind: str) -> None:
    """What two loops in a loop compute of its constants alone is computed before it."""

    def loop(step: Callable[[Any], Any], state: Any) -> Any:
        if kind == "scan":
            return ftrans.scan(lambda s, _: (step(s), None), state, None, length=2)[0]
        count = lambda s: (s[0] + 1, *step(s[1:]))  # noqa: E731
        return ftrans.while_loop(lambda s: s[0] < 2, count, (0, *state), max_steps=3)[1:]

    def f(x: Any, w: Any) -> Any:
        inner = lambda s: loop(lambda s: (fnp.sin(s[0]), 1.1 * s[1]), s)  # noqa: E731

        def outer(x: Any, _: Any) -> Any:
            a, y = loop(inner, (w, x))
            return x * fnp.sin(a) + fnp.cos(y), a * x

        x, ys = ftrans.scan(outer, x, None, length=3)
        return x.sum() + ys.sum()

    x, w = np.array([0.3, 0.7]), np.array([0.5, 0.2])
    by_x, by_w = func.grad(f, argnums=(0, 1))(x, w)
    assert_close(by_x, differences(lambda x: f(x, w), x), 1e-7)
    assert_close(by_w, differences(lambda w: f(x, w), w), 1e-7)


def test_the_bound_stops_the_loop() -> None:
    f = lambda x: ftrans.while_loop(lambda s: s > 0, lambda s: s * 2, x, max_steps=3)  # noqa: E731
    assert_close(f(F64(1.5)), 12.0)
    assert_close(func.grad(f)(F64(1.5)), 8.0)
    assert_close(ftrans.jit(f)(F64(1.5)), 12.0)
    assert_close(func.vmap(f)(np.array([1.5, -1.0, 0.25])), [12.0, -1.0, 2.0])


@pytest.mark.parametrize("options", [{}, {"max_steps": 40}], ids=["unbounded", "bounded"])
def test_while_under_vmap_masks_finished_lanes(options: dict[str, int], execution: str) -> None:
    xs, ws = (np.array(column) for column in zip(*STARTS, strict=True))
    f = grow(fnp, ftrans.while_loop, **options)
    expected = [f(F64(x), F64(w)) for x, w in STARTS]
    got = func.vmap(f)(xs, ws)
    for i in (0, 1):
        assert_close(got[i], [e[i] for e in expected])
    dots = func.jvp(func.vmap(f), (xs, ws), (np.ones(4), ws))[1]
    slopes = [func.jvp(unrolled, (F64(x), F64(w)), (F64(1.0), F64(w)))[1] for x, w in STARTS]
    for i in (0, 1):
        assert_close(dots[i], [s[i] for s in slopes])
    if options:
        pick = lambda f: lambda x, w: f(x, w)[1]  # noqa: E731
        expected = [func.grad(pick(unrolled), (0, 1))(F64(x), F64(w)) for x, w in STARTS]
        got = func.vmap(func.grad(pick(f), (0, 1)))(xs, ws)
        assert_close(np.stack(got, -1), expected)
        total = func.grad(lambda x, w: func.vmap(f)(x, w)[1].sum(), (0, 1))(xs, ws)
        assert_close(np.stack(total, -1), expected)


@pytest.mark.parametrize("options", [{}, {"max_steps": 10}], ids=["unbounded", "bounded"])
def test_no_nan_from_finished_lanes(options: dict[str, int]) -> None:
    """Each lane takes square roots down to 0, where the next step would be log(0) = -inf."""

    def f(x: Any) -> Any:
        return ftrans.while_loop(
            lambda s: s[0] > 0.5,
            lambda s: (s[0] - 1.0, s[1] + fnp.sqrt(s[0]) * fnp.log(s[0])),
            (x, x),
            **options,
        )[1]

    xs = np.array([3.0, 1.0, 0.0, 2.0])
    one = F64(1.0)
    expected = [func.jvp(f, (x,), (one,)) for x in xs]
    assert np.isfinite(expected).all()
    assert_close(func.vmap(f)(xs), [e[0] for e in expected])
    assert_close(func.vmap(lambda x: func.jvp(f, (x,), (one,))[1])(xs), [e[1] for e in expected])
    assert_close(func.jvp(func.vmap(f), (xs,), (np.ones(4),))[1], [e[1] for e in expected])
    if options:
        assert_close([func.grad(f)(x) for x in xs], [e[1] for e in expected])
        assert_close(func.vmap(func.grad(f))(xs), [e[1] for e in expected])
        assert_close(func.grad(lambda xs: func.vmap(f)(xs).sum())(xs), [e[1] for e in expected])


def test_no_nan_from_finished_lanes_to_what_the_body_captures() -> None:
    """The step that a finished lane does not take would send 0 * log(0) to the weight."""

    def f(x: Any, w: Any) -> Any:
        return ftrans.while_loop(
            lambda s: s[0] > 0.5,
            lambda s: (s[0] - 1.0, s[1] + w * fnp.log(s[0])),
            (x, w),
            max_steps=5,
        )[1]

    xs, w = np.array([3.0, 1.0, 0.0, 2.0]), F64(0.7)
    expected = [func.grad(f, (0, 1))(x, w) for x in xs]
    assert np.isfinite(expected).all()
    total = func.grad(lambda xs, w: func.vmap(f, (0, None))(xs, w).sum(), (0, 1))
    gx, gw = total(xs, w)
    assert_close(gx, [e[0] for e in expected])
    assert_close(gw, sum(e[1] for e in expected))
    assert_close(np.stack(func.vmap(func.grad(f, (0, 1)), (0, None))(xs, w), -1), expected)


def test_only_the_condition_is_batched() -> None:
    def f(n: Any, x: Any) -> Any:
        return ftrans.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x), (0, x), max_steps=5
        )[1]

    ns, x = np.array([0, 3, 1, 9], np.int32), F64(1.5)
    powers = np.array([1, 4, 2, 6])
    assert_close(func.vmap(f, (0, None))(ns, x), 1.5**powers)
    assert_close(func.vmap(func.grad(f, 1), (0, None))(ns, x), powers * 1.5 ** (powers - 1))
    total = func.grad(lambda x: func.vmap(f, (0, None))(ns, x).sum())(x)
    assert_close(total, (powers * 1.5 ** (powers - 1)).sum())


def test_fori_loop_with_static_and_with_traced_bounds() -> None:
    body = lambda i, c: fnp.sin(c) + i * c  # noqa: E731

    def python(low: int, high: int, x: Any) -> Any:
        for i in range(low, high):
            x = body(i, x)
        return x

    x = F64(0.3)
    for low, high in ((0, 4), (2, 5), (3, 3), (4, 1)):
        expected = python(low, high, x)
        assert_close(ftrans.fori_loop(low, high, body, x), expected)
        assert_close(ftrans.fori_loop(np.int32(low), np.asarray(high), body, x), expected)
        traced = lambda x, n, low=low: ftrans.fori_loop(low, n, body, x)  # noqa: E731
        assert_close(ftrans.jit(traced)(x, np.int32(high)), expected)
        slope = func.grad(lambda x, a=low, b=high: python(a, b, x))(x)
        assert_close(func.grad(lambda x, a=low, b=high: ftrans.fori_loop(a, b, body, x))(x), slope)
        forward = lambda x, f=traced, n=high: f(x, np.asarray(n))  # noqa: E731
        got = func.jvp(forward, (x,), (F64(1.0),))[1]
        assert_close(got, slope)
    ns = np.array([0, 4, 2])
    got = func.vmap(lambda n, x: ftrans.fori_loop(0, n, body, x), (0, None))(ns, x)
    assert_close(got, [python(0, n, x) for n in ns])


# ----------------------------------------------------------------------------- transforms in bodies


@pytest.mark.parametrize("kind", ["scan", "cond", "while", "fori", "switch"])
def test_a_transform_inside_a_body_closes_over_outer_values(kind: str) -> None:
    """In the body, the inner function closes over the body's values and over outer ones."""

    def f(np: Any, lax: Any, grad: Any) -> Any:
        def scalar(w: Any, xs: Any) -> Any:
            scale, xs = np.cos(w), np.asarray(xs)

            def inner(c: Any, x: Any) -> Any:
                return grad(lambda u: np.sin(u * w * x) * scale * c * u)(c * w) + w

            if kind == "scan":
                last, ys = lax.scan(lambda c, x: (inner(c, x), c * scale), w, xs)
                return last + (ys * xs).sum()
            if kind == "cond":
                return lax.cond(w > 0, lambda c: inner(c, xs[0]), lambda c: c, w) + scale
            if kind == "while":
                extra = {"max_steps": 4} if lax is ftrans else {}
                if lax is not ftrans:
                    return lax.fori_loop(0, 3, lambda i, c: inner(c, xs[i]), w)
                state = (0, w)
                return lax.while_loop(
                    lambda s: s[0] < 3, lambda s: (s[0] + 1, inner(s[1], xs[s[0]])), state, **extra
                )[1]
            if kind == "fori":
                return lax.fori_loop(0, 3, lambda i, c: inner(c, xs[i]), w)
            return lax.switch(1, [lambda c: c, lambda c: inner(c, xs[1])], w)

        return scalar

    w, xs = F64(0.8), np.array([0.5, -1.2, 0.9])
    ours, theirs = f(fnp, ftrans, func.grad), f(jnp, jax.lax, jax.grad)
    for argnums in (0, 1):
        expected = oracle(lambda f, a=argnums: jax.grad(f, a), theirs, w, xs)
        assert_close(func.grad(ours, argnums)(w, xs), expected, 1e-10)
        expected = oracle(lambda f, a=argnums: jax.hessian(f, a), theirs, w, xs)
        assert_close(func.hessian(ours, argnums)(w, xs), expected, 1e-9)
    ws = np.array([0.8, -0.4])
    expected = oracle(lambda f: jax.vmap(jax.grad(f), (0, None)), theirs, ws, xs)
    assert_close(func.vmap(func.grad(ours), (0, None))(ws, xs), expected, 1e-10)


@pytest.mark.parametrize("order", list(permutations(["grad", "vmap", "jit"])))
def test_jit_around_and_inside_control_flow(order: Any) -> None:
    def f(x: Any) -> Any:
        last, _ = ftrans.scan(
            lambda c, _: (ftrans.jit(lambda c: fnp.sin(c) * x)(c), None), x, None, length=3
        )
        return last

    x = F64(0.7)
    expected = func.grad(f)(x)
    g: Any = f
    for name in order:
        if name == "grad":
            inner = g
            g = func.grad(lambda x, inner=inner: fnp.sum(inner(x)))
        else:
            g = {"vmap": func.vmap, "jit": ftrans.jit}[name](g)
    assert_close(g(np.full(2, 0.7)), np.full(2, expected))
