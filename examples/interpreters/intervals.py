"""Bounds on what a function returns, for arguments that lie between bounds; rounding is left out."""

from itertools import product
from typing import Any, NamedTuple

import ftrans
import ftrans.numpy as fnp

MONOTONE = """add sub mul neg exp expm1 log log1p sqrt rsqrt tanh sinh logistic erf asin acos atan max
minimum maximum floor ceil sign lt le gt ge and or not select convert stop_gradient""".split()


class Interval(NamedTuple):
    lower: Any
    upper: Any
    shape = property(lambda self: self.lower.shape)
    dtype = property(lambda self: self.lower.dtype)


class Intervals(ftrans.Interpreter):
    def lift(self, value):
        return Interval(value, value)

    def join(self, *xs):
        ends = fnp.stack([end for x in xs for end in x])
        return Interval(ends.min(0), ends.max(0))

    def known(self, x):
        return x.lower if x.lower == x.upper else None

    @ftrans.Interpreter.rule(*MONOTONE)
    def corners(self, operation, *xs):
        return self.join([operation.evaluate(*corner) for corner in product(*xs)])

    @ftrans.Interpreter.rule("structural", "sum", "max", "min", "any", "all", "cumsum")
    def each(self, operation, *xs):
        return Interval(*(operation.evaluate(*ends) for ends in zip(*xs, strict=True)))

    @ftrans.Interpreter.rule("div", "integer_pow", "abs", "cosh")
    def around_zero(self, operation, *xs):
        turns = [(*x, fnp.clip(0 * x.lower, *x), fnp.clip(0 * x.upper, *x)) for x in xs]
        return self.corners(operation, *turns)

    @ftrans.Interpreter.rule("sin", "cos")
    def waves(self, operation, x):
        phase = {"sin": 0.5, "cos": 0.0}[operation.name]
        first = fnp.pi * (fnp.ceil(x.lower / fnp.pi - phase) + phase)
        return self.corners(operation, (*x, fnp.clip(first, *x), fnp.clip(first + fnp.pi, *x)))

    @ftrans.Interpreter.rule("contraction")
    def bilinear(self, operation, x, y):
        (a, r), (b, s) = [((x.upper + x.lower) / 2, (x.upper - x.lower) / 2) for x in (x, y)]
        middle = operation.evaluate(a, b)
        radius = operation.evaluate(fnp.abs(a), s) + operation.evaluate(r, fnp.abs(b) + s)
        return Interval(middle - radius, middle + radius)
