"""Functions of tensors that are small and need no derivative: run at once, as if recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans.autograd.short import taken
from ftrans.errors import CheckError, DTypeError
from tests.helpers import assert_close
from tests.unit.test_tensor_at_once import assert_same, recorded, runs

F = torch.nn.functional
MATRIX = np.linspace(-1.5, 2.0, 12, dtype="float32").reshape(3, 4)
WHOLE = np.array([[3, 1, 2], [0, 5, 1]])

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean along": lambda x: x.mean(dim=0, keepdim=True),
    "max": lambda x: x.max(dim=1),
    "argmax": lambda x: x.argmax(1),
    "median": lambda x: x.median(dim=0),
    "topk": lambda x: x.topk(2),
    "sort": lambda x: x.sort(dim=0, descending=True),
    "cummax": lambda x: x.cummax(0),
    "softmax": lambda x: F.softmax(x, -1),
    "matmul": lambda x: x @ x.t(),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "cat": lambda x: torch.cat([x, x * 2], dim=1),
    "stack": lambda x: torch.stack((x, x)),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "clamp": lambda x: x.clamp(min=-1.0, max=0.5),
    "cumsum": lambda x: x.cumsum(1),
    "norm": lambda x: x.norm(dim=1),
    "view": lambda x: x.view(-1)[1:].unsqueeze(0),
    "flip": lambda x: x.flip(0),
    "to": lambda x: x.to(torch.float64),
    "bool": lambda x: (x > 0).float(),
    "np": lambda x: np.tanh(np.sum(x, axis=0)),
    "split": lambda x: x.split(2, dim=1),
    "outer": lambda x: torch.outer(x[0], x[1]),
    "svd": lambda x: torch.linalg.svdvals(x),
}


@pytest.fixture(autouse=True)
def looked_at() -> None:
    """Has a value be looked at before each test, whatever others have left."""
    assert torch.tensor(1.0).item() == 1.0


def _leaves(found: Any) -> list[np.ndarray]:
    return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_what_is_recorded(name: str) -> None:
    function = FUNCTIONS[name]
    for dtype in ("float32", "float64"):
        x = torch.tensor(MATRIX.astype(dtype))
        with recorded():
            expected = _leaves(function(x))
        for mode in (torch.enable_grad, torch.no_grad):
            for again in range(3):
                before = runs()
                with mode():
                    found = _leaves(function(x + 0.0))
                if again:
                    assert runs() == before or ftrans.config.check, "a program was run"
                for a, b in zip(found, expected, strict=True):
                    assert_same(a, b)


def test_what_requires_grad_is_recorded() -> None:
    x = torch.tensor(MATRIX, requires_grad=True)
    data = torch.tensor(MATRIX)
    loss = (x.max(dim=1).values * data.max(dim=1).values).sum() + torch.cat([data, x]).sum()
    loss.backward()
    expected = np.ones_like(MATRIX)
    expected[:, -1] += MATRIX[:, -1]
    assert_close(x.grad, expected)
    assert not data.max(dim=1).values.requires_grad
    with torch.no_grad():
        assert not x.max(dim=1).values.requires_grad


def test_draws_are_new_each_time() -> None:
    x = torch.ones(64)
    for draw in (
        lambda: F.dropout(x, 0.5),
        lambda: torch.bernoulli(x * 0.5),
        lambda: torch.normal(x, x),
        lambda: F.rrelu(-x, training=True),
        lambda: F.gumbel_softmax(x),
        lambda: torch.multinomial(x, 8),
    ):
        assert len({tuple(draw().tolist()) for _ in range(4)}) == 4


def test_a_seed_gives_the_same_whatever_was_traced() -> None:
    for size in (17, 18):  # of a size that is new, and once more
        x = torch.full((size,), 0.5)
        for draw in (
            lambda x=x: torch.bernoulli(x),
            lambda x=x: torch.multinomial(x, 4),
            lambda x=x: F.rrelu(-x, training=True),
            lambda x=x: F.dropout1d(x[None, :, None]),
        ):
            found = []
            for _ in range(2):
                torch.manual_seed(0)
                found.append([*draw().flatten().tolist(), *torch.rand(2).tolist()])
            assert found[0] == found[1]


def test_wrong_types_are_told_as_elsewhere() -> None:
    for x in (torch.tensor(MATRIX), torch.zeros(0, 3)):
        for mode in (torch.enable_grad, torch.no_grad):
            with mode(), pytest.raises(DTypeError, match="not: takes bool"):
                x.bitwise_not()


def test_it_warns_each_time() -> None:
    for _ in range(3):
        with pytest.warns(UserWarning, match="broadcast"):
            F.mse_loss(torch.ones(2), torch.ones(3, 2))


def test_a_chain_that_is_looked_at_in_the_end_is_run_as_one() -> None:
    x = torch.tensor(MATRIX)

    def chain(count: int) -> float:
        y = x
        for _ in range(count):
            y = y * 1.01 + 0.1
        return y.sum().item()

    for _ in range(3):
        chain(40)
        before = runs()
        chain(40)
    assert runs() > before  # it was recorded
    for _ in range(3):
        chain(3)
    before = runs()
    chain(3)
    assert runs() == before or ftrans.config.check


def test_indices_are_checked_each_time() -> None:
    x = torch.tensor(MATRIX)
    for index in ([0, 2], [1, 1], [2, 0]):
        at = torch.tensor([index] * 3)
        assert_close(x.gather(1, at), np.take_along_axis(MATRIX, np.array([index] * 3), 1))
    for _ in range(2):
        with pytest.raises(IndexError, match="index 7"):
            x.gather(1, torch.tensor([[0, 7]] * 3))
        with pytest.raises(IndexError, match="index 9"):
            x[torch.tensor([0, 9])]


def test_settings_that_move_make_few_programs() -> None:
    x = torch.tensor(MATRIX)
    for i in range(60):
        assert_close(x.clamp(min=i / 50), np.maximum(MATRIX, np.float32(i / 50)))
    before = ftrans.cache_info().misses
    for i in range(60, 90):
        assert_close(x.clamp(min=i / 50), np.maximum(MATRIX, np.float32(i / 50)))
    assert ftrans.cache_info().misses - before <= 2 or ftrans.config.check


@pytest.mark.filterwarnings("ignore:ftrans computes in float64")
def test_the_default_dtype_is_part_of_it() -> None:
    x = torch.tensor(WHOLE)
    assert x.sqrt().dtype == np.float32
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert x.sqrt().dtype == np.float64
    finally:
        torch.set_default_dtype(before)
    assert x.sqrt().dtype == np.float32


def test_views_share_memory() -> None:
    x = torch.tensor(MATRIX)
    row, turned, flat = x[1], x.t(), x.view(-1)
    row += 10.0
    expected = MATRIX.copy()
    expected[1] += 10.0
    assert_close(x, expected)
    assert_close(turned, expected.T)
    assert_close(flat, expected.ravel())
    flat[0] = 5.0
    expected[0, 0] = 5.0
    assert_close(x, expected)
    assert_close(turned[0], expected[:, 0])


def test_a_loop_that_looks_runs_no_program() -> None:
    x = torch.tensor(MATRIX)

    def search() -> int:
        state, steps = x[0], 0
        while float(state.norm()) > 0.1:
            best = int((x @ state).argmax())
            state = state * 0.5 + 0.01 * x[best] / (1 + x[best].abs().max())
            steps += 1
        return steps

    assert search() == search() > 3
    before = runs()
    search()
    assert runs() == before or ftrans.config.check


def test_functions_of_values_are_recorded() -> None:
    for values in ([0, 1, 1, 4], [2, 2], [0]):
        x = torch.tensor(values)
        assert torch.bincount(x).tolist() == np.bincount(values).tolist()
        assert x[x > 0].tolist() == [v for v in values if v]
        assert torch.unique(x).tolist() == sorted(set(values))


def test_nested_lists_come_back_as_they_are() -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    assert torch.tensor(values).tolist() == values.tolist()


def test_a_function_that_changes_is_found_out() -> None:
    factor = [2.0]

    def scaled(x: Any) -> Any:
        return x * factor[0]

    x = torch.tensor(MATRIX)
    assert_close(taken(scaled, (x,)), MATRIX * 2)
    before, ftrans.config.check = ftrans.config.check, True
    try:
        assert_close(taken(scaled, (x,)), MATRIX * 2)
        factor[0] = 3.0
        with pytest.raises(CheckError, match="does something else"):
            taken(scaled, (x,))
    finally:
        ftrans.config.check = before


def test_threads_find_the_same() -> None:
    found: list[Any] = []

    def work(number: int) -> None:
        x = torch.tensor(MATRIX + np.float32(number))
        for _ in range(50):
            y = F.softmax(x, -1).max(dim=0).values + x.sort(dim=1).values[0]
        found.append((number, y.numpy()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for number, y in found:
        rows = MATRIX + np.float32(number)
        e = np.exp(rows - rows.max(1, keepdims=True))
        expected = (e / e.sum(1, keepdims=True)).max(0) + np.sort(rows, 1)[0]
        assert_close(y, expected, 1e-6)
