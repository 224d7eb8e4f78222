"""Opaque forwards that are called again and again: each call has what it left itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.config import config
from ftrans.errors import RuleError
from tests.helpers import assert_close

KEPT: list[np.ndarray] = []
BUFFER = np.zeros(3)
STATE = {"calls": 0}


def rule(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[Function]:
    """Returns a Function whose forward is given its context and NumPy arrays; it counts calls."""

    class Opaque(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            STATE["calls"] += 1
            return forward(ctx, *[np.asarray(x) if hasattr(x, "shape") else x for x in args])

        @staticmethod
        def backward(ctx: Any, *cts: Any) -> Any:
            return backward(ctx, *cts)

    return Opaque


def saving(saved: Callable[..., Any], output: Callable[..., Any], back: Any) -> type[Function]:
    """Returns a Function that saves what `saved` says of argument and result."""

    def forward(ctx: Any, x: Any) -> Any:
        out = output(x)
        ctx.save_for_backward(*saved(x, out))
        return out

    return rule(forward, back)


def square(x: Any) -> Any:
    return x * x


def by_input(ctx: Any, ct: Any) -> Any:
    return 2 * ctx.saved_tensors[0] * ct


def _odd(ctx: Any, x: Any) -> Any:
    """Leaves other things at every other call."""
    if STATE["calls"] % 2:
        ctx.x = x
    else:
        ctx.double = 2 * x
    return x * x


def _numbered(ctx: Any, x: Any) -> Any:
    ctx.number = 1000 + STATE["calls"]
    ctx.save_for_backward(x)
    return x * x * (1.0 + ctx.number % 2)


def _sometimes_rigid(ctx: Any, x: Any) -> Any:
    out = x * x, 3 * x
    ctx.save_for_backward(x)
    if STATE["calls"] % 2:
        ctx.mark_non_differentiable(out[1])
    return out


def _sometimes_constant(ctx: Any, x: Any) -> Any:
    out = x * x
    ctx.save_for_backward(x)
    if STATE["calls"] % 2:
        ctx.mark_non_differentiable(out)
    return out


def _in_buffer(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return np.multiply(x, x, out=BUFFER)


def _kept(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    KEPT.append(x * x)
    return KEPT[-1]


def _both(ctx: Any, a: Any, b: Any) -> Any:
    return 2 * ctx.saved_tensors[0] * a + (0 if b is None else 3 * b)


def first(found: Any) -> Any:
    return found[0]


FUNCTIONS: dict[str, tuple[type[Function], Callable[..., Any], Callable[[Any, int], Any]]] = {
    # how the result is used, and the gradient of its sum, with the number of the call
    "saves its input": (saving(lambda x, y: [x], square, by_input), first, lambda x, n: 2 * x),
    "saves its result": (
        saving(lambda x, y: [y], np.exp, lambda ctx, ct: ctx.saved_tensors[0] * ct),
        first,
        lambda x, n: np.exp(x),
    ),
    "saves what is neither": (
        saving(lambda x, y: [2 * x], square, lambda ctx, ct: ctx.saved_tensors[0] * ct),
        first,
        lambda x, n: 2 * x,
    ),
    "saves a view": (
        saving(lambda x, y: [x[::-1]], square, lambda ctx, ct: 2 * ctx.saved_tensors[0][::-1] * ct),
        first,
        lambda x, n: 2 * x,
    ),
    "saves both in turn": (
        saving(
            lambda x, y: [x, y] if STATE["calls"] % 2 else [y, x],
            lambda x: 2 * x,
            lambda ctx, ct: ctx.saved_tensors[0] * ct,
        ),
        first,
        lambda x, n: x if n % 2 else 2 * x,
    ),
    "other attributes in turn": (
        rule(_odd, lambda ctx, ct: ct * (2 * ctx.x if hasattr(ctx, "x") else ctx.double)),
        first,
        lambda x, n: 2 * x,
    ),
    "a number that counts": (
        rule(
            _numbered, lambda ctx, ct: 2 * ctx.saved_tensors[0] * ct * (1 + fnp.mod(ctx.number, 2))
        ),
        first,
        lambda x, n: 2 * x * (1.0 + n % 2),
    ),
    "marks in turn": (
        rule(_sometimes_rigid, _both),
        lambda found: found[0][0] + found[0][1],
        lambda x, n: 2 * x + (0 if n % 2 else 3),
    ),
    "a mark in turn": (
        rule(_sometimes_constant, by_input),
        first,
        lambda x, n: 0 if n % 2 else 2 * x,
    ),
    "one result twice": (
        rule(lambda ctx, x: (ctx.save_for_backward(x), (y := x * x, y))[1], _both),
        lambda found: found[0][0] + found[0][1],
        lambda x, n: 2 * x + 3,
    ),
    "its input": (
        rule(lambda ctx, x: x, lambda ctx, ct: 5 * ct),
        first,
        lambda x, n: np.full(3, 5.0),
    ),
    "one buffer": (
        rule(_in_buffer, by_input),
        lambda found: found[0] + 0 * found[1],
        lambda x, n: 2 * x,
    ),
    "what others keep": (rule(_kept, by_input), first, lambda x, n: 2 * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_call_has_what_it_left(name: str) -> None:
    function, use, slope = FUNCTIONS[name]
    STATE["calls"] = 0

    def loss(x: Any) -> Any:
        y = function.apply(fnp.sin(x))
        KEPT[:] = [np.multiply(array, 0, out=array) for array in KEPT]  # which is nobody's business
        return (use([y, x]) * fnp.cos(x)).sum()

    for call in range(1, 13):
        x = np.array([0.5, -1.0, 2.0]) + call
        s = np.sin(x)
        gradient, value = func.grad_and_value(loss)(x)
        assert STATE["calls"] == call, "it is called exactly once"
        with np.errstate(all="raise"):
            out = use([function.forward(_Context(), s), x])
        STATE["calls"] = call
        if name in ("a number that counts", "marks in turn"):
            out = s * s * (1.0 + call % 2) if "number" in name else s * s + 3 * s
        assert_close(value, (out * np.cos(x)).sum())
        assert_close(gradient, slope(s, call) * np.cos(x) ** 2 - out * np.sin(x))


class _Context:
    """Takes what a forward leaves."""

    def save_for_backward(self, *tensors: Any) -> None:
        pass

    mark_non_differentiable = save_for_backward


def test_arguments_that_are_no_arrays_tell_calls_apart() -> None:
    power = rule(
        lambda ctx, x, n: (setattr(ctx, "n", n), ctx.save_for_backward(x), x**n)[2],
        lambda ctx, ct: (ctx.n * ctx.saved_tensors[0] ** (ctx.n - 1) * ct, None),
    )
    x = np.array([1.5, 2.0, 3.0])
    for n in (2, 2, 2, 3, 3, 2, 2.0, 2.0, True, 1, 1000, 1000):
        for scale in (1.0, 1.1):
            if n == 1000:
                scale *= 1e-2 + 0.32
            found = func.grad(lambda x, n=n: power.apply(x, n).sum())(x * scale)
            assert_close(found, n * (x * scale) ** (n - 1.0))


def test_arrays_among_the_arguments_may_be_written_to_between_calls() -> None:
    def forward(ctx: Any, x: Any, a: Any) -> Any:
        ctx.save_for_backward(a)
        return x * a

    times = rule(forward, lambda ctx, ct: (ct * ctx.saved_tensors[0], None))
    a, x = np.ones(3), np.arange(3.0)
    gradient = func.grad(lambda x: times.apply(x, a).sum())
    for k in range(4):
        a[:] = k
        assert_close(gradient(x), np.full(3, float(k)))


def test_a_call_that_failed_is_followed_by_one_that_does_well() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        if x[0] < 0:
            raise ArithmeticError("negative")
        return x * x

    gradient = func.grad(lambda x: rule_.apply(x).sum())
    rule_ = rule(forward, by_input)
    for x in (1.0, 2.0, -1.0, 3.0, -1.0, 4.0):
        if x < 0:
            with pytest.raises(ArithmeticError, match="negative"):
                gradient(np.array([x]))
        else:
            assert_close(gradient(np.array([x])), np.array([2 * x]))


def test_what_is_returned_belongs_to_the_caller() -> None:
    function = FUNCTIONS["saves its input"][0]
    x = np.arange(3.0)
    for _ in range(4):
        gradient, aux = func.grad(lambda x: ((y := function.apply(x)).sum(), y), has_aux=True)(x)
        aux += 1.0
        gradient += 1.0
        assert_close(aux, x * x + 1.0)
        value, pull = func.vjp(function.apply, x)
        value += 1.0
        assert_close(pull(np.ones(3))[0], 2 * x)


def test_shapes_and_dtypes_tell_calls_apart() -> None:
    function = FUNCTIONS["saves its input"][0]
    gradient = func.grad(lambda x: function.apply(x).sum())
    for _ in range(3):
        for x in (np.ones(3), np.ones((2, 0)), np.ones(3, "float32"), np.float64(2.0), np.ones(4)):
            found = gradient(x)
            assert found.shape == x.shape
            assert found.dtype == x.dtype
            assert_close(found, 2 * x)


def test_what_is_written_and_not_marked_is_an_error_at_any_call() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        if STATE["writes"]:
            x[0] = 5.0
        return x * x

    gradient = func.grad(lambda x: rule_.apply(fnp.sin(x)).sum())
    rule_ = rule(forward, by_input)
    for writes in (0, 0, 0, 0, 1, 0, 1):
        STATE["writes"] = writes
        if writes:
            with pytest.raises(RuleError, match="writes into an argument"):
                gradient(np.ones(3))
        else:
            assert_close(gradient(np.ones(3)), np.full(3, np.sin(2.0)))


@pytest.mark.filterwarnings("ignore")  # for the loop of vmap
def test_calls_that_differ_in_what_is_differentiated_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "check", True)
    times = rule(
        lambda ctx, x, y: (ctx.save_for_backward(x, y), np.sin(x) * y)[1],
        lambda ctx, ct: (
            ct * fnp.cos(ctx.saved_tensors[0]) * ctx.saved_tensors[1],
            ct * fnp.sin(ctx.saved_tensors[0]),
        ),
    )
    b = np.array([3.0, 4.0])

    def loss(x: Any) -> Any:
        return sum(times.apply(*pair).sum() for pair in ((x, b), (x, x), (b, x)))

    x = np.array([[1.0, 2.0], [0.5, -1.0]])
    for _ in range(2):
        found = func.vmap(func.grad(loss))(x)
        assert_close(found, np.cos(x) * (b + x) + np.sin(x) + np.sin(b))
