"""Functions of `ftrans.numpy` that map a function of the user's over an array; given to it here.

The function is traced once, on what stands for all elements, and mapped as by `vmap`, so that
derivatives go through it and what it closes over.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, ShapeError, StructureError
from ftrans.func.vmap import vmap
from ftrans.ir import type_of
from ftrans.numpy.axes import broadcast_to, canonical_axis
from ftrans.numpy.logic import truth
from ftrans.numpy.promotion import as_array, cast, filled, is_array, is_scalar
from ftrans.primitives import stop_gradient_p
from ftrans.pytree import describe
from ftrans.traceback import boundary

Function = Callable[..., Any]

__all__ = ["apply_along_axis", "apply_over_axes", "fromfunction", "piecewise", "vectorize"]


def _mapped(function: Function, arrays: Sequence[Any], cores: Sequence[int]) -> Any:
    """Maps a function over all but the last axes of arrays, `cores` of each, which broadcast."""
    shapes = [type_of(x).shape for x in arrays]
    fronts = [shape[: len(shape) - n] for shape, n in zip(shapes, cores, strict=True)]
    front = np.broadcast_shapes(*fronts)
    if not front:
        return function(*arrays)
    given = [
        fnp.reshape(
            broadcast_to(x, front + shape[len(own) :]), (math.prod(front), *shape[len(own) :])
        )
        if own
        else x
        for x, own, shape in zip(arrays, fronts, shapes, strict=True)
    ]
    found = vmap(function, tuple([0 if own else None for own in fronts]))(*given)
    return tree.tree_map(lambda x: fnp.reshape(x, front + type_of(x).shape[1:]), found)


@boundary
def apply_along_axis(func1d: Function, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Applies a function of vectors to all that lie along an axis.

    Args:
        func1d: takes a vector and returns an array, whose axes stand in the place of `axis`.
        axis: the axis.
        arr: an array.
        *args: further arguments of the function.
        **kwargs: more of them.

    Example:
        >>> apply_along_axis(lambda v: v[-1] - v[0], 1, np.array([[1.0, 4.0], [2.0, 7.0]]))
        array([3., 5.])
    """
    x = as_array(arr)
    axis, rest = canonical_axis("apply_along_axis", axis, type_of(x).ndim), type_of(x).ndim - 1
    lines = fnp.moveaxis(x, axis, -1)
    out = _mapped(lambda v: as_array(func1d(v, *args, **kwargs)), [lines], [1])
    count = type_of(out).ndim - rest
    return fnp.moveaxis(out, tuple(range(rest, rest + count)), tuple(range(axis, axis + count)))


@boundary
def apply_over_axes(func: Function, a: Any, axes: Any) -> Any:
    """Applies `func(a, axis)` for one axis after the other, each of which stays, with size 1.

    Example:
        >>> apply_over_axes(np.sum, np.ones((2, 3)), (0, 1))
        array([[6.]])
    """
    out = as_array(a)
    ndim = type_of(out).ndim
    for given in np.ravel(axes).tolist():
        axis = canonical_axis("apply_over_axes", given, ndim)
        out = as_array(func(out, axis))
        if type_of(out).ndim == ndim - 1:
            out = fnp.expand_dims(out, axis)
    return out


