"""Collectives under the names of `jax.lax`: what goes from one example, or device, to others.

An axis has a name within `vmap(f, axis_name=)`, `shard_map`, and what maps so in JAX where that
traces the function. Names are looked up when the function is traced, the innermost one first.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, AxisError, UnsupportedError
from ftrans.ir import Axes, Tracer, type_of
from ftrans.ir.location import here
from ftrans.ir.stack import state
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.promotion import as_array, cast, is_array, is_scalar, weakly
from ftrans.primitives import (
    all_gather_p,
    all_to_all_p,
    axis_index_p,
    pmax_p,
    pmin_p,
    ppermute_p,
    psum_p,
    psum_scatter_p,
    reshape_p,
)
from ftrans.pytree import describe
from ftrans.traceback import boundary

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "psum",
    "psum_scatter",
]


def _looked_up(function: str, axis_name: Any) -> tuple[Axes, bool]:
    """Returns the axes of a name, or of a tuple of names; and whether one of them is JAX's."""
    ours = dict(state.stack[-1].asks.axes) if state.stack else {}
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    sizes, of_jax = [], False
    for name in names:
        size = ours.get(name) if isinstance(name, Hashable) else None
        if size is None:
            try:
                size = jax.lax.axis_size(name)
            except (NameError, TypeError, ValueError):
                known = ", ".join(f"{name!r} of size {size}" for name, size in ours.items())
                raise AxisError(
                    f"{function}: no mapped axis is called {name!r}.\n"
                    f"  axes here: {known or 'none'}\n"
                    f"  used at {here()}\n"
                    f"  Map the function by vmap(f, axis_name={name!r}), or by shard_map over a "
                    f"mesh that has it."
                ) from None
            of_jax = True
        sizes.append(size)
    if len(set(names)) < len(names):
        raise AxisError(f"{function}: a name is given twice.\n  axis_name: {axis_name!r}")
    if of_jax and state.stack:
        state.by_jax = True
        state.for_this_call()
    return Axes(names, tuple(sizes)), of_jax


def _each(
    function: str, x: Any, axis_name: Any, groups: Any, step: Callable[[Any, Axes, bool], Any]
) -> Any:
    """Applies `step` to each array of a pytree, with the axes, and whether these are JAX's."""
    if groups is not None:
        raise UnsupportedError(
            f"{function}: axis_index_groups is not supported.\n"
            f"  axis_index_groups: {groups}\n"
            f"  Map over two axes, one within the groups and one across them."
        )
    axes, of_jax = _looked_up(function, axis_name)

    def one(leaf: Any) -> Any:
        if not (is_array(leaf) or is_scalar(leaf)):
            raise ArgumentError(
                f"{function}: it takes a pytree of arrays.\n  leaf: {describe(leaf)}\n"
                f"  Leave out what is no array."
            )
        weak = leaf.weak if type(leaf) is Tracer else is_scalar(leaf)
        found = step(as_array(leaf), axes, of_jax)
        return weakly(found, weak) if type(found) is Tracer else found

    return tree.tree_map(one, x)


def _along(primitive: Any, x: Any, axes: Axes, of_jax: bool, **params: Any) -> Any:
    if of_jax and type(x) is not Tracer:
        return primitive.lower(jax.numpy, x, axes=axes, **params)
    return primitive(x, axes=axes, **params)


def _single(axes: Axes) -> list[Axes]:
    """Returns axes one by one; none stay together."""
    pairs = zip(*axes, strict=True)
    return [Axes((name,), (size,)) for name, size in pairs] or [axes]


@boundary
def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Returns the sum over a named axis, the same for all.

    As in JAX its transpose is the same sum: the gradient that each example has of a sum is that of
    the sum of all their results.

    Args:
        x: a pytree of arrays; a Python number is multiplied by the size of the axis.
        axis_name: the name of the axis, or a tuple of several.
        axis_index_groups: not supported; None.

    Raises:
        AxisError: where no axis has this name.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
        array([0.25, 0.75])
    """

    def step(v: Any, axes: Axes, of_jax: bool) -> Any:
        return _along(psum_p, cast(v, np.int32) if v.dtype == bool else v, axes, of_jax)

    if is_scalar(x) and axis_index_groups is None:
        return x * _looked_up("psum", axis_name)[0].size
    return _each("psum", x, axis_name, axis_index_groups, step)


@boundary
def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Returns the mean over a named axis; arguments are those of `psum`.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: x - pmean(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
        array([-1.,  1.])
    """
    size = _looked_up("pmean", axis_name)[0].size
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    return tree.tree_map(lambda v: v / size, total)


@boundary
def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Returns the largest values along a named axis; arguments are those of `psum`.

    Equal ones share the derivative, as in `max`; JAX has none.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: x - pmax(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
        array([-2.,  0.])
    """
    return _each("pmax", x, axis_name, axis_index_groups, functools.partial(_along, pmax_p))


@boundary
def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Returns the smallest values along a named axis, as `pmax` does the largest.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: x - pmin(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
        array([0., 2.])
    """
    return _each("pmin", x, axis_name, axis_index_groups, functools.partial(_along, pmin_p))


@boundary
def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False
) -> Any:
    """Returns what all have along a named axis, as one array.

    Args:
        x: a pytree of arrays.
        axis_name: the name of the axis, or a tuple of several, the slowest first.
        axis_index_groups: not supported; None.
        axis: where the axis is put in the result.
        tiled: whether the arrays are joined along this axis of theirs, rather than stacked.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: all_gather(x, "i"), axis_name="i", out_dims=None)(np.arange(2.0))
        array([0., 1.])
    """

    def step(v: Any, axes: Axes, of_jax: bool) -> Any:
        at = canonical_axis("all_gather", axis, type_of(v).ndim + (not tiled))
        shape = type_of(v).shape
        for one in reversed(_single(axes)):
            v = _along(all_gather_p, v, one, of_jax, axis=at, tiled=tiled)
        if tiled or len(axes.names) < 2:
            return v
        return reshape_p(v, shape=(*shape[:at], axes.size, *shape[at:]))

    return _each("all_gather", x, axis_name, axis_index_groups, step)


