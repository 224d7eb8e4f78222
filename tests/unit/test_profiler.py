"""The profiler: which events there are, inside of what, and what they say. Counts are PyTorch's."""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function, grad
from ftrans.autograd.profiler import (
    emit_itt,
    emit_nvtx,
    profile,
    record_function,
)
from ftrans.autograd.profiler_util import (
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
)
from ftrans.errors import ArgumentError, FtransError
from ftrans.primitives.observe import observing
from tests.helpers import assert_close


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert observing.by is None


def leaf(*values: float) -> ftrans.Tensor:
    return ftrans.tensor(values, "float32", requires_grad=True)


def nested(prof: profile) -> list[Any]:
    """Returns the names of events, those inside of one in a list behind it."""

    def shown(events: Any) -> list[Any]:
        found: list[Any] = []
        for event in events:
            inside = shown(event.cpu_children)
            found += [event.name, inside] if inside else [event.name]
        return found

    return shown([event for event in prof.function_events if event.cpu_parent is None])


def counts(prof: profile) -> dict[str, int]:
    return {event.key: event.count for event in prof.key_averages()}


# ------------------------------------------------------------------------------ tensors, backward


def test_a_hundred_times_forward_and_backward() -> None:
    x = ftrans.tensor(3.0, requires_grad=True)
    with profile() as prof:
        for _ in range(100):
            (x**2).backward()
    found = counts(prof)
    assert found["integer_pow"] == found["integer_pow_backward"] == found["backward"] == 100
    assert_close(x.grad, 600.0)
    assert prof.self_cpu_time_total > 0


def test_what_is_written_in_a_range_is_run_in_it() -> None:
    def forward(x: Any) -> Any:
        with record_function("outer"):
            y = x * 2 + 4
            with record_function("inner"):
                y = y - 1
        return y / 1.5

    x = ftrans.tensor([1.0, 2.0])
    before = fnp.sin(x)
    with profile() as prof:
        out = forward(x)
    assert nested(prof) == [
        "outer",
        ["tensors", ["mul", "add"], "inner", ["tensors", ["sub"]]],
        "tensors",
        ["div"],
    ]
    assert_close(out, (np.array([1.0, 2.0]) * 2 + 3) / 1.5)
    assert_close(before, np.sin([1.0, 2.0]))


def test_what_nobody_refers_to_is_run_too() -> None:
    x = ftrans.tensor([1.0, 2.0])
    with profile() as prof:
        x * 2
        fnp.sin(x)
        (x + 1).max(0)
    assert {"mul", "sin", "add", "argmax"} <= counts(prof).keys()


def test_the_backward_pass_is_a_range_and_named_by_what_ran_forward() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    with profile() as prof:
        (x * y).sum().backward()
    before, after = nested(prof)[:2], nested(prof)[2:]
    assert before == ["tensors", ["mul", "sum"]]
    assert after[0] == "backward"
    program, inside = after[1]
    assert program == "backward(linear(tensors))"
    assert inside == ["sum_backward", ["broadcast"], "mul_backward", ["mul", "mul"]]
    scopes = {event.name: event.scope for event in prof.function_events}
    assert scopes["sum"] == 0
    assert scopes["backward"] == scopes["broadcast"] == 1
    assert_close(x.grad, [3, 4])


def test_what_comes_from_one_place_has_one_number() -> None:
    x = leaf(1, 2)
    with profile() as prof:
        y = fnp.sin(x)
        y.sum().backward()
    numbers: dict[str, set[int]] = {}
    for event in prof.function_events:
        numbers.setdefault(event.name, set()).add(event.sequence_nr)
    assert numbers["sum"] == numbers["sum_backward"]
    assert numbers["sin"] != numbers["sum"]
    assert numbers["backward"] == {-1}


