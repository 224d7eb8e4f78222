"""The thread that compiles while calls go on, where the choice is by estimates."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import cache_info, config, func
from ftrans.runtime import cache
from ftrans.runtime.executable import Executable
from ftrans.runtime.policy import Price
from tests.helpers import Refuses, assert_close, finished

X = np.linspace(0.1, 1.0, 5)
BEGIN, SWITCH = 6, 11
"""The numbers of the call in which the thread begins, and of the first compiled one."""


def bent(x: Any) -> Any:
    return (fnp.sin(x) * x).sum()


EXPECTED = np.cos(X) * X + np.sin(X)


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Makes each call save about a second, of ten that compiling costs."""
    monkeypatch.setattr(config, "execution", "auto")
    monkeypatch.setattr(config, "skip_python", False)
    monkeypatch.setattr("ftrans.runtime.choice.price_of", lambda _: Price(1.0, 0.01, 10.0, 0.99))
    ftrans.cache_clear()
    return monkeypatch


def calls(count: int, x: Any = X) -> list[tuple[str, str]]:
    """Returns the roads of so many calls, and the reasons."""
    for _ in range(count):
        assert_close(func.grad(bent)(x), EXPECTED)
    return [(call.road, call.reason) for call in ftrans.explain(last=count)]


WAITS = ("interpreted", "it is being compiled in the background")


@pytest.mark.parametrize("container", [np.asarray, jax.numpy.asarray])
@pytest.mark.parametrize("ends", ["at once", "late"])
def test_which_call_is_the_first_compiled_one_depends_on_calls_alone(
    priced: pytest.MonkeyPatch, ends: str, container: Any
) -> None:
    begun, go = threading.Event(), threading.Event()
    prepare = Executable.prepare
    where = []

    def slow(self: Any, *args: Any, **kwargs: Any) -> None:
        where.append(threading.current_thread().name)
        begun.set()
        assert go.wait(60)
        prepare(self, *args, **kwargs)

    priced.setattr(Executable, "prepare", slow)
    with jax.enable_x64(True):
        x = container(X)
    roads = calls(BEGIN - 1, x)
    assert {road for road, _ in roads} == {"interpreted"}
    assert "it is being compiled" not in str(roads)
    assert calls(1, x) == [WAITS]
    assert begun.wait(60)
    if ends == "at once":
        go.set()
        assert finished(60)
    assert calls(SWITCH - BEGIN - 1, x) == [WAITS] * (SWITCH - BEGIN - 1)
    assert cache_info().compiled == 0
    if ends == "late":
        threading.Timer(0.05, go.set).start()
    (switched,) = calls(1, x)
    assert switched[0] == "compiled now"
    assert "of 10 s that compiling costs" in switched[1]
    assert calls(2, x) == [("compiled", "it was compiled before")] * 2
    assert cache_info().compiled == 1
    assert where == ["ftrans-compile"]


