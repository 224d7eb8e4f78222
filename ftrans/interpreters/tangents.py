"""The frame in which tangents are recorded, each as a base times a slope that is not recorded yet.

A chain of elementwise rules multiplies a tangent by one slope after the other, adds and selects.
Kept as `base * slope`, the slopes of a chain become one, which the primals alone determine. It pays
three times: a chain leaves one residual instead of one per link; derivatives of derivatives share
their parts, so that their size grows as a polynomial of the order; and a slope that is infinite or
NaN on a branch not taken is selected away before it meets a tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ftrans.interpreters.builder import Builder
from ftrans.ir import ArrayType, Atom, Equation, Literal, Params, Program, Tracer
from ftrans.ir.program import NO_PARAMS
from ftrans.primitives import (
    add_p,
    broadcast_p,
    div_p,
    mark_p,
    mul_p,
    neg_p,
    scalar,
    select_p,
    sub_p,
)

_Narrowed: TypeAlias = "dict[int, tuple[Atom, Params] | None]"
"""For values of a frame what they are broadcasts of, and how; None where they are not."""


class _Term(NamedTuple):
    """Is the product of a base and a slope; without a slope it is the base."""

    base: Tracer
    slope: Any = None


class Tangents(Builder):
    """Is a builder that collects the slopes of tangents.

    Slopes are bound as anything is: what the primals determine lands in the frame of the primals.
    """

    __slots__ = ("_narrowed", "_terms")

    def __init__(self, name: str, closed: bool):
        super().__init__(name, closed)
        self._terms: dict[int, _Term] = {}
        self._narrowed: _Narrowed = {}

    def tangent(self, type: ArrayType) -> Tracer:
        """Adds an input that is a tangent."""
        tracer = self.input(type)
        self._terms[tracer.index] = _Term(tracer)
        return tracer

    def mark(self, value: Any, params: Params) -> Tracer:
        """Records the mark of a tangent, of one as well that is known to be zero."""
        (out,) = super().record(mark_p, [self._made(value)], params)
        self._terms[out.index] = _Term(out)
        return out

    def settle(self, value: Tracer) -> None:
        """Says of a value that it is no tangent, though it was computed together with some."""
        self._terms.pop(value.index, None)

    def record(self, primitive: Any, operands: Sequence[Any], params: Params) -> tuple[Tracer, ...]:
        """Records one equation; a product of a tangent and a slope is put off."""
        terms = self._terms
        taken = [
            terms.get(x.index, x) if type(x) is Tracer and x.frame is self else x for x in operands
        ]
        if not any(type(x) is _Term for x in taken):
            return super().record(primitive, operands, params)
        rule = _RULES.get(primitive)
        found = rule(*taken) if rule else None
        if found is not None:
            code = self._number((found.base.type,))
            self.producers.append(len(self.equations) - 1)
            terms[code] = found
            return (self.tracer(code),)
        start = self._count
        outs = super().record(primitive, [self._made(x) for x in operands], params)
        for out in outs:
            if out.index >= start and out.type.is_inexact:
                terms[out.index] = _Term(out)
        return outs

    def close(self, outputs: Sequence[Any], name: str | None = None) -> tuple[Program, list[Any]]:
        """Closes the frame as `Builder.close` does."""
        closed = super().close([self._made(x) for x in outputs], name)
        self._terms.clear()
        return closed

    def _made(self, x: Any) -> Any:
        """Returns a value of this frame, or another one, in a form that can be an operand."""
        term = self._terms.get(x.index) if type(x) is Tracer and x.frame is self else None
        if term is None or term.slope is None:
            return x
        return super().record(mul_p, term, NO_PARAMS)[0]

    def capture(self, value: Any) -> Tracer:
        """Captures the least that a value is made of, and makes the value of it."""
        made = self.captured.get(id(value))
        if made is not None:
            return made
        if type(value) is not Tracer or not isinstance(value.frame, Builder):
            return super().capture(value)
        frame = value.frame
        atom, views = _origin(frame, value.index, self._narrowed)
        if not views:
            return super().capture(value)
        operands: tuple[Any, ...] = ()
        if atom is not None:
            operands = (super().capture(frame.tracer(atom)) if type(atom) is int else atom,)
        for view in views:
            operands = super().record(view.primitive, operands, view.params)
        return self.captured.setdefault(id(value), operands[0])


# ------------------------------------------------------------------------------------- slopes


def _one(x: _Term) -> Any:
    return scalar(1, x.base.type.dtype) if x.slope is None else x.slope


def _apply(primitive: Any, *slopes: Any) -> Any:
    """Applies a primitive to slopes, of which all may be literals."""
    if all(isinstance(slope, Literal) for slope in slopes):
        dtype = slopes[0].type.dtype
        with np.errstate(all="ignore"):
            value = primitive.lower(np, *(slope.array for slope in slopes))
        return Literal(np.asarray(value).astype(dtype).item(), dtype)
    return primitive(*slopes)


def _mul(x: Any, y: Any) -> Any:
    if type(x) is _Term and type(y) is _Term:
        return None
    term, other = (x, y) if type(x) is _Term else (y, x)
    return _Term(term.base, other if term.slope is None else _apply(mul_p, term.slope, other))


def _sum(primitive: Any) -> Any:
    def rule(x: Any, y: Any) -> Any:
        if not (type(x) is _Term and type(y) is _Term) or x.base is not y.base:
            return None
        return _Term(x.base, _apply(primitive, _one(x), _one(y)))

    return rule


def _select(mask: Any, x: Any, y: Any) -> Any:
    if type(mask) is Literal:
        return None  # it has not the shape of what is chosen
    terms = [z for z in (x, y) if type(z) is _Term]
    base = terms[0].base
    if any(term.base is not base for term in terms) or all(term.slope is None for term in terms):
        return None
    if len(terms) == 2:
        return _Term(base, select_p(mask, _one(x), _one(y)))
    other = y if type(x) is _Term else x
    if not (isinstance(other, Literal) and other.value == 0):
        return None
    # What is not selected may be NaN in the base as well as in the slope: both are masked.
    if other is y:
        return _Term(select_p(mask, base, other), select_p(mask, x.slope, other))
    return _Term(select_p(mask, other, base), select_p(mask, other, y.slope))


_RULES = {
    add_p: _sum(add_p),
    div_p: lambda x, y: None if type(y) is _Term else _Term(x.base, _apply(div_p, _one(x), y)),
    mul_p: _mul,
    neg_p: lambda x: _Term(x.base, _apply(neg_p, _one(x))),
    select_p: _select,
    sub_p: _sum(sub_p),
}


# ---------------------------------------------------------------------------------- residuals
#
# Saved of a value is the least that it is made of. A view is made again from what it is a view of,
# a constant from nothing. What is computed element by element from broadcasts alone is computed
# before they are broadcast, which gives the same bits.


def _origin(frame: Builder, code: int, known: _Narrowed) -> tuple[Atom | None, list[Equation]]:
    """Returns what to save for a value, and the equations that lead from there to the value.

    Args:
        frame: the frame of the value.
        code: the number of the value.
        known: what was found so far in this frame.

    Returns:
        A value, a literal, or None for a constant; and views, each of which takes the result of
        the one before.
    """
    views: list[Equation] = []
    atom: Any = code
    while type(atom) is int:
        equation = frame.definition(atom)
        if equation is None:
            break
        if not _is_remade(frame, equation):
            narrow = _narrowed(frame, atom, known)
            if narrow is None:
                break
            equation = Equation(broadcast_p, narrow[:1], narrow[1], equation.types)
        views.append(equation)
        atom = equation.operands[0] if equation.operands else None
    return atom, views[::-1]


def _is_remade(frame: Builder, equation: Equation) -> bool:
    """Tells whether a value is made of no more than itself: of nothing, or as the view of it."""
    sizes = [frame.type(atom).size for atom in equation.operands if type(atom) is int]
    return not sizes or ("view" in equation.primitive.tags and sizes[0] <= equation.types[0].size)


def _narrowed(frame: Builder, code: int, known: _Narrowed) -> tuple[Atom, Params] | None:
    """Finds what a value is a broadcast of; adds to the frame what computes it."""
    pending = [code]  # no recursion: a chain may be longer than the stack
    while pending:
        current = pending[-1]
        equation = frame.definition(current)
        operands = [] if equation is None else [a for a in equation.operands if type(a) is int]
        if current in known or equation is None or not operands:
            known.setdefault(current, None)
        elif equation.primitive is broadcast_p:
            known[current] = operands[0], equation.params
        elif "elementwise" not in equation.primitive.tags or any(
            known.get(a, True) is None for a in operands
        ):
            known[current] = None
        elif missing := [a for a in operands if a not in known]:
            pending.append(missing[0])
            continue
        else:
            known[current] = _before(frame, equation, known)
        pending.pop()
    return known[code]


def _before(frame: Builder, equation: Equation, known: _Narrowed) -> tuple[Atom, Params] | None:
    """Computes an elementwise equation before its operands are broadcast, if all are in one way."""
    primitive, operands, params, _ = equation
    how: Params | None = None
    taken: list[Atom] = []
    for atom in operands:
        if type(atom) is int:
            narrow = known[atom]
            if narrow is None or (how is not None and narrow[1] != how):
                return None
            atom, how = narrow
        taken.append(atom)
    assert how is not None
    (small,) = frame.add(primitive, tuple(taken), params)
    return small, how
