"""The profiler, row by row of what PyTorch's documents name."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.autograd import profiler, profiler_util
from tests.torch_suite.common import leaf, same


def run(steps: int = 1, **options: Any) -> Any:
    x = leaf([3.0])
    with profiler.profile(**options) as prof:
        for _ in range(steps):
            (x**2).backward()
    same(x.grad, [6.0 * steps])
    return prof


def counts(prof: Any) -> dict[str, int]:
    return {event.key: event.count for event in prof.key_averages()}


def names(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_q1_profile() -> None:
    """Differs: names are as `integer_pow` and `integer_pow_backward`; CUDA means nothing."""
    prof = run(
        100,
        enabled=True,
        use_cuda=False,
        use_device=None,
        record_shapes=False,
        with_flops=False,
        profile_memory=False,
        with_stack=False,
        with_modules=False,
        use_kineto=False,
        use_cpu=True,
        experimental_config=None,
        acc_events=False,
        custom_trace_id_callback=None,
        post_processing_timeout_s=None,
        activity_filters=None,
    )
    found = counts(prof)
    assert found["integer_pow"] == found["integer_pow_backward"] == found["backward"] == 100


def test_q2_key_averages() -> None:
    """Differs: what one run computes twice of the same operands is run, and counted, once."""
    with profiler.profile(record_shapes=True, with_stack=True) as prof:
        for size in (2, 3, 2):
            torch.sin(torch.rand(size))
        x = torch.rand(2)
        torch.sin(x), torch.sin(x)
    assert counts(prof)["sin"] == 4
    shapes = prof.key_averages(group_by_input_shape=True)
    found = {str(e.input_shapes): e.count for e in shapes if e.key == "sin"}
    assert found == {"[[2]]": 3, "[[3]]": 1}
    lines = prof.key_averages(group_by_stack_n=1)
    assert sorted(e.count for e in lines if e.key == "sin") == [1, 3]
    expected = ["group_by_input_shape", "group_by_stack_n", "group_by_overload_name"]
    assert names(profiler.profile.key_averages) == expected


def test_q3_table() -> None:
    """Works."""
    prof = run()
    assert str(prof) == prof.table()
    averages = prof.key_averages()
    table = averages.table(sort_by="self_cpu_time_total", row_limit=1, header="of a step")
    assert table.splitlines()[0] == "of a step"
    assert max(averages, key=lambda e: e.self_cpu_time_total).key in table.splitlines()[2]
    for method in (profiler.profile.table, profiler_util.EventList.table):
        assert names(method) == [
            *("sort_by", "row_limit", "max_src_column_width", "max_name_column_width"),
            *("max_shapes_column_width", "header", "top_level_events_only"),
        ]


def test_q4_export_chrome_trace(tmp_path: Path) -> None:
    """Works."""
    path = tmp_path / "trace.json"
    prof = run()
    prof.export_chrome_trace(str(path), metadata={"step": 3})
    written = json.loads(path.read_text())
    assert len(written["traceEvents"]) == len(prof.function_events) > 0
    assert written["step"] == 3
    expected = ["path", "metadata", "use_python_export"]
    assert names(profiler.profile.export_chrome_trace) == expected


def test_q5_self_cpu_time_total() -> None:
    """Works."""
    prof = run()
    assert prof.self_cpu_time_total > 0
    total = sum(event.self_cpu_time_total for event in prof.function_events)
    assert prof.self_cpu_time_total == pytest.approx(total)


def test_q6_total_average() -> None:
    """Works."""
    prof = run()
    total = prof.total_average()
    assert type(total).__name__ == "FunctionEventAvg"
    assert total.count == len(prof.function_events)


def test_q7_stacks_events_and_pauses(tmp_path: Path) -> None:
    """Works."""
    path = tmp_path / "stacks"
    x = torch.ones(200, 200)
    with profiler.profile(with_stack=True) as prof:
        torch.cos(x)
        prof.toggle_collection_dynamic(False, [])
        torch.sin(x)
        prof.toggle_collection_dynamic(True, [])
        torch.exp(x)
    assert {"cos", "exp"} <= {event.name for event in prof.function_events}
    assert "sin" not in {event.name for event in prof.function_events}
    prof.export_stacks(str(path), "self_cpu_time_total")
    lines = path.read_text().splitlines()
    assert any(re.fullmatch(r".*test_q_profiler.*;exp \d+", line) for line in lines)


def test_q8_record_function() -> None:
    """Works."""

    @profiler.record_function("called")
    def f(x: Any) -> Any:
        return x + 1

    with profiler.profile() as prof:
        with profiler.record_function("lbl", args="some"):
            y = torch.ones(2) * 3
        f(y)
    assert counts(prof)["lbl"] == counts(prof)["called"] == 1


def recorder(monkeypatch: pytest.MonkeyPatch, package: str) -> list[str]:
    """Puts a package in the place of another that writes down the ranges that it is given."""
    texts: list[str] = []
    module: Any = ModuleType(package)
    module.push_range = lambda text, domain: texts.append(text)
    module.pop_range = lambda domain: None
    module.domain = module.string_handle = str
    module.task_begin = lambda domain, text: texts.append(text)
    module.task_end = lambda domain: None
    monkeypatch.setitem(sys.modules, package, module)
    return texts


def correlated(texts: list[str]) -> bool:
    (number,) = {x.split(" = ")[1].split(",")[0] for x in texts if x.startswith("sum, seq = ")}
    return any(x.startswith(f"sum_backward, stashed seq = {number}") for x in texts)


def test_q9_emit_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differs: it works without CUDA, wherever `nvtx` is installed, and says to install that."""
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(RuntimeError, match="pip install nvtx"):
        profiler.emit_nvtx().__enter__()
    texts, x = recorder(monkeypatch, "nvtx"), leaf([1.0, 2.0])
    with profiler.emit_nvtx(enabled=True, record_shapes=True):
        torch.sin(x).sum().backward()
    assert correlated(texts)
    assert any("sizes = [[2]]" in text for text in texts)


