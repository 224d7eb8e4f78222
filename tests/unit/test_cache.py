"""The cache: its bounds, what it frees, what it may never mistake, and threads."""

from __future__ import annotations

import gc
import resource
import sys
import threading
import weakref
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.ir import Literal, Program
from ftrans.ir import location as locations
from ftrans.primitives import registry
from ftrans.runtime import cache, cache_clear, cache_info, on_clear, run
from tests.helpers import assert_close, sampled_rows
from tests.unit.clean import collect

X = np.array([0.5, -1.0, 2.0])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cache_clear()
    yield
    cache_clear()


@pytest.fixture
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def family(k: float) -> Any:
    """One of as many different programs as there are numbers: whole exponents are no inputs."""
    return lambda x: ((fnp.tanh(x) / 1000.0 + 1.0) ** round(100 * k) * x).sum()


def live() -> int:
    return len(Program._programs)


TRANSFORMED = {
    "grad": lambda k: func.grad(family(k))(X),
    "hessian": lambda k: func.hessian(family(k))(X),
    "vmap of grad": lambda k: func.vmap(func.grad(lambda v: fnp.sin(v) * k))(X),
    "vjp": lambda k: func.vjp(lambda v: fnp.sin(v) * k, X)[1](X),
    "linearize": lambda k: func.linearize(lambda v: fnp.sin(v) * k, X)[1](X),
    "scan": lambda k: func.grad(
        lambda v: ftrans.scan(lambda c, e: (c * k + e, c), v[0], v)[0],
    )(X),
    "loop": lambda k: func.grad(
        lambda v: ftrans.fori_loop(0, 3, lambda i, c: fnp.sin(c) * k, v).sum(),
    )(X),
    "cond": lambda k: func.grad(
        lambda v: ftrans.cond(v[0] > 0, lambda u: (u * k).sum(), lambda u: u.sum(), v),
    )(X),
}


# ---------------------------------------------------------------------------------- what is freed


@pytest.mark.parametrize(
    ("name", "execution"),
    [*product(TRANSFORMED, ["interpret"]), *sampled_rows(product(TRANSFORMED, ["compile"]), 3)],
)
@pytest.mark.usefixtures("without_gc")
def test_what_is_forgotten_is_freed_at_once(
    name: str, execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "execution", execution)
    TRANSFORMED[name](1.0)
    cache_clear()
    gc.collect()
    before = live()
    TRANSFORMED[name](1.5)
    assert live() > before
    cache_clear()
    assert live() == before


@pytest.mark.usefixtures("without_gc")
def test_executables_go_with_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    monkeypatch.setattr(config, "cache_entries", 1)
    program = ftrans.trace(family(1.25))(X)
    run(program, [X])
    state = weakref.ref(program.memo["plan"].state)
    executable = weakref.ref(state().executable)
    assert cache_info().nbytes == executable().nbytes > 0
    del program
    func.grad(family(2.5))(X)  # takes the one place
    assert executable() is None
    assert state() is None


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("execution", ["interpret", "compile"])
def test_nothing_but_programs_outlives_a_call(
    execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "execution", execution)

    def call() -> list[weakref.ref]:
        argument, captured = np.arange(4.0), np.arange(4.0) + 1
        scalar = np.array(2.0)
        device = jax.numpy.ones(4, "float32")
        gradient = func.grad(lambda x: (x * captured * scalar).sum())(argument)
        of_jax = func.grad(lambda x: (fnp.sin(x) * device).sum())(device)
        value, pullback = func.vjp(lambda x: fnp.sin(x) * captured, argument)
        (cotangent,) = pullback(value)
        held = (argument, captured, scalar, device, gradient, of_jax, value, cotangent)
        return [weakref.ref(x) for x in held]

    for _ in range(2):
        references = call()
        # JAX lets go of the NumPy arguments of its last call with the next one
        jax.block_until_ready(jax.numpy.sin(np.float32(1)))
        alive = [i for i, ref in enumerate(references) if ref() is not None]
        assert not alive


def test_captured_arrays_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    big = np.ones(1 << 23)  # 64 MiB
    taken = []
    array = np.array
    monkeypatch.setattr(
        np, "array", lambda x, *a, **k: taken.append(np.shape(x)) or array(x, *a, **k)
    )
    for execution in ("interpret", "compile"):
        monkeypatch.setattr(config, "execution", execution)
        func.grad(lambda x: (big * x).sum())(np.float64(2.0))
    assert big.shape not in taken


# --------------------------------------------------------------------------------------- its bounds


def test_compiled_code_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    programs = [ftrans.trace(family(k + 0.5))(X) for k in range(4)]
    run(programs[0], [X])
    size = cache_info().nbytes
    monkeypatch.setattr(config, "cache_bytes", 2 * size)

    def compiled() -> list[bool]:
        plans = [program.memo.get("plan") for program in programs]
        return [plan is not None and plan.state.executable is not None for plan in plans]

    run(programs[1], [X])
    assert compiled() == [True, True, False, False]
    run(programs[0], [X])  # used last, so the other goes first
    run(programs[2], [X])
    assert compiled() == [True, False, True, False]
    assert cache_info().nbytes == cache_info().nbytes_limit == 2 * size
    assert cache_info().compiled == 3
    expected = run(programs[1], [X])
    assert cache_info().compiled == 4
    assert_close(expected[0], family(1.5)(X))
    monkeypatch.setattr(config, "cache_bytes", 1)
    run(programs[3], [X])
    assert compiled() == [False, False, False, True], "what was just compiled stays"


