"""Jacobians by the rules: pullbacks of all cotangents, pushforwards of all tangents, batched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.func.jvp import jvp
from ftrans.func.vjp import vjp
from ftrans.verify.call import Call, host
from ftrans.verify.coordinates import count, from_coordinates, to_coordinates
from ftrans.verify.points import Points, rows_of

__all__ = ["Derivative", "basis"]


def basis(value: Any, start: int, stop: int) -> np.ndarray:
    """Returns the arrays like `value` that have a 1 at one real coordinate, stacked."""
    rows = np.zeros((stop - start, count(value)))
    rows[np.arange(stop - start), np.arange(start, stop)] = 1.0
    return from_coordinates(rows, value, (stop - start,))


class Derivative:
    """Is the derivative of a call, by its rules, in both directions.

    Args:
        call: the call.
        outputs: the floating outputs to differentiate, their numbers among all leaves.
        batched: whether cotangents and tangents may be batched.

    Attributes:
        outs: these outputs.
    """

    def __init__(self, call: Call, outputs: Sequence[int], batched: bool = True):
        self.call = call
        self.outputs = list(outputs)
        self.batched = batched
        outs, self.pullback = vjp(self.select, *call.values)
        self.outs = [host(out) for out in outs]
        self._originals = outs

    def select(self, *values: Any) -> list[Any]:
        """Returns the outputs in question for these values of the floating arguments."""
        outs = self.call(*values)
        return [outs[number] for number in self.outputs]

    def pull(self, number: int) -> Callable[[Any], list[Any]]:
        """Returns the map from a cotangent of one output to those of all arguments."""

        def pulled(cotangent: Any) -> list[Any]:
            cotangents: list[Any] = [None] * len(self.outs)
            cotangents[number] = cotangent
            return list(self.pullback(cotangents))

        return pulled

    def push(self, position: int) -> Callable[[Any], list[Any]]:
        """Returns the map from a tangent of one argument to those of all outputs."""

        def pushed(tangent: Any) -> list[Any]:
            tangents: list[Any] = [None] * len(self.call.values)
            tangents[position] = tangent
            return list(jvp(self.select, tuple(self.call.values), tuple(tangents))[1])

        return pushed

    def reverse(self, number: int) -> list[np.ndarray]:
        """Returns the Jacobians of one output with respect to all arguments, f64[n, m] each."""
        return _columns(self.pull(number), self._originals[number], self.call.values, self.batched)

    def forward(self, position: int) -> list[np.ndarray]:
        """Returns the Jacobians of all outputs with respect to one argument, f64[n, m] each."""
        values = self.call.values
        found = _columns(self.push(position), values[position], self.outs, self.batched)
        return [matrix.T for matrix in found]


def _columns(
    function: Callable[[Any], list[Any]], origin: Any, results: Sequence[Any], batched: bool
) -> list[np.ndarray]:
    """Returns the matrices of a linear map, f64[n, m], column by column, from all basis vectors."""
    size = count(origin)
    total: list[np.ndarray] = [np.zeros((count(result), size)) for result in results]
    points = Points(lambda vector: function(vector), [origin], 0, batched)
    rows = rows_of(size + sum(map(count, results)))
    for start in range(0, size, rows):
        stop = min(size, start + rows)
        found = points(basis(origin, start, stop))
        for matrix, columns in zip(total, found, strict=True):
            matrix[:, start:stop] = to_coordinates(columns, lead=1).T
    return total
