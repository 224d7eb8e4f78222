"""Anomaly mode, row by row of what PyTorch's documents name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from tests.torch_suite.common import leaf

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")


class MyFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * float("nan")


def test_p1_detect_anomaly() -> None:
    """Differs: the forward line is chained as the cause, and a NaN made forward raises too."""
    x = leaf([-1.0])
    text = "Function 'SqrtBackward0' returned nan values in its 0th output."
    with pytest.warns(UserWarning, match="only be enabled for debugging"):
        mode = torch.autograd.detect_anomaly()
    with mode, pytest.raises(RuntimeError, match=text) as caught:
        torch.sqrt(x).backward()
    assert "torch.sqrt(x).backward()" in str(caught.value.__cause__)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="'log' returned nan"):
        torch.log(torch.tensor([-1.0])).tolist()


def test_p2_set_detect_anomaly() -> None:
    """Works."""
    with torch.autograd.set_detect_anomaly(True):
        assert torch.is_anomaly_enabled()
        with torch.autograd.set_detect_anomaly(False):
            assert not torch.is_anomaly_enabled()
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, False)
    torch.autograd.set_detect_anomaly(False)
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (False, True)


def test_p3_without_a_check_for_nan() -> None:
    """Works."""
    x = leaf([-1.0])
    with torch.autograd.detect_anomaly(check_nan=False):
        y = torch.sqrt(x)
        assert "y = torch.sqrt(x)" in "".join(y.grad_fn.metadata["traceback_"])
        y.backward()
    assert np.isnan(x.grad.item())


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize(
    ("function", "name", "line"),
    [
        (lambda x: torch.sqrt(x - 2), "SqrtBackward0", "torch.sqrt(x - 2)"),
        (lambda x: MyFunc.apply(x), "mul", 'return ct * float("nan")'),
    ],
)
def test_p4_traceback_of_the_forward_call(
    function: Callable[[Any], Any], name: str, line: str, within: bool
) -> None:
    """Differs: it is the cause of the error, no warning; for a Function, the line in backward."""
    x = leaf([1.0])
    out = None if within else function(x)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan") as caught:
        (function(x) if out is None else out).sum().backward()
    assert f"Function '{name}' returned nan values in its 0th output." in str(caught.value)
    assert "forward call that caused the error" in str(caught.value.__cause__)
    assert line in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "make",
    [
        np.array,
        torch.tensor,
    ],
)
def test_p5_under_vmap_of_grad(make: Callable[[Any], Any]) -> None:
    """Differs: the error comes where tensors are read, or where the block ends."""
    slopes = torch.func.vmap(torch.func.grad(lambda x: torch.sqrt(x).sum()))
    found = None
    with (
        pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"),
        torch.autograd.detect_anomaly(),
    ):
        found = slopes(make([[-1.0], [4.0]]))
    assert (found is None) == (make is np.array)
