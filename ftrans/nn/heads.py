"""Brings the operands of attention to q[*b, r, n, d], k[*b, m, d], v[*b, m, e], and masks to fit.

r queries share each head of keys and values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans import primitives as p
from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import type_of
from ftrans.nn.common import shown
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.promotion import as_array, cast


def arranged(q: Any, k: Any, v: Any, grouped: bool) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Returns operands with equal axes in front, and the shape of scores, [..., h, n, m]."""
    a, b, c = (type_of(x).shape for x in (q, k, v))
    lines = shown(query=q, key=k, value=v)
    if min(len(a), len(b), len(c)) < 2 + grouped or a[-1] != b[-1] or b[-2] != c[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: operands do not fit each other.{lines}\n"
            f"  They are f32[..., h, n, d], f32[..., h, m, d] and f32[..., h, m, e]."
        )
    shared = 1
    if grouped:
        heads = b[-3]
        if c[-3] != heads or not heads or a[-3] % heads:
            raise ShapeError(
                f"scaled_dot_product_attention: query does not have a multiple of the heads of "
                f"key and value.{lines}\n  heads: {a[-3]}, {heads} and {c[-3]}"
            )
        shared = a[-3] // heads
        q = p.reshape_p(q, shape=(*a[:-3], heads, shared, *a[-2:]))
    else:
        q = p.reshape_p(q, shape=(*a[:-2], 1, *a[-2:]))
    front = type_of(q).shape[:-3]
    try:
        lead = np.broadcast_shapes(front, b[:-2], c[:-2])
    except ValueError:
        raise ShapeError(
            f"scaled_dot_product_attention: the axes in front do not broadcast.{lines}\n"
            f"  For fewer heads of key and value than of query, pass enable_gqa=True."
        ) from None
    q = broadcast_to(q, (*lead, *type_of(q).shape[-3:]))
    k, v = (broadcast_to(x, (*lead, *type_of(x).shape[-2:])) for x in (k, v))
    before = (*lead[:-1], lead[-1] * shared) if grouped else lead
    return q, k, v, (*before, a[-2], b[-2])


def arranged_mask(mask: Any, shape: tuple[int, ...], q: Any, k: Any) -> Any:
    """Returns a mask of the rank of scores, with size 1 where it is broadcast."""
    if mask is None:
        return None
    mask = as_array(mask)
    t = type_of(mask)
    own = (1,) * (len(shape) - t.ndim) + t.shape
    if len(own) != len(shape) or any(n not in (1, m) for n, m in zip(own, shape, strict=True)):
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
    if shared > 1 and own[-3] > 1:
        split = (*own[:-3], lead[-1], shared, *own[-2:])
    else:
        split = (*own[:-2], 1, *own[-2:])
    return p.reshape_p(mask, shape=split)
