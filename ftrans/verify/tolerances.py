"""How exact numbers of a dtype are, and how far off a derivative of them may be."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

__all__ = ["Tolerance", "precision_of", "tolerance_for", "widened"]


class Tolerance(NamedTuple):
    """Says how differences are taken and compared: `|a - n| <= atol + rtol * |n|`.

    Attributes:
        eps: the step of differences.
        atol: the absolute tolerance.
        rtol: the relative tolerance.
    """

    eps: float
    atol: float
    rtol: float


# By the bits of the mantissa: (what is checked against differences in double precision, what is
# checked against differences in its own precision, whose steps are long and noisy).
_BY_BITS = {
    52: (Tolerance(1e-6, 1e-5, 1e-3), Tolerance(1e-6, 1e-5, 1e-3)),
    23: (Tolerance(1e-6, 1e-4, 2e-3), Tolerance(1e-2, 2e-3, 1e-2)),
    10: (Tolerance(1e-6, 1e-2, 2e-2), Tolerance(6e-2, 3e-2, 6e-2)),
    7: (Tolerance(1e-6, 6e-2, 1e-1), Tolerance(2.5e-1, 1.5e-1, 1.5e-1)),
}


def _bits(dtype: Any) -> int:
    return int(jnp.finfo(dtype).nmant)


def precision_of(array: Any) -> float:
    """Returns the distance from 1 to the next number of an array's dtype; 0 for integers."""
    dtype = np.dtype(array.dtype)
    return 0.0 if dtype.kind in "biu" else float(jnp.finfo(dtype).eps)


def tolerance_for(dtypes: list[Any], double: bool) -> Tolerance:
    """Returns the defaults for what involves numbers of these dtypes: those of the coarsest.

    Args:
        dtypes: floating ones.
        double: whether the function can be evaluated in double precision, whatever they are.
    """
    bits = min(map(_bits, dtypes))
    return _BY_BITS.get(bits, _BY_BITS[7])[0 if double else 1]


def widened(dtype: Any) -> np.dtype:
    """Returns the dtype of double precision for a floating dtype."""
    return np.dtype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)
