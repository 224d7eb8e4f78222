"""Bounds on what a function returns, for arguments that lie between bounds; rounding left out."""

from itertools import product, starmap
from typing import Any, NamedTuple

import ftrans
import ftrans.numpy as fnp

MONOTONE = """add sub mul neg exp expm1 log log1p sqrt rsqrt tanh sinh logistic erf asin acos atan
maximum minimum floor ceil sign lt le gt ge and or not select convert stop_gradient"""


class Interval(NamedTuple):
    lower: Any
    upper: Any
    shape = property(lambda self: self.lower.shape)
    dtype = property(lambda self: self.lower.dtype)


class Intervals(ftrans.Interpreter):
    lift = staticmethod(lambda value: Interval(value, value))
    known = staticmethod(lambda x: x.lower if x.lower == x.upper else None)

    def join(self, *xs):  # a bound that is NaN says nothing
        ends = fnp.stack([end for x in xs for end in x])
        lower = fnp.nan_to_num(ends.min(0), nan=-fnp.inf, neginf=-fnp.inf)
        return Interval(lower, fnp.nan_to_num(ends.max(0), nan=fnp.inf, posinf=fnp.inf))

    @ftrans.Interpreter.rule("structural", "sum", "max", "min", "any", "all", "cumsum")
    def each(self, operation, *xs):  # rises with every element, at places that must be known
        if len(xs) > 1 and not all(fnp.all(x.lower == x.upper) for x in xs if x.dtype.kind in "iu"):
            return self.default(operation, *xs)
        return self.join(map(operation.evaluate, *xs))

    @ftrans.Interpreter.rule(*MONOTONE.split())
    def corners(self, operation, *xs):  # rises or falls with each operand, the others held
        return self.join(starmap(operation.evaluate, product(*xs)))
