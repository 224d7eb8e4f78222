"""What PyTorch 2.13 answers, written down: writes over results, what is saved, names and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans import Tensor
from tests.torch_suite.common import constant, leaf, same

COPY, FILL = "torch::autograd::CopyBackwards", "FillBackward3"


def names_behind(y: Tensor) -> list[str | None]:
    return [node and node.name() for node, _ in y.grad_fn.next_functions]


# ------------------------------------------------------------------------------------- writing over


def _set(index: Any) -> Callable[[Any, Any], None]:
    return lambda y, p: y.__setitem__(index, p)


@pytest.mark.parametrize(
    ("write", "old", "new", "name"),
    [
        (lambda y, p: y.copy_(p), [1.0, 2.0], [3.0, 4.0], COPY),
        (lambda y, p: y.copy_(p), [1.0, 2.0], 3.0, COPY),
        (lambda y, p: y.fill_(p), [1.0, 2.0], 3.0, FILL),
        (_set(slice(None)), [1.0, 2.0], [3.0, 4.0], COPY),
        (_set(...), [1.0, 2.0], [3.0, 4.0], COPY),
        (_set(slice(0, 2)), [1.0, 2.0], [3.0, 4.0], COPY),
        (_set(()), 1.0, 3.0, COPY),
        (_set((slice(None), slice(None))), [[1.0, 2.0]], [[3.0, 4.0]], COPY),
        (_set([0, 1]), [1.0, 2.0], [3.0, 4.0], "IndexPutBackward0"),
    ],
)
def test_what_is_written_over_has_the_derivative_zero(
    write: Callable[[Any, Any], Any], old: Any, new: Any, name: str
) -> None:
    q, p = leaf(old), leaf(new)
    y = q * 1
    write(y, p)
    assert y.grad_fn.name() == name
    assert names_behind(y) == ["MulBackward0", "torch::autograd::AccumulateGrad"]
    (y * y).sum().backward()
    same(q.grad, np.zeros(np.shape(old)))
    count = np.size(old) // np.size(new)
    same(p.grad, 2.0 * count * np.asarray(new))


@pytest.mark.parametrize(
    "write",
    [
        lambda y, p: y.view(2, 1).copy_(p.view(2, 1)),
        lambda y, p: y.T.copy_(p),
        lambda y, p: y[:].copy_(p),
        lambda y, p: y.view(1, 2)[0].copy_(p),
    ],
)
def test_what_is_written_over_through_a_view_has_it_too(write: Callable[[Any, Any], Any]) -> None:
    q, p = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = q * 1
    write(y, p)
    assert y.grad_fn.name() == "torch::autograd::CopySlices"
    assert names_behind(y)[0] == "MulBackward0"
    found = torch.autograd.grad((y * y).sum(), [q, p], create_graph=True)
    same(found[0], [0.0, 0.0])
    same(found[1], [6.0, 8.0])
    same(torch.autograd.grad(found[1].sum(), p)[0], [2.0, 2.0])


def test_what_is_written_over_without_grad_keeps_its_history() -> None:
    q, p = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = q * 1
    with torch.no_grad():
        y.copy_(p)
    y.sum().backward()
    same(q.grad, [1.0, 1.0])
    assert p.grad is None
    y = constant([1.0, 2.0])
    y.copy_(p)
    y.sum().backward()
    same(p.grad, [1.0, 1.0])
