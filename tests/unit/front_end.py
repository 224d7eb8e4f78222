"""Compares front-end functions with NumPy's, eagerly and traced, and their gradients with JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import ftrans.numpy as fnp
from ftrans import func
from ftrans.ir import ArrayType, Program, check, open_frame
from ftrans.runtime import run
from tests.oracle import jaxpr


def leaves_of(x: Any) -> list[Any]:
    """Returns the arrays in tuples and lists; a list of Python numbers is an array itself."""
    if not isinstance(x, (list, tuple)):
        return [x]
    found = [y for part in x for y in leaves_of(part)]
    is_array = isinstance(x, list) and found and all(type(y) in (int, float, list) for y in found)
    return [x] if is_array else found


def assert_same(actual: Any, expected: Any, what: str = "", *, dtypes: bool = True) -> None:
    """Raises unless structures, shapes, inexact dtypes and values agree."""
    actual, expected = leaves_of(actual), leaves_of(expected)
    assert len(actual) == len(expected), what
    for ours, theirs in zip(actual, expected, strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.shape == theirs.shape, f"{what}: {ours.shape}, not {theirs.shape}"
        if dtypes and "f" in (ours.dtype.kind, theirs.dtype.kind):
            assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype}, not {theirs.dtype}"
        assert ours.dtype.kind == theirs.dtype.kind, f"{what}: {ours.dtype}, not {theirs.dtype}"
        tolerance = 1e-12 if ours.dtype.itemsize >= 8 else 1e-5
        np.testing.assert_allclose(
            ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what
        )


def program_of(function: Callable[..., Any], *arrays: Any) -> tuple[Program, list[Any]]:
    """Returns the checked program of a function whose inputs have values, and what it captured."""
    with open_frame("test") as frame:
        inputs = [frame.input(ArrayType(x.shape, x.dtype), x) for x in arrays]
        program, captured = frame.close(leaves_of(function(*inputs)))
    return check(program), captured


def traced(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Runs a function by way of its program."""
    program, captured = program_of(function, *arrays)
    return run(program, [*arrays, *captured])


def check_values(function: Callable[..., Any], expected: Any, *arrays: Any, what: str = "") -> None:
    """Compares a function with what it should return, eagerly and traced."""
    assert_same(function(*arrays), expected, f"{what}, eager")
    assert_same(traced(function, *arrays), expected, f"{what}, traced")


def check_gradients(
    function: Callable[..., Any], oracle: Callable[..., Any], *arrays: Any, what: str = ""
) -> None:
    """Compares value, pushforward and pullback with those of JAX, in float64."""
    random = np.random.default_rng(0)
    tangents = tuple(random.normal(size=x.shape) for x in arrays)
    pushed = jaxpr.evaluate(lambda arrays, tangents: jax.jvp(oracle, arrays, tangents))
    expected, expected_dot = pushed(arrays, tangents)
    ct = random.normal(size=expected.shape)
    expected_cts = jaxpr.evaluate(lambda arrays, ct: jax.vjp(oracle, *arrays)[1](ct))(arrays, ct)
    found, pullback = func.vjp(function, *arrays)
    assert_same(found, expected, what)
    assert_same(pullback(ct), expected_cts, f"{what}, pullback")
    assert_same(func.jvp(function, arrays, tangents), (expected, expected_dot), f"{what}, jvp")


def evaluate(case: str, xp: Any, x: Any, **names: Any) -> Any:
    """Returns what a case gives, an expression of `xp`, `x`, `np` and `names`."""
    return eval(case, {"xp": xp, "x": x, "np": np, **names})


def check_case(case: str, arrays: list[np.ndarray], **names: Any) -> None:
    """Compares an expression with NumPy's, for all of the arrays that NumPy takes in it."""
    taken = 0
    for x in arrays:
        if np.iscomplexobj(x) and any(name in case for name in ("x>", "searchsorted", "digitize")):
            continue  # complex numbers have no order here
        try:
            expected = evaluate(case, np, x, **names)
        except (ValueError, IndexError, TypeError):
            continue
        taken += 1
        ours = lambda x: evaluate(case, fnp, x, **names)  # noqa: E731
        check_values(ours, expected, x, what=f"{case} {x.shape}")
    assert taken


def check_gradients_of_case(case: str, x: np.ndarray, **names: Any) -> None:
    """Compares the gradients of an expression with those of JAX."""
    check_gradients(
        lambda x: evaluate(case, fnp, x, **names),
        lambda x: evaluate(case, jax.numpy, x, **names),
        x,
        what=case,
    )
