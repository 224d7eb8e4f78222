"""The runtime: containers, dtypes, the choice of how to run, the cache, and the guard of arrays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.ir import is_tracing
from ftrans.runtime import cache_clear, cache_info, guard, run
from ftrans.runtime.executable import Executable
from ftrans.runtime.jaxlink import host_sharding
from tests.helpers import assert_close

V = np.array([0.5, -1.0, 2.0])


@pytest.fixture(params=["interpret", "compile", "auto"])
def execution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(config, "execution", request.param)
    return request.param


def wave(x: Any) -> Any:
    return (fnp.tanh(x) * x).sum()


TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "grad": func.grad(wave),
    "value_and_grad": func.value_and_grad(wave),
    "jvp": lambda x: func.jvp(wave, (x,), (x,)),
    "vjp": lambda x: func.vjp(fnp.sin, x)[1](x),
    "linearize": lambda x: func.linearize(fnp.sin, x)[1](x),
    "vmap": func.vmap(lambda v: v * 2),
    "hessian": func.hessian(wave),
    "jacrev": func.jacrev(fnp.sin),
    "hvp": lambda x: func.hvp(wave, x, x),
    "scan": lambda x: ftrans.scan(lambda c, v: (c + v, c * v), x[0], x),
    "cond": lambda x: ftrans.cond(True, fnp.sin, fnp.cos, x),
    "identity": func.vmap(lambda v: v),
    "vjp of the identity": lambda x: func.vjp(lambda v: v, x)[1](x),
}


# ------------------------------------------------------------------------------------ containers


@pytest.mark.parametrize("name", TRANSFORMED)
def test_numpy_in_numpy_out(name: str, execution: str) -> None:
    x = V.copy()
    with_array = jax.tree.leaves(TRANSFORMED[name](x))
    assert with_array
    for out in with_array:
        assert type(out) is np.ndarray
        assert out.dtype == np.float64
        assert out.flags.writeable
        assert out.flags.owndata
        assert not np.shares_memory(out, x)
    for i, out in enumerate(with_array):
        assert not any(np.shares_memory(out, other) for other in with_array[:i])
        out[...] = 7.0  # the caller's own
    assert_close(x, V)
    again = jax.tree.leaves(TRANSFORMED[name](x))
    assert not any(np.all(out == 7.0) for out in again)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_jax_in_jax_out(name: str, execution: str) -> None:
    x = jax.numpy.asarray(V, "float32")
    expected = jax.tree.leaves(TRANSFORMED[name](V.astype("float32")))
    found = jax.tree.leaves(TRANSFORMED[name](x))
    for out, reference in zip(found, expected, strict=True):
        assert isinstance(out, jax.Array)
        assert out.dtype == np.float32
        assert_close(out, reference, 1e-5)


def test_one_jax_array_among_the_arguments_is_enough(execution: str) -> None:
    gradient = func.grad(lambda p, x: (p["w"] * x).sum())
    found = gradient({"w": V.astype("f4")}, jax.numpy.ones(3, "float32"))
    assert isinstance(found["w"], jax.Array)
    found = gradient({"w": V.astype("f4")}, x=jax.numpy.ones(3, "float32"))
    assert isinstance(found["w"], jax.Array)


def test_what_is_captured_does_not_choose_the_container(execution: str) -> None:
    data = jax.numpy.ones(3, "float32")
    assert type(func.grad(lambda x: (x * data).sum())(V.astype("f4"))) is np.ndarray


def test_scalars_of_python_and_numpy(execution: str) -> None:
    for x in (2.0, np.float64(2.0), np.array(2.0)):
        found = func.grad(lambda x: x**3)(x)
        assert type(found) is np.ndarray
        assert found.shape == ()
        assert found.dtype == np.float64
        assert float(found) == 12.0


# --------------------------------------------------------------------------- double precision, JAX


def configuration() -> dict[str, Any]:
    return dict(jax.config.values)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_float64_leaves_the_configuration_of_jax_as_it_is(name: str, execution: str) -> None:
    before = configuration()
    assert not jax.config.read("jax_enable_x64")
    for dtype in ("float64", "float32"):
        for out in jax.tree.leaves(TRANSFORMED[name](V.astype(dtype))):
            assert out.dtype == dtype
    assert configuration() == before
    assert jax.numpy.ones(3).dtype == np.float32
    assert jax.numpy.asarray(V).dtype == np.float32
    with pytest.raises(ZeroDivisionError):
        func.grad(lambda x: x * (1 / 0))(2.0)
    assert configuration() == before


def test_precision_is_that_of_the_dtype(execution: str) -> None:
    third = func.grad(lambda x: x * (1.0 / 3.0))(np.float64(1.0))
    assert float(third) == 1 / 3
    assert float(func.grad(lambda x: x / 3)(np.float32(1.0))) == float(np.float32(1) / 3)
    big = func.vmap(lambda n: n + 1)(np.array([2**53]))
    assert big.dtype == np.int64
    assert int(big[0]) == 2**53 + 1


def test_double_precision_arrays_of_jax() -> None:
    with jax.enable_x64(True):
        x = jax.numpy.asarray(V)
    found = func.grad(wave)(x)
    assert isinstance(found, jax.Array)
    assert found.dtype == np.float64
    assert_close(found, func.grad(wave)(V))


# --------------------------------------------------------------------------------- how it is run


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_way_to_run_agrees(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = V.astype(dtype)
    found = {}
    for choice in ("interpret", "compile", "auto"):
        monkeypatch.setattr(config, "execution", choice)
        found[choice] = [jax.tree.leaves(TRANSFORMED[name](x)) for _ in range(2)]
    reference = found["interpret"][0]
    for runs in found.values():
        for leaves in runs:
            for out, expected in zip(leaves, reference, strict=True):
                assert out.dtype == expected.dtype
                assert_close(out, expected, 1e-6 if dtype == "float32" else 1e-13)


def test_the_choice_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts() -> tuple[int, int]:
        info = cache_info()
        return info.interpreted, info.compiled

    cache_clear()
    monkeypatch.setattr(config, "execution", "interpret")
    func.grad(lambda x: (x**3 * 1.25).sum())(V)
    assert counts() == (1, 0)
    monkeypatch.setattr(config, "execution", "compile")
    func.grad(lambda x: (x**3 * 1.25).sum())(V)
    func.grad(lambda x: (x**3 * 1.25).sum())(V)
    assert counts() == (1, 1), "equal programs share what is compiled"
    with pytest.raises(ValueError, match=r"config\.execution: 'fast' is none of auto, measured"):
        config.execution = "fast"  # type: ignore[assignment]


def test_what_is_run_often_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "auto")
    cache_clear()
    x = np.ones((200, 200))
    gradient = func.grad(lambda x: (fnp.sin(x @ x) * 0.777).sum())
    for _ in range(2000):
        gradient(x)
        if cache_info().compiled:
            break
    assert cache_info().compiled == 1
    assert cache_info().interpreted >= 1


def test_warnings_of_numpy_stay_inside(execution: str) -> None:
    with np.errstate(all="raise"):
        found = func.grad(lambda x: (fnp.log(x) + 1 / x).sum())(np.zeros(2))
    assert not np.isfinite(found).any()


# ------------------------------------------------------------------------------------- the cache


def test_cache_counts() -> None:
    cache_clear()
    assert cache_info()[:5] == (0, 0, 0, 0, 0)
    gradient = func.grad(lambda x: (x * 3.25).sum())
    gradient(V)
    first = cache_info()
    assert (first.hits, first.misses, first.entries) == (0, 1, 1)
    for _ in range(3):
        gradient(V)
    assert cache_info().hits == 3
    gradient(V.astype("f4"))
    assert cache_info().misses == 2
    cache_clear()
    assert cache_info().entries == 0
    assert_close(gradient(V), np.full(3, 3.25))


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_clear()
    monkeypatch.setattr(config, "cache_entries", 4)
    for n in range(1, 9):
        func.grad(lambda x: (x * 2).sum())(np.ones(n))
    info = cache_info()
    assert (info.entries, info.limit, info.misses) == (4, 4, 8)


def test_run_takes_programs() -> None:
    program = ftrans.trace(lambda x, y: (x @ y, y))(np.ones((2, 3)), np.ones(3))
    found = run(program, [np.ones((2, 3)), V])
    assert_close(found[0], np.full(2, V.sum()))
    assert_close(found[1], V)
    assert not np.shares_memory(found[1], V)
    as_jax = run(program, [np.ones((2, 3)), V], as_jax=True)
    assert isinstance(as_jax[0], jax.Array)
    assert as_jax[0].dtype == np.float64


def test_programs_without_inputs_outputs_or_equations(execution: str) -> None:
    nothing = ftrans.trace(lambda x: ())(V)
    assert run(nothing, [V]) == []
    assert run(nothing, [jax.numpy.asarray(V, "float32")]) == []
    constant = ftrans.trace(lambda: fnp.sin(np.float64(2.0)) * 1.0)()
    found = run(constant, constant_inputs(constant))
    assert all(type(out) is np.ndarray for out in found)
    same = ftrans.trace(lambda x: (x, x, x))(V)
    outs = run(same, [V])
    assert all(out.flags.writeable and not np.shares_memory(out, V) for out in outs)
    assert not np.shares_memory(outs[0], outs[1])
    empty = np.ones((0, 3))
    (found,) = run(ftrans.trace(lambda x: fnp.sin(x).sum(0))(empty), [empty])
    assert_close(found, np.zeros(3))


def constant_inputs(program: ftrans.Program) -> list[np.ndarray]:
    return [np.ones(t.shape, t.dtype) for t in program.inputs]


# -------------------------------------------------------------------------------- how it is called

SCALARS = ["float64", "float32", "float16", "bfloat16", "int64", "int8", "uint64", "bool"]


def dot_of_scalars(*values: Any) -> Any:
    total = fnp.zeros((), "float64")
    for k, value in enumerate(values):
        total = total + fnp.astype(value, "float64") * (k + 1.0)
    return total, values[::-1]


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_scalars_travel_packed(repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    generator = np.random.default_rng(repeats)
    values = [
        np.asarray(generator.integers(0, 2 if dtype == "bool" else 100)).astype(dtype_of(dtype))
        for dtype in SCALARS * repeats
    ]
    program = ftrans.trace(dot_of_scalars)(*values)
    arrays = [*values, *[np.zeros(t.shape, t.dtype) for t in program.inputs[len(values) :]]]
    total, *back = run(program, arrays)
    expected = sum(float(value) * (k + 1) for k, value in enumerate(values))
    assert_close(total, np.float64(expected))
    for out, value in zip(back, reversed(values), strict=True):
        assert out.dtype == value.dtype
        assert out == value
    executable = program.memo["plan"].state.executable
    arguments = len(executable._pack.types) if executable._pack else len(arrays)
    rest = len(arrays) - len(values)
    if repeats > 1:
        assert arguments <= len(SCALARS) + rest
    # with some of them on a device
    for pattern in range(8):
        mixed = [
            jax.numpy.asarray(v) if v.dtype == np.float32 and pattern >> (k % 3) & 1 else v
            for k, v in enumerate(values)
        ]
        total, *back = run(program, [*mixed, *arrays[len(values) :]], as_jax=False)
        assert_close(total, np.float64(expected))
        assert all(out == value for out, value in zip(back, reversed(values), strict=True)), pattern
    assert len(executable._by_pattern) <= 5


def dtype_of(name: str) -> Any:
    return jax.numpy.dtype(name)


def test_extreme_scalars_keep_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    values = [np.array(v) for v in (np.nan, -0.0, 5e-324, np.inf, 1.7e308, 2.0**53 + 2)]
    found = run(ftrans.trace(lambda *xs: xs)(*values), values)
    assert [out.tobytes() for out in found] == [v.tobytes() for v in values]
    integers = [np.array(v) for v in (2**63 - 1, -(2**63), 0)]
    found = run(ftrans.trace(lambda *xs: xs)(*integers), integers)
    assert [int(out) for out in found] == [int(v) for v in integers]


def aligned(size: int) -> np.ndarray:
    """An array that JAX takes without a copy, since it begins where XLA wants it to."""
    room = np.empty(4 * size + 128, "u1")
    start = -room.ctypes.data % 128
    return room[start : start + 4 * size].view("f4")


def test_results_of_jax_do_not_follow_arrays_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    for size in (16, 1 << 20):
        program = ftrans.trace(lambda x, y: (x, x * y, fnp.cumsum(fnp.sin(x)) * y))(
            np.ones(size, "f4"), np.ones(size, "f4")
        )
        device = jax.numpy.ones(size, "float32")
        for _ in range(4):  # JAX takes another way from its second or third call on
            x = aligned(size)
            x[:] = 0.5
            outs = run(program, [x, device])
            x[:] = 7.0
            expected = np.full(size, 0.5, "f4")
            assert_close(outs[0], expected)
            assert_close(outs[1], expected)
            assert_close(outs[2], np.cumsum(np.sin(expected), dtype="f4"), 1e-3)


def test_a_call_that_races_with_writes_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")

    def powers(m: Any, one: Any, turns: int) -> Any:
        product = m
        for _ in range(turns):
            product = product @ m * one
        return product

    for size, turns in ((128, 200), (600, 3)):  # the first is copied, the second waited for
        one = jax.numpy.full((), 1 / size, "float32")
        example = np.ones((size, size), "f4"), np.ones((), "f4")
        program = ftrans.trace(lambda m, one, turns=turns: powers(m, one, turns))(*example)
        for _ in range(4):
            m = aligned(size * size).reshape(size, size)
            m[:] = 1.0
            (out,) = run(program, [m, one])
            m[:] = 0.0
            assert_close(out, np.ones((size, size)).astype("f4"), 1e-3)


def test_arrays_stay_on_their_devices() -> None:
    script = """
