"""Programs that are run by NumPy: equation by equation, and written out where they run often."""

from __future__ import annotations

import gc
import linecache
import sys
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.interpreters.base import building, finish
from ftrans.ir import ArrayType, Literal, Params, bind
from ftrans.primitives import registry
from ftrans.primitives.control.common import program_from
from ftrans.primitives.evaluate import evaluate
from tests.helpers import assert_written_out, types_of


def test_whole_programs_are_the_same_written_out() -> None:
    def step(c: Any, v: Any) -> Any:
        c = fnp.where(v > 0, fnp.tanh(c * v), c - 1.5)
        return c, ftrans.cond(c.sum() > 0, lambda c: (c * c).sum(), lambda c: c.sum(), c)

    def loss(x: Any) -> Any:
        c, ys = ftrans.scan(step, x[0], x)
        c = ftrans.while_loop(lambda c: c.sum() < 5, lambda c: c * 1.5 + 1, c, max_steps=9)
        return (c * fnp.sort(x)[::-1]).sum() + ys[-1] + fnp.dot(x.T, x)[0, 1]

    x = np.random.default_rng(0).normal(size=(4, 3))
    for f in (loss, func.value_and_grad(loss), func.vmap(lambda v: fnp.cumsum(v) / v.sum())):
        program = ftrans.trace(f)(x)
        assert_written_out(program, [x])


def test_results_that_are_unread_twice_read_given_or_constant() -> None:
    split = ArrayType((4,), np.dtype("float64"))
    with building("odd", [split, split]) as (frame, (x, y)):
        (s,) = bind(registry["add"], [x, x], Params())
        bind(registry["sin"], [s], Params())  # nothing reads it
        called = program_from(lambda a: [a, a * 2.0, Literal(3.0, np.dtype("float64"))], split)
        a, b, c = bind(registry["call"], [s], Params(program=called))
        program = finish(frame, [b, y, b, a, c, Literal(7, np.dtype("int64"))])
    arrays = [np.arange(4.0), np.ones(4)]
    assert_written_out(program, arrays)
    found = evaluate(np, program, arrays)
    np.testing.assert_array_equal(found[0], 4 * np.arange(4.0))
    assert [float(found[4]), int(found[5])] == [3.0, 7]


def by_lowering(program: Any, arrays: Any) -> list[Any]:
    """Returns what equations compute one by one, with nothing decided ahead."""
    values: dict[int, Any] = dict(enumerate(arrays))
    read = lambda a: a.array if type(a) is Literal else values[a]  # noqa: E731
    for equation, results, _ in program.numbered():
        found = equation.primitive.lower(np, *map(read, equation.operands), **equation.params)
        found = found if equation.primitive.multiple else [found]
        values.update(zip(results, found, strict=True))
    return [np.asarray(read(a)) for a in program.outputs]


@pytest.mark.parametrize(
    "function",
    [
        lambda m: fnp.where(m.sum(0) > 1, m, m.mean(1, keepdims=True)) - m.max(),
        lambda m: (m.sum() + fnp.zeros_like(m)) * (fnp.ones_like(m) * m.sum(0)),
        lambda m: fnp.broadcast_to(m[0], m.shape) / fnp.broadcast_to(m.sum(), m.shape),
        lambda m: fnp.power(m * m, m.sum(0)) + fnp.broadcast_to(m[:, :1], m.shape).T.T,
        lambda m: fnp.arange(3.0) + fnp.eye(3).sum(0) * fnp.reshape(fnp.arange(3), (1, 3)) + m[:1],
        lambda m: [fnp.broadcast_to(m[0], m.shape), fnp.broadcast_to(m[0], m.shape) * m],
        lambda m: [fnp.arange(4), fnp.stop_gradient(fnp.arange(4)), fnp.arange(4) + 1],
        lambda m: fnp.log_softmax(m, axis=0) @ fnp.tril(m.T @ m),
    ],
)
def test_what_is_decided_ahead_changes_no_bit(function: Any) -> None:
    m = np.random.default_rng(3).uniform(0.5, 1.5, size=(2, 3))
    for f in (function, func.vmap(function) if not isinstance(function(m), list) else function):
        given = m if f is function else np.stack([m, m * 2, m - 1])
        program = ftrans.trace(f)(given)
        found, expected = evaluate(np, program, [given]), by_lowering(program, [given])
        for a, b in zip(found, expected, strict=True):
            assert np.asarray(a).tobytes() == b.tobytes()
            assert np.shape(a) == b.shape


def test_constants_of_a_program_are_nobodys_to_write_to() -> None:
    config.execution = "interpret"
    line = np.arange(4, dtype="int32")
    for f in (
        lambda x: (fnp.stop_gradient(fnp.arange(4)), x * 2),
        lambda x: (fnp.reshape(fnp.arange(4), (2, 2)).ravel(), x * 2),
        lambda x: (fnp.arange(4), x * 2),
    ):
        for _ in range(3):
            out, _ = func.vmap(f, out_dims=(None, 0))(np.ones(2))
            np.testing.assert_array_equal(out, line)
            out[...] = -1


def test_a_program_without_results_inputs_or_equations() -> None:
    for program, arrays in (
        (program_from(lambda: []), []),
        (program_from(lambda x: [x], *types_of([np.ones(2)])), [np.ones(2)]),
        (program_from(lambda: [Literal(2.0, np.dtype("float64"))]), []),
    ):
        assert_written_out(program, arrays)


