"""Full collections wait while a long function is traced; whatever happens, they come back."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.ir.collector import _NEVER, LONG, uncollected

X = np.ones(3)
COUNT = itertools.count()
USUAL = (600, 9, 11)


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    assert gc.isenabled()
    gc.set_threshold(*before)


def seen(found: list[Any], also: Any = None) -> Any:
    """Returns a new long function that notes the thresholds."""

    def f(x: Any) -> Any:
        for _ in range(LONG + 10):
            x = x + 1.0
        found.append(gc.get_threshold())
        if also is not None:
            also(x)
        return (x * x).sum()

    f.__name__ = f"f{next(COUNT)}"  # else it is traced along the one before
    return f


@pytest.mark.parametrize("transform", [func.grad, ftrans.jit, func.vmap])
def test_they_wait_while_what_is_long_is_traced(transform: Any) -> None:
    found: list[Any] = []
    transform(seen(found))(np.ones((3, 3)) if transform is func.vmap else X)
    assert found == [(*USUAL[:2], _NEVER)]
    assert gc.get_threshold() == USUAL


def test_inner_transforms_and_errors_and_interrupts() -> None:
    found: list[Any] = []
    func.grad(seen(found, lambda x: func.grad(seen(found))(x)))(X)
    assert {t[2] for t in found} == {_NEVER}
    assert gc.get_threshold() == USUAL

    def fails(x: Any) -> None:
        raise KeyError("here")

    def interrupts(x: Any) -> None:
        raise KeyboardInterrupt

    for also, error in ((fails, KeyError), (interrupts, KeyboardInterrupt)):
        with pytest.raises(error):
            func.grad(seen([], also))(X)
        assert gc.get_threshold() == USUAL


def test_what_a_user_sets_meanwhile_stays() -> None:
    func.grad(seen([], lambda x: gc.set_threshold(500, 5, 5)))(X)
    assert gc.get_threshold() == (500, 5, 5)


def test_threads_wait_for_each_other() -> None:
    inside, leave, found = threading.Event(), threading.Event(), []

    def waits(x: Any) -> None:
        inside.set()
        leave.wait(10)

    thread = threading.Thread(target=func.grad(seen([], waits)), args=(X,))
    thread.start()
    inside.wait(10)
    func.grad(seen(found))(X)
    assert gc.get_threshold()[2] == _NEVER  # the other one goes on
    leave.set()
    thread.join()
    assert gc.get_threshold() == USUAL


def test_garbage_of_users_is_collected_meanwhile() -> None:
    freed = 0

    class Node:
        def __del__(self) -> None:
            nonlocal freed
            freed += 1

    def f(x: Any) -> Any:
        for _ in range(5000):
            node: Any = Node()
            node.me = node
            x = fnp.sin(x)
        return x.sum()

    func.grad(f)(X)
    assert freed > 4000


def test_uncollected_gives_back_what_was() -> None:
    assert uncollected(gc.isenabled) is False
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        uncollected(lambda: 1 / 0)
    assert gc.isenabled()
    gc.disable()
    try:
        uncollected(int)
        assert not gc.isenabled()
    finally:
        gc.enable()