def test_gradients_are_those_without_a_profile() -> None:
    def run() -> list[Any]:
        x = leaf(0.3, -1.2)
        y = fnp.tanh(x) * x
        y.register_hook(lambda g: g * 2)
        (g,) = grad((y**3).sum(), x, create_graph=True)
        (h,) = grad((g * g).sum(), x, retain_graph=True)
        (fnp.exp(x) * y).sum().backward()
        return [g.detach(), h, x.grad]

    expected = run()
    with profile() as prof:
        found = run()
    assert counts(prof)["backward"] == 3
    assert_close(found, expected)


def test_hooks_run_inside_of_the_backward_pass() -> None:
    x = leaf(1, 2)

    @record_function("hook")
    def hook(g: Any) -> Any:
        return g * 3

    with profile() as prof:
        y = x * 2
        y.register_hook(hook)
        (y * y).sum().backward()
    (event,) = [event for event in prof.function_events if event.name == "hook"]
    assert event.cpu_parent.name == "backward"
    assert event.scope == 7
    assert_close(x.grad, [24, 48])


def test_a_backward_pass_that_is_recorded_is_run_in_its_range() -> None:
    x = leaf(1, 2)
    with profile() as prof:
        (g,) = grad((x**3).sum(), x, create_graph=True)
    (backward,) = [e for e in prof.function_events if e.name == "backward"]
    assert [child.name for child in backward.cpu_children] == ["tensors"]
    assert_close(g.detach(), [3, 12])


def test_what_a_loop_runs_in_a_backward_pass_is_inside_of_the_loop() -> None:
    x = leaf(2)
    with profile() as prof:
        total, _ = ftrans.scan(lambda c, _: (c * fnp.sin(c), c), x, np.arange(3))
        grad(total.sum(), x, create_graph=True)  # which runs the loop forward as well
    scans = [e for e in prof.function_events if e.name == "scan" and e.scope == 1]
    assert {e.cpu_parent.name for e in scans} == {"scan_backward"}
    inside = {child.name for e in scans for child in e.cpu_children}
    assert {"sin", "mul"} <= inside
    assert not any(name.endswith("_backward") for name in inside)


# -------------------------------------------------------------------------- programs, transforms


def test_every_transform_is_a_program_with_its_equations() -> None:
    def f(x: Any) -> Any:
        return (fnp.sin(x) * x).sum()

    x = np.array([0.5, 1.0])
    with profile() as prof:
        func.grad(f)(x)
        func.jvp(f, (x,), (x,))
        func.vmap(func.grad(f))(np.stack([x, x]))
        func.hessian(f)(x)
        fnp.cos(x)
    programs = [e.name for e in prof.function_events if e.facts]
    assert programs == ["grad(f)", "jvp(f)", "vmap(grad(f))", "hessian(f)"]
    assert {e.road for e in prof.function_events if e.facts} == {"interpreted"}
    assert nested(prof)[-1] == "cos"
    assert counts(prof)["cos"] == 5


def test_what_is_pending_is_not_run_inside_of_a_program() -> None:
    x = ftrans.tensor([1.0, 2.0])
    with profile() as prof:
        y = x * 2
        func.grad(fnp.sin)(1.0)
    assert nested(prof) == ["grad(sin)", ["cos"], "tensors", ["mul"]]
    assert_close(y, [2, 4])


def test_what_jax_transforms_is_not_run_by_us() -> None:
    double = ftrans.jit(lambda x: (fnp.sin(x) * 2).sum())
    x = jnp.array([0.5, 1.0])
    with profile() as prof:
        found = jax.vmap(jax.grad(double))(jnp.stack([x, x]))
        again = jax.jit(double)(x)
    assert_close(found, 2 * np.cos(np.stack([x, x])))
    assert_close(again, 2 * np.sin(x).sum())
    assert "sin" not in counts(prof)


