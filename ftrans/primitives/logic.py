"""Comparisons, logic, and choosing. Logic is bitwise on integers, which is logic on booleans."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import DTypeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.primitives.axes import broadcast_p
from ftrans.primitives.elementwise import common_type, elementwise
from ftrans.primitives.family import normal
from ftrans.primitives.record import (
    LINEAR,
    Absent,
    New,
    Primitive,
    Sample,
    scalar,
)

_no_tangent = Absent("its values are booleans or integers, which have no tangents")


def _decided(neutral: bool) -> Any:
    """Returns the rewrite of `and` (neutral: True) or `or` with a known or a repeated operand."""

    def rewrite(scope: Any, operands: Any, types: Any, params: Any) -> Any:
        (result,) = types
        for x, y in (operands, operands[::-1]):
            if scope.type(x) is not result:
                continue
            if x == y:
                return x
            if isinstance(y, Literal) and result.dtype == bool:
                if y.value == neutral:
                    return x
                return New(broadcast_p, (y,), {"shape": result.shape, "axes": ()})
        return None

    return rewrite


def _binary(name: str, function: str, **declared: Any) -> Primitive:
    """Declares a function of two operands; `function` is its name in NumPy."""
    return elementwise(name, lower=function, jvp=[_no_tangent] * 2, **declared)


_bits = {"kinds": "biu", "tags": ["commutative"]}

and_p = _binary("and", "bitwise_and", rewrite=_decided(True), **_bits)
or_p = _binary("or", "bitwise_or", rewrite=_decided(False), **_bits)
xor_p = _binary("xor", "bitwise_xor", **_bits)
not_p = elementwise("not", kinds="biu", lower="invert", jvp=[_no_tangent], tags=["involution"])
shift_left_p = _binary("shift_left", "left_shift", kinds="iu", domain=(0.0, 4.0))
shift_right_p = _binary("shift_right", "right_shift", kinds="iu", domain=(0.0, 4.0))


# -------------------------------------------------------------------------------- comparisons


def _comparison(name: str, function: str, kinds: str = "biuf") -> Primitive:
    return _binary(name, function, kinds=kinds, dtype=lambda dtype: np.bool_, tags=["comparison"])


eq_p = _comparison("eq", "equal", "biufc")
ne_p = _comparison("ne", "not_equal", "biufc")
lt_p = _comparison("lt", "less")
le_p = _comparison("le", "less_equal")
gt_p = _comparison("gt", "greater")
ge_p = _comparison("ge", "greater_equal")


# ------------------------------------------------------------------------------------- select


def _select_infer(mask: ArrayType, x: ArrayType, y: ArrayType) -> ArrayType:
    if mask.dtype != bool:
        raise DTypeError(f"select: the first operand is {mask}; it must be bool.")
    t = common_type("select", [x, y])
    if x.weak and y.weak:
        return t.update(shape=mask.shape)
    common_type("select", [mask, t.update(dtype=np.bool_)])
    return t


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
    host=lambda *types: np.where,
    jvp=LINEAR,
    arity=3,
    transpose=[
        Absent("it is not linear in the mask"),
        lambda ct, mask, x, y: select_p(mask, ct, 0.0),
        lambda ct, mask, x, y: select_p(mask, 0.0, ct),
    ],
    infer=_select_infer,
    rewrite=_select_rewrite,
    tags=["select"],
    samples=[
        Sample((_pick, normal(3), normal(3, seed=1))),
        Sample((np.bool_(True), normal(), normal(seed=1))),
        Sample((np.zeros((0, 2), bool), normal(0, 2), normal(0, 2))),
    ],
)


def clamp_index(index: Any, count: int) -> Any:
    """Clamps an integer operand to 0 ... count - 1."""
    t = type_of(index)
    low = select_p(lt_p(index, 0), scalar(0, t.dtype), index)
    return select_p(gt_p(low, count - 1), scalar(count - 1, t.dtype), low)
