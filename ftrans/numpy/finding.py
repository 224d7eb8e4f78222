"""Places of what is not zero, and what is different, by NumPy's names.

The shape of the result depends on values, which must be known while tracing: such a function asks
for them, and raises under `vmap` and `jit`, unless it is told the `size` of the result.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans.errors import AxisError
from ftrans.ir import type_of
from ftrans.numpy.axes import flattened, line_of
from ftrans.numpy.borrowed import borrowed
from ftrans.numpy.bounds import concrete
from ftrans.numpy.indexing import getitem, pick
from ftrans.numpy.promotion import as_array

__all__ = [
    "argwhere", "compress", "extract", "flatnonzero", "nonzero", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip

_i32 = np.dtype("int32")


def sized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `size` and `fill_value`: with a size no value need be known, and JAX's function does it.

    What goes beyond the size is left out, and what lacks is `fill_value`.
    """
    signature = inspect.signature(function)
    theirs = borrowed(getattr(jnp, function.__name__), "jax.numpy")

    @functools.wraps(function)
    def called(*args: Any, size: int | None = None, fill_value: Any = None, **kwargs: Any) -> Any:
        if size is None:
            return function(*args, **kwargs)
        kwargs |= {} if fill_value is None else {"fill_value": fill_value}
        return theirs(*args, size=operator.index(size), **kwargs)

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=None) for name in ("size", "fill_value")]
    parameters = [*signature.parameters.values(), *added]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{_OF_SIZE}"
    return called


_OF_SIZE = """
    With `size=n` the result has n elements, and values need not be known: what goes beyond is left
    out, and what lacks is `fill_value`.
    """


@sized
def nonzero(a: Any) -> tuple[np.ndarray, ...]:
    """Returns the places of the elements that are not 0, one array for each axis.

    Raises:
        ConcretizationError: where the values are not known, as under `vmap`.
    """
    x = as_array(a)
    if type_of(x).ndim == 0:
        raise AxisError("nonzero: an array without axes has no places: write x.reshape(1).")
    return tuple(i.astype(_i32) for i in np.nonzero(concrete(x, "nonzero()")))


@sized
def flatnonzero(a: Any) -> np.ndarray:
    """Returns the places of the elements that are not 0, of all elements as one axis."""
    return np.flatnonzero(concrete(as_array(a), "flatnonzero()")).astype(_i32)


@sized
def argwhere(a: Any) -> np.ndarray:
    """Returns the places of the elements that are not 0, each as a row."""
    return np.argwhere(concrete(as_array(a), "argwhere()")).astype(_i32)


@sized
def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """Takes the places of an axis at which a condition holds, which must be known while tracing."""
    x, axis = line_of("compress", as_array(a), axis)
    return pick(x, flatnonzero(condition), axis)


@sized
def extract(condition: Any, arr: Any) -> Any:
    """Returns the elements at which a condition holds, which must be known while tracing."""
    return getitem(flattened(as_array(arr)), flatnonzero(condition))


# ---------------------------------------------------------------------------- what is different


@sized
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Returns the different elements, in order; their values must be known while tracing.

    Each is taken from where it stands first, and so is its gradient.

    Args:
        ar: an array.
        return_index: whether to return the place of each, too.
        return_inverse: whether to return for each element of `x` which of them it is.
        return_counts: whether to return how often each occurs.
        axis: the axis whose slices are compared; None compares elements.
        equal_nan: whether NaN equals itself.
        sorted: is taken for the sake of NumPy's signature: they are in order in any case.
    """
    x = as_array(ar)
    _, index, inverse, counts = np.unique(
        concrete(x, "unique()"), True, True, True, axis, equal_nan=equal_nan
    )
    line, place = line_of("unique", x, axis)
    values = pick(line, index, place)
    extra = [(return_index, index), (return_inverse, inverse), (return_counts, counts)]
    found = tuple(part.astype(_i32) for wanted, part in extra if wanted)
    return (values, *found) if found else values


UniqueAll = namedtuple("UniqueAll", ["values", "indices", "inverse_indices", "counts"])
UniqueCounts = namedtuple("UniqueCounts", ["values", "counts"])
UniqueInverse = namedtuple("UniqueInverse", ["values", "inverse_indices"])


@sized
def unique_values(x: Any, /) -> Any:
    """Returns the different elements, in order; each NaN counts as different."""
    return unique(x, equal_nan=False)


@sized
def unique_all(x: Any, /) -> UniqueAll:
    """Returns the different elements; where each stands first, which each of x is, how often."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False))


@sized
def unique_counts(x: Any, /) -> UniqueCounts:
    """Returns the different elements, in order, and how often each occurs."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


@sized
def unique_inverse(x: Any, /) -> UniqueInverse:
    """Returns the different elements, in order, and for each element of `x` which of them it is."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False))
