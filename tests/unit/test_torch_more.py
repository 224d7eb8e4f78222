"""Methods of tensors and names of `torch` that programs often type: closed forms, and SciPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats

import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans import func, jit
from ftrans.autograd import gradcheck
from ftrans.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    IndexingError,
    MissingAttributeError,
    ShapeError,
    UnsupportedError,
)
from tests.helpers import assert_close

_rng = np.random.default_rng(5)
A, B, S = _rng.normal(size=(3, 4)), _rng.normal(size=(4, 4)), _rng.normal(size=(20,))
SPD = B @ B.T + np.eye(4)


def leaf(x: Any) -> Any:
    return torch.tensor(np.asarray(x, np.float64), requires_grad=True)


def tensor(x: Any) -> Any:
    return torch.tensor(np.asarray(x))


# ------------------------------------------------------------------------------- what types say


def test_tensors_tell_of_their_types() -> None:
    x = torch.ones(2, 3)
    assert x.stride() == (3, 1)
    assert x.stride(0) == 3
    assert x.t().stride() == (2, 1)  # the elements that are asked for lie in order
    assert torch.zeros(2, 0, 3).stride() == (3, 3, 1)
    assert torch.tensor(1).stride() == ()
    assert (x.element_size(), x.double().element_size(), x.storage_offset()) == (4, 8, 0)
    assert (x.get_device(), torch.get_device(x)) == (-1, -1)
    assert x.is_cpu
    assert not any([x.is_sparse, x.is_quantized, x.is_conj(), x.is_neg(), torch.is_conj(x)])
    assert x.is_same_size(torch.zeros(2, 3))
    assert not torch.is_same_size(x, torch.zeros(3))
    assert x.is_signed()
    assert not torch.tensor([1], dtype=torch.uint8).is_signed()
    assert torch.tensor([2]).is_nonzero() is True
    assert torch.tensor(0.0).is_nonzero() is False
    with pytest.raises(RuntimeError, match="2 elements"):
        torch.ones(2).is_nonzero()
    assert func.vmap(lambda x: x * x.is_signed() + x.stride()[0])(x).tolist() == [[2.0] * 3] * 2
    for same in (x.to_dense(), x.pin_memory(), x.share_memory_(), x.resolve_conj(), x.contiguous()):
        assert same is x


def test_parts_of_complex_numbers_are_views_and_real_ones_have_no_imaginary_part() -> None:
    z = torch.tensor([1 + 2j, 3 + 4j])
    torch.imag(z).fill_(5.0)
    torch.real(input=z)[0] = 7.0
    assert z.tolist() == [7 + 5j, 3 + 5j]
    assert func.vmap(lambda z: torch.imag(z) + z.real)(z).tolist() == [12, 8]
    x = torch.ones(2)
    assert torch.real(x) is x
    for call in (
        lambda: x.imag,
        lambda: torch.imag(x.long()),
        lambda: func.grad(lambda x: x.imag.sum())(x),
    ):
        with pytest.raises(RuntimeError, match=r"imag is not implemented .* non-complex dtypes"):
            call()
    # arrays are NumPy's
    assert func.vmap(lambda x: x.imag)(np.ones(2)).tolist() == [0, 0]
    assert torch.imag(np.ones(2)).tolist() == [0, 0]


def test_tensors_say_what_they_are_views_of() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    assert (x._base, x._is_view()) == (None, False)
    for view in (x[0], x.T[1:], x.view(-1)[2]):
        assert view._base is x
        assert view._is_view()
    assert not (x[0] * 2)._is_view()
    assert not x[0].detach()._is_view()


def test_layouts_are_strided_inside_of_transforms_too() -> None:
    x = torch.ones(2, 3)
    assert x.layout == torch.strided
    assert not any([x.is_pinned(), x.is_sparse_csr, x.is_xla])
    assert func.grad(lambda x: x.sum() * (2 if x.is_cuda else 1))(x).tolist() == [[1] * 3] * 2
    assert func.vmap(lambda x: x.cpu() * (x.layout == torch.strided))(x).tolist() == x.tolist()


def test_conjugate_transposes_inside_of_transforms() -> None:
    z = torch.tensor([[1.0, 2j], [3.0, 4.0]])
    assert func.vmap(lambda c: (z * c).H + (z * c).mH)(torch.ones(1)).tolist() == [
        [[2, 6], [-4j, 8]]
    ]

    def written(x: Any) -> Any:
        y = x * 1
        y.H[0] = 7.0
        return y.sum()

    value, gradient = func.grad_and_value(written)(torch.ones(2, 2))[::-1]
    assert (value.item(), gradient.tolist()) == (16.0, [[0, 1], [0, 1]])


SPLIT = {
    "unsafe_split": 2, "unsafe_chunk": 2, "unsafe_split_with_sizes": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize("name", SPLIT)
def test_parts_that_are_no_views_may_be_written_to(name: str) -> None:
    safe = getattr(torch, name.removeprefix("unsafe_"))
    for call in (getattr(torch, name), getattr(torch.Tensor, name)):
        x = torch.tensor([[1.0, 2, 3]] * 2, requires_grad=True)
        first, second = call(x, SPLIT[name], 1)
        assert [y.tolist() for y in safe(x, SPLIT[name], 1)] == [first.tolist(), second.tolist()]
        first.mul_(5)
        (first.sum() + second.sum()).backward()
        assert x.grad.sum(1).tolist() == [5 * first.shape[1] + second.shape[1]] * 2
    mapped = func.vmap(lambda x: getattr(x, name)(SPLIT[name])[1])(x)
    assert mapped.tolist() == [safe(row, SPLIT[name])[1].tolist() for row in x]


def test_copies_of_views_are_no_views() -> None:
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    for copied, view in (
        (torch.view_copy(x, [3, 2]), x.view(3, 2)),
        (torch.transpose_copy(input=x, dim0=0, dim1=1), x.T),
        (torch.select_copy(x, dim=1, index=2), x[:, 2]),
        (torch.squeeze_copy(x[:1], 0), x[0]),
        (func.vmap(lambda row: torch.unsqueeze_copy(row, dim=-1))(x), x[:, :, None]),
    ):
        assert copied.tolist() == view.tolist()
        copied.zero_()
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_gradients_of_gathered_elements_are_not_sparse() -> None:
    x, at = torch.ones(2, 3, requires_grad=True), torch.tensor([[0, 0]])
    torch.gather(x, 1, at, sparse_grad=True).sum().backward()
    assert x.grad.tolist() == [[2, 0, 0], [0, 0, 0]]
    assert x.gather(1, at, sparse_grad=False).tolist() == [[1, 1]]


OUTPUTS: dict[str, Callable[..., Any]] = {
    "sin": lambda x, **to: torch.sin(x, **to),
    "add": lambda x, **to: torch.add(x, 1, **to),
    "cat": lambda x, **to: torch.cat([x, x], **to),
    "where": lambda x, **to: torch.where(x > 1, x, 0.0, **to),
    "std": lambda x, **to: torch.std(x, 1, **to),
    "arange": lambda x, **to: torch.arange(3.0, **to),
    "inv": lambda x, **to: torch.linalg.inv(x[:, :2], **to),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_take_the_shapes_of_results(name: str) -> None:
    f, x = OUTPUTS[name], torch.tensor([[3.0, 1, 2], [0, 5, 4]])
    expected = f(x)
    for out in (torch.empty(0), torch.zeros(expected.shape)):
        assert f(x, out=out) is out
        assert_close(out, expected)
    out = torch.ones(7, dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"resized since it had shape \[7\]"):
        f(x, out=out)
    assert out.dtype == torch.float64
    assert_close(out, expected.double())


PAIRS: dict[str, Callable[..., Any]] = {
    "max": lambda x, **to: torch.max(x, 1, **to),
    "min": lambda x, **to: torch.min(x, dim=0, keepdim=True, **to),
    "sort": lambda x, **to: torch.sort(x, **to),
    "topk": lambda x, **to: torch.topk(x, 2, **to),
    "kthvalue": lambda x, **to: torch.kthvalue(x, 2, **to),
    "mode": lambda x, **to: torch.mode(x, **to),
    "median": lambda x, **to: torch.median(x, 1, **to),
    "cummax": lambda x, **to: torch.cummax(x, 1, **to),
    "aminmax": lambda x, **to: torch.aminmax(x, dim=1, **to),
    "slogdet": lambda x, **to: torch.slogdet(x[:, :2], **to),
}


@pytest.mark.parametrize("name", PAIRS)
def test_outputs_of_several_results(name: str) -> None:
    f, x = PAIRS[name], torch.tensor([[3.0, 1, 2], [0, 5, 4]], requires_grad=True)
    expected = f(x)
    first, second = torch.empty(0), torch.empty(0).to(expected[1].dtype)
    found = f(x, out=(first, second))
    assert type(found) is type(expected)
    for out, result, right in zip((first, second), found, expected, strict=True):
        assert result is out
        assert_close(out.detach(), right.detach())
    first.sum().backward()
    gradient, x.grad = x.grad, None
    expected[0].sum().backward()
    assert_close(gradient, x.grad)

    def inside(x: Any) -> Any:
        outputs = torch.zeros(found[0].shape), torch.zeros(found[1].shape).to(found[1].dtype)
        f(x, out=outputs)
        return outputs[0].sum()

    assert_close(func.grad(inside)(x.detach()), gradient)


def test_outputs_that_do_not_fit() -> None:
    x = torch.eye(2)
    with pytest.raises(ArgumentError, match=r"2 results(.|\n)*Write out=\(values, indices\)"):
        torch.sort(x, out=torch.empty(0))
    with pytest.raises(UnsupportedError, match="can only be written to a tensor"):
        torch.aminmax(x, out=(torch.empty(0), 3))
    with pytest.raises(ShapeError, match="does not have the shape"):
        func.vmap(lambda x: torch.cat([x, x], out=torch.zeros(3)))(x)


KINDS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "BFloat16": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), KINDS.items())
def test_kinds_of_tensors(kind: str, dtype: str) -> None:
    name = f"torch.{kind}Tensor"
    make = getattr(torch, f"{kind}Tensor")
    x = torch.tensor([1.0, 0.0])
    assert x.to(dtype).type() == torch.typename(make([1])) == name
    for target in (name, make, torch.ones(1).to(dtype).dtype):
        assert x.type(target).dtype == dtype
    found = make([[1.5, 0], [1, 1]])
    assert found.dtype == dtype
    assert found.shape == (2, 2)
    assert make(2, 3).tolist() == [[0, 0, 0]] * 2
    assert make().shape == (0,)
    assert [other for other in KINDS if isinstance(found, getattr(torch, f"{other}Tensor"))] == [
        kind
    ]
    assert not isinstance(found.numpy(), make)
    inside = func.vmap(lambda x: x.float() * isinstance(x, make))(found)
    assert inside.tolist() == found.float().tolist()


def test_other_kinds() -> None:
    x = torch.tensor([1.7, -2.0])
    assert (x.char().tolist(), x.abs().byte().tolist()) == ([1, -2], [1, 2])
    assert torch.zeros(1, dtype=torch.uint16).type() == "torch.UInt16Tensor"
    assert torch.zeros(1, dtype=torch.complex64).type() == "torch.ComplexFloatTensor"
    assert [torch.typename(y) for y in (3, np.ones(1))] == ["int", "numpy.ndarray"]
    assert func.vmap(lambda x: x * (torch.typename(x) == "torch.FloatTensor"))(x).tolist() == [
        *x.tolist()
    ]
    with pytest.raises(ArgumentError, match=r"no kind of tensors 'torch\.FooTensor'"):
        x.type("torch.FooTensor")


def test_the_class_makes_tensors_as_it_did() -> None:
    x = torch.Tensor([[1, 2], [3, 4]])
    assert isinstance(x, torch.Tensor)
    assert (x.dtype, x.tolist()) == (np.float32, [[1.0, 2.0], [3.0, 4.0]])
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert torch.Tensor().shape == (0,)
    assert torch.Tensor(np.ones(2)).dtype == np.float32
    assert torch.Tensor(torch.ones(2, dtype=torch.int64)).tolist() == [1.0, 1.0]
    assert torch.Tensor([1.0]).requires_grad_().is_leaf
    assert torch.LongTensor(range(3)).tolist() == [0, 1, 2]
    assert func.vmap(lambda x: x + torch.Tensor([1, 2]))(torch.zeros(2, 2)).shape == (2, 2)
    assert x.new([5]).tolist() == [5.0]
    assert x.long().new([5.5]).tolist() == [5]
    assert (x.new(2, 1).shape, x.new().shape) == ((2, 1), (0,))
    wrong: list[tuple[Any, str]] = [
        (lambda: torch.Tensor(3.0), r"Write Tensor\(2, 3\)"),
        (lambda: torch.Tensor("ab"), "sizes, or a sequence"),
        (lambda: torch.LongTensor(True), "given: bool"),
        (lambda: torch.Tensor((2, 3)), r"Write Tensor\(2, 3\) for that shape, Tensor\(\[2, 3\]\)"),
        (lambda: x.new(x.shape), "may be sizes or data"),
    ]
    for call, text in wrong:
        with pytest.raises(ArgumentError, match=text):
            call()
    with pytest.raises(ShapeError, match="negative"):
        torch.Tensor(2, -1)


# -------------------------------------------------------------------------------- what is counted


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_modes_are_those_of_scipy(dtype: str, dim: int) -> None:
    x = np.random.default_rng(1).integers(0, 3, (5, 6)).astype(dtype)
    values, indices = torch.tensor(x).mode(dim)
    assert values.dtype == dtype
    assert_close(values, scipy.stats.mode(x.astype("int64"), axis=dim).mode.astype(dtype))
    kept = torch.mode(torch.tensor(x), dim, keepdim=True).indices
    assert indices.dtype == np.int64
    assert_close(np.take_along_axis(x, np.asarray(kept), dim).squeeze(dim), values)
    mapped = func.vmap(lambda row: row.mode().values)(torch.tensor(x))
    assert_close(mapped, torch.tensor(x).mode(1).values)


def test_modes_have_gradients_and_places() -> None:
    assert [int(y) for y in torch.tensor([1, 2, 2, 3, 3]).mode()] == [2, 2]
    assert [y.item() for y in torch.mode(torch.tensor(3.0))] == [3.0, 0]
    x = leaf([[3.0, 1.0, 3.0], [1.0, 2.0, 2.0]])
    x.mode(1).values.sum().backward()
    assert x.grad.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert torch.zeros(0, 3).mode(1).values.shape == (0,)
    with pytest.raises(ArgumentError, match="of size 0"):
        torch.zeros(0, 3).mode(0)


def test_different_elements() -> None:
    x = torch.tensor([1, 1, 2, 2, 1])
    found = x.unique_consecutive(return_inverse=True, return_counts=True)
    assert [y.tolist() for y in found] == [[1, 2, 1], [0, 0, 1, 1, 2], [2, 2, 1]]
    assert [y.dtype for y in found] == [np.int64] * 3
    assert torch.unique_consecutive(torch.tensor(3)).tolist() == [3]
    assert [y.tolist() for y in torch.zeros(0).unique_consecutive(True, True)] == [[], [], []]
    rows = torch.tensor([[1, 2], [1, 2], [3, 2]])
    values, counts = rows.unique_consecutive(return_counts=True, dim=0)
    assert (values.tolist(), counts.tolist()) == ([[1, 2], [3, 2]], [2, 1])
    assert rows.t().unique_consecutive(dim=1).tolist() == [[1, 3], [2, 2]]
    assert rows.unique_consecutive().tolist() == [1, 2, 1, 2, 3, 2]
    values, inverse = rows.unique(return_inverse=True)
    assert (values.tolist(), inverse.tolist()) == ([1, 2, 3], [[0, 1], [0, 1], [2, 1]])
    assert torch.unique(torch.tensor([True, False, True])).tolist() == [False, True]
    y = leaf([2.0, 2.0, 5.0])
    y.unique_consecutive().square().sum().backward()
    assert y.grad.tolist() == [4.0, 0.0, 10.0]
    assert torch.tensor([1.0, 2.0, 1.5]).histc(2, 1, 2).tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError):
        jit(lambda x: torch.unique_consecutive(x))(np.ones(3))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_parts_are_reduced_to_rows(reduce: str, include: bool) -> None:
    of: Any = {"prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
    rows = [0, 2, 0]
    expected = B.copy()
    for row in (0, 2):
        met = [part for part, at in zip(A, rows, strict=True) if at == row]
        expected[row] = of([B[row], *met] if include else met, axis=0)
    options = {"reduce": reduce, "include_self": include}
    found = tensor(B).index_reduce(0, tensor(rows), tensor(A), **options)
    assert_close(found, expected)
    assert_close(tensor(B.T).index_reduce(1, tensor(rows), tensor(A.T), **options), expected.T)
    x = tensor(B)
    assert x.index_reduce_(0, tensor(rows), tensor(A), **options) is x
    assert_close(x, expected)
    assert gradcheck(lambda x, s: x.index_reduce(0, tensor(rows), s, **options), (leaf(B), leaf(A)))


def test_what_is_reduced_has_to_fit() -> None:
    x = torch.ones(3, 4)
    with pytest.raises(ArgumentError, match="Write one of 'prod'"):
        x.index_reduce(0, torch.tensor([0]), torch.ones(1, 4), "sum")
    with pytest.raises(IndexingError, match="index_reduce: index 5"):
        x.index_reduce(0, torch.tensor([5]), torch.ones(1, 4), "mean")
    with pytest.raises(ShapeError, match="another shape"):
        x.index_reduce(0, torch.tensor([0, 1]), torch.ones(1, 4), "mean")


# ------------------------------------------------------------------------------ parts, and bits


def test_parts_are_views() -> None:
    x = torch.arange(12.0).reshape(2, 6)
    first, second = x.hsplit(2)
    assert second.tolist() == [[3, 4, 5], [9, 10, 11]]
    first.zero_()
    assert x[:, :3].tolist() == [[0] * 3] * 2
    assert [y.shape for y in torch.vsplit(x, [1])] == [(1, 6), (1, 6)]
    assert [y.shape for y in torch.zeros(1, 1, 4).dsplit((1, 2))] == [(1, 1, 1)] * 2 + [(1, 1, 2)]
    assert [y.tolist() for y in torch.hsplit(torch.tensor([1, 2]), 2)] == [[1], [2]]
    mapped = func.vmap(lambda x: x.hsplit(3)[2])(x)
    assert mapped.tolist() == [[4, 5], [10, 11]]
    copy = x.narrow_copy(1, 4, 2)
    copy.zero_()
    assert x[0, 4:].tolist() == [4, 5]
    assert torch.narrow_copy(x, 0, 1, 1).shape == (1, 6)
    with pytest.raises(ArgumentError, match=r"Write x\.tensor_split\(4, 1\)"):
        x.hsplit(4)
    with pytest.raises(ShapeError, match="vsplit: takes 2 dimensions"):
        torch.ones(2).vsplit(1)
    with pytest.raises(ShapeError, match="dsplit: takes 3"):
        x.dsplit(1)


@pytest.mark.parametrize("shape", [(3, 3), (7, 3), (2, 5), (3, 3, 3), (0, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_diagonals_are_filled(shape: tuple[int, ...], wrap: bool) -> None:
    expected = np.zeros(shape)
    np.fill_diagonal(expected, 2.0, wrap)
    x = torch.zeros(shape)
    assert x.fill_diagonal_(2.0, wrap=wrap) is x
    assert_close(x, expected.astype("float32"))


def test_diagonals_and_bits() -> None:
    for shape in ((2,), (2, 3, 3)):
        with pytest.raises(ShapeError, match="of one size"):
            torch.zeros(shape).fill_diagonal_(1)
    assert torch.zeros(2, 2, dtype=torch.int64).fill_diagonal_(1.7).tolist() == [[1, 0], [0, 1]]
    x = leaf(B)
    (x * 1).fill_diagonal_(0.0).sum().backward()
    assert_close(x.grad, 1 - np.eye(4))
    assert torch.tensor([1, 2]).bitwise_left_shift(2).tolist() == [4, 8]
    shifted = torch.tensor([8, 4])
    assert shifted.bitwise_right_shift_(torch.tensor([1, 2])) is shifted
    assert shifted.tolist() == [4, 1]
    mantissa, exponent = torch.tensor([6.0, -0.3, 0.0]).frexp()
    assert_close(mantissa, np.frexp(np.float32([6, -0.3, 0]))[0])
    assert torch.frexp(torch.tensor([6.0])).exponent.tolist() == [3]
    assert exponent.dtype == np.int32
    assert torch.ones(2).ger(torch.arange(3.0)).tolist() == [[0, 1, 2]] * 2


def test_memory_formats_say_nothing() -> None:
    x = torch.ones(1, 2, 2, 2)
    assert x.contiguous(memory_format=torch.contiguous_format) is x
    assert x.to(memory_format=torch.channels_last) is x
    copy = x.clone(memory_format=torch.preserve_format)
    assert copy is not x
    assert torch.equal(copy, x)
    assert torch.empty_like(x, memory_format=torch.channels_last_3d).shape == x.shape
    assert torch.zeros(2, layout=torch.strided, pin_memory=True).tolist() == [0, 0]
    mapped = func.vmap(lambda x: x.clone(memory_format=torch.preserve_format).contiguous())(x)
    assert torch.equal(mapped, x)
    assert x[torch.newaxis].shape == (1, 1, 2, 2, 2)


# ---------------------------------------------------------------- methods that functions have too

METHODS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "polygamma": (lambda x: x.polygamma(1), [1.0, 2.5], scipy.special.polygamma(1, [1.0, 2.5])),
    "mvlgamma": (lambda x: x.mvlgamma(2), [3.0, 4.0], scipy.special.multigammaln([3.0, 4.0], 2)),
    "igamma": (
        lambda x: tensor([0.5, 2.0]).igamma(x),
        [0.3, 1.0],
        scipy.special.gammainc([0.5, 2.0], [0.3, 1.0]),
    ),
    "igammac": (
        lambda x: tensor([0.5, 2.0]).igammac(x),
        [0.3, 1.0],
        scipy.special.gammaincc([0.5, 2.0], [0.3, 1.0]),
    ),
    "matrix_exp": (lambda x: x.matrix_exp(), B, scipy.linalg.expm(B)),
    "cholesky_solve": (
        lambda x: x.cholesky_solve(tensor(np.linalg.cholesky(SPD))),
        A.T,
        np.linalg.solve(SPD, A.T),
    ),
    "cholesky_inverse": (
        lambda x: tensor(np.linalg.cholesky(SPD)).cholesky_inverse() @ x,
        A.T,
        np.linalg.solve(SPD, A.T),
    ),
    "lu_solve": (
        lambda x: x.lu_solve(*torch.linalg.lu_factor(tensor(B))),
        A.T,
        np.linalg.solve(B, A.T),
    ),
    "triangular_solve": (
        lambda x: x.triangular_solve(tensor(SPD)).solution,
        A.T,
        np.linalg.solve(np.triu(SPD), A.T),
    ),
    "transposed": (
        lambda x: torch.triangular_solve(x, tensor(SPD), upper=False, transpose=True)[0],
        A.T,
        np.linalg.solve(np.tril(SPD).T, A.T),
    ),
    "hardshrink": (lambda x: x.hardshrink(), [-1.0, 0.2, 0.7], [-1.0, 0.0, 0.7]),
    "prelu": (lambda x: x.prelu(tensor([0.25])), [-1.0, 2.0], [-0.25, 2.0]),
    "stft": (
        lambda x: x.stft(8, return_complex=True).abs().square().sum(),
        S,
        (np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(
            np.pad(S, 4, "reflect"), 8)[::2])) ** 2).sum(),
    ),
    "nuclear_norm": (torch.nuclear_norm, A, np.linalg.norm(A, "nuc")),
    "frobenius_norm": (torch.frobenius_norm, A, np.linalg.norm(A)),
    "frobenius_norm_along": (
        lambda x: torch.frobenius_norm(x, 1, True),
        A,
        np.linalg.norm(A, axis=1, keepdims=True),
    ),
    "svd_lowrank": (lambda x: torch.svd_lowrank(x, 2).S, A, np.linalg.svd(A)[1][:2]),
    "svd_lowrank_of_a_difference": (
        lambda x: torch.svd_lowrank(x, M=tensor(0.5 * A))[1],
        A,
        np.linalg.svd(0.5 * A)[1],
    ),
    "pca_lowrank": (
        lambda x: torch.pca_lowrank(x, 2)[1],
        A,
        np.linalg.svd(A - A.mean(0))[1][:2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_values_and_gradients(name: str) -> None:
    function, x, expected = METHODS[name]
    found = function(tensor(x))
    assert_close(found, np.asarray(expected))
    assert gradcheck(function, (leaf(x),))
    twice = torch.stack([tensor(x), 2 * tensor(x)])
    if name != "nuclear_norm":  # without dimensions it is one of matrices in any case
        assert_close(func.vmap(function)(twice)[0], np.asarray(expected))


@pytest.mark.parametrize(
    "function",
    [
        torch.frobenius_norm,
        torch.nuclear_norm,
        lambda x: torch.svd_lowrank(x, 2)[1],
        lambda x: torch.triangular_solve(x[:, :3], x[:, 1:])[0],
        lambda x: torch.mode(torch.round(x), 1)[0],
        lambda x: torch.index_reduce(x, 0, np.array([0, 1, 0]), 2 * x, "amax"),
        lambda x: torch.stft(x, 4, return_complex=True).real,
        lambda x: F.fold(x[None], (3, 3), 2),
        lambda x: torch.kl_div(x, torch.exp(x), 1),
        lambda x: torch.dropout(x, 0.5, False),
        lambda x: torch.hsplit(x, 2)[1] * x.shape[0],
        lambda x: torch.narrow_copy(x, 1, 0, 2) * torch.is_same_size(x, x),
        lambda x: torch.frexp(x)[0] * torch.is_signed(x),
    ],
)
def test_functions_of_arrays_under_transforms(function: Callable[[Any], Any]) -> None:
    x = np.abs(A) if "fold" not in function.__code__.co_names else np.abs(B)
    expected = np.asarray(function(x))
    assert_close(jit(function)(x), expected)
    assert_close(func.vmap(function)(np.stack([x, x + 1]))[0], expected)
    assert_close(func.grad(lambda x: torch.sum(function(x)))(x), _slopes(function, x), 1e-5)


def _slopes(function: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """Returns the gradient of a sum, by central differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        both = [np.asarray(function(x + sign * step)).sum() for sign in (1, -1)]
        found[place] = (both[0] - both[1]) / 2e-6
    return found


