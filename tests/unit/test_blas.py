"""Small products are computed by one thread, and the number of threads is put back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.ir import Program
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime import blas, run
from tests.helpers import assert_close

THREADS = blas._threads(blas._NUMPYS)
pytestmark = pytest.mark.skipif(THREADS is None, reason="NumPy's BLAS here is not OpenBLAS")


def program_of(f: Any, *shapes: tuple[int, ...]) -> Program:
    return ftrans.trace(f)(*[np.ones(shape) for shape in shapes])


def test_what_is_small() -> None:
    product = lambda x, y: x @ y  # noqa: E731
    assert blas.is_small(program_of(product, (64, 64), (64, 64)))
    assert blas.is_small(program_of(product, (1000, 64, 64), (1000, 64, 64)))
    assert not blas.is_small(program_of(product, (300, 300), (300, 300)))
    assert not blas.is_small(program_of(product, (2, 300, 300), (2, 300, 300)))
    assert not blas.is_small(program_of(fnp.sin, (4,)))
    in_loop = lambda x: ftrans.scan(lambda c, _: (c @ x, None), x, None, length=2)[0]  # noqa: E731
    assert blas.is_small(program_of(in_loop, (32, 32)))
    assert not blas.is_small(program_of(in_loop, (4, 4)))  # BLAS takes one thread for it anyway
    assert not blas.is_small(program_of(in_loop, (300, 300)))
    assert blas.is_small(program_of(fnp.linalg.inv, (64, 64)))
    assert not blas.is_small(program_of(fnp.linalg.svdvals, (300, 300)))
    calls = ftrans.external(lambda x: np.asarray(x) @ np.asarray(x), lambda x: x)
    assert not blas.is_small(program_of(lambda x: calls(x @ x), (4, 4)))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Notes how many threads there are whenever a program is interpreted; there are three else."""
    assert THREADS is not None
    get, put = THREADS
    found: list[int] = []

    def noting(xp: Any, program: Program, arrays: Any) -> Any:
        found.append(get())
        return evaluate(xp, program, arrays)

    monkeypatch.setattr(sys.modules["ftrans.runtime.run"], "evaluate", noting)
    monkeypatch.setattr(config, "execution", "interpret")
    before = get()
    put(3)
    yield found
    assert get() == 3
    put(before)


def test_one_thread_and_back(seen: list[int]) -> None:
    x = np.ones((32, 32))
    func.grad(lambda x: (x @ x).sum())(x)
    func.grad(lambda x: fnp.sin(x).sum())(x)
    func.grad(lambda x: (x @ x).sum())(np.ones((300, 300)))
    assert seen == [1, 3, 3]


def test_what_fails_puts_it_back(seen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(lambda x: x @ x, (32, 32))
    with pytest.raises(ValueError, match="mismatch"):
        run(program, [np.ones((32, 2))])
    assert seen == [1]


def test_many_threads_of_python(seen: list[int]) -> None:
    start, wrong = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        for _ in range(50):
            found = func.grad(lambda x: (x @ x).sum())(np.ones((32, 32)))
            if not np.array_equal(found, np.full((32, 32), 64.0)):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(seen) == {1}


def test_scipys_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.linalg.lapack  # noqa: F401

    threads = blas._threads(blas._SCIPYS)
    if threads is None:
        pytest.skip("SciPy's BLAS here is not OpenBLAS")
    get, put = threads
    before = get()
    put(3)
    assert blas.is_small(program_of(lambda x: x @ x, (32, 32)))
    with blas.one_thread:
        assert get() == 1
    assert get() == 3
    put(before)


def test_it_works_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_threads", lambda module: None)
    monkeypatch.setattr(config, "execution", "interpret")
    assert_close(func.grad(lambda x: (x @ x).sum())(np.ones((2, 2))), np.full((2, 2), 4.0), 0)
