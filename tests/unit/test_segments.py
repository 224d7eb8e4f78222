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
from ftrans.runtime.plan import plan_of
from ftrans.runtime.segments import Call, Segment, split
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
    assert [type(step) for step in steps] == [Segment, Call, Segment, Call, Segment]


def test_calls_side_by_side_need_no_segment_between_them() -> None:
    program = trace(lambda x: cubed(x) + cubed(2 * x))(X)
    steps = split(plan_of(program).final(program))
    assert sum(isinstance(step, Segment) for step in steps) == 2


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
