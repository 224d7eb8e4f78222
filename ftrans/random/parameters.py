"""What generators make of the parameters that users pass: numbers, arrays, lists and shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.numpy.creation import asarray
from ftrans.numpy.elementwise import exp
from ftrans.numpy.promotion import as_array, default_dtype, is_scalar, result_type
from ftrans.pytree import describe
from ftrans.random.distributions import is_weak
from ftrans.random.keys import shape_of
from ftrans.traceback import OnTape


def listed(x: Any) -> Any:
    """Returns a list as an array, and all else as it is."""
    if type(x) in OnTape.types:
        raise OnTape
    return asarray(x) if isinstance(x, (list, tuple)) else x


def real(name: str, label: str, x: Any) -> Any:
    """Returns a parameter that is a number, or an array of floating point."""
    x = listed(x)
    if is_scalar(x):
        return float(x) if isinstance(x, int) else x
    try:
        x = as_array(x)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name}: {label} must be a number or an array.\n  {label}: {describe(x)}\n"
            f"  Write ftrans.numpy.asarray(...) for it."
        ) from None
    return x.astype(default_dtype(float)) if type_of(x).dtype.kind in "iub" else x


def dtype_for(*parameters: Any) -> Any:
    """Returns the dtype of what is drawn with these parameters; None for the default one."""
    arrays = [x for x in parameters if not is_weak(x)]
    return result_type(*arrays) if arrays else None


def size_for(name: str, size: Any, *parameters: Any) -> tuple[int, ...]:
    """Returns the shape of a draw.

    Raises:
        ShapeError: where the parameters do not broadcast, or not to the size.
    """
    types = [type_of(x) for x in parameters if not is_scalar(x)]
    wanted = None if size is None else shape_of(name, "size", size)
    try:
        shape = np.broadcast_shapes(*[t.shape for t in types])
        fits = wanted is None or np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        shape, fits = (), False
    if not fits:
        raise ShapeError(
            f"{name}: the parameters do not broadcast{'' if wanted is None else ' to the size'}.\n"
            + f"  parameters: {', '.join(map(str, types))}\n"
            + ("" if wanted is None else f"  size: {wanted}\n")
            + "  Leave the size out for the shape of the parameters, or give them axes: x[:, None]."
        )
    return shape if wanted is None else wanted


def as_own(x: Any) -> Any:
    """Returns a scalar of NumPy's as an array."""
    return np.asarray(x) if isinstance(x, np.generic) else x


def exponential_of(x: Any) -> Any:
    """Returns exp(x) of a parameter."""
    return math.exp(x) if is_scalar(x) else exp(real("lognormal", "mean", x))
