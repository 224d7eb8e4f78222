"""Names of PyTorch that are formulas of others: numbers that PyTorch gave, and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans import func, jit
from ftrans.errors import ArgumentError, MissingAttributeError, MutationError, UnsupportedError
from tests.helpers import assert_close

_rng = np.random.default_rng(3)
A, B, C = _rng.normal(size=(4, 3)), _rng.normal(size=(4, 4)), _rng.normal(size=(4, 2))
ROWS = np.array([[0.0, 1, 4, 9], [1, 2, 3, 5]])
PLACES = np.array([0.0, 1, 3, 4])
UPPER = np.triu(B) + 3 * np.eye(4)
SQUARE = B + 4 * np.eye(4)
FACTOR = np.linalg.cholesky(B @ B.T + np.eye(4))

CALLS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "gradient": (lambda x: torch.gradient(x, dim=1)[0], ROWS, [[1, 2, 4, 5], [1, 1, 1.5, 2]]),
    "gradient_spacing": (
        lambda x: torch.gradient(x, spacing=[1.0, 0.5])[1],
        ROWS,
        [[2, 4, 8, 10], [2, 2, 3, 4]],
    ),
    "gradient_places": (
        lambda x: torch.gradient(x, spacing=(torch.tensor(PLACES),), dim=1)[0],
        ROWS,
        [[1, 7 / 6, 23 / 6, 5], [1, 5 / 6, 1.5, 2]],
    ),
    "gradient_edges": (
        lambda x: torch.gradient(x, dim=[1], edge_order=2)[0],
        ROWS,
        [[0, 2, 4, 6], [1, 1, 1.5, 2.5]],
    ),
    "trapezoid": (lambda y: torch.trapezoid(y, dx=2.0), ROWS, [19, 16]),
    "trapz": (lambda y: torch.trapz(y, torch.tensor(PLACES), dim=1), ROWS, [12, 10.5]),
    "cumulative_trapezoid": (
        lambda y: torch.cumulative_trapezoid(y, torch.tensor(PLACES)),
        ROWS,
        [[0.5, 5.5, 12], [1.5, 6.5, 10.5]],
    ),
    "cumulative_trapezoid_down": (
        lambda y: torch.cumulative_trapezoid(y=y, dx=2.0, dim=0),
        ROWS,
        [[1, 3, 7, 14]],
    ),
    "std_mean": (lambda x: torch.std_mean(x, dim=0)[0], A, A.std(0, ddof=1)),
    "var_mean": (lambda x: torch.var_mean(x, dim=1, correction=0)[0], A, A.var(1)),
    "var_mean_of_all": (lambda x: torch.stack(torch.var_mean(x, False)), A, [A.var(), A.mean()]),
    "cdist": (
        lambda x: torch.cdist(x, torch.tensor(2 * A)),
        A,
        np.linalg.norm(A[:, None] - 2 * A, axis=-1),
    ),
    "cdist_1": (lambda x: torch.cdist(x, x, p=1.0), A, np.abs(A[:, None] - A).sum(-1)),
    "cartesian_prod": (
        lambda x: torch.cartesian_prod(x, x[:2]),
        ROWS[0, :3],
        [[0, 0], [0, 1], [1, 0], [1, 1], [4, 0], [4, 1]],
    ),
    "combinations": (torch.combinations, ROWS[0, 1:], [[1, 4], [1, 9], [4, 9]]),
    "combinations_again": (
        lambda x: torch.combinations(x, r=2, with_replacement=True),
        ROWS[1, :2],
        [[1, 1], [1, 2], [2, 2]],
    ),
    "block_diag": (lambda x: torch.block_diag(x, x[:1]), C[:2], None),
    "vander": (lambda x: torch.vander(x, increasing=True), ROWS[0], np.vander(ROWS[0])[:, ::-1]),
    "linalg.vander": (
        lambda x: torch.linalg.vander(x, N=3),
        ROWS,
        ROWS[..., None] ** np.arange(3),
    ),
    "polygamma": (lambda x: torch.polygamma(1, x), np.array([1.0]), [np.pi**2 / 6]),
    "mvlgamma": (lambda x: torch.mvlgamma(x, 1), np.array([4.0, 5.0]), np.log([6.0, 24.0])),
    "igamma": (lambda x: torch.igamma(torch.ones(2), x), ROWS[1, :2], 1 - np.exp(-ROWS[1, :2])),
    "igammac": (lambda x: torch.igammac(torch.ones(2), other=x), ROWS[1, :2], np.exp(-ROWS[1, :2])),
    "rsub": (lambda x: torch.rsub(x, 1.0, alpha=3), A, 1 - 3 * A),
    "fill": (lambda x: torch.fill(x, 2.0), A, np.full((4, 3), 2.0)),
    "chain_matmul": (lambda x: torch.chain_matmul(x.t(), x, x.t()), A, A.T @ A @ A.T),
    "multi_dot": (lambda x: torch.linalg.multi_dot([x.t(), x, x.t()]), A, A.T @ A @ A.T),
    "ger": (lambda x: torch.ger(x[0], x[1]), A, np.outer(A[0], A[1])),
    "cholesky_solve": (
        lambda x: torch.cholesky_solve(x, torch.tensor(FACTOR)),
        C,
        np.linalg.solve(FACTOR @ FACTOR.T, C),
    ),
    "cholesky_inverse": (
        lambda x: torch.cholesky_inverse(x, upper=True),
        FACTOR.T.copy(),
        np.linalg.inv(FACTOR @ FACTOR.T),
    ),
    "solve_triangular": (
        lambda x: torch.linalg.solve_triangular(x, torch.tensor(C), upper=True),
        UPPER,
        np.linalg.solve(UPPER, C),
    ),
    "solve_triangular_right": (
        lambda x: torch.linalg.solve_triangular(x.t(), torch.tensor(A.T), upper=False, left=False),
        UPPER,
        A.T @ np.linalg.inv(UPPER.T),
    ),
    "lu_solve": (
        lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), torch.tensor(C)),
        SQUARE,
        np.linalg.solve(SQUARE, C),
    ),
    "lu_solve_adjoint": (
        lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), torch.tensor(C), adjoint=True),
        SQUARE,
        np.linalg.solve(SQUARE.T, C),
    ),
    "lu_solve_right": (
        lambda x: torch.linalg.lu_solve(
            *torch.linalg.lu_factor(x), torch.tensor(C.T.copy()), left=False
        ),
        SQUARE,
        C.T @ np.linalg.inv(SQUARE),
    ),
    "lu": (lambda x: (lambda p: p.P @ p.L @ p.U)(torch.linalg.lu(x)), B, B),
    "lstsq": (
        lambda x: torch.linalg.lstsq(x, torch.tensor(C)).solution,
        A,
        np.linalg.lstsq(A, C, rcond=None)[0],
    ),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x), np.diag([1.0, 2.0]), None),
    "linalg.diagonal": (lambda x: torch.linalg.diagonal(x, offset=1), B, np.diagonal(B, 1)),
    "special.ndtr": (torch.special.ndtr, np.zeros(2), [0.5, 0.5]),
    "special.xlog1py": (lambda x: torch.special.xlog1py(x, 1.0), A, A * np.log(2)),
    "special.entr": (torch.special.entr, ROWS[1], -ROWS[1] * np.log(ROWS[1])),
    "special.i0e": (torch.special.i0e, np.zeros(1), [1]),
    "interpolate": (
        lambda x: F.interpolate(x[None], scale_factor=2, mode="linear")[0],
        ROWS[:, :2],
        [[0, 0.25, 0.75, 1], [1, 1.25, 1.75, 2]],
    ),
    "interpolate_nearest": (
        lambda x: F.interpolate(x[None], size=3)[0],
        ROWS,
        [[0, 1, 4], [1, 2, 3]],
    ),
    "conv1d": (
        lambda x: torch.conv1d(x[None], torch.tensor(np.ones((1, 2, 2))))[0],
        ROWS,
        [[4, 10, 21]],
    ),
    "max_pool1d": (lambda x: torch.max_pool1d(x, 2), ROWS, [[1, 9], [2, 5]]),
    "layer_norm": (
        lambda x: torch.layer_norm(x, (2,), eps=0.0),
        ROWS[:, :2],
        [[-1, 1], [-1, 1]],
    ),
    "hfft": (lambda x: torch.fft.hfft(x, dim=1), ROWS, np.fft.hfft(ROWS)),
}
"""Functions of one tensor, what they take, and what they return where that is written down."""


@pytest.mark.parametrize("name", CALLS)
def test_values_and_derivatives_here_and_in_transforms(name: str) -> None:
    call, start, expected = CALLS[name]
    x = torch.tensor(start, requires_grad=True)
    out = call(x)
    if expected is not None:
        assert_close(out.detach(), expected)
    out.sin().sum().backward()
    slopes = func.grad(lambda x: call(x).sin().sum())
    assert_close(x.grad, slopes(x.detach()))
    assert_close(x.grad, jit(slopes)(x.detach()))
    batch = torch.stack([x.detach(), 1.5 * x.detach()])
    assert_close(func.vmap(call)(batch), torch.stack([call(row) for row in batch]))
    dot = torch.tensor(_rng.normal(size=start.shape))
    _, tangent = func.jvp(call, (x.detach(),), (dot,))
    assert_close((tangent * out.detach().cos()).sum(), (x.grad * dot).sum())


def test_windows_are_periodic_and_of_the_default_dtype() -> None:
    for name, of in (
        ("hann", np.hanning),
        ("hamming", np.hamming),
        ("blackman", np.blackman),
        ("bartlett", np.bartlett),
        ("kaiser", lambda n: np.kaiser(n, 12.0)),
    ):
        window = getattr(torch, f"{name}_window")
        assert_close(window(6, dtype=torch.float64), of(7)[:-1])
        assert_close(window(6, periodic=False, dtype=torch.float64), of(6))
        assert window(4).dtype == np.float32
        assert window(1).tolist() == [1]
        assert window(0).shape == (0,)
        assert window(3, requires_grad=True).requires_grad
    assert_close(torch.hamming_window(2, True, 0.6, 0.4, dtype=torch.float64), [0.2, 1.0])
    assert torch.fft.fftfreq(4, 0.5).tolist() == [0, 0.5, -1, -0.5]
    assert torch.fft.rfftfreq(n=4, d=0.5).tolist() == [0, 0.5, 1]
    assert torch.fft.fftfreq(4).dtype == np.float32


def test_places_and_counts_are_int64() -> None:
    x, line = torch.tensor(ROWS), torch.tensor([1.0, 3.0])
    found: list[tuple[Any, Any]] = [
        (torch.bucketize(x, line), [[0, 0, 2, 2], [0, 1, 1, 2]]),
        (torch.bucketize(x, line, right=True), [[0, 1, 2, 2], [1, 1, 2, 2]]),
        (torch.searchsorted(line, x, side="right"), [[0, 1, 2, 2], [1, 1, 2, 2]]),
        (torch.searchsorted(x, torch.tensor([[4.0], [4.0]])), [[2], [3]]),
        (torch.searchsorted(line.flip(0), line, sorter=torch.tensor([1, 0])), [0, 1]),
        (torch.tril_indices(2, 3), [[0, 1, 1], [0, 0, 1]]),
        (torch.triu_indices(2, 3, offset=1), [[0, 0, 1], [1, 2, 2]]),
        (torch.unravel_index(torch.tensor([5, 3]), (2, 3))[0], [1, 1]),
        (torch.unique(torch.tensor([3, 1, 3]), return_inverse=True)[1], [1, 0, 1]),
        (torch.unique(x[:, 1:3], return_counts=True)[1], [1, 1, 1, 1]),
        (torch.linalg.lstsq(torch.tensor(A), torch.tensor(C)).rank, 3),
    ]
    for one, expected in found:
        assert one.dtype == np.int64
        assert one.tolist() == expected
    assert torch.bucketize(x, line, out_int32=True).dtype == np.int32
    assert torch.histc(x, bins=3, min=0, max=3).tolist() == [1, 2, 2]
    assert torch.histc(x, bins=3).tolist() == [4, 3, 1]
    assert torch.histc(x).dtype == np.float64
    assert torch.unique(torch.tensor([[1, 2], [1, 2]]), dim=0).tolist() == [[1, 2]]
    with pytest.raises(Exception, match="depends on the mapped axis"):
        func.vmap(torch.unique)(x)


def test_normalisations_write_running_statistics() -> None:
    x = torch.tensor([[1.0, 2], [3, 6]], requires_grad=True)
    mean, var = torch.zeros(2), torch.ones(2)
    out = F.batch_norm(x, mean, var, training=True, momentum=0.5, eps=0.0)
    assert out.tolist() == [[-1, -1], [1, 1]]
    assert mean.tolist() == [1, 2]
    assert var.tolist() == [1.5, 4.5]
    (out * torch.tensor([[1.0, 0], [0, 0]])).sum().backward()
    assert_close(x.grad, np.zeros((2, 2)))
    found = F.batch_norm(x.detach(), mean, var, eps=0.0)
    assert_close(found, (x.detach() - mean) / var.sqrt())
    assert mean.tolist() == [1, 2]
    F.batch_norm(x, mean, var, None, None, True, 1.0)
    assert mean.tolist() == [2, 4]
    rows, kept = torch.tensor([[[1.0, 3]], [[5.0, 7]]]), torch.zeros(1)
    out = F.instance_norm(rows, kept, torch.ones(1), momentum=0.5, eps=0.0)
    assert out.tolist() == [[[-1, 1]], [[-1, 1]]]
    assert kept.tolist() == [2]
    assert_close(F.instance_norm(rows, eps=0.0), out)
    F.instance_norm(rows, kept, torch.ones(1), use_input_stats=False)
    assert kept.tolist() == [2]
    arrays = np.zeros(2), np.ones(2)
    F.batch_norm(np.asarray(x.detach(), np.float64), *arrays, training=True)
    assert_close(arrays[0], [0.2, 0.4])

    def loss(x: Any, mean: Any) -> Any:
        mean = mean.clone()
        out = F.batch_norm(x, mean, torch.ones(2), training=True, momentum=1.0)
        return (out**3).sum(), mean

    _, moved = func.grad(loss, has_aux=True)(x.detach(), torch.zeros(2))
    assert moved.tolist() == [2, 4]
    with pytest.raises(MutationError, match="cannot be written to inside a transform"):
        func.vmap(lambda x: F.batch_norm(x, mean, var, training=True))(x[None].detach())


def test_draws_follow_their_chances_and_their_generator() -> None:
    seeded = lambda: torch.Generator().manual_seed(5)  # noqa: E731
    drawn = torch.multinomial(torch.tensor([1.0, 0, 3]), 4000, True, generator=seeded())
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.25, 0, 0.75], atol=0.03)
    rows = torch.multinomial(torch.tensor([[1.0, 2, 3]] * 50), 3, generator=seeded())
    assert (rows.sort(1)[0] == torch.arange(3)).all()
    assert rows.dtype == np.int64
    assert torch.equal(
        rows, torch.multinomial(torch.tensor([[1.0, 2, 3]] * 50), 3, generator=seeded())
    )
    with pytest.raises(ArgumentError, match="Write replacement=True"):
        torch.multinomial(torch.ones(2).softmax(0), 3)
    for chances, many in (([[1.0, 2.0], [0.0, 1.0]], 2), ([1.0, -1.0], 1), ([1.0, np.nan], 1)):
        with pytest.raises(ArgumentError, match="chances are not negative"):
            torch.multinomial(torch.tensor(chances), many, many == 1)
    counts = torch.poisson(torch.full((4000,), 4.0, dtype=torch.float64), generator=seeded())
    assert abs(counts.mean().item() - 4) < 0.15
    assert counts.dtype == np.float64
    like = torch.randint_like(torch.zeros(100), 2, 4)
    assert set(like.tolist()) == {2.0, 3.0}
    assert torch.randint_like(like, high=2, dtype=torch.int8).dtype == np.int8


def test_small_questions() -> None:
    assert torch.can_cast(torch.int64, torch.uint8)
    assert torch.can_cast(torch.float64, torch.bfloat16)
    assert torch.can_cast(torch.bfloat16, torch.float16)
    assert torch.can_cast(torch.bool, torch.int8)
    assert not torch.can_cast(torch.float16, torch.int64)
    assert not torch.can_cast(torch.complex64, torch.float64)
    assert not torch.can_cast(torch.int8, torch.bool)
    assert torch.is_signed(torch.ones(1))
    assert not torch.is_signed(torch.tensor([1], dtype=torch.uint8))
    assert torch.is_nonzero(torch.tensor([2.0])) is True
    assert torch.broadcast_shapes((3, 1), (4,)) == (3, 4)
    assert torch.scalar_tensor(3).dtype == np.float32
    x = torch.tensor([1.0], requires_grad=True)
    assert torch.asarray(x) is x
    assert not torch.asarray(x, requires_grad=False).requires_grad
    assert torch.asarray(x, copy=True) is not x
    assert torch.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    mantissa, exponent = torch.frexp(torch.tensor([6.0]))
    assert (mantissa.item(), exponent.item()) == (0.75, 3)
    assert issubclass(torch.linalg.LinAlgError, Exception)
    found = torch.linalg.lstsq(torch.tensor(A), torch.tensor(C), driver="gelsd")
    assert_close(found.residuals, np.linalg.lstsq(A, C, rcond=None)[1])
    assert_close(found.singular_values, np.linalg.svd(A)[1])
    assert_close(
        torch.linalg.lstsq(torch.tensor(A[None]), torch.tensor(C[None, :, 0])).solution[0],
        np.linalg.lstsq(A, C[:, 0], rcond=None)[0],
    )


@pytest.mark.parametrize(
    ("home", "name", "hint"),
    [
        (torch, "mse_loss", r"Write torch\.nn\.functional\.mse_loss\("),
        (torch, "lstsq", r"Write torch\.linalg\.lstsq"),
        (torch.linalg, "cholesky_ex", r"raises torch\.linalg\.LinAlgError"),
        (F, "grouped_mm", r"Write ftrans\.numpy\.einsum"),
    ],
)
def test_what_is_declined_says_what_to_write(home: Any, name: str, hint: str) -> None:
    with pytest.raises(MissingAttributeError, match=hint):
        getattr(home, name)


def test_options_that_are_not_there_are_refused() -> None:
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (UnsupportedError, lambda: torch.linalg.lu(torch.eye(2), pivot=False)),
        (UnsupportedError, lambda: F.interpolate(torch.ones(1, 1, 2), 4, antialias=True)),
        (ArgumentError, lambda: F.interpolate(torch.ones(1, 1, 2), 4, mode="bilinear")),
        (ArgumentError, lambda: F.interpolate(torch.ones(1, 1, 2))),
        (
            ArgumentError,
            lambda: F.grid_sample(
                torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2), padding_mode="wrap"
            ),
        ),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call()


def test_arguments_that_are_none_and_matrices_of_complex_numbers() -> None:
    x = torch.tensor([1.0, 4.0, 9.0])
    assert torch.gradient(x, spacing=None, dim=[0])[0].tolist() == [3.0, 4.0, 5.0]
    for found in (torch.std_mean(x, correction=None)[0], x.std(correction=None)):
        np.testing.assert_allclose(found, np.std([1.0, 4.0, 9.0], ddof=1), rtol=1e-6)
    assert torch.linalg.vander(torch.tensor(2.0), N=3).tolist() == [[1.0, 2.0, 4.0]]
    a = torch.tensor([[0.0, 1.0 + 1j], [2.0, 3.0]])
    order, lower, upper = torch.linalg.lu(a)
    assert order.dtype == a.dtype
    np.testing.assert_allclose(order @ lower @ upper, a)