import jax, numpy as np, ftrans, ftrans.numpy as fnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
x = np.arange(8.0, dtype="f4")
gradient = ftrans.grad(lambda x: (fnp.sin(x) * x).sum())
split = NamedSharding(Mesh(np.array(jax.devices()), ("a",)), PartitionSpec("a"))
for execution in ("interpret", "auto", "compile", "auto"):
    ftrans.config.execution = execution
    for place in (jax.devices()[1], jax.devices()[0], split):
        given = jax.device_put(x, place)
        found = gradient(given)
        assert found.sharding.is_equivalent_to(given.sharding, 1), (execution, place)
        np.testing.assert_allclose(found, np.cos(x) * x + np.sin(x), rtol=1e-5)
    np.testing.assert_allclose(gradient(x), np.cos(x) * x + np.sin(x), rtol=1e-5)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------- the guard


def is_free() -> bool:
    return not guard._held and not guard._waiting and not is_tracing()


def test_captured_arrays_are_read_only_while_traced() -> None:
    data, argument = np.ones(3), V.copy()
    seen = []

    def g(x: Any) -> Any:
        seen.append((data.flags.writeable, argument.flags.writeable))
        y = x * data
        seen.append((data.flags.writeable, argument.flags.writeable))
        for array in (data, argument):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 5.0
        return y.sum()

    func.grad(g)(argument)
    assert seen == [(True, False), (False, False)]
    assert data.flags.writeable
    assert argument.flags.writeable
    assert is_free()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_arrays_are_released_after_exceptions(error: type[BaseException]) -> None:
    data = np.ones(3)

    def f(x: Any) -> Any:
        def inner(y: Any) -> Any:
            z = y * data
            assert not data.flags.writeable
            raise error(str(z.shape))

        return func.grad(inner)(x * data)

    for call in (func.grad(f), func.vmap(f), ftrans.jit(f)):
        with pytest.raises(error):
            call(V)
        assert data.flags.writeable
        assert is_free()


