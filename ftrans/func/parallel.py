"""Loops whose steps need not wait for each other: `associative_scan`, and `map` in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util as tree

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, AxisError, ShapeError
from ftrans.func.bodies import flatten_arrays
from ftrans.func.loops import scan_as
from ftrans.func.staging import is_whole, name_of, named
from ftrans.func.vmap import vmap
from ftrans.ir import type_of
from ftrans.numpy.axes import canonical_axis
from ftrans.traceback import boundary


@boundary
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Returns what an associative operation makes of all elements up to each, in log(n) rounds.

    Args:
        fn: combines two pytrees like `elems`, of many elements each along the axis, the earlier
            ones first: `fn(fn(a, b), c)` must be `fn(a, fn(b, c))`.
        elems: a pytree of arrays.
        reverse: whether to go from the last element to the first; `fn` is given the later ones
            first then.
        axis: the axis along which the elements lie, in every array.

    Returns:
        A pytree like `elems`.

    Example:
        >>> import numpy as np
        >>> associative_scan(np.multiply, np.array([1.0, 2.0, 3.0]))
        array([1., 2., 6.])
    """
    arrays, names, _, structure = flatten_arrays("associative_scan", "elems", elems)
    if not arrays:
        raise ArgumentError("associative_scan: elems holds no array.\n  Pass the arrays to scan.")
    lines, sizes = "", set()
    for x, label in zip(arrays, names, strict=True):
        t = type_of(x)
        if t.ndim == 0:
            raise AxisError(f"associative_scan: takes arrays of one axis or more.\n  {label}: {t}")
        sizes.add(t.shape[canonical_axis("associative_scan", axis, t.ndim)])
        lines += f"\n  {label}: {t}"
    if len(sizes) > 1:
        raise ShapeError(f"associative_scan: the sizes along axis {axis} differ.{lines}")

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        made = fn(*[tree.tree_unflatten(structure, part) for part in (first, second)])
        found, _, _, after = flatten_arrays("associative_scan", "the result of fn", made)
        same = after == structure and all(
            type_of(x).shape == type_of(y).shape for x, y in zip(found, second, strict=True)
        )
        if not same:
            raise ShapeError(
                f"associative_scan: fn must return what it takes: arrays of the same shapes.{lines}"
            )
        return found

    lines_first = [fnp.moveaxis(x, axis, 0) for x in arrays]
    if reverse:
        lines_first = [fnp.flip(x, 0) for x in lines_first]
    found = _prefixes(combine, lines_first)
    if reverse:
        found = [fnp.flip(x, 0) for x in found]
    return tree.tree_unflatten(structure, [fnp.moveaxis(x, 0, axis) for x in found])


def _prefixes(combine: Callable[[Any, Any], Any], xs: list[Any]) -> list[Any]:
    """Combines neighbours, then the pairs, and fills in what lies between."""
    size = type_of(xs[0]).shape[0]
    if size < 2:
        return xs
    odd = _prefixes(combine, combine([x[:-1:2] for x in xs], [x[1::2] for x in xs]))
    if size == 2:
        even = [x[:1] for x in xs]
    else:
        before = odd if size % 2 else [x[:-1] for x in odd]
        between = combine(before, [x[2::2] for x in xs])
        even = [fnp.concatenate([x[:1], y]) for x, y in zip(xs, between, strict=True)]
    return [_interleaved(x, y, size) for x, y in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any, size: int) -> Any:
    half = size // 2
    both = fnp.stack([even[:half], odd], axis=1).reshape(2 * half, *type_of(odd).shape[1:])
    return fnp.concatenate([both, even[half:]]) if size % 2 else both


@boundary
def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Applies `f` to each element, one after the other, or to a batch of them at once.

    Args:
        f: takes one element and returns a pytree of arrays.
        xs: a pytree of arrays whose axis 0 is gone through.
        batch_size: how many elements are computed at once, as by `vmap`; None for one.

    Returns:
        The results, stacked along axis 0.

    Example:
        >>> import numpy as np
        >>> map(lambda x: x @ x, np.arange(6.0).reshape(3, 2), batch_size=2)
        array([ 1., 13., 41.])
    """
    if batch_size is None:
        each = named(lambda _, x: ((), f(x)), name_of(f))
        return scan_as("map", each, (), xs, None, False, 1)[1]
    if not (is_whole(batch_size) and batch_size > 0):
        raise ArgumentError(
            f"map: batch_size must be None or an int of at least 1.\n  batch_size: {batch_size!r}"
        )
    lengths = {type_of(x).shape[:1] for x in flatten_arrays("map", "xs", xs)[0]}
    if len(lengths) != 1 or () in lengths:
        return map(f, xs)  # which says what is wrong
    count, rest = divmod(lengths.pop()[0], batch_size)
    whole = count * batch_size

    def joined(x: Any) -> Any:
        return fnp.reshape(x, (whole, *type_of(x).shape[2:]))

    many = vmap(f)
    parts = []
    if count or not rest:
        cut = tree.tree_map(lambda x: x[:whole].reshape(count, batch_size, *x.shape[1:]), xs)
        parts.append(tree.tree_map(joined, map(named(lambda x: many(x), name_of(f)), cut)))
    if rest:
        parts.append(many(tree.tree_map(lambda x: x[whole:], xs)))
    return tree.tree_map(lambda *ys: fnp.concatenate(ys), *parts) if len(parts) > 1 else parts[0]
