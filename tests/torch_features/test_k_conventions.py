"""Derivatives at kinks, ends and masks, row by row of what PyTorch's documents name."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from tests.torch_suite.common import constant, leaf, same

F = torch.nn.functional


def slope(function: Callable[[Any], Any], at: Any) -> Any:
    x = leaf(at)
    function(x).sum().backward()
    return x.grad


def test_k1_derivative_where_there_is_one() -> None:
    """Works."""
    same(slope(torch.sin, 0.0), 1.0)


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (lambda x: torch.relu(x), 0.0, 0.0),
        (lambda x: F.relu(x), 0.0, 0.0),
        (lambda x: F.relu6(x), 6.0, 0.0),
        (lambda x: torch.abs(x), 0.0, 0.0),
        (lambda x: torch.linalg.norm(x), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: x.norm(p=inf), [1.0, 1.0], [0.5, 0.5]),
        (lambda x: F.leaky_relu(x, 0.1), 0.0, 0.1),
        (lambda x: torch.max(x), [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
        (lambda x: torch.maximum(x, constant(0.0)), 0.0, 0.5),
        (lambda x: torch.max(x, 0)[0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
        (lambda x: torch.clamp(x, min=0), 0.0, 0.0),
        (lambda x: torch.clamp(x, 0, 1), [0.0, 1.0], [0.0, 0.0]),
        (lambda x: torch.hypot(x[0], x[1]), [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_k2_least_norm_where_convex(function: Any, at: Any, expected: Any) -> None:
    """Differs: clamp at a bound and `hypot(0, 0)` have 0, as the rule says, and not 1 and NaN."""
    same(slope(function, at), expected)


def test_k3_least_norm_where_concave() -> None:
    """Works."""
    same(slope(lambda x: torch.minimum(x, constant(0.0)), 0.0), 0.5)
    same(slope(torch.min, [1.0, 1.0, 2.0]), [0.5, 0.5, 0.0])


def test_k4_limit_of_the_derivative() -> None:
    """Works."""
    same(slope(torch.sqrt, 0.0), inf)
    same(slope(torch.log, 0.0), inf)
    same(slope(torch.asin, 1.0), inf)
    same(slope(torch.acos, 1.0), -inf)
    same(slope(lambda x: x**0.5, 0.0), inf)
    same(slope(lambda x: x**0, 0.0), 0.0)
    same(slope(lambda y: torch.pow(0.0, y), [-1.0, 0.0, 1.0]), [-inf, 0.0, 0.0])


def test_k5_outside_of_the_domain() -> None:
    """Differs: `xlogy(x, x)` has the derivative 0 at 0, not NaN; there rule 5 allows any number."""
    same(slope(torch.sqrt, -1.0), nan)
    same(slope(torch.log, -1.0), -1.0)
    same(slope(lambda x: torch.xlogy(x, x), 0.0), 0.0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.bernoulli(x),
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.poisson(x),
        lambda x: torch.multinomial(x, 2),
    ],
)
def test_k6_random_numbers(draw: Callable[[Any], Any]) -> None:
    """Differs: what is drawn does not require grad."""
    drawn = draw(leaf([0.5, 0.5]))
    assert drawn.shape == (2,)
    assert not drawn.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        drawn.sum().backward()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.floor(x), 0.0),
        (lambda x: torch.round(x), 0.0),
        (lambda x: torch.trunc(x), 0.0),
        (lambda x: torch.sign(x), 0.0),
        (lambda x: torch.fmod(x, 2.0), 1.0),
        (lambda x: torch.remainder(x, 2.0), 1.0),
        (lambda x: torch.frac(x), 1.0),
    ],
)
def test_k7_piecewise_constants(function: Callable[[Any], Any], expected: float) -> None:
    """Works."""
    same(slope(function, [2.5, -0.25]), [expected, expected])


def test_k8_ties_of_median_sort_cummax() -> None:
    """Works."""
    same(slope(lambda x: torch.sort(x)[0][0], [1.0, 1.0, 2.0]), [1.0, 0.0, 0.0])
    same(slope(torch.median, [1.0, 1.0, 2.0]), [0.5, 0.5, 0.0])
    same(slope(lambda x: torch.cummax(x, 0)[0], [1.0, 1.0, 0.0]), [1.0, 2.0, 0.0])


def test_k9_products_with_zeros() -> None:
    """Works."""
    same(slope(torch.prod, [0.0, 2.0, 3.0]), [6.0, 0.0, 0.0])
    same(slope(torch.prod, [0.0, 0.0, 3.0]), [0.0, 0.0, 0.0])


def test_k10_mask_after_a_division_by_zero() -> None:
    """Differs: an index keeps the NaN, as there; with `torch.where` in its place there is none."""
    div = constant([0.0, 1.0])
    same(slope(lambda x: (x / div)[div != 0], [1.0, 1.0]), [nan, 1.0])
    same(slope(lambda x: torch.where(div != 0, x / div, 0.0), [1.0, 1.0]), [0.0, 1.0])


def test_k11_mask_before_a_division() -> None:
    """Works."""
    x, div = leaf([1.0, 1.0]), constant([0.0, 1.0])
    mask, safe = div != 0, torch.zeros_like(x)
    safe[mask] = x[mask] / div[mask]
    safe.sum().backward()
    same(x.grad, [0.0, 1.0])


def test_k12_masked_tensors() -> None:
    """Declined: a prototype of PyTorch's; the error says `torch.where(mask, x, 1)` before it."""
    with pytest.raises(AttributeError, match=r"'masked'.\n.*torch\.where\(mask, x, 1\)"):
        torch.masked  # noqa: B018
    mask = torch.tensor([False, True])
    div = torch.where(mask, constant([0.0, 1.0]), 1)
    same(slope(lambda x: (x / div)[mask], [1.0, 1.0]), [0.0, 1.0])


def test_k13_where_of_an_inactive_branch() -> None:
    """Differs: the derivative is 1, without a second where; PyTorch has NaN."""
    a = torch.tensor(100.0, requires_grad=True)
    torch.where(a <= 0, torch.exp(a), 1 + a).backward()
    assert a.grad.item() == 1.0


def test_k14_what_has_no_derivative() -> None:
    """Works."""
    opaque = ftrans.external(lambda a: np.asarray(a) * 2, ftrans.ArrayType((2,), "float64"))
    out = opaque(leaf([1.0, 2.0])).sum()
    same(out, 6.0)
    with pytest.raises(
        NotImplementedError, match=r"no derivative[^$]*Give ftrans\.external a rule"
    ):
        out.backward()
