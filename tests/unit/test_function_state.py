"""What a rule reads that changes between calls is seen; what it closes over is not lost."""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.autograd import Function
from ftrans.errors import FtransError, RuleError
from tests.helpers import assert_close
from tests.unit.clean import collect


class Weighted(Function):
    """Is opaque, with an array that is keyword-only."""

    @staticmethod
    def forward(ctx: Any, x: Any, *, w: Any) -> Any:
        ctx.w = w
        return np.asarray(x) * np.asarray(w)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ctx.w


def test_keyword_only_arrays_are_those_of_the_call() -> None:
    for value in (2.0, 3.0):
        w = np.full(2, value)
        got = func.grad_and_value(lambda x, w=w: Weighted.apply(x, w=w).sum())(np.ones(2))
        assert_close(got[0], w)
        assert_close(got[1], 2 * value)


def test_rules_for_batches_see_what_has_changed() -> None:
    class Scaled(Function):
        factor = 2.0

        @staticmethod
        def forward(x: Any) -> Any:
            return x * Scaled.factor

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            return

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * Scaled.factor

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * Scaled.factor, in_dims[0]

    settings = {"factor": 2.0}

    @ftrans.custom_vmap
    def f(x: Any) -> Any:
        return x * 1.0

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        return x * settings["factor"], True

    for factor in (2.0, 3.0, 5.0):
        Scaled.factor = settings["factor"] = factor
        assert_close(func.vmap(Scaled.apply)(np.ones(2)), [factor, factor])
        assert_close(
            func.grad(lambda x: func.vmap(Scaled.apply)(x).sum())(np.ones(2)), [factor] * 2
        )
        assert_close(func.vmap(f)(np.ones(2)), [factor, factor])


