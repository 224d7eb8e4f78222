"""Functions that use traced values of enclosing levels: they are arguments nobody wrote down.

PyTorch calls this undefined; what it returns for the first cases here is 0, 3 and 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import FtransError
from tests.helpers import assert_close
from tests.unit.clean import assert_nothing_open


def old(x: Any) -> Callable[..., Any]:
    class Times(Function):
        @staticmethod
        def forward(ctx, a):
            return a * x

        @staticmethod
        def backward(ctx, ct):
            return ct * x

    return Times.apply


def new(x: Any) -> Callable[..., Any]:
    class Times(Function):
        @staticmethod
        def forward(a):
            return a * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, ct):
            return ct * x

    return Times.apply


def on_ctx(x: Any) -> Callable[..., Any]:
    class Times(Function):
        @staticmethod
        def forward(ctx, a):
            ctx.x = x
            return a * x

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.x

    return Times.apply


def saved(x: Any) -> Callable[..., Any]:
    class Times(Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(x)
            return a * x

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.saved_tensors[0]

    return Times.apply


def forward_rule(x: Any) -> Callable[..., Any]:
    class Times(Function):
        @staticmethod
        def forward(ctx, a):
            return a * x

        @staticmethod
        def jvp(ctx, t):
            return t * x

    return Times.apply


def through_another(x: Any) -> Callable[..., Any]:
    class Outer(Function):
        @staticmethod
        def forward(ctx, a):
            return old(x)(a)

        @staticmethod
        def backward(ctx, ct):
            return old(x)(ct)

    return Outer.apply


TIMES = [old, new, on_ctx, saved, forward_rule, through_another]
"""Ways to write F(a) = a * x with a captured x."""

ONE, THREE = np.float64(1.0), np.float64(3.0)
XS = np.array([3.0, -2.0, 0.5])


@pytest.mark.smoke
@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit])
@pytest.mark.parametrize("times", TIMES)
def test_numbers_of_the_census(times: Any, wrap: Any) -> None:
    assert_close(wrap(func.grad(lambda x: times(x)(2.0)))(3.0), np.float32(2.0))
    assert_close(wrap(func.grad(lambda x: times(x)(x)))(3.0), np.float32(6.0))
    assert_close(wrap(func.grad(lambda x: times(x)(fnp.stop_gradient(x))))(THREE), 3.0)
    assert_close(func.jvp(wrap(lambda x: times(x)(2.0)), (THREE,), (ONE,))[1], 2.0)
    assert_close(func.jvp(wrap(lambda x: times(x)(x)), (THREE,), (ONE,))[1], 6.0)
    assert_close(func.vjp(wrap(lambda x: times(x)(x)), THREE)[1](ONE)[0], 6.0)
    assert_close(func.linearize(wrap(lambda x: times(x)(x)), THREE)[1](ONE), 6.0)


@pytest.mark.parametrize("times", TIMES)
def test_second_and_third_derivatives(times: Any) -> None:
    cube = lambda x: times(x)(times(x)(x))  # noqa: E731
    assert_close(func.grad(cube)(THREE), 27.0)
    assert_close(func.grad(func.grad(cube))(THREE), 18.0)
    assert_close(func.grad(func.grad(func.grad(cube)))(THREE), 6.0)
    assert_close(func.hessian(cube)(THREE), 18.0)
    assert_close(func.jacfwd(func.jacfwd(cube))(THREE), 18.0)
    assert_close(func.jvp(func.grad(cube), (THREE,), (ONE,))[1], 18.0)


@pytest.mark.parametrize("times", TIMES)
def test_vmap(times: Any) -> None:
    assert_close(func.vmap(lambda x: times(x)(2.0))(XS), 2 * XS)
    assert_close(func.vmap(lambda x: times(x)(x))(XS), XS**2)
    assert_close(func.vmap(func.grad(lambda x: times(x)(x)))(XS), 2 * XS)
    assert_close(func.grad(lambda x: func.vmap(times(x))(XS).sum())(THREE), XS.sum())
    assert_close(func.vmap(lambda x: func.vmap(times(x))(XS))(XS), np.outer(XS, XS))
    assert_close(func.vmap(lambda x: func.grad(times(x))(ONE))(XS), XS)
    assert_close(func.grad(lambda x: func.vmap(lambda a: times(x)(a) ** 2)(XS).sum())(THREE),
                 2 * THREE * (XS**2).sum())  # fmt: skip


@pytest.mark.parametrize("times", TIMES)
def test_three_levels_deep(times: Any) -> None:
    """Each level is captured by the Function of the one inside of it."""

    def f(x: Any, y: Any, z: Any) -> Any:
        return times(x)(times(y)(times(z)(z)) * x)  # x^2 y z^2

    def nested(x: Any) -> Any:
        inner = lambda y: func.grad(lambda z: f(x, y, z))(THREE)  # noqa: E731
        return func.grad(inner)(ONE)  # d2/dy dz = 2 x^2 z = 6 x^2

    assert_close(nested(ONE * 2), 24.0)
    assert_close(func.grad(nested)(ONE * 2), 24.0)
    assert_close(func.vmap(func.grad(nested))(XS), 12 * XS)
    assert_close(func.jvp(nested, (THREE,), (ONE,))[1], 36.0)


@pytest.mark.parametrize("times", TIMES)
def test_in_bodies(times: Any) -> None:
    def f(x: Any) -> Any:
        return ftrans.scan(lambda c, a: (times(x)(c) + a, None), x, XS)[0]

    def unrolled(x: Any) -> Any:
        c = x
        for a in XS:
            c = c * x + a
        return c

    assert_close(func.grad(f)(THREE), func.grad(unrolled)(THREE))
    assert_close(func.hessian(f)(THREE), func.hessian(unrolled)(THREE))
    g = lambda x: ftrans.cond(x > 0, lambda a: times(x)(a), lambda a: a, 2.0 * x)  # noqa: E731
    assert_close(func.grad(g)(THREE), 12.0)
    assert_close(func.grad(g)(-THREE), 2.0)


def test_captured_by_backward_alone() -> None:
    """It changes the gradient, and has a gradient of its own from the second order on."""

    def f(x: Any, scale: Any) -> Any:
        class Steered(Function):
            @staticmethod
            def forward(ctx, a):
                return a * 1.0

            @staticmethod
            def backward(ctx, ct):
                return ct * scale**2

        return Steered.apply(x)

    assert_close(func.grad(f)(THREE, 5 * ONE), 25.0)
    assert_close(func.grad(f, 1)(THREE, 5 * ONE), 0.0)
    assert_close(func.grad(func.grad(f), 1)(THREE, 5 * ONE), 10.0)
    assert_close(func.jacfwd(func.grad(f), 1)(THREE, 5 * ONE), 10.0)


def test_arrays_are_captured_too() -> None:
    """Arrays that are not traced; what they hold at the time of the call counts."""
    weights = np.array([1.0, 2.0, 3.0])
    f = lambda a: old(weights)(a).sum()  # noqa: E731
    for scale in (1.0, 2.0):
        weights[:] = scale * np.array([1.0, 2.0, 3.0])
        assert_close(func.grad(f)(XS), weights.copy())
        assert_close(func.vmap(func.grad(f))(XS[None]), weights[None].copy())


@pytest.mark.parametrize("times", TIMES)
def test_several_calls_with_different_captures(times: Any) -> None:
    f = lambda x, y: times(x)(2.0) * times(y)(5.0) + times(x * y)(1.0)  # noqa: E731
    got = func.grad(f, (0, 1))(THREE, ONE)
    assert_close(np.stack(got), [10.0 + 1.0, 30.0 + 3.0])


# -------------------------------------------------------------------------------- a rule for vmap


def with_rule(weight: Any) -> Callable[..., Any]:
    class Ruled(Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * weight

        @staticmethod
        def backward(ctx, ct):
            return ct * weight

        @staticmethod
        def vmap(info, in_dims, a):
            return a * weight, in_dims[0]

    return Ruled.apply


def test_a_batching_rule_captures_a_value_that_is_not_mapped() -> None:
    f = lambda x: func.vmap(with_rule(x))(XS).sum()  # noqa: E731
    assert_close(func.grad(f)(THREE), XS.sum())
    assert_close(func.jvp(f, (THREE,), (ONE,))[1], XS.sum())
    g = lambda x: func.vmap(func.grad(with_rule(x)))(XS).sum()  # noqa: E731
    assert_close(g(THREE), 9.0)
    assert_close(func.grad(g)(THREE), 3.0)


def test_a_batching_rule_is_not_asked_for_a_captured_value_alone() -> None:
    assert_close(func.vmap(lambda x: with_rule(x)(2.0))(XS), 2 * XS)
    assert_close(func.vmap(func.grad(lambda x: with_rule(x)(2.0)))(XS), [2.0, 2.0, 2.0])


def test_a_batching_rule_that_captures_what_is_mapped_is_right_or_says_so() -> None:
    """The rule is handed all examples of its argument, but sees one of what it captures."""
    try:
        got = func.vmap(lambda x: with_rule(x)(x))(XS)
    except FtransError as error:
        assert "weight" in str(error)  # noqa: PT017
    else:
        assert_close(got, XS**2)
    assert_nothing_open()


# --------------------------------------------------------------------------------- opaque forward


def opaque(weight: Any) -> Callable[..., Any]:
    class Hidden(Function):
        @staticmethod
        def forward(ctx, a):
            return np.asarray(a) * weight

        @staticmethod
        def backward(ctx, ct):
            return ct

    return Hidden.apply


def opaque_afterwards(weight: Any) -> Callable[..., Any]:
    class Hidden(Function):
        @staticmethod
        def forward(ctx, a):
            twice = weight * 2
            return np.sin(np.asarray(a)) * np.asarray(twice)

        @staticmethod
        def backward(ctx, ct):
            return ct

    return Hidden.apply


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [opaque, opaque_afterwards])
@pytest.mark.parametrize(
    "call",
    [
        lambda make: func.grad(lambda x: make(x)(x))(THREE),
        lambda make: func.jvp(lambda x: make(x)(x), (THREE,), (ONE,)),
        lambda make: func.vmap(lambda x: make(x)(x))(XS),
        lambda make: ftrans.jit(lambda x: make(x)(x))(THREE),
        lambda make: func.grad(lambda x: make(x)(2.0 * x))(3.0),
    ],
)
def test_an_opaque_forward_that_captures_names_the_variable(make: Any, call: Any) -> None:
    with pytest.raises(FtransError, match=r"\bweight\b") as caught:
        call(make)
    text = str(caught.value)
    assert "Hidden" in text
    assert "forward" in text
    assert_nothing_open()


def test_an_opaque_forward_may_capture_arrays() -> None:
    assert_close(func.grad(lambda x: opaque(XS)(x).sum())(XS), np.ones(3))
    assert_close(opaque(XS)(XS), XS * XS)
