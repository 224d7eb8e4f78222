"""`config.execution = "measured"`: the road by what runs take, and a thread that compiles."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import config, func
from ftrans.runtime import measured
from tests.helpers import finished


def bent(x: Any) -> Any:
    for _ in range(30):
        x = fnp.sin(x) + x
    return x.sum()


def slope(x: Any) -> np.ndarray:
    """Returns the derivative by JAX."""

    def reference(x: Any) -> Any:
        for _ in range(30):
            x = jax.numpy.sin(x) + x
        return x.sum()

    with jax.enable_x64(True):
        return np.asarray(jax.grad(reference)(np.asarray(x)))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Lets the second interpreted run be worth compiling."""
    assert finished(60)  # what others have begun
    monkeypatch.setattr(config, "execution", "measured")
    monkeypatch.setattr("ftrans.runtime.choice.PART", 0.0)
    monkeypatch.setattr("ftrans.runtime.measured._SLOWER", 1e9)
    ftrans.cache_clear()
    return monkeypatch


def told() -> tuple[str, str]:
    """Returns the road of the last call, and the reason."""
    call = ftrans.explain(last=1)[0]
    return call.road, call.reason


@pytest.mark.parametrize("container", [np.asarray, jax.numpy.asarray])
def test_a_thread_compiles_what_is_worth_it(eager: pytest.MonkeyPatch, container: Any) -> None:
    x = container(np.linspace(0.1, 1.0, 1 << 14, dtype="float32"))
    expected = slope(x)
    found = [func.grad(bent)(x) for _ in range(3)]  # the first run counts for nothing
    assert finished(60)
    before = ftrans.cache_info().compiled
    assert before == 1
    found += [func.grad(bent)(x) for _ in range(3)]
    assert told() == ("compiled", "it was compiled before")
    assert ftrans.cache_info().compiled == before
    for gradient in found:
        assert type(gradient) is type(x)
        np.testing.assert_allclose(gradient, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("placed", [False, True])
def test_what_the_thread_compiled_for_arrays_of_jax_is_not_compiled_again(
    eager: pytest.MonkeyPatch, placed: bool
) -> None:
    x = jax.numpy.linspace(0.1, 1.0, 1 << 14, dtype="float32")
    scale: Any = jax.numpy.float32(2.0)
    if placed:
        x, scale = jax.device_put((x, scale), jax.devices()[0])
    f = func.grad(lambda x, s: bent(x * s))
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name)
    )
    for _ in range(3):
        f(x, scale)
    assert finished(60)
    f(x, scale)
    assert told()[0] == "compiled"
    assert compiled.count("/jax/core/compile/backend_compile_duration") == 1


def test_arrays_are_not_kept_alive_until_something_is_compiled(eager: pytest.MonkeyPatch) -> None:
    x = jax.numpy.linspace(0.1, 1.0, 1 << 14, dtype="float32")
    for _ in range(3):
        func.grad(bent)(x)
    gone = weakref.ref(x)
    x.delete()
    del x
    assert finished(60)
    gc.collect()
    assert gone() is None
    assert ftrans.cache_info().compiled == 1


def test_what_is_slower_when_compiled_is_interpreted_again(eager: pytest.MonkeyPatch) -> None:
    eager.setattr("ftrans.runtime.measured._SLOWER", 0.0)
    x = np.linspace(0.1, 1.0, 1 << 14, dtype="float32")
    for _ in range(3):
        func.grad(bent)(x)
    assert finished(60)
    roads = []
    for _ in range(5):
        func.grad(bent)(x)
        roads.append(told()[0])
    assert roads == ["compiled"] * 3 + ["interpreted"] * 2
    assert told()[1] == "compiled calls took longer"
    assert ftrans.cache_info().compiled == 1


def test_evidence_is_what_runs_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "measured")
    ftrans.cache_clear()
    x = np.linspace(0.1, 1.0, 1 << 14, dtype="float32")
    for _ in range(4):
        func.grad(bent)(x)
    calls = ftrans.explain(last=4)
    assert all(call.road == "interpreted" for call in calls)
    assert "have saved 0 µs so far" in calls[1].reason  # the first run is dear
    assert "have saved 0 µs so far" not in calls[3].reason


def test_the_price_follows_what_compiling_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_ratios", type(measured._ratios)(maxlen=31))
    assert measured.learnt() == 1.0
    for seconds in (2.0, 6.0, 3.0):
        measured.learn_price(1.0, seconds)
    measured.learn_price(0.0, 1.0)  # of what has nothing to compile
    assert measured.learnt() == 3.0


def test_what_gains_nothing_is_never_compiled(eager: pytest.MonkeyPatch) -> None:
    x = np.ones(3, "float32")
    for _ in range(20):
        func.grad(lambda x: (x * x).sum())(x)
    assert told() == ("interpreted", "a compiled call would take as long")


def test_what_is_read_from_disk_is_no_measure_of_compiling(
    eager: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    eager.setattr(measured, "_ratios", type(measured._ratios)(maxlen=31))
    eager.setattr("ftrans.runtime.disk.LEAST", 0.0)
    eager.setattr(config, "compilation_cache_dir", tmp_path / "store")
    x = np.linspace(0.1, 1.0, 1 << 14, dtype="float32")
    for _ in range(2):
        ftrans.cache_clear()
        for _ in range(3):
            func.grad(bent)(x)
        assert finished(60)
        func.grad(bent)(x)
        assert told()[0] == "compiled"
    assert len(measured._ratios) == 1