def test_views_and_bases_are_held_together() -> None:
    base = np.ones((3, 4))
    view, sibling = base[1:, ::2], base[0]

    def f(x: Any) -> Any:
        y = (x * view).sum()
        assert not view.flags.writeable
        assert not base.flags.writeable
        # a limit: NumPy does not know the other views of an array, so they cannot be held
        assert sibling.flags.writeable
        return y

    func.grad(f)(np.ones((2, 2)))
    assert all(array.flags.writeable for array in (view, base, sibling))
    assert is_free()


def test_arrays_that_were_read_only_stay_so() -> None:
    fixed = np.ones(3)
    fixed.flags.writeable = False
    view = np.broadcast_to(np.ones(1), (3,))
    func.grad(lambda x: (x * fixed * view).sum())(V)
    assert not fixed.flags.writeable
    assert not view.flags.writeable
    assert is_free()


def test_nested_traces_hold_an_array_once_each() -> None:
    data = np.ones(3)
    states = []

    def f(x: Any) -> Any:
        inner = func.grad(lambda y: (y * data).sum())(x)
        states.append(data.flags.writeable)
        out = (inner * data * x).sum()
        states.append(data.flags.writeable)
        return out

    func.grad(f)(V)
    assert states[1] is False
    assert data.flags.writeable
    assert is_free()


