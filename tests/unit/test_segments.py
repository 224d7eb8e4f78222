"""Programs that call Python: split into segments that are compiled, with the calls in between."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.func.trace import trace
from ftrans.primitives import outside
from ftrans.primitives.outside import call_of_the_user, silently
from ftrans.runtime.choice import plan_of
from ftrans.runtime.run import run
from ftrans.runtime.segments import Segmented, price_of, split
from tests.helpers import assert_close

X = np.linspace(0.1, 1.0, 5)


def same(x: Any) -> Any:
    return x


def cube(x: Any) -> Any:
    return x**3


def slope(primals: Any, out: Any, ct: Any) -> Any:
    return (3 * primals[0] ** 2 * ct,)


cubed = ftrans.external(cube, same, vjp=slope, vmap_method="broadcast_all")


def loss(x: Any) -> Any:
    y = cubed(fnp.sin(x))
    z = cubed(fnp.cos(y) + x)
    return (z * y + x).sum()


def plain(x: Any) -> Any:
    y = jnp.sin(x) ** 3
    return ((jnp.cos(y) + x) ** 3 * y + x).sum()


@pytest.fixture(params=["interpret", "compile", "auto"])
def execution(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ftrans.config, "execution", request.param)
    return request.param


@pytest.mark.parametrize("container", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_values_and_gradients(execution: str, container: Any) -> None:
    with jax.enable_x64(True):
        x = container(X)
        expected = jax.grad(plain)(jnp.asarray(X)), jax.hessian(plain)(jnp.asarray(X))
        for _ in range(3):
            found = func.grad(loss)(x)
            assert_close(found, np.asarray(expected[0]))
            assert isinstance(found, jax.Array) == (container is jnp.asarray)
        assert_close(func.hessian(loss)(x), np.asarray(expected[1]))


def test_there_are_as_few_segments_as_can_be() -> None:
    program = trace(loss)(X)
    steps = split(plan_of(program).final(program))
    assert [step.calls for step in steps] == [False, True, False, True, False]


def test_calls_side_by_side_need_no_segment_between_them() -> None:
    program = trace(lambda x: cubed(x) + cubed(2 * x))(X)
    steps = split(plan_of(program).final(program))
    assert [step.calls for step in steps] == [False, True, False]


def test_each_call_gets_the_arrays_as_they_are(execution: str) -> None:
    seen: list[type] = []

    def noting(x: Any) -> Any:
        seen.append(type(x))
        return x * 2

    noted = ftrans.external(noting, same, transpose=lambda ct: ct * 2)
    func.vjp(lambda x: noted(fnp.sin(x)) * 3, X)
    assert set(seen) == {np.ndarray}


def test_an_error_in_a_call_is_the_users(execution: str) -> None:
    def fail(x: Any) -> Any:
        raise ZeroDivisionError("as it is")

    failing = ftrans.external(fail, same, vjp=slope)
    with pytest.raises(ZeroDivisionError, match="as it is"):
        func.value_and_grad(lambda x: failing(fnp.sin(x)).sum())(X)
    assert_close(func.grad(lambda x: cubed(x).sum())(X), 3 * X**2)


def test_results_that_are_views_or_reused_are_kept_apart(execution: str) -> None:
    buffer = np.zeros(5)

    def reusing(x: Any) -> Any:
        np.copyto(buffer, x)
        return buffer

    reused = ftrans.external(reusing, same, transpose=lambda ct: ct)
    first, second = func.vmap(lambda x: x)(X), 10 * X
    found = func.vjp(lambda x: reused(x) - reused(second) + reused(x), first)[0]
    assert_close(found, 2 * X - second)


def doubled_by_jax(x: Any) -> Any:
    with jax.enable_x64(True):
        return jnp.asarray(np.asarray(x) * 2)


def test_results_of_jax_are_not_rounded(execution: str) -> None:
    # NumPy hands `cumsum` of an array of JAX's to JAX, which outside of double precision rounds
    double = ftrans.external(doubled_by_jax, same, transpose=lambda ct: 2 * ct)
    found = func.vjp(lambda x: fnp.cumsum(double(x)) / 3, X)[0]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.cumsum(2 * X) / 3, rtol=1e-15)


def test_warnings_in_a_call_are_as_the_user_has_set_them(execution: str) -> None:
    log = ftrans.external(np.log, same, vjp=lambda primals, out, ct: (ct / primals[0],))

    def f(x: Any) -> Any:
        # the library's own logarithm does not warn, neither before nor after the call
        return (fnp.log(x) + log(x) + fnp.log(x * 0)).sum()

    x, before = np.array([0.0, 1.0]), np.geterr()
    with np.errstate(divide="warn"):
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match="divide by zero") as seen:
                func.value_and_grad(f)(x)
            assert len(seen) == 1
    with np.errstate(divide="raise"):
        for _ in range(2):
            with pytest.raises(FloatingPointError):
                func.value_and_grad(f)(x)
    with np.errstate(all="ignore"):
        value, _ = func.value_and_grad(f)(x)
    assert value == -np.inf
    assert np.geterr() == before


def test_warnings_in_what_a_call_asks_of_the_library_are_off(execution: str) -> None:
    inner = ftrans.external(np.log, same, vjp=slope, vmap_method="broadcast_all")

    def body(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return np.asarray(func.vmap(lambda v: inner(v) + fnp.log(v * 0))(x))

    outer = ftrans.external(body, same, vjp=slope)
    with np.errstate(divide="raise"):
        found = func.vjp(lambda x: outer(x) + fnp.log(x * 0), np.zeros(3))[0]
        assert np.all(found == -np.inf)
        with pytest.raises(FloatingPointError):
            np.log(np.zeros(1))


def heavy(x: Any) -> Any:
    for _ in range(60):
        x = fnp.sin(x) + x * 0.5
    return x


def heavy_jax(x: Any) -> Any:
    for _ in range(60):
        x = jnp.sin(x) + x * 0.5
    return x


def test_what_pays_is_compiled_and_the_rest_interpreted() -> None:
    x = np.linspace(0.1, 1.0, 2000)

    def f(x: Any) -> Any:
        return heavy(cubed(fnp.cos(x)) * cubed(x)) + cubed(x) + x

    program = plan_of(trace(f)(x)).final(trace(f)(x))
    assert [step.pays for step in split(program)] == [False, False, True]
    segmented = Segmented(program)
    assert len(segmented._host.executables) == 1
    assert len(segmented._host._steps) == 2
    with jax.enable_x64(True):
        y = jnp.asarray(x)
        expected = heavy_jax(jnp.cos(y) ** 3 * y**3) + y**3 + y
    for road in (segmented.host, segmented.mixed):
        for _ in range(2):
            (found,) = road([x])
            assert_close(np.asarray(found), np.asarray(expected))


def test_pinned_to_compile_everything_is_but_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "execution", "compile")
    func.vjp(loss, X)
    program = trace(loss)(X)
    plan = plan_of(program)
    run(program, [X])
    assert len(plan.state.executable._host.executables) == 3


def test_small_stretches_are_not_worth_leaving_the_interpreter() -> None:
    program = trace(loss)(X)
    final = plan_of(program).final(program)
    assert price_of(final).gain == 0
    assert not Segmented(final)._host.executables


@pytest.mark.parametrize("known", [True, False])
def test_what_is_called_without_warnings_may_be_nested(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is not known in which variable NumPy keeps what is warned of."""
    assert outside._VARIABLE is not None, "else all runs take longer"
    if not known:
        monkeypatch.setattr(outside, "_VARIABLE", None)
    zero = np.zeros(1)

    def inner() -> None:
        np.log(zero)
        with pytest.raises(FloatingPointError):
            call_of_the_user(np.log, [zero])
        np.log(zero)

    with np.errstate(divide="raise"):
        silently(True, silently, True, inner)
        silently(False, np.log, zero)
        with pytest.raises(FloatingPointError):
            np.log(zero)
