"""What dtype an operator of tensors gives: PyTorch's, which gives these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch

WHOLE, ONES = torch.arange(3), torch.ones(2)
SMALL = torch.ones(2, dtype=torch.int32)
WIDE, NONE = torch.tensor(2.0, dtype=torch.float64), torch.tensor(1.5)

CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "positions": (lambda: torch.arange(0, 8, 2) * (-math.log(1e4) / 8), "float32"),
    "int32 and a number": (lambda: SMALL + 1.5, "float32"),
    "a number and int64": (lambda: 1.5 - WHOLE, "float32"),
    "a power": (lambda: WHOLE**0.5, "float32"),
    "a power of a number": (lambda: 2.0**WHOLE, "float32"),
    "booleans": (lambda: torch.tensor([True, False]) * 0.5, "float32"),
    "whole": (lambda: WHOLE * 2, "int64"),
    "compared": (lambda: WHOLE < 1.5, "bool"),
    "NumPy's number": (lambda: ONES * np.sqrt(2 / 3), "float32"),
    "NumPy's number first": (lambda: np.sqrt(4) * ONES, "float32"),
    "NumPy's narrow number": (lambda: WIDE * np.float32(2), "float64"),
    "NumPy's whole number": (lambda: SMALL * np.int64(2), "int32"),
    "NumPy's number and integers": (lambda: WHOLE * np.float64(0.5), "float32"),
    "no dimensions": (lambda: ONES * WIDE, "float32"),
    "no dimensions first": (lambda: WIDE / ONES, "float32"),
    "no dimensions, whole": (lambda: SMALL * torch.tensor(2), "int32"),
    "no dimensions of another kind": (lambda: WHOLE * NONE, "float32"),
    "both without": (lambda: NONE * WIDE, "float64"),
    "a function": (lambda: torch.div(ONES, WIDE), "float32"),
    "a method": (lambda: ONES.pow(WIDE), "float32"),
    "of a larger kind": (lambda: ONES * torch.tensor(2j, dtype=torch.complex128), "complex64"),
    "a choice": (lambda: torch.where(WHOLE > 1, WHOLE, 0.5), "float32"),
    "a remainder": (lambda: torch.fmod(WHOLE, 2.5), "float32"),
    "the least": (lambda: torch.clamp(ONES, max=WIDE), "float32"),
    "an imaginary number": (lambda: WHOLE * 2j, "complex64"),
    "booleans and whole": (lambda: (WHOLE > 1) * 2, "int64"),
    "bits": (lambda: torch.bitwise_and(SMALL, torch.tensor(2)), "int32"),
    "bfloat16": (lambda: ONES.bfloat16() * NONE, "bfloat16"),
    "an area": (lambda: torch.trapezoid(WHOLE), "float32"),
    "covariances": (lambda: torch.cov(WHOLE), "float32"),
    "NumPy's number in a function": (lambda: torch.fmod(WHOLE, np.float64(2.5)), "float32"),
    "NumPy's boolean": (lambda: torch.bitwise_or(WHOLE > 1, np.bool_(False)), "bool"),
    "NumPy's narrow number in a function": (lambda: torch.div(WHOLE, np.float32(2)), "float32"),
    "side by side": (lambda: torch.hstack([ONES, WIDE]), "float64"),
    "columns": (lambda: torch.column_stack([torch.ones(1), WIDE]), "float64"),
    "whole, side by side": (lambda: torch.hstack([SMALL, torch.tensor(5)]), "int64"),
    "an array": (lambda: ONES * np.ones(2), "float64"),
}


@pytest.mark.parametrize("case", CASES)
def test_dtypes(case: str) -> None:
    make, expected = CASES[case]
    for _ in range(3):  # recorded, and found again
        assert make().dtype == np.dtype(expected)


@pytest.mark.parametrize("case", CASES)
def test_dtypes_in_transforms(case: str) -> None:
    make, expected = CASES[case]
    found = []

    def seen(x: Any) -> Any:
        found.append(make().dtype)
        return x.sum()

    for transform in (torch.vmap, torch.func.grad, torch.func.functionalize):
        transform(seen)(torch.ones(2, 2) if transform is torch.vmap else ONES)
    assert {x.name for x in found} == {expected}


def test_operands_of_transforms_promote_likewise() -> None:
    wide = torch.ones(3, dtype=torch.float64)
    half = torch.ones(3, 2).half()
    assert torch.vmap(torch.add)(torch.ones(3, 2), wide).dtype == np.float32
    assert torch.vmap(lambda x: x * x.float().sum())(half).dtype == np.float16
    assert torch.func.jvp(lambda x: x * WIDE, (ONES,), (ONES,))[1].dtype == np.float32
    arrays = np.ones((3, 2), "float32"), np.ones(3)  # which have NumPy's rules
    assert torch.vmap(lambda x, y: x * y)(*arrays).dtype == np.float64


def test_gradients_have_the_dtype_of_what_they_are_of() -> None:
    x = torch.ones(3, requires_grad=True)
    loss = (x * WIDE * np.float64(0.5) + torch.arange(3) * 0.5).sum()
    assert loss.dtype == np.float32
    loss.backward()
    assert x.grad.dtype == np.float32
    assert x.grad.tolist() == [1.0] * 3


def test_values() -> None:
    assert (torch.arange(3) * 0.5).tolist() == [0.0, 0.5, 1.0]
    assert (1.5 - torch.arange(3)).tolist() == [1.5, 0.5, -0.5]
    assert (torch.arange(3) < 1.5).tolist() == [True, True, False]
    assert (torch.arange(5) // 2.0).tolist() == [0.0, 0.0, 1.0, 1.0, 2.0]
    x = torch.ones(2)
    x *= np.float64(3.0)
    assert x.dtype == np.float32