@boundary
def psum_scatter(
    x: Any,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Returns of the sum over a named axis the part that is one's own.

    Args:
        x: a pytree of arrays.
        axis_name: the name of the axis, or a tuple of several, the slowest first.
        scatter_dimension: the axis of the arrays that has a part for each.
        axis_index_groups: not supported; None.
        tiled: whether this axis is cut into parts, and stays; else it has the size of the named
            axis, and goes.

    Raises:
        ShapeError: where that axis has not a part for each.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: psum_scatter(x, "i"), axis_name="i")(np.ones((2, 2)))
        array([2., 2.])
    """

    def step(v: Any, axes: Axes, of_jax: bool) -> Any:
        shape = type_of(v).shape
        at = canonical_axis("psum_scatter", scatter_dimension, len(shape))
        several = not tiled and len(axes.names) > 1
        if several and shape[at] == axes.size:
            v = reshape_p(v, shape=(*shape[:at], *axes.sizes, *shape[at + 1 :]))
        for one in _single(axes):
            v = _along(psum_scatter_p, v, one, of_jax, axis=at, tiled=tiled)
        return v

    return _each("psum_scatter", x, axis_name, axis_index_groups, step)


def _one_axis(function: str, axes: Axes) -> None:
    if len(axes.names) != 1:
        raise UnsupportedError(
            f"{function}: it goes over one axis.\n  axis_name: {axes.names!r}\n"
            f"  Call it for one name after the other."
        )


@boundary
def all_to_all(
    x: Any,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Sends to each along a named axis its part of an axis; what one gets is put beside each other.

    Args:
        x: a pytree of arrays.
        axis_name: the name of the axis.
        split_axis: the axis of the arrays that has a part for each.
        concat_axis: where what comes from all is put.
        axis_index_groups: not supported; None.
        tiled: whether the axes are cut into parts and joined again; else `split_axis` has the size
            of the named axis, and goes, and there is a new one at `concat_axis`.

    Raises:
        ShapeError: where the axis has not a part for each.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> x = np.arange(4).reshape(2, 2)
        >>> ftrans.vmap(lambda x: all_to_all(x, "i", 0, 0), axis_name="i")(x)
        array([[0, 2], [1, 3]])
    """

    def step(v: Any, axes: Axes, of_jax: bool) -> Any:
        _one_axis("all_to_all", axes)
        ndim = type_of(v).ndim
        split = canonical_axis("all_to_all", split_axis, ndim)
        concat = canonical_axis("all_to_all", concat_axis, ndim)
        return _along(all_to_all_p, v, axes, of_jax, split=split, concat=concat, tiled=tiled)

    return _each("all_to_all", x, axis_name, axis_index_groups, step)


@boundary
def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Passes arrays on along a named axis; who gets nothing has zeros.

    Args:
        x: a pytree of arrays.
        axis_name: the name of the axis.
        perm: pairs of places, from which and to which; each is the source of one pair at most, and
            the destination of one.

    Raises:
        ArgumentError: where that is not so.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> shift = lambda x: ppermute(x, "i", [(0, 1), (1, 2)])
        >>> ftrans.vmap(shift, axis_name="i")(np.array([1.0, 2.0, 3.0]))
        array([0., 1., 2.])
    """
    try:
        pairs = tuple([(operator.index(source), operator.index(to)) for source, to in perm])
    except (TypeError, ValueError):
        lines = f"  perm: {describe(perm)}\n  Write perm=[(0, 1), (1, 0)]."
        raise ArgumentError(f"ppermute: perm is a list of pairs of ints.\n{lines}") from None

    def step(v: Any, axes: Axes, of_jax: bool) -> Any:
        _one_axis("ppermute", axes)
        return _along(ppermute_p, v, axes, of_jax, perm=pairs)

    return _each("ppermute", x, axis_name, None, step)


@boundary
def axis_index(axis_name: Any) -> Any:
    """Returns which place along a named axis one has: i32[].

    Args:
        axis_name: the name of the axis, or a tuple of several, the slowest first.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: x * axis_index("i"), axis_name="i")(np.ones(3))
        array([0., 1., 2.])
    """
    axes, of_jax = _looked_up("axis_index", axis_name)
    index: Any = None
    for one in _single(axes):
        own = not of_jax or one.names[0] in dict(state.stack[-1].asks.axes if state.stack else ())
        place = axis_index_p(axes=one) if own else jax.lax.axis_index(one.names[0])
        index = place if index is None else index * one.size + place
    return index


@boundary
def axis_size(axis_name: Any) -> int:
    """Returns the size of a named axis, or of several together.

    Example:
        >>> import numpy as np
        >>> import ftrans
        >>> ftrans.vmap(lambda x: x / axis_size("i"), axis_name="i")(np.ones(2))
        array([0.5, 0.5])
    """
    return _looked_up("axis_size", axis_name)[0].size
