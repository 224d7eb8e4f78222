"""What functions get that are called, not traced: NumPy arrays, and the settings of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.autograd import Function
from ftrans.config import config
from ftrans.errors import RuleError
from tests.helpers import assert_close

X = np.array([0.5, 1.0, 2.0], np.float32)


def looped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: ftrans.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


ROADS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "at once": lambda f: f,
    "vjp": lambda f: lambda x: func.vjp(lambda x: fnp.sin(f(x)) * 2, x)[0],
    "grad": lambda f: func.grad(lambda x: (f(x * 2) * x).sum()),
    "vmap": lambda f: lambda x: func.vmap(f)(fnp.stack([x, x])),
    "jit": ftrans.jit,
    "jit of grad": lambda f: ftrans.jit(func.grad(lambda x: (f(x * 2) * x).sum())),
    "scan": looped,
    "jit of scan": lambda f: ftrans.jit(looped(f)),
    "jax.jit": jax.jit,
}


@pytest.fixture(autouse=True, params=["interpret", "compile"])
def execution(request: pytest.FixtureRequest) -> Iterator[None]:
    config.execution = request.param
    ftrans.cache_clear()
    yield
    config.execution = "auto"


Seen = list[tuple[type, bool]]


def by_external(seen: Seen) -> Callable[..., Any]:
    def doubled(x: Any) -> Any:
        seen.append((type(x), jax.config.read("jax_enable_x64")))
        # in double precision the zeros would be wider than is declared
        return jnp.asarray(x) * 2 + jnp.zeros(x.shape)

    return ftrans.external(
        doubled, lambda x: x, transpose=lambda ct: 2 * ct, vmap_method="broadcast_all"
    )


def by_function(seen: Seen) -> Callable[..., Any]:
    class Doubled(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            array = np.asarray(x)
            seen.append((type(x), jax.config.read("jax_enable_x64")))
            return jnp.asarray(array) * 2 + jnp.zeros(array.shape)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            seen.append((np.ndarray, jax.config.read("jax_enable_x64")))
            return jnp.asarray(np.asarray(ct)) * 2 + jnp.zeros(ct.shape)

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return Doubled.apply(x), in_dims[0]

    return Doubled.apply


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("container", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
def test_external_functions_get_numpy_arrays_and_the_precision_of_the_user(
    road: str, container: Any, wide: bool
) -> None:
    seen: Seen = []
    call = ROADS[road](by_external(seen))
    x = X.astype(np.float64) if wide else X
    with jax.enable_x64(wide):
        for _ in range(2):
            found = call(container(x))
            assert found.dtype == x.dtype
        assert jax.config.read("jax_enable_x64") == wide
    assert set(seen) == {(np.ndarray, wide)}
    if road == "grad":
        assert_close(np.asarray(found), 8 * x)


@pytest.mark.parametrize("road", [road for road in ROADS if road != "at once"])
@pytest.mark.parametrize("container", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
def test_so_do_methods_that_ask_for_plain_arrays(road: str, container: Any, wide: bool) -> None:
    seen: Seen = []
    call = ROADS[road](by_function(seen))
    x = X.astype(np.float64) if wide else X
    with jax.enable_x64(wide):
        assert call(container(x)).dtype == x.dtype
        seen.clear()  # at first they may be given traced values, until they ask for arrays
        for _ in range(2):
            assert call(container(x)).dtype == x.dtype
    assert set(seen) == {(np.ndarray, wide)}


@pytest.mark.parametrize("road", ["at once", "vjp", "jit", "scan", "jit of scan"])
def test_what_the_function_raises_leaves_the_settings_as_they_were(road: str) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("as it is")

    before = np.geterr()
    call = ROADS[road](ftrans.external(fail, lambda x: x, vmap_method="broadcast_all"))
    for container in (np.asarray, jnp.asarray):
        with pytest.raises(KeyError):
            call(container(X))
        assert not jax.config.read("jax_enable_x64")
        assert np.geterr() == before
        assert_close(func.grad(lambda x: fnp.sin(x).sum())(X), np.cos(X))


def test_an_error_says_where_jax_has_rounded() -> None:
    call = ftrans.external(jnp.exp, lambda x: x)
    with pytest.raises(RuleError, match=r"returned: f32\[3\].*\n.*f64\[3\]\n.*jax_enable_x64"):
        call(X.astype(np.float64))


def test_what_a_function_sets_in_its_context_stays_set() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    tokens = []

    def sets(x: np.ndarray) -> np.ndarray:
        tokens.append(variable.set(variable.get() + 1))
        return x

    function = ftrans.external(sets, lambda x: x, vmap_method="sequential")
    with np.errstate(divide="raise"):
        function(function(X))
        assert variable.get() == 2
        variable.reset(tokens.pop())
        variable.reset(tokens.pop())
        assert variable.get() == 0
        assert np.geterr()["divide"] == "raise"