def test_factors_of_low_rank() -> None:
    u, s, v = torch.svd_lowrank(tensor(A), q=3)
    assert_close(u @ torch.diag(s) @ v.mT, A)
    u, s, v = torch.pca_lowrank(tensor(A), center=False)
    assert_close(u @ torch.diag(s) @ v.T, A)
    assert torch.svd_lowrank(tensor(A)).S.shape == (3,)
    with pytest.raises(ArgumentError, match="pca_lowrank: there are no more"):
        torch.pca_lowrank(tensor(A), 4)
    solved = torch.triangular_solve(tensor(A.T), tensor(SPD))
    assert solved.cloned_coefficient.shape == (4, 4)


# ------------------------------------------------------------------------------------- spectra


@pytest.mark.parametrize("options", [
    {}, {"hop_length": 3}, {"win_length": 6}, {"normalized": True}, {"onesided": False},
    {"pad_mode": "constant"}, {"pad_mode": "replicate"}, {"pad_mode": "circular"},
    {"center": False},
])  # fmt: skip
def test_spectra_of_stretches(options: dict[str, Any]) -> None:
    length, hop = options.get("win_length", 8), options.get("hop_length", 2)
    window = np.hamming(length)
    left = (8 - length) // 2
    full = np.pad(window, (left, 8 - length - left))
    modes = {"replicate": "edge", "circular": "wrap"}
    mode: Any = options.get("pad_mode", "reflect")
    x = np.pad(S, 4, modes.get(mode, mode)) if options.get("center", True) else S
    parts = np.stack([x[i : i + 8] * full for i in range(0, len(x) - 7, hop)], -1)
    of = np.fft.fft if options.get("onesided") is False else np.fft.rfft
    expected = of(parts, axis=0) / (np.sqrt(8) if options.get("normalized") else 1)
    made = torch.stft(tensor(S), 8, window=tensor(window), return_complex=True, **options)
    assert_close(made, expected)
    if "pad_mode" not in options:
        back = torch.istft(made, 8, window=tensor(window), **options)
        assert_close(back, S[: back.shape[0]])
        assert back.shape[0] >= 17
        short = torch.istft(made, 8, window=tensor(window), length=10, **options)
        assert_close(short, S[:10])
    if not options:
        longer = torch.istft(made, 8, window=tensor(window), length=30)
        assert longer.shape == (30,)
        assert longer[-1] == 0
    rows = torch.stft(torch.ones(2, 3, 20, dtype=torch.float64), 8, return_complex=True, **options)
    assert rows.shape == (2, 3, *made.shape)


