"""Loops whose steps need not wait for each other, against loops that do, under every transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ArgumentError, AxisError, ShapeError
from tests.helpers import assert_close, on_road

X = np.random.default_rng(0).normal(size=(5, 3))
M = np.random.default_rng(1).normal(size=(6, 2, 2))


def running(fn: Callable[[Any, Any], Any], xs: Any, reverse: bool, axis: int) -> Any:
    """Returns what `associative_scan` is to return, by a loop."""
    parts = [np.take(xs, [i], axis) for i in range(xs.shape[axis])]
    parts = parts[::-1] if reverse else parts
    for i in range(1, len(parts)):
        parts[i] = fn(parts[i - 1], parts[i])
    parts = parts[::-1] if reverse else parts
    return np.concatenate(parts, axis) if parts else xs


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", range(10))
def test_scans_of_every_size(size: int, reverse: bool) -> None:
    xs = M[np.arange(size) % 6] + np.arange(size)[:, None, None] / 9
    found = ftrans.associative_scan(lambda a, b: a @ b, xs, reverse=reverse)
    assert_close(found, running(lambda a, b: a @ b, xs, reverse, 0), 1e-9)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_scans_along_every_axis(axis: int) -> None:
    for reverse in (False, True):
        found = ftrans.associative_scan(fnp.add, X, reverse, axis)
        assert_close(found, running(np.add, X, reverse, axis))


def affine(first: Any, second: Any) -> Any:
    """Composes `x -> a x + b`, the earlier one first."""
    return second[0] * first[0], second[0] * first[1] + second[1]


def by_scan(a: Any, b: Any) -> Any:
    return ftrans.scan(lambda x, ab: (ab[0] * x + ab[1],) * 2, np.zeros(3), (a, b))[1]


@pytest.mark.slow
@pytest.mark.parametrize("road", ["interpret", "compile"])
def test_scans_of_pytrees_under_transforms(road: str) -> None:
    def f(a: Any, b: Any) -> Any:
        return ftrans.associative_scan(affine, (a, b))[1]

    def loss(function: Any) -> Any:
        return lambda a, b: (function(a, b) ** 2).sum()

    a, b = X, np.cos(X)
    with on_road(road):
        assert_close(f(a, b), by_scan(a, b))
        for argnums in (0, 1):
            found = func.grad(loss(f), argnums)(a, b)
            assert_close(found, func.grad(loss(by_scan), argnums)(a, b), 1e-10)
        found = func.vmap(func.grad(loss(f)))(np.stack([a, b]), np.stack([b, a]))
        assert_close(found[1], func.grad(loss(f))(b, a), 1e-10)
        assert_close(ftrans.jit(f)(a, b), f(a, b))
        tangent = func.jvp(f, (a, b), (b, a))[1]
        assert_close(tangent, func.jvp(by_scan, (a, b), (b, a))[1], 1e-10)
    theirs = jax.lax.associative_scan(affine, (jnp.asarray(a, "f4"), jnp.asarray(b, "f4")))
    assert_close(f(a.astype("f4"), b.astype("f4")), theirs[1])


def test_scans_that_make_no_sense() -> None:
    with pytest.raises(AxisError, match=r"one axis or more.\n  elems: f64\[\]"):
        ftrans.associative_scan(fnp.add, 1.0)
    with pytest.raises(ArgumentError, match="holds no array"):
        ftrans.associative_scan(fnp.add, ())
    with pytest.raises(ShapeError, match=r"axis 0 differ.\n  elems\[0\]: f64\[5,3\]\n"):
        ftrans.associative_scan(affine, (X, X[:2]))
    for wrong in (lambda a, b: a[:1], lambda a, b: (a, b)):
        with pytest.raises(ShapeError, match="must return what it takes"):
            ftrans.associative_scan(wrong, X)


@pytest.mark.parametrize("road", ["interpret", "compile"])
@pytest.mark.parametrize("batch_size", [None, 1, 2, 5, 7])
def test_maps_in_batches(batch_size: int | None, road: str) -> None:
    def f(xs: Any) -> Any:
        made = ftrans.map(
            lambda x: {"a": (x["v"] ** 3).sum() * x["s"], "b": x["v"]}, xs, batch_size=batch_size
        )
        return made["a"], made["b"]

    xs = {"v": X, "s": np.arange(5.0)}
    with on_road(road):
        found = f(xs)
        assert_close(found[0], (X**3).sum(1) * xs["s"])
        assert_close(found[1], X)
        slope = func.grad(lambda v: f({"v": v, "s": xs["s"]})[0].sum())(X)
        assert_close(slope, 3 * X**2 * xs["s"][:, None])
        many = func.vmap(lambda v: f({"v": v, "s": xs["s"]})[0])(np.stack([X, 2 * X]))
        assert_close(many[1], 8 * found[0])
    assert f({"v": X[:0], "s": xs["s"][:0]})[1].shape == (0, 3)


def test_maps_that_make_no_sense() -> None:
    with pytest.raises(ArgumentError, match="batch_size: 0"):
        ftrans.map(fnp.sin, X, batch_size=0)
    with pytest.raises(ShapeError, match="map: xs must have an axis"):
        ftrans.map(fnp.sin, 1.0, batch_size=2)
    with pytest.raises(ArgumentError, match="number of steps is not known"):
        ftrans.map(fnp.sin, ())
    with pytest.raises(ShapeError, match="the lengths differ"):
        ftrans.map(lambda x: x[0], (X, X[:2]), batch_size=2)


def test_loops_are_unrolled() -> None:
    for unroll in (1, 3, True):
        total = ftrans.scan(lambda c, x: (c + x, c), 0.0, X[:, 0], unroll=unroll)[0]
        assert_close(total, X[:, 0].sum())
        assert_close(ftrans.fori_loop(0, 4, lambda i, x: 2 * x, 1.0, unroll=unroll), 16.0)
    assert ftrans.scan(lambda c, x: (c, x), 0.0, X[:0], unroll=True)[1].shape == (0, 3)