def test_it_is_written_out_when_it_has_run_often(monkeypatch: pytest.MonkeyPatch) -> None:
    config.execution, config.check = "interpret", False
    monkeypatch.setattr("ftrans.primitives.evaluate._OFTEN", 3)
    x = np.array([0.5, 2.0])
    program = program_from(lambda v: [fnp.sin(v) * 3.0], *types_of([x]))
    program.memo.pop(np, None)
    written = []
    for _ in range(6):
        (found,) = evaluate(np, program, [x])
        np.testing.assert_array_equal(found, np.sin(x) * 3.0)
        written.append(program.memo[np].written is not None)
    assert written == [False, False, False, True, True, True]


def test_a_gradient_is_the_same_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    config.execution, config.check = "interpret", False
    monkeypatch.setattr("ftrans.primitives.evaluate._OFTEN", 3)
    gradient = func.grad(lambda v: (fnp.sin(v) * v).sum())
    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=5)
        np.testing.assert_allclose(gradient(x), np.cos(x) * x + np.sin(x), rtol=1e-14)


def test_what_is_long_is_not_written_out() -> None:
    config.check = True

    def chain(x: Any) -> Any:
        for _ in range(700):
            x = fnp.sin(x)
        return [x]

    def wide(x: Any) -> Any:
        return [fnp.concatenate([x] * 300) for _ in range(7)]

    for f in (chain, wide):
        program = program_from(f, *types_of([np.ones(2)]))
        for _ in range(3):
            evaluate(np, program, [np.ones(2)])
        assert program.memo[np].written is None


def test_what_is_written_out_is_freed_with_its_program() -> None:
    config.check = True
    program = program_from(lambda x: [fnp.sin(x) * 41.5], *types_of([np.ones(2)]))
    for _ in range(3):
        evaluate(np, program, [np.ones(2)])
    written = weakref.ref(program.memo[np].written)
    gc.collect()
    gc.disable()
    try:
        del program.memo[np]
        assert written() is None
    finally:
        gc.enable()


def test_a_signal_that_is_handled_between_two_steps_is_what_it_is() -> None:
    """Its frames are not those of the written function, whose lines count the equations."""
    config.check = True
    program = program_from(lambda x: [fnp.sin(x)], *types_of([np.ones(2)]))
    evaluate(np, program, [np.ones(2)])

    def interrupted(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is not evaluate.__code__:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and "plan.written(*arrays)" in line:
            raise TimeoutError("too slow")
        return interrupted

    before = sys.gettrace()
    sys.settrace(interrupted)
    try:
        with pytest.raises(TimeoutError, match="too slow") as caught:
            evaluate(np, program, [np.ones(2)])
    finally:
        sys.settrace(before)
    assert not hasattr(caught.value, "__notes__")
    np.testing.assert_array_equal(evaluate(np, program, [np.ones(2)])[0], np.sin(np.ones(2)))


@pytest.mark.parametrize("check", [False, True])
def test_memory_is_given_back_after_the_last_use(check: bool) -> None:
    config.check = check

    def f(x: Any) -> Any:
        for _ in range(20):
            x = fnp.sin(x) * 1.5
        return [x]

    x = np.ones(1_000_000)
    program = program_from(f, *types_of([x]))
    program.memo.pop(np, None)
    evaluate(np, program, [x])
    tracemalloc.start()
    try:
        evaluate(np, program, [x])
        assert tracemalloc.get_traced_memory()[1] < 3.5 * x.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("check", [False, True])
def test_errors_name_the_equation(check: bool) -> None:
    config.check = check
    fails = False

    def kernel(x: Any) -> Any:
        if fails:
            raise ZeroDivisionError("none")
        return x

    call = ftrans.external(kernel, lambda x: x, vmap_method="broadcast_all")

    def f(x: Any) -> Any:
        return fnp.cos(call(fnp.sin(x) * 2.0))

    config.execution = "interpret"
    mapped, x = func.vmap(f), np.ones((2, 3))
    for _ in range(3):
        mapped(x)
    fails = True
    with pytest.raises(ZeroDivisionError, match="none") as caught:
        mapped(x)
    notes = "\n".join(caught.value.__notes__)
    assert "raised by external of f64[2,3] in vmap(f)" in notes
    assert "test_evaluate.py" in notes
    assert "return fnp.cos(call(fnp.sin(x) * 2.0))" in notes
    frames = [entry.path for entry in caught.traceback]
    assert not any("<ftrans program>" in str(path) for path in frames)
    fails = False
    np.testing.assert_allclose(mapped(x), np.cos(np.sin(x) * 2))


def test_a_nested_call_that_fails_is_named_once() -> None:
    """The note is that of the equation inside the loop, not of the loop."""
    config.check, config.execution = True, "interpret"
    fails = False

    def kernel(x: Any) -> Any:
        if fails:
            raise OSError("no disk")
        return x * 2

    call = ftrans.external(kernel, lambda x: x, vmap_method="broadcast_all")
    run = func.vmap(lambda x: ftrans.fori_loop(0, 3, lambda i, c: call(c) + 1, x))
    for _ in range(3):
        run(np.ones((1, 2)))
    fails = True
    with pytest.raises(OSError, match="no disk") as caught:
        run(np.ones((1, 2)))
    notes = [note for note in caught.value.__notes__ if "raised by" in note]
    assert len(notes) == 1
    assert "external of f64[1,2]" in notes[0]
