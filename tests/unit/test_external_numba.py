"""Functions of numba, called from compiled code in machine code."""

from __future__ import annotations

import threading
import traceback
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans.config import config
from ftrans.custom import external
from ftrans.errors import ArgumentError, RuleError
from ftrans.ir import ArrayType
from tests.helpers import assert_close, sampled, sampled_rows

numba = pytest.importorskip("numba", reason="numba is not installed")

X = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, 9.0]])
Y = np.array([2.0, -1.0])


def same(x: Any, *_: Any) -> Any:
    return x


@numba.njit
def scaled_sort(x: Any, y: Any) -> Any:
    return np.sort(x) * y[0]


@numba.njit
def picky(x: Any) -> Any:
    if x[0] > 0:
        raise ValueError("it is positive")
    return x + 1


@numba.cfunc("void(CPointer(float64), CPointer(float64))")
def double3(x: Any, out: Any) -> None:
    for i in range(3):
        out[i] = x[i] * 2


@pytest.mark.slow
def test_compiled_programs_call_machine_code() -> None:
    f = external(scaled_sort, same)
    for call in (f, ftrans.jit(f)):
        assert_close(call(X[0], Y), np.sort(X[0]) * 2)
    with jax.enable_x64(True):
        assert "ftrans_numba" in str(jax.jit(f).lower(X[0], Y).as_text())


# numba takes seconds for each: most are left to the slow tests
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "jit"), sampled_rows(product([(0, None), (None, 0), (0, 0)], [False, True]), 5)
)
def test_a_batch_is_a_loop_in_machine_code(dims: Any, jit: bool) -> None:
    f = external(scaled_sort, same)
    x, y = (X if dims[0] == 0 else X[0]), (Y[:, None] if dims[1] == 0 else Y)
    mapped = func.vmap(f, in_dims=dims)
    found = (ftrans.jit(mapped) if jit else mapped)(x, y)
    rows = [scaled_sort(x[i] if dims[0] == 0 else x, y[i] if dims[1] == 0 else y) for i in range(2)]
    assert_close(found, np.stack(rows))
    with jax.enable_x64(True):
        assert_close(jax.vmap(jax.jit(f), in_axes=dims)(x, y), np.stack(rows))


@pytest.mark.slow
def test_nested_batches() -> None:
    f = external(scaled_sort, same)
    z = np.array([[1.0], [2.0], [3.0]])
    found = func.vmap(func.vmap(f, in_dims=(None, 0)), in_dims=(0, None))(X, z)
    assert_close(found, np.sort(X)[:, None, :] * z[None])


@pytest.mark.parametrize("method", sampled(["expand_dims", "broadcast_all"], 2))
def test_a_batch_may_be_one_call(method: str) -> None:
    @numba.njit
    def add(x: Any, y: Any) -> Any:
        return x + y

    f = external(add, same, vmap_method=method)
    mapped = func.vmap(f, in_dims=(0, None))
    for call in (mapped, ftrans.jit(mapped)):
        assert_close(call(Y, np.float64(3.0)), Y + 3.0)


@numba.njit
def swap(a: Any, b: Any) -> Any:
    return b.copy(), a.copy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "shape"),
    sampled_rows(
        [
            ("bool", (2,)),
            ("int64", (2,)),
            ("complex64", (2, 3)),
            ("float32", ()),
            ("float32", (0,)),
        ],
        4,
    ),
)
def test_dtypes_and_shapes(dtype: str, shape: Any) -> None:
    x = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    f = external(swap, lambda a, b: (b, a))
    for call in (f, ftrans.jit(f)):
        first, second = call(x, np.ones_like(x))
        assert first.dtype == second.dtype == x.dtype
        assert np.array_equal(first, np.ones_like(x))
        assert np.array_equal(second, x)


def test_a_vectorized_function_is_taken() -> None:
    f = external(numba.vectorize(lambda a, b: a * b + 1), same, vmap_method="broadcast_all")
    for call in (f, ftrans.jit(f), func.vmap(f)):
        assert_close(call(Y, Y), Y * Y + 1)


def test_fixed_signatures_are_taken() -> None:
    f = external(numba.njit("float64[::1](float64[::1])")(lambda x: x * 2), same)
    for call in (f, ftrans.jit(f)):
        assert_close(call(X[0]), X[0] * 2)
    assert_close(func.vmap(f)(X), X * 2)


@pytest.mark.slow
def test_a_cfunc_is_taken_as_it_is() -> None:
    f = external(double3, same)
    for call in (f, ftrans.jit(f)):
        assert_close(call(X[0]), X[0] * 2)
    for call in (func.vmap(f), ftrans.jit(func.vmap(f))):
        assert_close(call(X), X * 2)
    assert_close(func.vmap(f, in_dims=1)(X.T), X * 2)
    with pytest.raises(RuleError, match=r"double3: a cfunc takes a pointer[^\0]*float64\*"):
        f(X[0].astype(np.float32))
    with pytest.raises(ArgumentError, match="not told sizes"):
        external(double3, same, vmap_method="broadcast_all")(X[0])


@pytest.mark.parametrize("jit", [False, True])
def test_errors_reach_the_caller(jit: bool) -> None:
    f = external(picky, same)
    call = ftrans.jit(f) if jit else f
    with pytest.raises(ValueError, match="it is positive") as caught:
        call(X[0])
    assert not any("custom" in e.filename for e in traceback.extract_tb(caught.tb))
    assert_close(call(-X[0]), 1 - X[0])


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.filterwarnings("ignore:.*numba made no handler")
def test_results_are_held_against_what_is_declared(jit: bool) -> None:
    for kernel, text in (
        (numba.njit(lambda x: x[:1]), "shape"),
        (numba.njit(lambda x: x.reshape((1, 3))), "shape"),
        (numba.njit(lambda x: x.astype(np.float32)), "dtype"),
    ):
        f = external(kernel, same)
        with pytest.raises(RuleError, match=text):
            (ftrans.jit(f) if jit else f)(X[0])


def test_what_numba_cannot_compile_goes_through_python() -> None:
    @numba.jit(forceobj=True)
    def objects(x: Any) -> Any:
        return np.array(sorted(x.tolist(), key=str))

    f = external(objects, same)
    with pytest.warns(RuntimeWarning, match="objects: compiled programs call it through Python"):
        assert_close(ftrans.jit(f)(X[0]), np.sort(X[0]))


def test_the_road_may_be_pinned() -> None:
    config.host_calls = "callback"
    try:
        assert_close(ftrans.jit(external(scaled_sort, same))(X[0], Y), np.sort(X[0]) * 2)
    finally:
        config.host_calls = "auto"


@pytest.mark.slow
def test_threads() -> None:
    f = ftrans.jit(external(scaled_sort, same))
    wrong = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(100):
            x = rng.normal(size=17)
            if not np.array_equal(f(x, Y), np.sort(x) * 2):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_loops_call_it_at_each_step() -> None:
    inc = external(numba.njit(lambda x: x + 1), same)

    def loop(x: Any) -> Any:
        return ftrans.scan(lambda c, _: (inc(c), None), x, None, length=100)[0]

    assert_close(loop(np.zeros(3)), np.full(3, 100.0))
    assert inc(np.zeros(())).shape == ()
    with pytest.raises(RuleError):
        external(numba.njit(lambda x: x), ArrayType((), "float32"))(np.zeros(()))
