"""Transforms, custom rules and functions of NumPy, given tensors or closing over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
import ftrans.torch as torch
from ftrans import Tensor, func, tensor
from ftrans.autograd import Function, grad, no_grad
from ftrans.errors import FtransError, UnsupportedError
from ftrans.ir.dtype import bfloat16
from tests.helpers import assert_close

X = np.array([0.3, 0.7, 1.2])
W = np.array([1.5, -0.5, 2.0])


def leaf(value: Any, dtype: Any = "float64") -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, dtype), requires_grad=True)


def plain(value: Any) -> Tensor:
    """Returns a tensor that does not require grad."""
    return tensor(np.array(value, "float64"))


# ------------------------------------------------------------------------------ transforms


def _cubes(x: Any, w: Any) -> Any:
    return (x**3 * w + np.sin(x * w)).sum()


def _first(x: Any, w: Any) -> Any:
    return func.grad(lambda x: _cubes(x, w))(x)


def _rows(x: Any, w: Any) -> Any:
    return func.vmap(lambda a: (np.sin(x) * a * w).sum())(np.arange(6.0).reshape(2, 3))


def _mapped(x: Any, w: Any) -> Any:
    return func.vmap(lambda a, b: a * a * b + w.sum())(x, w)


def _forward(x: Any, w: Any) -> Any:
    out, tangent = func.jvp(lambda x: x**3 * w, (x,), (w,))
    return out * tangent


def _backward(x: Any, w: Any) -> Any:
    out, pull = func.vjp(lambda x: np.exp(x) * w, x)
    return pull(out)[0]


def _hessian(x: Any, w: Any) -> Any:
    return func.hessian(lambda x: _cubes(x, w))(x)


def _jacobians(x: Any, w: Any) -> Any:
    return func.jacrev(lambda x: x**2 * w)(x) @ func.jacfwd(lambda x: np.sin(x) * w)(x)


def _cond(x: Any, w: Any) -> Any:
    return ftrans.cond(x.sum() > 1, lambda x: x**3 * w, lambda x: -x, x)


def _not_taken(x: Any, w: Any) -> Any:
    return ftrans.cond(x.sum() < 1, lambda x: x**3 * w, lambda x: -x * w, x)


def _switched(x: Any, w: Any) -> Any:
    return ftrans.switch(1, [lambda x: x, lambda x: x * x * w, lambda x: x**3], x)


def _scanned(x: Any, w: Any) -> Any:
    carry, ys = ftrans.scan(lambda c, a: (np.tanh(c * w[0] + a), c * a), w[1], x)
    return ys.sum() * carry


def _scanned_over_plain(x: Any, w: Any) -> Any:
    carry, _ = ftrans.scan(lambda c, a: (np.tanh(c * a + x), None), w, np.array([0.5, 1.5]))
    return carry


def _fori(x: Any, w: Any) -> Any:
    return ftrans.fori_loop(0, 3, lambda i, v: np.sin(v) * w, x)


def _hvp(x: Any, w: Any) -> Any:
    return func.hvp(lambda x: (x**4).sum(), x, w)[1]


def _nested(x: Any, w: Any) -> Any:
    return func.vmap(func.grad(lambda a, b: (a**3 * b).sum()))(x, w)


def _jit(x: Any, w: Any) -> Any:
    return ftrans.jit(lambda x, w: np.sin(x) * w)(x, w)


def _grad_of_jit(x: Any, w: Any) -> Any:
    return func.grad(ftrans.jit(_cubes))(x, w)


def _tree(x: Any, w: Any) -> Any:
    found = func.grad(lambda p: (p["x"] ** 2 * p["w"][0]).sum())({"x": x, "w": [w]})
    return found["x"] * found["w"][0]


def _linearized(x: Any, w: Any) -> Any:
    out, push = func.linearize(lambda x: np.sin(x) * w, x)
    return out * push(w)


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": _first,
    "vmap": _rows,
    "vmap of tensors": _mapped,
    "jvp": _forward,
    "vjp": _backward,
    "hessian": _hessian,
    "jacobians": _jacobians,
    "cond": _cond,
    "cond not taken": _not_taken,
    "switch": _switched,
    "scan": _scanned,
    "scan over arrays": _scanned_over_plain,
    "fori_loop": _fori,
    "hvp": _hvp,
    "vmap of grad": _nested,
    "jit": _jit,
    "grad of jit": _grad_of_jit,
    "pytree": _tree,
    "linearize": _linearized,
}

each = pytest.mark.parametrize("f", TRANSFORMS.values(), ids=TRANSFORMS)


def total(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a scalar function that no symmetry makes simple."""
    return lambda x, w: (np.sin(f(x, w)) * 2).sum()