def test_loops_and_branches_hold_what_their_bodies_run() -> None:
    def body(carry: Any, x: Any) -> Any:
        return func_of(carry > 2, carry, x), x

    def func_of(high: Any, carry: Any, x: Any) -> Any:
        return ftrans.cond(high, lambda c, x: c - x, lambda c, x: c + x, carry, x)

    with profile() as prof:
        total, _ = ftrans.scan(body, 0.0, np.arange(4.0))
    assert float(total) == 0.0
    (scan,) = [e for e in prof.function_events if e.name == "scan" and not e.facts]
    branches = [c.name for e in scan.cpu_children for c in e.cpu_children]
    assert branches == ["add", "add", "add", "sub"]
    assert {e.name for e in scan.cpu_children} >= {"gt", "switch"}


def test_what_jit_compiles_is_one_event() -> None:
    @ftrans.jit
    def double(x: Any) -> Any:
        return fnp.sin(x) * 2

    with profile() as prof:
        for size in (3, 3, 3, 4, 4):
            double(np.ones(size))
    runs = [e for e in prof.function_events if e.name == "jit(double)"]
    assert [e.road for e in runs] == ["compiled now", *["compiled"] * 2, "compiled now", "compiled"]
    assert [[c.name for c in e.cpu_children] for e in runs] == [
        ["compile"],
        [],
        [],
        ["compile"],
        [],
    ]


def test_how_programs_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(x: Any) -> Any:
        return (fnp.exp(x) * 3.25).sum()

    step, x = func.grad(loss), np.ones(3)
    monkeypatch.setattr(ftrans.config, "execution", "compile")
    with profile() as prof:
        step(x)
        step(x)
    assert [e.road for e in prof.function_events if e.facts] == ["compiled now", "compiled"]
    assert "exp" not in counts(prof)
    monkeypatch.setattr(ftrans.config, "execution", "auto")
    with profile() as prof:
        values = step(x)
    (program,) = [e for e in prof.function_events if e.facts]
    assert program.facts["road"] == "interpreted"
    assert program.facts["compiled"]
    assert program.facts["seen"]
    assert ftrans.explain(last=1)[0].reason == "a profile times every equation"
    assert "exp" in counts(prof)
    assert_close(values, np.exp(1) * 3.25 * np.ones(3))


def test_a_trace_by_jax_tells_of_compiled_programs(tmp_path: Path) -> None:
    step = ftrans.jit(func.grad(lambda x: fnp.tanh(x @ x).sum()))
    x = np.ones((20, 20))
    step(x)
    with profile(compiled_trace_dir=tmp_path) as prof:
        step(x)
        func.grad(fnp.sin)(1.0)
    assert {e.road for e in prof.function_events if e.facts} == {"compiled", "interpreted"}
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    with gzip.open(trace) as file:
        assert any(event.get("name") for event in json.load(file)["traceEvents"])


def test_arrays_of_jax_stay_there_and_are_waited_for() -> None:
    step = func.grad(lambda x: (fnp.sin(x) * x).sum())
    x = jnp.array([0.5, 1.0])
    with profile(record_shapes=True) as prof:
        ours = step(x)
        theirs = jax.grad(lambda x: step(x).sum())(x)
    assert isinstance(ours, jax.Array)
    assert_close(ours, np.sin(x) + x * np.cos(x))
    assert_close(theirs, 2 * np.cos(x) - x * np.sin(x))
    assert [e.input_shapes for e in prof.function_events if e.name == "sin"] == [[[2]]]


def test_what_jax_computes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    wait = jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda x: waited.append(x) or wait(x))
    double = ftrans.jit(lambda x: x * 2)
    with profile():
        sine = fnp.sin(jnp.ones(3))
        twice = double(jnp.ones(3))
    assert [x is sine or x is twice for x in waited] == [True, True]


def test_what_is_often_run_and_what_is_asked_for_while_tracing() -> None:
    def f(x: Any) -> Any:
        return fnp.cos(x).sum() * 2 if x.sum() > 0 else x.sum()

    step, x = func.grad(f), np.ones(3)
    for _ in range(150):
        step(x)
    with profile() as prof:
        step(x)
    programs = [e for e in prof.function_events if e.facts]
    assert len(programs) == 2
    assert [c.name for c in programs[0].cpu_children] == ["sum", "gt"]
    assert counts(prof)["sin"] == 1


