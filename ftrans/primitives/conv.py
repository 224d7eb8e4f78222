"""`conv` is the general convolution (correlation) of XLA: x is NC<spatial>, the kernel OI<spatial>.

Along a spatial axis, with strides s, dilations d of x and r of the kernel, and padding (l, h),

    out[n, o, p] = sum_{c, k} x'[n, c, p s + k r - l] kernel[o, c, k],   x'[.., i d] = x[.., i],

with x' zero elsewhere. With feature groups, output features of group g see the input features of
group g; with batch groups, those of group g see the examples of group g. Groups stand in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.axes import moveaxis, transpose_p, zeros
from ftrans.primitives.conv_host import Axes, convolution, dilated, places_of
from ftrans.primitives.family import check_kind, normal, plain, total_bytes
from ftrans.primitives.namespace import unseen
from ftrans.primitives.record import Cost, Linear, Sample
from ftrans.primitives.shape import reshape_p, rev_p


def _infer(
    x: ArrayType, kernel: ArrayType, *, feature_groups: int, batch_groups: int, **spatial: Any
) -> ArrayType:
    check_kind("conv", "iufc", x, kernel)
    shown = f"  x: {x}\n  kernel: {kernel}"
    if x.dtype != kernel.dtype:
        raise DTypeError(
            f"conv: operands have different dtypes.\n{shown}\n"
            f"  Convert one of them first: kernel.astype('{x.dtype.name}')."
        )
    if x.ndim < 2 or kernel.ndim != x.ndim:
        raise ShapeError(f"conv: x is f32[n,c,...], the kernel f32[o,c,...].\n{shown}")
    for name, setting in spatial.items():
        if len(setting) != x.ndim - 2:
            raise ShapeError(
                f"conv: {name} has {len(setting)} entries for {x.ndim - 2} spatial axes.\n{shown}"
            )
        if name != "padding" and any(step < 1 for step in setting):
            raise ShapeError(f"conv: {name} must be positive, not {setting}.\n{shown}")
    if min(feature_groups, batch_groups) != 1 or max(feature_groups, batch_groups) < 1:
        raise ShapeError(
            f"conv: takes feature groups or batch groups, not both.\n{shown}\n"
            f"  feature_groups: {feature_groups}, batch_groups: {batch_groups}"
        )
    (n, c), (o, i) = x.shape[:2], kernel.shape[:2]
    if c != i * feature_groups or o % feature_groups or n % batch_groups or o % batch_groups:
        raise ShapeError(
            f"conv: the features do not fit the kernel.\n{shown}\n"
            f"  feature_groups: {feature_groups}, batch_groups: {batch_groups}\n"
            f"  x has {c} features, the kernel takes {i} in each group and makes {o}."
        )
    places = places_of(x.shape[2:], kernel.shape[2:], **spatial)
    return x.update(shape=(n // batch_groups, o, *places))


def _lower(xp: Any, x: Any, kernel: Any, **params: Any) -> Any:
    if xp is np:
        by_numpy = convolution(type_of(x), type_of(kernel), **params)
        if by_numpy is not None:
            return by_numpy(x, kernel)
        import jax
        from jax import numpy as jnp

        with jax.enable_x64(True):
            return np.asarray(_lower(jnp, unseen(x), unseen(kernel), **params))
    from jax import lax

    return lax.conv_general_dilated(
        x,
        kernel,
        params["strides"],
        params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        feature_group_count=params["feature_groups"],
        batch_group_count=params["batch_groups"],
    )


def _regroup(x: Any, axis: int, groups: int, to: int) -> Any:
    """Moves the number of the group out of `axis`, into the front of the axis `to` of what is left.

    Groups are the slow part of both axes.
    """
    shape = type_of(x).shape
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    moved = moveaxis(reshape_p(x, shape=split), axis, to)
    shape = type_of(moved).shape
    return reshape_p(moved, shape=(*shape[:to], shape[to] * shape[to + 1], *shape[to + 2 :]))


def _swap(x: Any) -> Any:
    return transpose_p(x, permutation=(1, 0, *range(2, type_of(x).ndim)))


# Transposition. Let S, K, P be the sizes of x, kernel and result along a spatial axis, and
# S' = (S-1) d + 1, K' = (K-1) r + 1, P' = (P-1) s + 1 those after dilation.
#
# With respect to x: an element at i = q d gets ct[n, o, p] kernel[o, c, k] from all p, k with
# p s = i + l - k r. With the kernel reversed, k -> K-1-k, this is p s = q d + k r - (K' - 1 - l):
# a convolution of ct, dilated by s, with the reversed kernel, dilated by r, at strides d, padded
# by K' - 1 - l in front, and behind so that there are S results: S' + l - P' makes
# S' = P' + (K' - 1 - l) + (S' + l - P') - K' + 1. Input and output features change places within
# each group. Batch groups become feature groups, since ct has the group in its features.
#
# With respect to the kernel: kernel[o, c, k] gets ct[n, o, p] x'[n, c, p s + k r - l] from all n,
# p: a convolution of x with ct, in which examples and features change places, at strides r and
# with ct dilated by s, padded by l in front, and behind so that there are K results:
# K' = S' + l + (K' + P' - S' - l - 1) - P' + 1. Feature groups of x then sit in its examples,
# and its batch groups in its features.


def _spans(
    x: Axes, kernel: Axes, out: Axes, *, padding: Any, lhs_dilation: Axes, **params: Any
) -> list[tuple[int, ...]]:
    """Returns l, S', K' and P' along each spatial axis, of arrays of these shapes."""
    s = map(dilated, x[2:], lhs_dilation)
    k = map(dilated, kernel[2:], params["rhs_dilation"])
    p = map(dilated, out[2:], params["strides"])
    return list(zip((low for low, _ in padding), s, k, p, strict=True))


