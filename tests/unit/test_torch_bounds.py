"""Indices of tensors that are out of bounds raise where PyTorch raises; the answers are its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans.autograd.tape import recorded
from ftrans.errors import (
    ArgumentError,
    DTypeError,
    IndexingError,
    ShapeError,
    UnsupportedError,
)

X = np.array([1.0, 2.0, 3.0], np.float32)
V = np.array([7.0, 8.0], np.float32)

FROM_THE_FRONT: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: x.gather(0, i),
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "scatter": lambda x, i: x.scatter(0, i, torch.tensor(V)),
    "scatter_": lambda x, i: x.clone().scatter_(0, i, 9.0),
    "scatter_add": lambda x, i: torch.scatter_add(x, 0, i, torch.tensor(V)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, torch.tensor(V), "amax"),
    "index_add": lambda x, i: x.index_add(0, i, torch.tensor(V)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.tensor(V)),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x[:, None]),
}
"""What takes no negative index."""


def _set(x: Any, i: Any) -> Any:
    x = x.clone()
    x[i] = 9.0
    return x


FROM_BOTH_ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "x[i]": lambda x, i: x[i],
    "x[..., i]": lambda x, i: x[..., i],
    "x[i] = v": _set,
    "index_fill": lambda x, i: x.index_fill(0, i, 9.0),
    "index_put": lambda x, i: x.index_put((i,), torch.tensor(V)),
    "index_put_": lambda x, i: x.clone().index_put_((i,), torch.tensor(V), accumulate=True),
    "put": lambda x, i: x.put(i, torch.tensor(V)),
    "take": lambda x, i: torch.take(x, i),
}


def _indices(bad: int) -> list[Any]:
    found = [0, bad]
    return [torch.tensor(found), torch.from_numpy(np.array(found)), np.array(found)]


@pytest.mark.parametrize("name", [*FROM_THE_FRONT, *FROM_BOTH_ENDS])
def test_an_index_beyond_the_end_raises(name: str) -> None:
    call = (FROM_THE_FRONT | FROM_BOTH_ENDS)[name]
    for bad in (3, -4):
        for index in _indices(bad):
            with pytest.raises(IndexingError, match=f"index {bad} is out of bounds"):
                call(torch.tensor(X), index)


@pytest.mark.parametrize("name", FROM_THE_FRONT)
def test_no_index_counts_from_the_end_where_none_does_in_pytorch(name: str) -> None:
    for index in _indices(-1):
        with pytest.raises(IndexingError, match=r"(?s)-1 is out of .* Write index % 3\.") as caught:
            FROM_THE_FRONT[name](torch.tensor(X), index)
        assert str(caught.value).startswith(f"{name.rstrip('_')}: ")


def test_elsewhere_it_does() -> None:
    x, i = torch.tensor(X), torch.tensor([0, -1])
    assert x[i].tolist() == x.take(i).tolist() == [1.0, 3.0]
    assert _set(x, i).tolist() == x.index_fill(0, i, 9.0).tolist() == [9.0, 2.0, 9.0]
    assert x.put(i, torch.tensor(V)).tolist() == [7.0, 2.0, 8.0]
    for found in ([0, 3], [-4, -1]):  # along a dimension PyTorch counts around
        assert x.take_along_dim(torch.tensor(found), 0).tolist() == [
            [1.0, 1.0], [3.0, 3.0]
        ][found[0] < 0]  # fmt: skip


@pytest.mark.parametrize("name", ["gather", "scatter_add", "index_select", "x[i]", "embedding"])
def test_what_is_leapt_over_is_checked_each_time(name: str) -> None:
    call, x = (FROM_THE_FRONT | FROM_BOTH_ENDS)[name], torch.tensor(X)
    for turn in range(5):
        index = torch.tensor([0, turn])
        if turn < 3:
            call(x, index).sum().item()
        else:
            with pytest.raises(IndexingError, match=f"index {turn} is out of bounds"):
                call(x, index)


@pytest.mark.parametrize("call", [lambda f, *args: f(*args), recorded])
def test_so_it_is_inside_of_what_is_called_on_the_tape(call: Any) -> None:
    def loss(x: Any, i: Any) -> Any:
        return ftrans.numpy.sum(ftrans.numpy.take(x, i) * 2)

    x = torch.tensor(X, requires_grad=True)
    for turn in range(5):
        index = torch.from_numpy(np.array([turn]))
        if turn < 3:
            call(loss, x, index).backward()
        else:
            with pytest.raises(IndexingError, match=f"index {turn} is out of bounds"):
                call(loss, x, index)
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_the_tape_goes_on_after_the_error() -> None:
    x = torch.tensor(X, requires_grad=True)
    y = x * 2
    with pytest.raises(IndexingError):
        y.gather(0, torch.tensor([5]))
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_arrays_of_jax_are_looked_at_and_what_is_pending_is_not() -> None:
    x, index = torch.tensor(X), torch.tensor([3])
    with pytest.raises(IndexingError, match="index 3"):
        x[torch.tensor(jnp.array([3]))]
    pending = (torch.zeros(1, requires_grad=True) + 3).long()
    assert np.isnan(x[pending].numpy()).all()
    settled = index + 0
    assert settled.tolist() == [3]
    for known in (settled, torch.tensor(3)):
        with pytest.raises(IndexingError, match="index 3"):
            x[known]


def test_so_are_classes() -> None:
    F, logits = torch.nn.functional, torch.tensor(np.zeros((2, 3)), requires_grad=True)
    for turn in range(5):
        at = torch.tensor([0, turn])
        if turn < 3:
            F.cross_entropy(logits, at).backward()
            assert F.one_hot(at, 3).sum().item() == 2
            continue
        with pytest.raises(IndexingError, match=f"there is no class {turn}"):
            F.cross_entropy(logits, at)
        with pytest.raises(ArgumentError, match="one_hot: an integer is out of range"):
            F.one_hot(at, 3)
    assert np.isfinite(F.nll_loss(logits, torch.tensor([1, -100])).item())


def test_an_index_has_the_rank_and_the_dtype() -> None:
    x = torch.tensor(np.arange(6.0).reshape(2, 3))
    assert x.gather(1, torch.tensor([[2]])).tolist() == [[2.0]]  # it need not be as long
    assert x.gather(0, torch.zeros(4, 0, 2, dtype=torch.int64)).shape == (4, 0, 2)
    assert x.index_select(0, torch.tensor(1)).tolist() == [[3.0, 4.0, 5.0]]
    with pytest.raises(ShapeError, match="gather: the index has the rank of the tensor"):
        x.gather(1, torch.tensor([0]))
    with pytest.raises(ShapeError, match="index_select: the index has rank one"):
        x.index_select(0, torch.tensor([[0]]))
    for name in ("scatter", "index_fill"):
        with pytest.raises(DTypeError, match=f"{name}: indices must be integers"):
            getattr(torch.tensor(X), name)(0, torch.tensor([True, False, True]), 9.0)


def test_booleans_add_up_to_whether_one_holds() -> None:
    x, i = torch.tensor([True, False, False]), torch.tensor([1, 1])
    yes, no = torch.tensor([False, True]), torch.tensor([False, False])
    for way in ("sum", "amax"):
        assert x.scatter_reduce(0, i, yes, way).tolist() == [True, True, False]
    assert x.scatter_add(0, i, yes).tolist() == x.index_add(0, i, yes).tolist()
    assert x.scatter_add(0, i, yes).tolist() == [True, True, False]
    assert x.index_put((i,), yes, accumulate=True).tolist() == [True, True, False]
    assert x.put(i, no, accumulate=True).tolist() == [True, False, False]
    assert x.scatter(0, i - 1, yes, reduce="multiply").tolist() == [False, False, False]
    with pytest.raises(DTypeError, match="scatter_reduce: booleans have no mean"):
        x.scatter_reduce(0, i, yes, "mean")


def test_scatter_adds_or_multiplies_alone() -> None:
    x, i = torch.tensor(X), torch.tensor([0, 1])
    assert x.scatter(0, i, torch.tensor(V), reduce="add").tolist() == [8.0, 10.0, 3.0]
    for reduce in ("amax", "sum", "mean"):
        with pytest.raises(ArgumentError, match="Write one of 'add', 'multiply'"):
            x.scatter(0, i, torch.tensor(V), reduce=reduce)
    with pytest.raises(ArgumentError, match="scatter_reduce: there is no such reduction"):
        x.scatter_reduce(0, i, torch.tensor(V), "add")
    for step in (0, -1):
        with pytest.raises(ArgumentError, match="slice_scatter: the step is at least 1"):
            x.slice_scatter(x, 0, 2, None, step)


@pytest.mark.parametrize(
    ("repeats", "dim", "total"), [(2, None, 6), ([1, 2, 1], None, 4), ([2], 0, 6), (0, 0, 0)]
)
def test_output_size_is_what_repeats_make(repeats: Any, dim: Any, total: int) -> None:
    x = torch.tensor(X)
    given = [repeats] if type(repeats) is int else [torch.tensor(repeats), np.array(repeats)]
    for times in given:
        found = torch.repeat_interleave(x, times, dim=dim, output_size=total)
        assert found.tolist() == np.repeat(X, repeats).tolist()
        for wrong in (total - 1, total + 3):
            with pytest.raises(ArgumentError, match=f"Write output_size={total}"):
                torch.repeat_interleave(x, times, dim=dim, output_size=wrong)


def test_the_median_of_nothing_is_nan() -> None:
    x = torch.zeros(0, 3, requires_grad=True)
    for found in (x.median(), torch.nanmedian(x), torch.tensor([]).median()):
        assert np.isnan(found.item())
    x.median().backward()
    assert x.grad.shape == (0, 3)
    assert torch.zeros(0, dtype=torch.int64).median().item() == -(2**63)
    assert x.median(1).values.shape == (0,)
    with pytest.raises(ArgumentError, match="median: there is no element"):
        x.median(0)


def test_a_number_is_its_own_transpose_and_a_vector_has_none() -> None:
    z = torch.tensor(1.0 + 2.0j)
    assert z.mT.item() == 1.0 + 2.0j
    assert z.adjoint().item() == z.mH.item() == z.H.item() == 1.0 - 2.0j
    x = torch.tensor(X)
    for name, call in (
        ("mT", lambda: x.mT), ("mH", lambda: x.mH), ("H", lambda: x.H), ("adjoint", x.adjoint),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match=rf"{name}: takes a matrix.\n  .*\n  Write x\.conj"):
            call()
    with pytest.raises(ShapeError, match=r"Write x\.mH"):
        _ = torch.ones(2, 2, 2).H


def test_singular_values_come_without_vectors_if_so_asked() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    u, s, v = torch.svd(x, compute_uv=False)
    np.testing.assert_allclose(s, [9.508032, 0.77286965], rtol=1e-6)
    assert (u.tolist(), v.tolist()) == (np.zeros((2, 2)).tolist(), np.zeros((3, 3)).tolist())


def test_a_number_is_checked_as_an_index_of_rank_one_is() -> None:
    x = torch.tensor(np.arange(6.0).reshape(3, 2))
    part = torch.ones(1, 2)
    for bad in (3, -1):
        at = torch.tensor(bad)
        for call in (
            lambda at: x.index_select(0, at),
            lambda at: x.index_add(0, at, part),
            lambda at: x.index_copy(0, at, part),
        ):
            with pytest.raises(IndexingError, match=f"index {bad} is out of bounds"):
                call(at)
    assert x.index_fill(0, torch.tensor(-1), 9.0)[2].tolist() == [9.0, 9.0]
    with pytest.raises(IndexingError, match="index 3 is out of bounds"):
        x.index_fill(0, torch.tensor(3), 9.0)


def test_a_number_is_an_index_along_the_only_dimension() -> None:
    x, at = torch.tensor(X, requires_grad=True), torch.tensor(1)
    assert x.gather(0, at).tolist() == 2.0
    assert x.scatter(0, at, 9.0).tolist() == [1.0, 9.0, 3.0]
    assert x.scatter_add(0, at, torch.tensor(1.0)).tolist() == [1.0, 3.0, 3.0]
    with pytest.raises(IndexingError, match="gather: index 3 is out of bounds"):
        x.gather(0, torch.tensor(3))


def test_nothing_that_is_gathered_has_gradients_nonetheless() -> None:
    x = torch.tensor(X, requires_grad=True)
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    x.gather(0, nothing).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    assert x.scatter(0, nothing, 9.0).tolist() == X.tolist()


def test_classes_may_be_bytes() -> None:
    F, logits = torch.nn.functional, torch.tensor(np.eye(3, dtype=np.float32)[:2])
    at = np.array([0, 2])
    for function in (F.cross_entropy, F.nll_loss):
        expected = function(logits, torch.tensor(at)).item()
        assert function(logits, torch.tensor(at.astype(np.uint8))).item() == expected
    with pytest.raises(IndexingError, match="there is no class 3"):
        F.cross_entropy(logits, torch.tensor(np.array([0, 3], np.uint8)))


_SIZED: dict[str, Callable[[Any, Any], Any]] = {
    "narrow": lambda x, n: x.narrow(0, n, 1),
    "narrow to": lambda x, n: x.narrow(0, 0, n),
    "view": lambda x, n: x.view(n, -1),
    "reshape": lambda x, n: x.reshape((n, -1)),
    "expand": lambda x, n: x[None].expand(n, 4, 3),
    "split": lambda x, n: x.split([n, 4 - n])[0],
    "chunk": lambda x, n: x.chunk(n)[0],
    "permute": lambda x, n: x.permute(n % 2, 1 - n % 2),
    "flatten": lambda x, n: x[None].flatten(n % 2),
    "unflatten": lambda x, n: x.unflatten(0, (n, -1)),
    "select": lambda x, n: x.select(0, n),
    "x[n:]": lambda x, n: x[n:],
}


@pytest.mark.parametrize("name", _SIZED)
def test_a_size_that_a_tensor_says_is_the_one_it_says_now(name: str) -> None:
    call, x = _SIZED[name], torch.arange(12.0).reshape(4, 3)
    for n in (1, 2, 1, 2):
        assert call(x, torch.tensor(n)).tolist() == call(x, n).tolist()
    if name != "expand":
        n, y = torch.tensor(1), x.clone()
        view = call(y, n)
        n.add_(1)
        y.add_(100)
        assert view.tolist() == (call(x, 1) + 100).tolist()


def test_narrow_counts_from_the_end_and_stays_inside() -> None:
    x = torch.tensor(X)
    assert x.narrow(0, -1, 1).tolist() == [3.0]
    assert x.narrow(0, -3, 2).tolist() == [1.0, 2.0]
    assert x.narrow(0, 3, 0).shape == (0,)
    for start, length in ((2, 2), (-4, 1), (4, 0), (1, -1)):
        with pytest.raises(ShapeError, match="narrow: there are not so many elements"):
            x.narrow(0, start, length)


def test_bits_are_not_viewed_as_another_dtype() -> None:
    with pytest.raises(UnsupportedError, match=r"view: the bits of float32 (.|\n)*x\.to\(dtype\)"):
        torch.arange(6.0).view(torch.int32)
