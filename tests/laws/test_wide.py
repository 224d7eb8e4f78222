"""Primitives and their tangents are finite over a wide grid, wherever they are in double precision.

A formula that overflows on its way to a result of ordinary size, as exp(x²) erfc(x) does, does so
in single precision where double precision still tells the result.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ftrans.errors import MissingRuleError
from ftrans.interpreters import jvp
from ftrans.ir.dtype import is_inexact
from ftrans.primitives import Primitive, exp_p, mul_p, registry
from ftrans.primitives.elementwise import elementwise
from ftrans.primitives.namespace import by_lax
from tests.helpers import equation, run

LARGEST = float(np.finfo(np.float32).max)
SIZES = [*np.logspace(-36, 36, 25), *np.linspace(0.2, 40, 45), 88.0, 104.0, 1000.0]
GRIDS = {
    1: np.array([0.0, *SIZES, *(-x for x in SIZES)]),
    2: np.array([0.0, *SIZES[::8], 1.0, *(-x for x in SIZES[::8])]),
    3: np.array([-1e30, -1.0, 0.0, 1e-30, 2.5, 1e20]),
}

real = pytest.mark.parametrize(
    "primitive",
    [
        p
        for p in registry.values()
        if "f" in p.kinds and not p.tags & {"missing", "once", "external"}
    ],
    ids=lambda p: p.name,
)


def points(primitive: Primitive) -> Any:
    """Yields operands in float32, and params: of elementwise primitives the grid, else samples."""
    seen = set()
    for sample in primitive.samples():
        floats = [np.asarray(x).dtype == np.float64 for x in sample.operands]
        arity = sum(floats)
        if "elementwise" in primitive.tags:
            key = tuple(sample.params.items())
            if arity == 0 or key in seen:
                continue
            seen.add(key)
            flat = np.array(list(product(GRIDS[arity], repeat=arity)), np.float32).T
            columns = iter(flat)
            operands = [
                next(columns) if is_float else np.resize(x, flat.shape[1])
                for x, is_float in zip(sample.operands, floats, strict=True)
            ]
            yield operands, sample.params
        elif arity:
            for size in (1e-30, 1e-6, 30.0, 1e6):
                operands = [
                    (x * size).astype(np.float32) if is_float else x
                    for x, is_float in zip(sample.operands, floats, strict=True)
                ]
                yield operands, sample.params


def wide(operands: list) -> list:
    return [x.astype(np.float64) if x.dtype == np.float32 else x for x in operands]


def assert_finite(what: str, found: list, oracle: list, operands: list) -> None:
    for x, y in zip(found, oracle, strict=True):
        if is_inexact(x.dtype):
            lost = ~np.isfinite(x) & (np.abs(y) < LARGEST)
            at = [v[lost] if v.shape == lost.shape else v for v in operands]
            assert not lost.any(), f"{what} at {at}: {x[lost]}, not {y[lost]}"


def assert_values_are_finite(primitive: Primitive) -> None:
    for operands, params in points(primitive):
        found = run(equation(primitive, params, operands), operands)
        oracle = run(equation(primitive, params, wide(operands)), wide(operands))
        assert_finite(f"{primitive.name}, {params}", found, oracle, operands)


@real
def test_values_are_finite_where_those_in_double_precision_are(primitive: Primitive) -> None:
    assert_values_are_finite(primitive)


@real
def test_tangents_are_finite_where_those_in_double_precision_are(primitive: Primitive) -> None:
    for operands, params in points(primitive):
        results = []
        for given in (operands, wide(operands)):
            active = tuple(is_inexact(x.dtype) for x in given)
            try:
                pushed, _ = jvp(equation(primitive, params, given), active)
            except MissingRuleError:
                return
            ones = [np.ones_like(x) for x, a in zip(given, active, strict=True) if a]
            results.append(run(pushed, [*given, *ones]))
        assert_finite(f"{primitive.name}, {params}", *results, operands)


def test_a_naive_formula_is_found() -> None:
    """All other laws pass: their samples are small."""
    naive = elementwise(
        "naive",
        kinds="f",
        lower=lambda xp, x: xp.exp(x * x) * by_lax(xp, "erfc", x),
        jvp=[lambda t, out, x: mul_p(t, exp_p(x))],
    )
    del registry["naive"]
    with pytest.raises(AssertionError, match=r"(?s)naive, .* at .*: \[nan"):
        assert_values_are_finite(naive)
