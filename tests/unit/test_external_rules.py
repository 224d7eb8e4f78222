"""The derivatives of external functions: one rule, in each form, under every transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.custom.front import external, ffi, traceable
from ftrans.errors import ArgumentError, MissingRuleError, RuleError
from tests.helpers import assert_close

X = np.array([0.3, -1.0, 2.0])
BATCH = np.stack([X, -X, 2 * X])
METHODS = ("sequential", "expand_dims", "broadcast_all")


def same(x: Any, *_: Any) -> Any:
    return x


def product(x: Any, y: Any) -> Any:
    """Is what the external functions below compute, for the oracle."""
    return fnp.sin(x) * y


def by_vjp(method: str) -> Any:
    return external(
        lambda x, y: np.sin(x) * y,
        same,
        vmap_method=method,
        vjp=lambda primals, out, ct: (ct * fnp.cos(primals[0]) * primals[1], ct * out / primals[1]),
    )


def by_pair(method: str) -> Any:
    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), (fnp.cos(x) * y, fnp.sin(x))

    f = external(
        lambda x, y: np.sin(x) * y,
        same,
        vmap_method=method,
        vjp=(fwd, lambda residuals, ct: (ct * residuals[0], ct * residuals[1])),
    )
    return f


def by_jvp(method: str) -> Any:
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (s, t) = primals, tangents
        dot = 0.0 * x if s is None else s * fnp.cos(x) * y
        return f(x, y), dot if t is None else dot + fnp.sin(x) * t

    f = external(lambda x, y: np.sin(x) * y, same, vmap_method=method, jvp=rule)
    return f


def by_both(method: str) -> Any:
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (s, t) = primals, tangents
        dot = 0.0 * x if s is None else s * fnp.cos(x) * y
        return f(x, y), dot if t is None else dot + fnp.sin(x) * t

    f = external(
        lambda x, y: np.sin(x) * y,
        same,
        vmap_method=method,
        jvp=rule,
        vjp=lambda primals, out, ct: (ct * fnp.cos(primals[0]) * primals[1], ct * out / primals[1]),
    )
    return f


def by_jax(method: str) -> Any:
    return traceable(
        lambda x, y: jax.numpy.sin(x) * y,
        vjp=lambda primals, out, ct: (ct * fnp.cos(primals[0]) * primals[1], ct * out / primals[1]),
    )


FORMS = {f.__name__: f for f in (by_vjp, by_pair, by_jvp, by_both, by_jax)}


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: (f(x, y) ** 2).sum()


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: func.grad(total(f), argnums=(0, 1))(X, 3.0 - X),
    "jvp": lambda f: func.jvp(f, (X, 3.0 - X), (X, X * X))[1],
    "jvp of one": lambda f: func.jvp(lambda y: f(X, y), (X,), (X,))[1],
    "vjp": lambda f: func.vjp(f, X, 3.0 - X)[1](X),
    "grad of grad": lambda f: func.grad(
        lambda x: func.grad(total(f))(x, 3.0 - X).sum(),
    )(X),
    "hessian": lambda f: func.hessian(total(f))(X, 3.0 - X),
    "jacfwd": lambda f: func.jacfwd(f)(X, 3.0 - X),
    "vmap of grad": lambda f: func.vmap(func.grad(total(f)), in_dims=(0, None))(BATCH, 3.0 - X),
    "grad of vmap": lambda f: func.grad(
        lambda y: func.vmap(total(f), in_dims=(0, None))(BATCH, y).sum()
    )(3.0 - X),
    "vmap of hessian": lambda f: func.vmap(func.hessian(total(f)), in_dims=(1, 0))(
        BATCH.T.copy(), 3.0 - BATCH
    ),
    "jit": lambda f: ftrans.jit(func.vmap(func.grad(total(f)), in_dims=(0, None)))(BATCH, 3.0 - X),
    "scan": lambda f: func.grad(
        lambda x: ftrans.scan(lambda c, _: (f(c, 3.0 - X), None), x, None, length=3)[0].sum()
    )(X),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_one_rule_is_enough(form: str, transform: str) -> None:
    run = TRANSFORMS[transform]
    methods = METHODS if transform in ("vmap of grad", "grad of vmap") else METHODS[-1:]
    for method in methods:
        found, expected = run(FORMS[form](method)), run(product)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert_close(a, b)


# ----------------------------------------------------------------------------- linear functions


def mixed(a: Any, b: Any) -> Any:
    return a[::-1] + 2.0 * b


def linear(method: str) -> Any:
    return external(
        lambda a, b: a[..., ::-1] + 2.0 * b,
        same,
        vmap_method=method,
        transpose=lambda ct: (ct[::-1], 2.0 * ct),
        name="mixed",
    )


def linear_by_jax(method: str) -> Any:
    return traceable(mixed, transpose=lambda ct: (ct[::-1], 2.0 * ct))


@pytest.mark.parametrize("make", [linear, linear_by_jax])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("method", METHODS)
def test_a_transpose_is_enough_for_a_linear_function(
    make: Any, transform: str, method: str
) -> None:
    run = TRANSFORMS[transform]
    found, expected = run(make(method)), run(mixed)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(a, b)


def test_the_derivative_of_a_linear_function_is_differentiated_in_every_mode() -> None:
    f = external(
        lambda x: np.roll(x, 1),
        same,
        vmap_method="broadcast_all",
        transpose=lambda ct: (fnp.roll(ct, -1),),
    )
    x = np.arange(4.0)

    def pushed(t: Any) -> Any:
        return func.jvp(f, (x,), (t,))[1]

    def pulled(ct: Any) -> Any:
        return func.vjp(f, x)[1](ct)[0]

    for first, forwards, backwards in ((pushed, 1, -1), (pulled, -1, 1)):
        assert_close(func.jvp(first, (x,), (x,))[1], np.roll(x, forwards))
        assert_close(func.vjp(first, x)[1](x)[0], np.roll(x, backwards))


def test_linear_transpose_takes_it() -> None:
    f = linear("broadcast_all")
    (found,) = func.linear_transpose(lambda a: f(a, a), X)(X)
    assert_close(found, X[::-1] + 2 * X)


def test_two_external_functions_may_be_each_others_transpose() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    forward = external(
        lambda x: x @ matrix.T,
        lambda x: ftrans.ArrayType((2,), x.dtype),
        vmap_method="broadcast_all",
        transpose=lambda ct: backward(ct),
    )
    backward = external(
        lambda y: y @ matrix,
        lambda y: ftrans.ArrayType((3,), y.dtype),
        vmap_method="broadcast_all",
        transpose=lambda ct: forward(ct),
    )
    assert_close(func.jacrev(forward)(X), matrix)
    assert_close(func.jacfwd(forward)(X), matrix)
    assert_close(func.hessian(lambda x: (forward(x) ** 2).sum())(X), 2 * matrix.T @ matrix)


@pytest.mark.parametrize("understood", [True, False])
def test_a_transpose_is_called_seldom_at_high_orders(understood: bool) -> None:
    calls: list[None] = []

    def counted(ct: Any) -> Any:
        calls.append(None)  # so that nobody knows whether the next call does the same
        return transpose(ct)

    def transpose(ct: Any) -> Any:
        return 2.0 * ct[0][::-1] + 3.0 * ct[1]

    f = external(
        lambda x: (2.0 * x[::-1], 3.0 * x),
        lambda x: (x, x),
        vmap_method="sequential",
        transpose=transpose if understood else counted,
    )
    third = func.jacrev(func.hessian(lambda x: (fnp.sin(f(x)[0]) * f(x)[1]).sum()))(X)
    expected = func.jacrev(func.hessian(lambda x: (fnp.sin(2.0 * x[::-1]) * 3.0 * x).sum()))(X)
    assert_close(third, expected)
    assert len(calls) < 2000


def test_a_transpose_may_close_over_what_is_differentiated() -> None:
    def slopes(w: Any) -> Any:
        f = external(
            lambda x: x * 3.0, same, vmap_method="broadcast_all", transpose=lambda ct: ct * w
        )
        return func.grad(lambda x: f(x).sum())(X).sum()

    assert_close(func.grad(slopes)(2.0), 3.0)


def test_jax_takes_the_transpose() -> None:
    f, x = linear("broadcast_all"), jax.numpy.arange(3.0)
    found = jax.vmap(jax.grad(lambda a: (f(a, a) ** 2).sum()))(x[None])
    assert_close(found[0], jax.grad(lambda a: (mixed(a, a) ** 2).sum())(x))


def test_a_call_is_taken_over_until_what_its_rule_reads_changes() -> None:
    scale = 2.0

    def pulled(ct: Any) -> Any:
        return ct * scale

    def rule(primals: Any, out: Any, ct: Any) -> Any:
        return pulled(ct)

    f = external(lambda x: x * 2.0, same, vmap_method="broadcast_all", transpose=pulled)
    g = external(lambda x: x * 2.0, same, vmap_method="broadcast_all", vjp=rule)
    for scale in (2.0, 3.0, 2.0):
        for h in (f, g, f, g):
            assert_close(func.grad(lambda x, h=h: h(x).sum())(X), np.full(3, scale))


def test_pytrees_pass_through_rules() -> None:
    f = external(
        lambda tree: {"s": np.sin(tree["x"]), "n": np.int32(3)},
        lambda tree: {"s": tree["x"], "n": ftrans.ArrayType((), "int32")},
        vmap_method="sequential",
        vjp=lambda primals, out, ct: {"x": ct["s"] * fnp.cos(primals[0]["x"])},
    )
    found = func.grad(lambda x: f({"x": x})["s"].sum())(X)
    assert_close(found, np.cos(X))
    assert_close(func.vmap(func.grad(lambda x: f({"x": x})["s"].sum()))(BATCH), np.cos(BATCH))


def test_bad_rules_are_named() -> None:
    with pytest.raises(ArgumentError, match="transpose="):
        external(np.sin, same, transpose=same, vjp=same)
    with pytest.raises(ArgumentError, match="vjp="):
        external(np.sin, same, vjp=3)
    with pytest.raises(ArgumentError, match="jvp="):
        ffi("target", same, jvp=3)
    wrong: list[Callable[..., Any]] = [
        lambda ct: ct[:1],
        lambda ct: (ct, ct),
        lambda ct: ct.astype("float32"),
        lambda ct: "text",
    ]
    for rule in wrong:
        f = external(np.negative, same, transpose=rule, name="negative")
        with pytest.raises(RuleError, match="negative: what its transpose"):
            func.grad(lambda x, f=f: f(x).sum())(X)


def test_a_derivative_that_is_missing_is_never_zero() -> None:
    # the rule takes arguments and cotangent together, so that nothing shows it to be linear
    pull = external(
        lambda x, ct: np.cos(x) * ct,
        same,
        vmap_method="broadcast_all",
        vjp=lambda primals, out, ct: again(*primals, ct),
    )
    again = external(
        lambda x, ct, h: (-np.sin(x) * ct * h, np.cos(x) * h),
        lambda x, ct, h: (x, x),
        vmap_method="broadcast_all",
    )
    f = external(
        np.sin,
        same,
        vmap_method="broadcast_all",
        vjp=lambda primals, out, ct: pull(primals[0], ct),
    )

    def total(x: Any) -> Any:
        return f(x).sum()

    assert_close(func.grad(total)(X), np.cos(X))
    assert_close(func.jacrev(func.jacrev(total))(X), -np.diag(np.sin(X)))
    for outer in (func.jacfwd, func.jacrev):
        with pytest.raises(MissingRuleError, match="not linear in the cotangent"):
            outer(func.jacfwd(total))(X)
