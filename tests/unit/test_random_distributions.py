"""Distributions are those of `jax.random`, derivatives included; which have none, says so."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import ftrans
from ftrans import errors, func, random
from ftrans.random.distributions import TABLE
from tests import helpers
from tests.helpers import assert_close, on_road

P3 = np.array([0.2, 0.3, 0.5])
COV = np.array([[2.0, 0.5], [0.5, 1.0]])
S = (5,)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ball": {"d": 3, "p": 2.5, "shape": S},
    "bernoulli": {"p": np.linspace(0.0, 1.0, 5)},
    "beta": {"a": 2.0, "b": 0.5, "shape": S},
    "binomial": {"n": 10.0, "p": 0.3, "shape": S},
    "bits": {"shape": S},
    "categorical": {"logits": np.log(P3), "shape": (7,)},
    "cauchy": {"shape": S},
    "chisquare": {"df": 3.0, "shape": S},
    "choice": {"a": 9, "shape": (4,), "replace": False},
    "dirichlet": {"alpha": np.array([0.5, 1.0, 3.0]), "shape": (2,)},
    "double_sided_maxwell": {"loc": 0.5, "scale": 2.0, "shape": S},
    "exponential": {"shape": S},
    "f": {"dfnum": 3.0, "dfden": 4.0, "shape": S},
    "gamma": {"a": np.array([0.3, 1.0, 5.0])},
    "generalized_normal": {"p": 1.5, "shape": S},
    "geometric": {"p": np.array(0.3), "shape": S},
    "gumbel": {"shape": S},
    "laplace": {"shape": S},
    "loggamma": {"a": np.array([0.01, 1.0, 5.0])},
    "logistic": {"shape": S},
    "lognormal": {"sigma": 0.5, "shape": S},
    "maxwell": {"shape": S},
    "multinomial": {"n": 10.0, "p": P3},
    "multivariate_normal": {"mean": np.array([1.0, -1.0]), "cov": COV, "shape": (3,)},
    "normal": {"shape": (2, 3)},
    "orthogonal": {"n": 3},
    "pareto": {"b": 2.0, "shape": S},
    "permutation": {"x": np.arange(12.0).reshape(4, 3)},
    "poisson": {"lam": np.array([0.1, 3.0, 50.0])},
    "rademacher": {"shape": S},
    "randint": {"shape": S, "minval": -5, "maxval": 1000},
    "rayleigh": {"scale": 2.0, "shape": S},
    "t": {"df": 3.0, "shape": S},
    "triangular": {"left": 0.0, "mode": 1.0, "right": 3.0, "shape": S},
    "truncated_normal": {"lower": -1.0, "upper": np.array([0.5, 2.0])},
    "uniform": {"shape": S, "minval": -1.0, "maxval": 3.0},
    "wald": {"mean": 2.0, "shape": S},
    "weibull_min": {"scale": 2.0, "concentration": 3.0, "shape": S},
}
EXACT = {
    "bernoulli", "binomial", "bits", "categorical", "choice", "geometric", "multinomial",
    "normal", "permutation", "poisson", "rademacher", "randint", "uniform",
}  # fmt: skip
"""Those that no function of NumPy's rounds, nor XLA in another way where it fuses."""


close = np.testing.assert_allclose


def given(name: str, dtype: str) -> dict[str, Any]:
    """Returns the arguments with arrays in a dtype, and that dtype where the result has one."""
    cast = lambda x: x.astype(dtype) if isinstance(x, np.ndarray) else x  # noqa: E731
    found = {label: cast(x) for label, x in ARGUMENTS[name].items()}
    takes = inspect.signature(getattr(jax.random, name)).parameters
    if "dtype" in takes:
        kind = "uint32" if name == "bits" else "int32"
        found["dtype"] = np.dtype(dtype if TABLE[name].dtype == "float" else kind)
    return found


