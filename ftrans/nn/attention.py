"""Attention: each query's average of values, weighted by a softmax of products with keys.

Operands are brought to q[*b, r, n, d], k[*b, m, d], v[*b, m, e]: r queries share each head of keys.
With scores s = q k and a mask, o = sum_j exp(s_j - l) v_j, where l is the logarithm of the sum of
exp(s). In chunks, s is made for c keys at a time, forwards by the running maximum (see [1]), and
again backwards, from o and l alone: with P = exp(s - l), D = sum(ct * o) and dP = ct v,

    ct_v = P ct,   ds = P * (dP - D),   ct_q = ds k,   ct_k = ds q.

So what is kept grows as n + m, and what is made at a time as n c. [1]: https://arxiv.org/abs/2205.14135
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans import random
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import INT, fits, padded, program, shown, wide
from ftrans.nn.dropping import bernoulli, check_probability, key_of
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.promotion import as_array, cast, filled

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    chunk: int | None = None,
    dropout_key: Any = None,
    rng: Any = None,
) -> Any:
    """Returns `softmax(query @ key.T * scale + attn_mask) @ value`, f32[..., h, n, e].

    A query that may see no key at all gets zeros.

    Args:
        query: f32[..., h, n, d].
        key: f32[..., h, m, d].
        value: f32[..., h, m, e].
        attn_mask: broadcasts to [..., h, n, m]: booleans, True where a key is seen, or numbers that
            are added.
        dropout_p: the probability by which weights are set to zero.
        is_causal: whether query i sees the keys up to i alone.
        scale: the factor; None is 1 / sqrt(d).
        enable_gqa: whether query has a multiple of the heads of key and value, and several of its
            heads that follow each other share one of theirs.
        chunk: how many keys to take at a time. Memory then grows with the length, not with its
            square, and the derivative computes the weights again; None takes all at once.
        dropout_key: a key of random numbers, for dropout.
        rng: a generator of such keys; with neither it is the default one.

    Example:
        >>> q, k, v = np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [3.0]])
        >>> scaled_dot_product_attention(q, k, v)
        array([[2.]])

    Reference:
        https://arxiv.org/abs/1706.03762
    """
    (q, dtype), (k, other), (v, third) = map(wide, (query, key, value))
    if not dtype == other == third:
        raise DTypeError(
            f"scaled_dot_product_attention: operands have different dtypes."
            f"{shown(query=query, key=key, value=value)}\n  Convert them to one dtype first."
        )
    q, k, v, shape = _arranged(q, k, v, enable_gqa)
    mask = _arranged_mask(attn_mask, shape, q)
    if is_causal and mask is not None:
        raise ArgumentError(
            "scaled_dot_product_attention: takes a mask, or is causal.\n"
            "  To have both, write attn_mask=attn_mask & np.tri(n, m, dtype=bool)."
        )
    check_probability("scaled_dot_product_attention", "dropout_p", dropout_p)
    size = type_of(q).shape[-1]
    factor = (1.0 / math.sqrt(size) if size else 1.0) if scale is None else scale
    plan = _Plan(is_causal, float(dropout_p), type_of(k).shape[-2], mask is not None)
    words = key_of("scaled_dot_product_attention", dropout_key, rng) if dropout_p else None
    if chunk is None:
        out = _at_once(q * factor, k, v, mask, words, plan)
    elif isinstance(chunk, (int, np.integer)) and chunk > 0:
        out = _in_chunks(q * factor, k, v, mask, words, plan._replace(size=int(chunk)))
    else:
        raise ArgumentError(
            f"scaled_dot_product_attention: chunk is how many keys are taken at a time.\n"
            f"  chunk: {chunk!r}\n  Write chunk=512."
        )
    return cast(p.reshape_p(out, shape=(*shape[:-1], type_of(v).shape[-1])), dtype)


# -------------------------------------------------------------------------------------- operands


def _arranged(q: Any, k: Any, v: Any, grouped: bool) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Returns operands with equal axes in front, and the shape of scores, [..., h, n, m]."""
    a, b, c = (type_of(x).shape for x in (q, k, v))
    lines = shown(query=q, key=k, value=v)
    if min(len(a), len(b), len(c)) < 2 + grouped or a[-1] != b[-1] or b[-2] != c[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: operands do not fit each other.{lines}\n"
            f"  They are f32[..., h, n, d], f32[..., h, m, d] and f32[..., h, m, e]."
        )
    split = (*a[:-2], 1)
    if grouped:
        heads = b[-3]
        if c[-3] != heads or not heads or a[-3] % heads:
            raise ShapeError(
                f"scaled_dot_product_attention: query does not have a multiple of the heads of "
                f"key and value.{lines}\n  heads: {a[-3]}, {heads} and {c[-3]}"
            )
        split = (*a[:-3], heads, a[-3] // heads)
    q = p.reshape_p(q, shape=(*split, *a[-2:]))
    try:
        lead = np.broadcast_shapes(split[:-1], b[:-2], c[:-2])
    except ValueError:
        raise ShapeError(
            f"scaled_dot_product_attention: the axes in front do not broadcast.{lines}\n"
            f"  For fewer heads of key and value than of query, pass enable_gqa=True."
        ) from None
    q = broadcast_to(q, (*lead, *type_of(q).shape[-3:]))
    k, v = (broadcast_to(x, (*lead, *type_of(x).shape[-2:])) for x in (k, v))
    before = (*lead[:-1], lead[-1] * split[-1]) if grouped else lead
    return q, k, v, (*before, a[-2], b[-2])


def _arranged_mask(mask: Any, shape: tuple[int, ...], q: Any) -> Any:
    """Returns a mask of the rank of scores, with size 1 where it is broadcast."""
    if mask is None:
        return None
    mask = as_array(mask)
    t = type_of(mask)
    own = (1,) * (len(shape) - t.ndim) + t.shape
    if not fits(own, shape):
        raise ShapeError(
            f"scaled_dot_product_attention: attn_mask does not broadcast to the scores.\n"
            f"  attn_mask: {t}\n  scores: {list(shape)}, as [..., h, n, m]"
        )
    if t.dtype != np.bool_:
        if t.dtype.kind in "iu":
            raise DTypeError(
                f"scaled_dot_product_attention: attn_mask is of booleans, or of floats that are "
                f"added.\n  attn_mask: {t}\n  Write attn_mask != 0."
            )
        mask = cast(mask, type_of(q).dtype)
    lead, shared = type_of(q).shape[:-3], type_of(q).shape[-3]
    heads = (lead[-1], shared) if shared > 1 and own[-3] > 1 else (*own[-3:-2], 1)
    return p.reshape_p(mask, shape=(*own[:-3], *heads, *own[-2:]))


# -------------------------------------------------------------------------------------- at once


class _Plan(NamedTuple):
    """Is what is known of a call beside its operands; `size` keys are taken at a time."""

    causal: bool
    rate: float
    keys: int
    masked: bool
    size: int = 1

    def scores(self, q: Any, k: Any, mask: Any, first: Any = None) -> Any:
        """Returns products with keys, f32[*b, r, n, c], -inf where one is not seen.

        Where these are not all keys, `first` is the number of the first.
        """
        s = _product(q, k, (-1,), (-1,))
        shape = type_of(s).shape
        if mask is not None and type_of(mask).dtype == np.bool_:
            s = fnp.where(mask, s, -math.inf)
        elif mask is not None:
            s = s + mask
        column = p.iota_p(shape=shape[-1:], dtype=INT, axis=0)
        if first is not None:
            column = column + first
            if self.keys % self.size:
                s = fnp.where(column < self.keys, s, -math.inf)
        if self.causal:
            row = p.iota_p(shape=(shape[-2], 1), dtype=INT, axis=0)
            s = fnp.where(column <= row, s, -math.inf)
        return s

    def thinned(self, weights: Any, words: Any) -> Any:
        """Sets weights to zero at random, and scales the others."""
        if words is None:
            return weights
        if self.rate == 1.0:
            return weights * 0.0
        kept = bernoulli(words, 1.0 - self.rate, type_of(weights).shape)
        return fnp.where(kept, weights * (1.0 / (1.0 - self.rate)), 0.0)


def _product(x: Any, y: Any, first: tuple[int, ...], second: tuple[int, ...]) -> Any:
    """Contracts some of the last axes of x[*b, r, n, ...] and of y, whose first are *b, too."""
    lead = tuple(range(type_of(x).ndim - 3))
    pairs = ((x, first), (y, second))
    contract = tuple(tuple(axis % type_of(v).ndim for axis in axes) for v, axes in pairs)
    return p.dot_p(x, y, contract=contract, batch=(lead, lead))


def _column(x: Any) -> Any:
    """Returns one number for each query, f32[*b, r, n], so that it broadcasts along a last axis."""
    return p.reshape_p(x, shape=(*type_of(x).shape, 1))


def _finite(top: Any) -> Any:
    """Returns a maximum to subtract: 0 where there is none."""
    return p.select_p(p.is_finite_p(top), top, 0.0)


def _filled(total: Any) -> Any:
    """Returns sums of weights, of which one of nothing counts as 1."""
    return fnp.where(total == 0.0, 1.0, total)


def _at_once(q: Any, k: Any, v: Any, mask: Any, words: Any, plan: _Plan) -> Any:
    s = plan.scores(q, k, mask)
    last = (type_of(s).ndim - 1,)
    if not plan.keys:
        return _product(s, v, (-1,), (-2,))
    top = _finite(p.stop_gradient_p(p.max_p(s, axes=last)))
    weights = fnp.exp(s - _column(top))
    total = p.sum_p(weights, axes=last)
    return _product(plan.thinned(weights, words), v, (-1,), (-2,)) * _column(1.0 / _filled(total))


# ------------------------------------------------------------------------------------- in chunks


def _blocks(x: Any, axis: int, plan: _Plan) -> Any:
    """Splits an axis of keys into chunks, which stand in front; the last one is filled up."""
    shape = type_of(x).shape
    axis %= len(shape)
    count = -(-plan.keys // plan.size)
    if shape[axis] != plan.keys:  # it is the same for all keys
        return broadcast_to(x, (count, *shape))
    fill = False if type_of(x).dtype == np.bool_ else 0.0
    x = padded(x, axis, 0, count * plan.size - plan.keys, fill)
    x = p.reshape_p(x, shape=(*shape[:axis], count, plan.size, *shape[axis + 1 :]))
    return fnp.moveaxis(x, axis, 0)


def _whole(x: Any, axis: int, plan: _Plan) -> Any:
    """Undoes `_blocks`, where there was an axis of keys."""
    axis %= type_of(x).ndim - 1
    x = fnp.moveaxis(x, 0, axis)
    shape = type_of(x).shape
    count = shape[axis] * shape[axis + 1]
    x = p.reshape_p(x, shape=(*shape[:axis], count, *shape[axis + 2 :]))
    return padded(x, axis, 0, plan.keys - count, 0.0)


def _scanned(
    plan: _Plan, step: Any, fixed: Sequence[Any], carry: Sequence[Any], operands: Sequence[Any]
) -> list[Any]:
    """Runs `step(plan, fixed, carry, first, k, v, mask, words)` over chunks of keys.

    It returns the carry, and what is stacked. Of the operands keys, values and a mask are split.
    """
    count = -(-plan.keys // plan.size)
    stacked = [p.iota_p(shape=(count,), dtype=INT, axis=0) * plan.size]
    stacked += [_blocks(x, axis, plan) for x, axis in zip(operands, (-2, -2, -1), strict=False)]
    stacked += operands[2 + plan.masked :]
    first, last = len(fixed), len(fixed) + len(carry)

    def body(*given: Any) -> Sequence[Any]:
        number, k, v, *more = given[last:]
        mask, words = more[0] if plan.masked else None, more[-1] if plan.rate else None
        return step(plan, given[:first], given[first:last], number, k, v, mask, words)

    elements = [t.update(shape=t.shape[1:]) for t in map(type_of, stacked)]
    return p.scan_p(
        *fixed,
        *carry,
        *stacked,
        body=program("attention", body, [*map(type_of, (*fixed, *carry)), *elements]),
        consts=first,
        carry=len(carry),
        length=count,
        reverse=False,
        unroll=1,
    )


def _in_chunks(q: Any, k: Any, v: Any, mask: Any, words: Any, plan: _Plan) -> Any:
    """Is `_at_once` by a rule of its own, for chunks of keys."""
    if not plan.keys:
        return _at_once(q, k, v, mask, words, plan)
    operands = [q, k, v, *([mask] if plan.masked else [])]
    if words is not None:
        operands.append(random.split(words, -(-plan.keys // plan.size)))
    t = type_of(q)
    rows, result = t.shape[:-1], (*t.shape[:-1], type_of(v).shape[-1])

    def forward(q: Any, *others: Any) -> list[Any]:
        carry = [filled(n, s, t.dtype) for n, s in ((-math.inf, rows), (0.0, rows), (0.0, result))]
        top, total, out = _scanned(plan, _forward_step, [q], carry, others)
        total = _filled(total)
        return [out * _column(1.0 / total), _finite(top) + fnp.log(total)]

    def backward(ct: Any, q: Any, *given: Any) -> list[Any]:
        *others, out, logarithm = given
        delta = p.sum_p(ct * out, axes=(type_of(out).ndim - 1,))
        fixed, carry = [q, ct, delta, logarithm], [filled(0.0, t.shape, t.dtype)]
        found, k, v, *mask = _scanned(plan, _backward_step, fixed, carry, others)
        cts = [found, _whole(k, -2, plan), _whole(v, -2, plan)]
        if mask:
            is_split = type_of(others[2]).shape[-1] == plan.keys
            cts.append(_whole(mask[0], -1, plan) if is_split else p.sum_p(mask[0], axes=(0,)))
        return cts

    types = [type_of(x).update() for x in operands]
    forwards = program("attention", forward, types)
    given = [t.update(shape=result), *types, *forwards.output_types]
    (out,) = p.custom_p(
        *operands,
        forward=forwards,
        backward=program("attention_ct", backward, given),
        forward_mode=None,
        variants=(),
        spec=p.Spec(
            "scaled_dot_product_attention",
            len(operands),
            (True,),
            gives=tuple(t.is_inexact for t in types),
            pulled=(*(("operand", i) for i in range(len(operands))), ("result", 0), ("saved", 0)),
        ),
        saved=False,
    )
    return out


def _forward_step(
    plan: _Plan, fixed: Any, carry: Any, first: Any, k: Any, v: Any, mask: Any, words: Any
) -> list[Any]:
    top, total, out = carry
    s = plan.scores(fixed[0], k, mask, first)
    last = (type_of(s).ndim - 1,)
    new = fnp.maximum(top, p.max_p(s, axes=last))
    shift = _finite(new)
    weights, kept = fnp.exp(s - _column(shift)), fnp.exp(top - shift)
    seen = _product(plan.thinned(weights, words), v, (-1,), (-2,))
    return [new, total * kept + p.sum_p(weights, axes=last), out * _column(kept) + seen]


def _backward_step(
    plan: _Plan, fixed: Any, carry: Any, first: Any, k: Any, v: Any, mask: Any, words: Any
) -> list[Any]:
    q, ct, delta, logarithm = fixed
    s = plan.scores(q, k, mask, first)
    weights = fnp.exp(s - _column(logarithm))
    slope = plan.thinned(_product(ct, v, (-1,), (-1,)), words)
    ds = weights * (slope - _column(delta))
    ct_q, ct_k = carry[0] + _product(ds, k, (-1,), (-2,)), _product(ds, q, (-3, -2), (-3, -2))
    found = [ct_q, ct_k, _product(plan.thinned(weights, words), ct, (-3, -2), (-3, -2))]
    if mask is not None and type_of(mask).is_inexact:
        # summed over the axes along which it was broadcast
        shape = type_of(mask).shape
        axes = tuple(i for i, n in enumerate(type_of(ds).shape) if n != shape[i])
        found.append(fnp.sum(ds, axis=axes, keepdims=True) if axes else ds)
    return found
