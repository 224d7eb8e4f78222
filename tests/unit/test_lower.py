"""The two roads from a program to JAX: splice is held against replay, exactly, and against JAX."""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import FtransError
from ftrans.func.staging import abstract_inputs, stage
from ftrans.interpreters import inline, runnable, simplify
from ftrans.interpreters.base import building, finish
from ftrans.ir import ArrayType, Equation, Literal, Params, Program, bind, type_of
from ftrans.ir.dtype import bfloat16
from ftrans.primitives import Primitive, mul_p, registry
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime import lower as roads
from ftrans.runtime import splice
from tests.helpers import QUICK, assert_close, types_of
from tests.laws.test_primitives import DTYPES, TAKEN, beside, cases, every, in_turn

Road = Callable[[Program, Sequence[Any]], Sequence[jax.Array]]


@pytest.fixture(autouse=True)
def _auto() -> Iterator[None]:
    yield
    ftrans.config.lowering = "auto"


def compiled(road: Road, program: Program, arrays: Sequence[Any]) -> Sequence[jax.Array]:
    with jax.enable_x64(True):
        return jax.jit(lambda *given: road(program, given), compiler_options=QUICK)(*arrays)


def text(road: Road, program: Program, **options: Any) -> str:
    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in program.inputs]
        return jax.jit(lambda *given: road(program, given)).lower(*specs).as_text(**options)


def assert_roads_agree(program: Program, arrays: Sequence[Any]) -> list[jax.Array]:
    """Runs a program by both roads, and holds values, dtypes and weakness against each other.

    Both are compiled together, which takes half the time: where they are one, XLA finds it out.
    """

    def both(*given: Any) -> tuple[Sequence[jax.Array], Sequence[jax.Array]]:
        return splice.splice(program, given), roads.replay(program, given)

    with jax.enable_x64(True):
        found, expected = jax.jit(both, compiler_options=QUICK)(*arrays)
    for got, want, t in zip(found, expected, program.output_types, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype) == (t.shape, t.dtype)
        assert not got.weak_type
        assert not want.weak_type
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes(), f"{got}\n{want}"
    return list(found)


def traced(function: Callable[..., Any], *arrays: Any) -> tuple[Program, list[Any]]:
    """Returns the program of a function, and arrays for it, those that it closes over included."""
    inputs = abstract_inputs([type_of(x) for x in arrays], "an argument")
    staged = stage("f", function, inputs, closed=True)
    return simplify(runnable(staged.program)), [*arrays, *staged.captured]


def simple() -> Program:
    """Returns the program of sin(x) + 1."""
    return traced(lambda x: fnp.sin(x) + 1, np.zeros(3))[0]


# --------------------------------------------------------------------------------------- the roads


@pytest.mark.smoke
def test_this_release_of_jax_takes_the_splice() -> None:
    assert roads._splicer() == (splice, "")


WALKED = [
    np.dtype(name)
    for name in ("bool", "int8", "int64", "uint32", bfloat16, "float32", "float64", "complex64")
]


def walked(primitive: Primitive) -> Any:
    return cases(primitive, WALKED)


def walked_in_turn(primitive: Primitive) -> Any:
    return in_turn(primitive, WALKED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("primitive", "choose"),
    [
        *((p, walked_in_turn) for p in TAKEN[::2]),
        *(pytest.param(p, walked, marks=pytest.mark.slow) for p in TAKEN),
    ],
    ids=lambda value: getattr(value, "name", None) or value.__name__,
)
def test_every_primitive(primitive: Primitive, choose: Any) -> None:
    """One program has samples of a primitive beside each other."""
    program, arrays = beside(primitive, choose(primitive))
    assert_roads_agree(program, arrays)


@every
def test_every_primitive_with_literals(primitive: Primitive) -> None:
    """Scalars among the operands are written into the program, in each place in turn."""
    programs = []
    for _, operands, sample in walked(primitive):
        for index, operand in enumerate(operands):
            if np.ndim(operand) or "elementwise" not in primitive.tags or len(operands) < 2:
                continue
            literal = Literal(np.asarray(operand).astype(object).item(), operand.dtype)
            given = [*operands[:index], literal, *operands[index + 1 :]]
            rest = [x for x in given if x is not literal]
            with building(primitive.name, types_of(rest)) as (frame, inputs):
                left = iter(inputs)
                full = [x if x is literal else next(left) for x in given]
                outs = bind(primitive, full, Params(dict(sample.params)))
                programs.append((finish(frame, outs), rest))
    for program, arrays in programs[:2]:
        assert_roads_agree(program, arrays)


