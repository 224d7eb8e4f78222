"""JAX's elementwise primitives that are several of ours, or one under a condition.

In jaxprs an operand may have axes of size 1 where others have more, and numbers may be variables.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ml_dtypes import finfo

import ftrans.primitives as p
from ftrans.interop.importer import Importer, NoCounterpart, Rule, broadcast
from ftrans.ir import Literal, type_of
from ftrans.primitives import scalar


def spread(equation: Any, operands: Any) -> list[Any]:
    """Returns operands of one shape, literals aside."""
    shape = equation.outvars[0].aval.shape
    return [x if type(x) is Literal else broadcast(x, shape) for x in operands]


def _pow(importer: Importer, equation: Any, x: Any, y: Any) -> Any:
    x, y = spread(equation, (x, y))
    if type_of(y).dtype != type_of(x).dtype:
        y = p.convert_p(y, dtype=type_of(x).dtype)
    return p.pow_p(x, y)


def _select_n(importer: Importer, equation: Any, which: Any, *cases: Any) -> Any:
    if len(cases) == 1:
        return cases[0]
    which = spread(equation, (which,))[0]
    cases = tuple(spread(equation, cases))
    if type_of(which).dtype == bool:
        return p.select_p(which, cases[1], cases[0])
    found = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        found = p.select_p(p.le_p(which, scalar(i, type_of(which).dtype)), cases[i], found)
    return found


def _round(importer: Importer, equation: Any, x: Any) -> Any:
    if int(equation.params["rounding_method"]) != 1:
        raise NoCounterpart  # away from zero
    return p.round_p(x)


def _conj(importer: Importer, equation: Any, x: Any) -> Any:
    if type_of(x).dtype.kind == "c":
        return p.conj_p(x)
    return p.convert_p(x, dtype=equation.outvars[0].aval.dtype)


def _shift_right_logical(importer: Importer, equation: Any, x: Any, count: Any) -> Any:
    x, count = spread(equation, (x, count))
    dtype = type_of(x).dtype
    if dtype.kind == "u":
        return p.shift_right_p(x, count)
    unsigned = np.dtype(f"u{dtype.name}")
    moved = p.shift_right_p(p.convert_p(x, dtype=unsigned), p.convert_p(count, dtype=unsigned))
    return p.convert_p(moved, dtype=dtype)


def same(importer: Importer, equation: Any, *operands: Any) -> Any:
    """Imports what returns its operands."""
    return [importer.array(x) for x in operands]


def _reduce_precision(importer: Importer, equation: Any, x: Any) -> Any:
    own, params = finfo(type_of(x).dtype), equation.params
    if (params["exponent_bits"], params["mantissa_bits"]) != (own.nexp, own.nmant):
        raise NoCounterpart
    return x


def _polygamma(importer: Importer, equation: Any, order: Any, x: Any) -> Any:
    value: Any = order.value if type(order) is Literal else 0
    if value < 1 or value != int(value):
        raise NoCounterpart
    return p.polygamma_p(x, order=int(value))


def _counters(importer: Importer, equation: Any) -> Any:
    shape = tuple(map(int, equation.outvars[0].aval.shape))
    size = math.prod(shape)
    if size > 2**32:
        raise NoCounterpart
    low = p.reshape_p(p.iota_p(shape=(size,), dtype=np.dtype("uint32"), axis=0), shape=shape)
    return [p.broadcast_p(scalar(0, "uint32"), shape=shape, axes=()), low]


RULES: dict[str, Rule] = {
    "pow": _pow,
    "square": lambda importer, equation, x: p.integer_pow_p(x, exponent=2),
    "select_n": _select_n,
    "round": _round,
    "conj": _conj,
    "shift_right_logical": _shift_right_logical,
    "reduce_precision": _reduce_precision,
    "polygamma": _polygamma,
    "iota_2x32_shape": _counters,
    "name": lambda importer, equation, x: p.named_p(x, name=equation.params["name"]),
    **dict.fromkeys(("copy", "copy_p", "optimization_barrier", "pvary"), same),
}
