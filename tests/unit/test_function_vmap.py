"""Batching a Function: by its own rule, or derived; by a loop where forward is opaque."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import RuleError
from tests.helpers import assert_close
from tests.unit.function_database import OpaqueBackward

X = np.random.default_rng(0).normal(size=(2, 3, 4))


class Recording(Function):
    """Is x plus y; writes down what its rule is told."""

    seen: list[Any] = []  # noqa: RUF012 (shared on purpose)

    @staticmethod
    def forward(x, y):
        return x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return ct, ct

    @staticmethod
    def vmap(info, in_dims, x, y):
        Recording.seen.append((info, in_dims, np.shape(x), np.shape(y)))
        x, y = (
            array if dim is None else fnp.moveaxis(array, dim, 0)
            for array, dim in zip((x, y), in_dims, strict=True)
        )
        return Recording.apply(x, y), 0


def test_info_and_in_dims() -> None:
    Recording.seen.clear()
    y = np.ones(2)
    got = func.vmap(Recording.apply, (1, None), randomness="different")(X[0, :2, :], y)
    assert_close(got, X[0, :2].T + 1)
    ((info, in_dims, x_shape, y_shape),) = Recording.seen
    assert (info.batch_size, info.randomness) == (4, "different")
    assert in_dims == (1, None)
    assert (x_shape, y_shape) == ((2, 4), (2,))


@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_info_says_the_randomness(randomness: str) -> None:
    Recording.seen.clear()
    func.vmap(Recording.apply, randomness=randomness)(np.ones((10, 2)), np.ones((10, 2)))
    assert [info.randomness for info, *_ in Recording.seen] == [randomness]
    assert Recording.seen[0][0].batch_size == 10


@pytest.mark.parametrize("dims", [*itertools.product([None, 0, 1, -1], repeat=2)])
def test_every_choice_of_axes(dims: Any) -> None:
    if dims == (None, None):
        dims = (0, 0)
    x, y = (X[0, 0] if dim is None else np.moveaxis(X[0], 0, dim) for dim in dims)
    expected = np.stack(
        [
            (x if dims[0] is None else X[0, i]) + (y if dims[1] is None else X[0, i])
            for i in range(3)
        ]
    )
    assert_close(func.vmap(Recording.apply, dims)(x, y), expected)
    assert_close(func.vmap(Recording.apply, dims, out_dims=1)(x, y), expected.T)


def test_the_rule_is_not_called_where_nothing_is_mapped() -> None:
    Recording.seen.clear()
    c = np.ones(4)
    got = func.vmap(lambda x: x + Recording.apply(c, c))(X[0])
    assert_close(got, X[0] + 2)
    gradient = func.vmap(func.grad(lambda x: (x * Recording.apply(c, c)).sum()))(X[0])
    assert_close(gradient, np.full((3, 4), 2.0))
    assert Recording.seen == []


class Opaque(Function):
    """Is x to the third, and goes back in terms of traced operations."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.asarray(x) ** 3

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * ct


