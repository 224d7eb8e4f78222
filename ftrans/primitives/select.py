"""Choosing, converting and cutting: select, clamp, convert, stop_gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import is_complex, is_inexact
from ftrans.primitives.elementwise import common_type, elementwise
from ftrans.primitives.family import normal
from ftrans.primitives.logic import gt_p, lt_p
from ftrans.primitives.namespace import by_lax, held_as
from ftrans.primitives.record import Joint, Linear, New, Sample, scalar, zero

__all__ = ["convert_p", "select_p", "stop_gradient_p"]


# ------------------------------------------------------------------------------------- select


def _select_infer(mask: ArrayType, x: ArrayType, y: ArrayType) -> ArrayType:
    if mask.dtype != bool:
        raise DTypeError(f"select: the first operand is {mask}; it must be bool.")
    t = common_type("select", [x, y])
    if x.weak and y.weak:
        return t.update(shape=mask.shape)
    common_type("select", [mask, t.update(dtype=np.bool_)])
    return t


def _select_jvp(tangents: Any, out: Any, mask: Any, x: Any, y: Any) -> Any:
    _, tx, ty = tangents
    t = type_of(tx if tx is not None else ty)
    filler = scalar(0, t.dtype)
    return select_p(mask, filler if tx is None else tx, filler if ty is None else ty)


def _select_transpose(ct: Any, mask: Any, x: Any, y: Any) -> list[Any]:
    nothing = scalar(0, type_of(ct).dtype)
    return [
        None,
        select_p(mask, ct, nothing) if isinstance(x, Linear) else None,
        select_p(mask, nothing, ct) if isinstance(y, Linear) else None,
    ]


def _select_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    mask, x, y = operands
    if x == y and scope.type(x) is types[0]:
        return x
    known = scope.fill(mask)
    if known is not None:
        chosen = x if known.value else y
        return chosen if scope.type(chosen) is types[0] else None
    # what the same mask chose before is known
    first, second = _chosen(scope, mask, x, 1), _chosen(scope, mask, y, 2)
    return New(select_p, (mask, first, second), {}) if first != x or second != y else None


def _chosen(scope: Any, mask: Any, atom: Any, operand: int) -> Any:
    """Returns an operand of the `select` that an atom is, if that has this mask; else the atom."""
    inner = scope.definition(atom)
    if inner and inner.primitive is select_p and inner.operands[0] == mask:
        return inner.operands[operand]
    return atom


_pick = np.array([True, False, True])

select_p = elementwise(
    "select",
    kinds="biufc",
    lower=lambda xp, mask, x, y: xp.where(mask, x, y),
    jvp=Joint(_select_jvp),
    arity=3,
    transpose=Joint(_select_transpose),
    infer=_select_infer,
    rewrite=_select_rewrite,
    tags=["linear", "select"],
    samples=[
        Sample((_pick, normal(3), normal(3, seed=1))),
        Sample((np.bool_(True), normal(), normal(seed=1))),
        Sample((np.zeros((0, 2), bool), normal(0, 2), normal(0, 2))),
    ],
)


# ------------------------------------------------------------------------------------ convert


def _convert_lower(xp: Any, x: Any, *, dtype: np.dtype) -> Any:
    if is_complex(x.dtype) and not is_complex(dtype):
        x = x != 0 if dtype.kind == "b" else x.real
    x = xp.asarray(x)
    # XLA takes what an integer cannot hold for the nearest one that it can, and NaN for 0
    if xp is np and dtype.kind in "iu" and x.dtype.kind not in "biu":
        return _saturated(x, dtype)
    return x.astype(held_as(xp, dtype))


def _saturated(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Casts floats to integers; what is out of range becomes the least or the greatest of them."""
    bounds = np.iinfo(dtype)
    low, high = float(bounds.min), float(bounds.max) + (dtype.itemsize < 8)
    with np.errstate(all="ignore"):
        out = x.astype(dtype)
        # the greatest of 64 bits is no float: it is rounded up, so that high is the first too large
        if x.size and not (x.min() > low - 1 and x.max() < high):
            out = np.where(x >= high, bounds.max, np.where(x > low - 1, out, bounds.min))
            out = np.where(x == x, out, 0).astype(dtype)
    return out


def _convert_jvp(t: Any, out: Any, x: Any, *, dtype: np.dtype) -> Any:
    return convert_p(t, dtype=dtype) if is_inexact(dtype) else None


def _convert_transpose(ct: Any, x: Linear, *, dtype: np.dtype) -> Any:
    # complex to real takes the real part, the transpose of real to complex
    return convert_p(ct, dtype=x.type.dtype)


def _convert_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    return operands[0] if scope.type(operands[0]) is types[0] else None


convert_p = elementwise(
    "convert",
    kinds="biufc",
    lower=_convert_lower,
    jvp=[_convert_jvp],
    transpose=[_convert_transpose],
    infer=lambda x, *, dtype: x.update(dtype=dtype),
    rewrite=_convert_rewrite,
    tags=["linear"],
    samples=[
        Sample((normal(3),), {"dtype": np.dtype("float32")}, smooth=False),
        Sample((normal(3),), {"dtype": np.dtype("float64")}),
        Sample((normal(2),), {"dtype": np.dtype("complex128")}),
        Sample((normal(3) * 5,), {"dtype": np.dtype("int32")}, smooth=False),
        Sample((normal(3),), {"dtype": np.dtype("bool")}, smooth=False),
    ],
)


# ------------------------------------------------------------------------------ stop_gradient

stop_gradient_p = elementwise(
    "stop_gradient",
    kinds="biufc",
    # JAX may be differentiating
    lower=lambda xp, x: x if xp is np else by_lax(xp, "stop_gradient", x),
    jvp=[zero],
    tags=["stop"],
)


def clamp_index(index: Any, count: int) -> Any:
    """Clamps an integer operand to 0 ... count - 1."""
    t = type_of(index)
    low = select_p(lt_p(index, 0), scalar(0, t.dtype), index)
    return select_p(gt_p(low, count - 1), scalar(count - 1, t.dtype), low)
