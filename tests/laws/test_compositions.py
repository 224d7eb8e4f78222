"""Every ordered pair and triple of transforms, against JAX; finite differences where it differs.

A program is a function over the names `np` and `lax`, of one array f64[3]. A transform makes of it
another such function, so that any sequence of them can be stacked. What JAX traces is evaluated
with NumPy (`tests/oracle/jaxpr.py`), and control flow is spelled out for it (`tests/laws/fuzz.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close, sampled
from tests.laws.fuzz import OURS, THEIRS
from tests.oracle import jaxpr

MATRIX = np.array([[0.5, -1.1, 0.3], [0.8, 0.2, -0.6], [-0.4, 0.9, 0.7]])
POINT = np.array([0.6, -0.9, 1.3])


# --------------------------------------------------------------------------------------- programs


def polynomial(np: Any, lax: Any, x: Any) -> Any:
    return x * x[::-1] + np.sin(x) * 0.5


def layers(np: Any, lax: Any, x: Any) -> Any:
    hidden = np.tanh(MATRIX @ x)
    return np.softmax(hidden * x) * np.sum(hidden**2)


def branches(np: Any, lax: Any, x: Any) -> Any:
    y = lax.cond(
        np.sum(x) > 0.3137, lambda x: np.exp(-x * x) * x[0], lambda x: np.cos(x) * np.sum(x), x
    )
    return np.where(y > 0.1137, y * x, np.sin(y) + x)


def recurrence(np: Any, lax: Any, x: Any) -> Any:
    last, ys = lax.scan(
        lambda c, e: (np.tanh(c * e + x[0]), c * np.sin(e)), np.sum(x), x, reverse=True
    )
    return ys + last * np.cumsum(x)


def iteration(np: Any, lax: Any, x: Any) -> Any:
    _, y = lax.while_loop(
        lambda s: (s[0] < 3) & (np.sum(s[1] ** 2) < 6.0137),
        lambda s: (s[0] + 1, s[1] + np.sin(s[1]) * x),
        (0, x),
        steps=3,
        bounded=True,
    )
    return y


def picking(np: Any, lax: Any, x: Any) -> Any:
    y = np.at(np.sort(x))[1].add(np.max(x) * x[0])
    return np.concatenate([y[1:], np.prod(x)[None]]) * np.take(x, np.argsort(x))


PROGRAMS = [polynomial, layers, branches, recurrence, iteration, picking]
SMALL = [polynomial, branches, picking]


# ------------------------------------------------------------------------------------- transforms


Function = Callable[[Any], Any]


def total(np: Any, f: Function) -> Function:
    return lambda x: np.sum(np.sin(f(x)) * 1.3)


def grad(np: Any, T: Any, f: Function) -> Function:
    return lambda x: T.grad(total(np, f))(x)


def jvp(np: Any, T: Any, f: Function) -> Function:
    def apply(x: Any) -> Any:
        out, tangent = T.jvp(f, (x,), (np.cos(x),))
        return 0.2 * out + tangent

    return apply


def vjp(np: Any, T: Any, f: Function) -> Function:
    def apply(x: Any) -> Any:
        out, pullback = T.vjp(f, x)
        return pullback(np.sin(out))[0] + out * pullback(x)[0]

    return apply


def vmap(np: Any, T: Any, f: Function) -> Function:
    def apply(x: Any) -> Any:
        # over an argument in its last axis, over a closure with the outer x, and over half of it
        first = T.vmap(f, (1,), 1)(np.stack([x, 0.5 * x], axis=1))
        second = T.vmap(lambda s: f(s * x), (0,))(x[:2])
        return first[:, 1] + np.sum(second, axis=0)

    return apply


def jit(np: Any, T: Any, f: Function) -> Function:
    return T.jit(f)


def linearize(np: Any, T: Any, f: Function) -> Function:
    def apply(x: Any) -> Any:
        out, push = T.linearize(f, x)
        return push(np.cos(x)) + 0.2 * out * push(x)

    return apply


def hessian(np: Any, T: Any, f: Function) -> Function:
    return lambda x: T.hessian(total(np, f))(x) @ np.cos(x)


TRANSFORMS = [grad, jvp, vjp, vmap, jit, linearize, hessian]
ORDER = {"vmap": 0, "jit": 0, "hessian": 2}
PAIRS = list(itertools.product(TRANSFORMS, repeat=2))
TRIPLES = list(itertools.product(TRANSFORMS, repeat=3))


def name(stack: Any) -> str:
    """Names a stack as it is written: the outermost first."""
    return "(".join(transform.__name__ for transform in reversed(stack))


def stacked(names: dict[str, Any], program: Any, stack: Any) -> Function:
    np, lax, T = names["np"], names["lax"], names["T"]

    def f(x: Any) -> Any:
        return program(np, lax, x)

    for transform in stack:
        f = transform(np, T, f)
    return f


@cache
def theirs(program: Any, stack: Any) -> np.ndarray:
    return np.asarray(jaxpr.evaluate(stacked(THEIRS, program, stack))(POINT))


def assert_agrees(program: Any, stack: Any) -> None:
    expected = theirs(program, stack)
    got = stacked(OURS, program, stack)(POINT)
    scale = 1.0 + np.abs(expected).max()
    assert_close(got / scale, expected / scale, 1e-9, f"{name(stack)} of {program.__name__}")


def order(stack: Any) -> int:
    return sum(ORDER.get(transform.__name__, 1) for transform in stack)


# ------------------------------------------------------------------------------------------ tests


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_transform(program: Any) -> None:
    for transform in TRANSFORMS:
        assert_agrees(program, (transform,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "start"),
    [
        pytest.param(stack, start, marks=[pytest.mark.slow] if (number + start) % 3 else [])
        for number, stack in enumerate(PAIRS)
        for start in range(3)
    ],
    ids=lambda value: name(value) if isinstance(value, tuple) else str(value),
)
def test_every_pair(stack: Any, start: int) -> None:
    """Of every third program; the slow tests take the others."""
    for program in (PROGRAMS if order(stack) < 3 else SMALL)[start::3]:
        assert_agrees(program, stack)


@pytest.mark.slow
@pytest.mark.parametrize("stack", sampled(TRIPLES[::2], 13), ids=name)
def test_every_second_triple(stack: Any) -> None:
    number = TRIPLES.index(stack)
    if order(stack) > 3:
        program = polynomial
    elif order(stack) == 3:
        program = SMALL[number % len(SMALL)]
    else:
        program = PROGRAMS[number % len(PROGRAMS)]
    assert_agrees(program, stack)


@pytest.mark.smoke
def test_a_stack_of_four() -> None:
    assert_agrees(layers, (grad, vmap, jvp, jit))
    assert_agrees(polynomial, (linearize, vjp, vmap, grad))


@pytest.mark.slow
@pytest.mark.parametrize("program", [layers, recurrence], ids=lambda p: p.__name__)
@pytest.mark.parametrize("stack", sampled([s for s in PAIRS if order(s) < 3][::3], 3), ids=name)
def test_both_roads(stack: Any, program: Any) -> None:
    before = ftrans.config.execution
    try:
        for execution in ("interpret", "compile"):
            ftrans.config.execution = execution
            assert_agrees(program, stack)
    finally:
        ftrans.config.execution = before


# ------------------------------------------------------ where our conventions are not those of JAX


def complex_loss(np: Any, z: Any) -> Any:
    w = np.exp(1j * z) * z + np.conj(z) * (0.3 - 0.2j)
    return np.sum(np.abs(w) ** 2) + np.real(w[0] * w[1])


def test_complex_gradients_point_along_steepest_ascent() -> None:
    """PyTorch's convention, the conjugate of JAX's: d/dRe + i d/dIm, by finite differences."""
    z = np.array([0.4 - 0.3j, -0.8 + 0.5j])
    f = lambda z: complex_loss(fnp, z)  # noqa: E731
    step = 1e-6
    expected = np.zeros(2, complex)
    for i, unit in enumerate(np.eye(2)):
        for part in (1, 1j):
            slope = (f(z + step * part * unit) - f(z - step * part * unit)) / (2 * step)
            expected[i] += part * slope
    assert_close(func.grad(f)(z), expected, 1e-8)
    assert_close(func.vmap(func.grad(f))(np.stack([z, 2 * z]))[0], expected, 1e-8)
    assert_close(ftrans.jit(func.grad(f))(z), expected, 1e-8)
    # to go along the gradient is to ascend at the rate of its squared norm
    rate = func.jvp(f, (z,), (func.grad(f)(z),))[1]
    assert_close(rate, np.sum(np.abs(expected) ** 2), 1e-8)


def test_second_order_of_complex_functions_by_differences() -> None:
    z, t = np.array([0.4 - 0.3j, -0.8 + 0.5j]), np.array([0.7 + 0.1j, 0.2 - 0.9j])
    gradient = func.grad(lambda z: complex_loss(fnp, z))
    step = 1e-6
    expected = (gradient(z + step * t) - gradient(z - step * t)) / (2 * step)
    assert_close(func.jvp(gradient, (z,), (t,))[1], expected, 1e-7)
    assert_close(func.linearize(gradient, z)[1](t), expected, 1e-7)
    # the Hessian is symmetric for the real pairing: Re <H t, s> = Re <t, H s>
    s = np.array([-0.3 + 0.4j, 0.8 + 0.2j])
    (pulled,) = func.vjp(gradient, z)[1](s)
    left = np.real(np.vdot(expected, s))
    assert_close(left, np.real(np.vdot(t, pulled)), 1e-7)
