"""What linearization saves, and that long programs cost neither stack nor garbage."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans.interpreters import jvp, linearize, simplify, transpose, value_and_grad
from ftrans.interpreters.base import building, finish
from ftrans.ir import ArrayType, Program, check
from ftrans.primitives import mul_p, sin_p, sum_p, tanh_p
from tests.helpers import assert_close, run

VIEWS = {"broadcast", "reshape", "transpose"}


def split(f: Callable[..., Any], *args: Any) -> Any:
    program = ftrans.trace(f)(*args)
    return linearize(program, tuple(t.is_inexact for t in program.inputs))


def residuals(part: Any) -> list[Any]:
    """Returns the numbers, in the forward program, of what is saved."""
    return list(part.forward.outputs[len(part.active) :])


def saved(part: Any) -> list[str]:
    """Returns the types of what is saved that is no input and no output."""
    outputs = part.forward.outputs[: len(part.active)]
    fresh = [a for a in residuals(part) if a >= len(part.forward.inputs) and a not in outputs]
    return sorted(str(part.forward.type_of(a)) for a in fresh)


def perceptron(np: Any, x: Any, w: Any, b: Any, v: Any) -> Any:
    return (np.tanh(x @ w + b) @ v).sum()


def softmax(np: Any, x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def normalized(np: Any, x: Any, scale: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * scale


def heads(np: Any, x: Any, w: Any) -> Any:
    y = (x @ w).reshape(5, 2, 2).transpose(1, 0, 2)
    return (y @ y.transpose(0, 2, 1)).sum()


def draw(*shapes: tuple[int, ...]) -> list[Any]:
    return [np.random.default_rng(i).normal(size=shape) for i, shape in enumerate(shapes)]


CASES: dict[str, tuple[Any, list[Any], list[str]]] = {
    # the slope of tanh, and its result, which the last product needs; x, w, v are inputs
    "perceptron": (perceptron, draw((5, 3), (3, 4), (4,), (4, 2)), ["f64[5,4]", "f64[5,4]"]),
    # where the largest are and one over how many; the exponentials and the slope of the quotient
    "softmax": (softmax, draw((5, 3)), ["bool[5,3]", "f64[5,3]", "f64[5,3]", "f64[5]"]),
    # what rows share is saved once a row: the slope of the root, and one over it
    "normalized": (
        normalized,
        draw((5, 3), (3,)),
        ["f64[5,1]", "f64[5,3]", "f64[5,3]", "f64[5,3]", "f64[5]"],
    ),
    # one array in the form in which the product gave it, however it was reshaped
    "heads": (heads, draw((5, 3), (3, 4)), ["f64[5,4]"]),
    "shared slope": (
        lambda np, x, s: x / np.exp(s * s)[:, None],
        draw((5, 3), (5,)),
        ["f64[5,3]", "f64[5]", "f64[5]"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_saved(name: str) -> None:
    f, args, expected = CASES[name]
    part = split(lambda *xs: f(fnp, *xs), *args)
    assert saved(part) == expected, part.forward
    assert len(set(residuals(part))) == len(residuals(part)), "something is saved twice"
    for equation, numbers, _ in part.forward.numbered():
        if equation.primitive.name in VIEWS:
            assert numbers.start not in residuals(part), f"a view is saved\n{part.forward}"
    check(part.forward)
    check(part.linear)


@pytest.mark.parametrize("name", CASES)
def test_what_is_saved_gives_the_derivative(name: str) -> None:
    f, args, _ = CASES[name]
    part = split(lambda *xs: f(fnp, *xs), *args)
    tangents = draw(*(x.shape[::-1] for x in args))
    tangents = [t.T for t in tangents]
    found = run(part.forward, args)
    (dot,) = run(part.linear, [*tangents, *found[1:]])
    with jax.enable_x64(True):
        out, expected = jax.jvp(lambda *xs: f(jnp, *xs), tuple(args), tuple(tangents))
    assert_close(found[0], out)
    assert_close(dot, expected)


def test_what_does_not_change_in_a_loop_is_saved_once() -> None:
    def f(w: Any, x: Any, xs: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            carry = fnp.tanh(w @ carry) * fnp.exp(w).sum() + element
            return carry, fnp.sin(carry)

        return ftrans.scan(step, x, xs)

    part = split(f, *draw((3, 3), (3,), (7, 3)))
    stacks = ["f64[7,3]"] * 4  # the carry, tanh, its slope times the sum, the cosine
    assert saved(part) == ["f64[3,3]", *stacks], part.forward


def test_what_a_loop_returns_is_not_stacked_twice() -> None:
    def f(x: Any, xs: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            y = fnp.exp(carry) * element
            return fnp.sin(y), y

        return ftrans.scan(step, x, xs)

    part = split(f, *draw((3,), (7, 3)))
    assert saved(part) == ["f64[7,3]", "f64[7,3]"], part.forward  # the exponential, the cosine
    (loop,) = [e for e in part.forward.equations if e.primitive.name == "scan"]
    outputs = loop.params["body"].outputs
    assert len(set(outputs[1:])) == len(outputs[1:])


def test_a_branch_does_not_return_what_it_was_given() -> None:
    def f(x: Any, y: Any) -> Any:
        return ftrans.cond(x.sum() > 0, lambda x, y: x * y, lambda x, y: fnp.exp(x) + y, x, y)

    args = draw((3,), (3,))
    part = split(f, *args)
    assert saved(part) == ["f64[3]", "i32[]"], part.forward  # the exponential, the choice
    for sign in (1.0, -1.0):
        x, y = sign * np.abs(args[0]), args[1]
        slopes = (y, x) if sign > 0 else (np.exp(x), np.ones(3))
        found = run(part.forward, [x, y])
        for i, slope in enumerate(slopes):
            dots = [np.eye(2)[i, j] * np.ones(3) for j in range(2)]
            assert_close(run(part.linear, [*dots, *found[1:]])[0], slope)


def test_no_cotangent_is_added_that_nobody_asked_for() -> None:
    program = ftrans.trace(lambda x, w: fnp.tanh(x @ w).sum())(*draw((5, 3), (3, 4)))
    one = value_and_grad(program, (False, True))
    assert sum(e.primitive.name == "dot" for e in one.equations) == 2, one
    both = value_and_grad(program, (True, True))
    assert sum(e.primitive.name == "dot" for e in both.equations) == 3, both


@pytest.mark.parametrize("execution", ["compile", "interpret"])
def test_residuals_that_are_arguments_or_results(
    execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pullback keeps its own: the caller may write to what went in and what came out."""
    monkeypatch.setattr(ftrans.config, "execution", execution)
    x, w = draw((5, 3), (3, 4))
    value, pullback = ftrans.func.vjp(lambda x, w: fnp.exp(x @ w), x, w)
    assert len(pullback.residuals) == 3
    expected = np.exp(x @ w)
    kept = (x.copy(), w.copy())
    for array in (x, w, value):
        array[...] = np.nan
    ct_x, ct_w = pullback(np.ones((5, 4)))
    assert_close(ct_x, expected @ kept[1].T)
    assert_close(ct_w, kept[0].T @ expected)


