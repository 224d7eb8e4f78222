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

_OF_VECTORS = {"dirichlet", "multinomial", "multivariate_normal"}


class _Distribution(Namespace):
    """Is the module of one distribution of numbers."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if callable(found) and name != "entropy":
            found = self.__dict__[name] = _keeping(found)
        return found


def _keeping(function: Any) -> Any:
    """Makes a function NaN where its first argument is, or is a probability beyond 0 and 1."""
    signature = inspect.signature(function)
    first = next(iter(signature.parameters))

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        x = double(signature.bind(*args, **kwargs).arguments[first])
        lost = fnp.isnan(x) | (x < 0) | (x > 1) if first == "q" else fnp.isnan(x)
        found = function(*args, **kwargs)
        # times NaN, so that a derivative there is NaN as well, where there is one
        return fnp.multiply(found, fnp.where(lost, fnp.nan, fnp.ones_like(found)))

    return called


_found = Namespace("jax.scipy.stats")
__dir__ = _found.__dir__


def __getattr__(name: str) -> Any:
    found = getattr(_found, name)
    if isinstance(found, ModuleType) and name not in _OF_VECTORS:
        found = globals()[name] = _Distribution(found.__name__)
    return found