def test_opaque_without_a_rule_and_without_a_mapped_input() -> None:
    c = np.array([1.0, 2.0, 3.0, 4.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there is nothing to loop over
        assert_close(func.vmap(lambda x: x * Opaque.apply(c))(X[0]), X[0] * c**3)
        got = func.grad(lambda c: func.vmap(lambda x: x * Opaque.apply(c))(X[0]).sum())(c)
        assert_close(got, X[0].sum(0) * 3 * c**2)


def test_an_opaque_forward_is_looped_over_with_one_warning() -> None:
    class Warned(Opaque):
        pass

    f = func.vmap(lambda x: Warned.apply(x).sum())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for size in (3, 2, 3):
            assert_close(f(X[0, :size]), (X[0, :size] ** 3).sum(-1))
    assert len(caught) == 1, "one for each place is enough, whatever the size"
    text = str(caught[0].message)
    assert "Warned" in text
    assert "vmap" in text
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = func.vmap(func.vmap(func.grad(lambda x: Warned.apply(x))))(X[0])
        assert_close(got, 3 * X[0] ** 2)


@pytest.mark.parametrize("dim", [2, 5, -3])
def test_out_dims_where_forward_returns_nothing(dim: int) -> None:
    class Many(Function):
        @staticmethod
        def forward(ctx, x):
            return None

        @staticmethod
        def vmap(info, in_dims, x):
            return x, dim

    text = (
        rf"Many\.vmap: out_dims names an axis that a result does not have\.\n  .*, out_dims {dim}\n"
    )
    with pytest.raises(RuleError, match=text):
        func.vmap(Many.apply)(X[0])


def test_an_opaque_backward_is_looped_over_with_a_warning() -> None:
    class Looped(OpaqueBackward):  # of which nobody has been warned
        pass

    with pytest.warns(RuntimeWarning, match=r"Looped\.backward: vmap calls it 4 times"):
        found = func.vmap(func.grad(Looped.apply))(X[0, 0])
    assert_close(found, 3 * X[0, 0] ** 2)


class Elementwise(Function):
    """Is x times y, and returns an axis that is not mapped beside it."""

    @staticmethod
    def forward(x, y):
        return x * y, fnp.zeros(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct, _):
        x, y = ctx.saved_tensors
        return ct * y, ct * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        x, y = (
            array[..., None] if dim is None else fnp.moveaxis(array, dim, -1)
            for array, dim in zip((x, y), in_dims, strict=True)
        )
        return (x * y, fnp.zeros(2)), (-1, None)


def test_out_dims_of_every_kind() -> None:
    got, same = func.vmap(Elementwise.apply)(X[0], X[1])
    assert_close(got, X[0] * X[1])
    assert np.shape(same) == (3, 2)
    nested, _ = func.vmap(func.vmap(Elementwise.apply), (0, None))(X, X[1])
    assert_close(nested, X * X[1])
    inner, _ = func.vmap(func.vmap(Elementwise.apply, (0, None)), (0, None))(X, X[1, 0])
    assert_close(inner, X * X[1, 0])


class Doubling(Function):
    """Has a rule that does other than a loop, so that it shows when it is called."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct

    @staticmethod
    def vmap(info, in_dims, x):
        return 20 * x, in_dims[0]


def test_the_rule_is_what_is_called() -> None:
    x = np.arange(3.0)
    assert_close(func.vmap(Doubling.apply)(x), 20 * x)
    assert_close(ftrans.jit(func.vmap(Doubling.apply))(x), 20 * x)
    assert_close(func.vmap(func.vmap(Doubling.apply))(X[0]), 20 * X[0])
    assert_close(func.vmap(func.value_and_grad(Doubling.apply))(x)[0], 20 * x)
    assert_close(func.jvp(func.vmap(Doubling.apply), (x,), (x,))[0], 20 * x)


class Pooled(Function):
    """Takes a pytree; its rule is handed a pytree of dims."""

    seen: list[Any] = []  # noqa: RUF012

    @staticmethod
    def forward(x, pair):
        return x, pair

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *cts):
        return cts[0], list(cts[1:])

    @staticmethod
    def vmap(info, in_dims, x, pair):
        Pooled.seen.append(in_dims)
        return (x, pair), in_dims


def test_in_dims_have_the_structure_of_the_arguments() -> None:
    Pooled.seen.clear()
    x = np.arange(3.0)
    out, (first, second) = func.vmap(Pooled.apply, (0, [0, None]))(x, [2 * x, np.float64(7)])
    assert Pooled.seen == [(0, [0, None])]
    assert_close(out, x)
    assert_close(first, 2 * x)
    assert_close(second, [7.0, 7, 7])


class Mixed(Function):
    """Is opaque, with a rule, and calls itself there with another axis."""

    @staticmethod
    def forward(x, axis, name):
        assert name == "cumsum"
        return np.cumsum(np.asarray(x), axis=axis)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.axis, ctx.name = inputs[1:]

    @staticmethod
    def backward(ctx, ct):
        turned = Mixed.apply(fnp.flip(ct, ctx.axis), ctx.axis, ctx.name)
        return fnp.flip(turned, ctx.axis), None, None

    @staticmethod
    def vmap(info, in_dims, x, axis, name):
        assert in_dims[1:] == (None, None)
        x = fnp.moveaxis(x, in_dims[0], 0)
        return Mixed.apply(x, axis % (x.ndim - 1) + 1, name), 0


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_static_arguments_in_a_rule(axis: int) -> None:
    f = lambda x: Mixed.apply(x, axis, "cumsum")  # noqa: E731
    assert_close(func.vmap(f)(X), np.cumsum(X, axis % 2 + 1))
    assert_close(
        func.vmap(f, 2, 2)(X), np.moveaxis(np.cumsum(X.transpose(2, 0, 1), axis % 2 + 1), 0, 2)
    )
    w = np.random.default_rng(1).normal(size=X.shape)
    got = func.grad(lambda x: (func.vmap(f)(x) * w).sum())(X)
    numeric = np.zeros_like(X)
    for at in np.ndindex(X.shape):  # the function is linear
        unit = np.zeros_like(X)
        unit[at] = 1.0
        numeric[at] = (np.cumsum(unit, axis % 2 + 1) * w).sum()
    assert_close(got, numeric)
    assert_close(func.jvp(func.vmap(f), (X,), (w,))[1], np.cumsum(w, axis % 2 + 1))


# --------------------------------------------------------------- what the rule takes and returns


class Power(Function):
    @staticmethod
    def forward(x, *, k=2, scale=None):
        return x**k if scale is None else x**k * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x, *, k=2, scale=None):
        # so that it can be told from forward
        return x**k * 10 * (1 if scale is None else scale), in_dims[0]


def test_keyword_only_arguments_reach_the_rule() -> None:
    x = np.arange(1.0, 4)
    for k in (2, 3, 2):
        assert_close(func.vmap(lambda x, k=k: Power.apply(x, k=k))(x), 10 * x**k)
    for scale in (np.array(5.0), np.array(6.0), 5.0):
        found = func.vmap(lambda x, s=scale: Power.apply(x, scale=s))(x)
        assert_close(found, 10 * x**2 * scale)
    two = lambda x: Power.apply(x, k=3) + Power.apply(x, k=2)  # noqa: E731
    assert_close(func.vmap(two)(x), 10 * x**3 + 10 * x**2)
    assert_close(
        func.vmap(func.vmap(lambda x: Power.apply(x, k=3)))(np.stack([x, x]))[1], 10 * x**3
    )

    class Without(Power):
        @staticmethod
        def vmap(info, in_dims, x):
            return x, in_dims[0]

    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        func.vmap(lambda x: Without.apply(x, k=3))(x)


class Tagged(Function):
    @staticmethod
    def forward(x):
        return x * 2, "tag", x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return Tagged.apply(x), (in_dims[0], None, in_dims[0])


def test_a_rule_hands_on_what_is_no_array() -> None:
    x = np.arange(3.0)
    tags = []

    def f(x):
        first, tag, second = Tagged.apply(x)
        tags.append(tag)
        return first + second

    assert_close(func.vmap(f)(x), 3 * x + 1)
    assert set(tags) == {"tag"}


def test_one_number_stands_for_the_axes_of_all_results() -> None:
    class Two(Function):
        @staticmethod
        def forward(x):
            return x * 1, x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            x = fnp.moveaxis(x, in_dims[0], -1)
            return (x * 1, x * 2), -1

    x = np.arange(6.0).reshape(2, 3)
    assert_close(func.vmap(Two.apply)(x), (x, 2 * x))


class Unwritten(Function):
    @staticmethod
    def forward(x, y):
        pass

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *cotangents):
        pass

    @staticmethod
    def vmap(info, in_dims, x, y):
        seen.append((info.batch_size, info.randomness, in_dims))
        return (fnp.moveaxis(x, in_dims[0], 0) + y, {"first": y}), (0, {"first": None})


seen: list[Any] = []


def test_where_only_the_rule_is_called_forward_need_not_be_written() -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.arange(3.0)
    for randomness in ("error", "different", "same"):
        seen.clear()
        out, more = func.vmap(
            Unwritten.apply, in_dims=(1, None), out_dims=(0, None), randomness=randomness
        )(x, y)
        assert_close(out, x.T + y)
        assert_close(more["first"], y)
        assert set(map(str, seen)) == {str((2, randomness, (1, None)))}
    f = ftrans.jit(func.vmap(lambda x: Unwritten.apply(x, y)[0], in_dims=1))
    assert_close(f(x), x.T + y)
    assert Unwritten.apply(x, y) is None


class FailsBackward(Function):
    @staticmethod
    def forward(x):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        raise NotImplementedError

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 10, in_dims[0]


def test_a_backward_that_raises_does_not_put_the_rule_for_batches_aside() -> None:
    x = np.arange(3.0)
    for wrap in (lambda f: f, ftrans.jit):
        assert_close(wrap(func.vmap(FailsBackward.apply))(x), 10 * x)
        assert_close(func.vmap(wrap(FailsBackward.apply))(x), 10 * x)
        assert_close(wrap(lambda x: func.vjp(func.vmap(FailsBackward.apply), x)[0])(x), 10 * x)
