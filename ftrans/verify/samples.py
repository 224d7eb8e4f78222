"""What is made of a sample: other values, other precision, axes of size one and of size zero.

A derived sample is no promise of the author's: where the function itself does not take it, or does
something else with it, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.verify.call import Call, host, like

__all__ = ["Cut", "describe_sample", "is_structured", "nearby", "other_precision", "resized"]


def describe_sample(number: int, args: Sequence[Any]) -> str:
    """Returns how failures name a sample: its number, and the types of its arguments."""
    import jax.tree_util as tree

    shown = [str(tree.tree_map(lambda x: type_of(x) if is_array(x) else x, arg)) for arg in args]
    return f"{number}: ({', '.join(shown)})"


def _made(call: Call, leaves: list[Any]) -> Call:
    made = Call(call.func, call.structure.unflatten(leaves))
    made.may_widen = call.may_widen
    return made


def nearby(call: Call) -> Call:
    """Returns the call at another point: elements are in another order, and a little larger."""
    leaves = list(call.leaves)
    for place in call.places:
        array = host(leaves[place])
        moved = array if is_structured(array) else np.roll(array, 1)
        factor = np.asarray(1.0625, array.dtype)
        leaves[place] = like((moved * factor).astype(array.dtype), leaves[place])
    return _made(call, leaves)


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
        return bool(
            np.allclose(flat, turned)
            or not np.any(np.triu(flat, 1))
            or not np.any(np.tril(flat, -1))
        )


def other_precision(call: Call) -> Call | None:
    """Returns a call in double precision as one in single precision; None for any other."""
    pairs = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
    if not call.values or any(np.dtype(v.dtype) not in pairs for v in call.values):
        return None
    leaves = list(call.leaves)
    for place in call.places:
        array = host(leaves[place])
        leaves[place] = like(array.astype(pairs[array.dtype]), leaves[place])
    return _made(call, leaves)


class Cut(NamedTuple):
    """Is a call whose arrays have lost elements along the axes of one size.

    Attributes:
        call: the call.
        size: that size.
        new: what it became.
        leading: whether only first axes were cut.
    """

    call: Call
    size: int
    new: int
    leading: bool

    @property
    def label(self) -> str:
        """Says what was cut."""
        which = "first axes" if self.leading else "axes"
        return f"with {which} of size {self.size} cut to {self.new}"

    def fits(self, before: Sequence[Any], after: Sequence[Any]) -> bool:
        """Tells whether results are cut as arguments are: only then is it the same operation.

        A convolution with a kernel that is longer than what is left is another one.
        """
        return len(before) == len(after) and all(
            np.shape(b) in (self._shape(np.shape(a)), np.shape(a))
            for a, b in zip(before, after, strict=True)
        )

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            self.new if n == self.size and (axis == 0 or not self.leading) else n
            for axis, n in enumerate(shape)
        )


def resized(call: Call) -> Iterator[Cut]:
    """Yields the call with each size that its arrays have cut down to one, and to zero.

    Equal sizes are cut together, since they have to fit each other as likely as not; where first
    axes have the size of others, the first ones are also cut alone: a batch of one.
    """
    arrays = [i for i, leaf in enumerate(call.leaves) if is_array(leaf)]
    shapes = [np.shape(call.leaves[i]) for i in arrays]
    sizes = sorted({n for shape in shapes for n in shape if n > 1})
    for new in (1, 0):
        for size in sizes:
            yield _cut(call, arrays, size, new, False)
            first = {shape[0] for shape in shapes if shape}
            if first == {size} and any(size in shape[1:] for shape in shapes):
                yield _cut(call, arrays, size, new, True)


def _cut(call: Call, arrays: Sequence[int], size: int, new: int, leading: bool) -> Cut:
    leaves = list(call.leaves)
    for i in arrays:
        array = host(leaves[i])
        kept = tuple(
            slice(0, new) if n == size and (axis == 0 or not leading) else slice(None)
            for axis, n in enumerate(array.shape)
        )
        array = np.ascontiguousarray(array[kept]).reshape(array[kept].shape)
        if array.dtype.kind in "iu" and new and np.all(np.abs(array) < size):
            # it may be an index into what was cut
            array = np.clip(array, -new if array.dtype.kind == "i" else 0, new - 1)
        leaves[i] = like(array, leaves[i])
    return Cut(_made(call, leaves), size, new, leading)
