"""What is made of a sample: other values, other precision, axes of size one and of size zero.

A derived sample is no promise of the author's: where the function itself does not take it, or does
something else with it, it is left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ftrans.custom.verify.call import Call, host, like
from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array

__all__ = ["describe_sample", "nearby", "other_precision", "resized"]


def describe_sample(number: int, args: Sequence[Any]) -> str:
    """Returns how failures name a sample: its number, and the types of its arguments."""
    import jax.tree_util as tree

    shown = [str(tree.tree_map(lambda x: type_of(x) if is_array(x) else x, arg)) for arg in args]
    return f"{number}: ({', '.join(shown)})"


def _made(call: Call, leaves: list[Any]) -> Call:
    return Call(call.func, call.structure.unflatten(leaves))


def nearby(call: Call) -> Call:
    """Returns the call at another point: floating elements are up to a tenth larger."""
    leaves = list(call.leaves)
    for place in call.places:
        array = host(leaves[place])
        draw = np.random.default_rng(zlib.crc32(str(place).encode()))
        factor = 1 + 0.1 * draw.uniform(0.2, 1.0, array.shape)
        leaves[place] = like((array * factor).astype(array.dtype), leaves[place])
    return _made(call, leaves)


def other_precision(call: Call) -> tuple[str, Call] | None:
    """Returns a call in double precision as one in single precision; None for any other."""
    pairs = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
    if not call.values or any(np.dtype(v.dtype) not in pairs for v in call.values):
        return None
    leaves = list(call.leaves)
    for place in call.places:
        array = host(leaves[place])
        leaves[place] = like(array.astype(pairs[array.dtype]), leaves[place])
    return "in float32", _made(call, leaves)


def resized(call: Call) -> Iterator[tuple[str, Call]]:
    """Yields the call with each size that its arrays have cut down to one, and to zero.

    Equal sizes are cut together, since they have to fit each other as likely as not; then only
    the first axis is, which is that of a batch.
    """
    arrays = [i for i, leaf in enumerate(call.leaves) if is_array(leaf)]
    sizes = sorted({n for i in arrays for n in np.shape(call.leaves[i]) if n > 1})
    for new in (1, 0):
        for size in sizes:
            leaves = list(call.leaves)
            for i in arrays:
                array = host(leaves[i])
                cut = tuple(slice(0, new) if n == size else slice(None) for n in array.shape)
                leaves[i] = like(np.ascontiguousarray(array[cut]), leaves[i])
            yield f"with axes of size {size} cut to {new}", _made(call, leaves)
        leading = {np.shape(call.leaves[i])[0] for i in arrays if np.ndim(call.leaves[i])}
        if len(leading) == 1 and leading.isdisjoint({0, 1}) and _has_inner(call, arrays, leading):
            leaves = list(call.leaves)
            for i in arrays:
                if np.ndim(leaves[i]):
                    array = host(leaves[i])
                    leaves[i] = like(np.ascontiguousarray(array[:new]), leaves[i])
            yield f"with the first axis cut to {new}", _made(call, leaves)


def _has_inner(call: Call, arrays: Sequence[int], leading: set[int]) -> bool:
    """Tells whether the size of the first axis is that of an inner axis as well."""
    return any(n in leading for i in arrays for n in np.shape(call.leaves[i])[1:])
