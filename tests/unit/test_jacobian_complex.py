"""Jacobians and Hessians of complex arrays: holomorphic as in JAX, and as pairs of reals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import DTypeError
from tests.helpers import assert_close

DRAW = np.random.default_rng(0)
Z = DRAW.normal(size=3) + 1j * DRAW.normal(size=3)
A = DRAW.normal(size=(2, 3)) + 1j * DRAW.normal(size=(2, 3))
X = DRAW.normal(size=3)
MODES = {"jacrev": (func.jacrev, jax.jacrev), "jacfwd": (func.jacfwd, jax.jacfwd)}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def wave(lib: Any) -> Callable[[Any], Any]:
    return lambda z: lib.sin(A @ z) * z[0] ** 2


def bent(lib: Any) -> Callable[[Any], Any]:
    """Is not holomorphic."""
    return lambda z: lib.abs(z) * lib.conj(z[0]) + z**2


def pairs(z: Any) -> Any:
    return jnp.stack([jnp.real(z), jnp.imag(z)], -1)


def of_pairs(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda p: pairs(function(p[..., 0] + 1j * p[..., 1]))


@pytest.mark.parametrize("mode", MODES)
def test_holomorphic(mode: str) -> None:
    ours, theirs = MODES[mode]
    found = ours(wave(fnp), holomorphic=True)(Z)
    assert found.dtype == np.complex128
    assert_close(found, theirs(wave(jnp), holomorphic=True)(Z))
    assert_close(ours(lambda z: z**2, holomorphic=True)(1.0 + 1.0j), 2.0 + 2.0j)
    assert_close(ours(lambda z: z**2, holomorphic=True, chunk_size=1)(Z), np.diag(2 * Z))
    single = ours(lambda z: z**2, holomorphic=True)(Z.astype(np.complex64))
    assert single.dtype == np.complex64


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_pairs(mode: str) -> None:
    ours, theirs = MODES[mode]
    found = ours(bent(fnp), holomorphic=False)(Z)
    assert found.shape == (3, 2, 3, 2)
    assert_close(found, theirs(of_pairs(bent(jnp)))(pairs(Z)))
    # the matrix of a complex number
    assert_close(ours(lambda z: z**2, holomorphic=False)(1.0 + 1.0j), [[2.0, -2.0], [2.0, 2.0]])
    # the 2 of what is real is left out
    assert ours(lambda z: fnp.abs(z), holomorphic=False)(Z).shape == (3, 3, 2)
    assert ours(lambda x: x * (1.0 + 2.0j), holomorphic=False)(X).shape == (3, 2, 3)
    assert_close(ours(lambda x: x**2, holomorphic=False)(X), np.diag(2 * X))


@pytest.mark.slow
def test_hessians() -> None:
    found = func.hessian(wave(fnp), holomorphic=True)(Z)
    assert_close(found, jax.hessian(wave(jnp), holomorphic=True)(Z))

    def energy(lib: Any) -> Callable[[Any, Any], Any]:
        return lambda z, x: (lib.abs(z * x) ** 2).sum()

    found = func.hessian(energy(fnp), argnums=(0, 1), holomorphic=False)(Z, X)
    by_pairs = lambda p, x: energy(jnp)(p[..., 0] + 1j * p[..., 1], x)  # noqa: E731
    jax.tree.map(assert_close, found, jax.hessian(by_pairs, argnums=(0, 1))(pairs(Z), X))


@pytest.mark.parametrize("mode", MODES)
def test_pytrees_and_aux(mode: str) -> None:
    ours, _ = MODES[mode]
    jacobian = ours(
        lambda d, s: ({"a": d["u"] * s}, d["v"]), argnums=(0, 1), has_aux=True, holomorphic=True
    )
    found, aux = jacobian({"u": Z, "v": 2 * Z}, np.array(1.0j))
    assert_close(aux, 2 * Z)
    by_dict, by_scalar = found["a"]
    assert_close(by_dict["u"], 1j * np.eye(3))
    assert_close(by_dict["v"], np.zeros((3, 3), complex))
    assert_close(by_scalar, Z)


def test_under_the_transforms() -> None:
    square = func.jacrev(lambda z: z**2, holomorphic=True)
    assert_close(func.vmap(square)(Z), 2 * Z)
    assert_close(ftrans.jit(square)(Z), np.diag(2 * Z))
    size = lambda t: fnp.abs(func.jacfwd(lambda z: z**3 * t, holomorphic=True)(1.0 + 1.0j))  # noqa: E731
    assert_close(func.grad(size)(2.0), 6.0)
    found = func.jacrev(lambda z: z**2, holomorphic=True)(jnp.asarray(Z))
    assert isinstance(found, jax.Array)


ERRORS = {
    "a real argument": (
        lambda: func.jacrev(lambda x: x * 1j, holomorphic=True)(X),
        "jacrev(lambda): with holomorphic=True arguments and results are complex.\n"
        "  x: f64[3]\n"
        "  Pass holomorphic=False for the derivative of pairs of reals.",
    ),
    "a real result": (
        lambda: func.hessian(lambda z: fnp.abs(z).sum(), holomorphic=True)(Z),
        "hessian(lambda): with holomorphic=True arguments and results are complex.\n"
        "  result: f64[]\n"
        "  Pass holomorphic=False for the derivative of pairs of reals.",
    ),
    "neither is said": (
        lambda: func.jacfwd(lambda z: z)(Z),
        "jacfwd(lambda): Jacobians are taken of real functions of real arguments.\n"
        "  z: c128[3]\n"
        "  Pass holomorphic=True for the complex derivative, False for that of pairs of reals.",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, text = ERRORS[name]
    with pytest.raises(DTypeError) as caught:
        call()
    assert str(caught.value) == text
