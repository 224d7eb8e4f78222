"""Tracing along the path of earlier traces: the same programs, and scalars that vary."""

from __future__ import annotations

import functools
import gc
import operator
import threading
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func, nn
from ftrans.config import config
from ftrans.func.staging import known_inputs, stage
from ftrans.ir import Literal, Program, trail
from tests.helpers import assert_close
from tests.unit.clean import collect

X = np.linspace(0.1, 0.8, 8)
M = np.arange(6.0).reshape(2, 3) + 1


def traced(function: Callable[..., Any], *args: Any, once: bool = False) -> Program:
    return stage("f", function, known_inputs(args), once=once).program


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "operators": (lambda x: (x * x - 2.0) / (1.0 + x) ** 2 + 3, (X,)),
    "reflected": (lambda x: 1.0 - (2 / x) + np.float64(3.0) * x, (X,)),
    "comparisons": (lambda x: fnp.where(x > 0.5, x, -0.0) + fnp.where(x < 0.2, 0.0, x), (X,)),
    "elementary": (lambda x: fnp.sin(x) + np.cos(x) + fnp.exp(x).tanh(), (X,)),
    "reductions": (lambda m: m.sum(0) + fnp.mean(m, axis=0, keepdims=True) + m.max(), (M,)),
    "products": (lambda m: (m @ m.T).sum() + fnp.einsum("ij,ij->i", m, m), (M,)),
    "arrays": (lambda x: X * x + x * X + x @ X + fnp.dot(X, x), (X,)),
    "views": (lambda m: m[0] + m[:, ::-1][1] + m.reshape(3, 2).T.ravel()[:3], (M,)),
    "joining": (lambda x: fnp.concatenate([x, x[:2]]) + fnp.stack([x[0], x[1]]).sum(), (X,)),
    "integers": (lambda n: n // 2 + n * n % 3, (np.arange(5),)),
    "softmax": (lambda m: fnp.log_softmax(m, axis=-1) + fnp.var(m), (M,)),
    "several results": (lambda m: [part * 2 for part in fnp.split(m, 3, axis=1)], (M,)),
    "constants of functions": (
        lambda m: (
            fnp.diag(m[0])
            + fnp.take_along_axis(m, fnp.argsort(m, axis=1), axis=1)[:1].T
            + fnp.vander(m[1], 3)
        ).sum(1),
        (M,),
    ),
    "named results": (lambda m: fnp.linalg.qr(m).R + fnp.sort(m, axis=1)[:, :2].sum(), (M,)),
    "branches on values": (lambda x: x * 2 if x.sum() > 3 else x * 3, (X,)),
    "writes": (lambda x: _written(x), (X,)),
    "a weak argument": (lambda x, c: x * c + c, (X, 2.0)),
}


def _written(x: Any) -> Any:
    y = x * 2
    y[1:3] = 7.0
    y[0] = y[4] + 1
    return y + x


@pytest.mark.smoke
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_path_makes_no_difference(name: str) -> None:
    function, args = FUNCTIONS[name]
    trail.forget_trails()
    first = traced(function, *args)
    assert traced(function, *args) is first
    assert traced(function, *args) is first
    assert traced(function, *args, once=True) == first, "a frame without a memory agrees"
    trail.forget_trails()
    assert traced(function, *args) is first


def test_arguments_that_compare_equal_are_told_apart() -> None:
    calls = [lambda x, v=v: fnp.copysign(x, v) for v in (0.0, -0.0)]
    for _ in range(3):
        found = [func.vjp(call, X)[0] for call in calls]
        assert np.array_equal(np.signbit(found[0]), np.zeros(8, bool))
        assert np.array_equal(np.signbit(found[1]), np.ones(8, bool))
        chosen = [func.vjp(lambda x, v=v: fnp.where(x > 0.5, v, v), X)[0] for v in (1, True)]
        assert [out.dtype.name for out in chosen] == ["int32", "bool"]
        assert traced(lambda x: fnp.sum(x, keepdims=1), M).output_types[0].shape == (1, 1)
        assert traced(lambda x: fnp.sum(x, axis=1), M).output_types[0].shape == (2,)
        assert traced(lambda x: fnp.sum(x, axis=0), M).output_types[0].shape == (3,)


def test_one_place_may_call_with_several_types() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.tanh(x) * 2)

    for _ in range(3):
        for x in (X, X.astype("float32"), M, np.float64(0.5)):
            gradient = func.grad(f)(x)
            assert gradient.dtype == x.dtype
            with jax.enable_x64(True):
                assert_close(gradient, jax.grad(lambda v: jnp.sum(jnp.tanh(v) * 2))(x), 1e-6)