def test_spectra_of_complex_signals() -> None:
    z = torch.complex(tensor(S), tensor(S[::-1].copy()))
    made = torch.stft(z, 8, window=torch.hann_window(8, dtype=torch.float64))
    assert made.shape[0] == 8
    window = torch.hann_window(8, dtype=torch.float64)
    assert_close(made.istft(8, window=window, return_complex=True), z)
    x = leaf(S)
    assert gradcheck(lambda x: torch.istft(x.stft(8, return_complex=True), 8), (x,))


def test_spectra_that_there_are_not() -> None:
    x, z = torch.ones(20), torch.zeros(5, 3, dtype=torch.complex64)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ArgumentError, "Write return_complex=True", lambda: torch.stft(x, 8)),
        (
            ShapeError,
            "takes signals",
            lambda: torch.stft(torch.tensor(1.0), 8, return_complex=True),
        ),
        (ShapeError, "takes signals", lambda: torch.stft(x[:0], 8, return_complex=True)),
        (ShapeError, "shorter", lambda: torch.stft(x, 30, center=False, return_complex=True)),
        (ArgumentError, "hops are", lambda: torch.stft(x, 8, 0, return_complex=True)),
        (ArgumentError, "no longer", lambda: torch.stft(x, 8, 2, 9, return_complex=True)),
        (
            ShapeError,
            r"Pass f32\[8\]",
            lambda: torch.stft(x, 8, window=torch.ones(7), return_complex=True),
        ),
        (ArgumentError, "frequencies", lambda: torch.istft(z, 10)),
        (ArgumentError, "frequencies", lambda: torch.istft(z, 8, return_complex=True)),
        (
            ArgumentError,
            "no window shows",
            lambda: torch.istft(z, 8, center=False, window=torch.hann_window(8)),
        ),
    ]
    for error, text, call in wrong:
        with pytest.raises(error, match=text):
            call()