class Counting(Function):
    """Leaves on its context a number that depends on values."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x = np.asarray(x)
        ctx.n = int((x > 0).sum())
        return x * ctx.n

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ctx.n


def test_what_is_no_array_on_a_context_is_that_of_the_call() -> None:
    for values, n in (([1.0, -1.0], 1), ([1.0, 1.0], 2), ([1.0, -1.0], 1)):
        got = func.grad(lambda x: Counting.apply(x).sum())(np.array(values))
        assert_close(got, [n, n])


def test_compiled_it_must_not_change() -> None:
    compiled = ftrans.jit(func.grad(lambda x: Counting.apply(x).sum()))
    assert_close(compiled(np.array([1.0, 2.0, 3.0])), [3.0, 3.0, 3.0])
    with pytest.raises(RuleError, match=r"Counting.forward"):
        np.asarray(compiled(np.array([-1.0, 0.0, 1.0])))


class Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return np.asarray(x) * np.asarray(y)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, y = ctx.saved_tensors
        return ct * y, ct * x


def test_one_array_passed_twice_teaches_nothing() -> None:
    x, y = np.array([2.0, 3.0]), np.array([5.0, 7.0])
    assert_close(func.grad(lambda x: Product.apply(x, x).sum())(x), 2 * x)
    dx, dy = func.grad(lambda x, y: Product.apply(x, y).sum(), argnums=(0, 1))(x, y)
    assert_close(dx, y)
    assert_close(dy, x)
    hessian = func.hessian(lambda x: Product.apply(x, x * x).sum())(x)
    assert_close(hessian, np.diag(6 * x))


def test_a_method_may_be_opaque_for_some_arguments_only() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, mode: str) -> Any:
            ctx.x, ctx.mode = x, mode
            return x**3

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            if ctx.mode == "numpy":
                return 3 * np.asarray(ctx.x) ** 2 * np.asarray(ct), None
            return 3 * ctx.x**2 * ct, None

    assert_close(func.grad(lambda x: Both.apply(x, "numpy"))(2.0), 12.0)
    assert_close(func.grad(func.grad(lambda x: Both.apply(x, "traced")))(2.0), 12.0)


def opaque_rule(weight: Any) -> Any:
    class Rule(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return np.asarray(ct) * 2 * weight

    return Rule.apply


def external(weight: Any) -> Any:
    t = ftrans.ArrayType((), "float64")
    return ftrans.external(lambda a: a * weight, t, vjp=lambda primals, out, ct: (ct * weight,))


@pytest.mark.parametrize(
    "call",
    [
        lambda w: func.grad(lambda x: opaque_rule(w)(x))(np.float64(1.0)),
        lambda w: external(w)(np.float64(1.0)),
        lambda w: external(w)(w),
    ],
)
def test_what_is_called_closes_over_no_traced_value(call: Any) -> None:
    with pytest.raises(RuleError, match="variable weight"):
        func.grad(call)(np.float64(3.0))


def test_jax_differentiates_what_is_in_loops_by_its_rules() -> None:
    class Tenfold(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 10

    f = Tenfold.apply
    for wrapped in (
        f,
        lambda x: ftrans.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
        lambda x: ftrans.cond(x > 0, f, lambda x: x, x),
        lambda x: ftrans.fori_loop(0, 1, lambda i, x: f(x), x),
        ftrans.jit(f),
    ):
        assert_close(jax.grad(wrapped)(1.0), 10.0)


def test_rules_that_call_each_other_are_not_traced_exponentially_often() -> None:
    traced = 0

    def after(inner: Any) -> Any:
        class Chained(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                nonlocal traced
                traced += 1
                ctx.x = x
                return inner(x)

            @staticmethod
            def backward(ctx: Any, ct: Any) -> Any:
                return ct * inner(ctx.x)

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return t * inner(ctx.x)

        return Chained.apply

    def count(depth: int) -> int:
        nonlocal traced
        f: Any = fnp.exp
        for _ in range(depth):
            f = after(f)
        traced = 0
        assert_close(func.hessian(f)(0.3), np.exp(0.3))
        return traced

    assert count(16) < 8 * count(8)


@pytest.mark.parametrize("calls", [1, 3])
def test_functions_made_anew_are_let_go(calls: int) -> None:
    """Also where somebody holds a traced value of a function of that name."""
    alive: list[Any] = []
    leaked: list[Any] = []
    func.grad(lambda x: (leaked.append(x), x.sum())[1])(np.ones(2))
    with pytest.raises(KeyError):
        func.grad(lambda x: leaked.append(x) or {}["before anything is recorded"])(np.ones(2))

    def step(x: Any) -> Any:
        batch = np.zeros(10)
        alive.append(weakref.ref(batch))

        class Anew(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return np.asarray(x) * 2 + batch[0]

            @staticmethod
            def backward(ctx: Any, ct: Any) -> Any:
                return ct * 2

        for _ in range(calls):
            found = func.grad(lambda x: Anew.apply(x).sum())(x)
        return found

    for _ in range(400):
        assert_close(step(np.ones(2)), [2.0, 2.0])
    collect()
    assert sum(ref() is not None for ref in alive) < 350
    ftrans.cache_clear()
    collect()
    assert sum(ref() is not None for ref in alive) == 0


def test_a_call_that_fails_leaves_nothing_open() -> None:
    with pytest.raises(FtransError):
        func.grad(lambda w: external(w)(w))(np.float64(3.0))
    assert_close(func.grad(lambda x: x * x)(3.0), 6.0)


# --------------------------------------------------------- what forward leaves outside of its ctx


class Left:
    last: Any = None


def leaving(how: str, opaque_rule: bool = False) -> Any:
    """Returns a Function whose backward reads what forward has left, not on its context."""
    kept: dict[str, Any] = {}
    items: list[Any] = [None]
    buffer = np.zeros(2)

    class Exponential(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = np.exp(np.asarray(x))
            if how == "dict":
                kept["y"] = y
            elif how == "list":
                items[0] = y
            elif how == "buffer":
                buffer[...] = y
            elif how == "class":
                Left.last = y
            elif how == "table" and "y" not in kept:
                kept["y"] = np.full(2, 3.0)
            elif how == "count":
                kept["n"] = kept.get("n", 0) + 1
            return y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            ct = np.asarray(ct) if opaque_rule else ct
            found = {"dict": kept, "table": kept, "count": {"y": 3.0}, "class": {"y": Left.last}}
            found |= {"list": {"y": items[0]}, "buffer": {"y": buffer}}
            return ct * found[how]["y"]

    return Exponential.apply


@pytest.mark.parametrize("how", ["dict", "list", "buffer", "class"])
def test_a_traced_rule_does_not_see_what_an_earlier_call_has_left(how: str) -> None:
    f = leaving(how)
    x = np.array([1.0, 2.0])
    for _ in range(2):
        with pytest.raises(RuleError, match=r"backward: it may use what Exponential.forward leav"):
            func.grad(lambda x: f(x).sum())(x)
    assert_close(func.vjp(f, x)[0], np.exp(x))
    # a rule that is called after forward does see what it has left
    f = leaving(how, opaque_rule=True)
    for k in range(3):
        assert_close(func.grad(lambda x, f=f: f(x).sum())(x + k), np.exp(x + k))


@pytest.mark.parametrize("how", ["table", "count"])
def test_what_does_not_depend_on_the_call_may_be_kept_anywhere(how: str) -> None:
    f = leaving(how)
    x = np.array([1.0, 2.0])
    for k in range(3):
        assert_close(func.grad(lambda x: f(x).sum())(x + k), np.full(2, 3.0))