@pytest.mark.slow
def test_literals_of_all_dtypes() -> None:
    dtypes = [d for group in DTYPES.values() for d in group]
    for dtype in dtypes:
        t = ArrayType((3,), dtype)
        values: list[Any] = [True, False] if dtype.kind == "b" else [0, 1, 2]
        if dtype.kind in "fc" or dtype == bfloat16:
            values += [-0.0, 0.5, float("nan"), float("inf"), float("-inf")]
        if dtype.kind == "c":
            values += [1 + 2j, complex("nan")]
        if dtype.kind in "iu":
            values += [int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
        literals = [Literal(v, dtype) for v in values]
        with building("literals", [t]) as (frame, (x,)):
            sums = [] if dtype.kind == "b" else [
                bind(registry["mul"], (x, literal), Params())[0] for literal in literals
            ]  # fmt: skip
            program = finish(frame, sums)
        program = Program.make(
            program.inputs,
            program.equations,
            [*program.outputs, *literals],
            program.locations,
        )
        found = assert_roads_agree(program, [np.array([0, 1, 1], dtype)])
        for got, literal in zip(found[len(sums) :], literals, strict=True):
            assert np.array(got).tobytes() == literal.array.tobytes(), (dtype, literal)


def test_programs_that_compute_nothing() -> None:
    t, u = ArrayType((2, 0), "float16"), ArrayType((), "bool")
    program = Program.make([t, u], [], [1, 0, 1, Literal(7, "int8"), 1])
    found = assert_roads_agree(program, [np.zeros((2, 0), "float16"), np.array(True)])
    assert [x.shape for x in found] == [(), (2, 0), (), (), ()]
    assert assert_roads_agree(Program.make([t], [], []), [np.zeros((2, 0), "float16")]) == []
    assert assert_roads_agree(Program.make([], [], []), []) == []
    assert float(assert_roads_agree(Program.make([], [], [Literal(0.1, "float64")]), [])[0]) == 0.1


def test_arrays_in_the_text_of_a_template_stay() -> None:
    """Rules may use arrays of NumPy's; each template brings its own."""
    program, arrays = traced(
        lambda x: (x[np.array([2, 0])] + x[np.array([1, 1])], x.at[np.array([0, 1])].add(1.0)),
        np.array([1.0, 2.0, 4.0]),
    )
    found = assert_roads_agree(program, arrays)
    assert_close(found[0], [6.0, 3.0])


def transformer(layers: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    rng = np.random.default_rng(0)

    def model(x: Any, *weights: Any) -> Any:
        for k in range(layers):
            q, key, v, o, up, down = weights[6 * k : 6 * k + 6]
            scores = fnp.exp((x @ q) @ (x @ key).T / 4)
            x = x + (scores / scores.sum(-1, keepdims=True)) @ (x @ v) @ o
            spread = x - x.mean(-1, keepdims=True)
            x = spread / fnp.sqrt((spread * spread).mean(-1, keepdims=True) + 1e-5)
            x = x + fnp.tanh(x @ up) @ down
        return (x * x * x).mean()

    shapes = [(8, 8)] * 4 + [(8, 16), (16, 8)]
    weights = [rng.normal(size=s) / 3 for _ in range(layers) for s in shapes]
    return model, [rng.normal(size=(5, 8)), *weights]


def recurrence(x: Any, w: Any) -> Any:
    def step(c: Any, v: Any) -> Any:
        c = fnp.tanh(c @ w + v)
        return c, ftrans.cond(c.sum() > 0, lambda c: (c * c).sum(), lambda c: c.sum(), c)

    c, ys = ftrans.scan(step, x[0], x)
    c = ftrans.fori_loop(0, 3, lambda i, c: c * fnp.cos(c) + i, c)
    return (c * c).sum() + ys.sum()


def search(x: Any) -> Any:
    n, x = ftrans.while_loop(lambda s: s[1].sum() < 50, lambda s: (s[0] + 1, s[1] * 1.5), (0, x))
    return ftrans.switch(n % 3, [lambda x: x, lambda x: fnp.sin(x), lambda x: x * 2], x)


PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], list[Any]]]] = {
    "perceptron": lambda: (
        func.grad_and_value(lambda w, x: (fnp.tanh(x @ w) ** 2).mean()),
        [np.ones((4, 3)) / 3, np.arange(8.0).reshape(2, 4)],
    ),
    "transformer": lambda: (
        lambda model, arrays: (func.grad_and_value(model, tuple(range(len(arrays)))), arrays)
    )(*transformer(12)),
    "hessian": lambda: (func.hessian(lambda x: (fnp.sin(x) * x).prod()), [np.arange(1.0, 5)]),
    "loops": lambda: (
        func.grad_and_value(recurrence, (0, 1)),
        [np.arange(6.0).reshape(3, 2) / 5, np.eye(2) / 2],
    ),
    "hessian of loops": lambda: (
        func.hessian(recurrence),
        [np.arange(4.0).reshape(2, 2), np.eye(2)],
    ),
    "vmap of loops": lambda: (
        func.vmap(func.grad(recurrence)),
        [np.arange(12.0).reshape(3, 2, 2) / 5, np.stack([np.eye(2)] * 3)],
    ),
    "while and switch": lambda: (search, [np.arange(1.0, 4)]),
    "jvp of while and switch": lambda: (
        lambda x: func.jvp(search, (x,), (x,)),
        [np.arange(1.0, 4)],
    ),
    "mapped while and switch": lambda: (func.vmap(search), [np.arange(1.0, 7).reshape(3, 2)]),
}  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_programs(name: str) -> None:
    function, arrays = PROGRAMS[name]()
    program, arrays = traced(function, *arrays)
    found = assert_roads_agree(program, arrays)
    with np.errstate(all="ignore"):
        for got, want in zip(found, evaluate(np, program, arrays), strict=True):
            assert_close(got, want, 1e-8)


