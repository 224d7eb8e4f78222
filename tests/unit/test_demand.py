"""What is evaluated while tracing, for `float(x)` and its like, is not evaluated again.

It is counted in primitives that are interpreted, and in calls of Python functions.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.autograd import Function
from ftrans.ir import frame as frame_of
from tests.helpers import on_road

held = fnp.stop_gradient
X = np.linspace(0.2, 1.1, 4)


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with on_road("auto"):
        yield


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[dict[str, int]]:
    """Counts how often primitives are interpreted in a block, by their names."""
    counts = dict.fromkeys(names, 0)
    module = importlib.import_module("ftrans.runtime.run")
    evaluate = module.evaluate

    def counting(xp: Any, program: Any, arrays: Any) -> Any:
        for equation in program.equations:
            if equation.primitive.name in counts:
                counts[equation.primitive.name] += 1
        return evaluate(xp, program, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(module, "evaluate", counting)
        yield counts


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-9)


def slope(f: Callable[[Any], Any], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Returns the gradient by central differences."""
    found = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    return np.stack([np.asarray(y) for y in found])


def scaled(demand: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a loss that asks for a value in the middle."""

    def loss(x: Any) -> Any:
        y = fnp.exp(fnp.sin(x * 1.1))
        demand(y)
        return (fnp.cos(y) * fnp.tanh(y)).sum()

    return loss


DEMANDS: dict[str, Callable[[Any], Any]] = {
    "float": lambda y: float(held(y)[1]),
    "bool": lambda y: bool(held(y).sum() > 0),
    "int": lambda y: int(fnp.argmax(y)),
    "print": str,
}


@pytest.mark.parametrize("kind", DEMANDS)
def test_a_gradient_takes_what_was_evaluated(kind: str, monkeypatch: Any) -> None:
    loss = scaled(DEMANDS[kind])
    for x in (X, X + 0.1, X - 0.1):
        with counted(monkeypatch, "sin", "exp", "cos", "tanh") as calls:
            found = func.grad(loss)(x)
        # the sine and the cosine once more, as the slopes of one another
        assert calls == {"sin": 2, "exp": 1, "cos": 2, "tanh": 1}
        assert_close(found, slope(loss, x))


def test_the_result_of_a_rule_is_what_was_evaluated(monkeypatch: Any) -> None:
    """Its derivative is made of the result, though nothing else is that comes after."""

    def loss(x: Any) -> Any:
        y = fnp.exp(x)
        assert float(held(y)[0]) > 0
        return (y * 1.5).sum()

    for _ in range(3):
        with counted(monkeypatch, "exp") as calls:
            assert_close(func.grad(loss)(X), 1.5 * np.exp(X))
        assert calls == {"exp": 1}


def test_a_demand_starts_from_what_an_earlier_one_has_evaluated(monkeypatch: Any) -> None:
    def loss(x: Any) -> Any:
        for _ in range(6):
            x = fnp.sin(x)
            if held(x)[0] > 0.5:
                x = x * 2
        return x.sum()

    for x in (X, X + 0.3):
        with counted(monkeypatch, "sin") as calls:
            func.value_and_grad(loss)(x)
        assert calls == {"sin": 6}
        assert_close(func.grad(loss)(x), slope(loss, x))


TRANSFORMS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "jacrev": func.jacrev,
    "jacfwd": func.jacfwd,
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (np.ones_like(x),))[1],
    "vjp": lambda f: lambda x: func.vjp(f, x)[1](1.0)[0],
    "linearize": lambda f: lambda x: func.linearize(f, x)[1](np.ones_like(x)),
    "hessian": func.hessian,
    "reverse over forward": lambda f: func.jacrev(func.jacfwd(f)),
    "grad of grad": lambda f: func.grad(lambda x: (func.grad(f)(x) ** 2).sum()),
    "jvp of vjp": lambda f: (
        lambda x: func.jvp(lambda y: func.vjp(f, y)[1](1.0)[0], (x,), (np.ones_like(x),))[1]
    ),
    "third": lambda f: func.grad(lambda x: (func.hessian(f)(x) ** 2).sum()),
    "hvp": lambda f: lambda x: func.hvp(f, (x,), (np.ones_like(x),))[1][0],
    "vmap inside": lambda f: func.grad(
        lambda x: func.vmap(lambda a: a * f(x))(np.arange(3.0)).sum()
    ),
    "vmap around a gradient": lambda f: func.grad(
        lambda x: (func.vmap(lambda a: a * func.grad(f)(x))(np.arange(3.0)) ** 2).sum()
    ),
}


@pytest.mark.parametrize("execution", ["interpret", "compile"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_derivatives_of_all_kinds_are_as_without_demands(transform: str, execution: str) -> None:
    """Also those of what was evaluated, at every level."""
    of = TRANSFORMS[transform]

    def asking(x: Any) -> Any:
        y = fnp.exp(fnp.sin(x * 1.1))
        if held(y)[0] > 0:
            y = y * fnp.cos(x)
        assert float(held(y).sum()) != 0
        return (y * fnp.tanh(y)).sum()

    def silent(x: Any) -> Any:
        y = fnp.exp(fnp.sin(x * 1.1)) * fnp.cos(x)
        return (y * fnp.tanh(y)).sum()

    with on_road(execution):
        for x in (X, X + 0.2):
            assert_close(of(asking)(x), of(silent)(x))


def test_the_inner_of_two_gradients_is_asked_for(monkeypatch: Any) -> None:
    """What is evaluated further out has derivatives, and is taken as well."""

    def outer(x: Any) -> Any:
        slopes = func.grad(lambda y: fnp.exp(y).sum())(fnp.sin(x))
        return slopes.sum() if float(held(slopes)[0]) > 0 else -slopes.sum()

    for _ in range(3):
        with counted(monkeypatch, "sin") as calls:
            found = func.grad(outer)(X)
        assert calls == {"sin": 1}
        assert_close(found, slope(outer, X))


def counting_square() -> tuple[Callable[[Any], Any], list[int]]:
    """Returns an external function with a rule, and a list with how often it was called."""
    calls = [0]

    def square(x: Any) -> Any:
        calls[0] += 1
        return x * x

    rule = lambda primals, out, ct: (2 * primals[0] * ct,)  # noqa: E731
    return ftrans.external(square, lambda x: x, vjp=rule), calls


def test_a_python_function_is_called_once(monkeypatch: Any) -> None:
    square, calls = counting_square()

    def loss(x: Any) -> Any:
        y = square(fnp.sin(x))
        assert float(held(y)[0]) >= 0
        z = square(y)
        assert float(held(z)[0]) >= 0
        return (z * y).sum()

    for number in range(1, 4):
        found = func.grad(loss)(X)
        assert calls == [2 * number]
        assert_close(found, slope(lambda x: np.sum(np.sin(x) ** 6), X))


def test_writes_in_place_between_demands() -> None:
    def loss(x: Any) -> Any:
        y = fnp.sin(x)
        assert float(held(y)[0]) < 1
        y[1:] *= 3.0
        assert float(held(y)[1]) > 0
        y[0] = y[2] * y[3]
        return (y * float(held(y)[0]) + y**2).sum()

    def fixed(x: Any) -> Any:
        y = np.sin(x) * np.array([1.0, 3.0, 3.0, 3.0])
        y[0] = y[2] * y[3]
        return (y * factor + y**2).sum()

    for x in (X, X + 0.1):
        factor = float(9 * np.sin(x[2]) * np.sin(x[3]))
        assert_close(func.grad(loss)(x), slope(fixed, x))


def test_a_demand_that_fails_leaves_nothing() -> None:
    fails = [True]

    def fragile(x: Any) -> Any:
        if fails[0]:
            raise RuntimeError("not yet")
        return x * x

    square = ftrans.external(fragile, lambda x: x, vjp=lambda p, out, ct: (2 * p[0] * ct,))

    def loss(x: Any) -> Any:
        y = fnp.sin(x)
        z = square(y)
        try:
            float(held(z)[0])
        except RuntimeError:
            return y.sum()
        return z.sum()

    for fail in (True, False, True, False, False):
        fails[0] = fail
        expected = np.cos(X) if fail else 2 * np.sin(X) * np.cos(X)
        assert_close(func.grad(loss)(X), expected)


def test_the_same_operations_with_and_without_demands() -> None:
    asks: list[bool] = []

    def loss(x: Any) -> Any:
        y = fnp.sin(x)
        if asks[-1]:
            str(y)
        z = fnp.exp(y)
        if asks[-2]:
            str(z)
        return (y * z).sum()

    expected = slope(lambda x: (np.sin(x) * np.exp(np.sin(x))).sum(), X)
    for first in (True, False, True):
        for second in (False, True, False):
            asks += [second, first]
            assert_close(func.grad(loss)(X), expected)


def test_threads_have_their_own_values() -> None:
    loss = scaled(DEMANDS["float"])
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        for _ in range(20):
            found[number] = func.grad(loss)(X + number / 10)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert_close(found[number], slope(loss, X + number / 10))


def test_what_was_evaluated_is_not_changed_from_outside() -> None:
    """The array that is asked for is another one than is computed with."""

    def loss(x: Any) -> Any:
        y = fnp.sin(x) * 1.0
        array = np.array(held(y).tolist())
        array[:] = 0
        return (y * y).sum()

    assert_close(func.grad(loss)(X), 2 * np.sin(X) * np.cos(X))


def test_what_depends_on_an_example_is_not_known() -> None:
    """An opaque method is shown an example where there is no value, which is forgotten."""

    class Opaque(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return np.asarray(x) * 2.0

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2.0 * ct

    rows = np.stack([X, X + 1])
    found = func.vmap(func.grad(lambda x: Opaque.apply(fnp.sin(x)).sum()))(rows)
    assert_close(found, 2 * np.cos(rows))


def test_what_evaluates_is_made_once_where_functions_share_it(monkeypatch: Any) -> None:
    """It is kept, also where an equal one was run before and all of its price is known."""
    made = []
    part_of = frame_of.part_of
    monkeypatch.setattr(frame_of, "part_of", lambda *args: made.append(1) or part_of(*args))

    def first(x: Any) -> Any:
        y = fnp.sin(x * 1.25)
        return (y * float(held(y)[0])).sum()

    def second(x: Any) -> Any:
        y = fnp.sin(x * 1.25)
        return (y * float(held(y)[0])).sum() * 2

    for f in (first, second):
        for _ in range(3):
            func.grad(f)(X)
    assert len(made) == 2
