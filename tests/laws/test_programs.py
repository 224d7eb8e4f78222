"""Laws that every interpreter keeps on random programs, with fan-out, reuse, constants and loops.

No oracle and no derivative written by hand: forward mode against finite differences, reverse
mode against forward mode by the dot-product identity, batching against a loop.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans.func.trace import stage_call
from ftrans.interpreters import batch, inline, jvp, linearize, simplify, transpose
from ftrans.ir import Literal, Program, check
from tests.helpers import assert_close, pairing, run
from tests.laws import fuzz

SEEDS = range(60)


def traced(seed: int) -> tuple[Program, list[np.ndarray]]:
    """Returns a random program, as it was traced, and arrays for its inputs."""
    case = fuzz.generate(random.Random(seed), depth=1, lawful=True)
    arguments = case.arguments(seed)
    staged, arrays = stage_call(fuzz.program(case, fuzz.OURS), tuple(arguments), {})
    program = check(staged.program)
    return program, [np.asarray(x) for x in [*arrays, *staged.captured]]


def outputs(program: Program, arrays: Sequence[Any]) -> list[np.ndarray]:
    return run(simplify(inline(program)), arrays)


def activity(program: Program, seed: int) -> tuple[bool, ...]:
    """Chooses which inputs are differentiated: at least one that can be."""
    rng = random.Random(seed)
    able = [t.is_inexact for t in program.inputs]
    mask = [a and rng.random() < 0.7 for a in able]
    return tuple(mask) if any(mask) else tuple(able)


def directions(arrays: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [np.asarray(draw.normal(size=x.shape)) for x in arrays]


def chosen(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    return [value for value, keep in zip(values, mask, strict=True) if keep]


def pushed(program: Program, arrays: Any, mask: Any, tangents: Any) -> tuple[Any, list[np.ndarray]]:
    """Returns outputs and their tangents, zeros included, by the jvp interpreter."""
    forward, nonzero = jvp(program, mask)
    found = run(forward, [*arrays, *tangents])
    outs = found[: len(program.outputs)]
    given = iter(found[len(program.outputs) :])
    return outs, [
        next(given) if has else np.zeros_like(out) for has, out in zip(nonzero, outs, strict=True)
    ]


def law_simplify(program: Program, arrays: Any, seed: int) -> None:
    """Simplifying changes no bit and adds no equation."""
    inlined = inline(program)
    short = simplify(inlined)
    assert short.count() <= inlined.count()
    for got, expected in zip(run(short, arrays), run(inlined, arrays), strict=True):
        np.testing.assert_array_equal(got, expected)


def law_jvp(program: Program, arrays: Any, seed: int) -> None:
    """Tangents are limits of differences."""
    mask = activity(program, seed)
    tangents = directions(chosen(arrays, mask), seed)
    outs, dots = pushed(program, arrays, mask, tangents)
    for got, expected in zip(outs, outputs(program, arrays), strict=True):
        assert_close(got, expected)

    def at(step: float) -> list[np.ndarray]:
        moves = iter(tangents)
        moved = [x + step * next(moves) if m else x for x, m in zip(arrays, mask, strict=True)]
        return outputs(program, moved)

    step = 1e-5
    # fourth order, so that the error of the difference stays below the tolerance
    far, near = (
        [(b - a) / (2 * h) for a, b in zip(at(-h), at(h), strict=True)] for h in (2 * step, step)
    )
    for dot, two, one in zip(dots, far, near, strict=True):
        assert_close(dot, (4 * one - two) / 3, 1e-5 * (1 + np.abs(one).max(initial=0.0)))


def law_linearize(program: Program, arrays: Any, seed: int) -> None:
    """The linear program, on the residuals of the forward one, gives the tangents."""
    mask = activity(program, seed)
    tangents = directions(chosen(arrays, mask), seed)
    part = linearize(program, mask)
    found = run(part.forward, arrays)
    outs, residuals = found[: len(part.active)], found[len(part.active) :]
    given = iter(run(part.linear, [*tangents, *residuals]))
    expected, dots = pushed(program, arrays, mask, tangents)
    for got, out, dot, active in zip(outs, expected, dots, part.active, strict=True):
        assert_close(got, out)
        assert_close(next(given) if active else np.zeros_like(dot), dot, 1e-10)
    # linear: L(2 t) = 2 L(t), and at zero it is zero
    twice = run(part.linear, [*(2 * t for t in tangents), *residuals])
    once = run(part.linear, [*tangents, *residuals])
    for got, half in zip(twice, once, strict=True):
        assert_close(got, 2 * half, 1e-10)


def law_transpose(program: Program, arrays: Any, seed: int) -> None:
    """The transpose L' of the linear program L has <L'(c), t> = <c, L(t)>."""
    mask = activity(program, seed)
    tangents = directions(chosen(arrays, mask), seed)
    part = linearize(program, mask)
    residuals = run(part.forward, arrays)[len(part.active) :]
    images = run(part.linear, [*tangents, *residuals])
    cotangents = directions(images, seed + 1)
    linear = tuple(i < len(tangents) for i in range(len(part.linear.inputs)))
    backward, nonzero = transpose(part.linear, linear, (True,) * len(images))
    found = iter(run(backward, [*residuals, *cotangents]))
    cts = [
        next(found) if has else np.zeros_like(t) for has, t in zip(nonzero, tangents, strict=True)
    ]
    left, right = pairing(cts, tangents), pairing(cotangents, images)
    size = 1 + sum(np.abs(c * i).sum() for c, i in zip(cotangents, images, strict=True))
    assert abs(left - right) <= 1e-10 * size, f"{left} is not {right}\n{part.linear}\n{backward}"


def law_batch(program: Program, arrays: Any, seed: int) -> None:
    """The batched program does to each example what the program does."""
    rng = random.Random(seed)
    size = rng.choice([1, 2, 3])
    draw = np.random.default_rng(seed)
    dims: list[int | None] = []
    operands: list[np.ndarray] = []
    for x in arrays:
        dim = rng.choice([None, *range(x.ndim + 1)]) if x.dtype.kind == "f" else None
        dims.append(dim)
        if dim is None:
            operands.append(x)
        else:
            rows = [x + 0.3 * draw.normal(size=x.shape) for _ in range(size)]
            operands.append(np.stack(rows, dim))
    if all(dim is None for dim in dims):
        return
    mapped, which = batch(program, size, tuple(dims))
    outs = run(mapped, operands)
    for number in range(size):
        example = [
            x if dim is None else np.take(x, number, dim)
            for x, dim in zip(operands, dims, strict=True)
        ]
        for got, is_mapped, expected in zip(outs, which, outputs(program, example), strict=True):
            assert_close(got[number] if is_mapped else got, expected, 1e-11)


def law_roads(program: Program, arrays: Any, seed: int) -> None:
    """NumPy interpreting and XLA compiling compute the same."""
    expected = outputs(program, arrays)
    before = ftrans.config.execution
    ftrans.config.execution = "compile"
    try:
        found = ftrans.runtime.run(program, arrays)
    finally:
        ftrans.config.execution = before
    for got, out in zip(found, expected, strict=True):
        assert_close(got, out, 1e-11)


LAWS = [law_simplify, law_jvp, law_linearize, law_transpose, law_batch]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Any) -> None:
    for seed in SEEDS:
        program, arrays = traced(seed)
        try:
            law(program, arrays, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{program}") from error


def test_both_roads_agree() -> None:
    for seed in range(0, 60, 5):
        law_roads(*traced(seed), seed)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_laws_hold_on_what_interpreters_return(seed: int) -> None:
    """Each law again, on the jvp of a program, on its pullback, and on its batched form."""
    program, arrays = traced(seed)
    mask = activity(program, seed)
    tangents = directions(chosen(arrays, mask), seed)
    forward, _ = jvp(program, mask)
    for law in (law_simplify, law_jvp, law_transpose, law_batch):
        law(forward, [*arrays, *tangents], seed + 1)
    part = linearize(program, mask)
    residuals = run(part.forward, arrays)[len(part.active) :]
    images = run(part.linear, [*tangents, *residuals])
    linear = tuple(i < len(tangents) for i in range(len(part.linear.inputs)))
    backward, _ = transpose(part.linear, linear, (True,) * len(images))
    for law in (law_simplify, law_jvp, law_transpose, law_batch):
        law(backward, [*residuals, *directions(images, seed)], seed + 2)


@pytest.mark.smoke
def test_the_same_trace_is_the_same_program() -> None:
    for seed in range(10):
        first, _ = traced(seed)
        second, _ = traced(seed)
        assert first == second
        assert hash(first) == hash(second)
        mask = activity(first, seed)
        assert jvp(first, mask)[0] == jvp(second, mask)[0]
        assert str(first) == str(second)


def test_interpreters_remember_what_they_made() -> None:
    program, _ = traced(3)
    mask = activity(program, 3)
    assert jvp(program, mask)[0] is jvp(program, mask)[0]
    assert linearize(program, mask) is linearize(program, mask)
    assert simplify(program) is simplify(program)


def test_no_zeros_are_made_that_are_no_outputs() -> None:
    """A tangent or cotangent that is zero is not computed with: `None` all the way."""

    def f(x: Any, y: Any) -> Any:
        z = x
        for _ in range(5):
            z = z * y  # y is not differentiated
        return z

    program, _ = stage_call(f, (np.float64(2.0), np.float64(3.0)), {})
    staged = program.program
    forward, nonzero = jvp(staged, (True, False))
    assert nonzero == (True,)
    assert not any(
        type(a) is Literal and a.value == 0 for e in forward.equations for a in e.operands
    )
    assert len(forward) <= 3 * len(staged)
    nothing, nonzero = jvp(staged, (False, False))
    assert nonzero == (False,)
    assert len(nothing) == len(simplify(staged))