def test_a_program_that_calls_another() -> None:
    """What was not inlined is called through a jaxpr of its own."""
    called, _ = traced(lambda x: fnp.sin(x) * 2, np.zeros(3))
    with building("outer", called.inputs) as (frame, inputs):
        outs = bind(registry["call"], inputs, Params(program=called))
        program = finish(frame, [*outs, *bind(registry["call"], outs, Params(program=called))])
    assert inline(program) is not program
    assert_roads_agree(program, [np.arange(3.0)])


# ---------------------------------------------------------------------------- what XLA makes of it


def instructions(road: Road, program: Program, arrays: Sequence[Any]) -> list[str]:
    """Returns the optimized code without names and numbers."""

    def named(*given: Any) -> Any:
        return road(program, given)

    with jax.enable_x64(True):
        code = jax.jit(named).lower(*arrays).compile().as_text()
    code = re.sub(r", metadata=\{[^}]*\}", "", code)
    return [re.sub(r"[.\-_]?\d+", "", line) for line in code.splitlines() if " = " in line]


@pytest.mark.parametrize("name", ["perceptron", "transformer"])
def test_the_optimized_code_is_that_of_replay(name: str) -> None:
    function, arrays = PROGRAMS[name]()
    if name == "transformer":
        model, arrays = transformer(2)
        function = func.grad_and_value(model, tuple(range(len(arrays))))
    program, arrays = traced(function, *arrays)
    ours = instructions(splice.splice, program, arrays)
    theirs = instructions(roads.replay, program, arrays)
    assert sorted(ours) == sorted(theirs)


def test_the_optimized_code_of_loops_calls_no_more_than_that_of_replay() -> None:
    function, arrays = PROGRAMS["loops"]()
    program, arrays = traced(function, *arrays)
    ours, theirs = (instructions(r, program, arrays) for r in (splice.splice, roads.replay))
    assert len(ours) <= len(theirs)
    assert sum(" call(" in line for line in ours) <= sum(" call(" in line for line in theirs)


