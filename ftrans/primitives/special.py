"""The error function and the gamma function, which NumPy lacks: JAX computes them on both roads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.ir import ArrayType
from ftrans.primitives.arithmetic import mul_p, neg_p
from ftrans.primitives.elementary import exp_p
from ftrans.primitives.family import check_kind, elementwise
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import Sample

__all__ = ["digamma_p", "erf_inv_p", "erf_p", "erfc_p", "lgamma_p", "polygamma_p"]

_SLOPE = 2 / math.sqrt(math.pi)


def _bell(x: Any, scale: float) -> Any:
    """Computes scale * exp(-x²)."""
    return mul_p(exp_p(neg_p(mul_p(x, x))), scale)


erf_p = elementwise(
    "erf",
    kinds="f",
    lower=lambda xp, x: by_lax(xp, "erf", x),
    jvp=[lambda t, out, x: mul_p(t, _bell(x, _SLOPE))],
    source="https://dlmf.nist.gov/7.2.E1",
)

erfc_p = elementwise(
    "erfc",
    kinds="f",
    lower=lambda xp, x: by_lax(xp, "erfc", x),
    jvp=[lambda t, out, x: mul_p(t, _bell(x, -_SLOPE))],
    source="https://dlmf.nist.gov/7.2.E2",
)

erf_inv_p = elementwise(
    "erf_inv",
    kinds="f",
    domain=(-0.9, 0.9),
    lower=lambda xp, x: by_lax(xp, "erf_inv", x),
    # the slope of the inverse is the inverse of the slope
    jvp=[lambda t, out, x: mul_p(t, mul_p(exp_p(mul_p(out, out)), 1 / _SLOPE))],
    samples=[Sample((np.array([0.0, 1.0, -1.0]),), smooth=False)],
)

lgamma_p = elementwise(
    "lgamma",
    kinds="f",
    domain=(0.3, 4.0),
    lower=lambda xp, x: by_lax(xp, "lgamma", x),
    jvp=[lambda t, out, x: mul_p(t, digamma_p(x))],
    source="https://dlmf.nist.gov/5.2.E2",
)

digamma_p = elementwise(
    "digamma",
    kinds="f",
    domain=(0.3, 4.0),
    lower=lambda xp, x: by_lax(xp, "digamma", x),
    jvp=[lambda t, out, x: mul_p(t, polygamma_p(x, order=1))],
    source="https://dlmf.nist.gov/5.15.E1",
)


def _polygamma_infer(x: ArrayType, *, order: int) -> ArrayType:
    check_kind("polygamma", "f", x)
    return x.update()


def _polygamma_lower(xp: Any, x: Any, *, order: int) -> Any:
    return by_lax(xp, "polygamma", xp.asarray(order, dtype=x.dtype), x)


polygamma_p = elementwise(
    "polygamma",
    kinds="f",
    infer=_polygamma_infer,
    lower=_polygamma_lower,
    jvp=[lambda t, out, x, *, order: mul_p(t, polygamma_p(x, order=order + 1))],
    samples=[Sample((np.array([0.4, 1.3, 3.7]),), {"order": order}) for order in (1, 2)],
    source="https://dlmf.nist.gov/5.15.E1",
)
