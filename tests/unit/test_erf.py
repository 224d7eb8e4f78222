"""The error function in single precision by NumPy, against SciPy's in double and JAX's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy import special

import ftrans
from ftrans import func, nn
from ftrans.primitives import erf_p, erfc_p
from ftrans.primitives.erf import erf, erfc
from tests.helpers import finished

ROUNDING = 2.0**-24
X = np.linspace(-10, 10, 200_001, dtype="float32")


def apart(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Returns by how many roundings numbers differ."""
    return np.abs(found - expected) / np.abs(expected) / ROUNDING


def test_erf_is_close_everywhere() -> None:
    x = np.concatenate([X, np.geomspace(1e-37, 10, 10_001, dtype="float32")])
    x = x[x != 0]
    assert apart(erf(x), special.erf(x.astype("float64"))).max() < 7
    assert np.abs(erf(x)).max() == 1.0


def test_erfc_is_close_where_it_is_a_normal_number() -> None:
    x = X[X < 9]
    off = apart(erfc(x), special.erfc(x.astype("float64")))
    assert off[x < 4].max() < 16
    assert off.max() < 70
    of_jax = apart(np.asarray(jax.lax.erfc(x)), special.erfc(x.astype("float64")))
    assert off.max() < 1.2 * of_jax.max()


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_special_values(name: str) -> None:
    ours = {"erf": erf, "erfc": erfc}[name]
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-45, 30.0], "float32")
    with np.errstate(all="ignore"):
        found = ours(x)
    expected = getattr(special, name)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found[:-2]), np.signbit(expected[:-2]))
    assert found.dtype == np.float32


@pytest.mark.parametrize("size", [4096, 4097, 1 << 17, (1 << 17) + 1])
@pytest.mark.parametrize("primitive", [erf_p, erfc_p])
def test_sizes_agree_with_each_other(primitive: Any, size: int) -> None:
    x = np.linspace(-4, 4, 2 * size, dtype="float32")[::2].reshape(-1, 1)
    kept = x.copy()
    found = primitive(x)
    assert found.shape == x.shape
    assert found.dtype == np.float32
    expected = getattr(special, primitive.name)(x.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    np.testing.assert_array_equal(x, kept)


def test_nothing_of_jax_is_compiled_for_gelu_of_some_elements() -> None:
    x = np.linspace(-6, 6, 10_000, dtype="float32")
    assert finished(60)  # what others have begun
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name)
    )
    ftrans.cache_clear()
    found = func.grad(lambda x: nn.gelu(x).sum())(x)
    assert "/jax/core/compile/backend_compile_duration" not in compiled
    wide = x.astype("float64")
    slope = special.ndtr(wide) + wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found, slope, rtol=2e-5, atol=2e-6)
