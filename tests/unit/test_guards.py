"""Calls of rules are taken over from earlier ones, unless something that they read has changed."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
import ftrans.torch as torch
from ftrans import func
from ftrans.autograd import Function
from tests.helpers import assert_close
from tests.unit.guard_cases import CHANGES, WARM, X, cubed, gradient, scaled, traces

# ------------------------------------------------------------------------------- what is understood


class Cube(Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * ct


class ByOthers(Function):
    """Calls functions, another rule, comprehensions, and what a module has."""

    @staticmethod
    def forward(ctx, x, n=2):
        ctx.x, ctx.n = x, n
        return sum(_power(Cube.apply(x), k) for k in range(1, n)) + 0 * fnp.sin(x) * math.pi

    @staticmethod
    def backward(ctx, ct):
        shift = 2
        return ct * 3 * sum([np.multiply(ctx.x, ctx.x) for _ in range(shift - 1)]), None


def _power(x, n):
    return operator.pow(x, n)


class Pair(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 2, fnp.sum(x * x)

    @staticmethod
    def backward(ctx, ct, total):
        return 2 * ct + 2 * ctx.x * total


class Opaque(Function):
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * np.asarray(x) ** 2 * np.asarray(ct)


@ftrans.custom_jvp
def cubed_forward(x):
    return x**3


@cubed_forward.defjvp
def _jvp(primals, tangents):
    return cubed_forward(*primals), 3 * primals[0] ** 2 * tangents[0]


class Sine(Function):
    """Is opaque, and so has no derivatives but those of its rules."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.sin(np.asarray(x))

    @staticmethod
    def backward(ctx, ct):
        return ct * Cosine.apply(*ctx.saved_tensors)


