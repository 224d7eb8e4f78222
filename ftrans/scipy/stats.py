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
from ftrans.numpy.borrowed import double
from ftrans.scipy import special
from ftrans.traceback import boundary

_of_jax = Namespace("jax.scipy.special")
_OF_VECTORS = {"dirichlet", "multinomial", "multivariate_normal"}


class _Distribution(Namespace):
    """Is the module of one distribution of numbers."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if callable(found) and name != "entropy":
            found = self.__dict__[name] = _keeping(found, self.__name__)
        return found


def _keeping(function: Any, home: str) -> Any:
    """Makes a function NaN where its first argument is, or an argument has no meaning.

    Such are probabilities beyond 0 and 1, and scales up to 0. Masses between integers are 0.
    """
    signature, name = inspect.signature(function), function.__name__
    first = next(iter(signature.parameters))

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        x = double(given[first])
        lost = fnp.isnan(x) | ((x < 0) | (x > 1) if first in ("p", "q") else False)
        for key in given.keys() & {"df", "scale"}:
            lost = lost | (double(given[key]) <= 0)
        found = function(*args, **kwargs)
        if home.endswith("stats.beta") and name in ("pdf", "logpdf"):
            a, b = given["a"], given["b"]
            off = fnp.astype(_of_jax.betaln(a, b) - special.betaln(a, b), found.dtype)  # some 1e-6
            found = found + off if name == "logpdf" else found * fnp.exp(off)
        if name in ("pmf", "logpmf"):
            k = x - double(given.get("loc", 0))
            found = fnp.where(k == fnp.floor(k), found, 0.0 if name == "pmf" else -fnp.inf)
        elif first == "p":  # of Gumbel's, which JAX does not have at the ends
            found = fnp.where(x == 0, -fnp.inf, fnp.where(x == 1, fnp.inf, found))
        # times NaN, so that a derivative there is NaN as well, where there is one
        return fnp.multiply(found, fnp.where(lost, fnp.nan, fnp.ones_like(found)))

    return boundary(called)


_found = Namespace("jax.scipy.stats")
__dir__ = _found.__dir__


def __getattr__(name: str) -> Any:
    found = getattr(_found, name)
    if isinstance(found, ModuleType) and name not in _OF_VECTORS:
        found = globals()[name] = _Distribution(found.__name__)
    return found
