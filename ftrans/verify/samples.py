"""What is made of a sample: other values, other precision, axes of size one and of size zero.

A derived sample is no promise of the author's: where the function itself does not take it, or does
something else with it, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.tree_util as tree
import numpy as np

from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.verify.coordinates import alike, host
from ftrans.verify.probe import Probe


def describe_sample(number: int, args: Sequence[Any]) -> str:
    """Returns how failures name a sample: its number, and the types of its arguments."""
    shown = [str(tree.tree_map(lambda x: type_of(x) if is_array(x) else x, arg)) for arg in args]
    return f"{number}: ({', '.join(shown)})"


def nearby(probe: Probe) -> Probe:
    """Returns the function at another point: elements in another order, and a little larger."""
    return probe.at(alike([moved(array, 1) for array in probe.arrays], probe.values))


def moved(array: np.ndarray, steps: int) -> np.ndarray:
    """Returns the same elements in another order, where they may be, and a little larger."""
    return scaled(array if is_structured(array) else np.roll(array, steps), steps)


def scaled(array: np.ndarray, steps: int) -> np.ndarray:
    """Returns an array with elements a little larger; one of integers as it is."""
    if array.dtype.kind in "biu":
        return array
    return (array * np.asarray(1 + 0.0625 * steps, array.dtype)).astype(array.dtype)


def is_structured(array: np.ndarray) -> bool:
    """Tells whether the order of the elements may matter to what a function takes.

    So it is where they are sorted, or add up to one, or where a matrix is symmetric or triangular.
    """
    if array.dtype.kind == "c" or array.ndim == 0 or array.size < 3:
        return False
    flat = array.astype(np.float64)
    with np.errstate(all="ignore"):
        steps = np.diff(flat, axis=-1)
        if steps.size and (np.all(steps > 0) or np.all(steps < 0)):
            return True
        if np.allclose(flat.sum(-1), 1.0):
            return True
        if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
            return False
        turned = np.swapaxes(flat, -1, -2)
        is_triangular = not np.any(np.triu(flat, 1)) or not np.any(np.tril(flat, -1))
        return is_triangular or np.allclose(flat, turned)


def other_precision(probe: Probe) -> Probe | None:
    """Returns a function in double precision as one in single precision; None for any other."""
    pairs = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
    if not probe.values or any(array.dtype not in pairs for array in probe.arrays):
        return None
    return probe.at(alike([a.astype(pairs[a.dtype]) for a in probe.arrays], probe.values))


class Cut(NamedTuple):
    """A function whose arrays have lost elements along the axes of one size.

    Attributes:
        probe: the function, at what is left.
        size: that size.
        new: what it became.
        leading: whether only first axes were cut.
    """

    probe: Probe
    size: int
    new: int
    leading: bool

    @property
    def label(self) -> str:
        """Says what was cut."""
        which = "first axes" if self.leading else "axes"
        return f"with {which} of size {self.size} cut to {self.new}"

    def fits(self, before: Sequence[Any]) -> bool:
        """Tells whether results are cut as arguments are: only then is it the same operation.

        A convolution with a kernel that is longer than what is left is another one.

        Args:
            before: the results of the function before it was cut.
        """
        after = self.probe.leaves
        return len(before) == len(after) and all(
            np.shape(b) in (self._shape(np.shape(a)), np.shape(a))
            for a, b in zip(before, after, strict=True)
        )

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            self.new if n == self.size and (axis == 0 or not self.leading) else n
            for axis, n in enumerate(shape)
        )


def resized(probe: Probe) -> Iterator[Cut]:
    """Yields the function with each size that its arrays have cut down to one, and to zero.

    Equal sizes are cut together, since they have to fit each other as likely as not; where first
    axes have the size of others, the first ones are also cut alone: a batch of one.
    """
    places = [i for i, leaf in enumerate(probe.given) if is_array(leaf)]
    shapes = [np.shape(probe.given[i]) for i in places]
    for new in (1, 0):
        for size in sorted({n for shape in shapes for n in shape if n > 1}):
            yield _cut(probe, places, size, new, False)
            first = {shape[0] for shape in shapes if shape}
            if first == {size} and any(size in shape[1:] for shape in shapes):
                yield _cut(probe, places, size, new, True)


def _cut(probe: Probe, places: Sequence[int], size: int, new: int, leading: bool) -> Cut:
    arrays = [probe.given[i] for i in places]
    cut = []
    for array in map(host, arrays):
        kept = tuple(
            slice(0, new) if n == size and (axis == 0 or not leading) else slice(None)
            for axis, n in enumerate(array.shape)
        )
        left = np.ascontiguousarray(array[kept]).reshape(array[kept].shape)
        if array.dtype.kind in "iu" and new and np.all(np.abs(left) < size):
            # it may be an index into what was cut
            left = np.clip(left, -new if array.dtype.kind == "i" else 0, new - 1)
        cut.append(left)
    return Cut(probe.at(alike(cut, arrays), places), size, new, leading)