def test_what_the_thread_has_not_come_to_is_compiled_by_who_needs_it(
    priced: pytest.MonkeyPatch,
) -> None:
    begun, go = threading.Event(), threading.Event()
    prepare = Executable.prepare

    def slow(self: Any, *args: Any, **kwargs: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go.wait(60)
        prepare(self, *args, **kwargs)

    priced.setattr(Executable, "prepare", slow)
    for _ in range(BEGIN):
        func.grad(lambda x: (x * x * x).sum())(X)
    assert begun.wait(60)
    assert calls(SWITCH)[-1][0] == "compiled now"  # which was queued behind it
    assert cache_info().compiled == 1
    go.set()
    assert finished(60)
    assert calls(1)[0][0] == "compiled"


def test_a_failure_is_told_by_the_call_that_would_be_compiled(priced: pytest.MonkeyPatch) -> None:
    priced.setattr(Executable, "prepare", Refuses(RuntimeError("no such instruction")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calls(BEGIN)
        assert finished(60)
        assert calls(SWITCH - BEGIN - 1)[-1] == WAITS
    with pytest.warns(RuntimeWarning, match=r"grad\(bent\): XLA could not compile it"):
        calls(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calls(2)[-1] == ("interpreted", "XLA could not compile it")


def test_what_is_cleared_begins_anew(priced: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        calls(BEGIN)
        assert finished(60)
        ftrans.cache_clear()
    roads = [road for road, _ in calls(SWITCH)]
    assert roads == ["interpreted"] * (SWITCH - 1) + ["compiled now"]


@pytest.mark.parametrize("then", ["measured", "compile"])
def test_what_is_ready_serves_the_other_settings(priced: pytest.MonkeyPatch, then: str) -> None:
    calls(BEGIN)
    assert finished(60)
    priced.setattr(config, "execution", then)
    priced.setattr("ftrans.runtime.measured._SLOWER", 1e9)
    priced.setattr(Executable, "prepare", Refuses(RuntimeError("it was compiled before")))
    priced.setattr("ftrans.runtime.choice.PART", 0.0)
    calls(2)
    assert calls(1)[0][0] == "compiled"
    assert cache_info().compiled == 1


def test_where_there_can_be_no_thread_calls_compile(priced: pytest.MonkeyPatch) -> None:
    def refuses(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    priced.setattr(threading.Thread, "start", refuses)
    roads = [road for road, _ in calls(SWITCH)]
    assert roads == ["interpreted"] * (SWITCH - 1) + ["compiled now"]


def test_what_is_ready_counts_among_the_bytes(priced: pytest.MonkeyPatch) -> None:
    calls(BEGIN)
    assert finished(60)
    assert cache_info().nbytes > 0
    assert cache_info().compiled == 0
    priced.setattr(config, "cache_bytes", 1)
    for _ in range(BEGIN):
        func.grad(lambda x: (x * x * x).sum())(X)
    assert finished(60)
    kept = [state.ready for state in cache._states if state.code is not None]
    assert len(kept) == 1  # the newest
    assert calls(SWITCH)[-1][0] == "compiled now"


def test_what_failed_beside_is_tried_again_by_other_settings(
    priced: pytest.MonkeyPatch,
) -> None:
    with priced.context() as failing:
        failing.setattr(Executable, "prepare", Refuses(MemoryError("none left")))
        calls(BEGIN)
        assert finished(60)
    priced.setattr(config, "execution", "measured")
    priced.setattr("ftrans.runtime.choice.PART", 0.0)
    priced.setattr("ftrans.runtime.measured._SLOWER", 1e9)
    calls(2)
    assert finished(60)
    assert calls(1)[0][0] == "compiled"


def test_a_fork_of_what_has_used_xla_interprets() -> None:
    script = """
import os, time, warnings
import jax, numpy as np, ftrans
from ftrans.runtime import choice
from ftrans.runtime.policy import Price
warnings.simplefilter("ignore")
choice.price_of = lambda program: Price(1.0, 0.01, 10.0, 0.99)
ftrans.config.skip_python = False
jax.block_until_ready(jax.numpy.ones(3) + 1)
f = ftrans.grad(lambda x: (x * x * x).sum())
child = os.fork()
if not child:
    right = all(np.array_equal(f(np.ones(3)), 3 * np.ones(3)) for _ in range(20))
    why = ftrans.explain(last=1)[0]
    os._exit(0 if right and "fork" in why.reason and why.road == "interpreted" else 1)
for _ in range(300):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.1)
print(done == child and os.waitstatus_to_exitcode(status))
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "0\n", ran.stderr


def test_a_fork_waits_for_what_is_being_compiled() -> None:
    script = """
import os, threading, time, warnings
import numpy as np, ftrans
from ftrans.runtime import background, choice
from ftrans.runtime.executable import Executable
from ftrans.runtime.policy import Price
warnings.simplefilter("ignore")
choice.price_of = lambda program: Price(1.0, 0.0, 10.0, 1.0)
begun, done, prepare = threading.Event(), [], Executable.prepare
def slow(self, *args, **kwargs):
    begun.set()
    time.sleep(0.3)
    prepare(self, *args, **kwargs)
    done.append(None)
Executable.prepare = slow
ftrans.config.skip_python = False
f = ftrans.grad(lambda x: (x * x * x).sum())
for _ in range(6):
    f(np.ones(3))
assert begun.wait(60)
child = os.fork()
if not child:
    held = not done or not background._working.acquire(timeout=10)
    for _ in range(4):  # all that is interpreted
        held |= not np.array_equal(f(np.ones(3)), 3 * np.ones(3))
    os._exit(int(held))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "0\n", ran.stderr
