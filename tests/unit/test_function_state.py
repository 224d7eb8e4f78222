"""What a rule reads that changes between calls is seen; what it closes over is not lost."""

from __future__ import annotations

import array
import ctypes
import dataclasses
import decimal
import functools
import sys
import types
import warnings
import weakref
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.autograd import Function
from ftrans.autograd.function import FunctionCtx
from ftrans.errors import FtransError, MissingRuleError, RuleError
from tests.helpers import assert_close
from tests.unit.clean import collect
from tests.unit.guard_cases import WARM, X


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


@pytest.mark.slow
def test_rules_that_call_each_other_are_not_traced_exponentially_often() -> None:
    def after(inner: Any) -> Any:
        class Chained(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
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
        f: Any = fnp.exp
        for _ in range(depth):
            f = after(f)
        traced = 0

        def profile(frame: Any, event: str, arg: Any) -> None:
            nonlocal traced
            traced += event == "call" and frame.f_code.co_qualname.endswith("Chained.forward")

        sys.setprofile(profile)
        try:
            found = func.hessian(f)(0.3)
        finally:
            sys.setprofile(None)
        assert_close(found, np.exp(0.3))
        return traced

    assert 8 <= count(8) < count(16) < 16 * count(8)


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


@pytest.mark.parametrize("opaque_rule", [False, True])
@pytest.mark.parametrize("how", ["dict", "list", "buffer", "class"])
def test_a_rule_sees_what_forward_has_left(how: str, opaque_rule: bool) -> None:
    """Which is called before it, where there are values."""
    f = leaving(how, opaque_rule)
    for k in range(3):
        x = np.array([1.0, 2.0]) + k
        assert_close(func.grad(lambda x: f(x).sum())(x), np.exp(x))
        assert_close(func.vjp(f, x)[0], np.exp(x))


@pytest.mark.filterwarnings("ignore:.*vmap calls it")
@pytest.mark.parametrize("how", ["dict", "list", "buffer", "class"])
def test_a_traced_rule_does_not_see_what_an_earlier_call_has_left(how: str) -> None:
    """Where `forward` is called when the program is run."""
    f = leaving(how)
    x = np.array([1.0, 2.0])
    for transform in (func.vmap, lambda g: lambda x: ftrans.jit(g)(x[0])):
        for _ in range(2):
            with pytest.raises(RuleError, match=r"backward: it may use what Exponential.forward "):
                transform(func.grad(lambda x: f(x).sum()))(x[None])
    # a rule that is called after forward does see what it has left
    f = leaving(how, opaque_rule=True)
    for k in range(3):
        assert_close(ftrans.jit(func.grad(lambda x, f=f: f(x).sum()))(x + k), np.exp(x + k))


@pytest.mark.parametrize("how", ["table", "count"])
def test_what_does_not_depend_on_the_call_may_be_kept_anywhere(how: str) -> None:
    f = leaving(how)
    x = np.array([1.0, 2.0])
    for k in range(3):
        assert_close(func.grad(lambda x: f(x).sum())(x + k), np.full(2, 3.0))


# ------------------------------------------------------------------- what rules read has changed


class ScaledBatch(Function):
    """Its rules, the one for batches too, read an attribute of the class."""

    k = 1.0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * ScaledBatch.k

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ScaledBatch.k

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return x * ScaledBatch.k, in_dims[0]


class ListBatch(Function):
    """Its rules read a list, which no guard can watch."""

    settings: ClassVar = [1.0]

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * ListBatch.settings[0]

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ListBatch.settings[0]

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return x * ListBatch.settings[0], in_dims[0]


def _scanned(f: Any) -> Any:
    return lambda x: ftrans.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


AROUND = {
    "plain": lambda f: f,
    "scan": _scanned,
    "fori_loop": lambda f: lambda x: ftrans.fori_loop(0, 1, lambda i, c: f(c), x),
    "while_loop": lambda f: (
        lambda x: ftrans.while_loop(
            lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x), max_steps=2
        )[1]
    ),
    "cond": lambda f: lambda x: ftrans.cond(x.sum() > -1e9, f, lambda c: c, x),
    "jit": lambda f: lambda x: ftrans.jit(lambda c: f(c))(x),
    "scan of vmap": lambda f: lambda x: _scanned(func.vmap(f))(x),
}


