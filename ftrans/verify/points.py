"""Evaluates a function at many points: by one batched call, or one by one where that differs.

Differences must not depend on the batching rule of a function under test: what a batched call
gives is held against single calls before it is trusted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.func.vmap import vmap
from ftrans.verify.call import host, like
from ftrans.verify.tolerances import precision_of

__all__ = ["Points", "rows_of"]

_BYTES = 1 << 21
"""What the points of one chunk may take: about the size of a processor's cache."""


def rows_of(width: int) -> int:
    """Returns how many rows of `width` numbers make one chunk."""
    return max(1, _BYTES // max(8 * width, 1))


class Points:
    """Evaluates a function at points that differ in one argument.

    Args:
        function: takes arrays, returns a list of arrays.
        values: the arguments.
        position: which of them is replaced.
        batched: whether a batched call may be tried at all.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        values: Sequence[Any],
        position: int,
        batched: bool = True,
    ):
        self.function = function
        self.values = list(values)
        self.position = position
        self.batched = batched
        self._verified = False

    def __call__(self, points: np.ndarray) -> list[np.ndarray]:
        """Returns for each output its values at all points, stacked.

        Args:
            points: the values of the argument, stacked.
        """
        if self.batched and len(points) > 2:
            found = self._at_once(points)
            if found is not None:
                return found
            self.batched = False
        each = [self._single(point) for point in points]
        return [np.stack(rows) for rows in zip(*each, strict=True)]

    def _single(self, point: np.ndarray) -> list[np.ndarray]:
        values = list(self.values)
        values[self.position] = like(point, values[self.position])
        return [host(out) for out in self.function(*values)]

    def _at_once(self, points: np.ndarray) -> list[np.ndarray] | None:
        values = list(self.values)
        values[self.position] = like(points, values[self.position])
        in_dims = tuple(0 if i == self.position else None for i in range(len(values)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outs = vmap(lambda *xs: list(self.function(*xs)), in_dims)(*values)
        except Exception:
            # whatever it was: single calls need no batching, and raise what is the user's own
            return None
        found = [host(out) for out in outs]
        if not self._verified:
            for row in (0, len(points) - 1):
                for one, many in zip(self._single(points[row]), found, strict=True):
                    if not _agree(one, many[row]):
                        return None
            self._verified = True
        return found


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    """Tells whether two arrays are the same but for how sums were ordered."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.size or one.dtype.kind in "biu":
        return bool((one == other).all())
    precision = precision_of(one)
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
        close = np.abs(one - other) <= 500 * precision * scale
    return bool((close | (one == other) | (np.isnan(one) & np.isnan(other))).all())