# ------------------------------------------------------------------------------- long programs


def chain(length: int) -> Program:
    with building("chain", [ArrayType((2,), "f8"), ArrayType((), "f8")]) as (frame, (x, y)):
        for i in range(length // 3):
            x, y = mul_p(tanh_p(x), 1.0 + i / length), sin_p(y)
        return finish(frame, [mul_p(sum_p(x, axes=(0,)), y)])


def test_long_programs_need_no_deep_stack() -> None:
    """Every interpreter goes through thousands of equations, in a stack of some two hundred."""
    failed: list[BaseException] = []

    def interpret() -> None:
        try:
            program = chain(3000)
            both = (True, True)
            forward, _ = jvp(program, both)
            assert len(forward) > len(program)
            part = linearize(program, both)
            transpose(part.linear, (*[True] * 2, *[False] * (len(part.linear.inputs) - 2)), (True,))
            assert simplify(value_and_grad(program, both)).is_simplified
            del program, forward, part
            gc.collect()
        except BaseException as error:
            failed.append(error)

    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(200)
        thread = threading.Thread(target=interpret)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(before)
    assert not failed, failed


def test_programs_grow_with_what_they_come_from_and_no_faster() -> None:
    sizes = [len(value_and_grad(chain(n), (True, True))) for n in (300, 600, 1200)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_a_builder_leaves_nothing_to_the_garbage_collector() -> None:
    """All that was recorded is freed with the block: nothing refers to itself."""
    gc.collect()
    gc.disable()
    try:
        program = chain(300)
        value_and_grad(program, (True, True))
        del program
        unreachable = gc.collect()
    finally:
        gc.enable()
    assert unreachable < 100, unreachable