def test_a_view_is_known_as_one_when_it_is_taken_over() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        view = y[1:]
        y[0] = 1.0
        y[2] *= 5.0
        return (y.sum() + view.sum()) * 1.0

    expected = np.full(X.shape, 4.0)
    expected[0], expected[2] = 0.0, 20.0
    for _ in range(3):
        assert_close(func.grad(f)(X), expected)


def test_each_of_several_views_is_known_as_one_when_they_are_taken_over() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        first, second = fnp.split(y, 2)
        first *= 3.0
        y[-1] = 0.0
        return (y * y).sum() + second.sum()

    expected = 8 * X + 2.0
    expected[:4] = 72 * X[:4]
    expected[-1] = 0.0
    for _ in range(3):
        assert_close(func.grad(f)(X), expected)


def test_constants_of_a_function_are_those_of_its_arguments() -> None:
    def f(x: Any, k: int, reverse: bool) -> Any:
        picked = fnp.diagonal(fnp.vander(x, 4, increasing=reverse), k)
        return (picked * fnp.take(x, np.arange(4)[: picked.shape[0]])).sum()

    for _ in range(3):
        for k in (0, -1, 1):
            for reverse in (True, False):
                with jax.enable_x64(True):
                    expected = jax.grad(
                        lambda x, k=k, reverse=reverse: jnp.sum(
                            (v := jnp.diagonal(jnp.vander(x, 4, increasing=reverse), k))
                            * x[: v.shape[0]]
                        )
                    )(X)
                assert_close(func.grad(f)(X, k, reverse), expected, 1e-12)


def test_what_draws_is_not_taken_over() -> None:
    rng = ftrans.random.default_rng(0)

    def f(x: Any) -> Any:
        return nn.dropout(x, 0.5, rng=rng).sum() + x[0]

    found = {func.grad(f)(X).tobytes() for _ in range(40)}
    assert len(found) > 30


def test_a_copy_is_not_taken_for_the_view_that_it_was_before() -> None:
    """The equations are the same whether a value is a view, a copy, or a copy of a view."""

    def f(x: Any, first: bool, second: bool) -> Any:
        y = x * 1.0
        turned = y.T.copy() if first else y.T
        line = turned.reshape(-1)  # a view of a copy, and a copy of what is no line in memory
        if second:
            line = line.copy()
        line *= 3.0
        return (y * y).sum() + (turned * turned).sum()

    x = np.arange(1.0, 7.0).reshape(2, 3)
    for _ in range(3):
        for first, second in [(True, False), (False, False), (True, True), (False, True)]:
            factor = 20.0 if first and not second else 4.0
            gradient, value = func.grad_and_value(f)(x, first, second)
            assert_close(value, f(x, first, second))
            assert_close(gradient, factor * x)


def test_a_function_that_reads_values_is_run_again() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(x * float(fnp.max(x.detach())))

    for scale in (1.0, 2.0, 3.0):
        assert_close(func.grad(f)(X * scale), np.full(8, 0.8 * scale))


def test_operators_that_a_library_calls() -> None:
    def f(m: Any) -> Any:
        rows = jax.tree.map(operator.mul, [m, m[0]], [m[1], m])
        total = functools.reduce(operator.add, [*rows, m[0], m])
        return (total @ m.T).sum() + (m / m[0]).sum()

    def theirs(m: Any) -> Any:
        total = m * m[1] + m[0] * m + m[0] + m
        return (total @ m.T).sum() + (m / m[0]).sum()

    for scale in (1.0, 2.0, 3.0):
        with jax.enable_x64(True):
            expected = jax.grad(theirs)(M * scale)
        assert_close(func.grad(f)(M * scale), expected, 1e-9)


def _loop_of_sums(x: Any) -> Any:
    y = x
    for _ in range(20):  # it becomes warm on the way
        y = sum((y, x), x * 0.5) * 0.3
    return sum(y)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lambda x: sum([x * 1.0, x * x, x + 2]),
        lambda: lambda x: sum(map(np.sin, [x, x * x]), start=x * 0),
        lambda: lambda x: sum(fnp.sin(x)) + functools.reduce(operator.mul, [x, x, x]),
        lambda: lambda x: sorted([x[0] * 2, x[1]], key=lambda v: (v * 1.5).sum() * 0 == 1)[0],
        lambda: types.FunctionType(_loop_of_sums.__code__.replace(co_name="own"), globals()),
    ],
)
def test_builtins_that_call_operators_are_at_one_place(make: Any) -> None:
    """Python 3.11 calls them by other instructions once the code is warm."""
    function = make()
    first = traced(function, X)
    assert all(traced(function, X) is first for _ in range(20))


