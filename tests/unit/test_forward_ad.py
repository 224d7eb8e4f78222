"""Forward mode of tensors: what carries tangents, at any number of levels, in every composition."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import Tensor, func, tensor
from ftrans.autograd import (
    Function,
    backward,
    enable_grad,
    forward_ad,
    grad,
    graph,
    levels,
    no_grad,
)
from ftrans.autograd.forward_ad import (
    UnpackedDualTensor,
    dual_level,
    enter_dual_level,
    exit_dual_level,
    make_dual,
    unpack_dual,
)
from ftrans.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    MissingRuleError,
    ShapeError,
    UnsupportedError,
)
from tests.helpers import assert_close


def plain(value: Any) -> Tensor:
    return tensor(np.array(value, "float64"))


def leaf(value: Any) -> Tensor:
    return tensor(np.array(value, "float64"), requires_grad=True)


def array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


# ------------------------------------------------------------------------- random programs

SHAPE = (2, 3)

UNARY: list[Callable[[Any], Any]] = [
    lambda x: fnp.sin(x),
    lambda x: fnp.exp(x * 0.3),
    lambda x: x * x,
    lambda x: fnp.tanh(x) + 1,
    lambda x: np.cos(x),
    lambda x: fnp.cumsum(x, axis=1) * 0.2,
    lambda x: x - fnp.mean(x),
    lambda x: fnp.flip(x, 1),
    lambda x: fnp.where(x > 0, x, 0.1 * x * x),
    lambda x: func.vmap(lambda row: row * row.sum())(x),
    lambda x: func.grad(lambda y: fnp.sum(fnp.sin(y) * y))(x),
    lambda x: func.jvp(lambda y: y**3, (x,), (fnp.cos(x),))[1] * 0.1,
    lambda x: fnp.reshape(x @ (x.T @ x), SHAPE) * 0.1,
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x * y,
    lambda x, y: x + y,
    lambda x, y: x / (2 + y * y),
    lambda x, y: fnp.maximum(x, y),
    lambda x, y: x - 0.5 * y,
]


class Steps:
    """Is a random program, to be run on tensors, which are written to, and on arrays."""

    def __init__(self, seed: int, quiet: bool):
        rng = np.random.default_rng(seed)
        self.rows: list[tuple[Any, ...]] = []
        count = 2
        for _ in range(14):
            kind = rng.choice(["unary", "binary", "write", "rows", "demand", "constant"])
            i, j = map(int, rng.integers(count, size=2))
            held = quiet and bool(rng.integers(2))
            if kind == "unary":
                self.rows.append((kind, held, UNARY[rng.integers(len(UNARY))], i))
                count += 1
            elif kind == "binary":
                self.rows.append((kind, held, BINARY[rng.integers(len(BINARY))], i, j))
                count += 1
            elif kind == "constant":
                self.rows.append((kind, held, rng.normal(size=SHAPE)))
                count += 1
            elif kind == "write":
                self.rows.append((kind, held, BINARY[rng.integers(len(BINARY))], i, j))
            elif kind == "rows":
                self.rows.append((kind, held, int(rng.integers(SHAPE[0])), i, j))
            else:
                self.rows.append((kind, held, i))

    def on_tensors(self, x: Any, y: Any) -> Any:
        values = [x.clone(), y.clone()]
        for kind, held, *row in self.rows:
            with no_grad() if held else enable_grad():
                if kind == "unary":
                    values.append(row[0](values[row[1]]))
                elif kind == "binary":
                    values.append(row[0](values[row[1]], values[row[2]]))
                elif kind == "constant":
                    values.append(tensor(row[0]))
                elif kind == "write":
                    target = values[row[1]]
                    target.copy_(row[0](target, values[row[2]]))
                elif kind == "rows":
                    # through a view of a view, which is written to in place
                    part = values[row[1]].T[:, row[0]]
                    part.mul_(values[row[2]][row[0]])
                else:
                    values[row[0]].sum().item()
        return functools.reduce(lambda a, b: a + b, values[-3:])

    def on_arrays(self, x: Any, y: Any) -> Any:
        values = [x, y]
        for kind, _, *row in self.rows:
            if kind == "unary":
                values.append(row[0](values[row[1]]))
            elif kind == "binary":
                values.append(row[0](values[row[1]], values[row[2]]))
            elif kind == "constant":
                values.append(row[0])
            elif kind == "write":
                values[row[1]] = row[0](values[row[1]], values[row[2]])
            elif kind == "rows":
                at = row[0]
                part = values[row[1]][at] * values[row[2]][at]
                values[row[1]] = fnp.at(fnp.asarray(values[row[1]]))[at].set(part)
        return functools.reduce(lambda a, b: a + b, values[-3:])


def drawn(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1000 + seed)
    return [rng.normal(size=SHAPE) for _ in range(count)]


def tangent(x: Tensor, level: int | None = None) -> np.ndarray:
    found = unpack_dual(x, level=level).tangent
    return np.zeros(x.shape) if found is None else array(found)


SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_tangents_of_random_programs_are_those_of_func_jvp(seed: int) -> None:
    steps = Steps(seed, quiet=True)
    x, y, v, w = drawn(seed, 4)
    value, expected = func.jvp(steps.on_arrays, (x, y), (v, w))
    for make in (plain, leaf):
        with dual_level():
            out = steps.on_tensors(make_dual(make(x), plain(v)), make_dual(make(y), plain(w)))
            assert_close(array(out), value)
            assert_close(tangent(out), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_that_nest_are_jvp_of_jvp(seed: int) -> None:
    steps = Steps(seed, quiet=True)
    x, y, v, a, b = drawn(seed, 5)

    def inner(x: Any, v: Any) -> Any:
        return func.jvp(lambda x: steps.on_arrays(x, y), (x,), (v,))

    (value, one), (other, both) = func.jvp(inner, (x, v), (a, b))
    with dual_level():
        # the tangent of the inner level has one of the outer level itself
        given = make_dual(plain(x), plain(a)), make_dual(plain(v), plain(b))
        with dual_level():
            out = steps.on_tensors(make_dual(*given), plain(y))
            primal, moved = unpack_dual(out)
            found = [array(primal), tangent(out), tangent(primal, 0)]
            found.append(np.zeros(SHAPE) if moved is None else tangent(moved, 0))
            outer = unpack_dual(out, level=0).tangent
            swapped = np.zeros(SHAPE) if outer is None else tangent(outer)
    assert_close(found, [value, one, other, both])
    assert_close(swapped, both)


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_over_reverse(seed: int) -> None:
    steps = Steps(seed, quiet=False)
    x, y, v = drawn(seed, 3)

    def gradients(x: Any, y: Any) -> Any:
        return func.grad(lambda x, y: fnp.sum(fnp.sin(steps.on_arrays(x, y))), argnums=(0, 1))(x, y)

    expected, moving = func.jvp(lambda x: gradients(x, y), (x,), (v,))
    with dual_level():
        p, q = make_dual(leaf(x), plain(v)), leaf(y)
        loss = fnp.sin(steps.on_tensors(p, q)).sum()
        if not loss.requires_grad:
            assert_close(moving, [np.zeros(SHAPE)] * 2)
            return
        found = grad(loss, (p, q), materialize_grads=True)
        assert_close([array(g) for g in found], expected)
        assert_close([tangent(g) for g in found], moving)
        assert not any(g.requires_grad for g in found)


@pytest.mark.parametrize("seed", SEEDS)
def test_reverse_over_forward(seed: int) -> None:
    steps = Steps(seed, quiet=False)
    x, y, v = drawn(seed, 3)

    def moved(x: Any, v: Any) -> Any:
        return fnp.sum(fnp.sin(func.jvp(lambda x: steps.on_arrays(x, y), (x,), (v,))[1]))

    expected = func.grad(moved, argnums=(0, 1))(x, v)
    with dual_level():
        p, t = leaf(x), leaf(v)
        out = unpack_dual(steps.on_tensors(make_dual(p, t), plain(y))).tangent
    if out is None or not out.requires_grad:
        assert_close(expected, [np.zeros(SHAPE)] * 2)
        return
    found = grad(fnp.sin(out).sum(), (p, t), materialize_grads=True)
    assert_close([array(g) for g in found], expected)


# ------------------------------------------------------------------------- levels


def test_a_tangent_exists_inside_of_its_level_alone() -> None:
    with dual_level() as level:
        assert level == 0
        x = make_dual(plain(2.0), plain(1.0))
        y = x**3
        found = unpack_dual(y)
        assert type(found) is UnpackedDualTensor
        assert_close([array(found.primal), array(found.tangent)], [8.0, 12.0])
        pending = y * x
    assert unpack_dual(x).tangent is None
    assert unpack_dual(y) == (y, None)
    assert_close(array(pending), 16.0)
    with dual_level():
        assert unpack_dual(x).tangent is None
        again = make_dual(x, plain(5.0))
        assert_close(tangent(again * y), 40.0)


def test_what_unpacks_to_nothing() -> None:
    x = plain([1.0, 2.0])
    assert unpack_dual(x).tangent is None
    with dual_level():
        d = make_dual(x, plain([1.0, 1.0]))
        for none in (x, x * 2, d.detach(), d.data, d > 1, d.argmax(), d.floor() * 0 == 0):
            assert unpack_dual(none).tangent is None
        assert unpack_dual(unpack_dual(d).primal * 2).tangent is None


def test_a_tangent_is_returned_as_it_was_given() -> None:
    x, v = plain([1.0, 2.0]), plain([3.0, 4.0])
    with dual_level():
        d = make_dual(x, v)
        assert unpack_dual(d).tangent is v
        assert unpack_dual(d).primal is not d
        y = d * 2
        assert unpack_dual(y).tangent is unpack_dual(y).tangent
        v.mul_(10)  # a value is what it was when it was given
        y = d * 2
        assert_close(tangent(y), [6.0, 8.0])
        assert_close(array(unpack_dual(d).tangent), [3.0, 4.0])


@pytest.mark.parametrize("asarray", [np.array, jnp.array])
def test_equal_values_with_other_tangents(asarray: Any) -> None:
    with dual_level():
        x = make_dual(tensor(asarray([1.0, 2.0])), tensor(asarray([1.0, 1.0])))
        y = x * 2
        held, same, seen = y.detach(), y.reshape(2), x.detach()
        assert_close([tangent(z) for z in (y, same)], [[2.0, 2.0]] * 2)
        assert unpack_dual(held).tangent is None
        assert unpack_dual(seen).tangent is None
        primal = unpack_dual(y).primal
        assert unpack_dual(y).tangent is not None
        assert unpack_dual(primal).tangent is None


def test_levels_are_entered_and_left_by_functions_and_decorators() -> None:
    assert enter_dual_level() == 0
    x = make_dual(plain(3.0), plain(1.0), level=0)
    assert enter_dual_level() == 1
    y = make_dual(x, plain(1.0), level=1)
    exit_dual_level(level=1)
    assert unpack_dual(y).tangent is unpack_dual(y, level=0).tangent is not None
    exit_dual_level()

    @dual_level()
    def slope(at: float) -> Any:
        """Has a docstring."""
        return unpack_dual(make_dual(plain(at), plain(1.0)) ** 2).tangent

    assert slope.__doc__ == "Has a docstring."
    assert_close([array(slope(3.0)), array(slope(4.0))], [6.0, 8.0])
    assert not levels.OPEN


def test_a_level_is_left_when_something_raises() -> None:
    made = []

    @dual_level()
    def fails() -> None:
        made.append(make_dual(plain(3.0), plain(1.0)) * 2)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    assert not levels.OPEN
    assert_close(array(made[0]), 6.0)


@pytest.mark.parametrize("order", range(6))
def test_derivatives_of_any_order(order: int) -> None:
    with ExitStack() as stack:
        y = plain(1.5)
        for _ in range(order):
            stack.enter_context(dual_level())
            y = make_dual(y, plain(1.0))
        y = y**5
        y.item()
        y = y * y
        for level in np.random.default_rng(order).permutation(order):
            y = unpack_dual(y, level=int(level)).tangent
        expected = np.polynomial.Polynomial([0.0] * 10 + [1.0]).deriv(order)(1.5)
        assert_close(array(y), expected)


def test_levels_are_not_confused() -> None:
    """The classic: d/dx (x * d/dy (x + y)) at 1 is 1, and 2 where the two are one."""
    with dual_level():
        x = make_dual(plain(1.0), plain(1.0))
        with dual_level():
            inner = unpack_dual(x + make_dual(plain(1.0), plain(1.0))).tangent
        assert_close(tangent(x * inner), 1.0)
        with dual_level():
            y = make_dual(plain(1.0), plain(1.0))
            assert unpack_dual(x * x).tangent is None
            assert_close(tangent(x * y), 1.0)
            assert unpack_dual(unpack_dual(x * y).tangent, level=0).tangent is not None


def test_a_tangent_along_an_outer_level_alone() -> None:
    with dual_level():
        v = make_dual(plain(3.0), plain(1.0))
        with dual_level():
            moved = unpack_dual(make_dual(plain(2.0), v) ** 3).tangent
        assert_close([array(moved), tangent(moved)], [36.0, 12.0])


# ------------------------------------------------------------------------- compositions


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * x * ct


class MarkedCube(Cube):
    """Has tangents twice as long as they should be, to be told apart."""

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 6 * x * x * t


class Blackbox(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return np.array(np.asarray(x)) ** 3

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * np.asarray(x) ** 2 * np.asarray(ct)


def test_functions_carry_tangents_by_their_own_rules() -> None:
    MarkedCube.apply(leaf(1.0)).backward()  # which asks for no jvp
    before = MarkedCube.apply(leaf(2.0))
    with dual_level():
        d = make_dual(leaf(2.0), plain(1.0))
        assert_close(tangent(Cube.apply(d)), 12.0)
        assert_close(tangent(MarkedCube.apply(d) * before), 192.0)
        assert_close(tangent(grad(Cube.apply(d), d)[0]), 12.0)
    with dual_level():
        blackbox = Blackbox.apply(make_dual(leaf(2.0), plain(1.0)))
        with pytest.raises(MissingRuleError, match="Blackbox: its jvp is asked for"):
            unpack_dual(blackbox)
        # which is no matter to what does not depend on it
        assert_close(tangent(make_dual(plain(2.0), plain(1.0)) * 3), 3.0)


def test_a_backward_that_nobody_differentiates_is_as_outside() -> None:
    with dual_level():
        x = leaf([1.0, 2.0])
        Blackbox.apply(x).sum().backward()
        assert_close(array(x.grad), [3.0, 12.0])
        assert not x.grad.requires_grad


def test_transforms_and_numpy_carry_tangents() -> None:
    with dual_level():
        d = make_dual(plain([1.0, 2.0]), plain([1.0, 1.0]))
        assert_close(tangent(np.sin(d)), np.cos([1.0, 2.0]))
        assert_close(tangent(func.vmap(lambda x: x * d.sum())(plain([1.0, 2.0]))), [2.0, 4.0])
        assert_close(tangent(func.grad(lambda x: (x**3).sum())(d)), [6.0, 12.0])
        assert_close(tangent(ftrans.jit(lambda x: x**2)(d)), [2.0, 4.0])
        assert_close(tangent(ftrans.cond(d[0] > 0, lambda x: x**3, lambda x: x, d)), [3.0, 12.0])
        total, _ = ftrans.scan(lambda c, x: (c * x, c), d[0], d)
        assert_close(tangent(total), 5.0)
        assert_close(tangent(fnp.stack([d[0], plain(0.0)])), [1.0, 0.0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128"])
def test_tangents_have_the_dtype_of_their_values(dtype: str) -> None:
    x = np.array([1.0, 2.0]).astype(dtype)
    with dual_level():
        moved = unpack_dual(make_dual(tensor(x), tensor(x)) ** 2).tangent
        empty = make_dual(tensor(x[:0]), tensor(x[:0]))
        assert unpack_dual(empty * 2).tangent.shape == (0,)
        assert_close(tangent(empty.sum()), 0.0)
    assert moved.dtype == dtype
    assert_close(array(moved), 2 * x * x)


def test_gradients_have_tangents_and_are_accumulated() -> None:
    x = leaf(2.0)
    with dual_level():
        d = make_dual(x, plain(1.0))
        for turn in (1, 2):
            (d**3).backward()
            assert_close([array(x.grad), tangent(x.grad)], [12.0 * turn, 12.0 * turn])
        x.grad.zero_()
        assert_close(tangent(x.grad), 0.0)
        x.grad = leaf(1.0)
        (d**3).backward()
        assert_close([array(x.grad), tangent(x.grad)], [13.0, 12.0])
        x.grad = plain([[5.0, 5.0]])[0, 1]
        (d**3).backward()
        assert_close([array(x.grad), tangent(x.grad)], [17.0, 12.0])
    assert_close(array(x.grad), 17.0)


def test_a_leaf_with_a_tangent_of_its_own() -> None:
    with dual_level():
        x = make_dual(plain(2.0), plain(1.0)).requires_grad_()
        backward(x**3)
        assert_close([array(x.grad), tangent(x.grad)], [12.0, 12.0])


def test_hooks_see_tangents_in_the_mode_of_the_walk() -> None:
    x, seen = leaf(2.0), []
    with dual_level():
        d = make_dual(x, plain(1.0))
        y = d * d
        y.retain_grad()
        y.register_hook(lambda ct: seen.append((tangent(ct), ct.requires_grad)))
        y.register_hook(lambda ct: ct * d.detach())
        x.register_post_accumulate_grad_hook(lambda x: seen.append(tangent(x.grad)))
        (y * y).backward()
        # 2 y = 2 x^2, whose tangent is 4 x; times 2, which is held fixed
        assert_close([array(y.grad), tangent(y.grad)], [16.0, 16.0])
        assert_close(seen[0][0], 8.0)
        assert seen[0][1] is False
        # 2 x * 4 x^2
        assert_close([array(x.grad), tangent(x.grad), seen[1]], [64.0, 96.0, 96.0])


def test_gradients_of_gradients_and_batches_of_them() -> None:
    x = leaf([1.0, 2.0])
    with dual_level():
        d = make_dual(x, plain([1.0, 1.0]))
        (first,) = grad((d**4).sum(), d, create_graph=True)
        assert first.requires_grad
        (second,) = grad(first.sum(), d)
        assert_close([array(second), tangent(second)], [[12.0, 48.0], [24.0, 48.0]])
        (rows,) = grad(d**3, d, plain(np.eye(2)), is_grads_batched=True)
        assert_close(tangent(rows), np.diag([6.0, 12.0]))


def test_a_cotangent_may_have_a_tangent() -> None:
    x, v = leaf([1.0, 2.0]), leaf([1.0, 0.0])
    y = x * x
    y.sum().item()
    with dual_level():
        seed = make_dual(plain([1.0, 1.0]), v)
        (found,) = grad(y, x, seed, retain_graph=True)
        assert_close(tangent(found), [2.0, 0.0])
        assert not unpack_dual(found).tangent.requires_grad
        (same,) = grad(x, x, make_dual(v, v))
        assert_close(tangent(same), [1.0, 0.0])
        assert not same.requires_grad
        (found,) = grad(y, x, seed, create_graph=True)
        moved = unpack_dual(found).tangent
    assert_close(array(grad(moved.sum(), v)[0]), [2.0, 4.0])


def test_reverse_over_forward_reaches_both() -> None:
    x, v = leaf(2.0), leaf(1.0)
    with dual_level():
        moved = unpack_dual(make_dual(x, v) ** 3).tangent
        assert_close([array(g) for g in grad(moved, (x, v), retain_graph=True)], [12.0, 12.0])
    moved.backward()
    assert_close([array(x.grad), array(v.grad)], [12.0, 12.0])


def test_a_graph_can_only_be_gone_through_once_here_too() -> None:
    with dual_level():
        d = make_dual(leaf(2.0), plain(1.0))
        y = d**3
        y.backward()
        with pytest.raises(GraphError, match="a second time"):
            y.backward()
        (d**2).backward()  # but what was dual stays there
        y = d**3
        make_dual(leaf(2.0), plain(1.0))
        y.backward()
        with pytest.raises(GraphError, match="a second time"):
            y.backward()


# ------------------------------------------------------------------------- modes and writing


def test_no_grad_leaves_tangents_without_their_history() -> None:
    x, v = leaf(2.0), leaf(3.0)
    with dual_level():
        d = make_dual(x, v)
        y = d * 4
        with no_grad():
            z, w = d * 3, y * 3
        for one, expected in ((z, 9.0), (w, 36.0)):
            moved = unpack_dual(one).tangent
            assert_close(array(moved), expected)
            assert not one.requires_grad
            assert not moved.requires_grad
        assert unpack_dual(y).tangent.requires_grad
        with no_grad():
            y.mul_(2)
        assert_close([array(y), tangent(y)], [16.0, 24.0])
        moved = unpack_dual(y).tangent
    # gradients go on as if it had not been written to
    assert_close([array(g) for g in grad((y, moved), (x, v))], [4.0, 4.0])


def test_in_no_grad_a_leaf_takes_a_tangent() -> None:
    x = leaf([1.0, 2.0])
    with dual_level():
        with no_grad():
            x.copy_(make_dual(plain([5.0, 6.0]), leaf([7.0, 8.0])))
        assert x.is_leaf
        assert_close([array(x), tangent(x)], [[5.0, 6.0], [7.0, 8.0]])
        assert not unpack_dual(x).tangent.requires_grad


def test_a_write_carries_tangents_to_views_and_bases() -> None:
    with dual_level():
        d = make_dual(plain([1.0, 2.0]), plain([3.0, 4.0]))
        x = plain(0.0)
        x.add_(d[0])
        assert_close([array(x), tangent(x)], [1.0, 3.0])
        part = d.narrow(0, 0, 1)
        part *= 2
        assert_close([tangent(d), np.repeat(tangent(part), 2)], [[6.0, 4.0], [6.0, 6.0]])
        base = plain([5.0, 6.0])
        base[0] = d[0]
        assert_close(tangent(base), [6.0, 0.0])
        base.copy_(plain([1.0, 1.0]))
        assert unpack_dual(base).tangent is None or not tangent(base).any()
        out = plain([0.0, 0.0])
        np.multiply(d, d, out=out)
        assert_close(tangent(out), [24.0, 16.0])


def test_a_write_through_what_is_detached_leaves_tangents() -> None:
    with dual_level():
        d = make_dual(plain([1.0, 2.0]), plain([3.0, 4.0]))
        x = plain([5.0, 6.0])
        x.detach().add_(d)
        assert_close(array(x), [6.0, 8.0])
        assert unpack_dual(x).tangent is None
        held = d.detach()
        d.mul_(2)
        assert_close(array(held), [2.0, 4.0])
        assert unpack_dual(held).tangent is None
        d.sum().item()
        held.mul_(5)
        assert_close([array(d), tangent(d)], [[10.0, 20.0], [6.0, 8.0]])
        assert unpack_dual(held).tangent is None
        for target in (leaf([0.0, 0.0]), leaf([0.0, 0.0]) * 1):
            target.data = d
            assert_close(array(target), [10.0, 20.0])
            assert unpack_dual(target).tangent is None
        d.detach_()
        assert unpack_dual(d).tangent is None


# ------------------------------------------------------------------------- threads and memory


def test_levels_belong_to_threads_and_tangents_to_values() -> None:
    found: dict[str, Any] = {}
    with dual_level():
        d = make_dual(plain(2.0), plain(1.0))
        y = d * d

        def work() -> None:
            found["value"] = y * d
            found["none"] = unpack_dual(y).tangent
            with dual_level() as level:
                x = make_dual(plain(5.0), plain(1.0))
                found["own"] = level, tangent(x * x * d)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert_close(tangent(found["value"]), 12.0)
        assert found["none"] is None
        assert found["own"] == (0, 20.0)


def test_nothing_is_kept_alive() -> None:
    with dual_level():
        x = make_dual(leaf(np.ones(3)), leaf(np.ones(3)))
        for _ in range(5):
            y = x.exp() * x
            y.sum().item()
        moved = weakref.ref(unpack_dual(y).tangent)
        del y
        gc.collect()
        assert moved() is None
        y = x * 2
        moved = weakref.ref(unpack_dual(y).tangent)
    gc.collect()
    assert moved() is None
    assert unpack_dual(y).tangent is None
    del x, y
    gc.collect()
    assert not any(tangents for _, tangents in levels._carried.values())


def test_a_long_loop() -> None:
    with dual_level():
        y = x = make_dual(plain(1.0), plain(1.0))
        written = make_dual(plain(1.0), plain(1.0))
        for _ in range(3000):
            y = y * 1.0001
            written.mul_(1.0001)
        assert_close([tangent(y), tangent(written)], [1.0001**3000] * 2)
        assert_close(tangent(x), 1.0)


# ------------------------------------------------------------------------- what is refused


def test_what_make_dual_refuses() -> None:
    x = plain([1.0, 2.0])
    with pytest.raises(GraphError, match="no level exists"):
        make_dual(x, x)
    with dual_level():
        d = make_dual(x, x)
        for wrong in (tensor([1, 2]), np.ones(2), 1.0):
            with pytest.raises(ArgumentError, match=r"floating point|no tensor"):
                make_dual(x, wrong)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError, match=r"floating point|no tensor"):
                make_dual(wrong, x)  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match="different size"):
            make_dual(x, plain([1.0]))
        with pytest.raises(DTypeError, match="dtype of its tensor"):
            make_dual(x, x.to("float32"))
        with pytest.raises(GraphError, match="already has a forward gradient at the same level 0"):
            make_dual(d, x)
        with pytest.raises(GraphError, match="itself has a forward gradient at the same level 0"):
            make_dual(x, d)
        for level in (1, -1):
            with pytest.raises(GraphError, match="no level of this number"):
                make_dual(x, x, level=level)
            with pytest.raises(GraphError, match="not the last one"):
                exit_dual_level(level=level)
        with pytest.raises(GraphError, match="inside a transform"):
            func.vmap(lambda row: unpack_dual(d).primal * row)(x)
    with pytest.raises(GraphError, match="Dual level must be a positive number"):
        exit_dual_level()


def test_operations_are_not_looked_at_one_by_one_in_a_level() -> None:
    """What an operation saves would have no tangent, so that the gradient had none."""
    x = tensor([1.0, 2.0], requires_grad=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tensor([1.0, 0.5]))
        y = (dual**3).sum()
        with pytest.raises(UnsupportedError, match="cannot be looked at one by one"):
            y.grad_fn.register_hook(lambda *_: None)
        (g,) = grad(y, dual)
        assert forward_ad.unpack_dual(g).tangent.tolist() == [6.0, 6.0]


def test_what_hooks_have_packed_has_no_tangent() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.numpy().copy(), tensor), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tensor([1.0, 0.5]))
        y = (dual * dual).sum()
        moved = forward_ad.unpack_dual(y).tangent
        with pytest.raises(UnsupportedError, match="has lost its tangent"):
            grad(y, dual)
    moved.backward()
    assert moved.item() == 4.0
    assert x.grad.tolist() == [2.0, 1.0]
