"""The parts of complex numbers, and complex numbers from their parts.

These maps are linear over the reals. Transposition is plain: it keeps the pairing Re(a * b).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import complex_of, is_complex, real_of
from ftrans.primitives.arithmetic import neg_p
from ftrans.primitives.elementwise import common_type, elementwise
from ftrans.primitives.family import normal
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import LINEAR, Joint, New, Sample

__all__ = ["complex_p", "conj_p", "imag_p", "real_p"]


def _real_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    inner = scope.definition(operands[0])
    if inner and inner.primitive is complex_p and scope.type(inner.operands[0]) is types[0]:
        return inner.operands[0]
    if inner and inner.primitive is conj_p:
        return New(real_p, inner.operands, {})
    return None


def _imag_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    inner = scope.definition(operands[0])
    if inner and inner.primitive is complex_p and scope.type(inner.operands[1]) is types[0]:
        return inner.operands[1]
    return None


def _complex_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, y = (scope.definition(operand) for operand in operands)
    if x and y and x.primitive is real_p and y.primitive is imag_p and x.operands == y.operands:
        return x.operands[0]
    return None


def _complex_infer(*types: ArrayType) -> ArrayType:
    t = common_type("complex", types)
    if t.dtype not in (np.float32, np.float64):
        raise DTypeError(f"complex: takes float32 or float64 arrays.\n  operand: {t}")
    return t.update(dtype=complex_of(t.dtype))


def _complex_lower(xp: Any, x: Any, y: Any) -> Any:
    if xp is not np:
        return by_lax(xp, "complex", x, y)
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), complex_of(x.dtype))
    out.real, out.imag = x, y
    return out


def _complex_jvp(tangents: Any, out: Any, x: Any, y: Any) -> Any:
    real, imag = tangents
    return complex_p(0.0 if real is None else real, 0.0 if imag is None else imag)


real_p = elementwise(
    "real",
    kinds="c",
    arity=1,
    dtype=real_of,
    lower=lambda xp, x: xp.real(x),
    jvp=LINEAR,
    transpose=[lambda ct, x: complex_p(ct, 0.0)],
    rewrite=_real_rewrite,
    tags=["linear"],
)

imag_p = elementwise(
    "imag",
    kinds="c",
    arity=1,
    dtype=real_of,
    lower=lambda xp, x: xp.imag(x),
    jvp=LINEAR,
    transpose=[lambda ct, x: complex_p(0.0, neg_p(ct))],
    rewrite=_imag_rewrite,
    tags=["linear"],
)

conj_p = elementwise(
    "conj",
    kinds="c",
    arity=1,
    lower=lambda xp, x: xp.conj(x),
    jvp=LINEAR,
    transpose=[lambda ct, x: conj_p(ct)],
    tags=["linear", "involution"],
)


def conjugate(x: Any) -> Any:
    """Returns the conjugate of a value; None, for zero, and what is real stay as they are."""
    return conj_p(x) if x is not None and is_complex(type_of(x).dtype) else x


complex_p = elementwise(
    "complex",
    kinds="",
    arity=2,
    infer=_complex_infer,
    lower=_complex_lower,
    jvp=Joint(_complex_jvp),
    transpose=[lambda ct, x, y: real_p(ct), lambda ct, x, y: neg_p(imag_p(ct))],
    rewrite=_complex_rewrite,
    tags=["linear"],
    samples=[
        Sample((normal(2, 3), normal(2, 3, seed=1))),
        Sample((normal(3).astype("f4"), normal(3, seed=1).astype("f4")), smooth=False),
        Sample((np.array([np.inf, -0.0]), np.array([-0.0, np.nan])), smooth=False),
        Sample((normal(), normal(seed=1))),
        Sample((normal(0, 2), normal(0, 2))),
    ],
)