@each
def test_values_are_those_of_arrays(f: Any) -> None:
    found = f(leaf(X), leaf(W))
    assert type(found) is Tensor
    assert found.requires_grad
    assert_close(found.detach(), f(X, W))


@each
@pytest.mark.parametrize("look", [False, True])
def test_gradients_go_through(f: Any, look: bool) -> None:
    x, w = leaf(X), leaf(W)
    value = total(f)(x, w)
    if look:
        value.item()
    value.backward()
    expected = func.grad(total(f), argnums=(0, 1))(X, W)
    assert_close(x.grad, expected[0], 1e-9)
    assert_close(w.grad, expected[1], 1e-9)


@each
def test_gradients_go_through_what_is_pending(f: Any) -> None:
    x, w = leaf(X), leaf(W)
    total(lambda x, w: f(x * 1.5, np.sin(w)))(x, w).backward()
    expected = func.grad(total(lambda x, w: f(x * 1.5, np.sin(w))), argnums=(0, 1))(X, W)
    assert_close(x.grad, expected[0], 1e-9)
    assert_close(w.grad, expected[1], 1e-9)


@each
def test_second_derivatives_go_through(f: Any) -> None:
    x, w = leaf(X), leaf(W)
    first = grad(total(f)(x, w), [x, w], create_graph=True)
    ((first[0] * X).sum() + (first[1] ** 2).sum()).backward()

    def of_first(x: Any, w: Any) -> Any:
        a, b = func.grad(total(f), argnums=(0, 1))(x, w)
        return (a * X).sum() + (b**2).sum()

    expected = func.grad(of_first, argnums=(0, 1))(X, W)
    assert_close(x.grad, expected[0], 1e-8)
    assert_close(w.grad, expected[1], 1e-8)


@each
def test_in_a_loop_of_steps(f: Any) -> None:
    x, value = leaf(X), X.copy()
    for _ in range(4):
        total(f)(x, plain(W)).backward()
        with no_grad():
            x.sub_(x.grad, alpha=1e-3)
        x.grad = None
        value = value - 1e-3 * func.grad(total(f))(value, W)
    assert_close(x.detach(), value, 1e-9)


@each
def test_without_gradients_results_do_not_require_any(f: Any) -> None:
    with no_grad():
        found = f(leaf(X), leaf(W))
    assert type(found) is Tensor
    assert not found.requires_grad
    assert not f(plain(X), plain(W)).requires_grad


INNER: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda a, w: func.grad(lambda c: (c * c * a).sum())(w),
    "vmap": lambda a, w: func.vmap(lambda c: c * a)(w),
    "jvp": lambda a, w: func.jvp(lambda c: c * c * a, (w,), (w,))[1],
    "vjp": lambda a, w: func.vjp(lambda c: c * c * a, w)[1](w)[0],
    "jit": lambda a, w: ftrans.jit(lambda c: c * a)(w),
    "scan": lambda a, w: ftrans.scan(lambda c, _: (c * a, None), w, length=2)[0],
    "cond": lambda a, w: ftrans.cond(True, lambda c: c * a, lambda c: c + a, w),
    "fori_loop": lambda a, w: ftrans.fori_loop(0, 2, lambda i, c: c * a, w),
}


@pytest.mark.parametrize("outer", [func.vmap, func.jacrev])
@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_an_inner_transform_of_a_tensor_uses_a_value_of_the_outer_one(
    inner: Any, outer: Any
) -> None:
    w = leaf(W)
    found = outer(lambda a: inner(a, w))(X)
    assert type(found) is Tensor
    assert_close(found.detach(), outer(lambda a: inner(a, W))(X))


