"""Arguments and dtypes of functions of tensors; what is expected is what PyTorch 2.13 returns."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans import errors

X = torch.arange(6.0).reshape(2, 3)
BYTES = torch.tensor([1, 200], dtype=torch.uint8)
INTS = torch.tensor([1, 2], dtype=torch.int32)
BOOLS = torch.tensor([True, False])


def in_vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a function of a tensor in a transform that has the tensor stand for an example."""
    return lambda x: torch.func.vmap(function)(torch.stack([x, x]))[0]


BOTH = pytest.mark.parametrize("around", [lambda function: function, in_vmap])


@BOTH
@pytest.mark.parametrize("name", ["sum", "mean", "std", "var", "amax", "amin", "nansum", "norm"])
def test_no_dimensions_are_all(name: str, around: Callable[..., Any]) -> None:
    for dim in ([], ()):
        found = around(lambda x, dim=dim: getattr(torch, name)(x, dim=dim))(X)
        np.testing.assert_allclose(found, getattr(torch, name)(X, dim=(0, 1)), rtol=1e-6)
    assert torch.sum(X, dim=[], keepdim=True).shape == (1, 1)
    assert torch.all(X, dim=()).shape == (2, 3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: X.std(axis=0), X.std(0)),
        (lambda: torch.var(X, axis=1, keepdims=True), X.var(1, keepdim=True)),
        (lambda: torch.max(X, axis=1)[0], X.max(1)[0]),
        (lambda: X.min(axis=1, keepdims=True)[1], X.min(1, keepdim=True)[1]),
        (lambda: torch.sort(X, axis=0)[0], X.sort(0)[0]),
        (lambda: torch.cat([X, X], axis=1), torch.cat([X, X], 1)),
        (lambda: torch.swapaxes(X, axis0=0, axis1=1), X.T),
        (lambda: X.median(axis=1)[0], X.median(1)[0]),
        (lambda: torch.argsort(X, axis=1), torch.argsort(X, 1)),
        (lambda: torch.topk(X, 1, axis=1)[0], torch.topk(X, 1, 1)[0]),
        (lambda: torch.squeeze(X[None], axis=0), X),
        (lambda: torch.func.vmap(lambda x: x.max(axis=0)[0])(X), X.max(1)[0]),
        (lambda: torch.func.vmap(lambda x: x.std(axis=0))(X), X.std(1)),
    ],
)
def test_numpys_names_of_arguments(found: Callable[[], Any], expected: Any) -> None:
    np.testing.assert_array_equal(found(), expected)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError):
        X.max(axes=1)


@BOTH
def test_integers_are_added_in_64_bits(around: Callable[..., Any]) -> None:
    large = torch.full((3,), 2**30, dtype=torch.int32)
    for x, expected in ((large, 3 * 2**30), (BYTES, 201), (BOOLS, 1)):
        found = around(lambda x: x.sum())(x)
        assert (found.dtype, int(found)) == (np.int64, expected)
    assert around(lambda x: x.cumsum(0))(BYTES).dtype == np.int64
    assert around(lambda x: x.prod())(INTS).dtype == np.int64
    assert around(lambda x: x.sum(dtype=torch.int32))(INTS).dtype == np.int32


@BOTH
def test_a_value_is_filled_in_in_the_dtype_of_the_elements(around: Callable[..., Any]) -> None:
    found = around(lambda x: x.masked_fill(x > 1, 2.5))(INTS)
    assert found.dtype == np.int32
    assert found.tolist() == [1, 2]
    plain = torch.masked_fill(np.ones(2, "int32"), np.array([True, False]), 2.5)
    assert (type(plain), plain.tolist()) == (np.ndarray, [2, 1])
    written = INTS.clone()
    assert written.masked_fill_(BOOLS, 7.9).tolist() == [7, 2]
    with pytest.raises(errors.DTypeError, match="complex"):
        around(lambda x: x.masked_fill(x > 1, 1j))(X)


def test_numbers_that_do_not_fit_are_compared() -> None:
    """PyTorch compares what is left of them: 257 is 1 of a byte there."""
    assert (BYTES > -1).tolist() == [True, True]
    assert (BYTES == 257).tolist() == [False, False]
    assert (BYTES != -1).tolist() == [True, True]
    assert (BYTES < 300).tolist() == [True, True]
    assert (-1 <= BYTES).tolist() == [True, True]  # noqa: SIM300
    assert torch.func.vmap(lambda x: x >= 2**40)(INTS).tolist() == [False, False]
    with pytest.raises(OverflowError):
        BYTES + 1000


@BOTH
def test_integers_of_all_widths_are_written_to(around: Callable[..., Any]) -> None:
    def doubled(x: Any) -> Any:
        y = x.clone()
        y += torch.tensor([2])
        y *= torch.tensor([2])
        return y

    found = around(doubled)(BYTES)
    assert (found.dtype, found.tolist()) == (np.uint8, [6, 148])
    with pytest.raises(errors.DTypeError):
        around(lambda x: x.clone().add_(torch.tensor([0.5])))(BYTES)


def test_parts_of_complex_numbers_are_set() -> None:
    z = torch.zeros(2, dtype=torch.complex64)
    z.real = torch.ones(2)
    z.imag = 2.0
    assert z.tolist() == [1 + 2j, 1 + 2j]


def test_what_tensors_are_made_of() -> None:
    made = torch.tensor(range(3))
    assert (made.dtype, made.tolist()) == (np.int64, [0, 1, 2])
    assert torch.LongTensor([2**40]).tolist() == [2**40]
    assert torch.LongTensor([1.5]).tolist() == [1]
    norm = torch.norm(torch.ones(2), dtype=torch.float64)
    assert (norm.dtype, norm.item()) == (np.float64, 2**0.5)


def test_places_of_what_has_rank_zero() -> None:
    assert [x.tolist() for x in torch.nonzero(torch.tensor(5), as_tuple=True)] == [[0]]
    assert torch.nonzero(torch.tensor(5)).shape == (1, 0)
