"""Second derivatives through what forward saved: inputs, outputs, and intermediates alike."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import external, func
from ftrans.autograd import Function, once_differentiable
from ftrans.autograd.function import once_differentiable as the_same
from ftrans.errors import FtransError, MissingRuleError
from tests.helpers import assert_close
from tests.unit.clean import assert_nothing_open
from tests.unit.function_database import OpaqueBackward


class DoubledSquare(Function):
    """Is 2 x^2, with half of its slope kept on `ctx`."""

    @staticmethod
    def forward(ctx, x):
        ctx.t = 2 * x
        return ctx.t * x

    @staticmethod
    def backward(ctx, ct):
        return 2 * ctx.t * ct


class DoubledSquareMixed(Function):
    """Is the same; PyTorch's second derivative is 2, without a word."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.t = 2 * x
        return ctx.t * x

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return (ctx.t + 2 * x) * ct


class DoubledSquareInSetup(Function):
    @staticmethod
    def forward(x):
        return 2 * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)
        ctx.t = 2 * x

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return (ctx.t + 2 * x) * ct


class Sinh(Function):
    """Returns its intermediates, as the documents recommend."""

    @staticmethod
    def forward(ctx, x):
        up, down = fnp.exp(x), fnp.exp(-x)
        ctx.save_for_backward(up, down)
        return (up - down) / 2, up, down

    @staticmethod
    def backward(ctx, ct, ct_up, ct_down):
        up, down = ctx.saved_tensors
        out = ct * (up + down) / 2
        out += ct_up * up
        out -= ct_down * down
        return out


class SinhOnCtx(Function):
    """Is what not to do, says PyTorch's tutorial."""

    @staticmethod
    def forward(ctx, x):
        ctx.up, ctx.down = fnp.exp(x), fnp.exp(-x)
        return (ctx.up - ctx.down) / 2

    @staticmethod
    def backward(ctx, ct):
        return ct * (ctx.up + ctx.down) / 2


class SinhSaved(Function):
    @staticmethod
    def forward(ctx, x):
        up, down = fnp.exp(x), fnp.exp(-x)
        ctx.save_for_backward(up, down)
        return (up - down) / 2

    @staticmethod
    def backward(ctx, ct):
        up, down = ctx.saved_tensors
        return ct * (up + down) / 2


class SinhInSetup(Function):
    """Computes in `setup_context`, which cuts PyTorch's second derivative: 0."""

    @staticmethod
    def forward(x):
        return (fnp.exp(x) - fnp.exp(-x)) / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(np.exp(x), np.exp(-x))

    @staticmethod
    def backward(ctx, ct):
        up, down = ctx.saved_tensors
        return ct * (up + down) / 2


class SinhForward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.up, ctx.down = fnp.exp(x), fnp.exp(-x)
        return (ctx.up - ctx.down) / 2

    @staticmethod
    def jvp(ctx, t):
        return t * (ctx.up + ctx.down) / 2


class SinhOpaque(Function):
    """Computes in NumPy, and returns its intermediates."""

    @staticmethod
    def forward(x):
        x = np.asarray(x)
        return np.sinh(x), np.exp(x), np.exp(-x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output[1:])

    @staticmethod
    def backward(ctx, ct, ct_up, ct_down):
        up, down = ctx.saved_tensors
        return ct * (up + down) / 2 + ct_up * up - ct_down * down


class MyCube(Function):
    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, ct, ct_slope):
        x, slope = ctx.saved_tensors
        return ct * slope + ct_slope * 6 * x


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        out = fnp.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, ct):
        (out,) = ctx.saved_tensors
        return out * ct


