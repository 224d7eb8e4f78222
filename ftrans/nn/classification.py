"""Losses of classes: of logits and class indices, of several labels, and of sequences of labels.

Half precision is computed in single.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import INT, in_single, like, loss, per_channel, program, ranked, shown
from ftrans.numpy.bounds import at_hand, of_known, require
from ftrans.numpy.promotion import as_array, cast

__all__ = [
    "cross_entropy", "ctc_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss",
]  # fmt: skip


@in_single
@loss
def nll_loss(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """Returns minus the logarithms of probabilities that class indices choose.

    Input holds these, f32[n, c, ...] or f32[c]; all else is as of `cross_entropy`.

    Example:
        >>> float(nll_loss(np.log([[0.25, 0.75]]), np.array([1])).round(3))
        0.288
    """
    logs, at, weight, shape = _chosen("nll_loss", input, target, weight, ignore_index)
    values, total, _ = _picked(logs, at, weight, ignore_index)
    return fnp.reshape(values, shape), total


@in_single
@loss
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Returns the cross entropy of logits with class indices, or with probabilities of classes.

    Args:
        input: the logits, f32[n, c, ...] or f32[c].
        target: the classes, i64[n, ...] or i64[], or probabilities, in the shape of the logits.
        weight: of each class, f32[c]; with class indices a mean is divided by the sum of those
            that count.
        ignore_index: the class that does not count, of indices.
        reduction: "mean", "sum" or "none".
        label_smoothing: the part of the target that is spread evenly over the classes.

    Raises:
        IndexError: where a class is known and out of range; else the loss is NaN there.

    Example:
        >>> float(cross_entropy(np.zeros((1, 4)), np.array([2])).round(3))
        1.386
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(
            f"cross_entropy: label_smoothing is a number from 0 to 1.\n"
            f"  label_smoothing: {label_smoothing}"
        )
    goal, t = as_array(target), type_of(input)
    logs = fnp.log_softmax(input, axis=min(t.ndim - 1, 1)) if t.ndim else input
    if type_of(goal).shape == t.shape and type_of(goal).is_inexact:
        return _of_probabilities(logs, like(goal, logs), weight, label_smoothing)
    logs, at, weight, shape = _chosen("cross_entropy", logs, goal, weight, ignore_index)
    values, total, counts = _picked(logs, at, weight, ignore_index)
    if label_smoothing:
        even = -fnp.sum(logs if weight is None else logs * weight, axis=1)
        even = fnp.where(counts, even, 0.0)
        part = label_smoothing / type_of(logs).shape[1]
        values = values * (1.0 - label_smoothing) + even * part
    return fnp.reshape(values, shape), total


def _of_probabilities(logs: Any, goal: Any, weight: Any, label_smoothing: float) -> Any:
    t = type_of(logs)
    axis = min(t.ndim - 1, 1)
    if label_smoothing:
        goal = goal * (1.0 - label_smoothing) + label_smoothing / t.shape[axis]
    if weight is not None:
        weight = like(weight, logs)
        goal = goal * per_channel("cross_entropy", "weight", weight, logs, axis, "class")
    return -fnp.sum(logs * goal, axis=axis)


class _Classes(NamedTuple):
    """Raises where an index is none of so many classes, nor ignored."""

    name: str
    many: int
    ignored: int | None

    def __call__(self, at: np.ndarray) -> None:
        wrong = at[((at < 0) | (at >= self.many)) & (at != self.ignored)]
        if wrong.size:
            raise IndexingError(
                f"{self.name}: there is no class {wrong[0]}.\n  target: {type_of(at)}\n"
                f"  Of {self.many} classes the indices are 0 ... {self.many - 1}."
            )


def _chosen(
    name: str, logs: Any, target: Any, weight: Any, ignored: int | None = None
) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Returns logarithms f32[m, c], classes i64[m], the weights, and the shape of the classes."""
    at = as_array(target)
    t, u = type_of(logs), type_of(at)
    axis = min(t.ndim - 1, 1)
    shape = t.shape[:axis] + t.shape[axis + 1 :]
    if not t.ndim or u.shape != shape:
        raise ShapeError(
            f"{name}: target does not fit input.{shown(input=logs, target=at)}\n"
            f"  input is f32[n, c, ...] with classes along axis 1, target i64[n, ...]: "
            f"here i64[{', '.join(map(str, shape))}]."
        )
    if u.dtype.kind not in "iu":
        raise DTypeError(
            f"{name}: target holds class indices.{shown(input=logs, target=at)}\n"
            f"  Write target.astype('int64'); probabilities have the shape of input."
        )
    count = t.shape[axis]
    holds = _Classes(name, count, ignored)
    of_known(lambda at: _checked(at, holds), at)
    if u.dtype.kind == "u":  # which what is ignored may not fit into
        at = cast(at, np.int64)
    if weight is not None:
        weight = fnp.ravel(per_channel(name, "weight", like(weight, logs), logs, axis, "class"))
    if t.ndim > 2:
        logs = p.transpose_p(logs, permutation=(0, *range(2, t.ndim), 1))
    logs = p.reshape_p(logs, shape=(math.prod(shape), count))
    flat = (math.prod(shape),)
    at = at.reshape(flat) if type(at) is np.ndarray else p.reshape_p(at, shape=flat)
    return logs, at, weight, shape


