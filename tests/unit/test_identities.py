"""Identities that primitives declare: programs get shorter and compute what NumPy and JAX do."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans.interpreters import simplify
from ftrans.primitives import add_p, arithmetic, neg_p, pad_p, scalar, select_p, sum_p
from tests.oracle import jaxpr
from tests.unit.front_end import assert_same, check_gradients, program_of, traced

X = np.random.default_rng(0).normal(size=(4, 6))


def names(program: Any) -> list[str]:
    return [equation.primitive.name for equation in program.equations]


def simple(function: Any, *arrays: Any) -> list[str]:
    """Returns the names of the equations that are left of a function's program."""
    program, _ = program_of(function, *arrays)
    return names(simplify(program))


def placed(x: Any, axis: int, start: int, size: int, value: float = 0.0, interior: int = 0) -> Any:
    """Puts an array between constants, from `start` on along an axis of this size."""
    stop = start + x.shape[axis] + max(x.shape[axis] - 1, 0) * interior
    at = lambda n: tuple(n if i == axis else 0 for i in range(x.ndim))  # noqa: E731
    return pad_p(x, low=at(start), high=at(size - stop), interior=at(interior), value=value)


SPLITS = {
    "all parts": lambda np, x: sum(np.sum(np.sin(p) * k) for k, p in enumerate(np.split(x, 3, 1))),
    "products of parts": lambda np, x: math.prod(np.split(x, 3, axis=1)),
    "the whole too": lambda np, x: np.sum(x**2) + np.sum(math.prod(np.split(x, 2))),
    "parts in parts": lambda np, x: math.prod(
        q for p in np.split(x, 2) for q in np.split(np.sin(p), 3, axis=1)
    ),
    "row by row": lambda np, x: x[0] * x[1] * x[2] * x[3],
    "first and rest": lambda np, x: np.sum(x[:1]) * x[1:],
    "unequal": lambda np, x: np.sum(x[:, :1]) * np.sum(x[:, 1:3] ** 2) * x[:, 3:],
}


@pytest.mark.parametrize("name", SPLITS)
def test_cotangents_of_slices_are_concatenated(name: str) -> None:
    split = SPLITS[name]
    check_gradients(lambda x: split(fnp, x), lambda x: split(jnp, x), X)
    program = ftrans.trace(ftrans.grad(lambda x: fnp.sum(split(fnp, x))))(X)
    assert "pad" not in names(program)
    assert names(program).count("concatenate") >= 1


def test_second_derivatives_of_slices() -> None:
    f = lambda np, x: np.sum(x[:2] ** 3 * x[2:] ** 2)  # noqa: E731
    expected = jaxpr.evaluate(jax.hessian(lambda x: f(jnp, x)))(X)
    assert_same(ftrans.hessian(lambda x: f(fnp, x))(X), expected)


PARTS = {
    # the pieces as (start, stop), in the order in which they are added, and whether they are joined
    "in order": ([(0, 2), (2, 3), (3, 6)], True),
    "backwards": ([(3, 6), (2, 3), (0, 2)], True),
    "an end last": ([(2, 3), (0, 2), (3, 6)], True),
    "a gap": ([(0, 2), (3, 6)], False),
    "an overlap": ([(0, 4), (2, 6)], False),
    "an overlap and a gap": ([(0, 3), (2, 4), (5, 6)], False),
    "one twice": ([(0, 3), (3, 6), (0, 3)], True),
    "one twice at first": ([(0, 3), (0, 3), (3, 6)], True),
    "an empty one": ([(0, 3), (3, 3), (3, 6)], False),
    "all of it": ([(0, 6), (0, 6)], False),
}


@pytest.mark.parametrize("name", PARTS)
def test_sums_of_pads(name: str) -> None:
    parts, joined = PARTS[name]
    pieces = [X[:, a:b] * k for k, (a, b) in enumerate(parts, 1)]
    expected = np.zeros((4, 6))
    for piece, (a, b) in zip(pieces, parts, strict=True):
        expected[:, a:b] += piece

    def total(*xs: Any) -> Any:
        out = placed(xs[0], 1, parts[0][0], 6)
        for x, (a, _) in zip(xs[1:], parts[1:], strict=True):
            out = add_p(out, placed(x, 1, a, 6))
        return out

    assert_same(traced(total, *pieces), [expected])
    assert ("concatenate" in simple(total, *pieces)) == joined