def _transpose_x(ct: Any, x: Linear, kernel: Any, **params: Any) -> Any:
    shape, groups = x.type.shape, params["feature_groups"] * params["batch_groups"]
    if 0 in (*shape, *type_of(ct).shape, *type_of(kernel).shape[2:]):
        return zeros(x.type)
    spans = _spans(shape, type_of(kernel).shape, type_of(ct).shape, **params)
    padding = [(k - 1 - low, s + low - p) for low, s, k, p in spans]
    # O, I become I, O within each group: (g o), i -> o, (g i) -> (g i), o
    turned = _swap(kernel if groups == 1 else _regroup(kernel, 0, groups, 1))
    turned = rev_p(turned, axes=tuple(range(2, len(shape))))
    changed = {"strides": params["lhs_dilation"], "lhs_dilation": params["strides"]}
    changed |= {"padding": tuple(padding), "feature_groups": groups, "batch_groups": 1}
    out = conv_p(ct, turned, **params | changed)
    # n, (g c) -> (g n), c
    return out if params["batch_groups"] == 1 else _regroup(out, 1, groups, 0)


def _transpose_kernel(ct: Any, x: Any, kernel: Linear, **params: Any) -> Any:
    shape = type_of(x).shape
    if 0 in (*shape, *type_of(ct).shape, *kernel.type.shape):
        return zeros(kernel.type)
    spans = _spans(shape, kernel.type.shape, type_of(ct).shape, **params)
    padding = [(low, k + p - s - low - 1) for low, s, k, p in spans]
    changed = {"strides": params["rhs_dilation"], "rhs_dilation": params["strides"]}
    groups = {"feature_groups": params["batch_groups"], "batch_groups": params["feature_groups"]}
    out = conv_p(_swap(x), _swap(ct), **params | changed | groups | {"padding": tuple(padding)})
    return _swap(out)