def shared(names: Any, quick: set[str]) -> list[Any]:
    """Returns names for a test that takes seconds for each: most are left out by default."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


QUICK = {"bernoulli", "exponential", "normal", "permutation", "randint", "truncated_normal"}


def test_all_that_jax_has_is_there() -> None:
    rest = {"Key", "key_dtype", "key_impl", "random_gamma_p"}
    public = {n for n in dir(jax.random) if n[0] != "_" and callable(getattr(jax.random, n))}
    assert public - rest <= set(random.__all__)
    assert TABLE.keys() == ARGUMENTS.keys()
    for name in TABLE:
        assert set(inspect.signature(getattr(random, name)).parameters) >= set(ARGUMENTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", shared(ARGUMENTS, QUICK))
def test_values_are_those_of_jax(name: str, dtype: str) -> None:
    arguments = given(name, dtype)
    # JAX draws it by bits of its own default float, whatever dtype it has
    wide = dtype == "float64" and name != "rademacher"
    with jax.enable_x64(wide):
        wanted = np.asarray(getattr(jax.random, name)(jax.random.key(3), **arguments))
    for road in ("interpret", "compile"):
        with on_road(road):
            found = getattr(random, name)(random.key(3), **arguments)
        assert type(found) is np.ndarray
        if "dtype" in arguments:
            assert found.dtype == wanted.dtype
        if name in EXACT:
            assert np.array_equal(found, wanted), road
        else:
            close(found, wanted.astype(found.dtype), rtol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", shared(ARGUMENTS, {"normal", "permutation"}))
def test_values_under_jit_and_vmap(name: str) -> None:
    arguments = given(name, "float32")
    draw = lambda key: getattr(random, name)(key, **arguments)  # noqa: E731
    theirs = lambda key: getattr(jax.random, name)(key, **arguments)  # noqa: E731
    keys = random.split(random.key(0), 3)
    wanted = np.asarray(jax.jit(jax.vmap(theirs))(jax.random.split(jax.random.key(0), 3)))
    close(ftrans.jit(func.vmap(draw))(keys), wanted, rtol=1e-5)
    close(func.vmap(draw)(keys), wanted, rtol=1e-5)


@pytest.mark.slow
def test_dtypes() -> None:
    key = lambda: random.key(0)  # noqa: E731
    assert random.normal(key(), (2,)).dtype == np.float32
    assert random.gamma(key(), np.float64([1.0, 2.0])).dtype == np.float64
    assert random.gamma(key(), np.arange(1, 3)).dtype == np.float32
    assert random.gamma(key(), [1.0, 2.0]).dtype == np.float32
    assert random.poisson(key(), np.float64([1.0])).dtype == np.int32
    assert random.randint(key(), (2,), 0, 2**40).dtype == np.int64
    assert random.normal(key(), (2,), float).dtype == np.float64
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        assert random.normal(key(), (2,), dtype).dtype == np.dtype(dtype)
    with pytest.warns(UserWarning, match="x64"):
        ftrans.set_default_dtype("float64")
    assert random.normal(key(), (2,)).dtype == np.float64
    assert random.randint(key(), (2,), 0, 9).dtype == np.int64


def test_integers_and_student_t_are_other_names() -> None:
    assert random.integers is random.randint
    assert random.student_t is random.t


# -------------------------------------------------------------------------------- derivatives

SMOOTH = sorted(name for name, draw in TABLE.items() if draw.follows and name != "ball")


@pytest.mark.parametrize("name", shared(SMOOTH, {"pareto"}))
def test_derivatives_are_those_of_jax(name: str) -> None:
    arguments = given(name, "float64")
    labels = TABLE[name].follows.split()
    rest = {label: x for label, x in arguments.items() if label not in labels}
    point = [np.asarray(arguments[label], np.float64) for label in labels]

    def loss(draw: Any, key: Any, lib: Any) -> Any:
        def f(*values: Any) -> Any:
            drawn = draw(key, **dict(zip(labels, values, strict=True)), **rest)
            return (lib.sin(drawn) * lib.arange(1.0, drawn.size + 1).reshape(drawn.shape)).sum()

        return f

    ours = loss(getattr(random, name), random.key(1), ftrans.numpy)
    with jax.enable_x64(True):
        theirs = loss(getattr(jax.random, name), jax.random.key(1), jnp)
        every = tuple(range(len(labels)))

        @partial(jax.jit, compiler_options=helpers.QUICK)
        def expected(*point: Any) -> Any:
            return jax.grad(theirs, every)(*point), jax.jvp(jax.grad(theirs), point, point)[1]

        wanted, second = jax.tree.map(np.asarray, expected(*point))
    found = func.grad(ours, every)(*point)
    for a, b in zip(found, wanted, strict=True):
        close(a, b, rtol=1e-9, atol=1e-12)
    pushed = func.jvp(ours, tuple(point), tuple(point))[1]
    close(pushed, sum((x * y).sum() for x, y in zip(point, wanted, strict=True)), rtol=1e-9)
    close(func.jvp(func.grad(ours), tuple(point), tuple(point))[1], second, rtol=1e-8)
    mapped = func.vmap(func.grad(ours, every))(*[np.stack([x, x]) for x in point])
    for a, b in zip(mapped, wanted, strict=True):
        close(a[1], b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gamma", "loggamma"])
def test_reverse_mode_goes_twice_through_gammas(name: str) -> None:
    a = np.array([0.3, 1.0, 5.0])
    with jax.enable_x64(True):
        first = jax.grad(lambda a: getattr(jax.random, name)(jax.random.key(0), a).sum())
        wanted = np.asarray(jax.jvp(first, (a,), (np.ones(3),))[1])  # theirs is refused in reverse
    slope = func.grad(lambda a: getattr(random, name)(random.key(0), a).sum())
    close(func.grad(lambda a: slope(a).sum())(a), wanted, rtol=1e-9)


@pytest.mark.slow
def test_gamma_follows_its_quantile_function() -> None:
    a, step = np.array([0.3, 1.0, 4.0]), 1e-5
    key = random.key(2)
    drawn, slope = func.jvp(lambda a: random.gamma(key, a), (a,), (np.ones(3),))
    level = scipy.special.gammainc(a, drawn)
    up, down = (scipy.special.gammaincinv(a + d, level) for d in (step, -step))
    close(slope, (up - down) / (2 * step), rtol=1e-4)


@pytest.mark.slow
def test_beta_follows_its_quantile_function() -> None:
    a, b = np.array([0.5, 2.0, 4.0]), 1.5
    drawn, slope = func.jvp(lambda a: random.beta(random.key(2), a, b), (a,), (np.ones(3),))
    # a pair of gammas: x = g / (g + h), of which h is kept, so it is not the quantile function
    first, second = random.split(random.key(2))

    def of_gammas(a: Any) -> Any:
        g, h = random.gamma(first, a), random.gamma(second, b, (3,), "float64")
        return g / (g + h)

    ratio = func.jvp(of_gammas, (a,), (np.ones(3),))
    close(drawn, ratio[0], rtol=1e-12)
    close(slope, ratio[1], rtol=1e-9)
    # but in the mean it is: the derivative of E[x] = a / (a + b)
    many = np.full(20000, 2.0)
    mean = lambda a: random.beta(random.key(3), a * many / 2.0, b).mean()  # noqa: E731
    close(func.grad(mean)(2.0), 1.5 / 3.5**2, rtol=0.03)


CHOICES: dict[str, tuple[str, Any]] = {
    "bernoulli": ("p", 0.3),
    "binomial": ("p", 0.3),
    "categorical": ("logits", P3),
    "geometric": ("p", np.float32(0.3)),
    "multinomial": ("p", P3),
    "poisson": ("lam", 3.0),
}


@pytest.mark.parametrize("name", shared(CHOICES, {"bernoulli", "categorical"}))
def test_what_is_chosen_has_no_derivative(name: str) -> None:
    label, value = CHOICES[name]
    rest = {"n": 5} if name in ("binomial", "multinomial") else {}
    key = random.key(0)
    draw = lambda p: 1.0 * getattr(random, name)(key, **{label: p}, **rest).sum()  # noqa: E731
    message = rf"{name}: a draw does not follow {label} smoothly(.|\n)*score function"
    for f in (draw, ftrans.jit(draw), lambda p: (draw(p) * p).sum()):
        with pytest.raises(errors.MissingRuleError, match=message):
            func.grad(f)(value)
        with pytest.raises(errors.MissingRuleError, match=message):
            func.jvp(f, (value,), (value,))
    with pytest.raises(errors.MissingRuleError, match=message):
        func.vjp(lambda p: getattr(random, name)(random.key(0), **{label: p}, **rest), value)
    # stopped, or of something else
    stopped = lambda p: (p * draw(ftrans.stop_gradient(p))).sum()  # noqa: E731
    assert_close(func.grad(stopped)(value), np.full(np.shape(value), draw(value)))
    assert func.grad(lambda w: w * draw(value))(2.0) == draw(value)
    assert func.vmap(draw)(np.stack([value, value])).shape == (2,)


def test_choice_follows_its_elements_alone() -> None:
    key = random.key(0)
    elements = np.arange(3.0)
    counts = func.grad(lambda a: random.choice(random.key(0), a, (10,)).sum())(elements)
    assert counts.sum() == 10
    with pytest.raises(errors.MissingRuleError, match="choice: a draw does not follow p"):
        func.grad(lambda p: random.choice(key, elements, (10,), p=p).sum())(P3)


# --------------------------------------------------------------------------------- statistics

LAWS: dict[str, Any] = {
    "beta": scipy.stats.beta(2.0, 0.5),
    "cauchy": scipy.stats.cauchy,
    "chisquare": scipy.stats.chi2(3.0),
    "exponential": scipy.stats.expon,
    "gumbel": scipy.stats.gumbel_r,
    "laplace": scipy.stats.laplace,
    "logistic": scipy.stats.logistic,
    "normal": scipy.stats.norm,
    "t": scipy.stats.t(3.0),
    "uniform": scipy.stats.uniform(-1.0, 4.0),
}


@pytest.mark.parametrize("name", shared(LAWS, {"normal", "exponential"}))
def test_statistics(name: str) -> None:
    arguments = {**ARGUMENTS[name], "shape": (4000,), "dtype": "float64"}
    drawn = getattr(random, name)(random.key(11), **arguments)
    assert scipy.stats.kstest(drawn, LAWS[name].cdf).pvalue > 0.01


OUTSIDE = {
    "binomial": lambda r: r.binomial(3, 1.5),
    "bernoulli": lambda r: r.bernoulli(np.array([0.5, -0.1])),
    "poisson": lambda r: r.poisson(-1.0),
    "geometric": lambda r: r.geometric(0.0),
    "gamma": lambda r: r.gamma(-1.0),
    "normal": lambda r: r.normal(0.0, -1.0),
    "laplace": lambda r: r.laplace(0.0, np.array([1.0, -1.0])),
    "choice": lambda r: r.choice(3, p=[0.5, 0.2, 0.1]),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_parameters_out_of_bounds_are_errors_as_in_numpy(name: str) -> None:
    if name != "bernoulli":
        with pytest.raises(ValueError, match=r"[<>]|probabilities|sum"):
            OUTSIDE[name](np.random.default_rng(0))
    with pytest.raises(errors.ArgumentError, match=f"{name}: .* must"):
        OUTSIDE[name](random.default_rng(0))


def test_parameters_at_the_bounds_are_none() -> None:
    r = random.default_rng(0)
    assert r.binomial(3, 1.0) == 3
    assert r.bernoulli(np.zeros(2)).tolist() == [False, False]
    assert r.poisson(0.0) == 0
    assert r.geometric(1.0) == 1
    assert r.normal(1.0, 0.0) == 1.0


def test_what_numpy_draws_alone_is_named() -> None:
    with pytest.raises(errors.MissingAttributeError, match=r"default_rng\(\).hypergeometric"):
        _ = random.default_rng(0).hypergeometric
    with pytest.raises(AttributeError, match="no attribute 'normals'"):
        _ = random.default_rng(0).normals
    with pytest.raises(errors.MissingAttributeError, match=r"rng\.normal\(\.\.\.\)"):
        _ = random.randn
    with pytest.raises(errors.MissingAttributeError, match=r"numpy\.random\.vonmises"):
        _ = random.vonmises
    with pytest.raises(AttributeError, match="no attribute 'normals'"):
        _ = random.normals
