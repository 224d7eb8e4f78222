"""`ftrans.nn` against PyTorch's frozen answers, see `pytorch_nn.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ftrans import func, nn
from tests.oracle.pytorch_nn import CASES, Case, cotangent, function_of, read

ANSWERS, SIGNATURES = read()


def names_of(key: str, kind: str) -> list[str]:
    found = [f"{key}/{kind}{i}" for i in range(4)]
    return [name for name in found if name in ANSWERS]


def compare(found: Any, name: str) -> None:
    expected = ANSWERS[name]
    assert np.shape(found) == expected.shape, name
    np.testing.assert_allclose(
        np.asarray(found), expected.astype("float64"), rtol=2e-6, atol=2e-6, err_msg=name
    )


def check(key: str, case: Case, through: Any) -> None:
    """Compares results, and cotangents as a road to them gives these."""
    call = function_of(nn, case)
    xs = [case.operands[i] for i in case.smooth]
    if not xs:
        for found, name in zip(call(), names_of(key, "out"), strict=True):
            compare(found, name)
        return
    outs, cts = through(call, xs)
    for found, name in zip(outs, names_of(key, "out"), strict=True):
        compare(found, name)
    for found, name in zip(cts, names_of(key, "ct"), strict=True):
        compare(found, name)


def by_vjp(call: Any, xs: Any) -> Any:
    def first(*xs: Any) -> Any:
        outs = call(*xs)
        return outs[0], outs

    _, pull, outs = func.vjp(first, *xs, has_aux=True)
    return outs, pull(cotangent(np.shape(outs[0])))


@pytest.mark.filterwarnings("ignore:.*is broadcast against")
@pytest.mark.parametrize("key", CASES)
def test_as_pytorch(key: str) -> None:
    check(key, CASES[key], by_vjp)
