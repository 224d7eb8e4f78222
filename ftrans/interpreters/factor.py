"""Writes tangents as one factor times another value: what is elementwise in a tangent is a product.

A chain of elementwise rules multiplies a tangent by one slope after the other, adds and selects.
Here each tangent is kept as `base * slope`, so that the slopes of a chain become one, which the
primals alone determine. It pays three times: a chain leaves one residual instead of one per link;
derivatives of derivatives share their parts, so that their size grows as a polynomial of the order;
and a slope that is infinite or NaN on a branch not taken is selected away before it meets a
tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.interpreters.base import building, finish, memoised, walk
from ftrans.interpreters.simplify import simplify
from ftrans.ir import Equation, Literal, Program, bind, type_of
from ftrans.primitives import add_p, div_p, mul_p, neg_p, scalar, select_p, sub_p

__all__ = ["factor"]


class _Term(NamedTuple):
    """Is the product of a base and a slope; without a slope it is the base."""

    base: Any
    slope: Any = None

    def value(self) -> Any:
        """Returns the product as an operand."""
        return self.base if self.slope is None else mul_p(self.base, self.slope)


@memoised
def factor(program: Program, marked: tuple[bool, ...]) -> Program:
    """Returns the program with products of tangents and slopes collected.

    Args:
        program: a program without `call`.
        marked: which inputs are tangents.
    """
    with building(program.name, program.inputs) as (frame, inputs):
        values = [_Term(x) if m else x for x, m in zip(inputs, marked, strict=True)]
        outs = walk(program, values, _step)
        return simplify(finish(frame, [_operand(out) for out in outs]))


def _operand(x: Any) -> Any:
    return x.value() if isinstance(x, _Term) else x


def _step(equation: Equation, operands: list[Any]) -> Sequence[Any]:
    primitive = equation.primitive
    if not any(isinstance(x, _Term) for x in operands):
        return bind(primitive, operands, equation.params)
    rule = _RULES.get(primitive)
    found = rule(*operands) if rule else None
    if found is not None:
        return [found]
    outs = bind(primitive, [_operand(x) for x in operands], equation.params)
    return [_Term(out) if out.type.is_inexact else out for out in outs]


def _one(x: _Term) -> Any:
    return scalar(1, type_of(x.base).dtype) if x.slope is None else x.slope


def _apply(primitive: Any, *slopes: Any) -> Any:
    """Applies a primitive to slopes, of which all may be literals."""
    if all(isinstance(slope, Literal) for slope in slopes):
        dtype = slopes[0].type.dtype
        with np.errstate(all="ignore"):
            value = primitive.lower(np, *(slope.array for slope in slopes))
        return Literal(np.asarray(value).astype(dtype).item(), dtype)
    return primitive(*slopes)


def _mul(x: Any, y: Any) -> Any:
    if isinstance(x, _Term) and isinstance(y, _Term):
        return None
    term, other = (x, y) if isinstance(x, _Term) else (y, x)
    return _Term(term.base, other if term.slope is None else _apply(mul_p, term.slope, other))


def _div(x: Any, y: Any) -> Any:
    if isinstance(y, _Term):
        return None
    return _Term(x.base, _apply(div_p, _one(x), y))


def _neg(x: _Term) -> Any:
    return _Term(x.base, _apply(neg_p, _one(x)))


def _sum(primitive: Any) -> Any:
    def rule(x: Any, y: Any) -> Any:
        if not (isinstance(x, _Term) and isinstance(y, _Term)) or x.base is not y.base:
            return None
        return _Term(x.base, _apply(primitive, _one(x), _one(y)))

    return rule


def _select(mask: Any, x: Any, y: Any) -> Any:
    terms = [z for z in (x, y) if isinstance(z, _Term)]
    base = terms[0].base
    if any(term.base is not base for term in terms) or all(term.slope is None for term in terms):
        return None
    if len(terms) == 2:
        return _Term(base, select_p(mask, _one(x), _one(y)))
    other = y if isinstance(x, _Term) else x
    if not (isinstance(other, Literal) and other.value == 0):
        return None
    # What is not selected may be NaN in the base as well as in the slope: both are masked.
    if other is y:
        return _Term(select_p(mask, base, other), select_p(mask, x.slope, other))
    return _Term(select_p(mask, other, base), select_p(mask, other, y.slope))


_RULES = {
    add_p: _sum(add_p),
    div_p: _div,
    mul_p: _mul,
    neg_p: _neg,
    select_p: _select,
    sub_p: _sum(sub_p),
}
