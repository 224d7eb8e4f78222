"""A differentiated value that becomes a Python number is warned of, once for each place."""

from __future__ import annotations

import math
import operator
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import ConcretizationError, GradientCutWarning

X = np.array([0.5, 0.7])


@pytest.fixture(autouse=True)
def _anew() -> None:
    """Forgets the places that were warned of, so that parameters may share one."""
    ftrans.cache_clear()


def cuts(call: Callable[[], Any]) -> list[str]:
    """Returns the warnings of a call."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    assert all(w.category is GradientCutWarning for w in seen), seen
    return [str(w.message) for w in seen]


def filled(x: Any) -> Any:
    buffer = np.zeros(2)
    buffer.fill(x[0])
    return buffer


def stored(x: Any) -> Any:
    buffer = np.zeros(2)
    operator.setitem(buffer, 0, x[0])
    return buffer


NUMBERS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "float": (lambda x: float(x[0]), "float(x)", "float(x.detach())"),
    "int": (lambda x: int(10 * x[0]), "int(x)", "int(x.detach())"),
    "complex": (lambda x: complex(x[0]).real, "complex(x)", "complex(x.detach())"),
    "item": (lambda x: x[0].item(), "x.item()", "x.detach().item()"),
    "item of one": (lambda x: x.item(1), "x.item()", "x.detach().item()"),
    "tolist": (lambda x: x.tolist()[0], "x.tolist()", "x.detach().tolist()"),
    "math": (lambda x: math.sin(x[0]), "float(x)", "float(x.detach())"),
    "fsum": (lambda x: math.fsum(x), "float(x)", "float(x.detach())"),
    "float64": (lambda x: np.float64(x[0]), "float(x)", "float(x.detach())"),
    "fill": (filled, "float(x)", "float(x.detach())"),
    "setitem": (stored, "float(x)", "float(x.detach())"),
    "arange": (lambda x: fnp.arange(4 * x[0]).sum(), "arange(x)", "arange(x.detach())"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_warned_of_once(name: str) -> None:
    number, called, meant = NUMBERS[name]

    def f(x: Any) -> Any:
        return (number(x) * x.sum()).sum()

    for transform in (func.grad, func.jacrev, func.jacfwd, func.hessian):
        ftrans.cache_clear()
        (message,) = cuts(lambda: transform(f)(X))  # noqa: B023
        assert message.startswith(
            f"{called}: a value that is differentiated became a Python number, which has no "
            f"gradient.\n  x: f64["
        )
        assert message.endswith(
            f"\n  Where a constant is meant, write {meant}; else keep it an array, and compute "
            f"with\n  functions of ftrans.numpy."
        )
        assert cuts(lambda: transform(f)(X)) == []  # noqa: B023


def test_the_whole_text_and_its_place() -> None:
    def f(x: Any) -> Any:
        return float(x) * x

    with pytest.warns(GradientCutWarning) as seen:
        func.grad(f)(2.0)
    (warning,) = seen
    line = f.__code__.co_firstlineno + 1
    assert (warning.filename, warning.lineno) == (__file__, line)
    called = test_the_whole_text_and_its_place.__code__.co_firstlineno + 5
    assert str(warning.message) == (
        f"float(x): a value that is differentiated became a Python number, which has no gradient.\n"
        f"  x: f64[], an argument of grad(f), called at {__file__}:{called} "
        f"(test_the_whole_text_and_its_place)\n"
        f"  Where a constant is meant, write float(x.detach()); else keep it an array, and compute "
        f"with\n  functions of ftrans.numpy."
    )


def test_each_place_has_its_own() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for _ in range(3):
            total += float(x[0])
        return total * float(x[1]) * x.sum()

    assert len(cuts(lambda: func.grad(f)(X))) == 2
    again = [eval("lambda x: float(x) * x", {}) for _ in range(3)]
    assert [len(cuts(lambda: func.grad(g)(1.0))) for g in again] == [1, 1, 1]  # noqa: B023


def test_as_an_error_it_is_raised_each_time() -> None:
    def f(x: Any) -> Any:
        return float(x) * x

    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(GradientCutWarning):
                func.grad(f)(2.0)
    assert len(cuts(lambda: func.grad(f)(2.0))) == 1


def test_looking_is_no_cut(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        print(x, repr(x), str(x), f"{x[0]:.2f} {x}", "%.2f" % x[0])  # noqa: UP031
        text = "%.1f and %d"
        text %= (x[0], 10 * x[1])
        y = x[0]
        while abs(y * y - 2) > 1e-12:
            y = y - (y * y - 2) / (2 * y)
        if bool(x[0] > 0) and x[1] and x[0] in x:
            y = y + max(x[0], x[1]) + sorted(x)[0]
        return y + x[int(fnp.argmax(x))] * x.shape[0] + x[range(2)[int(x.astype(int)[0])]]

    assert cuts(lambda: func.grad(f)(X)) == []
    assert "0.50" in capsys.readouterr().out


def test_what_is_said_to_be_a_constant() -> None:
    def f(x: Any) -> Any:
        cut = float(x.detach()[0]) + math.sin(x[1].detach()) + x.detach().item(0)
        cut = cut + int(fnp.floor(3 * x[0])) + float(fnp.round(x[1]))  # which are flat
        return cut * x.sum() + float(fnp.stop_gradient(2 * x).sum()) + np.asarray(x.detach())[0]

    assert cuts(lambda: func.grad(f)(X)) == []


CONSTANT = np.array(3.0)


class Inside(Function):
    """Makes a number in a method, whose derivative is by the rule."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.number = float(x)
        return ctx.number * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return 2 * ctx.number * ct