def test_a_view_waits_for_its_base() -> None:
    base = np.ones((2, 3))
    view = base[0]
    of_view: list[Any] = []
    of_base: list[Any] = []
    guard.hold([view], of_view)
    guard.hold([base], of_base)
    guard.release(of_view)
    assert not view.flags.writeable, "the base is still in use"
    guard.release(of_base)
    assert view.flags.writeable
    assert base.flags.writeable
    assert is_free()
    guard.hold([3.0], of_base)
    guard.hold([jax.numpy.ones(3)], of_base)
    assert not of_base


class Foreign:
    """Lends its memory to NumPy, as a tensor of another library does."""

    def __init__(self) -> None:
        self.array = np.array([1.0, 2.0, 3.0])
        self.__array_interface__ = self.array.__array_interface__


def test_memory_of_another_library_stays_writeable() -> None:
    lent = np.asarray(Foreign())
    for _ in range(2):
        assert_close(func.grad(lambda x: (x * x).sum())(lent), [2.0, 4.0, 6.0])
        assert_close(func.grad(lambda x: (x * lent[1:]).sum())(np.ones(2)), [2.0, 3.0])
    lent[0] = 5.0
    assert is_free()


def test_two_threads_share_an_array() -> None:
    data = np.ones(3)
    first_in, second_done = threading.Event(), threading.Event()
    states: dict[str, bool] = {}
    failures: list[BaseException] = []

    def slow(x: Any) -> Any:
        y = x * data
        first_in.set()
        assert second_done.wait(30)
        states["after the other has returned"] = data.flags.writeable
        return y.sum()

    def work() -> None:
        try:
            func.grad(slow)(V)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert first_in.wait(30)
    states["before"] = data.flags.writeable
    func.grad(lambda x: (x * data).sum())(V)
    states["between"] = data.flags.writeable
    second_done.set()
    thread.join()
    assert not failures
    assert states == {"before": False, "between": False, "after the other has returned": False}
    assert data.flags.writeable
    assert is_free()


