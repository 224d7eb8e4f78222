"""Calls of rules are taken over from earlier ones, unless something that they read has changed."""

from __future__ import annotations

import builtins
import math
import operator
import random
import threading
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.custom import recording
from tests.helpers import assert_close

X = np.array([0.5, 1.0, 2.0])
WARM = 4
"""After so many calls all that is remembered of a call is in use."""


def gradient(f: Callable[..., Any], x: Any = X) -> Any:
    return func.grad(lambda x: f(x).sum())(x)


def traces(f: Callable[[], Any]) -> int:
    """Returns how many rules are traced by a call."""
    with mock.patch.object(recording, "_recorded", wraps=recording._recorded) as traced:
        f()
    return traced.call_count


def scaled(read: Callable[[], Any]) -> type[Function]:
    """Returns a Function whose gradient is a number, read when `backward` is called."""

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return ct * read()

    return Scaled


# ------------------------------------------------------------------------------- what is understood


class Cube(Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * ct


class ByOthers(Function):
    """Calls functions, another rule, comprehensions, and what a module has."""

    @staticmethod
    def forward(ctx, x, n=2):
        ctx.x, ctx.n = x, n
        return sum(_power(Cube.apply(x), k) for k in range(1, n)) + 0 * fnp.sin(x) * math.pi

    @staticmethod
    def backward(ctx, ct):
        shift = 2
        return ct * 3 * sum([np.multiply(ctx.x, ctx.x) for _ in range(shift - 1)]), None


def _power(x, n):
    return operator.pow(x, n)


class Pair(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 2, fnp.sum(x * x)

    @staticmethod
    def backward(ctx, ct, total):
        return 2 * ct + 2 * ctx.x * total


class Opaque(Function):
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * np.asarray(x) ** 2 * np.asarray(ct)


@ftrans.custom_vjp
def cubed(x):
    return x**3


def _fwd(x):
    return cubed(x), x


def _bwd(x, ct):
    return (3 * x**2 * ct,)


cubed.defvjp(_fwd, _bwd)


@ftrans.custom_jvp
def cubed_forward(x):
    return x**3


@cubed_forward.defjvp
def _jvp(primals, tangents):
    return cubed_forward(*primals), 3 * primals[0] ** 2 * tangents[0]


class Sine(Function):
    """Is opaque, and so has no derivatives but those of its rules."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.sin(np.asarray(x))

    @staticmethod
    def backward(ctx, ct):
        return ct * Cosine.apply(*ctx.saved_tensors)


class Cosine(Function):
    @staticmethod
    def forward(x):
        return np.cos(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return -ct * Sine.apply(*ctx.saved_tensors)


TAKEN: dict[str, tuple[Any, Any, Any]] = {
    "a rule": (Cube.apply, 3 * X**2, 6 * X),
    "by others": (ByOthers.apply, 3 * X**2, 6 * X),
    "with a number": (lambda x: ByOthers.apply(x, 2), 3 * X**2, 6 * X),
    "two results": (lambda x: Pair.apply(x)[0] + Pair.apply(x)[1], 2 + 6 * X, None),
    "opaque": (Opaque.apply, 3 * X**2, None),
    "opaque with a context": (Sine.apply, np.cos(X), -np.sin(X)),
    "opaque with a rule": (Cosine.apply, -np.sin(X), -np.cos(X)),
    "custom_vjp": (cubed, 3 * X**2, 6 * X),
    "custom_jvp": (cubed_forward, 3 * X**2, 6 * X),
}
"""What is taken over, and its first two derivatives; None where it does not have them all."""


@pytest.mark.parametrize("name", TAKEN)
def test_a_call_is_taken_over(name: str) -> None:
    f, expected, _ = TAKEN[name]
    for _ in range(WARM):
        assert_close(gradient(f), expected)
    assert traces(lambda: gradient(f)) == 0


@pytest.mark.filterwarnings("ignore:.*vmap calls it")
@pytest.mark.parametrize("name", [name for name, case in TAKEN.items() if case[2] is not None])
def test_each_transform_has_its_own(name: str) -> None:
    """What was recorded for one is not enough for another."""
    f, slope, second = TAKEN[name]
    single = X.astype("float32")
    fresh: dict[str, tuple[Callable[[], Any], Any]] = {
        "grad": (lambda: gradient(f), slope),
        "jvp": (lambda: func.jvp(f, (X,), (np.ones(3),))[1], slope),
        "twice": (lambda: gradient(lambda x: gradient(f, x)), second),
        "vmap": (lambda: func.vmap(func.grad(f))(X), slope),
        "jit": (lambda: ftrans.jit(lambda x: gradient(f, x))(X), slope),
        "float32": (lambda: gradient(f, single), slope.astype("float32")),
        "hessian": (lambda: func.hessian(lambda x: f(x).sum())(X), np.diag(second)),
        "scan": (
            lambda: gradient(lambda x: ftrans.scan(lambda c, _: (f(c), None), x, length=1)[0]),
            slope,
        ),
    }
    for order in (fresh, reversed(fresh), fresh):
        for transform in order:
            compute, expected = fresh[transform]
            assert_close(compute(), expected, what=transform)


class TracedSine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return fnp.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * TracedCosine.apply(ctx.x)


class TracedCosine(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return fnp.cos(x)

    @staticmethod
    def backward(ctx, ct):
        return -ct * TracedSine.apply(ctx.x)


def test_what_is_around_is_part_of_it() -> None:
    """At one place in one function there may be more derivatives to come in some calls."""
    inner = lambda x: gradient(TracedSine.apply, x)  # noqa: E731
    for _ in range(WARM):
        assert_close(func.vmap(inner)(X[None]), np.cos(X)[None])
    for _ in range(WARM):
        assert_close(gradient(inner), -np.sin(X))
        assert_close(func.jacfwd(inner)(X), np.diag(-np.sin(X)))
        assert_close(func.hessian(lambda x: inner(x).sum())(X), np.diag(-np.cos(X)))
        assert_close(ftrans.jit(func.hessian(lambda x: inner(x).sum()))(X), np.diag(-np.cos(X)))


def test_a_call_of_another_type_or_number_is_another() -> None:
    class Times(Function):
        @staticmethod
        def forward(ctx, x, n, flag=False):
            ctx.n = n
            return -(x * n) if flag else x * n

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.n, None, None

    for _ in range(WARM):
        for n in (2, 3.0, True, 2.5, -0.0):
            assert_close(gradient(lambda x, n=n: Times.apply(x, n)), n + 0 * X)
        for x in (X, X[:2], X[0], X.astype("float32"), X + 0j):
            got = func.grad(lambda x: abs(Times.apply(x, 2).sum()))(x)
            assert (got.dtype, got.shape) == (x.dtype, np.shape(x))
        assert_close(func.vjp(lambda x: Times.apply(x, 2, True), X)[0], -2 * X)


# ----------------------------------------------------------------------------------- what changes


_factor = 2.0
_factors = [2.0]
_table = {"factor": 2.0}
_object = types.SimpleNamespace(factor=2.0)
_module = types.ModuleType("a_module_of_the_user")
_module.factor = 2.0  # type: ignore[attr-defined]


def _helper() -> Any:
    return 2.0


def _by_global() -> tuple[Any, Any]:
    def change() -> None:
        global _factor
        _factor = 3.0

    globals()["_factor"] = 2.0
    return scaled(lambda: _factor), change


def _by_global_function() -> tuple[Any, Any]:
    globals()["_helper"] = lambda: 2.0
    return scaled(lambda: _helper()), lambda: globals().update(_helper=lambda: 3.0)


def _by_code() -> tuple[Any, Any]:
    def two() -> float:
        return 2.0

    def three() -> float:
        return 3.0

    return scaled(lambda: two()), lambda: setattr(two, "__code__", three.__code__)


def _by_default() -> tuple[Any, Any]:
    def number(n=2.0) -> Any:
        return n

    return scaled(lambda: number()), lambda: setattr(number, "__defaults__", (3.0,))


def _by_named_default() -> tuple[Any, Any]:
    def number(*, n=2.0) -> Any:
        return n

    return scaled(lambda: number()), lambda: setattr(number, "__kwdefaults__", {"n": 3.0})


def _by_cell() -> tuple[Any, Any]:
    number = 2.0

    def change() -> None:
        nonlocal number
        number = 3.0

    return scaled(lambda: number), change


def _by_cell_of_a_helper() -> tuple[Any, Any]:
    number = 2.0

    def inner() -> float:
        return number

    def change() -> None:
        nonlocal number
        number = 3.0

    return scaled(lambda: inner()), change


def _by_mutable_default() -> tuple[Any, Any]:
    numbers = [2.0]

    def number(n=numbers) -> Any:
        return n[0]

    return scaled(lambda: number()), lambda: numbers.__setitem__(0, 3.0)


def _by_list() -> tuple[Any, Any]:
    _factors[0] = 2.0
    return scaled(lambda: _factors[0]), lambda: _factors.__setitem__(0, 3.0)


def _by_dict() -> tuple[Any, Any]:
    _table["factor"] = 2.0
    return scaled(lambda: _table["factor"]), lambda: _table.update(factor=3.0)


def _by_object() -> tuple[Any, Any]:
    _object.factor = 2.0
    return scaled(lambda: _object.factor), lambda: setattr(_object, "factor", 3.0)


def _by_module() -> tuple[Any, Any]:
    _module.factor = 2.0  # type: ignore[attr-defined]
    return scaled(lambda: _module.factor), lambda: setattr(_module, "factor", 3.0)


def _by_environment() -> tuple[Any, Any]:
    import os

    os.environ["FTRANS_TEST_FACTOR"] = "2"
    return (
        scaled(lambda: float(os.environ["FTRANS_TEST_FACTOR"])),
        lambda: os.environ.update(FTRANS_TEST_FACTOR="3"),
    )


def _by_class() -> tuple[Any, Any]:
    made = scaled(lambda: made.factor)
    made.factor = 2.0  # type: ignore[attr-defined]
    return made, lambda: setattr(made, "factor", 3.0)


def _by_array() -> tuple[Any, Any]:
    factor = np.array(2.0)
    return scaled(lambda: factor), lambda: factor.__setitem__((), 3.0)


def _by_import() -> tuple[Any, Any]:
    import sys

    sys.modules["a_module_of_the_user"] = _module
    _module.factor = 2.0  # type: ignore[attr-defined]

    def read() -> Any:
        from a_module_of_the_user import factor  # type: ignore[import-not-found]

        return factor

    return scaled(read), lambda: setattr(_module, "factor", 3.0)


def _by_method() -> tuple[Any, Any]:
    made = scaled(lambda: 2.0)
    other = scaled(lambda: 3.0)
    return made, lambda: setattr(made, "backward", staticmethod(other.backward))


def _by_another_rule() -> tuple[Any, Any]:
    inner, other = scaled(lambda: 2.0), scaled(lambda: 3.0)

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return func.grad(lambda x: (inner.apply(x) * ct).sum())(ct)

    return Outer, lambda: setattr(inner, "backward", staticmethod(other.backward))


def _by_a_decorated_rule() -> tuple[Any, Any]:
    @ftrans.custom_vjp
    def f(x):
        return x + 0

    f.defvjp(lambda x: (x + 0, None), lambda _, ct: (2 * ct,))

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return func.grad(lambda x: (f(x) * ct).sum())(ct)

    def change() -> None:
        f.defvjp(lambda x: (x + 0, None), lambda _, ct: (3 * ct,))

    return Outer, change


def _by_base() -> tuple[Any, Any]:
    base = scaled(lambda: 2.0)

    class Derived(base):  # type: ignore[misc, valid-type]
        pass

    other = scaled(lambda: 3.0)
    return Derived, lambda: setattr(base, "backward", staticmethod(other.backward))


def _by_iterator() -> tuple[Any, Any]:
    numbers = iter([2.0] * (WARM + 1) + [3.0] * 9)
    return scaled(lambda: next(numbers)), lambda: None


CHANGES = [
    _by_global,
    _by_global_function,
    _by_code,
    _by_default,
    _by_named_default,
    _by_cell,
    _by_cell_of_a_helper,
    _by_mutable_default,
    _by_list,
    _by_dict,
    _by_object,
    _by_module,
    _by_environment,
    _by_class,
    _by_array,
    _by_import,
    _by_method,
    _by_another_rule,
    _by_a_decorated_rule,
    _by_base,
    _by_iterator,
]


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_of_what_is_read_is_seen(case: Callable[[], Any]) -> None:
    function, change = case()
    f = lambda x: (function.apply(x) ** 2).sum() / 2  # noqa: E731
    for _ in range(WARM + 1):
        assert_close(func.grad(f)(X), 2 * X)
    change()
    assert_close(func.grad(f)(X), 3 * X)
    for _ in range(WARM):
        assert_close(func.grad(f)(X), 3 * X)


@pytest.mark.parametrize("module", [np, fnp])
def test_a_function_of_a_library_may_be_replaced(module: Any) -> None:
    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return module.sin(x)

        @staticmethod
        def backward(ctx, ct):
            return ct * module.cos(ctx.x)

    for _ in range(WARM):
        assert_close(gradient(Sine.apply), np.cos(X))
    with mock.patch.object(module, "cos", lambda x: 7 + 0 * x):
        assert_close(gradient(Sine.apply), 7 + 0 * X)
    assert_close(gradient(Sine.apply), np.cos(X))


def test_a_builtin_may_be_replaced() -> None:
    function = scaled(lambda: 2.0 + divmod(2, 1)[1])
    for _ in range(WARM):
        assert_close(gradient(function.apply), 2 + 0 * X)
    with mock.patch.object(builtins, "divmod", return_value=(2, 1)):
        assert_close(gradient(function.apply), 3 + 0 * X)


def test_a_method_may_be_opaque_for_some_arguments() -> None:
    number = 2.0

    class Sometimes(Function):
        @staticmethod
        def forward(x, opaque):
            return np.asarray(x) * 5.0 if opaque else x * number

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, ct):
            return ct, None

    traced = lambda x: Sometimes.apply(x, False)  # noqa: E731
    for _ in range(WARM):
        assert_close(func.vjp(traced, X)[0], 2 * X)
        assert_close(func.vjp(lambda x: Sometimes.apply(x, True), X)[0], 5 * X)
    assert_close(func.vjp(traced, X)[0], 2 * X)
    number = 3.0
    assert_close(func.vjp(traced, X)[0], 3 * X)


def test_a_builtin_may_be_hidden() -> None:
    name = "sum"
    function = scaled(lambda: sum([1.0, 1.0]))
    for _ in range(WARM):
        assert_close(gradient(function.apply), 2 + 0 * X)
    try:
        globals()[name] = lambda xs: 3.0
        assert_close(gradient(function.apply), 3 + 0 * X)
    finally:
        del globals()[name]
    assert_close(gradient(function.apply), 2 + 0 * X)


def test_what_is_random_is_drawn_anew() -> None:
    generator = np.random.default_rng(0)
    for read in (
        lambda: generator.uniform(),
        lambda: np.random.uniform(),  # noqa: NPY002
        random.random,
    ):
        function = scaled(read)
        assert len({float(gradient(function.apply)[0]) for _ in range(6)}) == 6


def test_effects_are_not_left_out() -> None:
    seen: list[str] = []
    count = 0

    class Telling(Function):
        @staticmethod
        def forward(ctx, x):
            nonlocal count
            count += 1
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            seen.append("backward")
            return ct

    for _ in range(WARM):
        gradient(Telling.apply)
    assert count == len(seen) == WARM


def test_what_is_asked_for_is_part_of_it() -> None:
    class Asking(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.x = x
            return x * y

        @staticmethod
        def backward(ctx, ct):
            first, second = ctx.needs_input_grad
            return (ct * 2 if first and second else ct * 3), ct * ctx.x

    for _ in range(WARM):
        assert_close(func.grad(lambda x: Asking.apply(x, X).sum())(X), 3 + 0 * X)
        assert_close(func.grad(lambda x: Asking.apply(x, x).sum())(X), 2 + X)


@pytest.mark.filterwarnings("ignore:ftrans computes in float64")
def test_the_default_dtype_is_part_of_it() -> None:
    class Halves(Function):
        @staticmethod
        def forward(ctx, x, n):
            return x * (n / 2)

        @staticmethod
        def backward(ctx, ct):
            return ct.astype("float32"), None

    n, x = np.arange(3), np.ones(3, "float32")

    before = ftrans.get_default_dtype()
    try:
        for _ in range(WARM):
            for dtype in ("float32", "float64"):
                ftrans.set_default_dtype(dtype)
                out, _ = func.vjp(lambda x: Halves.apply(x, n), x)
                assert out.dtype == dtype
                out = func.vmap(lambda x, n: Halves.apply(x, n))(x, n)
                assert out.dtype == dtype
    finally:
        ftrans.set_default_dtype(before)


def test_an_input_that_is_written_to() -> None:
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            x[...] = 2 * x
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, ct):
            return 2 * ct

    def f(x: Any) -> Any:
        y = x + 0
        Doubled.apply(y)
        return y**2

    for _ in range(WARM):
        assert_close(gradient(f), 8 * X)


def test_errors_come_again() -> None:
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            raise OverflowError("again")

    for _ in range(WARM):
        with pytest.raises(OverflowError, match="again"):
            gradient(Fails.apply)


def test_a_value_may_decide() -> None:
    """What a rule asks of values is not in its code."""

    class Branch(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = 2.0 if float(x[0]) > 0 else 3.0
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.factor

    for _ in range(WARM):
        assert_close(gradient(Branch.apply, X), 2 + 0 * X)
        assert_close(gradient(Branch.apply, -X), 3 + 0 * X)


def test_what_is_closed_over_has_its_derivative() -> None:
    """At each call it is another traced value, in a cell that the code does not name as such."""

    def f(x: Any) -> Any:
        class Times(Function):
            @staticmethod
            def forward(ctx, y):
                return x * y

            @staticmethod
            def backward(ctx, ct):
                return ct * x

        return Times.apply(fnp.ones_like(x))

    for _ in range(WARM):
        assert_close(gradient(f), 1 + 0 * X)
        assert_close(func.vmap(func.grad(f))(X), 1 + 0 * X)


def test_threads_share_what_is_remembered() -> None:
    wrong: list[Any] = []

    def work(k: int) -> None:
        x = np.arange(1.0, 2.0 + k)
        for _ in range(50):
            got = gradient(ByOthers.apply, x)
            if not np.allclose(got, 3 * x**2):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(k % 3,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_forgetting_makes_no_difference() -> None:
    for _ in range(WARM):
        assert_close(gradient(Cube.apply), 3 * X**2)
        ftrans.cache_clear()