def test_functions_of_jax_are_inlined() -> None:
    """`jnp.where` and their like are functions under `jax.jit`, and would each be a call."""
    program, _ = traced(lambda x: fnp.where(x > 0, fnp.maximum(x, 0.5), x // 2).sum(), np.zeros(3))
    code = text(splice.splice, program)
    assert re.findall(r"call @(\w+)", code) in (["ftrans"], [])


def test_the_users_lines_are_in_the_code() -> None:
    program, _ = traced(lambda x: fnp.sin(x) * fnp.cos(x), np.zeros(3))
    code = text(splice.splice, program, debug_info=True)
    for place in program.locations:
        assert place is not None
        assert f'"{place.filename}":{place.line}:' in code
        assert place.function in code
    line = linecache.getline(__file__, program.locations[0].line)  # type: ignore[union-attr]
    start, stop = line.index("fnp.sin(x)"), line.index("fnp.sin(x)") + len("fnp.sin(x)")
    assert f":{start} to :{stop})" in code
    assert "splice.py" not in code


# ------------------------------------------------------------------------------- the state of JAX


def test_the_setting() -> None:
    program = simple()

    def tells(setting: Any) -> bool:
        ftrans.config.lowering = setting
        with jax.enable_x64(True):
            jaxpr = jax.make_jaxpr(lambda x: roads.lower(program, [x]))(np.zeros(3))
        return "ftrans_call" in str(jaxpr)

    assert [tells(s) for s in ("auto", "splice", "replay")] == [True, True, False]
    with pytest.raises(ValueError, match="'fast' is none of auto, splice, replay"):
        ftrans.config.lowering = "fast"  # type: ignore[assignment]


def test_a_jax_that_does_not_take_the_splice(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise AttributeError("no such thing as new_jaxpr_eqn")

    monkeypatch.setattr(roads, "_splicer", roads._splicer.__wrapped__)
    monkeypatch.setattr(roads, "_tried", fails)
    program = simple()
    assert_close(compiled(roads.lower, program, [np.zeros(3)])[0], np.ones(3))
    ftrans.config.lowering = "splice"
    with pytest.raises(FtransError) as caught:
        compiled(roads.lower, program, [np.zeros(3)])
    assert str(caught.value) == (
        f"config.lowering: this release of JAX, {jax.__version__}, does not take spliced "
        f"programs.\n  reason: AttributeError: no such thing as new_jaxpr_eqn\n"
        f'  Set ftrans.config.lowering = "auto" to do without.'
    )


def test_a_program_that_cannot_be_spliced_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise KeyError("jaxpr")

    program = simple()
    monkeypatch.setattr(splice, "_jaxpr", fails)
    assert_close(compiled(roads.lower, program, [np.zeros(3)])[0], np.ones(3))
    ftrans.config.lowering = "splice"
    with pytest.raises(KeyError):
        compiled(roads.lower, program, [np.zeros(3)])


def test_under_a_mesh_programs_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = jax.make_mesh((1,), ("d",))
    program, replayed, replay = simple(), [], roads.replay
    monkeypatch.setattr(roads, "replay", lambda *given: replayed.append(given) or replay(*given))
    with jax.set_mesh(mesh):
        assert_close(compiled(roads.lower, program, [np.zeros(3)])[0], np.ones(3))
        assert len(replayed) == 1
        with pytest.raises(splice.Unspliceable, match="a mesh is set"):
            compiled(splice.splice, program, [np.zeros(3)])
    compiled(roads.lower, program, [np.zeros(3)])
    assert len(replayed) == 1


def test_scopes_of_jax_are_part_of_a_template() -> None:
    program, _ = traced(lambda x: x @ x, np.zeros((3, 3), "f"))
    assert "precision = [DEFAULT, DEFAULT]" in text(splice.splice, program)
    with jax.default_matmul_precision("float32"):
        assert "precision = [HIGHEST, HIGHEST]" in text(splice.splice, program)
    assert "precision = [DEFAULT, DEFAULT]" in text(splice.splice, program)


def test_templates_are_few_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = traced(lambda x: fnp.sin(fnp.cos(x) + 1) * 2, np.zeros(3))
    ftrans.cache_clear()
    assert not splice._templates
    text(splice.splice, program)
    assert len(splice._templates) == 4
    text(splice.splice, program)
    assert len(splice._templates) == 4
    monkeypatch.setattr(splice._templates, "_most", 3)
    text(splice.splice, program)
    text(splice.splice, traced(lambda x: fnp.tan(x) / 5, np.zeros(3))[0])
    assert len(splice._templates) <= 3


def test_eagerly_where_jit_is_disabled() -> None:
    program = simple()
    with jax.disable_jit():
        assert_close(compiled(roads.lower, program, [np.zeros(3)])[0], np.ones(3))


def test_donated_arguments() -> None:
    program, _ = traced(lambda x, y: (x * 2 + y, y), np.zeros(3, "f"), np.zeros(3, "f"))
    given = jnp.ones(3, "float32"), jnp.ones(3, "float32")
    found = jax.jit(lambda *xs: splice.splice(program, xs), donate_argnums=0)(*given)
    assert_close(found[0], [3.0] * 3)
    assert given[0].is_deleted()
    assert not given[1].is_deleted()


def test_scalars_that_jax_holds_to_be_weak() -> None:
    program = Program.make([ArrayType((), "float32")], [], [0, 0])
    with jax.enable_x64(True):
        found = jax.jit(lambda x: splice.splice(program, [x]))(jnp.asarray(2.0))
    assert [x.dtype for x in found] == [np.float32] * 2
    assert not any(x.weak_type for x in found)


class Step:
    """Stands for a primitive whose rule computes with Python scalars, weak in JAX."""

    multiple = is_higher_order = False

    def lower(self, xp: Any, x: Any) -> Any:
        return xp.where(x > 0, 1.0, 0.0)


def test_rules_that_compute_python_scalars() -> None:
    t = ArrayType((3,), "float32")
    applied = [Equation(Step(), (0,), Params(), (t,)), Equation(mul_p, (0, 1), Params(), (t,))]
    program = Program.make([t], applied, [1, 2])
    found = assert_roads_agree(program, [np.array([-1, 0, 2], "float32")])
    assert_close(found[0], [0.0, 0.0, 1.0])
    assert_close(found[1], [0.0, 0.0, 2.0])


def test_many_threads() -> None:
    ftrans.cache_clear()
    x = np.linspace(0.1, 1, 4)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        # a whole exponent is no input, so these are eight programs
        program, _ = traced(lambda x: fnp.sin(x) ** (number + 2) + fnp.cos(x), x)
        found[number] = compiled(splice.splice, program, [x])[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, value in found.items():
        assert_close(value, np.sin(x) ** (number + 2) + np.cos(x))
    assert len(found) == 8


SHARDED = """
    import jax, numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
    import ftrans, ftrans.numpy as fnp
    from ftrans.runtime import lower as roads

    replay = roads.replay
    assert len(jax.devices()) == 4
    ftrans.config.execution = "compile"

    def loss(w, x):
        return (fnp.tanh(x @ w) ** 2).sum()

    def step(w, x):
        return w - 0.1 * ftrans.func.grad(loss)(w, x), fnp.tanh(x @ w)

    w, x = np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(-1, 1, 24).reshape(8, 3)
    expected = step(w, x)
    mesh = Mesh(np.array(jax.devices()), ("d",))
    rows, whole = NamedSharding(mesh, P("d", None)), NamedSharding(mesh, P())
    with jax.enable_x64(True):
        given = jax.device_put(w, whole), jax.device_put(x, rows)
    for options in ({}, {"out_shardings": (whole, rows)}, {"in_shardings": (whole, rows)}):
        for lowering in ("splice", "replay"):
            ftrans.config.lowering = lowering
            found = ftrans.jit(step, **options)(*given)
            assert found[1].sharding.is_equivalent_to(rows, 2), (options, lowering)
            assert found[0].sharding.is_equivalent_to(whole, 2), (options, lowering)
            for got, want in zip(found, expected):
                np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-12)
    ftrans.config.lowering = "auto"
    roads.replay = None  # nothing is replayed
    code = ftrans.jit(step).lower(*given).compile().as_text()
    assert "all-reduce" in code

    # run by itself, and with the gradient summed over the devices
    gradient = ftrans.func.grad(loss)(*given)
    assert gradient.sharding.is_equivalent_to(whole, 2)
    np.testing.assert_allclose(np.asarray(gradient), (w - expected[0]) / 0.1, atol=1e-12)
    roads.replay = replay

    # axes whose shardings are part of types
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
    with jax.enable_x64(True):
        x = jax.device_put(x, NamedSharding(mesh, P("d", None)))
    ftrans.config.lowering = "auto"
    found = ftrans.jit(lambda x: fnp.tanh(x) * 2)(x)
    np.testing.assert_allclose(np.asarray(found), np.tanh(np.asarray(x)) * 2, atol=1e-12)
    assert found.sharding.is_equivalent_to(NamedSharding(mesh, P("d", None)), 2)
"""


@pytest.mark.slow
def test_arrays_on_many_devices() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