def test_many_threads_leave_arrays_writeable() -> None:
    data = np.arange(12.0).reshape(3, 4)
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in range(20):
                view = data[n % 3]
                found = func.grad(lambda x, v=view: (x * v * data).sum() * k)(np.ones(4))
                assert_close(found, k * view * data.sum(0), 1e-12)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert data.flags.writeable
    assert is_free()


# --------------------------------------------------------------------------- the client of the host


def test_programs_on_numpy_arrays_have_a_client_to_themselves() -> None:
    place = host_sharding()
    assert place is not None
    (device,) = place.device_set
    assert device.platform == "cpu"
    assert device not in jax.devices(), "JAX's own may hand it to another thread"
    executable = Executable(ftrans.trace(fnp.sin)(1.0))
    executable.prepare([np.asarray(1.0)], host=True)
    assert executable._host is not None
    assert executable._host.output_shardings == [place]


def test_small_results_come_back_together_and_are_the_callers_own() -> None:
    def several(x: Any) -> Any:
        large = fnp.ones((64, 64)) * x[0]
        return x.sum(), x * 2, fnp.argmax(x), x > 0, x[:0], large, x * 1j, x.sum() > 3, x * 2, x

    x = np.arange(3.0)
    executable = Executable(ftrans.trace(several)(x))
    for own in (True, False):
        found = executable.host([x], own=own)
        for y, z in zip(found, several(x), strict=True):
            assert (type(y), y.dtype, y.shape) == (np.ndarray, np.asarray(z).dtype, np.shape(z))
            assert_close(y, z, 0)
            assert not own or (y.flags.owndata and y.flags.writeable and y.flags.c_contiguous)


