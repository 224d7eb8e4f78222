"""The contract of `Function`: both styles under every transform, and what rules may return.

Rows C and E of PyTorch's contract that mean nothing without tensors have no test: legacy classes
and nodes (C14, C19, C28 to C30, C36), views and versions (C10, half of C16), storage that is freed
on access and boxed gradients (C26, C27), `functionalize` and `torch.compile` (E17, E20).
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from tests.helpers import assert_close, sampled_rows
from tests.unit.function_database import Case
from tests.unit.function_transforms import FURTHER, ONCE, check

# ---------------------------------------------------------------- one rule, under all transforms


class OldBackward(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.scale = fnp.exp(y)
        out = x * ctx.scale
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, ct):
        (out,) = ctx.saved_tensors
        return ct * ctx.scale, ct * out


class NewBackward(Function):
    @staticmethod
    def forward(x, y):
        return x * fnp.exp(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, ct):
        y, out = ctx.saved_tensors
        return ct * fnp.exp(y), ct * out


class NamedVjp(NewBackward):
    """Has its rule under the other name."""

    backward = Function.backward

    @staticmethod
    def vjp(ctx, ct):
        return NewBackward.backward(ctx, ct)


class OldJvp(Function):
    @staticmethod
    def forward(ctx, x, y):
        scale = fnp.exp(y)
        ctx.save_for_forward(x, scale)
        return x * scale

    @staticmethod
    def jvp(ctx, x_dot, y_dot):
        x, scale = ctx.saved_tensors
        return (x_dot + x * y_dot) * scale


class NewJvp(Function):
    @staticmethod
    def forward(x, y):
        return x * fnp.exp(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, x_dot, y_dot):
        x, y = ctx.saved_tensors
        return (x_dot + x * y_dot) * fnp.exp(y)


class ByNumpyNames(Function):
    """Is written with NumPy's own functions throughout."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * np.exp(y)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return np.multiply(ct, np.exp(y)), ct * x * np.exp(y)


class OpaqueExp(Function):
    @staticmethod
    def forward(ctx, y):
        out = np.exp(np.asarray(y))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[0]