def test_a_mask_is_looked_at_again() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(x[x > 0.5] ** 2)

    for x in (X, X[::-1].copy(), X / 2, X * 2):
        assert_close(func.grad(f)(x), np.where(x > 0.5, 2 * x, 0.0))


def test_an_axis_is_looked_at_again() -> None:
    for scale in (1.0, 2.0, 1.0):
        value = func.vjp(lambda m: m.sum(axis=(m.sum() > 40).astype("int32")), M * scale)[0]
        assert_close(value, (M * scale).sum(axis=int(M.sum() * scale > 40)))


def test_lines_are_those_of_the_function_that_is_traced() -> None:
    def first(x: Any) -> Any:
        return fnp.sin(x)

    def second(x: Any) -> Any:
        return fnp.sin(x)

    for function in (first, second, first):
        (location,) = traced(function, X).locations
        assert location is not None
        assert location.function.endswith(f".{function.__name__}")


def test_a_call_without_results_is_recorded() -> None:
    for _ in range(2):
        found = func.vmap(lambda row: (func.vmap(lambda x: None)(row), row * 2))(M)
        assert found[0] is None
        assert_close(found[1], M * 2)


def test_the_tree_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_entries", 4)
    most = 0
    for k in range(300):
        power = k / 10
        found = func.grad(lambda x, p=power: fnp.sum(x**p))(X)
        assert_close(found, power * X ** (power - 1))
        most = max(most, trail._count)
    assert most <= 4 * trail._STEPS_PER_PROGRAM


def test_forgetting_in_the_middle_of_a_trace() -> None:
    def f(x: Any, forget: bool) -> Any:
        y = fnp.sin(x)
        if forget:
            ftrans.cache_clear()
        return fnp.sum(y * y)

    expected = 2 * np.sin(X) * np.cos(X)
    for forget in (False, True, False, True, True):
        assert_close(func.grad(f)(X, forget), expected)


def test_threads_share_the_tree() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for k in range(60):
                rate = (seed * k) % 7 / 3
                found = func.grad(lambda x, r=rate: fnp.sum(fnp.sin(x * r) * x))(X)
                assert_close(found, np.sin(X * rate) + X * rate * np.cos(X * rate), 1e-12)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_trace_leaves_no_cycles() -> None:
    gradient = func.grad(lambda x: fnp.sum(fnp.sin(x) @ X) * 2.0)
    for transformed in (gradient, func.hessian(lambda x: fnp.sum(x**3)), func.vmap(fnp.sin)):
        transformed(X)
        collect()  # also what other tests have left
        gc.disable()
        try:
            for _ in range(5):
                transformed(X)
            assert gc.collect() == 0
        finally:
            gc.enable()


# ------------------------------------------------------------------------------ scalars that vary


def programs_of(call: Callable[[Any], Any], values: Any) -> int:
    """Returns how many programs the calls made."""
    ftrans.cache_clear()
    ftrans.config.skip_python = False  # what is proven of them is not traced
    try:
        for value in values:
            call(value)
    finally:
        ftrans.config.skip_python = True
    return ftrans.cache_info().misses


RATES = [0.1 / (k + 1) for k in range(20)]


def test_a_rate_that_changes_makes_one_more_program() -> None:
    def step(rate: float) -> Any:
        found = func.grad(lambda x: fnp.sum(x**2) * rate)(X)
        assert_close(found, 2 * X * rate)

    assert programs_of(step, RATES) == 2
    assert programs_of(step, [0.5] * 20) == 1, "a constant stays one"


@pytest.mark.smoke
def test_all_that_varies_is_found_at_once() -> None:
    def step(rate: float) -> Any:
        def loss(x: Any, y: Any) -> Any:
            moved = x - rate * y
            return fnp.sum(fnp.clip(moved, -rate, 1.0 - rate) * rate) + fnp.sum(y * (rate + 1))

        def theirs(x: Any, y: Any) -> Any:
            moved = x - rate * y
            return jnp.sum(jnp.clip(moved, -rate, 1.0 - rate) * rate) + jnp.sum(y * (rate + 1))

        with jax.enable_x64(True):
            expected = jax.grad(theirs, (0, 1))(X, X / 3)
        for ours, wanted in zip(func.grad(loss, (0, 1))(X, X / 3), expected, strict=True):
            assert_close(ours, wanted)

    assert programs_of(step, RATES) == 2


