"""Generators draw anew at each call, by keys that are inputs; under `vmap` as PyTorch's do."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

import ftrans
import ftrans.numpy as fnp
from ftrans import errors, func, random
from ftrans.autograd import Function
from ftrans.random.source import Source, words_of_seed
from tests.helpers import assert_close, on_road

X = np.ones(3, np.float32)


SLOW = pytest.mark.slow


def rng(seed: int = 0) -> random.Generator:
    return random.default_rng(seed)


# ----------------------------------------------------------------------------- what is drawn

DRAWS: dict[str, Callable[[random.Generator], Any]] = {
    "normal": lambda r: r.normal(size=10),
    "one": lambda r: r.random(),
    "many": lambda r: r.standard_normal(1000),
    "wide": lambda r: r.random(3, "float64"),
    "scaled": lambda r: r.normal(1.0, 2.0, 4),
    "integers": lambda r: r.integers(10, size=4),
}


def test_a_draw_is_by_the_next_key() -> None:
    drawing, keys = rng(), rng()
    for _ in range(300):  # over the ends of what is made ahead
        # newer versions of XLA round the last bit otherwise where many are made at once
        assert_close(drawing.normal(size=3), random.normal(keys.key(), (3,)), 1e-6)
    assert np.array_equal(drawing.random(), random.uniform(keys.key()))
    assert drawing.state == keys.state
    assert drawing.state["position"] == 301


@pytest.mark.parametrize(
    "bounds", [(0, 1000, None), (-5, 7, "int64"), (0, 2**31 - 1, None), (0, 10, "uint32")]
)
def test_integers_are_by_the_next_key(bounds: tuple[int, int, Any]) -> None:
    (low, high, dtype), drawing, keys = bounds, rng(), rng()
    for _ in range(300):  # over the ends of what is made ahead
        found = drawing.integers(low, high, size=5, dtype=dtype)
        expected = random.randint(keys.key(), (5,), low, high, dtype=dtype or "int32")
        assert np.array_equal(found, expected)
        assert found.dtype == expected.dtype
    other = [drawing.integers(low, low + 2, 5, dtype) for _ in range(3)]  # by other bounds
    assert all(np.isin(x, [low, low + 1]).all() for x in other)
    assert drawing.state["position"] == 303


@pytest.mark.slow
def test_numbers_do_not_depend_on_how_they_are_made() -> None:
    names = [name for name, _ in zip(itertools.cycle(DRAWS), range(20), strict=False)]
    wanted = [DRAWS[name](r) for r in [rng()] for name in names]
    r = rng()
    for name, before in zip(names, wanted, strict=True):
        aux = lambda x, name=name, r=r: (x, DRAWS[name](r))  # noqa: E731
        assert_close(func.grad(aux, has_aux=True)(1.0)[1], before, 1e-5)
    with on_road("compile"):
        again = rng()
        for name, before in zip(names, wanted, strict=True):
            assert_close(DRAWS[name](again), before, 1e-5)


def test_bits_of_a_generator_are_for_ever() -> None:
    """What a seed gives is a promise: of a change, programs that are run again would tell."""
    assert rng(0).key().tolist() == KEY_OF_0
    assert rng(2**100).key().tolist() == KEY_OF_LARGE
    assert random.default_rng([1, 2]).key().tolist() == KEY_OF_PAIR


KEY_OF_0 = [3258396471, 3804801804]
KEY_OF_LARGE = [2065632163, 1824337650]
KEY_OF_PAIR = [1117802523, 2985699113]


def test_seeds_differ() -> None:
    seeds: list[Any] = [0, 1, 2**32, 2**64, 2**100, [0, 0], [1, 2], [2, 1], [1, 2, 0], (3,)]
    found = {tuple(words_of_seed(seed).tolist()) for seed in seeds}
    assert len(found) == len(seeds)
    assert random.default_rng().state != random.default_rng().state
    assert np.array_equal(words_of_seed(np.int64(7)), words_of_seed(7))
    assert np.array_equal(words_of_seed(np.array([1, 2])), words_of_seed([1, 2]))
    generator = rng()
    assert random.default_rng(generator) is generator


def test_positions_beyond_32_bits() -> None:
    source = Source(words_of_seed(0), 2**32 - 2)
    keys = [source.key().tolist() for _ in range(4)]
    assert len({tuple(key) for key in keys}) == 4
    assert Source(words_of_seed(0), 2**32 + 1).key().tolist() == keys[3]


@pytest.mark.slow
def test_shapes_and_dtypes_of_methods() -> None:
    r = rng()
    every: dict[str, tuple[tuple[Any, ...], str]] = {
        "random": ((), "f"), "uniform": ((), "f"), "normal": ((), "f"),
        "standard_normal": ((), "f"), "truncated_normal": ((-1, 1), "f"),
        "lognormal": ((), "f"), "integers": ((10,), "i"), "bernoulli": ((), "b"),
        "binomial": ((5, 0.5), "i"), "negative_binomial": ((5, 0.5), "i"),
        "geometric": ((0.5,), "i"), "poisson": ((), "i"), "choice": ((5,), "i"),
        "exponential": ((), "f"), "standard_exponential": ((), "f"), "gamma": ((2,), "f"),
        "standard_gamma": ((2,), "f"), "beta": ((1, 2), "f"), "chisquare": ((3,), "f"),
        "f": ((3, 4), "f"), "standard_t": ((3,), "f"), "standard_cauchy": ((), "f"),
        "laplace": ((), "f"), "logistic": ((), "f"), "gumbel": ((), "f"), "pareto": ((2,), "f"),
        "rayleigh": ((), "f"), "triangular": ((0, 1, 3), "f"), "wald": ((1, 2), "f"),
        "weibull": ((2,), "f"), "rademacher": ((), "i"),
    }  # fmt: skip
    for name, (arguments, kind) in every.items():
        method = getattr(r, name)
        for size, shape in ((None, ()), (2, (2,)), ((2, 1), (2, 1)), ((), ())):
            drawn = method(*arguments, size=size)
            assert type(drawn) is np.ndarray, name
            assert (drawn.shape, drawn.dtype.kind) == (shape, kind), name
            assert drawn.dtype.itemsize <= 4, name
    assert r.dirichlet([1, 2, 3], size=2).shape == (2, 3)
    assert r.multinomial(10, [0.5, 0.5], size=3).shape == (3, 2)
    assert r.multivariate_normal([0, 0], np.eye(2, dtype="f4"), size=3).shape == (3, 2)
    assert r.orthogonal(3, 2).shape == (2, 3, 3)
    assert r.categorical(np.zeros((2, 3))).shape == (2,)
    assert sorted(r.permutation(5).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(r.permutation([3, 1, 2]).tolist()) == [1, 2, 3]
    assert r.permuted(np.eye(3)).sum() == 3
    assert set(r.integers(1, 3, 50, endpoint=True).tolist()) == {1, 2, 3}
    assert r.integers(np.array([1, 10]), size=(3, 2)).shape == (3, 2)
    assert sorted(r.choice(4, 4, replace=False).tolist()) == [0, 1, 2, 3]
    assert r.normal(np.zeros((3, 1)), np.ones(2)).shape == (3, 2)
    assert r.normal(np.zeros(2), 1.0).dtype == np.float64
    with pytest.raises(AttributeError):
        r.bit_generator  # noqa: B018


@pytest.mark.parametrize(
    ("name", "arguments", "law"),
    [
        ("normal", (1.0, 2.0), scipy.stats.norm(1.0, 2.0)),
        ("pareto", (2.0,), scipy.stats.lomax(2.0)),
        ("wald", (1.0, 3.0), scipy.stats.invgauss(1.0 / 3.0, scale=3.0)),
        ("weibull", (2.0,), scipy.stats.weibull_min(2.0)),
        ("lognormal", (0.5, 0.7), scipy.stats.lognorm(0.7, scale=np.exp(0.5))),
        ("uniform", (-1.0, 3.0), scipy.stats.uniform(-1.0, 4.0)),
        pytest.param("gamma", (2.0, 3.0), scipy.stats.gamma(2.0, scale=3.0), marks=SLOW),
    ],
)
def test_laws_are_those_of_numpy(name: str, arguments: Any, law: Any) -> None:
    drawn = getattr(rng(3), name)(*arguments, size=3000)
    assert scipy.stats.kstest(drawn, law.cdf).pvalue > 0.01


@pytest.mark.slow
def test_negative_binomial() -> None:
    drawn = rng(3).negative_binomial(5, 0.4, 4000)
    assert abs(drawn.mean() - 5 * 0.6 / 0.4) < 0.3


# -------------------------------------------------------------------------------- the state


def test_state_goes_with_copies() -> None:
    r = rng()
    r.normal(size=3)
    r.normal(size=3)
    copies = [copy.deepcopy(r), pickle.loads(pickle.dumps(r)), copy.copy(r)]
    state = r.state
    wanted = [r.normal(size=3) for _ in range(3)]
    for other in copies:
        assert_close([other.normal(size=3) for _ in range(3)], wanted, 1e-6)
    r.state = state
    assert_close([r.normal(size=3) for _ in range(3)], wanted, 1e-6)


def test_what_is_drawn_is_the_callers_own() -> None:
    r, other = rng(), rng()
    for _ in range(3):
        drawn = r.normal(size=3)
        assert drawn.flags.writeable
        assert drawn.flags.owndata
        assert np.array_equal(drawn, other.normal(size=3))
        drawn[:] = 0.0
        r.key()[:] = 0
        other.key()


def test_children_are_independent() -> None:
    r = rng()
    numbers = [float(child.random()) for child in [*r.spawn(3), r, *r.spawn(1)]]
    assert len(set(numbers)) == 5
    assert r.keys(4).shape == (4, 2)
    keyed = random.Generator(random.key(3))
    assert keyed.random() == random.Generator(random.key(3)).random()


def test_threads_share_a_generator() -> None:
    wanted = sorted(float(r.random()) for r in [rng(5)] for _ in range(400))
    shared, found = rng(5), []

    def work() -> None:
        found.extend([float(shared.random()) for _ in range(50)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == wanted


def test_the_default_generator() -> None:
    first = random.manual_seed(3).normal(size=2)
    assert np.array_equal(random.manual_seed(3).normal(size=2), first)
    assert np.array_equal(rng(3).normal(size=2), first)
    assert random.manual_seed(-1) is random.default_generator


# ---------------------------------------------------------------------- what is traced un-jitted


def test_each_call_draws_anew_by_one_program() -> None:
    r = rng()

    def network(weights: Any, x: Any) -> Any:
        hidden = fnp.tanh(x @ weights["in"])
        kept = fnp.where(r.bernoulli(0.5, hidden.shape), 2 * hidden, 0.0)
        return ((kept @ weights["out"] + r.normal(0.0, 0.1, 1)) ** 2).mean()

    weights = {"in": np.ones((4, 8), np.float32) / 8, "out": np.ones((8, 1), np.float32)}
    x = np.ones((16, 4), np.float32)
    values = set()

    def step() -> None:
        gradient, value = func.grad_and_value(network)(weights, x)
        values.add(float(value))
        for name, slope in gradient.items():
            weights[name] = weights[name] - np.float32(0.01) * slope

    for _ in range(2):
        step()
    before = ftrans.cache_info()
    for _ in range(100):
        step()
    after = ftrans.cache_info()
    assert after.misses == before.misses
    assert after.compiled - before.compiled <= 1
    assert len(values) == 102


def test_values_under_gradients_are_those_outside() -> None:
    loss = lambda r: lambda x: (x * r.normal(size=3)).sum()  # noqa: E731
    wanted = loss(rng())(X)
    gradient, value = func.grad_and_value(loss(rng()))(X)
    assert_close(value, wanted, 1e-6)
    assert_close(gradient, rng().normal(size=3), 1e-6)


def test_parameters_are_followed() -> None:
    r = rng()
    slope = func.grad(lambda m, s: r.normal(m, s, 4).sum(), argnums=(0, 1))(1.0, 2.0)
    noise = rng().normal(size=4)
    assert_close(slope[0], 4.0)
    assert_close(np.float32(slope[1]), noise.sum(), 1e-5)
    with pytest.raises(errors.MissingRuleError, match=r"poisson: (.|\n)*score function"):
        func.grad(lambda m: r.poisson(m, 3).sum() * 1.0)(1.0)


def test_a_rule_of_the_users_draws_anew() -> None:
    r = rng()

    class Dropped(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            mask = r.bernoulli(0.5, x.shape)
            return x * mask, mask

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(output[1])

        @staticmethod
        def backward(ctx: Any, ct: Any, _: Any) -> Any:
            return ct * ctx.saved_tensors[0]

    f = lambda x: (Dropped.apply(x)[0] * 1.0).sum()  # noqa: E731
    found = {tuple(func.grad(f)(np.ones(30, np.float32)).tolist()) for _ in range(4)}
    assert len(found) == 4


@pytest.mark.slow
def test_tensors() -> None:
    a = ftrans.tensor([2.0, 3.0], requires_grad=True)
    rng().gamma(a).sum().backward()
    key, point = rng().key(), np.float32([2.0, 3.0])
    _, slope = func.jvp(lambda a: random.gamma(key, a), (point,), (np.ones_like(point),))
    assert_close(a.grad.numpy(), slope, 1e-5)


# -------------------------------------------------------------------------------------- vmap

MODES = ("error", "different", "same")


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(MODES, MODES)))
def test_nested_vmaps_as_in_pytorch(outer: str, inner: str) -> None:
    """The numbers of distinct draws are those that PyTorch 2.13 gives."""
    r = rng()
    f = lambda a: func.vmap(lambda b: r.random() + a * b, randomness=inner)(X[:2])  # noqa: E731
    if "error" in (outer, inner):
        with pytest.raises(errors.UnsupportedError, match="while in randomness error mode"):
            func.vmap(f, randomness=outer)(np.zeros(3, "f4"))
        return
    found = func.vmap(f, randomness=outer)(np.zeros(3, "f4"))
    distinct = (3 if outer == "different" else 1) * (2 if inner == "different" else 1)
    assert found.shape == (3, 2)
    assert len(set(found.ravel().tolist())) == distinct
    assert r.state["position"] == 1


def test_each_example_draws_by_a_key_of_its_own() -> None:
    r, key = rng(), rng().key()
    draw = lambda x: x * r.normal(size=2)  # noqa: E731
    wanted = np.stack([random.normal(random.fold_in(key, i), (2,)) for i in range(5)])
    for size in (None, 2):
        r = rng()
        found = func.vmap(draw, randomness="different", chunk_size=size)(np.ones((5, 1), "f4"))
        assert_close(found, wanted, 1e-6)
    r = rng()
    same = func.vmap(draw, randomness="same")(np.ones((5, 1), "f4"))
    assert_close(same, np.stack([random.normal(key, (2,))] * 5), 1e-6)


def test_all_methods_tell_examples_apart() -> None:
    r = rng()
    f = lambda x: (r.permutation(9), r.gamma(2.0), r.choice(50, 9), r.key(), r.keys(2))  # noqa: E731
    for found in func.vmap(f, randomness="different")(X):
        assert len({tuple(np.ravel(x).tolist()) for x in found}) == 3
    unmapped = func.vmap(lambda x: r.normal(size=2), randomness="same", out_dims=None)(X)
    assert unmapped.shape == (2,)
    with pytest.raises(ValueError, match="out_dims is None"):
        func.vmap(lambda x: r.normal(size=2), randomness="different", out_dims=None)(X)


def test_vmap_and_gradients() -> None:
    r = rng()
    one = func.grad(lambda x: (x * r.normal(size=2)).sum())
    found = func.vmap(one, randomness="different")(np.zeros((3, 2), "f4"))
    assert len(set(found.ravel().tolist())) == 6
    with pytest.raises(errors.UnsupportedError, match="called random operation"):
        func.vmap(one)(np.zeros((3, 2), "f4"))
    many = func.vmap(lambda x: x * r.normal(), randomness="different")
    slope = func.grad(lambda x: (many(x) * many(x)).sum())(X)
    assert len(set(slope.tolist())) == 3
    each = lambda: func.vmap(one, randomness="different")(np.zeros((3, 2), "f4"))  # noqa: E731
    each()
    before = ftrans.cache_info()
    for _ in range(3):
        each()
    assert ftrans.cache_info().misses == before.misses


def test_jacobians() -> None:
    r = rng()
    f = lambda x: x * r.normal(size=3)  # noqa: E731
    with pytest.raises(errors.UnsupportedError, match=r"jacfwd\(lambda\): called random"):
        func.jacfwd(f)(X)
    noise = rng().normal(size=3)
    assert_close(func.jacfwd(f, randomness="same")(X), np.diag(noise), 1e-6)
    key = r.key()
    apart = func.jacfwd(lambda x: x + x * random.normal(key, (3,)), randomness="different")(X)
    assert_close(apart, np.diag(1 + random.normal(random.clone(key), (3,))), 1e-6)
    r.state = rng().state
    apart = func.jacfwd(lambda x: x * r.normal(size=1), randomness="different", chunk_size=2)(X)
    wanted = [random.normal(random.fold_in(rng().key(), i), ()) for i in range(3)]
    assert_close(apart, np.diag(np.array(wanted)), 1e-6)
    for jacobian in (func.jacrev(f), func.hessian(lambda x: (x * x * r.normal(size=3)).sum())):
        assert np.count_nonzero(jacobian(X)) == 3
    tree = {"a": X, "b": np.float32(2.0)}
    loss = lambda p: ({"y": p["a"] * p["b"]}, p["b"])  # noqa: E731
    found, aux = func.jacfwd(loss, has_aux=True, randomness="different")(tree)
    wanted_tree, _ = func.jacfwd(loss, has_aux=True)(tree)
    assert_close(found["y"]["a"], wanted_tree["y"]["a"])
    assert_close(found["y"]["b"], wanted_tree["y"]["b"])
    assert aux == 2.0


# ------------------------------------------------------------------------ what is traced once


def test_what_is_traced_once_must_be_given_a_key() -> None:
    r = rng()
    noisy = lambda *args: args[-1] + r.normal()  # noqa: E731
    calls: list[Callable[[], Any]] = [
        lambda: ftrans.jit(noisy)(X),
        lambda: ftrans.trace(noisy)(X),
        lambda: func.grad(ftrans.jit(lambda x: noisy(x).sum()))(X),
        lambda: ftrans.scan(lambda c, x: (noisy(c), None), np.float32(0), X),
        lambda: ftrans.fori_loop(0, 3, noisy, np.float32(0)),
        lambda: ftrans.while_loop(lambda c: c < 3, noisy, np.float32(0)),
        lambda: ftrans.while_loop(lambda c: c < r.random(), lambda c: c + 1, np.float32(0)),
        lambda: ftrans.cond(np.bool_(True), noisy, noisy, X),
        lambda: ftrans.jit(func.vmap(noisy, randomness="different"))(X),
        lambda: ftrans.jit(lambda x: x + r.keys(2).sum())(X),
        lambda: ftrans.jit(lambda x: [r.spawn(1), x][1])(X),
    ]
    before = r.state
    for call in calls:
        with pytest.raises(errors.UnsupportedError, match=r"a generator draws(.|\n)*Pass a key"):
            call()
    assert r.state == before
    found = ftrans.jit(lambda key, x: x + random.normal(key))(r.key(), X)
    assert_close(found, X + random.normal(rng().key()), 1e-6)


# --------------------------------------------------------------------------------- bad input


def test_bad_input() -> None:
    r = rng()
    for seed in (-1, 0.5, "a", [], [-1], [0.5], True, np.array([1.0])):
        with pytest.raises(errors.ArgumentError, match="default_rng: a seed is an int"):
            random.default_rng(seed)
    for size in (-1, 2.5, "a", (2, -1), (2, None)):
        with pytest.raises(errors.ArgumentError, match="a shape is a tuple of ints"):
            r.normal(size=size)
    with pytest.raises(errors.ShapeError, match="do not broadcast"):
        r.normal(np.zeros(2), np.zeros(3))
    with pytest.raises(errors.DTypeError, match="loc must be a number"):
        r.normal("a")
    with pytest.raises(errors.DTypeError, match="this is no dtype"):
        r.random(2, "floaty")
    with pytest.raises(errors.ArgumentError, match="low must be less than high"):
        r.integers(0)
    with pytest.raises(errors.ArgumentError, match="choice"):
        r.choice(3, 5, replace=False)
    with pytest.raises(errors.MissingAttributeError, match=r"x = rng\.permutation\(x\)"):
        r.shuffle(X)
    assert r.state["position"] <= 1
