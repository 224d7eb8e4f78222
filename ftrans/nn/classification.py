"""Losses of classes: of logits and class indices, of several labels, and of sequences of labels.

Half precision is computed in single.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from ftrans.interpreters.base import building, finish
from ftrans.ir import type_of
from ftrans.nn.common import check_reduction, like, reduced, shown, wide
from ftrans.numpy.promotion import as_array, cast

__all__ = [
    "cross_entropy", "ctc_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss",
]  # fmt: skip

_INT = np.dtype("int32")


def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """Returns minus the logarithms of probabilities that class indices choose.

    Args:
        input: the logarithms, f32[n, c, ...] or f32[c].
        target: the classes, i64[n, ...] or i64[].
        weight: of each class, f32[c]; a mean is divided by the sum of those that count.
        ignore_index: the class that does not count.
        reduction: "mean", "sum" or "none".

    Raises:
        IndexError: where a class is known and out of range; else the loss is NaN there.

    Example:
        >>> float(nll_loss(np.log([[0.25, 0.75]]), np.array([1])).round(3))
        0.288
    """
    check_reduction("nll_loss", reduction)
    logs, dtype = wide(input)
    logs, at, weight, shape = _chosen("nll_loss", logs, target, weight, ignore_index)
    values, share = _picked(logs, at, weight, ignore_index)
    return cast(_averaged(fnp.reshape(values, shape), share, reduction), dtype)


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
    name = "cross_entropy"
    check_reduction(name, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(
            f"{name}: label_smoothing is a number from 0 to 1.\n"
            f"  label_smoothing: {label_smoothing}"
        )
    logits, dtype = wide(input)
    goal = as_array(target)
    ndim = type_of(logits).ndim
    logs = fnp.log_softmax(logits, axis=min(ndim - 1, 1)) if ndim else logits
    if type_of(goal).shape == type_of(logits).shape and type_of(goal).is_inexact:
        return cast(_of_probabilities(logs, goal, weight, reduction, label_smoothing), dtype)
    logs, at, weight, shape = _chosen(name, logs, goal, weight, ignore_index)
    values, share = _picked(logs, at, weight, ignore_index)
    if label_smoothing:
        even = fnp.negative(fnp.sum(logs if weight is None else fnp.multiply(logs, weight), axis=1))
        even = fnp.where(fnp.not_equal(at, ignore_index), even, 0.0)
        part = label_smoothing / type_of(logs).shape[1]
        values = fnp.add(fnp.multiply(values, 1.0 - label_smoothing), fnp.multiply(even, part))
    return cast(_averaged(fnp.reshape(values, shape), share, reduction), dtype)


def _of_probabilities(
    logs: Any, goal: Any, weight: Any, reduction: str, label_smoothing: float
) -> Any:
    t = type_of(logs)
    axis = min(t.ndim - 1, 1)
    goal = like(goal, logs)
    if label_smoothing:
        even = label_smoothing / t.shape[axis]
        goal = fnp.add(fnp.multiply(goal, 1.0 - label_smoothing), even)
    if weight is not None:
        weight = _of_classes("cross_entropy", like(weight, logs), t.shape[axis], logs)
        goal = fnp.multiply(goal, fnp.reshape(weight, (-1, *(1,) * (t.ndim - axis - 1))))
    values = fnp.negative(fnp.sum(fnp.multiply(logs, goal), axis=axis))
    return reduced("cross_entropy", values, reduction)


def _of_classes(name: str, weight: Any, count: int, logs: Any) -> Any:
    if type_of(weight).shape != (count,):
        raise ShapeError(
            f"{name}: weight has one number for each class.{shown(input=logs, weight=weight)}\n"
            f"  Pass f32[{count}]."
        )
    return weight


def _chosen(
    name: str, logs: Any, target: Any, weight: Any, ignored: int | None = None
) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Returns logarithms f32[m, c], classes i64[m], the weights, and the shape of the classes.

    Raises:
        ShapeError: where the shapes do not fit.
    """
    at = as_array(target)
    t, u = type_of(logs), type_of(at)
    axis = min(t.ndim - 1, 1)
    shape = t.shape[:axis] + t.shape[axis + 1 :]
    if not t.ndim or u.shape != shape:
        wanted = ", ".join(map(str, shape))
        raise ShapeError(
            f"{name}: target does not fit input.{shown(input=logs, target=at)}\n"
            f"  input is f32[n, c, ...] with classes along axis 1, target i64[n, ...]: "
            f"here i64[{wanted}]."
        )
    if u.dtype.kind not in "iu":
        raise DTypeError(
            f"{name}: target holds class indices.{shown(input=logs, target=at)}\n"
            f"  Write target.astype('int64'); probabilities have the shape of input."
        )
    count = t.shape[axis]
    _check_classes(name, at, count, ignored)
    if t.ndim > 2:
        logs = p.transpose_p(logs, permutation=(0, *range(2, t.ndim), 1))
    logs = p.reshape_p(logs, shape=(math.prod(shape), count))
    if weight is not None:
        weight = _of_classes(name, like(weight, logs), count, logs)
    return logs, p.reshape_p(at, shape=(math.prod(shape),)), weight, shape


