"""Opaque forwards: what they may return and keep, where they may stand, and that they are freed."""

from __future__ import annotations

import itertools
import math
import sys
import threading
import traceback
import weakref
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import MissingRuleError, RuleError
from tests.helpers import assert_close, sampled_rows
from tests.unit.clean import assert_nothing_open, collect
from tests.unit.function_database import CubeGenVmap, NumpyCube, NumpyMul, NumpySort

pytestmark = pytest.mark.filterwarnings("ignore")  # for the loop of vmap

X = np.array([1.0, 2.0, 3.0])


def opaque(forward: Any, backward: Any = lambda ct: ct) -> type[Function]:
    """Returns a Function whose forward is a function of NumPy arrays."""

    class Opaque(Function):
        @staticmethod
        def forward(ctx, x):
            return forward(np.asarray(x))

        @staticmethod
        def backward(ctx, ct):
            return backward(ct)

    return Opaque


# ------------------------------------------------------------------------------- what is returned


def in_one_buffer(saves: str, shown: Any) -> type[Function]:
    """Returns a kernel that writes squares into one array, and one that it saves into another."""
    result, double = np.zeros(3), np.zeros(3)

    class Buffered(Function):
        @staticmethod
        def forward(ctx, x):
            x = np.asarray(x)
            np.multiply(x, x, out=result)
            np.multiply(x, 2.0, out=double)
            if saves == "buffer":
                ctx.save_for_backward(double)
            elif saves == "result":
                ctx.save_for_backward(result)
            else:
                ctx.double = double
            return shown(result)

        @staticmethod
        def backward(ctx, ct):
            if saves == "result":
                (squares,) = ctx.saved_tensors
                return 2 * ct * fnp.sqrt(squares)
            return ct * (ctx.saved_tensors[0] if saves == "buffer" else ctx.double)

    return Buffered


@pytest.mark.parametrize("shown", [lambda x: x, lambda x: x[:]], ids=["itself", "a view"])
@pytest.mark.parametrize("saves", ["buffer", "result", "attribute"])
def test_what_a_kernel_writes_into_one_array_again_and_again_is_copied(
    saves: str, shown: Any
) -> None:
    f = in_one_buffer(saves, shown).apply

    def both(x: Any) -> Any:
        return f(x) + 10 * f(x + 1)

    value = X**2 + 10 * (X + 1) ** 2
    slope = 2 * X + 20 * (X + 1)
    for _ in range(4):
        assert_close(both(X), value)
        assert_close(func.grad(lambda x: both(x).sum())(X), slope)
        assert_close(mapped(both)(X), value)
        assert_close(func.vmap(func.grad(lambda x: both(x).sum()))(X[None])[0], slope)
        assert_close(ftrans.jit(both)(X), value)


def test_a_result_belongs_to_the_caller() -> None:
    f = in_one_buffer("buffer", lambda x: x).apply
    first = f(X)
    first += 100
    assert_close(f(X), X**2)
    assert_close(first, X**2 + 100)


def test_a_result_that_nobody_else_refers_to_is_not_copied(monkeypatch: Any) -> None:
    copies: list[Any] = []
    results = sys.modules["ftrans.external.arrays"]
    monkeypatch.setattr(results, "_plain", lambda x: copies.append(x) or np.array(x))

    class Saving(Function):
        @staticmethod
        def forward(ctx, x):
            y = 2 * np.asarray(x)
            ctx.save_for_backward(y, y + 1)
            ctx.third = y + 2
            return y, y + 3

        @staticmethod
        def backward(ctx, first, second):
            saved, other = ctx.saved_tensors
            return 2 * first + 0 * saved * other * ctx.third

    loss = lambda x: Saving.apply(x)[0].sum()  # noqa: E731
    func.grad(loss)(X)  # finds out that it is opaque
    copies.clear()
    assert_close(func.grad(loss)(X), 2 + 0 * X)
    Saving.apply(X)
    assert not copies


