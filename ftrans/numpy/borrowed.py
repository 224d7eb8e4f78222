"""Functions that are JAX's, under NumPy's names: what needs no convention or speed of ours.

Each is imported when first called, see `ftrans.from_jax`; results never share memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np
from numpy import index_exp, mgrid, ogrid, s_

from ftrans.interop import from_jax
from ftrans.numpy.promotion import as_array, is_array, is_scalar

Function = Callable[..., Any]

_NAMES = """
    bartlett bitwise_count blackman block corrcoef cov diag_indices diag_indices_from frexp gcd
    gradient hamming hanning histogram histogram2d histogram_bin_edges histogramdd interp
    intersect1d ix_ kaiser lcm ldexp modf nanpercentile nanquantile nextafter packbits poly
    polyadd polyder polydiv polyfit polyint polymul polysub polyval ravel_multi_index resize
    rollaxis roots setdiff1d setxor1d spacing trapezoid tril_indices tril_indices_from
    trim_zeros triu_indices triu_indices_from union1d unpackbits unravel_index unwrap vander
"""


def borrow(home: ModuleType, names: str) -> dict[str, Function]:
    """Returns functions of a module of JAX's as ours, by name."""
    return {name: borrowed(getattr(home, name), home.__name__) for name in names.split()}


def borrowed(function: Function, home: str) -> Function:
    """Returns a function of JAX's as one of ours, which takes lists of numbers as well."""
    imported = from_jax(function)
    name = function.__name__

    def called(*args: Any, **kwargs: Any) -> Any:
        if list in map(type, (*args, *kwargs.values())):
            args = tuple([_array_of(x) for x in args])
            kwargs = {key: _array_of(x) for key, x in kwargs.items()}
        return imported(*args, **kwargs)

    called.__name__ = called.__qualname__ = name
    called.__module__ = home.replace("jax", "ftrans", 1)
    called.__doc__ = (
        f"Is `{home}.{name}` as a program: differentiated, batched and compiled as any."
    )
    called.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return called


def _array_of(x: Any) -> Any:
    """Returns a list of numbers as an array, and all else as it is."""
    if type(x) is not list:
        return x
    leaves = tree.tree_leaves(x)
    if all(map(is_scalar, leaves)):
        return np.asarray(x)
    is_one = all(is_scalar(leaf) or (is_array(leaf) and not np.ndim(leaf)) for leaf in leaves)
    return as_array(x) if is_one else x


class _Joins:
    """Joins what it is indexed by, as NumPy's object of that name does.

    Args:
        name: "r_" for rows, "c_" for columns.
    """

    def __init__(self, name: str):
        self._joined = from_jax(lambda items: getattr(jnp, name)[items])

    def __getitem__(self, items: Any) -> Any:
        """Returns what is joined, slices being ranges."""
        return self._joined(items)


r_, c_ = _Joins("r_"), _Joins("c_")

globals().update(borrow(jnp, _NAMES))

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "c_", "index_exp", "mgrid", "ogrid", "r_", "s_", *_NAMES.split(),
]  # fmt: skip
