"""What derivatives are where calculus leaves a choice: PyTorch's six rules, least norm first.

The numbers are those of PyTorch 2.13, except where it breaks its own rules: there the rules win,
and the row says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ftrans.interpreters import jvp, linearize, transpose
from ftrans.primitives import (
    abs_p,
    acos_p,
    asin_p,
    atan2_p,
    ceil_p,
    clamp_p,
    cos_p,
    cummax_p,
    cummin_p,
    cumprod_p,
    div_p,
    floor_p,
    imag_p,
    integer_pow_p,
    log_p,
    max_p,
    maximum_p,
    min_p,
    minimum_p,
    mul_p,
    pow_p,
    prod_p,
    real_p,
    rem_p,
    round_p,
    sign_p,
    sin_p,
    sqrt_p,
)
from ftrans.primitives.control.common import program_from
from tests.helpers import assert_close, run, types_of

inf, nan = np.inf, np.nan


def gradient(function: Callable[..., Any], *operands: np.ndarray) -> list[np.ndarray]:
    """Returns the gradients of the sum of the results, conjugated as PyTorch's are."""
    program = program_from(lambda *xs: [function(*xs)], *types_of(operands))
    split = linearize(program, (True,) * len(operands))
    out, *residuals = run(split.forward, operands)
    if not split.active[0]:
        return [np.zeros_like(x) for x in operands]
    marks = (True,) * len(operands) + (False,) * len(residuals)
    back, given = transpose(split.linear, marks, (True,))
    found = iter(run(back, [*residuals, np.ones_like(out)]))
    return [
        np.conj(next(found)) if is_given else np.zeros_like(x)
        for x, is_given in zip(operands, given, strict=True)
    ]


def slope(function: Callable[..., Any], *operands: np.ndarray) -> np.ndarray:
    """Returns the tangent of the result where that of the first operand is one."""
    program = program_from(lambda *xs: [function(*xs)], *types_of(operands))
    pushed, (nonzero,) = jvp(program, (True, *([False] * (len(operands) - 1))))
    out, *tangents = run(pushed, [*operands, np.ones_like(operands[0])])
    return tangents[0] if nonzero else np.zeros_like(out)


ONE_OPERAND = [
    # rule 1: differentiable
    ("sin", sin_p, 0.0, 1.0),
    ("cos", cos_p, 0.0, 0.0),
    # rule 2 and 3: convex or concave, least norm
    ("abs", abs_p, 0.0, 0.0),
    ("clamp at the lower bound (PyTorch: 1)", lambda x: clamp_p(0.0, x, 1.0), 0.0, 0.0),
    ("clamp at the upper bound (PyTorch: 1)", lambda x: clamp_p(0.0, x, 1.0), 1.0, 0.0),
    ("clamp inside", lambda x: clamp_p(0.0, x, 1.0), 0.5, 1.0),
    ("clamp outside", lambda x: clamp_p(0.0, x, 1.0), 1.5, 0.0),
    ("maximum(x, 0)", lambda x: maximum_p(x, 0.0), 0.0, 0.5),
    ("minimum(x, 0)", lambda x: minimum_p(0.0, x), 0.0, 0.5),
    # rule 4: by continuity
    ("sqrt", sqrt_p, 0.0, inf),
    ("log", log_p, 0.0, inf),
    ("asin", asin_p, 1.0, inf),
    ("acos", acos_p, 1.0, -inf),
    ("x ** 0.5", lambda x: pow_p(x, 0.5), 0.0, inf),
    ("x ** 0", lambda x: pow_p(x, 0.0), 0.0, 0.0),
    ("x ** 0, a whole power", lambda x: integer_pow_p(x, exponent=0), 0.0, 0.0),
    ("x ** 1", lambda x: pow_p(x, 1.0), 0.0, 1.0),
    ("x ** 2", lambda x: pow_p(x, 2.0), 0.0, 0.0),
    ("0 ** y at -1", lambda y: pow_p(0.0, y), -1.0, -inf),
    ("0 ** y at 0", lambda y: pow_p(0.0, y), 0.0, 0.0),
    ("0 ** y at 1", lambda y: pow_p(0.0, y), 1.0, 0.0),
    # rule 5: not defined
    ("sqrt of -1", sqrt_p, -1.0, nan),
    ("log of -1", log_p, -1.0, -1.0),
    # piecewise constant
    ("floor", floor_p, 1.0, 0.0),
    ("ceil", ceil_p, 1.5, 0.0),
    ("round", round_p, 0.5, 0.0),
    ("sign", sign_p, 0.0, 0.0),
    ("rem(x, 2)", lambda x: rem_p(x, 2.0), 2.0, 1.0),
    ("x / 0", lambda x: div_p(x, 0.0), 1.0, inf),
]


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [row[1:] for row in ONE_OPERAND],
    ids=[row[0] for row in ONE_OPERAND],
)
def test_kink(function: Any, at: float, expected: float) -> None:
    for shape in ((), (2,)):
        x = np.full(shape, at)
        assert_close(slope(function, x), np.full(shape, expected))
        assert_close(gradient(function, x)[0], np.full(shape, expected))