@pytest.mark.slow
@pytest.mark.parametrize("road", ["interpret", "compile"])
@pytest.mark.parametrize("around", AROUND)
def test_rules_for_batches_read_what_is_there_now(around: str, road: str) -> None:
    ftrans.config.execution = road
    f = AROUND[around]
    for k in (2.0, 3.0, 4.0, 2.0):
        ScaledBatch.k = ListBatch.settings[0] = k
        for rule in (ScaledBatch, ListBatch):
            assert_close(func.vmap(f(rule.apply))(np.ones((2, 3))), np.full((2, 3), k))
            gradient = func.vmap(func.grad(lambda x, rule=rule: f(rule.apply)(x).sum()))
            assert_close(gradient(np.ones((2, 3))), np.full((2, 3), k))
            assert_close(func.jacrev(f(rule.apply))(np.ones(3)), k * np.eye(3))


@pytest.mark.parametrize("around", ["plain", "scan", "cond"])
def test_two_calls_of_one_rule_for_batches_in_two_modes(around: str) -> None:
    def f(x: Any) -> Any:
        ListBatch.settings[0] = 2.0
        y = AROUND[around](ListBatch.apply)(x)
        ListBatch.settings[0] = 3.0
        return y + 10 * AROUND[around](ListBatch.apply)(x)

    for _ in range(3):
        assert_close(func.vmap(f)(np.ones((2, 3))), np.full((2, 3), 32.0))


def test_a_rule_for_batches_that_is_traced_too_late_says_so() -> None:
    """Which of its arguments are mapped, the body of a loop does not show."""
    settings = [2.0]

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
            return x * y * settings[0], 0

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return None, ct * 2.0

    def f(change: bool) -> Any:
        def body(x: Any, y: Any) -> Any:
            settings[0] = 2.0
            out = ftrans.scan(lambda c, _: (Product.apply(c, y), None), x, None, length=1)[0]
            settings[0] = 3.0 if change else 2.0
            return out

        mapped = func.vmap(body, in_dims=(0, None))
        return func.grad_and_value(lambda y: mapped(np.ones((2, 3)), y).sum())

    gradient, value = f(False)(np.ones(3))
    assert_close(gradient, np.full(3, 4.0))
    assert_close(value, 12.0)
    with pytest.raises(RuleError) as caught:
        f(True)(np.ones(3))
    line = Product.vmap.__code__.co_firstlineno
    assert str(caught.value) == (
        "Product.vmap: it reads what has changed between the call and its batch.\n"
        f"  it is defined at {__file__}:{line}\n"
        "  Pass what it depends on as an argument."
    )