def test_scalars_that_were_equal_may_come_apart() -> None:
    def step(rates: tuple[float, float]) -> Any:
        first, second = rates
        found = func.grad(lambda x: fnp.sum(x * first) + fnp.sum(x * x * second))(X)
        assert_close(found, first + 2 * X * second)

    assert programs_of(step, [(0.1, 0.1), (0.2, 0.2), (0.3, 0.4), (0.5, 0.6)]) == 2


def test_equal_scalars_are_constants_each() -> None:
    def f(x: Any, rate: float) -> Any:
        first, second = fnp.multiply(X, rate), fnp.multiply(X, rate)
        return fnp.sum(x * first * second * np.asarray(first).sum())

    for rate in (0.5, 0.25, 0.125):
        assert_close(func.grad(f)(X, rate), X**2 * rate**3 * X.sum())


def test_a_loop_in_python_keeps_its_constants() -> None:
    def horner(x: Any) -> Any:
        y = x * 0
        for c in (1.0, 2.0, 3.0):
            y = y * x + c
        return fnp.sum(y)

    for _ in range(3):
        assert_close(func.grad(horner)(X), 2 * X + 2)
    staged = stage("f", horner, known_inputs([X]))
    assert not staged.captured, "they differ within a trace, not between traces"


def test_nested_transforms_share_one_input() -> None:
    def step(rate: float) -> Any:
        inner = func.grad(lambda x: fnp.sum(fnp.sin(x * rate)))
        found = func.vmap(lambda row: func.jvp(inner, (row,), (row,))[1])(M)
        assert_close(found, -(rate**2) * np.sin(M * rate) * M, 1e-9)

    assert programs_of(step, RATES) <= 7, "three levels, once with each kind of program"


@pytest.mark.parametrize("mode", ["scan", "cond"])
def test_bodies_of_loops_and_branches(mode: str) -> None:
    def step(rate: float) -> Any:
        if mode == "scan":
            last, _ = ftrans.scan(lambda c, _: (c * rate, None), X, None, length=3)
            assert_close(last, X * rate**3, 1e-12)
        else:
            found = ftrans.cond(np.bool_(True), lambda x: x * rate, lambda x: x + rate, X)
            assert_close(found, X * rate)

    step(0.1)
    few = programs_of(step, RATES[:4])
    assert programs_of(step, RATES) == few


def test_exponents_vary_as_well() -> None:
    base = np.array([0.0, 0.5, 2.0])

    def power(exponent: float) -> Any:
        value, slope = func.value_and_grad(lambda x: fnp.sum(x**exponent))(base)
        assert_close(value, np.sum(base**exponent))
        assert_close(slope, exponent * base ** (exponent - 1))
        second = func.hessian(lambda x: fnp.sum(x**exponent))(base)
        assert_close(np.diag(second), exponent * (exponent - 1) * base ** (exponent - 2))

    assert programs_of(power, [2.5, 3.5, 4.5, 5.5, 6.25]) == programs_of(power, [2.5, 3.5])


def test_integers_and_signed_zeros_vary_as_well() -> None:
    n = np.arange(5)

    def add(k: int) -> Any:
        value, _ = func.vjp(lambda x: (x * n + k, x), X[:5], has_aux=True)[:2]
        assert_close(value, X[:5] * n + k)

    assert programs_of(add, range(6)) == 2

    def product(zero: float) -> Any:
        value = func.vjp(lambda x: x * zero, X)[0]
        assert np.array_equal(np.signbit(value), np.full(8, np.signbit(zero)))

    assert programs_of(product, [0.0, -0.0, 1.0, 0.0, -0.0, np.nan, np.inf]) == 2


def test_jit_and_trace_keep_constants() -> None:
    for rate in (0.5, 0.25, 0.125):
        program = ftrans.trace(lambda x, r=rate: x * r)(X)
        assert len(program.inputs) == 1
        literals = [a for e in program.equations for a in e.operands if isinstance(a, Literal)]
        assert [literal.value for literal in literals] == [rate]
        assert_close(ftrans.jit(lambda x, r=rate: x * r)(X), X * rate)


def test_values_on_demand_see_the_scalar() -> None:
    seen = []

    def f(x: Any, rate: float) -> Any:
        y = x.sum() * rate
        seen.append(float(y.detach()))
        return y if y > 1.0 else y * 2

    for rate in (0.1, 0.2, 0.9):
        value, gradient = func.value_and_grad(f)(X, rate)
        factor = 1 if X.sum() * rate > 1 else 2
        assert_close(value, X.sum() * rate * factor)
        assert_close(gradient, np.full(8, rate * factor))
    assert_close(seen, [X.sum() * r for r in (0.1, 0.2, 0.9)])
