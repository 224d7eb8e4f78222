"""Budgets of memory: what XLA allocates stays within them, and no number changes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ArgumentError
from ftrans.func.budget import parsed
from tests.helpers import assert_close, on_road

RNG = np.random.default_rng(0)
WEIGHTS = [(RNG.normal(size=(32, 32)) / 6).astype("f4") for _ in range(4)]
BATCH = RNG.normal(size=(512, 32)).astype("f4")


def deep(ws: Any, x: Any) -> Any:
    for w in ws:
        x = x + fnp.tanh(fnp.sin(fnp.tanh(x @ w)))
    return (x**2).mean()


def temporary(f: Any, *args: Any) -> int:
    """Returns the bytes that XLA says that it allocates besides arguments and results."""
    return ftrans.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.fixture(scope="module")
def default() -> int:
    return temporary(func.value_and_grad(deep), WEIGHTS, BATCH)


def test_what_xla_allocates_stays_within_the_budget(default: int) -> None:
    budget = int(0.75 * default)  # of so small a model two thirds are the least
    gradient = func.value_and_grad(deep, memory=budget)
    assert gradient.plan is None
    found = [f(WEIGHTS, BATCH) for f in (func.value_and_grad(deep), gradient)]
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        assert_close(y, x)
    assert gradient.plan.default == default
    assert temporary(gradient, WEIGHTS, BATCH) == gradient.plan.peak <= budget
    assert 0 < gradient.plan.share < 1
    head, *lines = str(gradient.plan).splitlines()
    assert "without a budget" in head
    assert len(lines) == len(gradient.plan.again) > 0
    assert all("operations, " in line and "(deep) to line" in line for line in lines)


def test_a_budget_that_is_wide_changes_nothing(default: int) -> None:
    gradient = func.grad(deep, memory="1 GB")
    plain = func.grad(deep)(WEIGHTS, BATCH)
    np.testing.assert_array_equal(gradient(WEIGHTS, BATCH)[0], plain[0])
    assert gradient.plan.again == ()
    assert gradient.plan.peak == gradient.plan.default
    assert "nothing is computed again" in str(gradient.plan)


@pytest.mark.slow
def test_what_cannot_be_names_the_least(default: int) -> None:
    gradient = func.value_and_grad(deep, memory=1000)
    with pytest.raises(ArgumentError, match="least found") as caught:
        gradient(WEIGHTS, BATCH)
    least = int(str(caught.value).rpartition("memory=")[2].partition(",")[0])
    assert least < default
    func.value_and_grad(deep, memory=least)(WEIGHTS, BATCH)


def test_what_a_checkpoint_of_each_layer_takes_can_be_asked_for() -> None:
    def network(layer: Any) -> Any:
        def loss(ws: Any, x: Any) -> Any:
            for w in ws:
                x = layer(w, x)
            return (x**2).sum()

        return loss

    layer = lambda w, x: fnp.tanh(fnp.sin(x @ w) * fnp.cos(x @ w))  # noqa: E731
    args = [RNG.normal(size=(32, 32)).astype("f4") / 6 for _ in range(8)], BATCH[:32]
    budget = temporary(func.grad(network(func.checkpoint(layer))), *args)
    assert budget < temporary(func.grad(network(layer)), *args) / 2
    gradient = func.grad(network(layer), memory=budget)
    assert_close(gradient(*args)[0], func.grad(network(layer))(*args)[0])
    assert gradient.plan.peak <= budget


@pytest.mark.slow
def test_loops_compute_their_steps_again() -> None:
    def loss(w: Any, x: Any) -> Any:
        step = lambda s, _: (fnp.tanh(fnp.sin(fnp.tanh(s @ w) @ w) @ w), None)  # noqa: E731
        return ftrans.scan(step, x, None, length=6)[0].sum()

    w = WEIGHTS[0]
    whole = temporary(func.grad(loss), w, BATCH)
    gradient = func.grad(loss, memory=whole // 2)
    assert_close(gradient(w, BATCH), func.grad(loss)(w, BATCH))
    assert gradient.plan.peak <= whole // 2
    assert temporary(gradient, w, BATCH) == gradient.plan.peak


@pytest.mark.slow
def test_what_is_made_of_other_arguments_counts() -> None:
    def loss(w: Any, xs: Any) -> Any:
        state = xs[0] * 0
        for x in xs:
            state = fnp.tanh(fnp.tanh(state @ w + x) @ w)
        return (state**2).mean()

    args = WEIGHTS[0], RNG.normal(size=(8, 512, 32)).astype("f4")
    budget = int(0.55 * temporary(func.grad(loss), *args))
    gradient = ftrans.jit(func.grad(loss, memory=budget))
    assert_close(gradient(*args), func.grad(loss)(*args))
    assert temporary(func.grad(loss, memory=budget), *args) <= budget


def test_interpreted_in_other_transforms_and_with_aux(default: int) -> None:
    def with_aux(ws: Any, x: Any) -> Any:
        return deep(ws, x), {"x": x, "n": 3}

    budget = int(0.8 * default)
    gradient = func.grad_and_value(with_aux, has_aux=True, memory=budget)
    with on_road("interpret"):
        slopes, (value, aux) = gradient(WEIGHTS, BATCH)
    assert aux["n"] == 3
    assert_close(value, deep(WEIGHTS, BATCH))
    plain = func.grad(deep)
    assert_close(slopes[0], plain(WEIGHTS, BATCH)[0])
    mapped = func.vmap(func.grad(deep, memory=budget), (None, 0))(WEIGHTS, BATCH[None])
    assert_close(mapped[0][0], plain(WEIGHTS, BATCH)[0])
    product = lambda g: func.grad(lambda x: (g(WEIGHTS, x)[0] ** 2).sum())(BATCH)  # noqa: E731
    assert_close(product(func.grad(deep, memory=budget)), product(plain))


def test_odd_programs() -> None:
    for f in (lambda x: x, lambda x: 2.0 * x, lambda x: fnp.sin(x) * 0 + 1):
        assert_close(func.grad(f, memory="1 kB")(2.0), func.grad(f)(2.0))
    double = ftrans.external(lambda x: x * 2, lambda x: x, vjp=lambda primals, out, ct: (2 * ct,))
    f = lambda x: (double(fnp.sin(x)) ** 2).sum()  # noqa: E731
    assert_close(func.grad(f, memory="1 MB")(BATCH), func.grad(f)(BATCH))


def test_sizes() -> None:
    for text, nbytes in {
        "200 MB": 200e6,
        "1.5kB": 1500,
        "2 GiB": 2**31,
        ".5 mb": 5e5,
        "7B": 7,
        "1TB": 1e12,
        "1 KiB": 1024,
    }.items():
        assert parsed("f", text) == nbytes
    assert parsed("f", 3) == parsed("f", 3.0) == parsed("f", np.int64(3)) == 3
