"""Values that are used after the function that made them has returned."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import LeakedTracerError
from ftrans.ir import Tracer
from tests.helpers import assert_close

V = np.array([1.0, 2.0, 3.0])


class Same(Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x * 1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct


class Opaque(Same):
    @staticmethod
    def forward(x: Any) -> Any:
        return np.copy(np.asarray(x))


def kept(transform: Any = func.grad, at: Any = V) -> Any:
    """Returns a value that a function has left: twice its argument."""
    left = []

    def f(x: Any) -> Any:
        left.append(x * 2)
        return (x * x).sum()

    transform(f)(at)
    return left[0]


def test_the_best_loss_of_a_training_loop() -> None:
    best: Any = float("inf")
    losses = []

    def loss(w: Any, data: Any) -> Any:
        nonlocal best
        value = ((w - data) ** 2).sum()
        losses.append(value)
        if value < best:
            best = value
        return value

    w, expected = np.zeros(3), []
    for _ in range(4):
        expected.append(((w - V) ** 2).sum())
        w -= 0.1 * func.grad(loss)(w, V)  # in place: what was left is of the time before
    assert_close(np.asarray(losses), expected)
    assert_close(best, expected[-1])
    assert float(best) == best.item()
    assert f"{best:.3f}" == f"{expected[-1]:.3f}"
    assert str(best) == str(expected[-1])
    assert repr(best) == f"Traced(f64[], {np.array2string(np.asarray(best))})"
    assert best < losses[0]
    assert min(losses) == best


@pytest.mark.parametrize(
    "transform",
    [
        func.grad,
        lambda f: lambda x: func.vjp(f, x),
        lambda f: lambda x: func.jvp(f, (x,), (x,)),
        lambda f: lambda x: func.linearize(f, x),
        func.hessian,
        lambda f: func.jacrev(f),
    ],
)
def test_it_is_a_constant_in_numpy_and_elsewhere(transform: Any) -> None:
    value = kept(transform)
    for found in (
        value,
        np.asarray(value),
        value + 0,
        np.positive(value),
        fnp.positive(value),
        value[:],
        np.zeros(3) + value,
        func.grad(lambda x: (x * value).sum())(V),
        func.vmap(lambda x: x * value[0] / 2)(2 * V / V[0])[0] * V,
        ftrans.jit(lambda x: x * value)(np.ones(3)),
        ftrans.jit(lambda x: x * 1)(value),
        func.grad(lambda x: (x * x).sum() / 2)(value),
        func.jvp(lambda x: x * 1, (V,), (value,))[1],
        func.vmap(lambda x: x * 1)(value),
        ftrans.scan(lambda c, x: (c, x), value, value)[1],
        ftrans.cond(True, lambda x: x * 1, lambda x: x, value),
        ftrans.external(np.copy, lambda x: x)(value),
        Same.apply(value),
        Opaque.apply(value),
    ):
        assert_close(found, 2 * V)
    assert_close(func.grad(lambda x: (x * value).sum() + (value * value).sum())(V), 2 * V)


def test_a_container_as_before() -> None:
    assert isinstance(func.grad(lambda x: (x * x).sum())(kept()), np.ndarray)
    value = kept(at=jax.numpy.asarray(V, "float32"))
    assert isinstance(value + 1, jax.Array)
    assert isinstance(func.grad(lambda x: (x * x).sum())(value), jax.Array)


def test_it_is_copied_pickled_and_written_to() -> None:
    value = kept()
    assert_close(copy.deepcopy(value), 2 * V)
    restored = pickle.loads(pickle.dumps({"w": value}))
    assert type(restored["w"]) is np.ndarray
    assert_close(restored["w"], 2 * V)
    array = np.asarray(value)
    array[0] = 0.0
    assert_close(value, 2 * V)
    value[0] = 0.0
    assert_close(value, [0.0, 4.0, 6.0])


def test_inside_another_function_it_is_a_value_of_that_one() -> None:
    left: Any = []

    def outer(x: Any) -> Any:
        func.grad(lambda y: left.append(y * x) or y * y)(3.0)
        return left[-1] * x

    assert_close(func.grad(outer)(2.0), 12.0)  # of 3 x^2
    assert_close(left[-1], 6.0)
    assert_close(func.vmap(func.grad(outer))(V), 6 * V)
    with pytest.raises(LeakedTracerError):
        float(left[-1])
    assert_close(func.grad(ftrans.jit(outer))(2.0), 12.0)
    with pytest.raises(LeakedTracerError):
        float(left[-1])


def test_only_what_is_unknown_stays_an_error() -> None:
    left: Any = []

    def f(x: Any, table: Any) -> Any:
        left.append((x * 2, (table * 2).sum(), x + table.sum()))
        return x

    func.vmap(f, in_dims=(0, None))(V, V)
    mapped, known, mixed = left[0]
    assert_close(known, 12.0)
    for value in (mapped, mixed):
        with pytest.raises(LeakedTracerError):
            float(value)


def test_what_is_unknown_stays_an_error_beside_what_was_asked_for() -> None:
    """What was asked for is an input of the program that evaluates the rest."""
    left: Any = []

    def f(x: Any, table: Any) -> Any:
        total = fnp.sin(table).sum()
        assert float(total) < 3
        mixed = x + total
        left.append((mixed, mixed * 2, total * 2))
        return x

    func.vmap(f, in_dims=(0, None))(V, V)
    *mixed, known = left[0]
    assert_close(known, 2 * np.sin(V).sum())
    for value in mixed:
        with pytest.raises(LeakedTracerError):
            float(value)


def test_what_calls_python_is_not_called_again() -> None:
    calls, left = [], []

    def kernel(x: Any) -> Any:
        calls.append(1)
        return x * 2

    double = ftrans.external(kernel, lambda x: x, transpose=lambda ct: ct * 2)
    func.grad(lambda x: left.append((double(x), x + 1)) or double(x).sum())(V)
    before = len(calls)
    assert_close(left[0][1], V + 1)
    assert len(calls) == before


def test_nothing_but_the_value_is_kept() -> None:
    arrays, left = [], []

    class Data(np.ndarray):
        pass

    def loss(w: Any) -> Any:
        value = (w * w).sum()
        left.append(value)
        return value

    for _ in range(3):
        w = np.ones(1000).view(Data)
        arrays.append(weakref.ref(w))
        func.grad(loss)(w)
        del w
    gc.collect()
    assert [ref() for ref in arrays] == [None] * 3
    assert_close(np.asarray(left), [1000.0] * 3)
    assert left[0].frame is not left[1].frame
    values = [weakref.ref(x) for x in left]
    left.clear()
    assert [ref() for ref in values] == [None] * 3


@pytest.mark.parametrize("when", ["young", "old"])
def test_values_are_found_however_old_they_are(when: str) -> None:
    left = []

    def f(x: Any) -> Any:
        left.extend([x, x * 2])
        if when == "old":
            gc.collect()
        left.append(x * 3)
        return x.sum()

    func.grad(f)(V)
    for factor, value in zip((1.0, 2.0, 3.0), left, strict=True):
        assert_close(value, factor * V)


def test_a_function_that_leaves_nothing_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("ftrans.func.staging.settle", refuse)

    def f(x: Any) -> Any:
        parts = [fnp.sin(x) * i for i in range(3)]
        y = sum(part[1:].sum() for part in parts)
        return y + ftrans.scan(lambda c, v: (c + v * V.sum(), None), 0.0, x)[0]

    for _ in range(3):
        func.grad(f)(V)
        func.hessian(f)(V)
        func.vmap(func.grad(lambda x, y: (x * y).sum()), in_dims=(0, None))(np.ones((2, 3)), V)
        ftrans.jit(func.grad(f))(V)


def test_the_heap_is_searched_once_for_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, left = [], []
    search = gc.get_referrers

    def counted(*objects: Any) -> Any:
        searches.append(objects)
        return search(*objects)

    monkeypatch.setattr(gc, "get_referrers", counted)

    def leaves_at_once(x: Any) -> Any:
        left.append(x * 2)
        return x.sum()

    def leaves_later(x: Any) -> Any:
        if wanted:
            left.append(x * 2)
        return x.sum()

    for function, expected in ((leaves_at_once, 0), (leaves_later, 1)):
        searches.clear()
        for wanted in (False, False, True, True, False, True):
            left.clear()
            func.grad(function)(V)
            for value in left:
                assert_close(value, 2 * V)
            assert len(left) == (wanted or function is leaves_at_once)
        assert len(searches) == expected


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_copies_and_what_was_written_to_are_found(warm: bool, nested: bool) -> None:
    left: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        y += 1.0
        z = y[1:]
        z *= 3.0
        left[:] = [x, y, z, copy.copy(y), fnp.asarray(x), x[0] * 2.0]
        if nested:
            func.grad(lambda v: y.__iadd__(v)[0] * 1.0)(x * 1.0)
        return x.sum()

    transform = func.grad(f)
    for _ in range(3 if warm else 1):
        transform(V)
    y = np.array([3.0, 15.0, 21.0])
    after = y + V if nested else y
    for value, expected in zip(left, (V, after, after[1:], y, V, 2.0), strict=True):
        assert_close(value, expected)


def test_what_jax_traces_stays_an_error() -> None:
    left: list[Tracer] = []
    jax.jit(lambda x: func.grad(lambda y: left.append(y * 2) or y * y)(x))(2.0)
    with pytest.raises(LeakedTracerError):
        float(left[0])


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("warm", [False, True])
def test_an_argument_that_is_gone_says_where_its_function_was_called(
    fails: bool, warm: bool
) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(x)
        if fails:
            raise KeyError
        return x * 2.0

    def call() -> None:
        func.vmap(f)(V)

    for _ in range(1 + warm):
        seen.clear()
        try:
            call()
        except KeyError:
            assert fails
    with pytest.raises(LeakedTracerError) as error:
        seen[0] + 1.0
    line = call.__code__.co_firstlineno + 1
    place = f"{__file__}:{line} ({call.__qualname__})"
    said = f"  value: f64[], an argument of vmap(f), called at {place}\n"
    assert said in str(error.value)


def test_who_called_is_not_kept() -> None:
    """Of the Python frame that is looked at for its place, nothing is left when it has returned."""

    class Big:
        pass

    def call(x: Any) -> weakref.ref[Any]:
        held = Big()
        func.grad(lambda x: (x * x).sum())(x)
        return weakref.ref(held)

    def traced() -> set[int]:
        return {id(x) for x in gc.get_objects() if type(x) is Tracer}

    gc.collect()
    gc.disable()
    try:
        before = traced()  # as of errors in other tests
        assert [call(V)() for _ in range(3)] == [None] * 3
        assert traced() == before
    finally:
        gc.enable()