def _picked(logs: Any, at: Any, weight: Any, ignore_index: int) -> tuple[Any, Any]:
    """Returns minus the logarithms that classes choose, weighted, and the weights."""
    t = type_of(logs)
    counts = fnp.not_equal(at, ignore_index)
    at = p.select_p(counts, at, 0)
    found = _taken(logs, at)
    if weight is None:
        share = p.convert_p(counts, dtype=t.dtype)
        return p.select_p(counts, p.neg_p(found), 0.0), share
    column = p.reshape_p(at, shape=(*type_of(at).shape, 1))
    share = p.gather_p(weight, column, in_bounds=False, fill=math.nan)
    share = p.select_p(counts, share, 0.0)
    return p.select_p(counts, p.neg_p(p.mul_p(found, share)), 0.0), share


def _taken(x: Any, at: Any) -> Any:
    """Returns x[i, at[i]] for all i; NaN where there is no such element."""
    count = type_of(at).shape[0]
    rows = p.iota_p(shape=(count, 1), dtype=_INT, axis=0)
    columns = p.reshape_p(cast(at, _INT), shape=(count, 1))
    places = p.concatenate_p(rows, columns, axis=1)
    return p.gather_p(x, places, in_bounds=False, fill=math.nan)


def _check_classes(name: str, at: Any, count: int, ignored: int | None) -> None:
    """Raises where a class is known and out of range."""
    if isinstance(at, np.ndarray):
        wrong = at[((at < 0) | (at >= count)) & (at != ignored)]
        if wrong.size:
            raise IndexingError(
                f"{name}: there is no class {wrong[0]}.\n  target: {type_of(at)}\n"
                f"  Of {count} classes the indices are 0 ... {count - 1}."
            )


def _averaged(values: Any, share: Any, reduction: str) -> Any:
    if reduction == "mean":
        return fnp.divide(fnp.sum(values), fnp.sum(share))
    return reduced("", values, reduction)


# -------------------------------------------------------------------------------- several labels


def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    reduction: str = "mean",
) -> Any:
    """Returns the mean over other classes of `max(0, margin - x[y] + x[i])**p`.

    Args:
        input: f32[n, c] or f32[c].
        target: the classes, i64[n] or i64[].
        p: the exponent, 1 or 2.
        margin: by how much x[y] should be above the others.
        weight: of each class, f32[c].
        reduction: "mean", "sum" or "none".
    """
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    if p not in (1, 2):
        raise ArgumentError(f"{name}: p is 1 or 2.\n  p: {p}")
    x, dtype = wide(input)
    if type_of(x).ndim > 2:
        raise ShapeError(f"{name}: input is f32[n, c] or f32[c].{shown(input=x)}")
    x, at, weight, shape = _chosen(name, x, target, weight)
    count = type_of(x).shape[1]
    gap = fnp.add(fnp.subtract(x, fnp.expand_dims(_taken(x, at), 1)), margin)
    costs = fnp.logical_and(
        fnp.greater(gap, 0.0), fnp.not_equal(_classes(count), fnp.expand_dims(at, 1))
    )
    values = fnp.where(costs, gap if p == 1 else fnp.square(gap), 0.0)
    values = fnp.divide(fnp.sum(values, axis=1), float(count))
    if weight is not None:
        values = fnp.multiply(values, fnp.take(weight, at))
    return cast(reduced(name, fnp.reshape(values, shape), reduction), dtype)