def test_a_program_inside_of_another_has_its_own_road() -> None:
    def outer(x: Any) -> Any:
        return func.grad(fnp.sin)(float(x)) * np.ones(())

    called = ftrans.external(outer, ftrans.ArrayType((), "float64"), vmap_method="sequential")
    with profile() as prof:
        func.vmap(lambda x: called(x) * 2)(np.ones(2))
    programs = [e for e in prof.function_events if e.facts]
    assert [e.name for e in programs] == ["vmap(lambda)", "grad(sin)", "grad(sin)"]
    assert {e.road for e in programs} == {"interpreted"}
    assert {e.cpu_parent.name for e in programs[1:]} == {"external(outer)"}


def test_python_code_that_is_called_counts() -> None:
    def slow(x: Any) -> Any:
        time.sleep(0.02)
        return np.asarray(x) * 2

    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return slow(ct)

    x = leaf(1, 2)
    with profile() as prof:
        Double.apply(x).sum().backward()
        ftrans.external(slow, ftrans.ArrayType((2,), "float32"))(np.ones(2, np.float32))
        func.grad(lambda x: Double.apply(x).sum())(np.ones(2, np.float32))
    names = {"Double.backward", "external(Double.backward)", "external(slow)"}
    found = {e.name: e for e in prof.function_events if e.name in names}
    assert found.keys() == names
    for event in found.values():
        assert event.cpu_time_total >= 20_000
        assert event.cpu_parent is None or event.cpu_parent.cpu_time_total >= event.cpu_time_total


def test_a_range_in_a_traced_function_is_its_tracing() -> None:
    def f(x: Any) -> Any:
        with record_function("traced"):
            y = fnp.sin(x)
        return y.sum()

    with profile() as prof:
        for _ in range(2):
            func.grad(f)(np.ones(2))
    assert nested(prof) == ["traced", "grad(f)", ["cos"]] * 2


# ------------------------------------------------------------------------------ what events say