def test_functions_that_are_bound_to_devices_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    there = jax.device_put(jnp.arange(3.0), jax.devices()[0])
    times = ftrans.from_jax(lambda x: jax.device_put(x * there, jax.devices()[0]))
    assert_close(func.grad(lambda x: times(x).sum())(np.ones(3, "float32")), [0, 1, 2], 0)


def test_a_jax_that_makes_no_second_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> Any:
        raise TypeError("another signature")

    monkeypatch.setattr(config, "execution", "compile")
    monkeypatch.setattr("jaxlib.xla_client.make_cpu_client", refuse)
    host_sharding.cache_clear()
    try:
        assert host_sharding() is None
        found = func.grad(lambda x: (fnp.sin(x) * 17).sum())(np.arange(3.0))
        assert_close(found, 17 * np.cos(np.arange(3.0)), 1e-12)
    finally:
        host_sharding.cache_clear()


def test_results_of_a_program_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    m = np.random.default_rng(0).normal(size=(300, 300)).astype("float32")
    for _ in range(3):
        found = func.grad(lambda a: ((a @ a) @ a).sum())(m)
        ones = np.ones_like(m)
        expected = ones @ (m @ m).T + m.T @ ones @ m.T + (m @ m).T @ ones
        assert_close(found, expected, 2e-2)


@pytest.mark.parametrize("execution", ["interpret", "compile"])
def test_results_are_contiguous(execution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "execution", execution)
    x, w = np.arange(12.0).reshape(4, 3), np.arange(15.0).reshape(3, 5)
    loss = lambda w, x: ((x @ w) ** 2).sum()  # noqa: E731
    for found in (
        ftrans.vmap(ftrans.grad(loss), (None, 0))(w, x),
        ftrans.grad(lambda w: (x @ w).sum())(w),
        ftrans.func.hessian(lambda w: loss(w, x[0]))(w),
        ftrans.vmap(lambda x: x.T)(np.zeros((2, 3, 4))),
        ftrans.vmap(lambda x: x * 2, 1, 1)(np.asfortranarray(x)),
        ftrans.func.vjp(lambda x: x.T, x)[0],
    ):
        assert found.flags.c_contiguous
        assert found.flags.owndata
        assert found.flags.writeable
