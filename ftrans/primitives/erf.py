"""The error function of single precision by NumPy, which has none.

SciPy computes in double precision, four times as long; JAX compiles a function for each shape
first, a thousand times as long. The approximations are rational ones whose greatest relative error
is least, found by weighted least squares (C. L. Lawson's algorithm) on what SciPy gives; their own
error is below a third of the spacing of numbers, and what rounding adds is that of JAX's.
"""

from __future__ import annotations

import numpy as np

_END = np.float32(3.92)
"""From here on the error function rounds to one."""

# erf(x) / x in powers of x^2, up to `_END`.
_ABOVE = np.array(
    [1.12837915, 1.90407425e-1, 5.27488179e-2, 3.76564751e-3, 2.84881687e-4, 2.05005868e-6], "f4"
)
_BELOW = np.array(
    [1.0, 5.02076928e-1, 1.14109478e-1, 1.49692814e-2, 1.16253955e-3, 3.80913612e-5], "f4"
)

# exp(x^2) erfc(x) / t in powers of t = 1 / (1 + `_BEND` x), for x up to 10.2, where it is zero.
_BEND = np.float32(0.4)
_TAIL = np.array(
    [
        0.22570556, 0.22497832, 0.21470037, 0.13070091, 0.26911078,
        -0.2788593, 0.54081283, -0.49384528, 0.19590134, -0.02920551,
    ],
    "f4",
)  # fmt: skip


def _polynomial(x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Computes a polynomial with these coefficients, the constant one first."""
    found = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        found += c
        found *= x
    found += coefficients[0]
    return found


def erf(x: np.ndarray) -> np.ndarray:
    """Computes the error function of f32[...], at most seven roundings off."""
    x = np.clip(x, -_END, _END)
    square = x * x
    found = _polynomial(square, _ABOVE)
    found *= x
    found /= _polynomial(square, _BELOW)
    return np.clip(found, np.float32(-1), np.float32(1), out=found)


def erfc(x: np.ndarray) -> np.ndarray:
    """Computes one minus the error function of f32[...], also where that is all rounding.

    It is at most 16 roundings off up to 4, and beyond that by as much as rounding x^2 makes of it.
    """
    size = np.abs(x)
    t = np.float32(1) / (size * _BEND + np.float32(1))
    found = _polynomial(t, _TAIL)
    found *= t
    size *= size
    found *= np.exp(np.negative(size, out=size), out=size)
    return np.where(x < 0, np.float32(2) - found, found)