def test_shapes_flops_memory_and_lines() -> None:
    x, w = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
    image, kernel = np.ones((2, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
    with profile(record_shapes=True, with_flops=True, with_stack=True) as prof:
        func.vmap(lambda x: fnp.tanh(x @ w).T)(x[None])
        func.grad(lambda k: ftrans.primitives.conv_p(image, k, **CONV).sum())(kernel)
    events = {e.name: e for e in prof.function_events}
    dot = events["dot"]
    assert dot.flops == 2 * 4 * 3 * 5
    assert [4, 3] in [shape[-2:] for shape in dot.input_shapes]
    assert dot.cpu_memory_usage == 4 * 5 * 4
    assert events["tanh"].flops == 4 * 5
    assert events["transpose"].cpu_memory_usage == 0
    assert events["transpose"].flops == 0
    here = test_shapes_flops_memory_and_lines.__code__
    assert re.fullmatch(rf"{re.escape(__file__)}\(\d+\): {here.co_qualname}.*", dot.stack[0])
    line = int(re.findall(r"\((\d+)\)", dot.stack[0])[0])
    assert "x @ w" in Path(__file__).read_text().splitlines()[line - 1]
    # of the gradient for a kernel: as many products as of the convolution itself
    assert events["conv"].flops == 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3)
    program = events["vmap(lambda)"]
    inside = sum(child.cpu_memory_usage for child in program.cpu_children)
    assert program.cpu_memory_usage == inside > 0
    assert program.self_cpu_memory_usage == 0


CONV = {
    "strides": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "feature_groups": 1,
    "batch_groups": 1,
}


def test_nothing_is_recorded_that_was_not_asked_for() -> None:
    with profile() as prof:
        fnp.sin(np.ones(3))
    (event,) = prof.function_events
    assert (event.input_shapes, event.stack, event.flops) == ([], [], 0)


def test_averages_by_name_by_shape_and_by_line() -> None:
    with profile(record_shapes=True, with_stack=True) as prof:
        for size in (2, 3, 2):
            fnp.sin(np.ones(size))
        fnp.sin(np.ones(2))
    assert counts(prof) == {"sin": 4}
    by_shape = prof.key_averages(group_by_input_shape=True)
    assert {str(e.input_shapes): e.count for e in by_shape} == {"[[2]]": 3, "[[3]]": 1}
    by_line = prof.key_averages(group_by_stack_n=1)
    assert sorted(e.count for e in by_line) == [1, 3]
    assert len({tuple(e.stack) for e in by_line}) == 2
    total = prof.total_average()
    assert type(total) is FunctionEventAvg
    assert total.count == 4
    assert_close(total.cpu_time_total, sum(e.cpu_time_total for e in prof.function_events))
    assert_close(total.self_cpu_time_total, prof.self_cpu_time_total)


def test_tables() -> None:
    x = leaf(1, 2)
    with profile(record_shapes=True) as prof:
        (x * x).sum().backward()
        time.sleep(0.001)
        with record_function("a name that is rather long"):
            time.sleep(0.005)
    assert str(prof) == prof.table()
    averages = prof.key_averages()
    lines = averages.table(sort_by="cpu_time_total").splitlines()
    assert "Self CPU" in lines[0]
    first = max(averages, key=lambda e: e.cpu_time_total)  # on a busy machine any may be
    assert lines[1].lstrip().startswith(first.key)
    assert lines[-1].startswith("Self CPU time total: ")
    assert averages.table(sort_by="cuda_time_total")  # as programs for PyTorch write it
    assert len(averages.table(row_limit=1).splitlines()) == 3
    assert len(averages.table(row_limit=-1).splitlines()) == len(averages) + 2
    assert averages.table(header="of a step").splitlines()[0] == "of a step"
    assert "a name that is rather" not in averages.table(max_name_column_width=10)
    top = prof.table(top_level_events_only=True)
    assert "backward" in top
    assert "broadcast" not in top
    assert EventList().table() == "Self CPU time total: 0 µs"


def test_a_trace_that_perfetto_opens(tmp_path: Path) -> None:
    x = ftrans.tensor(np.ones((2, 3)), requires_grad=True)
    with profile(record_shapes=True, with_stack=True) as prof, record_function("step"):
        (x @ x.T).sum().backward()
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path, metadata={"run": 7})
    written = json.loads(path.read_text())
    assert written["run"] == 7
    rows = written["traceEvents"]
    assert [row["name"] for row in rows] == [e.name for e in prof.function_events]
    for row, event in zip(rows, prof.function_events, strict=True):
        assert row["ph"] == "X"
        assert isinstance(row["pid"], int)
        assert row["tid"] == threading.get_native_id()
        assert_close(row["ts"], event.time_range.start)
        assert_close(row["dur"], event.time_range.elapsed_us())
    (dot,) = [row for row in rows if row["name"] == "dot" and row["cat"] == "cpu_op"]
    assert dot["args"]["Input Dims"] == [[2, 3], [3, 2]]
    assert __file__ in dot["args"]["Call stack"]
    assert {row["cat"] for row in rows} == {"cpu_op", "backward", "range"}


def test_stacks_for_flame_graphs(tmp_path: Path) -> None:
    with profile(with_stack=True) as prof, record_function("a step"):
        time.sleep(0.002)
    path = tmp_path / "stacks"
    prof.export_stacks(path, "self_cpu_time_total")
    (line,) = path.read_text().splitlines()
    frames, value = line.rsplit(" ", 1)
    assert int(value) >= 2000
    assert frames.split(";")[1] == "a_step"
    assert __file__ in frames


# ----------------------------------------------------------------------- what can go wrong, and on