class Cube(Function):
    """Goes back by another Function, since its backward cannot be traced."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.asarray(x) ** 3

    @staticmethod
    def backward(ctx, ct):
        return CubeBackward.apply(ct, *ctx.saved_tensors)


class CubeBackward(Function):
    @staticmethod
    def forward(ctx, ct, x):
        ctx.save_for_backward(ct, x)
        return 3 * np.asarray(ct) * np.asarray(x) ** 2

    @staticmethod
    def backward(ctx, ct_slope):
        ct, x = ctx.saved_tensors
        return 3 * ct_slope * x**2, 6 * ct_slope * ct * x


def first(function: type[Function]) -> Any:
    return lambda x: function.apply(x)[0]


SINH = [np.sinh, np.cosh, np.sinh, np.cosh]
DOUBLED = [lambda x: 2 * x**2, lambda x: 4 * x, lambda x: 4.0 + 0 * x, lambda x: 0 * x]
CUBED = [lambda x: x**3, lambda x: 3 * x**2, lambda x: 6 * x, lambda x: 6.0 + 0 * x]

FUNCTIONS = {
    "2x^2, t on ctx": (DoubledSquare.apply, DOUBLED),
    "2x^2, x saved and t on ctx": (DoubledSquareMixed.apply, DOUBLED),
    "2x^2, t of setup_context": (DoubledSquareInSetup.apply, DOUBLED),
    "sinh, intermediates returned": (first(Sinh), SINH),
    "sinh, intermediates on ctx": (SinhOnCtx.apply, SINH),
    "sinh, intermediates saved": (SinhSaved.apply, SINH),
    "sinh, intermediates of setup_context": (SinhInSetup.apply, SINH),
    "sinh, jvp alone": (SinhForward.apply, SINH),
    "sinh, opaque, intermediates returned": (first(SinhOpaque), SINH),
    "MyCube": (first(MyCube), CUBED),
    "Exp": (Exp.apply, [np.exp] * 4),
    "Cube and CubeBackward": (Cube.apply, CUBED),
}


def by_jvp(f: Any) -> Any:
    return lambda x: func.jvp(f, (x,), (fnp.ones_like(x),))[1]


def by_vjp(f: Any) -> Any:
    return lambda x: func.vjp(f, x)[1](fnp.ones_like(x))[0]


def by_linearize(f: Any) -> Any:
    return lambda x: func.linearize(f, x)[1](fnp.ones_like(x))


WAYS = {
    "grad": func.grad,
    "jvp": by_jvp,
    "vjp": by_vjp,
    "linearize": by_linearize,
    "jacfwd": func.jacfwd,
    "jacrev": func.jacrev,
}


@pytest.mark.filterwarnings("ignore")  # for the loop of jacfwd and jacrev
@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivative(name: str, inner: str, outer: str) -> None:
    f, derivatives = FUNCTIONS[name]
    x = np.float64(1.0)
    assert_close(WAYS[inner](f)(x), derivatives[1](x))
    assert_close(WAYS[outer](WAYS[inner](f))(x), derivatives[2](x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_to_third_order_batched_and_jitted(name: str) -> None:
    f, derivatives = FUNCTIONS[name]
    xs = np.array([0.3, -1.0, 2.0])
    for derivative in derivatives:
        assert_close(func.vmap(f)(xs), derivative(xs))
        assert_close(ftrans.jit(f)(xs[0]), derivative(xs[0]))
        f = func.grad(f)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessian(name: str) -> None:
    f, derivatives = FUNCTIONS[name]
    x = np.array([0.3, -1.0, 2.0])
    for wrap in (lambda f: f, ftrans.jit):
        assert_close(wrap(func.hessian(lambda x: f(x).sum()))(x), np.diag(derivatives[2](x)))
    value, product = func.hvp(lambda x: f(x).sum(), x, x)
    assert_close(value, derivatives[0](x).sum())
    assert_close(product, derivatives[2](x) * x)


@pytest.mark.smoke
def test_numbers_of_the_census() -> None:
    one, two = np.float64(1.0), np.float64(2.0)
    assert_close(func.grad(func.grad(DoubledSquareMixed.apply))(one), 4.0)
    for f in (first(Sinh), SinhOnCtx.apply, SinhInSetup.apply):
        assert_close(func.grad(f)(one), 1.5430806, 1e-7)
        assert_close(func.grad(func.grad(f))(one), 1.1752012, 1e-7)
    assert_close(func.grad(first(MyCube))(two), 12.0)
    assert_close(func.grad(func.grad(first(MyCube)))(two), 12.0)
    assert_close(func.vmap(first(MyCube))(np.array([1.0, 2.0, 3.0])), [1.0, 8.0, 27.0])
    assert_close(func.grad(func.grad(Cube.apply))(two), 12.0)
    jacobian = func.jacrev(func.jacrev(first(MyCube)))
    assert_close(func.vmap(jacobian)(np.array([1.0, 2.0])), [6.0, 12.0])


# --------------------------------------------------------------------------- once differentiable


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * ct


class OnceOpaque(Function):
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * np.asarray(x) ** 2 * np.asarray(ct)


def test_once_differentiable_has_two_names() -> None:
    assert once_differentiable is the_same


X = np.array([1.0, 2.0])


def total(f: Any) -> Any:
    return lambda x: f(x).sum()


TWICE = {
    "grad(grad)": lambda f: func.grad(total(func.grad(total(f))))(X),
    "jvp(grad)": lambda f: func.jvp(func.grad(total(f)), (X,), (X,)),
    "vjp(grad)": lambda f: func.vjp(func.grad(total(f)), X)[1](X),
    "linearize(grad)": lambda f: func.linearize(func.grad(total(f)), X)[1](X),
    "hessian": lambda f: func.hessian(total(f))(X),
    "jacrev(jacrev)": lambda f: func.jacrev(func.jacrev(f))(X),
    "jacfwd(jacrev)": lambda f: func.jacfwd(func.jacrev(f))(X),
    "jacrev(jacfwd)": lambda f: func.jacrev(func.jacfwd(f))(X),
    "hvp": lambda f: func.hvp(total(f), X, X),
    "vhp": lambda f: func.vhp(total(f), X, X),
    "vmap(grad(grad))": lambda f: func.vmap(func.grad(func.grad(f)))(X),
    "grad(vmap(grad))": lambda f: func.grad(total(func.vmap(func.grad(f))))(X),
    "jit(grad(grad))": lambda f: ftrans.jit(func.grad(func.grad(f)))(X[0]),
    "grad(jit(grad))": lambda f: func.grad(ftrans.jit(func.grad(f)))(X[0]),
    "grad(vjp)": lambda f: func.grad(lambda x: func.vjp(f, x)[1](X)[0].sum())(X),
    "JAX's grad(grad)": lambda f: jax.grad(jax.grad(f))(2.0),
    "JAX's jit(grad(grad))": lambda f: jax.jit(jax.grad(jax.grad(f)))(2.0),
    "JAX's vmap(grad(grad))": lambda f: jax.vmap(jax.grad(jax.grad(f)))(X),
    "JAX's grad of grad": lambda f: jax.grad(func.grad(f))(2.0),
    "grad of JAX's grad": lambda f: func.grad(external.jax(jax.grad(f)))(2.0),  # type: ignore
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", TWICE)
@pytest.mark.parametrize("function", [Once, OnceOpaque, OpaqueBackward])
def test_the_second_derivative_is_a_named_error(function: type[Function], entry: str) -> None:
    with pytest.raises(MissingRuleError, match=function.__name__) as caught:
        TWICE[entry](function.apply)
    assert isinstance(caught.value, FtransError)
    assert isinstance(caught.value, RuntimeError)
    text = str(caught.value)
    assert "backward" in text or "jvp" in text
    if function is Once and entry in ("grad(grad)", "jvp(grad)"):
        assert "once_differentiable" in text
    assert_nothing_open()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [Once, OnceOpaque, OpaqueBackward])
def test_the_first_derivative_is_right(function: type[Function]) -> None:
    expected = 3 * X**2
    assert_close(func.grad(total(function.apply))(X), expected)
    assert_close(func.jacrev(function.apply)(X), np.diag(expected))
    assert_close(func.vmap(func.grad(function.apply))(X), expected)
    assert_close(ftrans.jit(func.grad(total(function.apply)))(X), expected)
    gradient = func.grad(lambda x: function.apply(x * x).sum())
    assert_close(gradient(X), 6 * X**5)


@pytest.mark.parametrize("function", [Once, OpaqueBackward])
def test_a_second_derivative_that_is_cut_is_none(function: type[Function]) -> None:
    """Nothing is missing where the gradient is a constant."""
    f = lambda x: (fnp.stop_gradient(func.grad(total(function.apply))(x)) * x).sum()  # noqa: E731
    assert_close(func.grad(f)(X), 3 * X**2)


@pytest.mark.parametrize("read", [np.asarray, lambda x: x.numpy(), lambda x: np.array(x)])
def test_a_slope_that_is_computed_of_plain_arrays_is_not_differentiated_in_silence(
    read: Any,
) -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * read(x) ** 2 * ct

    for _ in range(2):
        assert_close(func.grad(Cube.apply)(2.0), 12.0)
        for transform in (lambda f: func.grad(func.grad(f)), func.hessian):
            with pytest.raises(MissingRuleError, match="it is opaque"):
                transform(Cube.apply)(2.0)
            with pytest.raises(MissingRuleError, match="it is opaque"):
                transform(Cube.apply)(ftrans.tensor(2.0)).item()
