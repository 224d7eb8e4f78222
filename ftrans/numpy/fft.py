"""Discrete Fourier transforms; the namespace `ftrans.numpy.fft`. They are JAX's own."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np

from ftrans.errors import AxisError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_half
from ftrans.numpy.advice import attributes_of
from ftrans.numpy.borrowed import borrow
from ftrans.numpy.promotion import as_array, cast

_TRANSFORMS = "fft fft2 fftn hfft ifft ifft2 ifftn ihfft irfft irfft2 irfftn rfft rfft2 rfftn"
_NAMES = f"{_TRANSFORMS} fftfreq fftshift ifftshift rfftfreq"


def _plain(number: Any) -> Any:
    return number.__index__() if isinstance(number, np.integer) else number


def _of_elements(function: Any) -> Any:
    """Makes a transform of no elements an error, as it is in NumPy."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        for name in given.keys() & {"axis", "axes", "n", "s"}:  # JAX takes what is hashable
            given[name] = tree.tree_map(_plain, given[name])
            if isinstance(given[name], list):
                given[name] = tuple(given[name])
        args, kwargs = bound.args, bound.kwargs
        t = type_of(as_array(given["a"]))
        if "rfft" in function.__name__ and given.get("axes") in ((), []):
            raise AxisError(f"{function.__name__}: takes one axis at least.\n  a: {t}, axes=()")
        if 0 in t.shape and given.get("n", given.get("s")) is None:
            axes = given.get("axes", given.get("axis", -1))
            sizes = np.asarray(t.shape)[np.arange(t.ndim) if axes is None else axes]
            if not np.all(sizes):
                raise ShapeError(f"{function.__name__}: takes one element at least.\n  a: {t}")
        if is_half(t.dtype):  # which JAX's real transforms refuse
            args, kwargs = (), given | {"a": cast(given["a"], "float32")}
        return function(*args, **kwargs)

    return called


globals().update(borrow(jnp.fft, _NAMES, _TRANSFORMS))
globals().update({name: _of_elements(globals()[name]) for name in _TRANSFORMS.split()})
__getattr__ = attributes_of("numpy.fft")
__all__ = _NAMES.split()  # pyright: ignore[reportUnsupportedDunderAll]