def test_an_exception_leaves_nothing_behind() -> None:
    x = leaf(1, 2)

    def fails(a: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(ZeroDivisionError), profile() as prof, record_function("range"):
        y = [x * 2, 1 / 0][0]
    y = x * 2
    assert counts(prof) == {"range": 1}
    with profile() as prof:
        with pytest.raises(KeyError), record_function("range"):
            ftrans.external(fails, ftrans.ArrayType((2,), "float32"))(np.ones(2, np.float32))
        y.sum().backward()
    assert nested(prof)[0] == "range"
    assert_close(x.grad, [2, 2])
    assert {e.cpu_parent for e in prof.function_events if e.name == "backward"} == {None}


def test_what_fails_when_it_is_run_raises_where_it_is_asked_for() -> None:
    def fails(a: Any) -> Any:
        raise KeyError("mine")

    x = ftrans.tensor([1.0, 2.0])
    with profile():
        with record_function("range"):
            bad, good = ftrans.external(fails, ftrans.ArrayType((2,), "float32"))(x), x * 2
        assert_close(good, [2, 4])
    with pytest.raises(KeyError):
        bad.numpy()


def test_profiles_do_not_nest_nor_come_again() -> None:
    with profile() as prof:
        other = profile()
        for enter in (other.__enter__, other.__enter__):
            assert "cannot be nested" in _error_of(enter)
        with pytest.raises(FtransError, match="is not active"):
            other.toggle_collection_dynamic(True)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(_error_of(profile().__enter__)))
        thread.start()
        thread.join()
        assert "nor can two threads" in found[0]
        assert str(prof) == "<unfinished profile>"
        with pytest.raises(RuntimeError, match="didn't finish running"):
            prof.key_averages()
        fnp.sin(np.ones(2))
    assert counts(prof) == {"sin": 1}
    with pytest.raises(FtransError, match="not reentrant"), prof:
        pass
    with other:
        pass


def _error_of(function: Any) -> str:
    with pytest.raises(FtransError) as caught:
        function()
    return str(caught.value)


def test_one_that_is_not_enabled_collects_nothing() -> None:
    with profile(enabled=False) as prof:
        assert observing.by is None
        fnp.sin(np.ones(2))
    with pytest.raises(FtransError, match="of a profile that is enabled"):
        prof.function_events  # noqa: B018


def test_pausing() -> None:
    x = ftrans.tensor([1.0, 2.0])
    with profile() as prof:
        y = x * 2
        prof.toggle_collection_dynamic(False, [])
        y = x + 2
        prof.toggle_collection_dynamic(True, [])
        y = x - 2
    assert_close(y, [-1, 0])
    assert nested(prof) == ["tensors", ["mul"], "tensors", ["sub"]]


def test_threads_have_their_own_events() -> None:
    x = leaf(1, 2)

    def work() -> None:
        with record_function("work"):
            (x * 2).sum().backward()

    with profile() as prof:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ranges = [e for e in prof.function_events if e.name == "work"]
    for event in ranges:
        inside = [child.name for child in event.cpu_children]
        assert inside == ["tensors", "backward"]
        assert {child.thread for child in event.cpu_children} == {event.thread}
    assert len(ranges) == 4
    assert_close(x.grad, [8, 8])


def test_ranges_may_end_in_any_order_and_decorate() -> None:
    outer = record_function("outer")
    with profile() as prof:
        outer.__enter__()
        with record_function("inner"):
            outer.__exit__(None, None, None)

        @record_function("called")
        def f(x: int) -> int:
            return f(x - 1) if x else 0

        assert f(2) == 0
    assert nested(prof)[-2:] == ["called", ["called", ["called"]]]
    assert counts(prof) == {"outer": 1, "inner": 1, "called": 3}
    with record_function("outside of a profile"):
        pass


def test_arguments_of_pytorch_are_taken() -> None:
    with profile(use_cuda=True, use_kineto=True, profile_memory=True, with_modules=True) as prof:
        fnp.sin(np.ones(2))
    assert counts(prof) == {"sin": 1}
    with pytest.raises(ArgumentError, match="'record_shape'"):
        profile(record_shape=True)


# --------------------------------------------------------------------------------- other profilers


