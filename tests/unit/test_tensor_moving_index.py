"""Indices that are others at each step: one program, and what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans.numpy import moving
from tests.helpers import assert_close

STEPS = 30
rng = np.random.default_rng(0)
ROWS = rng.normal(size=(40, 6, 4))
WEIGHTS = rng.normal(size=(4,))


@pytest.fixture(autouse=True)
def _afresh() -> None:
    ftrans.cache_clear()


INDICES: dict[str, Callable[[int], Any]] = {
    "row": lambda i: i,
    "element": lambda i: (i, i % 6),
    "from the end": lambda i: -1 - i,
    "span": lambda i: slice(i, i + 3),
    "span and row": lambda i: (slice(i, i + 3), i % 6),
    "row and span": lambda i: (i, slice(i % 3, i % 3 + 2)),
    "beyond the end": lambda i: slice(i + 15, i + 30),
    "from the end on": lambda i: slice(-5 - i, -1),
    "second axis": lambda i: (slice(None), i % 6),
    "apart": lambda i: (i, slice(None), i % 4),
    "by steps": lambda i: slice(i, i + 5, 2),
    "open": lambda i: slice(i, None),
    "dots": lambda i: (..., i % 4),
    "new": lambda i: (i, None),
}
NEW_SHAPES = {"open", "beyond the end", "from the end on"}
ONE_PROGRAM = set(INDICES) - {"apart", "dots", "new"} - NEW_SHAPES


def programs(step: Callable[[int], None]) -> int:
    """Returns how many programs the later half of all steps makes."""
    for i in range(STEPS // 2):
        step(i)
    before = ftrans.cache_info().misses
    for i in range(STEPS // 2, STEPS):
        step(i)
    return ftrans.cache_info().misses - before


@pytest.mark.parametrize("container", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("name", INDICES)
def test_rows_of_data(name: str, container: Any) -> None:
    data = container(ROWS.astype("float32"))
    x, w = torch.tensor(data), torch.tensor(WEIGHTS, dtype=torch.float32, requires_grad=True)

    def step(i: int) -> None:
        index = INDICES[name](i)
        part = np.asarray(data)[index]
        loss = (x[index] * w.sum()).sum()
        (slope,) = torch.autograd.grad(loss, w)
        np.testing.assert_allclose(loss.item(), (part * WEIGHTS.sum()).sum(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(slope.numpy(), np.full(4, part.sum()), rtol=1e-4, atol=1e-4)

    made = programs(step)
    if container is np.asarray or name in ONE_PROGRAM:
        # one for each shape that has not come before
        assert made <= (STEPS // 2 if name in NEW_SHAPES else 0)


@pytest.mark.parametrize("name", INDICES)
def test_rows_of_what_is_learnt(name: str) -> None:
    x = torch.tensor(ROWS, requires_grad=True)

    def step(i: int) -> None:
        index = INDICES[name](i)
        loss = (x[index] ** 2).sum()
        x.grad = None
        loss.backward()
        expected = np.zeros_like(ROWS)
        expected[index] = 2 * ROWS[index]
        assert_close(x.grad, expected)

    made = programs(step)
    assert made == 0 or name not in ONE_PROGRAM


@pytest.mark.parametrize("name", INDICES)
def test_writes_to_moving_places(name: str) -> None:
    x, expected = torch.tensor(ROWS * 0), ROWS * 0

    def step(i: int) -> None:
        index = INDICES[name](i)
        x[index] = float(i)
        expected[index] = float(i)
        x[index] += torch.tensor(2.0, dtype=torch.float64) * x.sum()
        expected[index] += 2.0 * expected.sum()
        x[index] *= 0.1
        expected[index] *= 0.1
        view = x[index]
        view -= 1.0
        expected[index] -= 1.0
        assert_close(x, expected)
        assert_close(view, expected[index])

    assert programs(step) == 0 or name not in ONE_PROGRAM


def test_views_follow_what_is_written_at_once() -> None:
    x = torch.tensor(np.zeros((30, 3)))
    for i in range(30):
        row, whole = x[i], x.T
        row[1] = float(i)
        assert whole[1, i].item() == i
        x[i] = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        assert row.tolist() == [1.0, 2.0, 3.0]
        version = x._version
        row.zero_()
        assert x._version == version + 1
        assert x[i].tolist() == [0.0, 0.0, 0.0]


def test_what_was_computed_before_keeps_what_it_saw() -> None:
    x = torch.tensor(np.ones(40))
    w = torch.tensor(2.0, requires_grad=True)
    for i in range(40):
        loss = w * x[i]
        x[i] = 5.0
        loss.backward()
        assert w.grad.item() == 1.0
        w.grad = None
    assert x.tolist() == [5.0] * 40


def test_writes_with_gradients_go_through() -> None:
    w = torch.tensor(WEIGHTS, requires_grad=True)
    for i in range(20):
        x = torch.tensor(np.zeros((20, 4)))
        x[i] = w * 2.0
        (slope,) = torch.autograd.grad((x**2).sum(), w)
        assert_close(slope, 8 * WEIGHTS)


CHOSEN: dict[str, Any] = {
    "places": torch.tensor([3, -1, 3]),
    "one place": torch.tensor(2),
    "a mask": torch.tensor(np.arange(40) % 3 == 0),
    "places and a number": (torch.tensor([1, 2]), 3),
    "two of places": (torch.tensor([[1], [2]]), torch.tensor([0, 5, 1])),
    "of NumPy": np.array([1, 0]),
    "a list": [1, 0],
    "places and a span": (torch.tensor([1, 2]), slice(1, 3)),
    "none": torch.tensor(np.zeros(0, int)),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_places_that_are_arrays(name: str) -> None:
    index = CHOSEN[name]
    plain = (
        tuple([np.asarray(i) if type(i) is torch.Tensor else i for i in index])
        if (type(index) is tuple)
        else np.asarray(index)
    )
    x, w = torch.tensor(ROWS), torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        found = x[index]
        assert_close(found, ROWS[plain])
        (slope,) = torch.autograd.grad((found * w).sum(), w)
        assert_close(slope, ROWS[plain].sum())
    found = x[index]
    found.add_(1.0)  # is a copy
    assert_close(x, ROWS)
    with pytest.raises(IndexError):
        x[torch.tensor([40])]


def test_errors_are_those_of_recorded_indices() -> None:
    x = torch.tensor(np.zeros((20, 4)))
    for i in range(20):
        x[i].sum().item()
        x[i] = 1.0
    for i in (20, -21):
        with pytest.raises(IndexError, match=r"out of bounds|x\[\.\.\.\]"):
            x[i]
        with pytest.raises(IndexError):
            x[i] = 1.0
    with pytest.raises(ftrans.FtransError):
        x[3] = torch.tensor(np.zeros(5))
    whole = torch.tensor(np.arange(4))
    for i in range(4):
        whole[i] = 7
    assert whole.tolist() == [7] * 4
    assert whole.dtype == np.int64


def test_indices_of_a_loop_in_a_step_are_constants() -> None:
    x = torch.tensor(ROWS[0], requires_grad=True)
    for _ in range(8):
        total = 0.0
        for t in range(6):
            total = total + (x[t] * x[t - 1]).sum()
        total.backward()
    assert not any(place.moves for place in moving._places.values())


def test_transforms_see_no_tensor_at_hand() -> None:
    x = torch.tensor(ROWS)
    for i in range(20):
        x[i].sum().item()  # from here on indices of this line are read at once
    found = [torch.func.grad(lambda w, i=i: (x[i] * w).sum())(torch.tensor(1.0)) for i in range(3)]
    np.testing.assert_allclose(
        [y.item() for y in found], ROWS[:3].sum((1, 2)), rtol=1e-4, atol=1e-4
    )
