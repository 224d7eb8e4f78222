"""`ftrans.torch`: PyTorch's names, against NumPy, closed forms and each other."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
import threading
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special

import ftrans
import ftrans.numpy as fnp
import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans import errors, func, nn
from ftrans.autograd import gradcheck, methods
from ftrans.errors import AxisError, ShapeError
from ftrans.ir import Tracer
from ftrans.numpy.methods import entries
from tests.helpers import assert_close

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4))
X = torch.tensor(A)
close = np.testing.assert_allclose


def value(x: Any) -> np.ndarray:
    assert type(x) is torch.Tensor, type(x)
    return x.numpy(force=True)


# ---------------------------------------------------------------------------------------- creation


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.tensor([1, 2]), np.array([1, 2], np.int64)),
        (torch.tensor(3), np.array(3, np.int64)),
        (torch.tensor([1.0, 2]), np.array([1, 2], np.float32)),
        (torch.tensor([True, False]), np.array([True, False])),
        (torch.tensor([]), np.array([], np.float32)),
        (torch.tensor(2j), np.array(2j, np.complex64)),
        (torch.tensor([1, 2], dtype=torch.half), np.array([1, 2], np.float16)),
        (torch.tensor([X[0, 0], X[1, 1]]), np.array([A[0, 0], A[1, 1]])),
        (torch.as_tensor([1, 2]), np.array([1, 2], np.int64)),
        (torch.as_tensor(np.arange(2, dtype=np.int32)), np.arange(2, dtype=np.int32)),
        (torch.as_tensor(X, dtype=torch.float32), A.astype(np.float32)),
        (torch.zeros(2, 3), np.zeros((2, 3), np.float32)),
        (torch.ones((2, 3), dtype=torch.long), np.ones((2, 3), np.int64)),
        (torch.zeros(size=(2,)), np.zeros(2, np.float32)),
        (torch.zeros([]), np.zeros((), np.float32)),
        (torch.full((2,), 7), np.full(2, 7, np.int64)),
        (torch.full([2], 0.5), np.full(2, 0.5, np.float32)),
        (torch.full((), X[0, 0]), A[0, 0]),
        (torch.eye(2, 3), np.eye(2, 3, dtype=np.float32)),
        (torch.arange(3), np.arange(3)),
        (torch.arange(1, 2.5, 0.5), np.array([1, 1.5, 2], np.float32)),
        (torch.arange(5, 0, -2), np.array([5, 3, 1])),
        (torch.linspace(0, 1, steps=5), np.linspace(0, 1, 5, dtype=np.float32)),
        (torch.logspace(start=0, end=2, steps=3), np.array([1, 10, 100], np.float32)),
        (torch.zeros_like(X), np.zeros((3, 4))),
        (torch.ones_like(X, dtype=torch.int), np.ones((3, 4), np.int32)),
        (torch.full_like(X, 2), np.full((3, 4), 2.0)),
        (torch.empty(2, 0), np.zeros((2, 0), np.float32)),
    ],
)
def test_creation(found: Any, expected: np.ndarray) -> None:
    got = value(found)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    close(got, expected)


def test_a_tensor_has_a_copy_of_what_it_is_made_of() -> None:
    data = np.ones(2)
    x = torch.tensor(data)
    data[0] = 5.0
    assert x.tolist() == [1.0, 1.0]
    assert data.flags.writeable


def test_factories_make_leaves() -> None:
    for x in (torch.ones(2, requires_grad=True), torch.rand(2, requires_grad=True),
              torch.rand_like(X, requires_grad=True), torch.eye(2, requires_grad=True),
              torch.normal(torch.zeros(2), 1.0, requires_grad=True)):  # fmt: skip
        assert x.is_leaf
        assert x.requires_grad
    assert not torch.zeros_like(torch.ones(2, requires_grad=True)).requires_grad


def test_default_dtype() -> None:
    torch.set_default_dtype(torch.float16)
    assert torch.get_default_dtype() == torch.half
    for x in (torch.ones(1), torch.rand(1), torch.randn(1), torch.tensor(0.5), torch.arange(2.0)):
        assert x.dtype == torch.float16


def test_devices() -> None:
    cpu = torch.device("cpu")
    x = torch.ones(2, device=cpu)
    assert x.device == cpu
    assert x.device.type == "cpu"
    assert not x.is_cuda
    assert x.to(cpu) is x
    assert x.cpu() is x
    assert (x * 2).device == cpu  # pending
    assert torch.device("cuda", 1) == torch.device("cuda:1")
    first = torch.ones(2, device=jax.devices()[0])
    assert first.to(jax.devices()[0]) is first
    assert (first + x).tolist() == [2.0, 2.0]
    assert not torch.cuda.is_available()


def test_to_takes_dtypes_devices_and_tensors() -> None:
    x = torch.ones(2)
    assert x.to(torch.float64).dtype == torch.double
    assert x.to("cpu", torch.float64).dtype == torch.double
    assert x.to(device="cpu", dtype=torch.int).dtype == torch.int32
    assert x.to(X).dtype == torch.double
    assert x.to(x.dtype) is x
    assert x.to(x.dtype, copy=True) is not x
    w = torch.ones(2, requires_grad=True)
    w.to(torch.double).sum().backward()
    assert w.grad.dtype == torch.float32


def test_new_tensors_of_the_type_of_another() -> None:
    assert X.new_zeros(2, 3).dtype == torch.double
    assert X.new_ones((2,), requires_grad=True).requires_grad
    assert X.new_zeros(size=(2, 1)).shape == (2, 1)
    assert X.new_ones(size=(), dtype=torch.int64).item() == 1
    assert X.new_full((2,), 3).tolist() == [3.0, 3.0]
    assert X.new_tensor([1, 2]).dtype == torch.double


# ------------------------------------------------------------------------------------------ random


def test_random_numbers_follow_the_seed() -> None:
    def drawn() -> list[Any]:
        return [
            torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5),
            torch.normal(1.0, 2.0, (3,)), torch.bernoulli(torch.full((5,), 0.5)),
            torch.rand_like(X), torch.randn_like(X), F.dropout(torch.ones(8)),
        ]  # fmt: skip

    torch.manual_seed(3)
    first = drawn()
    torch.random.manual_seed(3)
    for x, y in zip(first, drawn(), strict=True):
        assert torch.equal(x, y)
    assert not all(torch.equal(x, y) for x, y in zip(first, drawn(), strict=True))
    torch.manual_seed(-1)  # as PyTorch, of 64 bits


def test_random_numbers_have_their_distributions() -> None:
    torch.manual_seed(0)
    n = 20_000
    u, z = value(torch.rand(n)), value(torch.randn(n))
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1.0) < 0.03
    i = value(torch.randint(2, 5, (n,)))
    assert set(i) == {2, 3, 4}
    assert i.dtype == np.int64
    assert set(value(torch.randint(high=3, size=(n,)))) == {0, 1, 2}
    assert sorted(value(torch.randperm(10))) == list(range(10))
    assert value(torch.randperm(100)).tolist() != list(range(100))
    b = value(torch.bernoulli(torch.tensor([0.0, 0.25, 1.0]).expand(n, 3)))
    assert abs(b.mean(0) - [0.0, 0.25, 1.0]).max() < 0.02
    m = value(torch.normal(torch.tensor([0.0, 10.0]).expand(n, 2), torch.tensor([1.0, 3.0])))
    assert abs(m.mean(0) - [0, 10]).max() < 0.1
    assert abs(m.std(0) - [1, 3]).max() < 0.1


def test_methods_that_draw() -> None:
    torch.manual_seed(0)
    x = torch.empty(2000, dtype=torch.double)
    assert x.uniform_(-1, 3) is x
    assert x.dtype == torch.double
    assert -1 <= x.min().item() < -0.9
    assert 2.9 < x.max().item() < 3
    assert abs(x.normal_(5, 0.1).mean().item() - 5) < 0.02
    assert abs(x.std().item() - 0.1) < 0.02
    assert set(x.bernoulli_(0.25).tolist()) == {0.0, 1.0}
    assert abs(x.mean().item() - 0.25) < 0.05
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(errors.GraphError, match="in-place"):
        w.uniform_()
    with torch.no_grad():
        w.uniform_()
    assert w.is_leaf
    torch.cuda.manual_seed_all(1)
    first = torch.rand(2, generator=None)
    torch.manual_seed(1)
    assert torch.equal(first, torch.rand(2))


def test_random_numbers_follow_what_they_are_drawn_by() -> None:
    assert torch.normal(0.0, 1.0, (2,)).dtype == torch.float32
    assert torch.normal(X, 1.0).dtype == torch.double
    assert torch.normal(0.0, torch.ones(2, dtype=torch.half)).dtype == torch.half
    p = torch.tensor([0.5, 0.5], requires_grad=True)
    for drawn in (torch.normal(p, 1.0), torch.bernoulli(p)):
        assert not drawn.requires_grad
    assert F.dropout(torch.ones(2).half()).dtype == torch.half
    found = {tuple(torch.bernoulli(p).tolist()) for _ in range(60)}  # from one place in the code
    assert len(found) == 4


def test_generators_are_apart_from_each_other() -> None:
    g = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    first = torch.rand(2, generator=g)
    assert torch.equal(first, torch.rand(2))
    assert not torch.equal(torch.rand(2, generator=g), torch.tensor(value(first)))


def test_threads_draw_every_number_once() -> None:
    torch.manual_seed(5)
    expected = sorted([torch.rand(1).item() for _ in range(400)])
    torch.manual_seed(5)
    found: list[float] = []
    work = lambda: [found.append(torch.rand(1).item()) for _ in range(50)]  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == expected


def test_random_numbers_in_transforms() -> None:
    x = torch.zeros(3)
    once = func.grad(lambda x: (x * torch.rand(3)).sum())
    assert not torch.equal(once(x), once(x))  # drawn at each call
    same = func.vmap(lambda x: x + torch.rand(2), randomness="same")(torch.zeros(3, 2))
    assert torch.equal(same[0], same[1])
    each = func.vmap(lambda x: x + torch.rand(2), randomness="different")(torch.zeros(3, 2))
    assert len(set(each.ravel().tolist())) == 6
    for f in (
        lambda: func.vmap(lambda x: x + torch.rand(2))(torch.zeros(3, 2)),
        lambda: func.vmap(func.grad(lambda x: (x * torch.rand(2)).sum()))(torch.zeros(3, 2)),
        lambda: ftrans.jit(lambda x: x + torch.rand(3))(np.zeros(3)),
        lambda: ftrans.fori_loop(0, 3, lambda i, x: x + torch.rand(3), np.zeros(3, np.float32)),
    ):
        with pytest.raises(errors.UnsupportedError, match="random"):
            f()
    assert not torch.equal(torch.rand(3), torch.rand(3))  # and all goes on afterwards


# --------------------------------------------------------------------------------- names and tables


def test_functions_of_tables_are_methods() -> None:
    for table in (methods.ELEMENTWISE, methods.OTHERS):
        for name, _ in entries(table):
            assert inspect.isfunction(getattr(torch, name)), name
            assert hasattr(torch.Tensor, name), name


SPECIAL = {"digamma": scipy.special.digamma, "erf": scipy.special.erf, "erfc": scipy.special.erfc,
           "lgamma": scipy.special.gammaln, "sigmoid": scipy.special.expit,
           "rsqrt": lambda x: x**-0.5,
           "relu": lambda x: np.maximum(x, 0), "neg": np.negative, "logit": scipy.special.logit,
           "erfinv": scipy.special.erfinv, "asin": np.arcsin, "acos": np.arccos}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "floor", "ceil", "sign", "square",
     "expm1", "log1p", "reciprocal", "isnan", "trunc", *SPECIAL],
)  # fmt: skip
def test_elementwise_functions(name: str) -> None:
    x = np.array([0.3, 0.5, 0.9])
    expected = (SPECIAL.get(name) or getattr(np, name))(x)
    function = getattr(torch, name)
    close(value(function(torch.tensor(x))), expected, rtol=1e-6)
    close(value(function(input=torch.tensor(x))), expected, rtol=1e-6)
    found = function(x)  # of a plain array a plain array
    assert isinstance(found, np.ndarray)
    close(found, expected, rtol=1e-6)
    close(value(func.vmap(function)(torch.tensor(x))), expected, rtol=1e-6)


def test_functions_of_two() -> None:
    y = torch.tensor(A[::-1].copy())
    B = A[::-1]
    assert torch.equal(torch.add(X, y, alpha=2), X + 2 * y)
    assert torch.equal(torch.sub(X, other=y), X - y)
    close(value(torch.mul(2.0, X)), 2 * A)
    close(value(torch.pow(X, 2)), A**2)
    close(value(torch.pow(2, X)), 2**A)
    close(value(torch.maximum(X, y)), np.maximum(A, B))
    close(value(torch.atan2(X, other=y)), np.arctan2(A, B))
    close(value(torch.where(X > 0, X, 0.0)), np.where(A > 0, A, 0))
    close(value(torch.where(X > 0)[1]), np.where(A > 0)[1])
    close(value(torch.clamp(X, min=0)), np.clip(A, 0, None))
    close(value(torch.clamp(X, -0.5, 0.5)), np.clip(A, -0.5, 0.5))
    close(value(torch.clamp_min(X, 0)), np.clip(A, 0, None))
    close(value(torch.clamp_max(input=X, max=0)), np.clip(A, None, 0))
    close(value(torch.frac(X)), A - np.trunc(A))
    close(value(torch.dist(X, other=y, p=1)), abs(A - B).sum())
    close(value(torch.complex(real=X, imag=y)), A + 1j * B)
    close(value(torch.polar(X, y[0])), A * np.exp(1j * B[0]))
    close(value(torch.lerp(X, y, 0.25)), A + 0.25 * (B - A))
    close(value(torch.addcmul(X, X, y, value=2)), A + 2 * A * B)
    close(value(torch.addmm(torch.ones(3, 3), X, y.T, beta=2, alpha=3)), 2 + 3 * A @ B.T)
    assert torch.eq(X, X).all().item()
    assert torch.allclose(X, X + 1e-9) is True
    assert torch.equal(X, y) is False


REDUCTIONS = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min,
              "argmax": np.argmax, "argmin": np.argmin, "logsumexp": scipy.special.logsumexp,
              "any": np.any, "all": np.all, "nansum": np.nansum}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    function, reduce = getattr(torch, name), REDUCTIONS[name]
    for dim in (0, 1, -1):
        expected = reduce(A, axis=dim)
        for found in (function(X, dim), function(X, dim=dim), getattr(X, name)(dim)):
            close(value(found), expected, rtol=1e-6)
        kept = np.expand_dims(expected, dim)
        for found in (
            function(X, dim, True), function(X, dim, keepdim=True),
            function(X, dim=dim, keepdim=True), getattr(X, name)(dim, True),
        ):  # fmt: skip
            close(value(found), kept, rtol=1e-6)
    if name not in ("logsumexp",):
        close(value(function(X)), reduce(A), rtol=1e-6)
    single = func.vmap(lambda x: function(x, 0, True), in_dims=1, out_dims=1)(X)
    close(value(single), np.expand_dims(reduce(A, axis=0), 0), rtol=1e-6)


def test_extrema_along_a_dimension() -> None:
    for name, reduce, at in (("max", np.max, np.argmax), ("min", np.min, np.argmin)):
        function = getattr(torch, name)
        values, indices = function(X, 1)
        close(value(values), reduce(A, 1))
        close(value(indices), at(A, 1))
        assert function(X, dim=0, keepdim=True).values.shape == (1, 4)
        assert function(X).item() == reduce(A)
        inside = func.vmap(lambda x, f=function: f(x, 0).indices)(X)
        close(value(inside), at(A, 1))
        row = func.grad(lambda x, f=function: f(x, 1).values.sum())(X)
        close(value(row), np.eye(4)[at(A, 1)])
        assert function(torch.tensor(2.0), 0).values.item() == 2.0


def test_spread() -> None:
    for name in ("var", "std"):
        function, spread = getattr(torch, name), getattr(np, name)
        close(value(function(X)), spread(A, ddof=1))
        close(value(function(X, 0)), spread(A, 0, ddof=1))
        close(value(function(X, 1, True, True)), spread(A, 1, ddof=1, keepdims=True))
        close(value(function(X, unbiased=False)), spread(A))
        close(value(function(X, False)), spread(A))
        close(value(function(X, dim=1, correction=0)), spread(A, 1))
        close(value(func.vmap(function)(X)), spread(A, 1, ddof=1))


def test_norms() -> None:
    close(value(torch.norm(X)), np.linalg.norm(A))
    close(value(torch.norm(X, p=1, dim=1)), abs(A).sum(1))
    close(value(torch.norm(X, 2, 1, True)), np.linalg.norm(A, axis=1, keepdims=True))
    close(value(torch.linalg.norm(X, dim=1)), np.linalg.norm(A, axis=1))
    close(value(torch.linalg.vector_norm(X, 1)), abs(A).sum())
    close(value(torch.linalg.vector_norm(X, math.inf, dim=0, keepdim=True)), abs(A).max(0)[None])
    close(value(torch.linalg.matrix_norm(X)), np.linalg.norm(A))


def test_shapes() -> None:
    for found, expected in (
        (torch.reshape(X, (4, 3)), A.reshape(4, 3)), (torch.flatten(X), A.ravel()),
        (torch.transpose(X, 0, 1), A.T), (torch.t(X), A.T), (torch.permute(X, (1, 0)), A.T),
        (torch.permute(X, dims=(1, 0)), A.T), (torch.unsqueeze(X, 1), A[:, None]),
        (torch.squeeze(torch.ones(1, 2)), np.ones(2)), (torch.movedim(X, 0, 1), A.T),
        (torch.narrow(X, 1, 1, 2), A[:, 1:3]), (torch.select(X, 1, 2), A[:, 2]),
        (torch.flip(X, (0,)), A[::-1]), (torch.roll(X, 1, 0), np.roll(A, 1, 0)),
        (torch.cat([X, X], dim=1), np.hstack([A, A])),
        (torch.stack((X, X), 1), np.stack([A, A], 1)),
        (torch.hstack([X, X]), np.hstack([A, A])), (torch.vstack([X, X]), np.vstack([A, A])),
        (torch.split(X, 2, dim=1)[1], A[:, 2:]), (torch.split(X, [1, 3], 1)[0], A[:, :1]),
        (torch.chunk(X, 2)[1], A[2:]), (torch.unbind(X, 1)[3], A[:, 3]),
        (torch.tril(X), np.tril(A)),
        (torch.diag(X), np.diag(A)), (torch.broadcast_to(X[0], (2, 4)), np.stack([A[0], A[0]])),
        (torch.index_select(X, 1, torch.tensor([0, 2])), A[:, [0, 2]]),
        (torch.gather(X, 1, torch.tensor([[0], [1], [2]])), np.diag(A)[:, None]),
        (torch.masked_select(X, X > 0), A[A > 0]),
        (torch.masked_fill(X, X > 0, 0.0), np.minimum(A, 0)),
        (torch.sort(X, 1, descending=True).values, -np.sort(-A, 1)),
        (torch.argsort(X, 1), np.argsort(A, 1)), (torch.cumsum(X, dim=1), np.cumsum(A, 1)),
        (torch.topk(X, 2, largest=False).values, np.sort(A, 1)[:, :2]),
        (torch.topk(X, 2, dim=0)[1], np.argsort(-A, 0)[:2]),
        (torch.repeat_interleave(X, 2, dim=0), np.repeat(A, 2, 0)),
        (torch.meshgrid(X[0], X[1])[0], np.meshgrid(A[0], A[1], indexing="ij")[0]),
        (torch.broadcast_tensors(X, X[:, :1])[1], np.broadcast_to(A[:, :1], A.shape)),
        (torch.diff(X, dim=1), np.diff(A)), (torch.kron(X, X), np.kron(A, A)),
        (torch.masked_select(input=X, mask=X[0] > 0), A[:, A[0] > 0].ravel()),
        (torch.take_along_dim(X, torch.argmax(X, 1, True), dim=1), A.max(1, keepdims=True)),
        (torch.bincount(torch.tensor([0, 2, 2]), minlength=4), [1, 0, 2, 0]),
        (torch.meshgrid([X[0], X[1]], indexing="xy")[0], np.meshgrid(A[0], A[1])[0]),
    ):  # fmt: skip
        close(value(found), expected)


def test_arguments_by_pytorchs_names() -> None:
    close(value(torch.cat(tensors=[X, X], dim=1)), np.hstack([A, A]))
    close(value(torch.split(tensor=X, split_size=2)[0]), A[:2])
    close(value(torch.sum(input=X, dim=0, keepdim=True)), A.sum(0, keepdims=True))
    close(value(torch.mul(input=X, other=X)), A * A)
    close(value(torch.where(condition=X > 0, input=X, other=0.0)), np.maximum(A, 0))
    assert torch.where(X > 0, 1.0, 0.0).dtype == torch.float32
    assert torch.where(X > 0, 1, 0).dtype == torch.int64
    with pytest.raises(TypeError):
        torch.sin()
    with pytest.raises(TypeError):
        torch.sin(X, axes=1)


def test_products() -> None:
    close(value(torch.mm(X, X.T)), A @ A.T)
    close(value(torch.matmul(X, X[0])), A @ A[0])
    close(value(torch.mv(X, X[0])), A @ A[0])
    close(value(torch.dot(X[0], X[1])), A[0] @ A[1])
    close(value(torch.outer(X[0], X[1])), np.outer(A[0], A[1]))
    close(value(torch.bmm(X[None], X.T[None])), (A @ A.T)[None])
    close(value(torch.einsum("ij,kj->ik", X, X)), A @ A.T)
    close(value(torch.einsum("ij,kj", [X, X])), A @ A.T)
    close(value(torch.tensordot(X, X.T, dims=1)), A @ A.T)
    close(value(torch.tensordot(X, X, dims=([1], [1]))), A @ A.T)
    close(value(X.tensordot(X.T, dims=1)), A @ A.T)


def test_functions_of_matrices() -> None:
    S = A @ A.T + np.eye(3)
    s = torch.tensor(S)
    close(value(torch.linalg.inv(s)), np.linalg.inv(S))
    close(value(torch.inverse(s)), np.linalg.inv(S))
    close(value(torch.det(s)), np.linalg.det(S))
    close(value(torch.matrix_power(s, 2)), S @ S)
    close(value(torch.linalg.cond(s)), np.linalg.cond(S))
    assert torch.linalg.matrix_rank(X).item() == 3
    close(value(torch.linalg.solve(s, X)), np.linalg.solve(S, A))
    close(value(torch.linalg.det(s)), np.linalg.det(S))
    close(value(torch.logdet(s)), np.linalg.slogdet(S)[1])
    assert math.isnan(torch.logdet(-s).item())
    assert torch.logdet(torch.zeros(2, 2)).item() == -math.inf
    close(value(torch.linalg.cholesky(s)), np.linalg.cholesky(S))
    close(value(torch.linalg.eigvalsh(s)), np.linalg.eigvalsh(S))
    u, d, vh = torch.linalg.svd(X, full_matrices=False)
    close(value(u * d @ vh), A)
    q, r = torch.linalg.qr(X)
    close(value(q @ r), A)
    w = torch.tensor(S, requires_grad=True)
    torch.logdet(w).backward()
    close(value(w.grad), np.linalg.inv(S).T)
    assert gradcheck(torch.linalg.solve, (w, torch.tensor(A, requires_grad=True)))


def test_what_is_traced_takes_functions() -> None:
    def f(x: Any) -> Any:
        assert type(x) is Tracer
        assert torch.is_tensor(x)
        assert x.device == torch.device("cpu")
        assert x.cpu() is x
        assert type(torch.zeros_like(x)) is Tracer
        parts = torch.stack(torch.unbind(torch.reshape(x, (2, 2)), 1))
        return torch.norm(torch.cat([parts.reshape(-1), torch.ones(1), torch.tensor([2.0])]))

    expected = A / np.sqrt((A**2).sum(1, keepdims=True) + 5)
    close(value(func.vmap(func.grad(f))(X)), expected)
    close(func.vmap(func.grad(f))(A), expected)  # arrays of arrays
    close(ftrans.jit(func.vmap(func.grad(f)))(A), expected)
    close(value(func.vmap(func.jacrev(f))(X)), value(func.vmap(func.jacfwd(f))(X)))


def test_constants_of_what_is_traced() -> None:
    table = torch.tensor([1.0, 2.0])
    assert func.grad(lambda x: x * torch.tensor([x, x * 2])[1])(3.0) == 6.0
    close(func.grad(lambda x: (x * torch.as_tensor(table)).sum())(3.0), 3.0)


# --------------------------------------------------------------------------------- nn.functional


LOGITS, CLASSES = RNG.normal(size=(5, 3)), np.array([0, 2, 1, -100, 2])
LOGS = scipy.special.log_softmax(LOGITS, axis=1)
WEIGHT = np.array([1.0, 2.0, 0.5])


def test_activations() -> None:
    x = np.array([-30.0, -1.5, 0.0, 0.5, 30.0])
    tensor = torch.tensor(x)
    normal = 0.5 * (1 + scipy.special.erf(x / np.sqrt(2)))
    for found, expected in (
        (F.relu(tensor), np.maximum(x, 0)),
        (F.leaky_relu(tensor, 0.1), np.where(x > 0, x, 0.1 * x)),
        (F.elu(tensor, alpha=2.0), np.where(x > 0, x, 2 * np.expm1(x))),
        (F.gelu(tensor), x * normal),
        (F.silu(tensor), x * scipy.special.expit(x)),
        (F.softplus(tensor), np.logaddexp(0, x)),
        (F.softplus(tensor, beta=2), np.logaddexp(0, 2 * x) / 2),
        (F.softsign(tensor), x / (1 + abs(x))),
        (F.mish(tensor), x * np.tanh(np.logaddexp(0, x))),
        (F.logsigmoid(tensor), -np.logaddexp(0, -x)),
        (F.hardtanh(tensor), np.clip(x, -1, 1)),
        (F.softmax(tensor, dim=0), scipy.special.softmax(x)),
        (F.log_softmax(tensor, 0), scipy.special.log_softmax(x)),
    ):
        close(value(found), expected, rtol=1e-6, atol=1e-9)


def test_activations_in_place() -> None:
    for f in (F.relu, F.relu6, F.leaky_relu, F.elu):
        w = torch.tensor(A, requires_grad=True)
        x = w * 2
        expected = value(f(x))
        assert f(x, inplace=True) is x
        close(value(x), expected)
        (x * 3).sum().backward()
        row = func.grad(lambda w, f=f: (f(w * 2, inplace=True) * 3).sum())(torch.tensor(A))
        close(value(w.grad), value(row))
        assert f(w, inplace=False).requires_grad


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("relu", ()), ("relu6", ()), ("silu", ()), ("selu", ()), ("mish", ()), ("hardswish", ()),
        ("hardsigmoid", ()), ("elu", (0.5,)), ("celu", (0.5,)), ("leaky_relu", (0.2,)),
        ("hardtanh", (-0.5, 0.5)), ("threshold", (0.0, 0.5)), ("rrelu", (0.2, 0.2, False)),
        ("alpha_dropout", (0.0, True)), ("dropout2d", (0.0, True)),
    ],
)  # fmt: skip
def test_activations_in_place_by_position(name: str, options: tuple[float, ...]) -> None:
    f = getattr(F, name)
    x = torch.tensor(A[None, None])
    expected = value(f(x, *options))
    assert f(x, *options, False) is not x
    close(value(x), A[None, None])
    assert f(x, *options, True) is x
    close(value(x), expected)
    with pytest.raises(TypeError):
        f(x, *options, True, True)


def test_gelu_by_tanh() -> None:
    x = np.linspace(-4.0, 4.0, 33)
    exact = x * 0.5 * (1 + scipy.special.erf(x / np.sqrt(2)))
    found = value(F.gelu(torch.tensor(x), approximate="tanh"))
    assert 1e-5 < abs(found - exact).max() < 1e-3
    # as PyTorch prints F.gelu(torch.tensor(1.), approximate="tanh")
    close(F.gelu(torch.tensor(1.0), approximate="tanh").item(), 0.8412, atol=5e-5)


def test_slopes_at_kinks_are_those_of_pytorch() -> None:
    slope = lambda f, at: float(func.grad(f)(at))  # noqa: E731
    assert slope(F.relu, 0.0) == 0.0
    assert slope(lambda x: F.leaky_relu(x, 0.1), 0.0) == pytest.approx(0.1)
    assert slope(F.elu, 0.0) == 1.0
    assert slope(F.hardtanh, 1.0) == 0.0
    assert slope(torch.abs, 0.0) == 0.0
    assert func.grad(lambda x: torch.max(x, 0).values)(np.array([1.0, 1.0, 0.0])).tolist() == [
        1,
        0,
        0,
    ]
    assert func.grad(torch.max)(np.array([1.0, 1.0, 0.0])).tolist() == [0.5, 0.5, 0.0]
    assert func.grad(torch.std)(np.ones(2)).tolist() == [0.0, 0.0]
    assert func.grad(torch.norm)(np.zeros(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_differences(reduction: str) -> None:
    a, b = A[0], A[1] * 3
    gap = abs(a - b)
    reduced = {"mean": np.mean, "sum": np.sum, "none": lambda x: x}[reduction]
    p, t = scipy.special.expit(a), np.array([0.0, 1.0, 0.25, 1.0])
    bce = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    for loss, target, expected in (
        (F.mse_loss, b, gap**2), (F.l1_loss, b, gap),
        (F.huber_loss, b, np.where(gap < 1, gap**2 / 2, gap - 0.5)),
        (F.smooth_l1_loss, b, np.where(gap < 1, gap**2 / 2, gap - 0.5)),
        (F.binary_cross_entropy_with_logits, t, bce),
        (lambda x, y, **k: F.binary_cross_entropy(torch.sigmoid(x), y, **k), t, bce),
        (lambda x, y, **k: F.huber_loss(x, y, delta=2.0, **k), b,
         np.where(gap < 2, gap**2 / 2, 2 * (gap - 1))),
        (lambda x, y, **k: F.smooth_l1_loss(x, y, beta=2.0, **k), b,
         np.where(gap < 2, gap**2 / 4, gap - 1)),
        (F.kl_div, p, p * (np.log(p) - a)),
    ):  # fmt: skip
        found = loss(torch.tensor(a), torch.tensor(target), reduction=reduction)
        close(value(found), reduced(expected), rtol=1e-6)


def test_binary_cross_entropy_of_certainties() -> None:
    p = torch.tensor([0.0, 1.0, 0.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, torch.tensor([0.0, 1.0, 1.0]), reduction="sum")
    loss.backward()
    assert loss.item() == 100.0
    assert np.isfinite(value(p.grad)).all()


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_cross_entropy_of_classes(weight: Any) -> None:
    scale = np.ones(3) if weight is None else weight
    counts = CLASSES >= 0
    at = np.where(counts, CLASSES, 0)
    share = np.where(counts, scale[at], 0.0)
    each = -LOGS[np.arange(5), at] * share
    w = None if weight is None else torch.tensor(weight)
    given = torch.tensor(LOGITS), torch.tensor(CLASSES)
    close(value(F.cross_entropy(*given, weight=w)), each.sum() / share.sum())
    close(value(F.cross_entropy(*given, w, reduction="none")), each, atol=1e-15)
    close(value(F.nll_loss(torch.tensor(LOGS), given[1], w)), each.sum() / share.sum())
    even = -(LOGS * scale).sum(1) * counts
    smooth = (0.8 * each + 0.2 / 3 * even).sum() / share.sum()
    close(value(F.cross_entropy(*given, w, label_smoothing=0.2)), smooth)
    assert gradcheck(
        lambda x: F.cross_entropy(x, given[1], w), torch.tensor(LOGITS).requires_grad_()
    )


def test_cross_entropy_of_probabilities_and_of_images() -> None:
    p = scipy.special.softmax(RNG.normal(size=(5, 3)), axis=1)
    x = torch.tensor(LOGITS)
    close(value(F.cross_entropy(x, torch.tensor(p))), -(LOGS * p).sum(1).mean())
    expected = -(LOGS * (p * 0.9 + 0.1 / 3) * WEIGHT).sum(1).mean()
    found = F.cross_entropy(x, torch.tensor(p), torch.tensor(WEIGHT), label_smoothing=0.1)
    close(value(found), expected)
    image, target = RNG.normal(size=(2, 3, 4, 5)), RNG.integers(0, 3, (2, 4, 5))
    logs = scipy.special.log_softmax(image, axis=1)
    found = F.cross_entropy(torch.tensor(image), torch.tensor(target))
    close(value(found), -np.take_along_axis(logs, target[:, None], 1).mean())
    alone = F.cross_entropy(x[0], torch.tensor(1))
    close(value(alone), -LOGS[0, 1])
    close(value(func.vmap(F.cross_entropy)(x, torch.tensor([1] * 5))), -LOGS[:, 1])


def test_nothing_that_counts_has_no_mean() -> None:
    assert math.isnan(F.cross_entropy(torch.ones(2, 3), torch.tensor([-100, -100])).item())
    assert F.cross_entropy(torch.ones(0, 3), torch.zeros(0).long(), reduction="sum").item() == 0.0


def test_the_rest_of_functional() -> None:
    close(value(F.linear(X, X, X[:, 0])), A @ A.T + A[:, 0])
    close(value(F.linear(X, X[0])), A @ A[0])
    close(value(F.normalize(X)), A / np.linalg.norm(A, axis=1, keepdims=True))
    close(value(F.normalize(X, p=1, dim=0)), A / abs(A).sum(0))
    assert value(F.normalize(torch.zeros(1, 2))).tolist() == [[0.0, 0.0]]
    similar = (A[0] * A[1]).sum() / np.linalg.norm(A[0]) / np.linalg.norm(A[1])
    close(value(F.cosine_similarity(X[0], X[1], dim=-1)), similar)
    close(value(F.cosine_similarity(X[:1], x2=X[1:2])), [similar])
    close(value(F.embedding(torch.tensor([2, 0]), X)), A[[2, 0]])
    hot = F.one_hot(torch.tensor([[0, 2]]))
    assert hot.tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert hot.dtype == torch.int64
    assert F.one_hot(torch.tensor(1), num_classes=4).tolist() == [0, 1, 0, 0]


def test_dropout() -> None:
    x = torch.ones(10_000, requires_grad=True)
    y = F.dropout(x, 0.2)
    assert set(np.unique(value(y))) == {np.float32(0.0), np.float32(1.25)}
    assert abs(value(y).mean() - 1.0) < 0.03
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 1.0).sum().item() == 0.0


def test_parameters_are_leaves() -> None:
    w = torch.nn.Parameter(torch.ones(2) * 2)
    assert w.is_leaf
    assert w.requires_grad
    assert not torch.nn.Parameter(torch.ones(2), requires_grad=False).requires_grad


# ---------------------------------------------------------------------------------------- testing


def test_assert_close() -> None:
    torch.testing.assert_close(X, X + 1e-9)
    torch.testing.assert_close({"a": [X, 1]}, {"a": [A, 1]})
    torch.testing.assert_close(torch.tensor([math.nan]), torch.tensor([math.nan]), equal_nan=True)
    for x, y, text in (
        (X, X + 1e-3, "not close"), (torch.zeros(2), torch.full((2,), 1e-4), "2 / 2"),
        (X, X[0], "'shape'"), (X, X.float(), "'dtype'"),
        ([X], [X, X], "structures"), ({"a": X}, {"a": X + 1}, r"\['a'\]"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 / 2"),
        (torch.tensor([True]), torch.tensor([False]), "not close"),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), "not close"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=text):
            torch.testing.assert_close(x, y)
    with pytest.raises(AssertionError, match="mine"):
        torch.testing.assert_close(X, X + 1, msg="mine")


# ---------------------------------------------------------------------------------------- modules


IMPORTS = """
import sys, ftrans
assert "ftrans.torch" not in sys.modules
import ftrans.torch as torch
from ftrans.torch import nn
from ftrans.torch.func import vmap
from ftrans.torch.autograd import Function
from ftrans.torch.autograd.functional import jacobian
from ftrans.torch.linalg import inv
from ftrans.torch.testing import assert_close
import ftrans.torch.nn.functional as F
import ftrans.torch.autograd as autograd
assert autograd is ftrans.autograd and Function is ftrans.autograd.Function
assert jacobian is ftrans.autograd.functional.jacobian and vmap is ftrans.func.vmap
assert F is nn.functional is torch.nn.functional and inv is torch.linalg.inv
assert torch.no_grad is ftrans.no_grad and torch.Tensor is ftrans.Tensor
"""


def test_what_it_is_imported_by() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", IMPORTS], check=True)


def test_grad_modes() -> None:
    w = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not (w * 2).requires_grad
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            assert torch.sin(w).requires_grad
    with torch.set_grad_enabled(False):
        assert not torch.sum(w).requires_grad


def test_names_that_are_not_there_are_attributes_that_are_not_there() -> None:
    assert not hasattr(torch, "Module")
    assert not hasattr(torch.nn, "Linear")
    assert not hasattr(torch, "__wrapped__")
    for name, hint in (("sparse_coo_tensor", "dense"), ("backends", "leave")):
        with pytest.raises(AttributeError, match=hint):
            getattr(torch, name)
    for name in ("nanmax", "percentile"):
        assert hasattr(fnp, name)
        with pytest.raises(AttributeError, match=rf"ftrans\.numpy\.{name}"):
            getattr(torch, name)
    with pytest.raises(AttributeError, match="softmax"):
        torch.nn.functional.softmex  # noqa: B018


# ------------------------------------------------------------------------------ of other options


def test_quotients_are_rounded() -> None:
    x, y = torch.tensor([7.0, -7.0, 7.5]), torch.tensor([2.0, 2.0, -2.0])
    assert_close(torch.div(x, y, rounding_mode="floor").numpy(), [3.0, -4.0, -4.0])
    assert_close(x.div(y, rounding_mode="trunc").numpy(), [3.0, -3.0, -3.0])
    whole = torch.div(torch.tensor([7, -7]), 2, rounding_mode="trunc")
    assert whole.tolist() == [3, -3]
    assert np.dtype(whole.dtype).kind == "i"
    assert_close(torch.div(x, y).numpy(), [3.5, -3.5, -3.75])
    with pytest.raises(ValueError, match="rounding mode 'up'"):
        torch.div(x, y, rounding_mode="up")


def test_triangles_and_diagonals_by_name() -> None:
    x = torch.arange(9.0).reshape(3, 3)
    assert_close(torch.tril(x, diagonal=-1).numpy(), np.tril(x.numpy(), -1))
    assert_close(x.triu(diagonal=1).numpy(), np.triu(x.numpy(), 1))
    assert_close(torch.diag(x, diagonal=1).numpy(), [1.0, 5.0])


def test_softmax_of_another_dtype() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float16)
    found = torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32)
    assert found.dtype == np.float32
    assert_close(found.numpy(), np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum())
    assert torch.log_softmax(x, dim=0, dtype=torch.float64).dtype == np.float64


def test_a_name_of_a_dtype_that_numpy_has_not() -> None:
    assert torch.ones(2).bfloat16().dtype == torch.bfloat16
    assert torch.ones(2).to("bfloat16").dtype == torch.bfloat16


def test_tensors_are_made_by_their_class_where_names_are_pytorchs() -> None:
    code = "import ftrans; ftrans.Tensor([1.0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "made of data by ftrans.tensor" in done.stderr
    assert torch.Tensor([1.0]).tolist() == [1.0]


# ------------------------------------------------------------------------------ orders of dicts


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd])
def test_dicts_keep_their_orders(transform: Any) -> None:
    params = {"w": torch.ones(2), "b": torch.zeros(2), "a": torch.ones(2)}
    seen = []

    def loss(params: Any) -> Any:
        seen.append(list(params))
        return sum(k * x.sum() for k, x in enumerate(params.values(), 1))

    found = transform(loss)(params)
    assert list(found) == seen[0] == ["w", "b", "a"]
    for factor, slope in enumerate(found.values(), 1):
        assert_close(slope.numpy(), [factor, factor])


def test_results_keep_the_orders_of_dicts() -> None:
    x = torch.ones(2)
    out = lambda x: {"z": x, "a": [{"y": 2 * x, "b": x}]}  # noqa: E731
    for found in (
        torch.func.vmap(out)(x),
        torch.func.vjp(out, x)[0],
        torch.func.jvp(out, (x,), (x,))[1],
        torch.func.linearize(out, x)[1](x),
        torch.func.jacrev(out)(x),
    ):
        assert list(found) == ["z", "a"]
        assert list(found["a"][0]) == ["y", "b"]


def test_gradients_of_the_values_of_a_dict() -> None:
    params = {"w": torch.ones(2, requires_grad=True), "b": torch.ones(2, requires_grad=True)}
    loss = (params["w"] * 2 + params["b"]).sum()
    for inputs in (params.values(), iter(params.values())):
        w, b = torch.autograd.grad(loss, inputs, retain_graph=True)
        assert_close(w.numpy(), [2.0, 2.0])
        assert_close(b.numpy(), [1.0, 1.0])
    assert list(torch.autograd.grad(loss, params, retain_graph=True)) == ["w", "b"]
    loss.backward(inputs=params.values())
    assert_close(params["w"].grad.numpy(), [2.0, 2.0])


# ------------------------------------------------------------------ what counts and finds places


def as_numpy(x: Any) -> Any:
    return [value(y) for y in x] if isinstance(x, tuple) else value(x)


N = np.array([[1.0, 0.0, -2.0], [0.0, np.nan, np.inf]])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.tensor(N).nonzero(), np.argwhere(N)),
        (torch.nonzero(torch.tensor(N)), np.argwhere(N)),
        (torch.nonzero(torch.tensor(N), as_tuple=True), list(np.nonzero(N))),
        (torch.argwhere(torch.tensor(N)), np.argwhere(N)),
        (torch.where(torch.tensor(N) == 0), list(np.nonzero(N == 0))),
        (torch.nonzero(torch.zeros(2, 3)), np.zeros((0, 2), np.int64)),
        (torch.nonzero(torch.tensor(2.0)), np.zeros((1, 0), np.int64)),
        (torch.count_nonzero(torch.tensor(N)), np.count_nonzero(N)),
        (torch.tensor(N).count_nonzero(dim=0), np.count_nonzero(N, 0)),
        (X.argmax(), A.argmax()),
        (torch.argmin(X, dim=1, keepdim=True), A.argmin(1)[:, None]),
        (X.max(1).indices, A.argmax(1)),
        (torch.sort(X, dim=0, stable=True).indices, A.argsort(0)),
        (X.argsort(descending=True), np.argsort(-A)),
        (torch.argsort(X, stable=True), np.argsort(A)),
        (torch.topk(X, 2).indices, np.argsort(-A)[:, :2]),
        (torch.searchsorted(torch.tensor([1, 2, 2]), torch.tensor([2, 3])), np.array([1, 3])),
        (
            torch.searchsorted(torch.tensor([1, 2, 2]), torch.tensor([2, 3]), right=True),
            np.array([3, 3]),
        ),
    ],
)
def test_places_and_counts_are_int64(found: Any, expected: Any) -> None:
    found = as_numpy(found)
    for y, z in (
        zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
    ):
        assert y.dtype == np.int64
        assert y.shape == np.shape(z)
        close(y, z)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (torch.tensor(N).nan_to_num(5.0), np.nan_to_num(N, nan=5.0)),
        (torch.nan_to_num(torch.tensor(N), 1.0, 2.0, 3.0), np.nan_to_num(N, True, 1.0, 2.0, 3.0)),
        (torch.nan_to_num(torch.tensor(N), posinf=2.0), np.nan_to_num(N, posinf=2)),
        (X.flip(0, 1), A[::-1, ::-1]),
        (X.flip((0,)), A[::-1]),
        (torch.flip(X, dims=[1]), A[:, ::-1]),
        (X.tile(2, 1), np.tile(A, (2, 1))),
        (torch.tile(X, dims=(2,)), np.tile(A, (2,))),
        (X[None, :, None].squeeze(0, 2), A),
        (X[None, :, None].squeeze(dim=2), A[None]),
        (X[None, :, None].squeeze((0, 1)), A[:, None]),
        (torch.squeeze(X[None], 0), A),
        (X[None, :, None].squeeze(), A),
        (torch.special.logit(torch.tensor(0.25)), scipy.special.logit(np.float32(0.25))),
        (
            torch.logit(torch.tensor([0.0, 0.5]), eps=1e-3),
            scipy.special.logit(np.array([1e-3, 0.5], np.float32)),
        ),
        (torch.tensor([0.5]).sinc_(), np.sinc([0.5])),
        (torch.tensor([-1.0, 0.0]).heaviside_(torch.tensor(0.5)), np.array([0.0, 0.5])),
        (torch.addcmul(X, X, X, value=2), A + 2 * A * A),
        (torch.tensor(A).addcdiv_(X, X + 9, value=2), A + 2 * A / (A + 9)),
        (torch.tensor(A).lerp_(X * 2, 0.5), A * 1.5),
        (torch.tensor(A).masked_fill_(X > 0, 0.0), np.minimum(A, 0)),
    ],
)  # fmt: skip
def test_arguments_as_pytorch_takes_them(found: Any, expected: Any) -> None:
    close(value(found), expected, rtol=1e-6)


def test_comparisons_of_all_elements_are_booleans_of_python() -> None:
    for found in (
        X.equal(X), torch.equal(X, X), X.allclose(X + 1e-12), torch.allclose(X, X),
        torch.tensor(math.nan).allclose(torch.tensor(math.nan), equal_nan=True),
        not X.equal(X + 1), not X.allclose(X + 1), not X.equal(X[0]),
    ):  # fmt: skip
        assert found is True


def test_a_divergence_is_divided_by_the_size_of_the_batch() -> None:
    x, p = torch.tensor([[0.5, -1.0], [2.0, 0.0]]), torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    each = F.kl_div(x, p, reduction="none")
    assert F.kl_div(x, p, reduction="batchmean").item() == pytest.approx(each.sum().item() / 2)
    found = F.kl_div(x, p.log(), reduction="batchmean", log_target=True)
    assert found.item() == pytest.approx(each.sum().item() / 2)
    with pytest.raises(RuntimeError, match="there is no reduction 'batchmean'"):
        F.mse_loss(x, p, reduction="batchmean")


def test_norms_of_matrices_take_their_order_and_dimensions_by_position() -> None:
    x = np.arange(12.0).reshape(3, 2, 2)
    found = torch.linalg.matrix_norm(torch.tensor(x), 2, (0, 1), True)
    close(found, np.linalg.norm(x, 2, (0, 1), keepdims=True))
    close(torch.linalg.matrix_norm(torch.tensor(x), "nuc"), np.linalg.norm(x, "nuc", (1, 2)))


@pytest.mark.parametrize("dim", [0, -1, (0,)])
def test_what_has_no_dimension_is_reduced_along_one(dim: Any) -> None:
    x = torch.tensor(2.5, requires_grad=True)
    for f, value, slope in (
        (torch.sum, 2.5, 1.0), (torch.mean, 2.5, 1.0), (torch.amax, 2.5, 1.0),
        (torch.logsumexp, 2.5, 1.0), (torch.norm, 2.5, 1.0),
    ):  # fmt: skip
        found = f(x, dim=dim, keepdim=True)
        assert found.shape == ()
        assert found.item() == value
        assert torch.autograd.grad(found, x)[0].item() == slope
    assert torch.all(x > 2, dim=dim).item()
    if dim != (0,):
        assert torch.softmax(x, dim).item() == 1.0
    assert func.vmap(lambda x: x.sum(dim))(torch.ones(3)).tolist() == [1.0] * 3
    with pytest.raises(IndexError, match="out of range"):
        x.sum(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.narrow(2, 0, 1), lambda x: x.select(2, 0), lambda x: x.unbind(2),
        lambda x: x.chunk(2, 2), lambda x: x.split(1, 2), lambda x: x[0, 0].narrow(0, 0, 1),
        lambda x: x[0, 0].chunk(2), lambda x: x[0, 0].unbind(),
    ],
)  # fmt: skip
def test_a_dimension_that_is_not_there_is_an_error(call: Any) -> None:
    with pytest.raises(AxisError, match="out of range for an array of rank"):
        call(torch.ones(2, 2))


@pytest.mark.parametrize("name", sorted({*nn.__all__} & {*dir(F)}))
def test_functions_of_networks_are_those_of_nn(name: str) -> None:
    """Of tensors they compute what `ftrans.nn` does of arrays, which is held against PyTorch."""
    function, own = getattr(F, name), getattr(nn, name)
    assert callable(function)
    assert function.__doc__ == own.__doc__ or name in ("dropout", "silu") or name in vars(torch)


def test_layers_run_on_tensors_as_in_pytorch() -> None:
    x = torch.tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4), requires_grad=True)
    kernel = torch.tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 2, 2), requires_grad=True)

    def loss(F: Any, x: Any, kernel: Any, at: dict[str, int]) -> Any:
        y = F.layer_norm(x, (4,)) + F.softmin(x, **at) + F.gelu(x, approximate="tanh")
        y = F.conv1d(y.reshape(1, 2, 6), kernel, padding=1)
        y = F.max_pool1d(y, 2) + F.avg_pool1d(y, 3, stride=2, padding=1)[..., :3]
        return (F.scaled_dot_product_attention(y, y, y, is_causal=True) ** 2).sum()

    loss(F, x, kernel, {"dim": 1}).backward()
    given = x.detach().numpy(), kernel.detach().numpy()
    slopes = func.grad(lambda *at: loss(nn, *at, {"axis": 1}), (0, 1))(*given)
    assert_close(x.grad, slopes[0], 1e-9)
    assert_close(kernel.grad, slopes[1], 1e-9)


def test_the_largest_and_differences_are_methods_too() -> None:
    x = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], requires_grad=True)
    found = x.topk(2, dim=1)
    assert found.values.tolist() == [[3.0, 2.0], [5.0, 4.0]]
    assert found.indices.tolist() == [[0, 2], [1, 2]]
    assert x.diff(dim=1).tolist() == [[-2.0, 1.0], [5.0, -1.0]]
    (found.values * found.values).sum().backward()
    assert_close(x.grad, [[6.0, 0.0, 4.0], [0.0, 10.0, 8.0]])


def test_what_is_transformed_has_the_methods_of_tensors_that_write() -> None:
    def both(function: Any, *shape: int) -> None:
        x = torch.arange(float(np.prod(shape))).reshape(shape)
        found = func.vmap(lambda x: function(x.clone()))(x)
        expected = torch.stack([function(row.clone()) for row in x])
        torch.testing.assert_close(found, expected)
        slopes = func.jacrev(lambda x: function(x.clone()))(x[1])
        assert slopes.shape == (*expected.shape[1:], *x.shape[1:])

    first, ones = torch.tensor([0, 1]), torch.ones(2)
    both(lambda x: x.index_add_(0, first, ones, alpha=2.0), 3, 4)
    both(lambda x: x.index_put_((first,), ones, accumulate=True).add_(x, alpha=3), 3, 4)
    both(lambda x: x.scatter_(0, first, ones).masked_fill_(x > 2, 7.0), 3, 4)
    both(lambda x: x.lerp_(torch.ones(4), 0.5).addcmul_(x, x, value=2.0).cumsum_(0), 3, 4)
    both(lambda x: x.tril_().div_(2.0, rounding_mode="floor").addmm_(x, x), 2, 3, 3)
    both(
        lambda x: (x.diagonal(1, 0, 1).mul_(x[0, 0, 0]), x.transpose(0, 2)[1].add_(3.0), x)[2],
        2,
        3,
        3,
        4,
    )
    both(lambda x: x.diff().sgn() + torch.eye(3).det() + x.rot90()[0, 0], 2, 3, 3)

    drawn = func.vmap(lambda x: x.clone().uniform_(2.0, 3.0), randomness="different")
    values = drawn(torch.zeros(2, 50))
    assert 2.0 <= values.min() < values.max() < 3.0
    assert not (values[0] == values[1]).any()
    halves = func.vmap(lambda x: x.clone().lerp_(x * 0, 0.5))(torch.ones(3))
    assert halves.tolist() == [0.5, 0.5, 0.5]


def _base_of_an_element(x: Any) -> Any:
    y = x.clone()
    z = y[0]
    y.mul_(x)
    return z


def _element(x: Any) -> Any:
    y = x.clone()
    z = y[0]
    z += x[1]
    y.select(0, 2).fill_(3).sub_(x[0])
    return (y * x).sum()


def _several_names(x: Any) -> Any:
    total = torch.zeros((), dtype=torch.float64)
    found = total
    for v in x:
        total += v * v
    return found


def _elements_in_turn(x: Any) -> Any:
    y = x.clone()
    for i in range(3):
        v = y[i]
        v.mul_(v)
    y[1].copy_(x[2]).zero_()
    return y.sum()


def _of_a_sum(x: Any) -> Any:
    y = x.sum()
    z = y.view(())
    z.add_(1).mul_(x[0])
    return y


@pytest.mark.parametrize(
    "function", [_base_of_an_element, _element, _several_names, _of_a_sum, _elements_in_turn]
)
def test_what_is_transformed_is_written_to_where_it_has_rank_zero(function: Any) -> None:
    """As it is where it is not transformed, of which finite differences are known."""
    x = torch.tensor([1.5, 2.0, -0.5], dtype=torch.float64)
    value, step = function(x).item(), 1e-6
    slopes = [
        (function(x + step * row) - function(x - step * row)).item() / (2 * step)
        for row in torch.eye(3, dtype=torch.float64)
    ]
    found = func.grad_and_value(function)(x)
    assert_close(found[1], value, 1e-12)
    assert_close(found[0], slopes, 1e-8)
    assert_close(func.jacfwd(function)(x), slopes, 1e-8)
    assert_close(func.vmap(function)(torch.stack([x, x])), [value, value], 1e-12)
    leaf = x.clone().requires_grad_()
    function(leaf).backward()
    assert_close(leaf.grad, slopes, 1e-8)
    array = x.numpy()  # of which elements are no arrays
    assert func.grad(lambda x: _several(x))(array).tolist() == [1.0, 0.0, 0.0]
    assert func.grad(lambda x: _several(x))(x).tolist() == [1.0, 1.0, 0.0]


def _several(x: Any) -> Any:
    y = x * 1
    z = y[0]
    w = z
    w += x[1]
    return z


@pytest.mark.parametrize("around", [lambda f: f, func.vmap])
def test_dimensions_that_are_not_there_are_named(around: Any) -> None:
    x = torch.ones(2, 3, 1)
    for call in (
        lambda x: x.squeeze(5),
        lambda x: x.squeeze((0, -4)),
        lambda x: x.flatten(3),
        lambda x: x.flatten(0, -5),
        lambda x: x.unflatten(4, (1, 3)),
    ):
        with pytest.raises(AxisError, match=r"(flatten|squeeze): axis -?\d is out of range"):
            around(call)(x)
    with pytest.raises(errors.DTypeError, match="squeeze: an axis is an int"):
        around(lambda x: x.squeeze(None))(x)
    assert around(lambda x: x.squeeze(dim=(-1, 0)))(x[:1]).shape in ((3,), (1, 3))
    assert torch.tensor(1.0).squeeze(0).shape == torch.tensor(1.0).squeeze(-1).shape == ()


@pytest.mark.parametrize(
    ("name", "fits", "wrong", "what"),
    [
        ("mm", [(2, 3), (3, 4)], [(2, 2, 2), (2,)], "takes matrices"),
        ("mv", [(2, 3), (3,)], [(2, 2), (2, 2)], "takes a matrix and a vector"),
        ("bmm", [(4, 2, 3), (4, 3, 2)], [(2, 2), (2, 2)], "takes batches of matrices"),
        ("bmm", [(1, 2, 3), (1, 3, 2)], [(1, 2, 3), (4, 3, 2)], "as many matrices"),
        ("dot", [(3,), (3,)], [(2, 2), (2, 2)], "takes vectors"),
        ("vdot", [(3,), (3,)], [(2, 2), (2, 2)], "takes vectors"),
        ("outer", [(3,), (2,)], [(2, 2), (2,)], "takes vectors"),
        ("ger", [(3,), (2,)], [(2, 2), (2,)], "takes vectors"),
        ("trace", [(3, 3)], [(2, 2, 2)], "takes matrices"),
    ],
)
def test_products_take_what_they_are_of(name: str, fits: Any, wrong: Any, what: str) -> None:
    call = getattr(torch, name)
    given = [torch.arange(float(np.prod(shape))).reshape(shape) for shape in fits]
    products = {"mm": "matmul", "mv": "matmul", "bmm": "matmul", "ger": "outer"}
    expected = getattr(np, products.get(name, name))(*[x.numpy() for x in given])
    assert_close(call(*given), expected)
    assert_close(getattr(given[0], name)(*given[1:]), expected)
    given = [torch.ones(shape) for shape in wrong]
    for around in (lambda f: f, lambda f: func.vmap(f)):
        batched = [x[None] for x in given] if around(abs) is not abs else given
        for f in (call, lambda x, *others: getattr(x, name)(*others)):
            with pytest.raises(ShapeError, match=what):
                around(f)(*batched)


@pytest.mark.parametrize("around", [lambda f: f, func.vmap])
def test_dimensions_and_pairs_are_looked_for(around: Any) -> None:
    x = torch.ones(3)
    for f in (lambda x: x.sum().squeeze(3), lambda x: x.sum().transpose(0, 3)):
        with pytest.raises(IndexError, match=r"axis [03] is out of range"):
            around(f)(x[None])
    for f in (
        torch.squeeze,
        torch.transpose,
    ):  # the one that is not there may be named, in arrays too
        for one in (torch.tensor(2.0), np.array(2.0)):
            assert f(one, *(0, -1)[: 1 + (f is torch.transpose)]) == 2.0
    with pytest.raises(ShapeError, match=r"view_as_complex: the last dimension"):
        around(torch.view_as_complex)(torch.ones(3, 3, 3))


def test_sums_are_scaled_in_transforms_too() -> None:
    ones = torch.ones(3)
    assert func.grad(lambda x: torch.add(x, x, alpha=2).sum())(ones).tolist() == [3.0] * 3
    assert func.vmap(lambda x: torch.sub(x, x, alpha=3))(ones).tolist() == [-2.0] * 3
    assert torch.add(ones, ones, alpha=3).tolist() == [4.0] * 3
    assert torch.add(input=ones, other=2).tolist() == [3.0] * 3
