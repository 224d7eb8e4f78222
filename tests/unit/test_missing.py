"""What stands for a derivative that is missing: it raises where a result depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.autograd import Function, once_differentiable
from ftrans.errors import MissingRuleError, TransposeError
from tests.helpers import assert_close
from tests.unit.function_database import OpaqueBackward

X = np.array([0.3, 0.7])


class Hidden(Function):
    """Is marked, and hides that its rule depends on x, which is what the mark is for."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.slope = fnp.cos(x.detach())
        return fnp.sin(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ct: Any) -> Any:
        return ctx.slope * ct


class Failing(Function):
    """Has a jvp that raises beside a right backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return fnp.sin(x)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * fnp.cos(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t * fnp.cos(ctx.saved_tensors[0])  # nothing was saved for forward


SECOND = {
    "jacfwd(jacfwd)": lambda f: func.jacfwd(func.jacfwd(f)),
    "jacrev(jacfwd)": lambda f: func.jacrev(func.jacfwd(f)),
    "jacfwd(jacrev)": lambda f: func.jacfwd(func.jacrev(f)),
    "jacrev(jacrev)": lambda f: func.jacrev(func.jacrev(f)),
    "jit(jacrev(jacrev))": lambda f: ftrans.jit(func.jacrev(func.jacrev(f))),
    "vmap(grad(grad))": lambda f: func.vmap(func.grad(func.grad(f))),
}


@pytest.mark.parametrize("transform", SECOND)
@pytest.mark.parametrize("rule", [OpaqueBackward, Hidden], ids=lambda rule: rule.__name__)
@pytest.mark.filterwarnings("ignore:.*vmap calls it")
def test_a_missing_derivative_is_never_zero(rule: Any, transform: str) -> None:
    with pytest.raises(MissingRuleError, match=rule.__name__):
        SECOND[transform](rule.apply)(X)


@pytest.mark.parametrize("transform", ["jacfwd(jacfwd)", "jacrev(jacfwd)"])
def test_a_rule_that_raised_is_not_zero_either(transform: str) -> None:
    with pytest.raises(IndexError):
        SECOND[transform](Failing.apply)(X)
    assert_close(func.jacrev(func.jacrev(Failing.apply))(X)[0, 0, 0], -np.sin(0.3))


def test_what_no_result_depends_on_is_not_missed() -> None:
    def f(x: Any) -> Any:
        OpaqueBackward.apply(func.grad(lambda y: OpaqueBackward.apply(y).sum())(x))
        return (x**2).sum()

    assert_close(func.grad(f)(X), 2 * X)


# ------------------------------------------------------- rules that are not linear in cotangents

W = np.array([1.5, -2.0, 0.3])

CHANGED: dict[str, tuple[Any, Any]] = {
    "norm": (lambda g: g / fnp.sqrt((g * g).sum()), W / np.sqrt((W * W).sum())),
    "norm of numpy": (lambda g: g / np.linalg.norm(g), W / np.sqrt((W * W).sum())),
    "largest": (lambda g: g / abs(g).max(), W / 2.0),
    "sum": (lambda g: g / g.sum(), W / W.sum()),
    "sign": (lambda g: g / abs(g), np.sign(W)),
    "clipped": (lambda g: fnp.clip(g, -1, 1), np.clip(W, -1, 1)),
    "power": (lambda g: g**3, W**3),
    "cond": (lambda g: ftrans.cond(g[0] > 0, lambda g: g * 2, lambda g: -g, g), W * 2),
    "switch": (
        lambda g: ftrans.switch((g[0] > 0).astype(int), [lambda g: -g, lambda g: g * 2], g),
        W * 2,
    ),
    "loop": (
        lambda g: ftrans.fori_loop(0, (g[0] + 1).astype(int), lambda i, g: 2 * g, g),
        4 * W,
    ),
    "indexed": (lambda g: g[(g[0] > 0).astype(int)] * g, W[1] * W),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_backward_may_change_the_gradient_as_it_likes(name: str) -> None:
    rule, expected = CHANGED[name]

    class Changed(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return rule(g)

    by_vjp = ftrans.custom_vjp(lambda x: x * 1)
    by_vjp.defvjp(lambda x: (x * 1, None), lambda _, g: (rule(g),))
    x = np.array([0.4, 1.2, 2.3])
    for f in (Changed.apply, by_vjp):
        loss = lambda x, f=f: (f(x) * W).sum()  # noqa: E731
        assert_close(func.grad(loss)(x), expected)
        assert_close(ftrans.jit(func.grad(loss))(x), expected)
        assert_close(func.vmap(func.grad(loss))(np.stack([x, x]))[1], expected)
        with pytest.raises(MissingRuleError, match="not linear in the cotangent"):
            func.jvp(loss, (x,), (x,))


def test_the_transpose_of_what_divides_by_its_argument() -> None:
    with pytest.raises(TransposeError, match=r"div at .*: it depends on their values"):
        func.linear_transpose(lambda t: t / abs(t), W)(W)