class Cosine(Function):
    @staticmethod
    def forward(x):
        return np.cos(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return -ct * Sine.apply(*ctx.saved_tensors)


class Creates(Function):
    """Is x * x * (1, 2, 3), by arrays that it makes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * (fnp.asarray(np.arange(3.0)) + torch.ones_like(x)) + torch.tensor(0.0)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * x * (2 * np.linspace(1.0, 3.0, 3)) + torch.zeros(3)


TAKEN: dict[str, tuple[Any, Any, Any]] = {
    "a rule": (Cube.apply, 3 * X**2, 6 * X),
    "by others": (ByOthers.apply, 3 * X**2, 6 * X),
    "with a number": (lambda x: ByOthers.apply(x, 2), 3 * X**2, 6 * X),
    "two results": (lambda x: Pair.apply(x)[0] + Pair.apply(x)[1], 2 + 6 * X, None),
    "opaque": (Opaque.apply, 3 * X**2, None),
    "opaque with a context": (Sine.apply, np.cos(X), -np.sin(X)),
    "opaque with a rule": (Cosine.apply, -np.sin(X), -np.cos(X)),
    "that creates": (Creates.apply, 2 * X * [1, 2, 3], None),
    "custom_vjp": (cubed, 3 * X**2, 6 * X),
    "custom_jvp": (cubed_forward, 3 * X**2, 6 * X),
}
"""What is taken over, and its first two derivatives; None where it does not have them all."""


VALUED = {"opaque with a context", "opaque with a rule"}
"""Their rules call an opaque `forward` on values, and so depend on these."""


@pytest.mark.parametrize("name", [name for name in TAKEN if name not in VALUED])
def test_a_call_is_taken_over(name: str) -> None:
    f, expected, _ = TAKEN[name]
    for _ in range(WARM):
        assert_close(gradient(f), expected)
    assert traces(lambda: gradient(f)) == 0


@pytest.mark.filterwarnings("ignore:.*vmap calls it")
@pytest.mark.parametrize("name", [name for name, case in TAKEN.items() if case[2] is not None])
def test_each_transform_has_its_own(name: str) -> None:
    """What was recorded for one is not enough for another."""
    f, slope, second = TAKEN[name]
    single = X.astype("float32")
    fresh: dict[str, tuple[Callable[[], Any], Any]] = {
        "grad": (lambda: gradient(f), slope),
        "jvp": (lambda: func.jvp(f, (X,), (np.ones(3),))[1], slope),
        "twice": (lambda: gradient(lambda x: gradient(f, x)), second),
        "vmap": (lambda: func.vmap(func.grad(f))(X), slope),
        "jit": (lambda: ftrans.jit(lambda x: gradient(f, x))(X), slope),
        "float32": (lambda: gradient(f, single), slope.astype("float32")),
        "hessian": (lambda: func.hessian(lambda x: f(x).sum())(X), np.diag(second)),
        "scan": (
            lambda: gradient(lambda x: ftrans.scan(lambda c, _: (f(c), None), x, length=1)[0]),
            slope,
        ),
    }
    for order in (fresh, reversed(fresh), fresh):
        for transform in order:
            compute, expected = fresh[transform]
            assert_close(compute(), expected, what=transform)


class TracedSine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return fnp.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * TracedCosine.apply(ctx.x)


class TracedCosine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return fnp.cos(x)

    @staticmethod
    def backward(ctx, ct):
        return -ct * TracedSine.apply(ctx.x)


def test_what_is_around_is_part_of_it() -> None:
    """At one place in one function there may be more derivatives to come in some calls."""
    inner = lambda x: gradient(TracedSine.apply, x)  # noqa: E731
    for _ in range(WARM):
        assert_close(func.vmap(inner)(X[None]), np.cos(X)[None])
    for _ in range(WARM):
        assert_close(gradient(inner), -np.sin(X))
        assert_close(func.jacfwd(inner)(X), np.diag(-np.sin(X)))
        assert_close(func.hessian(lambda x: inner(x).sum())(X), np.diag(-np.cos(X)))
        assert_close(ftrans.jit(func.hessian(lambda x: inner(x).sum()))(X), np.diag(-np.cos(X)))


def test_a_call_of_another_type_or_number_is_another() -> None:
    class Times(Function):
        @staticmethod
        def forward(ctx, x, n, flag=False):
            ctx.n = n
            return -(x * n) if flag else x * n

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.n, None, None

    for _ in range(WARM):
        for n in (2, 3.0, True, 2.5, -0.0):
            assert_close(gradient(lambda x, n=n: Times.apply(x, n)), n + 0 * X)
        for x in (X, X[:2], X[0], X.astype("float32"), X + 0j):
            got = func.grad(lambda x: abs(Times.apply(x, 2).sum()))(x)
            assert (got.dtype, got.shape) == (x.dtype, np.shape(x))
        assert_close(func.vjp(lambda x: Times.apply(x, 2, True), X)[0], -2 * X)


# ----------------------------------------------------------------------------------- what changes


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_of_what_is_read_is_seen(case: Callable[[], Any]) -> None:
    function, change = case()
    f = lambda x: (function.apply(x) ** 2).sum() / 2  # noqa: E731
    for _ in range(WARM + 1):
        assert_close(func.grad(f)(X), 2 * X)
    change()
    assert_close(func.grad(f)(X), 3 * X)
    for _ in range(WARM):
        assert_close(func.grad(f)(X), 3 * X)


@pytest.mark.parametrize("module", [np, fnp])
def test_a_function_of_a_library_may_be_replaced(module: Any) -> None:
    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return module.sin(x)

        @staticmethod
        def backward(ctx, ct):
            return ct * module.cos(ctx.x)

    for _ in range(WARM):
        assert_close(gradient(Sine.apply), np.cos(X))
    with mock.patch.object(module, "cos", lambda x: 7 + 0 * x):
        assert_close(gradient(Sine.apply), 7 + 0 * X)
    assert_close(gradient(Sine.apply), np.cos(X))


def test_a_builtin_may_be_replaced() -> None:
    function = scaled(lambda: 2.0 + divmod(2, 1)[1])
    for _ in range(WARM):
        assert_close(gradient(function.apply), 2 + 0 * X)
    with mock.patch.object(builtins, "divmod", return_value=(2, 1)):
        assert_close(gradient(function.apply), 3 + 0 * X)


def test_a_method_may_be_opaque_for_some_arguments() -> None:
    number = 2.0

    class Sometimes(Function):
        @staticmethod
        def forward(x, opaque):
            return np.asarray(x) * 5.0 if opaque else x * number

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, ct):
            return ct, None

    traced = lambda x: Sometimes.apply(x, False)  # noqa: E731
    for _ in range(WARM):
        assert_close(func.vjp(traced, X)[0], 2 * X)
        assert_close(func.vjp(lambda x: Sometimes.apply(x, True), X)[0], 5 * X)
    assert_close(func.vjp(traced, X)[0], 2 * X)
    number = 3.0
    assert_close(func.vjp(traced, X)[0], 3 * X)


def test_a_builtin_may_be_hidden() -> None:
    name = "sum"
    function = scaled(lambda: sum([1.0, 1.0]))
    for _ in range(WARM):
        assert_close(gradient(function.apply), 2 + 0 * X)
    try:
        globals()[name] = lambda xs: 3.0
        assert_close(gradient(function.apply), 3 + 0 * X)
    finally:
        del globals()[name]
    assert_close(gradient(function.apply), 2 + 0 * X)


def test_a_function_of_a_part_of_a_library_may_be_replaced() -> None:
    class Norm(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return ct * fnp.linalg.norm(ct * 0 + 2) / np.sqrt(3.0)

    for _ in range(WARM):
        assert_close(gradient(Norm.apply), 2 + 0 * X)
    number = 3.0

    def norm(x: Any) -> Any:
        return number * np.sqrt(3.0)

    with mock.patch.object(fnp.linalg, "norm", norm):
        for _ in range(WARM):
            assert_close(gradient(Norm.apply), 3 + 0 * X)
        number = 4.0
        assert_close(gradient(Norm.apply), 4 + 0 * X)
