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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, DTypeError
from ftrans.interpreters.base import building, finish
from ftrans.ir import ArrayType, Program, type_of
from ftrans.nn import draws
from ftrans.nn.common import shown, wide
from ftrans.nn.dropping import check_probability
from ftrans.nn.heads import arranged, arranged_mask
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.promotion import cast

__all__ = ["scaled_dot_product_attention"]

_INT = np.dtype("int32")


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
    """Returns `softmax(query @ key.T * scale + attn_mask) @ value`.

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

    Returns:
        f32[..., h, n, e].

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
    q, k, v, shape = arranged(q, k, v, enable_gqa)
    mask = arranged_mask(attn_mask, shape, q, k)
    if is_causal and mask is not None:
        raise ArgumentError(
            "scaled_dot_product_attention: takes a mask, or is causal.\n"
            "  To have both, write attn_mask=attn_mask & np.tri(n, m, dtype=bool)."
        )
    check_probability("scaled_dot_product_attention", "dropout_p", dropout_p)
    size = type_of(q).shape[-1]
    factor = (1.0 / math.sqrt(size) if size else 1.0) if scale is None else scale
    q = fnp.multiply(q, factor)
    plan = _Plan(is_causal, float(dropout_p), type_of(k).shape[-2], 0)
    words = None
    if dropout_p:
        words = draws.key_of("scaled_dot_product_attention", dropout_key, rng)
    if chunk is None:
        out = _at_once(q, k, v, mask, words, plan)
    else:
        if not isinstance(chunk, (int, np.integer)) or chunk < 1:
            raise ArgumentError(
                f"scaled_dot_product_attention: chunk is how many keys are taken at a time.\n"
                f"  chunk: {chunk!r}\n  Write chunk=512."
            )
        out = _in_chunks(q, k, v, mask, words, plan._replace(size=int(chunk)))
    return cast(p.reshape_p(out, shape=(*shape[:-1], type_of(v).shape[-1])), dtype)


# -------------------------------------------------------------------------------------- at once


class _Plan(NamedTuple):
    """Is what is known of a call beside its operands.

    Attributes:
        causal: whether a query sees no key after it.
        rate: the probability of dropout.
        keys: how many keys there are.
        size: how many are taken at a time.
    """

    causal: bool
    rate: float
    keys: int
    size: int

    def scores(self, q: Any, k: Any, mask: Any, first: Any = None) -> Any:
        """Returns products with keys, -inf where one is not seen.

        Args:
            q: f32[*b, r, n, d].
            k: f32[*b, c, d].
            mask: broadcasts to f32[*b, r, n, c].
            first: the number of the first of these keys, where they are not all.
        """
        s = _product(q, k, (-1, -1))
        shape = type_of(s).shape
        last = len(shape) - 1
        if mask is not None:
            wide_mask = broadcast_to(mask, shape)
            is_bool = type_of(mask).dtype == np.bool_
            s = p.select_p(wide_mask, s, -math.inf) if is_bool else p.add_p(s, wide_mask)
        seen = None
        column = p.iota_p(shape=shape, dtype=_INT, axis=last)
        if first is not None:
            column = p.add_p(column, p.broadcast_p(first, shape=shape, axes=()))
            if self.keys % self.size:
                seen = p.lt_p(column, self.keys)
        if self.causal:
            row = p.iota_p(shape=shape, dtype=_INT, axis=last - 1)
            before = p.le_p(column, row)
            seen = before if seen is None else p.and_p(seen, before)
        return s if seen is None else p.select_p(seen, s, -math.inf)

    def thinned(self, weights: Any, words: Any) -> Any:
        """Sets weights to zero at random, and scales the others."""
        if words is None:
            return weights
        if self.rate == 1.0:
            return p.mul_p(weights, 0.0)
        kept = draws.bernoulli(words, 1.0 - self.rate, type_of(weights).shape)
        return p.select_p(kept, p.mul_p(weights, 1.0 / (1.0 - self.rate)), 0.0)


def _product(x: Any, y: Any, axes: tuple[int, int]) -> Any:
    """Contracts an axis of x[*b, r, ...] with one of y[*b, ...]."""
    a, b = type_of(x).ndim, type_of(y).ndim
    lead = tuple(range(b - 2))
    pair = ((axes[0] % a,), (axes[1] % b,))
    return p.dot_p(x, y, contract=pair, batch=(lead, lead))


def _joined(x: Any, y: Any) -> Any:
    """Contracts the queries, r and n, of x[*b, r, n, c] and y[*b, r, n, d]."""
    ndim = type_of(x).ndim
    lead, rows = tuple(range(ndim - 3)), (ndim - 3, ndim - 2)
    return p.dot_p(x, y, contract=(rows, rows), batch=(lead, lead))


def _rows(x: Any, like: Any) -> Any:
    """Broadcasts one number for each query, f32[*b, r, n], along the last axis of another."""
    shape = type_of(like).shape
    return p.broadcast_p(x, shape=shape, axes=tuple(range(len(shape) - 1)))


def _finite(top: Any) -> Any:
    """Returns a maximum to subtract: 0 where there is none."""
    return p.select_p(p.is_finite_p(top), top, 0.0)


def _divided(x: Any, total: Any) -> Any:
    """Divides by sums of weights, of which one of nothing counts as 1."""
    return p.mul_p(x, _rows(p.div_p(1.0, _filled(total)), x))


def _filled(total: Any) -> Any:
    return p.select_p(p.eq_p(total, 0.0), 1.0, total)


def _at_once(q: Any, k: Any, v: Any, mask: Any, words: Any, plan: _Plan) -> Any:
    s = plan.scores(q, k, mask)
    last = (type_of(s).ndim - 1,)
    if not plan.keys:
        return _product(s, v, (-1, -2))
    top = _finite(p.stop_gradient_p(p.max_p(s, axes=last)))
    weights = p.exp_p(p.sub_p(s, _rows(top, s)))
    total = p.sum_p(weights, axes=last)
    return _divided(_product(plan.thinned(weights, words), v, (-1, -2)), total)


# ------------------------------------------------------------------------------------- in chunks


def _program(name: str, function: Callable[..., Sequence[Any]], types: Sequence[Any]) -> Program:
    with building(name, [t.update() for t in types]) as (frame, inputs):
        return finish(frame, function(*inputs))


def _blocks(x: Any, axis: int, plan: _Plan) -> Any:
    """Splits an axis of keys into chunks, which stand in front; the last one is filled up."""
    shape = type_of(x).shape
    axis %= len(shape)
    count = -(-plan.keys // plan.size)
    extra = count * plan.size - plan.keys
    if extra:
        none = (0,) * len(shape)
        high = tuple(extra if i == axis else 0 for i in range(len(shape)))
        fill = False if type_of(x).dtype == np.bool_ else 0.0
        x = p.pad_p(x, low=none, high=high, interior=none, value=fill)
    x = p.reshape_p(x, shape=(*shape[:axis], count, plan.size, *shape[axis + 1 :]))
    order = (axis, *(i for i in range(len(shape) + 1) if i != axis))
    return p.transpose_p(x, permutation=order)


def _whole(x: Any, axis: int, plan: _Plan) -> Any:
    """Undoes `_blocks`."""
    shape = type_of(x).shape
    axis %= len(shape) - 1
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    x = p.transpose_p(x, permutation=order)
    shape = type_of(x).shape
    x = p.reshape_p(x, shape=(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
    return fnp.take(x, np.arange(0), axis=axis) if not plan.keys else _cut(x, axis, plan.keys)


def _cut(x: Any, axis: int, size: int) -> Any:
    shape = type_of(x).shape
    stop = (*shape[:axis], size, *shape[axis + 1 :])
    none, one = (0,) * len(shape), (1,) * len(shape)
    return x if stop == shape else p.slice_p(x, start=none, stop=stop, step=one)


def _scanned(
    name: str,
    step: Callable[..., Sequence[Any]],
    fixed: Sequence[Any],
    carry: Sequence[Any],
    k: Any,
    v: Any,
    extra: Sequence[Any],
    plan: _Plan,
) -> list[Any]:
    """Runs `step(fixed, carry, first, mask, words, k, v)` over chunks of keys.

    Args:
        name: of the body.
        step: returns the carry, and what is stacked.
        fixed: what all chunks see.
        carry: what is handed on.
        k: all keys.
        v: all values.
        extra: the mask and the words of keys of random numbers, None for what is not there.
        plan: how large a chunk is.
    """
    mask, words = extra
    count = -(-plan.keys // plan.size)
    firsts = p.mul_p(p.iota_p(shape=(count,), dtype=_INT, axis=0), plan.size)
    stacked = [firsts, _blocks(k, -2, plan), _blocks(v, -2, plan)]
    is_split = mask is not None and type_of(mask).shape[-1] == plan.keys
    constant = [*fixed]
    if mask is not None:
        stacked, constant = (
            ([*stacked, _blocks(mask, -1, plan)], constant)
            if is_split
            else (stacked, [*constant, mask])
        )
    if words is not None:
        stacked.append(words)

    def body(*given: Any) -> Sequence[Any]:
        own = given[: len(constant)]
        state = given[len(constant) : len(constant) + len(carry)]
        first, keys, values, *rest = given[len(constant) + len(carry) :]
        part = None if mask is None else rest.pop(0) if is_split else own[-1]
        return step(own[: len(fixed)], state, first, part, rest[0] if rest else None, keys, values)

    elements = [t.update(shape=t.shape[1:]) for t in map(type_of, stacked)]
    types = [*map(type_of, (*constant, *carry)), *elements]
    program = _program(name, body, types)
    return p.scan_p(
        *constant,
        *carry,
        *stacked,
        body=program,
        consts=len(constant),
        carry=len(carry),
        length=count,
        reverse=False,
        unroll=1,
    )


def _constant(value: float, t: ArrayType) -> Any:
    return p.broadcast_p(p.scalar(value, t.dtype), shape=t.shape, axes=())


def _in_chunks(q: Any, k: Any, v: Any, mask: Any, words: Any, plan: _Plan) -> Any:
    """Is `_at_once` by a rule of its own, for chunks of keys."""
    if not plan.keys:
        return _at_once(q, k, v, mask, words, plan)
    operands = [q, k, v]
    if mask is not None:
        operands.append(mask)
    if words is not None:
        operands.append(draws.split(words, -(-plan.keys // plan.size)))
    places = 3, 3 + (mask is not None)
    t = type_of(q)
    rows = t.update(shape=t.shape[:-1])
    result = t.update(shape=(*t.shape[:-1], type_of(v).shape[-1]))

    def extra(given: Sequence[Any]) -> tuple[Any, Any]:
        return (
            None if mask is None else given[places[0]],
            None if words is None else given[places[1]],
        )

    def forward(*given: Any) -> list[Any]:
        q, k, v = given[:3]
        carry = [_constant(-math.inf, rows), _constant(0.0, rows), _constant(0.0, result)]
        more = extra(given)
        top, total, out = _scanned("attention", _forward_step(plan), [q], carry, k, v, more, plan)
        logarithm = p.add_p(_finite(top), p.log_p(_filled(total)))
        return [_divided(out, total), logarithm]

    def backward(ct: Any, *given: Any) -> list[Any]:
        (q, k, v), (out, logarithm) = given[:3], given[-2:]
        delta = p.sum_p(p.mul_p(ct, out), axes=(type_of(out).ndim - 1,))
        mask_here, _ = more = extra(given)
        step = _backward_step(plan, mask_here)
        found = _scanned(
            "attention_ct", step, [q, ct, delta, logarithm], [_constant(0.0, t)], k, v, more, plan
        )
        cts = [found[0], *(_whole(x, -2, plan) for x in found[1:3])]
        if mask_here is not None and type_of(mask_here).is_inexact:
            shape = type_of(mask_here).shape
            cts.append(
                _whole(found[3], -1, plan)
                if shape[-1] == plan.keys
                else p.sum_p(found[3], axes=(0,))
            )
        return cts

    types = [type_of(x).update() for x in operands]
    forwards = _program("attention", forward, types)
    saved = [*forwards.output_types]
    pulled = [("operand", i) for i in range(len(operands))] + [("result", 0), ("saved", 0)]
    spec = p.Spec(
        "scaled_dot_product_attention",
        len(operands),
        (True,),
        gives=tuple(t.is_inexact for t in types),
        pulled=tuple(pulled),
    )
    (out,) = p.custom_p(
        *operands,
        forward=forwards,
        backward=_program("attention_ct", backward, [result, *types, *saved]),
        forward_mode=None,
        variants=(),
        spec=spec,
        saved=False,
    )
    return out


def _forward_step(plan: _Plan) -> Callable[..., list[Any]]:
    def step(
        fixed: Any, carry: Any, first: Any, mask: Any, words: Any, k: Any, v: Any
    ) -> list[Any]:
        top, total, out = carry
        s = plan.scores(fixed[0], k, mask, first)
        last = (type_of(s).ndim - 1,)
        new = p.maximum_p(top, p.max_p(s, axes=last))
        shift = _finite(new)
        weights = p.exp_p(p.sub_p(s, _rows(shift, s)))
        kept = p.exp_p(p.sub_p(top, shift))
        seen = _product(plan.thinned(weights, words), v, (-1, -2))
        total = p.add_p(p.mul_p(total, kept), p.sum_p(weights, axes=last))
        return [new, total, p.add_p(p.mul_p(out, _rows(kept, out)), seen)]

    return step


def _backward_step(plan: _Plan, whole_mask: Any) -> Callable[..., list[Any]]:
    def step(
        fixed: Any, carry: Any, first: Any, mask: Any, words: Any, k: Any, v: Any
    ) -> list[Any]:
        q, ct, delta, logarithm = fixed
        s = plan.scores(q, k, mask, first)
        weights = p.exp_p(p.sub_p(s, _rows(logarithm, s)))
        slope = plan.thinned(_product(ct, v, (-1, -1)), words)
        ds = p.mul_p(weights, p.sub_p(slope, _rows(delta, s)))
        found = [p.add_p(carry[0], _product(ds, k, (-1, -2)))]
        found += [_joined(ds, q), _joined(plan.thinned(weights, words), ct)]
        if mask is not None and type_of(mask).is_inexact:
            found.append(_summed(ds, type_of(mask).shape))
        return found

    return step


def _summed(x: Any, shape: tuple[int, ...]) -> Any:
    """Sums over the axes along which a mask of some shape was broadcast."""
    axes = tuple(i for i, (n, m) in enumerate(zip(type_of(x).shape, shape, strict=True)) if n != m)
    return p.reshape_p(p.sum_p(x, axes=axes), shape=shape) if axes else x
