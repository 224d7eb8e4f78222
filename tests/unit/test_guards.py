"""Calls of rules are taken over from earlier ones, unless something that they read has changed."""

from __future__ import annotations

import builtins
import functools
import math
import operator
import random
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.custom import recording
from ftrans.errors import RuleError
from tests.helpers import assert_close
from tests.unit.clean import collect

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


def _by_attribute_of_a_function() -> tuple[Any, Any]:
    def number() -> Any:
        return number.n  # type: ignore[attr-defined]

    number.n = 2.0  # type: ignore[attr-defined]
    return scaled(number), lambda: setattr(number, "n", 3.0)


def _by_attribute_of_another_name() -> tuple[Any, Any]:
    def number() -> Any:
        alias = number
        return alias.n  # type: ignore[attr-defined]

    number.n = 2.0  # type: ignore[attr-defined]
    return scaled(number), lambda: setattr(number, "n", 3.0)


def _by_attribute_of_a_decorated_function() -> tuple[Any, Any]:
    cubed.n = 2.0  # type: ignore[attr-defined]
    return scaled(lambda: cubed.n), lambda: setattr(cubed, "n", 3.0)  # type: ignore[attr-defined]


def _by_a_wrapper() -> tuple[Any, Any]:
    def wrapped(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args) * wrapper.n  # type: ignore[attr-defined]

        wrapper.n = 2.0  # type: ignore[attr-defined]
        return wrapper

    class Wrapped(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        @wrapped
        def backward(ctx, ct):
            return ct

    return Wrapped, lambda: setattr(Wrapped.backward, "n", 3.0)


def _by_a_function_that_looks_like_ours() -> tuple[Any, Any]:
    globals()["_factor"] = 2.0

    @functools.wraps(fnp.sin)
    def number() -> Any:
        return _factor

    return scaled(number), lambda: globals().update(_factor=3.0)


def _by_apply() -> tuple[Any, Any]:
    globals()["_factor"] = 2.0

    class Inner(scaled(lambda: 1.0)):  # type: ignore[misc]
        @classmethod
        def apply(cls, x):
            return super().apply(x) * _factor

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return Inner.apply(ct)

    return Outer, lambda: globals().update(_factor=3.0)


def _by_apply_that_is_set() -> tuple[Any, Any]:
    inner = scaled(lambda: 1.0)

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return inner.apply(ct) * 2

    return Outer, lambda: setattr(inner, "apply", lambda x: x * 1.5)


def _by_call() -> tuple[Any, Any]:
    globals()["_factor"] = 2.0

    class Scaling(ftrans.custom_vjp):
        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args) * _factor

    inner = Scaling(lambda x: x + 0)
    inner.defvjp(lambda x: (x + 0, None), lambda _, ct: (ct,))

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return inner(ct)

    return Outer, lambda: globals().update(_factor=3.0)


def _by_code_without_a_module() -> tuple[Any, Any]:
    space: dict[str, Any] = {"__name__": None, "n": 2.0}
    exec("def number(): return n", space)
    return scaled(space["number"]), lambda: space.update(n=3.0)


def _by_named_default_in_place() -> tuple[Any, Any]:
    def number(*, n=2.0) -> Any:
        return n

    return scaled(number), lambda: number.__kwdefaults__.update(n=3.0)


