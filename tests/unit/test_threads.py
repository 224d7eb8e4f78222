"""Eight threads that trace and transform at once give what one gives."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.ir import ArrayType, Equation, Literal, Params, Program, is_tracing
from ftrans.ir.steps import Step
from ftrans.ir.trail import forget_trails
from ftrans.primitives import mul_p, sin_p
from tests.helpers import assert_close

THREADS = 8


@pytest.fixture(autouse=True)
def switch_often() -> Any:
    """Lets threads take turns every few bytecodes, which is when races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Runs `work(number)` in threads that start together; returns results, or raises an error."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def network(w: Any, x: Any) -> Any:
    hidden = fnp.tanh(w @ x)
    carry, ys = ftrans.scan(lambda c, h: (fnp.sin(c) + h, c * h), hidden.sum(), hidden)
    if carry > 0:
        return carry * (ys**2).sum()
    return ftrans.cond(x.sum() > 0, fnp.exp, fnp.cos, carry) + hidden.sum()


def transforms(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [
        func.grad(f),
        func.grad(f, (0, 1)),
        func.hessian(f, 1),
        lambda w, x: func.jvp(f, (w, x), (w, x)),
        lambda w, x: func.vjp(f, w, x)[1](np.float64(1.0)),
        lambda w, x: func.grad(lambda w, x: (func.grad(f, 1)(w, x) ** 2).sum())(w, x),
        lambda w, x: func.linearize(f, w, x)[1](w, x),
        lambda w, x: func.vmap(lambda s: fnp.sin(s * w).sum() * x)(x),
    ]


def operands(number: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(number)
    return draw.normal(size=(3, 2)), draw.normal(size=2)


def assert_same(got: Any, expected: Any) -> None:
    import jax

    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_close(ours, theirs, 1e-12)


@pytest.mark.smoke
def test_one_function_shared_by_all_threads() -> None:
    expected = [[t(*operands(n)) for t in transforms(network)] for n in range(THREADS)]
    for _ in range(3):
        ftrans.cache_clear()
        shared = transforms(network)
        got = at_once(lambda n, shared=shared: [t(*operands(n)) for t in shared])
        assert_same(got, expected)
    assert not is_tracing()


def test_a_function_of_its_own_for_each_thread() -> None:
    def scaled(number: int) -> Callable[..., Any]:
        return lambda w, x: network(w * (1.0 + 0.1 * number), x) + fnp.sin(x * number).sum()

    expected = [[t(*operands(n)) for t in transforms(scaled(n))] for n in range(THREADS)]
    ftrans.cache_clear()
    got = at_once(lambda n: [t(*operands(n)) for t in transforms(scaled(n))])
    assert_same(got, expected)


@pytest.mark.parametrize("execution", ["interpret", "compile"])
def test_both_roads_in_threads(execution: str) -> None:
    before = ftrans.config.execution
    ftrans.config.execution = execution
    try:
        f = lambda x: fnp.sum(fnp.tanh(x) ** 3)  # noqa: E731
        xs = [np.linspace(-1.0, 1.0, n + 2) for n in range(THREADS)]
        expected = [func.hessian(f)(x) for x in xs]
        ftrans.cache_clear()
        assert_same(at_once(lambda n: func.hessian(f)(xs[n])), expected)
        jitted = ftrans.jit(func.grad(f))
        expected = [func.grad(f)(x) for x in xs]
        assert_same(at_once(lambda n: jitted(xs[n])), expected)
        assert_same(at_once(lambda n: jitted(xs[0])), [expected[0]] * THREADS)
    finally:
        ftrans.config.execution = before


def test_exceptions_in_some_threads_do_not_disturb_the_others() -> None:
    class Broken(Exception):
        pass

    def f(number: int) -> Callable[[Any], Any]:
        def g(x: Any) -> Any:
            y = fnp.sin(x) * x
            if number % 2:
                func.grad(lambda z: fnp.stack([z, y]).sum())(y)
                raise Broken(number)
            return func.grad(lambda z: z * z * y)(x)

        return g

    def work(number: int) -> Any:
        outcomes = []
        for i in range(20):
            x = np.float64(0.1 * i + number)
            try:
                outcomes.append(float(func.grad(f(number))(x)))
            except Broken as error:
                outcomes.append(error.args)
            assert not is_tracing()
        return outcomes

    expected = [work(number) for number in range(THREADS)]
    assert at_once(work) == expected


def test_equal_programs_are_one_whatever_thread_traced_them() -> None:
    for attempt in range(20):

        def f(x: Any, attempt: int = attempt) -> Any:
            for _ in range(5):
                x = fnp.sin(x) * x + 0.125 * attempt
            return x.sum()

        programs = at_once(lambda n, f=f: ftrans.trace(func.grad(f))(np.ones(3)))
        assert all(p == programs[0] for p in programs)
        assert len({hash(p) for p in programs}) == 1


def test_a_captured_array_is_shared_by_threads() -> None:
    data = np.linspace(0.0, 1.0, 50)

    def work(number: int) -> float:
        total = 0.0
        for i in range(30):
            scale = np.float64(number + i)
            total += float(func.grad(lambda s: (fnp.sin(s * data) * data).sum())(scale))
        return total

    expected = [work(number) for number in range(THREADS)]
    np.testing.assert_allclose(at_once(work), expected, rtol=1e-12)
    assert data.flags.writeable
    data[0] = 1.0


def test_a_traced_value_cannot_cross_into_another_thread() -> None:
    caught: list[BaseException] = []

    def f(x: Any) -> Any:
        def use() -> None:
            try:
                fnp.sin(x)
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return x * x

    assert_close(func.grad(f)(np.float64(2.0)), 4.0)
    (error,) = caught
    assert isinstance(error, ftrans.errors.LeakedTracerError)
    assert "another thread" in str(error)


def test_settings_and_the_cache_while_others_trace() -> None:
    """Clearing the cache while programs are made loses nothing but time."""
    f = lambda x: fnp.sum(fnp.sin(x) ** 3)  # noqa: E731
    x = np.linspace(0.0, 1.0, 4)
    expected = func.hessian(f)(x)

    def work(number: int) -> Any:
        for _ in range(15):
            if number == 0:
                ftrans.cache_clear()
                assert ftrans.cache_info().entries >= 0
            else:
                assert_close(func.hessian(f)(x), expected)
        return True

    assert all(at_once(work))


def test_programs_are_interned_once_though_threads_race() -> None:
    """The same few programs, made by all threads at the same moment, many times over."""

    def make(size: int) -> list[Program]:
        t = ArrayType((size,), "float64")
        programs = []
        for j in range(10):
            factor = Literal(float(j), "float64")
            equations = [Equation(sin_p, (0,), Params(), (t,))]
            equations += [Equation(mul_p, (i, factor), Params(), (t,)) for i in range(1, 4)]
            programs.append(Program.make([t], equations, [3]))
        return programs

    for size in range(1, 100):
        made = at_once(lambda number, size=size: make(size))
        for same in zip(*made, strict=True):
            assert len({id(program) for program in same}) == 1
            assert len({id(program.structure) for program in same}) == 1


def test_trails_are_forgotten_while_others_are_begun() -> None:
    begun = threading.Event()

    def work(number: int) -> None:
        if number:
            try:
                for size in range(1, 120):
                    x = np.full(number * 120 + size, 2.0)
                    assert_close(func.grad(lambda x: (x * x).sum())(x), 2 * x)
            finally:
                begun.set()
        while not (number or begun.is_set()):
            forget_trails()

    at_once(work, 4)


def test_steps_let_go_of_functions_while_others_are_added() -> None:
    step = Step(None, None, None, 0)
    holding = Params(rule=type("Rule", (), {"holds_functions": True})())
    t = ArrayType((), "float64")

    def work(number: int) -> None:
        for i in range(3000):
            key = number, i
            step.add(Step(key, Equation(sin_p, (0,), holding, (t,)), None, 1))
            step.forget_functions()

    at_once(work, 4)
    assert len(step.others or ()) < 40
