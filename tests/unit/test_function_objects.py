"""Objects that an opaque forward makes at each call and leaves on its context."""

from __future__ import annotations

import re
import struct
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.interpolate import CubicSpline

import ftrans
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import MissingRuleError, RuleError
from tests.helpers import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:.*vmap calls it")

X = np.array([0.5, 1.0, 2.0])
KNOTS = np.linspace(-1.0, 3.0, 9)


class Spline(Function):
    """Is x^3 on these knots, which a cubic spline is exactly."""

    @staticmethod
    def forward(ctx, x):
        ctx.spline, ctx.x, ctx.name = CubicSpline(KNOTS, KNOTS**3), x, "cubic"
        return ctx.spline(np.asarray(x))

    @staticmethod
    def backward(ctx, ct):
        assert ctx.name == "cubic"
        return np.asarray(ct) * ctx.spline(np.asarray(ctx.x), 1)

    @staticmethod
    def jvp(ctx, t):
        return np.asarray(t) * ctx.spline(np.asarray(ctx.x), 1)


class Square(Function):
    """Its objects depend on the values of its argument; its rule would not have to be opaque."""

    @staticmethod
    def forward(x):
        return scipy.sparse.diags(np.asarray(x)) @ np.asarray(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x = np.asarray(inputs[0])
        ctx.matrix, ctx.twice, ctx.seen = scipy.sparse.diags(x), lambda ct: 2 * x * ct, {1}

    @staticmethod
    def backward(ctx, ct):
        assert ctx.seen == {1}
        return (ctx.matrix @ np.asarray(ct) * 2 + ctx.twice(ct)) / 2


ROADS: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: func.grad(lambda x: f(x).sum())(x),
    "jit": lambda f, x: ftrans.jit(func.grad(lambda x: f(x).sum()))(x),
    "vjp": lambda f, x: func.vjp(f, x)[1](np.ones(3))[0],
    "jacrev": lambda f, x: np.diag(func.jacrev(f)(x)),
    "vmap": lambda f, x: func.vmap(func.grad(lambda x: f(x).sum()))(np.stack([X, x]))[1],
    "scan": lambda f, x: func.grad(
        lambda x: ftrans.scan(lambda c, _: (f(c), None), x, length=1)[0].sum()
    )(x),
}


@pytest.mark.parametrize("road", ["grad", "vjp", "jacrev"])
@pytest.mark.parametrize(
    ("function", "slope"), [(Spline, lambda x: 3 * x**2), (Square, lambda x: 2 * x)]
)
def test_each_call_has_its_own(function: type[Function], slope: Any, road: str) -> None:
    for k in (1.0, 0.5, 0.25, 1.0):
        x = k * X
        assert_close(ROADS[road](function.apply, x), slope(x), 1e-10)


@pytest.mark.parametrize("road", ["jit", "vmap", "scan"])
@pytest.mark.parametrize(
    ("function", "name", "kind"), [(Spline, "spline", "CubicSpline"), (Square, "matrix", "dia_.*")]
)
def test_no_object_crosses_a_program(
    function: type[Function], name: str, kind: str, road: str
) -> None:
    with pytest.raises(RuleError) as caught:
        ROADS[road](function.apply, X)
    expected = (
        f"{function.__name__}.forward: it leaves on its context what is neither an array nor a "
        f"constant, and is called when the\n  program is run, since its arguments have no values: "
        f"as under vmap, jit, or in a loop.\n"
        f"  ctx.{name}: {kind}\n"
        f"  it is defined at {__file__}:{function.forward.__code__.co_firstlineno}\n"
        f"  Save the arrays that it is made of, and make it in the rule that uses it."
    )
    assert re.fullmatch(re.escape(expected).replace(re.escape(kind), kind), str(caught.value))


def test_forward_mode() -> None:
    for k in (1.0, 0.5):
        assert_close(func.jvp(Spline.apply, (k * X,), (X,))[1], 3 * (k * X) ** 2 * X, 1e-10)


