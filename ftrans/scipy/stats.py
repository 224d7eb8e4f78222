"""Statistics, under SciPy's names: `jax.scipy.stats` as programs; what is NaN stays NaN.

JAX compares values with the bounds of a distribution, and has numbers for NaN, so that a likelihood
of missing data would be finite.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

from ftrans import numpy as fnp
from ftrans.interop import Namespace
from ftrans.ir.dtype import is_half
from ftrans.numpy.borrowed import double, listed
from ftrans.scipy import special
from ftrans.traceback import boundary

_of_jax = Namespace("jax.scipy.special")
_OF_VECTORS = {"dirichlet", "multinomial", "multivariate_normal"}
_ENDLESS = {"cauchy", "gumbel_l", "gumbel_r"}


class _Distribution(Namespace):
    """Is the module of one distribution of numbers."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if callable(found) and name != "entropy":
            law = self.__name__.rpartition(".")[2]
            found = self.__dict__[name] = _keeping(found, law)
        return found


def _off(p: Any, q: Any) -> Any:
    """Returns what JAX's logarithm of the beta function lacks: some 1e-6."""
    inside = fnp.logical_and(p > 0, q > 0)
    p, q = fnp.where(inside, p, 1.0), fnp.where(inside, q, 1.0)
    return special.betaln(p, q) - _of_jax.betaln(p, q)


def _lacks(law: str, given: dict[str, Any]) -> Any:
    """Returns what the logarithms of JAX's densities lack, that are made of beta functions."""
    a, b = double(given["a"]), double(given["b"])
    if law == "beta":
        return -_off(a, b)
    k, n = fnp.floor(double(given["k"])) - given.get("loc", 0), double(given["n"])
    return _off(k + a, n - k + b) - _off(a, b) - _off(n - k + 1, k + 1)


def _keeping(function: Any, law: str) -> Any:
    """Makes a function NaN where its first argument is, or an argument has no meaning.

    Such are probabilities beyond 0 and 1, and scales up to 0. Masses between integers are 0.
    """
    signature, name = inspect.signature(function), function.__name__
    first = next(iter(signature.parameters))

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        given = {key: listed(each) for key, each in bound.items()}
        x = double(given[first])
        lost = fnp.isnan(x) | ((x < 0) | (x > 1) if first in ("p", "q") else False)
        for key in given.keys() & {"df", "scale"}:
            lost = lost | (double(given[key]) <= 0)
        dtype = fnp.result_type(*given.values())
        if is_half(dtype):  # which JAX refuses in places
            given = {key: fnp.asarray(each, "float32") for key, each in given.items()}
        found = function(**given)
        is_mass = name in ("pmf", "logpmf")
        if law in ("beta", "betabinom") and (is_mass or name in ("pdf", "logpdf")):
            lacks = fnp.astype(_lacks(law, given), found.dtype)
            found = found + lacks if name.startswith("log") else found * fnp.exp(lacks)
        if is_mass:
            k = x - double(given.get("loc", 0))
            found = fnp.where(k == fnp.floor(k), found, 0.0 if name == "pmf" else -fnp.inf)
        elif law in _ENDLESS and first in ("p", "q"):  # JAX does not have the ends
            low, high = (0, 1) if name == "ppf" else (1, 0)
            found = fnp.where(x == low, -fnp.inf, fnp.where(x == high, fnp.inf, found))
        # times NaN, so that a derivative there is NaN as well, where there is one
        found = fnp.multiply(found, fnp.where(lost, fnp.nan, fnp.ones_like(found)))
        return fnp.astype(found, dtype) if is_half(dtype) else found

    return boundary(called)


_found = Namespace("jax.scipy.stats")
__dir__ = _found.__dir__


def __getattr__(name: str) -> Any:
    found = getattr(_found, name)
    if isinstance(found, ModuleType) and name not in _OF_VECTORS:
        found = globals()[name] = _Distribution(found.__name__)
    return found