@pytest.mark.parametrize("f", [f for f in TRANSFORMS.values() if f is not _scanned_over_plain])
def test_tensors_given_to_transforms_of_what_uses_them(f: Any) -> None:
    w = leaf(W)
    found = func.grad(lambda x: total(f)(x, w))(X)
    assert type(found) is Tensor
    assert_close(found.detach(), func.grad(total(f))(X, W), 1e-9)
    (second,) = grad(found.sum(), w)
    assert_close(second, func.grad(lambda w: func.grad(total(f))(X, w).sum())(W), 1e-8)


# ------------------------------------------------------------------------------ jit


def test_jit_of_a_tensor() -> None:
    f = ftrans.jit(lambda x: (x**3).sum())
    x = leaf(X)
    f(x).backward()
    assert_close(x.grad, 3 * X**2)
    assert_close(f(X), (X**3).sum())


def test_jit_that_closes_over_a_tensor() -> None:
    w = leaf(W)
    f = ftrans.jit(lambda x: (x * w).sum())
    with pytest.raises(UnsupportedError, match=r"jit\(lambda\): it closes over a tensor"):
        f(X)
    assert_close(ftrans.jit(lambda x: (x * w.detach().numpy()).sum())(X), X @ W)


def test_jit_with_static_arguments() -> None:
    f = ftrans.jit(lambda x, n: (x**n).sum(), static_argnums=1)
    x = leaf(X)
    for n in (2, 3, 2):
        f(x, n).backward()
    assert_close(x.grad, 4 * X + 3 * X**2)


# ------------------------------------------------------------------------------ Function


class Square(Function):
    """Is traced."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


class Opaque(Function):
    """Calls NumPy on plain arrays."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return np.asarray(x) ** 2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