def _classes(count: int) -> Any:
    return p.iota_p(shape=(count,), dtype=_INT, axis=0)


def multilabel_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """Returns the mean over classes of `max(0, 1 - x[y] + x[i])`, summed over labels y.

    Args:
        input: f32[n, c] or f32[c].
        target: i64 of that shape: the labels y of each example, up to the first that is -1.
        reduction: "mean", "sum" or "none".
    """
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    x, dtype = wide(input)
    at = as_array(target)
    t = type_of(x)
    if t.shape != type_of(at).shape or t.ndim not in (1, 2):
        raise ShapeError(
            f"{name}: input is f32[n, c] or f32[c], and target has its shape."
            f"{shown(input=x, target=at)}"
        )
    count = t.shape[-1]
    _check_classes(name, at, count, -1)
    is_label = fnp.equal(fnp.cumsum(cast(fnp.less(at, 0), _INT), axis=-1), 0)
    place = p.select_p(is_label, at, 0)
    hits = fnp.equal(fnp.expand_dims(place, -1), _classes(count))
    hits = fnp.logical_and(hits, fnp.expand_dims(is_label, -1))  # [..., label, class]
    scores = fnp.sum(fnp.where(hits, fnp.expand_dims(x, -2), 0.0), axis=-1)
    gap = fnp.add(fnp.subtract(fnp.expand_dims(x, -2), fnp.expand_dims(scores, -1)), 1.0)
    other = fnp.logical_not(fnp.any(hits, axis=-2, keepdims=True))
    costs = fnp.logical_and(
        fnp.logical_and(other, fnp.expand_dims(is_label, -1)), fnp.greater(gap, 0.0)
    )
    values = fnp.divide(fnp.sum(fnp.where(costs, gap, 0.0), axis=(-2, -1)), float(count))
    return cast(reduced(name, values, reduction), dtype)


def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Any:
    """Returns the mean over classes of the binary cross entropies of logits.

    Args:
        input: logits, f32[..., c].
        target: 0 or 1 for each, of that shape.
        weight: of each class; broadcasts.
        reduction: "mean", "sum" or "none".
    """
    name = "multilabel_soft_margin_loss"
    x, dtype = wide(input)
    y = like(target, x)
    if type_of(x).shape != type_of(y).shape:
        raise ShapeError(f"{name}: target has the shape of input.{shown(input=x, target=y)}")
    miss = fnp.add(fnp.multiply(fnp.subtract(1.0, y), x), fnp.softplus(fnp.negative(x)))
    if weight is not None:
        miss = fnp.multiply(miss, like(weight, x))
    return cast(reduced(name, fnp.mean(miss, axis=-1), reduction), dtype)


# ------------------------------------------------------------------------------------- sequences


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
    check_reduction("ctc_loss", reduction)
    logs, dtype = wide(log_probs)
    single = type_of(logs).ndim == 2
    if single:
        logs = p.reshape_p(logs, shape=(type_of(logs).shape[0], 1, type_of(logs).shape[1]))
    t = type_of(logs)
    if t.ndim != 3 or not t.shape[0]:
        raise ShapeError(
            f"ctc_loss: log_probs is f32[t, n, c] or f32[t, c].{shown(log_probs=logs)}"
        )
    _, examples, count = t.shape
    if not 0 <= blank < count:
        raise ArgumentError(f"ctc_loss: there is no label {blank}.{shown(log_probs=logs)}")
    lengths, sizes = (
        fnp.reshape(cast(as_array(v), _INT), (-1,)) for v in (input_lengths, target_lengths)
    )
    if not type_of(lengths).shape == type_of(sizes).shape == (examples,):
        raise ShapeError(
            f"ctc_loss: there is one length for each example."
            f"{shown(log_probs=logs, input_lengths=lengths, target_lengths=sizes)}"
        )
    labels = _labels(targets, target_lengths, examples)
    alphas = _alphas(logs, labels, lengths, sizes, blank)
    last = fnp.multiply(sizes, 2)
    before = p.select_p(p.gt_p(last, 0), p.sub_p(last, 1), 0)
    ends = [_taken(alphas, last), p.select_p(p.gt_p(last, 0), _taken(alphas, before), -math.inf)]
    losses = fnp.negative(fnp.logsumexp(fnp.stack(ends), axis=0))
    if zero_infinity:
        losses = fnp.where(fnp.equal(losses, math.inf), 0.0, losses)
    if reduction == "mean":
        losses = fnp.divide(losses, cast(fnp.maximum(sizes, 1), t.dtype))
    if single and reduction == "none":
        losses = fnp.reshape(losses, ())
    return cast(reduced("ctc_loss", losses, reduction), dtype)


