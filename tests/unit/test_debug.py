"""`debug.print` and `debug.callback`: once for each evaluation, in order, under every transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import debug, func
from ftrans.config import config
from ftrans.errors import ArgumentError, UnsupportedError

X = np.array([1.0, 2.0])
ROWS = np.array([[1.0, 2.0], [3.0, 4.0]])


@pytest.fixture(params=["interpret", "compile"], autouse=True)
def execution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(config, "execution", request.param)
    return request.param


def wave(x: Any) -> Any:
    debug.print("x {}", x.sum())
    y = fnp.sin(x) * x
    debug.print("y {n} {y}", y=y.shape[0], n="of")
    return y.sum()


def product(x: Any) -> Any:
    return ftrans.scan(lambda c, v: (c * v, debug.print("{} {}", c, v)), x[0], x)[0]


def chosen(x: Any) -> Any:
    def positive(x: Any) -> Any:
        debug.print("positive {}", x[0])
        return x.sum()

    def negative(x: Any) -> Any:
        debug.print("negative {}", x[0])
        return -x.sum()

    return ftrans.cond(x.sum() > 0, positive, negative, x)


def counted(x: Any) -> Any:
    def body(c: Any) -> Any:
        debug.print("turn {}", c[0])
        return c[0] + 1, c[1] * 2

    return ftrans.while_loop(lambda c: c[0] < 2, body, (0, x.sum()))[1]


ONE = ["x 3.0", "y of 2"]
TWO = ["x 3.0", "x 7.0", "y of 2", "y of 2"]
CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "at once": (lambda: wave(X), ONE),
    "grad": (lambda: func.grad(wave)(X), ONE),
    "grad_and_value": (lambda: func.grad_and_value(wave)(X), ONE),
    "vjp": (lambda: func.vjp(wave, X)[1](1.0), ONE),
    "jvp": (lambda: func.jvp(wave, (X,), (X,)), ONE),
    "linearize": (lambda: func.linearize(wave, X)[1](X), ONE),
    "hessian": (lambda: func.hessian(wave)(X), ONE),
    "vmap": (lambda: func.vmap(wave)(ROWS), TWO),
    "vmap(grad)": (lambda: func.vmap(func.grad(wave))(ROWS), TWO),
    "grad of vmap": (lambda: func.grad(lambda x: func.vmap(wave)(x).sum())(ROWS), TWO),
    "jit": (lambda: [ftrans.jit(wave)(X) for _ in range(2)], ONE * 2),
    "jit(grad)": (lambda: ftrans.jit(func.grad(wave))(X), ONE),
    "scan": (lambda: product(X), ["1.0 1.0", "1.0 2.0"]),
    "grad of scan": (lambda: func.grad(product)(X), ["1.0 1.0", "1.0 2.0"]),
    "vmap of scan": (
        lambda: func.vmap(product)(ROWS),
        ["1.0 1.0", "3.0 3.0", "1.0 2.0", "9.0 4.0"],
    ),
    "cond": (lambda: chosen(X), ["positive 1.0"]),
    "grad of cond": (lambda: func.grad(chosen)(-X), ["negative -1.0"]),
    "while": (lambda: counted(X), ["turn 0", "turn 1"]),
    "jvp of while": (lambda: func.jvp(counted, (X,), (X,)), ["turn 0", "turn 1"]),
    "tensor": (lambda: wave(ftrans.tensor(X, requires_grad=True)).backward(), ONE),
    "JAX": (lambda: jax.jit(wave)(jnp.asarray(X)), ONE),
    "to_jax": (lambda: jax.grad(ftrans.to_jax(wave))(jnp.asarray(X)), ONE),
}


@pytest.mark.parametrize("name", CASES)
def test_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, expected = CASES[name]
    for _ in range(2):
        run()
        jax.effects_barrier()
        lines = capsys.readouterr().out.splitlines()
        assert (sorted(lines) if name == "JAX" else lines) == expected  # it keeps no order


def test_values_and_derivatives_are_as_without() -> None:
    plain = lambda x: (fnp.sin(x) * x).sum()  # noqa: E731
    for transform in (func.grad, func.hessian, func.jacfwd):
        np.testing.assert_array_equal(transform(wave)(X), transform(plain)(X))


def test_a_program_is_found_again() -> None:
    func.grad(wave)(X)
    before = ftrans.cache_info().misses
    for k in range(4):
        func.grad(wave)(X + k)
    assert ftrans.cache_info().misses <= before + 1


def test_arrays_of_a_callback_are_numpys_and_the_rest_as_it_is() -> None:
    seen: list[Any] = []
    note = lambda *args, **kwargs: seen.append((args, kwargs))  # noqa: E731

    def f(x: Any) -> Any:
        debug.callback(note, {"a": x, "b": [2, "text"]}, x=None, y=x[0])
        return x.sum()

    ftrans.jit(f)(X)
    (args, kwargs) = seen.pop()
    assert args[0]["b"] == [2, "text"]
    assert type(args[0]["a"]) is np.ndarray
    assert kwargs["x"] is None
    assert kwargs["y"] == 1.0


def test_what_a_callback_raises_reaches_the_caller() -> None:
    def fail(x: Any) -> None:
        raise KeyError("mine")

    def f(x: Any) -> Any:
        debug.callback(fail, x)
        return x.sum()

    for run in (func.grad(f), ftrans.jit(f), func.vmap(f)):
        with pytest.raises(KeyError, match="mine"):
            run(ROWS)


def test_a_gradient_does_not_go_through_it() -> None:
    def f(x: Any) -> Any:
        debug.callback(lambda y: None, fnp.sqrt(x))
        return x.sum()

    np.testing.assert_array_equal(func.grad(f)(np.zeros(2)), np.ones(2))


@dataclass(unsafe_hash=True)
class Log:
    tag: str
    seen: list = field(default_factory=list, compare=False)

    def __call__(self, x: Any) -> None:
        self.seen.append(float(x))


def test_equal_callbacks_are_not_the_same() -> None:
    logs = Log("x"), Log("x")
    for log in logs:
        func.grad(lambda x, log=log: (debug.callback(log, x), x * 3)[1])(1.0)
    assert [log.seen for log in logs] == [[1.0], [1.0]]


class Printing(ftrans.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        debug.print("{}", x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="Replacement index 1"):
        debug.print("{} {}", 1)
    with pytest.raises(ArgumentError, match="name"):
        func.grad(lambda x: (debug.print("{name}", x), x)[1])(1.0)
    with pytest.raises(UnsupportedError, match="custom rule"):
        func.grad(lambda x: Printing.apply(x).sum())(X)
    with pytest.raises(UnsupportedError, match="returns no array"):
        ftrans.jit(lambda x: debug.print("{}", x))(X)
