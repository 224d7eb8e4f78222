"""`grad(create_graph=True)` of what is pending: recorded where it can be, and as a walk has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans import Tensor, func, tensor
from ftrans import numpy as fnp
from ftrans.autograd import engine, grad
from ftrans.errors import ArgumentError, GraphError
from tests.helpers import assert_close

AT = np.array([0.5, 1.25, -0.75])


def leaf(value: Any = AT) -> Tensor:
    """Returns f64, a leaf that requires grad."""
    return tensor(value, dtype="float64", requires_grad=True)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "execution", "interpret")


def runs_of(call: Callable[[], Any]) -> int:
    """Returns how many programs a warm call runs."""
    for _ in range(3):
        call()
    before = ftrans.cache_info().interpreted
    call()
    return ftrans.cache_info().interpreted - before


def test_an_equation_with_second_derivatives_is_one_program() -> None:
    x, w = leaf(), leaf([0.3, -0.2, 0.7])

    def residual(x: Any, w: Any) -> Any:
        return fnp.tanh(x * w) * w

    def step() -> Any:
        w.grad = None
        u = residual(x, w)
        (du,) = grad(u.sum(), x, create_graph=True)
        (d2u,) = grad(du.sum(), x, create_graph=True)
        ((d2u + u) ** 2).sum().backward()
        return w.grad.numpy()

    def loss(w: Any) -> Any:
        slope = func.grad(lambda x: residual(x, w).sum())
        curve = func.grad(lambda x: slope(x).sum())
        return ((curve(AT) + residual(AT, w)) ** 2).sum()

    assert_close(step(), func.grad(loss)(w.numpy(force=True)), 1e-12)
    assert runs_of(step) == 1


def test_inner_steps_are_one_program() -> None:
    w = leaf()

    def loss(w: Any) -> Any:
        return (fnp.sin(w) * w).sum()

    def step() -> Any:
        w.grad, fast = None, w
        for _ in range(3):
            (slope,) = grad(loss(fast), fast, create_graph=True)
            fast = fast - 0.1 * slope
        loss(fast).backward()
        return w.grad.numpy()

    def after(w: Any) -> Any:
        for _ in range(3):
            w = w - 0.1 * func.grad(loss)(w)
        return loss(w)

    assert_close(step(), func.grad(after)(AT), 1e-12)
    assert runs_of(step) == 1


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "several roots and gradients": lambda x, y: grad(
        [x * y, (x**2).sum()], [y, x], [y * 2, None], create_graph=True
    ),
    "a result": lambda x, y: _of_result(x, y, lambda a, b: [a]),
    "a result and a leaf before it": lambda x, y: _of_result(x, y, lambda a, b: [a, x]),
    "results behind each other": lambda x, y: _of_result(x, y, lambda a, b: [b, a]),
    "a leaf that is not reached": lambda x, y: grad(
        (x**3).sum(), [y, x], create_graph=True, allow_unused=True
    ),
    "zeros": lambda x, y: grad((x**3).sum(), [y, x], create_graph=True, materialize_grads=True),
    "a leaf twice": lambda x, y: grad((x * y).sum(), [x, x], create_graph=True),
    "a root twice": lambda x, y: grad([z := (x * y).sum(), z], x, create_graph=True),
    "a part that was run": lambda x, y: _looked_at(x, y),
    "a write in place": lambda x, y: grad((x * 2).mul_(y).sum(), [x, y], create_graph=True),
    "third derivatives": lambda x, y: _again(
        _again(grad((x**4 * y).sum(), x, create_graph=True), x), x
    ),
    "a hook on a result": lambda x, y: _hooked(x, y),
    "a gradient that is kept": lambda x, y: _kept(x, y),
    "under no_grad": lambda x, y: _quietly(x, y),
}


def _of_result(x: Any, y: Any, sinks: Any) -> Any:
    a = fnp.sin(x * y)
    b = a * x
    return grad((b * a * y).sum(), sinks(a, b), create_graph=True)


def _looked_at(x: Any, y: Any) -> Any:
    a = fnp.sin(x * y)
    a.tolist()
    return grad((a * a * x).sum(), [x, y], create_graph=True)


def _again(slopes: Any, x: Any) -> Any:
    return grad(slopes[0].sum(), x, create_graph=True)


def _hooked(x: Any, y: Any) -> Any:
    a = fnp.sin(x * y)
    a.register_hook(lambda g: g * 3)
    return grad((a * a).sum(), x, create_graph=True)


def _kept(x: Any, y: Any) -> Any:
    a = fnp.sin(x * y)
    a.retain_grad()
    return (*grad((a * a).sum(), x, create_graph=True), a.grad)


def _quietly(x: Any, y: Any) -> Any:
    a = (x**2 * y).sum()
    with torch.no_grad():
        return grad(a, x, create_graph=True)


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_a_walk_has_it(name: str, monkeypatch: Any) -> None:
    def found() -> list[Any]:
        x, y = leaf(), leaf([0.9, -1.1, 0.4])
        slopes = [g for g in CASES[name](x, y) if g is not None]
        flags = [g.requires_grad for g in slopes]
        sum([(g * g * x).sum() for g in slopes]).backward()
        nothing = [g is None for g in CASES[name](leaf(), leaf([0.9, -1.1, 0.4]))]
        ends = [None if z.grad is None else z.grad.tolist() for z in (x, y)]
        return [[g.tolist() for g in slopes], flags, nothing, ends]

    recorded = found()
    monkeypatch.setattr(engine, "slopes_of", lambda *given: None)
    walked = found()
    assert recorded[1:3] == walked[1:3]
    assert_close(np.array(recorded[0]), np.array(walked[0]), 1e-12)
    assert [e is None for e in recorded[3]] == [e is None for e in walked[3]]
    for mine, other in zip(recorded[3], walked[3], strict=True):
        if mine is not None:
            assert_close(np.array(mine), np.array(other), 1e-12)


def test_bad_input_is_an_error() -> None:
    x, y = leaf(), leaf()
    constant = tensor(AT) * 2
    with pytest.raises(GraphError, match="does not require grad"):
        grad((x * constant).sum(), constant, create_graph=True)
    with pytest.raises(ArgumentError, match="input 0 is no tensor"):
        grad((x * 2).sum(), AT, create_graph=True)
    with pytest.raises(GraphError, match="index 1, appears to not have been used"):
        grad((x * 2).sum(), [x, y], create_graph=True)


def test_what_a_gradient_does_not_need_is_not_gone_back_through_with_it() -> None:
    x, w, other = leaf(), leaf([0.3, -0.2, 0.7]), leaf()

    def step() -> list[Any]:
        x.grad = w.grad = other.grad = None
        y = (x * w + fnp.exp(other)).sum()
        (slope,) = grad(y, x, create_graph=True)
        ((slope * slope).sum() - 1).backward()
        y.backward()
        return [w.grad.numpy(), x.grad.numpy(), other.grad.numpy()]

    assert_close(step(), [2 * w.numpy(force=True) + AT, w.numpy(force=True), np.exp(AT)], 1e-12)