def test_what_is_random_is_saved_and_not_drawn_again() -> None:
    draw = np.random.default_rng(0)

    class Dropout(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mask, ctx.note = draw.integers(0, 2, x.shape).astype(float), object()
            return np.asarray(x) * ctx.mask

        @staticmethod
        def backward(ctx, ct):
            assert type(ctx.note) is object
            return np.asarray(ct) * ctx.mask

    x = np.ones(20)
    for _ in range(5):
        out, pull = func.vjp(Dropout.apply, x)
        assert_close(pull(x)[0], out)


def test_it_is_opaque() -> None:
    with pytest.raises(MissingRuleError, match="Square"):
        func.grad(lambda x: func.grad(lambda x: Square.apply(x).sum())(x).sum())(X)


def test_numbers_that_differ_at_each_call_are_those_of_the_call() -> None:
    calls = []

    class Counting(Function):
        @staticmethod
        def forward(ctx, x):
            calls.append(1)
            ctx.count = len(calls)
            return np.asarray(x) * 1.0

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.count

    for n in (1.0, 2.0, 3.0):
        assert_close(func.grad(lambda x: Counting.apply(x).sum())(X), [n, n, n])


ENCODED: dict[str, tuple[Any, Any]] = {
    "text": (
        lambda a: " ".join(map(repr, a.tolist())),
        lambda text: np.array([*map(float, text.split())]),
    ),
    "texts": (
        lambda a: [repr(x) for x in a.tolist()],
        lambda texts: np.array([*map(float, texts)]),
    ),
    "bytes": (lambda a: a.tobytes(), np.frombuffer),
    "integer": (
        lambda a: int.from_bytes(a.tobytes(), "little"),
        lambda n: np.frombuffer(n.to_bytes(24, "little")),
    ),
}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("kind", ENCODED)
def test_what_spells_out_values_has_no_silent_derivative(kind: str, apart: bool) -> None:
    encode, decode = ENCODED[kind]

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.saved = encode(np.asarray(x))
            return np.asarray(x) ** 2

        @staticmethod
        def backward(ctx, ct):
            return ct * 2 * decode(ctx.saved)

    class Apart(Function):
        @staticmethod
        def forward(x):
            return np.asarray(x) ** 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.saved = encode(np.asarray(inputs[0]))

        backward = Square.backward

    function: Any = Apart if apart else Square
    for k in (1.0, 0.5, 1.0):
        grad = func.grad(lambda x: function.apply(x).sum())
        assert_close(grad(k * X), 2 * k * X)
        with pytest.raises(MissingRuleError, match=f"{function.__name__}.forward: it is opaque"):
            func.grad(lambda x, grad=grad: grad(x).sum())(k * X)


MODE = "cubic"


CARRIERS: dict[str, Callable[[float], Any]] = {
    "key": lambda v: {v: 1},
    "text": lambda v: {repr(v): 1},
    "bytes": lambda v: {struct.pack("d", v): 1},
    "tuple": lambda v: {(1, v): 1},
    "integer": lambda v: {int(v * 2**50): 1},
    "ordered": lambda v: OrderedDict([(v, 1)]),
    "slice": lambda v: slice(0.0, v),
    "inside": lambda v: [{"a": (slice(repr(v)), 1)}],
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_keys_and_slices_that_hold_values_have_no_silent_derivative(carrier: str) -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.memo = CARRIERS[carrier](float(np.asarray(x)))
            return x**3

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ct * 3 * x * x

    assert_close(func.grad(Cube.apply)(1.7), 3 * 1.7**2)
    for transform in (lambda f: func.grad(func.grad(f)), func.hessian):
        with pytest.raises(MissingRuleError, match="it is opaque"):
            transform(Cube.apply)(1.7)


def test_keys_and_slices_that_are_written_are_constants() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.tables = {0.5: "a"}, {"name": (1, 2)}, {(1, 0.25): 0}, slice(0, 5)
            return np.asarray(x) ** 3

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ct * 3 * x * x

    assert_close(func.grad(func.grad(Cube.apply))(1.7), 6 * 1.7)


def test_texts_that_are_written_or_given_are_constants() -> None:
    def name() -> str:
        return "of a helper"

    class Square(Function):
        @staticmethod
        def forward(ctx, x, mode, *, note):
            ctx.mode, ctx.other, ctx.name, ctx.note = mode, MODE, name(), note
            ctx.tag, ctx.size, ctx.most = ("tag", b"tag"), x.size, 2**40
            ctx.save_for_backward(x)
            return np.asarray(x) ** 2

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            assert (ctx.mode, ctx.other, ctx.name) == ("some mode", "cubic", "of a helper")
            return 2 * x * ct, None

    def grad(x: Any) -> Any:
        return func.grad(lambda x: Square.apply(x, "some mode", note="more").sum())(x)

    assert_close(func.grad(lambda x: grad(x).sum())(X), [2.0, 2.0, 2.0])


def test_a_constant_on_ctx_may_change_between_calls_of_a_transform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Power(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mode = MODE
            return np.asarray(x) * 1.0

        @staticmethod
        def backward(ctx, ct):
            return ct * (2.0 if ctx.mode == "square" else 3.0)

    gradients = func.vmap(func.grad(Power.apply))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is called for each example
        for mode, expected in (("square", 2.0), ("cubic", 3.0), ("square", 2.0)):
            monkeypatch.setitem(globals(), "MODE", mode)
            for _ in range(3):
                assert_close(gradients(np.ones(2)), np.full(2, expected))