# ------------------------------------------------------------------------------------------ draws


def seeded(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


DRAWS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "exponential_": (lambda x, **o: x.exponential_(2.0, **o), scipy.stats.expon(scale=0.5).cdf),
    "cauchy_": (lambda x, **o: x.cauchy_(1.0, 3.0, **o), scipy.stats.cauchy(1, 3).cdf),
    "log_normal_": (
        lambda x, **o: x.log_normal_(0.5, 0.7, **o),
        scipy.stats.lognorm(0.7, scale=np.exp(0.5)).cdf,
    ),
    "uniform_": (lambda x, **o: x.uniform_(-1, 3, **o), scipy.stats.uniform(-1, 4).cdf),
    "normal_": (lambda x, **o: x.normal_(2, 3, **o), scipy.stats.norm(2, 3).cdf),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_follow_their_distributions(name: str) -> None:
    draw, cdf = DRAWS[name]
    x = torch.zeros(4000, dtype=torch.float64)
    assert draw(x, generator=seeded()) is x
    assert scipy.stats.kstest(x.numpy(), cdf).pvalue > 1e-3
    again = draw(torch.zeros(4000, dtype=torch.float64), generator=seeded())
    assert torch.equal(x, again)


def parts(x: Any, dtype: Any) -> Any:
    assert x.dtype == dtype
    return torch.view_as_real(x).numpy().astype(float).T


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_parts_of_complex_numbers_are_uniform(dtype: Any) -> None:
    x = torch.rand(4000, dtype=dtype, generator=seeded())
    torch.manual_seed(0)
    like = torch.rand_like(x)
    written = torch.zeros(4000, dtype=dtype).uniform_(2.0, 4.0, generator=seeded())
    for drawn, first, size in ((x, 0, 1), (like, 0, 1), (written, 2, 2)):
        for part in parts(drawn, dtype):
            assert scipy.stats.kstest(part, scipy.stats.uniform(first, size).cdf).pvalue > 1e-3
        assert abs(np.corrcoef(parts(drawn, dtype))[0, 1]) < 0.1
    assert torch.equal(x, torch.rand(4000, dtype=dtype, generator=seeded()))
    mapped = func.vmap(lambda z: z + torch.rand_like(z), randomness="different")(x)
    assert scipy.stats.kstest(parts(mapped - x, dtype)[1], "uniform").pvalue > 1e-3


def test_draws_of_integers() -> None:
    x = torch.zeros(4000, dtype=torch.int64).geometric_(0.3, generator=seeded())
    assert x.min().item() == 1
    assert abs(x.double().mean().item() - 1 / 0.3) < 0.2
    assert set(torch.zeros(200).random_(3).tolist()) == {0.0, 1.0, 2.0}
    assert set(torch.zeros(200, dtype=torch.int32).random_(-1, 2).tolist()) == {-1, 0, 1}
    assert torch.zeros(2000, dtype=torch.int8).random_().max().item() > 100
    assert torch.zeros(2000, dtype=torch.uint8).random_().max().item() > 200
    assert set(torch.zeros(100, dtype=torch.bool).random_().tolist()) == {True, False}
    assert torch.zeros(100).random_(generator=seeded()).max().item() > 2**20
    assert torch.ones(3).bernoulli().tolist() == [1, 1, 1]
    assert torch.bernoulli(torch.ones(3), 0.0).tolist() == [0, 0, 0]
    assert torch.tensor([0.0, 1.0]).multinomial(3, True).tolist() == [1, 1, 1]
    assert torch.ones(50).bernoulli_(1.0, generator=seeded()).sum().item() == 50


def test_draws_that_there_are_not() -> None:
    x, i = torch.zeros(2), torch.zeros(2, dtype=torch.int64)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ArgumentError, "lambd is a positive", lambda: x.exponential_(-1.0)),
        (ArgumentError, "p lies between", lambda: x.geometric_(1.5)),
        (ArgumentError, "sigma is a positive", lambda: x.cauchy_(0, -1)),
        (ArgumentError, "std is a positive", lambda: x.log_normal_(0, -1)),
        (ArgumentError, "no integer from 3 up to 2", lambda: x.random_(3, 2)),
        (DTypeError, r"Write x\.float\(\)\.exponential_", lambda: i.exponential_()),
        (DTypeError, "cauchy_", lambda: i.cauchy_()),
    ]
    for error, text, call in wrong:
        with pytest.raises(error, match=text):
            call()