def _labels(targets: Any, sizes: Any, examples: int) -> Any:
    """Returns the labels of each example as a row, i32[n, s]."""
    targets = cast(as_array(targets), _INT)
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
    return fnp.take(targets, np.maximum(at, 0).astype(_INT))


def _alphas(logs: Any, labels: Any, lengths: Any, sizes: Any, blank: int) -> Any:
    """Returns the logarithms of the chances of all beginnings of the labels, f32[n, 2 s + 1].

    Labels stand with a blank in front of, between and behind them. A beginning that ends at place k
    goes on from k, k - 1 and, where k is a label other than the one before, from k - 2.
    """
    t = type_of(logs)
    steps, examples, _ = t.shape
    width = 2 * type_of(labels).shape[1] + 1
    none = p.broadcast_p(p.scalar(blank, _INT), shape=type_of(labels).shape, axes=())
    paired = fnp.reshape(fnp.stack([none, labels], axis=2), (examples, width - 1))
    row = fnp.concatenate([paired, fnp.full((examples, 1), blank, _INT)], axis=1)
    two_before = fnp.concatenate([fnp.full((examples, min(2, width)), blank, _INT), row], axis=1)
    skips = fnp.logical_and(fnp.not_equal(row, blank), fnp.not_equal(row, two_before[:, :width]))
    at = fnp.broadcast_to(fnp.expand_dims(row, 0), (steps, examples, width))
    emitted = fnp.take_along_axis(logs, at, axis=2)
    place = p.iota_p(shape=(examples, width), dtype=_INT, axis=1)
    starts = p.lt_p(place, 2)
    first = p.select_p(starts, fnp.reshape(emitted[:1], (examples, width)), -math.inf)

    def step(skips: Any, lengths: Any, alpha: Any, number: Any, emitted: Any) -> Any:
        lost = [p.pad_p(alpha, low=(0, k), high=(0, -k), interior=(0, 0), value=-math.inf)
                for k in range(1, min(3, width))]  # fmt: skip
        ways = [alpha, *lost[:1], *(p.select_p(skips, x, -math.inf) for x in lost[1:])]
        new = p.add_p(emitted, fnp.logsumexp(fnp.stack(ways), axis=0))
        goes_on = p.broadcast_p(
            p.lt_p(p.broadcast_p(number, shape=(examples,), axes=()), lengths),
            shape=(examples, width),
            axes=(0,),
        )
        return p.select_p(goes_on, new, alpha)

    numbers = p.add_p(p.iota_p(shape=(steps - 1,), dtype=_INT, axis=0), 1)
    later = emitted[1:]
    fixed = [skips, lengths, first]
    kinds = [*map(type_of, fixed), type_of(numbers).update(shape=())]
    kinds.append(type_of(later).update(shape=(examples, width)))
    with building("ctc", [k.update() for k in kinds]) as (frame, given):
        body = finish(frame, [step(*given)])
    (found,) = p.scan_p(
        *fixed, numbers, later, body=body, consts=2, carry=1, length=steps - 1, reverse=False,
        unroll=1,
    )  # fmt: skip
    return found
