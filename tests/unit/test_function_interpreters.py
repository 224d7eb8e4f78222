"""Functions in programs as values: interpreters, text, checks, equality."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from tests.helpers import assert_close
from tests.unit.function_database import NumpyCube
from tests.unit.test_function_second_order import MyCube, SinhOnCtx

X = np.array([1.0, 2.0, 3.0])
FUNCTIONS = {
    "MyCube": lambda x: MyCube.apply(x)[0].sum(),
    "SinhOnCtx": lambda x: SinhOnCtx.apply(x).sum(),
}


class Names(ftrans.Interpreter):
    """Does what the program does, and writes down by which primitives."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def default(self, operation: Any, *values: Any) -> Any:
        self.seen.append(operation.name)
        return operation.evaluate(*values)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_interpreters_go_into_the_forward(name: str) -> None:
    f = FUNCTIONS[name]
    assert_close(Names()(f)(X), f(X))
    assert_close(Names()(func.grad(f))(X), func.grad(f)(X))
    names = Names()
    names(f)(X)
    assert {"MyCube": "integer_pow", "SinhOnCtx": "exp"}[name] in names.seen


@pytest.mark.parametrize("f", [*FUNCTIONS.values(), lambda x: NumpyCube.apply(x)[0].sum()])
def test_programs_are_well_formed_and_named(f: Any) -> None:
    for g in (f, func.grad(f), func.hessian(f), func.vmap(func.grad(lambda x: f(x[None])))):
        program = ftrans.check(ftrans.trace(g)(X))
        assert ftrans.trace(g)(X) == program
        assert str(program) == str(ftrans.trace(g)(X))
    assert any(name in str(ftrans.trace(f)(X)) for name in ("MyCube", "SinhOnCtx", "NumpyCube"))


def test_every_program_is_checked_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "check", True)
    for f in (*FUNCTIONS.values(), lambda x: NumpyCube.apply(x)[0].sum()):
        for g in (f, func.grad(f), func.hessian(f), lambda x, f=f: func.jvp(f, (x,), (x,))[1]):
            g(X)


@pytest.mark.parametrize("execution", ["interpret", "compile"])
def test_both_roads_agree(monkeypatch: pytest.MonkeyPatch, execution: str) -> None:
    monkeypatch.setattr(ftrans.config, "execution", execution)
    for f in (*FUNCTIONS.values(), lambda x: NumpyCube.apply(x)[0].sum()):
        derivatives = [f(X), func.grad(f)(X), np.diag(func.hessian(f)(X))]
        cubic = [(X**3).sum(), 3 * X**2, 6 * X]
        hyperbolic = [np.sinh(X).sum(), np.cosh(X), np.sinh(X)]
        expected = hyperbolic if f is FUNCTIONS["SinhOnCtx"] else cubic
        for got, want in zip(derivatives, expected, strict=True):
            assert_close(got, want, 1e-11)


class Slope(Function):
    """Counts how often it is called."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        Slope.calls += 1
        return np.cos(np.asarray(x))


class SinWithSlope(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = Slope.apply(x)
        return fnp.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return ctx.slope * ct


def test_what_only_a_rule_needs_is_computed_only_for_it() -> None:
    value = ftrans.jit(SinWithSlope.apply)
    gradient = ftrans.jit(func.grad(lambda x: SinWithSlope.apply(x).sum()))
    for f, expected, calls in ((value, np.sin(X), 0), (gradient, np.cos(X), 1)):
        f(X)
        before = Slope.calls
        assert_close(f(X), expected)
        assert Slope.calls == before + calls