CHANGES = [
    _by_attribute_of_a_function,
    _by_attribute_of_another_name,
    _by_attribute_of_a_decorated_function,
    _by_a_wrapper,
    _by_a_function_that_looks_like_ours,
    _by_apply,
    _by_apply_that_is_set,
    _by_call,
    _by_code_without_a_module,
    _by_named_default_in_place,
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


def test_a_function_of_a_part_of_a_library_may_be_replaced() -> None:
    class Norm(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return ct * fnp.linalg.norm(ct * 0 + 2) / np.sqrt(3.0)

    for _ in range(WARM):
        assert_close(gradient(Norm.apply), 2 + 0 * X)
    number = 3.0

    def norm(x: Any) -> Any:
        return number * np.sqrt(3.0)

    with mock.patch.object(fnp.linalg, "norm", norm):
        for _ in range(WARM):
            assert_close(gradient(Norm.apply), 3 + 0 * X)
        number = 4.0
        assert_close(gradient(Norm.apply), 4 + 0 * X)


class Both(typing.NamedTuple):
    x: Any
    y: Any

    def scaled(self) -> Any:
        return self.x * _factor


def test_what_an_argument_does_is_not_known() -> None:
    class Scaled(Function):
        @staticmethod
        def forward(ctx, p):
            return p.scaled()

        @staticmethod
        def backward(ctx, ct):
            return None

    class Called(Function):
        @staticmethod
        def forward(ctx, f, x):
            return f(x)

        @staticmethod
        def backward(ctx, ct):
            return None, ct

    partial = jax.tree_util.Partial(lambda w, x: w * x * _factor, X)
    for value in (2.0, 3.0):
        globals()["_factor"] = value
        for _ in range(WARM):
            assert_close(func.vjp(lambda x: Scaled.apply(Both(x, x)), X)[0], value * X)
            assert_close(func.vjp(lambda x: Called.apply(partial, x), X)[0], value * X * X)


def test_arguments_that_are_equal_may_differ() -> None:
    class Named(Function):
        @staticmethod
        def forward(ctx, x, n):
            return x * (2 if list(n) == [1] and type(next(iter(n))) is int else 3)

        @staticmethod
        def backward(ctx, ct):
            return ct, None

    for _ in range(WARM):
        assert_close(func.vjp(lambda x: Named.apply(x, {1: X}), X)[0], 2 * X)
        assert_close(func.vjp(lambda x: Named.apply(x, {True: X}), X)[0], 3 * X)
        assert_close(func.vjp(lambda x: Named.apply(x, (1,)), X)[0], 2 * X)
        assert_close(func.vjp(lambda x: Named.apply(x, (True,)), X)[0], 3 * X)


def test_slices_are_told_apart() -> None:
    class Crop(Function):
        @staticmethod
        def forward(ctx, x, s):
            ctx.s = s
            return x[s["of"]] * 2

        @staticmethod
        def backward(ctx, ct):
            return None, None

    x = np.arange(50.0)
    for a in np.random.default_rng(0).integers(0, 40, 200).tolist():
        got, _ = func.vjp(lambda x, a=a: Crop.apply(x, {"of": slice(a, a + 3)}), x)
        assert_close(got, 2 * x[a : a + 3])


def test_results_are_not_shared_between_calls() -> None:
    class Noting(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, [], set()

        @staticmethod
        def backward(ctx, ct, *_):
            return 2 * ct

    def f(x: Any) -> Any:
        y, names, more = Noting.apply(x)
        assert names == []
        assert more == set()
        names.append("mine")
        more.add("mine")
        return y

    for _ in range(WARM):
        assert_close(gradient(f), 2 + 0 * X)


def test_two_calls_in_one_rule_are_two() -> None:
    draw = random.Random(0)

    class Drawn(Function):
        @staticmethod
        def forward(ctx, x, n):
            return x * draw.random() * n[0]

        @staticmethod
        def backward(ctx, ct):
            return ct, None

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            n = [1.0]
            first = Drawn.apply(x, n)
            n[0] = 1000.0
            return Drawn.apply(x, n) / first

        @staticmethod
        def backward(ctx, ct):
            return ct

    found = {float(func.vjp(Outer.apply, X)[0][0]) for _ in range(WARM)}
    assert len(found) == WARM
    assert all(value > 1.5 and value != 1000 for value in found)


def _wants(ctx: Any, i: int) -> bool:
    return ctx.needs_input_grad[i]


@pytest.mark.parametrize("wants", [_wants, None])
def test_what_a_helper_asks_for_is_part_of_it(wants: Any) -> None:
    class Times(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, ct):
            x, y = ctx.saved_tensors
            if wants is None:
                first, second = ctx.needs_input_grad
            else:
                first, second = wants(ctx, 0), wants(ctx, 1)
            return (ct * y if first else None), (ct * x if second else None)

    def f(x: Any, y: Any) -> Any:
        return Times.apply(x, y).sum()

    def outer(z: Any, y: Any) -> Any:
        """What is captured may have a gradient or not, at the same place."""
        fixed = lambda x: Times.apply(x, fnp.stop_gradient(x) * 0 + y).sum()  # noqa: E731
        g, value = func.grad_and_value(fixed)(X)
        return value + g.sum() + 0 * z.sum()

    for _ in range(WARM):
        assert_close(func.grad(f)(X, 2 * X), 2 * X)
        assert_close(func.grad(f, argnums=1)(X, 2 * X), X)
        assert_close(func.grad(lambda z: outer(z, 2 * X))(X), 0 * X)
        assert_close(func.grad(lambda z: outer(z, z))(X), X + 1)


def test_arguments_that_are_left_out_are_part_of_it() -> None:
    class Times(Function):
        @staticmethod
        def forward(ctx, x, n=2.0):
            return x * n

        @staticmethod
        def backward(ctx, ct):
            return 2 * ct

    def f(x: Any, *args: Any) -> Any:
        return Times.apply(x, *args)

    for _ in range(WARM):
        assert_close(gradient(f), 2 + 0 * X)
    with pytest.raises(RuleError, match="one gradient for each argument"):
        gradient(lambda x: f(x, 2.0))


def test_a_forward_that_is_changed_in_place() -> None:
    class Times(Function):
        @staticmethod
        def forward(ctx, x, n=2.0):
            return x * n

        @staticmethod
        def backward(ctx, ct):
            return ct

    assert_close(Times.apply(X), 2 * X)
    Times.forward.__defaults__ = (3.0,)
    assert_close(Times.apply(X), 3 * X)


def test_a_rule_that_is_forgotten_is_freed() -> None:
    """Whether its calls can be taken over or not."""
    kept = []
    for k in range(60):
        table = np.full(1000, float(k))
        kept.append(weakref.ref(table))

        class Read(Function):
            @staticmethod
            def forward(ctx, x, table=table):
                return x * float(table[0])

            @staticmethod
            def backward(ctx, ct):
                return ct

        @ftrans.custom_vjp
        def decorated(x, table=table):
            return x * float(table[0])

        decorated.defvjp(lambda x, table: (x + 0, None), lambda _, ct: (ct, None))
        for _ in range(3):
            gradient(lambda x, read=Read: read.apply(x))
            gradient(lambda x, decorated=decorated: decorated(x))
    del table, Read, decorated
    collect()
    assert sum(ref() is not None for ref in kept) <= 2


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

    def helper() -> None:
        helper.calls += 1  # type: ignore[attr-defined]

    helper.calls = 0  # type: ignore[attr-defined]

    class Helped(Telling):
        @staticmethod
        def backward(ctx, ct):
            helper()
            cubed.calls += 1  # type: ignore[attr-defined]
            return ct

    cubed.calls = 0  # type: ignore[attr-defined]
    for _ in range(WARM):
        gradient(Telling.apply)
    assert count == len(seen) == WARM
    for _ in range(WARM):
        gradient(Helped.apply)
    assert helper.calls == cubed.calls == WARM  # type: ignore[attr-defined]


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
