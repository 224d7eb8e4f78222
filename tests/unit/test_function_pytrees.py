"""What goes into a Function and comes out: pytrees, and things that are no arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from tests.helpers import assert_close
from tests.unit.function_database import Case
from tests.unit.function_transforms import FURTHER, ONCE, check

W, B, X = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([0.3, 0.1]), np.array([0.7, -0.4])


class Affine(Function):
    """Is w @ x + b in a dict, of parameters in a dict that has a string in it as well."""

    @staticmethod
    def forward(ctx, params, x):
        assert params["kind"] == "affine"
        ctx.save_for_backward(params["w"], x)
        return {"out": params["w"] @ x + params["layers"][0], "norm": (x * x).sum()}

    @staticmethod
    def backward(ctx, cts):
        w, x = ctx.saved_tensors
        ct = cts["out"]
        slope = {"w": ct[:, None] * x, "layers": (ct,), "kind": None}
        return slope, w.T @ ct + 2 * x * cts["norm"]


class AffineJvp(Function):
    @staticmethod
    def forward(params, x):
        return {"out": params["w"] @ x + params["layers"][0], "norm": (x * x).sum()}

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.params, ctx.x = inputs

    @staticmethod
    def jvp(ctx, dots, x_dot):
        w, x = ctx.params["w"], ctx.x
        return {
            "out": dots["w"] @ x + w @ x_dot + dots["layers"][0],
            "norm": 2 * (x * x_dot).sum(),
        }


def applied(function: type[Function]) -> Any:
    def apply(w: Any, b: Any, x: Any) -> Any:
        out = function.apply({"w": w, "layers": (b,), "kind": "affine"}, x)
        assert sorted(out) == ["norm", "out"]
        return out["norm"] * out["out"]

    return apply


def affine(w: Any, b: Any, x: Any) -> Any:
    return (x * x).sum() * (w @ x + b)


@pytest.mark.slow
@pytest.mark.parametrize("transform", [*ONCE, *FURTHER])
@pytest.mark.parametrize("function", [Affine, AffineJvp])
def test_pytrees_in_and_out(function: type[Function], transform: str) -> None:
    check(Case(applied(function), affine, (W, B, X)), transform)


class Point(NamedTuple):
    x: Any
    y: Any


class Turned(Function):
    @staticmethod
    def forward(ctx, point):
        return Point(-point.y, [point.x, (point.y * 2,)])

    @staticmethod
    def backward(ctx, first, rest):
        second, (third,) = rest
        return (Point(second, 2 * third - first),)


def test_named_tuples_and_lists() -> None:
    def f(x: Any, y: Any) -> Any:
        out = Turned.apply(Point(x, y))
        assert type(out) is Point
        assert type(out.y) is list
        return out.x * out.y[0] + 3 * out.y[1][0]

    for wrap in (lambda g: g, ftrans.jit):
        got = wrap(func.grad(f, (0, 1)))(np.float64(2.0), np.float64(5.0))
        assert_close(np.stack(got), [-5.0, -2.0 + 6.0])
    _, dot = func.jvp(f, (np.float64(2.0), np.float64(5.0)), (np.float64(1.0), np.float64(10.0)))
    assert_close(dot, -5.0 + 40.0)


def test_gradient_of_a_whole_pytree() -> None:
    point = Point(np.arange(3.0), np.ones(3))
    got = func.grad(lambda p: Turned.apply(p).x.sum() + Turned.apply(p).y[0].sum())(point)
    assert type(got) is Point
    assert_close(got.x, np.ones(3))
    assert_close(got.y, -np.ones(3))


def test_a_pytree_that_needs_no_gradient_has_none() -> None:
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, weights):
            ctx.save_for_backward(*weights)
            return x * weights[0] + weights[1]

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.saved_tensors[0], None

    weights = [np.array([2.0, 3.0]), np.array([1.0, 1.0])]
    assert_close(func.grad(lambda x: Weighted.apply(x, weights).sum())(X), [2.0, 3.0])
    both = func.grad(lambda x, w: Weighted.apply(x, w).sum(), (0, 1))(X, weights)
    assert_close(np.stack(both[1]), np.zeros((2, 2)))


class Passing(Function):
    """Hands on what is no array, beside what is."""

    @staticmethod
    def forward(ctx, scale, x, nothing, flag, y, text, z):
        ctx.scale = scale
        return scale, x, None, True, y, "bar", z

    @staticmethod
    def backward(ctx, *cts):
        assert len([ct for ct in cts if ct is not None]) == 3
        x_ct, y_ct, z_ct = (ct for ct in cts if ct is not None)
        return None, x_ct * ctx.scale, None, None, y_ct * ctx.scale, None, z_ct * ctx.scale


def test_what_is_no_array_is_handed_on() -> None:
    x, y, z = np.arange(2.0), np.ones(2), np.full(2, 3.0)

    def f(x: Any, y: Any, z: Any) -> Any:
        out = Passing.apply(5, x, None, False, y, "foo", z)
        assert isinstance(out, tuple)
        assert len(out) == 7
        assert out[2] is None
        assert out[3] is True
        assert out[5] == "bar"
        return (out[1] * 2 + out[4] * 3 + out[6] * 4).sum()

    got = func.grad(f, (0, 1, 2))(x, y, z)
    assert_close(np.stack(got), [[10.0, 10], [15, 15], [20, 20]])
    assert_close(func.vmap(f)(x[None], y[None], z[None]), [(2 * x + 3 * y + 4 * z).sum()])
    assert_close(f(x, y, z), (2 * x + 3 * y + 4 * z).sum())


class ByFunction(Function):
    """Takes a Python function and a slice: static arguments that need not be hashable."""

    @staticmethod
    def forward(ctx, x, function, part, table):
        ctx.save_for_backward(x)
        ctx.function, ctx.part, ctx.factor = function, part, table["factor"]
        return ctx.factor * function(x)[part]

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        out = fnp.zeros(x.shape, x.dtype)
        out[ctx.part] = ct
        slope = func.vjp(ctx.function, x)[1](ctx.factor * out)[0]
        return slope, None, None, None


@pytest.mark.parametrize(
    "transform", ["grad", "vmap(grad)", "jit(grad)", "hessian", "jacfwd", "jvp"]
)
def test_static_arguments_of_any_kind(transform: str) -> None:
    part = slice(0, 2)
    case = Case(
        lambda x: ByFunction.apply(x, fnp.sin, part, {"factor": 3}),
        lambda x: 3 * jnp.sin(x)[part],
        (np.array([0.1, 0.2, 0.3]),),
    )
    check(case, transform)


class Largest(Function):
    @staticmethod
    def forward(ctx, x):
        index = fnp.argmax(x)
        ctx.save_for_backward(index)
        ctx.size = x.shape[0]
        return x[index], index

    @staticmethod
    def backward(ctx, ct, ct_index):
        (index,) = ctx.saved_tensors
        return fnp.at(fnp.zeros(ctx.size, ct.dtype))[index].set(ct)


def test_integer_outputs() -> None:
    x = np.array([3.0, 9.0, 4.0])

    def f(x: Any, table: Any) -> Any:
        value, index = Largest.apply(x)
        assert index.dtype.kind == "i"
        return value**2 * fnp.asarray(table)[index]

    table = np.array([1.0, 10.0, 100.0])
    assert_close(func.grad(f)(x, table), [0.0, 180.0, 0.0])
    assert_close(func.grad(f, 1)(x, table), [0.0, 81.0, 0.0])
    assert_close(func.vmap(func.grad(f), (0, None))(np.stack([x, -x]), table)[1], [-6.0, 0, 0])
    assert_close(func.jvp(lambda x: f(x, table), (x,), (np.ones(3),))[1], 180.0)
    assert_close(func.hessian(f)(x, table), np.diag([0.0, 20.0, 0.0]))
    assert_close(ftrans.jit(func.grad(f))(x, table), [0.0, 180.0, 0.0])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integer_inputs_have_no_gradient(dtype: str) -> None:
    class Masked(Function):
        @staticmethod
        def forward(ctx, x, mask):
            ctx.save_for_backward(mask)
            assert ctx.needs_input_grad[1] is False
            return x * mask

        @staticmethod
        def backward(ctx, ct):
            (mask,) = ctx.saved_tensors
            return ct * mask, None

    x, mask = np.arange(3.0), np.array([1, 0, 1]).astype(dtype)
    assert_close(func.grad(lambda x: Masked.apply(x, mask).sum())(x), [1.0, 0, 1])
    assert_close(func.vmap(func.grad(Masked.apply))(x, mask), [1.0, 0, 1])
    assert_close(func.jvp(lambda x: Masked.apply(x, mask), (x,), (x,))[1], x * mask)


def test_no_input_and_no_output() -> None:
    class Constant(Function):
        @staticmethod
        def forward(ctx):
            return fnp.ones(3)

        @staticmethod
        def backward(ctx, ct):
            return ()

    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return ()

        @staticmethod
        def backward(ctx):
            return None

    assert_close(func.grad(lambda x: (Constant.apply() * x).sum())(np.arange(3.0)), np.ones(3))
    assert func.jvp(Nothing.apply, (X,), (X,)) == ((), ())


def test_a_tuple_of_one_stays_one() -> None:
    class One(Function):
        @staticmethod
        def forward(x):
            return (2 * x,)

        @staticmethod
        def setup_context(ctx, inputs, output):
            assert isinstance(output, tuple)
            assert isinstance(inputs, tuple)

        @staticmethod
        def backward(ctx, ct):
            return (2 * ct,)

    (out,) = One.apply(X)
    assert_close(out, 2 * X)
    assert_close(func.grad(lambda x: One.apply(x)[0].sum())(X), [2.0, 2.0])