@boundary
def fromfunction(function: Function, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """Returns what a function makes of the indices of an array, one argument for each axis.

    Example:
        >>> fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
        array([[ 0,  1,  2],
               [10, 11, 12]])
    """
    return function(*fnp.indices(shape, dtype), **kwargs)


@boundary
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Applies to each element the function whose condition holds, the last of them.

    Each function sees an array of the shape of x, which repeats an element for which its condition
    holds where it does not; what it makes of these is left out, and no derivative goes through it.

    Args:
        x: an array, whose dtype the result has.
        condlist: boolean arrays.
        funclist: for each condition a function of arrays, element by element, or a number; one more
            for where none holds, else 0.
        *args: further arguments of the functions.
        **kw: more of them.

    Example:
        >>> piecewise(np.array([-1.0, 4.0]), [np.array([False, True])], [np.sqrt, 0.5])
        array([0.5, 2. ])
    """
    x = as_array(x)
    t = type_of(x)
    given = condlist if isinstance(condlist, (list, tuple)) else as_array(condlist)
    alone = type_of(given).ndim <= t.ndim if is_array(given) else t.ndim and is_scalar(given[0])
    masks = [broadcast_to(truth(c), t.shape) for c in ([given] if alone else given)]
    if len(funclist) not in (len(masks), len(masks) + 1):
        raise ArgumentError(
            f"piecewise: takes a function for each of the {len(masks)} conditions, and one more "
            f"for where none holds, not {len(funclist)}."
        )
    everywhere = filled(True, t.shape, bool)
    out = filled(0, t.shape, t.dtype)
    pieces = [*funclist[len(masks) :], *funclist[: len(masks)]]
    for mask, piece in zip([everywhere] * (len(pieces) - len(masks)) + masks, pieces, strict=True):
        if callable(piece):
            if mask is everywhere:  # where none of the others holds
                mask = fnp.logical_not(functools.reduce(fnp.logical_or, masks))
            if not t.size or (isinstance(mask, np.ndarray) and not mask.any()):
                continue
            fit = fnp.take(stop_gradient_p(x), fnp.argmax(mask))
            piece = piece(fnp.where(mask, x, fit), *args, **kw)
        out = fnp.where(mask, cast(as_array(piece), t.dtype), out)
    return out


_ONE = r"\(((?:\w+(?:,\w+)*)?)\)"
_SIGNATURE = re.compile(rf"({_ONE}(,{_ONE})*)?->{_ONE}(,{_ONE})*")


def _parsed(signature: str) -> list[list[list[str]]]:
    """Returns the names of the axes of inputs and of outputs: "(n,m),(m)->(n)"."""
    bare = re.sub(r"\s", "", signature)
    if not _SIGNATURE.fullmatch(bare):
        raise ArgumentError(
            f"vectorize: a signature names the axes of each argument and result.\n"
            f"  signature: {signature!r}\n  Write as for matrices and vectors: '(n,m),(m)->(n)'."
        )
    return [[re.findall(r"\w+", x) for x in re.findall(_ONE, side)] for side in bare.split("->")]


@boundary
def vectorize(
    pyfunc: Any = None,
    otypes: Any = None,
    doc: str | None = None,
    excluded: Any = None,
    cache: bool = False,
    signature: str | None = None,
) -> Any:
    """Returns a function that maps another one over arrays, which broadcast.

    Args:
        pyfunc: a function of scalars, or of what `signature` says; without it, what takes it is
            returned, so that this can be a decorator.
        otypes: the dtype of each result, as a list or as letters; None for what comes of it.
        doc: the docstring of the result.
        excluded: positions and names of arguments that are passed as they are.
        cache: is taken for the sake of NumPy's signature.
        signature: the last axes of arguments and results, which the function takes and returns as
            a whole: "(n),(n)->()". What stands in front of them is mapped over.

    Example:
        >>> dot = vectorize(lambda x, y: (x * y).sum(), signature="(n),(n)->()")
        >>> dot(np.ones((2, 3)), np.arange(3.0))
        array([3., 3.])
    """
    options = {"otypes": otypes, "doc": doc, "excluded": excluded, "signature": signature}
    if pyfunc is None:
        return functools.partial(vectorize, **options)
    inputs, outputs = (None, None) if signature is None else _parsed(signature)

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        keys = [key for key in given if key not in frozenset(excluded or ())]
        arrays, sizes = [as_array(given[key]) for key in keys], {}
        cores = [[] for _ in keys] if inputs is None else inputs
        if len(cores) != len(keys):
            raise ArgumentError(
                f"vectorize: {signature} takes {len(cores)} arrays, not {len(keys)}."
            )
        for x, names in zip(arrays, cores, strict=True):
            _check_core(x, names, sizes)

        def one(*values: Any) -> Any:
            known = given | dict(zip(keys, values, strict=True))
            found = pyfunc(*[known[i] for i in range(len(args))], **{k: known[k] for k in kwargs})
            results = [*map(as_array, found if isinstance(found, tuple) else (found,))]
            if outputs is not None and len(results) != len(outputs):
                raise StructureError(
                    f"vectorize: {signature} has {len(outputs)} results.\n"
                    f"  returned: {describe(found)}"
                )
            for x, names in zip(results, outputs or [None] * len(results), strict=True):
                if names is not None:
                    _check_core(x, names, sizes, exact=True)
            if otypes is not None:
                results = [as_array(x, np.dtype(t)) for x, t in zip(results, otypes, strict=True)]
            return tuple(results) if isinstance(found, tuple) else results[0]

        return _mapped(one, arrays, list(map(len, cores)))

    vectorized.__doc__ = pyfunc.__doc__ if doc is None else doc
    return boundary(vectorized)


def _check_core(x: Any, names: Sequence[str], sizes: dict[str, int], exact: bool = False) -> None:
    """Raises unless the last axes of an array are of the sizes that are known by these names."""
    shape = type_of(x).shape
    core = dict(zip(names, shape[len(shape) - len(names) :], strict=False))
    fits = len(shape) == len(names) if exact else len(shape) >= len(names)
    if not fits or any(sizes.setdefault(name, size) != size for name, size in core.items()):
        raise ShapeError(
            f"vectorize: {'a result' if exact else 'an argument'} does not fit the signature.\n"
            f"  it is {type_of(x)}, for the axes ({', '.join(names)})\n  sizes: {sizes}"
        )


for _name in __all__:
    setattr(fnp, _name, globals()[_name])
fnp.__all__ += __all__
