"""Under `config.check`, what is taken over from an earlier call is traced anew and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.custom.guards import Guards
from ftrans.custom.reuse import Memory
from ftrans.errors import CheckError
from ftrans.ir import ArrayType, Params
from ftrans.ir.program import Equation
from ftrans.ir.stack import state
from ftrans.numpy.composite import composite
from ftrans.primitives import integer_pow_p
from tests.helpers import assert_close
from tests.unit.guard_cases import WARM, X

_factor: Any = 2.0
_view = True
_axis = 0


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checks, and puts back what the tests change."""
    monkeypatch.setattr(ftrans.config, "check", True)
    for name in ("_factor", "_view", "_axis"):
        monkeypatch.setitem(globals(), name, globals()[name])
    yield
    assert not state.stack


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants the fault that no change of what the code reads is seen."""
    monkeypatch.setattr(Guards, "hold", lambda self: True)


def warmed(f: Callable[[], Any]) -> None:
    for _ in range(WARM):
        f()


def change(**values: Any) -> None:
    globals().update(values)


class Scaled(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 0

    @staticmethod
    def backward(ctx, ct):
        return ct * _factor


class Batched(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def vmap(info, in_dims, x):
        return fnp.moveaxis(x * 2, 0, _axis) * (_factor / 2.0), _axis


@ftrans.custom_vjp
def decorated(x):
    return x + 0


decorated.defvjp(lambda x: (x + 0, None), lambda _, ct: (ct * _factor,))


@composite
def by_a_global(x):
    return (x + 1.0) ** _factor


@composite
def a_view(x):
    return fnp.reshape(x, (3, 1)) if _view else x * 1.0 + 0.0


# ------------------------------------------------------------------------------- front end


def integer_pow(exponent: int) -> Equation:
    t = ArrayType((3,), np.dtype("float64"))
    return Equation(integer_pow_p, (0,), Params({"exponent": exponent}), (t,))


def test_a_composite_function_that_reads_a_global_is_found() -> None:
    gradient = func.grad(lambda x: by_a_global(x).sum())
    warmed(lambda: assert_close(gradient(X), 2 * (X + 1)))
    change(_factor=3)
    ftrans.config.check = False
    assert_close(gradient(X), 2 * (X + 1))  # the fault, which nobody sees
    ftrans.config.check = True
    with pytest.raises(CheckError) as caught:
        gradient(X)
    assert str(caught.value) == (
        "by_a_global: a call that would have been taken over from an earlier one does something "
        "else.\n"
        f"  it recorded: {integer_pow(2)}\n"
        f"  it records:  {integer_pow(3)}\n"
        "  It reads what is neither an argument of it nor a constant, and has changed."
    )
    change(_factor=2.0)
    assert_close(gradient(X), 2 * (X + 1))


def test_a_composite_function_that_captures_is_found() -> None:
    gradient = func.grad(lambda x: by_a_global(x).sum())
    warmed(lambda: gradient(X))
    change(_factor=X)
    with pytest.raises(CheckError, match=r"^by_a_global: a call that would have been taken over"):
        gradient(X)


def test_a_composite_function_that_no_longer_returns_a_view_is_found() -> None:
    f = lambda x: a_view(x * 1.0).sum()  # noqa: E731
    warmed(lambda: func.grad(f)(X))
    change(_view=False)
    with pytest.raises(CheckError, match=r"^a_view: "):
        func.grad(f)(X)


# ----------------------------------------------------------------------------------- rules


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("rule", [Scaled.apply, decorated])
def test_a_stale_rule_is_found(rule: Any) -> None:
    gradient = func.grad(lambda x: (rule(x) * x).sum())
    warmed(lambda: assert_close(gradient(X), 3 * X))
    change(_factor=3.0)
    with pytest.raises(CheckError):
        gradient(X)
    ftrans.config.check = False
    assert_close(gradient(X), 3 * X)  # the fault


@pytest.mark.usefixtures("blind")
def test_the_error_names_the_rule_and_what_it_reads() -> None:
    gradient = func.grad(lambda x: Scaled.apply(x).sum())
    warmed(lambda: gradient(X))
    change(_factor=3.0)
    with pytest.raises(CheckError) as caught:
        gradient(X)
    assert str(caught.value) == (
        "Scaled: a call that is taken over from an earlier one does something else, traced anew.\n"
        "  backward was: Scaled.backward(a: f64[3]) -> f64[3]:\n"
        "    b: f64[3] = mul(a, 2.0)\n"
        "    return b\n"
        "  backward is: Scaled.backward(a: f64[3]) -> f64[3]:\n"
        "    b: f64[3] = mul(a, 3.0)\n"
        "    return b\n"
        "  It reads: Scaled.backward, Scaled.forward, _factor; and what has changed, which was "
        "not seen."
    )


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("value", [X, "no number"])
def test_a_rule_that_captures_or_raises_is_found(value: Any) -> None:
    gradient = func.grad(lambda x: Scaled.apply(x).sum())
    warmed(lambda: gradient(X))
    change(_factor=value)
    with pytest.raises(CheckError, match=r"^Scaled: .* does something else, traced anew"):
        gradient(X)


@pytest.mark.usefixtures("blind")
def test_a_leap_over_a_rule_is_compared_with_what_is_recorded() -> None:
    gradient = func.grad(lambda x: Scaled.apply(x).sum())
    ftrans.config.check = False
    warmed(lambda: gradient(X))
    ftrans.config.check = True
    change(_factor=3.0)
    Scaled._ftrans_methods.memory = Memory()
    with pytest.raises(CheckError, match=r"^Scaled: a call that would have been taken over"):
        gradient(X)


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("changed", [{"_factor": 3.0}, {"_axis": 1}, {"_axis": "no axis"}])
def test_a_stale_rule_for_batches_is_found(changed: dict[str, Any]) -> None:
    batched = func.vmap(Batched.apply)
    x = np.ones((2, 2))
    warmed(lambda: assert_close(batched(x), 2 * x))
    change(**changed)
    with pytest.raises(CheckError, match=r"^Batched"):
        batched(x)


# ---------------------------------------------------------------------------- what is right


def test_what_the_guards_see_is_no_error() -> None:
    for rule in (Scaled.apply, decorated):
        for value in (2.0, 3.0, 2.0):
            change(_factor=value)
            warmed(
                lambda r=rule, v=value: assert_close(func.grad(lambda x: r(x).sum())(X), v + 0 * X)
            )


@pytest.mark.parametrize("rule", [Scaled.apply, decorated, fnp.softmax, fnp.var])
def test_the_same_programs_come_out(rule: Any) -> None:
    f = lambda x: (rule(x * 2) + rule(x)).sum()  # noqa: E731
    gradient = lambda x: func.grad(f)(x)  # noqa: E731
    programs = []
    for check in (False, False, False, True, True, False):
        ftrans.config.check = check
        gradient(X)
        programs.append(ftrans.trace(gradient)(X))
    assert all(program == programs[0] for program in programs)


def test_rules_are_traced_anew_only_where_they_are_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ftrans.custom import recording

    calls = []
    traced = recording._traced_anew
    monkeypatch.setattr(
        recording, "_traced_anew", lambda *args: calls.append(args[0].name) or traced(*args)
    )
    gradient = func.grad(lambda x: Scaled.apply(x).sum())
    ftrans.config.check = False
    warmed(lambda: gradient(X))
    assert calls == []
    ftrans.config.check = True
    gradient(X)
    assert calls == ["Scaled"]
