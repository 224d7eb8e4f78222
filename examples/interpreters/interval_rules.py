"""Rules that teach `Intervals` what turns on its way, equality, and products of arrays."""

from intervals import Interval, Intervals

import ftrans.numpy as fnp


@Intervals.rule("iota", "table")
def constant(self, operation):
    return self.lift(operation.evaluate())


@Intervals.rule("div", "integer_pow", "abs", "cosh", "is_finite")
def around_zero(self, operation, *xs):  # monotone on either side of zero, which has two signs
    def sides(x, inside):
        return [fnp.where(inside, fnp.copysign(0, end).astype(end.dtype), end) for end in x]

    return self.corners(operation, *((*x, *sides(x, (x[0] <= 0) & (x[1] >= 0))) for x in xs))


@Intervals.rule("sin", "cos")
def waves(self, operation, x):  # monotone from one peak to the next trough
    phase = {"sin": fnp.pi / 2, "cos": 0.0}[operation.name]
    turn = fnp.ceil((x.lower - phase) / fnp.pi) * fnp.pi + phase
    return self.corners(operation, (*x, fnp.clip(turn, *x), fnp.clip(turn + fnp.pi, *x)))


@Intervals.rule("eq")
def equal(self, operation, x, y):  # surely; possibly
    certain = (x.lower == y.upper) & (x.upper == y.lower)
    return Interval(certain, (x.lower <= y.upper) & (x.upper >= y.lower))


@Intervals.rule("contraction")
def bilinear(self, operation, x, y):  # by midpoints and radii
    (a, r), (b, s) = [(fnp.add(*x) / 2, fnp.subtract(x.upper, x.lower) / 2) for x in (x, y)]
    middle = operation.evaluate(a, b)
    radius = operation.evaluate(fnp.abs(a), s) + operation.evaluate(r, fnp.abs(b) + s)
    return self.join((fnp.subtract(middle, radius), middle + radius))
