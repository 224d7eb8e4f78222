"""Functions that are JAX's, under NumPy's names: what needs no convention or speed of ours.

Each is imported when first called, see `ftrans.from_jax`; results never share memory.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import zip_longest
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, DTypeError
from ftrans.interop import from_jax
from ftrans.ir import type_of
from ftrans.numpy.bounds import at_hand, concrete
from ftrans.numpy.dtypes import shape, size
from ftrans.numpy.promotion import as_array, cast, default_dtype, is_array, is_scalar, wide

Function = Callable[..., Any]

_NAMES = """
    allclose array_equal array_equiv bitwise_count block corrcoef cov cross
    delete diag_indices diag_indices_from digitize ediff1d frexp gcd histogram
    histogram2d histogram_bin_edges histogramdd insert interp intersect1d isclose isin
    ix_ kaiser kron lcm ldexp lexsort nanpercentile nanquantile nextafter packbits poly
    polyadd polyder polydiv polyfit polyint polymul polysub polyval ravel_multi_index resize
    rollaxis roots searchsorted select setdiff1d setxor1d spacing trapezoid tril_indices
    tril_indices_from trim_zeros triu_indices triu_indices_from union1d unpackbits unravel_index
    unwrap vander
"""


_COUNTS = {"bins", "fweights"}
"""Parameters that stay integers."""


def borrow(home: ModuleType, names: str, floats: str = "") -> dict[str, Function]:
    """Returns functions of a module of JAX's as ours, by name.

    Those among `floats` convert integers and booleans to float64, as NumPy does.
    """
    wide = floats.split()
    return {n: borrowed(getattr(home, n), home.__name__, n in wide) for n in names.split()}


def borrowed(function: Function, home: str, floats: bool = False) -> Function:
    """Returns a function of JAX's as one of ours, which takes sequences of numbers as well."""
    imported = from_jax(function)
    signature, name = inspect.signature(function), function.__name__
    # what JAX says of its parameters tells arrays from shapes and axes
    kinds = {p.name: str(p.annotation) for p in signature.parameters.values()}
    last = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None)

    def called(*args: Any, **kwargs: Any) -> Any:
        pairs = zip_longest(args, [*kinds][: len(args)], fillvalue=last)
        wide = lambda key: floats and key not in _COUNTS  # noqa: E731
        args = tuple([_given(x, kinds.get(str(key), ""), wide(key)) for x, key in pairs])
        kwargs = {key: _given(x, kinds.get(key, ""), wide(key)) for key, x in kwargs.items()}
        found = imported(*args, **kwargs)
        return tuple(found) if type(found) is list else found

    called.__name__ = called.__qualname__ = name
    called.__module__ = home.replace("jax", "ftrans", 1)
    called.__doc__ = f"Is `{home}.{name}` as a program: differentiated and compiled as any."
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


def _given(x: Any, kind: str, floats: bool) -> Any:
    """Returns an argument as JAX takes it, which says that it takes `kind`."""
    if type(x) is tuple and kind.startswith("Sequence[ArrayLike"):
        return tuple(map(listed, x))
    if not kind.startswith("ArrayLike") or x is None or is_scalar(x) or type(x) in (str, slice):
        return float(x) if floats and type(x) is int and kind.startswith("ArrayLike") else listed(x)
    if not is_array(x):
        x = as_array(x) if "list" not in kind else listed(x)
    return double(x) if floats and is_array(x) else x


def double(x: Any) -> Any:
    """Returns an array of floating point; integers and booleans become float64, as in NumPy.

    Where values stand for tensors they become the default dtype.
    """
    x = as_array(x)
    return x if type_of(x).is_inexact else cast(x, wide())


def listed(x: Any) -> Any:
    """Returns a list of numbers as an array, and all else as it is."""
    if type(x) is not list:
        return x
    leaves = tree.tree_leaves(x)
    if all(map(is_scalar, leaves)):
        is_even = len({len(y) if type(y) is list else -1 for y in x}) < 2
        return np.asarray(x) if is_even else [*map(listed, x)]
    is_one = all(is_scalar(leaf) or (is_array(leaf) and not np.ndim(leaf)) for leaf in leaves)
    return as_array(x) if is_one else x


class _Joins:
    """Joins what it is indexed by, as NumPy's object of that name does."""

    def __init__(self, name: str):
        self._joined = from_jax(lambda items: getattr(jnp, name)[items])

    def __getitem__(self, items: Any) -> Any:
        """Returns what is joined, slices being ranges."""
        return self._joined(items)


r_, c_ = _Joins("r_"), _Joins("c_")

_FLOATS = """
    corrcoef cov histogram histogram2d histogram_bin_edges histogramdd interp nanpercentile
    nanquantile nextafter polyfit spacing trapezoid
"""
globals().update(borrow(jnp, _NAMES, _FLOATS))


