"""Loops of Python folded into loops and blocks: the same values, and derivatives held to JAX's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import func, nn
from ftrans.errors import AnomalyError
from ftrans.interpreters import folds_of, simplify
from ftrans.interpreters.fold import folded
from ftrans.interpreters.repeats import find_runs
from ftrans.ir import Program
from ftrans.runtime import cache_clear, run
from ftrans.runtime.choice import plan_of
from ftrans.runtime.segments import Segmented, is_split, price_of
from tests.helpers import assert_close, sampled

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 3)) * 0.4
XS = RNG.normal(size=(70, 3))
H = RNG.normal(size=3)
LAYERS = [(RNG.normal(size=(8, 8)) * 0.3, RNG.normal(size=8)) for _ in range(6)]
SEEN = RNG.integers(3, size=70)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cache_clear()
    ftrans.config.fold = True
    yield
    ftrans.config.fold = False
    ftrans.config.execution = "auto"


def recurrent(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    for x in xs:
        h = xp.tanh(w @ h + x)
    return (h * h).sum()


def outputs(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    """All states are stacked; the first turn is another than the rest."""
    states = []
    for t in range(len(xs)):
        h = xp.tanh(w @ h + xs[t] - 0.1 * t)
        states.append(h)
    return (xp.stack(states) ** 2).sum() + xp.concatenate(states)[7]


def backwards(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    for t in reversed(range(len(xs))):
        h = xp.sin(w @ h) * xs[t] + h * 0.5
    return h.sum()


def leapfrog(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    """A value is that of two turns before."""
    before, now = h, h + 0.1
    for _ in xs:
        before, now = now, 2 * now - before + 0.01 * xp.cos(w @ now)
    return (now * before).sum() + xs.sum()


def hidden_markov(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    """Columns are taken out of order, and some values are summed up on the way."""
    rates = xp.exp(w)
    state, total = xp.exp(h), 0.0
    for seen in SEEN:
        state = (state @ rates) * rates[:, seen]
        size = state.sum()
        total, state = total + xp.log(size), state / size
    return total + xs.sum()


def two_loops(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    """A loop goes through what another one has made, and a third adds that up."""
    made = []
    for x in xs:
        h = h * 0.9 + xp.sin(x)
        made.append(w @ h)
    total = 0.0
    for m, x in zip(made, xs, strict=True):
        total = total + (m * x).sum()
    return total + sum(xp.cos(m).sum() for m in made[::2])


def inner_loop(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    for x in xs[:25]:
        for _ in range(3):
            h = 0.5 * h + 0.1 * xp.cos(w @ h)
        h = h + x
    return h.sum()


def by_elements(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    a, b = h[0], h[1]
    for _ in range(60):
        change = xp.stack([a - w[0, 0] * a * b, w[1, 1] * a * b - b])
        a, b = a + 0.01 * change[0], b + 0.01 * change[1]
    return a * b + xs.sum() + h[2]


def some_states(xp: Any, w: Any, xs: Any, h: Any) -> Any:
    kept = []
    for x in xs:
        h = xp.tanh(w @ h + x)
        kept.append(h)
    return (kept[3] * kept[17]).sum() + kept[-1][0] + kept[40].max()


LOOPS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        recurrent,
        outputs,
        backwards,
        leapfrog,
        hidden_markov,
        two_loops,
        inner_loop,
        by_elements,
        some_states,
    )
}


def with_numpy(f: Callable[..., Any]) -> Callable[..., Any]:
    def called(w: Any, xs: Any, h: Any) -> Any:
        return f(np, w, xs, h)

    return called


def traced(f: Callable[..., Any], *args: Any) -> Program:
    return ftrans.trace(f)(*args)


def some(*names: str) -> list[Any]:
    """Returns all loops, with others than these marked as slow."""
    return [pytest.param(n, marks=() if n in names else pytest.mark.slow) for n in LOOPS]


@pytest.mark.parametrize("name", some("hidden_markov"))
def test_derivatives_of_loops_are_those_of_jax(name: str) -> None:
    f = LOOPS[name]
    found = func.value_and_grad(with_numpy(f), argnums=(0, 1, 2))(W, XS, H)
    assert ftrans.explain(last=1)[0].folded
    with jax.enable_x64(True):
        expected = jax.value_and_grad(partial(f, jnp), argnums=(0, 1, 2))(
            *map(jnp.asarray, (W, XS, H))
        )
        expected = jax.tree_util.tree_map(np.asarray, expected)
    jax.tree_util.tree_map(lambda a, b: assert_close(a, b, 1e-9), found, expected)


SLOW = ("hessian", "mixed", "mapped gradient")
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: func.jvp(f, (W, XS, H), (W, XS, H)),
    "hessian": lambda f: func.hessian(f, argnums=2)(W, XS, H),
    "vmap": lambda f: func.vmap(f, in_dims=(None, None, 0))(W, XS, np.stack([H, 0.5 * H])),
    "mapped gradient": lambda f: func.vmap(func.grad(f), in_dims=(None, None, 1))(
        W, XS, np.stack([H, 0.5 * H], 1)
    ),
    "mixed": lambda f: func.jacfwd(func.grad(f), argnums=2)(W, XS, H),
}


# of what takes long each loop meets some, and each transform
MET = [
    pytest.param(name, t, marks=pytest.mark.slow if t in SLOW else ())
    for i, name in enumerate(LOOPS)
    for j, t in enumerate(TRANSFORMS)
    if t not in SLOW or (i + j) % 2
]


@pytest.mark.parametrize(("name", "transform"), MET)
def test_derivatives_are_those_of_the_program_as_it_was(name: str, transform: str) -> None:
    f = with_numpy(LOOPS[name])
    found = TRANSFORMS[transform](f)
    # what turns take of an outer function, each its own, may have derivatives or not
    apart = (name, transform) == ("two_loops", "mixed")
    assert bool(ftrans.explain(last=1)[0].folded) != apart
    ftrans.config.fold = False
    expected = TRANSFORMS[transform](f)
    jax.tree_util.tree_map(lambda a, b: assert_close(a, b, 1e-9), found, expected)


@pytest.mark.parametrize("name", LOOPS)
def test_folding_changes_no_bit_of_a_value(name: str) -> None:
    f = with_numpy(LOOPS[name])
    ftrans.config.execution = "interpret"
    values = []
    for ftrans.config.fold in (True, False):
        (value,) = ftrans.vmap(lambda w: f(w, XS, H))(W[None])
        values.append(value)
        assert bool(ftrans.explain(last=1)[0].folded) is ftrans.config.fold
    assert values[0] == values[1] or name == "hidden_markov"  # whose batched sums are others


@pytest.mark.parametrize("name", some("outputs", "hidden_markov"))
def test_compiled_and_interpreted_agree(name: str) -> None:
    gradient = func.grad(with_numpy(LOOPS[name]), argnums=(0, 2))
    interpreted = gradient(W, XS, H)
    ftrans.config.execution = "compile"
    for x, y in zip(gradient(W, XS, H), interpreted, strict=True):
        assert_close(x, y, 1e-9)
    jaxes = func.grad(with_numpy(LOOPS[name]))(jnp.asarray(W), jnp.asarray(XS), jnp.asarray(H))
    assert isinstance(jaxes, jax.Array)
    assert_close(np.asarray(jaxes, "f8"), interpreted[0], 1e-2)


def test_how_long_the_folded_program_is() -> None:
    lengths = {
        name: (simplify(traced(with_numpy(f), W, XS, H)), folded(traced(with_numpy(f), W, XS, H)))
        for name, f in LOOPS.items()
    }
    assert all(after.count() < before.count() / 3 for before, after in lengths.values())
    _, program = lengths["recurrent"]
    assert [e.primitive.name for e in program.equations][-3:] == ["scan", "mul", "sum"]
    assert [(f.copies, f.equations) for f in folds_of(program)] == [(70, 3)]
    assert "test_fold.py" in str(folds_of(program)[0])
    assert folded(program) is program


# --------------------------------------------------------------------------------------- blocks


def layered(xp: Any, layers: Any, x: Any) -> Any:
    for w, b in layers:
        shifted = x - x.mean()
        scaled = shifted / xp.sqrt((shifted**2).mean() + 1e-5)
        y = xp.tanh(scaled @ w + b)
        y = xp.sin(y) * xp.cos(y) + xp.tanh(y @ w) * xp.exp(-y * y) / (1 + y * y)
        y = xp.sqrt(1 + y * y) - xp.log(2 + xp.cos(y)) + xp.maximum(y, 0.1 * y)
        x = x + 0.5 * y / (1 + xp.abs(y).sum())
    return (x * x).sum()


def test_layers_become_blocks_that_are_compiled_once() -> None:
    x = np.linspace(-1, 1, 8)
    gradient = func.grad(lambda layers, x: layered(np, layers, x))
    found = gradient(LAYERS, x)
    assert ftrans.explain(last=1)[0].folded[0].startswith("5 x ")
    program = traced(gradient, LAYERS, x)
    with jax.enable_x64(True):
        expected = jax.grad(lambda layers, x: layered(jnp, layers, x))(LAYERS, x)
    ftrans.config.execution = "compile"
    compiled = gradient(LAYERS, x)
    for a, b, c in zip(*map(jax.tree_util.tree_leaves, (found, expected, compiled)), strict=True):
        assert_close(a, np.asarray(b), 1e-10)
        assert_close(c, np.asarray(b), 1e-10)
    assert not any(e.primitive.name == "block" for _, e in program.nested())  # as it was written
    jaxes = jax.tree_util.tree_map(lambda a: jnp.asarray(a, "f4"), (LAYERS, x))
    for a, b in zip(*map(jax.tree_util.tree_leaves, (gradient(*jaxes), expected)), strict=True):
        assert isinstance(a, jax.Array)
        assert_close(np.asarray(a, "f8"), np.asarray(b), 1e-4)


def test_blocks_share_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftrans.runtime.segments._LARGE", 0.0)
    x = np.linspace(-1, 1, 8)
    program = folded(traced(lambda layers, x: layered(np, layers, x), LAYERS, x))
    blocks = [e for e in program.equations if e.primitive.name == "block"]
    assert len({e.params["program"] for e in blocks}) == 1 < len(blocks)
    ftrans.config.execution = "compile"
    ftrans.func.vmap(lambda x: layered(np, LAYERS, x))(x[None])
    final = plan_of(program).final(program)
    run(final, [*jax.tree_util.tree_leaves(LAYERS), x])
    segmented = plan_of(program).state.executable
    assert isinstance(segmented, Segmented)
    executables = [executable for executable, _ in segmented._host.executables]
    assert len(set(executables)) <= len(executables) - len(blocks) + 1


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["hessian", "jvp", "vmap"])
def test_blocks_under_all_transforms(transform: str) -> None:
    x = np.linspace(-1, 1, 8)
    f = lambda xp: lambda x: layered(xp, LAYERS, x)  # noqa: E731
    ways: dict[str, Any] = {
        "hessian": (lambda: func.hessian(f(np))(x), lambda: jax.hessian(f(jnp))(x)),
        "jvp": (
            lambda: func.jvp(func.grad(f(np)), (x,), (x,))[1],
            lambda: jax.jvp(jax.grad(f(jnp)), (x,), (x,))[1],
        ),
        "vmap": (
            lambda: func.vmap(func.grad(f(np)))(np.stack([x, 2 * x])),
            lambda: jax.vmap(jax.grad(f(jnp)))(np.stack([x, 2 * x])),
        ),
    }
    ours, theirs = ways[transform]
    found = ours()
    assert ftrans.explain(last=1)[0].folded
    with jax.enable_x64(True):
        assert_close(found, np.asarray(theirs()), 1e-9)


def test_small_blocks_are_compiled_with_what_is_around_them() -> None:
    """To leave compiled code for each would cost as much as they do."""
    x = np.linspace(-1, 1, 8)
    program = folded(traced(lambda layers, x: layered(np, layers, x), LAYERS, x))
    assert "block" in [e.primitive.name for e in program.equations]
    assert not is_split(program)
    assert price_of(program).gain > 0


# ------------------------------------------------------------------------- where derivatives go


def as_it_is(call: Callable[[], Any]) -> Any:
    """Returns what a call gives without folding, and that a fold gives the same."""
    ftrans.config.fold = False
    expected = call()
    ftrans.config.fold = True
    for a, b in zip(*map(jax.tree_util.tree_leaves, (call(), expected)), strict=True):
        assert_close(a, b, 1e-12)
    return expected


def padded(w: Any) -> Any:
    """Returns what half of some steps come to; in the others sqrt is at 0, with no slope."""
    h, states = w * 0.1, []
    for t in range(60):
        h = 0.5 * h * np.sqrt(((w * (1.0 + t if t < 30 else 0.0)) ** 2).sum())
        states.append(h)
    return states[29].sum(), np.stack(states)


@pytest.mark.parametrize("transform", ["grad", "vjp", "hessian"])
def test_turns_that_only_aux_is_made_of_leave_no_gradient(transform: str) -> None:
    ways: dict[str, Callable[[], Any]] = {
        "grad": lambda: func.grad(padded, has_aux=True)(H),
        "vjp": lambda: func.vjp(padded, H, has_aux=True)[1](np.float64(1.0)),
        "hessian": lambda: func.hessian(padded, has_aux=True)(H),
    }
    found = as_it_is(ways[transform])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(found))


@pytest.mark.parametrize(
    "start",
    [np.floor, lambda w: np.sign(w) - 1, lambda w: np.round(w * 0.1), lambda w: w.detach() * 0],
)
def test_what_begins_without_a_derivative_has_none(start: Callable[[Any], Any]) -> None:
    w = np.array([0.5, 0.7, 0.9])

    def f(w: Any) -> Any:
        h = start(w)
        for _ in range(80):
            h = w * np.sqrt(h) + 0.1
        return h.sum()

    found = as_it_is(lambda: func.jvp(f, (w,), (w,)))
    assert np.isfinite(found[1])
    as_it_is(lambda: func.hessian(f)(w))


ONE = np.array([0.5, 0.7, 0.9])
BOTH = np.stack([ONE, ONE])


def broken(w: Any) -> Any:
    """Two states of many, with a step between them that has an infinite slope."""
    h, states = w, []
    for t in range(150):
        h = np.sqrt(h * (0.9 if t != 90 else 0.0)) * w
        states.append(h)
    return states[10], states[-1]


def begun(w: Any, h: Any) -> Any:
    for _ in range(150):
        h = w * np.sqrt(h) + 0.1
    return h.sum()


def outer(f: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: func.jvp(f, (ONE,), (ONE,))


SOME: dict[str, Callable[[], Any]] = {
    "vjp of one": lambda: func.vjp(broken, ONE)[1]((ONE, 0 * ONE)),
    "jacrev": lambda: func.jacrev(broken)(ONE)[0],
    "one of vmap": lambda: func.grad(lambda w: func.vmap(broken)(np.stack([w, w]))[0].sum())(ONE),
    "one of aux": lambda: func.grad(
        lambda w: func.grad(lambda u: (u.sum(), broken(u)), has_aux=True)(w)[1][0].sum()
    )(ONE),
    "value of vjp": lambda: func.grad(lambda w: func.vjp(broken, w)[0][0].sum())(ONE),
    "tangent": lambda: func.grad(lambda w: func.jvp(broken, (w,), (ONE,))[1][0].sum())(ONE),
    "end by cond": lambda: func.grad(
        lambda w: (
            broken(w)[0].sum() + ftrans.cond(w.sum() > 0, np.floor, np.sign, broken(w)[1]).sum()
        )
    )(ONE),
    "constant in vmap": lambda: func.jvp(
        lambda w: func.vmap(begun)(w, 0 * BOTH).sum(), (BOTH,), (BOTH,)
    ),
    "value of jvp": outer(lambda a: func.jvp(begun, (a, 0 * ONE), (a, 0 * ONE))[0]),
    "value of grad": outer(lambda a: func.grad_and_value(begun, argnums=(0, 1))(a, 0 * ONE)[1]),
    "start by cond": outer(
        lambda w: begun(w, ftrans.cond(w.sum() > 0, np.floor, lambda a: np.sign(a) - 1, w))
    ),
    "start by scan": outer(
        lambda w: begun(w, ftrans.scan(lambda c, _: (c, np.sign(c) * 0), w, np.arange(3.0))[1][0])
    ),
    "other level": lambda: func.vmap(
        lambda b: func.jvp(
            lambda a: func.vmap(lambda u: begun(a, 0 * b + 0 * u))(BOTH).sum(), (ONE,), (ONE,)
        )
    )(BOTH),
}


@pytest.mark.parametrize("name", sampled([*SOME], 3))
def test_where_only_some_inputs_or_outputs_take_part(name: str) -> None:
    found = as_it_is(SOME[name])
    if name not in ("vjp of one",):  # where what is zero is given
        assert all(np.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(found))


def test_loops_in_loops_know_what_is_differentiated() -> None:
    """Of the inner ones too some turns have a derivative, and some have not."""

    def f(w: Any, z: Any) -> Any:
        total = w * 0.0
        for _ in range(20):
            h = z
            for t in range(20):
                h = (w if t > 2 else z) * np.sqrt(h) + 0.1 * t
            total = total + h
        return total.sum()

    assert np.isfinite(as_it_is(lambda: func.grad(f)(np.abs(H) + 0.5, np.zeros(3)))).all()
    as_it_is(lambda: func.jvp(lambda w: f(w, np.zeros(3)), (np.abs(H),), (H,)))


# --------------------------------------------------------------------------- what it would cost


def few(w: Any, x: Any) -> Any:
    """Two large matrices by turns."""
    for t in range(100):
        x = np.tanh(w[t % 2] @ x)
    return x.sum()


def one(w: Any, x: Any) -> Any:
    """One turn of many is used once more."""
    y = x = np.tile(x, 1000)
    for t in range(100):
        x = np.sin(x) * 1.1
        y = x if t == 50 else y
    return (x + y).sum() + w.sum()


def late(w: Any, x: Any) -> Any:
    """What was 40 turns before is read."""
    states = [x * k for k in range(40)]
    for _ in range(100):
        states.append(np.tanh(0.5 * states[-1] + 0.3 * states[-40]))
    return states[-1].sum() + w.sum()


@pytest.mark.parametrize("function", [few, one, late])
def test_what_would_be_copied_for_each_turn_is_not_folded(function: Callable[..., Any]) -> None:
    w, x = RNG.normal(size=(2, 100, 100)), RNG.normal(size=100)
    as_it_is(lambda: func.grad(function, argnums=(0, 1))(w, x))
    assert not ftrans.explain(last=1)[0].folded


def test_not_a_number_is_found_where_it_is_written() -> None:
    def f(x: Any) -> Any:
        for t in range(60):
            x = np.sqrt(x) - 0.1 * t
        return x.sum()

    ftrans.config.check_nan = True
    with pytest.raises(AnomalyError, match="SqrtBackward0"):
        func.grad(f)(np.ones(3))


# ----------------------------------------------------------------------------------- what it takes


def test_data_that_are_no_argument_are_stacked_before() -> None:
    """Each row is an input of the program, which XLA would take long to compile."""
    data = [np.full(3, i / 50) for i in range(60)]

    def loss(h: Any) -> Any:
        for d in data:
            h = np.tanh(h * 1.1 - d) + 0.9 * h
        return h.sum()

    ftrans.config.execution = "compile"
    found = func.grad(loss)(H)
    program = plan_of(folded(traced(loss, H)))
    ftrans.config.fold = False
    ftrans.config.execution = "interpret"
    assert_close(func.grad(loss)(H), found, 1e-12)
    assert program is not None
    ftrans.config.fold = True
    ftrans.config.execution = "auto"
    data[7][...] = 5.0
    changed = func.grad(loss)(H)
    ftrans.config.fold = False
    assert_close(func.grad(loss)(H), changed, 1e-12)
    assert abs(changed - found).max() > 1e-6


def test_parameters_in_a_list_have_their_own_gradients() -> None:
    scales = [np.float64(1 + i / 100) * np.ones(3) for i in range(80)]

    def loss(xp: Any, scales: Any) -> Any:
        x = xp.ones(3)
        for s in scales:
            x = xp.sin(x * s) + 0.3 * x
        return x.sum()

    found = func.grad(lambda s: loss(np, s))(scales)
    assert ftrans.explain(last=1)[0].folded
    with jax.enable_x64(True):
        expected = jax.grad(lambda s: loss(jnp, s))(scales)
    for x, y in zip(found, expected, strict=True):
        assert_close(x, np.asarray(y), 1e-10)


def test_rules_of_the_users_in_a_loop() -> None:
    @ftrans.custom_vjp
    def cubed(x: Any) -> Any:
        return x**3

    cubed.defvjp(lambda x: (x**3, x), lambda x, ct: (7 * x * ct,))

    def loss(x: Any) -> Any:
        for _ in range(60):
            x = 0.1 * cubed(x) + np.cos(x) * 0.5
        return x.sum()

    found = func.grad(loss)(H)
    ftrans.config.fold = False
    assert_close(func.grad(loss)(H), found, 1e-12)


def test_values_that_are_asked_for_and_calls_of_python_are_left_alone() -> None:
    looked = []

    def loss(x: Any) -> Any:
        for i in range(80):
            x = np.tanh(x * 1.2) + 0.1 * x
            if i == 40:
                looked.append(float(x.detach()[0]))
        return x.sum()

    found = func.grad(loss)(H)
    ftrans.config.fold = False
    assert_close(func.grad(loss)(H), found, 1e-12)
    assert looked[0] == looked[1]


def test_a_line_of_a_loop_is_named_by_errors_and_anomalies() -> None:
    def loss(x: Any) -> Any:
        for _ in range(60):
            x = np.sqrt(x - 0.5) + 0.1 * x
        return x.sum()

    ftrans.config.check_nan = True
    try:
        with pytest.raises(ftrans.FtransError, match=r"test_fold\.py"):
            func.grad(loss)(np.ones(3))
    finally:
        ftrans.config.check_nan = False


def test_under_check() -> None:
    before, ftrans.config.check = ftrans.config.check, True
    try:
        for f in LOOPS.values():
            g = func.grad(with_numpy(f))
            assert_close(g(W, XS, H), g(W, XS, H), 0)
    finally:
        ftrans.config.check = before


def test_dropout_in_a_loop_draws_at_each_turn() -> None:
    def thinned(x: Any) -> Any:
        for _ in range(40):
            x = nn.dropout(x, 0.2) + 0.01
        return x

    x = np.ones((50,), "f4")
    ftrans.random.manual_seed(3)
    found, _ = func.vjp(thinned, x)
    ftrans.config.fold = False
    ftrans.random.manual_seed(3)
    assert_close(func.vjp(thinned, x)[0], found, 0)


def test_short_or_irregular_programs_stay_as_they_are() -> None:
    def irregular(x: Any) -> Any:
        for i in range(120):
            x = (np.sin, np.cos, np.tanh)[(i * i) % 3 if i % 7 else i % 2](x) * (1 + i)
        return x.sum()

    short = traced(lambda x: np.tanh(np.tanh(x)).sum(), H)
    program = traced(irregular, H)
    assert folded(short) is short
    assert folded(program) is program
    func.grad(irregular)(H)
    assert ftrans.explain(last=1)[0].folded == ()


def test_runs_in_a_sequence() -> None:
    codes = np.array([7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 9, 4, 4, 4, 4, 4])
    assert find_runs(codes, 3) == [(1, 11, 3), (12, 17, 1)]
    assert find_runs(np.arange(9), 3) == []
    assert find_runs(np.zeros(0, int), 3) == []


def test_rows_that_are_stacked_again_are_the_array() -> None:
    def again(x: Any) -> Any:
        return ftrans.primitives.stack_p(*[x[i] for i in range(1, 4)])

    program = simplify(traced(again, XS))
    assert [e.primitive.name for e in program.equations] == ["slice"]
    assert_close(again(XS), XS[1:4], 0)
    other = simplify(traced(lambda x: ftrans.primitives.stack_p(x[1], x[0]), XS))
    assert other.equations[-1].primitive.name == "stack"


def at_rest(xp: Any, w: Any, x: Any) -> Any:
    """A slope is infinite in the first turn, where nothing is differentiated yet."""
    for _ in range(60):
        x = 0.9 * x + w / (1 + xp.sqrt((x * x).sum()))
    return x.sum()


def test_what_is_no_derivative_yet_does_not_become_one_that_is_zero() -> None:
    start = np.zeros(3)
    f = lambda w: at_rest(np, w, start)  # noqa: E731
    with jax.enable_x64(True):
        expected = jax.grad(lambda w: at_rest(jnp, w, jnp.zeros(3)))(jnp.asarray(H))
        expected = np.asarray(expected)
    assert_close(func.grad(f)(H), expected, 1e-10)
    assert ftrans.explain(last=1)[0].folded
    mapped = func.grad(lambda w: func.vmap(lambda s: f(w * s))(np.ones(2)).sum())(H)
    assert_close(mapped, 2 * expected, 1e-10)
    assert_close(func.jvp(f, (H,), (H,))[1], expected @ H, 1e-10)
    stopped = lambda w: at_rest(np, w, ftrans.stop_gradient(0 * w))  # noqa: E731
    assert_close(func.grad(stopped)(H), expected, 1e-10)
    assert_close(func.jvp(stopped, (H,), (H,))[1], expected @ H, 1e-10)
    outer = func.vmap(lambda x: func.jacfwd(lambda w: at_rest(np, w, x))(H))(np.zeros((2, 3)))
    assert_close(outer[1], expected, 1e-10)


def test_signs_of_zeros_are_told_apart() -> None:
    def signs(x: Any) -> Any:
        for i in range(60):
            x = x + np.copysign(0.01, (0.0 if i % 2 else -0.0) * abs(x)) * np.cos(x)
        return x.sum()

    found = func.grad(signs)(H)
    ftrans.config.fold = False
    assert_close(func.grad(signs)(H), found, 1e-13)


def test_folding_is_off_by_itself() -> None:
    assert not type(ftrans.config)().fold
    ftrans.config.fold = False
    func.grad(lambda w: recurrent(np, w, XS, H))(W)
    assert not ftrans.explain(last=1)[0].folded
