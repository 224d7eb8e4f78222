"""Special cases of arguments of PyTorch's functions, against closed forms and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans import func
from ftrans.errors import ArgumentError, ShapeError
from tests.helpers import assert_close

RNG = np.random.default_rng(0)
MATRICES = RNG.normal(size=(2, 3, 3))


def test_nothing_joins_with_anything() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    nothing = torch.tensor([])
    for dim in (0, 1, -1):
        y = torch.cat([nothing, x, nothing], dim=dim)
        assert y.tolist() == x.tolist()
        assert y.grad_fn.name() == "CatBackward0"
    torch.cat([nothing, x * 2], dim=1).sum().backward()
    assert_close(x.grad.numpy(), np.full((2, 2), 2.0))
    assert torch.cat([nothing, torch.tensor([1, 2])]).dtype == torch.float32
    assert torch.cat([nothing, nothing]).shape == (0,)
    with pytest.raises(ShapeError):
        torch.cat([torch.zeros(1), x])
    rows = func.vmap(lambda x: torch.cat([nothing, x]))(np.ones((3, 2), np.float32))
    assert rows.shape == (3, 2)


def test_sequences_of_at_least_so_many_axes() -> None:
    found = torch.atleast_2d([torch.tensor(1.0), torch.ones(3)])
    assert [x.shape for x in found] == [(1, 1), (1, 3)]
    assert torch.atleast_1d(torch.tensor(1.0)).shape == (1,)
    assert [x.shape for x in torch.atleast_3d(torch.ones(2), torch.ones(2, 2))] == [
        (1, 2, 1),
        (2, 2, 1),
    ]


def test_a_vector_for_each_matrix_is_solved_for() -> None:
    a, b = torch.tensor(MATRICES, requires_grad=True), torch.tensor(RNG.normal(size=(2, 3)))
    expected = np.linalg.solve(MATRICES, b.numpy()[..., None])[..., 0]
    found = torch.linalg.solve(a, b)
    assert_close(found.numpy(force=True), expected)
    assert torch.autograd.gradcheck(torch.linalg.solve, (a, b))
    left = torch.linalg.solve(a, torch.tensor(MATRICES), left=False)
    assert_close(left.numpy(force=True), np.broadcast_to(np.eye(3), (2, 3, 3)), 1e-9)


def test_ranks() -> None:
    a = torch.tensor(np.diag([4.0, 1.0, 1e-3]))
    for options, rank in (
        ({}, 3), ({"atol": 0.5}, 2), ({"rtol": 0.5}, 1), ({"atol": 1e-2, "rtol": 0.5}, 1),
        ({"tol": 2.0}, 1), ({"hermitian": True, "atol": 2.0, "rtol": 1e-9}, 1),
    ):  # fmt: skip
        found = torch.linalg.matrix_rank(a, **options)
        assert (found.item(), found.dtype) == (rank, torch.int64), options


def test_norms_of_matrices_by_their_singular_values() -> None:
    x = torch.tensor(MATRICES)
    expected = np.linalg.svd(MATRICES, compute_uv=False).sum(-1)
    assert_close(torch.norm(x, "nuc", dim=(1, 2)).numpy(), expected)
    assert_close(x[0].norm("nuc").numpy(), expected[0])
    assert x.norm("nuc", dim=(0, 2), keepdim=True).shape == (1, 3, 1)


def test_fourier_transforms_along_any_axes() -> None:
    x = torch.tensor(MATRICES)
    calls: list[tuple[Any, Any]] = [
        (torch.fft.fftn(x, dim=-1), np.fft.fft(MATRICES)),
        (torch.fft.fftn(x, s=(2,)), np.fft.fft(MATRICES, 2)),
        (torch.fft.fft2(x, dim=(0, 1)), np.fft.fft2(MATRICES, axes=(0, 1))),
        (torch.fft.fft2(x, dim=(0, 1, 2)), np.fft.fftn(MATRICES)),
        (torch.fft.rfft2(x, s=(4, -1)), np.fft.rfft2(MATRICES, s=(4, 3))),
        (torch.fft.ifftn(x, norm="ortho"), np.fft.ifftn(MATRICES, norm="ortho")),
        (torch.fft.irfft(x, n=5, dim=1), np.fft.irfft(MATRICES, 5, axis=1)),
        (torch.fft.fftshift(x, dim=1), np.fft.fftshift(MATRICES, axes=1)),
    ]
    for found, expected in calls:
        assert_close(found.numpy(), expected)
    assert torch.fft.fft(torch.tensor([1, 2])).dtype == torch.complex64
    assert torch.fft.fftshift(torch.tensor([1, 2])).dtype == torch.int64


def test_numbers_count_as_vectors_of_one() -> None:
    one = torch.tensor(3.0)
    for name in ("softmax", "log_softmax", "softmin"):
        found = getattr(torch.nn.functional, name)(one, 0)
        assert found.tolist() == (0.0 if name == "log_softmax" else 1.0)


def test_mistakes() -> None:
    with pytest.raises(ShapeError, match=r"t: it transposes matrices"):
        torch.ones(2, 2, 2).t()
    with pytest.raises(ArgumentError, match="arange: the step is not 0"):
        torch.arange(0, 3, 0)
    x = torch.tensor([1.0, 2.0, 3.0])
    assert x[x > 1.5].tolist() == [2.0, 3.0]
