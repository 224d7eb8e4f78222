"""What tests share: comparing arrays, making and running programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from ftrans.config import config
from ftrans.ir import ArrayType, Literal, Params, Program, bind, check
from ftrans.ir.dtype import bfloat16, is_inexact
from ftrans.primitives.control.common import program_from
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime import background

TOLERANCE = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float32": 2e-5,
    "float64": 1e-12,
    "complex64": 5e-5,
    "complex128": 1e-12,
}
"""How far two ways of computing one thing may be apart, by dtype."""

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""What is compared is what XLA is given, so it need not try hard."""


def sampled(cases: Sequence[Any], n: int) -> list[Any]:
    """Returns every n-th case as it is, and marks the others to be run with the slow tests."""
    return sampled_rows([(case,) for case in cases], n)


def sampled_rows(rows: Iterable[Sequence[Any]], n: int) -> list[Any]:
    """Does the same for cases of several arguments.

    In a product of lists every item is met where `n` has no factor in common with their lengths.
    """
    return [
        pytest.param(*row, marks=[pytest.mark.slow] if number % n else [])
        for number, row in enumerate(rows)
    ]


@contextmanager
def on_road(road: str) -> Iterator[None]:
    """Runs programs on one road, "interpret" or "compile", whatever pays."""
    before = config.execution
    config.execution = road  # type: ignore[assignment]
    try:
        yield
    finally:
        config.execution = before


def types_of(arrays: Sequence[Any]) -> list[ArrayType]:
    """Returns the types of arrays."""
    return [ArrayType(np.shape(x), x.dtype) for x in arrays]


def assert_close(
    actual: Any, expected: Any, tolerance: float | None = None, what: str = ""
) -> None:
    """Raises unless two arrays agree: exactly for integers, NaN with NaN.

    Args:
        actual: what was computed.
        expected: what it should be.
        tolerance: relative and absolute; by dtype where it is not given.
        what: names the case in the message.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, not {expected.shape}"
    if tolerance is None:
        tolerance = TOLERANCE.get(actual.dtype.name, 0.0)
    if bfloat16 in (actual.dtype, expected.dtype):
        actual, expected = actual.astype("f4"), expected.astype("f4")
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what
    )


def run(program: Program, arrays: Sequence[Any]) -> list[np.ndarray]:
    """Checks a program and evaluates it with NumPy; verifies the types of all results."""
    check(program)
    assert types_of(arrays) == list(program.inputs), (types_of(arrays), program.inputs)
    with np.errstate(all="ignore"):
        results = [np.asarray(out) for out in evaluate(np, program, arrays)]
    for out, t, atom in zip(results, program.output_types, program.outputs, strict=True):
        if not isinstance(atom, Literal):
            assert (out.shape, out.dtype) == (t.shape, t.dtype), f"{program}\n{out!r} is no {t}"
    return results


def assert_written_out(program: Program, arrays: Sequence[Any]) -> None:
    """Compares what the loop over equations gives with what the written function does, exactly."""
    before, config.check = config.check, False
    try:
        program.memo.pop(np, None)  # equal programs share it
        looped = evaluate(np, program, arrays)
        config.check = True  # which writes out all
        evaluate(np, program, arrays)
        assert program.memo[np].written is not None
        written = evaluate(np, program, arrays)
    finally:
        config.check = before
    for x, y in zip(looped, written, strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), strict=True)


def run_jax(program: Program, arrays: Sequence[Any]) -> list[np.ndarray]:
    """Evaluates a program with JAX, one primitive after the other, in double precision."""
    with jax.enable_x64(True):
        given = [jax.numpy.asarray(x) for x in arrays]
        return [np.asarray(out) for out in evaluate(jax.numpy, program, given)]


def equation(primitive: Any, params: dict[str, Any], arrays: Sequence[Any]) -> Program:
    """Returns the program that applies one primitive to operands of the types of `arrays`."""
    return program_from(
        lambda *operands: bind(primitive, operands, Params(params)), *types_of(arrays)
    )


def is_differentiable(array: Any) -> bool:
    """Tells whether an array has tangents."""
    return is_inexact(np.asarray(array).dtype)


def pairing(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """Returns Re(sum of x * y), the plain pairing that transposition keeps."""
    return float(sum(np.real(np.sum(x * y)) for x, y in zip(xs, ys, strict=True)))


def finished(timeout: float) -> bool:
    """Waits for what is compiled in the background; tells whether it came to an end in time."""
    worker = background._worker
    if worker is not None:
        worker.join(timeout)
    return background._worker is None


class Refuses:
    """Takes the place of what compiles, and counts how often it is asked."""

    def __init__(self, error: BaseException):
        self.error = error
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        raise self.error