def _grad_at(f: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: func.grad(f)(*args)


def _mapped(f: Any) -> Any:
    """Returns a function with a rule for batches."""
    function = ftrans.custom_vmap(f)
    function.def_vmap(lambda size, batched, y: (y * y, batched[0]))
    return function


@pytest.mark.parametrize(
    "call",
    [
        _grad_at(lambda x, y: x * float(y), 2.0, np.array(3.0)),
        _grad_at(lambda x: x * float(fnp.asarray(CONSTANT) + 1), 2.0),
        _grad_at(lambda x: x * _mapped(lambda y: y * float(y))(fnp.asarray(CONSTANT) + 1), 2.0),
        _grad_at(lambda x: x * float(fnp.arange(3.0).sum()), 2.0),
        lambda: ftrans.jit(lambda x: x * float(fnp.asarray(CONSTANT)))(2.0),
        lambda: func.vmap(lambda x, y: x * float(y), in_dims=(0, None))(X, CONSTANT),
        lambda: func.vmap(lambda x: x * float(fnp.asarray(CONSTANT)))(X),
        # what the inner transform differentiates does not depend on x, nor does the number
        lambda: func.vmap(lambda x: func.grad(lambda y: y * float(CONSTANT))(x))(X),
        _grad_at(lambda x: func.vmap(lambda y: y * float(fnp.asarray(CONSTANT)))(x).sum(), X),
        _grad_at(Inside.apply, 2.0),
    ],
)
def test_what_is_not_differentiated(call: Callable[[], Any]) -> None:
    assert cuts(call) == []


@pytest.mark.parametrize(
    "call",
    [
        _grad_at(lambda x: func.vmap(lambda y: y * float(x))(X).sum(), 2.0),
        _grad_at(lambda x: func.grad(lambda y: y * float(x))(2.0), 2.0),
        _grad_at(lambda x: x * func.grad(lambda y: y * float(y))(2.0), 2.0),
        _grad_at(lambda x: ftrans.cond(True, lambda: x * float(x), lambda: x), 2.0),
        _grad_at(lambda x: ftrans.jit(lambda y: y * float(x))(x), 2.0),
        _grad_at(lambda x: ftrans.fori_loop(0, 2, lambda i, c: c * float(2 * x), x), 2.0),
        lambda: func.grad(lambda x, y: (x * float(y)).sum(), argnums=(0, 1))(X, 2.0),
        lambda: func.jvp(lambda x: x * float(x), (2.0,), (1.0,)),
        lambda: func.vjp(lambda x: x * float(x), 2.0),
        lambda: func.linearize(lambda x: x * float(x), 2.0),
        # a rule for batches gives no derivative
        _grad_at(lambda x: _mapped(lambda y: y * float(y))(x), 2.0),
        lambda: func.jvp(_mapped(lambda y: y * float(y)), (2.0,), (1.0,)),
        # the rule gives one derivative, and the second is of what it has computed
        lambda: func.hessian(Inside.apply)(2.0),
        _grad_at(lambda x: func.grad(Inside.apply)(x), 2.0),
    ],
)
def test_what_any_open_transform_differentiates(call: Callable[[], Any]) -> None:
    assert len(cuts(call)) == 1


def test_under_vmap_it_is_an_error() -> None:
    with pytest.raises(ConcretizationError):
        func.vmap(func.grad(lambda x: float(x) * x))(X)


def test_threads_agree() -> None:
    def f(x: Any) -> Any:
        return float(x) * x

    def work() -> None:
        for _ in range(20):
            func.grad(f)(2.0)

    def all_at_once() -> None:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert 1 <= len(cuts(all_at_once)) <= 4
    assert cuts(work) == []
