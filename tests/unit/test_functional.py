"""`autograd.functional`: the numbers are PyTorch's, and JAX's where there are many."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import functional
from ftrans.errors import ArgumentError, DTypeError, FtransError, ShapeError
from tests.helpers import assert_close

X, ONES = np.array([1.0, 2.0]), np.ones(2)


def cubes(x: Any) -> Any:
    return (x**3).sum()


def wave(x: Any, w: Any) -> Any:
    return (fnp.sin(x @ w) * fnp.exp(-x[0] * w[1, 0])).sum()


# ----------------------------------------------------------------------------------- the products


def test_vjp() -> None:
    value, product = functional.vjp(lambda x: x**2, X, ONES)
    assert_close(value, [1.0, 4.0])
    assert_close(product, [2.0, 4.0])


def test_jvp() -> None:
    value, product = functional.jvp(lambda x: x**2, X, ONES)
    assert_close(value, [1.0, 4.0])
    assert_close(product, [2.0, 4.0])


@pytest.mark.parametrize("name", ["vhp", "hvp"])
def test_products_with_the_hessian(name: str) -> None:
    value, product = getattr(functional, name)(cubes, X, ONES)
    assert_close(value, 9.0)
    assert_close(product, [6.0, 12.0])
    value, product = getattr(functional, name)(lambda x: x[0] ** 2 * x[1], X, np.array([1.0, 0.0]))
    assert_close(value, 2.0)
    assert_close(product, [4.0, 2.0])


def test_several_arguments_and_results() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=3), rng.normal(size=(3, 2))
    dx, dw = rng.normal(size=3), rng.normal(size=(3, 2))

    def f(lib: Any) -> Any:
        return lambda x, w: (lib.sin(x) @ w, {"norm": (x * x).sum()})

    with jax.enable_x64(True):
        wanted, pull = jax.vjp(f(jnp), x, w)
        cts = (np.array([0.5, -1.0]), {"norm": np.array(2.0)})
        value, product = functional.vjp(f(fnp), (x, w), cts)
        jax.tree.map(assert_close, value, wanted)
        jax.tree.map(assert_close, product, pull(jax.tree.map(jnp.asarray, cts)))
        wanted = jax.jvp(f(jnp), (x, w), (dx, dw))
        jax.tree.map(assert_close, functional.jvp(f(fnp), (x, w), (dx, dw)), wanted)

        def loss(lib: Any) -> Any:
            return lambda x, w: (lib.sin(x @ w) * lib.exp(-x[0] * w[1, 0])).sum()

        _, wanted = jax.jvp(jax.grad(loss(jnp), (0, 1)), (x, w), (dx, dw))
        for transform in (functional.hvp, functional.vhp):
            _, product = transform(loss(fnp), (x, w), (dx, dw))
            jax.tree.map(assert_close, product, wanted)


def test_one_that_is_a_pytree() -> None:
    d = {"a": X, "b": 2 * X}
    value, product = functional.vjp(lambda d: d["a"] * d["b"], d, ONES)
    assert_close(value, [2.0, 8.0])
    assert_close(product["a"], [2.0, 4.0])
    assert_close(product["b"], [1.0, 2.0])
    rows = functional.jacobian(lambda d: {"s": d["a"] * d["b"]}, d)
    assert_close(rows["s"]["a"], np.diag([2.0, 4.0]))
    blocks = functional.hessian(lambda d: (d["a"] * d["b"]).sum(), d)
    assert_close(blocks["a"]["b"], np.eye(2))
    assert_close(blocks["a"]["a"], np.zeros((2, 2)))
    # a list is one argument, and numbers are scalars
    assert_close(functional.jvp(lambda xs: xs[0] * xs[1], [2.0, 3.0], [1.0, 0.0])[1], 3.0)


def test_a_vector_is_one_where_there_is_one_element() -> None:
    assert_close(functional.vjp(lambda x: x.sum(), X)[1], ONES)
    assert_close(functional.vjp(lambda x: x.sum().reshape(1, 1), X)[1], ONES)
    assert_close(functional.jvp(lambda x: x**3, 2.0)[1], 12.0)
    assert_close(functional.jvp(lambda x: x**3, np.array([2.0]))[1], [12.0])
    assert_close(functional.hvp(lambda x: x**3, np.float32(2.0))[1], 12.0)
    value, product = functional.vhp(lambda x: (x**3).reshape(1, 1), np.array([2.0]))
    assert value.shape == (1, 1)
    assert_close(product, [12.0])


# ------------------------------------------------------------------------------ the whole matrices


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian(strategy: str, vectorize: bool) -> None:
    options: dict[str, Any] = {"strategy": strategy, "vectorize": vectorize}
    assert_close(functional.jacobian(lambda x: x**2, X, **options), [[2.0, 0.0], [0.0, 4.0]])
    first, second = functional.jacobian(lambda a, b: 2 * a + 3 * b, (X, X), **options)
    assert_close(first, 2 * np.eye(2))
    assert_close(second, 3 * np.eye(2))
    first, second = functional.jacobian(lambda a: (2 * a, a.sum()), X, **options)
    assert_close(first, 2 * np.eye(2))
    assert_close(second, ONES)
    ((block,),) = functional.jacobian(lambda a: (a * a,), (X,), **options)
    assert_close(block, [[2.0, 0.0], [0.0, 4.0]])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_hessian(strategy: str) -> None:
    def hessian(f: Callable[..., Any], inputs: Any) -> Any:
        return functional.hessian(f, inputs, outer_jacobian_strategy=strategy)

    assert_close(hessian(cubes, X), [[6.0, 0.0], [0.0, 12.0]])
    assert_close(hessian(lambda x: x.sum(), X), np.zeros((2, 2)))
    assert_close(hessian(lambda x: (x**3).sum().reshape(1), X), [[6.0, 0.0], [0.0, 12.0]])
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=3), rng.normal(size=(3, 2))
    with jax.enable_x64(True):
        by_jax = lambda x, w: (jnp.sin(x @ w) * jnp.exp(-x[0] * w[1, 0])).sum()  # noqa: E731
        wanted = jax.hessian(by_jax, (0, 1))(x, w)
    jax.tree.map(assert_close, hessian(wave, (x, w)), wanted)


# ---------------------------------------------------------------------------------------- strict


STRICT = {
    "an input that is not used": (
        lambda: functional.jacobian(lambda a, b: 2 * a, (X, X), strict=True),
        "jacobian(lambda): with strict=True every output must depend on every input.\n"
        "  result does not depend on b\n"
        "  Leave strict out to get zeros.",
    ),
    "one pair alone": (
        lambda: functional.jacobian(
            lambda a, b: (a * b, b), (X, X), strict=True, strategy="forward-mode", vectorize=True
        ),
        "jacobian(lambda): with strict=True every output must depend on every input.\n"
        "  result[1] does not depend on a\n"
        "  Leave strict out to get zeros.",
    ),
    "a gradient that is constant": (
        lambda: functional.hessian(lambda x: x.sum(), X, strict=True),
        "hessian(lambda): with strict=True every output must depend on every input.\n"
        "  gradient does not depend on x\n"
        "  Leave strict out to get zeros.",
    ),
    "a sum of functions": (
        lambda: functional.hessian(lambda a, b: (a**2 + b**2).sum(), (X, X), strict=True),
        "hessian(lambda): with strict=True every output must depend on every input.\n"
        "  gradient[0] does not depend on b\n"
        "  Leave strict out to get zeros.",
    ),
    "a constant result": (
        lambda: functional.vjp(lambda a: (a, np.ones(2)), X, (ONES, ONES), strict=True),
        "vjp(lambda): with strict=True every output must depend on some input, and some output on "
        "every input.\n"
        "  result[1] does not depend on the inputs\n"
        "  Leave strict out to get zeros.",
    ),
    "an input that no result uses": (
        lambda: functional.jvp(lambda a, b: 2 * a, (X, X), (X, X), strict=True),
        "jvp(lambda): with strict=True every output must depend on some input, and some output on "
        "every input.\n"
        "  the result does not depend on b\n"
        "  Leave strict out to get zeros.",
    ),
    "a linear function": (
        lambda: functional.hvp(lambda a: a.sum(), X, ONES, strict=True),
        "hvp(lambda): with strict=True every output must depend on some input, and some output on "
        "every input.\n"
        "  gradient does not depend on the inputs\n"
        "  Leave strict out to get zeros.",
    ),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict(name: str) -> None:
    call, text = STRICT[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value) == text


def test_strict_lets_through_what_depends() -> None:
    options: dict[str, Any] = {"strict": True}
    assert_close(functional.jacobian(lambda a, b: a * b, (X, X), **options)[0], np.diag(X))
    assert_close(functional.hessian(cubes, X, **options), np.diag([6.0, 12.0]))
    assert_close(functional.vjp(lambda a: a * 2, X, ONES, **options)[1], 2 * ONES)
    assert_close(functional.jvp(lambda a, b: (a, b), (X, X), (X, ONES), **options)[1][1], ONES)
    assert_close(
        functional.hvp(lambda a, b: (a * b).sum(), (X, X), (X, ONES), **options)[1][0], ONES
    )
    looped = lambda x: ftrans.fori_loop(0, 3, lambda i, c: c * x, x).sum()  # noqa: E731
    assert_close(functional.vhp(looped, X, ONES, **options)[1], 12 * X**2)


def test_dependence_of_a_derivative() -> None:
    """It follows the linear program, through branches and captured values."""

    def f(x: Any, y: Any, n: Any) -> Any:
        moved = ftrans.cond(y.sum() > 0, lambda v: v * 2.0, lambda v: v, y)
        return x * n, moved, fnp.floor(x), x.detach() * y, 1.0

    _, derivative = func.linearize(f, X, X, 3)
    assert derivative.dependence() == [
        [True, False],
        [False, True],
        [False, False],
        [False, True],
        [False, False],
    ]


# ------------------------------------------------------------------------------------ around them


def test_under_the_transforms() -> None:
    batch = np.array([[1.0, 2.0], [3.0, 4.0]])
    rows = func.vmap(lambda v: functional.jacobian(lambda x: x**2, v))(batch)
    assert_close(rows, [np.diag(2 * v) for v in batch])
    slope = func.grad(lambda v: functional.hvp(cubes, v, ONES, create_graph=True)[1].sum())
    assert_close(slope(X), [6.0, 6.0])
    third = func.jacfwd(lambda v: functional.hessian(cubes, v))(X)
    assert_close(third[0, 0], [6.0, 0.0])
    assert_close(ftrans.jit(lambda v: functional.hessian(cubes, v))(X), np.diag(6 * X))


def test_what_it_closes_over_is_differentiated() -> None:
    def outer(c: Any) -> Any:
        return functional.jacobian(lambda a: a * c * c, X).sum()

    assert_close(func.grad(outer)(3.0), 12.0)


def test_containers_follow() -> None:
    found = functional.hessian(cubes, jnp.arange(3.0))
    assert isinstance(found, jax.Array)
    assert isinstance(functional.vjp(cubes, X)[1], np.ndarray)


ERRORS = {
    "vjp without v": (
        lambda: functional.vjp(lambda x: x**2, X),
        ArgumentError,
        "vjp(lambda): v can be left out where func returns one element alone.\n"
        "  the value: f64[2]\n"
        "  Pass v, with the structure and shapes of the value.",
    ),
    "jvp without v": (
        lambda: functional.jvp(lambda x, y: x * y, (X, X)),
        ArgumentError,
        "jvp(lambda): v can be left out where inputs are one element alone.\n"
        "  inputs: f64[2], f64[2]\n"
        "  Pass v, with the structure and shapes of inputs.",
    ),
    "a Hessian of a vector": (
        lambda: functional.hessian(lambda x: x**2, X),
        ShapeError,
        "hessian(lambda): the function must return one element.\n"
        "  it returned: f64[2]\n"
        "  Return its sum, or ask for the jacobian of its gradient.",
    ),
    "a Hessian of two": (
        lambda: functional.hvp(lambda x: (x.sum(), x.sum()), X, ONES),
        ShapeError,
        "hvp(lambda): the function must return one element.\n"
        "  it returned: f64[], f64[]\n"
        "  Return its sum, or ask for the jacobian of its gradient.",
    ),
    "another strategy": (
        lambda: functional.jacobian(cubes, X, strategy="forward"),
        ArgumentError,
        "jacobian(cubes): strategy is none that there is.\n"
        "  strategy: 'forward'\n"
        "  Write one of 'reverse-mode', 'forward-mode'.",
    ),
    "another strategy of a Hessian": (
        lambda: functional.hessian(cubes, X, outer_jacobian_strategy="reverse"),
        ArgumentError,
        "hessian(cubes): outer_jacobian_strategy is none that there is.\n"
        "  outer_jacobian_strategy: 'reverse'\n"
        "  Write one of 'reverse-mode', 'forward-mode'.",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text
    assert isinstance(caught.value, RuntimeError)  # as PyTorch's


def test_integers_and_vectors_that_do_not_fit() -> None:
    with pytest.raises(DTypeError):
        functional.jacobian(lambda x: x * 2, np.arange(3))
    for call in (
        lambda: functional.vjp(lambda x: x**2, X, np.ones(3)),
        lambda: functional.jvp(lambda x: x**2, X, np.ones(3)),
        lambda: functional.hvp(cubes, X, np.ones(3)),
        lambda: functional.vhp(cubes, (X,), (ONES, ONES)),
    ):
        with pytest.raises(FtransError):
            call()


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"])
def test_integers_have_no_derivatives(name: str) -> None:
    call = getattr(functional, name)
    with pytest.raises(DTypeError, match=r"real or complex floating-point values.\n  x: i64\[3\]"):
        call(lambda x: (x**2).sum(), np.arange(3))
    with pytest.raises(DTypeError, match="b: i64"):
        call(lambda a, b: (a * b).sum(), (X, np.arange(2)))


def test_an_array_and_the_tuple_of_it_stand_for_each_other() -> None:
    def f(x: Any) -> Any:
        return x**2

    for inputs in (X, (X,)):
        for v in (ONES, (ONES,)):
            assert_close(functional.jvp(f, inputs, v)[1], 2 * X)
            assert_close(np.ravel(functional.vjp(f, inputs, v)[1]), 2 * X)
            assert_close(np.ravel(functional.hvp(cubes, inputs, v)[1]), 6 * X)
            assert_close(np.ravel(functional.vhp(cubes, inputs, v)[1]), 6 * X)


def test_the_signatures_are_those_of_pytorch() -> None:
    product = ["func", "inputs", "v", "create_graph", "strict"]
    for name in ("vjp", "jvp", "vhp", "hvp"):
        assert list(inspect.signature(getattr(functional, name)).parameters) == product
    whole = ["func", "inputs", "create_graph", "strict", "vectorize"]
    for name, last in (("jacobian", "strategy"), ("hessian", "outer_jacobian_strategy")):
        assert list(inspect.signature(getattr(functional, name)).parameters) == [*whole, last]
