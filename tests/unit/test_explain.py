"""What is interpreted and what compiled, and what `explain` says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.runtime import cache_clear, cache_info, note_trace, policy, run
from ftrans.runtime.explain import Call, _ring, duration
from tests.helpers import assert_close

X = np.array([0.5, -1.0, 2.0])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cache_clear()
    _ring.clear()
    yield
    cache_clear()


def loss(x: Any) -> Any:
    return (fnp.tanh(x) * x).sum()


def long(x: Any) -> Any:
    for _ in range(40):
        x = fnp.tanh(x) * 1.5 + 0.25
    return x.sum()


def roads() -> list[tuple[str, bool, str]]:
    return [(call.call, call.hit, call.road) for call in ftrans.explain()]


# ------------------------------------------------------------------------------------- what it says


def test_the_pinned_roads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(ftrans.explain()) == "No calls yet."
    monkeypatch.setattr(config, "execution", "interpret")
    func.grad(loss)(X)
    monkeypatch.setattr(config, "execution", "compile")
    func.grad(loss)(X)
    func.grad(loss)(X)
    assert roads() == [
        ("grad(loss)", False, "interpreted"),
        ("grad(loss)", True, "compiled now"),
        ("grad(loss)", True, "compiled"),
    ]
    reasons = [call.reason for call in ftrans.explain()]
    assert reasons == [
        "config.execution says so",
        "config.execution says so",
        "it was compiled before",
    ]
    assert all(call.seconds > 0 for call in ftrans.explain())


def test_the_reason_is_in_words() -> None:
    func.grad(lambda x: (x * x).sum())(X)
    func.grad(long)(X)
    cheap, dear = ftrans.explain()
    assert cheap.reason == "a compiled call would take as long"
    assert "so far, of" in dear.reason
    assert dear.reason.startswith("compiling would have saved ")
    cache_clear()
    program = ftrans.trace(func.grad(long))(X)
    for _ in range(3):
        run(program, [X])
    price = program.memo["plan"].state.price
    assert ftrans.explain(last=1)[0].reason == (
        f"compiling would have saved {duration(3 * price.gain)} so far, "
        f"of {duration(price.compiling)} that it costs"
    )


def test_tracing_time_goes_to_the_next_run() -> None:
    program = ftrans.trace(loss)(X)
    _ring.clear()
    note_trace(0.25)
    run(program, [X])
    run(program, [X])
    note_trace(0.5)
    run(program, [X])
    calls = ftrans.explain()
    assert [call.traced for call in calls] == [0.25, None, 0.5]
    assert [call.hit for call in calls] == [False, True, True]


def test_it_prints_as_a_table() -> None:
    program = ftrans.trace(loss)(X).renamed("a < b")
    note_trace(0.25)
    run(program, [X])
    run(program, [X])
    header, first, second = str(ftrans.explain()).splitlines()
    assert header.split() == ["call", "traced", "program", "road", "run"]
    assert first.split()[:5] == ["a", "<", "b", "250", "ms"]
    assert first.split()[5:7] == ["new", "interpreted:"]
    assert second.split()[3:6] == ["-", "hit", "interpreted:"]
    html = ftrans.explain()._repr_html_()
    assert html.count("<tr>") == 3
    assert "<td>a &lt; b</td><td>250 ms</td><td>new</td>" in html


def test_it_is_a_sequence_of_the_last_calls() -> None:
    program = ftrans.trace(loss)(X)
    for _ in range(300):
        run(program, [X])
    assert len(ftrans.explain()) == 20
    assert len(ftrans.explain(last=1000)) == 256
    assert len(ftrans.explain(last=0)) == 0
    with pytest.raises(ftrans.ArgumentError, match=r"explain: there are no fewer than zero"):
        ftrans.explain(last=-1)
    some = ftrans.explain(last=3)
    assert isinstance(some[0], Call)
    assert isinstance(some[1:], type(some))
    assert len(some[1:]) == 2
    assert list(some) == [some[0], some[1], some[2]]


def test_what_jax_traces_is_not_recorded() -> None:
    jax.grad(lambda x: func.grad(loss)(x).sum())(X.astype("f4"))
    assert roads() == []


# --------------------------------------------------------------------------------------- the choice


def test_the_choice_is_the_same_each_time() -> None:
    found = []
    for _ in range(2):
        cache_clear()
        _ring.clear()
        x = np.linspace(0, 1, 20_000)
        for _ in range(200):
            func.grad(long)(x)
        found.append([call.road for call in ftrans.explain(last=256)])
    assert found[0] == found[1]
    assert found[0][0] == "interpreted"
    assert found[0].count("compiled now") == 1
    assert found[0][-1] == "compiled"


def test_what_is_heavy_is_compiled_at_once() -> None:
    x = np.linspace(0, 1, 3_000_000)

    def wave(np: Any) -> Any:
        def f(x: Any) -> Any:
            for _ in range(6):
                x = np.sin(np.cos(x))
            return x.sum()

        return f

    gradient = func.grad(wave(fnp))(x)
    (call,) = ftrans.explain()
    assert call.road == "compiled now"
    assert call.reason.startswith("it would have saved ")
    with jax.enable_x64(True):
        assert_close(gradient, jax.grad(wave(jax.numpy))(x))


def test_what_gains_nothing_is_never_compiled() -> None:
    for _ in range(3000):
        func.grad(lambda x: (x * x).sum())(X)
    assert cache_info().compiled == 0
    # NumPy sorts faster than XLA does, however much there is to sort
    program = ftrans.trace(lambda x: fnp.sort(x))(np.ones(10_000, "f4"))
    assert policy.price(program).gain == 0


def newton(x: Any, turns: int) -> Any:
    for _ in range(turns):
        x = x - (x**3 - 2 * x - 5) / (3 * x**2 - 2)
    return x.sum()


def test_a_loop_whose_turns_vary_compiles_next_to_nothing() -> None:
    turns = np.random.default_rng(0).integers(5, 21, size=200)
    for n in turns:
        func.grad(newton)(X + 2, int(n))
    assert cache_info().compiled <= 3


def test_a_heavy_loop_whose_turns_vary_is_not_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # each evaluation saves some six times what compiling costs, or so the policy is told
    program = ftrans.trace(func.grad(newton))(X, 20)
    gain = policy.price(program).gain
    rate = policy.price(program)._replace(compiling=gain / 6)
    monkeypatch.setattr("ftrans.runtime.choice.price_of", lambda program: rate)
    cache_clear()
    for n in range(20, 40):
        func.grad(newton)(X + 2, n)
    compiled = cache_info().compiled
    assert 1 <= compiled <= 5
    assert [call.road for call in ftrans.explain()][-10:] == ["interpreted"] * 10
    # one that does come back is compiled in the end, and vouches for its family
    for _ in range(20):
        func.grad(newton)(X + 2, 39)
    assert cache_info().compiled == compiled + 1
    assert ftrans.explain(last=1)[0].road == "compiled"


def test_families_are_told_apart_by_their_code() -> None:
    def make(k: float) -> Any:
        return ftrans.trace(lambda x: x * k)(X)

    def other() -> Any:
        return ftrans.trace(lambda x: x * 3.0)(X)

    assert policy.family_of(make(1.5)) is policy.family_of(make(2.5))
    assert policy.family_of(make(1.5)) is not policy.family_of(other())
    assert policy.family_of(make(1.5)) is not policy.family_of(make(1.5).renamed("g"))


def test_evidence_that_families_need() -> None:
    family = policy.Family()
    assert family.factor == 1
    needed = []
    for _ in range(10):
        family.unproven += 1
        needed.append(family.factor)
    assert needed == [2, 4, 8, 16, 32, 64, 64, 64, 64, 64]
    for _ in range(20):
        family.prove()
    assert family.factor == 1