@pytest.mark.parametrize(
    "second",
    [
        lambda x: placed(x[:, :2], 1, 4, 6, value=1.0),
        lambda x: placed(x[:, :2], 1, 3, 6, interior=1),
        lambda x: placed(x[:2], 0, 2, 4),
        lambda x: pad_p(x[:, :3], low=(0, 4), high=(0, -1), interior=(0, 0), value=0),
        lambda x: pad_p(x[:2, :2], low=(1, 4), high=(1, 0), interior=(0, 0), value=0),
        lambda x: fnp.sin(x),
    ],
)
def test_what_is_no_tile_is_added(second: Any) -> None:
    total = lambda x: add_p(placed(x[:, :4], 1, 0, 6), second(x))  # noqa: E731
    assert "concatenate" not in simple(total, X)
    assert_same(traced(total, X), [total(X)])


def test_pads_of_other_kinds_are_not_mistaken_for_tiles() -> None:
    generator = np.random.default_rng(1)
    for _ in range(60):
        starts = generator.integers(0, 4, size=4)
        sizes = [int(generator.integers(0, 5 - start)) for start in starts]
        others = generator.random(4) < 0.15

        def total(x: Any, starts: Any = starts, sizes: Any = sizes, others: Any = others) -> Any:
            out = fnp.sin(x) if others[0] else placed(x[: sizes[0]], 0, int(starts[0]), 4)
            for start, size, other in zip(starts[1:], sizes[1:], others[1:], strict=True):
                out = add_p(out, fnp.cos(x) if other else placed(x[:size], 0, int(start), 4))
            return out

        np.testing.assert_allclose(traced(total, X)[0], total(X), rtol=1e-15)


@pytest.mark.parametrize("piece", [lambda i: (0, 1), lambda i: (1 + i % 7, 1), lambda i: (i, 1)])
def test_long_sums_are_not_walked_again_and_again(piece: Any, monkeypatch: Any) -> None:
    steps = 0
    walk = arithmetic._without_pad

    def counted(scope: Any, atom: Any) -> Any:
        nonlocal steps
        steps += 1
        return walk(scope, atom)

    monkeypatch.setattr(arithmetic, "_without_pad", counted)
    count = 300

    def total(x: Any) -> Any:
        out = x
        for i in range(count):
            start, size = piece(i)
            out = add_p(out, placed(x[i : i + size], 0, start, count))
        return out

    x = np.random.default_rng(0).normal(size=count)
    simple(total, x)
    assert steps <= 2 * count
    np.testing.assert_allclose(traced(total, x)[0], total(x), rtol=1e-13)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_a_sum_is_negated_and_not_its_elements(axes: tuple[int, ...]) -> None:
    negated = lambda x: sum_p(neg_p(x), axes=axes)  # noqa: E731
    assert simple(negated, X) == ["sum", "neg"]
    np.testing.assert_array_equal(traced(negated, X)[0], np.sum(-X, axis=axes))
    assert simple(lambda x: neg_p(sum_p(neg_p(x), axes=axes)), X) == ["sum"]
    whole = np.arange(6, dtype="uint8").reshape(2, 3)
    np.testing.assert_array_equal(
        traced(negated, whole)[0], np.sum(-whole, axis=axes, dtype="uint8")
    )


def test_what_a_mask_chose_before_is_not_chosen_again() -> None:
    y, z, mask = 2 * X, 3 * X, X > 0
    chains = {
        "second": (lambda m, x, y, z: select_p(m, x, select_p(m, y, z)), np.where(mask, X, z), 1),
        "first": (lambda m, x, y, z: select_p(m, select_p(m, x, y), z), np.where(mask, X, z), 1),
        "both": (
            lambda m, x, y, z: select_p(m, select_p(m, x, y), select_p(m, y, z)),
            np.where(mask, X, z),
            1,
        ),
        "all one": (lambda m, x, y, z: select_p(m, x, select_p(m, y, x)), X, 0),
        "scalars": (
            lambda m, x, y, z: select_p(m, scalar(1, "f8"), select_p(m, y, scalar(0, "f8"))),
            np.where(mask, 1.0, 0.0),
            1,
        ),
        "another mask": (
            lambda m, x, y, z: select_p(m, x, select_p(y < 1.0, y, z)),
            np.where(mask, X, np.where(y < 1.0, y, z)),
            2,
        ),
    }
    for what, (function, expected, count) in chains.items():
        assert simple(function, mask, X, y, z).count("select") == count, what
        np.testing.assert_array_equal(traced(function, mask, X, y, z)[0], expected, err_msg=what)
