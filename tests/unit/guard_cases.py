"""Functions that read what changes, one way or another, for the tests of what is taken over."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.config import config
from ftrans.custom import recording

__all__ = ["CHANGES", "WARM", "X", "cubed", "gradient", "scaled", "traces"]

X = np.array([0.5, 1.0, 2.0])
WARM = 4
"""After so many calls all that is remembered of a call is in use."""


def gradient(f: Callable[..., Any], x: Any = X) -> Any:
    return func.grad(lambda x: f(x).sum())(x)


def traces(f: Callable[[], Any]) -> int:
    """Returns how many rules are traced by a call, but for those that `config.check` asks for."""
    before, config.check = config.check, False
    try:
        with mock.patch.object(recording, "_traced", wraps=recording._traced) as traced:
            f()
    finally:
        config.check = before
    return traced.call_count


def passing(rule: Callable[[Any], Any]) -> type[Function]:
    """Returns a Function whose value is its argument, and whose `backward` is a function."""

    class Passing(Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return rule(ct)

    return Passing


def scaled(read: Callable[[], Any]) -> type[Function]:
    """Returns a Function whose gradient is a number, read when `backward` is called."""
    return passing(lambda ct: ct * read())


@ftrans.custom_vjp
def cubed(x):
    return x**3


def _cubed_fwd(x):
    return cubed(x), x


def _cubed_bwd(x, ct):
    return (3 * x**2 * ct,)


cubed.defvjp(_cubed_fwd, _cubed_bwd)


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

    outer = passing(lambda ct: func.grad(lambda x: (inner.apply(x) * ct).sum())(ct))
    return outer, lambda: setattr(inner, "backward", staticmethod(other.backward))


def _by_a_decorated_rule() -> tuple[Any, Any]:
    @ftrans.custom_vjp
    def f(x):
        return x + 0

    f.defvjp(lambda x: (x + 0, None), lambda _, ct: (2 * ct,))

    def change() -> None:
        f.defvjp(lambda x: (x + 0, None), lambda _, ct: (3 * ct,))

    outer = passing(lambda ct: func.grad(lambda x: (f(x) * ct).sum())(ct))
    return outer, change


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

    outer = passing(lambda ct: Inner.apply(ct))
    return outer, lambda: globals().update(_factor=3.0)


def _by_apply_that_is_set() -> tuple[Any, Any]:
    inner = scaled(lambda: 1.0)

    outer = passing(lambda ct: inner.apply(ct) * 2)
    return outer, lambda: setattr(inner, "apply", lambda x: x * 1.5)


def _by_call() -> tuple[Any, Any]:
    globals()["_factor"] = 2.0

    class Scaling(ftrans.custom_vjp):
        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args) * _factor

    inner = Scaling(lambda x: x + 0)
    inner.defvjp(lambda x: (x + 0, None), lambda _, ct: (ct,))

    outer = passing(lambda ct: inner(ct))
    return outer, lambda: globals().update(_factor=3.0)


def _by_code_without_a_module() -> tuple[Any, Any]:
    space: dict[str, Any] = {"__name__": None, "n": 2.0}
    exec("def number(): return n", space)
    return scaled(space["number"]), lambda: space.update(n=3.0)


def _by_named_default_in_place() -> tuple[Any, Any]:
    def number(*, n=2.0) -> Any:
        return n

    return scaled(number), lambda: number.__kwdefaults__.update(n=3.0)


def _by_a_ufunc() -> tuple[Any, Any]:
    globals()["_factor"] = 2.0
    number = np.frompyfunc(lambda x: x * _factor, 1, 1)
    return scaled(lambda: float(number(1.0))), lambda: globals().update(_factor=3.0)


def _by_an_attribute_that_was_not_there() -> tuple[Any, Any]:
    def empty() -> None: ...

    def number(function=None) -> Any:
        try:
            return (function or empty).n  # type: ignore[attr-defined]
        except AttributeError:
            return 2.0

    return scaled(number), lambda: setattr(empty, "n", 3.0)


def _by_apply_that_looks_like_ours() -> tuple[Any, Any]:
    globals()["_factor"] = 2.0

    class Inner(scaled(lambda: 1.0)):  # type: ignore[misc]
        @classmethod
        @functools.wraps(Function.apply.__func__)  # type: ignore[attr-defined]
        def apply(cls, x):
            return super().apply(x) * _factor

    outer = passing(lambda ct: Inner.apply(ct))
    return outer, lambda: globals().update(_factor=3.0)


def _by_builtins_of_its_own() -> tuple[Any, Any]:
    space: dict[str, Any] = {"__builtins__": {"number": 2.0}}
    exec("def read(): return number", space)
    return scaled(space["read"]), lambda: space["__builtins__"].update(number=3.0)


def _by_what_is_wrapped() -> tuple[Any, Any]:
    factors = [2.0]

    def number() -> Any:
        return factors[0]

    @functools.wraps(number)
    def wrapper() -> Any:
        return 0.0

    def read() -> Any:
        found = wrapper
        return found.__wrapped__()

    return scaled(read), lambda: factors.__setitem__(0, 3.0)


def _by_an_attribute_of_every_function() -> tuple[Any, Any]:
    def number() -> Any:
        return 0.0

    number.__name__ = "aa"

    def read() -> Any:
        found = number
        return float(len(found.__name__))

    return scaled(read), lambda: setattr(number, "__name__", "aaa")


def _by_an_attribute_that_is_asked_for_by_a_text() -> tuple[Any, Any]:
    def number() -> Any:
        return 0.0

    number.__name__ = "aa"
    name = "__name__"
    return (
        scaled(lambda: float(len(operator.attrgetter(name)(number)))),
        lambda: setattr(number, "__name__", "aaa"),
    )


def _by_a_base() -> tuple[Any, Any]:
    class Two:
        factor = 2.0

    class Three:
        factor = 3.0

    class Scaled(Two, Function):
        @staticmethod
        def forward(ctx, x):
            return x + 0

        @staticmethod
        def backward(ctx, ct):
            return ct * Scaled.factor

    return Scaled, lambda: setattr(Scaled, "__bases__", (Three, Function))


CHANGES = [
    _by_what_is_wrapped,
    _by_an_attribute_of_every_function,
    _by_an_attribute_that_is_asked_for_by_a_text,
    _by_a_base,
    _by_an_attribute_that_was_not_there,
    _by_apply_that_looks_like_ours,
    _by_builtins_of_its_own,
    _by_a_ufunc,
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