def _of_fractions(function: Function, most: float) -> Function:
    """Makes fractions that are at hand, and out of range, an error, as they are in NumPy."""

    @functools.wraps(function)
    def called(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
        if at_hand(q) and not all(0 <= x <= most for x in np.ravel(q)):
            raise ArgumentError(
                f"{function.__name__}: q must lie between 0 and {most:g}.\n  q: {q}"
            )
        if not np.ndim(a):  # JAX gives a number an axis
            kwargs.pop("keepdims", None)
        return function(a, q, *args, **kwargs)

    return called


nanquantile = _of_fractions(globals()["nanquantile"], 1)
nanpercentile = _of_fractions(globals()["nanpercentile"], 100)
_ix = globals()["ix_"]


@functools.wraps(_ix)
def ix_(*args: Any) -> Any:
    at = [np.asarray(x) if isinstance(x, (list, tuple)) else as_array(x) for x in args]
    places = [
        concrete(x, "ix_ of a mask").nonzero()[0] if type_of(x).dtype == bool else x for x in at
    ]
    return _ix(*places)


def _counting(function: Function) -> Function:
    """Gives a histogram NumPy's dtypes: integers where a vector is counted, else floats."""
    own = inspect.signature(function).parameters
    *firsts, _, _ = [name for name in own if name != "out_sharding"]
    # NumPy's order
    signature = inspect.Signature([own[name] for name in (*firsts, "density", "weights")])

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if function.__name__ == "histogram" and given.get("range") is None and not size(given["a"]):
            given["range"] = (0.0, 1.0)
        if isinstance(given.get("bins"), str):  # which looks at the values
            a = concrete(given["a"], f"histogram(bins={given['bins']!r})")
            given["bins"] = np.histogram_bin_edges(a, given["bins"], given.get("range"))
        counts, *edges = function(**given)
        if given.get("density") or function.__name__ != "histogram":
            counts = double(counts)
        elif given.get("weights") is None:
            counts = cast(counts, default_dtype(int))
        else:
            counts = cast(counts, type_of(as_array(given["weights"])).dtype)
        return counts, *edges

    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


for _name in ("histogram", "histogram2d", "histogramdd"):
    globals()[_name] = _counting(globals()[_name])


def _as_numpy_takes(function: Function, read: str) -> Function:
    """Makes an error what NumPy refuses of arguments that are at hand, of those that `read` names.

    The first one, when it is not named, is given to NumPy without elements.
    """
    signature, theirs = inspect.signature(function), getattr(np, function.__name__)
    first = {next(iter(signature.parameters)): ()}

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        given = {key: bound[key] for key in read.split() if bound.get(key) is not None}
        if given.keys() - first.keys() and at_hand(*tree.tree_leaves(given)):
            try:
                theirs(**first | given)
            except (RuntimeError, TypeError, ValueError) as error:
                kind = DTypeError if isinstance(error, TypeError) else ArgumentError
                shown = [(k, type_of(x) if is_array(x) else repr(x)) for k, x in given.items()]
                lines = "".join(f"\n  {key}: {text!s:.60}" for key, text in shown)
                raise kind(f"{function.__name__}: {error}{lines}") from None
        return function(*args, **kwargs)

    return called


for _name, _read in {
    "cov": "m rowvar fweights aweights",
    "digitize": "bins",
    "histogram": "bins range",
    "histogram_bin_edges": "bins range",
    "interp": "xp fp period",
    "unravel_index": "indices shape",
}.items():
    globals()[_name] = _as_numpy_takes(globals()[_name], _read)


def einsum_path(subscripts: Any, *operands: Any, optimize: Any = "greedy") -> tuple[list[Any], str]:
    """Says in which order `einsum` contracts, as `numpy.einsum_path` does; values do not matter."""
    shapes = [np.broadcast_to(0.0, shape(x)) if is_array(x) else x for x in operands]
    return np.einsum_path(subscripts, *shapes, optimize=optimize)


_OF_NUMPY = """
    ComplexWarning array2string array_repr array_str bartlett blackman frombuffer fromfile
    fromiter fromstring get_printoptions hamming hanning index_exp load loadtxt mask_indices
    mgrid ndindex ogrid printoptions s_ save savez set_printoptions
"""
"""What is NumPy's own: it makes plain arrays, or shows them."""

globals().update({name: getattr(np, name, None) for name in _OF_NUMPY.split()})
globals()["ComplexWarning"] = np.exceptions.ComplexWarning

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "c_", "einsum_path", "r_", *_NAMES.split(), *_OF_NUMPY.split(),
]  # fmt: skip