def _batch(size: int, operands: Any, dims: Any, **params: Any) -> tuple[Any, int]:
    x, kernel = operands
    at_x, at_kernel = dims
    features, examples = params["feature_groups"], params["batch_groups"]
    if size == 0:
        types = [
            t if dim is None else t.update(shape=(*t.shape[:dim], *t.shape[dim + 1 :]))
            for t, dim in zip(map(type_of, operands), dims, strict=True)
        ]
        out = _infer(*types, **params)
        return zeros(out.update(shape=(0, *out.shape))), 0
    if at_kernel is None:
        # v examples more in each batch group: v, (g n) -> (g v n); the result has (v n)
        x = _join(moveaxis(x, at_x, 0), examples)
        out = conv_p(x, kernel, **params)
        return _split(out, 0, size, 1), 0
    if at_x is None:
        # v output features more in each group: v, (g o) -> (g v o)
        groups = features * examples
        kernel = _join(moveaxis(kernel, at_kernel, 0), groups)
        return _split(conv_p(x, kernel, **params), 1, size, groups), 0
    kernel = _join(moveaxis(kernel, at_kernel, 0), 1)
    if examples > 1:
        # v times as many batch groups: (v g n), c and (v g o), i give n, (v g o)
        x = _join(moveaxis(x, at_x, 0), 1)
        params["batch_groups"] = size * examples
    else:
        # v times as many feature groups: n, (v g c) and (v g o), i give n, (v g o)
        x = moveaxis(x, at_x, 1)
        shape = type_of(x).shape
        x = reshape_p(x, shape=(shape[0], size * shape[2], *shape[3:]))
        params["feature_groups"] = size * features
    return _split(conv_p(x, kernel, **params), 1, size, 1), 0


def _join(x: Any, groups: int) -> Any:
    """Merges the first axis into the second: v, (g n) -> (g v n)."""
    size, joined, *rest = type_of(x).shape
    x = reshape_p(x, shape=(size, groups, joined // groups, *rest))
    return reshape_p(moveaxis(x, 0, 1), shape=(size * joined, *rest))


def _split(x: Any, axis: int, size: int, groups: int) -> Any:
    """Undoes `_join`: brings v out of (g v n), to the front."""
    shape = type_of(x).shape
    inner = shape[axis] // (groups * size)
    x = reshape_p(x, shape=(*shape[:axis], groups, size, inner, *shape[axis + 1 :]))
    x = moveaxis(x, axis + 1, 0)
    return reshape_p(x, shape=(size, *shape[:axis], groups * inner, *shape[axis + 1 :]))


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    products = results[0].size * math.prod(operands[1].shape[1:])
    return Cost(2 * products, total_bytes(operands, results))


def _params(spatial: int, **changed: Any) -> dict[str, Any]:
    one: Sequence[int] = (1,) * spatial
    plain = {
        "strides": one,
        "padding": ((0, 0),) * spatial,
        "lhs_dilation": one,
        "rhs_dilation": one,
        "feature_groups": 1,
        "batch_groups": 1,
    }
    return plain | changed


def _samples() -> list[Sample]:
    return [
        Sample(
            (normal(2, 4, 5, 4), normal(6, 2, 2, 3)),
            _params(2, strides=(2, 1), padding=((1, 0), (0, 2)), feature_groups=2),
        ),
        Sample(
            (normal(4, 2, 5), normal(2, 2, 2)),
            _params(1, padding=((-1, 2),), lhs_dilation=(2,), batch_groups=2),
        ),
        Sample((normal(2, 3), normal(4, 3)), _params(0)),
        Sample((normal(0, 2, 3), normal(1, 2, 2)), _params(1, rhs_dilation=(2,))),
    ]


conv_p = plain(
    "conv",
    tags=["contraction", "convolution", "multilinear"],
    kinds="iufc",
    infer=_infer,
    lower=_lower,
    host=convolution,
    jvp=[
        lambda t, out, x, kernel, **params: conv_p(t, kernel, **params),
        lambda t, out, x, kernel, **params: conv_p(x, t, **params),
    ],
    transpose=[_transpose_x, _transpose_kernel],
    batch=_batch,
    cost=_cost,
    samples=_samples,
    source="https://openxla.org/xla/operation_semantics#conv_convolution",
)
