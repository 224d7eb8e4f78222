"""Addition, multiplication, division and whole powers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import ArrayType, Literal
from ftrans.ir.dtype import is_complex, is_float, is_half, is_unsigned
from ftrans.ir.program import Params
from ftrans.primitives.axes import broadcast_p
from ftrans.primitives.elementwise import elementwise
from ftrans.primitives.family import check_kind, in_single
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import LINEAR, Absent, New, Sample, scalar
from ftrans.primitives.shape import concatenate_p, pad_p


def accumulate(x: Any, y: Any) -> Any:
    """Adds two tangents or cotangents of which either may be zero (`None`)."""
    if x is None or y is None:
        return y if x is None else x
    return add_p(x, y)


def _is(literal: Any, value: float) -> bool:
    return type(literal) is Literal and literal.value == value


def _add_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    # x + 0.0 is not exact where x is -0.0, so only integers are simplified
    for x, y in (operands, operands[::-1]):
        if _is(y, 0) and not types[0].is_inexact and scope.type(x) is types[0]:
            return x
        inner = scope.definition(y)
        if inner and inner.primitive is neg_p and scope.type(x) is types[0]:
            return New(sub_p, (x, inner.operands[0]), {})
        if inner and inner.primitive is pad_p and type(x) is not Literal:
            joined = _concatenated(scope, x, inner, types[0].shape)
            if joined is not None:
                return joined
    return None


def _concatenated(scope: Any, rest: Any, pad: Any, shape: tuple[int, ...]) -> New | None:
    """Adds a pad to a sum that ends in pads, where all of them tile an axis; else returns None.

    The cotangents of slices add up to this. The elements are the same, but for -0.0 + 0.0, which
    is 0.0 as a sum. A sum is followed only from the first or the last piece back to the next such
    piece, so however long a chain of additions is, it is walked twice at most.
    """
    piece = _piece(scope, pad)
    if piece is None:
        return None
    axis, start, stop = piece
    size = shape[axis]
    if start != 0 and stop != size:
        return None
    pieces, stops, covered = {start: pad.operands[0]}, {stop}, stop - start
    while covered < size:
        rest, pad = _without_pad(scope, rest)
        piece = pad and _piece(scope, pad)
        if piece is None or piece[0] != axis or piece[1] in pieces or piece[2] in stops:
            return None
        _, start, stop = piece
        pieces[start] = pad.operands[0]
        stops.add(stop)
        covered += stop - start
    # as they are all different, each piece ends where another one starts
    if covered != size or pieces.keys() - {0} != stops - {size}:
        return None
    found, params = tuple(pieces[start] for start in sorted(pieces)), Params(axis=axis)
    if rest is None:
        return New(concatenate_p, found, params)
    return New(add_p, (rest, *scope.add(concatenate_p, found, params)), {})


def _without_pad(scope: Any, atom: Any) -> tuple[Any, Any]:
    """Splits a sum into the rest and a pad that is added to it; None is what is missing."""
    found = None if atom is None else scope.definition(atom)
    if found and found.primitive is pad_p:
        return None, found
    if found and found.primitive is add_p:
        x, y = found.operands
        for rest, other in ((x, y), (y, x)):
            pad = scope.definition(other)
            if pad and pad.primitive is pad_p:
                return rest, pad
    return atom, None


def _piece(scope: Any, pad: Any) -> tuple[int, int, int] | None:
    """Returns the one axis along which zeros are put around an array, and where that starts, stops.

    None where there are several such axes, or other things than zeros, or nothing between them.
    """
    low, high, interior = (pad.params[name] for name in ("low", "high", "interior"))
    axes = [axis for axis, ends in enumerate(zip(low, high, strict=True)) if any(ends)]
    if len(axes) != 1 or any(interior) or pad.params["value"] != 0:
        return None
    (axis,) = axes
    size = scope.type(pad.operands[0]).shape[axis]
    cropped = low[axis] < 0 or high[axis] < 0
    return None if cropped or size == 0 else (axis, low[axis], low[axis] + size)


def _sub_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, y = operands
    if _is(y, 0) and not np.signbit(y.array.real) and scope.type(x) is types[0]:
        return x
    inner = scope.definition(y)
    if inner and inner.primitive is neg_p:
        return New(add_p, (x, inner.operands[0]), {})
    return None


def _mul_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, y = operands
    if type(x) is Literal or type(y) is Literal:
        x, y = (y, x) if type(x) is Literal else (x, y)
        if _is(y, 1) and scope.type(x) is types[0]:
            return x
        if _is(y, -1) and scope.type(x) is types[0] and not is_complex(types[0].dtype):
            return New(neg_p, (x,), {})
        return None
    x, y = scope.definition(x), scope.definition(y)
    if x and y and x.primitive is neg_p and y.primitive is neg_p:
        return New(mul_p, (x.operands[0], y.operands[0]), {})
    return None


neg_p = elementwise(
    "neg",
    kinds="iufc",
    lower="negative",
    jvp=LINEAR,
    arity=1,
    transpose=[lambda ct, x: neg_p(ct)],
    tags=["additive", "involution"],
)

add_p = elementwise(
    "add",
    rewrite=_add_rewrite,
    kinds="iufc",
    lower="add",
    jvp=[lambda t, out, x, y: t, lambda t, out, x, y: t],
    transpose=[lambda ct, x, y: ct, lambda ct, x, y: ct],
    tags=["linear", "commutative"],
)

sub_p = elementwise(
    "sub",
    rewrite=_sub_rewrite,
    kinds="iufc",
    lower="subtract",
    jvp=[lambda t, out, x, y: t, lambda t, out, x, y: neg_p(t)],
    transpose=[lambda ct, x, y: ct, lambda ct, x, y: neg_p(ct)],
    tags=["linear"],
)

mul_p = elementwise(
    "mul",
    rewrite=_mul_rewrite,
    kinds="iufc",
    lower="multiply",
    jvp=[lambda t, out, x, y: mul_p(t, y), lambda t, out, x, y: mul_p(x, t)],
    transpose=[lambda ct, x, y: mul_p(ct, y), lambda ct, x, y: mul_p(x, ct)],
    tags=["multilinear", "commutative"],
)


# ---------------------------------------------------------------------------------------- div


def _div_lower(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return xp.true_divide(x, y)
    if xp is not np:
        return by_lax(xp, "div", x, y)
    # as XLA does: toward zero, and all bits set where the divisor is zero
    floor = np.floor_divide(x, y)
    if not is_unsigned(x.dtype):
        floor = floor + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))
    return np.where(y == 0, np.invert(np.zeros((), x.dtype)), floor)


def _div_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    x, y = operands
    if scope.type(x) is types[0]:
        if _is(y, 1):
            return x
        if _is(y, -1) and not is_complex(types[0].dtype):
            return New(neg_p, (x,), {})
    x, y = (scope.definition(operand) for operand in operands)
    if x and y and x.primitive is neg_p and y.primitive is neg_p and is_float(types[0].dtype):
        return New(div_p, (x.operands[0], y.operands[0]), {})
    return None


div_p = elementwise(
    "div",
    rewrite=_div_rewrite,
    kinds="iufc",
    lower=_div_lower,
    host=lambda t, _: None if t.dtype.kind in "iu" else np.true_divide,
    jvp=[
        lambda t, out, x, y: div_p(t, y),
        # by way of 1 / y, of which all derivatives are powers: their programs share their parts
        lambda t, out, x, y: mul_p(t, neg_p(mul_p(out, div_p(1.0, y)))),
    ],
    transpose=[lambda ct, x, y: div_p(ct, y), Absent("it is not linear in the divisor")],
    samples=[
        Sample((np.array([7.0, -7.0, 7.0, -7.0, 5.0]), np.array([2.0, 2.0, -2.0, -2.0, 5.0]))),
        Sample((np.array([1.0, 0.0, -3.0]), np.zeros(3)), smooth=False),
    ],
)


# -------------------------------------------------------------------------------- integer_pow


def _integer_pow_infer(x: ArrayType, *, exponent: int) -> ArrayType:
    check_kind("integer_pow", "iufc", x)
    if exponent < 0 and not x.is_inexact:
        raise DTypeError(
            f"integer_pow: integers have no negative powers.\n"
            f"  operand: {x}, exponent {exponent}\n"
            f"  Convert it first: x.astype('float32')."
        )
    return x.update()


def _integer_pow_lower(xp: Any, x: Any, *, exponent: int) -> Any:
    if xp is not np:
        return by_lax(xp, "integer_pow", x, y=exponent)
    out, square, rest = None, x, abs(exponent)
    while rest:
        if rest & 1:
            out = square if out is None else np.multiply(out, square)
        rest >>= 1
        square = np.multiply(square, square) if rest else square
    if out is None:
        return np.ones_like(x)
    return np.reciprocal(out) if exponent < 0 else out


def _integer_pow_host(t: ArrayType, *, exponent: int) -> Callable[[Any], Any] | None:
    if is_half(t.dtype) or exponent not in (2, -1):
        return None
    return np.reciprocal if exponent == -1 else lambda x: np.multiply(x, x)


def _integer_pow_jvp(t: Any, out: Any, x: Any, *, exponent: int) -> Any:
    if exponent == 0:
        return None
    return mul_p(t, mul_p(integer_pow_p(x, exponent=exponent - 1), float(exponent)))


def _integer_pow_rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    (x,), exponent = operands, params["exponent"]
    if exponent == 1 and scope.type(x) is types[0]:
        return x
    if exponent == 0:
        one = scalar(1, types[0].dtype)
        return New(broadcast_p, (one,), {"shape": types[0].shape, "axes": ()})
    inner = scope.definition(x)
    if inner and inner.primitive is neg_p and exponent % 2 == 0:
        return New(integer_pow_p, inner.operands, params)
    return None


_cubed = np.array([0.0, -1.5, 2.0])

integer_pow_p = elementwise(
    "integer_pow",
    rewrite=_integer_pow_rewrite,
    kinds="iufc",
    infer=_integer_pow_infer,
    lower=in_single(_integer_pow_lower),
    host=_integer_pow_host,
    jvp=[_integer_pow_jvp],
    samples=[
        *(Sample((_cubed,), {"exponent": n}) for n in (0, 1, 2, 3, 6)),
        Sample((np.array([3.0, -2.0]),), {"exponent": 67}, smooth=False),
        Sample((np.array(-2.0),), {"exponent": 5}),
        Sample((np.ones((0, 2)),), {"exponent": 2}),
        Sample((np.array([1.0 - 2.0j, 0.5 + 1.0j]),), {"exponent": -2}),
        Sample((np.array([0.0, -2.0, 4.0], "f4"),), {"exponent": -3}, smooth=False),
    ],
)