def test_states_of_generators() -> None:
    generator = seeded(5)
    state = generator.get_state().clone()
    assert (state.dtype, state.shape) == (np.uint8, (16,))
    first = torch.rand(3, generator=generator)
    generator.set_state(state)
    assert torch.equal(first, torch.rand(3, generator=generator))
    assert generator.initial_seed() == 5
    assert generator.seed() == generator.initial_seed() != 5
    assert torch.Generator().initial_seed() != torch.Generator().initial_seed()
    torch.manual_seed(3)
    assert torch.initial_seed() == 3
    state = torch.get_rng_state()
    first = torch.rand(2)
    torch.random.set_rng_state(state)
    assert torch.equal(first, torch.rand(2))
    assert torch.seed() == torch.initial_seed()
    with pytest.raises(ArgumentError, match=r"u8\[16\]"):
        torch.set_rng_state(torch.ones(3))


# --------------------------------------------------------------------------------- initialisers

INITIALISERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "uniform_": (lambda x, **o: torch.nn.init.uniform_(x, -1, 2, **o), (-1, 2)),
    "normal_": (lambda x, **o: torch.nn.init.normal_(x, 1.0, 0.5, **o), (1, 0.5)),
    "xavier_uniform_": (
        lambda x, **o: torch.nn.init.xavier_uniform_(x, gain=2.0, **o),
        (-2 * np.sqrt(6 / 110), 2 * np.sqrt(6 / 110)),
    ),
    "xavier_normal_": (lambda x, **o: torch.nn.init.xavier_normal_(x, **o), (0, np.sqrt(2 / 110))),
    "kaiming_uniform_": (
        lambda x, **o: torch.nn.init.kaiming_uniform_(x, a=1.0, mode="fan_out", **o),
        (-np.sqrt(3 / 60), np.sqrt(3 / 60)),
    ),
    "kaiming_normal_": (
        lambda x, **o: torch.nn.init.kaiming_normal_(x, nonlinearity="relu", **o),
        (0, np.sqrt(2 / 50)),
    ),
}


