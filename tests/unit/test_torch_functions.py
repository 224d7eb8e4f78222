"""PyTorch's functions that NumPy has not: as methods of tensors, in place, traced, and refused.

Their values and derivatives are compared with PyTorch's frozen answers in `tests/oracle`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
import ftrans.torch as torch
from ftrans import func, jit
from ftrans.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FtransError,
    ShapeError,
)
from ftrans.numpy.torch_functions import FUNCTIONS, TWINNED
from ftrans.torch.utils import checkpoint
from tests.helpers import assert_close

_rng = np.random.default_rng(5)
A, B, S = _rng.normal(size=(3, 4)), _rng.normal(size=(4, 4)), _rng.normal(size=(3, 4))
INDEX = np.array([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 0, 1]])
ROWS = np.array([2, 0, 1])
NAN = np.where(INDEX == 2, np.nan, A)

TWINS: dict[str, Callable[..., Any]] = {
    "frac": lambda call, s: call(),
    "clamp_min": lambda call, s: call(0.1),
    "clamp_max": lambda call, s: call(max=s),
    "ldexp": lambda call, s: call(torch.tensor(2)),
    "renorm": lambda call, s: call(2, 0, 0.5),
    "addmm": lambda call, s: call(s, torch.tensor(B), beta=0.5, alpha=2),
    "addmv": lambda call, s: call(s, torch.tensor(B[0])),
    "addr": lambda call, s: call(s[:, 0], s[0]),
    "addbmm": lambda call, s: call(s[None], torch.tensor(B[None])),
    "baddbmm": lambda call, s: call(s[None], torch.tensor(B[None])),
    "scatter": lambda call, s: call(0, torch.tensor(INDEX), 2.5),
    "scatter_add": lambda call, s: call(0, torch.tensor(INDEX), s),
    "scatter_reduce": lambda call, s: call(1, torch.tensor(INDEX), s, "mean", include_self=False),
    "index_reduce": lambda call, s: call(0, torch.tensor(ROWS), s, "mean", include_self=False),
    "index_add": lambda call, s: call(0, torch.tensor(ROWS), s, alpha=2),
    "index_copy": lambda call, s: call(0, torch.tensor(ROWS), s),
    "index_fill": lambda call, s: call(1, torch.tensor(ROWS), -1.0),
    "index_put": lambda call, s: call((torch.tensor(ROWS),), s, accumulate=True),
    "put": lambda call, s: call(torch.tensor(ROWS), s[:, 0]),
    "masked_scatter": lambda call, s: call(torch.tensor(INDEX > 0), s),
}
"""Calls of all of which there are twins, with a tensor that has gradients too."""
STARTS = {"addmv": A[:, 0], "baddbmm": A[None]}


def test_calls_of_all_twins_are_here() -> None:
    assert TWINS.keys() == TWINNED.keys()


@pytest.mark.parametrize("name", TWINS)
def test_methods_twins_functions_and_traced_values_agree(name: str) -> None:
    start = STARTS.get(name, A)

    def result(of: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
        return lambda x, s: TWINS[name](of(x), s)

    def twin(x: Any, s: Any) -> Any:
        x = x * 1.0
        assert TWINS[name](getattr(x, f"{name}_"), s) is x
        return x

    ways = [
        result(lambda x: getattr(x, name)),
        result(lambda x: lambda *args, **kw: getattr(torch, name)(x, *args, **kw)),
        twin,
    ]
    found = []
    for way in ways:
        x, s = (torch.tensor(a, requires_grad=True) for a in (start, S))
        out = way(x, s)
        (out.sin() * 2).sum().backward()
        found.append([out.detach().numpy(), x.grad, s.grad])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert (one is None) == (two is None)
            assert_close(0 if one is None else one, 0 if two is None else two)
    grads = func.grad(lambda x, s: (ways[0](x, s).sin() * 2).sum(), (0, 1))
    for one, two in zip(found[0][1:], grads(*map(torch.tensor, (start, S))), strict=True):
        assert_close(np.zeros_like(two) if one is None else one, two)


def test_writes_to_places_are_those_of_a_loop() -> None:
    reduces: dict[str, Any] = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max,
                               "amin": np.min}  # fmt: skip
    for reduce, of in reduces.items():
        for include in (True, False):
            for dtype in (np.float64, np.int64):
                x, s = (np.round(a * 9).astype(dtype) for a in (A, S))
                expected = x.copy()
                for i in range(3):
                    for j in range(4):
                        met = [s[k, j] for k in range(3) if INDEX[k, j] == i]
                        if met:
                            value = of([x[i, j], *met] if include else met)
                            expected[i, j] = np.floor(value) if dtype is np.int64 else value
                found = torch.tensor(x).scatter_reduce(
                    0, torch.tensor(INDEX), torch.tensor(s), reduce, include_self=include
                )
                assert found.dtype == dtype
                assert_close(found, expected)
    written = A.copy()
    for row, part in zip(ROWS, S, strict=True):
        written[row] += 3 * part
    assert_close(
        torch.tensor(A).index_add(0, torch.tensor(ROWS), torch.tensor(S), alpha=3), written
    )
    x = torch.tensor(A)
    x[1:].scatter_(1, torch.tensor(INDEX[:2, :1]), 7.0)  # a view of it
    assert_close(x, np.array([A[0], [7, *A[1, 1:]], [A[2, 0], 7, *A[2, 2:]]]))


def test_medians_are_the_lower_ones() -> None:
    x = torch.tensor([[3.0, 1, 2, 9], [5, 5, 5, 5]], requires_grad=True)
    assert x.median().item() == 5
    values, indices = x.median(dim=1)
    assert values.tolist() == [2, 5]
    assert indices.tolist()[0] == 2
    assert indices.dtype == np.int64
    x.median().backward()  # each of those that are equal has its share
    assert_close(x.grad, [[0, 0, 0, 0], [0.25] * 4])
    gradient = func.grad(lambda x: x.median(1, keepdim=True).values.sum())(x.detach())
    assert gradient.tolist()[0] == [0, 0, 1, 0]
    assert gradient[1].sum() == 1
    for name, middle in (("median", np.median), ("nanmedian", np.nanmedian)):
        rows = [np.array([2.0, np.nan, 1]), np.array([2.0, 7, 1])]
        for row in rows:
            odd = row if name == "median" else np.array([*row[~np.isnan(row)], 9.0][:3])
            np.testing.assert_equal(getattr(torch, name)(torch.tensor(odd)).item(), middle(odd))
    assert torch.tensor([4, 1, 3, 2]).median().item() == 2
    assert torch.tensor(3.0).median(0) == (3.0, 0)
    with_nan = torch.tensor([[1.0, np.nan, 0], [np.nan] * 3])
    assert with_nan.median(1).indices.tolist() == [1, 0]
    assert_close(with_nan.nanmedian(1).values, [0, np.nan])


def test_numbers_that_are_tensors_count_as_numbers() -> None:
    x, one = torch.tensor(A), torch.tensor(1)
    assert_close(x.tril(one), np.tril(A, 1))
    assert_close(x.triu(one), np.triu(A, 1))
    assert_close(x.kthvalue(one)[0], A.min(1))
    assert_close(x.norm(one), np.abs(A).sum())
    assert x.round(decimals=one).dtype == A.dtype
    assert torch.nn.functional.one_hot(one, one + 1).tolist() == [0, 1]
    for end in (2, one, torch.tensor(2.0, dtype=torch.float64)):
        assert torch.linspace(0, end, 3).dtype == torch.logspace(end, 0, 3).dtype == np.float32
    assert torch.linspace(0, 1j, 3).dtype == np.complex64


def test_what_is_chosen_by_order() -> None:
    x = torch.tensor(NAN)
    values, indices = torch.tensor([1, 3, 3, 2]).cummax(0)
    assert values.tolist() == [1, 3, 3, 3]
    assert indices.tolist() == [0, 1, 2, 2]
    for name, of in (("cummax", np.maximum), ("cummin", np.minimum)):
        values, indices = getattr(x, name)(0)
        assert_close(values, of.accumulate(NAN, 0))
        assert_close(x.gather(0, indices), values)
    order = np.sort(A, axis=1)
    for k in range(1, 5):
        values, indices = torch.tensor(A).kthvalue(k)
        assert_close(values, order[:, k - 1])
        assert_close(np.take_along_axis(A, np.asarray(indices)[:, None], 1)[:, 0], values)
    low, high = torch.tensor(A).aminmax(dim=1)
    assert_close(low, A.min(1))
    assert_close(high, A.max(1))
    assert torch.tensor([1, 1, 4]).bincount(minlength=6).tolist() == [0, 2, 0, 0, 1, 0]
    assert torch.tensor([1]).bincount().dtype == np.int64
    parts = torch.tensor(np.arange(7)).tensor_split(3)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    parts = torch.tensor_split(torch.tensor(np.arange(5)), (1, 9))
    assert [part.tolist() for part in parts] == [[0], [1, 2, 3, 4], []]
    assert torch.tensor(np.arange(5)).unfold(0, 3, 2).tolist() == [[0, 1, 2], [2, 3, 4]]


def test_what_is_no_choice_is_refused() -> None:
    x = torch.tensor(A)
    for call, text in (
        (
            lambda: x.kthvalue(5),
            "kthvalue: there is no such element.\n  k: 5\n  It is one of 1 ... 4.",
        ),
        (
            lambda: x.scatter_reduce(0, torch.tensor(INDEX), x, "max"),
            "scatter_reduce: there is no such reduction.\n  reduce: 'max'\n"
            "  Write one of 'sum', 'prod', 'amax', 'amin', 'mean'.",
        ),
        (lambda: torch.ones(0).median(0), "median: there is no element.\n  dim: 0, of size 0"),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value) == text


def test_writes_of_another_shape_are_refused() -> None:
    """They would broadcast, or be cut, without a word; PyTorch refuses them too."""
    x, row = torch.tensor(A), torch.tensor(ROWS)
    calls: list[tuple[type[FtransError], Callable[[], Any]]] = [
        (ShapeError, lambda: x.index_add(0, row, x[:1])),
        (ShapeError, lambda: x.index_copy(0, row, x[0])),
        (ShapeError, lambda: x.index_fill(0, row[None], 1.0)),
        (ShapeError, lambda: x.put(row, x[0, :1])),
        (ShapeError, lambda: x.scatter(1, torch.tensor(INDEX), x[:1])),
        (ShapeError, lambda: x.scatter(1, row, 1.0)),
        (ArgumentError, lambda: x.scatter(1, torch.tensor(INDEX))),
        (ShapeError, lambda: x.select_scatter(x[0, 0], 0, 1)),
        (ShapeError, lambda: x.slice_scatter(x[:1], 0, 0, 2)),
        (ShapeError, lambda: x.diagonal_scatter(x[0, 0])),
        (ShapeError, lambda: x.diagonal_scatter(x[0, :1], 2)),
        (ShapeError, lambda: x.sum_to_size(4, 3)),
        (ShapeError, lambda: torch.addmm(x[None], x, torch.tensor(B))),
        (ShapeError, lambda: torch.addmm(x, x[None], torch.tensor(B))),
        (ShapeError, lambda: x.cross(x, dim=1)),
        (DTypeError, lambda: x.masked_select(torch.tensor(INDEX))),
        (DTypeError, lambda: x.masked_scatter(x, x)),
        (AxisError, lambda: x.diag_embed(dim1=5)),
        (AxisError, lambda: x[0, 0].diag_embed()),
        (ArgumentError, lambda: x.unfold(1, 5, 1)),
        (ArgumentError, lambda: x.unfold(1, 2, 0)),
        (ArgumentError, lambda: x.tensor_split(0)),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call()
    scattered = x.masked_scatter(torch.tensor(INDEX >= 0), x[0])
    assert_close(scattered[0], A[0])
    assert torch.isnan(scattered[1:]).all()


def test_half_precision_is_a_float_and_whole_numbers_stay() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.tensor([1.0, 2, 2, 3], dtype=dtype, requires_grad=True)
        x.median().backward()
        assert x.grad.tolist() == [0, 0.5, 0.5, 0]
        place, s = torch.tensor([0, 0]), torch.tensor([0.5, 0.25], dtype=dtype)
        for reduce, value in (("amax", 0.5), ("amin", 0.25), ("mean", 0.375), ("prod", 0.125)):
            found = x.detach().scatter_reduce(0, place, s, reduce, include_self=False)
            assert found.tolist() == [value, 2, 2, 3]
            assert found.dtype == dtype
        assert torch.ldexp(x, torch.tensor(-1)).dtype == dtype
    whole = torch.cross(torch.tensor([1, 2, 2**60]), torch.tensor([3, 2, 1]))
    assert whole.dtype == np.int64
    assert whole.tolist() == [2 - 2**61, 3 * 2**60 - 1, -4]
    whole = torch.tensor([[1], [2], [3]])
    assert torch.linalg.cross(whole, whole.flip(0), dim=0).dtype == np.int64
    assert torch.tensor([1]).bincount(torch.tensor([2])).dtype == np.float64
    assert torch.bincount(torch.tensor([1, 1]), [1, 2]).tolist() == [0, 3]


def test_a_part_may_be_selected_by_what_is_traced() -> None:
    found = jit(lambda x, i: torch.select_scatter(x, x[0], 0, i))(A, np.array(2))
    assert_close(found, A[[0, 1, 0]])


def test_arguments_have_the_names_of_pytorch() -> None:
    x, m = torch.tensor(A), torch.tensor(B)
    assert_close(torch.addmm(input=x, mat1=x, mat2=m), A + A @ B)
    assert_close(torch.addmv(x[0], mat=m, vec=x[0]), A[0] + B @ A[0])
    assert_close(m.addr(vec1=x[0], vec2=x[1]), B + np.outer(A[0], A[1]))
    assert_close(x.addbmm(batch1=x[None], batch2=m[None]), A + A @ B)
    assert_close(x[None].baddbmm(batch1=x[None], batch2=m[None]), (A + A @ B)[None])
    assert [part.tolist() for part in torch.arange(3).split_with_sizes(split_sizes=[1, 2])] == [
        [0],
        [1, 2],
    ]
    assert torch.repeat_interleave(torch.tensor([1, 0, 2])).tolist() == [0, 2, 2]
    one, zero = torch.tensor(1.0), torch.tensor(0)
    assert one.scatter_add(dim=0, index=zero, src=one).tolist() == 2
    assert_close(torch.svd(x).S, np.linalg.svd(A)[1])


def test_functions_of_numpy_keep_their_names() -> None:
    assert fnp.transpose.__qualname__ == "transpose"
    for name, function in FUNCTIONS.items():
        assert function.__doc__
        assert getattr(torch.Tensor, name).__doc__ == function.__doc__


def test_checkpoints_keep_what_goes_into_them() -> None:
    weight = torch.tensor(B, requires_grad=True)
    functions = [torch.sin, lambda x: x @ weight, torch.tanh, torch.exp, lambda x: x.max(1)[0]]
    x = torch.tensor(A, requires_grad=True)

    def plain(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    expected = torch.autograd.grad(plain(x).sum(), (x, weight))
    for segments in (1, 2, 3, 5, 9):
        found = checkpoint.checkpoint_sequential(functions, segments, x, use_reentrant=False).sum()
        for one, two in zip(torch.autograd.grad(found, (x, weight)), expected, strict=True):
            assert_close(one, two)

    def drawn(x: Any, kind: str, *, scale: float) -> Any:
        kept.append(torch.rand(x.shape, dtype=x.dtype))
        return {kind: x * kept[0] * scale}

    kept: list[Any] = []
    result = checkpoint.checkpoint(drawn, x, "y", scale=3.0)["y"].sum()
    (gradient,) = torch.autograd.grad(result, x)
    assert_close((gradient * x.detach()).sum(), result.detach())


def _goes_backward(x: Any) -> Any:
    return torch.autograd.grad(x.sin().sum(), x, create_graph=True)[0]


def _hooked(x: Any) -> Any:
    y = x.sin()
    y.register_hook(lambda ct: 2 * ct)
    y.retain_grad()
    return y


def _asks(x: Any) -> Any:
    y = x.sin()
    return y * y.detach().numpy() if y.requires_grad and y.grad_fn is not None else x


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (_goes_backward, lambda x: -x.sin()),
        (_hooked, lambda x: 2 * x.cos()),
        (_asks, lambda x: x.sin() * x.cos()),
        (lambda x: checkpoint.checkpoint(_goes_backward, 2 * x), lambda x: -2 * (2 * x).sin()),
    ],
)
def test_a_checkpoint_of_what_cannot_be_traced_calls_it(function: Any, slope: Any) -> None:
    x = torch.tensor(A, requires_grad=True)
    result = checkpoint.checkpoint(function, x, use_reentrant=False)
    assert_close(torch.autograd.grad(result.sum(), x)[0], slope(x.detach()))
    stretches = checkpoint.checkpoint_sequential([torch.exp, function, torch.exp], 3, x)
    expected = function(x.exp()).exp()
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (stretches, expected)]
    assert_close(*grads)


def test_a_checkpoint_writes_to_what_its_function_writes_to() -> None:
    x, y, buffer = torch.ones(2, requires_grad=True), torch.zeros(2), torch.ones(2)
    result = checkpoint.checkpoint(lambda x, y: x * y.add_(2) * buffer.clone().add_(1), x, y)
    result.sum().backward()
    assert_close(x.grad, [4.0, 4.0])
    assert_close(y, [2.0, 2.0])
    assert_close(buffer, [1.0, 1.0])


def test_what_a_checkpoint_raises_is_what_its_function_raises() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("not here")

    x = torch.tensor(A, requires_grad=True)
    with pytest.raises(KeyError, match="not here"):
        checkpoint.checkpoint(fails, x)
    with pytest.raises(RuntimeError, match="does not require grad"):
        checkpoint.checkpoint(lambda x: torch.autograd.grad(x.sum(), torch.ones(1))[0], x)


def test_settings_of_checkpoints_are_blocks() -> None:
    x = torch.tensor(A, requires_grad=True)
    with checkpoint.set_checkpoint_early_stop(False), checkpoint.set_checkpoint_debug_enabled(None):
        result = checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
    assert_close(torch.autograd.grad(result.sum(), x)[0], x.detach().cos())


def test_what_a_checkpoint_computes_without_a_derivative_does_not_require_grad() -> None:
    def frozen(x: Any) -> Any:
        with torch.no_grad():
            return x * 2

    x = torch.tensor(A, requires_grad=True)
    again = checkpoint.checkpoint
    assert not again(frozen, x).requires_grad
    assert not again(lambda x: x.detach().sin().sum(), x, use_reentrant=False).requires_grad
    moving, still = again(lambda x: (x * 2, x.detach()), x)
    assert (moving.requires_grad, still.requires_grad) == (True, False)
    with pytest.raises(RuntimeError, match="does not require grad"):
        again(frozen, x).sum().backward()