def mapped(f: Any) -> Any:
    """Calls a function for one example, by `vmap`."""
    return lambda x: func.vmap(f)(x[None])[0]


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        (lambda x: x, lambda ct: 5 * ct, [5.0, 10.0, 15.0]),
        (lambda x: x[::-1], lambda ct: ct[::-1], [3.0, 2.0, 1.0]),
        (lambda x: x.sum(), lambda ct: fnp.stack([ct] * 3), [6.0, 6.0, 6.0]),
        (lambda x: np.broadcast_to(x, (2, 3)), lambda ct: ct.sum(0), [2.0, 4.0, 6.0]),
        (lambda x: x.reshape(3, 1).T, lambda ct: ct[0], [1.0, 2.0, 3.0]),
        (lambda x: np.asfortranarray(np.outer(x, x)), lambda ct: 2 * ct @ X, [28.0, 28.0, 28.0]),
        (lambda x: x.astype(">f8"), lambda ct: ct, [1.0, 2.0, 3.0]),
        (lambda x: np.ma.array(x), lambda ct: ct, [1.0, 2.0, 3.0]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit, mapped])
def test_any_array_is_returned(wrap: Any, forward: Any, backward: Any, expected: Any) -> None:
    """The weights are one, two and three, along the last axis."""
    function = opaque(forward, backward)
    weights = X if np.ndim(forward(X)) else 6.0
    assert_close(wrap(func.grad(lambda x: (function.apply(x) * weights).sum()))(X), expected)
    assert_close(wrap(function.apply)(X), np.asarray(forward(X), np.float64))


def test_the_caller_cannot_change_what_is_kept() -> None:
    """A result that shares memory with an argument is a result all the same."""
    x = X.copy()
    out = func.value_and_grad(lambda x: opaque(lambda a: a).apply(x)[0])(x)
    x[:] = 7.0
    assert_close(out[0], 1.0)
    assert_close(out[1], [1.0, 0.0, 0.0])


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8", "?", "f2", "f4", "c8", "c16"])
@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit, func.vmap])
def test_every_dtype(wrap: Any, dtype: str) -> None:
    x = np.array([0, 1, 3]).astype(dtype)
    got = wrap(lambda x: NumpyMul.apply(x, x))(x)
    assert got.dtype == x.dtype
    assert_close(got, x * x)


@pytest.mark.parametrize(
    "x", [np.arange(12.0).reshape(3, 4)[:, ::-2], np.ones((2, 3)).T, np.ones(())]
)
def test_arrays_of_any_layout(x: np.ndarray) -> None:
    double = opaque(lambda a: a * 2, lambda ct: 2 * ct)
    assert_close(func.grad(lambda x: (double.apply(x) * x).sum())(x), 4 * x)
    assert_close(ftrans.jit(double.apply)(x), 2 * x)


class Foreign:
    """Is an array of another framework: all that is known of it is DLPack."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class ByDlpack(Function):
    """Hands its input to another framework, and returns what that returns."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Foreign(np.asarray(np.sin(np.from_dlpack(x))))

    @staticmethod
    def backward(ctx, ct):
        return ct * fnp.cos(*ctx.saved_tensors)


def test_arrays_of_other_frameworks() -> None:
    for wrap in (lambda f: f, ftrans.jit, func.vmap):
        out = wrap(ByDlpack.apply)(X)
        assert isinstance(out, np.ndarray)
        assert_close(out, np.sin(X))
    assert_close(func.grad(lambda x: ByDlpack.apply(x).sum())(X), np.cos(X))
    x = jax.numpy.asarray(X, "float32")
    assert isinstance(ByDlpack.apply(x), jax.Array)
    assert isinstance(func.grad(lambda x: ByDlpack.apply(x).sum())(x), jax.Array)