def test_q10_emit_itt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Differs: it works wherever the package `ittapi` is installed, and says to install that."""
    monkeypatch.setitem(sys.modules, "ittapi", None)
    with pytest.raises(RuntimeError, match="pip install ittapi"):
        profiler.emit_itt().__enter__()
    texts, x = recorder(monkeypatch, "ittapi"), leaf([1.0, 2.0])
    with profiler.emit_itt(enabled=True, record_shapes=False):
        torch.sin(x).sum().backward()
    assert correlated(texts)


@pytest.mark.parametrize(
    "twice",
    [
        False,
        True,
    ],
)
def test_q11_sequence_numbers(twice: bool) -> None:
    """Differs: numbers are of places in the user's code; a second backward pass has none."""
    x = leaf([0.5, 0.7])
    with profiler.profile() as prof:
        y = torch.sin(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=twice)
    numbers = {event.name: event.sequence_nr for event in prof.function_events}
    assert numbers["sin_backward"] == numbers["sin"] >= 0
    assert numbers["sum_backward"] == numbers["sum"] != numbers["sin"]
    if twice:
        with profiler.profile() as prof:
            (h,) = torch.autograd.grad(g.sum(), x)
        same(h, -torch.sin(x))
        again = {event.name: event.sequence_nr for event in prof.function_events}
        assert again["mul"] == -1
        assert again["sum"] == again["sum_backward"] >= 0


def declined(module: ModuleType, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'[^$]*{re.escape(instead)}"):
        getattr(module, name)


@pytest.mark.parametrize("name", ["load_nvprof", "parse_nvprof_trace"])
def test_q12_traces_of_nvprof(name: str) -> None:
    """Declined: nvprof knows no GPU that JAX runs on; the error says `compiled_trace_dir`."""
    declined(profiler, name, "profile(compiled_trace_dir=...)")


def test_q13_enforce_unique() -> None:
    """Declined: the error says to keep what was seen in a set."""
    declined(profiler, "EnforceUnique", "if key in seen")


def test_q14_kineto_step_tracker() -> None:
    """Declined: there is no Kineto; the error says `itertools.count`."""
    declined(profiler, "KinetoStepTracker", "itertools.count()")


def test_q15_interval() -> None:
    """Works."""
    assert profiler_util.Interval(0, 5).elapsed_us() == 5


def test_q16_kernel() -> None:
    """Declined: what a device runs is waited for, and counts to the event itself."""
    declined(profiler_util, "Kernel", "its time is that of the event itself")


def test_q17_mem_records() -> None:
    """Declined: there are no records of Kineto; the error says `bisect`."""
    declined(profiler_util, "MemRecordsAcc", "bisect.bisect_left(times, start)")


def test_q18_string_table() -> None:
    """Declined: no name is a mangled one of C++."""
    declined(profiler_util, "StringTable", "no mangled ones of C++")


def test_q19_events_and_their_averages() -> None:
    """Works."""
    average = profiler_util.FunctionEventAvg()
    for number, (start, end) in enumerate([(10, 15), (20, 30)]):
        event = profiler_util.FunctionEvent(
            id=number, node_id=0, name="foo", thread=0, start_us=start, end_us=end
        )
        average.add(event)
    average.add(average)
    assert (average.key, average.count, average.cpu_time) == ("foo", 4, 7.5)
    assert average.cpu_time_total == average.self_cpu_time_total == 30
    events = profiler_util.EventList([event, event])
    (mean,) = events.key_averages()
    assert (mean.count, mean.cpu_time) == (2, 10)
