"""Folding, bags of embeddings, unpooling, and losses: against loops, transposes and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans import func, jit, nn
from ftrans.autograd import gradcheck
from ftrans.errors import ArgumentError, FtransError, IndexingError, ShapeError
from tests.helpers import assert_close

_rng = np.random.default_rng(7)
TABLE = _rng.normal(size=(6, 3))
ROWS = _rng.integers(0, 6, (4, 5))
X, Y, Z = _rng.normal(size=(3, 3, 4))


def leaf(x: Any) -> Any:
    return torch.tensor(np.asarray(x, np.float64), requires_grad=True)


# ------------------------------------------------------------------------------------- folding


@pytest.mark.parametrize("given", [
    ((4, 5), (2, 3)), ((4, 5), 2, 2), ((4, 5), 2, 1, 1), ((4, 5), 2, 1, 0, 2),
    ((6, 7), (2, 3), (2, 1), (1, 0), (1, 2)),
])  # fmt: skip
def test_to_fold_is_the_transpose_of_to_unfold(given: tuple[Any, ...]) -> None:
    size, *rest = given
    image = _rng.normal(size=(2, 3, *size))
    columns, pull = func.vjp(lambda x: nn.unfold(x, *rest), image)
    patches = _rng.normal(size=columns.shape)
    (expected,) = pull(patches)
    assert_close(nn.fold(patches, *given), expected)
    assert_close(nn.fold(patches[0], *given), expected[0])
    assert_close(jit(lambda x: nn.fold(x, *given))(patches), expected)
    assert_close(func.vmap(lambda x: nn.fold(x, *given))(patches), expected)
    assert gradcheck(lambda x: F.fold(x, *given), (leaf(patches[:1, :, :]),))


def test_patches_that_do_not_fit() -> None:
    for shape in ((2, 12, 9), (2, 13, 12)):
        with pytest.raises(ShapeError, match=r"Of these there are 3 x 4.*f32\[n, 4 c, 12\]"):
            nn.fold(np.zeros(shape), (4, 5), 2)
    with pytest.raises(ShapeError, match="fold: input is"):
        nn.fold(np.zeros(3), (4, 5), 2)


# ------------------------------------------------------------------------------------------ bags

REDUCES: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max}


def bags(given: list[np.ndarray], mode: str, padding: int | None) -> np.ndarray:
    """Returns what a loop over bags gives."""
    found = []
    for rows in given:
        rows = rows[rows != padding] if padding is not None else rows
        found.append(REDUCES[mode](TABLE[rows], axis=0) if len(rows) else np.zeros(3))
    return np.stack(found)


@pytest.mark.parametrize("mode", REDUCES)
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_bags_of_rows(mode: str, padding: int | None) -> None:
    row = None if padding is None else padding % 6
    options: dict[str, Any] = {"mode": mode, "padding_idx": padding}
    found = nn.embedding_bag(ROWS, TABLE, **options)
    assert_close(found, bags(list(ROWS), mode, row))
    flat, starts = ROWS.ravel()[:10], np.array([0, 3, 3, 7])
    expected = bags(np.split(flat, starts[1:]), mode, row)
    assert_close(nn.embedding_bag(flat, TABLE, starts, **options), expected)
    ends = np.array([0, 3, 3, 7, 10])
    last = nn.embedding_bag(flat, TABLE, ends, include_last_offset=True, **options)
    assert_close(last, expected)
    moved = jit(lambda at, starts: nn.embedding_bag(at, TABLE, starts, **options))(flat, starts)
    assert_close(moved, expected)
    given = torch.tensor(flat), torch.tensor(starts)
    assert gradcheck(lambda w: F.embedding_bag(given[0], w, given[1], **options), (leaf(TABLE),))
    assert_close(func.vmap(lambda at: nn.embedding_bag(at, TABLE, **options))(ROWS[None])[0], found)


def test_bags_of_weighted_rows() -> None:
    weights = _rng.normal(size=ROWS.shape)
    expected = (TABLE[ROWS] * weights[..., None]).sum(1)
    found = nn.embedding_bag(ROWS, TABLE, mode="sum", per_sample_weights=weights)
    assert_close(found, expected)
    at = torch.tensor(ROWS)
    assert gradcheck(
        lambda w, s: F.embedding_bag(at, w, mode="sum", per_sample_weights=s),
        (leaf(TABLE), leaf(weights)),
    )
    half = nn.embedding_bag(ROWS, TABLE.astype("float16"))
    assert half.dtype == np.float16
    assert_close(half, TABLE[ROWS].mean(1).astype("float16"))
    empty = np.zeros((0,), int)
    assert_close(nn.embedding_bag(empty, TABLE, np.array([0, 0])), np.zeros((2, 3)))
    assert nn.embedding_bag(empty.reshape(0, 4), TABLE).shape == (0, 3)


def test_bags_that_there_are_not() -> None:
    flat = ROWS.ravel()
    wrong: list[tuple[type[FtransError], str, Callable[[], Any]]] = [
        (ShapeError, r"offsets i64\[b\]", lambda: nn.embedding_bag(flat, TABLE)),
        (ShapeError, "offsets: ", lambda: nn.embedding_bag(ROWS, TABLE, np.array([0]))),
        (ArgumentError, "begin with 0", lambda: nn.embedding_bag(flat, TABLE, np.array([1, 3]))),
        (ArgumentError, "of 20 numbers", lambda: nn.embedding_bag(flat, TABLE, np.array([0, 21]))),
        (ArgumentError, "mode: 'foo'", lambda: nn.embedding_bag(ROWS, TABLE, mode="foo")),
        (
            ArgumentError,
            "'sum' where rows have weights",
            lambda: nn.embedding_bag(ROWS, TABLE, mode="max", per_sample_weights=1.0 * ROWS),
        ),
        (IndexingError, "embedding: index", lambda: nn.embedding_bag(ROWS + 9 - ROWS[0, 0], TABLE)),
    ]
    for error, text, call in wrong:
        with pytest.raises(error, match=text):
            call()


# ------------------------------------------------------------------------------------ unpooling


@pytest.mark.parametrize(("count", "given"), [
    (1, (2,)), (1, (3,)), (2, (2,)), (2, ((2, 3),)), (3, (2,)), (2, (3, 3)),
])  # fmt: skip
@pytest.mark.parametrize("batched", [True, False])
def test_what_is_unpooled_is_where_it_was(
    count: int, given: tuple[Any, ...], batched: bool
) -> None:
    x = _rng.normal(size=((2,) if batched else ()) + (3,) + (6,) * count)
    pool, unpool = (getattr(nn, f"max_{name}{count}d") for name in ("pool", "unpool"))
    y, at = pool(x, *given, return_indices=True)
    back = unpool(y, at, *given)
    expected = np.where(np.isin(x, y), x, 0.0)
    assert_close(back, expected)
    assert_close(pool(np.where(back == 0, -9.0, back), *given), y)
    assert_close(jit(lambda y: unpool(y, at, *given))(y), expected)
    lead = y.ndim - count
    flat = np.take_along_axis(np.cos(x).reshape(*x.shape[:lead], -1), at.reshape(
        *y.shape[:lead], -1), -1).reshape(y.shape)  # fmt: skip
    slopes = func.grad(lambda y: (unpool(y, at, *given) * np.cos(x)).sum())(y)
    assert_close(slopes, flat)


def test_sizes_of_what_is_unpooled() -> None:
    x = _rng.normal(size=(1, 2, 7))
    y, at = nn.max_pool1d(x, 2, return_indices=True)
    for size in ((7,), (1, 2, 7)):
        assert_close(nn.max_unpool1d(y, at, 2, output_size=size)[..., :6],
                     nn.max_unpool1d(y, at, 2))  # fmt: skip
    with pytest.raises(ArgumentError, match=r"Without it, the size is \(6,\)"):
        nn.max_unpool1d(y, at, 2, output_size=(9,))
    with pytest.raises(IndexingError, match="max_unpool1d: index 9"):
        nn.max_unpool1d(np.ones((1, 1, 2)), np.array([[[0, 9]]]), 2)
    with pytest.raises(ShapeError, match="one index for each element"):
        nn.max_unpool1d(np.ones((1, 1, 2)), np.array([[[0]]]), 2)
    tensors = F.max_pool2d(leaf(x[None]), (1, 2), return_indices=True)
    assert F.max_unpool2d(*tensors, (1, 2)).shape == (1, 1, 2, 6)


# ---------------------------------------------------------------------------------------- losses


def labelled(x: np.ndarray, target: np.ndarray) -> float:
    """Returns the loss of one example by loops."""
    labels = target[: list(target).index(-1)] if -1 in target else target
    others = [i for i in range(len(x)) if i not in labels]
    return sum(max(0.0, 1 - x[y] + x[i]) for y in labels for i in others) / len(x)


def test_margins_of_several_labels() -> None:
    target = np.array([[3, 0, -1, 1], [-1, 0, 1, 2], [2, 1, 0, 3]])
    expected = np.array([labelled(x, y) for x, y in zip(X, target, strict=True)])
    loss = nn.multilabel_margin_loss
    assert_close(loss(X, target, reduction="none"), expected)
    assert_close(loss(X, target), expected.mean())
    assert_close(loss(X[0], target[0], reduction="sum"), expected[0])
    assert_close(func.vmap(loss)(X, target), expected)
    assert_close(jit(loss)(X, target), expected.mean())
    assert gradcheck(lambda x: F.multilabel_margin_loss(x, torch.tensor(target)), (leaf(X),))
    with pytest.raises(IndexingError, match="no class 4"):
        loss(X, target + 1)
    with pytest.raises(ShapeError, match="in the shape of input"):
        loss(X, target[:, :2])


@pytest.mark.parametrize("swap", [False, True])
def test_triplets_with_distances_of_ones_own(swap: bool) -> None:
    def distance(a: Any, b: Any) -> Any:
        return ((a - b) ** 2).sum(-1)

    near, far = distance(X, Y), distance(X, Z)
    far = np.minimum(far, distance(Y, Z)) if swap else far
    expected = np.maximum(near - far + 0.5, 0)
    options: dict[str, Any] = {"distance_function": distance, "margin": 0.5, "swap": swap}
    loss = nn.triplet_margin_with_distance_loss
    assert_close(loss(X, Y, Z, reduction="none", **options), expected)
    tensors = [leaf(v) for v in (X, Y, Z)]
    found = F.triplet_margin_with_distance_loss(*tensors, reduction="sum", **options)
    assert_close(found.detach(), expected.sum())
    assert gradcheck(lambda *v: F.triplet_margin_with_distance_loss(*v, **options), tensors)
    assert_close(loss(X, Y, Z, swap=swap), nn.triplet_margin_loss(X, Y, Z, swap=swap))
    with pytest.raises(ArgumentError, match="margin is a positive"):
        loss(X, Y, Z, margin=0.0)


# ------------------------------------------------------------------------------------ resampling


def test_old_names_of_interpolate() -> None:
    x = _rng.normal(size=(1, 2, 3, 3))
    assert_close(nn.upsample(x, scale_factor=2), x.repeat(2, 2).repeat(2, 3))
    assert_close(nn.upsample_nearest(x, (6, 3)), x.repeat(2, 2))
    found = nn.upsample_bilinear(x, (5, 3))
    assert_close(found[:, :, ::2], x)
    assert_close(found[:, :, 1], (x[:, :, 0] + x[:, :, 1]) / 2)
    assert_close(nn.upsample(x, (5, 3), mode="bilinear", align_corners=True), found)
    assert F.upsample_bilinear(leaf(x), scale_factor=2).shape == (1, 2, 6, 6)


def test_slopes_that_are_drawn_by_a_key() -> None:
    x = np.full((1000,), -1.0)
    drawn = [nn.rrelu(x, 0.2, 0.4, True, rng=torch.Generator().manual_seed(3).rng) for _ in "ab"]
    assert_close(*drawn)
    assert -0.4 <= drawn[0].min() < -0.39
    assert -0.21 < drawn[0].max() <= -0.2
    assert_close(nn.rrelu(np.array([-1.0, 3.0]), 0.2, 0.4), np.array([-0.3, 3.0]))