@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers_write_what_they_draw(name: str) -> None:
    make, (one, two) = INITIALISERS[name]
    w = torch.zeros(60, 50, requires_grad=True)
    assert make(w, generator=seeded()) is w
    assert w.is_leaf
    assert w.requires_grad
    x = w.detach().numpy().ravel()
    if "uniform" in name:
        assert one <= x.min() < one + 0.05
        assert two - 0.05 < x.max() <= two
        assert scipy.stats.kstest(x, scipy.stats.uniform(one, two - one).cdf).pvalue > 1e-3
    else:
        assert scipy.stats.kstest(x, scipy.stats.norm(one, two).cdf).pvalue > 1e-3
    assert torch.equal(w, make(torch.zeros(60, 50), generator=seeded()))


def test_initialisers_of_known_values() -> None:
    init = torch.nn.init
    w = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    assert init.constant_(w, 0.3) is w
    assert (w.dtype, w[1, 2].item()) == (np.float64, 0.3)
    assert init.ones_(w).tolist() == [[1.0] * 3] * 2
    assert init.zeros_(w).tolist() == [[0.0] * 3] * 2
    assert init.eye_(w).tolist() == [[1, 0, 0], [0, 1, 0]]
    kernel = init.dirac_(torch.ones(4, 2, 3), groups=2)
    assert kernel[:, :, 1].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert kernel[:, :, [0, 2]].abs().sum().item() == 0
    x = torch.rand(1, 2, 4, 4)
    assert_close(F.conv2d(x, init.dirac_(torch.ones(2, 2, 3, 3)), padding=1), x)
    q = init.orthogonal_(torch.zeros(3, 2, 3, dtype=torch.float64), gain=2.0).reshape(3, 6)
    assert_close(q @ q.T, 4 * np.eye(3))
    s = init.sparse_(torch.ones(10, 4), 0.31, std=0.1)
    assert (s == 0).sum(0).tolist() == [4] * 4
    t = init.trunc_normal_(torch.ones(500), std=2.0, a=-1.0, b=3.0)
    assert -1 <= t.min().item() < t.max().item() <= 3
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0
    assert func.vmap(lambda x: init.ones_(x * 2))(torch.zeros(2, 3)).tolist() == [[1.0] * 3] * 2


