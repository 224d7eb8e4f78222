"""What `from_jax` makes of a function of JAX's, besides its numbers: `tests/oracle` has these."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.nn
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ftrans
import ftrans.numpy as fnp
from ftrans import from_jax, func, tensor
from ftrans.errors import (
    ArgumentError,
    ConcretizationError,
    StaticArgumentError,
    UnsupportedError,
)
from ftrans.interpreters import inline, simplify
from tests.helpers import assert_close

pytestmark = pytest.mark.smoke  # JAX's jaxprs change from one release to another

J = from_jax(jnp)
X = np.linspace(0.2, 1.4, 6).reshape(2, 3)


def externals(program: Any) -> list[str]:
    """Returns what a program calls that is none of ours, in sub-programs too."""
    found = []
    for equation in program.equations:
        if equation.primitive.name == "external":
            found.append(equation.params["callee"].name)
        for inner in equation.params.programs():
            found += externals(inner)
    return found


# ------------------------------------------------------------------------------- what is traced


def test_a_function_is_traced_once_for_each_signature() -> None:
    traced = []

    def f(x: Any, scale: Any, power: int = 2) -> Any:
        traced.append(power)
        return jnp.sum(scale * x**power)

    g = from_jax(f)
    for scale in (0.5, 1.5, 2.5):  # a number of floating point is no part of the signature
        assert_close(g(X, scale), scale * (X**2).sum())
        assert_close(func.grad(lambda x, s=scale: g(x, s))(X), 2 * scale * X)
    assert traced == [2]
    assert_close(g(X, 1.0, power=3), (X**3).sum())
    g(X.astype("float32"), 1.0)
    g(X[:1], 1.0)
    assert traced == [2, 3, 2, 2]


def test_structures_and_what_is_no_array() -> None:
    def f(tree: Any, flag: bool, nothing: None) -> Any:
        assert nothing is None
        a, b = tree["a"], tree["b"][0]
        return {"sum": a + b if flag else a - b, "name": "f", "more": (None, 3, a.shape)}

    g = from_jax(f)
    out = g({"a": X, "b": [X]}, True, None)
    assert out["name"] == "f"
    assert out["more"] == (None, 3, (2, 3))
    assert_close(out["sum"], 2 * X)
    assert_close(g({"a": X, "b": [X]}, False, None)["sum"], 0 * X)
    slope = func.grad(lambda t: g(t, True, None)["sum"].sum())({"a": X, "b": [X]})
    assert_close(slope["b"][0], np.ones((2, 3)))


def test_dtypes_are_those_of_the_arguments() -> None:
    assert J.sin(X).dtype == np.float64
    assert J.sin(X.astype("float32")).dtype == np.float32
    assert J.sin(1.0).dtype == np.float64  # a number that is alone is double
    assert J.multiply(X.astype("float32"), 2.0).dtype == np.float32
    assert J.add(X.astype("float32"), np.float64(1.0)).dtype == np.float64
    assert func.grad(J.sin)(1.0).dtype == np.float64
    assert not jax.config.read("jax_enable_x64")
    both = func.grad(lambda a: (J.cos(a) * X.astype("float32")).sum())(1.0)
    assert both.dtype == np.float64


def test_a_traced_number_stays_one() -> None:
    seen = []

    def f(a: Any) -> Any:
        b = J.sin(a)
        seen.append((b * np.ones(3, "float32")).dtype)
        return b

    func.grad(f)(1.0)
    assert seen == [np.float32]


def test_containers_follow_the_arguments() -> None:
    assert isinstance(J.sin(X), np.ndarray)
    assert isinstance(J.sin(jnp.ones(3)), jax.Array)
    t = tensor([1.0, 2.0], requires_grad=True)
    y = J.exp(t)
    assert isinstance(y, ftrans.Tensor)
    J.sum(y * t).backward()
    assert_close(t.grad, np.exp([1, 2]) * [2, 3])


def test_what_it_closes_over_is_an_operand() -> None:
    table = np.arange(3.0)
    f = from_jax(lambda x: x + table)
    assert_close(f(np.ones(3)), [1.0, 2.0, 3.0])
    table[:] = 5.0
    assert_close(f(np.ones(3)), [6.0, 6.0, 6.0])
    program = ftrans.trace(f)(np.ones(3))
    assert len(program.inputs) == 2


def test_what_jax_copies_of_what_it_closes_over_is_looked_at() -> None:
    at, weights, scale = np.array([0, 1, 2]), np.array([1.0, 2.0, 3.0]), np.array(2.0)
    x = np.array([1.0, 2.0, 3.0], "float32")  # narrower than these: JAX rounds them
    taken, weighted, scaled = (
        from_jax(lambda x: x[at]),
        from_jax(lambda x: x * weights),
        from_jax(lambda x: x * scale),
    )
    assert_close(taken(x), [1.0, 2.0, 3.0])
    assert_close(weighted(x), [1.0, 4.0, 9.0])
    assert_close(scaled(x.astype("float64")), [2.0, 4.0, 6.0])
    at[:], weights[:], scale[...] = 2, 7.0, 5.0
    assert_close(taken(x), [3.0, 3.0, 3.0])
    assert_close(weighted(x), [7.0, 14.0, 21.0])
    assert_close(scaled(x.astype("float64")), [5.0, 10.0, 15.0])


def test_arguments_that_are_no_arrays() -> None:
    traced = []

    def f(x: Any, at: Any) -> Any:
        traced.append(at)
        return x[at]

    g = from_jax(f)
    for _ in range(3):
        assert_close(g(X, slice(0, 1)), X[:1])
    assert len(traced) == 1
    with pytest.raises(StaticArgumentError, match="must be hashable, not of type set"):
        from_jax(lambda x, s: x * len(s))(X, {1, 2})
    found = from_jax(lambda x: (x, {1, 2}))
    found(X)[1].add(9)
    assert found(X)[1] == {1, 2}
    half = np.array([1, 2, 3], jnp.bfloat16)
    assert_close(from_jax(lambda x: x.at[0].set(5))(half).astype("float32"), [5.0, 2.0, 3.0])
    assert ftrans.jit(from_jax(lambda x, n: x[n]))(X[0], 2) == X[0, 2]
    assert ftrans.jit(from_jax(lambda n: n * 2))(3) == 6


def test_what_it_closes_over_goes_with_it() -> None:
    def made() -> Any:
        table = np.zeros(4)
        f = from_jax(lambda x: x + table)
        f(np.ones(4))
        return weakref.ref(table)

    gone = made()
    gc.collect()
    assert gone() is None


def test_the_same_function_is_the_same() -> None:
    assert from_jax(jnp.sin) is from_jax(jnp.sin)

    def f(x: Any) -> Any:
        return x

    g = from_jax(f)
    assert from_jax(f) is g
    assert g.__name__ == "f"


def test_modules() -> None:
    assert J.linalg.norm(np.array([3.0, 4.0])) == 5.0
    assert J.float32 is jnp.float32
    assert J.ndarray is jnp.ndarray
    assert J.pi == jnp.pi
    assert "sin" in dir(J)
    assert_close(J.add.reduce(X), X.sum(0))
    with pytest.raises(AttributeError):
        J.no_such_name  # noqa: B018


# ------------------------------------------------------------------------------ JAX's own forms


def test_loops_and_branches_close_over_arrays() -> None:
    weights = np.array([0.5, 2.0, -1.0])

    def f(x: Any) -> Any:
        carry, ys = lax.scan(lambda c, row: (c * row + weights, c.sum()), x[0], x)
        inner = lax.cond(carry.sum() > 0, lambda c: c * weights, lambda c: c - 1.0, carry)
        end = lax.while_loop(lambda c: c[0] < 10, lambda c: c * 2 + jnp.abs(weights), inner)
        return end, ys, lax.switch(1, [jnp.sin, jnp.cos, jnp.tan], x)

    g = from_jax(f)
    with jax.enable_x64(True):
        expected = f(jnp.asarray(X))
        slope = jax.grad(lambda x: sum(y.sum() for y in f(x)[1:]))(X)
        tangent = jax.jvp(lambda x: f(x)[0], (X,), (np.ones_like(X),))[1]
        batch = jax.vmap(f)(np.stack([X, X + 1]))
    for found, wanted in zip(g(X), expected, strict=True):
        assert_close(found, np.asarray(wanted))
    assert externals(ftrans.trace(g)(X)) == []
    assert_close(func.grad(lambda x: sum(y.sum() for y in g(x)[1:]))(X), np.asarray(slope))
    assert_close(func.jvp(lambda x: g(x)[0], (X,), (np.ones_like(X),))[1], np.asarray(tangent))
    for found, wanted in zip(func.vmap(g)(np.stack([X, X + 1])), batch, strict=True):
        assert_close(found, np.asarray(wanted))


def test_a_loop_over_lanes() -> None:
    f = from_jax(jax.vmap(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2, x)))
    at = np.array([1.0, 3.0, 20.0])
    assert_close(f(at), [16.0, 12.0, 20.0])
    assert_close(func.jvp(f, (at,), (np.ones(3),))[1], [16.0, 4.0, 1.0])
    assert externals(ftrans.trace(f)(at)) == []


def test_rules_are_kept() -> None:
    @jax.custom_jvp
    def by_jvp(x: Any) -> Any:
        return x**2

    by_jvp.defjvp(lambda xs, dots: (by_jvp(*xs), 3.0 * dots[0] * by_jvp(*xs)))

    @jax.custom_vjp
    def by_vjp(x: Any, y: Any) -> Any:
        return x * y

    by_vjp.defvjp(
        lambda x, y: (by_vjp(x, y), (x, jnp.sin(y))),
        lambda kept, ct: (7.0 * ct * kept[1], ct * kept[0]),
    )
    a, b = from_jax(by_jvp), from_jax(by_vjp)
    x = np.array(1.5)
    assert_close(func.grad(a)(x), 3 * 1.5**2)
    assert_close(func.grad(func.grad(a))(x), 9 * 1.5**2)  # by the rule again
    assert_close(func.jvp(a, (x,), (np.array(1.0),))[1], 3 * 1.5**2)
    assert_close(func.grad(b)(x, np.array(2.0)), 7 * np.sin(2.0))
    # forward mode of what has a backward alone, which JAX refuses
    tangent = func.jvp(lambda x: b(x, np.array(2.0)), (x,), (np.array(1.0),))[1]
    assert_close(tangent, 7 * np.sin(2.0))
    assert_close(func.vmap(func.grad(b))(X[0], X[1]), 7 * np.sin(X[1]))
    assert_close(func.grad(func.grad(b, 1), 0)(x, np.array(2.0)), 1.0)


def test_rules_with_results_of_their_own() -> None:
    @jax.custom_vjp
    def through(x: Any) -> Any:
        return jnp.round(x)

    through.defvjp(lambda x: (jnp.round(x), None), lambda kept, ct: (ct,))

    @jax.custom_jvp
    def along(x: Any) -> Any:
        return jnp.round(x)

    along.defjvp(lambda xs, dots: (jnp.round(xs[0]), dots[0]))

    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return jnp.clip(x, -1, 1)

    clipped.defvjp(
        lambda x: (jnp.clip(x, -1, 1), x), lambda x, ct: (jnp.where(jnp.abs(x) > 2, 0.0, ct),)
    )
    x = np.array([0.3, 1.5, -2.6])
    for function in (through, along, clipped):
        loss = lambda x, function=function: jnp.sum(jnp.sin(function(x)) ** 3)  # noqa: E731
        with jax.enable_x64(True):
            slope, second = jax.grad(loss)(x), jax.jacrev(jax.grad(loss))(x)
        assert_close(func.grad(from_jax(loss))(x), np.asarray(slope))
        assert_close(func.jacrev(func.grad(from_jax(loss)))(x), np.asarray(second))
        assert_close(func.jacfwd(func.grad(from_jax(loss)))(x), np.asarray(second))


def test_a_rule_that_raises_is_told_of_where_it_is_needed() -> None:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return x * 2.0

    @f.defjvp
    def _(xs: Any, dots: Any) -> Any:
        raise ZeroDivisionError("no derivative today")

    g = from_jax(f)
    assert_close(g(X), 2 * X)
    assert_close(func.vmap(g)(X), 2 * X)
    with pytest.raises(ZeroDivisionError, match="today"):
        func.grad(lambda x: g(x).sum())(X)


@pytest.mark.slow
def test_a_rule_that_holds_larger_ones_ends() -> None:
    from jax.experimental.ode import odeint

    def f(y0: Any) -> Any:
        return odeint(lambda y, t: -y * t, y0, jnp.linspace(0.0, 1.0, 3))[-1].sum()

    y0 = np.array([1.0, 2.0])
    g = from_jax(f)
    with jax.enable_x64(True):
        expected, slope = jax.value_and_grad(f)(y0)
    assert_close(g(y0), float(expected))
    assert_close(func.grad(g)(y0), np.asarray(slope))


def test_keys_are_mapped_over_what_they_are_folded_with() -> None:
    data = jax.random.key_data

    def one_word(seeds: Any) -> Any:
        return jax.vmap(lambda seed: data(jax.random.fold_in(jax.random.key(seed), 3)))(seeds)

    def one_key(words: Any) -> Any:
        return jax.vmap(lambda n: data(jax.random.fold_in(jax.random.key(7), n)))(words)

    def each_of_each(words: Any) -> Any:
        keys = jax.random.split(jax.random.key(1), 2)
        fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
        return data(fold(keys, words))

    words = np.arange(4, dtype=np.uint32)
    for f in (one_word, one_key, each_of_each):
        assert_close(from_jax(f)(words), np.asarray(f(words)))


def test_bits_are_the_primitive() -> None:
    program = from_jax(lambda words: jax.random.bits(words, (3,)))
    traced = simplify(inline(ftrans.trace(lambda words: program(words))(np.zeros(2, "uint32"))))
    names = [equation.primitive.name for equation in traced.equations]
    assert "threefry" in names
    assert "external" not in names


@pytest.mark.slow
def test_keys_of_random_numbers() -> None:
    R = from_jax(jax.random)
    key = jax.random.key(7)
    drawn = np.asarray(jax.random.normal(key, (4,)))
    assert_close(np.asarray(R.normal(key, (4,))), drawn)
    assert_close(R.normal(np.asarray(jax.random.key_data(key)), (4,)), drawn)

    def f(key: Any, scale: Any) -> Any:
        first, second = jax.random.split(jax.random.fold_in(key, 3))
        keys = jax.random.split(second, 5)
        each = jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys[1:])
        return scale * (jax.random.bernoulli(first, 0.5, (3,)).sum() + each.sum())

    expected = np.asarray(f(key, 2.0))
    assert_close(np.asarray(from_jax(f)(key, np.float32(2.0))), expected)
    for draw in (jax.random.gamma, jax.random.poisson, jax.random.t, jax.random.beta):
        given = (2.0, 3.0, (3,)) if draw is jax.random.beta else (2.0, (3,))
        assert_close(np.asarray(from_jax(draw)(key, *given)), np.asarray(draw(key, *given)))
    slope = func.grad(lambda s: from_jax(f)(jax.random.key_data(key), s))(np.float32(2.0))
    assert_close(np.asarray(slope), expected / 2)


def test_what_has_no_counterpart_is_called_alone() -> None:
    f = from_jax(lambda a: jnp.sin(jnp.linalg.eig(a)[0].real) * 2.0)
    program = ftrans.trace(f)(np.eye(3) * 2)
    assert externals(program) == ["eig"]
    assert {"sin", "mul"} <= {e.primitive.name for e in program.equations}


def test_it_is_one_of_ours_inside_of_jax() -> None:
    f = from_jax(lambda x: jnp.sum(jnp.sin(x) ** 2))
    slope = jax.jit(jax.grad(lambda x: f(x) * 2.0))(jnp.ones(3))
    assert_close(np.asarray(slope), np.full(3, 2 * np.sin(2.0)))
    compiled = ftrans.jit(func.grad(lambda x: f(x) + fnp.sum(x)))(X)
    assert_close(compiled, np.sin(2 * X) + 1)


def test_gathers_of_all_modes() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    at = np.array([[0, 5], [-1, 2]])
    for mode in ("clip", "fill", "promise_in_bounds"):
        places = at % 3 if mode == "promise_in_bounds" else at
        f = lambda x, m=mode, i=places: x.at[:, i].get(mode=m)  # noqa: E731
        with jax.enable_x64(True):
            expected = np.asarray(f(jnp.asarray(x)))
        np.testing.assert_array_equal(from_jax(f)(x), expected)
    windows = lambda x, i: jax.vmap(  # noqa: E731
        lambda s: lax.dynamic_slice(x, (0, s, s), (2, 2, 3))
    )(i)
    starts = np.array([0, 1, 2, -3])
    with jax.enable_x64(True):
        expected = np.asarray(windows(jnp.asarray(x), starts))
    np.testing.assert_array_equal(from_jax(windows)(x, starts), expected)


def test_scatters_of_all_modes() -> None:
    x = np.arange(12.0).reshape(3, 4)
    at = np.array([0, 2, 7])
    for mode in ("clip", "fill", "drop"):
        for method in ("set", "add", "multiply", "min", "max", "subtract"):

            def f(x: Any, y: Any, mode: str = mode, method: str = method) -> Any:
                return getattr(x.at[at], method)(y, mode=mode, unique_indices=mode != "clip")

            y = np.full((3, 4), 2.5)
            with jax.enable_x64(True):
                expected = np.asarray(f(jnp.asarray(x), y))
                if method in ("multiply", "min", "max"):
                    slope = None  # JAX has none, or shares what is equal
                else:
                    slope = jax.grad(lambda y, f=f: (f(jnp.asarray(x), y) ** 2).sum())(y)
            g = from_jax(f)
            np.testing.assert_array_equal(g(x, y), expected)
            found = func.grad(lambda y, g=g: (g(x, y) ** 2).sum())(y)
            if slope is not None:
                assert_close(found, np.asarray(slope))


# --------------------------------------------------------------------------------- what is refused


def test_values_are_asked_for_where_they_are_known() -> None:
    assert_close(J.unique(np.array([3, 1, 3])), [1, 3])
    assert_close(J.nonzero(np.array([0, 2, 0, 1]))[0], [1, 3])
    assert J.zeros(np.array([2, 3])).shape == (2, 3)

    def f(x: Any, n: Any) -> Any:
        return jnp.sum(x) * n if n > 2 else jnp.sum(x)

    g = from_jax(f)
    assert_close(func.grad(lambda x: g(x, 3.0))(X), np.full((2, 3), 3.0))
    assert_close(func.grad(lambda x: g(x, np.array(1)))(X), np.ones((2, 3)))
    with pytest.raises(ConcretizationError, match="unique: it asks for the value"):
        func.grad(lambda x: J.unique(x).sum())(X)


def test_what_is_traced_is_to_be_an_argument() -> None:
    def outer(x: Any) -> Any:
        return from_jax(lambda y: jnp.sin(y) * x)(X).sum()

    with pytest.raises(UnsupportedError, match="closes over a value that is traced"):
        func.grad(outer)(np.ones((2, 3)))
    with pytest.raises(UnsupportedError, match="closes over a value that JAX is tracing"):
        jax.jit(lambda x: from_jax(lambda y: jnp.sin(y) * x)(X))(1.0)
    t = tensor(X, requires_grad=True)
    with pytest.raises(UnsupportedError, match="Pass it as an argument"):
        from_jax(lambda y: jnp.sum(y) * t)(X)


def test_effects_are_refused() -> None:
    def f(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    with pytest.raises(UnsupportedError, match="has effects"):
        from_jax(f)(X)


def test_what_is_no_function() -> None:
    for wrong in (3, "sin", jnp.float32, None):
        with pytest.raises(ArgumentError, match="takes a function or a module"):
            from_jax(wrong)


def test_errors_of_jax_stay_what_they_are() -> None:
    with pytest.raises(TypeError, match="contracting dimensions"):
        J.dot(X, X)


@pytest.mark.parametrize("places", [[-7], [0, 9], [-1, 2]])
def test_places_out_of_bounds_are_read_as_jax_reads_them(places: list[int]) -> None:
    f = from_jax(lambda x: x[jnp.array(places)])
    x = np.arange(4.0)
    expected = jnp.arange(4.0)[jnp.array(places)]
    assert_close(f(x), np.asarray(expected), 0)
    assert_close(ftrans.jit(f)(x), np.asarray(expected), 0)
    assert_close(func.vmap(f)(np.stack([x, x]))[1], np.asarray(expected), 0)


@pytest.mark.parametrize("mode", ["promise_in_bounds", "clip", "drop"])
@pytest.mark.parametrize("name", ["set", "add", "multiply", "max"])
def test_places_out_of_bounds_are_written_as_jax_writes_them(name: str, mode: str) -> None:
    write = lambda x: getattr(x.at[jnp.array([1, 9])], name)(5.0, mode=mode)  # noqa: E731
    x, expected = np.arange(4.0), np.asarray(write(jnp.arange(4.0)))
    assert_close(from_jax(write)(x), expected, 0)
    assert_close(ftrans.jit(from_jax(write))(x), expected, 0)