TWO_OPERANDS = [
    ("maximum", maximum_p, (1.0, 1.0), (0.5, 0.5)),
    ("minimum", minimum_p, (1.0, 1.0), (0.5, 0.5)),
    ("maximum, apart", maximum_p, (1.0, 2.0), (0.0, 1.0)),
    ("atan2 at the origin", atan2_p, (0.0, 0.0), (0.0, 0.0)),
    ("pow(0, 0)", pow_p, (0.0, 0.0), (0.0, 0.0)),
    ("pow(0, 1)", pow_p, (0.0, 1.0), (1.0, 0.0)),
    ("pow(0, -1)", pow_p, (0.0, -1.0), (-inf, -inf)),
    ("pow(-2, 2)", pow_p, (-2.0, 2.0), (-4.0, nan)),
    ("rem(2, 2)", rem_p, (2.0, 2.0), (1.0, -1.0)),
    ("rem(-7, 2)", rem_p, (-7.0, 2.0), (1.0, 3.0)),
]


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [row[1:] for row in TWO_OPERANDS],
    ids=[row[0] for row in TWO_OPERANDS],
)
def test_kink_of_two_operands(function: Any, at: Sequence, expected: Sequence) -> None:
    found = gradient(function, *(np.array(x) for x in at))
    for one, other in zip(found, expected, strict=True):
        assert_close(one, np.array(other))


ALONG_AN_AXIS = [
    ("max splits evenly", lambda x: max_p(x, axes=(0,)), [1, 1, 0], [0.5, 0.5, 0]),
    ("min splits evenly", lambda x: min_p(x, axes=(0,)), [1, 0, 0], [0, 0.5, 0.5]),
    ("prod with one zero", lambda x: prod_p(x, axes=(0,)), [0, 2, 3], [6, 0, 0]),
    ("prod with two zeros", lambda x: prod_p(x, axes=(0,)), [0, 2, 0], [0, 0, 0]),
    ("cumprod", lambda x: cumprod_p(x, axis=0, reverse=False), [0, 2, 3], [9, 0, 0]),
    ("cummax", lambda x: cummax_p(x, axis=0, reverse=False), [1, 1, 0], [1, 2, 0]),
    ("cummin", lambda x: cummin_p(x, axis=0, reverse=False), [1, 1, 2], [1, 2, 0]),
    ("cummax backwards", lambda x: cummax_p(x, axis=0, reverse=True), [0, 1, 1], [0, 2, 1]),
    ("norm at 0 by abs", lambda x: abs_p(x), [0, 1], [0, 1]),
]


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [row[1:] for row in ALONG_AN_AXIS],
    ids=[row[0] for row in ALONG_AN_AXIS],
)
def test_ties_along_an_axis(function: Any, at: Sequence, expected: Sequence) -> None:
    assert_close(gradient(function, np.array(at, float))[0], np.array(expected, float))


def test_a_product_with_zeros_has_exact_second_derivatives() -> None:
    x = np.array([0.0, 2.0, 0.0])
    program = program_from(lambda x: [prod_p(x, axes=(0,))], *types_of([x]))
    pushed, _ = jvp(program, (True,))
    twice, _ = jvp(pushed, (True, False))
    rows = [[run(twice, [x, e, f])[-1] for f in np.eye(3)] for e in np.eye(3)]
    assert_close(np.array(rows), np.array([[0.0, 0, 2], [0, 0, 0], [2, 0, 0]]))


def test_the_square_has_a_second_derivative_at_zero() -> None:
    for square in (lambda x: integer_pow_p(x, exponent=2), lambda x: pow_p(x, 2.0)):
        program = program_from(lambda x, square=square: [square(x)], *types_of([np.array(0.0)]))
        for order, expected in enumerate((0.0, 2.0, 0.0, 0.0), start=1):
            inputs = len(program.inputs)
            program, active = jvp(program, (True,) * inputs)
            if not active[-1]:
                assert expected == 0.0
                break
            # all tangents of x are one, those of tangents zero
            point = [
                np.array(0.0),
                *(np.array(float(n & (n - 1) == 0)) for n in range(1, 2**order)),
            ]
            found = run(program, point)[-1]
            assert_close(found, np.array(expected), what=f"{order}\n{program}")


COMPLEX = [
    ("|z|²", lambda z: integer_pow_p(abs_p(z), exponent=2), 3 + 4j, 6 + 8j),
    ("|z|", abs_p, 3 + 4j, 0.6 + 0.8j),
    ("|z| at 0", abs_p, 0j, 0j),
    ("z²", lambda z: mul_p(z, z), 3 + 4j, 6 - 8j),
    ("z², a whole power", lambda z: integer_pow_p(z, exponent=2), 3 + 4j, 6 - 8j),
    ("2 z", lambda z: mul_p(z, 2.0), 3 + 4j, 2 + 0j),
    ("real", real_p, 3 + 4j, 1 + 0j),
    ("imag", imag_p, 3 + 4j, 1j),
    ("angle", lambda z: atan2_p(imag_p(z), real_p(z)), 3 + 4j, -0.16 + 0.12j),
    ("angle at 0", lambda z: atan2_p(imag_p(z), real_p(z)), 0j, 0j),
]


@pytest.mark.parametrize(
    ("function", "at", "expected"), [row[1:] for row in COMPLEX], ids=[row[0] for row in COMPLEX]
)
def test_complex(function: Any, at: complex, expected: complex) -> None:
    assert_close(gradient(function, np.array(at))[0], np.array(expected))