class OldOpaque(Function):
    """Calls another Function with an opaque forward in both of its rules."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * OpaqueExp.apply(y)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        scale = OpaqueExp.apply(y)
        return ct * scale, ct * x * scale


STYLES = [OldBackward, NewBackward, NamedVjp, OldJvp, NewJvp, ByNumpyNames]
ARRAYS = (np.array([0.5, -1.2]), np.array([0.3, 0.9]))


def plain(x: Any, y: Any) -> Any:
    return x * jnp.exp(y)


@pytest.mark.parametrize(
    ("style", "transform"), sampled_rows(itertools.product(STYLES, [*ONCE, *FURTHER]), 4)
)
def test_one_rule_is_enough(style: type[Function], transform: str) -> None:
    check(Case(style.apply, plain, ARRAYS), transform)


@pytest.mark.parametrize("transform", [*ONCE, *FURTHER])
def test_functions_call_functions(transform: str) -> None:
    check(
        Case(lambda x, y: x * NewBackward.apply(OldJvp.apply(x, y), y), nested, ARRAYS), transform
    )


def nested(x: Any, y: Any) -> Any:
    return x * plain(plain(x, y), y)


class Disagreeing(Function):
    @staticmethod
    def forward(ctx, x):
        return fnp.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return 7 * ct

    @staticmethod
    def jvp(ctx, t):
        return 0 * t


def test_each_direction_takes_its_own_rule() -> None:
    x = np.array([0.4, 0.7])
    for wrap in (lambda f: f, ftrans.jit):
        assert_close(wrap(lambda x: func.jvp(Disagreeing.apply, (x,), (x,)))(x)[1], [0.0, 0.0])
        assert_close(wrap(lambda x: func.vjp(Disagreeing.apply, x)[1](np.ones(2))[0])(x), [7, 7.0])
    assert_close(func.jacfwd(Disagreeing.apply)(x), np.zeros((2, 2)))
    assert_close(func.jacrev(Disagreeing.apply)(x), 7 * np.eye(2))


class OnlyForward(Function):
    """Has a rule that works, and one that must not be called."""

    @staticmethod
    def forward(ctx, x):
        return x**2

    @staticmethod
    def backward(ctx, ct):
        raise NotImplementedError("backward is not written yet")

    @staticmethod
    def jvp(ctx, t):
        return 7 * t


class OnlyReverse(Function):
    @staticmethod
    def forward(ctx, x):
        return x**2

    @staticmethod
    def backward(ctx, ct):
        return 7 * ct

    @staticmethod
    def jvp(ctx, t):
        raise NotImplementedError("jvp is not written yet")


def test_a_rule_that_is_not_asked_for_is_not_called() -> None:
    x = np.array([0.4, 0.7])
    assert_close(func.jvp(OnlyForward.apply, (x,), (x,))[1], 7 * x)
    assert_close(func.jacfwd(OnlyForward.apply)(x), 7 * np.eye(2))
    assert_close(func.grad(lambda x: OnlyReverse.apply(x).sum())(x), [7.0, 7.0])
    assert_close(func.vmap(func.grad(OnlyReverse.apply))(x), [7.0, 7.0])
    assert_close(ftrans.jit(func.jacrev(OnlyReverse.apply))(x), 7 * np.eye(2))
    with pytest.raises(NotImplementedError, match="backward is not written yet"):
        func.grad(lambda x: OnlyForward.apply(x).sum())(x)
    with pytest.raises(NotImplementedError, match="jvp is not written yet"):
        func.jvp(OnlyReverse.apply, (x,), (x,))


class Inherited(NewBackward):
    @staticmethod
    def backward(ctx, ct):
        return tuple(10 * g for g in NewBackward.backward(ctx, ct))


def test_rules_are_inherited_and_overridden() -> None:
    for function, factor in ((NewBackward, 1), (Inherited, 10)):
        got = func.grad(lambda x, y: function.apply(x, y), (0, 1))(2.0, 0.0)  # noqa: B023
        assert_close(np.stack(got), factor * np.array([1.0, 2.0]))


# ------------------------------------------------------------------------------- what goes in


class Power(Function):
    """Is k times x to the n; the numbers are static."""

    @staticmethod
    def forward(x, k=2, n=3):
        return k * x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * ctx.k * ctx.n * x ** (ctx.n - 1), None, None


@pytest.mark.parametrize(
    ("call", "slope"),
    [
        (lambda x: Power.apply(x), 24.0),
        (lambda x: Power.apply(x, 5), 60.0),
        (lambda x: Power.apply(x, k=5), 60.0),
        (lambda x: Power.apply(x, n=2), 8.0),
        (lambda x: Power.apply(n=2, x=x, k=1), 4.0),
    ],
)
def test_default_and_named_arguments(call: Any, slope: float) -> None:
    assert_close(func.grad(call)(2.0), slope, 1e-6)
    assert_close(func.vmap(func.grad(call))(np.array([2.0, 2.0])), [slope, slope])
    assert_close(ftrans.jit(func.grad(call))(np.float64(2.0)), slope)


class KeywordOnly(Function):
    @staticmethod
    def forward(ctx, x, *, k, shift=0.0):
        ctx.k = k
        return k * x + shift

    @staticmethod
    def backward(ctx, ct):
        return ctx.k * ct


def test_keyword_only_arguments() -> None:
    assert_close(func.grad(lambda x: KeywordOnly.apply(x, k=5, shift=1.0))(3.0), 5.0, 1e-6)
    got = func.vmap(lambda x: KeywordOnly.apply(x, k=5))(np.arange(3.0))
    assert_close(got, [0.0, 5.0, 10.0])


def test_keyword_only_arrays_are_closed_over() -> None:
    """The rule has no gradient for them: theirs is that of the traced forward."""
    x, k = np.float64(2.0), np.float64(5.0)
    assert_close(func.grad(lambda k: KeywordOnly.apply(x, k=k))(k), 2.0)
    assert_close(func.grad(lambda x: KeywordOnly.apply(x, k=x))(x), 4.0)
    assert_close(func.jvp(lambda k: KeywordOnly.apply(x, k=k), (k,), (k,))[1], 10.0)
    assert_close(func.vmap(lambda k: KeywordOnly.apply(x, k=k))(np.arange(3.0)), [0.0, 2.0, 4.0])


class Settings:
    """Is no array, and is not told from its equals by what it holds."""

    def __init__(self, factor: float):
        self.factor = factor


class ByObject(Function):
    @staticmethod
    def forward(ctx, x, settings):
        ctx.settings = settings
        return settings.factor * (np.asarray(x) if settings.factor > 2 else x)

    @staticmethod
    def backward(ctx, ct):
        return ctx.settings.factor * ct, None


def test_what_an_object_holds_is_read_at_each_call() -> None:
    settings, x = Settings(1.0), np.float64(3.0)
    for factor in (1.0, 2.0, 3.0, 4.0, 1.0):
        settings.factor = factor
        value, slope = func.value_and_grad(lambda x: ByObject.apply(x, settings))(x)
        assert_close(value, 3 * factor)
        assert_close(slope, factor)


class Total(Function):
    @staticmethod
    def forward(ctx, *xs, **options):
        ctx.weights = [options["base"] ** i for i in range(len(xs))]
        return sum(w * x for w, x in zip(ctx.weights, xs, strict=True))

    @staticmethod
    def backward(ctx, ct):
        return tuple(w * ct for w in ctx.weights)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_arguments(count: int) -> None:
    xs = np.arange(1.0, 1 + count)
    got = func.grad(lambda *xs: Total.apply(*xs, base=3.0) ** 2, tuple(range(count)))(*xs)
    weights = 3.0 ** np.arange(count)
    assert_close(np.stack(got), 2 * (weights @ xs) * weights)


class Needs(Function):
    seen: list[Any] = []  # noqa: RUF012 (shared on purpose)

    @staticmethod
    def forward(ctx, x, factor, y):
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return factor * x * y

    @staticmethod
    def backward(ctx, ct):
        Needs.seen.append(ctx.needs_input_grad)
        x, y = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            ct * ctx.factor * y if wanted[0] else None,
            None,
            ct * ctx.factor * x if wanted[2] else None,
        )


@pytest.mark.parametrize(
    ("argnums", "needed"),
    [(0, (True, False, False)), (1, (False, False, True)), ((0, 1), (True, False, True))],
)
def test_needs_input_grad(argnums: Any, needed: tuple[bool, ...]) -> None:
    Needs.seen.clear()
    x, y = np.float64(3.0), np.float64(5.0)
    got = func.grad(lambda x, y: Needs.apply(x, 2, y), argnums)(x, y)
    assert set(Needs.seen) == {needed}
    assert type(Needs.seen[0]) is tuple
    expected = {0: 10.0, 1: 6.0}
    for i, g in zip(np.atleast_1d(argnums), got if isinstance(got, tuple) else [got], strict=True):
        assert_close(g, expected[int(i)])


def test_needs_input_grad_of_what_is_captured() -> None:
    """An array from outside of the function that is differentiated needs no gradient."""
    Needs.seen.clear()
    x, y = np.float64(3.0), np.float64(5.0)
    assert_close(func.grad(lambda x: Needs.apply(x, 2, y))(x), 10.0)
    assert_close(func.grad(lambda x: Needs.apply(x, 2, fnp.stop_gradient(x)))(x), 6.0)
    assert set(Needs.seen) == {(True, False, False)}


# ----------------------------------------------------------------------- what a rule may return


class Returning(Function):
    """Is the identity; goes back with whatever is asked for."""

    answer: Any = staticmethod(lambda ct: ct)

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, ct):
        return Returning.answer(ct)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda ct: None, [0.0, 0.0]),
        (lambda ct: (None,), [0.0, 0.0]),
        (lambda ct: (ct,), [1.0, 1.0]),
        (lambda ct: (ct, None, None), [1.0, 1.0]),
        (lambda ct: fnp.ones((4, 2)), [4.0, 4.0]),
        (lambda ct: np.ones((4, 2), ct.dtype), [4.0, 4.0]),
        (lambda ct: fnp.stack([ct, 2 * ct])[None], [3.0, 3.0]),
        (lambda ct: fnp.zeros((3, 0, 2)), [0.0, 0.0]),
    ],
)
def test_gradients_may_be_none_or_more_or_larger(
    monkeypatch: pytest.MonkeyPatch, answer: Any, expected: Any
) -> None:
    monkeypatch.setattr(Returning, "answer", staticmethod(answer))
    x = np.array([2.0, 3.0], np.float32)
    assert_close(func.grad(lambda x: Returning.apply(x).sum())(x), np.float32(expected))
    both = func.grad(lambda x: Returning.apply(x).sum() + (x**2).sum())(x)
    assert_close(both, np.float32(expected) + 2 * x)
    mapped = func.vmap(func.grad(lambda x: Returning.apply(x).sum()))(np.stack([x, x]))
    assert_close(mapped, np.float32([expected, expected]))


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        y = 2 * x
        return y, y

    @staticmethod
    def backward(ctx, first, second):
        return 2 * first + 20 * second


def test_an_output_returned_twice_has_two_cotangents() -> None:
    def f(x: Any) -> Any:
        first, second = Doubled.apply(x)
        return 3 * first + 5 * second

    assert_close(func.grad(f)(1.0), 106.0, 1e-6)
    assert_close(func.jvp(f, (np.float64(1.0),), (np.float64(1.0),))[1], 106.0)


class AsItIs(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y

    @staticmethod
    def backward(ctx, x_ct, y_ct):
        return 2 * x_ct, 3 * y_ct


def test_inputs_returned_as_they_are_go_through_the_rule() -> None:
    x, y = np.array([1.0, 2.0]), np.array([4.0, 5.0])

    def f(x: Any, y: Any) -> Any:
        a, b = AsItIs.apply(x, y)
        return (a * b).sum()

    assert_close(np.stack(func.grad(f, (0, 1))(x, y)), np.stack([2 * y, 3 * x]))
    assert_close(AsItIs.apply(x, y)[0], x)


class TimesProduct(Function):
    @staticmethod
    def forward(ctx, x, y, z):
        ctx.save_for_forward(x, y)
        ctx.z = z
        return z * x * y

    @staticmethod
    def jvp(ctx, x_dot, y_dot, z_dot):
        assert z_dot is None
        x, y = ctx.saved_tensors
        return ctx.z * (y * x_dot + x * y_dot)


def test_forward_rule_has_none_for_what_is_no_array() -> None:
    x, y, one, zero = (np.float64(v) for v in (1.0, 2.0, 1.0, 0.0))
    assert_close(func.jvp(lambda x, y: TimesProduct.apply(x, y, 4), (x, y), (one, zero))[1], 8.0)
    assert_close(func.grad(lambda x: TimesProduct.apply(x, y, 4))(x), 8.0)


# ------------------------------------------------------------------------ dtypes and containers


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * x.conj() * ct


class OpaqueSquare(Function):
    @staticmethod
    def forward(x):
        x = np.asarray(x)
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * x.conj() * ct


DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("function", [Square, OpaqueSquare])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_kept(dtype: str, function: type[Function]) -> None:
    x = np.array([0.5, -1.5, 2.0]).astype(jnp.dtype(dtype))
    if dtype.startswith("complex"):
        x = x + x.dtype.type(0.5j)
    out, pull = func.vjp(function.apply, x)
    (got,) = pull(x)
    _, dot = func.jvp(function.apply, (x,), (x,))
    assert (out.dtype, got.dtype, dot.dtype) == (x.dtype,) * 3
    assert_close(out, x * x)
    assert_close(got, 2 * x.conj() * x)
    assert_close(dot, 2 * x * x)


@pytest.mark.parametrize("function", [Square, OpaqueSquare])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (1, 1), (2, 3)])
def test_shapes(shape: tuple[int, ...], function: type[Function]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    assert_close(func.grad(lambda x: function.apply(x).sum())(x), 2 * x)
    assert_close(func.jvp(function.apply, (x,), (x,))[1], 2 * x * x)
    assert_close(function.apply(x), x * x)


@pytest.mark.filterwarnings("ignore")  # for the loop
@pytest.mark.parametrize("function", [Square, OpaqueSquare])
@pytest.mark.parametrize("shape", [(0,), (0, 2), (3, 0), (1, 2)])
def test_batches_of_no_size(shape: tuple[int, ...], function: type[Function]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    assert_close(func.vmap(function.apply)(x), x * x)
    assert_close(func.vmap(func.grad(lambda x: function.apply(x).sum()))(x), 2 * x)


@pytest.mark.parametrize("function", [Square, OpaqueSquare])
def test_the_container_follows_the_inputs(function: type[Function]) -> None:
    x = np.array([1.0, 2.0], np.float32)
    for array, kind in ((x, np.ndarray), (jnp.asarray(x), jax.Array)):
        outs = [
            function.apply(array),
            func.grad(lambda x: function.apply(x).sum())(array),
            func.vjp(function.apply, array)[1](array)[0],
            *func.jvp(function.apply, (array,), (array,)),
        ]
        for out in outs:
            assert isinstance(out, kind)
            assert out.dtype == np.float32


def test_nan_and_inf_go_through() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0])
    with np.errstate(all="ignore"):
        for function in (Square, OpaqueSquare):
            assert_close(func.grad(lambda x: function.apply(x).sum())(x), 2 * x)  # noqa: B023


def test_numbers_without_a_transform() -> None:
    assert_close(Power.apply(2.0), 16.0)
    assert_close(Power.apply(np.float32(2.0), 1, 2), np.float32(4.0))
    assert_close(Power.apply(np.arange(3), 1, 2), np.array([0, 1, 4]))


def test_calling_an_instance_points_to_apply() -> None:
    with pytest.warns(DeprecationWarning, match="apply"):
        instance = Square()
    with pytest.raises(RuntimeError, match="apply"):
        instance(np.ones(3))


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize(
    ("argument", "gradient"),
    [
        ("float32", "float64"),
        ("float64", "float32"),
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("bfloat16", "float32"),
        ("complex64", "complex128"),
        ("complex128", "complex64"),
        ("complex64", "float64"),
    ],
)
def test_a_gradient_of_another_float_type_is_converted(
    argument: str, gradient: str, opaque: bool
) -> None:
    """As PyTorch's engine does; one of a larger shape is summed first."""

    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.asarray(x) * 2 if opaque else x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            ones = np.ones((3, 2)) if opaque else fnp.ones((3, 2))
            return ones.astype(gradient) * 2

    x = np.ones(2, jnp.dtype(argument))
    loss = lambda x: fnp.real(Twice.apply(x)).sum()  # noqa: E731
    for found in (
        func.grad(loss)(x),
        func.vmap(func.grad(loss))(x[None])[0],
        ftrans.jit(func.grad(loss))(x),
        func.vjp(loss, x)[1](np.ones((), loss(x).dtype))[0],
    ):
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found).astype("complex64"), [6, 6])


@pytest.mark.parametrize("gradient", ["int32", "bool", "complex64"])
def test_a_gradient_of_another_kind_is_converted_unless_it_is_complex(gradient: str) -> None:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return np.ones(2, gradient)

    slope = func.grad(lambda x: Twice.apply(x).sum())
    if gradient != "complex64":
        found = slope(np.ones(2))
        assert (found.dtype, found.tolist()) == (np.float64, [1.0, 1.0])
        return
    with pytest.raises(ftrans.RuleError) as caught:
        slope(np.ones(2))
    head, *rest = str(caught.value).split("\n")
    assert head.endswith("the gradient of x has the wrong dtype.")
    assert rest == [
        "  returned: c64[2]",
        "  x: f64[2]",
        "  Convert it: .astype('float64').",
    ]