class ByMath(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = math.cos(x)
        return math.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.slope


def test_a_python_float_is_a_result() -> None:
    for x in (np.float64(0.3), np.float64(1.3)):
        assert_close(func.grad(ByMath.apply)(x), math.cos(x))
        assert_close(func.jvp(ByMath.apply, (x,), (x,))[1], math.cos(x) * x)
        assert_close(func.grad(lambda x: ByMath.apply(x) ** 2)(x), math.sin(2 * x))


# ------------------------------------------------------------------------- what is kept on the ctx


class Counts(Function):
    """Keeps a number that depends on the values."""

    @staticmethod
    def forward(ctx, x):
        x = np.asarray(x)
        ctx.count = int((x > 0).sum())
        return x * ctx.count

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.count


def test_a_python_number_on_ctx_is_that_of_the_call() -> None:
    gradient = func.grad(lambda x: Counts.apply(x).sum())
    assert_close(gradient(X), [3.0, 3.0, 3.0])
    assert_close(gradient(X - 2), [1.0, 1.0, 1.0])
    assert_close(gradient(X), [3.0, 3.0, 3.0])
    assert_close(func.jvp(Counts.apply, (X - 2,), (X,))[1], X)


class Keeps(Function):
    """Keeps numbers of Python's, one that depends on the values and two that do not."""

    @staticmethod
    def forward(ctx, x):
        x = np.asarray(x)
        ctx.mean, ctx.third, ctx.huge = float(x.mean()), 1 / 3, 1e200
        return x * ctx.mean

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.mean + ct * ctx.third + 1e-200 * (ct * ctx.huge)


class KeepsOpaque(Keeps):
    """Is the same with a backward that asks for plain arrays."""

    @staticmethod
    def backward(ctx, ct):
        ct = np.asarray(ct)
        return Keeps.backward(ctx, ct)


@pytest.mark.parametrize("road", ["interpret", "compile"])
@pytest.mark.parametrize("function", [Keeps, KeepsOpaque])
def test_python_floats_on_ctx_keep_their_digits(
    function: type[Function], road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ftrans.config, "execution", road)
    gradient = func.grad(lambda x: function.apply(x).sum())
    for x in (np.array([1.1, 2.2, 3.7]), np.array([1e9, 1.0])):
        np.testing.assert_array_equal(gradient(x), np.full(x.shape, x.mean() + 1 / 3 + 1.0))
    narrow = gradient(np.array([1.0, 2.0, 4.0], "float32") / 64)
    assert narrow.dtype == np.float32


def test_a_python_float_that_is_returned_keeps_its_digits() -> None:
    class Total(Function):
        @staticmethod
        def forward(ctx, x):
            return float(np.asarray(x).sum())

        @staticmethod
        def backward(ctx, ct):
            return ct * fnp.ones(2, "float64")

    x = np.array([1e9, 1 / 3])
    value, pull = func.vjp(Total.apply, x)
    assert float(value) == x.sum()
    assert_close(pull(1 / 3)[0], np.full(2, 1 / 3))


def test_a_python_number_on_ctx_is_that_of_the_example_or_an_error() -> None:
    """Where the values are not there while tracing: never the number of another call."""
    both = np.stack([X, X - 2])
    gradient = func.grad(lambda x: Counts.apply(x).sum())
    expected = [[3.0] * 3, [1.0] * 3]
    for call in (
        lambda: func.vmap(gradient)(both),
        lambda: np.stack([f(x) for f in [ftrans.jit(gradient)] for x in both]),
    ):
        try:
            got = call()
        except ftrans.FtransError as error:
            assert "Counts" in str(error)  # noqa: PT017
        else:
            assert_close(got, expected)
    assert_nothing_open()


def test_class_attributes_and_closures_are_those_of_the_call() -> None:
    for k in (2.0, 3.0, 2.0):
        scaled = opaque(lambda a: a * k, lambda ct: np.asarray(ct) * k)  # noqa: B023
        value, gradient = func.value_and_grad(lambda x: scaled.apply(x).sum())(X)  # noqa: B023
        assert_close(value, 6 * k)
        assert_close(gradient, [k] * 3)
        assert_close(func.vmap(scaled.apply)(X[None])[0], k * X)


# -------------------------------------------------------------------------- what it does inside


@pytest.mark.parametrize(
    "square",
    [
        lambda a: func.grad(lambda y: (y**3).sum())(a) / 3,
        lambda a: ftrans.jit(lambda y: y * y)(a),
        lambda a: NumpyMul.apply(a, a),
        lambda a: func.vmap(lambda y: y * y)(a),
        lambda a: np.asarray(jax.jit(lambda y: y * y)(a.astype(np.float32)), a.dtype),
    ],
)
@pytest.mark.parametrize("call", ["eager", "grad", "jit", "scan", "jit(scan)", "vmap"])
def test_transforms_inside(call: str, square: Any) -> None:
    """An opaque forward is a program of its own, also where compiled code calls it."""
    function = opaque(lambda a: square(np.atleast_1d(a)).reshape(a.shape), lambda ct: 2 * ct)
    got = CALLS[call](function.apply, X)
    if call == "grad":
        assert_close(got, [2.0] * 3)
    else:
        assert_close(got if call != "vmap" else got[1], X * X)


def test_threads_in_compiled_code() -> None:
    matrix = np.random.default_rng(0).normal(size=(60, 60))
    function = opaque(lambda a: a @ a, lambda ct: ct)
    compiled = ftrans.jit(lambda x: function.apply(x) * 2)
    wrong: list[Any] = []

    def work() -> None:
        for scale in (1.0, 2.0, 3.0):
            if not np.allclose(compiled(scale * matrix), 2 * scale**2 * matrix @ matrix):
                wrong.append(scale)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert wrong == []


# -------------------------------------------------------------------------------- when it raises


class TooBig(Exception):
    pass


def checked(x: np.ndarray) -> np.ndarray:
    if x.sum() > 10:
        raise TooBig("too big")
    return x * 2


CALLS = {
    "eager": lambda f, x: f(x),
    "grad": lambda f, x: func.value_and_grad(lambda x: f(x).sum())(x)[1],
    "jit": lambda f, x: ftrans.jit(f)(x),
    "scan": lambda f, x: ftrans.scan(lambda c, _: (f(c), None), x, length=1)[0],
    "jit(scan)": lambda f, x: ftrans.jit(
        lambda x: ftrans.scan(lambda c, _: (f(c), None), x, length=1)[0]
    )(x),
    "vmap": lambda f, x: func.vmap(f)(np.stack([x, x])),
    "while": lambda f, x: ftrans.while_loop(lambda c: c.sum() < 12, f, x),
}


@pytest.mark.smoke
@pytest.mark.parametrize("call", CALLS)
def test_an_exception_at_run_time_surfaces_as_it_is(call: str) -> None:
    """It is another call that fails than the one that was traced, and the next one works."""
    function = opaque(checked, lambda ct: 2 * ct)
    CALLS[call](function.apply, X / 4)
    with pytest.raises(TooBig, match="too big") as caught:
        CALLS[call](function.apply, X * 1.9)
    codes = [frame.f_code for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert checked.__code__ in codes
    CALLS[call](function.apply, X / 4)
    assert_nothing_open()


# ------------------------------------------------------------------------- inside JAX's transforms


JAX_CALLS = {
    "jit": (lambda f: jax.jit(f)(X), lambda d: d[0]),
    "vmap": (lambda f: jax.vmap(f)(X), lambda d: d[0]),
    "grad": (lambda f: jax.grad(lambda x: f(x).sum())(X), lambda d: d[1]),
    "jit(grad)": (lambda f: jax.jit(jax.grad(lambda x: f(x).sum()))(X), lambda d: d[1]),
    "vmap(grad)": (lambda f: jax.vmap(jax.grad(f))(X), lambda d: d[1]),
    "jvp": (lambda f: jax.jvp(f, (X,), (X,))[1], lambda d: d[1] * X),
    "hessian": (lambda f: jax.hessian(lambda x: f(x).sum())(X), lambda d: np.diag(d[2])),
    "jacrev(jacrev)": (
        lambda f: jax.jacrev(jax.jacrev(lambda x: f(x).sum()))(X),
        lambda d: np.diag(d[2]),
    ),
    "grad of ours": (
        lambda f: jax.grad(lambda x: func.grad(lambda y: f(y).sum())(x).sum())(X),
        lambda d: d[2],
    ),
    "grad of ours, closed over": (
        lambda f: jax.grad(lambda x: func.grad(lambda k: f(x * k).sum())(1.0))(X),
        lambda d: d[1] + X * d[2],
    ),
    "grad of our vmap": (
        lambda f: jax.grad(lambda x: func.vmap(func.grad(f))(x).sum())(X),
        lambda d: d[2],
    ),
    "jit of both": (
        lambda f: jax.jit(jax.grad(lambda x: func.grad(lambda y: f(y).sum())(x).sum()))(X),
        lambda d: d[2],
    ),
    "grad, grad, grad": (
        lambda f: jax.grad(
            lambda x: jax.grad(lambda y: func.grad(lambda z: f(z).sum())(y).sum())(x).sum()
        )(X),
        lambda d: d[3],
    ),
}


IN_REVERSE = [name for name in JAX_CALLS if name not in ("jvp", "hessian")]


@pytest.mark.parametrize(
    ("function", "call"), sampled_rows(itertools.product([NumpyCube, CubeGenVmap], JAX_CALLS), 3)
)
def test_under_the_transforms_of_jax(function: type[Function], call: str) -> None:
    take, pick = JAX_CALLS[call]
    if call in ("jvp", "hessian"):
        with pytest.raises(TypeError, match="forward-mode"):  # of what has a rule for reverse mode
            take(lambda x: function.apply(x)[0])
        return
    with jax.enable_x64(True):
        got = take(lambda x: function.apply(x)[0])
    assert_close(got, pick([X**3, 3 * X**2, 6 * X, 6 + 0 * X]))


@pytest.mark.parametrize(
    ("call", "statics"), sampled_rows(itertools.product(IN_REVERSE, [False, True]), 3)
)
def test_the_first_call_is_under_a_transform_of_jax(call: str, statics: bool) -> None:
    """What an opaque rule is given there depends on an opaque call, which JAX is tracing."""

    class Times(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            ctx.note = "as it was" if statics else np.asarray(x)
            return np.asarray(x) * np.asarray(y)

        @staticmethod
        def backward(ctx, ct):
            x, y = ctx.saved_tensors
            return Times.apply(ct, y), Times.apply(ct, x)

    take, pick = JAX_CALLS[call]
    with jax.enable_x64(True):
        got = take(lambda x: Times.apply(Times.apply(x, x), x))
    assert_close(got, pick([X**3, 3 * X**2, 6 * X, 6 + 0 * X]))


class TenTimesTheGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 0

    @staticmethod
    def backward(ctx, ct):
        return 10 * ct


def test_the_rule_counts_at_every_level_of_jax() -> None:
    """Not the derivative of forward, which is another one."""
    f = lambda x: (TenTimesTheGradient.apply(x) ** 3).sum()  # noqa: E731
    second = jax.grad(lambda x: jax.grad(f)(x).sum())
    assert_close(func.grad(f)(X), 30 * X**2)
    assert_close(func.grad(lambda x: func.grad(f)(x).sum())(X), 600 * X)
    with jax.enable_x64(True):
        assert_close(jax.grad(f)(X), 30 * X**2)
        assert_close(second(X), 600 * X)
        assert_close(jax.jit(second)(X), 600 * X)
        assert_close(jax.grad(lambda x: second(x).sum())(X), 6000 + 0 * X)


class Times(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, ct):
        return ct * 5


class Seven(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 7

    @staticmethod
    def backward(ctx, ct):
        return ct * 100


class Five(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 5

    @staticmethod
    def backward(ctx, ct):
        return ct * Seven.apply(ctx.x)


class Three(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 3

    @staticmethod
    def backward(ctx, ct):
        return ct * Five.apply(ctx.x)


class OfItself(Function):
    """Its derivative is itself, ten times."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 3

    @staticmethod
    def backward(ctx, ct):
        return ct * 10 * OfItself.apply(ctx.x)


def test_rules_inside_rules_at_every_level_of_jax() -> None:
    def times(n: int, take: Any, f: Any) -> Any:
        for _ in range(n):
            f = take(f)
        return f

    with jax.enable_x64(True):
        for n, expected in ((1, 7.5), (2, 7 * 1.5), (3, 100.0)):
            assert_close(times(n, func.grad, Three.apply)(1.5), expected)
            assert_close(times(n, jax.grad, Three.apply)(1.5), expected)
            assert_close(jax.jit(times(n, jax.grad, Three.apply))(1.5), expected)
            inside = ftrans.external.jax(Three.apply)  # type: ignore[attr-defined]
            assert_close(times(n, func.grad, inside)(1.5), expected)
        for n in range(1, 5):
            assert_close(times(n, jax.grad, OfItself.apply)(1.5), 10**n * 4.5)
        with pytest.raises(MissingRuleError, match="differentiated more often"):
            times(7, jax.grad, OfItself.apply)(1.5)
        with pytest.raises(MissingRuleError, match="differentiated more often"):
            times(3, jax.grad, ftrans.jit(OfItself.apply))(1.5)


class Product(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.x, ctx.y = x, y
        return x * y

    @staticmethod
    def backward(ctx, ct):
        return Product.apply(ct, ctx.y), Product.apply(ctx.x, ct)


@pytest.mark.parametrize("function", [Product, NumpyMul])
def test_what_jax_traces_may_be_closed_over(function: type[Function]) -> None:
    """It is seen when the rule has been called already; rules inside of it are wanted even so."""
    product = lambda x: Three.apply(x) * function.apply(x, x)  # noqa: E731
    f = lambda w: func.grad(lambda x: product(x) * w)(1.5)  # noqa: E731
    # of 4.5 and 2.25: their derivatives are 7.5 and 3
    with jax.enable_x64(True):
        for _ in range(4):
            assert_close(f(2.0), 2 * (7.5 * 2.25 + 4.5 * 3.0))
            assert_close(jax.grad(f)(2.0), 7.5 * 2.25 + 4.5 * 3.0)
            assert_close(jax.jit(jax.grad(f))(2.0), 7.5 * 2.25 + 4.5 * 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("x", [2.0, np.float64(2), np.array([2.0]), jnp.array([2.0], "float32")])
@pytest.mark.parametrize("function", [NumpyCube, CubeGenVmap])
def test_jax_without_float64(function: type[Function], x: Any) -> None:
    f = lambda x: function.apply(x)[0].sum()  # noqa: E731
    for g, expected in (
        (f, 8.0),
        (jax.grad(f), 12.0),
        (jax.grad(lambda x: jax.grad(f)(x).sum()), 12.0),
    ):
        for take in (g, jax.jit(g)):
            got = take(x) if g is not f else jax.value_and_grad(take)(x)[0]
            assert got.dtype == np.float32
            assert_close(got, np.full(np.shape(x) if g is not f else (), expected, np.float32))


@pytest.mark.parametrize("function", [Seven, Times, Three])
def test_double_precision_may_come_and_go(function: type[Function]) -> None:
    """What JAX has compiled for one is not what it runs for the other."""
    x = np.float64(1.5)
    expected = float(func.grad(function.apply)(x))
    inside = ftrans.external.jax(function.apply)  # type: ignore[attr-defined]
    first = jax.grad(function.apply)
    by_ours = jax.grad(lambda w: jnp.sum(func.grad(lambda x: (function.apply(x) * w).sum())(x)))
    for _ in range(2):
        assert_close(func.grad(inside)(x), expected)
        for f, at in ((first, x), (jax.jit(first), x), (by_ours, 2.0)):
            assert_close(f(at), np.float32(expected))
            with jax.enable_x64(True):
                assert_close(f(at), np.float64(expected))


def test_a_context_that_holds_itself() -> None:
    class Cyclic(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.seen = []
            ctx.seen.append(ctx.seen)
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx, ct):
            return 2 * ct

    with pytest.raises(RuleError, match="holds itself"):
        func.grad(lambda x: Cyclic.apply(x).sum())(X)


def test_stopped_gradients_stay_so_under_jax() -> None:
    class Stopped(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx, ct):
            return ct * 2 * fnp.stop_gradient(ctx.x)

    through = lambda x: x + fnp.stop_gradient(fnp.round(x) - x)  # noqa: E731
    x = np.float64(1.3)
    with jax.enable_x64(True):
        for wrap in (lambda f: f, ftrans.jit, jax.jit):
            assert_close(jax.grad(wrap(through))(x), 1.0)
            assert_close(jax.grad(wrap(lambda x: x * fnp.stop_gradient(x)))(x), 1.3)
            assert_close(jax.grad(jax.grad(wrap(Stopped.apply)))(x), 0.0)
    assert_close(func.grad(func.grad(Stopped.apply))(x), 0.0)


# ---------------------------------------------------------------------------------------- memory


def use_once(k: float) -> Any:
    """Makes a Function over an array, differentiates it, and returns a weak reference to that."""
    table = np.full(3, k)
    function = opaque(lambda a: a * table, lambda ct: np.asarray(ct) * table)
    assert_close(func.grad(lambda x: function.apply(x).sum())(X), table.copy())
    return weakref.ref(table)


def test_a_function_that_is_forgotten_is_freed() -> None:
    """And the arrays that it closes over with it."""
    kept = [use_once(float(k)) for k in range(4)]
    ftrans.cache_clear()
    collect()
    assert [ref() is None for ref in kept] == [True] * 4


def test_a_sort_of_nothing() -> None:
    for shape in ((0, 3), (3, 0), (0,)):
        x = np.zeros(shape)
        f = lambda x: NumpySort.apply(x, -1)[0].sum()  # noqa: E731
        assert_close(func.grad(f)(x), np.ones(shape))
        if len(shape) == 2:
            assert_close(func.vmap(func.grad(f))(x), np.ones(shape))


# --------------------------------------------------------------------------------- called once


class Kernel(Function):
    """Counts its calls, and keeps numbers of all kinds."""

    calls = 0
    number: Any = 2.0

    @staticmethod
    def forward(ctx, x):
        Kernel.calls += 1
        a = np.asarray(x)
        if a.sum() > 100:
            raise TooBig("too big")
        ctx.save_for_backward(x)
        ctx.number, ctx.mean, ctx.label = Kernel.number, float(a.mean()), "as it is"
        return a * a

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        assert ctx.label == "as it is"
        assert ctx.number is Kernel.number or isinstance(Kernel.number, float)
        return 2 * x * ct


KNOWN = {
    "grad": lambda f: func.grad(lambda x: (f(x * 1) * 1).sum())(X),
    "value_and_grad": lambda f: func.value_and_grad(lambda x: f(x).sum())(X)[0],
    "vjp": lambda f: func.vjp(f, X)[1](np.ones(3))[0],
    "jvp": lambda f: func.jvp(f, (X,), (np.ones(3),))[1],
    "jacrev": lambda f: np.diag(func.jacrev(f)(X)),
    "jacfwd": lambda f: np.diag(func.jacfwd(f)(X)),
    "linearize": lambda f: func.linearize(f, X)[1](np.ones(3)),
    "hessian": lambda f: np.diag(func.hessian(lambda x: f(x).sum())(X)),
    "grad of grad": lambda f: func.grad(lambda x: func.grad(lambda x: f(x).sum())(x).sum())(X),
    "grad over another batch": lambda f: func.grad(
        lambda x: (func.vmap(lambda k: f(x) * k)(np.arange(2.0))).sum()
    )(X),
}


@pytest.mark.parametrize("road", ["auto", "interpret", "compile"])
@pytest.mark.parametrize("transform", KNOWN)
def test_forward_is_called_exactly_once(
    transform: str, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its argument has a value; at the first call as at all others."""
    monkeypatch.setattr(ftrans.config, "execution", road)
    ftrans.cache_clear()

    class Fresh(Kernel):
        pass

    slope = {"value_and_grad": 14.0, "hessian": np.full(3, 2.0), "grad of grad": np.full(3, 2.0)}
    for number in (2, 2.5, 1, 3, 2.5):
        Kernel.number, before = number, Kernel.calls
        assert_close(KNOWN[transform](Fresh.apply), slope.get(transform, 2 * X))
        assert Kernel.calls == before + 1


def test_what_forward_raises_is_caught_around_the_call() -> None:
    def f(x: Any, scale: float) -> Any:
        try:
            return Kernel.apply(x * scale).sum()
        except TooBig:
            return (x**3).sum()

    for scale, expected in ((1.0, 2 * X), (100.0, 3 * X**2), (2.0, 8 * X), (100.0, 3 * X**2)):
        assert_close(func.grad(lambda x: f(x, scale))(X), expected)  # noqa: B023
    assert_nothing_open()


def test_python_goes_on_with_what_it_returns() -> None:
    def f(x: Any) -> Any:
        y = Kernel.apply(x)
        return (y * 3).sum() if y.sum() > 10 else y.sum()

    before = Kernel.calls
    assert_close(func.grad(f)(X), 6 * X)
    assert_close(func.grad(f)(X / 2), X)
    assert Kernel.calls == before + 2


def test_what_was_computed_in_between_has_no_silent_derivative() -> None:
    """Not even where it is a Python number, or inside of an object."""

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            a = np.asarray(x)
            ctx.mean, ctx.holder = float(a.mean()), (lambda ct: ct * 2 * a)
            return a * a

        @staticmethod
        def backward(ctx, ct):
            return ctx.holder(ct) + 0 * ctx.mean

    for _ in range(3):
        assert_close(func.grad(lambda x: Scaled.apply(x).sum())(X), 2 * X)
        with pytest.raises(MissingRuleError, match=r"Scaled.forward: it is opaque"):
            func.grad(lambda x: func.grad(lambda x: Scaled.apply(x).sum())(x).sum())(X)


def test_numbers_keep_their_digits() -> None:
    class Third(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = 1 / 3
            return np.asarray(x) * ctx.k

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.k

    for transform in (lambda f: f, ftrans.jit, lambda f: lambda x: func.vmap(f)(x[None])[0]):
        for _ in range(2):
            found = transform(func.grad(lambda x: Third.apply(x).sum()))(X)
            np.testing.assert_array_equal(found, np.full(3, 1 / 3))


def test_a_method_that_works_in_place_is_called_once() -> None:
    """But for the first call, which finds out that it asks for arrays."""
    calls = []

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            calls.append(1)
            a = np.asarray(x)
            np.exp(a, out=a)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.saved_tensors[0]

    gradient = func.grad(lambda x: Exponential.apply(x * 1).sum())
    for n in (2, 3, 4):
        assert_close(gradient(X), np.exp(X))
        assert len(calls) == n
    assert_close(Exponential.apply(X.copy()), np.exp(X))
    assert len(calls) == 5


def test_an_output_buffer_that_is_used_again() -> None:
    buffer = np.empty(3)

    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            np.multiply(np.asarray(x), 2.0, out=buffer)
            ctx.kept = buffer
            return buffer

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.kept / ctx.kept * 2

    kept = [func.vjp(Doubled.apply, k * X) for k in (1.0, 10.0)]
    for k, (out, pull) in zip((1.0, 10.0), kept, strict=True):
        assert_close(out, 2 * k * X)
        assert_close(pull(np.ones(3))[0], [2.0, 2.0, 2.0])
    found = func.grad(lambda x: (Doubled.apply(x) * Doubled.apply(x + 1)).sum())(X)
    assert_close(found, 8 * X + 4)
    assert_nothing_open()


def test_an_example_that_differs_does_not_pass_for_the_one_before() -> None:
    class Magnitude(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.positive = bool(np.asarray(x) > 0)
            return abs(np.asarray(x))

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct if ctx.positive else -ct

    f = lambda x: Magnitude.apply(x)  # noqa: E731
    assert_close(ftrans.jit(func.grad(f))(-1.0), -1.0)
    for x in (2.0, -1.0, 2.0, -1.0):
        try:
            found = func.grad(ftrans.jit(f))(x)
        except RuleError:
            continue  # which says that the example does not stand for this call
        assert_close(found, np.sign(x))


@pytest.mark.parametrize("opaque", [True, False])
def test_dicts_keep_their_order(opaque: bool) -> None:
    class Affine(Function):
        @staticmethod
        def forward(ctx: Any, params: Any, x: Any, options: Any) -> Any:
            w, b = [np.asarray(p) for p in params.values()] if opaque else params.values()
            ctx.first = {"b": w, "a": b}
            ctx.scale = next(iter(options.values()))
            ctx.save_for_backward(x)
            return (w * x + b) * ctx.scale

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            w = next(iter(ctx.first.values()))
            ct = ct * ctx.scale
            return {"w": ct * x, "b": ct}, ct * w, None

    params, options = {"w": 2.0, "b": 1.0}, {"b": 3, "a": 1}
    f = lambda p, x: Affine.apply(p, x, options)  # noqa: E731
    for _ in range(4):
        assert_close(f(params, 10.0), 63.0)
        value, by_x = func.value_and_grad(f, 1)(params, 10.0)
        assert_close(value, 63.0)
        assert_close(by_x, 6.0)


LABELS = [
    np.array(["a", "b"]),
    np.array([None, 1], object),
    np.array(["2026-01-01"], "M8[D]"),
    np.array([(1.0,)], [("a", "f8")]),
    np.ma.MaskedArray([1.0, 2.0], [False, True]),
    [np.array(["a"])],
]


@pytest.mark.parametrize(
    "label", LABELS, ids=[str(type(x).__name__) + str(i) for i, x in enumerate(LABELS)]
)
def test_arrays_of_anything_but_numbers_are_left_on_the_context(label: Any) -> None:
    class Labelled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.label = label
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            assert type(ctx.label) is type(label)
            return ct * 2

    for _ in range(4):
        assert_close(func.grad(Labelled.apply)(1.0), 2.0)


@pytest.mark.parametrize("opaque", [True, False])
def test_an_input_that_is_saved_and_returned_is_the_input(opaque: bool) -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            if opaque:
                np.asarray(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * 2 * x

    for _ in range(4):
        assert_close(func.grad(func.grad(Square.apply))(3.0), 2.0)


def test_what_is_known_of_an_argument_goes_with_it() -> None:
    """One that has no hash is known by its identity, which another may have later."""

    class Option:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, plain: bool):
            self.plain = plain

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, option: Option) -> Any:
            ctx.save_for_backward(x)
            ctx.option = option
            return np.asarray(x) ** 2 if option.plain else x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2 * ct * ctx.saved_tensors[0], None

    for plain in (True, False) * 3:
        option = Option(plain)
        twice = func.grad(func.grad(lambda x, option=option: Square.apply(x * 1.0, option) * x))
        if plain:
            with pytest.raises(MissingRuleError):
                twice(3.0)
        else:
            assert_close(twice(3.0), 18.0)
        del option, twice