def recorder(monkeypatch: pytest.MonkeyPatch, package: str) -> list[str]:
    """Puts a package in the place of another that writes down what it is called with."""
    calls: list[str] = []
    module: Any = ModuleType(package)
    module.push_range = lambda text, domain: calls.append(text)
    module.pop_range = lambda domain: calls.append("end")
    module.domain = module.string_handle = str
    module.task_begin = lambda domain, text: calls.append(text)
    module.task_end = lambda domain: calls.append("end")
    monkeypatch.setitem(sys.modules, package, module)
    return calls


@pytest.mark.parametrize(("emit", "package"), [(emit_nvtx, "nvtx"), (emit_itt, "ittapi")])
def test_markers(emit: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorder(monkeypatch, package)
    x = leaf(1, 2)
    markers = emit(record_shapes=True)
    with markers:
        fnp.sin(x).sum().backward()
    assert calls[1].startswith("sin, seq = 0, sizes = [[2]]")
    forward = next(text for text in calls if text.startswith("sum, seq = "))
    number = forward.split(" = ")[1].split(",")[0]
    assert f"sum_backward, stashed seq = {number}" in calls
    assert calls.count("end") * 2 == len(calls)
    depth = np.cumsum([-1 if text == "end" else 1 for text in calls])
    assert depth.min() == 0
    with pytest.raises(FtransError, match="not reentrant"), markers:
        pass
    with emit(enabled=False):
        assert observing.by is None
    calls.clear()
    with pytest.raises(KeyError), emit():
        ftrans.external(_fails, ftrans.ArrayType((), "float64"))(1.0)
    assert calls.count("end") * 2 == len(calls) > 0
    calls.clear()

    class Fails(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.asarray(x) * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return _fails(np.asarray(ct))

    with pytest.raises(KeyError), emit():
        Fails.apply(x).sum().backward()
    assert "once_backward, stashed seq = 0" in calls
    assert calls.count("end") * 2 == len(calls)


def _fails(*given: Any) -> Any:
    raise KeyError("mine")


@pytest.mark.parametrize(("emit", "package"), [(emit_nvtx, "nvtx"), (emit_itt, "ittapi")])
def test_markers_need_a_package(emit: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RuntimeError, match=f"pip install {package}"), emit():
        pass


# ----------------------------------------------------------------------------------- the utilities


def test_an_average_of_events() -> None:
    average = FunctionEventAvg()
    average.add(FunctionEvent(id=0, node_id=0, name="foo", thread=0, start_us=10, end_us=15))
    average.add(FunctionEvent(id=1, node_id=0, name="foo", thread=0, start_us=20, end_us=30))
    average.add(average)
    assert average.key == "foo"
    assert average.count == 4
    assert average.cpu_time_total == average.self_cpu_time_total == 30
    assert average.cpu_time == 7.5
    assert average.device_time_total == average.device_time == 0


def test_children_are_found_by_their_times() -> None:
    ranges = {1: [(0, 1), (1, 2)], 0: [(0, 2), (1, 2), (1, 3)]}
    events = EventList()
    for thread, times in ranges.items():
        for start, end in times:
            events.append(FunctionEvent(len(events) + 1, "", thread, start, end, node_id=0))
    events._populate_cpu_children()
    # [1, 3] pushes out [0, 2], and so [1, 2] is a child of [1, 3]
    assert [[child.id for child in e.cpu_children] for e in events] == [[], [], [], [], [4]]


def test_the_time_of_an_event_itself_is_without_its_children() -> None:
    events = EventList([FunctionEvent(0, "f", 0, 0, 10), FunctionEvent(1, "g", 0, 2, 5)])
    events._populate_cpu_children()
    assert [e.self_cpu_time_total for e in events] == [7, 3]
    assert events.self_cpu_time_total == 10


def test_small_records() -> None:
    assert Interval(0, 5).elapsed_us() == 5
    event = FunctionEvent(0, "f", 0, 2, 3)
    assert (event.time_range, event.device_time_total, event.device_time) == ((2, 3), 0, 0)