class Scaled(Function):
    """Has a backward that is not the derivative, so as to be seen."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        return x * 1

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ctx.scale, None


@ftrans.custom_vjp
def by_vjp(x: Any) -> Any:
    """Has the derivative 2 x, by a rule."""
    return x * x


by_vjp.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))


@ftrans.custom_jvp
def by_jvp(x: Any) -> Any:
    """Has the derivative 2 x, by a rule."""
    return x * x


by_jvp.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))

SQUARES = {"traced": Square.apply, "opaque": Opaque.apply, "vjp": by_vjp, "jvp": by_jvp}
squares = pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)


@squares
@pytest.mark.parametrize("look", [False, True])
def test_custom_rules_on_tensors(square: Any, look: bool) -> None:
    x = leaf(X)
    h = x * 3
    y = square(h)
    if look:
        y.tolist()
    assert type(y) is Tensor
    assert_close(y.detach(), 9 * X**2)
    (y * h).sum().backward()
    assert_close(x.grad, 81 * X**2)


@squares
@pytest.mark.parametrize("look", [False, True])
def test_second_derivatives_of_custom_rules(square: Any, look: bool) -> None:
    x = leaf(X)
    y = (square(x) * x).sum()
    if look:
        y.item()
    (first,) = grad(y, x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    (third,) = grad(second.sum(), x)
    assert_close(first.detach(), 3 * X**2)
    assert_close(second.detach(), 6 * X)
    assert_close(third, np.full(3, 6.0))


@squares
def test_custom_rules_that_close_over_nothing_in_a_loop(square: Any) -> None:
    x, value = leaf(X), X.copy()
    for _ in range(10):
        square(x).sum().backward()
        with no_grad():
            x -= 0.1 * x.grad
        x.grad = None
        value = 0.8 * value
    assert_close(x.detach(), value)


@squares
def test_custom_rules_under_no_grad(square: Any) -> None:
    x = leaf(X)
    with no_grad():
        y = square(x)
    assert not y.requires_grad
    assert_close(y, X**2)


@squares
def test_custom_rules_on_what_does_not_require_grad(square: Any) -> None:
    y = square(plain(X))
    assert type(y) is Tensor
    assert not y.requires_grad


@pytest.mark.parametrize("square", [Square.apply, by_vjp, by_jvp])
def test_custom_rules_under_vmap(square: Any) -> None:
    x = leaf(np.stack([X, W]))
    func.vmap(square)(x).sum().backward()
    assert_close(x.grad, 2 * np.stack([X, W]))


@squares
def test_custom_rules_written_to_later(square: Any) -> None:
    x = leaf(X)
    h = x * 1
    y = square(h)
    h.zero_()
    y.sum().backward()
    assert_close(x.grad, 2 * X)


def test_the_rule_is_used_and_not_the_derivative() -> None:
    x = leaf(X)
    Scaled.apply(x, 100.0).sum().backward()
    assert_close(x.grad, np.full(3, 100.0))


def test_needs_input_grad_of_tensors() -> None:
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            x, y = ctx.saved_tensors
            return ct * y, ct * x

    x = leaf(X)
    Product.apply(x, plain(W)).sum().backward()
    assert seen == [(True, False)]
    assert_close(x.grad, W)


def test_results_that_are_not_differentiable() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            larger = x > 0.5
            ctx.mark_non_differentiable(larger)
            return x * 2, larger

        @staticmethod
        def backward(ctx: Any, ct: Any, _: Any) -> Any:
            return ct * 2

    x = leaf(X)
    y, larger = Both.apply(x)
    assert y.requires_grad
    assert not larger.requires_grad
    assert larger.tolist() == [False, True, True]
    y.sum().backward()
    assert_close(x.grad, np.full(3, 2.0))


def test_a_backward_that_raises() -> None:
    class Failing(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            raise ZeroDivisionError("here")

    x = leaf(X)
    y = Failing.apply(x).sum()
    with pytest.raises(ZeroDivisionError, match="here"):
        y.backward()
    assert x.grad is None
    (x * x).sum().backward()
    assert_close(x.grad, 2 * X)


def test_a_forward_that_raises() -> None:
    class Failing(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            if np.asarray(x).sum() > 100:
                raise ZeroDivisionError("here")
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2

    x = leaf(X)
    before = x * 3
    with pytest.raises(ZeroDivisionError, match="here"):
        Failing.apply(x * 1000).sum().item()
    (Failing.apply(x).sum() + before.sum()).backward()
    assert_close(x.grad, np.full(3, 5.0))


def test_a_function_that_closes_over_a_tensor() -> None:
    w = leaf(W)

    class Weighted(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * w.detach()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * w.detach()

    x = leaf(X)
    Weighted.apply(x).sum().backward()
    assert_close(x.grad, W)


# ------------------------------------------------------------------------------ functions of NumPy


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": np.sin,
    "add": lambda x: np.add(x, 1.0),
    "radd": lambda x: np.ones(3) + x,
    "rmul": lambda x: np.float64(2) * x,
    "array minus": lambda x: W - x,
    "array over": lambda x: W / x,
    "power": lambda x: 2.0**x,
    "matmul": lambda x: np.eye(3) @ x,
    "concatenate": lambda x: np.concatenate([x, x * 2]),
    "with arrays": lambda x: np.concatenate([x, W]),
    "stack": lambda x: np.stack([x, x**2], axis=1),
    "dot": lambda x: np.dot(x, x),
    "einsum": lambda x: np.einsum("i,j->ij", x, x),
    "reduce": np.add.reduce,
    "where": lambda x: np.where(x > 0.5, x, 0.0),
    "norm": np.linalg.norm,
    "sum": np.sum,
    "mean": lambda x: np.mean(x, axis=0),
    "maximum": lambda x: np.maximum(x, 0.5),
    "outer": lambda x: np.outer(x, x),
    "cumsum": np.cumsum,
    "sort": np.sort,
    "diag": np.diag,
    "clip": lambda x: np.clip(x, 0.5, 1.0),
    "reshape": lambda x: np.reshape(x, (3, 1)),
    "flip": np.flip,
    "prod": np.prod,
    "tile": lambda x: np.tile(x, 2),
    "max": np.max,
    "fnp.sin": fnp.sin,
    "fnp.concatenate": lambda x: fnp.concatenate([x, x]),
    "fnp.where": lambda x: fnp.where(x > 0.5, x, -x),
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_numpy(f: Any) -> None:
    x = leaf(X)
    found = f(x)
    assert type(found) is Tensor
    assert_close(found.detach(), f(X))
    (found * found).sum().backward()
    assert_close(x.grad, func.grad(lambda x: (f(x) * f(x)).sum())(X), 1e-10)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fnp.at(x)[0].set(5.0),
        lambda x: fnp.at(np.zeros(3))[1:].set(x[1:]) + fnp.at(x)[0].add(1.0),
        lambda x: fnp.float64([x[0], x[1], x[2]]),
    ],
)
def test_functions_that_are_classes(f: Any) -> None:
    x = leaf(X)
    found = f(x)
    assert type(found) is Tensor
    (found * found).sum().backward()
    assert_close(x.grad, func.grad(lambda x: (f(x) * f(x)).sum())(X), 1e-10)


def test_what_numpy_asks_of_a_tensor() -> None:
    x = leaf([[1, 2, 3]])
    assert np.shape(x) == (1, 3)
    assert np.ndim(x) == 2
    assert np.size(x) == 3
    assert np.result_type(x) == np.float64
    assert not np.isscalar(x)
    assert np.allclose(x, x)
    assert np.array_equal(x, x.detach())


def test_tensors_as_numbers() -> None:
    i = tensor(np.array(1))
    assert [1, 2, 3][i] == 2
    assert list(range(i + 2)) == [0, 1, 2]
    assert np.arange(3)[i] == 1
    assert float(leaf(2.5)) == 2.5
    assert f"{leaf(2.5):.2f}" == "2.50"


def test_a_function_that_is_not_there_says_so() -> None:
    with pytest.raises(FtransError, match=r"np\.real_if_close"):
        np.real_if_close(leaf(np.ones(2)))


def test_an_array_is_not_overwritten_by_a_tensor() -> None:
    array = np.ones(3)
    with pytest.raises(FtransError, match="can only be written to a tensor"):
        array += leaf(X)
    assert_close(array, np.ones(3))


# ------------------------------------------------------------------------------ containers, dtypes


def test_containers_of_jax() -> None:
    x = tensor(jnp.array([1.0, 2.0]), requires_grad=True)
    y = np.sin(x) * x
    y.sum().backward()
    value = np.array([1, 2], "float32")
    assert_close(x.grad, np.sin(value) + value * np.cos(value))


def test_containers_of_jax_and_numpy_together() -> None:
    x = tensor(jnp.array([1.0, 2.0]), requires_grad=True)
    w = tensor(np.array([3, 4], "float32"), requires_grad=True)
    (x * w).sum().backward()
    assert_close(x.grad, np.array([3, 4], "float32"))
    assert_close(w.grad, np.array([1, 2], "float32"))


def test_containers_of_jax_are_written_to() -> None:
    x = tensor(jnp.array([1.0, 2.0]), requires_grad=True)
    for _ in range(3):
        y = x * 1
        y[0] *= 3
        y.sum().backward()
        with no_grad():
            x -= 0.1 * x.grad
        x.grad.zero_()
    assert_close(x.detach(), np.array([1 - 0.9, 2 - 0.3], "float32"))


def test_arrays_of_jax_as_operands() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * jnp.array([3.0, 4.0]) + jnp.array([1.0, 1.0]) * x).sum().backward()
    assert_close(x.grad, np.array([4, 5], "float32"))


def test_functions_of_jax_by_external() -> None:
    f = ftrans.external.jax(jnp.sin)
    x = leaf([1, 2], "float32")
    f(x).sum().backward()
    assert_close(x.grad, np.cos(np.array([1, 2], "float32")))


def test_jax_itself_refuses_tensors() -> None:
    with pytest.raises((TypeError, FtransError)):
        jax.jit(lambda x: x)(leaf(X))


@pytest.mark.parametrize("dtype", ["float16", bfloat16, "float32", "complex64", "complex128"])
def test_transforms_keep_dtypes(dtype: Any) -> None:
    x = leaf([1, 2], dtype)
    found = func.vmap(lambda a: a * a)(x)
    assert found.dtype == np.dtype(dtype)
    (found * found.conj()).real.sum().backward()
    assert x.grad.dtype == np.dtype(dtype)
    assert_close(x.grad, np.array([4, 32], dtype))


def test_complex_gradients_through_func() -> None:
    z = leaf([1 + 2j, 3 - 1j], "complex128")
    found = func.grad(lambda a: (a * a.conj()).real.sum())(z)
    assert type(found) is Tensor
    assert_close(found.detach(), 2 * np.array([1 + 2j, 3 - 1j]))


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_empty_tensors_under_transforms(shape: tuple[int, ...]) -> None:
    x = leaf(np.zeros(shape))
    func.vmap(lambda a: a * 2, in_dims=len(shape) - 1, out_dims=len(shape) - 1)(x).sum().backward()
    assert_close(x.grad, np.full(shape, 2.0))


# ------------------------------------------------------------------------------ closures


def test_branches_on_tensors_inside() -> None:
    x = leaf(1)

    def f(y: Any) -> Any:
        return y * x if x > 0 else y

    found = func.grad(f)(1.0)
    found.backward()
    assert_close(x.grad, 1.0)


def test_values_of_tensors_inside() -> None:
    x = leaf([1, 2])
    assert func.grad(lambda y: y * x.sum().item())(1.0) == 3.0


def test_methods_of_tensors_inside() -> None:
    x = leaf([1, 2])

    def f(y: Any) -> Any:
        return (y * x.view(2)[0] + x.sum() * y + x[1] * x.exp().mean()).sum()

    found = func.grad(f)(np.ones(2))
    assert_close(found.detach(), [4.0, 4.0])
    found.sum().backward()
    assert_close(x.grad, [4.0, 2.0])


def test_the_mapped_and_the_closed_over_meet() -> None:
    w = leaf(W)

    def loss(x: Any) -> Any:
        return np.tanh(w * x).sum()

    found = func.vmap(func.grad(loss))(np.stack([X, X + 1]))
    (found**2).sum().backward()

    def plainly(w: Any) -> Any:
        each = func.vmap(func.grad(lambda x: np.tanh(w * x).sum()))(np.stack([X, X + 1]))
        return (each**2).sum()

    assert_close(w.grad, func.grad(plainly)(W), 1e-10)


def test_closed_over_twice_and_written_to_in_between() -> None:
    w = leaf(W)
    f = func.vmap(lambda a: (a * w).sum())
    rows = np.arange(6.0).reshape(2, 3)
    first = f(rows)
    with no_grad():
        w.mul_(2)
    second = f(rows)
    assert_close(first.detach(), rows @ W)
    assert_close(second.detach(), rows @ W * 2)
    (first + 10 * second).sum().backward()
    assert_close(w.grad, 11 * rows.sum(0))


def test_a_view_is_closed_over() -> None:
    x = leaf([[1, 2], [3, 4]])
    y = x * 1
    row = y[0]
    y.mul_(2)
    found = func.vmap(lambda a: a * row)(np.ones((3, 2)))
    found.sum().backward()
    assert_close(x.grad, [[6.0, 6.0], [0.0, 0.0]])


def test_a_pullback_is_called_later_and_twice() -> None:
    x = leaf(X)
    _, pull = func.vjp(lambda a: a**3, x)
    y = x * 2
    y.tolist()
    (first,) = pull(plain(np.ones(3)))
    (second,) = pull(plain(W))
    (first + second).sum().backward()
    assert_close(x.grad, 6 * X * (1 + W))


def test_an_error_inside_of_a_transform_leaves_all_in_order() -> None:
    x = leaf(X)
    before = x * 2

    def fails(y: Any) -> Any:
        y = y * x
        raise ZeroDivisionError("here")

    for transform in (func.grad, func.vmap, ftrans.jit):
        with pytest.raises(ZeroDivisionError, match="here"):
            transform(fails)(x)
    with pytest.raises(FtransError):
        func.grad(lambda y: (y @ np.ones((5, 5))).sum())(x)
    (before * x).sum().backward()
    assert_close(x.grad, 4 * X)


def test_results_with_parts_that_are_no_arrays() -> None:
    x = leaf(X)
    found, aux = func.grad(lambda y: ((y**2).sum(), {"n": 3, "y": y * 2}), has_aux=True)(x)
    assert type(found) is Tensor
    assert aux["n"] == 3
    assert_close(aux["y"].detach(), 2 * X)
    aux["y"].sum().backward()
    assert_close(x.grad, np.full(3, 2.0))


def test_while_loops_of_tensors() -> None:
    x = leaf(3.0)
    found = ftrans.while_loop(lambda v: v < 100, lambda v: v * 2, x)
    assert type(found) is Tensor
    assert_close(found.detach(), 192.0)


def test_gradients_of_the_engine_into_func_and_back() -> None:
    x = leaf(X)
    (first,) = grad((x**4).sum(), x, create_graph=True)
    found = func.grad(lambda a: (a**2 * first).sum())(x)
    found.sum().backward()
    # found = 2 x 4 x^3
    assert_close(x.grad, 32 * X**3)


def test_transforms_after_values_were_looked_at() -> None:
    x = leaf(X)
    h = x * x
    h.tolist()
    found = func.vmap(lambda a: a * h)(np.ones((2, 3)))
    found.tolist()
    found.sum().backward()
    assert_close(x.grad, 4 * X)


def test_a_network_of_all_of_it() -> None:
    rng = np.random.default_rng(0)
    given = {"w": rng.normal(size=(3, 3)), "u": rng.normal(size=3)}
    data = rng.normal(size=(4, 3))

    def model(p: Any, row: Any) -> Any:
        carry, _ = ftrans.scan(lambda h, _: (np.tanh(p["w"] @ h + row), None), p["u"], length=3)
        return Square.apply(carry).sum() + by_vjp(carry[0])

    def loss(p: Any) -> Any:
        return func.vmap(lambda row: model(p, row))(data).mean()

    p = {name: leaf(value) for name, value in given.items()}
    value = loss(p)
    value.backward()
    expected = func.grad(loss)(given)
    assert_close(value.detach(), loss(given))
    for name in given:
        assert_close(p[name].grad, expected[name], 1e-10)


# ------------------------------------------------------------------------------ leaks


def test_a_loop_of_transforms_finds_its_programs() -> None:
    w = leaf(W)

    def step() -> None:
        func.vmap(lambda a: (np.sin(a) * w).sum())(np.ones((2, 3))).sum().backward()
        w.grad = None

    for _ in range(5):
        step()
    before = ftrans.cache_info().misses
    for _ in range(20):
        step()
    assert ftrans.cache_info().misses == before


@pytest.mark.parametrize("count", range(1994, 2001))
def test_a_view_is_made_again_where_most_is_pending(count: int) -> None:
    """Who takes it has the codes of other operands: nothing is run in between."""
    base = tensor(np.ones(3))
    first, second, x = base[:], base[:], tensor(np.ones(3))
    for _ in range(count):
        x = x + 1
    base.mul_(2)
    assert_close(ftrans.numpy.stack([x, first, second]).sum(0).numpy(), np.full(3, count + 5.0))


def test_a_value_that_is_kept_is_a_constant_whenever_it_is_read() -> None:
    for read_first in (False, True):
        kept: list[Any] = []
        w = tensor(np.array([1.0, 2.0]), requires_grad=True)
        slope = func.grad(lambda x, kept=kept: (kept.append(x * 2), (x * x).sum())[1])(w)
        if read_first:
            slope.tolist()
        (kept[0] * w).sum().backward()
        assert_close(w.grad.numpy(), [2.0, 4.0])


@pytest.mark.parametrize("leave", [no_grad, ftrans.autograd.inference_mode])
def test_a_value_that_is_kept_outlives_the_tape_that_is_left(leave: Any) -> None:
    kept: dict[str, Any] = {}

    def loss(x: Any) -> Any:
        kept["loss"] = (x * x).sum()
        return kept["loss"]

    x = tensor(np.array([1.0, 2.0]), requires_grad=True)
    expected = 5.0
    for _ in range(3):
        slope = func.grad(loss)(x)
        with leave(), no_grad():
            x -= 0.25 * slope
        assert_close(float(kept["loss"]), expected)
        expected /= 4


def test_bodies_of_control_flow_return_tensors() -> None:
    x, v = tensor(np.ones(2)), tensor(np.array([3.0, 4.0]), requires_grad=True)
    chosen = ftrans.cond(tensor(True), lambda x: v, lambda x: x, x)
    _, rows = ftrans.scan(lambda carry, _: (carry, v * 1), x, None, 2)
    (chosen.sum() + rows.sum()).backward()
    assert_close(v.grad.numpy(), [3.0, 3.0])


@pytest.mark.parametrize("name", ["unsqueeze_", "t_", "softmax_", "nonsense_"])
def test_methods_in_place_that_change_shapes_are_refused_in_transforms(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        func.grad(lambda x: getattr(x.copy(), name)(0).sum())(np.ones((2, 2)))


def test_what_is_written_in_place_fits() -> None:
    with pytest.raises(FtransError, match="mul_: the result does not fit"):
        ftrans.jit(lambda x: x.copy().mul_(2.5))(np.array([1, 3]))


@pytest.mark.parametrize("namespace", ["methods", "fnp", "np", "torch"])
def test_each_way_to_write_an_operation_records_the_same(namespace: str) -> None:
    xp: Any = {"fnp": fnp, "np": np, "torch": torch}.get(namespace)
    x, w = leaf([0.3, 0.5, 0.9, 1.4]), leaf(np.eye(4) + 0.1)

    def loss(x: Any, w: Any) -> Any:
        if xp is None:
            y = (x.sin() * x + 0.5).reshape(2, 2)
            y = (y @ y).reshape(4).tanh() + (x @ w).exp() + 2.0 - x.abs()
            return (y.sort()[0] * x).sum() + y.max() + w.diagonal().sum()
        y = xp.reshape(xp.add(xp.multiply(xp.sin(x), x), 0.5), (2, 2))
        y = xp.tanh(xp.reshape(xp.matmul(y, y), (4,))) + xp.exp(xp.matmul(x, w))
        y = xp.subtract(xp.add(y, 2.0), xp.abs(x))
        ordered = xp.sort(y)
        ordered = ordered[0] if xp is torch else ordered
        return xp.sum(ordered * x) + xp.max(y) + xp.sum(xp.diagonal(w))

    def expected(x: Any, w: Any) -> Any:
        y = jnp.reshape(jnp.sin(x) * x + 0.5, (2, 2))
        y = jnp.tanh(jnp.reshape(y @ y, (4,))) + jnp.exp(x @ w) + 2.0 - jnp.abs(x)
        return jnp.sum(jnp.sort(y) * x) + jnp.max(y) + jnp.sum(jnp.diagonal(w))

    for scale in (1.0, 0.5, 2.0, 1.0):
        x.data, x.grad, w.grad = x.detach() * scale, None, None
        loss(x, w).backward()
        with jax.enable_x64(True):
            found = jax.grad(expected, (0, 1))(x.detach().numpy(), w.detach().numpy())
        assert_close(x.grad, found[0], 1e-6)
        assert_close(w.grad, found[1], 1e-6)


def test_what_is_written_to_is_not_taken_over() -> None:
    """A call that writes to a tensor records equations, and does more than that."""
    for k in range(4):
        x, y = leaf([1.0, 2.0, 3.0]), leaf([4.0, 5.0, 6.0])
        z = x * 1.0
        np.copyto(z, y * 2.0)
        z[0] = x[1]
        np.add(z, 1.0, out=z)
        view = z[1:]
        view *= float(k)
        (z * z).sum().backward()
        assert_close(z.detach(), [3.0, 11.0 * k, 13.0 * k])
        assert_close(x.grad, [0.0, 6.0, 0.0])
        assert_close(y.grad, [0.0, 44.0 * k * k, 52.0 * k * k])


def test_arrays_that_a_function_is_given_are_no_constants_of_it() -> None:
    x = leaf([1.0, 2.0, 3.0])
    for k in range(4):
        array = np.full(3, float(k))
        x.grad = None
        (fnp.where(array > 1, x, array) * fnp.stack([x, array])).sum().backward()
        scale = x.detach().numpy()
        expected = 2 * scale + k if k > 1 else np.full(3, float(k))
        assert_close(x.grad, expected)


def test_several_views_follow_what_is_written_when_taken_over() -> None:
    for _ in range(4):
        x = leaf([1.0, 2.0, 3.0, 4.0])
        y = x * 2
        first, second = y.split(2)
        y[0] = 10.0
        assert first.tolist() == [10.0, 4.0]
        (first * second).sum().backward()
        assert_close(x.grad, [0.0, 16.0, 20.0, 8.0])


def test_a_mask_that_a_transform_closes_over_is_an_index_among_others() -> None:
    x, kept = np.arange(24.0).reshape(2, 3, 4), np.array([True, False, True, True])
    mask = tensor(kept)
    for take, plain in (
        (lambda v: v[1, :, mask], np.s_[1, :, kept]),
        (lambda v: v[:, :, mask], np.s_[:, :, kept]),
        (lambda v: v[0, 0][mask], np.s_[0, 0, kept]),
    ):
        expected = np.zeros_like(x)
        expected[plain] = 2 * x[plain]
        assert_close(func.grad(lambda v, take=take: (take(v) ** 2).sum())(x), expected)