def test_initialisers_that_do_not_fit() -> None:
    init, vector = torch.nn.init, torch.zeros(3)
    for call, text in (
        (lambda: init.xavier_uniform_(vector), "a weight is"),
        (lambda: init.kaiming_normal_(torch.zeros(3, 2), mode="foo"), "fan_in"),
        (lambda: init.eye_(vector), "takes a matrix"),
        (lambda: init.dirac_(torch.zeros(3, 2, 3), 2), "groups: 2"),
        (lambda: init.sparse_(vector, 0.1), "takes a matrix"),
        (lambda: init.calculate_gain("foo"), "Write one of"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


# ----------------------------------------------------------------------------- written in place


@pytest.mark.parametrize("name", ["exp_", "relu_", "sin_", "abs_", "neg_", "zero_", "sigmoid_"])
def test_functions_write_as_methods_do(name: str) -> None:
    write = getattr(torch, name)
    x = tensor(A)
    assert write(x) is x
    assert_close(x, getattr(tensor(A), name)())
    y = leaf(A)
    (write(y * 1) * tensor(A)).sum().backward()
    z = leaf(A)
    (getattr(z * 1, name)() * tensor(A)).sum().backward()
    assert_close(0 if y.grad is None else y.grad, 0 if z.grad is None else z.grad)
    assert_close(func.vmap(lambda v: write(v * 1))(tensor(A)), x)


def test_functions_that_write_with_arguments() -> None:
    x = tensor(A)
    assert torch.clamp_(x, min=-0.5, max=0.5) is x
    assert_close(x, np.clip(A, -0.5, 0.5))
    assert torch.fill_(x, 3)[0, 0].item() == 3
    assert_close(torch.threshold_(tensor(A), 0.1, 20.0), np.where(A > 0.1, A, 20))
    assert_close(torch.selu_(tensor(A)), F.selu(tensor(A)))
    with pytest.raises(GraphError, match="leaf"):
        torch.exp_(leaf(A))
    with pytest.raises(ArgumentError, match="no tensor, but of ndarray"):
        torch.exp_(A.copy())
    with pytest.raises(DTypeError, match="does not fit"):
        torch.exp_(torch.ones(2, dtype=torch.int64))


ACTIVATIONS = {
    "relu": (), "leaky_relu": (0.2,), "elu": (0.5,), "hardtanh": (-0.5, 0.6), "selu": (),
    "celu": (), "threshold": (0.1, 20.0), "rrelu": (0.2, 0.4),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_write_too(name: str) -> None:
    given = ACTIVATIONS[name]
    x, write, function = tensor(A), getattr(F, f"{name}_"), getattr(F, name)
    assert write(x, *given) is x
    assert_close(x, function(tensor(A), *given))
    assert gradcheck(lambda x: write(x * 1, *given), (leaf(A),))


def test_slopes_that_are_drawn() -> None:
    x = torch.full((1000,), -1.0)
    found = F.rrelu(x, training=True)
    assert -1 / 3 <= found.min().item() < found.max().item() <= -1 / 8
    assert_close(torch.rrelu(tensor(A)), np.where(A > 0, A, A * (1 / 8 + 1 / 3) / 2))
    assert F.rrelu(torch.tensor([2.0, -2.0]), 0.5, 0.5, True).tolist() == [2.0, -1.0]
    with pytest.raises(ArgumentError, match="lower is at most upper"):
        F.rrelu(x, 2.0, 1.0)


# -------------------------------------------------------------------------------- other names


def test_ranges_with_their_ends() -> None:
    assert torch.range(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert torch.range(1, 4).dtype == np.float32
    assert torch.range(4, 1, -2).tolist() == [4, 2]
    assert torch.range(1, 4, dtype=torch.int64).tolist() == [1, 2, 3, 4]
    for step in (0, -1):
        with pytest.raises(ArgumentError, match=r"Write torch\.arange"):
            torch.range(1, 4, step)


P = 1 / (1 + np.exp(-A))
SIGNS = np.sign(B[:3])
LOSSES: dict[str, tuple[Callable[..., Any], Callable[[str], Any]]] = {
    "binary_cross_entropy_with_logits": (
        lambda r: torch.binary_cross_entropy_with_logits(
            tensor(A), tensor(P), None, tensor([2.0]), r
        ),
        lambda how: F.binary_cross_entropy_with_logits(
            tensor(A), tensor(P), pos_weight=tensor([2.0]), reduction=how
        ),
    ),
    "kl_div": (
        lambda r: torch.kl_div(tensor(A), tensor(P), r),
        lambda how: F.kl_div(tensor(A), tensor(P), reduction=how),
    ),
    "hinge_embedding_loss": (
        lambda r: torch.hinge_embedding_loss(tensor(A), tensor(SIGNS), 0.7, r),
        lambda how: F.hinge_embedding_loss(tensor(A), tensor(SIGNS), 0.7, reduction=how),
    ),
    "margin_ranking_loss": (
        lambda r: torch.margin_ranking_loss(tensor(A), tensor(P), tensor(SIGNS), reduction=r),
        lambda how: F.margin_ranking_loss(tensor(A), tensor(P), tensor(SIGNS), reduction=how),
    ),
    "cosine_embedding_loss": (
        lambda r: torch.cosine_embedding_loss(tensor(A), tensor(P), tensor(SIGNS[:, 0]), 0.2, r),
        lambda how: F.cosine_embedding_loss(
            tensor(A), tensor(P), tensor(SIGNS[:, 0]), 0.2, reduction=how
        ),
    ),
    "triplet_margin_loss": (
        lambda r: torch.triplet_margin_loss(
            tensor(A), tensor(P), tensor(B[:3]), 0.5, 2.0, 1e-6, True, r
        ),
        lambda how: F.triplet_margin_loss(
            tensor(A), tensor(P), tensor(B[:3]), 0.5, swap=True, reduction=how
        ),
    ),
    "poisson_nll_loss": (
        lambda r: torch.poisson_nll_loss(tensor(A), tensor(P), True, False, 1e-8, r),
        lambda how: F.poisson_nll_loss(tensor(A), tensor(P), reduction=how),
    ),
    "ctc_loss": (
        lambda r: torch.ctc_loss(
            tensor(A[:, None]).log_softmax(-1), tensor([[1, 2]]), [3], [2], 0, r
        ),
        lambda how: F.ctc_loss(
            tensor(A[:, None]).log_softmax(-1), tensor([[1, 2]]), [3], [2], reduction=how
        ),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_numbers_for_reductions(name: str) -> None:
    ours, theirs = LOSSES[name]
    for number, how in enumerate(("none", "mean", "sum")):
        assert_close(ours(number), theirs(how))
        assert_close(ours(how), theirs(how))
    with pytest.raises(ArgumentError, match="there is no reduction 7"):
        ours(7)


def test_losses_return_all_values_by_default() -> None:
    assert torch.kl_div(tensor(A), tensor(P)).shape == A.shape  # as those of PyTorch 2.13 do


def test_functions_of_networks_by_other_orders() -> None:
    x, weight, bias = tensor(A), tensor(B[0]), tensor(B[1])
    mean, var = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    found = torch.batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5, True)
    expected = (A - A.mean(0)) / np.sqrt(A.var(0) + 1e-5) * B[0] + B[1]
    assert_close(found, expected)
    assert_close(mean, 0.1 * A.mean(0))
    found = torch.batch_norm(x, weight, bias, mean, var, training=False, momentum=0.1, eps=0.0)
    assert_close(found, (A - mean.numpy()) / np.sqrt(var.numpy()) * B[0] + B[1])
    image = tensor(np.stack([A, 2 * A]))
    found = torch.instance_norm(image, None, None, None, None, True, 0.1, 1e-5, True)
    assert_close(found, F.instance_norm(image))
    table, at = torch.tensor(A), torch.tensor([0, 2])
    assert_close(torch.embedding(table, at), A[[0, 2]])
    assert_close(torch.embedding(weight=table, indices=at, padding_idx=-1), A[[0, 2]])
    rows = leaf(A)
    torch.embedding(rows, at, 0, False, False).sum().backward()
    assert rows.grad.sum(1).tolist() == [0, 0, 4]
    assert torch.dropout(x, 0.5, False) is x
    assert torch.dropout(x, p=1.0, train=True).abs().sum().item() == 0
    with pytest.raises(ArgumentError, match="not 4 arguments"):
        torch.dropout(x, 0.5, True, True)
    with pytest.raises(UnsupportedError, match="leave scale_grad_by_freq out"):
        torch.embedding(table, at, -1, True)


def test_rules_are_decorated_for_what_casts_nothing() -> None:
    amp, old = torch.amp, torch.cuda.amp
    decorators = [
        (amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16), amp.custom_bwd),
        (old.custom_fwd, old.custom_bwd),
    ]
    for forwards, backwards in decorators:

        class Exp(torch.autograd.Function):
            @staticmethod
            @forwards
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(y := x.exp())
                return y

            @staticmethod
            @backwards
            def backward(ctx: Any, ct: Any) -> Any:
                return ct * ctx.saved_tensors[0]

        x = leaf([0.0, 1.0])
        Exp.apply(x).sum().backward()
        np.testing.assert_allclose(x.grad, np.exp([0, 1]), rtol=1e-6)
    with torch.autocast("cuda", enabled=False):
        assert not torch.is_autocast_enabled()
    assert amp.autocast("cpu", torch.float16, False)(lambda x: x + 1)(2) == 3
    with pytest.raises(UnsupportedError, match=r"torch.float16"):
        torch.autocast("cuda")


def test_settings_are_said_in_vain_or_are_numpys() -> None:
    assert torch.set_num_threads(1) is None
    assert torch.use_deterministic_algorithms(True, warn_only=True) is None
    assert torch.set_float32_matmul_precision("high") is None
    assert torch.set_num_interop_threads(2) is None
    assert torch.get_num_threads() >= 1
    assert re.fullmatch(r"\d+\.\d+.*", torch.__version__)
    x = torch.tensor([1.23456, 0.001])
    with np.printoptions():
        torch.set_printoptions(precision=2)
        assert str(x) == "tensor([1.23e+00, 1.00e-03])"
        torch.set_printoptions(profile="short", sci_mode=False)
        assert str(x) == "tensor([1.23, 0.  ])"
        torch.set_printoptions(profile="full", sci_mode=True, threshold=5)
        assert str(x) == "tensor([1.2346e+00, 1.0000e-03])"
        torch.set_printoptions(threshold=5, edgeitems=1, linewidth=60, sci_mode=False)
        assert str(torch.arange(9)) == "tensor([0, ..., 8])"
        with pytest.raises(ArgumentError, match="no profile 'long'"):
            torch.set_printoptions(profile="long")
    kept = torch.get_default_dtype()
    torch.set_default_tensor_type(torch.HalfTensor)
    assert torch.zeros(1).dtype == np.float16
    torch.set_default_dtype(kept)


def test_names_that_are_still_not_there_say_what_to_write() -> None:
    with pytest.raises(MissingAttributeError, match="not laid out in memory"):
        _ = torch.ones(2).data_ptr()
    with pytest.raises(MissingAttributeError, match=r"Write torch\.nn\.functional\.mse_loss"):
        _ = torch.mse_loss