@pytest.mark.parametrize("road", ["interpret", "compile"])
def test_arrays_that_a_rule_for_batches_closes_over_are_as_they_are_now(road: str) -> None:
    ftrans.config.execution = road
    weights = np.array([1.0, 2.0, 3.0])

    class Weighted(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * weights

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * weights

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * weights, in_dims[0]

    for k in (1.0, 10.0, 100.0, 1.0):
        weights[:] = k
        assert_close(func.vmap(Weighted.apply)(np.ones((2, 3))), np.full((2, 3), k))
        inside = func.vmap(lambda x: func.vmap(Weighted.apply)(x))
        assert_close(inside(np.ones((2, 2, 3))), np.full((2, 2, 3), k))


def test_sibling_rules_that_set_a_mode_for_a_rule_inside() -> None:
    mode = ["sin"]

    @ftrans.custom_vjp
    def act(x: Any) -> Any:
        return fnp.sin(x) if mode[0] == "sin" else fnp.cos(x)

    act.defvjp(
        lambda x: (act(x), x),
        lambda x, ct: (ct * (fnp.cos(x) if mode[0] == "sin" else -fnp.sin(x)),),
    )

    def layer(name: str) -> Any:
        @ftrans.custom_vjp
        def layer(x: Any) -> Any:
            mode[0] = name
            return act(x)

        layer.defvjp(lambda x: (layer(x), x), lambda x, ct: (ct,))
        return layer

    first, second = layer("sin"), layer("cos")

    @ftrans.custom_vjp
    def net(x: Any) -> Any:
        return first(x) + 10 * second(x)

    net.defvjp(lambda x: (net(x), x), lambda x, ct: (ct,))
    for _ in range(3):
        assert_close(func.vjp(net, np.float64(1.0))[0], np.sin(1.0) + 10 * np.cos(1.0))


@ftrans.custom_vjp
def doubled(x: Any) -> Any:
    return x * 2.0


doubled.defvjp(lambda x: (doubled(x), x), lambda r, ct: (ct * 2.0,))


class Settings(Function):
    """Is a rule that others read a setting of."""

    scale = 1.0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct


def _scale_of(rule: Any) -> Any:
    return rule.scale


def _counted(rule: Any) -> None:
    rule.count = rule.count + 1


class ByAlias(Function):
    """Reads attributes of rules by local names, and by a helper that they are passed to."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        op, other = doubled, Settings
        return op(x) * op.scale * _scale_of(other)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        op = doubled
        found = Settings
        return ct * 2.0 * op.scale * found.scale


def test_attributes_that_are_read_by_another_name() -> None:
    try:
        for scale in (1.0, 2.0, 3.0):
            doubled.scale = scale
            for other in (1.0, 5.0):
                Settings.scale = other
                value, back = func.vjp(lambda x: ByAlias.apply(x), np.ones(2))
                assert_close(value, [2 * scale * other] * 2)
                assert_close(back(np.ones(2))[0], [2 * scale * other] * 2)
    finally:
        del doubled.scale
        Settings.scale = 1.0


def test_an_attribute_that_all_contexts_share_is_read_anew() -> None:
    class Sharing(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * ctx.shared

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.shared

    try:
        for k in (2.0, 3.0, 4.0):
            FunctionCtx.shared = k  # type: ignore[attr-defined]
            assert_close(func.grad(lambda x: Sharing.apply(x).sum())(np.ones(2)), [k, k])
    finally:
        del FunctionCtx.shared  # type: ignore[attr-defined]


def test_a_rule_that_writes_to_another_does_so_at_every_call() -> None:
    class Counted(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            op = doubled
            _counted(op)
            return op(x)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2.0

    doubled.count = 0
    try:
        for n in range(1, 6):
            func.grad(lambda x: Counted.apply(x).sum())(np.ones(2))
            assert doubled.count == n
    finally:
        del doubled.count


def test_a_rule_that_writes_a_file_writes_it_at_each_call(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    name = str(path)

    class Logged(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            np.ones(3).tofile(name)
            return ct * 2

    for _ in range(WARM):
        path.unlink(missing_ok=True)
        assert_close(func.grad(lambda x: Logged.apply(x).sum())(X), np.full_like(X, 2.0))
        assert path.exists()


# ------------------------------------------------------------------- equal, and not the same


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Held:
    """Is a pytree with an array and something that is none."""

    array: Any
    mode: Any = dataclasses.field(metadata={"static": True})


EQUAL = [(1, True), (0.0, -0.0), (1, 1.0), (decimal.Decimal("1.0"), decimal.Decimal("1.00"))]


def told(mode: Any) -> float:
    return 1.0 + (2.0 if isinstance(mode, bool) else 0.0) + (str(mode) in ("-0.0", "1.00"))


@pytest.mark.parametrize("modes", EQUAL)
@pytest.mark.parametrize("make", [lambda a, m: Held(a, m), lambda a, m: {m: a}])
def test_what_is_equal_on_a_context_and_not_the_same(make: Any, modes: Any) -> None:
    mode: Any = None

    class Opaque(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = np.asarray(x)
            ctx.held = make(x, mode)
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            held = ctx.held
            return ct * told(next(iter(held)) if isinstance(held, dict) else held.mode)

    for mode in modes * 4:
        assert func.grad(Opaque.apply)(3.0) == told(mode)


@pytest.mark.parametrize("modes", EQUAL)
@pytest.mark.parametrize("make", [lambda a, m: Held(a, m), lambda a, m: {m: a}])
def test_what_is_equal_among_arguments_and_not_the_same(make: Any, modes: Any) -> None:
    def scaled(given: Any) -> Any:
        if isinstance(given, dict):
            ((mode, array),) = given.items()
        else:
            mode, array = given.mode, given.array
        return np.asarray(array) * told(mode)

    class Opaque(Function):
        @staticmethod
        def forward(ctx: Any, given: Any) -> Any:
            return scaled(given)

    f = ftrans.external(scaled, ftrans.ArrayType((), "float64"))
    for mode in modes * 2:
        assert_close(f(make(np.array(3.0), mode)), 3 * told(mode))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = func.vmap(lambda x, m=mode: Opaque.apply(make(x, m)))(X)
        assert_close(found, X * told(mode))


@dataclasses.dataclass(frozen=True)
class Named:
    """Is equal to what has its name, whatever its factor is."""

    name: str
    factor: Any = dataclasses.field(compare=False, repr=False)


class Text(str):
    factor: float


class Packed:
    """Is a pytree whose other data are equal by their names."""

    def __init__(self, array: Any, about: Named):
        self.array, self.factor, self.about = array, about.factor, about


jax.tree_util.register_pytree_node(
    Packed, lambda p: ((p.array,), p.about), lambda about, arrays: Packed(*arrays, about)
)


def named_by(kind: str, factor: float) -> Any:
    if kind == "text":
        found = Text("a")
        found.factor = factor
        return found
    about = Named("a", factor)
    return about if kind == "object" else Packed(np.ones(3), about)


@pytest.mark.parametrize("kind", ["object", "text", "packed"])
@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("where", ["argument", "context"])
@pytest.mark.filterwarnings("ignore:.*vmap calls it")
def test_what_a_class_says_is_equal_is_not_the_same(kind: str, opaque: bool, where: str) -> None:
    given: Any = None

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: Any) -> Any:
            ctx.by = by if where == "argument" else given
            return x * ctx.by.factor

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return (np.asarray(ct) if opaque else ct) * ctx.by.factor, None

    for factor in (2.0, 5.0, 2.0):
        given = named_by(kind, factor)
        by = given if where == "argument" else None
        for g in (func.grad, lambda f: func.vmap(func.grad(f)), lambda f: ftrans.jit(func.grad(f))):
            # a batch of rows, or one of them
            x = np.ones((1, 3))
            assert_close(g(lambda x, by=by: Scaled.apply(x, by).sum())(x), np.full((1, 3), factor))


def test_a_function_on_packed_data_is_called_with_those_of_the_call() -> None:
    f = ftrans.external(lambda p: p.array * p.factor, ftrans.ArrayType((3,), "float64"))
    for factor in (2.0, 5.0):
        packed = named_by("packed", factor)
        assert_close(f(packed), np.full(3, factor))
        assert_close(ftrans.jit(lambda p=packed: f(p))(), np.full(3, factor))


def test_a_dict_with_attributes_stands_on_a_context() -> None:
    class Attributes(dict):
        __getattr__ = dict.__getitem__

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.about = Attributes(factor=3.0)
            return np.asarray(x) * ctx.about.factor

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.about.factor

    assert func.grad(Scaled.apply)(1.0) == 3.0


def test_a_rule_reads_a_constant_of_a_base_without_methods() -> None:
    class Options(Function):
        factor = 2.0

    class Scaled(Options):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * Options.factor

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * Options.factor

    @ftrans.custom_jvp
    def doubled(x: Any) -> Any:
        return x * Options.factor

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), tangents[0] * Options.factor))
    for factor in (2.0, 3.0):
        Options.factor = factor
        for _ in range(WARM):
            assert func.grad(Scaled.apply)(1.0) == factor
            assert_close(func.vmap(func.grad(Scaled.apply))(X), np.full_like(X, factor))
            assert func.hessian(lambda x: doubled(x) ** 2)(1.0) == 2 * factor**2


def test_results_that_differ_in_more_than_arrays_are_an_error_once() -> None:
    """Where `forward` is called when the program is run: then what it returned is known.

    What is kept in a list is not guarded.
    """
    mode = ["a"]

    class Opaque(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return Held(np.asarray(x) * 2.0, mode[0])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.scale = 2.0 if output.mode == "a" else 3.0

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct.array * ctx.scale

    class Long(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.tile(np.asarray(x), 2 if mode[0] == "a" else 3)

    slopes = func.vmap(func.grad(lambda x: Opaque.apply(x).array))
    many = func.vmap(Long.apply)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_close(slopes(X), np.full(len(X), 2.0))
        assert many(X).shape == (len(X), 2)
        mode[0] = "b"
        for f, text in ((slopes, "differs from its first call"), (many, "does not have the type")):
            with pytest.raises(RuleError, match=text):
                f(X)
        assert_close(slopes(X), np.full(len(X), 3.0))
        assert many(X).shape == (len(X), 3)


# ---------------------------------------------------------------- what is left deep inside


class Kept:
    """Keeps a value, as caches do."""

    def __init__(self) -> None:
        self.value: Any = 0.0

    def put(self, value: Any) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value


class Slotted:
    __slots__ = ("value",)


def places() -> dict[str, tuple[Any, Any]]:
    """Returns functions that put a value somewhere, and that get it from there."""
    memory, object_, outer = {"a": [{"b": 0.0}]}, Kept(), SimpleNamespace(inner=Kept())

    slotted, module, variable = Slotted(), types.ModuleType("of_the_user"), ContextVar("of_a_user")
    buffers = {
        "large": np.zeros(1_000_000),
        "bytes": np.frombuffer(data := bytearray(8)),
        "ctypes": np.frombuffer(numbers := (ctypes.c_double * 1)()),
        "array": np.frombuffer(items := array.array("d", [0.0])),
    }

    def function() -> None:
        pass

    function.value = slotted.value = module.value = 0.0  # type: ignore[attr-defined]
    variable.set(0.0)
    return {
        "containers": (lambda x: memory["a"][0].update(b=x), lambda: memory["a"][0]["b"]),
        "object": (object_.put, lambda: object_.get()),
        "attributes": (outer.inner.put, lambda: outer.inner.value),
        "function": (lambda x: setattr(function, "value", x), lambda: function.value),  # type: ignore[attr-defined]
        "slots": (lambda x: setattr(slotted, "value", x), lambda: slotted.value),
        "module": (lambda x: setattr(module, "value", x), lambda: module.value),
        "variable": (variable.set, lambda: variable.get()),
        "large": (lambda x: buffers["large"].fill(x), lambda: buffers["large"][7]),
        "bytes": (lambda x: buffers["bytes"].__setitem__(0, x), lambda: np.frombuffer(data)[0]),
        "ctypes": (lambda x: buffers["ctypes"].__setitem__(0, x), lambda: numbers[0]),
        "array": (lambda x: buffers["array"].__setitem__(0, x), lambda: items[0]),
    }


@pytest.mark.parametrize("place", list(places()))
@pytest.mark.filterwarnings("ignore")
def test_what_is_left_deep_inside_comes_too_late(place: str) -> None:
    put, get = places()[place]

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = np.asarray(x)
            put(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2 * get()

    for _ in range(2):
        with pytest.raises(RuleError, match="may use what Square"):
            func.vmap(func.grad(Square.apply))(X)
    for x in X:
        assert_close(func.grad(Square.apply)(x), 2 * x)  # where it is there, it is right


def test_what_is_written_into_twice_alike_comes_too_late_as_well() -> None:
    buffer = np.zeros(2)

    class Exponential(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            buffer[:] = np.exp(np.asarray(x))
            return buffer.copy()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * buffer

    for _ in range(3):
        with pytest.raises(MissingRuleError, match="it is opaque"):
            func.hessian(lambda x: Exponential.apply(x).sum())(np.zeros(2))


# -------------------------------------------------------------------------- signatures


def test_defaults_that_are_changed_in_place() -> None:
    """As by who reloads a module into the functions that are there."""

    @ftrans.custom_vjp
    def scaled(x: Any, k: float = 2.0) -> Any:
        return x * k

    scaled.defvjp(lambda x, k: (x * k, k), lambda k, ct: (ct * k, None))

    def passed_on(function: Any) -> Any:
        return functools.wraps(function)(lambda *args, **kwargs: function(*args, **kwargs))

    class Scaled(Function):
        @staticmethod
        @passed_on
        def forward(ctx: Any, x: Any, k: float = 2.0) -> Any:
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.k

    written = Scaled.forward.__wrapped__  # type: ignore[attr-defined]
    for k in (2.0, 5.0, 2.0):
        scaled.__wrapped__.__defaults__ = written.__defaults__ = (k,)  # type: ignore[attr-defined]
        for f in (scaled, Scaled.apply):
            assert_close(f(3.0), 3.0 * k)
            assert_close(func.grad(f)(3.0), k)


def test_what_is_learnt_of_an_example_keeps_no_argument() -> None:
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, *, w: Any) -> Any:
            return np.asarray(x) * np.asarray(w).sum()

    def freed(w: Any) -> weakref.ref[Any]:
        for _ in range(2):
            assert_close(func.vmap(lambda x: Scaled.apply(x, w=w))(X), X * 3)
        return weakref.ref(w)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = freed(np.ones(3))
    collect()
    assert reference() is None