@pytest.mark.slow
def test_a_flood_of_programs_levels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_entries", 40)
    monkeypatch.setattr(config, "cache_bytes", 4_000_000)
    page = resource.getpagesize()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    counts, memory = [], []
    for k in range(800):
        monkeypatch.setattr(config, "execution", "compile" if k % 20 == 0 else "interpret")
        found = func.grad(family(k / 7))(X)
        if k % 200 == 199:
            assert_close(found, jax_gradient(k / 7), 1e-5)
            counts.append(live())
            if sys.platform == "linux":
                memory.append(resident())
    info = cache_info()
    assert info.misses == 800
    assert info.compiled == 40
    assert info.entries == 40
    assert 0 < info.nbytes <= info.nbytes_limit
    assert max(counts) - min(counts) <= 0.1 * counts[0] + 20, counts
    if memory:  # the last four hundred programs, 20 of them compiled, add next to nothing
        assert memory[-1] - memory[1] < 24_000_000, memory


def test_a_flood_of_branches_levels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "interpret")
    monkeypatch.setattr(config, "cache_entries", 20)
    counts = []
    for k in range(300):
        TRANSFORMED["cond"](k + 0.5)
        if k % 100 == 99:
            counts.append(live())
    assert counts[2] <= 1.1 * counts[1] + 20, counts


def jax_gradient(k: float) -> Any:
    power = round(100 * k)
    with jax.enable_x64(True):
        return jax.grad(lambda x: ((jax.numpy.tanh(x) / 1000.0 + 1.0) ** power * x).sum())(X)


def test_clearing_clears_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    hook = on_clear(lambda: seen.append("hook"))
    try:
        monkeypatch.setattr(config, "execution", "compile")
        program = ftrans.trace(family(3.5))(X)  # alive, in the user's hands
        (before,) = run(program, [X])
        assert cache_info().nbytes > 0
        assert any(primitive._types for primitive in registry.values())
        assert locations._locations
        cache_clear()
        assert seen == ["hook"]
        assert cache_info()[:5] == (0, 0, 0, 0, 0)
        assert cache_info().nbytes == 0
        assert not any(primitive._types for primitive in registry.values())
        assert not locations._locations
        (after,) = run(program, [X])
        assert cache_info().compiled == 1
        assert_close(after, before)
    finally:
        from ftrans.runtime import cache

        cache._hooks.remove(hook)


# ------------------------------------------------------------------------------------ mistaken keys


def test_equality_decides_not_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Literal, "__hash__", lambda self: 7)
    factors = [1.5, 2.5, -0.0, 0.0, float("nan")]
    programs = [ftrans.trace(lambda x, k=k: x * k + k)(X) for k in factors]
    assert len({hash(program) for program in programs}) == 1
    assert len(set(programs)) == len(factors)
    for execution in ("interpret", "compile"):
        monkeypatch.setattr(config, "execution", execution)
        for k, program in zip(factors, programs, strict=True):
            assert_close(run(program, [X])[0], X * k + k)
    assert cache_info().compiled == len(factors)


# ------------------------------------------------------------------------------------------ threads


def test_threads_share_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_entries", 6)
    monkeypatch.setattr(config, "cache_bytes", 1_000_000)
    failures: list[BaseException] = []
    # JAX mistakes the dtype of an array that two threads use at a time, one in double precision
    factors = [k + 0.5 for k in range(12)]
    expected = [jax_gradient(k) for k in factors]

    def work(seed: int) -> None:
        try:
            for n in range(20):
                k = (seed * 7 + n) % 12
                assert_close(func.grad(family(factors[k]))(X), expected[k], 1e-5)
                if n % 10 == seed % 10:
                    cache_clear()
        except BaseException as error:
            failures.append(error)

    for execution in ("compile", "auto"):
        monkeypatch.setattr(config, "execution", execution)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_threads_compile_a_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "compile")
    program = ftrans.trace(family(9.5))(X)
    results: list[Any] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(30)
        results.append(run(program, [X])[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache_info().compiled == 1
    for found in results:
        assert_close(found, family(9.5)(X))


# ------------------------------------------------------------- functions that programs refer to


def by_external(table: Any) -> Any:
    return ftrans.external(
        lambda x: x * table, lambda x: x, transpose=lambda ct: ct * table, vmap_method="expand_dims"
    )


def by_external_jax(table: Any) -> Any:
    return ftrans.external.jax(lambda x: x * table)


def by_vmap_rule(table: Any) -> Any:
    class Doubled(ftrans.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 2 * (table.sum() / table.sum()), in_dims[0]

    return Doubled.apply


def by_custom_vmap(table: Any) -> Any:
    @ftrans.custom_vmap
    def doubled(x: Any) -> Any:
        return x * 2

    doubled.def_vmap(lambda size, batched, x: (x * 2 * (table.sum() / table.sum()), batched[0]))
    return doubled


@pytest.mark.parametrize(
    ("make", "uses", "kept"),
    [
        (by_external, 300, 256),
        (by_external_jax, 60, 32),  # each of them is lowered by JAX
        (by_vmap_rule, 300, 256),
        (by_custom_vmap, 300, 256),
    ],
)
def test_what_functions_made_at_each_call_close_over_is_let_go_of(
    make: Any, uses: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(k: int) -> weakref.ref[Any]:
        table = np.full(3, k + 1.0)
        function = make(table)
        func.grad(lambda x: function(x).sum())(np.ones(3))
        func.vmap(function)(np.ones((2, 3)))
        return weakref.ref(table)

    monkeypatch.setattr(cache, "_HOLDING", kept)
    cache_clear()
    found = [use(k) for k in range(uses)]
    collect()
    # each use makes two programs
    assert sum(table() is not None for table in found) <= kept / 2
    cache_clear()
    collect()
    assert [table() for table in found] == [None] * uses
