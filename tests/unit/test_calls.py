"""How many Python functions run in one warm call: what can be said of speed without a clock.

A count that falls is lowered here; one that rises has to be worth it.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import nn
from ftrans.interpreters import value_and_grad

X = np.arange(1.0, 5.0)
WARM = 6


class Cube(ftrans.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * x * x * ct


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "check", False)
    monkeypatch.setattr(ftrans.config, "execution", "interpret")


class Counted:
    """Notes the functions that are entered between `with` and its end."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _note(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self.calls.append(frame.f_code.co_qualname)

    def __enter__(self) -> None:
        self.calls.clear()
        gc.disable()  # JAX has functions called when garbage is collected, whenever that is
        sys.setprofile(self._note)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        gc.enable()
        self.calls.pop()  # this method


def of_operation(operation: Callable[[Any], Any]) -> list[str]:
    """Returns what one operation on a traced value calls, in a function that was traced before."""
    counted = Counted()

    def loss(x: Any) -> Any:
        with counted:
            y = operation(x)
        return y.sum()

    gradient = ftrans.func.grad(loss)
    for _ in range(WARM):
        gradient(X)
    return counted.calls


@pytest.mark.parametrize(
    ("operation", "most"),
    [
        pytest.param(lambda x: x * 2.0, 5, id="x * 2.0"),
        pytest.param(lambda x: np.sin(x), 6, id="np.sin"),
        pytest.param(lambda x: np.add(x, 1.0), 7, id="np.add"),
        pytest.param(lambda x: np.sum(x), 13, id="np.sum"),
        pytest.param(lambda x: fnp.sin(x), 3, id="fnp.sin"),
        pytest.param(lambda x: fnp.add(x, 1.0), 5, id="fnp.add"),
        pytest.param(lambda x: fnp.sum(x), 9, id="fnp.sum"),
        pytest.param(lambda x: fnp.sort(x), 10, id="fnp.sort"),
        pytest.param(lambda x: fnp.diag(x), 10, id="fnp.diag"),
        pytest.param(lambda x: fnp.split(x, 2)[0], 21, id="fnp.split"),
        pytest.param(lambda x: Cube.apply(x), 17, id="Function.apply"),
    ],
)
def test_a_warm_operation(operation: Callable[[Any], Any], most: int) -> None:
    calls = of_operation(operation)
    assert 1 < len(calls) <= most, calls


def of_tensor(operation: Callable[[Any], Any]) -> list[str]:
    """Returns what one operation on a tensor calls that was recorded before."""
    counted = Counted()
    x = ftrans.tensor(X, requires_grad=True)
    for _ in range(WARM):
        y = x * 1.0  # which begins the tape
        with counted:
            y = operation(y)
        y.sum().backward()
    return counted.calls


@pytest.mark.parametrize(
    ("operation", "most"),
    [
        pytest.param(lambda x: x * 2.0, 5, id="x * 2.0"),
        pytest.param(lambda x: x.sin(), 4, id="x.sin"),
        pytest.param(lambda x: fnp.sin(x), 7, id="fnp.sin"),
        pytest.param(lambda x: np.sin(x), 7, id="np.sin"),
        pytest.param(lambda x: x.sum(), 12, id="x.sum"),
        pytest.param(lambda x: fnp.sum(x), 14, id="fnp.sum"),
        pytest.param(lambda x: np.sum(x), 16, id="np.sum"),
        pytest.param(lambda x: nn.softmax(x, 0), 14, id="nn.softmax"),
        pytest.param(lambda x: x.reshape(2, 2), 28, id="x.reshape"),
        pytest.param(lambda x: x[1:], 28, id="x[1:]"),
        pytest.param(lambda x: x.split(2)[0], 60, id="x.split"),
        pytest.param(lambda x: x.max(0)[0], 20, id="x.max"),
        pytest.param(lambda x: fnp.stack([x, x]), 30, id="fnp.stack"),
    ],
)
def test_a_warm_operation_on_a_tensor(operation: Callable[[Any], Any], most: int) -> None:
    calls = of_tensor(operation)
    assert 1 < len(calls) <= most, calls


@pytest.mark.parametrize("of", [of_operation, of_tensor])
def test_a_number_that_is_another_each_time(of: Callable[..., list[str]]) -> None:
    """It is an input, which comes before the operation, and is broadcast for it."""
    rates = itertools.count(0.5)
    calls = of(lambda x: x * next(rates))
    assert 1 < len(calls) <= 22, calls


def test_a_warm_gradient() -> None:
    gradient = ftrans.func.grad(lambda x: (np.sin(x) * x).sum())
    for _ in range(WARM):
        gradient(X)
    counted = Counted()
    with counted:
        gradient(X)
    assert 2 < len(counted.calls) <= 92, counted.calls


def test_a_gradient_without_python() -> None:
    function = lambda x: (np.sin(x) * x).sum()  # noqa: E731
    for _ in range(20):
        ftrans.func.grad(function)(X)
    counted = Counted()
    with counted:
        ftrans.func.grad(function)(X)
    assert function.__qualname__ not in counted.calls
    assert 2 < len(counted.calls) <= 48, counted.calls


@pytest.mark.parametrize("function", [np.sin, np.negative])
def test_functions_of_numpy_find_their_step(function: Any) -> None:
    """Through NumPy the user's frame lies further down than through `ftrans.numpy`."""
    assert "Trail.record" not in of_operation(lambda x: function(x))


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp"])
def test_time_grows_as_the_leaves(transform: str) -> None:
    """Some of it is spent in functions of JAX, which no count of calls sees."""

    def total(xs: Any) -> Any:
        return xs[0] * 2.0

    def seconds(count: int) -> float:
        xs = [float(i) for i in range(count)]
        run = {
            "grad": lambda: ftrans.func.grad(total)(xs),
            "vjp": lambda: ftrans.func.vjp(total, xs)[1](1.0),
            "jvp": lambda: ftrans.func.jvp(total, (xs,), (xs,)),
        }[transform]
        run()
        found = []
        for _ in range(3):
            start = thread_time()
            run()
            found.append(thread_time() - start)
        return min(found)

    # eight times the leaves, where each looked at all others some fifty times the seconds
    assert seconds(2000) < 24 * seconds(250)


def test_no_garbage_is_collected_while_a_program_is_transformed() -> None:
    def long(x: Any) -> Any:
        for i in range(300):
            x = np.sin(x) * (i + 0.5)
        return x.sum()

    program = ftrans.trace(long)(X)
    before = sum(generation["collections"] for generation in gc.get_stats())
    made = value_and_grad(program, (True,))
    assert sum(generation["collections"] for generation in gc.get_stats()) - before <= 1
    assert len(made) > 600
    assert gc.isenabled()
    with pytest.raises(ValueError, match="shorter"):
        value_and_grad(program, ())
    assert gc.isenabled()
    gc.disable()
    try:
        value_and_grad(program, (True,), False)
        assert not gc.isenabled()
    finally:
        gc.enable()
