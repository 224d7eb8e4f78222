"""The convolution by NumPy, against XLA's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import ftrans
from ftrans import func, nn
from ftrans.ir import type_of
from ftrans.primitives import conv_host, conv_p
from ftrans.primitives.conv import _params
from ftrans.primitives.conv_host import convolution
from tests.helpers import finished


def case(seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns operands and params of one kind among all."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 4))
    groups = int(rng.choice([1, 1, 2, 3]))
    features, batches = [(groups, 1), (1, groups)][seed % 2]

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.integers(low, high, size=count).tolist())

    inner = int(rng.integers(1, 4))
    x = rng.normal(size=(int(rng.integers(1, 4)) * batches, inner * features, *sizes(1, 7)))
    kernel = rng.normal(size=(int(rng.integers(1, 3)) * groups, inner, *sizes(1, 5)))
    params = {
        "strides": sizes(1, 4),
        "padding": tuple(zip(sizes(-3, 4), sizes(-3, 4), strict=True)),
        "lhs_dilation": sizes(1, 4),
        "rhs_dilation": sizes(1, 3),
        "feature_groups": features,
        "batch_groups": batches,
    }
    return x, kernel, params


def by_xla(x: Any, kernel: Any, params: dict[str, Any]) -> np.ndarray:
    with jax.enable_x64(True):
        found = lax.conv_general_dilated(
            x,
            kernel,
            params["strides"],
            params["padding"],
            lhs_dilation=params["lhs_dilation"],
            rhs_dilation=params["rhs_dilation"],
            feature_group_count=params["feature_groups"],
            batch_group_count=params["batch_groups"],
        )
    return np.asarray(found)


@pytest.mark.parametrize("most", [100, 1 << 23])
def test_all_kinds_agree_with_xla(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(conv_host, "_MOST", most)  # of the few examples of a case, some together
    used = 0
    for seed in range(120):
        x, kernel, params = case(seed)
        convolve = convolution(type_of(x), type_of(kernel), **params)
        if convolve is not None:
            used += 1
            kept = x.copy()
            np.testing.assert_allclose(
                convolve(x, kernel), by_xla(x, kernel, params), atol=1e-9, err_msg=str(params)
            )
            np.testing.assert_array_equal(x, kept)
    assert used > 50  # of the others no window fits


def test_operands_may_lie_in_any_way() -> None:
    x, kernel, params = case(2)
    expected = by_xla(x, kernel, params)
    for a, b in [(np.asfortranarray(x), kernel), (x, np.asfortranarray(kernel))]:
        np.testing.assert_allclose(conv_p(a, b, **params), expected, atol=1e-9)
    wide = np.repeat(x, 2, axis=-1)[..., ::2]
    np.testing.assert_allclose(conv_p(wide, kernel, **params), expected, atol=1e-9)


@pytest.mark.parametrize("dtype", ["int32", "float16", "uint8", "complex64"])
def test_what_numpy_multiplies_slowly_is_left_to_xla(dtype: str) -> None:
    x = (np.arange(48) % 7).astype(dtype).reshape(1, 3, 4, 4)
    kernel = (np.arange(54) % 3).astype(dtype).reshape(2, 3, 3, 3)
    params = _params(2, padding=((1, 1), (1, 1)))
    assert convolution(type_of(x), type_of(kernel), **params) is None
    found = conv_p(x, kernel, **params)
    np.testing.assert_array_equal(found, by_xla(x, kernel, params))
    assert found.dtype == dtype


def test_windows_that_take_too_much_memory_are_left_to_xla() -> None:
    x, kernel = np.ones((1, 64, 256, 256), "f4"), np.ones((1, 64, 3, 3), "f4")
    params = _params(2)
    assert convolution(type_of(x), type_of(kernel), **params) is None
    assert convolution(type_of(x[:, :, :64, :64]), type_of(kernel), **params) is not None


def test_nothing_is_compiled_for_a_network_of_convolutions() -> None:
    assert finished(60)  # what others have begun
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name)
    )
    ftrans.cache_clear()
    rng = np.random.default_rng(0)
    images, kernel = rng.normal(size=(3, 2, 9, 11)), rng.normal(size=(5, 2, 3, 2))

    def loss(kernel: Any) -> Any:
        return (nn.conv2d(images, kernel, stride=2, padding=1) ** 2).sum()

    found = func.grad(loss)(kernel)
    assert "/jax/core/compile/backend_compile_duration" not in compiled

    def reference(kernel: Any) -> Any:
        out = lax.conv_general_dilated(images, kernel, (2, 2), ((1, 1), (1, 1)))
        return (out**2).sum()

    with jax.enable_x64(True):
        np.testing.assert_allclose(found, jax.grad(reference)(kernel), rtol=1e-10)
