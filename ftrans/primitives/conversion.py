"""Converting: to other dtypes, to what has no derivative, and complex numbers to parts and back.

But for `stop_gradient` these maps are linear over the reals. Transposition is plain: it keeps the
pairing Re(a * b).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import complex_of, is_complex, is_inexact, real_of
from ftrans.primitives.arithmetic import neg_p
from ftrans.primitives.axes import zeros
from ftrans.primitives.elementwise import align, common_type, elementwise
from ftrans.primitives.family import normal, structural
from ftrans.primitives.namespace import by_lax, held_as, is_traced_by_jax
from ftrans.primitives.record import (
    LINEAR,
    Absent,
    Joint,
    Linear,
    New,
    Recursive,
    Sample,
    zero,
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


def _convert_host(t: ArrayType, *, dtype: np.dtype) -> Callable[[Any], Any] | None:
    saturates = dtype.kind in "iu" and t.dtype.kind not in "biu"
    if saturates or (is_complex(t.dtype) and not is_complex(dtype)):
        return None
    return operator.methodcaller("astype", dtype)


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


convert_p = elementwise(
    "convert",
    kinds="biufc",
    lower=_convert_lower,
    host=_convert_host,
    jvp=[lambda t, out, x, *, dtype: convert_p(t, dtype=dtype) if is_inexact(dtype) else None],
    # complex to real takes the real part, the transpose of real to complex
    transpose=[lambda ct, x, *, dtype: convert_p(ct, dtype=x.type.dtype)],
    infer=lambda x, *, dtype: x.update(dtype=dtype),
    rewrite=lambda scope, xs, types, params: xs[0] if scope.type(xs[0]) is types[0] else None,
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

mark_p = elementwise(
    "mark",
    kinds="fc",
    domain=None,
    lower=lambda xp, x, *, number: x,
    jvp=LINEAR,
    arity=1,
    transpose=[lambda ct, x, *, number: ct],
    rewrite=Absent("it is to be found, be it a constant"),
    tags=["linear"],
    samples=[Sample((normal(3),), {"number": 0})],
)
"""Is its operand, under a number by which interpreters find it, and its tangent, in a program.

Equal values that are marked by other numbers stay apart; where a program is run no mark is left.
"""


def _batch_graft(size: int, operands: Any, dims: Any) -> tuple[Any, int]:
    aligned, dim = align(size, operands, dims)
    return graft_p(*aligned), dim


def _lower_graft(xp: Any, value: Any, old: Any) -> Any:
    if not (is_traced_by_jax(value) or is_traced_by_jax(old)):
        return value
    import jax

    # where JAX differentiates, that is by the second operand as well
    graft = jax.custom_jvp(lambda value, old: value)
    graft.defjvp(lambda primals, tangents: (primals[0], tangents[1]))
    return graft(value, old)


graft_p = structural(
    "graft",
    infer=lambda value, old: value.update(),
    lower=_lower_graft,
    jvp=Joint(lambda tangents, out, value, old: tangents[1]),
    transpose=Joint(lambda ct, value, old: [None, ct if isinstance(old, Linear) else None]),
    batch=_batch_graft,
    samples=[Sample((normal(3), normal(3)), smooth=False)],
)
"""Has the value of its first operand and the derivatives of the second, of one type."""


def _batch_no_grad(size: int, operands: Any, dims: Any) -> tuple[Any, int]:
    aligned, dim = align(size, operands, dims)
    return no_grad_p(*aligned), dim


def _push_no_grad(tangents: Any, out: Any, *operands: Any) -> Any:
    value = zeros(type_of(out)) if tangents[0] is None else tangents[0]
    return no_grad_p(value, *[t for t in tangents[1:] if t is not None])


def _linearize_no_grad(transforms: Any, tangents: Any, *operands: Any) -> tuple[Any, Any]:
    return [no_grad_p(*operands)], [*tangents[1:], None][:1]


no_grad_p = structural(
    "no_grad",
    infer=lambda value, *old: value.update(),
    lower=lambda xp, value, *old: value,
    jvp=Joint(_push_no_grad),
    linearize=Recursive(_linearize_no_grad),
    transpose=Joint(
        lambda ct, value, *old: [None, *[ct if isinstance(x, Linear) else None for x in old]]
    ),
    batch=_batch_no_grad,
    samples=[Sample((normal(3),), smooth=False), Sample((normal(3), normal(3)), smooth=False)],
)
"""Is its first operand, computed under `no_grad`: forward mode goes through it, reverse mode not.

That goes to the second, if there is one: what the value was before it was written to.
"""


# ---------------------------------------------------------------------------------- complex numbers


def _part_rewrite(number: int, scope: Any, operands: Any, types: Any, params: Any) -> Any:
    inner = scope.definition(operands[0])
    if inner and inner.primitive is complex_p and scope.type(inner.operands[number]) is types[0]:
        return inner.operands[number]
    if inner and inner.primitive is conj_p and number == 0:
        return New(real_p, inner.operands, {})
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


real_p = elementwise(
    "real",
    kinds="c",
    arity=1,
    dtype=real_of,
    lower="real",
    jvp=LINEAR,
    transpose=[lambda ct, x: complex_p(ct, 0.0)],
    rewrite=partial(_part_rewrite, 0),
)

imag_p = elementwise(
    "imag",
    kinds="c",
    arity=1,
    dtype=real_of,
    lower="imag",
    jvp=LINEAR,
    transpose=[lambda ct, x: complex_p(0.0, neg_p(ct))],
    rewrite=partial(_part_rewrite, 1),
)

conj_p = elementwise(
    "conj",
    kinds="c",
    arity=1,
    lower="conj",
    jvp=LINEAR,
    transpose=[lambda ct, x: conj_p(ct)],
    tags=["involution"],
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
    jvp=LINEAR,
    transpose=[lambda ct, x, y: real_p(ct), lambda ct, x, y: neg_p(imag_p(ct))],
    rewrite=_complex_rewrite,
    samples=[
        Sample((normal(2, 3), normal(2, 3, seed=1))),
        Sample((normal(3).astype("f4"), normal(3, seed=1).astype("f4")), smooth=False),
        Sample((np.array([np.inf, -0.0]), np.array([-0.0, np.nan])), smooth=False),
        Sample((normal(), normal(seed=1))),
        Sample((normal(0, 2), normal(0, 2))),
    ],
)