def _checked(at: Any, holds: Callable[[np.ndarray], None]) -> Any:
    """Returns indices that were looked at, where they are at hand."""
    require(at, holds)
    return at


def _picked(logs: Any, at: Any, weight: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    """Returns minus the logarithms that classes choose, weighted; the weights' sum; which count."""
    dtype = type_of(logs).dtype

    def chosen(at: Any) -> Any:
        return _names_of(at).where(at != ignore_index, at, 0)

    def number(at: Any) -> Any:
        xp = _names_of(at)
        return xp.asarray(xp.sum(at != ignore_index, dtype=dtype))

    counts = of_known(lambda at: at != ignore_index, at)
    found = -_taken(logs, at, chosen)
    if weight is None:
        return fnp.where(counts, found, 0.0), of_known(number, at), counts
    column = of_known(lambda at: chosen(at).reshape(*at.shape, 1), at)
    share = fnp.where(counts, p.gather_p(weight, column, in_bounds=False, fill=math.nan), 0.0)
    return fnp.where(counts, found * share, 0.0), fnp.sum(share), counts


def _taken(x: Any, at: Any, chosen: Callable[[Any], Any] = lambda at: at) -> Any:
    """Returns x[i, chosen(at)[i]] for all i; NaN where there is no such element."""

    def places(at: Any) -> Any:
        xp = _names_of(at)
        return xp.stack([xp.arange(at.shape[0], dtype=INT), chosen(at).astype(INT)], axis=1)

    return p.gather_p(x, of_known(places, at), in_bounds=False, fill=math.nan)


def _names_of(x: Any) -> Any:
    """Returns the functions for an array: those of NumPy, where it is one of its."""
    return np if type(x) is np.ndarray else fnp


# -------------------------------------------------------------------------------- several labels


@in_single
@loss
def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """Returns the mean over other classes of `max(0, margin - x[y] + x[i])**p`.

    Input is f32[n, c] or f32[c], the target y is i64[n] or i64[]; weights are of classes, f32[c].
    """
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: p is 1 or 2.\n  p: {p}")
    ranked("multi_margin_loss", input, "f32[n, c] or f32[c]", 0, 2)
    x, at, weight, shape = _chosen("multi_margin_loss", input, target, weight)
    count = type_of(x).shape[1]
    gap = x - fnp.expand_dims(_taken(x, at), 1) + margin
    costs = (gap > 0.0) & (fnp.expand_dims(at, 1) != np.arange(count, dtype=INT))
    values = fnp.sum(fnp.where(costs, gap if p == 1 else gap**2, 0.0), axis=1) / float(count)
    if weight is not None:
        values = values * fnp.take(weight, at)
    return fnp.reshape(values, shape)


@in_single
@loss
def multilabel_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """Returns the sums of `max(0, 1 - x[y] + x[i])` over labels y and other classes i, over c.

    Input is f32[n, c] or f32[c], the target of its shape: the labels, and -1 behind the last one.
    """
    name, at = "multilabel_margin_loss", as_array(target)
    shape = ranked(name, input, "f32[n, c] or f32[c]", 1, 2).shape
    if type_of(at).shape != shape or type_of(at).dtype.kind not in "iu":
        raise ShapeError(
            f"{name}: target holds the numbers of labels, in the shape of input."
            f"{shown(input=input, target=at)}"
        )
    require(at, _Classes(name, shape[-1], -1))
    counts = fnp.cumprod(fnp.astype(at >= 0, INT), axis=-1) > 0
    at = fnp.where(counts, at, 0)
    is_label = fnp.expand_dims(at, -1) == np.arange(shape[-1], dtype=INT)
    is_label = fnp.any(is_label & fnp.expand_dims(counts, -1), axis=-2)
    chosen = fnp.take_along_axis(input, at, axis=-1)
    gap = 1.0 - fnp.expand_dims(chosen, -1) + fnp.expand_dims(input, -2)
    costs = fnp.expand_dims(counts, -1) & ~fnp.expand_dims(is_label, -2) & (gap > 0.0)
    return fnp.sum(fnp.where(costs, gap, 0.0), axis=(-2, -1)) / float(shape[-1])


@in_single
@loss
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """Returns the mean over classes of the binary cross entropies of logits.

    Input holds logits, f32[..., c], the target 0 or 1 for each. The weight broadcasts.
    """
    x, y = input, like(target, input)
    if type_of(x).shape != type_of(y).shape:
        raise ShapeError(
            f"multilabel_soft_margin_loss: target has the shape of input.{shown(input=x, target=y)}"
        )
    miss = (1.0 - y) * x + fnp.softplus(-x)
    return fnp.mean(miss if weight is None else miss * like(weight, x), axis=-1)


# ------------------------------------------------------------------------------------- sequences


@in_single
@loss
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Returns minus the logarithms of the chances of label sequences, over all alignments.

    The gradient is that of the formula. PyTorch's is, with respect to `log_probs`, already the one
    behind a `log_softmax`; after one, both are the same.

    Args:
        log_probs: logarithms of probabilities of labels, f32[t, n, c] or f32[t, c].
        targets: the labels, i64[n, s], or those of all examples one after the other, or i64[s].
        input_lengths: how many steps of each example count, i64[n] or a number.
        target_lengths: how many labels of each example count.
        blank: the label for none.
        reduction: "mean" over examples of losses by length of targets, "sum" or "none".
        zero_infinity: whether the loss is 0 where no alignment is possible, which is infinite.

    Reference:
        https://www.cs.toronto.edu/~graves/icml_2006.pdf
    """
    single = type_of(log_probs).ndim == 2
    logs = fnp.expand_dims(log_probs, 1) if single else log_probs
    t = type_of(logs)
    if t.ndim != 3 or not t.shape[0]:
        raise ShapeError(
            f"ctc_loss: log_probs is f32[t, n, c] or f32[t, c].{shown(log_probs=logs)}"
        )
    _, examples, count = t.shape
    if not 0 <= blank < count:
        raise ArgumentError(f"ctc_loss: there is no label {blank}.{shown(log_probs=logs)}")
    lengths, sizes = (
        fnp.reshape(cast(as_array(v), INT), (-1,)) for v in (input_lengths, target_lengths)
    )
    if not type_of(lengths).shape == type_of(sizes).shape == (examples,):
        raise ShapeError(
            f"ctc_loss: there is one length for each example."
            f"{shown(log_probs=logs, input_lengths=lengths, target_lengths=sizes)}"
        )
    labels = _labels(targets, target_lengths, examples)
    for name, given, most in (
        ("input_lengths", lengths, t.shape[0]),
        ("target_lengths", sizes, type_of(labels).shape[1]),
    ):
        if at_hand(given) and not all(0 <= n <= most for n in np.asarray(given)):
            raise ArgumentError(f"ctc_loss: lengths lie between 0 and {most}.\n  {name}: {given}")
    alphas = _alphas(logs, labels, lengths, blank)
    last = sizes * 2
    before = _taken(alphas, fnp.maximum(last - 1, 0))
    ends = [_taken(alphas, last), fnp.where(last > 0, before, -math.inf)]
    losses = -fnp.logsumexp(fnp.stack(ends), axis=0)
    if zero_infinity:
        losses = fnp.where(losses == math.inf, 0.0, losses)
    if reduction == "mean":
        losses = losses / cast(fnp.maximum(sizes, 1), t.dtype)
    return fnp.reshape(losses, ()) if single and reduction == "none" else losses


def _labels(targets: Any, sizes: Any, examples: int) -> Any:
    """Returns the labels of each example as a row, i32[n, s]."""
    targets = cast(as_array(targets), INT)
    shape = type_of(targets).shape
    if len(shape) == 2 and shape[0] == examples:
        return targets
    if len(shape) == 1 and examples == 1:
        return p.reshape_p(targets, shape=(1, *shape))
    if isinstance(sizes, (list, tuple)):
        sizes = np.asarray(sizes)
    if len(shape) != 1 or not isinstance(sizes, np.ndarray):
        raise ShapeError(
            f"ctc_loss: targets has one row for each example.{shown(targets=targets)}\n"
            f"  Labels one after the other take target_lengths that are known. Pass i64[n, s]."
        )
    starts = np.cumsum(sizes) - sizes
    at = np.minimum(starts[:, None] + np.arange(max(sizes.max(initial=0), 0)), shape[0] - 1)
    return fnp.take(targets, np.maximum(at, 0).astype(INT))


def _alphas(logs: Any, labels: Any, lengths: Any, blank: int) -> Any:
    """Returns the logarithms of the chances of all beginnings of the labels, f32[n, 2 s + 1].

    Labels stand with a blank in front of, between and behind them. A beginning that ends at place k
    goes on from k, k - 1 and, where k is a label other than the one before, from k - 2.
    """
    steps, examples, _ = type_of(logs).shape
    width = 2 * type_of(labels).shape[1] + 1
    paired = fnp.stack([fnp.full_like(labels, blank), labels], axis=2)
    column = fnp.full((examples, min(2, width)), blank, INT)
    row = fnp.concatenate([fnp.reshape(paired, (examples, width - 1)), column[:, :1]], axis=1)
    two_before = fnp.concatenate([column, row], axis=1)[:, :width]
    skips = (row != blank) & (row != two_before)
    at = fnp.broadcast_to(row[None], (steps, examples, width))
    emitted = fnp.take_along_axis(logs, at, axis=2)
    place = p.iota_p(shape=(examples, width), dtype=INT, axis=1)
    first = fnp.where(place < 2, fnp.reshape(emitted[:1], (examples, width)), -math.inf)

    def step(skips: Any, lengths: Any, alpha: Any, number: Any, emitted: Any) -> Any:
        lost = [p.pad_p(alpha, low=(0, k), high=(0, -k), interior=(0, 0), value=-math.inf)
                for k in range(1, min(3, width))]  # fmt: skip
        ways = [alpha, *lost[:1], *(fnp.where(skips, x, -math.inf) for x in lost[1:])]
        new = emitted + fnp.logsumexp(fnp.stack(ways), axis=0)
        return [fnp.where((number < lengths)[:, None], new, alpha)]

    fixed, elements = [skips, lengths, first], [np.arange(1, steps, dtype=INT), emitted[1:]]
    inner = [t.update(shape=t.shape[1:]) for t in map(type_of, elements)]
    body = program("ctc", step, [*map(type_of, fixed), *inner])
    (found,) = p.scan_p(
        *fixed, *elements, body=body, consts=2, carry=1, length=steps - 1, reverse=False, unroll=1
    )
    return found
