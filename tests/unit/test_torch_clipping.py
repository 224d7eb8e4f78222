"""`torch.nn.utils.clip_grad_norm_` and `clip_grad_value_`; PyTorch 2.13 gives these numbers."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans
import ftrans.torch as torch
from tests.helpers import assert_close

FIRST: dict[tuple[float, float], tuple[float, list[float], list[list[float]]]] = {
    (2.0, 1.0): (15.906, [0.37721675, 0.50295567], [[0.18860838, 0.75443351]]),
    (2.0, 100.0): (15.906, [6.0, 8.0], [[3.0, 12.0]]),
    (1, 1.0): (29.0, [0.20689653, 0.27586204], [[0.10344826, 0.41379306]]),
    (float("inf"), 1.0): (12.0, [0.49999997, 0.66666663], [[0.24999999, 0.99999994]]),
    (3.0, 1.0): (13.5413, [0.44309029, 0.59078705], [[0.22154514, 0.88618058]]),
}


def leaves() -> tuple[Any, Any, Any]:
    a, b = torch.tensor([3.0, 4.0], requires_grad=True), torch.tensor([[1.0, 2.0]])
    b.requires_grad_()
    ((a * a).sum() + (b**3).sum()).backward()
    return a, b, torch.tensor(1.0, requires_grad=True)  # which has no gradient


@pytest.mark.parametrize("case", FIRST)
def test_the_norm_of_all(case: tuple[float, float]) -> None:
    order, most = case
    norm, of_a, of_b = FIRST[case]
    a, b, c = leaves()
    kept = a.grad
    found = torch.nn.utils.clip_grad_norm_(iter([a, b, c]), most, norm_type=order)
    assert found.item() == pytest.approx(norm, rel=1e-5)
    assert_close(a.grad, of_a, 1e-6)
    assert_close(b.grad, of_b, 1e-6)
    assert a.grad is kept
    assert c.grad is None


def test_each_element() -> None:
    a, b, _ = leaves()
    torch.nn.utils.clip_grad_value_([a, b], 2.5)
    assert a.grad.tolist() == [2.5, 2.5]
    assert b.grad.tolist() == [[2.5, 2.5]]


def test_one_tensor_and_none() -> None:
    a, _, c = leaves()
    assert torch.nn.utils.clip_grad_norm_(c, 1.0).item() == 0.0
    assert torch.nn.utils.clip_grad_norm_(a, 0.5).item() == 10.0
    assert_close(a.grad, [0.3, 0.4], 1e-6)


def test_what_is_not_finite() -> None:
    a, _, _ = leaves()
    a.grad[0] = float("nan")
    with pytest.raises(ftrans.FtransError, match="non-finite, so it cannot be clipped"):
        torch.nn.utils.clip_grad_norm_(a, 0.5, error_if_nonfinite=True)
    assert a.grad[1].item() == 8.0
    torch.nn.utils.clip_grad_norm_(a, 0.5)
    assert a.grad.isnan().all()


def test_a_loop_makes_no_program_at_each_step() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    ftrans.cache_clear()

    def step() -> None:
        w.grad = None
        (w**2).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 0.1)
        with torch.no_grad():
            w.sub_(w.grad)

    for _ in range(5):
        step()
    before = ftrans.cache_info().misses
    for _ in range(5):
        step()
    assert ftrans.cache_info().misses == before
